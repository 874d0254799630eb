//! Load generators, and the profile of a medium.
//!
//! A comparison measures both sides in one run, interleaved, and reports the confidence of the
//! result. Latency is counted from the moment at which a request was due. The crate deliberately
//! contains no server and drives one over its socket only: any server that speaks the protocol can
//! be measured.
#![forbid(unsafe_code)]

pub mod act;
mod cache_client;
pub mod curve;
pub mod direct;
pub mod extend;
pub mod index;
pub mod load;
mod local_store;
pub mod policies;
pub mod profile;
mod raw_file;
pub mod replay;
pub mod ycsb;
