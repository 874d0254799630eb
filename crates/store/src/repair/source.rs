//! The store that a check or a salvage reads: its directories and block files, behind which the
//! first error is noted that lies in what surrounds the store, and is no damage.
//!
//! A check goes on after an error, and counts what cannot be read as lost. All calls that may fail
//! for such a reason pass through here, so that none of the places that go on can take the error
//! for damage.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use entresol_base::Place;
use entresol_base::sync::Mutex;
use entresol_media::directory::{DirectoryId, DirectoryLock, Entry, EntryKind};
use entresol_media::endurance::DriveWritten;
use entresol_media::{
    Alignment, Backend, BlockFile, BlockOptions, Directory, FileError, IoBuffer, IoQueue,
    MapOptions, MappedFile,
};

use crate::StoreError;
use crate::error::{is_call_surrounded, is_file_surrounded};
use crate::manifest::DESCRIPTORS_BESIDE;
use crate::names::MANIFEST;

/// Source of a check or a salvage.
#[derive(Debug)]
pub(crate) struct Source {
    directory: Arc<dyn Directory>,
    notes: Arc<Notes>,
}

#[derive(Debug)]
struct Notes {
    first: Mutex<Option<StoreError>>,
    /// Directories of the store that were opened.
    directories: Mutex<Vec<Arc<dyn Directory>>>,
    /// Approximate number of descriptors that the work needs.
    needed: AtomicUsize,
}

impl Source {
    /// Creates a source of a store with this home.
    pub(crate) fn over(home: &Arc<dyn Directory>) -> Source {
        let notes = Arc::new(Notes {
            first: Mutex::new(None),
            directories: Mutex::default(),
            needed: AtomicUsize::new(DESCRIPTORS_BESIDE),
        });
        Source { directory: notes.watch(home.clone()), notes }
    }

    /// Returns the store's home. What is opened from it is watched as well.
    pub(crate) fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// Sets the approximate number of descriptors that the work needs.
    pub(crate) fn needs(&self, descriptors: usize) {
        self.notes.needed.store(descriptors, Relaxed);
    }

    /// Returns true if an error was noted.
    pub(crate) fn has_failed(&self) -> bool {
        self.notes.first.lock().is_some()
    }

    /// Turns a result into the noted error, if there is one. If the result is not sound, a
    /// directory that is no longer there is such an error too: its files may have been removed
    /// before it.
    ///
    /// # Errors
    /// Fails if an error was noted, or with the result.
    pub(crate) fn judge<T>(
        &self,
        result: Result<T, StoreError>,
        is_sound: impl FnOnce(&T) -> bool,
    ) -> Result<T, StoreError> {
        if !result.as_ref().is_ok_and(is_sound) {
            for directory in &*self.notes.directories.lock() {
                let _ = self.notes.pass(directory.path(), directory.find(MANIFEST));
            }
        }
        let noted = self.notes.first.lock().take();
        let judged = noted.map_or(result, Err);
        judged.map_err(|error| error.with_descriptors(self.notes.needed.load(Relaxed)))
    }
}

impl Notes {
    fn watch(self: &Arc<Self>, inner: Arc<dyn Directory>) -> Arc<dyn Directory> {
        self.directories.lock().push(inner.clone());
        Arc::new(WatchedDirectory { inner, notes: self.clone() })
    }

    /// Passes a result on. An error of the surroundings is noted, and one like it is passed on.
    fn pass<T>(&self, path: &Path, result: Result<T, FileError>) -> Result<T, FileError> {
        result.map_err(|error| {
            if !is_file_surrounded(&error) {
                return error;
            }
            let like = match &error {
                FileError::Moved { path } => FileError::Moved { path: path.clone() },
                FileError::Locked { path } => FileError::Locked { path: path.clone() },
                FileError::Io { doing, path, cause } => {
                    FileError::Io { doing, path: path.clone(), cause: like(cause) }
                }
                other => {
                    FileError::Io { doing: "open", path: path.into(), cause: other.kind().into() }
                }
            };
            self.first.lock().get_or_insert_with(|| error.into());
            like
        })
    }

    /// Passes the result of a read on, as [`Notes::pass`] does.
    fn pass_read<T>(&self, (path, offset): (&Path, u64), result: io::Result<T>) -> io::Result<T> {
        result.map_err(|cause| {
            if !is_call_surrounded(&cause) {
                return cause;
            }
            let (like, doing, path) = (like(&cause), "read", path.into());
            let error = || StoreError::Io { doing, path, offset, cause };
            self.first.lock().get_or_insert_with(error);
            like
        })
    }
}

fn like(cause: &io::Error) -> io::Error {
    cause.raw_os_error().map_or_else(|| cause.kind().into(), io::Error::from_raw_os_error)
}

/// Directory of the store.
#[derive(Debug)]
struct WatchedDirectory {
    inner: Arc<dyn Directory>,
    notes: Arc<Notes>,
}

impl WatchedDirectory {
    fn pass<T>(&self, result: Result<T, FileError>) -> Result<T, FileError> {
        self.notes.pass(self.inner.path(), result)
    }
}

impl Directory for WatchedDirectory {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn id(&self) -> DirectoryId {
        self.inner.id()
    }

    fn open_block_file(
        &self,
        name: &str,
        options: &BlockOptions,
    ) -> Result<Arc<dyn BlockFile>, FileError> {
        let inner = self.pass(self.inner.open_block_file(name, options))?;
        Ok(Arc::new(WatchedFile { inner, notes: self.notes.clone() }))
    }

    fn map_file(&self, name: &str, options: &MapOptions) -> Result<Arc<dyn MappedFile>, FileError> {
        self.pass(self.inner.map_file(name, options))
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Directory>, FileError> {
        Ok(self.notes.watch(self.pass(self.inner.subdirectory(name))?))
    }

    fn elsewhere(&self, path: &Path) -> Result<Arc<dyn Directory>, FileError> {
        Ok(self.notes.watch(self.pass(self.inner.elsewhere(path))?))
    }

    fn list(&self) -> Result<Vec<Entry>, FileError> {
        self.pass(self.inner.list())
    }

    fn find(&self, name: &str) -> Result<Option<EntryKind>, FileError> {
        self.pass(self.inner.find(name))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        self.pass(self.inner.read(name))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.inner.replace(name, bytes)
    }

    fn append_at(&self, name: &str, end: u64, bytes: &[u8], place: Place) -> Result<(), FileError> {
        self.inner.append_at(name, end, bytes, place)
    }

    fn rename_at(&self, from: &str, to: &str, place: Place) -> Result<(), FileError> {
        self.inner.rename_at(from, to, place)
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        self.inner.remove(name)
    }

    fn remove_subdirectory(&self, name: &str) -> Result<(), FileError> {
        self.inner.remove_subdirectory(name)
    }

    fn sync_at(&self, place: Place) -> Result<(), FileError> {
        self.inner.sync_at(place)
    }

    fn lock(&self) -> Result<DirectoryLock, FileError> {
        self.pass(self.inner.lock())
    }

    fn free_bytes(&self) -> Result<u64, FileError> {
        self.inner.free_bytes()
    }

    fn drive_written(&self) -> DriveWritten {
        self.inner.drive_written()
    }
}

/// Block file of the store.
#[derive(Debug)]
struct WatchedFile {
    inner: Arc<dyn BlockFile>,
    notes: Arc<Notes>,
}

impl WatchedFile {
    fn pass<T>(&self, offset: u64, result: io::Result<T>) -> io::Result<T> {
        self.notes.pass_read((self.inner.path(), offset), result)
    }
}

impl BlockFile for WatchedFile {
    fn read_at(&self, offset: u64, buffer: &mut IoBuffer) -> io::Result<usize> {
        self.pass(offset, self.inner.read_at(offset, buffer))
    }

    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        self.pass(offset, self.inner.read_out(offset, len, out))
    }

    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.inner.try_read_out(offset, len, out)
    }

    fn write_at(&self, offset: u64, buffer: &IoBuffer) -> io::Result<()> {
        self.inner.write_at(offset, buffer)
    }

    fn sync_at(&self, place: Place) -> io::Result<()> {
        self.inner.sync_at(place)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> Result<(), FileError> {
        self.inner.set_len(bytes)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.inner.allocate(offset, bytes)
    }

    fn alignment(&self) -> Alignment {
        self.inner.alignment()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn backend(&self) -> Backend {
        self.inner.backend()
    }

    fn remarks(&self) -> &[String] {
        self.inner.remarks()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn buffer(&self, len: usize) -> IoBuffer {
        self.inner.buffer(len)
    }

    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>> {
        self.inner.clone().queue(depth)
    }
}
