//! Counts by key prefix, as `stats detail` turns them on: a prefix ends at the first colon.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use entresol_base::sync::Mutex;
use entresol_cache::Lookup;

/// Prefixes that are counted; keys of further ones are not, so that a client that makes up prefixes
/// takes little memory.
const PREFIXES_MAX: usize = 10_000;
/// Delimiter of prefixes.
const DELIMITER: u8 = b':';

/// Event of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Lookup that found the key.
    Hit,
    /// Lookup that did not find the key.
    Miss,
    /// Store under the key.
    Set,
    /// Deletion of the key.
    Delete,
}

impl Event {
    /// Event of a lookup.
    pub(crate) fn of(lookup: &Lookup) -> Event {
        if matches!(lookup, Lookup::Miss) { Event::Miss } else { Event::Hit }
    }
}

/// Counts of one prefix.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// Counts by prefix of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Detail {
    is_on: AtomicBool,
    prefixes: Mutex<BTreeMap<Vec<u8>, Counts>>,
}

impl Detail {
    /// Begins or stops to count; what was counted stays.
    pub(crate) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Returns true while prefixes are counted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Counts an event of a key. Costs a load while it is off.
    #[inline]
    pub(crate) fn count(&self, key: &[u8], event: Event) {
        if self.is_on() {
            self.count_prefix(key, event);
        }
    }

    #[cold]
    fn count_prefix(&self, key: &[u8], event: Event) {
        let Some(end) = key.iter().position(|byte| *byte == DELIMITER) else { return };
        let prefix = key.get(..end).unwrap_or_default();
        let mut prefixes = self.prefixes.lock();
        if prefixes.len() >= PREFIXES_MAX && !prefixes.contains_key(prefix) {
            return;
        }
        let counts = prefixes.entry(prefix.to_vec()).or_default();
        match event {
            Event::Hit => (counts.gets, counts.hits) = (counts.gets + 1, counts.hits + 1),
            Event::Miss => counts.gets += 1,
            Event::Set => counts.sets += 1,
            Event::Delete => counts.deletes += 1,
        }
    }

    /// Appends the counts in memcached's form.
    pub(crate) fn dump(&self, out: &mut Vec<u8>) {
        for (prefix, counts) in &*self.prefixes.lock() {
            let Counts { gets, hits, sets, deletes } = counts;
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            let rest = format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n");
            out.extend_from_slice(rest.as_bytes());
        }
    }

    /// Forgets what was counted.
    pub(crate) fn reset(&self) {
        self.prefixes.lock().clear();
    }
}
