//! Directories as a storage engine needs them: block files, mapped files, small files that are
//! replaced as a whole, names that change atomically, and a lock that excludes other processes.
//!
//! A [`Directory`] lies in this machine's file system ([`LocalDirectory`]) or on a simulated disk
//! (`simulated::disk`). Code written against the trait is tested on both, and one suite of tests
//! holds for the two: `crates/simulated/tests/alike`.
//!
//! **What survives a power cut.** The bytes of a block file, and its length, do after
//! [`BlockFile::sync_at`]; those of a mapped file do after [`MappedFile::persist_at`]. A *name*
//! does only after the sync of its directory: of names made, changed or removed since then any
//! combination of old and new may be found. The exception is [`Directory::replace`], which is
//! durable when it returns. An implementation may do more than this promises, and this machine's
//! does; the simulated disk does not.
//!
//! **After a failed sync** nothing can be trusted that was not durable before it, and a second sync
//! that succeeds proves nothing: the kernel may have forgotten that the bytes were dirty. Write
//! them again elsewhere, or give up.

use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::Place;

use crate::block::{BlockFile, BlockOptions};
use crate::endurance::DriveWritten;
use crate::mapped::{MapOptions, MappedFile};
use crate::placement::FileError;

mod local;

pub use local::LocalDirectory;

/// Maximum size of a small file, which is read as a whole.
pub const SMALL_FILE_BYTES_MAX: u64 = 32 << 20;
/// Maximum length of a name in bytes.
pub const NAME_BYTES_MAX: usize = 200;
/// Prefix of the names of unfinished replacements. No other file may begin with it.
const UNFINISHED: &str = ".unfinished-";

/// Kind of thing that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A file: small, mapped or of blocks.
    File,
    /// A directory.
    Directory,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// True if the name is a directory's.
    pub is_directory: bool,
}

impl Entry {
    /// Returns the kind of thing that the name stands for.
    #[must_use]
    pub const fn kind(&self) -> EntryKind {
        if self.is_directory { EntryKind::Directory } else { EntryKind::File }
    }
}

/// Identity of an open directory, equal for all paths that lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryId {
    /// Number of the device or simulated disk.
    pub device: u64,
    /// Number of the directory on it.
    pub node: u64,
}

/// A directory, held open. Names are single components: they never lead out of it.
pub trait Directory: Send + Sync + fmt::Debug {
    /// Returns the directory's path.
    fn path(&self) -> &Path;

    /// Returns the directory's identity, which does not depend on the path by which it was opened.
    fn id(&self) -> DirectoryId;

    /// Opens or makes a block file, locked against all other users for as long as it is open.
    ///
    /// # Errors
    /// If the file cannot be had as asked for; nothing is changed, made or left behind then.
    fn open_block_file(
        &self,
        name: &str,
        options: &BlockOptions,
    ) -> Result<Arc<dyn BlockFile>, FileError>;

    /// Maps a file, which it may make, locked against all other users for as long as it is mapped,
    /// also against being opened as a block file.
    ///
    /// # Errors
    /// If the file cannot be had as asked for; nothing is changed, made or left behind then.
    fn map_file(&self, name: &str, options: &MapOptions) -> Result<Arc<dyn MappedFile>, FileError>;

    /// Opens a directory in this one, and makes it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made, or the name is taken by something else.
    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Directory>, FileError>;

    /// Opens another directory of this machine, or of this simulated disk, by its path.
    ///
    /// # Errors
    /// If there is none.
    fn elsewhere(&self, path: &Path) -> Result<Arc<dyn Directory>, FileError>;

    /// Lists the names in the directory, sorted. Leaves out names that are not UTF-8, special
    /// files, unfinished replacements, and entries that a file system has of its own.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn list(&self) -> Result<Vec<Entry>, FileError>;

    /// Returns the kind of thing that a name stands for, if it exists.
    ///
    /// # Errors
    /// If the system refuses to tell.
    fn find(&self, name: &str) -> Result<Option<EntryKind>, FileError>;

    /// Returns the bytes of a small file.
    ///
    /// # Errors
    /// If it does not exist ([`FileError::NoFile`]), is larger than [`SMALL_FILE_BYTES_MAX`], or
    /// the disk fails.
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError>;

    /// Replaces or makes a small file as a whole, and makes it durable together with all earlier
    /// changes of names. A reader, also one after a power cut, finds either the old content or all
    /// of `bytes`. Two replacements of one name must not run at once.
    ///
    /// # Errors
    /// If it cannot be written. The old content is still there then, unless the last step failed,
    /// the sync of the directory: after that either may be found.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError>;

    /// Implements `<dyn Directory>::append`.
    ///
    /// # Errors
    /// If the file does not exist ([`FileError::NoFile`]), does not end at `end`, would become too
    /// large, or cannot be written.
    fn append_at(&self, name: &str, end: u64, bytes: &[u8], place: Place) -> Result<(), FileError>;

    /// Implements `<dyn Directory>::rename`.
    ///
    /// # Errors
    /// If there is no such file ([`FileError::NoFile`]), or the system refuses.
    fn rename_at(&self, from: &str, to: &str, place: Place) -> Result<(), FileError>;

    /// Removes a file, if it exists. Its space is freed once no process has it open any more.
    ///
    /// # Errors
    /// If it exists and cannot be removed.
    fn remove(&self, name: &str) -> Result<(), FileError>;

    /// Removes an empty directory, if it exists.
    ///
    /// # Errors
    /// If something is in it, or it cannot be removed.
    fn remove_subdirectory(&self, name: &str) -> Result<(), FileError>;

    /// Implements `<dyn Directory>::sync`.
    ///
    /// # Errors
    /// If the disk fails.
    fn sync_at(&self, place: Place) -> Result<(), FileError>;

    /// Locks the directory against other processes, and other parts of this one, until the result
    /// is dropped. Unfinished replacements are removed.
    ///
    /// # Errors
    /// [`FileError::Locked`] if another user has the lock.
    fn lock(&self) -> Result<DirectoryLock, FileError>;

    /// Returns how many more bytes the file system has room for.
    ///
    /// # Errors
    /// If the system does not tell.
    fn free_bytes(&self) -> Result<u64, FileError>;

    /// Returns the bytes that the drive beneath says it was told to write. A directory without a
    /// drive says that it has none.
    fn drive_written(&self) -> DriveWritten {
        DriveWritten::Unknown("there is no drive beneath it".to_owned())
    }
}

// Behind a vtable `#[track_caller]` yields the trait's own line; hence these beside the trait.
impl dyn Directory + '_ {
    /// Appends bytes to a small file, which ends at `end`, and makes them durable. Blocks the
    /// thread. After a power cut before it returns, any words of eight bytes of `bytes` may be
    /// zero, and the file may end anywhere between its old and its new end.
    ///
    /// # Errors
    /// If the file does not exist ([`FileError::NoFile`]), does not end at `end`, would become
    /// larger than [`SMALL_FILE_BYTES_MAX`], or cannot be written. Some of the bytes may be there
    /// then.
    #[track_caller]
    pub fn append(&self, name: &str, end: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.append_at(name, end, bytes, Location::caller())
    }

    /// Makes all names durable that were made, changed or removed so far. Blocks the thread.
    ///
    /// # Errors
    /// If the disk fails. Each of the names may then be found old or new, whatever a later sync
    /// returns.
    #[track_caller]
    pub fn sync(&self) -> Result<(), FileError> {
        self.sync_at(Location::caller())
    }

    /// Renames a file, replacing the file that may have had the new name; a reader always finds one
    /// of the two. An open file stays open.
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
    /// Returns a lock that is released when `held` is dropped.
    #[must_use]
    pub fn new(held: impl Send + 'static) -> DirectoryLock {
        DirectoryLock(Box::new(held))
    }
}

impl fmt::Debug for DirectoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectoryLock")
    }
}

/// Returns the path of a name in a directory.
///
/// # Errors
/// If the name is too long, leads out of the directory, or is that of an unfinished replacement.
pub fn path_of(directory: &Path, name: &str) -> Result<PathBuf, FileError> {
    let leads_out = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    if leads_out || name.len() > NAME_BYTES_MAX || is_unfinished(name) {
        return Err(FileError::Name { directory: directory.into(), name: name.to_owned() });
    }
    Ok(directory.join(name))
}

/// Returns the name under which a replacement of a small file is written before it is complete.
#[must_use]
pub fn unfinished(name: &str) -> String {
    format!("{UNFINISHED}{name}")
}

/// Returns true if the name is that of an unfinished replacement.
#[must_use]
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(UNFINISHED)
}

/// Refuses a file that is too large to be read or written as a whole.
///
/// # Errors
/// If it has more than [`SMALL_FILE_BYTES_MAX`] bytes.
pub fn check_small(path: &Path, bytes: u64) -> Result<(), FileError> {
    if bytes <= SMALL_FILE_BYTES_MAX {
        return Ok(());
    }
    Err(FileError::TooLarge { path: path.into(), bytes, most: SMALL_FILE_BYTES_MAX })
}

/// Refuses an append to a file that ends elsewhere than its user knows: another program has written
/// to it.
///
/// # Errors
/// If `found` is not `end`.
pub fn check_end(path: &Path, found: u64, end: u64) -> Result<(), FileError> {
    if found == end {
        return Ok(());
    }
    let what = format!("it ends at {found}, not at {end}: another program has written to it");
    let cause = io::Error::new(io::ErrorKind::InvalidData, what);
    Err(FileError::Io { doing: "append to", path: path.into(), cause })
}

#[cfg(test)]
mod tests;
