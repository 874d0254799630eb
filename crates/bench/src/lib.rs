//! Workloads, load generators and reports.
//!
//! A comparison measures both sides in one run, interleaved, and reports the confidence of the
//! result. Latency is counted from the moment at which a request was due. The crate deliberately
//! contains no server and drives one over its socket only: any server that speaks the protocol can
//! be measured.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod direct;
pub mod error;
pub mod index;
pub mod load;
pub mod place;
pub mod popularity;
pub mod process;
pub mod profile;
pub mod progress;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod statistics;
pub mod torture;
pub mod trace;
pub mod values;
pub mod ycsb;

pub use error::BenchError;
pub use place::StorePlace;
