//! Crashes of a machine as a file system can imitate them.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::raw::shutdown;

/// Writes that a file system still does when it is shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutDown {
    /// Everything is written first.
    Flush,
    /// The journal is written, and no more data.
    FlushJournal,
    /// Nothing.
    AtOnce,
}

/// Shuts down the file system that the directory lies on: nothing reaches its disk any more, and
/// all calls to change it fail until it is mounted again. For tests, on a file system of their own.
///
/// # Errors
/// If it is another one than ext4, XFS or F2FS, or the user is not root.
pub fn shut_down_file_system(directory: &Path, how: ShutDown) -> io::Result<()> {
    let way = match how {
        ShutDown::Flush => 0,
        ShutDown::FlushJournal => 1,
        ShutDown::AtOnce => 2,
    };
    shutdown::shut_down(File::open(directory)?.as_fd(), way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_an_end_says_so() {
        // That of processes, which nothing can shut down.
        let refused = shut_down_file_system(Path::new("/proc/self"), ShutDown::AtOnce);
        assert!(refused.is_err());
    }
}
