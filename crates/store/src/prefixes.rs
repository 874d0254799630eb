//! Prefixes all of whose keys are gone.

use entresol_base::sync::RwLock;

use crate::entry::Sequence;

/// Prefixes, each with the write that removed its keys.
#[derive(Debug, Default)]
pub(crate) struct Prefixes(RwLock<Vec<(Vec<u8>, Sequence)>>);

impl Prefixes {
    /// Prefixes that are known already.
    pub(crate) fn of(all: Vec<(Vec<u8>, Sequence)>) -> Prefixes {
        Prefixes(RwLock::new(all))
    }

    /// Adds one.
    pub(crate) fn add(&self, prefix: &[u8], sequence: Sequence) {
        self.0.write().push((prefix.to_vec(), sequence));
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(Vec<u8>, Sequence)> {
        self.0.read().clone()
    }

    /// The last write not above `at` that removed this key with others.
    pub(crate) fn covering(&self, key: &[u8], at: Sequence) -> Option<Sequence> {
        let all = self.0.read();
        let covering =
            all.iter().filter(|(prefix, sequence)| *sequence <= at && key.starts_with(prefix));
        covering.map(|(_, sequence)| *sequence).max()
    }
}
