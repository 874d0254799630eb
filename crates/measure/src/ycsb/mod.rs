//! YCSB's workloads and RocksDB's `mixgraph`: which request comes next, of which key.

mod draw;
pub mod mixgraph;
mod workload;

pub use draw::{Chooser, KEY_BYTES_MIN, Names, Population};
pub use workload::{Kind, Workload};
