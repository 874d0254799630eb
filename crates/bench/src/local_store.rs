//! Store in a new directory of this machine, for a measurement.

use std::path::Path;
use std::sync::Arc;

use entresol_base::SystemClock;
use entresol_measure::BenchError;
use entresol_media::{LocalDirectory, files};
use entresol_store::{Kvdb, KvdbOptions, check_outside};

/// Returns the error of a store.
pub(crate) fn failed(what: impl std::fmt::Display) -> BenchError {
    BenchError::Engine { engine: "entresol", what: what.to_string() }
}

/// Makes a store that does not hold values in memory. The directory must not exist.
pub(crate) fn create(directory: &Path) -> Result<Kvdb, BenchError> {
    if files::exists(directory) {
        return Err(BenchError::Usage(format!(
            "{} exists already: give a directory that does not exist",
            directory.display()
        )));
    }
    check_outside(directory).map_err(|error| BenchError::Usage(error.to_string()))?;
    let error = |source| BenchError::File { path: directory.into(), source };
    files::create_directories(directory).map_err(error)?;
    let home = LocalDirectory::open(directory).map_err(failed)?;
    let options = KvdbOptions { row_cache_bytes: 0, ..KvdbOptions::default() };
    let clock = Arc::new(SystemClock::new());
    Kvdb::create(Arc::new(home), options, clock).map_err(|error| {
        // It is empty, and the error tells why.
        let _ = files::remove_directory(directory);
        failed(error)
    })
}
