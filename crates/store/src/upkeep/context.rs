//! State of background work, and the contexts of its kinds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use entresol_base::sync::Mutex;

use crate::cache::budget::Room;
use crate::cache::row::RowCache;
use crate::options::KvdbOptions;
use crate::scheduler::{Scheduler, StallCount};
use crate::types::KvsId;
use crate::upkeep::charging::Accounts;
use crate::upkeep::damaged_segments::DamagedSegments;
use crate::upkeep::image_writer::ImageWriter;
use crate::upkeep::read_frequency::ReadFrequency;
use crate::upkeep::space::Space;
use crate::version::files::Files;
use crate::version::transactions::Transactions;
use crate::wal::Log;

/// State that background work changes.
pub(crate) struct Background {
    pub(crate) scheduler: Arc<Scheduler>,
    /// Lock that allows one compaction at a time.
    pub(crate) compacting: Mutex<()>,
    pub(crate) accounts: Accounts,
    pub(crate) read_frequency: ReadFrequency,
    pub(crate) space: Space,
    pub(crate) damaged_segments: DamagedSegments,
    /// Overwritten versions that the last compactions found, in percent, for each `Kvs`.
    pub(crate) overwritten: Mutex<BTreeMap<KvsId, u64>>,
    /// Writer of memtable images.
    pub(crate) images: ImageWriter,
    /// Bytes that compactions and file moves have read.
    pub(crate) bytes_read: AtomicU64,
    /// Waits for shares of media.
    pub(crate) stall: StallCount,
    /// True while nothing is written. Then space is given back that would otherwise come back with
    /// later writes.
    pub(crate) is_idle: AtomicBool,
}

/// Context of compactions, tiering and file moves.
#[derive(Clone, Copy)]
pub(crate) struct CompactionContext<'a> {
    pub(crate) files: &'a Files,
    pub(crate) background: &'a Background,
    pub(crate) transactions: &'a Transactions,
    /// Row cache, whose names of keys the read frequency counts by.
    pub(crate) entries: &'a RowCache,
    pub(crate) options: &'a KvdbOptions,
}

/// Context of flushes.
#[derive(Clone, Copy)]
pub(crate) struct FlushContext<'a> {
    pub(crate) compaction: CompactionContext<'a>,
    pub(crate) log: &'a Log,
    pub(crate) room: &'a Arc<Room>,
}

/// Context of the writer of memtable images.
#[derive(Clone, Copy)]
pub(crate) struct ImageContext<'a> {
    pub(crate) files: &'a Files,
    pub(crate) background: &'a Background,
    pub(crate) log: &'a Log,
    pub(crate) options: &'a KvdbOptions,
}

impl Background {
    /// Creates the state of a store that was opened with these read frequencies.
    pub(crate) fn new(
        scheduler: Arc<Scheduler>,
        read_frequency: ReadFrequency,
        space: Space,
    ) -> Background {
        Background {
            scheduler,
            compacting: Mutex::new(()),
            accounts: Accounts::default(),
            read_frequency,
            space,
            damaged_segments: DamagedSegments::default(),
            overwritten: Mutex::default(),
            images: ImageWriter::default(),
            bytes_read: AtomicU64::new(0),
            stall: StallCount::default(),
            is_idle: AtomicBool::new(false),
        }
    }
}
