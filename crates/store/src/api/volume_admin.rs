//! Changes where the data of an open store lie: its volumes, and the policies of its `Kvs`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_media::Directory;

use crate::StoreError;
use crate::api::kvdb::Kvdb;
use crate::types::KvsId;
use crate::upkeep::compaction;
use crate::version::core::Core;
use crate::version::manifest;
use crate::version::manifest::Manifest;
use crate::volumes::policy::{Classes, MediaClass, Policy};
use crate::volumes::{Held, Volume, What, absolute};

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
        let volumes = self.core().volumes.all();
        volumes.iter().map(|held| held.place()).collect()
    }

    /// Returns the volume with a path.
    ///
    /// # Errors
    /// Fails if the store has no such volume.
    pub fn volume_at(&self, path: &Path) -> Result<Volume, StoreError> {
        Ok(self.core().volume_at(path)?.place())
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
        let manifest = &mut *core.manifest.lock();
        if let Ok(held) = core.volume_at(place.directory.path()) {
            return core.take_back(manifest, &held, place);
        }
        let mut next = Manifest::clone(manifest);
        let state = next.take_place(place);
        let held = core.volumes.prepare(place, next.store, state.place)?;
        next.volumes.push(state);
        core.save(manifest, next)?;
        core.volumes.add(held);
        core.work.tell();
        Ok(())
    }

    /// Moves all data off a volume and removes it from the store. Returns true if it came to its
    /// end. If `progress` breaks it off, no new data are put there, and the rest moves in the
    /// background; another call goes on. The home keeps the manifest.
    ///
    /// # Errors
    /// Fails if there is no such volume, if the others have no room for its data, or if it is the
    /// last one.
    pub fn retire_volume(
        &self,
        directory: &Arc<dyn Directory>,
        progress: &mut dyn FnMut(RetireProgress) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        let core = self.core();
        core.log()?;
        let held = core.volume_at(directory.path())?;
        core.check_not_last(&held)?;
        let bytes = held.used();
        core.volumes.check_room_beside(&held, bytes)?;
        core.set_retiring(&held)?;
        let mut go_on =
            || progress(RetireProgress { bytes_left: held.used().min(bytes), bytes }).is_continue();
        // The log's writes there are flushed first, and the log goes on elsewhere.
        core.log()?.leave(&held)?;
        core.work.tell();
        if !go_on() || !core.flush_all(&mut go_on)? {
            return Ok(false);
        }
        while core.has_files(&held) {
            core.failure.check()?;
            core.check_open()?;
            if !held.is_retiring() {
                return Ok(false);
            }
            compaction::compact_one(core)?;
            core.drop_dead_segments()?;
            if !go_on() {
                return Ok(false);
            }
            if core.has_files(&held) {
                core.work.pause(LOOK);
            }
        }
        core.forget_volume(&held)
    }

    /// Returns the policy of a `Kvs`.
    ///
    /// # Errors
    /// Fails if there is no such `Kvs`.
    pub fn policy(&self, kvs: &str) -> Result<Policy, StoreError> {
        let manifest = self.core().manifest.lock();
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
        core.check_policy(&policy)?;
        let manifest = &mut *core.manifest.lock();
        let mut next = Manifest::clone(manifest);
        let Some(state) = next.kvs.iter_mut().find(|state| state.name == kvs) else {
            return Err(manifest.no_kvs(kvs));
        };
        state.policy = policy;
        core.save(manifest, next)?;
        core.work.tell();
        Ok(())
    }
}

impl Core {
    /// Checks that the store has a volume for each part of a policy.
    ///
    /// # Errors
    /// Fails if a part of the policy names only classes that the store does not have.
    pub(crate) fn check_policy(&self, policy: &Policy) -> Result<(), StoreError> {
        for (name, classes) in policy.parts() {
            if !classes.as_slice().iter().any(|class| self.volumes.has(*class)) {
                let what = format!(
                    "the policy puts {name} on {classes}, but the store has no such volume: add \
                     one, or choose another policy"
                );
                return Err(StoreError::Policy { what });
            }
        }
        Ok(())
    }

    /// Updates the set of `Kvs` whose preferred classes have no room. Acknowledged writes of these
    /// then lie elsewhere for as long as they must.
    pub(crate) fn look_for_full(&self) {
        if self.volumes.count_volumes() < 2 {
            return;
        }
        let all: Vec<(KvsId, Policy)> = {
            let manifest = self.manifest.lock();
            manifest.kvs.iter().map(|state| (KvsId(state.id), state.policy)).collect()
        };
        for (kvs, policy) in all {
            match self.room_of(&policy) {
                Ok(()) => self.full.remove(kvs),
                Err(_) => self.full.add(kvs),
            }
        }
    }

    /// Checks again that a `Kvs` in that set has no room on its preferred classes, and takes it off
    /// the set if it has.
    ///
    /// # Errors
    /// Fails if there is still no room.
    pub(crate) fn check_not_full(&self, kvs: KvsId) -> Result<(), StoreError> {
        let Some((policy, _)) = self.policy(kvs) else { return Ok(()) };
        self.room_of(&policy)?;
        self.full.remove(kvs);
        Ok(())
    }

    /// Checks that one of the classes that a policy names has room.
    ///
    /// # Errors
    /// Fails if none of them has.
    fn room_of(&self, policy: &Policy) -> Result<(), StoreError> {
        let named = policy.parts().into_iter().map(|(_, classes)| self.had(classes));
        let named: BTreeSet<MediaClass> =
            named.flat_map(|classes| classes.as_slice().to_vec()).collect();
        let named: Vec<MediaClass> = named.into_iter().collect();
        let classes = Classes::new(&named).unwrap_or(Classes::FASTEST);
        let room = self.volumes.choose_strictly(What::Keys, classes, 0);
        room.map(drop).map_err(|error| match error {
            StoreError::NoRoom { what } => StoreError::NoRoom {
                what: format!(
                    "the policy puts everything on {classes}, and {what}: delete keys, add a \
                     volume, or choose a policy that allows other classes"
                ),
            },
            error => error,
        })
    }

    fn volume_at(&self, path: &Path) -> Result<Arc<Held>, StoreError> {
        let all = self.volumes.all();
        let wanted = absolute(path);
        let found = all.iter().find(|held| absolute(held.directory.path()) == wanted);
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

    fn check_not_last(&self, held: &Held) -> Result<(), StoreError> {
        let others = self.volumes.all();
        if others.iter().any(|other| other.number != held.number && !other.is_retiring()) {
            return Ok(());
        }
        let what = "the last volume that is not being retired cannot be retired: add another one \
                    first";
        Err(StoreError::Policy { what: what.to_owned() })
    }

    /// Keeps new data off a volume from now on.
    fn set_retiring(&self, held: &Held) -> Result<(), StoreError> {
        let manifest = &mut *self.manifest.lock();
        self.check_not_last(held)?;
        let mut next = Manifest::clone(manifest);
        let state = next.volumes.iter_mut().find(|state| state.place == held.number);
        if let Some(state) = state {
            state.is_retiring = true;
        }
        self.save(manifest, next)?;
        held.set_retiring(true);
        Ok(())
    }

    fn has_files(&self, held: &Arc<Held>) -> bool {
        self.volumes.count(held) > 0
    }

    /// Uses a volume again that is being retired, or a home that was retired.
    fn take_back(
        &self,
        manifest: &mut Manifest,
        held: &Held,
        place: &Volume,
    ) -> Result<(), StoreError> {
        let path = place.directory.path();
        if !held.is_retiring() {
            return Err(StoreError::Exists { directory: path.to_owned() });
        }
        if held.class != place.class {
            let what = format!(
                "{} is a volume of the class {} that is being retired: add it again with this \
                 class",
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
        self.save(manifest, next)?;
        held.take_back(place.bytes_max);
        self.work.tell();
        Ok(())
    }

    /// Removes a volume that has no files from the store; a home stays, for the manifest. Returns
    /// false if the volume was added again meanwhile.
    fn forget_volume(&self, held: &Held) -> Result<bool, StoreError> {
        let manifest = &mut *self.manifest.lock();
        if held.number == manifest::HOME || !held.is_retiring() {
            return Ok(held.is_retiring());
        }
        let mut next = Manifest::clone(manifest);
        next.volumes.retain(|state| state.place != held.number);
        self.save(manifest, next)?;
        self.volumes.forget(held)?;
        Ok(true)
    }
}
