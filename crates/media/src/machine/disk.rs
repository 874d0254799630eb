//! The kernel's information on the disk beneath a file: if it can be polled, and how long its reads
//! took. For measuring; nothing else depends on it.
#![expect(clippy::disallowed_methods, reason = "this crate is the home of file system calls")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::files;

/// The disk, or part of one, that holds a file system.
#[derive(Debug, Clone)]
pub struct FileDisk {
    folder: PathBuf,
}

/// Reads that a disk has served since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskReads {
    /// Number of reads.
    pub count: u64,
    /// Sum of their times in milliseconds, each from the block layer's request to its completion.
    pub time_ms: u64,
}

impl FileDisk {
    /// Returns the disk beneath this file; none if the kernel names none, as for files in memory.
    #[must_use]
    pub fn of(path: &Path) -> Option<FileDisk> {
        let device = fs::metadata(path).ok()?.dev();
        let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        Some(FileDisk { folder: fs::canonicalize(link).ok()? })
    }

    /// Returns its name, such as `vda`.
    #[must_use]
    pub fn name(&self) -> String {
        self.folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Returns the kernel's folder of the disk, under `/sys`.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if completions can be polled for, which needs a driver with queues for that.
    #[must_use]
    pub fn can_be_polled(&self) -> bool {
        // A partition has no queue of its own.
        let of = |folder: &Path| files::read_to_string(&folder.join("queue/io_poll")).ok();
        let text = of(&self.folder).or_else(|| of(self.folder.parent()?));
        text.is_some_and(|text| text.trim() == "1")
    }

    /// Returns the reads served so far.
    #[must_use]
    pub fn reads(&self) -> Option<DiskReads> {
        parse(&files::read_to_string(&self.folder.join("stat")).ok()?)
    }
}

fn parse(text: &str) -> Option<DiskReads> {
    let mut fields = text.split_whitespace().map(|field| field.parse().ok());
    let count = fields.next()??;
    let time_ms = fields.nth(2)??;
    Some(DiskReads { count, time_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_kernels_documentation() {
        let text = "  191102    14272  5046966    35276    86957 121965 48710328 511620 0 41396";
        assert_eq!(parse(text), Some(DiskReads { count: 191_102, time_ms: 35_276 }));
        assert_eq!(parse("191102 14272"), None);
    }

    #[test]
    fn a_file_in_memory_has_no_disk() {
        assert!(FileDisk::of(Path::new("/proc/self/stat")).is_none());
        assert!(FileDisk::of(Path::new("/nonexistent/x")).is_none());
    }
}
