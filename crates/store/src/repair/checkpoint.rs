//! Checkpoints: copies of an open store in another directory, which open by themselves.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use entresol_media::{Directory, LocalDirectory};
use serde::Serialize;

use crate::StoreError;
use crate::api::kvdb::Kvdb;
use crate::repair::file_copy::{Source, copy};
use crate::run;
use crate::types::{KvsId, Sequence};
use crate::version::manifest::{LogState, Manifest, VolumeState};
use crate::version::view::View;
use crate::volumes::check_apart;
use crate::volumes::policy::MediaClass;
use crate::wal::segment;

/// Finished checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// Last write in the copy, which has all writes up to it and none behind it.
    pub last: Sequence,
    /// Number of files, without the manifest.
    pub files: u64,
    /// Bytes of these files.
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
        let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open(path)?);
        self.checkpoint(&directory, progress)
    }

    /// Copies the current state of the store into an empty directory, which opens by itself.
    /// Readers and writers go on meanwhile. The newest writes are flushed first. Returns `None` if
    /// `progress` ended the copy early.
    ///
    /// The copy gets its manifest once everything in it is durable, and is no store before that:
    /// the remains of a crashed checkpoint do not open. Files are copied, not linked. Two stores
    /// cannot both lock a linked file, and one flipped bit would damage both. Files are copied as
    /// they are: [`check`](crate::check()) tells whether they are intact.
    ///
    /// # Errors
    /// Fails if the directory is not empty or has no room, if a disk fails, or if a `Kvs` is too
    /// damaged to be read.
    pub fn checkpoint(
        &self,
        to: &Arc<dyn Directory>,
        progress: &mut dyn FnMut(CheckpointProgress) -> ControlFlow<()>,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let _lock = to.lock()?;
        if !to.list()?.is_empty() {
            return Err(StoreError::Exists { directory: to.path().to_owned() });
        }
        let core = self.core();
        let mut go_on = || progress(CheckpointProgress::default()).is_continue();
        if !go_on() || !core.flush_all(&mut go_on)? {
            return Ok(None);
        }
        let (mut manifest, view) = {
            let manifest = core.manifest.lock();
            (manifest.clone(), core.current.get())
        };
        if let Some(kvs) =
            manifest.kvs.iter().find(|kvs| core.unreadable.contains_key(&KvsId(kvs.id)))
        {
            return self.kvs(&kvs.name).map(|_| None);
        }
        let LogState { first_segment, flushed, .. } = manifest.log;
        manifest.log = LogState { first_segment, flushed, durable: flushed };
        manifest.seconds = manifest.seconds.max(core.now().0);
        manifest.volumes = vec![VolumeState::home(MediaClass::Capacity, None)];
        let mut copy =
            Copy { to, progress, so_far: CheckpointProgress::default(), made: Vec::new() };
        let done = copy.all(&manifest, &view);
        if !matches!(done, Ok(true)) {
            copy.undo();
            return done.map(|_| None);
        }
        let Copy { made, so_far, .. } = copy;
        let made = Checkpoint {
            last: Sequence(flushed),
            files: made.len() as u64,
            bytes: so_far.bytes_done,
        };
        to.sync()?;
        // If this fails, the copy is either complete or no store, so nothing of it may be removed.
        manifest.save(&**to)?;
        Ok(Some(made))
    }
}

struct Copy<'a> {
    to: &'a Arc<dyn Directory>,
    progress: &'a mut dyn FnMut(CheckpointProgress) -> ControlFlow<()>,
    so_far: CheckpointProgress,
    made: Vec<String>,
}

impl Copy<'_> {
    /// Copies all files that a manifest names. Returns false if `progress` ended the copy early.
    fn all(&mut self, manifest: &Manifest, view: &View) -> Result<bool, StoreError> {
        let mut files: Vec<(String, &dyn Source)> = Vec::new();
        for flushed in view.runs.values().flat_map(|runs| runs.iter()) {
            files.push((run::file_name(flushed.number()), &*flushed.run));
        }
        for (number, segment) in view.segments.iter() {
            files.push((segment::file_name(*number), &**segment));
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
        self.made.push(name.clone());
        copy(from, &**self.to, &name, &mut |bytes| {
            self.so_far.bytes_done += bytes;
            (self.progress)(self.so_far).is_continue()
        })
    }

    /// Removes the files copied so far.
    fn undo(&mut self) {
        for name in self.made.drain(..) {
            // The remains are no store.
            let _ = self.to.remove(&name);
        }
    }
}
