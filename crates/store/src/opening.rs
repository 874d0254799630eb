//! How a store is opened: what its manifest names, and what its log holds beyond that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use entresol_base::Clock;
use entresol_base::mutants::left_out;
use entresol_base::sync::Mutex;
use entresol_media::Directory;
use entresol_media::directory::DirectoryLock;

use crate::StoreError;
use crate::background::Background;
use crate::entries::Entries;
use crate::entry::{KvsId, RunNumber, SegmentNumber, Sequence};
use crate::failure::Failure;
use crate::images::Images;
use crate::inner::{Dropped, Inner, Unreadable};
use crate::log::recover::{Recovered, Start, recover};
use crate::log::segment::{self, Segment};
use crate::log::{Beginning, Log, LogOptions};
use crate::manifest::{LogState, Manifest};
use crate::memory::Shares;
use crate::options::KvdbOptions;
use crate::pages::Pages;
use crate::run;
use crate::statistics::Counters;
use crate::transaction::Transactions;
use crate::view::{Current, Frozen, View};
use crate::work::Work;
use crate::young::Generation;

/// What a store is opened with.
pub(crate) struct Opening {
    pub(crate) directory: Arc<dyn Directory>,
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
    pub(crate) fn inner(self, manifest: Manifest) -> Result<(Inner, DirectoryLock), StoreError> {
        let Opening { directory, options, clock, lock, read_only } = self;
        let shares = Shares::of(&options);
        let recovered = recover(&directory, start(&manifest, &options, &shares), read_only)?;
        let Recovered { generations, last, next_segment, records } = recovered;
        if !read_only {
            remove_strangers(&directory, &manifest)?;
        }
        let pages = Pages::new(shares.pages);
        let (runs, segments, unreadable) = open_frozen(&directory, &manifest, &pages)?;
        let young = Arc::new(Generation::new(shares.generation.bytes, Sequence(last.0 + 1)));
        let closed = generations.into_iter().rev().collect();
        let view = View { young: young.clone(), closed, runs, segments };
        let current = Arc::new(Current::new(view));
        let (work, failure) = (Arc::new(Work::default()), Arc::new(Failure::default()));
        let log = match read_only {
            true => None,
            false => {
                let (views, tell) = (current.clone(), work.clone());
                let rotated = Box::new(move |closed: &Arc<_>, young: &Arc<_>, last| {
                    views.change(|view| {
                        view.closed.insert(0, (Arc::clone(closed), last));
                        view.young = Arc::clone(young);
                        tell.set_waiting(view.closed.len());
                    });
                    tell.tell();
                });
                let Shares { segment_bytes, generation, .. } = shares;
                let KvdbOptions { reserve_bytes, pmem, .. } = options;
                Some(Log::begin(
                    directory.clone(),
                    manifest.store,
                    LogOptions { segment_bytes, generation, reserve_bytes, pmem },
                    Beginning { last, next_segment, generation: young },
                    failure.clone(),
                    rotated,
                )?)
            }
        };
        let inner = Inner {
            directory,
            options,
            clock,
            seconds: AtomicU32::new(if left_out() { 0 } else { manifest.seconds }),
            log,
            last_recovered: last,
            records_read: records,
            current,
            manifest: Mutex::new(manifest),
            merging: Mutex::new(()),
            pages,
            entries: Entries::new(shares.entries)?,
            transactions: Transactions::default(),
            dropped: Dropped::new(),
            work,
            background: Background::default(),
            failure,
            counters: Counters::default(),
            images: Images::default(),
            unreadable,
            is_closed: AtomicBool::new(false),
        };
        Ok((inner, lock))
    }
}

/// Where the log of a store begins that is not frozen.
fn start(manifest: &Manifest, options: &KvdbOptions, shares: &Shares) -> Start {
    let LogState { first_segment, frozen, durable } = manifest.log;
    Start {
        store: manifest.store,
        segment: SegmentNumber(first_segment),
        frozen: Sequence(frozen),
        durable: Sequence(durable),
        generation: shares.generation,
        pmem: options.pmem,
    }
}

/// The runs of each `Kvs`, the newest first.
type Runs = BTreeMap<KvsId, Arc<Vec<Frozen>>>;
/// Segments that values lie in.
type Segments = Arc<BTreeMap<SegmentNumber, Arc<Segment>>>;

/// Opens the runs and segments that a manifest names.
fn open_frozen(
    directory: &Arc<dyn Directory>,
    manifest: &Manifest,
    pages: &Arc<Pages>,
) -> Result<(Runs, Segments, Unreadable), StoreError> {
    let (mut runs, mut unreadable) = (BTreeMap::new(), Unreadable::new());
    for kvs in &manifest.kvs {
        let of_kvs = kvs.runs.iter().map(|&run| Frozen::open(directory, RunNumber(run), pages));
        match of_kvs.collect::<Result<Vec<_>, StoreError>>() {
            Ok(of_kvs) => drop(runs.insert(KvsId(kvs.id), Arc::new(of_kvs))),
            // The others can be read.
            Err(error) if error.is_damage() => {
                unreadable.insert(KvsId(kvs.id), error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    let segments = manifest.segments().map(|number| {
        let segment = Segment::open_blocks(&**directory, manifest.store, number)?;
        Ok((number, Arc::new(segment)))
    });
    let segments = Arc::new(segments.collect::<Result<BTreeMap<_, _>, StoreError>>()?);
    Ok((runs, segments, unreadable))
}

/// Removes files that a crash has left and no manifest names.
fn remove_strangers(directory: &Arc<dyn Directory>, manifest: &Manifest) -> Result<(), StoreError> {
    for entry in directory.list()? {
        let is_file =
            segment::number_of(&entry.name).is_some() || run::number_of(&entry.name).is_some();
        if is_file && !manifest.has_file(&entry.name) {
            directory.remove(&entry.name)?;
        }
    }
    Ok(())
}
