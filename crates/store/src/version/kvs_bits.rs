//! Sets of `Kvs`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::types::KvsId;

/// Number of distinct `KvsId`s.
const KVS_NUMBERS: usize = 1 << 16;

/// Set of `Kvs`, one bit for each number.
pub(crate) struct KvsBits(Box<[AtomicU64]>);

impl KvsBits {
    pub(crate) fn new() -> KvsBits {
        KvsBits((0..KVS_NUMBERS / 64).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    pub(crate) fn has(&self, kvs: KvsId) -> bool {
        let word = self.0.get(kvs.0 as usize / 64);
        word.is_some_and(|word| word.load(Relaxed) >> (kvs.0 % 64) & 1 == 1)
    }

    pub(crate) fn add(&self, kvs: KvsId) {
        if let Some(word) = self.0.get(kvs.0 as usize / 64) {
            word.fetch_or(1 << (kvs.0 % 64), Relaxed);
        }
    }

    pub(crate) fn remove(&self, kvs: KvsId) {
        if let Some(word) = self.0.get(kvs.0 as usize / 64) {
            word.fetch_and(!(1 << (kvs.0 % 64)), Relaxed);
        }
    }
}
