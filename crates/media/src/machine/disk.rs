//! What the kernel knows of the disk beneath a file: whether it can be polled, and how long its
//! reads took. For measuring; nothing else depends on it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::files;

/// The disk, or part of one, that a file system lies on.
#[derive(Debug, Clone)]
pub struct FileDisk {
    folder: PathBuf,
}

/// Reads that a disk has served since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskReads {
    /// How many.
    pub count: u64,
    /// How long they took together, in milliseconds, from when the block layer made a request of
    /// each until it was told of its completion.
    pub time_ms: u64,
}

impl FileDisk {
    /// The disk beneath this file; none if the kernel names none, as for files in memory.
    #[must_use]
    pub fn of(path: &Path) -> Option<FileDisk> {
        let device = fs::metadata(path).ok()?.dev();
        let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        Some(FileDisk { folder: fs::canonicalize(link).ok()? })
    }

    /// Its name, as `vda`.
    #[must_use]
    pub fn name(&self) -> String {
        self.folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Whether completions can be polled for: only where the driver has queues for that.
    #[must_use]
    pub fn can_be_polled(&self) -> bool {
        // A part of a disk has no queue of its own.
        let of = |folder: &Path| files::read_to_string(&folder.join("queue/io_poll")).ok();
        let text = of(&self.folder).or_else(|| of(self.folder.parent()?));
        text.is_some_and(|text| text.trim() == "1")
    }

    /// What it has read so far.
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
