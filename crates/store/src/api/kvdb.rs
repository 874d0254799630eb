//! A store: its `Kvs`, its log, and what is asked of it.

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
use entresol_media::{Directory, LocalDirectory};

use crate::api::kvs::Kvs;
use crate::cache::preload::keep_preloading;
use crate::options::{KVS_MAX, KvdbOptions, KvsOptions, check_name, whole_seconds};
use crate::types::{KvsId, Sequence};
use crate::upkeep::compaction;
use crate::upkeep::flush::flush;
use crate::upkeep::threads::{keep_compacting, keep_durable, keep_flushing, keep_spares};
use crate::version::core::Core;
use crate::version::manifest::{KvsState, Manifest, VolumeState};
use crate::version::recovery::Opening;
use crate::version::view::View;
use crate::volumes;
use crate::volumes::Volume;
use crate::volumes::policy::MediaClass;
use crate::{Batch, Snapshot, StoreError, run};

/// A store in a directory: several [`Kvs`], written in one order.
///
/// When it is dropped, or [closed](Kvdb::close), everything that was written is durable.
///
/// It has a file open for each sorted run and flushed segment; a process that may have few files
/// open calls [`raise_descriptor_limit`](entresol_media::machine::raise_descriptor_limit) first.
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
    /// Let go when this is dropped.
    _lock: Mutex<DirectoryLock>,
}

/// How far a compaction has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Bytes of runs that were merged; 0 while what was written last is being flushed.
    pub bytes_done: u64,
    /// Bytes of runs that are to be merged; 0 as long as that is not known.
    pub bytes: u64,
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
        let (class, bytes_max) = (default_class(&options), None);
        Kvdb::create_on(&[Volume { class, directory, bytes_max }], options, clock)
    }

    /// Makes a store in several empty directories. The first is its home, which has the manifest:
    /// there the store is found again, and finds the others.
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
    /// If there is none, something is in one of them, or cannot be written to.
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
        let lock = directory.lock()?;
        if !directory.list()?.is_empty() {
            return Err(StoreError::Exists { directory: directory.path().to_owned() });
        }
        let store = match World::current() {
            Some(world) => world.rng("store").next_u64(),
            None => KeyHasher::random().hash(directory.path().as_os_str().as_encoded_bytes()),
        };
        // What a manifest names is there before it.
        let mut manifest = Manifest::new(store & (u64::MAX >> 1));
        manifest.volumes = vec![VolumeState::home(home.class, home.bytes_max)];
        for (number, place) in others.iter().enumerate() {
            let state = manifest.take_place(place);
            // The lock is taken again when it is opened.
            let labelled = volumes::label(place, manifest.store, state.place, directory).map(drop);
            if let Err(error) = labelled {
                // A label that is left would keep others out, and this store as well, which would
                // have another identity the next time.
                others[..number].iter().for_each(volumes::unlabel);
                return Err(error);
            }
            manifest.volumes.push(state);
        }
        manifest.save(&**directory)?;
        let home = Arc::clone(directory);
        let given = others.iter().map(|place| place.directory.clone()).collect();
        Kvdb::assemble(Opening { home, given, options, clock, lock, read_only: false }, manifest)
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
        Kvdb::open_with(directory, Vec::new(), options, clock, false)
    }

    /// Opens a store of which some volumes are no longer where they were, or lie where a path does
    /// not lead: these directories are looked through first, in any order.
    ///
    /// # Errors
    /// As [`open`](Kvdb::open).
    pub fn open_on(
        home: Arc<dyn Directory>,
        volumes: &[Arc<dyn Directory>],
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Kvdb, StoreError> {
        Kvdb::open_with(home, volumes.to_vec(), options, clock, false)
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
        Kvdb::open_with(directory, Vec::new(), options, clock, true)
    }

    /// Opens the store in a directory, with volumes wherever they lie; to be read only, if wanted.
    ///
    /// # Errors
    /// As [`open`](Kvdb::open).
    pub(crate) fn open_with(
        home: Arc<dyn Directory>,
        given: Vec<Arc<dyn Directory>>,
        options: KvdbOptions,
        clock: Arc<dyn Clock>,
        read_only: bool,
    ) -> Result<Kvdb, StoreError> {
        options.check()?;
        let lock = home.lock()?;
        let Some(mut manifest) = Manifest::load(&*home)? else {
            return Err(StoreError::NoStore { directory: home.path().to_owned() });
        };
        volumes::note_moved(&mut manifest, &given)?;
        Kvdb::assemble(Opening { home, given, options, clock, lock, read_only }, manifest)
    }

    fn assemble(opening: Opening, manifest: Manifest) -> Result<Kvdb, StoreError> {
        let needed = manifest.descriptors();
        let opened = opening.core(manifest);
        let (core, lock) = opened.map_err(|error| error.with_descriptors(needed))?;
        let core = Arc::new(core);
        let mut threads = Vec::new();
        if let Some(log) = &core.log {
            if log.is_of_reserve() {
                flush_what_waits(&core);
            }
            let spawn = |name: &str, run: fn(&Core)| {
                let core = core.clone();
                thread::spawn(name, move || run(&core))
            };
            threads.push(spawn("store-sync", keep_durable));
            threads.push(spawn("store-spare", keep_spares));
            threads.push(spawn("store-flush", keep_flushing));
            threads.push(spawn("store-compact", keep_compacting));
            threads.push(spawn("store-preload", keep_preloading));
        }
        Ok(Kvdb { core, threads, _lock: Mutex::new(lock) })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Makes a `Kvs`. There may be [`KVS_MAX`] at a time; after 65,535 have been made, numbers of
    /// those are used again that were dropped before the store was opened.
    ///
    /// # Errors
    /// If there is one of this name already, or the name or the options cannot be had.
    pub fn create_kvs(&self, name: &str, options: KvsOptions) -> Result<Kvs, StoreError> {
        check_name(name)?;
        options.check()?;
        let core = &self.core;
        core.log()?;
        core.check_policy(&options.policy)?;
        let manifest = &mut *core.manifest.lock();
        if manifest.kvs.iter().any(|kvs| kvs.name == name) {
            return Err(StoreError::KvsExists { name: name.to_owned() });
        }
        if manifest.kvs.len() >= KVS_MAX {
            let what = format!("a store has at most {KVS_MAX} Kvs: drop one first");
            return Err(StoreError::Options { what });
        }
        let mut next = manifest.clone();
        let Some(id) = next.take_kvs(&|id| core.dropped.has(id)) else {
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
        core.save(manifest, next)?;
        Ok(Kvs::new(core.clone(), &state))
    }

    /// Opens a `Kvs`.
    ///
    /// # Errors
    /// If there is none of this name, or what it has is damaged.
    pub fn kvs(&self, name: &str) -> Result<Kvs, StoreError> {
        self.core.check_open()?;
        let manifest = self.core.manifest.lock();
        match manifest.kvs.iter().find(|kvs| kvs.name == name) {
            Some(state) => match self.core.unreadable.get(&KvsId(state.id)) {
                None => Ok(Kvs::new(self.core.clone(), state)),
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
        let core = &self.core;
        core.log()?;
        let mut manifest = core.manifest.lock();
        let Some(place) = manifest.kvs.iter().position(|kvs| kvs.name == name) else {
            return Err(manifest.no_kvs(name));
        };
        let mut next = manifest.clone();
        let dropped = next.kvs.remove(place);
        core.save(&mut manifest, next)?;
        core.dropped.add(KvsId(dropped.id));
        core.current.change(|view| {
            view.runs.remove(&KvsId(dropped.id));
        });
        drop(manifest);
        let files: Vec<String> =
            dropped.runs.iter().map(|run| run::file_name(run.number())).collect();
        core.remove(&files)?;
        core.drop_dead_segments()?;
        core.work.tell();
        Ok(())
    }

    /// The names of all `Kvs`.
    #[must_use]
    pub fn kvs_names(&self) -> Vec<String> {
        self.core.manifest.lock().kvs.iter().map(|kvs| kvs.name.clone()).collect()
    }

    /// Writes a batch: all of it counts at once, and after a crash all of it is there or nothing.
    ///
    /// # Errors
    /// If a key or value cannot be kept, there is no room, or an earlier write failed.
    pub fn write(&self, batch: &Batch) -> Result<Sequence, StoreError> {
        self.core.write_batch(batch)
    }

    /// The last write of the log that is there, if the store was opened to be read only, volumes
    /// are missing, and the log may go on in one of them: then keys may have newer values than are
    /// found, or be gone. None: what is found is what was written last.
    ///
    /// That the log *does* go on there is refused when the store is opened
    /// ([`StoreError::LogMissing`]). Nobody can say where it ends in a segment that is full, or
    /// begins in one that is not there, and all that is known to be durable was flushed before.
    #[must_use]
    pub fn uncertain_behind(&self) -> Option<Sequence> {
        self.core.uncertain_behind
    }

    /// Everything as it is now, for as long as the snapshot is held.
    ///
    /// # Errors
    /// If the store is closed.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.core.check_open()?;
        Ok(Snapshot::of(&self.core))
    }

    /// Makes everything durable that was acknowledged before: it survives the machine's crash.
    ///
    /// # Errors
    /// If the disk fails; then nothing is written any more.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.core.sync()
    }

    /// Flushes all data and compactions everything that can be merged. Writers may go on
    /// meanwhile. As long as a transaction may have to notice more removed prefixes than one run
    /// can say, the runs of their [`Kvs`] are left as they are.
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
        let core = &self.core;
        if !core.flush_all(&mut || progress(CompactProgress::default()).is_continue())? {
            return Ok(false);
        }
        compaction::compact_all(core, progress).map_err(|error| core.with_descriptors(error))
    }

    /// Ends the store's threads, waits for writes that are under way, and makes everything durable.
    /// Handles that are left are refused whatever they ask for. A snapshot, a cursor or a
    /// transaction that is left still holds files, and the store cannot be opened again before it
    /// is dropped.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StoreError> {
        if self.core.is_closed.swap(true, Relaxed) {
            return Ok(());
        }
        self.core.work.end();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                let what = "a thread of the store has panicked".to_owned();
                self.core.failure.set(&StoreError::Failed { what });
            }
        }
        if let Some(log) = &self.core.log {
            log.stop();
        }
        let done = self.core.make_all_durable();
        if done.is_ok() {
            self.core.keep_read_frequency();
        }
        if let Some(log) = &self.core.log {
            log.end();
        }
        self.core.volumes.unlock();
        self.core.current.change(|view| *view = View::default());
        done
    }
}

/// Flushes what processes before have left in the log. Where there is only the reserve for another
/// segment, that is not left to a thread that ends with this process: each opening takes one, and
/// nothing would be left for those that make room.
fn flush_what_waits(core: &Core) {
    while let Some((generation, last)) = core.current.get().closed.last().cloned() {
        // The thread that flushes meets the same, and tells it.
        if flush(core, &generation, last).is_err() {
            return;
        }
    }
}

/// The class of the only place of a store.
fn default_class(options: &KvdbOptions) -> MediaClass {
    if options.pmem.is_some() { MediaClass::Pmem } else { MediaClass::Capacity }
}

impl Drop for Kvdb {
    fn drop(&mut self) {
        // Who wants to know closes it.
        let _ = self.end();
    }
}

impl fmt::Debug for Kvdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvdb").field("directory", &self.core.volumes.home().path()).finish()
    }
}
