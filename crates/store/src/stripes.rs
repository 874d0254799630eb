//! Locks of keys: who writes a key holds one, so that what he has read of it stays true until his
//! write counts.

use entresol_base::hash::KeyHasher;
use entresol_base::sync::{Mutex, MutexGuard};

use crate::entry::KvsId;

const STRIPES: usize = 256;

/// Locks that keys share.
#[derive(Debug)]
pub(crate) struct Stripes {
    hasher: KeyHasher,
    locks: Box<[Mutex<()>]>,
}

impl Stripes {
    pub(crate) fn new() -> Stripes {
        let locks = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Stripes { hasher: KeyHasher::seeded(0), locks }
    }

    fn of(&self, kvs: KvsId, key: &[u8]) -> usize {
        (self.hasher.hash(key) as usize).wrapping_add(kvs.0 as usize) % STRIPES
    }

    /// Locks a key.
    pub(crate) fn lock(&self, kvs: KvsId, key: &[u8]) -> MutexGuard<'_, ()> {
        self.locks[self.of(kvs, key)].lock()
    }

    /// Locks several keys, in an order that all agree on.
    pub(crate) fn lock_all<'a>(
        &self,
        keys: impl Iterator<Item = (KvsId, &'a [u8])>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = keys.map(|(kvs, key)| self.of(kvs, key)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| self.locks[stripe].lock()).collect()
    }

    /// Locks all keys.
    pub(crate) fn lock_every(&self) -> Vec<MutexGuard<'_, ()>> {
        self.locks.iter().map(Mutex::lock).collect()
    }
}
