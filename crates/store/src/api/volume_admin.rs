//! Changes where the data of an open store lie: its volumes, and the policies of its `Kvs`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_media::{Directory, files};

use crate::StoreError;
use crate::api::kvdb::Kvdb;
use crate::manifest;
use crate::manifest::Manifest;
use crate::manifest::absolute;
use crate::policy::Policy;
use crate::upkeep::compaction;
use crate::upkeep::dead_segments::drop_dead_segments;
use crate::version::files::Files;
use crate::volumes::{OpenVolume, Volume, Volumes};

/// Interval at which a call that waits looks at the progress.
const LOOK: Duration = Duration::from_millis(10);

/// Progress of retiring a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetireProgress {
    /// Bytes of files that are still on the volume.
    pub bytes_left: u64,
    /// Bytes of files that were on the volume at the beginning.
    pub bytes: u64,
}

impl Kvdb {
    /// Returns the volumes of the store, the home first.
    #[must_use]
    pub fn volumes(&self) -> Vec<Volume> {
        let volumes = self.core().files.volumes.all();
        volumes.iter().map(|held| held.place()).collect()
    }

    /// Returns the volume with a path.
    ///
    /// # Errors
    /// Fails if the store has no such volume.
    pub fn volume_at(&self, path: &Path) -> Result<Volume, StoreError> {
        Ok(volume_at(&self.core().files.volumes, path)?.place())
    }

    /// Adds an empty directory to the volumes of the store. New data may lie there, and data move
    /// there if their policies ask for it. A volume that is being retired is used again, with the
    /// new bound, and so is a retired home.
    ///
    /// # Errors
    /// Fails if the directory is not empty or cannot be written to, if the store is read only, or
    /// if the directory is a volume of another class that is being retired.
    pub fn add_volume(&self, place: &Volume) -> Result<(), StoreError> {
        let core = self.core();
        core.log()?;
        let manifest = &mut *core.files.manifest.lock();
        if let Ok(held) = volume_at(&core.files.volumes, place.directory.path()) {
            take_back(&core.files, manifest, &held, place)?;
            core.background.scheduler.tell();
            return Ok(());
        }
        let mut next = Manifest::clone(manifest);
        let state = next.take_place(place.class, place.directory.path(), place.bytes_max);
        let held = core.files.volumes.prepare(place, next.store, state.place)?;
        next.volumes.push(state);
        core.files.save(manifest, next)?;
        core.files.volumes.add(held);
        core.background.scheduler.tell();
        Ok(())
    }

    /// Moves all data off a volume and removes it from the store. Returns true if it came to its
    /// end. If `progress` breaks it off, no new data are put there, and the rest moves in the
    /// background; another call goes on. The home keeps the manifest.
    ///
    /// # Errors
    /// Fails if there is no such volume, if the others have no room for its data, if it is the last
    /// one, or if a file with values is missing, which may be one of its.
    pub fn retire_volume(
        &self,
        directory: &Arc<dyn Directory>,
        progress: &mut dyn FnMut(RetireProgress) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        let core = self.core();
        core.log()?;
        core.reports.check_outside("retire_volume")?;
        let held = volume_at(&core.files.volumes, directory.path())?;
        check_not_last(&core.files.volumes, &held)?;
        core.files.whole()?;
        let bytes = held.used();
        core.files.volumes.check_room_beside(&held, bytes)?;
        set_retiring(&core.files, &held)?;
        let mut go_on =
            || progress(RetireProgress { bytes_left: held.used().min(bytes), bytes }).is_continue();
        // The log's writes there are flushed first, and the log goes on elsewhere.
        core.log()?.leave(&held)?;
        core.background.scheduler.tell();
        if !go_on() || !core.flush_all(&mut go_on)? {
            return Ok(false);
        }
        while has_files(&core.files, &held) {
            core.files.failure.check()?;
            core.check_open()?;
            if !held.is_retiring() {
                return Ok(false);
            }
            compaction::compact_one_while(&core.compaction_context(), &mut go_on)?;
            drop_dead_segments(&core.files, &core.background.read_frequency)?;
            if !go_on() {
                return Ok(false);
            }
            if has_files(&core.files, &held) {
                core.background.scheduler.pause(LOOK);
            }
        }
        // The background may have moved the last file since the last report. It is too late to end.
        let _ = go_on();
        forget_volume(&core.files, &held)
    }

    /// Checks that no file with values is missing: a volume cannot be retired without knowing that
    /// it is none of its.
    ///
    /// # Errors
    /// Fails if one is missing.
    pub fn check_whole(&self) -> Result<(), StoreError> {
        self.core().files.whole().map(drop)
    }

    /// Sets how many bytes a day may be written to a volume, or lifts that budget. Callers' writes
    /// count and are never refused for it; compaction and moves between classes wait while it is
    /// used up, unless they make room.
    ///
    /// # Errors
    /// Fails if there is no such volume, or if the disk fails.
    pub fn set_writes_per_day(&self, path: &Path, bytes: Option<u64>) -> Result<(), StoreError> {
        let core = self.core();
        core.log()?;
        let manifest = &mut *core.files.manifest.lock();
        let place = volume_at(&core.files.volumes, path)?;
        place.life.set_writes_per_day(bytes, core.files.moment());
        core.files.save(manifest, Manifest::clone(manifest))?;
        core.background.scheduler.tell();
        Ok(())
    }

    /// Returns the policy of a `Kvs`.
    ///
    /// # Errors
    /// Fails if there is no such `Kvs`.
    pub fn policy(&self, kvs: &str) -> Result<Policy, StoreError> {
        let manifest = self.core().files.manifest.lock();
        let state = manifest.kvs.iter().find(|state| state.name == kvs);
        state.map(|state| state.policy).ok_or_else(|| manifest.no_kvs(kvs))
    }

    /// Gives a `Kvs` another policy. Flushed data that lie elsewhere than it says move in the
    /// background; [`compact`](Kvdb::compact) moves all of them at once.
    ///
    /// # Errors
    /// Fails if there is no such `Kvs`, or if a part of the policy names only classes that the
    /// store does not have.
    pub fn set_policy(&self, kvs: &str, policy: Policy) -> Result<(), StoreError> {
        let core = self.core();
        core.log()?;
        core.files.volumes.check_policy(&policy)?;
        let manifest = &mut *core.files.manifest.lock();
        let mut next = Manifest::clone(manifest);
        let Some(state) = next.kvs.iter_mut().find(|state| state.name == kvs) else {
            return Err(manifest.no_kvs(kvs));
        };
        state.policy = policy;
        core.files.save(manifest, next)?;
        core.background.scheduler.tell();
        Ok(())
    }
}

fn volume_at(volumes: &Volumes, path: &Path) -> Result<Arc<OpenVolume>, StoreError> {
    let all = volumes.all();
    // Symbolic links may lead there.
    let place = |path: &Path| files::canonical(path).unwrap_or_else(|_| absolute(path));
    let wanted = place(path);
    let found = all.iter().find(|held| place(held.directory.path()) == wanted);
    found.cloned().ok_or_else(|| {
        let there: Vec<String> =
            all.iter().map(|held| held.directory.path().display().to_string()).collect();
        let what = format!(
            "{} is no volume of the store; its volumes are: {}",
            path.display(),
            there.join(", ")
        );
        StoreError::Policy { what }
    })
}

fn check_not_last(volumes: &Volumes, held: &OpenVolume) -> Result<(), StoreError> {
    let others = volumes.all();
    if others.iter().any(|other| other.number != held.number && !other.is_retiring()) {
        return Ok(());
    }
    let what = "the last volume that is not being retired cannot be retired: add another one \
                first";
    Err(StoreError::Policy { what: what.to_owned() })
}

/// Keeps new data off a volume from now on.
fn set_retiring(files: &Files, held: &OpenVolume) -> Result<(), StoreError> {
    let manifest = &mut *files.manifest.lock();
    check_not_last(&files.volumes, held)?;
    let mut next = Manifest::clone(manifest);
    let state = next.volumes.iter_mut().find(|state| state.place == held.number);
    if let Some(state) = state {
        state.is_retiring = true;
    }
    files.save(manifest, next)?;
    held.set_retiring(true);
    Ok(())
}

fn has_files(files: &Files, held: &Arc<OpenVolume>) -> bool {
    files.volumes.count(held) > 0
}

/// Uses a volume again that is being retired, or a home that was retired.
fn take_back(
    files: &Files,
    manifest: &mut Manifest,
    held: &OpenVolume,
    place: &Volume,
) -> Result<(), StoreError> {
    let path = place.directory.path();
    if !held.is_retiring() {
        let what = "it is a volume of this store already: give an empty directory".to_owned();
        return Err(StoreError::Exists { directory: path.to_owned(), what });
    }
    if held.class != place.class {
        let what = format!(
            "{} is a volume of the class {} that is being retired: add it again with this class",
            path.display(),
            held.class
        );
        return Err(StoreError::Policy { what });
    }
    let mut next = Manifest::clone(manifest);
    let state = next.volumes.iter_mut().find(|state| state.place == held.number);
    if let Some(state) = state {
        (state.is_retiring, state.bytes_max) = (false, place.bytes_max);
    }
    files.save(manifest, next)?;
    held.take_back(place.bytes_max);
    Ok(())
}

/// Removes a volume that has no files from the store; a home stays, for the manifest. Returns
/// false if the volume was added again meanwhile.
fn forget_volume(files: &Files, held: &OpenVolume) -> Result<bool, StoreError> {
    let manifest = &mut *files.manifest.lock();
    if held.number == manifest::HOME || !held.is_retiring() {
        return Ok(held.is_retiring());
    }
    let mut next = Manifest::clone(manifest);
    next.volumes.retain(|state| state.place != held.number);
    files.save(manifest, next)?;
    files.volumes.forget(held)?;
    Ok(true)
}
