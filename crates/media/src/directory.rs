//! Directories of one's own, as a storage engine needs them: block files, mapped files, small files
//! that are replaced as a whole, names that change at once or not at all, and a lock that keeps
//! others out.
//!
//! A [`Directory`] is a place in this machine's file system ([`LocalDirectory`]) or on a simulated
//! disk ([`crate::disk`]); what is written against the trait is tried on both. One suite of tests
//! holds for the two.
//!
//! **What survives a power cut.** The bytes of a block file do after [`BlockFile::sync_at`], its
//! length with them, and those of a mapped file after [`MappedFile::persist_at`]. *That there is
//! such a file* does only after the sync of the directory that holds it: a name that was made,
//! changed or removed since then may be found either way, each name for itself and in any
//! combination. The exception is [`Directory::replace`], which is durable when it returns. An
//! implementation may do more than this promises, and this machine's does; the simulated disk does
//! not.
//!
//! **After a failed sync** nothing that was not durable before it can be trusted, and a second sync
//! that succeeds proves nothing: the system may have forgotten that the bytes were ever new. Write
//! them again elsewhere, or give up.

use std::fmt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block::{BlockFile, BlockOptions};
use crate::crash::Place;
use crate::mapped::{MapOptions, MappedFile};
use crate::placement::FileError;

mod local;

pub use local::LocalDirectory;

/// The most bytes of a small file, which is read and replaced as a whole.
pub const SMALL_FILE_BYTES_MAX: u64 = 32 << 20;
/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 200;
/// How the names of replacements begin that are not yet complete. No other file may be called so.
const UNFINISHED: &str = ".unfinished-";

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A file, small, mapped or of blocks.
    File,
    /// A directory.
    Directory,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Whether it is a directory's.
    pub is_directory: bool,
}

impl Entry {
    /// What the name stands for.
    #[must_use]
    pub const fn kind(&self) -> EntryKind {
        if self.is_directory { EntryKind::Directory } else { EntryKind::File }
    }
}

/// Tells directories from each other, whatever paths lead to them, for as long as they are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryId {
    pub(crate) device: u64,
    pub(crate) node: u64,
}

/// A directory, held open. Names are single components: they never lead out of it.
pub trait Directory: Send + Sync + fmt::Debug {
    /// The directory's path.
    fn path(&self) -> &Path;

    /// Which directory it is: the same one has the same, by whatever path it was opened.
    fn id(&self) -> DirectoryId;

    /// Opens or makes a block file, locked against everybody else for as long as it is open.
    ///
    /// # Errors
    /// If the file cannot be had as asked for; nothing is changed, made or left behind then.
    fn open_block_file(
        &self,
        name: &str,
        options: &BlockOptions,
    ) -> Result<Arc<dyn BlockFile>, FileError>;

    /// Maps a file, or makes one that is mapped, locked against everybody else for as long as it
    /// is, also against being opened as a block file.
    ///
    /// # Errors
    /// If the file cannot be had as asked for; nothing is changed, made or left behind then.
    fn map_file(&self, name: &str, options: &MapOptions) -> Result<Arc<dyn MappedFile>, FileError>;

    /// Opens a directory in this one, and makes it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made, or something else has its name.
    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Directory>, FileError>;

    /// Opens another directory of the same machine, or simulated disk, by its path.
    ///
    /// # Errors
    /// If there is none.
    fn elsewhere(&self, path: &Path) -> Result<Arc<dyn Directory>, FileError>;

    /// The names in the directory, sorted. What is not UTF-8, neither file nor directory, the
    /// unfinished part of a replacement, or what a file system has by itself is left out.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn list(&self) -> Result<Vec<Entry>, FileError>;

    /// What a name stands for, if anything.
    ///
    /// # Errors
    /// If the system refuses to say.
    fn find(&self, name: &str) -> Result<Option<EntryKind>, FileError>;

    /// The bytes of a small file.
    ///
    /// # Errors
    /// If there is none of this name ([`FileError::NoFile`]), it has more than
    /// [`SMALL_FILE_BYTES_MAX`], or the disk fails.
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError>;

    /// Replaces or makes a small file as a whole and makes that durable, names changed earlier
    /// included: whoever reads it, or finds it after a power cut, finds either what was there or
    /// all of `bytes`. Two replacements of one name must not happen at once.
    ///
    /// # Errors
    /// If it cannot be written. What was there is still there then, unless the last step failed,
    /// the sync of the directory: then either may be.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError>;

    /// What `<dyn Directory>::rename` does.
    ///
    /// # Errors
    /// As there.
    fn rename_at(&self, from: &str, to: &str, place: Place) -> Result<(), FileError>;

    /// Removes a file; that it does not exist is no error. Its space is given back when nobody has
    /// it open any more.
    ///
    /// # Errors
    /// If it exists and cannot be removed.
    fn remove(&self, name: &str) -> Result<(), FileError>;

    /// Removes an empty directory; that it does not exist is no error.
    ///
    /// # Errors
    /// If something is in it, or it cannot be removed.
    fn remove_subdirectory(&self, name: &str) -> Result<(), FileError>;

    /// What `<dyn Directory>::sync` does.
    ///
    /// # Errors
    /// As there.
    fn sync_at(&self, place: Place) -> Result<(), FileError>;

    /// Keeps other processes, and other parts of this one, from locking the directory for as long
    /// as what is returned lives. Whoever has the lock finds no unfinished replacements any more.
    ///
    /// # Errors
    /// [`FileError::Locked`] if somebody else has it.
    fn lock(&self) -> Result<DirectoryLock, FileError>;

    /// How many more bytes the file system has room for.
    ///
    /// # Errors
    /// If it does not say.
    fn free_bytes(&self) -> Result<u64, FileError>;
}

// Behind a vtable `#[track_caller]` yields the trait's own line; hence these two beside the trait.
impl dyn Directory {
    /// Makes all names durable that were made, changed or removed so far. Blocks the thread.
    ///
    /// # Errors
    /// If the disk fails: then each of them may be found either way, whatever a later sync says.
    #[track_caller]
    pub fn sync(&self) -> Result<(), FileError> {
        self.sync_at(Location::caller())
    }

    /// Gives a file another name, in place of the file that may have had that one; nobody ever
    /// finds neither. A file that is open stays so.
    ///
    /// # Errors
    /// If there is no such file ([`FileError::NoFile`]), or the system refuses.
    #[track_caller]
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.rename_at(from, to, Location::caller())
    }
}

/// Keeps a directory locked until it is dropped.
pub struct DirectoryLock(#[expect(dead_code, reason = "is there to be dropped")] Box<dyn Send>);

impl DirectoryLock {
    pub(crate) fn new(held: impl Send + 'static) -> DirectoryLock {
        DirectoryLock(Box::new(held))
    }
}

impl fmt::Debug for DirectoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectoryLock")
    }
}

/// The path of a name in a directory.
pub(crate) fn path_of(directory: &Path, name: &str) -> Result<PathBuf, FileError> {
    let leads_out = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    if leads_out || name.len() > NAME_BYTES_MAX || is_unfinished(name) {
        return Err(FileError::Name { directory: directory.into(), name: name.to_owned() });
    }
    Ok(directory.join(name))
}

/// What the replacement of a small file is called before it is complete.
pub(crate) fn unfinished(name: &str) -> String {
    format!("{UNFINISHED}{name}")
}

pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with(UNFINISHED)
}

/// Refuses what is too large to be read or written as a whole.
pub(crate) fn check_small(path: &Path, bytes: u64) -> Result<(), FileError> {
    if bytes <= SMALL_FILE_BYTES_MAX {
        return Ok(());
    }
    Err(FileError::TooLarge { path: path.into(), bytes, most: SMALL_FILE_BYTES_MAX })
}

#[cfg(test)]
mod tests;
