//! Workloads, load generators and reports.
//!
//! A comparison measures both sides in one run, interleaved, and says how sure it is; a latency is
//! counted from the moment a request was due. Deliberately absent: servers. A server is driven
//! over its socket only, so that every server that speaks the protocol can be driven.
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
