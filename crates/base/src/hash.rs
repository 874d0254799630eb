//! Keyed hash of in-memory tables. It is never written to a medium: every process has its own seed.

use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// Hashes keys to 64 well-mixed bits under a seed, so that a client that chooses keys cannot choose
/// buckets.
#[derive(Debug, Clone)]
pub struct KeyHasher {
    state: SeedableRandomState,
}

impl KeyHasher {
    /// Creates a hasher with a random seed, for servers.
    #[must_use]
    pub fn random() -> Self {
        KeyHasher { state: SeedableRandomState::random() }
    }

    /// Creates a hasher with the same hashes in every run, for tests and simulations.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        KeyHasher { state: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()) }
    }

    /// Hash of `key`.
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
