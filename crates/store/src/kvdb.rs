//! A store: its `Kvs`, its log, and what is done behind the writers' backs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::hash::KeyHasher;
use entresol_base::mutants::left_out;
use entresol_base::sync::Mutex;
use entresol_base::thread::{self, JoinHandle};
use entresol_base::world::World;
use entresol_base::{Clock, Seconds, SystemClock};
use entresol_media::directory::DirectoryLock;
use entresol_media::{Directory, LocalDirectory};

use crate::background::Background;
use crate::entries::Entries;
use crate::entry::{KvsId, RunNumber, SegmentNumber, Sequence};
use crate::failure::Failure;
use crate::freeze::freeze;
use crate::kvs::Kvs;
use crate::log::recover::{Recovered, Start, recover};
use crate::log::segment::{self, Segment};
use crate::log::{Beginning, Log, LogOptions};
use crate::manifest::{KvsState, LogState, Manifest};
use crate::memory::Shares;
use crate::options::{KVS_MAX, KvdbOptions, KvsOptions, check_name};
use crate::pages::Pages;
use crate::run;
use crate::statistics::Counters;
use crate::transaction::Transactions;
use crate::view::{Current, Frozen, View};
use crate::work::Work;
use crate::young::{Generation, image};
use crate::{Batch, Snapshot, StoreError, merge};

/// How long a thread that could not make room waits before it tries again.
const RETRY: Duration = Duration::from_millis(100);
/// An image is behind what was written by this time, and what entering it takes.
const IMAGE_INTERVAL: Duration = Duration::from_millis(10);
/// The longest that a thread sleeps without being told anything.
const IDLE: Duration = Duration::from_secs(3600);
/// So many numbers a `Kvs` can have.
const KVS_NUMBERS: usize = 1 << 16;
/// How long a writer waits for each byte, for each generation too many that waits to be frozen.
const DELAY_NS: u64 = 4;

/// A store in a directory: several [`Kvs`], written in one order.
///
/// When it is dropped, or [closed](Kvdb::close), everything that was written is durable.
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
/// assert_eq!(users.get(b"ada")?, Some(b"1815".to_vec()));
/// store.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Kvdb {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// Let go when this is dropped.
    _lock: Mutex<DirectoryLock>,
}

/// How far a compaction has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Bytes of runs that were merged; 0 while what was written last is being frozen.
    pub bytes_done: u64,
    /// Bytes of runs that are to be merged; 0 as long as that is not known.
    pub bytes: u64,
}

/// What the handles of a store share.
pub(crate) struct Inner {
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) options: KvdbOptions,
    pub(crate) clock: Arc<dyn Clock>,
    /// The latest time that was seen.
    seconds: AtomicU32,
    /// None if the store is only read.
    pub(crate) log: Option<Log>,
    last_recovered: Sequence,
    /// Records of the log that were read to open it.
    pub(crate) records_read: u64,
    pub(crate) current: Arc<Current>,
    /// Changes are made under its lock: first the manifest, then the view.
    pub(crate) manifest: Mutex<Manifest>,
    /// Held by the one who merges.
    pub(crate) merging: Mutex<()>,
    pub(crate) pages: Arc<Pages>,
    /// Entries that were read last, and the locks of keys.
    pub(crate) entries: Entries,
    pub(crate) transactions: Transactions,
    /// `Kvs` that were dropped since the store was opened, a bit for each number.
    dropped: Box<[AtomicU64]>,
    pub(crate) work: Arc<Work>,
    pub(crate) background: Background,
    pub(crate) failure: Arc<Failure>,
    pub(crate) counters: Counters,
    /// `Kvs` that are damaged so that they cannot be opened: what they have is left as it is.
    pub(crate) unreadable: Unreadable,
    is_closed: AtomicBool,
}

impl Kvdb {
    /// Makes a store in a directory of this machine, which is made if it does not exist.
    ///
    /// # Errors
    /// If there is something in the directory, or it cannot be written to.
    pub fn create_at(path: &Path, options: KvdbOptions) -> Result<Kvdb, StoreError> {
        let directory = LocalDirectory::open(path)?;
        Kvdb::create(Arc::new(directory), options, Arc::new(SystemClock::new()))
    }

    /// Opens the store in a directory of this machine.
    ///
    /// # Errors
    /// If there is none, somebody else has it open, or it is damaged.
    pub fn open_at(path: &Path, options: KvdbOptions) -> Result<Kvdb, StoreError> {
        let directory = LocalDirectory::open_existing(path)?;
        Kvdb::open(Arc::new(directory), options, Arc::new(SystemClock::new()))
    }

    /// Makes a store in an empty directory.
    ///
    /// # Errors
    /// If there is something in the directory, or it cannot be written to.
    pub fn create(
        directory: Arc<dyn Directory>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        options.check()?;
        let lock = directory.lock()?;
        if !directory.list()?.is_empty() {
            return Err(StoreError::Exists { directory: directory.path().to_owned() });
        }
        let store = match World::current() {
            Some(world) => world.rng("store").next_u64(),
            None => KeyHasher::random().hash(directory.path().as_os_str().as_encoded_bytes()),
        };
        // What a manifest names is there before it.
        let manifest = Manifest::new(store & (u64::MAX >> 1));
        manifest.save(&*directory)?;
        Kvdb::assemble(Opening { directory, options, clock, lock, read_only: false }, manifest)
    }

    /// Opens the store in a directory.
    ///
    /// # Errors
    /// If there is none, somebody else has it open, or it is damaged.
    pub fn open(
        directory: Arc<dyn Directory>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        Kvdb::open_with(directory, options, clock, false)
    }

    /// Opens the store in a directory to be read only: nothing in it is changed. Others are kept
    /// out all the same.
    ///
    /// # Errors
    /// If there is none, somebody else has it open, or it is damaged.
    pub fn open_read_only(
        directory: Arc<dyn Directory>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        Kvdb::open_with(directory, options, clock, true)
    }

    fn open_with(
        directory: Arc<dyn Directory>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
        read_only: bool,
    ) -> Result<Kvdb, StoreError> {
        options.check()?;
        let lock = directory.lock()?;
        let Some(manifest) = Manifest::load(&*directory)? else {
            return Err(StoreError::NoStore { directory: directory.path().to_owned() });
        };
        Kvdb::assemble(Opening { directory, options, clock, lock, read_only }, manifest)
    }

    fn assemble(opening: Opening, manifest: Manifest) -> Result<Kvdb, StoreError> {
        let (inner, lock) = opening.inner(manifest)?;
        let inner = Arc::new(inner);
        let mut threads = Vec::new();
        if inner.log.is_some() {
            let spawn = |name: &str, run: fn(&Inner)| {
                let inner = inner.clone();
                thread::spawn(name, move || run(&inner))
            };
            threads.push(spawn("store-sync", keep_durable));
            threads.push(spawn("store-freeze", keep_freezing));
            threads.push(spawn("store-merge", keep_merging));
        }
        Ok(Kvdb { inner, threads, _lock: Mutex::new(lock) })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Makes a `Kvs`.
    ///
    /// # Errors
    /// If there is one of this name already, or the name or the options cannot be had.
    pub fn create_kvs(&self, name: &str, options: KvsOptions) -> Result<Kvs, StoreError> {
        check_name(name)?;
        options.check()?;
        let inner = &self.inner;
        inner.log()?;
        let manifest = &mut *inner.manifest.lock();
        if manifest.kvs.iter().any(|kvs| kvs.name == name) {
            return Err(StoreError::KvsExists { name: name.to_owned() });
        }
        if manifest.kvs.len() >= KVS_MAX || manifest.next_kvs > u16::MAX.into() {
            let what = format!("no more than {KVS_MAX} Kvs can be made; drop some");
            return Err(StoreError::Options { what });
        }
        let mut next = manifest.clone();
        let state = KvsState {
            id: next.next_kvs,
            name: name.to_owned(),
            inline_bytes: options.inline_bytes,
            time_to_live_s: options
                .time_to_live
                .map_or(0, |time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1)),
            runs: Vec::new(),
        };
        next.next_kvs += 1;
        next.kvs.push(state.clone());
        inner.save(manifest, next)?;
        Ok(Kvs::new(inner.clone(), &state))
    }

    /// Opens a `Kvs`.
    ///
    /// # Errors
    /// If there is none of this name, or what it has is damaged.
    pub fn kvs(&self, name: &str) -> Result<Kvs, StoreError> {
        self.inner.check_open()?;
        let manifest = self.inner.manifest.lock();
        match manifest.kvs.iter().find(|kvs| kvs.name == name) {
            Some(state) => match self.inner.unreadable.get(&KvsId(state.id)) {
                None => Ok(Kvs::new(self.inner.clone(), state)),
                Some(what) => {
                    let (name, what) = (name.to_owned(), what.clone());
                    Err(StoreError::KvsDamaged { name, what })
                }
            },
            None => Err(manifest.no_kvs(name)),
        }
    }

    /// Drops a `Kvs` and all that is in it. Handles of it, and cursors that are made from now on,
    /// are refused.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn drop_kvs(&self, name: &str) -> Result<(), StoreError> {
        let inner = &self.inner;
        inner.log()?;
        let manifest = &mut *inner.manifest.lock();
        let Some(place) = manifest.kvs.iter().position(|kvs| kvs.name == name) else {
            return Err(manifest.no_kvs(name));
        };
        let mut next = manifest.clone();
        let dropped = next.kvs.remove(place);
        inner.save(manifest, next)?;
        inner.set_dropped(KvsId(dropped.id));
        inner.current.change(|view| {
            view.runs.remove(&KvsId(dropped.id));
        });
        let files: Vec<String> =
            dropped.runs.iter().map(|run| run::file_name(RunNumber(*run))).collect();
        inner.remove(&files)?;
        inner.drop_dead_segments(manifest)
    }

    /// The names of all `Kvs`.
    #[must_use]
    pub fn kvs_names(&self) -> Vec<String> {
        self.inner.manifest.lock().kvs.iter().map(|kvs| kvs.name.clone()).collect()
    }

    /// Writes a batch: all of it counts at once, and after a crash all of it is there or nothing.
    ///
    /// # Errors
    /// If a key or value cannot be kept, there is no room, or an earlier write failed.
    pub fn write(&self, batch: &Batch) -> Result<Sequence, StoreError> {
        self.inner.write_batch(batch)
    }

    /// Everything as it is now, for as long as the snapshot is held.
    ///
    /// # Errors
    /// If the store is closed.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.inner.check_open()?;
        Ok(Snapshot::of(&self.inner))
    }

    /// Makes everything durable that was acknowledged before: it survives the machine's crash.
    ///
    /// # Errors
    /// If the disk fails; then nothing is written any more.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()
    }

    /// Freezes all data and merges everything that can be merged. Writers may go on meanwhile.
    ///
    /// # Errors
    /// If the disk fails or has no room.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.compact_with(&mut |_| ControlFlow::Continue(())).map(drop)
    }

    /// The same, telling how far it has come; says whether it came to its end. It ends early if
    /// `progress` breaks it off: what was merged until then stays merged.
    ///
    /// ```
    /// # fn main() -> Result<(), entresol_store::StoreError> {
    /// # let scratch = tempfile::tempdir().expect("a directory");
    /// # let path = scratch.path().join("store");
    /// use std::ops::ControlFlow;
    ///
    /// use entresol_store::{Kvdb, KvdbOptions, KvsOptions};
    ///
    /// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
    /// store.create_kvs("users", KvsOptions::default())?.put(b"ada", b"1815")?;
    /// let is_done = store.compact_with(&mut |progress| {
    ///     eprintln!("{} of {} bytes", progress.bytes_done, progress.bytes);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(is_done);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the disk fails or has no room.
    pub fn compact_with(
        &self,
        progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        let inner = &self.inner;
        if !inner.freeze_all(&mut || progress(CompactProgress::default()).is_continue())? {
            return Ok(false);
        }
        merge::merge_all(inner, progress)
    }

    /// Ends the store's threads and makes everything durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StoreError> {
        if self.inner.is_closed.swap(true, Relaxed) {
            return Ok(());
        }
        self.inner.work.end();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                let what = "a thread of the store has panicked".to_owned();
                self.inner.failure.set(&StoreError::Failed { what });
            }
        }
        let done = self.inner.make_all_durable();
        let done = match self.inner.options.pmem {
            Some(_) if self.inner.log.is_some() => done.and_then(|()| self.inner.remove_images()),
            _ => done,
        };
        // Handles that are still there hold no files.
        if let Some(log) = &self.inner.log {
            log.end();
        }
        self.inner.current.change(|view| *view = View::default());
        done
    }
}

impl Drop for Kvdb {
    fn drop(&mut self) {
        // Who wants to know closes it.
        let _ = self.end();
    }
}

impl fmt::Debug for Kvdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvdb").field("directory", &self.inner.directory.path()).finish()
    }
}

/// What a store is opened with.
struct Opening {
    directory: Arc<dyn Directory>,
    options: KvdbOptions,
    clock: Arc<dyn Clock>,
    lock: DirectoryLock,
    read_only: bool,
}

impl Opening {
    fn inner(self, manifest: Manifest) -> Result<(Inner, DirectoryLock), StoreError> {
        let Opening { directory, options, clock, lock, read_only } = self;
        let shares = Shares::of(&options);
        let recovered = recover(&directory, start(&manifest, &options, &shares), read_only)?;
        let Recovered { generations, last, next_segment, images, records } = recovered;
        if !read_only {
            remove_strangers(&directory, &manifest, &images)?;
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
            dropped: (0..KVS_NUMBERS / 64).map(|_| AtomicU64::new(0)).collect(),
            work,
            background: Background::default(),
            failure,
            counters: Counters::default(),
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
/// `Kvs` of which a run cannot be opened, and why.
type Unreadable = BTreeMap<KvsId, String>;

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
fn remove_strangers(
    directory: &Arc<dyn Directory>,
    manifest: &Manifest,
    images: &[SegmentNumber],
) -> Result<(), StoreError> {
    for entry in directory.list()? {
        let is_file =
            segment::number_of(&entry.name).is_some() || run::number_of(&entry.name).is_some();
        let is_useless =
            image::number_of(&entry.name).is_some_and(|number| !images.contains(&number));
        if is_file && !manifest.has_file(&entry.name) || is_useless {
            directory.remove(&entry.name)?;
        }
    }
    Ok(())
}

impl Inner {
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

    /// Whether a `Kvs` was dropped since the store was opened.
    #[inline]
    pub(crate) fn is_dropped(&self, kvs: KvsId) -> bool {
        let word = self.dropped.get(kvs.0 as usize / 64);
        word.is_some_and(|word| word.load(Relaxed) >> (kvs.0 % 64) & 1 == 1)
    }

    fn set_dropped(&self, kvs: KvsId) {
        if let Some(word) = self.dropped.get(kvs.0 as usize / 64) {
            word.fetch_or(1 << (kvs.0 % 64), Relaxed);
        }
    }

    /// Makes a segment for values that are moved. Its name is not durable yet.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn make_value_segment(&self, bytes: u64) -> Result<Segment, StoreError> {
        let (store, number) = {
            let manifest = &mut *self.manifest.lock();
            (manifest.store, manifest.take_value_segment())
        };
        Segment::create(&*self.directory, store, number, bytes, self.options.pmem)
    }

    /// Freezes all that was written before; says whether that was done, or `go_on` did not want to.
    ///
    /// # Errors
    /// If the disk fails, or has no room.
    pub(crate) fn freeze_all(&self, go_on: &mut dyn FnMut() -> bool) -> Result<bool, StoreError> {
        let _awaited = self.background.await_freezing();
        let last = self.log()?.close_generation()?;
        self.work.tell();
        let (before, _) = self.work.attempts();
        loop {
            let seen = self.work.events();
            self.failure.check()?;
            self.check_open()?;
            if self.manifest.lock().log.frozen >= last.0 {
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

    /// Lets a writer wait if freezing falls behind: first a little, in the end until it has caught
    /// up.
    ///
    /// # Errors
    /// If the store fails or is closed meanwhile.
    pub(crate) fn slow_down(&self, bytes: u64) -> Result<(), StoreError> {
        let most = self.options.generations_waiting_max as usize;
        let waiting = self.work.waiting();
        if !self.would_wait() {
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

    /// Whether a writer would have to wait for freezing.
    pub(crate) fn would_wait(&self) -> bool {
        self.work.waiting() > self.options.generations_waiting_max as usize / 2
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
        Seconds(if left_out() { now } else { before.max(now) })
    }

    /// Puts a manifest in the place of the one before.
    ///
    /// # Errors
    /// If the disk fails; then nothing is written any more, since either may be there.
    pub(crate) fn save(&self, held: &mut Manifest, mut next: Manifest) -> Result<(), StoreError> {
        if !left_out() {
            next.seconds = self.seconds.load(Relaxed).max(next.seconds);
        }
        match next.save(&*self.directory) {
            Ok(bytes) => {
                self.counters.manifest.fetch_add(bytes, Relaxed);
                if !left_out() {
                    *held = next;
                }
                Ok(())
            }
            Err(error) => {
                self.failure.set(&error);
                Err(error)
            }
        }
    }

    /// Makes images of generations on persistent memory, as far as what they have counts.
    fn keep_images(&self) -> Result<(), StoreError> {
        let Some(pmem) = self.options.pmem else { return Ok(()) };
        let (view, published) = (self.current.get(), self.published());
        for generation in view.generations() {
            let is_wanted = Arc::ptr_eq(generation, &view.young) && !generation.has_image();
            if is_wanted && self.has_room_for_an_image() {
                // Held, so that it is not frozen, and its image removed, meanwhile.
                let manifest = self.manifest.lock();
                let LogState { first_segment, .. } = manifest.log;
                if generation.first_segment().is_some_and(|first| first.0 >= first_segment) {
                    generation.begin_image(&self.directory, manifest.store, pmem)?;
                }
            }
            generation.keep_image(published, &|| !self.work.is_over())?;
        }
        Ok(())
    }

    /// Whether an image leaves the room that is kept for what makes room.
    fn has_room_for_an_image(&self) -> bool {
        let needed = self.options.reserve_bytes + self.options.generation_bytes / 4;
        self.directory.free_bytes().is_ok_and(|free| free > needed)
    }

    /// Removes the images: what opens a store that was closed reads its log.
    fn remove_images(&self) -> Result<(), StoreError> {
        let names = self.directory.list()?.into_iter().map(|entry| entry.name);
        let names: Vec<String> = names.filter(|name| image::number_of(name).is_some()).collect();
        self.remove(&names)
    }

    /// Makes everything durable, and says so in the manifest.
    fn make_all_durable(&self) -> Result<(), StoreError> {
        let Some(log) = &self.log else { return Ok(()) };
        let last = log.sync()?;
        let manifest = &mut *self.manifest.lock();
        let mut next = manifest.clone();
        if !left_out() {
            next.log.durable = last.0;
        }
        self.save(manifest, next)
    }

    /// Removes frozen segments that no run needs any more. `manifest` is the one that is locked.
    pub(crate) fn drop_dead_segments(&self, manifest: &mut Manifest) -> Result<(), StoreError> {
        if !self.unreadable.is_empty() {
            // Nobody knows what their runs lead to.
            return Ok(());
        }
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
        if left_out() {
            self.remove(&dead_files)?;
        }
        self.save(manifest, next)?;
        self.current.change(|view| {
            let segments = Arc::make_mut(&mut view.segments);
            for number in &dead {
                if let Some(segment) = segments.remove(&SegmentNumber(*number)) {
                    self.counters.values_read.fetch_add(segment.bytes_read(), Relaxed);
                }
            }
        });
        self.remove(&dead_files)
    }

    /// Removes files that the manifest does not name, or no more.
    ///
    /// # Errors
    /// If the disk fails; the next opening removes them.
    pub(crate) fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        Ok(names.iter().try_for_each(|name| self.directory.remove(name))?)
    }
}

/// The bytes of records in each frozen segment that runs lead to.
pub(crate) fn live_segments(view: &View) -> BTreeMap<SegmentNumber, u64> {
    let mut live = BTreeMap::new();
    for run in view.runs.values().flat_map(|runs| runs.iter()) {
        for of_segment in &run.run.summary().live {
            *live.entry(of_segment.segment).or_default() += of_segment.bytes;
        }
    }
    live
}

/// Syncs at least as often as the options say, and makes segments ahead.
fn keep_durable(inner: &Inner) {
    let Ok(log) = inner.log_behind() else { return };
    let interval = match inner.options.pmem {
        Some(_) => inner.options.durability_interval.min(IMAGE_INTERVAL),
        None => inner.options.durability_interval,
    };
    while !inner.work.pause(interval) {
        // Both failures are told to those who write.
        let _ = log.sync();
        let _ = log.make_spare();
        // Without an image opening takes longer, that is all.
        let _ = inner.keep_images();
    }
}

/// Freezes generations, the oldest first.
fn keep_freezing(inner: &Inner) {
    while !inner.work.is_over() {
        let seen = inner.work.events();
        let oldest = inner.current.get().closed.last().cloned();
        let Some((generation, last)) = oldest else {
            inner.work.wait(seen, IDLE);
            continue;
        };
        match freeze(inner, &generation, last) {
            Ok(()) => inner.work.tried(None),
            Err(error) if error.is_no_room() => {
                inner.work.tried(Some(error.to_string()));
                inner.work.pause(RETRY);
            }
            Err(error) => return inner.failure.set(&error),
        }
    }
}

/// Merges runs, where that is worth it.
fn keep_merging(inner: &Inner) {
    while !inner.work.is_over() {
        let seen = inner.work.events();
        match merge::merge_one(inner) {
            Ok(true) => inner.work.tell(),
            Ok(false) => inner.work.wait(seen, IDLE),
            Err(error) if error.is_no_room() => drop(inner.work.pause(RETRY)),
            Err(error) => return inner.failure.set(&error),
        }
    }
}
