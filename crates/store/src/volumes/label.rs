//! Labels of volumes: the small file in each volume but the home that says whose it is.

use std::io;
use std::path::Path;
use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_media::directory::DirectoryLock;
use entresol_media::{Directory, FileError, lacks_descriptors};
use serde::{Deserialize, Serialize};

use super::{Volume, check_outside, check_text, occupied};
use crate::StoreError;
use crate::manifest::{self, Manifest, VolumeState, absolute, shown};
use crate::names::{self, LABEL, MANIFEST};

/// Contents of a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Label {
    pub(super) format: u32,
    pub(super) store: u64,
    pub(super) place: u32,
    pub(super) home: String,
}

impl Label {
    pub(super) fn is_of(&self, store: u64, place: u32) -> bool {
        self.store == store && self.place == place
    }

    /// Reads the label of a directory, if it has one.
    pub(super) fn read(directory: &dyn Directory) -> Result<Option<Label>, StoreError> {
        let bytes = match directory.read(LABEL) {
            Ok(bytes) => bytes,
            Err(FileError::NoFile { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (label, _) = manifest::read_checked(&bytes, &directory.path().join(LABEL))?;
        Ok(Some(label))
    }

    /// Refuses a volume whose label names another home that still exists and still claims the
    /// volume at this path. One of the two homes is then a copy, and opening either would remove
    /// the other's files from the volume. A home that has moved is no longer at its old path.
    ///
    /// # Errors
    /// Fails if the volume belongs to another home.
    pub(super) fn check_whose(
        &self,
        home: &Arc<dyn Directory>,
        place: &dyn Directory,
    ) -> Result<(), StoreError> {
        let path = Path::new(&self.home);
        if path == absolute(home.path()) {
            return Ok(());
        }
        let of_another = |what: String| {
            let (path, home) = (place.path().to_owned(), path.to_owned());
            Err(StoreError::VolumeOfAnother { path, home, what })
        };
        let other = match directory_at(home, path) {
            Ok(Some(other)) if other.id() != home.id() => other,
            Ok(_) => return Ok(()),
            Err(error) => return of_another(error.to_string()),
        };
        let manifest = match Manifest::load(&*other) {
            Ok(Some(manifest)) if manifest.store == self.store => manifest,
            Ok(_) => return Ok(()),
            Err(error) => return of_another(error.to_string()),
        };
        let Some(state) = manifest.volumes.iter().find(|state| state.place == self.place) else {
            return Ok(());
        };
        match directory_at(home, Path::new(&state.path)) {
            Ok(Some(there)) if there.id() == place.id() => of_another("it names it".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Opens a directory by its path, if it exists.
fn directory_at(
    home: &Arc<dyn Directory>,
    path: &Path,
) -> Result<Option<Arc<dyn Directory>>, FileError> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match home.elsewhere(path) {
        Ok(directory) => Ok(Some(directory)),
        Err(FileError::WrongType { .. }) => Ok(None),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Open volume, with the lock that keeps other processes out.
pub(super) type ClaimedDirectory = (Arc<dyn Directory>, Option<DirectoryLock>);

fn claim(directory: Arc<dyn Directory>) -> Result<ClaimedDirectory, StoreError> {
    let lock = directory.lock()?;
    Ok((directory, Some(lock)))
}

/// Volume as it was found.
pub(super) enum FoundVolume {
    Labelled(ClaimedDirectory),
    /// Directory with files of the store, and the reason why its label cannot be used.
    Unlabelled(ClaimedDirectory, String),
    /// Description of what was found instead.
    Missing(String),
}

impl FoundVolume {
    /// Claims the directory of a volume whose label was read.
    pub(super) fn labelled(directory: Arc<dyn Directory>) -> Result<FoundVolume, StoreError> {
        claim(directory).map(FoundVolume::Labelled)
    }
}

/// Opens a volume where the manifest says it is.
pub(super) fn open_labelled(
    home: &Arc<dyn Directory>,
    manifest: &Manifest,
    state: &VolumeState,
    is_partial: bool,
) -> Result<FoundVolume, StoreError> {
    let directory = match home.elsewhere(Path::new(&state.path)) {
        Ok(directory) => directory,
        Err(FileError::Io { doing, path, cause }) if lacks_descriptors(&cause) => {
            return Err(FileError::Io { doing, path, cause }.into());
        }
        Err(error) => return Ok(FoundVolume::Missing(error.to_string())),
    };
    let wrong = match Label::read(&*directory) {
        Ok(Some(label)) if label.is_of(manifest.store, state.place) => {
            if !is_partial {
                label.check_whose(home, &*directory)?;
            }
            return FoundVolume::labelled(directory);
        }
        Ok(Some(_)) => {
            return Ok(FoundVolume::Missing(format!("its {LABEL} names another store")));
        }
        Ok(None) => None,
        Err(error @ StoreError::Version { .. }) => return Err(error),
        Err(error) if error.is_of_surroundings() => return Err(error),
        Err(error) => Some(error.reason()),
    };
    // The label of a volume without files is known by its beginning.
    let is_begun = || directory.read(LABEL).is_ok_and(|bytes| manifest::is_begun(&bytes));
    if has_files_of(manifest, &*directory)? || wrong.is_some() && is_begun() {
        let what = wrong.unwrap_or_else(|| "it is missing".to_owned());
        return Ok(FoundVolume::Unlabelled(claim(directory)?, what));
    }
    Ok(FoundVolume::Missing(match wrong {
        None => format!("it has no {LABEL}, so nothing may be mounted there"),
        Some(what) => {
            format!("its {LABEL} cannot be read ({what}), and none of its files is there")
        }
    }))
}

/// Returns true if a directory without a label that can be used has files that the manifest names.
/// The home of another store may have files of equal names.
fn has_files_of(manifest: &Manifest, directory: &dyn Directory) -> Result<bool, StoreError> {
    let names = directory.list()?.into_iter().map(|entry| entry.name);
    let has_some = names.into_iter().any(|name| names::is_data(&name) && manifest.has_file(&name));
    Ok(has_some && directory.find(MANIFEST)?.is_none())
}

/// Returns the error of a volume that was given for a missing one, if it has files of the store and
/// no label that can be used.
pub(super) fn without_label(
    given: &[Arc<dyn Directory>],
    manifest: &Manifest,
    state: &VolumeState,
) -> Option<StoreError> {
    let is_unlabelled = |it: &&Arc<dyn Directory>| {
        !matches!(Label::read(&***it), Ok(Some(_)))
            && has_files_of(manifest, &***it).unwrap_or(false)
    };
    let path = given.iter().find(is_unlabelled)?.path().to_owned();
    let what = format!(
        "it is missing or damaged, and the store looks for the volume at {} until it has one",
        state.path
    );
    Some(StoreError::VolumeLabel { path, what })
}

/// Returns true if a directory is a volume whose home is there. The store is to be read from that
/// one, which knows the keys.
pub(crate) fn is_volume(directory: &Arc<dyn Directory>) -> bool {
    let Ok(Some(label)) = Label::read(&**directory) else { return false };
    let home = directory_at(directory, Path::new(&label.home));
    home.is_ok_and(|home| home.is_some_and(|it| matches!(it.find(MANIFEST), Ok(Some(_)))))
}

/// Removes the label of a directory that the manifest does not name.
pub(crate) fn unlabel(place: &Volume) {
    // The reason for removing the label matters more to the caller than a failure to do so.
    let _ = place.directory.remove(LABEL);
}

/// Labels an empty directory as a volume of a store, and locks it.
///
/// # Errors
/// Fails if the directory has contents or cannot be written to.
pub(crate) fn label(
    place: &Volume,
    store: u64,
    number: u32,
    home: &Arc<dyn Directory>,
) -> Result<DirectoryLock, StoreError> {
    let Volume { directory, .. } = place;
    check_text(&**home)?;
    check_text(&**directory)?;
    check_outside(directory.path())?;
    let lock = directory.lock()?;
    // A crash may have left a label, from an earlier attempt or from before the manifest named it.
    let before = Label::read(&**directory).ok().flatten().filter(|label| label.store == store);
    if directory.list()?.iter().any(|entry| entry.name != LABEL || before.is_none()) {
        return Err(occupied(&**directory));
    }
    if let Some(before) = before {
        before.check_whose(home, &**directory)?;
    }
    let home = shown(home.path());
    let label = Label { format: manifest::FORMAT, store, place: number, home };
    if !mutation_site!("a volume is labelled") {
        manifest::save_checked(&label, &**directory, LABEL)?;
    }
    Ok(lock)
}
