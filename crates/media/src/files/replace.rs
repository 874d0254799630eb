//! Replacement of a file's content, wherever its path leads: to a file, a device, a pipe, or a
//! descriptor that the process has open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use super::{beside, directory_of, is_null_for_both, remove, sync_directory_of};
use crate::raw::standard::was_closed;

/// Maximum number of symbolic links that are followed, as in the kernel.
const LINKS_MAX: u32 = 40;

/// End of a path, after all symbolic links.
enum End {
    /// A name in a directory, with or without something there.
    Name(PathBuf),
    /// A descriptor of this process, such as that of `/dev/stdout`.
    Descriptor(RawFd),
    /// A descriptor of another process, by the path in `/proc` that opens it.
    Foreign(PathBuf),
}

/// Follows the symbolic links of a path. The last one may lead to nothing yet.
fn end_of(path: &Path) -> io::Result<End> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Errno::ISDIR.into());
        }
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok(End::Name(path)),
        }
        let directory = fs::canonicalize(directory_of(&path))?;
        if directory.starts_with("/proc") {
            return Ok(match descriptor_of(&directory, &path) {
                Some(number) => End::Descriptor(number),
                None => End::Foreign(path),
            });
        }
        path = directory.join(fs::read_link(&path)?);
    }
    Err(Errno::LOOP.into())
}

/// Returns the number of the descriptor whose link a path is, if it is one of this process.
fn descriptor_of(directory: &Path, link: &Path) -> Option<RawFd> {
    let own = fs::canonicalize("/proc/self").ok()?;
    let is_own = directory.starts_with(own) && directory.ends_with("fd");
    link.file_name()?.to_str()?.parse().ok().filter(|_| is_own)
}

/// Duplicates a descriptor of this process, so that both have one position in the file.
fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    use rustix::stdio;
    let standard = |fd| {
        check_open(fd)?;
        Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
    };
    match number {
        0 => standard(stdio::stdin()),
        1 => standard(stdio::stdout()),
        2 => standard(stdio::stderr()),
        _ => {
            let process =
                rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
            Ok(rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
        }
    }
}

/// Fails for a standard descriptor that was closed when the program began: what the runtime has
/// opened in its place would take bytes without a word.
fn check_open(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let is_replaced = was_closed(descriptor.as_raw_fd()) && is_null_for_both(descriptor)?;
    if is_replaced { Err(Errno::BADF.into()) } else { Ok(()) }
}

/// Writes all bytes to a descriptor, also to one that does not block.
///
/// # Errors
/// If the descriptor cannot be written to, was closed when the program began, or the system
/// refuses.
pub fn write_to(descriptor: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    let descriptor = descriptor.as_fd();
    check_open(descriptor)?;
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut waiting = [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)];
                match poll(&mut waiting, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Replaces the file as a whole: a reader, also one after a power failure, finds either the old
/// content or all of `bytes`. Symbolic links are followed, also those that lead to nothing yet, and
/// the file keeps its mode and its owner. A descriptor, such as `/dev/stdout`, is written to at its
/// position. Anything but a regular file, such as a device or a pipe, is written to as well.
///
/// A file that cannot be replaced without harm is overwritten: one with several names, with
/// extended attributes, on which another file system is mounted, or in a directory that takes no
/// new file. A crash may leave a part of `bytes` there.
///
/// # Errors
/// If the file cannot be written; its old content is still there then, unless it was overwritten.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match end_of(path)? {
        End::Name(path) => path,
        End::Descriptor(number) => return write_to(duplicate(number)?, bytes),
        End::Foreign(path) => return File::options().append(true).open(path)?.write_all(bytes),
    };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(&path, bytes, Like::New),
        Err(error) => Err(error),
        Ok(there) if there.is_dir() => Err(Errno::ISDIR.into()),
        Ok(there) if !there.is_file() => File::options().write(true).open(path)?.write_all(bytes),
        Ok(_) => {
            // A file that may not be written is not replaced either.
            let old = File::options().write(true).open(&path)?;
            let can_be_replaced = old.metadata()?.nlink() == 1 && !has_attributes(&old);
            match can_be_replaced.then(|| replace(&path, bytes, Like::Old(&old))) {
                None => overwrite(old, bytes),
                Some(Err(error)) if is_of_the_name(&error) => overwrite(old, bytes),
                Some(result) => result,
            }
        }
    }
}

/// Returns the path of the file that [`write_atomically`] would write, behind all symbolic links,
/// also those that lead to nothing yet; the path itself if it names a descriptor, or if its links
/// cannot be followed.
#[must_use]
pub fn written_path(path: &Path) -> PathBuf {
    match end_of(path) {
        Ok(End::Name(end)) => end,
        _ => path.to_owned(),
    }
}

/// Writes or replaces a file that only its owner may read: a new one has the mode 600, an old one
/// keeps its owner and group and what they may do. It is replaced as a whole or not at all.
///
/// # Errors
/// If the path leads to something other than a file, or a file cannot be written there.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let End::Name(path) = end_of(path)? else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            replace(&path, bytes, Like::Private)
        }
        Err(error) => Err(error),
        Ok(there) if !there.is_file() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
        }
        Ok(_) => replace(&path, bytes, Like::Old(&File::options().write(true).open(&path)?)),
    }
}

/// Fails if [`write_atomically`] would, as far as that can be known without writing.
///
/// # Errors
/// If the file cannot be written.
pub fn check_writable(path: &Path) -> io::Result<()> {
    let path = match end_of(path)? {
        End::Name(path) => path,
        End::Descriptor(number) => {
            let flags = rustix::fs::fcntl_getfl(duplicate(number)?)?;
            let is_for_reading = flags & OFlags::RWMODE == OFlags::RDONLY;
            return if is_for_reading { Err(Errno::BADF.into()) } else { Ok(()) };
        }
        End::Foreign(path) => path,
    };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let trial = beside(&path, "trial")?;
            File::create_new(&trial)?;
            remove(&trial)
        }
        Err(error) => Err(error),
        Ok(there) if there.is_dir() => Err(Errno::ISDIR.into()),
        Ok(there) if there.is_file() => File::options().write(true).open(&path).map(drop),
        // Opening a pipe would wait for its reader.
        Ok(_) => Ok(rustix::fs::access(&path, Access::WRITE_OK)?),
    }
}

/// Returns true if a file has extended attributes, such as an access list, which a new file would
/// lack. The label that SELinux gives to every file does not count.
fn has_attributes(file: &File) -> bool {
    let mut names = vec![0; 64 << 10];
    let listed = rustix::fs::flistxattr(file, names.as_mut_slice());
    let listed = listed.ok().and_then(|bytes| names.get(..bytes)).unwrap_or_default();
    let mut names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.any(|name| name != b"security.selinux")
}

/// Returns true if an error says that a name cannot be made or replaced, though the file may be
/// written.
fn is_of_the_name(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    let kinds = [CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy];
    kinds.contains(&error.kind())
}

fn overwrite(mut old: File, bytes: &[u8]) -> io::Result<()> {
    old.set_len(0)?;
    old.write_all(bytes)?;
    old.sync_all()
}

/// Model of a new file's mode and owner.
#[derive(Clone, Copy)]
enum Like<'a> {
    /// Any new file of this process.
    New,
    /// One that only this user may read.
    Private,
    /// The file that it replaces.
    Old(&'a File),
}

/// Writes a new file and gives it the name of the old one, whose mode and owner it gets.
fn replace(path: &Path, bytes: &[u8], like: Like<'_>) -> io::Result<()> {
    let new = beside(path, "new")?;
    // Another process of the same number may have left it.
    remove(&new)?;
    let result = write_and_rename(&new, path, bytes, like);
    if result.is_err() {
        // The unfinished file is of no use. If it cannot be removed either, the first error tells
        // why.
        let _ = fs::remove_file(&new);
    }
    result
}

fn write_and_rename(new: &Path, path: &Path, bytes: &[u8], like: Like<'_>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if !matches!(like, Like::New) {
        // Until it has the old file's mode, only its owner may read it.
        options.mode(0o600);
    }
    let mut file = options.open(new)?;
    if let Like::Old(old) = like {
        let (old, new) = (old.metadata()?, file.metadata()?);
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        // Changing the owner may clear bits of the mode.
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(new, path)?;
    match sync_directory_of(path) {
        // A directory that may be written and not read, or one that its file system never syncs.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}
