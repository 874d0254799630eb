//! Mapped files: files that are written in place through a mapping, as a log is.
//!
//! What is written to a [`MappedFile`] is seen by its readers at once and survives the death of the
//! process; what was persisted survives that of the machine. Once the mapping is dropped the same
//! file may be opened as a [`BlockFile`](crate::BlockFile), and reads of blocks see what was
//! written here; or it may be given another name and be mapped again, with the bytes that it has.
//!
//! **What becomes durable when** depends on what the file lies on ([`MappedFile::kind`]). On
//! persistent memory a write is flushed by whoever writes, and a persist waits for what *the
//! calling thread* wrote: what other threads wrote is for them to persist, before they tell anybody
//! who acknowledges it. In an ordinary file a persist writes back what anybody wrote to the range
//! before. Code that is to run on both has each writer persist an empty range of its own first,
//! which costs nothing on an ordinary file.
//!
//! **What a crash of the machine leaves** of writes that were not persisted: any of their aligned
//! words of eight bytes, each old or new, in any combination.
//!
//! # What it costs on an ordinary file
//!
//! Nanoseconds of processor time that appending a record takes, page faults included, and that the
//! thread takes for it which persists what is new every 100 ms; medians of five (least to most):
//!
//! | | 116 bytes, 400,000 a second | 1016 bytes, 50,000 a second |
//! |---|---|---|
//! | to append to a new file | 86 (85 to 92) | 569 (568 to 572) |
//! | to one that is used again | 57 (56 to 68) | 323 (310 to 354) |
//! | of which copying | 34 (31 to 39) | 166 (153 to 188) |
//! | to persist | 21 (20 to 29) | 180 (153 to 219) |
//!
//! Two busy Xeon cores at 2.0 GHz, Linux 6.18, ext4, and
//! `cargo run --release -p entresol-media --example mapped_log -- DIRECTORY 116 400000`. A file
//! that is used again is cheaper since its blocks were written before.
//!
//! One thread that appends gains nothing by more than this: one fault serves several records, and
//! `MADV_POPULATE_WRITE`, a mebibyte ahead, takes as much from the writer; from a thread of its own
//! it halves the writer's part and costs more in all. Several threads that append side by side wait
//! for each other's faults, asleep, on a page that all of them write to; and each page that is
//! written back interrupts the processors that they run on, once it is protected. Whoever has such
//! threads says what is going to be written ([`MappedFile::expect_writes`]), and a persist lets go
//! of the mapping of whole pages first. With both, two threads that put values of 1000 bytes into a
//! store took a third of the processor's time (`docs/store.md`).
//! `MAP_POPULATE` and `MADV_POPULATE_READ` (1.5 to 6 times as much) map pages that fault once more,
//! one by one, when they are written. `pwrite` is dearer still. `fdatasync` and `msync` of the
//! whole file cost what `msync` of the range does; `sync_file_range` costs a tenth less at best and
//! promises nothing about a power cut.

use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::mutants::{SiteKind, removed};

use crate::crash::Place;
use crate::placement::FileError;
use crate::region::{Direct, FlushKind, PmemMode, Region, RegionKind, RegionOptions};

/// From how many bytes on a write to persistent memory goes past the processor's caches: above it
/// that takes less time than storing and flushing (Yang and others, An Empirical Guide to the
/// Behavior and Use of Scalable Persistent Memory, FAST 2020, section 5.2), below it more.
const STREAMED_BYTES_MIN: usize = 512;
/// From how many bytes on a persist lets go of the mapping of its pages before it writes them back.
const LET_GO_BYTES_MIN: u64 = 32 << 10;
/// How many bytes are compared at a time.
const COMPARED_BYTES: usize = 64;

/// How a mapped file's bytes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MappedKind {
    /// Persistent memory: what was flushed survives a power failure.
    Dax,
    /// What stands in for persistent memory: it is flushed as that is, and survives the death of
    /// the process only.
    EmulatedPmem,
    /// An ordinary file, which the system writes back.
    File,
}

impl MappedKind {
    /// Whether a persist is a fence, which is worth doing for each write.
    #[must_use]
    pub const fn is_pmem(self) -> bool {
        matches!(self, MappedKind::Dax | MappedKind::EmulatedPmem)
    }
}

/// How a mapped file is opened.
#[derive(Debug, Clone, Default)]
pub struct MapOptions {
    /// Make the file with this many bytes, rounded up to 4 KiB, if it does not exist or is empty.
    /// Without this it must exist; if it is shorter than this it is refused.
    pub create: Option<u64>,
    /// The first eight bytes of every file that is ours: a new file gets them, and a file that
    /// begins otherwise is left alone and refused.
    pub magic: Option<[u8; 8]>,
    /// Persistent memory, instead of an ordinary file.
    pub pmem: Option<PmemMode>,
    /// The file exists and is only read: it need not be writable, and none of its space is
    /// allocated. Whoever writes to it panics.
    pub read_only: bool,
}

/// A file that is written in place. An access outside of it is a programmer's error and panics.
#[expect(clippy::len_without_is_empty, reason = "a mapped file is never empty")]
pub trait MappedFile: Send + Sync + fmt::Debug {
    /// The file's bytes, as far as they fill pages of 4 KiB. All of them have space on the disk.
    fn len(&self) -> u64;

    /// How bytes become durable.
    fn kind(&self) -> MappedKind;

    /// Copies bytes to `offset`. On persistent memory they are on their way to durability when this
    /// returns; who writes to the same 64 bytes again, by a write of 512 bytes or after one, should
    /// persist in between.
    fn write(&self, offset: u64, bytes: &[u8]);

    /// Copies the bytes at `offset` out. A copy that races with writes is a mixture of old and new:
    /// whoever reads must prove that it was whole.
    fn read(&self, offset: u64, out: &mut [u8]);

    /// Copies `len` bytes at `offset` to the end of `out`.
    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>);

    /// The same, for what is not written any more and read here and there: of an ordinary file by
    /// a call of the system, which maps nothing.
    ///
    /// # Errors
    /// What the disk says if it fails.
    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.append_to(offset, len, out);
        Ok(())
    }

    /// The same if nobody has to wait for a disk, and says whether that is so. If not, the disk
    /// begins to read, and whoever calls [`read_out`](MappedFile::read_out) later waits less; so
    /// several reads can be under way at once. Of a failure that tells, and not this.
    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.append_to(offset, len, out);
        true
    }

    /// Says that it is read by [`read_out`](MappedFile::read_out) from now on, in no order: of an
    /// ordinary file the mapping is let go, and the system reads nothing ahead.
    fn expect_reads_only(&self) {}

    /// Says that all of it is going to be read soon: of an ordinary file the system reads at once
    /// what it has not in memory.
    fn expect_reads(&self) {}

    /// Asks the processor to fetch the cache line at `offset`, or does nothing. An offset outside
    /// is ignored.
    fn prefetch(&self, _offset: u64) {}

    /// Says that the whole pages in `len` bytes at `offset` are going to be written soon: in an
    /// ordinary file they are made ready at once, which costs less than a fault for each, and keeps
    /// threads that write side by side from waiting for each other's.
    fn expect_writes(&self, _offset: u64, _len: u64) {}

    /// Whether the bytes at `offset` are `bytes`.
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool;

    /// How the `len` bytes at `offset` compare with `bytes`: byte by byte, and of two of which one
    /// begins the other the shorter is less. Nothing is allocated.
    fn compare(&self, offset: u64, len: usize, bytes: &[u8]) -> Ordering;

    /// What `<dyn MappedFile>::flush` does.
    fn flush_at(&self, offset: u64, len: u64, place: Place);

    /// What `<dyn MappedFile>::persist` does.
    ///
    /// # Errors
    /// As there.
    fn persist_at(&self, offset: u64, len: u64, place: Place) -> io::Result<()>;

    /// The path by which it was opened.
    fn path(&self) -> &Path;
}

// Behind a vtable `#[track_caller]` yields the trait's own line; hence this beside the trait.
impl dyn MappedFile + '_ {
    /// Makes the `len` bytes at `offset` durable as far as they were written before: in an ordinary
    /// file by anybody, on persistent memory by this thread. Blocks it.
    ///
    /// # Errors
    /// If the disk fails, now or at an earlier persist: then nothing that was written to the file
    /// since the last success can be trusted, and no later persist of this mapping succeeds. Write
    /// it again to another file, or give up.
    #[track_caller]
    pub fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        self.persist_at(offset, len, Location::caller())
    }

    /// Begins to make the `len` bytes at `offset` durable, whoever wrote them: a persist by this
    /// thread then waits for them on persistent memory as well, as after the death of the process
    /// that wrote them. In an ordinary file a persist needs nothing before it: nothing is done.
    #[track_caller]
    pub fn flush(&self, offset: u64, len: u64) {
        self.flush_at(offset, len, Location::caller());
    }
}

/// A mapped file over a region: what is shipped over [`Direct`], and in crash suites over a
/// [`RecordedRegion`](crate::crash::RecordedRegion), line by line as x86 would leave it.
pub struct RegionFile<R> {
    region: Arc<R>,
    kind: MappedKind,
    path: PathBuf,
    read_only: bool,
}

impl<R: Region> RegionFile<R> {
    /// A mapped file in all of a region, which is called by this path. What is flushed by `msync`
    /// is an ordinary file; all else stands in for persistent memory.
    #[must_use]
    pub fn over(region: Arc<R>, path: &Path) -> RegionFile<R> {
        let kind = match region.flush_kind() {
            FlushKind::Msync => MappedKind::File,
            _ => MappedKind::EmulatedPmem,
        };
        RegionFile { region, kind, path: path.into(), read_only: false }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<R> {
        &self.region
    }
}

impl<R> fmt::Debug for RegionFile<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionFile").field("path", &self.path).field("kind", &self.kind).finish()
    }
}

impl<R: Region> MappedFile for RegionFile<R> {
    fn len(&self) -> u64 {
        self.region.len()
    }

    fn kind(&self) -> MappedKind {
        self.kind
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(!self.read_only, "{} was opened to be read only", self.path.display());
        if self.kind.is_pmem() && bytes.len() >= STREAMED_BYTES_MIN {
            self.region.write_streaming(offset, bytes);
            return;
        }
        self.region.write(offset, bytes);
        if self.kind.is_pmem() {
            self.region.flush(offset, bytes.len());
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        self.region.read(offset, out);
    }

    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        self.region.append_to(offset, len, out);
    }

    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.region.read_out(offset, len, out)
    }

    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.region.try_read_out(offset, len, out)
    }

    fn expect_reads_only(&self) {
        self.region.expect_reads_only();
    }

    fn expect_reads(&self) {
        self.region.expect_reads();
    }

    fn prefetch(&self, offset: u64) {
        self.region.prefetch(offset);
    }

    fn expect_writes(&self, offset: u64, len: u64) {
        self.region.expect_writes(offset, len as usize);
    }

    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.region.equals(offset, bytes)
    }

    fn compare(&self, offset: u64, len: usize, bytes: &[u8]) -> Ordering {
        assert_inside(self.len(), offset, len as u64);
        compare(offset, len, bytes, |offset, out| self.region.read(offset, out))
    }

    fn flush_at(&self, offset: u64, len: u64, place: Place) {
        assert_inside(self.len(), offset, len);
        if self.kind.is_pmem() && !removed(SiteKind::Flush, place) {
            self.region.flush(offset, len as usize);
        }
    }

    fn persist_at(&self, offset: u64, len: u64, place: Place) -> io::Result<()> {
        assert_inside(self.len(), offset, len);
        if removed(SiteKind::Sync, place) {
            return Ok(());
        }
        if self.kind.is_pmem() {
            self.region.drain();
        } else if len > 0 && self.region.sync_failure().is_none() {
            if len >= LET_GO_BYTES_MIN {
                self.region.expect_no_writes(offset, len as usize);
            }
            self.region.expect_reads_in_no_order(offset, len as usize);
            self.region.persist(offset, len as usize);
        }
        self.region.sync_failure().map_or(Ok(()), Err)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Maps a file of this machine, locked against everybody else for as long as it is mapped.
pub(crate) fn open(path: &Path, options: &MapOptions) -> Result<Arc<dyn MappedFile>, FileError> {
    let MapOptions { create, magic, pmem, read_only } = *options;
    let wanted = RegionOptions { create, grow: false, magic, pmem, read_only };
    let region = Direct::open_file(path, &wanted)?;
    let kind = match region.kind() {
        RegionKind::Dax => MappedKind::Dax,
        RegionKind::Emulated | RegionKind::Anonymous => MappedKind::EmulatedPmem,
        RegionKind::MappedFile => MappedKind::File,
    };
    Ok(Arc::new(RegionFile { region: Arc::new(region), kind, path: path.into(), read_only }))
}

/// Compares what `read` copies out with `bytes`, a few at a time.
pub(crate) fn compare(
    offset: u64,
    len: usize,
    bytes: &[u8],
    read: impl Fn(u64, &mut [u8]),
) -> Ordering {
    let common = &bytes[..len.min(bytes.len())];
    let mut at = offset;
    for part in common.chunks(COMPARED_BYTES) {
        let mut here = [0; COMPARED_BYTES];
        let here = &mut here[..part.len()];
        read(at, here);
        match (*here).cmp(part) {
            Ordering::Equal => at += part.len() as u64,
            unequal => return unequal,
        }
    }
    len.cmp(&bytes.len())
}

/// # Panics
/// If the range is not inside of a file of so many bytes.
pub(crate) fn assert_inside(file_bytes: u64, offset: u64, len: u64) {
    let inside = file_bytes.checked_sub(len).is_some_and(|last| offset <= last);
    assert!(inside, "{len} bytes at {offset} are outside of a mapped file of {file_bytes} bytes");
}

#[cfg(test)]
mod tests;
