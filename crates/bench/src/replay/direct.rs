//! Cache in this process as the tenant; reads of a block file are synchronous.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::clock::ManualClock;
use entresol_base::{ByteSize, Clock, Seconds};
use entresol_cache::{
    Arithmetic, Cache, Config, Counted, DeleteOptions, Deleted, Expiry, GetOptions, Lookup,
    OldValue, PendingRead, Store, StoreMode, Stored, Worker,
};

use super::{Answers, DirectTenant, StoreCall};
use entresol_measure::BenchError;
use entresol_measure::trace::{Operation, Recorded};

/// Beginning of the trace's clock: far enough from 0 for all arithmetic on it.
const EPOCH: Seconds = Seconds(1_000_000);
/// Largest number of attempts of a store while all write buffers are in flight.
const BUSY_TRIES_MAX: u32 = 10_000;
const BUSY_PAUSE: Duration = Duration::from_micros(100);

pub(super) struct DirectAnswers {
    cache: Arc<Cache>,
    worker: Worker,
    clock: Arc<ManualClock>,
    now: Seconds,
    out: Vec<u8>,
}

impl DirectAnswers {
    pub(super) fn open(tenant: &DirectTenant, seed: u64) -> Result<DirectAnswers, BenchError> {
        let clock = Arc::new(ManualClock::at(EPOCH));
        let config = Config {
            medium: tenant.medium.clone(),
            medium_bytes: tenant.medium_bytes,
            segment_bytes: tenant.segment_bytes,
            value_bytes_max: tenant.value_bytes_max,
            favour: tenant.favour,
            workers: tenant.threads,
            seed: Some(seed),
            ..Config::dram(ByteSize(tenant.dram_bytes.0))
        };
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let cache =
            Cache::open(config, shared).map_err(|error| BenchError::Usage(error.to_string()))?;
        let worker = cache.worker();
        Ok(DirectAnswers { cache, worker, clock, now: EPOCH, out: Vec::new() })
    }

    pub(super) fn statistics(&self) -> entresol_cache::Statistics {
        self.cache.statistics()
    }

    /// Looks every key of a trace up and returns the bytes of the keys and values that are held.
    pub(super) fn held_bytes(&mut self, recorded: &Recorded) -> Result<u64, BenchError> {
        let mut held = 0;
        for object in 0..recorded.objects() {
            let key = recorded.key(object);
            if let Some(value) = self.look_up(key)? {
                held += (key.len() + value) as u64;
            }
        }
        Ok(held)
    }

    /// Returns the size of a value, or `None` if the key is not held.
    fn look_up(&mut self, key: &[u8]) -> Result<Option<usize>, BenchError> {
        let hash = self.worker.hash(key);
        self.out.clear();
        let options = GetOptions::default();
        match self.worker.get(key, hash, self.now, &options, &mut self.out, |_, _| {}) {
            Lookup::Hit(_) => Ok(Some(self.out.len())),
            Lookup::Miss => Ok(None),
            Lookup::Pending(read) => Ok(self.fetch(&read)?.map(|value| value.len())),
        }
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
    fn settle<T>(
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

/// Missing input of a request that is not final.
enum Want<'a> {
    Nothing,
    Time,
    Old(&'a PendingRead),
}

impl Answers for DirectAnswers {
    fn time(&mut self, at_s: u32) {
        let now = Seconds(EPOCH.0.saturating_add(at_s));
        if now > self.now {
            self.clock.advance(Duration::from_secs(u64::from(now.0 - self.now.0)));
            self.now = now;
        }
    }

    fn rest(&mut self) {
        while self.cache.maintain(self.now) {}
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        Ok(self.look_up(key)?.is_some())
    }

    fn store(&mut self, call: StoreCall<'_>) -> Result<bool, BenchError> {
        let hash = self.worker.hash(call.key);
        let expiry = match call.ttl_s {
            0 => Expiry::Never,
            ttl_s => Expiry::At(Seconds(self.now.0.saturating_add(ttl_s))),
        };
        let mode = match call.operation {
            Operation::Add => StoreMode::Add,
            Operation::Replace => StoreMode::Replace,
            Operation::Append => StoreMode::Append,
            Operation::Prepend => StoreMode::Prepend,
            _ => StoreMode::Set,
        };
        let store = Store { expiry, mode, ..Store::set(call.value) };
        let stored = self.settle(
            |worker, now, old| worker.store(call.key, hash, now, &store, old),
            |stored| match stored {
                Stored::Busy => Want::Time,
                Stored::Pending(read) => Want::Old(read),
                _ => Want::Nothing,
            },
        )?;
        Ok(!matches!(stored, Stored::NoMemory | Stored::TooLarge))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), BenchError> {
        let hash = self.worker.hash(key);
        let options = DeleteOptions::default();
        self.settle(
            |worker, now, old| worker.delete(key, hash, now, &options, old),
            |deleted| match deleted {
                Deleted::Busy => Want::Time,
                Deleted::Pending(read) => Want::Old(read),
                _ => Want::Nothing,
            },
        )?;
        Ok(())
    }

    fn count(&mut self, key: &[u8], down: bool) -> Result<(), BenchError> {
        let hash = self.worker.hash(key);
        let by_one = Arithmetic {
            delta: 1,
            down,
            compare: None,
            explicit_cas: None,
            touch: None,
            vivify: None,
            cas: false,
        };
        self.settle(
            |worker, now, old| worker.arithmetic(key, hash, now, &by_one, old),
            |counted| match counted {
                Counted::Busy => Want::Time,
                Counted::Pending(read) => Want::Old(read),
                _ => Want::Nothing,
            },
        )?;
        Ok(())
    }
}
