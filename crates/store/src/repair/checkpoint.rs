//! Checkpoints: copies of an open store in another directory, which open by themselves.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use entresol_media::{Directory, LocalDirectory};
use serde::Serialize;

use crate::StoreError;
use crate::api::kvdb::Kvdb;
use crate::manifest::{LogState, Manifest, VolumeState};
use crate::names;
use crate::policy::MediaClass;
use crate::repair::unfinished::{self, Unfinished};
use crate::types::{KvsId, Sequence};
use crate::upkeep::file_copy::{Source, copy};
use crate::version::view::View;
use crate::volumes::{check_apart, check_outside};

/// Finished checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// Last write in the copy, which has all writes up to it and none behind it.
    pub last: Sequence,
    /// Number of copied files, without the manifest.
    pub files: u64,
    /// Bytes of the copied files.
    pub bytes: u64,
}

/// Progress of a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointProgress {
    /// Bytes copied; 0 while the newest writes are being flushed.
    pub bytes_done: u64,
    /// Bytes to copy; 0 as long as that is not known.
    pub bytes: u64,
}

impl Kvdb {
    /// Makes a checkpoint in a directory of this machine, which is created if it does not exist.
    /// See [`checkpoint`](Kvdb::checkpoint).
    ///
    /// ```
    /// # fn main() -> Result<(), entresol_store::StoreError> {
    /// # let scratch = tempfile::tempdir().expect("a directory");
    /// # let (path, copy) = (scratch.path().join("store"), scratch.path().join("copy"));
    /// use std::ops::ControlFlow;
    ///
    /// use entresol_store::{Kvdb, KvdbOptions, KvsOptions};
    ///
    /// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
    /// let users = store.create_kvs("users", KvsOptions::default())?;
    /// users.put(b"ada", b"1815")?;
    /// let made = store.checkpoint_at(&copy, &mut |_| ControlFlow::Continue(()))?;
    /// users.put(b"grace", b"1906")?;
    /// let copied = Kvdb::open_at(&copy, KvdbOptions::default())?;
    /// assert_eq!(copied.kvs("users")?.get(b"ada")?, Some(b"1815".to_vec()));
    /// assert_eq!(copied.kvs("users")?.get(b"grace")?, None);
    /// assert!(made.is_some_and(|made| made.files == 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`checkpoint`](Kvdb::checkpoint) does.
    pub fn checkpoint_at(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(CheckpointProgress) -> ControlFlow<()>,
    ) -> Result<Option<Checkpoint>, StoreError> {
        for place in self.volumes() {
            check_apart(path, place.directory.path())?;
        }
        check_outside(path)?;
        let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open(path)?);
        self.checkpoint(&directory, progress)
    }

    /// Copies the current state of the store into an empty directory, which opens by itself.
    /// Readers and writers go on meanwhile. The newest writes are flushed first. Returns `None` if
    /// `progress` ended the copy early.
    ///
    /// The copy gets its manifest once everything in it is durable, and is no store before that:
    /// the remains of a crashed checkpoint do not open, and the next copy to the same directory
    /// replaces them. Files are copied, not linked. Two stores
    /// cannot both lock a linked file, and one flipped bit would damage both. Files are copied as
    /// they are: [`check`](crate::check()) tells whether they are intact.
    ///
    /// # Errors
    /// Fails if the directory is not empty, lies inside another store or has no room, if a disk
    /// fails, or if a `Kvs` is too damaged to be read.
    pub fn checkpoint(
        &self,
        to: &Arc<dyn Directory>,
        progress: &mut dyn FnMut(CheckpointProgress) -> ControlFlow<()>,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let _lock = to.lock()?;
        unfinished::begin(&**to)?;
        let made = self.copy_to(to, progress);
        if !matches!(made, Ok(Some(_))) {
            unfinished::undo(to);
            return made;
        }
        unfinished::complete(to)?;
        made
    }

    /// Copies the current state of the store, with a manifest that is not named as one yet.
    fn copy_to(
        &self,
        to: &Arc<dyn Directory>,
        progress: &mut dyn FnMut(CheckpointProgress) -> ControlFlow<()>,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let core = self.core();
        let mut go_on = || progress(CheckpointProgress::default()).is_continue();
        if !go_on() || !core.flush_all(&mut go_on)? {
            return Ok(None);
        }
        let (mut manifest, view) = core.files.whole()?;
        if let Some(kvs) =
            manifest.kvs.iter().find(|kvs| core.files.unreadable.contains_key(&KvsId(kvs.id)))
        {
            return self.kvs(&kvs.name).map(|_| None);
        }
        let LogState { first_segment, flushed, .. } = manifest.log;
        manifest.log = LogState { first_segment, flushed, durable: flushed };
        manifest.seconds = manifest.seconds.max(core.files.time.now().0);
        manifest.volumes = vec![VolumeState::home(MediaClass::Capacity, None)];
        let mut copy = Copy { to, progress, so_far: CheckpointProgress::default(), files: 0 };
        if !copy.all(&manifest, &view)? {
            return Ok(None);
        }
        let Copy { files, so_far, .. } = copy;
        manifest.save(&Unfinished(to.clone()))?;
        Ok(Some(Checkpoint { last: Sequence(flushed), files, bytes: so_far.bytes_done }))
    }
}

struct Copy<'a> {
    to: &'a Arc<dyn Directory>,
    progress: &'a mut dyn FnMut(CheckpointProgress) -> ControlFlow<()>,
    so_far: CheckpointProgress,
    files: u64,
}

impl Copy<'_> {
    /// Copies all files that a manifest names. Returns false if `progress` ended the copy early.
    fn all(&mut self, manifest: &Manifest, view: &View) -> Result<bool, StoreError> {
        let mut files: Vec<(String, &dyn Source)> = Vec::new();
        for flushed in view.runs.values().flat_map(|runs| runs.iter()) {
            files.push((names::of_run(flushed.number()), &*flushed.run));
        }
        for (number, segment) in view.segments.iter() {
            files.push((names::of_segment(*number), &**segment));
        }
        let is_named = |(name, _): &(String, &dyn Source)| manifest.has_file(name);
        files.retain(is_named);
        self.so_far.bytes = files.iter().map(|(_, file)| file.bytes()).sum();
        for (name, file) in files {
            if !self.file(name, file)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn file(&mut self, name: String, from: &dyn Source) -> Result<bool, StoreError> {
        self.files += 1;
        copy(from, &**self.to, &name, &mut |bytes| {
            self.so_far.bytes_done += bytes;
            (self.progress)(self.so_far).is_continue()
        })
    }
}
