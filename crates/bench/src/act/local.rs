//! The load on our store in a directory of this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{Clock, Nanos, Picos, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_media::{LocalDirectory, files};
use entresol_store::{Kvdb, KvdbOptions};

use super::load::Ran;
use super::store::{OnStore, Request, StoreLoad, Time, run};

/// Time before a request is due until which its thread sleeps. The kernel wakes it up to 50 us
/// late.
const AWAKE: Duration = Duration::from_micros(60);

/// The system's time, in which computing takes the time that it takes.
struct Real(SystemClock);

impl Time for Real {
    fn now(&self) -> Picos {
        self.0.now().into()
    }

    fn wait_until(&self, at: Picos) {
        loop {
            let gap = Nanos::from(at).since(self.0.now());
            match gap.checked_sub(AWAKE) {
                _ if gap.is_zero() => return,
                Some(time) if !time.is_zero() => std::thread::sleep(time),
                _ => std::thread::yield_now(),
            }
        }
    }

    fn compute(&self, _: Request) {}
}

fn failed(what: impl std::fmt::Display) -> BenchError {
    BenchError::Engine { engine: "entresol", what: what.to_string() }
}

/// Filled store under load.
pub(super) struct Local {
    store: Kvdb,
    on: Arc<OnStore>,
}

impl Local {
    /// Makes a store in a new directory and fills it. Values are not held in memory by the store.
    pub(super) fn fill(
        directory: &Path,
        numbers: StoreLoad,
        stop: &Stop,
    ) -> Result<Local, BenchError> {
        let error = |source| BenchError::File { path: directory.into(), source };
        files::create_directories(directory).map_err(error)?;
        let home = LocalDirectory::open(directory).map_err(failed)?;
        let options = KvdbOptions { row_cache_bytes: 0, ..KvdbOptions::default() };
        let clock = Arc::new(SystemClock::new());
        let store = Kvdb::create(Arc::new(home), options, clock).map_err(failed)?;
        let time = Box::new(Real(SystemClock::new()));
        let on = Arc::new(OnStore::fill(&store, numbers, time, stop).map_err(failed)?);
        Ok(Local { store, on })
    }

    /// Runs a multiple of the load. Returns `None` if it was ended.
    pub(super) fn run(&self, multiple: u32) -> Result<Option<Ran>, BenchError> {
        run(&self.on, f64::from(multiple)).map_err(failed)
    }

    /// Closes the store.
    pub(super) fn close(self) -> Result<(), BenchError> {
        drop(self.on);
        self.store.close().map_err(failed)
    }
}
