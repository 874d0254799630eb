//! What measures and what tries has in common: workloads and subjects, statistics, reports.
//!
//! A comparison measures both sides in one run, interleaved, and says how sure it is; a latency is
//! counted from the moment a request was due. Deliberately absent: load generators, which are
//! `entresol-bench`'s.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod error;
pub mod index;
pub mod place;
pub mod popularity;
pub mod process;
pub mod progress;
pub mod report;
pub mod statistics;
pub mod trace;
pub mod values;
pub mod ycsb;

pub use error::BenchError;
pub use place::StorePlace;
