//! A directory of one's own: small files in it that are replaced as a whole, and a lock that keeps
//! other processes out.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::files;
use crate::placement::{self, FileError};

/// A directory, held open.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    handle: File,
}

impl Directory {
    /// Opens the directory, and makes it (not those above it) if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made or opened, or something else has its name.
    pub fn open(path: &Path) -> Result<Directory, FileError> {
        let io = |doing| move |cause| FileError::Io { doing, path: path.into(), cause };
        match fs::create_dir(path) {
            Ok(()) => files::sync_directory_of(path).map_err(io("sync the directory of"))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = files::directory_of(path).into();
                return Err(FileError::NoDirectory { path: path.into(), directory });
            }
            Err(error) => return Err(io("make")(error)),
        }
        let handle = File::open(path).map_err(io("open"))?;
        if !handle.metadata().map_err(io("look at"))?.is_dir() {
            let (found, wanted) = ("no directory", "another place");
            return Err(FileError::WrongType { path: path.into(), found, wanted });
        }
        Ok(Directory { path: path.into(), handle })
    }

    /// Opens the directory as [`Directory::open`] does and keeps other processes, and other tenants
    /// of this one, from doing the same.
    ///
    /// # Errors
    /// As there, and if it is locked.
    pub fn open_locked(path: &Path) -> Result<Directory, FileError> {
        let directory = Directory::open(path)?;
        placement::lock(&directory.handle, path)?;
        Ok(directory)
    }

    /// The directory's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the directory, for opening it as a medium.
    ///
    /// # Errors
    /// If the name leads out of the directory.
    pub fn file(&self, name: &str) -> io::Result<PathBuf> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            let text = format!("'{name}' is not a file's name");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(self.path.join(name))
    }

    /// The names in the directory, sorted; what is not UTF-8 is none of ours and left out.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether a file of this name exists.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.file(name).is_ok_and(|path| path.exists())
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.file(name)?)
    }

    /// Replaces a file as a whole and makes that durable: whoever reads it, or finds it after a
    /// power failure, finds either what was there or all of `bytes`.
    ///
    /// # Errors
    /// If the file cannot be written; what was there is still there then.
    pub fn write_atomically(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        files::write_atomically(&self.file(name)?, bytes)
    }

    /// Gives a file another name, in place of what may have had that one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.file(from)?, self.file(to)?)
    }

    /// Removes a file; that it does not exist is no error.
    ///
    /// # Errors
    /// If it exists and cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        files::remove(&self.file(name)?)
    }

    /// Makes new names, and the absence of old ones, durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_go_and_change_their_names() {
        let parent = tempfile::tempdir().expect("directory");
        let directory = Directory::open(&parent.path().join("d")).expect("made");
        directory.write_atomically("b", b"two").expect("writes");
        directory.write_atomically("a", b"one").expect("writes");
        directory.write_atomically("a", b"three").expect("writes");
        assert_eq!(directory.list().expect("lists"), ["a", "b"]);
        directory.rename("a", "b").expect("renames");
        assert_eq!(directory.read("b").expect("reads"), b"three");
        assert!(!directory.contains("a") && directory.contains("b"));
        directory.remove("b").expect("removes");
        directory.remove("b").expect("is gone already");
        directory.sync().expect("syncs");
        assert!(directory.list().expect("lists").is_empty());
    }

    #[test]
    fn no_name_leads_out() {
        let parent = tempfile::tempdir().expect("directory");
        let directory = Directory::open(parent.path()).expect("opens");
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b"] {
            assert!(directory.file(name).is_err(), "{name}");
            assert!(directory.read(name).is_err() && directory.remove(name).is_err());
        }
    }

    #[test]
    fn a_second_lock_is_refused_while_the_first_lives() {
        let parent = tempfile::tempdir().expect("directory");
        let first = Directory::open_locked(parent.path()).expect("locks");
        Directory::open(parent.path()).expect("looking is allowed");
        let error = Directory::open_locked(parent.path()).expect_err("locked").to_string();
        assert!(error.contains("in use by another process or tenant"), "{error}");
        drop(first);
        Directory::open_locked(parent.path()).expect("free again");
    }

    #[test]
    fn what_cannot_be_a_directory_is_an_error_with_the_way_out() {
        let parent = tempfile::tempdir().expect("directory");
        let file = parent.path().join("file");
        fs::write(&file, "x").expect("writes");
        let check = |path: &Path, reason: &str| {
            let error = Directory::open(path).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        };
        check(&file, "is no directory");
        check(&parent.path().join("a/b"), "make it first");
    }
}
