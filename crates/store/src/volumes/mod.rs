//! Volumes: the directories of a store's files, each of a class of media.
//!
//! The first volume, the **home**, holds the manifest, which names the others. Nothing records
//! which file lies on which volume: file names are never reused, and a file is looked for on all
//! volumes. So there is no such list for a crash to make wrong, and an operator can move a file to
//! another volume of a closed store without harm.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use entresol_base::mutation_site;
use entresol_base::sync::{Mutex, RwLock};
use entresol_media::directory::DirectoryLock;
use entresol_media::{Directory, FileError, PmemMode, files};

use crate::manifest::{self, KvsState, Manifest, ManifestFile, VolumeState, shown};
use crate::names::{self, LABEL};
use crate::policy::{Classes, MediaClass, Policy};
use crate::{KvdbOptions, StoreError};

mod aside;
mod choice;
mod gauge;
mod holds;
mod label;
mod life;

pub(crate) use aside::Leaving;
pub(crate) use choice::ClassFill;
pub(crate) use gauge::{Planned, SpaceFacts, SpaceGauge};
pub use holds::{check_outside, is_begun_as_own};
pub(crate) use holds::{judge_manifest, no_store, occupied};
pub(crate) use label::{is_volume, label, unlabel};
pub(crate) use life::{Moment, VolumeLife};

use label::{FoundVolume, Label, open_labelled, without_label};

/// Free share of a class below which values are demoted from it.
pub(crate) const SINK_BELOW: f64 = 0.2;

/// Directory for a store's files.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Class of media that the directory lies on.
    pub class: MediaClass,
    /// Directory, which belongs to the store alone.
    pub directory: Arc<dyn Directory>,
    /// Quota of the store on the volume in bytes; `None` for all that the file system has.
    pub bytes_max: Option<u64>,
}

/// Reason for writing a value again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MoveCause {
    /// Garbage collection: most of its segment is dead.
    Garbage,
    /// Demotion of a value that has aged, or whose class is full.
    Aged,
    /// Promotion to a faster class that has room again.
    Returned,
    /// Change of its policy or of the store's volumes.
    Misplaced,
    /// Gathering of values that are read often.
    Hot,
}

impl MoveCause {
    pub(crate) const ALL: [MoveCause; 5] = [
        MoveCause::Garbage,
        MoveCause::Aged,
        MoveCause::Returned,
        MoveCause::Misplaced,
        MoveCause::Hot,
    ];
}

/// Open volume.
pub(crate) struct OpenVolume {
    pub(crate) number: u32,
    pub(crate) class: MediaClass,
    pub(crate) directory: Arc<dyn Directory>,
    /// Quota of the store on the volume in bytes; `u64::MAX` for no quota.
    bytes_max: AtomicU64,
    /// Mode in which files are mapped, if the volume is persistent memory.
    pub(crate) pmem: Option<PmemMode>,
    /// Bytes of the store's files.
    used: AtomicU64,
    /// Bytes of files among them that nothing needs any more, and that are not removed yet.
    leaving: AtomicU64,
    /// Bytes of runs and copies that are being written, which `used` does not count yet.
    growing: Arc<AtomicU64>,
    /// Bytes that the largest compaction of runs may take here until its inputs are removed.
    merging: AtomicU64,
    /// True if nothing new is put there.
    is_retiring: AtomicBool,
    pub(crate) life: VolumeLife,
    /// First failure of a sync of the names. It leaves unknown which new names are durable, and a
    /// later sync would not tell either.
    names_failed: Mutex<Option<String>>,
    /// Lock on any volume but the home, whose lock the store holds.
    lock: Mutex<Option<DirectoryLock>>,
}

impl fmt::Debug for OpenVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class, self.directory.path().display())
    }
}

/// File on a volume, with its bytes.
#[derive(Debug, Clone)]
struct FileLocation {
    place: Arc<OpenVolume>,
    bytes: u64,
}

/// Volumes of a store.
#[derive(Debug)]
pub(crate) struct Volumes {
    home: Arc<dyn Directory>,
    manifest: Mutex<ManifestFile>,
    pmem: Option<PmemMode>,
    reserve_bytes: u64,
    all: RwLock<Vec<Arc<OpenVolume>>>,
    files: RwLock<HashMap<String, FileLocation>>,
    /// Gauge of the bytes of all files.
    pub(crate) gauge: SpaceGauge,
    /// Second copies of files, left by a crash during a file move.
    copies: Mutex<Vec<(Arc<OpenVolume>, String)>>,
    /// Volumes that were missing when the store was opened read-only.
    missing: Vec<MissingVolumeState>,
    /// Volumes whose labels could not be used when the store was opened read-only.
    unlabelled: Vec<MissingVolumeState>,
}

/// Purpose of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Runs: keys, and values beside them.
    Keys,
    /// Values that are written again.
    Values,
    /// New writes.
    Log,
}

impl FileKind {
    /// Returns the share of a class that such files leave free if there is a slower class. Values
    /// leave the share below which they would be demoted again. The log leaves room for the keys of
    /// its writes.
    const fn kept_free(self) -> f64 {
        match self {
            FileKind::Keys => 0.05,
            FileKind::Log => 0.1,
            FileKind::Values => SINK_BELOW,
        }
    }
}

/// Volume that is missing, with a description of what was found instead.
#[derive(Debug, Clone)]
pub(crate) struct MissingVolumeState {
    pub(crate) state: VolumeState,
    pub(crate) what: String,
}

impl MissingVolumeState {
    fn error(&self, readable: String) -> StoreError {
        let MissingVolumeState { state, what } = self;
        let (class, path, what) = (state.class, PathBuf::from(&state.path), what.clone());
        StoreError::VolumeMissing { class, path, what, readable }
    }
}

/// Mode of opening volumes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VolumeAccess {
    pub(crate) pmem: Option<PmemMode>,
    pub(crate) reserve_bytes: u64,
    /// True if volumes may be missing.
    pub(crate) is_partial: bool,
}

impl VolumeAccess {
    pub(crate) fn of(options: &KvdbOptions, read_only: bool) -> VolumeAccess {
        let KvdbOptions { pmem, reserve_bytes, .. } = *options;
        VolumeAccess { pmem, reserve_bytes, is_partial: read_only }
    }
}

impl Volumes {
    /// Opens the volumes that a manifest names: the given ones wherever they lie, the others where
    /// the manifest says.
    ///
    /// # Errors
    /// Fails if a volume is missing, belongs to another store, or is locked by another process.
    pub(crate) fn open(
        home: &Arc<dyn Directory>,
        given: &[Arc<dyn Directory>],
        manifest: &Manifest,
        access: VolumeAccess,
    ) -> Result<Volumes, StoreError> {
        let VolumeAccess { pmem, reserve_bytes, is_partial } = access;
        let labels: Vec<_> = given
            .iter()
            .filter_map(|directory| Some((Label::read(&**directory).ok()??, directory)))
            .collect();
        let is_alone = manifest.volumes.len() == 1;
        let (mut all, mut missing, mut unlabelled) = (Vec::new(), Vec::new(), Vec::new());
        for state in &manifest.volumes {
            let found = labels.iter().find(|(label, _)| label.is_of(manifest.store, state.place));
            if let Some((label, directory)) = found.filter(|_| !is_partial) {
                label.check_whose(home, &***directory)?;
            }
            let found = match found {
                _ if state.place == manifest::HOME => FoundVolume::Labelled((home.clone(), None)),
                Some((_, directory)) => FoundVolume::labelled(Arc::clone(directory))?,
                None => open_labelled(home, manifest, state, is_partial)?,
            };
            let (directory, lock) = match found {
                FoundVolume::Labelled(opened) => opened,
                FoundVolume::Unlabelled(opened, what) if is_partial => {
                    unlabelled.push(MissingVolumeState { state: state.clone(), what });
                    opened
                }
                FoundVolume::Unlabelled(_, what) => {
                    let path = PathBuf::from(&state.path);
                    return Err(StoreError::VolumeLabel { path, what });
                }
                FoundVolume::Missing(what) => {
                    missing.push(MissingVolumeState { state: state.clone(), what });
                    continue;
                }
            };
            // A store with one directory lies on persistent memory if it is opened so.
            let class = if is_alone && pmem.is_some() { MediaClass::Pmem } else { state.class };
            let (number, bytes_max) = (state.place, state.bytes_max);
            let volume = Volume { class, directory, bytes_max };
            let mut held = OpenVolume::new(number, volume, pmem, lock);
            held.life = VolumeLife::of(state.life.clone());
            held.set_retiring(state.is_retiring);
            all.push(Arc::new(held));
        }
        let (all, files, copies) = (RwLock::new(all), RwLock::default(), Mutex::default());
        let (home, manifest_file, gauge) = (home.clone(), Mutex::default(), SpaceGauge::default());
        let volumes = Volumes {
            home,
            manifest: manifest_file,
            pmem,
            reserve_bytes,
            all,
            files,
            gauge,
            copies,
            missing,
            unlabelled,
        };
        volumes.look()?;
        match volumes.missing.first() {
            Some(missing) if !is_partial => {
                let error = without_label(given, manifest, &missing.state);
                Err(error.unwrap_or_else(|| missing.error(volumes.readable(manifest))))
            }
            _ => Ok(volumes),
        }
    }

    /// Updates the volumes' labels after the home has moved.
    ///
    /// # Errors
    /// Fails if a disk fails.
    pub(crate) fn name_home(&self) -> Result<(), StoreError> {
        let home = shown(self.home.path());
        for place in self.all().iter().filter(|place| place.number != manifest::HOME) {
            let directory = &*place.directory;
            let is_old = |label: &Label| Path::new(&label.home) != Path::new(&home);
            if let Some(label) = Label::read(directory)?.filter(is_old) {
                manifest::save_checked(&Label { home: home.clone(), ..label }, directory, LABEL)?;
            }
        }
        Ok(())
    }

    /// Describes the data that can be read while volumes are missing.
    fn readable(&self, manifest: &Manifest) -> String {
        let is_there = |name: String| self.find(&name).is_some();
        let has_runs =
            |kvs: &&KvsState| kvs.runs.iter().all(|run| is_there(names::of_run(run.number())));
        let (whole, not): (Vec<_>, Vec<_>) = manifest.kvs.iter().partition(has_runs);
        let names = |kvs: Vec<&KvsState>| match kvs.is_empty() {
            true => "none".to_owned(),
            false => kvs.iter().map(|kvs| kvs.name.as_str()).collect::<Vec<_>>().join(", "),
        };
        let not = if not.is_empty() { String::new() } else { format!(", not of {}", names(not)) };
        let segments = manifest.segments().filter(|it| !is_there(names::of_segment(*it))).count();
        format!(
            "All flushed keys of the Kvs {} can be read{not}; {segments} of {} segments of values \
             are missing",
            names(whole),
            manifest.segments.len(),
        )
    }

    /// Records which file lies on which volume.
    fn look(&self) -> Result<(), StoreError> {
        let mut files = self.files.write();
        for place in self.all.read().iter() {
            let names = place.directory.list()?.into_iter().map(|entry| entry.name);
            for name in names.filter(|name| name != names::MANIFEST && name != LABEL) {
                let found = FileLocation { place: place.clone(), bytes: 0 };
                if let Some(other) = files.insert(name.clone(), found) {
                    self.copies.lock().push((other.place, name));
                }
            }
        }
        Ok(())
    }

    /// Removes the second copies of files that lie on two volumes.
    ///
    /// # Errors
    /// Fails if a disk fails.
    pub(crate) fn remove_copies(&self) -> Result<(), StoreError> {
        let copies = std::mem::take(&mut *self.copies.lock());
        if copies.is_empty() {
            return Ok(());
        }
        let ours: Vec<_> = copies.iter().filter(|(_, name)| names::is_data(name)).collect();
        // The copies that stay may have got their names shortly before the process died, or behind
        // a sync that failed. Only giving a file its name again makes the name durable.
        for (_, name) in &ours {
            if mutation_site!("a file on two volumes gets its name again") {
                continue;
            }
            let (directory, unsure) = (self.directory_of(name), names::on_its_way(name));
            directory.rename(name, &unsure)?;
            directory.rename(&unsure, name)?;
        }
        if !mutation_site!("a file's name is durable before its copy is removed") {
            self.sync()?;
        }
        ours.iter().try_for_each(|(place, name)| Ok(place.directory.remove(name)?))
    }

    /// Returns the directory that holds the manifest.
    pub(crate) fn home(&self) -> &Arc<dyn Directory> {
        &self.home
    }

    /// Returns true if a write is durable when it is acknowledged, on any volume.
    pub(crate) fn are_durable_at_once(&self) -> bool {
        self.pmem.is_some()
    }

    /// Returns all volumes.
    pub(crate) fn all(&self) -> Vec<Arc<OpenVolume>> {
        self.all.read().clone()
    }

    /// Returns the volumes that were missing.
    pub(crate) fn missing(&self) -> &[MissingVolumeState] {
        &self.missing
    }

    /// Returns the open volumes whose labels cannot be used.
    pub(crate) fn unlabelled(&self) -> &[MissingVolumeState] {
        &self.unlabelled
    }

    /// Returns a message if a file is not on the open volumes, and so must lie on a missing one.
    pub(crate) fn away(&self, name: &str) -> Option<String> {
        if self.missing.is_empty() || self.find(name).is_some() {
            return None;
        }
        let paths = self.missing.iter().map(|missing| missing.state.path.as_str());
        let paths = paths.collect::<Vec<_>>().join(", ");
        Some(format!("{name} is on a missing volume: {paths}"))
    }

    /// Returns true if a volume of a class takes new files.
    pub(crate) fn has(&self, class: MediaClass) -> bool {
        self.all.read().iter().any(|place| place.class == class && !place.is_retiring())
    }

    /// Restricts classes to those that the store has. If it has none of them, returns all classes.
    pub(crate) fn had(&self, classes: Classes) -> Classes {
        let has_any = classes.as_slice().iter().any(|class| self.has(*class));
        if has_any { classes.filtered(|class| self.has(class)) } else { Classes::FASTEST }
    }

    /// Checks that the store has a volume for each part of a policy.
    ///
    /// # Errors
    /// Fails if a part of the policy names only classes that the store does not have.
    pub(crate) fn check_policy(&self, policy: &Policy) -> Result<(), StoreError> {
        for (name, classes) in policy.parts() {
            if !classes.as_slice().iter().any(|class| self.has(*class)) {
                let what = format!(
                    "the policy puts {name} on {classes}, but the store has no such volume: add \
                     one, or choose another policy"
                );
                return Err(StoreError::Policy { what });
            }
        }
        Ok(())
    }

    /// Returns the number of volumes.
    pub(crate) fn count_volumes(&self) -> usize {
        self.all.read().len()
    }

    /// Returns the names of all files, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.files.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns the volume that a file lies on, if the file exists.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<OpenVolume>> {
        self.files.read().get(name).map(|known| known.place.clone())
    }

    /// Returns the directory that a file lies in. For a missing file, it returns the home, whose
    /// error will say that the file is missing.
    pub(crate) fn directory_of(&self, name: &str) -> Arc<dyn Directory> {
        self.find(name).map_or_else(|| self.home.clone(), |place| place.directory.clone())
    }

    /// Refuses a name that exists but is no file, such as a link. The list of files leaves these
    /// out.
    ///
    /// # Errors
    /// Fails if there is such an entry, or if a directory cannot be read.
    pub(crate) fn refuse_other(&self, name: &str) -> Result<(), StoreError> {
        if self.find(name).is_some() {
            return Ok(());
        }
        for place in self.all() {
            if place.directory.find(name)?.is_some() {
                let (found, wanted) =
                    ("a link, or something else that is not a file", "a file there");
                let path = place.directory.path().join(name);
                return Err(FileError::WrongType { path, found, wanted }.into());
            }
        }
        Ok(())
    }

    /// Returns true if a volume is being retired.
    pub(crate) fn is_any_retiring(&self) -> bool {
        self.all.read().iter().any(|place| place.is_retiring())
    }

    /// Returns true if a file lies on a retiring volume.
    pub(crate) fn is_retiring(&self, name: &str) -> bool {
        self.files.read().get(name).is_some_and(|known| known.place.is_retiring())
    }

    /// Returns the class of a file.
    pub(crate) fn class_of(&self, name: &str) -> Option<MediaClass> {
        self.files.read().get(name).map(|known| known.place.class)
    }

    /// Records that a file was created or has grown.
    pub(crate) fn made(&self, name: String, place: &Arc<OpenVolume>, bytes: u64) {
        if let Some(before) = self.made_elsewhere(name, place, bytes) {
            before.removed(self);
        }
    }

    /// Records that a file lies on a volume. Returns the one that it replaces there or on another
    /// volume, whose bytes count until it is removed.
    pub(crate) fn made_elsewhere(
        &self,
        name: String,
        place: &Arc<OpenVolume>,
        bytes: u64,
    ) -> Option<Leaving> {
        let known = FileLocation { place: place.clone(), bytes };
        // The bytes are counted first: once the file is listed, another thread may remove it.
        place.used.fetch_add(bytes, Relaxed);
        self.gauge.take(bytes);
        self.files.write().insert(name, known).map(Leaving::new)
    }

    /// Records the bytes of a file that existed when the store was opened.
    pub(crate) fn has_bytes(&self, name: &str, bytes: u64) {
        if let Some(place) = self.find(name) {
            self.made(name.to_owned(), &place, bytes);
        }
    }

    /// Removes a file from its volume. A missing file is no error.
    ///
    /// # Errors
    /// Fails if the disk fails. The file's bytes count as long as it may be there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let Some(leaving) = self.files.write().remove(name).map(Leaving::new) else {
            return Ok(());
        };
        if mutation_site!("a file's bytes count until it is removed") {
            leaving.removed(self);
            return Ok(leaving.place.directory.remove(name)?);
        }
        leaving.place.directory.remove(name)?;
        leaving.removed(self);
        Ok(())
    }

    /// Returns the most bytes that the manifest may have by now.
    pub(crate) fn manifest_bytes(&self) -> u64 {
        self.manifest.lock().bytes()
    }

    /// Makes all created, changed and removed names durable on all volumes.
    ///
    /// # Errors
    /// Fails if a disk fails.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.all().iter().try_for_each(|place| place.sync_names())
    }

    /// Makes the next manifest durable.
    ///
    /// # Errors
    /// Fails if the disk fails. Either manifest may then be on the disk, and no name in the home is
    /// made durable any more.
    pub(crate) fn save(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let save = || self.manifest.lock().save(manifest, &*self.home);
        let Some(home) = self.home_volume() else { return save().map(drop) };
        let bytes = home.settle_names(save)?;
        home.life.written.manifest.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Ends the edits before the last manifest of an opening, which is written as a whole: damage
    /// that takes edits away would look like a crash before they were written.
    pub(crate) fn end_edits(&self) {
        if !mutation_site!("the manifest of a closed store has no edits") {
            self.manifest.lock().begin_anew();
        }
    }

    /// Records in a manifest what was written to the open volumes, and their budgets.
    pub(crate) fn note_lives(&self, manifest: &mut Manifest, now: Moment) {
        let all = self.all.read();
        for state in &mut manifest.volumes {
            if let Some(place) = all.iter().find(|place| place.number == state.place) {
                state.life = place.life.state(now);
            }
        }
    }

    /// Counts keys and values that callers have written.
    pub(crate) fn count_user(&self, bytes: u64) {
        if let Some(home) = self.home_volume() {
            home.life.written.user.fetch_add(bytes, Relaxed);
        }
    }

    /// Returns the volume that holds the manifest, if it is open.
    fn home_volume(&self) -> Option<Arc<OpenVolume>> {
        self.all.read().iter().find(|place| place.number == manifest::HOME).cloned()
    }

    /// Prepares a new volume before the manifest names it.
    ///
    /// # Errors
    /// Fails if the directory contains files or cannot be written to.
    pub(crate) fn prepare(
        &self,
        place: &Volume,
        store: u64,
        number: u32,
    ) -> Result<Arc<OpenVolume>, StoreError> {
        let lock = label(place, store, number, &self.home)?;
        Ok(Arc::new(OpenVolume::new(number, place.clone(), self.pmem, Some(lock))))
    }

    /// Adds a volume that the manifest now names.
    pub(crate) fn add(&self, held: Arc<OpenVolume>) {
        self.all.write().push(held);
    }

    /// Unlocks the volumes for other processes.
    pub(crate) fn unlock(&self) {
        self.all().iter().for_each(|place| *place.lock.lock() = None);
    }

    /// Returns the number of the store's files on a volume. Other files do not count.
    pub(crate) fn count(&self, place: &Arc<OpenVolume>) -> usize {
        let is_ours = |name: &str| names::is_data(name) || names::image_number(name).is_some();
        let files = self.files.read();
        let here = files.iter().filter(|(_, known)| Arc::ptr_eq(&known.place, place));
        here.filter(|(name, _)| is_ours(name)).count()
    }

    /// Removes a volume that has no files, and that the manifest no longer names.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn forget(&self, held: &OpenVolume) -> Result<(), StoreError> {
        self.all.write().retain(|place| place.number != held.number);
        held.directory.remove(LABEL)?;
        *held.lock.lock() = None;
        Ok(())
    }
}

impl OpenVolume {
    fn new(
        number: u32,
        Volume { class, directory, bytes_max }: Volume,
        pmem: Option<PmemMode>,
        lock: Option<DirectoryLock>,
    ) -> OpenVolume {
        OpenVolume {
            number,
            class,
            directory,
            bytes_max: AtomicU64::new(bytes_max.unwrap_or(u64::MAX)),
            pmem: pmem.filter(|_| class == MediaClass::Pmem),
            used: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            growing: Arc::default(),
            merging: AtomicU64::new(0),
            is_retiring: AtomicBool::new(false),
            life: VolumeLife::default(),
            names_failed: Mutex::default(),
            lock: Mutex::new(lock),
        }
    }

    pub(crate) fn place(&self) -> Volume {
        let OpenVolume { class, directory, .. } = self;
        Volume { class: *class, directory: directory.clone(), bytes_max: self.bytes_max() }
    }

    /// Returns the quota in bytes, if there is one.
    pub(crate) fn bytes_max(&self) -> Option<u64> {
        Some(self.bytes_max.load(Relaxed)).filter(|most| *most < u64::MAX)
    }

    /// Opens the volume for new files again, up to a quota.
    pub(crate) fn take_back(&self, bytes_max: Option<u64>) {
        self.bytes_max.store(bytes_max.unwrap_or(u64::MAX), Relaxed);
        self.set_retiring(false);
    }

    /// Returns the bytes of the store's files.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Returns the bytes of files that nothing needs any more, and that are not removed yet.
    pub(crate) fn leaving(&self) -> u64 {
        self.leaving.load(Relaxed)
    }

    /// Returns the counter of the bytes of runs and copies that are being written.
    pub(crate) fn growing(&self) -> &Arc<AtomicU64> {
        &self.growing
    }

    /// Subtracts the bytes of a file that has left the volume.
    fn give_back(&self, bytes: u64) {
        let used = self.used.fetch_sub(bytes, Relaxed);
        assert!(bytes <= used, "a file of {bytes} bytes goes from {self:?}, which has {used}");
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.is_retiring.load(Relaxed)
    }

    /// Makes all created, changed and removed names durable.
    ///
    /// # Errors
    /// Fails if the disk fails, or if an earlier sync has failed since the store was opened.
    #[track_caller]
    pub(crate) fn sync_names(&self) -> Result<(), StoreError> {
        let caller = Location::caller();
        self.settle_names(|| Ok(self.directory.sync_at(caller)?))
    }

    /// Returns true if a sync of the names has failed since the store was opened.
    pub(crate) fn has_failed_to_sync_names(&self) -> bool {
        self.names_failed.lock().is_some()
    }

    /// Runs an operation that ends with a sync of the names. The lock keeps other syncs out, so the
    /// next one learns whether this one failed.
    fn settle_names<T>(
        &self,
        settle: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut failed = self.names_failed.lock();
        if let Some(what) = &*failed
            && !mutation_site!("a directory whose sync failed is not synced again")
        {
            let (directory, what) = (self.directory.path().to_owned(), what.clone());
            return Err(StoreError::DirectoryFailed { directory, what });
        }
        settle().inspect_err(|error| {
            // No sync was begun then.
            if !error.leaves_the_manifest() {
                *failed = Some(error.to_string());
            }
        })
    }

    pub(crate) fn set_retiring(&self, is_retiring: bool) {
        self.is_retiring.store(is_retiring, Relaxed);
    }

    /// Returns the bytes that the volume still has room for; `None` if neither the file system nor
    /// a quota tells.
    pub(crate) fn room(&self) -> Option<u64> {
        let of_system = self.directory.free_bytes().ok();
        let of_quota = self.bytes_max().map(|most| most.saturating_sub(self.used()));
        match (of_system, of_quota) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

/// Records the paths of given volumes in a manifest, because the volumes may have moved.
///
/// # Errors
/// Fails if a path cannot be stored as text.
pub(crate) fn note_moved(
    manifest: &mut Manifest,
    given: &[Arc<dyn Directory>],
) -> Result<(), StoreError> {
    for directory in given {
        let Ok(Some(label)) = Label::read(&**directory) else { continue };
        let mut volumes = manifest.volumes.iter_mut();
        if label.store == manifest.store
            && let Some(state) = volumes.find(|state| state.place == label.place)
        {
            check_text(&**directory)?;
            state.path = shown(directory.path());
        }
    }
    Ok(())
}

/// Refuses a directory whose path would change when it is stored as text.
fn check_text(directory: &dyn Directory) -> Result<(), StoreError> {
    let path = directory.path();
    if path.to_str().is_some() {
        return Ok(());
    }
    let what = format!(
        "{} is not UTF-8, so the manifest could not name the store's volumes: rename the directory",
        path.display()
    );
    Err(StoreError::Options { what })
}

/// Refuses a directory for a copy inside one of the store's directories.
///
/// # Errors
/// Fails if it lies inside.
pub(crate) fn check_apart(path: &Path, store: &Path) -> Result<(), StoreError> {
    match files::is_within(path, store) {
        Ok(true) => Err(StoreError::Nested { path: path.to_owned(), store: store.to_owned() }),
        // Opening the directory reports its failure.
        Ok(false) | Err(_) => Ok(()),
    }
}
