//! How a store is opened: what its manifest names, and what its log holds beyond that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use entresol_base::Clock;
use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_media::Directory;
use entresol_media::directory::DirectoryLock;

use crate::StoreError;
use crate::background::Background;
use crate::entries::Entries;
use crate::entry::{KvsId, SegmentNumber, Sequence};
use crate::failure::Failure;
use crate::heat::Heat;
use crate::heat::kept::Stamp;
use crate::images::Images;
use crate::inner::{Inner, KvsBits, Unreadable};
use crate::log::recover::{Recovered, Rest, Start, recover};
use crate::log::segment::{self, Segment};
use crate::log::{Beginning, Log, LogOptions, Rotated};
use crate::manifest::{LogState, Manifest};
use crate::memory::{Room, Shares};
use crate::options::KvdbOptions;
use crate::pages::{CACHE_BYTES_MIN, Pages};
use crate::places::{Access, Places};
use crate::run;
use crate::shift;
use crate::statistics::Counters;
use crate::transaction::Transactions;
use crate::view::{Current, Frozen, View};
use crate::work::Work;
use crate::young::Generation;

/// What a store is opened with.
pub(crate) struct Opening {
    pub(crate) home: Arc<dyn Directory>,
    /// Places that are not where the manifest says, or on other disks.
    pub(crate) given: Vec<Arc<dyn Directory>>,
    pub(crate) options: KvdbOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lock: DirectoryLock,
    pub(crate) read_only: bool,
}

impl Opening {
    /// Opens it, with the lock that keeps others out.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn inner(
        self,
        mut manifest: Manifest,
    ) -> Result<(Inner, DirectoryLock), StoreError> {
        let Opening { home, given, options, clock, lock, read_only } = self;
        let places = Places::open(&home, &given, &manifest, Access::of(&options, read_only))?;
        let places = Arc::new(places);
        let shares = Shares::of(&options);
        let found = recover(&places, start(&manifest, &shares), read_only)?;
        let Recovered { generations, last, uncertain_behind, next_segment, records, rest } = found;
        let (work, failure) = (Arc::new(Work::default()), Arc::new(Failure::default()));
        let room = Room::new(shares.room, shares.pages.max(CACHE_BYTES_MIN));
        let pages = Pages::sharing(&room, Some(work.clone()));
        let (runs, segments, unreadable) = open_frozen(&places, &manifest, &pages, read_only)?;
        if !read_only {
            settle(&places, &mut manifest, rest, unreadable.is_empty())?;
        }
        let young = Arc::new(Generation::new(shares.generation.bytes, Sequence(last.0 + 1)));
        let closed: Vec<_> = generations.into_iter().rev().collect();
        closed.iter().for_each(|(closed, _)| closed.take_room(&room));
        let current =
            Arc::new(Current::new(View { young: young.clone(), closed, runs, segments }, &room));
        let log = match read_only {
            true => None,
            false => {
                let rotated = rotated(current.clone(), work.clone());
                let Shares { segment_bytes, generation, .. } = shares;
                Some(Log::begin(
                    places.clone(),
                    manifest.store,
                    LogOptions { segment_bytes, generation, room: room.clone() },
                    Beginning { last, next_segment, generation: young },
                    failure.clone(),
                    work.clone(),
                    rotated,
                )?)
            }
        };
        let dropped = dropped_before(&manifest, &current.get());
        let heat = heat_of(&*home, &manifest, last, options.memory_bytes);
        let inner = Inner {
            places,
            options,
            clock,
            seconds: AtomicU32::new(seconds_of(&manifest)),
            log,
            last_recovered: last,
            uncertain_behind,
            records_read: records,
            current,
            manifest: Mutex::new(manifest),
            merging: Mutex::new(()),
            pages,
            entries: Entries::new(shares.entries, &room)?,
            room,
            transactions: Transactions::default(),
            dropped,
            full: KvsBits::new(),
            work,
            background: Background::default(),
            heat,
            overwritten: Mutex::default(),
            failure,
            counters: Counters::default(),
            images: Images::default(),
            unreadable,
            is_closed: AtomicBool::new(false),
        };
        Ok((inner, lock))
    }
}

/// Makes the store ready to be written, now that what its manifest names could be opened, all of it
/// or but for some `Kvs`.
fn settle(
    places: &Places,
    manifest: &mut Manifest,
    rest: Rest,
    is_whole: bool,
) -> Result<(), StoreError> {
    places.name_home()?;
    save_again(places, manifest)?;
    places.remove_the_rest(rest.behind())?;
    rest.settle(places)?;
    // What this manifest does not know may be what another one, which was lost, has made of what
    // cannot be read.
    match is_whole {
        true => remove_strangers(places, manifest)?,
        false => manifest.skip(&places.names()),
    }
    Ok(())
}

/// Shows readers a generation that is closed, and the next one, and tells who freezes.
fn rotated(views: Arc<Current>, work: Arc<Work>) -> Rotated {
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

/// `Kvs` that were dropped, but the log has writes of: another one with such a number would have
/// them.
fn dropped_before(manifest: &Manifest, view: &View) -> KvsBits {
    let dropped = KvsBits::new();
    let is_there = |id: &KvsId| manifest.kvs.iter().any(|kvs| kvs.id == id.0);
    let written = view.closed.iter().flat_map(|(generation, _)| generation.kvs());
    written.filter(|id| !is_there(id)).for_each(|id| dropped.add(id));
    dropped
}

/// The time at which the store's goes on.
fn seconds_of(manifest: &Manifest) -> u32 {
    if mutation_site!("the store's time goes on from the manifest's") {
        return 0;
    }
    manifest.seconds
}

/// Heat as it was kept when the store was closed.
fn heat_of(home: &dyn Directory, manifest: &Manifest, last: Sequence, memory_bytes: u64) -> Heat {
    let stamp = Stamp { store: manifest.store, last };
    let is_there = |number: SegmentNumber| manifest.segments.contains(&number.0);
    Heat::restored(memory_bytes, home, stamp, &is_there)
}

/// Puts the manifest that was read in its own place once more. The sync behind which a process had
/// put it there may have failed: then a power cut may bring back the one before, and what only that
/// names is about to be removed. Where there are several places it says as well which numbers runs
/// and segments of values get now.
fn save_again(places: &Places, manifest: &mut Manifest) -> Result<(), StoreError> {
    if places.count_places() > 1
        && !mutation_site!("numbers that a lost manifest may have given are left out")
    {
        manifest.leave_out_numbers();
    }
    if mutation_site!("an opening saves the manifest again") {
        return Ok(());
    }
    places.save(manifest).map(drop)
}

/// Where the log of a store begins that is not frozen.
fn start(manifest: &Manifest, shares: &Shares) -> Start {
    let LogState { first_segment, frozen, durable } = manifest.log;
    Start {
        store: manifest.store,
        segment: SegmentNumber(first_segment),
        frozen: Sequence(frozen),
        durable: Sequence(durable),
        generation: shares.generation,
    }
}

/// The runs of each `Kvs`, the newest first.
type Runs = BTreeMap<KvsId, Arc<Vec<Frozen>>>;
/// Segments that values lie in.
type Segments = Arc<BTreeMap<SegmentNumber, Arc<Segment>>>;

/// Opens the runs and segments that a manifest names.
fn open_frozen(
    places: &Places,
    manifest: &Manifest,
    pages: &Arc<Pages>,
    is_partial: bool,
) -> Result<(Runs, Segments, Unreadable), StoreError> {
    let (mut runs, mut unreadable) = (BTreeMap::new(), Unreadable::new());
    for kvs in &manifest.kvs {
        let mut names = kvs.runs.iter().map(|run| run::file_name(run.number()));
        if let Some(what) = names.find_map(|name| places.away(&name)) {
            unreadable.insert(KvsId(kvs.id), what);
            continue;
        }
        let of_kvs = kvs.runs.iter().map(|&run| {
            let name = run::file_name(run.number());
            let opened = Frozen::open(&places.directory_of(&name), run, pages);
            let opened = opened.map_err(StoreError::of_own_file)?;
            places.has_bytes(&name, opened.run.summary().file_bytes);
            Ok(opened)
        });
        match of_kvs.collect::<Result<Vec<_>, StoreError>>() {
            Ok(of_kvs) => drop(runs.insert(KvsId(kvs.id), Arc::new(of_kvs))),
            // The others can be read.
            Err(error) if error.is_damage() => {
                unreadable.insert(KvsId(kvs.id), error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    let mut segments = BTreeMap::new();
    for number in manifest.segments() {
        let name = segment::file_name(number);
        if is_partial && places.away(&name).is_some() {
            // Its values are said to be missing when they are asked for.
            continue;
        }
        let directory = places.directory_of(&name);
        let segment = Segment::open_blocks(&*directory, manifest.store, number);
        let segment = segment.map_err(StoreError::of_own_file)?;
        places.has_bytes(&name, segment.len());
        segments.insert(number, Arc::new(segment));
    }
    Ok((runs, Arc::new(segments), unreadable))
}

/// Removes files that a crash has left and no manifest names, and second copies. A power cut may
/// bring them back: nobody gets their numbers again.
fn remove_strangers(places: &Places, manifest: &Manifest) -> Result<(), StoreError> {
    places.remove_copies()?;
    for name in places.names() {
        let is_data = segment::number_of(&name).is_some() || run::number_of(&name).is_some();
        let is_file = is_data || shift::is_on_its_way(&name);
        if is_file && !manifest.has_file(&name) {
            places.remove(&name)?;
        }
    }
    Ok(())
}
