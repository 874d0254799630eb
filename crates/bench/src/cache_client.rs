//! Client of a cache in this process; reads of a block file are synchronous.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::Seconds;
use entresol_cache::{
    Cache, GetOptions, KeyHash, Lookup, OldValue, PendingRead, Store, Stored, Worker,
};
use entresol_measure::BenchError;

/// Largest number of attempts of a store while all write buffers are in flight.
const BUSY_TRIES_MAX: u32 = 10_000;
const BUSY_PAUSE: Duration = Duration::from_micros(100);

/// One worker of a cache, with its time.
pub(crate) struct CacheClient {
    pub(crate) cache: Arc<Cache>,
    worker: Worker,
    pub(crate) now: Seconds,
    out: Vec<u8>,
}

/// Missing input of a request that is not final.
pub(crate) enum Want<'a> {
    Nothing,
    Time,
    Old(&'a PendingRead),
}

impl CacheClient {
    pub(crate) fn new(cache: Arc<Cache>, now: Seconds) -> CacheClient {
        let worker = cache.worker();
        CacheClient { cache, worker, now, out: Vec::new() }
    }

    /// Hashes a key.
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.worker.hash(key)
    }

    /// Returns the size of a value, or `None` if the key is not held.
    pub(crate) fn look_up(&mut self, key: &[u8]) -> Result<Option<usize>, BenchError> {
        let hash = self.worker.hash(key);
        self.out.clear();
        let options = GetOptions::default();
        match self.worker.get(key, hash, self.now, &options, &mut self.out, |_, _| {}) {
            Lookup::Hit(_) => Ok(Some(self.out.len())),
            Lookup::Miss => Ok(None),
            Lookup::Pending(read) => Ok(self.fetch(&read)?.map(|value| value.len())),
        }
    }

    /// Stores a value. Returns false if that is refused.
    pub(crate) fn store(&mut self, key: &[u8], store: &Store<'_>) -> Result<bool, BenchError> {
        let hash = self.worker.hash(key);
        let stored = self.settle(
            |worker, now, old| worker.store(key, hash, now, store, old),
            |stored| match stored {
                Stored::Busy => Want::Time,
                Stored::Pending(read) => Want::Old(read),
                _ => Want::Nothing,
            },
        )?;
        Ok(!matches!(stored, Stored::NoMemory | Stored::TooLarge))
    }

    /// Reads from the block file. Returns `None` if the value was no longer there.
    fn fetch(&mut self, read: &PendingRead) -> Result<Option<Vec<u8>>, BenchError> {
        let error = |source| BenchError::System { what: "reading the medium", source };
        let Some(file) = self.cache.file() else { return Ok(None) };
        let mut buffer = file.buffer(read.length);
        file.read_at(read.offset, &mut buffer).map_err(error)?;
        let found = self.worker.complete_read(read, &buffer).ok();
        Ok(found.map(|range| buffer[range].to_vec()))
    }

    /// Repeats `call` until it is neither busy nor needs an old value.
    pub(crate) fn settle<T>(
        &mut self,
        mut call: impl FnMut(&mut Worker, Seconds, Option<&OldValue>) -> T,
        classify: impl Fn(&T) -> Want<'_>,
    ) -> Result<T, BenchError> {
        let mut old = None;
        for _ in 0..BUSY_TRIES_MAX {
            let answer = call(&mut self.worker, self.now, old.as_ref());
            match classify(&answer) {
                Want::Nothing => return Ok(answer),
                Want::Time => std::thread::sleep(BUSY_PAUSE),
                Want::Old(read) => {
                    let read = read.clone();
                    old = self.fetch(&read)?.map(|bytes| OldValue::new(&read, bytes));
                }
            }
        }
        Err(BenchError::Cache("write buffers stayed busy".to_owned()))
    }
}
