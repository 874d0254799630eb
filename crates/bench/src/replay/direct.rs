//! Cache in this process as the tenant; reads of a block file are synchronous.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::clock::ManualClock;
use entresol_base::{ByteSize, Clock, Seconds};
use entresol_cache::{
    Arithmetic, Cache, Config, Counted, DeleteOptions, Deleted, Expiry, Store, StoreMode,
};

use super::{Answers, DirectTenant, StoreCall};
use crate::cache_client::{CacheClient, Want};
use entresol_measure::BenchError;
use entresol_measure::trace::{Operation, Recorded};

/// Beginning of the trace's clock: far enough from 0 for all arithmetic on it.
const EPOCH: Seconds = Seconds(1_000_000);

pub(super) struct DirectAnswers {
    client: CacheClient,
    clock: Arc<ManualClock>,
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
        Ok(DirectAnswers { client: CacheClient::new(cache, EPOCH), clock })
    }

    pub(super) fn statistics(&self) -> entresol_cache::Statistics {
        self.client.cache.statistics()
    }

    /// Looks every key of a trace up and returns the bytes of the keys and values that are held.
    pub(super) fn held_bytes(&mut self, recorded: &Recorded) -> Result<u64, BenchError> {
        let mut held = 0;
        for object in 0..recorded.objects() {
            let key = recorded.key(object);
            if let Some(value) = self.client.look_up(key)? {
                held += (key.len() + value) as u64;
            }
        }
        Ok(held)
    }
}

impl Answers for DirectAnswers {
    fn time(&mut self, at_s: u32) {
        let now = Seconds(EPOCH.0.saturating_add(at_s));
        if now > self.client.now {
            self.clock.advance(Duration::from_secs(u64::from(now.0 - self.client.now.0)));
            self.client.now = now;
        }
    }

    fn rest(&mut self) {
        while self.client.cache.maintain(self.client.now) {}
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        Ok(self.client.look_up(key)?.is_some())
    }

    fn store(&mut self, call: StoreCall<'_>) -> Result<bool, BenchError> {
        let expiry = match call.ttl_s {
            0 => Expiry::Never,
            ttl_s => Expiry::At(Seconds(self.client.now.0.saturating_add(ttl_s))),
        };
        let mode = match call.operation {
            Operation::Add => StoreMode::Add,
            Operation::Replace => StoreMode::Replace,
            Operation::Append => StoreMode::Append,
            Operation::Prepend => StoreMode::Prepend,
            _ => StoreMode::Set,
        };
        let store = Store { expiry, mode, ..Store::set(call.value) };
        self.client.store(call.key, &store)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), BenchError> {
        let hash = self.client.hash(key);
        let options = DeleteOptions::default();
        self.client.settle(
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
        let hash = self.client.hash(key);
        let by_one = Arithmetic {
            delta: 1,
            down,
            compare: None,
            explicit_cas: None,
            touch: None,
            vivify: None,
            cas: false,
        };
        self.client.settle(
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
