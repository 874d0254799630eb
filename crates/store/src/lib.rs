//! A durable key-value engine for memory and disks of several speeds.
//!
//! A write is appended once, to a write-ahead log of segments, and indexed in a memtable. A full
//! memtable is flushed: its keys become a sorted run, which holds small values itself and points
//! into the segments for large ones. Compaction makes one run of several.
#![forbid(unsafe_code)]

mod api;
mod bytes;
mod cache;
mod engine;
mod error;
mod failure;
mod manifest;
mod memtable;
mod names;
mod options;
mod policy;
mod repair;
mod run;
mod scheduler;
mod segment;
#[cfg(any(test, feature = "trial"))]
pub mod trial;
mod types;
mod upkeep;
mod version;
mod volumes;
mod wal;

// Types of other crates that appear in the signatures of this one.
pub use entresol_base::{Clock, SystemClock};
pub use entresol_media::{Directory, FileError, LocalDirectory, PmemMode};

pub use api::batch::Batch;
pub use api::completions::{Attempt, Completion, CompletionOptions, Completions, Outcome};
pub use api::cursor::{Cursor, CursorOptions, Shown};
pub use api::kvdb::Kvdb;
pub use api::kvs::{Kvs, Matches};
pub use api::snapshot::Snapshot;
pub use api::transaction::{Transaction, TransactionOptions};
pub use api::volume_admin::RetireProgress;
pub use cache::block::{BlockCacheCounts, KindCounts};
pub use cache::row::RowCacheCounts;
pub use engine::statistics::{
    BudgetStatistics, DebtStatistics, HeldStatistics, KvsStatistics, LifeStatistics,
    MediumStatistics, MemoryStatistics, MissingVolume, ReadBytes, SpaceBytes, StallStatistics,
    Statistics, WrittenBytes,
};
pub use error::StoreError;
pub use names::LABEL as VOLUME_LABEL;
pub use options::{
    GROUP_BYTES_MAX, KEY_BYTES_MAX, KVS_MAX, KvdbOptions, KvsOptions, NAME_BYTES_MAX,
    VALUE_BYTES_MAX,
};
pub use policy::{Classes, MediaClass, Policy};
pub use repair::check::{CheckProgress, CheckReport, Finding, Unchecked, check, check_at};
pub use repair::checkpoint::{Checkpoint, CheckpointProgress};
pub use repair::salvage::{SalvageProgress, SalvageReport, SalvagedKvs, salvage, salvage_at};
pub use scheduler::Stall;
pub use types::{Entry, Expiry, KvsId, RecordPlace, RunNumber, SegmentNumber, Sequence, Value};
pub use upkeep::compaction::CompactProgress;
pub use upkeep::image_writer::MemtableImageStatistics;
pub use upkeep::read_frequency::ReadFrequencyStatistics;
pub use volumes::{Volume, check_outside, is_begun_as_own};
