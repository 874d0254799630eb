//! Prefixes all of whose keys are gone.

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use entresol_base::sync::RwLock;

use crate::entry::Sequence;

/// Prefixes, each with the write that removed its keys.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    all: RwLock<Vec<(Vec<u8>, Sequence)>>,
    /// Whether there are any: mostly there are none, and each read of a key asks.
    any: AtomicBool,
}

impl Prefixes {
    /// Prefixes that are known already.
    pub(crate) fn of(all: Vec<(Vec<u8>, Sequence)>) -> Prefixes {
        Prefixes { any: AtomicBool::new(!all.is_empty()), all: RwLock::new(all) }
    }

    /// Adds one.
    pub(crate) fn add(&self, prefix: &[u8], sequence: Sequence) {
        self.all.write().push((prefix.to_vec(), sequence));
        self.any.store(true, Release);
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(Vec<u8>, Sequence)> {
        self.all.read().clone()
    }

    /// The last write not above `at` that removed this key with others.
    pub(crate) fn covering(&self, key: &[u8], at: Sequence) -> Option<Sequence> {
        if !self.any() {
            return None;
        }
        let all = self.all.read();
        let covering =
            all.iter().filter(|(prefix, sequence)| *sequence <= at && key.starts_with(prefix));
        covering.map(|(_, sequence)| *sequence).max()
    }

    /// Whether a write behind `since` removed a key that begins so, or may have.
    pub(crate) fn concerns(&self, prefix: &[u8], since: Sequence) -> bool {
        let overlaps = |other: &[u8]| other.starts_with(prefix) || prefix.starts_with(other);
        self.any()
            && self.all.read().iter().any(|(other, sequence)| *sequence > since && overlaps(other))
    }
}
