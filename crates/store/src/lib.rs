//! A durable key-value engine.
//!
//! A write is appended once to a log of segments, and found through an index of the youngest data.
//! When that has grown, it is flushed: a sorted run of keys is written, which holds small values
//! and points into the segments for large ones. Runs are merged as they age.
#![forbid(unsafe_code)]

mod api;
mod cache;
mod error;
mod memtable;
mod options;
mod repair;
mod run;
#[cfg(any(test, feature = "trial"))]
pub mod trial;
mod types;
mod upkeep;
mod version;
mod volumes;
mod wal;

// What its calls are given and answer.
pub use entresol_base::{Clock, SystemClock};
pub use entresol_media::{Directory, FileError, LocalDirectory, PmemMode};

pub use api::batch::Batch;
pub use api::completions::{Attempt, Completion, CompletionOptions, Completions, Outcome};
pub use api::cursor::{Cursor, CursorOptions, Shown};
pub use api::kvdb::{CompactProgress, Kvdb};
pub use api::kvs::{Kvs, Matches};
pub use api::snapshot::Snapshot;
pub use api::transaction::{Transaction, TransactionOptions};
pub use api::volume_admin::RetireProgress;
pub use cache::block::{BlockCacheCounts, KindCounts};
pub use cache::row::RowCacheCounts;
pub use error::StoreError;
pub use options::{
    GROUP_BYTES_MAX, KEY_BYTES_MAX, KVS_MAX, KvdbOptions, KvsOptions, NAME_BYTES_MAX,
    VALUE_BYTES_MAX,
};
pub use repair::check::{CheckProgress, CheckReport, Finding, Unchecked, check, check_at};
pub use repair::checkpoint::{Checkpoint, CheckpointProgress};
pub use repair::salvage::{SalvageReport, SalvagedKvs, salvage, salvage_at};
pub use types::{Entry, Expiry, KvsId, RecordPlace, RunNumber, SegmentNumber, Sequence, Value};
pub use upkeep::image_writer::MemtableImageStatistics;
pub use upkeep::read_frequency::ReadFrequencyStatistics;
pub use version::statistics::{
    DebtStatistics, KvsStatistics, MediumStatistics, MemoryStatistics, MissingVolume, ReadBytes,
    SpaceBytes, Stall, StallStatistics, Statistics, WrittenBytes,
};
pub use volumes::Volume;
pub use volumes::policy::{Classes, MediaClass, Policy};
