//! Copies of a store that are being made: marked as unfinished from the first file on, and without
//! a manifest. What an interruption leaves is therefore no store, and can be made again.

use std::path::Path;
use std::sync::Arc;

use entresol_base::Place;
use entresol_media::directory::{DirectoryId, DirectoryLock, Entry, EntryKind};
use entresol_media::{BlockFile, BlockOptions, Directory, FileError, MapOptions, MappedFile};

use crate::StoreError;
use crate::manifest::{MARK, is_unfinished};
use crate::names::{self, MANIFEST, UNFINISHED, UNFINISHED_MANIFEST};
use crate::volumes::{check_outside, occupied};

/// Marks a locked directory as one with an unfinished copy. The directory must be empty, or have an
/// unfinished copy, which is removed.
///
/// # Errors
/// Fails if there are other files, if it lies inside another store, or if the disk fails.
pub(crate) fn begin(directory: &dyn Directory) -> Result<(), StoreError> {
    check_outside(directory.path())?;
    let found = directory.list()?;
    let is_left = is_unfinished(directory)?;
    let is_own = |entry: &Entry| !entry.is_directory && names::is_own(&entry.name);
    if !found.is_empty() && (!is_left || !found.iter().all(is_own)) {
        return Err(occupied(directory));
    }
    for entry in found.iter().filter(|entry| entry.name != UNFINISHED) {
        directory.remove(&entry.name)?;
    }
    Ok(directory.replace(UNFINISHED, MARK)?)
}

/// Removes an unfinished copy, the mark last. If that fails, the remains are still marked.
pub(crate) fn undo(directory: &Arc<dyn Directory>) {
    let Ok(found) = directory.list() else { return };
    let mut own = found.iter().filter(|it| names::is_own(&it.name) && it.name != UNFINISHED);
    if own.all(|entry| directory.remove(&entry.name).is_ok()) && directory.sync().is_ok() {
        let _ = directory.remove(UNFINISHED);
    }
}

/// Gives the manifest of a copy its name, after which the copy is a store. Everything else in the
/// directory is durable since the manifest was saved under its other name.
///
/// # Errors
/// Fails if the disk fails. Nothing is left of the copy if its manifest could not get its name;
/// later, the copy may be complete all the same.
pub(crate) fn complete(directory: &Arc<dyn Directory>) -> Result<(), StoreError> {
    if let Err(error) = directory.rename(UNFINISHED_MANIFEST, MANIFEST) {
        undo(directory);
        return Err(error.into());
    }
    directory.sync()?;
    // Beside a manifest the mark means nothing, should a crash bring it back.
    Ok(directory.remove(UNFINISHED)?)
}

/// Directory with an unfinished copy, in which the manifest has another name. Its user has locked
/// it.
#[derive(Debug)]
pub(crate) struct Unfinished(pub(crate) Arc<dyn Directory>);

fn inner_name(name: &str) -> &str {
    if name == MANIFEST { UNFINISHED_MANIFEST } else { name }
}

impl Directory for Unfinished {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn id(&self) -> DirectoryId {
        self.0.id()
    }

    fn open_block_file(
        &self,
        name: &str,
        options: &BlockOptions,
    ) -> Result<Arc<dyn BlockFile>, FileError> {
        self.0.open_block_file(name, options)
    }

    fn map_file(&self, name: &str, options: &MapOptions) -> Result<Arc<dyn MappedFile>, FileError> {
        self.0.map_file(name, options)
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Directory>, FileError> {
        self.0.subdirectory(name)
    }

    fn elsewhere(&self, path: &Path) -> Result<Arc<dyn Directory>, FileError> {
        self.0.elsewhere(path)
    }

    fn list(&self) -> Result<Vec<Entry>, FileError> {
        let mut found = self.0.list()?;
        found.retain(|entry| entry.name != UNFINISHED);
        for entry in &mut found {
            if entry.name == UNFINISHED_MANIFEST {
                entry.name = MANIFEST.to_owned();
            }
        }
        Ok(found)
    }

    fn find(&self, name: &str) -> Result<Option<EntryKind>, FileError> {
        self.0.find(inner_name(name))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        self.0.read(inner_name(name))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.0.replace(inner_name(name), bytes)
    }

    fn append_at(&self, name: &str, end: u64, bytes: &[u8], place: Place) -> Result<(), FileError> {
        self.0.append_at(inner_name(name), end, bytes, place)
    }

    fn rename_at(&self, from: &str, to: &str, place: Place) -> Result<(), FileError> {
        self.0.rename_at(inner_name(from), inner_name(to), place)
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        self.0.remove(inner_name(name))
    }

    fn remove_subdirectory(&self, name: &str) -> Result<(), FileError> {
        self.0.remove_subdirectory(name)
    }

    fn sync_at(&self, place: Place) -> Result<(), FileError> {
        self.0.sync_at(place)
    }

    fn lock(&self) -> Result<DirectoryLock, FileError> {
        Ok(DirectoryLock::new(()))
    }

    fn free_bytes(&self) -> Result<u64, FileError> {
        self.0.free_bytes()
    }
}
