//! A durable key-value engine.
//!
//! A write is appended once to a log of segments, and found through an index of the youngest data.
//! When that has grown, it is frozen: a sorted run of keys is written, which holds small values and
//! points into the segments for large ones. Runs are merged as they age.
#![forbid(unsafe_code)]

mod ageing;
mod background;
mod batch;
mod check;
mod checkpoint;
mod completions;
mod copy;
mod cursor;
mod entries;
mod entry;
mod error;
mod failure;
mod freeze;
mod heat;
mod images;
mod inner;
mod kvdb;
mod kvs;
mod log;
mod manifest;
mod many;
mod memory;
mod merge;
mod opening;
mod options;
mod pages;
mod places;
mod placing;
mod policy;
mod prefixes;
mod preload;
mod run;
mod salvage;
mod shift;
mod snapshot;
mod statistics;
mod threads;
mod transaction;
pub mod trial;
mod view;
mod work;
mod young;

// What its calls are given and answer.
pub use entresol_base::{Clock, SystemClock};
pub use entresol_media::{Directory, FileError, LocalDirectory, PmemMode};

pub use batch::Batch;
pub use check::{CheckProgress, CheckReport, Finding, Unchecked, check, check_at};
pub use checkpoint::{Checkpoint, CheckpointProgress};
pub use completions::{Attempt, Completion, CompletionOptions, Completions, Outcome};
pub use cursor::{Cursor, CursorOptions, Shown};
pub use entries::EntryCounts;
pub use entry::{Entry, Expiry, KvsId, RecordPlace, RunNumber, SegmentNumber, Sequence, Value};
pub use error::StoreError;
pub use heat::HeatStatistics;
pub use images::ImageStatistics;
pub use kvdb::{CompactProgress, Kvdb};
pub use kvs::{Kvs, Matches};
pub use options::{
    GROUP_BYTES_MAX, KEY_BYTES_MAX, KVS_MAX, KvdbOptions, KvsOptions, NAME_BYTES_MAX,
    VALUE_BYTES_MAX,
};
pub use pages::{KindCounts, PageCounts};
pub use places::Place;
pub use placing::RetireProgress;
pub use policy::{Classes, MediaClass, Policy};
pub use salvage::{SalvageReport, SalvagedKvs, salvage, salvage_at};
pub use snapshot::Snapshot;
pub use statistics::{
    DebtStatistics, KvsStatistics, MediumStatistics, MemoryStatistics, MissingPlace, ReadBytes,
    SpaceBytes, Stall, StallStatistics, Statistics, WrittenBytes,
};
pub use transaction::{Transaction, TransactionOptions};
