//! Client of a cache in this process; reads of a block file are synchronous. Upkeep has a thread of
//! its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use entresol_base::Seconds;
use entresol_cache::{
    Cache, GetOptions, KeyHash, Lookup, OldValue, PendingRead, Store, Stored, Worker,
};
use entresol_measure::BenchError;
use entresol_media::{MediumSpec, files};

/// Largest number of attempts of a store while all write buffers are in flight.
const BUSY_TRIES_MAX: u32 = 10_000;
const BUSY_PAUSE: Duration = Duration::from_micros(100);
/// Pause of the upkeep's thread when there is nothing to do.
const UPKEEP_PAUSE: Duration = Duration::from_millis(1);

/// Upkeep of a cache, which ends when this is dropped; then the cache's file is removed.
pub(crate) struct Upkeep {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    pub(crate) medium: MediumSpec,
}

impl Upkeep {
    pub(crate) fn begin(cache: &Arc<Cache>, now: Seconds, medium: MediumSpec) -> Upkeep {
        let is_over = Arc::new(AtomicBool::new(false));
        let (cache, told) = (Arc::clone(cache), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !told.load(Relaxed) {
                if !cache.maintain(now) {
                    std::thread::sleep(UPKEEP_PAUSE);
                }
            }
        });
        Upkeep { thread: Some(thread), is_over, medium }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the upkeep has been shown where it happened.
            let _ = thread.join();
        }
        if let MediumSpec::File { path, .. } = &self.medium {
            // If this fails, the file remains.
            let _ = files::remove(path);
        }
    }
}

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
        Ok(self.get(key)?.map(<[u8]>::len))
    }

    /// Returns a value, or `None` if the key is not held.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, BenchError> {
        let hash = self.worker.hash(key);
        self.out.clear();
        let options = GetOptions::default();
        match self.worker.get(key, hash, self.now, &options, &mut self.out, |_, _| {}) {
            Lookup::Hit(_) => {}
            Lookup::Miss => return Ok(None),
            Lookup::Pending(read) => match self.fetch(&read)? {
                Some(value) => self.out = value,
                None => return Ok(None),
            },
        }
        Ok(Some(&self.out))
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
