//! Statistics of a store: its activity since it was opened, and its current contents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_media::MappedKind;
use entresol_media::endurance::{BudgetState, DriveWritten};
use serde::Serialize;

use crate::StoreError;
use crate::cache::block::BlockCacheCounts;
use crate::cache::budget::Shares;
use crate::cache::row::RowCacheCounts;
use crate::engine::Core;
use crate::manifest;
use crate::manifest::{KvsState, LifeCounts};
use crate::names;
use crate::policy::MediaClass;
use crate::scheduler::Stall;
use crate::segment::Segment;
use crate::types::{KvsId, PAGE_BYTES, SegmentNumber};
use crate::upkeep::image_writer::MemtableImageStatistics;
use crate::upkeep::read_frequency::ReadFrequencyStatistics;
use crate::version::files::live_segments;
use crate::version::view::{View, bytes_of};
use crate::volumes::{MissingVolumeState, OpenVolume};
use crate::wal::{Log, Written};

/// Activity of a store since it was opened, and its current contents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// Bytes written, read and held, for each volume.
    pub media: Vec<MediumStatistics>,
    /// Volumes that were missing when the store was opened read-only.
    pub missing: Vec<MissingVolume>,
    /// Last write of the log that was found, if the log may continue on a missing volume: see
    /// [`Kvdb::uncertain_behind`](crate::Kvdb::uncertain_behind).
    pub uncertain_behind: Option<u64>,
    /// Memory that the store holds in DRAM.
    pub memory: MemoryStatistics,
    /// Counts of the block cache.
    pub block_cache: BlockCacheCounts,
    /// Counts of the row cache.
    pub row_cache: RowCacheCounts,
    /// Waits of writers and of background work, by their reasons.
    pub stalls: StallStatistics,
    /// Background work that is due.
    pub debt: DebtStatistics,
    /// Earlier states that snapshots, cursors and transactions hold.
    pub held: HeldStatistics,
    /// Seconds by which the store's time, which never goes back, is ahead of the clock. A clock
    /// that was wrong, if only once, is the reason.
    pub seconds_ahead: u32,
    /// Statistics of each `Kvs`.
    pub kvs: Vec<KvsStatistics>,
    /// Log records that were read when the store was opened. Records before the watermark of a
    /// memtable image on persistent memory need not be read.
    pub log_records_read: u64,
    /// Memtable images; `None` unless the store is opened on persistent memory.
    pub memtable_images: Option<MemtableImageStatistics>,
    /// Names of segments with values that could not be read when they were to move. They stay where
    /// they are.
    pub damaged_segments: Vec<String>,
    /// Read frequency of values; `None` without a choice of classes.
    pub read_frequency: Option<ReadFrequencyStatistics>,
}

/// Activity of a store on one volume, and its contents there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MediumStatistics {
    /// Path of the directory.
    pub path: String,
    /// Class of media.
    pub class: MediaClass,
    /// True if the volume is being retired: nothing new is put there.
    pub is_retiring: bool,
    /// Quota of the store on this volume in bytes, if there is one.
    pub bytes_max: Option<u64>,
    /// Way in which log writes become durable there: `file`, `pmem` or `emulated pmem`. `None` if
    /// the store is read-only, or if its log has moved elsewhere.
    pub kind: Option<&'static str>,
    /// Bytes written since the store was opened.
    pub written: WrittenBytes,
    /// Life of the drive beneath.
    pub life: LifeStatistics,
    /// Bytes read since the store was opened.
    pub read: ReadBytes,
    /// Bytes held now.
    pub space: SpaceBytes,
}

/// Life of the drive beneath a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LifeStatistics {
    /// Bytes written since the volume was added. A process that ended without closing the store
    /// has not recorded those since the last flush.
    pub written: WrittenBytes,
    /// Budget of bytes a day, which background work keeps to; `None` without one.
    pub budget: Option<BudgetStatistics>,
    /// Bytes that the drive says it was told to write over its whole life, by all its users.
    pub drive_bytes: Option<u64>,
    /// Name of the drive that says so, or the reason why none does.
    pub drive: String,
}

/// Budget of the bytes that a volume is written a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BudgetStatistics {
    /// Bytes a day.
    pub bytes_per_day: u64,
    /// Bytes that are left now. Background work that can wait does so while none are.
    pub left_bytes: u64,
    /// Bytes a day at the rate of the last hour.
    pub recent_bytes_per_day: u64,
    /// Seconds until none are left at that rate; `None` if it can go on for ever.
    pub used_up_in_s: Option<u64>,
}

impl BudgetStatistics {
    fn of(state: BudgetState) -> BudgetStatistics {
        let BudgetState { bytes_per_day, left_bytes, recent_bytes_per_day, used_up_in } = state;
        let used_up_in_s = used_up_in.map(|time| time.as_secs());
        BudgetStatistics { bytes_per_day, left_bytes, recent_bytes_per_day, used_up_in_s }
    }
}

/// Volume that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingVolume {
    /// Last known path.
    pub path: String,
    /// Class of media.
    pub class: MediaClass,
    /// True if the volume is being retired.
    pub is_retiring: bool,
    /// Quota of the store on this volume in bytes, if there is one.
    pub bytes_max: Option<u64>,
    /// Description of what was found instead.
    pub what: String,
}

impl MissingVolume {
    pub(crate) fn of(MissingVolumeState { state, what }: &MissingVolumeState) -> MissingVolume {
        MissingVolume {
            path: state.path.clone(),
            class: state.class,
            is_retiring: state.is_retiring,
            bytes_max: state.bytes_max,
            what: what.clone(),
        }
    }
}

/// Bytes that were written to a volume, by their causes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WrittenBytes {
    /// Keys and values that callers wrote. They are the measure for the other counts, and no part
    /// of the sum.
    pub user_bytes: u64,
    /// Log records, including their keys and values.
    pub log_bytes: u64,
    /// Runs that flushes wrote.
    pub flush_bytes: u64,
    /// Runs that compactions wrote.
    pub compaction_bytes: u64,
    /// Live values that garbage collection moved out of mostly dead segments.
    pub collected_bytes: u64,
    /// Values and keys demoted from a faster class, because of their age or because it was full.
    pub demoted_bytes: u64,
    /// Values and keys promoted from a slower class, because there was room.
    pub promoted_bytes: u64,
    /// Files moved because their policy or the store's volumes changed.
    pub misplaced_bytes: u64,
    /// Frequently read values that were gathered here.
    pub hot_bytes: u64,
    /// Manifests.
    pub manifest_bytes: u64,
}

impl WrittenBytes {
    fn of(counts: LifeCounts) -> WrittenBytes {
        let [user_bytes, log_bytes, flush_bytes, compaction_bytes, moved @ .., manifest_bytes] =
            counts;
        let [collected_bytes, demoted_bytes, promoted_bytes, misplaced_bytes, hot_bytes] = moved;
        WrittenBytes {
            user_bytes,
            log_bytes,
            flush_bytes,
            compaction_bytes,
            collected_bytes,
            demoted_bytes,
            promoted_bytes,
            misplaced_bytes,
            hot_bytes,
            manifest_bytes,
        }
    }

    /// Returns the bytes written for all causes.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let WrittenBytes { log_bytes, flush_bytes, compaction_bytes, manifest_bytes, .. } = *self;
        let moved = self.collected_bytes + self.demoted_bytes + self.promoted_bytes;
        let moved = moved + self.misplaced_bytes + self.hot_bytes;
        log_bytes + flush_bytes + compaction_bytes + manifest_bytes + moved
    }

    /// Returns the difference to an earlier count of the same volume.
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

    /// Returns the bytes written for each byte that callers wrote; 0 if they wrote nothing.
    #[must_use]
    pub fn per_user_byte(&self) -> f64 {
        if self.user_bytes == 0 { 0.0 } else { self.sum() as f64 / self.user_bytes as f64 }
    }
}

/// Bytes that requests read from a volume. The operating system may have answered reads of values
/// from its page cache. Reads of unflushed writes are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ReadBytes {
    /// Blocks of runs, including reads by compactions.
    pub run_bytes: u64,
    /// Values in segments, including those that compactions moved.
    pub value_bytes: u64,
    /// Reads of both kinds by compactions.
    pub compaction_bytes: u64,
}

/// Space that a store takes on a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SpaceBytes {
    /// Segments of the log that are not flushed, at their full length.
    pub log_bytes: u64,
    /// Sorted runs.
    pub run_bytes: u64,
    /// Flushed segments, which hold values.
    pub value_bytes: u64,
    /// Bytes live in the flushed segments: runs refer to them.
    pub value_live_bytes: u64,
    /// Bytes dead in the flushed segments: nothing refers to them.
    pub value_dead_bytes: u64,
    /// Of the bytes live there, those that newer writes supersede, by estimate: a compaction makes
    /// them dead. 0 without a
    /// [`space_amplification_max`](crate::KvdbOptions::space_amplification_max).
    pub value_superseded_bytes: u64,
    /// Segments of the log that were created ahead.
    pub spare_bytes: u64,
    /// Files that nothing needs any more, and that are not removed yet: a removal that failed, or
    /// one that waits for a sync, takes until the next opening at the latest.
    pub removed_bytes: u64,
    /// Other files: the manifest, memtable images, and runs and segments that a flush, a compaction
    /// or a file move has not installed yet.
    pub other_bytes: u64,
    /// Bytes that the store may still take; `None` if the file system does not tell.
    pub free_bytes: Option<u64>,
}

/// Memory that a store holds in DRAM, apart from mapped files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStatistics {
    /// Limit of the total.
    pub memory_bytes_max: u64,
    /// Indexes of unflushed data.
    pub memtable_index_bytes: u64,
    /// Limit of the indexes, including the memory for sorting one of them.
    pub memtable_index_bytes_max: u64,
    /// Cached blocks, blocks that readers hold, and metadata of the runs.
    pub block_cache_bytes: u64,
    /// Current limit of these. It exceeds their share as long as all runs fit.
    pub block_cache_bytes_max: u64,
    /// Limit of the row cache's own memory, which it takes as it fills.
    pub row_cache_bytes_max: u64,
    /// Memory of the row cache beyond that, borrowed from unused limits of the indexes and the
    /// block cache.
    pub row_cache_borrowed_bytes: u64,
    /// Limit of the buffers in which flushes and compactions write.
    pub writing_bytes_max: u64,
    /// Mapped segments: bytes of files, which the operating system may reclaim.
    pub mapped_bytes: u64,
}

/// Waits of writers and of background work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StallStatistics {
    /// Short delays because flushes lagged.
    pub slope: Stall,
    /// Waits until a generation was flushed, because too many were closed.
    pub wall: Stall,
    /// Waits of `sync` for a sync of the log.
    pub sync: Stall,
    /// Waits of writers for a sync in the background that was late.
    pub late_sync: Stall,
    /// Times by which acknowledged writes became durable later than `durability_interval` after,
    /// one for each sync that ended too late. No writer waits for these as such.
    pub sync_lateness: Stall,
    /// Short delays because the store was about to take more space than
    /// [`space_amplification_max`](crate::KvdbOptions::space_amplification_max) allows.
    pub space: Stall,
    /// Short delays because the memtable image on persistent memory lagged.
    pub memtable_image: Stall,
    /// Waits of background work for its account's share of the medium.
    pub background: Stall,
    /// Segments that were created while a writer waited, because there was no spare.
    pub segments_made_late: u64,
}

/// Background work that is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DebtStatistics {
    /// Generations that wait to be flushed.
    pub generations_waiting: u64,
    /// Bytes of the segments of these generations.
    pub flush_bytes: u64,
    /// Runs beyond the first of each `Kvs`.
    pub runs_beyond_one: u64,
    /// Transactions that are open: neither committed nor aborted.
    pub transactions: u64,
    /// Bytes of runs that compaction has to rewrite: all but the oldest, hence largest, run of each
    /// `Kvs`.
    pub compaction_bytes: u64,
}

/// Earlier states that snapshots, cursors, transactions and reads under way hold, and the store
/// itself needs no longer. They are freed when their holders are dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HeldStatistics {
    /// Number of earlier states that are held.
    pub states: u64,
    /// Bytes of files that were removed, and still take room.
    pub file_bytes: u64,
    /// Bytes of memtable indexes that were flushed.
    pub memory_bytes: u64,
    /// Time since the oldest of these states was current, in milliseconds; 0 if there is none.
    pub oldest_ms: u64,
}

/// Statistics of a `Kvs` that need no read of its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KvsStatistics {
    /// Name of the `Kvs`.
    pub name: String,
    /// Number of the `Kvs`.
    pub number: u32,
    /// Policy of the `Kvs`, as text.
    pub policy: String,
    /// Number of sorted runs.
    pub runs: u64,
    /// Bytes of the runs.
    pub run_bytes: u64,
    /// Versions of keys in the runs. A key may have one in each run.
    pub versions: u64,
    /// Versions that are tombstones.
    pub versions_deleted: u64,
    /// Versions that expire.
    pub versions_expiring: u64,
    /// Bytes of values that lie beside their keys.
    pub inline_bytes: u64,
    /// Bytes of records in segments that the runs refer to.
    pub value_bytes: u64,
}

/// Returns the activity of a store since it was opened, and its present contents.
///
/// # Errors
/// Fails if the store is closed.
pub(crate) fn statistics(core: &Core) -> Result<Statistics, StoreError> {
    core.check_open()?;
    let manifest = core.files.manifest.lock().clone();
    let view = core.files.current.get();
    let (block_cache, row_cache) = (core.files.pages.counts(), core.caches.entries.counts());
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
    let log = core.writes.log.as_ref().map(Log::written).unwrap_or_default();
    let stalls = stalls(core);
    let debt = debt(&view, &kvs, core.transactions.count());
    let (media, log_records_read) = (media(core, &view, log), core.recovered.records_read);
    let memtable_images = images(core, &view);
    let read_frequency = core.compaction_context().read_frequency_statistics(&view);
    Ok(Statistics {
        media,
        missing: missing_volumes(core),
        uncertain_behind: core.recovered.uncertain_behind.map(|last| last.0),
        memory,
        block_cache,
        row_cache,
        stalls,
        debt,
        held: held(core),
        seconds_ahead: core.files.time.ahead(),
        kvs,
        log_records_read,
        damaged_segments: core.background.damaged_segments.names(),
        memtable_images,
        read_frequency,
    })
}

/// Returns the waits of writers since the store was opened.
pub(crate) fn stalls(core: &Core) -> StallStatistics {
    let counters = &core.writes.stalls;
    StallStatistics {
        slope: counters.slope.get(),
        wall: counters.wall.get(),
        sync: counters.sync.get(),
        late_sync: counters.late_sync.get(),
        sync_lateness: core.writes.deadline.lateness.get(),
        space: counters.space.get(),
        memtable_image: counters.image.get(),
        background: core.background.stall.get(),
        segments_made_late: core.writes.log.as_ref().map_or(0, |log| log.written().made_late),
    }
}

/// Returns the statistics of each volume. Bytes that belong to the whole store are counted on
/// the home, which holds the manifest: callers' bytes, manifests, and reads of runs.
fn media(core: &Core, view: &View, log: Written) -> Vec<MediumStatistics> {
    let live = live_segments(view);
    let volumes = core.files.volumes.all();
    volumes.iter().map(|place| medium(core, view, place, &live, log)).collect()
}

fn missing_volumes(core: &Core) -> Vec<MissingVolume> {
    core.files.volumes.missing().iter().map(MissingVolume::of).collect()
}

fn medium(
    core: &Core,
    view: &View,
    place: &Arc<OpenVolume>,
    live: &BTreeMap<SegmentNumber, u64>,
    log: Written,
) -> MediumStatistics {
    let is_home = place.number == manifest::HOME;
    let of_home = |bytes: u64| if is_home { bytes } else { 0 };
    let log_bytes = core.writes.log.as_ref().map_or(0, |log| log.bytes_at(place));
    let written = WrittenBytes {
        user_bytes: of_home(log.user),
        log_bytes,
        ..WrittenBytes::of(place.life.written.get())
    };
    let is_here = |name: String| {
        core.files.volumes.find(&name).is_some_and(|found| Arc::ptr_eq(&found, place))
    };
    let here = |segment: &&Arc<Segment>| is_here(names::of_segment(segment.number()));
    let values_read: u64 = view.segments.values().filter(here).map(|it| it.bytes_read()).sum();
    let read = ReadBytes {
        run_bytes: of_home(core.files.pages.bytes_read()),
        value_bytes: values_read + place.life.written.values_read.load(Relaxed),
        compaction_bytes: of_home(core.background.bytes_read.load(Relaxed)),
    };
    let kind = core.writes.log.as_ref().and_then(|log| log.kind_at(place)).map(|kind| match kind {
        MappedKind::Dax => "pmem",
        MappedKind::EmulatedPmem => "emulated pmem",
        MappedKind::File => "file",
    });
    let young = view.generations().flat_map(|generation| generation.segments().iter());
    let log_bytes: u64 = young.filter(here).map(|segment| segment.len()).sum();
    let runs = view.runs.values().flat_map(|runs| runs.iter());
    let runs = runs.filter(|run| is_here(names::of_run(run.number())));
    let run_bytes = bytes_of(runs);
    let segments = || view.segments.values().filter(here);
    let value_bytes: u64 = segments().map(|segment| segment.len()).sum();
    let live_of = |segment: &Arc<Segment>| live.get(&segment.number()).copied();
    let value_live_bytes = segments().filter_map(live_of).sum::<u64>().min(value_bytes);
    let spare_bytes = core.writes.log.as_ref().map_or(0, |log| log.spare_bytes(place));
    let removed_bytes = place.leaving();
    let named = log_bytes + run_bytes + value_bytes + spare_bytes + removed_bytes;
    // A volume other than the home has a label.
    let small_bytes = if is_home { core.files.volumes.manifest_bytes() } else { 1 };
    let beside = place.growing().load(Relaxed) + small_bytes.next_multiple_of(PAGE_BYTES as u64);
    let space = SpaceBytes {
        log_bytes,
        run_bytes,
        value_bytes,
        value_live_bytes,
        value_dead_bytes: value_bytes - value_live_bytes,
        value_superseded_bytes: core.background.space.superseded(segments()),
        spare_bytes,
        removed_bytes,
        other_bytes: place.used().saturating_sub(named) + beside,
        free_bytes: place.room(),
    };
    let path = place.directory.path().display().to_string();
    let (class, is_retiring, bytes_max) = (place.class, place.is_retiring(), place.bytes_max());
    let life = life(core, place, &written);
    MediumStatistics { path, class, is_retiring, bytes_max, kind, written, life, read, space }
}

/// Returns the life of a volume to which so much was written since the store was opened.
fn life(core: &Core, place: &OpenVolume, since_opened: &WrittenBytes) -> LifeStatistics {
    let (counted, whole) = (place.life.written.get(), WrittenBytes::of(place.life.whole()));
    // The newest segment of the log is counted when the next one follows.
    let newest = since_opened.since(&WrittenBytes::of(counted));
    let written = WrittenBytes {
        user_bytes: whole.user_bytes + newest.user_bytes,
        log_bytes: whole.log_bytes + newest.log_bytes,
        ..whole
    };
    let budget = place.life.budget(core.files.moment()).map(BudgetStatistics::of);
    let (drive, drive_bytes) = match place.directory.drive_written() {
        DriveWritten::Counted { drive, bytes } => (drive, Some(bytes)),
        DriveWritten::Unknown(reason) => (reason, None),
    };
    LifeStatistics { written, budget, drive_bytes, drive }
}

fn images(core: &Core, view: &View) -> Option<MemtableImageStatistics> {
    core.options.pmem?;
    Some(core.background.images.statistics(view, core.published()))
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

fn held(core: &Core) -> HeldStatistics {
    let held = core.files.current.held();
    let now = core.files.time.instant();
    HeldStatistics {
        states: held.views,
        file_bytes: held.file_bytes,
        memory_bytes: held.memory_bytes,
        oldest_ms: held.since.map_or(0, |since| now.since(since).as_millis() as u64),
    }
}

fn debt(view: &View, kvs: &[KvsStatistics], transactions: u64) -> DebtStatistics {
    let segments = view.closed.iter().flat_map(|(closed, _)| closed.segments().iter());
    let newer = view.runs.values().flat_map(|runs| runs.split_last().map_or(&[][..], |it| it.1));
    DebtStatistics {
        generations_waiting: view.closed.len() as u64,
        flush_bytes: segments.map(|segment| segment.len()).sum(),
        runs_beyond_one: kvs.iter().map(|kvs| kvs.runs.saturating_sub(1)).sum(),
        compaction_bytes: bytes_of(newer),
        transactions,
    }
}
