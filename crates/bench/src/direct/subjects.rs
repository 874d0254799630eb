//! Subjects of the measurement: the cache, a plain map of boxed values, and the bare loop.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

use entresol_base::{Nanos, Seconds};
use entresol_cache::{Cache, GetOptions, KeyHash, Lookup, Store, Stored, Worker};
use entresol_media::{Access, AccountHandle, Admission};

/// Contiguous keys of a batch, all of one length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) keys: &'a [u8],
    pub(crate) key_bytes: usize,
}

/// Number of keys in a batch.
pub(crate) const BATCH: usize = 16;

/// Key-value container under measurement.
pub(crate) trait Subject {
    /// Appends the value of `key` to `out`. Returns false if there is none.
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool;

    /// Stores a copy of `value`. Returns false if that is refused.
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool;

    /// Appends the values of all keys to `out` and returns the number found.
    #[inline]
    fn get_batch(&mut self, batch: Batch<'_>, out: &mut Vec<u8>) -> usize {
        let mut found = 0;
        for key in batch.keys.chunks_exact(batch.key_bytes) {
            found += usize::from(self.get(key, out));
        }
        found
    }
}

/// Copies a constant value and does nothing else. It shows the cost of the measuring loop, which is
/// subtracted from every figure.
#[derive(Debug)]
pub(crate) struct LoopOnly {
    pub(crate) value: [u8; 8],
}

impl Subject for LoopOnly {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        black_box(key);
        out.extend_from_slice(&self.value);
        true
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        black_box((key, value));
        true
    }
}

type Boxed = HashMap<Box<[u8]>, Box<[u8]>, foldhash::fast::RandomState>;

/// Map of the standard library with boxed keys and values and a fast hasher.
#[derive(Debug, Default)]
pub(crate) struct BoxedMap {
    map: Boxed,
}

impl Subject for BoxedMap {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(value) = self.map.get(key) else { return false };
        out.extend_from_slice(value);
        true
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.map.insert(Box::from(key), Box::from(value));
        true
    }
}

/// [`BoxedMap`] behind one lock, for several threads.
#[derive(Debug, Default, Clone)]
pub(crate) struct LockedMap {
    map: Arc<Mutex<BoxedMap>>,
}

impl Subject for LockedMap {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).get(key, out)
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).set(key, value)
    }
}

/// Cache, used through one worker.
pub(crate) struct CacheSubject {
    worker: Worker,
    now: Seconds,
    options: GetOptions,
}

impl CacheSubject {
    pub(crate) fn new(cache: &Arc<Cache>, now: Seconds) -> CacheSubject {
        CacheSubject { worker: cache.worker(), now, options: GetOptions::default() }
    }

    #[inline]
    fn get_hashed(&mut self, key: &[u8], hash: KeyHash, out: &mut Vec<u8>) -> bool {
        let found = self.worker.get(key, hash, self.now, &self.options, out, |_, _| {});
        matches!(found, Lookup::Hit(_))
    }
}

impl Subject for CacheSubject {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let hash = self.worker.hash(key);
        self.get_hashed(key, hash, out)
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        let hash = self.worker.hash(key);
        let stored = self.worker.store(key, hash, self.now, &Store::set(value), None);
        matches!(stored, Stored::Stored { .. })
    }

    /// Gets a batch as the server processes a pipeline: it prefetches all index entries, then all
    /// records, and then performs the requests.
    #[inline]
    fn get_batch(&mut self, batch: Batch<'_>, out: &mut Vec<u8>) -> usize {
        let mut hashes = [None; BATCH];
        let keys = || batch.keys.chunks_exact(batch.key_bytes);
        for (key, place) in keys().zip(&mut hashes) {
            let hash = self.worker.hash(key);
            self.worker.prefetch(hash);
            *place = Some(hash);
        }
        for hash in hashes.iter().flatten() {
            self.worker.prefetch_record(*hash);
        }
        let mut found = 0;
        for (key, hash) in keys().zip(hashes.iter().flatten()) {
            found += usize::from(self.get_hashed(key, *hash, out));
        }
        found
    }
}

/// Handle of an account under a limit, with a time that advances by a microsecond with every
/// request.
pub(crate) struct Accounted {
    handle: AccountHandle,
    now: Nanos,
}

impl Accounted {
    pub(crate) fn new(handle: AccountHandle) -> Accounted {
        // The first admission is long before the second; the bucket is then full.
        let mut accounted = Accounted { handle, now: Nanos(1) };
        accounted.is_admitted();
        accounted.now = Nanos(1_000_000_000);
        accounted
    }

    #[inline]
    fn is_admitted(&mut self) -> bool {
        self.now = Nanos(self.now.0 + 1_000);
        self.handle.admit(self.now) == Admission::Go
    }

    #[inline]
    fn charge(&mut self, bytes: usize) {
        self.handle.charge(Access::Read, bytes);
    }
}

/// Measuring loop with an account and nothing else. It shows the cost of an account whose data are
/// in cache, without the noise of memory.
pub(crate) struct AccountOnly {
    pub(crate) bare: LoopOnly,
    pub(crate) account: Accounted,
    pub(crate) value_bytes: usize,
}

impl Subject for AccountOnly {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let admitted = self.account.is_admitted();
        self.account.charge(key.len() + self.value_bytes);
        self.bare.get(key, out) && admitted
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.bare.set(key, value)
    }
}

/// Cache with one more account on every get; the additional time is the cost of an account.
pub(crate) struct TwiceAccounted {
    pub(crate) cache: CacheSubject,
    pub(crate) account: Accounted,
}

impl Subject for TwiceAccounted {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        if !self.account.is_admitted() {
            return false;
        }
        let found = self.cache.get(key, out);
        self.account.charge(key.len() + out.len());
        found
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.cache.set(key, value)
    }
}
