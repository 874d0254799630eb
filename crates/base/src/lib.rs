//! Sizes, durations, checksums, hashes, histograms and clocks that every other crate speaks in.
//!
//! Deliberately absent: any I/O, any unsafe code, any knowledge of media, caches or protocols.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
pub mod duration;
pub mod hash;
pub mod histogram;
pub mod size;
pub mod suggest;

pub use clock::{Clock, ManualClock, Nanos, Picos, Seconds, SystemClock};
pub use size::ByteSize;
