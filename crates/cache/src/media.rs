//! Media that a cache is opened on: regions and block files that the caller has opened, and the
//! files of a restart directory.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::ByteSize;
use entresol_base::checksum::crc32c;
use entresol_media::region::RegionOptions;
use entresol_media::{BlockFile, Direct, Region, RegionError, files, machine};

/// Bytes at the beginning of a medium that the cache's label takes; segments follow.
pub const LABEL_BYTES: u64 = crate::label::LABEL_BYTES;

/// A medium of values, opened.
pub enum Medium {
    /// The process's own memory.
    Dram,
    /// Byte-addressable memory.
    Region(Box<dyn ValueRegion>),
    /// A file that is read and written in blocks.
    File(Arc<dyn BlockFile>),
}

/// A medium, and its share for one cache.
pub struct Share {
    /// The medium, which the cache's configuration names.
    pub medium: Medium,
    /// Quota of the medium in whole segments, if it is not DRAM.
    pub bytes: ByteSize,
    /// Bytes of a segment; derived from the quota if absent.
    pub segment_bytes: Option<ByteSize>,
}

/// Operations of a region that a cache needs for its values. Every [`Region`] has them.
#[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
pub trait ValueRegion: Send + Sync {
    /// Returns the region's bytes.
    fn len(&self) -> u64;

    /// Copies the bytes at `offset` out.
    fn read(&self, offset: u64, out: &mut [u8]);

    /// Copies `len` bytes at `offset` to the end of `out`.
    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>);

    /// Writes bytes, and makes them durable.
    fn write_durably(&self, offset: u64, bytes: &[u8]);

    /// Writes bytes past the processor's caches; [`ValueRegion::drain`] makes them durable.
    fn write_streaming(&self, offset: u64, bytes: &[u8]);

    /// Waits until all bytes written by this thread are durable.
    fn drain(&self);
}

impl<R: Region> ValueRegion for R {
    fn len(&self) -> u64 {
        Region::len(self)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        Region::read(self, offset, out);
    }

    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        Region::append_to(self, offset, len, out);
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) {
        Region::write(self, offset, bytes);
        Region::persist(self, offset, bytes.len());
    }

    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        Region::write_streaming(self, offset, bytes);
    }

    fn drain(&self) {
        Region::drain(self);
    }
}

/// Files of a cache in a restart directory: the map, which outlives the process, and the snapshot.
pub trait RestartFiles: Send + Sync {
    /// Returns the path of the snapshot, for errors.
    fn path(&self) -> &Path;

    /// Maps the map file, which it makes or lengthens to at least `bytes`, and returns its bytes
    /// before that. A file that does not begin with `magic` is refused.
    ///
    /// # Errors
    /// Fails if the file cannot be used.
    fn map(&self, bytes: u64, magic: [u8; 8]) -> Result<(Arc<Direct>, u64), RegionError>;

    /// Reads the beginning of the map file without changing it.
    ///
    /// # Errors
    /// Fails if there is no map file, or it is shorter than `beginning`.
    fn read_map(&self, beginning: &mut [u8]) -> io::Result<()>;

    /// Returns true if there is a snapshot.
    fn has_snapshot(&self) -> bool;

    /// Opens the snapshot to read it from its beginning.
    ///
    /// # Errors
    /// Fails if it cannot be opened.
    fn read_snapshot(&self) -> io::Result<Box<dyn Read + Send>>;

    /// Makes a new snapshot to write, replacing an old one.
    ///
    /// # Errors
    /// Fails if it cannot be made.
    fn write_snapshot(&self) -> io::Result<Box<dyn Write + Send>>;

    /// Makes the snapshot durable.
    ///
    /// # Errors
    /// Fails if the disk fails.
    fn sync_snapshot(&self) -> io::Result<()>;

    /// Removes the snapshot, if there is one.
    ///
    /// # Errors
    /// Fails if it cannot be removed.
    fn remove_snapshot(&self) -> io::Result<()>;

    /// Returns a number for this boot of the machine, an odd one; an even number equals no boot's.
    fn boot(&self) -> u32;

    /// Returns a random number above 0, which marks the segments of a cache that starts empty.
    fn new_life(&self) -> u64;
}

/// Files of a restart directory in this machine's file system.
pub(crate) struct LocalFiles {
    map_path: PathBuf,
    snapshot_path: PathBuf,
}

impl LocalFiles {
    /// Names a tenant's files in a directory, and makes the directory.
    pub(crate) fn in_directory(dir: &Path, tenant: &str) -> io::Result<LocalFiles> {
        files::create_directories(dir)?;
        let name = file_name(tenant);
        Ok(LocalFiles {
            map_path: dir.join(format!("{name}.map")),
            snapshot_path: dir.join(format!("{name}.snapshot")),
        })
    }
}

impl RestartFiles for LocalFiles {
    fn path(&self) -> &Path {
        &self.snapshot_path
    }

    fn map(&self, bytes: u64, magic: [u8; 8]) -> Result<(Arc<Direct>, u64), RegionError> {
        let options = RegionOptions {
            create: Some(bytes),
            grow: true,
            magic: Some(magic),
            pmem: None,
            ..RegionOptions::default()
        };
        let found_bytes = files::len(&self.map_path).unwrap_or(0);
        Ok((Arc::new(Direct::open(&self.map_path, &options)?), found_bytes))
    }

    fn read_map(&self, beginning: &mut [u8]) -> io::Result<()> {
        files::open_reader(&self.map_path)?.read_exact(beginning)
    }

    fn has_snapshot(&self) -> bool {
        files::exists(&self.snapshot_path)
    }

    fn read_snapshot(&self) -> io::Result<Box<dyn Read + Send>> {
        files::open_reader(&self.snapshot_path)
    }

    fn write_snapshot(&self) -> io::Result<Box<dyn Write + Send>> {
        files::create_writer(&self.snapshot_path)
    }

    fn sync_snapshot(&self) -> io::Result<()> {
        files::sync(&self.snapshot_path)
    }

    fn remove_snapshot(&self) -> io::Result<()> {
        files::remove(&self.snapshot_path)
    }

    fn boot(&self) -> u32 {
        match machine::boot_id() {
            Some(id) => crc32c(id.as_bytes()) | 1,
            None => fastrand::u32(..) & !1,
        }
    }

    fn new_life(&self) -> u64 {
        fastrand::u64(1..)
    }
}

/// Turns a tenant's name into a file name: letters, digits, `-` and `_` stay, all else is hex.
fn file_name(tenant: &str) -> String {
    let mut name = String::new();
    for byte in tenant.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_files_of_their_own_inside_the_directory() {
        assert_eq!(file_name("web-1_a"), "web-1_a");
        assert_eq!(file_name("../x"), "%2e%2e%2fx");
        assert_ne!(file_name("a.b"), file_name("a%2eb"));
    }
}
