//! Small files as a whole: file operations for other crates, on files that are no media.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FileType, OFlags};

mod replace;

pub use replace::{check_writable, write_atomically, write_private, write_to, written_path};

/// Maximum size of a file that is read as one text. No configuration or table is larger.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Maximum length of the beginning that the name of a file beside another shares with it.
const NAME_KEPT_BYTES: usize = 200;

/// Returns the text in the file.
///
/// # Errors
/// If the file cannot be read, is larger than [`TEXT_BYTES_MAX`], or is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let mut bytes = file.metadata()?.len();
    let mut text = String::new();
    if bytes <= TEXT_BYTES_MAX {
        // A device or a pipe has no length.
        bytes = file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)? as u64;
    }
    if bytes > TEXT_BYTES_MAX {
        let reason = format!("{bytes} bytes are more than the {TEXT_BYTES_MAX} of a text");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

/// Returns the bytes in the file.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Returns true if the path lies in the directory or is it. The path need not exist.
///
/// # Errors
/// If one of the two cannot be looked at.
pub fn is_within(path: &Path, directory: &Path) -> io::Result<bool> {
    let path = std::path::absolute(path)?;
    // Links are followed for the part of the path that exists.
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(&path);
    Ok(fs::canonicalize(there)?.starts_with(fs::canonicalize(directory)?))
}

/// Returns the absolute path without symbolic links.
///
/// # Errors
/// If there is nothing at the path, or it cannot be looked at.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Makes the file's name durable.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// Returns the directory that holds the file.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Returns a path beside `path` that no other process uses.
pub(crate) fn beside(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let bytes = name.as_bytes();
    // A name has at most 255 bytes.
    let mut name = OsString::from_vec(bytes[..bytes.len().min(NAME_KEPT_BYTES)].to_vec());
    name.push(format!(".{suffix}-{}", std::process::id()));
    Ok(path.with_file_name(name))
}

/// Returns true if the path exists.
#[must_use]
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// Returns true if the path is a character device, as a DAX device is.
#[must_use]
pub fn is_character_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// Returns true if the descriptor is of `/dev/null`, opened for reading and writing.
///
/// # Errors
/// If it cannot be looked at.
pub fn is_null_for_both(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    /// Number of the device, which is the same on every Linux.
    const NULL: (u32, u32) = (1, 3);
    let found = rustix::fs::fstat(descriptor)?;
    let device = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
    if !FileType::from_raw_mode(found.st_mode).is_char_device() || device != NULL {
        return Ok(false);
    }
    Ok(rustix::fs::fcntl_getfl(descriptor)?.contains(OFlags::RDWR))
}

/// Returns true if the descriptor was opened for reading.
///
/// # Errors
/// If it cannot be looked at.
pub fn is_for_reading(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(flags & OFlags::RWMODE != OFlags::WRONLY && !flags.contains(OFlags::PATH))
}

/// Returns true if the path is a directory.
#[must_use]
pub fn is_directory(path: &Path) -> bool {
    path.is_dir()
}

/// Returns the file's length in bytes.
///
/// # Errors
/// If there is no such file, or it cannot be looked at.
pub fn len(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|metadata| metadata.len())
}

/// Removes the file, if it exists.
///
/// # Errors
/// If it exists and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Returns true if the path is a socket; a symbolic link is not followed.
///
/// # Errors
/// If there is nothing at the path, or it cannot be looked at.
pub fn is_socket(path: &Path) -> io::Result<bool> {
    fs::symlink_metadata(path).map(|metadata| metadata.file_type().is_socket())
}

/// Returns device and inode of what is at the path; a symbolic link is not followed.
///
/// # Errors
/// If there is nothing at the path, or it cannot be looked at.
pub fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Number of the file system's device.
    pub device: u64,
    /// Bytes that a process without privileges may still write.
    pub free_bytes: u64,
}

/// Returns the space of the file system that `path` lies on.
///
/// # Errors
/// If there is nothing at the path, or it cannot be looked at.
pub fn free_space(path: &Path) -> io::Result<Space> {
    use std::os::unix::fs::MetadataExt;
    let system = rustix::fs::statvfs(path)?;
    let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
    Ok(Space { device: fs::metadata(path)?.dev(), free_bytes })
}

/// Returns the bytes that a file takes on its file system; none if it is no regular file.
///
/// # Errors
/// If there is no file at the path, or it cannot be looked at.
pub fn allocated_bytes(path: &Path) -> io::Result<Option<u64>> {
    use std::os::unix::fs::MetadataExt;
    /// Unit of `st_blocks`.
    const BLOCK_BYTES: u64 = 512;
    let metadata = fs::metadata(path)?;
    Ok(metadata.is_file().then(|| metadata.blocks() * BLOCK_BYTES))
}

/// Returns who may read, write and execute the file, in the bits of `chmod`.
///
/// # Errors
/// If there is no such file, or it cannot be looked at.
pub fn mode(path: &Path) -> io::Result<u32> {
    fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o7777)
}

/// Sets who may read, write and execute the file, in the bits of `chmod`.
///
/// # Errors
/// If there is no such file, or it is another user's.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Makes the directory, with its parents, unless it exists.
///
/// # Errors
/// If one cannot be made.
pub fn create_directories(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Returns the bytes that the files in the directory, and in those within it, take on their medium.
///
/// # Errors
/// If one cannot be looked at.
pub fn tree_bytes(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        // The kernel counts in 512 bytes, regardless of the block size.
        bytes +=
            if metadata.is_dir() { tree_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

/// Removes the directory and all that is in it.
///
/// # Errors
/// If something in it cannot be removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)
}

/// Removes an empty directory.
///
/// # Errors
/// If something is in it, or it cannot be removed.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    fs::remove_dir(path)
}

/// Opens a file to read it from its beginning, in order.
///
/// # Errors
/// If it cannot be opened.
pub fn open_reader(path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
    Ok(Box::new(File::open(path)?))
}

/// Makes a new file to write in order, replacing an old one. Only its owner may read it.
///
/// # Errors
/// If it cannot be made.
pub fn create_writer(path: &Path) -> io::Result<Box<dyn io::Write + Send>> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    Ok(Box::new(options.open(path)?))
}

/// Makes the file's bytes durable.
///
/// # Errors
/// If it cannot be opened, or the disk fails.
pub fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Begins to write these bytes of the file back to its disk, and does not wait for it.
///
/// # Errors
/// If the file cannot be opened, or lies on no disk.
pub fn begin_write_back(path: &Path, offset: u64, bytes: NonZeroU64) -> io::Result<()> {
    let file = File::open(path)?;
    // Pages that are not needed are written back before they are let go.
    Ok(rustix::fs::fadvise(&file, offset, Some(bytes), Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_takes_what_its_files_take_and_goes_as_a_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = scratch.path().join("tree");
        create_directories(&tree.join("within")).unwrap();
        write_atomically(&tree.join("a"), &[1; 10_000]).unwrap();
        write_atomically(&tree.join("within/b"), &[1; 100_000]).unwrap();
        let bytes = tree_bytes(&tree).unwrap();
        assert!((110_000..200_000).contains(&bytes), "{bytes}");
        remove_tree(&tree).unwrap();
        assert!(!exists(&tree) && tree_bytes(&tree).is_err());
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a");
        assert!(!exists(&path) && is_directory(directory.path()));
        write_atomically(&path, b"one").expect("writes");
        write_atomically(&path, b"three").expect("writes");
        assert_eq!(read_to_string(&path).expect("reads"), "three");
        assert_eq!(len(&path).expect("there"), 5);
        let names = fs::read_dir(directory.path()).expect("lists").count();
        assert_eq!(names, 1, "nothing is left beside it");
        remove(&path).expect("removes");
        remove(&path).expect("is gone already");
    }

    #[test]
    fn links_stay_and_so_does_what_is_no_file() {
        use std::os::unix::fs::FileTypeExt;
        let directory = tempfile::tempdir().expect("directory");
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| directory.path().join(name));
        write_atomically(&file, b"one").expect("writes");
        std::os::unix::fs::symlink(&file, &link).expect("links");
        write_atomically(&link, b"two").expect("writes");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(read_to_string(&file).expect("reads"), "two");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("runs");
        assert!(made.success());
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(&pipe).expect("reads"));
            write_atomically(&pipe, b"three").expect("writes");
            // A pipe that was replaced would have no writer any more.
            let is_pipe = fs::metadata(&pipe).expect("there").file_type().is_fifo();
            assert!(is_pipe, "it was replaced");
            reader.join().expect("no panic")
        });
        assert_eq!(read, b"three");
    }

    #[test]
    fn a_file_keeps_its_mode_and_its_names_and_a_link_may_lead_to_nothing_yet() {
        let directory = tempfile::tempdir().expect("directory");
        let path = |name: &str| directory.path().join(name);
        for mode in [0o600, 0o640, 0o755, 0o666, 0o4711] {
            fs::write(path("a"), "one").expect("file");
            set_mode(&path("a"), mode).expect("mode");
            write_atomically(&path("a"), b"two").expect("writes");
            let there = fs::metadata(path("a")).expect("there");
            assert_eq!(there.permissions().mode() & 0o7777, mode);
            assert_eq!(read_to_string(&path("a")).expect("reads"), "two");
        }
        fs::hard_link(path("a"), path("other")).expect("links");
        write_atomically(&path("a"), b"three").expect("writes");
        assert_eq!(read_to_string(&path("other")).expect("reads"), "three");
        fs::create_dir(path("within")).expect("directory");
        for (link, to) in [("b", "within/new"), ("c", "b"), ("within/d", "../new")] {
            std::os::unix::fs::symlink(to, path(link)).expect("links");
        }
        for (link, to) in [("c", "within/new"), ("within/d", "new"), ("b", "within/new")] {
            check_writable(&path(link)).expect("it can be written");
            write_atomically(&path(link), link.as_bytes()).expect("writes");
            assert!(fs::symlink_metadata(path(link)).expect("there").is_symlink());
            assert_eq!(read_to_string(&path(to)).expect("reads"), link);
        }
        std::os::unix::fs::symlink("round", path("round")).expect("links");
        for wrong in ["round", "within", "nowhere/a", "a/"] {
            assert!(check_writable(&path(wrong)).is_err(), "{wrong}");
            assert!(write_atomically(&path(wrong), b"").is_err(), "{wrong}");
        }
        let long = "n".repeat(255);
        write_atomically(&path(&long), b"four").expect("writes");
        let left = fs::read_dir(directory.path()).expect("lists").flatten();
        assert!(left.into_iter().all(|it| !it.file_name().to_string_lossy().contains(".new-")));
    }

    #[test]
    fn a_descriptor_is_written_to_at_its_position() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a");
        let mut file = File::create(&path).expect("file");
        file.write_all(b"header ").expect("writes");
        let (pid, number) = (std::process::id(), file.as_raw_fd());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(format!("/dev/fd/{number}"), &link).expect("links");
        for (at, path) in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"].iter().enumerate() {
            let path = format!("{path}/{number}");
            check_writable(Path::new(&path)).expect("it can be written");
            write_atomically(Path::new(&path), format!("{at} ").as_bytes()).expect("writes");
        }
        write_atomically(Path::new(&format!("/proc/{pid}/fd/{number}")), b"3 ").expect("writes");
        write_atomically(&link, b"4 ").expect("writes");
        file.write_all(b"trailer").expect("writes");
        assert_eq!(read_to_string(&path).expect("reads"), "header 0 1 2 3 4 trailer");
        let reader = File::open(&path).expect("opens");
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert!(check_writable(Path::new(&path)).is_err());
        assert!(write_atomically(Path::new(&path), b"x").is_err());
    }

    #[test]
    fn a_device_without_an_end_is_no_text() {
        assert!(read_to_string(Path::new("/dev/zero")).is_err());
        assert_eq!(read_to_string(Path::new("/dev/null")).expect("reads"), "");
    }

    #[test]
    fn a_device_that_takes_and_gives_nothing_is_known_with_its_mode() {
        use std::os::fd::AsFd;
        let is = |path: &str, writes: bool| {
            let file = File::options().read(true).write(writes).open(path).expect("opens");
            is_null_for_both(file.as_fd()).expect("a descriptor")
        };
        let write_only = File::options().write(true).open("/dev/null").expect("opens");
        assert!(!is_for_reading(write_only.as_fd()).expect("a descriptor"));
        let read_only = File::open("/dev/null").expect("opens");
        assert!(is_for_reading(read_only.as_fd()).expect("a descriptor"));
        assert!(is("/dev/null", true));
        assert!(!is("/dev/null", false) && !is("/dev/zero", true) && !is("/", false));
    }

    #[test]
    fn a_failed_replacement_leaves_nothing() {
        let directory = tempfile::tempdir().expect("directory");
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).expect("directory");
        fs::write(taken.join("x"), "x").expect("file");
        assert!(write_atomically(&taken, b"a").is_err());
        assert!(write_atomically(Path::new("/"), b"a").is_err());
        assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 1);
    }

    #[test]
    fn a_huge_file_is_no_text() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("huge");
        File::create(&path).expect("file").set_len(TEXT_BYTES_MAX + 1).expect("length");
        let error = read_to_string(&path).expect_err("too large").to_string();
        assert!(error.contains("more than the"), "{error}");
    }

    #[test]
    fn a_private_file_is_its_owners_and_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        write_private(&path, b"one").expect("writes");
        assert_eq!(mode(&path).expect("a mode"), 0o600);
        set_mode(&path, 0o640).expect("a mode");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        write_private(&link, b"two").expect("writes");
        assert_eq!(read(&path).expect("reads"), b"two");
        assert_eq!(mode(&path).expect("a mode"), 0o640);
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        for wrong in [folder.path(), Path::new("/dev/null"), Path::new("/dev/stdout")] {
            assert!(write_private(wrong, b"").is_err(), "{}", wrong.display());
        }
    }
}
