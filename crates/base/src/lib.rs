//! Sizes, durations, checksums, hashes, histograms and clocks that all other crates share.
//!
//! Time, threads, locks and randomness come from here too: the system's, or those of a simulated
//! [`world`] if the caller runs in one.
//!
//! There is deliberately no I/O, no unsafe code, and no knowledge of media, caches or protocols.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
pub mod duration;
pub mod hash;
pub mod histogram;
pub mod list;
pub mod mutants;
pub mod place;
pub mod rng;
pub mod shrink;
pub mod size;
pub mod stop;
pub mod suggest;
pub mod sync;
pub mod thread;
pub mod world;

pub use clock::{Clock, ManualClock, Nanos, Picos, Seconds, SystemClock};
pub use place::Place;
pub use size::ByteSize;
pub use stop::Stop;
