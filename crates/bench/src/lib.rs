//! Load generators, and the profile of a medium.
//!
//! A comparison measures both sides in one run, interleaved, and says how sure it is; a latency is
//! counted from the moment a request was due. Deliberately absent: servers. A server is driven
//! over its socket only, so that every server that speaks the protocol can be driven.
#![forbid(unsafe_code)]

pub mod direct;
pub mod index;
pub mod load;
pub mod profile;
pub mod replay;
pub mod ycsb;
