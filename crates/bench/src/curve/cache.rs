//! Cache in this process under load.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, Stop, SystemClock};
use entresol_cache::{Cache, Config, Store};
use entresol_measure::BenchError;
use entresol_media::{MediumSpec, files};

use super::threads::{Client, KEY_BYTES, Threads};
use super::{CurveOptions, Loaded, System};
use crate::cache_client::{CacheClient, Upkeep};

/// Cache with its clients and its upkeep.
pub(super) struct CacheSystem {
    threads: Threads<CacheClient>,
    upkeep: Upkeep,
    clients: usize,
}

impl Client for CacheClient {
    fn get(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        Ok(self.look_up(key)?.is_some())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.store(key, &Store::set(value)).map(drop)
    }
}

/// Opens a cache with room for half as many objects again, which overwriting leaves dead for a
/// while.
fn open(medium: &MediumSpec, options: &CurveOptions) -> Result<Arc<Cache>, BenchError> {
    let room = |object: u64| ByteSize(options.keys * object * 3 / 2 + (64 << 20));
    let object = options.size.0 + KEY_BYTES as u64 + 32;
    let config = match medium {
        MediumSpec::Dram => Config::dram(room(object)),
        MediumSpec::File { path, .. } if files::exists(path) => {
            let what = format!("{} exists: give a file that does not exist", path.display());
            return Err(BenchError::Usage(what));
        }
        MediumSpec::File { .. } => Config {
            medium: medium.clone(),
            medium_bytes: room(object.next_multiple_of(512)),
            ..Config::dram(room(KEY_BYTES as u64 + 64))
        },
        _ => {
            let what = format!("cache:{medium}: use cache:dram or cache:file:PATH");
            return Err(BenchError::Usage(what));
        }
    };
    let config = Config { workers: options.clients, seed: Some(options.seed), ..config };
    let opened = Cache::open(config, Arc::new(SystemClock::new()));
    opened.map_err(|error| BenchError::Usage(error.to_string()))
}

impl CacheSystem {
    pub(super) fn open(
        medium: &MediumSpec,
        options: &CurveOptions,
        stop: &Stop,
    ) -> Result<CacheSystem, BenchError> {
        let cache = open(medium, options)?;
        let now = SystemClock::new().seconds();
        let client = || CacheClient::new(Arc::clone(&cache), now);
        let clients = (0..options.clients).map(|_| client()).collect();
        let upkeep = Upkeep::begin(&cache, now, medium.clone());
        let threads = Threads::filled(clients, options, stop)?;
        Ok(CacheSystem { threads, upkeep, clients: options.clients })
    }
}

impl System for CacheSystem {
    fn saturation(&mut self, time: Duration, stop: &Stop) -> Result<f64, BenchError> {
        self.threads.saturation(time, stop)
    }

    fn load(&mut self, per_second: f64, time: Duration, stop: &Stop) -> Result<Loaded, BenchError> {
        self.threads.load(per_second, time, stop)
    }

    fn describe(&self) -> String {
        format!(
            "cache on {} in this process, {} threads, each with its own arrivals; reads that \
             missed: {}",
            self.upkeep.medium,
            self.clients,
            self.threads.missing(),
        )
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}
