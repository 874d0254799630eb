//! What a store has done since it was opened, and what it holds now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_media::MappedKind;
use serde::Serialize;

use crate::StoreError;
use crate::api::cursor::window::Waits;
use crate::api::kvdb::Kvdb;
use crate::cache::block::BlockCacheCounts;
use crate::cache::budget::Shares;
use crate::cache::row::RowCacheCounts;
use crate::run;
use crate::types::{KvsId, SegmentNumber};
use crate::upkeep::image_writer::MemtableImageStatistics;
use crate::upkeep::read_frequency::ReadFrequencyStatistics;
use crate::version::core::{Core, live_segments};
use crate::version::manifest;
use crate::version::manifest::KvsState;
use crate::version::view::View;
use crate::volumes::policy::MediaClass;
use crate::volumes::{Cause, Held, Missing};
use crate::wal::segment;
use crate::wal::segment::Segment;
use crate::wal::{Log, Written};

/// What a store has done since it was opened, and what it holds now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// For each medium: what was written and read, and what lies there.
    pub media: Vec<MediumStatistics>,
    /// Volumes that were missing when the store was opened to be read.
    pub missing: Vec<MissingVolume>,
    /// The last write of the log that is there, if it may go on in one of them: see
    /// [`Kvdb::uncertain_behind`](crate::Kvdb::uncertain_behind).
    pub uncertain_behind: Option<u64>,
    /// What is held in DRAM.
    pub memory: MemoryStatistics,
    /// The cache of runs' blocks.
    pub block_cache: BlockCacheCounts,
    /// The cache of entries.
    pub row_cache: RowCacheCounts,
    /// How often writers had to wait, and for what.
    pub stalls: StallStatistics,
    /// What is to be done behind the writers' backs.
    pub debt: DebtStatistics,
    /// Each `Kvs`.
    pub kvs: Vec<KvsStatistics>,
    /// Records of the log that were read when the store was opened; those before the watermark of
    /// an image on persistent memory need not be.
    pub log_records_read: u64,
    /// Images of what was written last; none unless the store was opened on persistent memory.
    pub memtable_images: Option<MemtableImageStatistics>,
    /// What of the values is read often; none without a choice of classes.
    pub read_frequency: Option<ReadFrequencyStatistics>,
}

/// What a store has done on a medium, and what it holds there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MediumStatistics {
    /// The directory.
    pub path: String,
    /// Its class of media.
    pub class: MediaClass,
    /// Whether it is being retired: nothing new is put there.
    pub is_retiring: bool,
    /// The most bytes that the store takes there, if that is bounded.
    pub bytes_max: Option<u64>,
    /// How the log's writes become durable there: `file`, `pmem` or `emulated pmem`; none if the
    /// store is only read, or its log is elsewhere now.
    pub kind: Option<&'static str>,
    /// Since the store was opened.
    pub written: WrittenBytes,
    /// Since the store was opened.
    pub read: ReadBytes,
    /// Now.
    pub space: SpaceBytes,
}

/// A place that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingVolume {
    /// Where it was last.
    pub path: String,
    /// Its class of media.
    pub class: MediaClass,
    /// Whether it is being retired.
    pub is_retiring: bool,
    /// The most bytes that the store takes there, if that is bounded.
    pub bytes_max: Option<u64>,
    /// What was found instead.
    pub what: String,
}

impl MissingVolume {
    pub(crate) fn of(Missing { state, what }: &Missing) -> MissingVolume {
        MissingVolume {
            path: state.path.clone(),
            class: state.class,
            is_retiring: state.is_retiring,
            bytes_max: state.bytes_max,
            what: what.clone(),
        }
    }
}

/// Bytes that were written to a medium, by their causes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WrittenBytes {
    /// Keys and values that callers wrote: what the others are to be compared with. These are no
    /// part of the sum.
    pub user_bytes: u64,
    /// Records of the log, keys and values included.
    pub log_bytes: u64,
    /// Runs of generations that were flushed.
    pub flush_bytes: u64,
    /// Runs that others were merged into.
    pub compaction_bytes: u64,
    /// Values that were moved away from what was dead around them.
    pub collected_bytes: u64,
    /// Values and keys that came from a faster class, since they have aged, or it was full.
    pub demoted_bytes: u64,
    /// Values and keys that came back from a slower class, since there was room.
    pub promoted_bytes: u64,
    /// Files that lay where they may not: their policy, or the store's volumes, have changed.
    pub misplaced_bytes: u64,
    /// Values that are read often, gathered here.
    pub hot_bytes: u64,
    /// Manifests.
    pub manifest_bytes: u64,
}

impl WrittenBytes {
    /// All that was written.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let WrittenBytes { log_bytes, flush_bytes, compaction_bytes, manifest_bytes, .. } = *self;
        let moved = self.collected_bytes + self.demoted_bytes + self.promoted_bytes;
        let moved = moved + self.misplaced_bytes + self.hot_bytes;
        log_bytes + flush_bytes + compaction_bytes + manifest_bytes + moved
    }

    /// What was written since the same place had written `before`.
    #[must_use]
    pub const fn since(&self, before: &WrittenBytes) -> WrittenBytes {
        WrittenBytes {
            user_bytes: self.user_bytes.saturating_sub(before.user_bytes),
            log_bytes: self.log_bytes.saturating_sub(before.log_bytes),
            flush_bytes: self.flush_bytes.saturating_sub(before.flush_bytes),
            compaction_bytes: self.compaction_bytes.saturating_sub(before.compaction_bytes),
            collected_bytes: self.collected_bytes.saturating_sub(before.collected_bytes),
            demoted_bytes: self.demoted_bytes.saturating_sub(before.demoted_bytes),
            promoted_bytes: self.promoted_bytes.saturating_sub(before.promoted_bytes),
            misplaced_bytes: self.misplaced_bytes.saturating_sub(before.misplaced_bytes),
            hot_bytes: self.hot_bytes.saturating_sub(before.hot_bytes),
            manifest_bytes: self.manifest_bytes.saturating_sub(before.manifest_bytes),
        }
    }

    /// Bytes written for each byte of keys and values; 0 if there was none.
    #[must_use]
    pub fn per_user_byte(&self) -> f64 {
        if self.user_bytes == 0 { 0.0 } else { self.sum() as f64 / self.user_bytes as f64 }
    }
}

/// Bytes that were read from a medium by requests; those for values the system may have answered
/// from its cache of files. What is not flushed yet is read without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ReadBytes {
    /// Blocks of runs, merging included.
    pub run_bytes: u64,
    /// Values in segments, those that merging moved included.
    pub value_bytes: u64,
    /// What of both merging has read.
    pub compaction_bytes: u64,
}

/// What a store takes on a medium.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SpaceBytes {
    /// Segments of the log that are not flushed, to their ends.
    pub log_bytes: u64,
    /// Sorted runs.
    pub run_bytes: u64,
    /// Flushed segments, which values lie in.
    pub value_bytes: u64,
    /// What of the flushed segments runs lead to.
    pub value_live_bytes: u64,
    /// What of them nothing leads to.
    pub value_dead_bytes: u64,
    /// What more the store may take; none if the file system does not say.
    pub free_bytes: Option<u64>,
}

/// What a store holds in DRAM, beside what is mapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStatistics {
    /// The limit of all.
    pub memory_bytes_max: u64,
    /// Indexes of data that is not flushed.
    pub memtable_index_bytes: u64,
    /// Their limit, with what sorting one of them takes.
    pub memtable_index_bytes_max: u64,
    /// Cached blocks, what readers hold, and what is known of each run.
    pub block_cache_bytes: u64,
    /// The limit of that, as it is now: more than their share as long as all runs fit.
    pub block_cache_bytes_max: u64,
    /// The limit of the cache of entries for itself, which takes memory as it fills.
    pub row_cache_bytes_max: u64,
    /// What it has beside that of what is left of the limits of indexes and cached blocks.
    pub row_cache_borrowed_bytes: u64,
    /// What flushing and merging may take for what they write.
    pub writing_bytes_max: u64,
    /// Segments that are mapped: bytes of files, which the system may take back.
    pub mapped_bytes: u64,
}

/// How often somebody waited, and how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// How often.
    pub count: u64,
    /// For how long together, in microseconds.
    pub total_us: u64,
    /// The longest, in microseconds.
    pub longest_us: u64,
}

/// How often writers waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StallStatistics {
    /// A little, since flushing was falling behind.
    pub slope: Stall,
    /// Until a generation was flushed, since too many waited.
    pub wall: Stall,
    /// For a sync, by the callers of `sync`.
    pub sync: Stall,
    /// A little, since the image of what was written last was falling behind, on persistent memory.
    pub memtable_image: Stall,
    /// Flushing and merging, for the share of the medium that their account has.
    pub background: Stall,
    /// Segments that were made while a writer waited, since none was there ahead.
    pub segments_made_late: u64,
}

/// What is to be done behind the writers' backs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DebtStatistics {
    /// Generations that wait to be flushed.
    pub generations_waiting: u64,
    /// The bytes of their segments.
    pub flush_bytes: u64,
    /// Runs beyond one for each `Kvs`.
    pub runs_beyond_one: u64,
    /// Transactions that were begun and are neither committed nor given up.
    pub transactions: u64,
    /// Bytes in runs that are not a `Kvs`'s oldest, hence largest: what merging has to rewrite.
    pub compaction_bytes: u64,
}

/// What is known of a `Kvs` without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KvsStatistics {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Where it is to lie.
    pub policy: String,
    /// Its sorted runs.
    pub runs: u64,
    /// Their bytes.
    pub run_bytes: u64,
    /// Versions of keys in them: a key may have one in each.
    pub versions: u64,
    /// Those that say that their key is gone.
    pub versions_deleted: u64,
    /// Those that end some day.
    pub versions_expiring: u64,
    /// Bytes of values beside their keys.
    pub inline_bytes: u64,
    /// Bytes of records in segments that its runs lead to.
    pub value_bytes: u64,
}

/// A stall that threads add to.
#[derive(Debug, Default)]
pub(crate) struct StallCount {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl StallCount {
    pub(crate) fn add(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Relaxed);
        self.total_ns.fetch_add(time, Relaxed);
        self.longest_ns.fetch_max(time, Relaxed);
    }

    fn get(&self) -> Stall {
        let us = |count: &AtomicU64| count.load(Relaxed) / 1000;
        let count = self.count.load(Relaxed);
        Stall { count, total_us: us(&self.total_ns), longest_us: us(&self.longest_ns) }
    }
}

/// What threads count that do other things besides. None is on the path of every write: those are
/// counted by the log, under the lock that each write takes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) manifest: AtomicU64,
    pub(crate) compaction_read: AtomicU64,
    pub(crate) slope: StallCount,
    pub(crate) wall: StallCount,
    pub(crate) sync: StallCount,
    pub(crate) image: StallCount,
    pub(crate) background: StallCount,
    /// Of cursors that read values.
    pub(crate) waits: Waits,
}

impl Kvdb {
    /// What the store has done since it was opened, and what it holds now. It is put together from
    /// counters and from what is known of each file: no data is read.
    ///
    /// ```
    /// # fn main() -> Result<(), entresol_store::StoreError> {
    /// # let scratch = tempfile::tempdir().expect("a directory");
    /// # let path = scratch.path().join("store");
    /// use entresol_store::{Kvdb, KvdbOptions, KvsOptions};
    ///
    /// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
    /// let users = store.create_kvs("users", KvsOptions::default())?;
    /// users.put(b"ada", b"1815")?;
    /// let written = store.statistics()?.media[0].written;
    /// assert_eq!((written.user_bytes, written.log_bytes), (7, 31));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store is closed.
    pub fn statistics(&self) -> Result<Statistics, StoreError> {
        let core = self.core();
        core.check_open()?;
        let manifest = core.manifest.lock().clone();
        let view = core.current.get();
        let (block_cache, row_cache) = (core.pages.counts(), core.entries.counts());
        let kvs = manifest.kvs.iter().map(|kvs| kvs_statistics(&view, kvs));
        let kvs: Vec<KvsStatistics> = kvs.collect();
        let generations = view.generations();
        let shares = Shares::of(&core.options);
        let memory = MemoryStatistics {
            memory_bytes_max: core.options.memory_bytes,
            memtable_index_bytes_max: core.options.memory_bytes / 4,
            writing_bytes_max: shares.writing,
            memtable_index_bytes: generations.map(|it| it.index_bytes()).sum(),
            block_cache_bytes: block_cache.bytes + block_cache.spare_bytes,
            block_cache_bytes_max: block_cache.cap_bytes,
            row_cache_bytes_max: row_cache.cap_bytes,
            row_cache_borrowed_bytes: row_cache.borrowed_bytes,
            mapped_bytes: mapped_bytes(&view),
        };
        let log = core.log.as_ref().map(Log::written).unwrap_or_default();
        let stalls = self.stalls();
        let debt = debt(&view, &kvs, core.transactions.count());
        let (media, log_records_read) = (core.media(&view, log), core.records_read);
        let memtable_images = core.image_statistics();
        let read_frequency = core.read_frequency_statistics(&view);
        Ok(Statistics {
            media,
            missing: core.missing_volumes(),
            uncertain_behind: core.uncertain_behind.map(|last| last.0),
            memory,
            block_cache,
            row_cache,
            stalls,
            debt,
            kvs,
            log_records_read,
            memtable_images,
            read_frequency,
        })
    }

    /// How often writers had to wait since the store was opened.
    pub(crate) fn stalls(&self) -> StallStatistics {
        let core = self.core();
        let counters = &core.counters;
        StallStatistics {
            slope: counters.slope.get(),
            wall: counters.wall.get(),
            sync: counters.sync.get(),
            memtable_image: counters.image.get(),
            background: counters.background.get(),
            segments_made_late: core.log.as_ref().map_or(0, |log| log.written().made_late),
        }
    }
}

impl Core {
    /// Each place. What belongs to the whole store, what callers wrote and manifests, is said of
    /// the first, which has the manifest; so is what was read of runs.
    fn media(&self, view: &View, log: Written) -> Vec<MediumStatistics> {
        let live = live_segments(view);
        let volumes = self.volumes.all();
        volumes.iter().map(|place| self.medium(view, place, &live, log)).collect()
    }

    fn missing_volumes(&self) -> Vec<MissingVolume> {
        self.volumes.missing().iter().map(MissingVolume::of).collect()
    }

    fn medium(
        &self,
        view: &View,
        place: &Arc<Held>,
        live: &BTreeMap<SegmentNumber, u64>,
        log: Written,
    ) -> MediumStatistics {
        let (counters, is_home) = (&self.counters, place.number == manifest::HOME);
        let of_home = |bytes: u64| if is_home { bytes } else { 0 };
        let moved = |cause: Cause| place.written.moved[cause as usize].load(Relaxed);
        let written = WrittenBytes {
            user_bytes: of_home(log.user),
            log_bytes: self.log.as_ref().map_or(0, |log| log.bytes_at(place)),
            flush_bytes: place.written.flush.load(Relaxed),
            compaction_bytes: place.written.merge.load(Relaxed),
            collected_bytes: moved(Cause::Garbage),
            demoted_bytes: moved(Cause::Aged),
            promoted_bytes: moved(Cause::Returned),
            misplaced_bytes: moved(Cause::Misplaced),
            hot_bytes: moved(Cause::Hot),
            manifest_bytes: of_home(counters.manifest.load(Relaxed)),
        };
        let is_here =
            |name: String| self.volumes.find(&name).is_some_and(|found| Arc::ptr_eq(&found, place));
        let here = |segment: &&Arc<Segment>| is_here(segment::file_name(segment.number()));
        let values_read: u64 = view.segments.values().filter(here).map(|it| it.bytes_read()).sum();
        let read = ReadBytes {
            run_bytes: of_home(self.pages.bytes_read()),
            value_bytes: values_read + place.written.values_read.load(Relaxed),
            compaction_bytes: of_home(counters.compaction_read.load(Relaxed)),
        };
        let kind = self.log.as_ref().and_then(|log| log.kind_at(place)).map(|kind| match kind {
            MappedKind::Dax => "pmem",
            MappedKind::EmulatedPmem => "emulated pmem",
            MappedKind::File => "file",
        });
        let young = view.generations().flat_map(|generation| generation.segments().iter());
        let log_bytes = young.filter(here).map(|segment| segment.len()).sum();
        let runs = view.runs.values().flat_map(|runs| runs.iter());
        let runs = runs.filter(|run| is_here(run::file_name(run.number())));
        let run_bytes = runs.map(|run| run.run.summary().file_bytes).sum();
        let segments = || view.segments.values().filter(here);
        let value_bytes: u64 = segments().map(|segment| segment.len()).sum();
        let live = segments().filter_map(|segment| live.get(&segment.number()));
        let value_live_bytes = live.sum::<u64>().min(value_bytes);
        let space = SpaceBytes {
            log_bytes,
            run_bytes,
            value_bytes,
            value_live_bytes,
            value_dead_bytes: value_bytes - value_live_bytes,
            free_bytes: place.room(),
        };
        let path = place.directory.path().display().to_string();
        let (class, is_retiring, bytes_max) = (place.class, place.is_retiring(), place.bytes_max());
        MediumStatistics { path, class, is_retiring, bytes_max, kind, written, read, space }
    }
}

fn kvs_statistics(view: &View, kvs: &KvsState) -> KvsStatistics {
    let runs = view.runs.get(&KvsId(kvs.id)).into_iter().flat_map(|runs| runs.iter());
    let all: Vec<_> = runs.map(|run| run.run.summary()).collect();
    let live = all.iter().flat_map(|run| run.live.iter());
    KvsStatistics {
        name: kvs.name.clone(),
        number: kvs.id,
        policy: kvs.policy.to_string(),
        runs: all.len() as u64,
        run_bytes: all.iter().map(|run| run.file_bytes).sum(),
        versions: all.iter().map(|run| run.entries).sum(),
        versions_deleted: all.iter().map(|run| run.gone).sum(),
        versions_expiring: all.iter().map(|run| run.expiring).sum(),
        inline_bytes: all.iter().map(|run| run.inline_bytes).sum(),
        value_bytes: live.map(|live| live.bytes).sum(),
    }
}

fn mapped_bytes(view: &View) -> u64 {
    let young = view.generations().flat_map(|generation| generation.segments().iter());
    let all = young.chain(view.segments.values()).filter(|segment| segment.is_mapped());
    all.map(|segment| segment.len()).sum()
}

fn debt(view: &View, kvs: &[KvsStatistics], transactions: u64) -> DebtStatistics {
    let segments = view.closed.iter().flat_map(|(closed, _)| closed.segments().iter());
    let newer = view.runs.values().flat_map(|runs| runs.split_last().map_or(&[][..], |it| it.1));
    DebtStatistics {
        generations_waiting: view.closed.len() as u64,
        flush_bytes: segments.map(|segment| segment.len()).sum(),
        runs_beyond_one: kvs.iter().map(|kvs| kvs.runs.saturating_sub(1)).sum(),
        compaction_bytes: newer.map(|run| run.run.summary().file_bytes).sum(),
        transactions,
    }
}
