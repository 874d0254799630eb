//! The handle of a store, which opens it, writes to it, compacts it and closes it.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::hash::KeyHasher;
use entresol_base::sync::Mutex;
use entresol_base::thread::{self, JoinHandle};
use entresol_base::world::World;
use entresol_base::{Clock, SystemClock};
use entresol_media::directory::DirectoryLock;
use entresol_media::{Account, Directory, LocalDirectory};

use crate::api::completions::{CompletionOptions, Completions};
use crate::api::kvs::Kvs;
use crate::api::transaction::{Transaction, TransactionOptions};
use crate::engine::recovery::Opening;
use crate::engine::statistics::Statistics;
use crate::engine::threads::{
    keep_compacting, keep_durable, keep_flushing, keep_preloading, keep_prepared,
};
use crate::engine::{Core, statistics};
use crate::manifest::{KvsState, Manifest, VolumeState};
use crate::names;
use crate::options::{KVS_MAX, KvdbOptions, KvsOptions, check_name, whole_seconds};
use crate::policy::MediaClass;
use crate::types::{KvsId, Sequence};
use crate::upkeep::compaction;
use crate::upkeep::compaction::CompactProgress;
use crate::upkeep::dead_segments::drop_dead_segments;
use crate::upkeep::flush::flush;
use crate::version::view::View;
use crate::volumes;
use crate::volumes::Volume;
use crate::{Batch, Snapshot, StoreError};

/// A store in a directory: several [`Kvs`] whose writes have one order.
///
/// Once it is dropped or [closed](Kvdb::close), all writes are durable.
///
/// A store has a file open for each sorted run and flushed segment. A process with a low limit of
/// open files calls [`raise_descriptor_limit`](entresol_media::machine::raise_descriptor_limit)
/// first.
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
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
    /// Released when the store is dropped.
    _lock: Mutex<DirectoryLock>,
}

impl Kvdb {
    /// Creates a store in a directory of this machine. A missing directory is created.
    ///
    /// # Errors
    /// Fails if the directory is not empty, lies inside another store, or cannot be written to.
    pub fn create_at(path: &Path, options: KvdbOptions) -> Result<Kvdb, StoreError> {
        volumes::check_outside(path)?;
        let directory = LocalDirectory::open(path)?;
        Kvdb::create(Arc::new(directory), options, Arc::new(SystemClock::new()))
    }

    /// Opens the store in a directory of this machine.
    ///
    /// # Errors
    /// Fails if there is no store, if another process has it open, or if it is damaged.
    pub fn open_at(path: &Path, options: KvdbOptions) -> Result<Kvdb, StoreError> {
        let directory = LocalDirectory::open_existing(path)?;
        Kvdb::open(Arc::new(directory), options, Arc::new(SystemClock::new()))
    }

    /// Creates a store in an empty directory.
    ///
    /// # Errors
    /// Fails if the directory is not empty or cannot be written to.
    pub fn create(
        directory: Arc<dyn Directory>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        let (class, bytes_max) = (default_class(&options), None);
        Kvdb::create_on(&[Volume { class, directory, bytes_max }], options, clock)
    }

    /// Creates a store in several empty directories. The first is its home, which holds the
    /// manifest: the store is opened there, and finds the other volumes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scratch = tempfile::tempdir()?;
    /// # let (nvme, qlc) = (scratch.path().join("nvme"), scratch.path().join("qlc"));
    /// use std::sync::Arc;
    ///
    /// use entresol_base::SystemClock;
    /// use entresol_media::LocalDirectory;
    /// use entresol_store::{Kvdb, KvdbOptions, KvsOptions, MediaClass, Volume};
    ///
    /// let staging = Volume {
    ///     class: MediaClass::Staging,
    ///     directory: Arc::new(LocalDirectory::open(&nvme)?),
    ///     bytes_max: Some(200 << 30),
    /// };
    /// let capacity = Volume {
    ///     class: MediaClass::Capacity,
    ///     directory: Arc::new(LocalDirectory::open(&qlc)?),
    ///     bytes_max: None,
    /// };
    /// let clock = Arc::new(SystemClock::new());
    /// let store = Kvdb::create_on(&[staging, capacity], KvdbOptions::default(), clock)?;
    /// let policy = "staging-max-capacity".parse()?;
    /// let users = store.create_kvs("users", KvsOptions { policy, ..KvsOptions::default() })?;
    /// users.put(b"ada", b"1815")?;
    /// drop(store);
    /// let store = Kvdb::open_at(&nvme, KvdbOptions::default())?;
    /// assert_eq!(store.kvs("users")?.get(b"ada")?, Some(b"1815".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if no directory is named, or if one of them is not empty, lies inside another store,
    /// or cannot be written to.
    pub fn create_on(
        volumes: &[Volume],
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        options.check()?;
        let Some((home, others)) = volumes.split_first() else {
            let what = "no directory was given: give at least one".to_owned();
            return Err(StoreError::Options { what });
        };
        let directory = &home.directory;
        volumes::check_outside(directory.path())?;
        let lock = directory.lock()?;
        if !directory.list()?.is_empty() {
            return Err(volumes::occupied(&**directory));
        }
        let store = match World::current() {
            Some(world) => world.rng("store").next_u64(),
            None => KeyHasher::random().hash(directory.path().as_os_str().as_encoded_bytes()),
        };
        // Every volume that the manifest names exists before the manifest does.
        let mut manifest = Manifest::new(store & (u64::MAX >> 1));
        manifest.volumes = vec![VolumeState::home(home.class, home.bytes_max)];
        for (number, place) in others.iter().enumerate() {
            let state = manifest.take_place(place.class, place.directory.path(), place.bytes_max);
            // Opening the volume takes the lock again.
            let labelled = volumes::label(place, manifest.store, state.place, directory).map(drop);
            if let Err(error) = labelled {
                // A label left behind would keep other stores out, and this one as well, which
                // would have another identity on the next attempt.
                others[..number].iter().for_each(volumes::unlabel);
                return Err(error);
            }
            manifest.volumes.push(state);
        }
        let opening = Opening {
            home: Arc::clone(directory),
            given: others.iter().map(|place| place.directory.clone()).collect(),
            options,
            clock,
            read_only: false,
        };
        let saved = manifest.save(&**directory);
        match saved.and_then(|()| Kvdb::assemble(opening, manifest)) {
            Ok((core, threads)) => Ok(Kvdb { core, threads, _lock: Mutex::new(lock) }),
            Err(error) => {
                // They were empty, and locked since.
                volumes.iter().for_each(remove_files);
                Err(error)
            }
        }
    }

    /// Opens the store in a directory.
    ///
    /// # Errors
    /// Fails if there is no store, if another process has it open, or if it is damaged.
    pub fn open(
        directory: Arc<dyn Directory>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        Kvdb::open_with(directory, Vec::new(), options, clock, false)
    }

    /// Opens a store some of whose volumes have moved, or cannot be reached by a path. These
    /// directories are searched first, in any order.
    ///
    /// # Errors
    /// Fails as [`open`](Kvdb::open) does.
    pub fn open_on(
        home: Arc<dyn Directory>,
        volumes: &[Arc<dyn Directory>],
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        Kvdb::open_with(home, volumes.to_vec(), options, clock, false)
    }

    /// Opens the store in a directory to be read only. Nothing in it is changed, but other
    /// processes are kept out all the same.
    ///
    /// # Errors
    /// Fails if there is no store, if another process has it open, or if it is damaged.
    pub fn open_read_only(
        directory: Arc<dyn Directory>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        Kvdb::open_with(directory, Vec::new(), options, clock, true)
    }

    /// Opens the store of a home, with the directories of volumes that have moved.
    ///
    /// # Errors
    /// Fails as [`open`](Kvdb::open) does.
    pub(crate) fn open_with(
        home: Arc<dyn Directory>,
        given: Vec<Arc<dyn Directory>>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
        read_only: bool,
    ) -> Result<Kvdb, StoreError> {
        options.check()?;
        let lock = home.lock()?;
        let found =
            Manifest::load(&*home).map_err(|error| volumes::judge_manifest(error, &*home))?;
        let Some(mut manifest) = found else { return Err(volumes::no_store(&*home)) };
        volumes::note_moved(&mut manifest, &given)?;
        let opening = Opening { home, given, options, clock, read_only };
        let (core, threads) = Kvdb::assemble(opening, manifest)?;
        Ok(Kvdb { core, threads, _lock: Mutex::new(lock) })
    }

    /// Opens the store of a locked directory, and starts its threads.
    fn assemble(
        opening: Opening,
        manifest: Manifest,
    ) -> Result<(Arc<Core>, Vec<JoinHandle<()>>), StoreError> {
        let needed = manifest.descriptors();
        let opened = opening.core(manifest);
        let opened = opened.map_err(|error| error.with_descriptors(needed).of_what_is_held());
        let core = Arc::new(opened?);
        let mut threads = Vec::new();
        if let Some(log) = &core.writes.log {
            if log.is_of_reserve() {
                flush_what_waits(&core);
            }
            if let Err(error) = start_threads(&core, &mut threads) {
                // The error that led here matters more.
                let _ = end(&core, &mut threads);
                return Err(error);
            }
        }
        Ok((core, threads))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Creates a `Kvs`. A store has at most [`KVS_MAX`] at a time. After 65,535 have been created,
    /// numbers of `Kvs` that were dropped before the store was opened are reused.
    ///
    /// # Errors
    /// Fails if there is a `Kvs` of this name already, or if the name or the options are not valid.
    pub fn create_kvs(&self, name: &str, options: KvsOptions) -> Result<Kvs, StoreError> {
        check_name(name)?;
        options.check()?;
        let core = &self.core;
        core.log()?;
        core.files.volumes.check_policy(&options.policy)?;
        let manifest = &mut *core.files.manifest.lock();
        if manifest.kvs.iter().any(|kvs| kvs.name == name) {
            return Err(StoreError::KvsExists { name: name.to_owned() });
        }
        if manifest.kvs.len() >= KVS_MAX {
            let what = format!("a store has at most {KVS_MAX} Kvs: drop one first");
            return Err(StoreError::Options { what });
        }
        let mut next = manifest.clone();
        let Some(id) = next.take_kvs(&|id| core.files.dropped.has(id)) else {
            let what = "all Kvs numbers are in use, including those of Kvs dropped since the store \
                        was opened: close the store and open it again";
            return Err(StoreError::Options { what: what.to_owned() });
        };
        let state = KvsState {
            id: id.0,
            name: name.to_owned(),
            inline_bytes: options.inline_bytes,
            time_to_live_s: options.time_to_live.map_or(0, whole_seconds),
            runs: Vec::new(),
            aged_run: 0,
            policy: options.policy,
        };
        next.kvs.push(state.clone());
        core.files.save(manifest, next)?;
        Ok(Kvs::new(core.clone(), &state))
    }

    /// Opens a `Kvs`.
    ///
    /// # Errors
    /// Fails if there is no `Kvs` of this name, or if one of its runs is damaged.
    pub fn kvs(&self, name: &str) -> Result<Kvs, StoreError> {
        self.core.check_open()?;
        let manifest = self.core.files.manifest.lock();
        match manifest.kvs.iter().find(|kvs| kvs.name == name) {
            Some(state) => match self.core.files.unreadable_error(state) {
                None => Ok(Kvs::new(self.core.clone(), state)),
                Some(error) => Err(error),
            },
            None => Err(manifest.no_kvs(name)),
        }
    }

    /// Drops a `Kvs` with all its keys. From now on its handles are refused, and so are new
    /// cursors.
    ///
    /// # Errors
    /// Fails if there is no `Kvs` of this name.
    pub fn drop_kvs(&self, name: &str) -> Result<(), StoreError> {
        let core = &self.core;
        core.log()?;
        let mut manifest = core.files.manifest.lock();
        let Some(place) = manifest.kvs.iter().position(|kvs| kvs.name == name) else {
            return Err(manifest.no_kvs(name));
        };
        let mut next = manifest.clone();
        let dropped = next.kvs.remove(place);
        core.files.save(&mut manifest, next)?;
        core.files.dropped_names.lock().insert(KvsId(dropped.id), dropped.name.clone());
        core.files.dropped.add(KvsId(dropped.id));
        core.files.current.change(|view| {
            view.runs.remove(&KvsId(dropped.id));
        });
        drop(manifest);
        let files: Vec<String> =
            dropped.runs.iter().map(|run| names::of_run(run.number())).collect();
        core.files.remove(&files)?;
        drop_dead_segments(&core.files, &core.background.read_frequency)?;
        core.background.scheduler.tell();
        Ok(())
    }

    /// Returns the names of all `Kvs`.
    #[must_use]
    pub fn kvs_names(&self) -> Vec<String> {
        self.core.files.manifest.lock().kvs.iter().map(|kvs| kvs.name.clone()).collect()
    }

    /// Writes a batch. All its writes become visible at once, and after a crash either all or none
    /// of them are there.
    ///
    /// # Errors
    /// Fails if there is no room, or if an earlier write failed.
    pub fn write(&self, batch: &Batch) -> Result<Sequence, StoreError> {
        batch.write_to(&self.core)
    }

    /// Returns the last write that was found in the log, if later ones may be missing. This is so
    /// if the store was opened to be read only, volumes are missing, and the log may go on in one
    /// of them. Keys may then have newer values than reads find, or be deleted. `None` means that
    /// reads find the newest writes.
    ///
    /// If the log is known to go on there, opening the store fails with [`StoreError::LogMissing`].
    /// The uncertain case is a log whose last segment is full, or whose first segment is missing,
    /// and whose durable writes are all known to be flushed.
    #[must_use]
    pub fn uncertain_behind(&self) -> Option<Sequence> {
        self.core.recovered.uncertain_behind
    }

    /// Returns a snapshot of all `Kvs` as they are now.
    ///
    /// # Errors
    /// Fails if the store is closed.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.core.check_open()?;
        Ok(Snapshot::of(&self.core))
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Fails if the store is closed, or was opened to be read only.
    pub fn transaction(&self, options: TransactionOptions) -> Result<Transaction, StoreError> {
        Transaction::begin(&self.core, options)
    }

    /// Creates a queue of reads and writes for an event loop. A thread of the store calls `wake`
    /// whenever the list of completions was empty and no longer is. A panic in `wake` is printed,
    /// and the queue goes on.
    ///
    /// # Errors
    /// Fails if the options are not valid, or if the system refuses a thread.
    pub fn completions(
        &self,
        options: CompletionOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Completions, StoreError> {
        Completions::begin(&self.core, options, wake)
    }

    /// Makes all acknowledged writes durable, so that they survive a crash of the machine.
    ///
    /// # Errors
    /// Fails if the disk fails. The store then takes no more writes.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.core.sync()
    }

    /// Flushes all memtables and compacts all runs, while writers go on. Runs of a [`Kvs`] are left
    /// as they are while an open transaction must still notice more range deletes than one run can
    /// hold.
    ///
    /// # Errors
    /// Fails if the disk fails or has no room. Values that are damaged, or in a missing file, are
    /// told at the end, when all else is compacted.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.compact_reporting(&mut |_| ControlFlow::Continue(())).map(drop)
    }

    /// Flushes all memtables and compacts all runs, and reports its progress. Returns true if it
    /// came to its end, and false if `progress` broke it off: what was compacted until then stays
    /// compacted. `progress` may read and write, but neither compact nor retire a volume: it would
    /// wait for this compaction, and is refused with [`StoreError::WithinReport`].
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
    /// Those of [`Kvdb::compact`].
    pub fn compact_with(
        &self,
        progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        let reports = &self.core.reports;
        self.compact_reporting(&mut |it| reports.within(|| progress(it)))
    }

    fn compact_reporting(
        &self,
        progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        let core = &self.core;
        core.reports.check_outside("a compaction")?;
        if !core.flush_all(&mut || progress(CompactProgress::default()).is_continue())? {
            return Ok(false);
        }
        compaction::compact_all(&core.compaction_context(), progress)
            .map_err(|error| core.files.with_descriptors(error))
    }

    /// Returns the store's activity since it was opened, and its current contents. The call
    /// combines counters and metadata of files, and reads no data.
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
    /// Fails if the store is closed.
    pub fn statistics(&self) -> Result<Statistics, StoreError> {
        statistics::statistics(&self.core)
    }

    /// Charges flushes, compactions and tiering on a class of media to an account from now on, or
    /// to none. The directory of a store without further volumes is of the class capacity, or pmem
    /// if the store was opened so.
    ///
    /// The work waits for the account's share of the medium's time, as other tenants do. It does
    /// not wait if that would make writers wait, let bytes dead exceed what
    /// `space_amplification_target` says, or hold up a caller that waits for a full flush. A
    /// stopped account does not stop the work in these cases either.
    ///
    /// ```
    /// # fn main() -> Result<(), entresol_store::StoreError> {
    /// # let scratch = tempfile::tempdir().expect("a directory");
    /// # let path = scratch.path().join("store");
    /// use std::sync::Arc;
    ///
    /// use entresol_media::account::Limit;
    /// use entresol_media::{Account, CostTable};
    /// use entresol_store::{Kvdb, KvdbOptions, KvsOptions, MediaClass};
    ///
    /// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
    /// let account = Account::new("disk", Arc::new(CostTable::published()));
    /// account.set_limit(Limit::Share(0.25));
    /// store.charge_background_to(MediaClass::Capacity, Some(&account));
    /// store.create_kvs("users", KvsOptions::default())?.put(b"ada", b"1815")?;
    /// store.compact()?;
    /// assert!(account.used_ns() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn charge_background_to(&self, class: MediaClass, account: Option<&Arc<Account>>) {
        self.core.background.accounts.set(class, account);
    }

    /// Ends the store's threads, waits for writes that are under way, and makes all writes durable.
    /// Every call of a handle that is left is refused. A snapshot, cursor or transaction that is
    /// left still holds files, and the store cannot be opened again before it is dropped.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.end()
    }

    /// Closes the store and removes it with all its data: for a store that was just made, when what
    /// it was made for fails. The directories stay.
    ///
    /// # Errors
    /// Fails if the disk fails. The rest of the store may then be there.
    pub fn remove(mut self) -> Result<(), StoreError> {
        self.core.log()?;
        let volumes = self.volumes();
        let ended = self.end();
        volumes.iter().for_each(remove_files);
        ended
    }

    fn end(&mut self) -> Result<(), StoreError> {
        if self.core.process.is_another() {
            // The threads are not in this process, and the files are the other one's.
            self.threads.drain(..).for_each(std::mem::forget);
            return Err(StoreError::Forked);
        }
        if self.core.is_closed.swap(true, Relaxed) {
            return Ok(());
        }
        end(&self.core, &mut self.threads)
    }
}

/// Name of a thread, and its work.
type ThreadWork = (&'static str, fn(&Core));

/// Starts the threads of a store.
///
/// # Errors
/// Fails if the system refuses one. Those before it are in the list.
fn start_threads(core: &Arc<Core>, threads: &mut Vec<JoinHandle<()>>) -> Result<(), StoreError> {
    let all: [ThreadWork; 5] = [
        ("store-sync", keep_durable),
        ("store-prepare", keep_prepared),
        ("store-flush", keep_flushing),
        ("store-compact", keep_compacting),
        ("store-preload", keep_preloading),
    ];
    for (name, run) in all {
        let core = core.clone();
        let started = thread::try_spawn(name, move || run(&core));
        threads.push(started.map_err(|cause| StoreError::Thread { name, cause })?);
    }
    Ok(())
}

/// Ends the threads of a store, waits for writes that are under way, and makes all writes durable.
fn end(core: &Core, threads: &mut Vec<JoinHandle<()>>) -> Result<(), StoreError> {
    core.background.scheduler.end();
    for thread in threads.drain(..) {
        if thread.join().is_err() {
            let what = "a thread of the store has panicked".to_owned();
            core.files.failure.set(&StoreError::Failed { what });
        }
    }
    if let Some(log) = &core.writes.log {
        log.stop();
    }
    let done = core.make_all_durable();
    if done.is_ok() {
        core.keep_read_frequency();
    }
    if let Some(log) = &core.writes.log {
        log.end();
    }
    core.files.volumes.unlock();
    core.files.current.change(|view| *view = View::default());
    done
}

/// Removes a store's files from a volume, as far as the disk allows.
fn remove_files(volume: &Volume) {
    let directory = &volume.directory;
    // Without its manifest, the rest is no store.
    let _ = directory.remove(names::MANIFEST);
    let found = directory.list().unwrap_or_default();
    for entry in found.iter().filter(|entry| !entry.is_directory && names::is_own(&entry.name)) {
        let _ = directory.remove(&entry.name);
    }
    let _ = directory.sync();
}

/// Flushes the memtables that recovery rebuilt from the log. When only the reserve has room for
/// another segment, this is not left to a thread that ends with the process: each time the store is
/// opened it takes a segment, and no room would be left for the work that makes room.
fn flush_what_waits(core: &Core) {
    let Ok(context) = core.flush_context() else { return };
    while let Some((generation, last)) = core.files.current.get().closed.last().cloned() {
        // The thread that flushes will meet this error as well, and report it.
        if flush(&context, &generation, last).is_err() {
            return;
        }
    }
}

/// Returns the class of a store's only volume.
fn default_class(options: &KvdbOptions) -> MediaClass {
    if options.pmem.is_some() { MediaClass::Pmem } else { MediaClass::Capacity }
}

impl Drop for Kvdb {
    fn drop(&mut self) {
        // A caller who wants to see the error calls `close`.
        let _ = self.end();
    }
}

impl fmt::Debug for Kvdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvdb").field("directory", &self.core.files.volumes.home().path()).finish()
    }
}
