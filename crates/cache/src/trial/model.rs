//! Model of what a cache may answer.
//!
//! Each key has versions: a write is one from its begin to its end, and so is a flush, which leaves
//! nothing. A read may find any version that no other has replaced before the read began. It may
//! also find nothing, since a cache may lose any item.

use std::sync::Arc;

use entresol_base::Seconds;

use super::KEYS;
use crate::{Expiry, ItemMeta};

/// Tick of the end of a write that has not ended.
const IN_FLIGHT: u64 = u64::MAX;

/// An item as a write left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) value: Arc<[u8]>,
    pub(super) flags: u32,
    pub(super) expiry: Expiry,
    pub(super) stale: bool,
}

#[derive(Debug, Clone)]
struct Version {
    number: u64,
    begin: u64,
    end: u64,
    /// Item that the write leaves; absent if it leaves none.
    item: Option<Item>,
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Took {
    /// The item is there.
    Effect,
    /// Nothing was changed.
    No,
    /// The item that was there is there no longer, and no other either.
    Away,
}

/// Numbers of the versions that a flush leaves.
pub(super) struct Flush(Vec<u64>);

/// Histories of all keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    ticks: u64,
    numbers: u64,
    keys: Vec<Vec<Version>>,
    /// Second of an ordered flush that was acknowledged.
    flush_at: Option<Seconds>,
    /// Hits that were checked.
    pub(super) hits: u64,
}

impl Model {
    pub(super) fn new() -> Model {
        Model { keys: vec![Vec::new(); KEYS], ..Model::default() }
    }

    /// Returns the next tick, later than all before.
    pub(super) fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    /// Begins a write and returns its number.
    pub(super) fn begin(&mut self, key: usize, item: Option<Item>) -> u64 {
        let begin = self.tick();
        self.numbers += 1;
        let number = self.numbers;
        self.keys[key].push(Version { number, begin, end: IN_FLIGHT, item });
        number
    }

    /// Ends a write.
    pub(super) fn end(&mut self, key: usize, number: u64, took: Took) {
        let end = self.tick();
        let versions = &mut self.keys[key];
        match took {
            Took::No => versions.retain(|version| version.number != number),
            Took::Effect | Took::Away => {
                for version in versions.iter_mut().filter(|version| version.number == number) {
                    version.end = end;
                    if took == Took::Away {
                        version.item = None;
                    }
                }
            }
        }
    }

    /// Begins a flush.
    pub(super) fn begin_flush(&mut self) -> Flush {
        self.flush_at = None;
        Flush((0..KEYS).map(|key| self.begin(key, None)).collect())
    }

    /// Ends a flush.
    pub(super) fn end_flush(&mut self, flush: &Flush) {
        for (key, number) in flush.0.iter().enumerate() {
            self.end(key, *number, Took::Effect);
        }
    }

    /// Sets the second of an ordered flush, or forgets it while that is unknown.
    pub(super) fn order_flush(&mut self, at: Option<Seconds>) {
        self.flush_at = at;
    }

    /// Begins the ordered flush if its time has come. The operation that sees that carries it out.
    pub(super) fn flush_if_due(&mut self, now: Seconds) -> Option<Flush> {
        self.flush_at.filter(|at| *at <= now).map(|_| self.begin_flush())
    }

    /// Drops every item that expires: the clock ran back while the process was down.
    pub(super) fn clock_ran_back(&mut self) {
        let versions = self.keys.iter_mut().flatten();
        for version in versions {
            let expires = |item: &Item| item.expiry != Expiry::Never;
            if version.item.as_ref().is_some_and(expires) {
                version.item = None;
            }
        }
    }

    /// Forgets versions that no read can find any more, at a moment without reads.
    pub(super) fn prune(&mut self) {
        let now = self.tick();
        for key in 0..KEYS {
            let versions = std::mem::take(&mut self.keys[key]);
            let kept = versions.iter().filter(|version| !is_replaced(version, &versions, now));
            self.keys[key] = kept.cloned().collect();
        }
    }

    /// Checks an item that was found between two ticks.
    ///
    /// # Errors
    /// Returns a text that tells why it must not be found.
    pub(super) fn check(
        &mut self,
        key: usize,
        (value, meta): (&[u8], &ItemMeta),
        (begin, end): (u64, u64),
        now: Seconds,
    ) -> Result<(), String> {
        self.hits += 1;
        let versions = &self.keys[key];
        let mut known = None;
        for version in versions {
            let Some(item) = &version.item else { continue };
            let same = *item.value == *value && item.flags == meta.flags;
            if !same {
                continue;
            }
            let is_past = item.expiry.is_past(now);
            let replaced = is_replaced(version, versions, begin);
            let stale = item.stale == meta.stale;
            if version.begin <= end && !replaced && !is_past && stale {
                return Ok(());
            }
            known = Some((version.number, replaced, is_past, stale));
        }
        let len = value.len();
        Err(match known {
            None => format!("key {key} has {len} bytes that it never had, or long ago"),
            Some((number, true, _, _)) => {
                format!("key {key} has the {len} bytes of write {number}, which was replaced")
            }
            Some((number, _, true, _)) => {
                format!("key {key} has the {len} bytes of write {number}, which has expired")
            }
            Some((number, _, _, false)) => {
                format!("key {key} has write {number}, but stale is {}", meta.stale)
            }
            Some((number, ..)) => format!("key {key} has write {number} before it began"),
        })
    }

    /// Returns true if some item may be found between two ticks.
    pub(super) fn may_have(&self, key: usize, (begin, end): (u64, u64), now: Seconds) -> bool {
        let versions = &self.keys[key];
        versions.iter().any(|version| {
            version.begin <= end
                && !is_replaced(version, versions, begin)
                && version.item.as_ref().is_some_and(|item| !item.expiry.is_past(now))
        })
    }
}

/// Returns true if another version began after this one's end, and ended before `begin`.
fn is_replaced(version: &Version, versions: &[Version], begin: u64) -> bool {
    versions.iter().any(|other| other.begin > version.end && other.end < begin)
}
