//! Opening of a store: the files that its manifest names, and the writes of its log beyond them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use entresol_base::sync::Mutex;
use entresol_base::{Clock, Nanos, mutation_site};
use entresol_media::Directory;
use entresol_media::machine::ProcessMark;

use crate::StoreError;
use crate::cache::block::{BlockCache, CACHE_BYTES_MIN};
use crate::cache::budget::{Room, Shares};
use crate::cache::row::RowCache;
use crate::engine::dead_keys::DeadKeys;
use crate::engine::read::Waits;
use crate::engine::sync_deadline::SyncDeadline;
use crate::engine::write::{WriteSide, WriterStalls};
use crate::engine::{Caches, Core, RecoveredLog, Reports};
use crate::failure::Failure;
use crate::manifest::{LogState, Manifest};
use crate::memtable::Generation;
use crate::names;
use crate::options::KvdbOptions;
use crate::scheduler::Scheduler;
use crate::segment::Segment;
use crate::types::{KvsId, SegmentNumber, Sequence};
use crate::upkeep::context::Background;
use crate::upkeep::read_frequency::ReadFrequency;
use crate::upkeep::read_frequency::kept::Stamp;
use crate::upkeep::space::Space;
use crate::version::files::{Files, Unreadable};
use crate::version::kvs_bits::KvsBits;
use crate::version::time::StoreTime;
use crate::version::transactions::Transactions;
use crate::version::view::{Current, View, ViewRun};
use crate::volumes::{VolumeAccess, Volumes};
use crate::wal::recover::{LogStart, Recovered, RecoveryRest, recover};
use crate::wal::{Log, LogBeginning, LogOptions, Rotated};

/// Arguments for opening a store.
pub(crate) struct Opening {
    pub(crate) home: Arc<dyn Directory>,
    /// Volumes at other paths than the manifest says, or on other disks.
    pub(crate) given: Vec<Arc<dyn Directory>>,
    pub(crate) options: KvdbOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) read_only: bool,
}

impl Opening {
    /// Opens the store, whose home the caller has locked.
    ///
    /// # Errors
    /// Fails if a disk fails, or if data is damaged.
    pub(crate) fn core(self, mut manifest: Manifest) -> Result<Core, StoreError> {
        let Opening { home, given, options, clock, read_only } = self;
        let volumes =
            Volumes::open(&home, &given, &manifest, VolumeAccess::of(&options, read_only))?;
        let volumes = Arc::new(volumes);
        let shares = Shares::of(&options);
        let found = recover(&volumes, start(&manifest, &shares), read_only)?;
        let Recovered { generations, last, uncertain_behind, next_segment, records, rest } = found;
        let (work, failure) = (Arc::new(Scheduler::default()), Arc::new(Failure::default()));
        let room = Room::new(shares.room, shares.pages.max(CACHE_BYTES_MIN));
        let pages = BlockCache::sharing(&room, Some(work.clone()));
        let (runs, segments, unreadable) = open_flushed(&volumes, &manifest, &pages, read_only)?;
        if !read_only {
            settle(&volumes, &mut manifest, rest, unreadable.is_empty())?;
        }
        let young = Arc::new(Generation::new(shares.generation.bytes, Sequence(last.0 + 1)));
        let closed: Vec<_> = generations.into_iter().rev().collect();
        closed.iter().for_each(|(closed, _)| count_closed(closed, &room, &volumes));
        let current = Arc::new(Current::new(
            View { young: young.clone(), closed, runs, segments },
            clock.clone(),
            &room,
            &volumes,
        ));
        let Shares { segment_bytes, generation, .. } = shares;
        let options_of_log = LogOptions { segment_bytes, generation, room: room.clone() };
        let begin_log = || {
            Log::begin(
                volumes.clone(),
                manifest.store,
                options_of_log,
                LogBeginning { last, next_segment, generation: young },
                failure.clone(),
                work.clone(),
                rotated(current.clone(), work.clone()),
            )
        };
        let log = (!read_only).then(begin_log).transpose()?;
        let time = StoreTime::new(clock.clone(), seconds_of(&manifest), manifest.seconds_ahead);
        let dropped = dropped_before(&manifest, &current.get());
        let space = Space::new(&options);
        let read_frequency = read_frequency_of(&*home, &manifest, last, options.memory_bytes);
        let files = Files {
            volumes,
            time,
            manifest: Mutex::new(manifest),
            current,
            pages,
            dropped,
            dropped_names: Mutex::new(BTreeMap::new()),
            unreadable,
            failure,
        };
        space.look(&files);
        let writes = writes_of(log, last, &options, files.time.instant());
        Ok(Core {
            files,
            caches: caches_of(room, shares.entries)?,
            writes,
            background: Background::new(work, read_frequency, space),
            transactions: Transactions::default(),
            dead_keys: DeadKeys::default(),
            options,
            recovered: RecoveredLog { uncertain_behind, records_read: records },
            is_closed: AtomicBool::new(false),
            process: ProcessMark::new(),
            reports: Reports::default(),
        })
    }
}

/// Counts the memory and the log of a memtable that recovery has found.
fn count_closed(closed: &Generation, room: &Arc<Room>, volumes: &Volumes) {
    closed.take_room(room);
    volumes.gauge.log_grows(closed.segment_bytes());
}

fn caches_of(room: Arc<Room>, bytes: u64) -> Result<Caches, StoreError> {
    Ok(Caches { entries: RowCache::new(bytes, &room)?, room, waits: Waits::default() })
}

fn writes_of(
    log: Option<Log>,
    last_recovered: Sequence,
    options: &KvdbOptions,
    now: Nanos,
) -> WriteSide {
    let deadline = SyncDeadline::new(options.durability_interval, options.lag_max(), now);
    let (full, stalls) = (KvsBits::new(), WriterStalls::default());
    WriteSide { log, last_recovered, full, stalls, deadline }
}

/// Prepares the store for writes, after the files that its manifest names were opened. `is_whole`
/// is false if some `Kvs` could not be opened.
fn settle(
    volumes: &Volumes,
    manifest: &mut Manifest,
    rest: RecoveryRest,
    is_whole: bool,
) -> Result<(), StoreError> {
    volumes.name_home()?;
    save_again(volumes, manifest)?;
    volumes.remove_the_rest(rest.behind())?;
    rest.settle(volumes)?;
    // Files that this manifest does not name may belong to a lost manifest, which a compaction of
    // now unreadable runs may have saved. They stay, and new files get other numbers.
    match is_whole {
        true => remove_strangers(volumes, manifest)?,
        false => manifest.skip(&volumes.names()),
    }
    Ok(())
}

/// Returns the callback that shows readers a closed generation and its successor, and wakes the
/// flush.
fn rotated(views: Arc<Current>, work: Arc<Scheduler>) -> Rotated {
    Box::new(move |closed, young, last| {
        views.change(|view| {
            assert!(
                Arc::ptr_eq(&view.young, closed),
                "a memtable is closed that is not the newest"
            );
            let before = view.closed.first().map(|(_, before)| *before);
            assert!(
                before <= Some(last),
                "a memtable ends with write {}, the one before with {before:?}",
                last.0,
            );
            view.closed.insert(0, (Arc::clone(closed), last));
            view.young = Arc::clone(young);
            work.set_waiting(view.closed.len());
        });
        work.tell();
    })
}

/// Returns the dropped `Kvs` that the log still has writes of. A new `Kvs` with such a number would
/// inherit them.
fn dropped_before(manifest: &Manifest, view: &View) -> KvsBits {
    let dropped = KvsBits::new();
    let is_there = |id: &KvsId| manifest.kvs.iter().any(|kvs| kvs.id == id.0);
    let written = view.closed.iter().flat_map(|(generation, _)| generation.kvs());
    written.filter(|id| !is_there(id)).for_each(|id| dropped.add(id));
    dropped
}

/// Returns the time from which the store's clock continues.
fn seconds_of(manifest: &Manifest) -> u32 {
    if mutation_site!("the store's time goes on from the manifest's") {
        return 0;
    }
    manifest.seconds
}

/// Restores the read frequencies that were saved when the store was closed.
fn read_frequency_of(
    home: &dyn Directory,
    manifest: &Manifest,
    last: Sequence,
    memory_bytes: u64,
) -> ReadFrequency {
    let stamp = Stamp { store: manifest.store, last };
    let is_there = |number: SegmentNumber| manifest.segments.contains(&number.0);
    ReadFrequency::restored(memory_bytes, home, stamp, &is_there)
}

/// Saves the manifest that was just read once more.
///
/// The sync behind which an earlier process replaced it may have failed. A power cut may then bring
/// back the previous manifest, and opening is about to remove files that only that one names. With
/// several volumes, the saved manifest also skips numbers of runs and value segments.
fn save_again(volumes: &Volumes, manifest: &mut Manifest) -> Result<(), StoreError> {
    if volumes.count_volumes() > 1
        && !mutation_site!("numbers that a lost manifest may have given are left out")
    {
        manifest.leave_out_numbers();
    }
    if mutation_site!("an opening saves the manifest again") {
        return Ok(());
    }
    volumes.save(manifest)
}

/// Returns the position in the log where the unflushed writes begin.
fn start(manifest: &Manifest, shares: &Shares) -> LogStart {
    let LogState { first_segment, flushed, durable } = manifest.log;
    LogStart {
        store: manifest.store,
        segment: SegmentNumber(first_segment),
        flushed: Sequence(flushed),
        durable: Sequence(durable),
        generation: shares.generation,
    }
}

/// Runs of each `Kvs`, the newest first.
type Runs = BTreeMap<KvsId, Arc<Vec<ViewRun>>>;
/// Flushed segments that hold values.
type Segments = Arc<BTreeMap<SegmentNumber, Arc<Segment>>>;

/// Opens the runs and segments that a manifest names.
fn open_flushed(
    volumes: &Volumes,
    manifest: &Manifest,
    pages: &Arc<BlockCache>,
    is_partial: bool,
) -> Result<(Runs, Segments, Unreadable), StoreError> {
    let (mut runs, mut unreadable) = (BTreeMap::new(), Unreadable::new());
    for kvs in &manifest.kvs {
        let mut names = kvs.runs.iter().map(|run| names::of_run(run.number()));
        if let Some(what) = names.find_map(|name| volumes.away(&name)) {
            unreadable.insert(KvsId(kvs.id), what);
            continue;
        }
        let of_kvs = kvs.runs.iter().map(|&run| {
            let name = names::of_run(run.number());
            let opened = ViewRun::open(&volumes.directory_of(&name), run, pages);
            let opened = opened.map_err(StoreError::of_own_file)?;
            volumes.has_bytes(&name, opened.run.summary().file_bytes);
            Ok(opened)
        });
        match of_kvs.collect::<Result<Vec<_>, StoreError>>() {
            Ok(of_kvs) => drop(runs.insert(KvsId(kvs.id), Arc::new(of_kvs))),
            // A damaged `Kvs` does not keep the others from being read.
            Err(error) if error.is_damage() => {
                unreadable.insert(KvsId(kvs.id), error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    let mut segments = BTreeMap::new();
    for number in manifest.segments() {
        let name = names::of_segment(number);
        if is_partial && volumes.away(&name).is_some() {
            // A read of one of its values reports it as missing.
            continue;
        }
        let directory = volumes.directory_of(&name);
        let segment = Segment::open_blocks(&*directory, manifest.store, number);
        match segment.map_err(StoreError::of_own_file) {
            Ok(segment) => {
                volumes.has_bytes(&name, segment.len());
                segments.insert(number, Arc::new(segment));
            }
            // A read of one of its values reports it. Everything else can be read.
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok((runs, Arc::new(segments), unreadable))
}

/// Removes files that a crash has left and that no manifest names, and second copies of files. A
/// power cut may bring them back, so their numbers are never used again.
fn remove_strangers(volumes: &Volumes, manifest: &Manifest) -> Result<(), StoreError> {
    volumes.remove_copies()?;
    for name in volumes.names() {
        let is_file = names::is_data(&name) || names::is_on_its_way(&name);
        if is_file && !manifest.has_file(&name) {
            volumes.remove(&name)?;
        }
    }
    Ok(())
}
