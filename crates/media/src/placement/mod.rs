//! Preparation of the file that a medium lives in: found or made, lengthened or refused, locked,
//! and with all of its space allocated, so that no later write finds the disk full.
//!
//! An existing file is never shortened, and is never taken over unless it is recognised. A new file
//! gets its name only after everything else has succeeded.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use crate::device::DeviceError;
use crate::files;
use crate::raw::buffer::IoBuffer;

/// Unit to which lengths of files are rounded up.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes at the beginning of a block device that must be zero for it to count as unused.
const DEVICE_HEAD_BYTES: usize = 4096;

/// Number of attempts at a lock, with pauses that add up to a second.
const LOCK_TRIES: usize = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Reason why a medium's file cannot be used. Every variant names the file and a way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file does not exist, and the options do not allow making it.
    #[error("{path} does not exist; check the path, or give a size so that it is made")]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The file does not exist, and the call never makes one.
    #[error("{path} does not exist")]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// A name that leads out of its directory, or that cannot be used.
    #[error(
        "'{name}' cannot name a file in {directory}: use one component of at most 200 bytes \
         that does not begin with .unfinished-"
    )]
    Name {
        /// The directory.
        directory: PathBuf,
        /// The name.
        name: String,
    },
    /// The file is too large to be read and written as a whole.
    #[error("{path} has {bytes} bytes, more than the {most} of a small file; check what it is")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The directory that would hold the file does not exist.
    #[error("{directory} is not a directory, so {path} cannot be made in it; make it first")]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// The path that should be a directory.
        directory: PathBuf,
    },
    /// The file belongs to something else.
    #[error("{path} holds something else; it is left alone: name another file, or remove it")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is shorter than required.
    #[error("{path} has {found} bytes, {needed} are needed; remove it, or lower the quota")]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        found: u64,
        /// The bytes that it must have.
        needed: u64,
    },
    /// The disk or the directory's quota has no room.
    #[error("no room for {bytes} bytes in {path}: {cause}; free some, or lower the quota")]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes that it should get.
        bytes: u64,
        /// The system's error.
        cause: io::Error,
    },
    /// Another process, or another part of this one, uses the file.
    #[error("{path} is in use by another process or tenant; stop that one, or name another file")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A directory, a pipe, or something else that cannot hold the bytes.
    #[error("{path} is {found}; name {wanted}")]
    WrongType {
        /// The file.
        path: PathBuf,
        /// Its type.
        found: &'static str,
        /// The type that it should have.
        wanted: &'static str,
    },
    /// Persistent memory was asked for, and the file is not on any.
    #[error("{path} is not on a DAX file system; add ,assume-dax to emulate persistent memory")]
    NotDax {
        /// The file.
        path: PathBuf,
    },
    /// A DAX device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// io_uring was asked for by name, and the kernel refuses it.
    #[error(
        "io_uring is refused for {path}: {cause}; let the io backend be auto or threads, or allow \
         it (containers forbid it by default)"
    )]
    IoUring {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The path of a directory leads elsewhere than when it was opened.
    #[error(
        "{path} is no longer the directory that was opened: that was renamed or removed, or \
         something is mounted over it. Nothing was changed in what is there now; bring it back, \
         then open it again"
    )]
    Moved {
        /// The directory's path.
        path: PathBuf,
    },
    /// Another system call failed.
    #[error("cannot {doing} {path}: {cause}")]
    Io {
        /// The action that failed: open, lock, map ...
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

impl FileError {
    /// Returns the error for a failure to allocate `bytes` for a file.
    #[must_use]
    pub fn allocation(path: &Path, bytes: u64, cause: io::Error) -> FileError {
        full_or(path, bytes, "allocate space for", cause)
    }

    /// Returns the error for a failure to write `bytes` to a file.
    #[must_use]
    pub fn write(path: &Path, bytes: u64, cause: io::Error) -> FileError {
        full_or(path, bytes, "write", cause)
    }

    /// Returns the kind of failure, so that callers can tell a full disk from a broken one.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            FileError::NotFound { .. } | FileError::NoFile { .. } => io::ErrorKind::NotFound,
            FileError::NoDirectory { .. } => io::ErrorKind::NotADirectory,
            FileError::Foreign { .. } | FileError::TooSmall { .. } => io::ErrorKind::InvalidData,
            FileError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            FileError::Name { .. } => io::ErrorKind::InvalidInput,
            FileError::NoSpace { .. } => io::ErrorKind::StorageFull,
            FileError::Locked { .. } => io::ErrorKind::ResourceBusy,
            FileError::WrongType { .. } | FileError::NotDax { .. } => io::ErrorKind::Unsupported,
            FileError::Moved { .. } => io::ErrorKind::Other,
            FileError::Device(error) => error.kind(),
            FileError::IoUring { cause, .. } | FileError::Io { cause, .. } => cause.kind(),
        }
    }
}

/// Returns true if a file was not opened because this process, or the system, has too many open.
#[must_use]
pub fn lacks_descriptors(cause: &io::Error) -> bool {
    let code = cause.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// A description of the file that is wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    /// Creates the file with this many bytes if it does not exist or is empty.
    pub(crate) create: Option<u64>,
    /// Lengthens a file that has fewer bytes than `create`.
    pub(crate) grow: bool,
    /// First eight bytes of a file of ours.
    pub(crate) magic: Option<[u8; 8]>,
    /// True if a block device is accepted.
    pub(crate) device: bool,
    /// Opens an existing file for reads only: nothing of it is changed, no space is allocated, and
    /// it need not be writable.
    pub(crate) read_only: bool,
}

/// An open, locked file that is long enough. Unless it is kept, dropping it undoes all that was
/// changed.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Dropped before the file, and thus while the file is still locked.
    undo: UndoAt,
    file: File,
    len: u64,
    read_only: bool,
}

/// Files that are synced when they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Synced {
    All,
    /// Files that were made or have grown.
    New,
    /// Files that existed with their length.
    Found,
}

#[derive(Debug)]
struct UndoAt {
    undo: Undo,
    path: PathBuf,
}

#[derive(Debug)]
enum Undo {
    Nothing,
    /// The file has no name yet; keeping it gives it one.
    Unnamed,
    Remove,
    Shorten(u64),
}

impl Placement {
    /// Opens or makes the file at `path`.
    pub(crate) fn prepare(&self, path: &Path) -> Result<Prepared, FileError> {
        let open = || {
            // Checked before opening, since opening a pipe for reads waits for a writer.
            let kind = std::fs::metadata(path)?.file_type();
            if !self.suits(kind) {
                return Ok(Err(kind));
            }
            OpenOptions::new().read(true).write(!self.read_only).open(path).map(Ok)
        };
        match open() {
            Ok(Ok(file)) => self.adopt(path, file),
            Ok(Err(kind)) => Err(wrong_type(path, kind)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make(path),
            Err(cause) => Err(FileError::Io { doing: "open", path: path.into(), cause }),
        }
    }

    fn suits(&self, kind: FileType) -> bool {
        kind.is_file() || (kind.is_block_device() && self.device)
    }

    fn make(&self, path: &Path) -> Result<Prepared, FileError> {
        let Some(bytes) = self.create else {
            return Err(FileError::NotFound { path: path.into() });
        };
        let directory = files::directory_of(path);
        if !directory.is_dir() {
            let directory = directory.into();
            return Err(FileError::NoDirectory { path: path.into(), directory });
        }
        let (file, undo) = open_new(path, directory).map_err(|cause| FileError::Io {
            doing: "make",
            path: path.into(),
            cause,
        })?;
        let undo = UndoAt { undo, path: path.into() };
        lock(&file, path)?;
        self.fill(Prepared { undo, file, len: 0, read_only: false }, bytes)
    }

    fn adopt(&self, path: &Path, mut file: File) -> Result<Prepared, FileError> {
        let io = |doing| move |cause| FileError::Io { doing, path: path.into(), cause };
        let kind = file.metadata().map_err(io("look at"))?.file_type();
        if !self.suits(kind) {
            return Err(wrong_type(path, kind));
        }
        // Locked before it is looked at, since the holder of the lock may still be making it.
        lock(&file, path)?;
        let len = file.seek(SeekFrom::End(0)).map_err(io("measure"))?;
        let device = kind.is_block_device();
        self.recognise(path, &file, len, device)?;
        let undo = UndoAt { undo: Undo::Nothing, path: path.into() };
        let mut prepared = Prepared { undo, file, len, read_only: self.read_only };
        let needed = self.create.map_or(0, |bytes| bytes.next_multiple_of(PAGE_BYTES));
        if device || (len > 0 && len >= needed) {
            let needed = needed.max(PAGE_BYTES);
            if len < needed {
                return Err(FileError::TooSmall { path: path.into(), found: len, needed });
            }
            if !device && !self.read_only {
                prepared.allocate_missing()?;
            }
            return Ok(prepared);
        }
        match self.create {
            Some(bytes) if self.grow || len == 0 => {
                prepared.undo.undo = Undo::Shorten(len);
                self.fill(prepared, bytes)
            }
            Some(_) => Err(FileError::TooSmall { path: path.into(), found: len, needed }),
            None => Err(FileError::TooSmall { path: path.into(), found: 0, needed: PAGE_BYTES }),
        }
    }

    /// Refuses a file that does not begin with the magic bytes.
    fn recognise(&self, path: &Path, file: &File, len: u64, device: bool) -> Result<(), FileError> {
        let io = |cause| FileError::Io { doing: "read", path: path.into(), cause };
        let (Some(magic), true) = (self.magic, len > 0) else { return Ok(()) };
        let mut head = [0; DEVICE_HEAD_BYTES];
        let head = &mut head[..DEVICE_HEAD_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
        file.read_exact_at(head, 0).map_err(io)?;
        if head.starts_with(&magic) {
            return Ok(());
        }
        if device && !self.read_only && head.iter().all(|&byte| byte == 0) {
            return file.write_all_at(&magic, 0).map_err(io);
        }
        Err(FileError::Foreign { path: path.into() })
    }

    /// Gives a new, empty or growing file its length.
    fn fill(&self, mut prepared: Prepared, bytes: u64) -> Result<Prepared, FileError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        prepared.allocate(bytes)?;
        if let (Some(magic), 0) = (self.magic, prepared.len) {
            let io = |cause| FileError::Io { doing: "write", path: prepared.path().into(), cause };
            prepared.file.write_all_at(&magic, 0).map_err(io)?;
        }
        prepared.len = bytes;
        Ok(prepared)
    }
}

impl Prepared {
    /// Returns the file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns its bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.undo.path
    }

    /// Allocates the first `bytes` of the file, lengthening it where necessary.
    fn allocate(&mut self, bytes: u64) -> Result<(), FileError> {
        allocate(&self.file, 0, bytes)
            .map_err(|cause| FileError::allocation(self.path(), bytes, cause))
    }

    /// Allocates the space that an existing file lacks.
    fn allocate_missing(&mut self) -> Result<(), FileError> {
        let bytes = self.len;
        let done = first_missing(&self.file, bytes).and_then(|missing| match missing {
            Some(from) => allocate(&self.file, from, bytes - from),
            None => Ok(()),
        });
        done.map_err(|cause| FileError::allocation(self.path(), bytes, cause))
    }

    /// Gives the file its name, makes it durable, and hands it over.
    pub(crate) fn keep(self) -> Result<File, FileError> {
        self.keep_with(Synced::All)
    }

    /// Gives a new file its name and hands it over, without waiting for a sync of a file that
    /// existed with its length: for media that promise nothing when the machine fails.
    pub(crate) fn keep_as_found(self) -> Result<File, FileError> {
        self.keep_with(Synced::New)
    }

    /// Gives a new file its name and hands it over, without waiting for a sync of either: for files
    /// that count only once they are complete.
    pub(crate) fn keep_unsynced(self) -> Result<File, FileError> {
        self.keep_with(Synced::Found)
    }

    fn keep_with(mut self, synced: Synced) -> Result<File, FileError> {
        let path = self.path().to_path_buf();
        let place = path.as_path();
        let io = |doing| move |cause| FileError::Io { doing, path: place.into(), cause };
        let done = match self.undo.undo {
            // A file opened for reads only has nothing of this process to make durable.
            Undo::Nothing if self.read_only || synced == Synced::New => Ok(()),
            // Its bytes and length may be those of a process that died before it synced them.
            // Nothing depends on the rest of its metadata, so `sync_data` is enough.
            Undo::Nothing => self.file.sync_data(),
            _ if synced == Synced::Found => Ok(()),
            _ => self.file.sync_all(),
        };
        done.map_err(io("sync"))?;
        if let Undo::Unnamed = self.undo.undo {
            let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, unnamed, CWD, &path, AtFlags::SYMLINK_FOLLOW)
                .map_err(|errno| io("make")(errno.into()))?;
            self.undo.undo = Undo::Remove;
        }
        if !matches!(self.undo.undo, Undo::Nothing) && synced != Synced::Found {
            files::sync_directory_of(&path).map_err(io("sync the directory of"))?;
        }
        self.undo.undo = Undo::Nothing;
        Ok(self.file)
    }
}

impl Drop for UndoAt {
    fn drop(&mut self) {
        // An error is being reported already; one of cleaning up would only hide its cause.
        let _ = match self.undo {
            Undo::Remove => files::remove(&self.path),
            Undo::Shorten(len) => {
                OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(len))
            }
            Undo::Nothing | Undo::Unnamed => Ok(()),
        };
    }
}

fn wrong_type(path: &Path, kind: FileType) -> FileError {
    let found = match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_block_device() => "a block device",
        kind if kind.is_char_device() => "a character device",
        _ => "no file",
    };
    let wanted = match kind.is_char_device() {
        true => "a regular file, or write pmem:PATH if it is a DAX device",
        false => "a regular file",
    };
    FileError::WrongType { path: path.into(), found, wanted }
}

/// Opens a new file without a name if the file system supports that, else with its final name.
fn open_new(path: &Path, directory: &Path) -> io::Result<(File, Undo)> {
    let unnamed = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::TMPFILE.bits() as i32)
        .mode(0o640)
        .open(directory);
    let (file, undo) = match unnamed {
        Ok(file) if Path::new("/proc/self/fd").is_dir() => (file, Undo::Unnamed),
        _ => open_named(path)?,
    };
    give_to_owner(&file, directory);
    Ok((file, undo))
}

/// Gives a new file to the owner of its directory, if the superuser has made it: the owner could
/// not use what it belongs to any more.
pub(crate) fn give_to_owner(file: &File, directory: &Path) {
    if rustix::process::geteuid().is_root() {
        // Where the file system or a container refuses it, the file stays as it was made.
        let _ = std::fs::metadata(directory)
            .and_then(|owner| fchown(file, Some(owner.uid()), Some(owner.gid())));
    }
}

fn open_named(path: &Path) -> io::Result<(File, Undo)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o640).open(path)?;
    Ok((file, Undo::Remove))
}

/// Locks the file, or reports that it is in use. It retries for a while, since a process that was
/// just killed may still hold the lock: the kernel finishes its writes and closes its rings first
/// (40 to 90 ms were seen). The holder of the lock therefore need not fear late writes.
pub(crate) fn lock(file: &File, path: &Path) -> Result<(), FileError> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(LOCK_PAUSE),
            Err(errno) => {
                let (path, cause) = (path.into(), errno.into());
                return Err(FileError::Io { doing: "lock", path, cause });
            }
        }
    }
    Err(FileError::Locked { path: path.into() })
}

/// Returns the offset from which on space may be missing in the first `bytes` of a file; none if
/// all of it is certainly there. Allocating a file that lacks nothing would only change its times,
/// but takes some milliseconds for 64 MiB.
///
/// Two sources must agree. A file system that cannot search for holes reports none; one that counts
/// blocks also counts some that hold no data or lie behind the end. Space that was allocated but
/// never written may be reported as a hole, and is then allocated once more.
fn first_missing(file: &File, bytes: u64) -> io::Result<Option<u64>> {
    const COUNTED_IN: u64 = 512;
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)) {
        Ok(hole) if hole < bytes => return Ok(Some(hole)),
        Ok(_) => {}
        Err(_) => return Ok(Some(0)),
    }
    let has_enough = file.metadata()?.blocks().saturating_mul(COUNTED_IN) >= bytes;
    Ok(if has_enough { None } else { Some(0) })
}

/// Allocates a range of a file, lengthening it where necessary. If the file system cannot, zeroes
/// are written behind the end; holes before it stay, since nothing certainly tells them from data.
pub(crate) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    // tmpfs gives up on any signal, also on the notifications of a ring to its thread.
    let allocated = rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes)
    });
    match allocated {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let start = file.metadata()?.len().max(offset);
            write_zeroes(file, start, (offset + bytes).saturating_sub(start))
        }
        result => Ok(result?),
    }
}

fn write_zeroes(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    const STEP: u64 = 1 << 20;
    // Checked first, so that the disk is not filled at other users' expense.
    let disk = rustix::fs::fstatvfs(file)?;
    if bytes / disk.f_frsize.max(1) >= disk.f_bavail {
        return Err(Errno::NOSPC.into());
    }
    // Aligned, since the file may be open for direct I/O.
    let zeroes = IoBuffer::new(STEP as usize);
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(STEP);
        file.write_all_at(&zeroes[..step as usize], offset + done)?;
        done += step;
    }
    Ok(())
}

fn full_or(path: &Path, bytes: u64, doing: &'static str, cause: io::Error) -> FileError {
    let full =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    if full.contains(&cause.kind()) {
        FileError::NoSpace { path: path.into(), bytes, cause }
    } else {
        FileError::Io { doing, path: path.into(), cause }
    }
}

#[cfg(test)]
mod tests;
