//! The load on our store in a directory of this machine.

use std::path::Path;
use std::sync::Arc;

use entresol_base::{Clock, Picos, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::arrivals::{AWAKE, wait_until};
use entresol_store::Kvdb;

use super::load::Ran;
use super::store::{OnStore, Request, StoreLoad, Time, run};
use crate::local_store::{create, failed};

/// The system's time, in which computing takes the time that it takes.
struct Real(SystemClock);

impl Time for Real {
    fn now(&self) -> Picos {
        self.0.now().into()
    }

    fn wait_until(&self, at: Picos) {
        wait_until(&self.0, at.into(), AWAKE);
    }

    fn compute(&self, _: Request) {}
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
        let store = create(directory)?;
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
