//! Workloads and subjects, statistics and reports, shared by all that measures or tries crashes.
//!
//! Load generators deliberately stand in `entresol-bench`, and the papers' experiments in
//! `entresol-reproduce`.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod error;
pub mod host;
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
