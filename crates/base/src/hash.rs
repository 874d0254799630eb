//! The keyed hash of in-memory tables. Never written to a medium: every process has its own seed.

use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// Hashes keys to 64 well-mixed bits under a seed, so that nobody who picks keys can pick buckets.
#[derive(Debug, Clone)]
pub struct KeyHasher {
    state: SeedableRandomState,
}

impl KeyHasher {
    /// A hasher with a seed of its own: what a server uses.
    #[must_use]
    pub fn random() -> Self {
        KeyHasher { state: SeedableRandomState::random() }
    }

    /// A hasher that gives the same hashes in every run: what a test or a simulation uses.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        KeyHasher { state: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()) }
    }

    /// The hash of `key`.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_decide() {
        assert_eq!(KeyHasher::seeded(1).hash(b"key"), KeyHasher::seeded(1).hash(b"key"));
        assert_ne!(KeyHasher::seeded(1).hash(b"key"), KeyHasher::seeded(2).hash(b"key"));
        assert_ne!(KeyHasher::seeded(1).hash(b"key"), KeyHasher::seeded(1).hash(b"kez"));
    }
}
