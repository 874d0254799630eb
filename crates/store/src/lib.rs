//! A durable key-value engine.
//!
//! A write is appended once to a log of segments, and found through an index of the youngest data.
//! When that has grown, it is frozen: a sorted run of keys is written, which holds small values and
//! points into the segments for large ones. Runs are merged as they age.
#![forbid(unsafe_code)]

mod entry;
mod error;
pub mod pages;
pub mod run;

pub use entry::{Entry, Expiry, KvsId, RecordPlace, RunNumber, SegmentNumber, Sequence, Value};
pub use error::StoreError;
