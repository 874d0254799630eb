//! State and operations that the handles and the threads of a store share.

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
use crate::memtable::range_deletes::Gone;
use crate::options::KvdbOptions;
use crate::run::{RunOptions, RunWriter};
use crate::types::{KvsId, RunNumber, SegmentNumber, Sequence};
use crate::upkeep::charging::Background;
use crate::upkeep::image_writer::ImageWriter;
use crate::upkeep::read_frequency::ReadFrequency;
use crate::upkeep::read_frequency::kept::Stamp;
use crate::upkeep::scheduler::Scheduler;
use crate::upkeep::threads::RETRY;
use crate::version::failure::Failure;
use crate::version::manifest::Manifest;
use crate::version::statistics::Counters;
use crate::version::view::{Current, View, ViewRun};
use crate::volumes::policy::Classes;
use crate::volumes::{Held, Volumes, What};
use crate::wal::Log;
use crate::wal::segment;
use crate::wal::segment::Segment;

/// Number of distinct `KvsId`s.
const KVS_NUMBERS: usize = 1 << 16;
/// Delay of a writer for each byte it writes and each excess generation that waits to be flushed.
const DELAY_NS: u64 = 4;

/// State that all handles of a store share.
pub(crate) struct Core {
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) options: KvdbOptions,
    pub(crate) clock: Arc<dyn Clock>,
    /// Latest time that the store has seen.
    pub(crate) seconds: AtomicU32,
    /// `None` if the store is opened read-only.
    pub(crate) log: Option<Log>,
    pub(crate) last_recovered: Sequence,
    /// Last recovered write if the log may continue on a missing volume.
    pub(crate) uncertain_behind: Option<Sequence>,
    /// Log records that recovery read.
    pub(crate) records_read: u64,
    pub(crate) current: Arc<Current>,
    /// Manifest, whose lock guards every change: the manifest is saved first, the view follows.
    pub(crate) manifest: Mutex<Manifest>,
    /// Lock that allows one compaction at a time.
    pub(crate) merging: Mutex<()>,
    pub(crate) pages: Arc<BlockCache>,
    /// Row cache, which also holds the locks of keys.
    pub(crate) entries: Arc<RowCache>,
    /// Memory budget that the row cache borrows from.
    pub(crate) room: Arc<Room>,
    pub(crate) transactions: Transactions,
    /// `Kvs` dropped since the store was opened, and those dropped before whose writes are still in
    /// the log.
    pub(crate) dropped: KvsBits,
    /// `Kvs` whose preferred classes had no room at the last check.
    pub(crate) full: KvsBits,
    pub(crate) work: Arc<Scheduler>,
    pub(crate) background: Background,
    pub(crate) read_frequency: ReadFrequency,
    /// Overwritten versions that the last compactions found, in percent, for each `Kvs`.
    pub(crate) overwritten: Mutex<BTreeMap<KvsId, u64>>,
    pub(crate) failure: Arc<Failure>,
    pub(crate) counters: Counters,
    /// Writer of memtable images.
    pub(crate) images: ImageWriter,
    /// `Kvs` too damaged to be opened. Background work leaves their files alone.
    pub(crate) unreadable: Unreadable,
    pub(crate) is_closed: AtomicBool,
}

/// Set of `Kvs`, one bit for each number.
pub(crate) struct KvsBits(Box<[AtomicU64]>);

/// Reason why a run of the `Kvs` cannot be opened, for each such `Kvs`.
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
    /// Returns the log of a writable store.
    ///
    /// # Errors
    /// Fails if the store is closed or read-only.
    pub(crate) fn log(&self) -> Result<&Log, StoreError> {
        self.check_open()?;
        self.log.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// Returns the log for the store's own threads, which go on while the store closes.
    ///
    /// # Errors
    /// Fails if the store is read-only.
    pub(crate) fn log_behind(&self) -> Result<&Log, StoreError> {
        self.log.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// Makes all acknowledged writes durable.
    ///
    /// # Errors
    /// Fails if the disk fails; the store then refuses all further writes.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let log = self.log()?;
        let begun = self.clock.now();
        let done = log.sync();
        self.counters.sync.add(self.clock.now().since(begun));
        done.map(drop)
    }

    /// Creates a segment for values that are moved. Its name is not durable yet.
    ///
    /// # Errors
    /// Fails if there is no room.
    pub(crate) fn make_value_segment(
        &self,
        classes: Classes,
        bytes: u64,
    ) -> Result<(Arc<Held>, Segment), StoreError> {
        let (store, number) = {
            let manifest = &mut *self.manifest.lock();
            (manifest.store, manifest.take_value_segment())
        };
        let place = self.volumes.choose_of_reserve(What::Values, classes, bytes);
        let segment = Segment::create(&*place.directory, store, number, bytes, place.pmem)?;
        self.volumes.made(segment::file_name(number), &place, segment.len());
        Ok((place, segment))
    }

    /// Begins a run with its range deletes. Its blocks enter the block cache as they are written.
    ///
    /// # Errors
    /// Fails if the file cannot be created, or if one run cannot hold all the range deletes.
    pub(crate) fn begin_run(
        &self,
        place: &Held,
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

    /// Flushes everything written before the call. Returns false if `go_on` ended the wait early.
    ///
    /// # Errors
    /// Fails if the disk fails or has no room.
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

    /// Slows a writer down if flushes lag: a short delay at first, a wait for the flush at the
    /// limit. A lagging memtable image also costs a short delay.
    ///
    /// # Errors
    /// Fails if the store fails or is closed meanwhile.
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

    /// Returns true if a writer would have to wait for a flush or a memtable image.
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

    /// Checks that the store is open.
    ///
    /// # Errors
    /// Fails if the store is closed.
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed.load(Relaxed) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Returns the last visible write.
    pub(crate) fn published(&self) -> Sequence {
        self.log.as_ref().map_or(self.last_recovered, Log::published)
    }

    /// Returns the current time, which never goes back, even if the clock is set back.
    pub(crate) fn now(&self) -> Seconds {
        let now = self.clock.seconds().0;
        let before = self.seconds.fetch_max(now, Relaxed);
        if mutation_site!("the store's time does not go back") {
            return Seconds(now);
        }
        Seconds(before.max(now))
    }

    /// Replaces the manifest.
    ///
    /// # Errors
    /// Fails if the disk fails. Either manifest may then be on the disk, and the store refuses all
    /// further writes. Also fails if too many files are open, which is noticed before anything
    /// changes.
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

    /// Replaces the manifest by one that names new files. If too many open files prevented the
    /// save, this removes the new files: the caller tries again with others, which need the room.
    ///
    /// # Errors
    /// Fails as [`save`](Core::save) does.
    pub(crate) fn save_with(
        &self,
        held: &mut Manifest,
        next: Manifest,
        made: &[String],
    ) -> Result<(), StoreError> {
        self.save(held, next).inspect_err(|error| {
            if error.is_no_descriptors() {
                // A file that cannot be removed now is removed at the next opening.
                _ = self.remove(made);
            }
        })
    }

    /// Adds advice to an error about too many open files. The caller must not hold the manifest's
    /// lock.
    pub(crate) fn with_descriptors(&self, error: StoreError) -> StoreError {
        match error.is_no_descriptors() {
            true => error.with_descriptors(self.manifest.lock().descriptors()),
            false => error,
        }
    }

    /// Converts an error into the refusal of a write: a lack of descriptors for a segment counts as
    /// a lack of room.
    pub(crate) fn refused(&self, error: StoreError) -> StoreError {
        match error.is_no_descriptors() {
            true => StoreError::NoRoom { what: self.with_descriptors(error).to_string() },
            false => error,
        }
    }

    /// Makes all writes durable and records that in the manifest.
    pub(crate) fn make_all_durable(&self) -> Result<(), StoreError> {
        let Some(log) = &self.log else { return Ok(()) };
        let last = log.sync()?;
        let manifest = &mut *self.manifest.lock();
        let mut next = manifest.clone();
        if !mutation_site!("the manifest says up to where the log is durable") {
            // A flush may have made later writes durable meanwhile, and recorded them.
            next.log.durable = next.log.durable.max(last.0);
        }
        self.save(manifest, next)
    }

    /// Saves the read frequencies for the next process. A failure costs that process only time, and
    /// that process reports it.
    pub(crate) fn keep_read_frequency(&self) {
        if self.log.is_some() {
            let stamp = Stamp { store: self.manifest.lock().store, last: self.published() };
            _ = self.read_frequency.keep_for_later(&**self.volumes.home(), stamp);
        }
    }

    /// Removes flushed segments that no run refers to.
    ///
    /// # Errors
    /// Fails if a disk fails.
    pub(crate) fn drop_dead_segments(&self) -> Result<(), StoreError> {
        if !self.unreadable.is_empty() {
            // The unreadable runs may refer to any segment.
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
            dead.iter().map(|number| segment::file_name(SegmentNumber(*number))).collect();
        if mutation_site!("dead segments are removed once the manifest does not name them") {
            self.remove(&dead_files)?;
        }
        self.save(&mut manifest, next)?;
        self.current.change(|view| {
            let segments = Arc::make_mut(&mut view.segments);
            for number in &dead {
                if let Some(segment) = segments.remove(&SegmentNumber(*number)) {
                    let name = segment::file_name(segment.number());
                    if let Some(place) = self.volumes.find(&name) {
                        place.written.values_read.fetch_add(segment.bytes_read(), Relaxed);
                    }
                }
            }
        });
        // The lock is released first: a slow disk must not hold up other users of the manifest.
        drop(manifest);
        self.read_frequency.removed(dead.into_iter().map(SegmentNumber));
        self.remove(&dead_files)
    }

    /// Removes files that the manifest does not name, or names no longer.
    ///
    /// # Errors
    /// Fails if the disk fails. The next opening then removes them.
    pub(crate) fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        names.iter().try_for_each(|name| self.volumes.remove(name))
    }
}

/// Bytes of records that runs refer to, for each flushed segment.
pub(crate) type Live = BTreeMap<SegmentNumber, u64>;

/// Returns the bytes live that the given runs refer to.
pub(crate) fn live_of<'a>(runs: impl IntoIterator<Item = &'a ViewRun>) -> Live {
    let mut live = Live::new();
    for of_segment in runs.into_iter().flat_map(|run| run.run.summary().live.iter()) {
        *live.entry(of_segment.segment).or_default() += of_segment.bytes;
    }
    live
}

/// Returns the bytes live that all runs of a view refer to.
pub(crate) fn live_segments(view: &View) -> Live {
    live_of(view.runs.values().flat_map(|runs| runs.iter()))
}
