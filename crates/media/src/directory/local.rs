//! Directories of this machine's file system.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::Place;
use entresol_base::mutants::{SiteKind, removed};
use rustix::fs::OFlags;

use super::{Directory, DirectoryId, DirectoryLock, Entry, EntryKind};
use super::{check_end, check_small, is_unfinished, path_of, unfinished};
use crate::block::{self, BlockFile, BlockOptions, Drive, SlowMapped};
use crate::endurance::DriveWritten;
use crate::files;
use crate::mapped::{self, MapOptions, MappedFile};
use crate::model::ModelName;
use crate::placement::{self, FileError, give_to_owner};

/// Directory that ext4 keeps in the root of a file system, which may well be used as a directory of
/// one's own.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory of this machine's file system, held open.
///
/// Files in it are opened, made and removed by its path. Before each such call the path is checked
/// to lead here still: the directory may have been renamed, and another one, with other files of
/// equal names, may have taken its place.
#[derive(Debug)]
pub struct LocalDirectory {
    path: PathBuf,
    handle: File,
    id: DirectoryId,
    /// Drive to which all files in it are slowed.
    drive: Option<Arc<Drive>>,
}

impl LocalDirectory {
    /// Opens the directory, and makes it (but not its parents) if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made or opened, or the name is taken by something else.
    pub fn open(path: &Path) -> Result<LocalDirectory, FileError> {
        let path = &absolute(path)?;
        refuse_device(path)?;
        match fs::create_dir(path) {
            Ok(()) => {
                let failed = failed("sync the directory of", path);
                files::sync_directory_of(path).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if is_of_parent(&error) => return Err(not_in(path, error)),
            Err(error) => return Err(failed("make", path)(error)),
        }
        LocalDirectory::open_existing(path)
    }

    /// Opens a directory that exists.
    ///
    /// # Errors
    /// If it does not exist, or is no directory.
    pub fn open_existing(path: &Path) -> Result<LocalDirectory, FileError> {
        let path = &absolute(path)?;
        refuse_device(path)?;
        // Opening a pipe would wait for a writer.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let handle = File::options().read(true).custom_flags(flags).open(path);
        let handle = handle.map_err(failed("open", path))?;
        let metadata = handle.metadata().map_err(failed("look at", path))?;
        if !metadata.is_dir() {
            let (found, wanted) = ("no directory", "a directory");
            return Err(FileError::WrongType { path: path.into(), found, wanted });
        }
        Ok(LocalDirectory { path: path.into(), handle, id: id_of(&metadata), drive: None })
    }

    /// Slows all block files opened in this directory, and in those below it, to one drive, in real
    /// time. A mapped file's persist takes as long as the drive takes to write its range, new or
    /// not. Small files are not slowed.
    ///
    /// # Errors
    /// If the model is one of memory.
    pub fn slowed(mut self, model: ModelName) -> Result<LocalDirectory, FileError> {
        self.drive = Some(Drive::new(model).map_err(failed("slow down", &self.path))?);
        Ok(self)
    }

    /// Fails if the path leads to another directory than the one that is open.
    fn check_here(&self) -> Result<(), FileError> {
        match fs::metadata(&self.path) {
            Ok(metadata) if id_of(&metadata) == self.id => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("look at", &self.path)(error))
            }
            _ => Err(FileError::Moved { path: self.path.clone() }),
        }
    }

    /// Returns the path of a name, after checking that the directory's path still leads here.
    fn path_of(&self, name: &str) -> Result<PathBuf, FileError> {
        let path = path_of(&self.path, name)?;
        self.check_here().map(|()| path)
    }

    fn write_and_rename(&self, unfinished: &Path, to: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(unfinished)?;
        if let Ok(replaced) = fs::metadata(to) {
            file.set_permissions(replaced.permissions())?;
        }
        give_to_owner(&file, &self.path);
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        fs::rename(unfinished, to)
    }
}

impl Directory for LocalDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn id(&self) -> DirectoryId {
        self.id
    }

    fn open_block_file(
        &self,
        name: &str,
        options: &BlockOptions,
    ) -> Result<Arc<dyn BlockFile>, FileError> {
        let path = self.path_of(name)?;
        match &self.drive {
            Some(drive) => block::open_on(&path, options, Some(drive)),
            None => block::open_block_file(&path, options),
        }
    }

    fn map_file(&self, name: &str, options: &MapOptions) -> Result<Arc<dyn MappedFile>, FileError> {
        let file = mapped::open(&self.path_of(name)?, options)?;
        Ok(match &self.drive {
            Some(drive) => SlowMapped::over(file, drive),
            None => file,
        })
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Directory>, FileError> {
        let inner = LocalDirectory::open(&self.path_of(name)?)?;
        Ok(Arc::new(LocalDirectory { drive: self.drive.clone(), ..inner }))
    }

    fn elsewhere(&self, path: &Path) -> Result<Arc<dyn Directory>, FileError> {
        Ok(Arc::new(LocalDirectory::open_existing(path)?))
    }

    fn list(&self) -> Result<Vec<Entry>, FileError> {
        let list = || -> io::Result<Vec<Entry>> {
            let mut entries = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let is_of_system = kind.is_dir() && name == LOST_AND_FOUND;
                let is_known = kind.is_file() || kind.is_dir();
                if is_known && !is_of_system && !is_unfinished(&name) {
                    entries.push(Entry { name, is_directory: kind.is_dir() });
                }
            }
            entries.sort_unstable();
            Ok(entries)
        };
        self.check_here()?;
        list().map_err(failed("list", &self.path))
    }

    fn find(&self, name: &str) -> Result<Option<EntryKind>, FileError> {
        let path = self.path_of(name)?;
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Ok(Some(EntryKind::Directory)),
            Ok(_) => Ok(Some(EntryKind::File)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("look at", &path)(error)),
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let path = self.path_of(name)?;
        let metadata = fs::metadata(&path).map_err(absent_or("open", &path))?;
        if !metadata.is_file() {
            // Opening a pipe for reads waits for a writer.
            let (found, wanted) = ("no file", "a regular file");
            return Err(FileError::WrongType { path, found, wanted });
        }
        check_small(&path, metadata.len())?;
        let mut file = File::open(&path).map_err(absent_or("open", &path))?;
        let mut content = Vec::with_capacity(metadata.len() as usize);
        file.read_to_end(&mut content).map_err(failed("read", &path))?;
        Ok(content)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.path_of(name)?;
        check_small(&path, bytes.len() as u64)?;
        let unfinished = self.path.join(unfinished(name));
        if let Err(cause) = self.write_and_rename(&unfinished, &path, bytes) {
            // The unfinished file is of no use. If it cannot be removed either, the first error
            // tells why.
            let _ = fs::remove_file(&unfinished);
            return Err(FileError::write(&path, bytes.len() as u64, cause));
        }
        self.sync_at(Location::caller())
    }

    fn append_at(&self, name: &str, end: u64, bytes: &[u8], place: Place) -> Result<(), FileError> {
        let path = self.path_of(name)?;
        check_small(&path, end.saturating_add(bytes.len() as u64))?;
        let file = File::options().write(true).open(&path).map_err(absent_or("open", &path))?;
        let found = file.metadata().map_err(failed("look at", &path))?.len();
        check_end(&path, found, end)?;
        let written = file.write_all_at(bytes, end);
        written.map_err(|cause| FileError::write(&path, bytes.len() as u64, cause))?;
        if removed(SiteKind::Sync, place) {
            return Ok(());
        }
        file.sync_data().map_err(failed("sync", &path))
    }

    fn rename_at(&self, from: &str, to: &str, _: Place) -> Result<(), FileError> {
        let (from, to) = (self.path_of(from)?, path_of(&self.path, to)?);
        fs::rename(&from, to).map_err(absent_or("rename", &from))
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        let path = self.path_of(name)?;
        files::remove(&path).map_err(failed("remove", &path))
    }

    fn remove_subdirectory(&self, name: &str) -> Result<(), FileError> {
        let path = self.path_of(name)?;
        match fs::remove_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(failed("remove", &path)),
        }
    }

    fn sync_at(&self, place: Place) -> Result<(), FileError> {
        if removed(SiteKind::DirectorySync, place) {
            return Ok(());
        }
        self.handle.sync_all().map_err(failed("sync", &self.path))
    }

    fn lock(&self) -> Result<DirectoryLock, FileError> {
        self.check_here()?;
        // A separate open file description, since a lock belongs to one.
        let handle = File::open(&self.path).map_err(failed("open", &self.path))?;
        placement::lock(&handle, &self.path)?;
        for entry in fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            let entry = entry.map_err(failed("list", &self.path))?;
            if entry.file_name().to_str().is_some_and(is_unfinished) {
                let path = entry.path();
                match files::remove(&path) {
                    // A process that may not remove it replaces nothing either.
                    Err(error) if is_refused(&error) => {}
                    result => result.map_err(failed("remove", &path))?,
                }
            }
        }
        Ok(DirectoryLock::new(handle))
    }

    fn free_bytes(&self) -> Result<u64, FileError> {
        let space = rustix::fs::fstatvfs(&self.handle)
            .map_err(|errno| failed("ask for the space in", &self.path)(errno.into()))?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn drive_written(&self) -> DriveWritten {
        DriveWritten::of(&self.path)
    }
}

/// Makes the path independent of the working directory.
fn absolute(path: &Path) -> Result<PathBuf, FileError> {
    std::path::absolute(path).map_err(failed("open", path))
}

/// Fails if a device is named where files are to be. It is not opened, which may have effects.
fn refuse_device(path: &Path) -> Result<(), FileError> {
    if !files::is_character_device(path) {
        return Ok(());
    }
    let found = "a character device";
    let wanted = "a directory; on persistent memory it needs a DAX file system (the mode fsdax), \
                  since a DAX device holds one region and no files";
    Err(FileError::WrongType { path: path.into(), found, wanted })
}

fn is_of_parent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the error of a directory that cannot be made in the one above it.
fn not_in(path: &Path, cause: io::Error) -> FileError {
    let directory = files::directory_of(path);
    if !directory.is_dir() {
        return FileError::NoDirectory { path: path.into(), directory: directory.into() };
    }
    // `/proc`, for example, has what the kernel shows there and nothing else.
    let what = "the file system there makes no directories; name a place on another one";
    FileError::Io { doing: "make", path: path.into(), cause: io::Error::new(cause.kind(), what) }
}

fn id_of(metadata: &Metadata) -> DirectoryId {
    DirectoryId { device: metadata.dev(), node: metadata.ino() }
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> FileError {
    move |cause| FileError::Io { doing, path: path.into(), cause }
}

/// Returns true if the file system is read-only or permissions forbid the change.
fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

fn absent_or(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> FileError {
    move |cause| match cause.kind() {
        io::ErrorKind::NotFound => FileError::NoFile { path: path.into() },
        _ => failed(doing, path)(cause),
    }
}
