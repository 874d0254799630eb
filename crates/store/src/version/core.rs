//! What the handles of a store share, and what they and its threads do with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_base::{Clock, Seconds};

use crate::StoreError;
use crate::api::transaction::Transactions;
use crate::cache::block::BlockCache;
use crate::cache::budget::Room;
use crate::cache::row::RowCache;
use crate::failure::Failure;
use crate::manifest::Manifest;
use crate::memtable::range_deletes::Gone;
use crate::names;
use crate::options::KvdbOptions;
use crate::policy::Classes;
use crate::run::{RunOptions, RunWriter};
use crate::scheduler::Scheduler;
use crate::segment::Segment;
use crate::types::{KvsId, RunNumber, SegmentNumber, Sequence};
use crate::upkeep::charging::Background;
use crate::upkeep::image_writer::ImageWriter;
use crate::upkeep::read_frequency::ReadFrequency;
use crate::upkeep::read_frequency::kept::Stamp;
use crate::upkeep::threads::RETRY;
use crate::version::statistics::Counters;
use crate::version::view::{Current, View, ViewRun};
use crate::volumes::{OpenVolume, Volumes, What};
use crate::wal::Log;

/// So many numbers a `Kvs` can have.
const KVS_NUMBERS: usize = 1 << 16;
/// How long a writer waits for each byte, for each generation too many that waits to be flushed.
const DELAY_NS: u64 = 4;

/// What the handles of a store share.
pub(crate) struct Core {
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) options: KvdbOptions,
    pub(crate) clock: Arc<dyn Clock>,
    /// The latest time that was seen.
    pub(crate) seconds: AtomicU32,
    /// None if the store is only read.
    pub(crate) log: Option<Log>,
    pub(crate) last_recovered: Sequence,
    /// The same, if the log may go on in a place that is missing.
    pub(crate) uncertain_behind: Option<Sequence>,
    /// Records of the log that were read to open it.
    pub(crate) records_read: u64,
    pub(crate) current: Arc<Current>,
    /// Changes are made under its lock: first the manifest, then the view.
    pub(crate) manifest: Mutex<Manifest>,
    /// Held by the one who compactions.
    pub(crate) merging: Mutex<()>,
    pub(crate) pages: Arc<BlockCache>,
    /// Entries that were read last, and the locks of keys.
    pub(crate) entries: Arc<RowCache>,
    /// What it borrows of.
    pub(crate) room: Arc<Room>,
    pub(crate) transactions: Transactions,
    /// Those that were dropped since the store was opened, or have writes in the log from before.
    pub(crate) dropped: KvsBits,
    /// Those that had no room left where their policies want them when it was last looked.
    pub(crate) full: KvsBits,
    pub(crate) work: Arc<Scheduler>,
    pub(crate) background: Background,
    pub(crate) read_frequency: ReadFrequency,
    /// Of a hundred versions of each `Kvs` those that the last compactions found overwritten.
    pub(crate) overwritten: Mutex<BTreeMap<KvsId, u64>>,
    pub(crate) failure: Arc<Failure>,
    pub(crate) counters: Counters,
    /// How images are kept.
    pub(crate) images: ImageWriter,
    /// `Kvs` that are damaged so that they cannot be opened: what they have is left as it is.
    pub(crate) unreadable: Unreadable,
    pub(crate) is_closed: AtomicBool,
}

/// Some of the `Kvs`, a bit for each number.
pub(crate) struct KvsBits(Box<[AtomicU64]>);

/// `Kvs` of which a run cannot be opened, and why.
pub(crate) type Unreadable = BTreeMap<KvsId, String>;

impl KvsBits {
    pub(crate) fn new() -> KvsBits {
        KvsBits((0..KVS_NUMBERS / 64).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    pub(crate) fn has(&self, kvs: KvsId) -> bool {
        let word = self.0.get(kvs.0 as usize / 64);
        word.is_some_and(|word| word.load(Relaxed) >> (kvs.0 % 64) & 1 == 1)
    }

    pub(crate) fn add(&self, kvs: KvsId) {
        if let Some(word) = self.0.get(kvs.0 as usize / 64) {
            word.fetch_or(1 << (kvs.0 % 64), Relaxed);
        }
    }

    pub(crate) fn remove(&self, kvs: KvsId) {
        if let Some(word) = self.0.get(kvs.0 as usize / 64) {
            word.fetch_and(!(1 << (kvs.0 % 64)), Relaxed);
        }
    }
}

impl Core {
    /// The log, if the store can be written to.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn log(&self) -> Result<&Log, StoreError> {
        self.check_open()?;
        self.log.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// The log, for the store's own threads, which work until it is closed.
    ///
    /// # Errors
    /// If the store cannot be written to.
    pub(crate) fn log_behind(&self) -> Result<&Log, StoreError> {
        self.log.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// Makes everything durable that was acknowledged before.
    ///
    /// # Errors
    /// If the disk fails; then nothing is written any more.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let log = self.log()?;
        let begun = self.clock.now();
        let done = log.sync();
        self.counters.sync.add(self.clock.now().since(begun));
        done.map(drop)
    }

    /// Makes a segment for values that are moved. Its name is not durable yet.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn make_value_segment(
        &self,
        classes: Classes,
        bytes: u64,
    ) -> Result<(Arc<OpenVolume>, Segment), StoreError> {
        let (store, number) = {
            let manifest = &mut *self.manifest.lock();
            (manifest.store, manifest.take_value_segment())
        };
        let place = self.volumes.choose_of_reserve(What::Values, classes, bytes);
        let segment = Segment::create(&*place.directory, store, number, bytes, place.pmem)?;
        self.volumes.made(names::of_segment(number), &place, segment.len());
        Ok((place, segment))
    }

    /// Begins a run that says that prefixes are gone; its blocks are cached as they are written.
    ///
    /// # Errors
    /// If it cannot be made, or there are more prefixes than one run can say.
    pub(crate) fn begin_run(
        &self,
        place: &OpenVolume,
        (number, kvs): (RunNumber, KvsId),
        gone: impl IntoIterator<Item = Gone>,
    ) -> Result<RunWriter, StoreError> {
        let mut writer = RunWriter::create(&place.directory, number, kvs, RunOptions::default())?;
        writer.cache_in(&self.pages);
        for (prefix, sequence) in gone {
            writer.push_range_delete(&prefix, sequence)?;
        }
        Ok(writer)
    }

    /// Flushes all that was written before; says whether that was done, or `go_on` did not want to.
    ///
    /// # Errors
    /// If the disk fails, or has no room.
    pub(crate) fn flush_all(&self, go_on: &mut dyn FnMut() -> bool) -> Result<bool, StoreError> {
        let _awaited = self.background.await_flush();
        let last = self.log()?.close_generation()?;
        self.work.tell();
        let (before, _) = self.work.attempts();
        loop {
            let seen = self.work.events();
            self.failure.check()?;
            self.check_open()?;
            if self.manifest.lock().log.flushed >= last.0 {
                return Ok(true);
            }
            if let (tried, Some(what)) = self.work.attempts()
                && tried > before
            {
                return Err(StoreError::NoRoom { what });
            }
            if !go_on() {
                return Ok(false);
            }
            self.work.wait(seen, RETRY);
        }
    }

    /// Lets a writer wait if flushing falls behind: first a little, in the end until it has caught
    /// up; and a little if an image does.
    ///
    /// # Errors
    /// If the store fails or is closed meanwhile.
    pub(crate) fn slow_down(&self, bytes: u64) -> Result<(), StoreError> {
        let most = self.options.generations_waiting_max as usize;
        let waiting = self.work.waiting();
        if let owed @ 1.. = self.image_delay().as_nanos()
            && let Some(slept) = self.work.pay(Duration::from_nanos(owed as u64))
        {
            self.counters.image.add(slept);
        }
        if waiting <= most / 2 {
            return Ok(());
        }
        if waiting < most {
            let owed = Duration::from_nanos(bytes * DELAY_NS * (waiting - most / 2) as u64);
            if let Some(slept) = self.work.pay(owed) {
                self.counters.slope.add(slept);
            }
            return Ok(());
        }
        let begun = self.clock.now();
        let done = self.wait_for_room(most);
        self.counters.wall.add(self.clock.now().since(begun));
        done
    }

    /// Whether a writer would have to wait for flushing, or for an image.
    pub(crate) fn would_wait(&self) -> bool {
        self.work.waiting() > self.options.generations_waiting_max as usize / 2
            || !self.image_delay().is_zero()
    }

    fn wait_for_room(&self, most: usize) -> Result<(), StoreError> {
        let (before, _) = self.work.attempts();
        loop {
            let seen = self.work.events();
            if self.work.waiting() < most {
                return Ok(());
            }
            if let (tried, Some(what)) = self.work.attempts()
                && tried > before
            {
                return Err(StoreError::NoRoom { what });
            }
            self.failure.check()?;
            self.check_open()?;
            self.work.wait(seen, RETRY);
        }
    }

    /// # Errors
    /// If the store is closed.
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed.load(Relaxed) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// The last write that counts.
    pub(crate) fn published(&self) -> Sequence {
        self.log.as_ref().map_or(self.last_recovered, Log::published)
    }

    /// What time it is; never earlier than it was, also if the clock was set back.
    pub(crate) fn now(&self) -> Seconds {
        let now = self.clock.seconds().0;
        let before = self.seconds.fetch_max(now, Relaxed);
        if mutation_site!("the store's time does not go back") {
            return Seconds(now);
        }
        Seconds(before.max(now))
    }

    /// Puts a manifest in the place of the one before.
    ///
    /// # Errors
    /// If the disk fails; then nothing is written any more, since either may be there. If too many
    /// files are open, which is found before anything is done.
    pub(crate) fn save(&self, held: &mut Manifest, mut next: Manifest) -> Result<(), StoreError> {
        self.failure.check()?;
        if !mutation_site!("the manifest keeps the time") {
            next.seconds = self.seconds.load(Relaxed).max(next.seconds);
        }
        next.assert_follows(held, |name| self.volumes.find(name).is_some());
        match self.volumes.save(&next) {
            Ok(bytes) => {
                self.counters.manifest.fetch_add(bytes, Relaxed);
                if !mutation_site!("the next manifest is made from the last one") {
                    *held = next;
                }
                Ok(())
            }
            Err(error) if error.is_no_descriptors() => {
                Err(error.with_descriptors(held.descriptors()))
            }
            Err(error) => {
                self.failure.set(&error);
                Err(error)
            }
        }
    }

    /// The same, where files were written for the next manifest: if that was not begun to be saved,
    /// it is tried again with others, and these must not take the room.
    ///
    /// # Errors
    /// As [`save`](Core::save).
    pub(crate) fn save_with(
        &self,
        held: &mut Manifest,
        next: Manifest,
        made: &[String],
    ) -> Result<(), StoreError> {
        self.save(held, next).inspect_err(|error| {
            if error.is_no_descriptors() {
                // What cannot be removed now is at the next opening.
                _ = self.remove(made);
            }
        })
    }

    /// An error, with what to do if too many files are open. Nobody holds the manifest's lock.
    pub(crate) fn with_descriptors(&self, error: StoreError) -> StoreError {
        match error.is_no_descriptors() {
            true => error.with_descriptors(self.manifest.lock().descriptors()),
            false => error,
        }
    }

    /// Why a write is refused: too few descriptors for a segment are too little room for writers.
    pub(crate) fn refused(&self, error: StoreError) -> StoreError {
        match error.is_no_descriptors() {
            true => StoreError::NoRoom { what: self.with_descriptors(error).to_string() },
            false => error,
        }
    }

    /// Makes everything durable, and says so in the manifest.
    pub(crate) fn make_all_durable(&self) -> Result<(), StoreError> {
        let Some(log) = &self.log else { return Ok(()) };
        let last = log.sync()?;
        let manifest = &mut *self.manifest.lock();
        let mut next = manifest.clone();
        if !mutation_site!("the manifest says up to where the log is durable") {
            // A flush may have made more durable meanwhile, and said so.
            next.log.durable = next.log.durable.max(last.0);
        }
        self.save(manifest, next)
    }

    /// Keeps for the next process which values are read often. That it cannot be is no loss but of
    /// time, and told by that process.
    pub(crate) fn keep_read_frequency(&self) {
        if self.log.is_some() {
            let stamp = Stamp { store: self.manifest.lock().store, last: self.published() };
            _ = self.read_frequency.keep_for_later(&**self.volumes.home(), stamp);
        }
    }

    /// Removes flushed segments that no run needs any more.
    ///
    /// # Errors
    /// If a disk fails.
    pub(crate) fn drop_dead_segments(&self) -> Result<(), StoreError> {
        if !self.unreadable.is_empty() {
            // Nobody knows what their runs lead to.
            return Ok(());
        }
        let mut manifest = self.manifest.lock();
        let live = live_segments(&self.current.get());
        let is_dead = |number: u64| !live.contains_key(&SegmentNumber(number));
        let (dead, kept): (Vec<u64>, Vec<u64>) =
            manifest.segments.iter().copied().partition(|&number| is_dead(number));
        if dead.is_empty() {
            return Ok(());
        }
        let mut next = manifest.clone();
        next.segments = kept;
        let dead_files: Vec<String> =
            dead.iter().map(|number| names::of_segment(SegmentNumber(*number))).collect();
        if mutation_site!("dead segments are removed once the manifest does not name them") {
            self.remove(&dead_files)?;
        }
        self.save(&mut manifest, next)?;
        self.current.change(|view| {
            let segments = Arc::make_mut(&mut view.segments);
            for number in &dead {
                if let Some(segment) = segments.remove(&SegmentNumber(*number)) {
                    let name = names::of_segment(segment.number());
                    if let Some(place) = self.volumes.find(&name) {
                        place.written.values_read.fetch_add(segment.bytes_read(), Relaxed);
                    }
                }
            }
        });
        // A slow disk holds up nobody who waits for the manifest.
        drop(manifest);
        self.read_frequency.removed(dead.into_iter().map(SegmentNumber));
        self.remove(&dead_files)
    }

    /// Removes files that the manifest does not name, or no more.
    ///
    /// # Errors
    /// If the disk fails; the next opening removes them.
    pub(crate) fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        names.iter().try_for_each(|name| self.volumes.remove(name))
    }
}

/// The bytes of records in each flushed segment that somebody leads to.
pub(crate) type Live = BTreeMap<SegmentNumber, u64>;

/// What runs lead to.
pub(crate) fn live_of<'a>(runs: impl IntoIterator<Item = &'a ViewRun>) -> Live {
    let mut live = Live::new();
    for of_segment in runs.into_iter().flat_map(|run| run.run.summary().live.iter()) {
        *live.entry(of_segment.segment).or_default() += of_segment.bytes;
    }
    live
}

/// What all runs lead to.
pub(crate) fn live_segments(view: &View) -> Live {
    live_of(view.runs.values().flat_map(|runs| runs.iter()))
}
