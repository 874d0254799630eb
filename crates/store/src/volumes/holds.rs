//! Contents of directories that are given for a store, a volume or a copy: why they do not suit,
//! and what to do instead.

use std::path::Path;
use std::sync::Arc;

use entresol_base::world::World;
use entresol_media::{Directory, FileError, LocalDirectory, files};

use super::Label;
use crate::StoreError;
use crate::manifest::{self, Manifest, absolute, is_unfinished};
use crate::names::{self, LABEL, MANIFEST};

/// Number of names of other files that a message shows.
const NAMES_SHOWN: usize = 3;

/// Contents of a directory, as far as they matter to a store.
#[derive(Debug, PartialEq, Eq)]
enum Contents {
    Nothing,
    Store,
    /// A volume of the store with this home.
    Volume(String),
    Unfinished,
    /// Files of a store without its manifest, by the name of the first.
    Remains(String),
    /// Other files, by name.
    Others(Vec<String>),
}

impl Contents {
    fn of(directory: &dyn Directory) -> Result<Contents, StoreError> {
        match Manifest::load(directory) {
            Ok(None) => {}
            Err(error) if is_foreign(&error, directory) => {}
            Ok(Some(_)) | Err(_) => return Ok(Contents::Store),
        }
        if is_unfinished(directory)? {
            return Ok(Contents::Unfinished);
        }
        if let Ok(Some(label)) = Label::read(directory) {
            return Ok(Contents::Volume(label.home));
        }
        let mut found: Vec<String> =
            directory.list()?.into_iter().map(|entry| entry.name).collect();
        if let Some(first) = found.iter().position(|name| names::is_data(name)) {
            return Ok(Contents::Remains(found.swap_remove(first)));
        }
        Ok(if found.is_empty() { Contents::Nothing } else { Contents::Others(found) })
    }
}

/// Returns the error of a directory in which there is no store.
pub(crate) fn no_store(directory: &dyn Directory) -> StoreError {
    let contents = match Contents::of(directory) {
        Ok(contents) => contents,
        Err(error) => return error,
    };
    let path = directory.path().to_owned();
    let what = match contents {
        Contents::Unfinished => return StoreError::Unfinished { directory: path },
        Contents::Nothing => {
            "it is empty: create a store there, or give another directory".to_owned()
        }
        Contents::Volume(home) => {
            format!("it is a volume of the store in {home}: give that directory")
        }
        Contents::Remains(name) => format!(
            "it has files of one, such as {name}, but no MANIFEST: bring that back, or copy what \
             can be read with `store salvage`"
        ),
        Contents::Others(found) if found.iter().any(|name| name == MANIFEST) => {
            "its MANIFEST is not a store's manifest, and there are no other files of a store: give \
             another directory"
                .to_owned()
        }
        Contents::Others(found) => format!(
            "it holds other files ({}), and a store is created in an empty directory only: give \
             another directory",
            shown(&found)
        ),
        // It was created meanwhile.
        Contents::Store => "try again".to_owned(),
    };
    StoreError::NoStore { directory: path, what }
}

/// Returns the error of a directory that is not empty, and cannot take a store, a volume or a copy.
pub(crate) fn occupied(directory: &dyn Directory) -> StoreError {
    let what = match Contents::of(directory) {
        Ok(Contents::Store) => "it holds a store: open that, or give an empty directory".to_owned(),
        Ok(Contents::Volume(home)) => {
            format!("it is a volume of the store in {home}: give an empty directory")
        }
        Ok(Contents::Unfinished) => {
            "it holds an incomplete copy of a store, and perhaps other files: remove them, or give \
             an empty directory"
                .to_owned()
        }
        Ok(Contents::Remains(name)) => format!(
            "it has files of a store, such as {name}, but no MANIFEST of it: copy what can be read \
             with `store salvage`, or give an empty directory"
        ),
        Ok(Contents::Others(found)) => {
            format!("it holds other files ({}): give an empty directory", shown(&found))
        }
        Ok(Contents::Nothing) | Err(_) => "give an empty directory".to_owned(),
    };
    StoreError::Exists { directory: directory.path().to_owned(), what }
}

fn shown(found: &[String]) -> String {
    let first = found.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match found.len().saturating_sub(NAMES_SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Turns the error of a manifest into that of a missing store, if the file is not a store's and
/// none of a store's files lie beside it. A damaged manifest of a store stays one.
pub(crate) fn judge_manifest(error: StoreError, directory: &dyn Directory) -> StoreError {
    let has_data = || {
        let found = directory.list().unwrap_or_default();
        found.iter().any(|entry| names::is_data(&entry.name))
    };
    match is_foreign(&error, directory) && !has_data() {
        true => no_store(directory),
        false => error,
    }
}

/// Returns true if what bears the name of the manifest is another program's or user's.
fn is_foreign(error: &StoreError, directory: &dyn Directory) -> bool {
    match error {
        StoreError::Damaged { .. } => {
            directory.read(MANIFEST).is_ok_and(|bytes| !manifest::is_begun(&bytes))
        }
        StoreError::File(FileError::WrongType { .. } | FileError::TooLarge { .. }) => true,
        _ => false,
    }
}

/// Refuses a directory for a store, a volume or a copy inside one of a store's directories, where
/// it would be taken for other files of that store.
///
/// # Errors
/// Fails if it lies inside.
pub fn check_outside(path: &Path) -> Result<(), StoreError> {
    // Simulated disks have paths of their own.
    if World::current().is_some() {
        return Ok(());
    }
    let whole = absolute(path);
    let Some(there) = whole.ancestors().find(|it| files::exists(it)) else { return Ok(()) };
    // Links are followed for the part of the path that exists.
    let Ok(followed) = files::canonical(there) else { return Ok(()) };
    // The directory itself is looked at when it is used.
    let above = followed.ancestors().skip(usize::from(there == whole));
    match above.into_iter().find(|above| is_of_a_store(above)) {
        Some(store) => Err(StoreError::Nested { path: path.to_owned(), store: store.to_owned() }),
        None => Ok(()),
    }
}

/// Returns true if a file begins as those of a store do.
#[must_use]
pub fn is_begun_as_own(bytes: &[u8]) -> bool {
    // Segments, memtable images and read frequencies; runs; the manifest and labels.
    bytes.starts_with(b"ENTR") || bytes.starts_with(b"ENTSRUN\n") || manifest::is_begun(bytes)
}

/// Returns true if a directory is the home or a volume of a store.
fn is_of_a_store(path: &Path) -> bool {
    let names = [MANIFEST, LABEL];
    if !names.iter().any(|name| files::exists(&path.join(name))) {
        return false;
    }
    let Ok(directory) = LocalDirectory::open_existing(path) else { return false };
    let directory: Arc<dyn Directory> = Arc::new(directory);
    let begins = |name: &&str| directory.read(name).is_ok_and(|bytes| manifest::is_begun(&bytes));
    names.iter().any(begins)
}
