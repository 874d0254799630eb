//! Indexes as subjects: by name, under workloads, and on a model of memory in virtual time.

mod charged;
mod keys;
mod lab;
mod subjects;
mod work;

use entresol_base::ByteSize;
use entresol_media::{FileError, RegionError};

use crate::error::BenchError;

pub use charged::{CACHE_PROBE, Charged, DRAM_LINE, DramLines};
pub use keys::Keys;
pub use lab::{CPU_PER_OPERATION, Device, Lab, Measured, OnModel, in_world};
pub use subjects::{AnyIndex, IndexName, failed};
pub use work::{Worker, Workload};

/// Describes why a region for an index could not be created, and how to make room.
#[must_use]
pub fn no_region(error: RegionError) -> BenchError {
    let room = |bytes: u64, lacks: &str, cause: &std::io::Error, or: &str| {
        format!(
            "no room for the {} that the index may need {lacks}: {cause}; {or}, or give fewer \
             --keys or --operations",
            ByteSize(bytes)
        )
    };
    BenchError::Failed(match &error {
        RegionError::Reserve { bytes, cause } => {
            room(*bytes, "in memory", cause, "let this process reserve more (ulimit -v)")
        }
        RegionError::File(FileError::NoSpace { path, bytes, cause }) => {
            room(*bytes, &format!("in {}", path.display()), cause, "free some there")
        }
        _ => error.to_string(),
    })
}
