//! Mapped files, which are written in place through a mapping, as a write-ahead log is.
//!
//! Bytes written to a [`MappedFile`] are visible to its readers at once and survive the death of
//! the process; bytes persisted survive that of the machine. Once the mapping is dropped, the file
//! may be opened as a [`BlockFile`](crate::BlockFile), whose reads see the bytes written here, or
//! be renamed and mapped again with its content.
//!
//! **What becomes durable when** depends on the medium ([`MappedFile::kind`]). On persistent memory
//! each writer flushes its own lines, and a persist waits for the writes of *the calling thread*:
//! other threads must persist theirs before they report them to the thread that acknowledges. In an
//! ordinary file a persist writes back every thread's earlier writes to the range. Code that runs
//! on both has each writer persist an empty range of its own first, which costs nothing on an
//! ordinary file.
//!
//! **After a crash of the machine** any aligned eight-byte word that was not persisted holds its
//! old or its new content, in any combination.
//!
//! # Cost on an ordinary file
//!
//! Processor time in nanoseconds for appending a record, page faults included, and for persisting
//! it by a thread that persists new bytes every 100 ms; medians of five (least to most):
//!
//! | | 116 bytes, 400,000 a second | 1016 bytes, 50,000 a second |
//! |---|---|---|
//! | appending to a new file | 86 (85 to 92) | 569 (568 to 572) |
//! | appending to a reused file | 57 (56 to 68) | 323 (310 to 354) |
//! | copying, as part of that | 34 (31 to 39) | 166 (153 to 188) |
//! | persisting | 21 (20 to 29) | 180 (153 to 219) |
//!
//! Two busy Xeon cores at 2.0 GHz, Linux 6.18, ext4, and `cargo run --release -p entresol-media
//! --example mapped_log -- DIRECTORY 116 400000`. A reused file is cheaper since its blocks were
//! written before.
//!
//! A single appending thread needs no more than this: one fault serves several records, and
//! `MADV_POPULATE_WRITE`, a mebibyte ahead, costs the writer as much; from a thread of its own it
//! halves the writer's part and costs more in all. Several appending threads wait, asleep, for each
//! other's faults on a page that all of them write to; and each page that is written back
//! interrupts their processors once it is protected. Programs with such threads announce their
//! writes ([`MappedFile::expect_writes`]), and a persist first unmaps whole pages. With both, two
//! threads that put values of 1000 bytes into a store took a third of the processor's time
//! (`docs/store.md`). `MAP_POPULATE` and `MADV_POPULATE_READ` (1.5 to 6 times as much) map pages
//! that fault once more, one by one, when they are written. `pwrite` costs still more. `fdatasync`
//! and `msync` of the whole file cost as much as `msync` of the range; `sync_file_range` costs a
//! tenth less at best and promises nothing about a power cut.

use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::Place;
use entresol_base::mutants::{SiteKind, removed};

use crate::placement::FileError;
use crate::region::{Direct, FlushKind, PmemMode, Region, RegionKind, RegionOptions};

/// Minimum size of a write to persistent memory that bypasses the processor's caches. From here on
/// that takes less time than storing and flushing (Yang and others, An Empirical Guide to the
/// Behavior and Use of Scalable Persistent Memory, FAST 2020, section 5.2), below it more.
const STREAMED_BYTES_MIN: usize = 512;
/// Minimum size of a persist that unmaps its pages before it writes them back.
const LET_GO_BYTES_MIN: u64 = 32 << 10;
/// Size of the pieces in which a long write to an ordinary file is done. Their pages are unmapped
/// at once: until the next persist they would count as memory of the process.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes that are compared at a time.
const COMPARED_BYTES: usize = 64;

/// Class of a mapped file by how its bytes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MappedKind {
    /// Persistent memory: flushed bytes survive a power failure.
    Dax,
    /// An ordinary file that stands in for persistent memory. It is flushed like persistent memory;
    /// its bytes survive the death of the process only.
    EmulatedPmem,
    /// An ordinary file, written back by the kernel.
    File,
}

impl MappedKind {
    /// Returns true if a persist is only a fence, which is cheap enough to do for each write.
    #[must_use]
    pub const fn is_pmem(self) -> bool {
        matches!(self, MappedKind::Dax | MappedKind::EmulatedPmem)
    }
}

/// Options for opening a mapped file.
#[derive(Debug, Clone, Default)]
pub struct MapOptions {
    /// Creates the file with this many bytes, rounded up to 4 KiB, if it does not exist or is
    /// empty. Without this it must exist. A file shorter than this is refused.
    pub create: Option<u64>,
    /// First eight bytes of the file. A new file gets them; a file that begins otherwise is refused
    /// and left alone.
    pub magic: Option<[u8; 8]>,
    /// Treats the file as persistent memory instead of as an ordinary file.
    pub pmem: Option<PmemMode>,
    /// Opens an existing file for reads only: it need not be writable, and no space is allocated
    /// for it. Writing to it panics.
    pub read_only: bool,
}

/// A file that is written in place. An access outside its bounds is a programmer's error and
/// panics.
#[expect(clippy::len_without_is_empty, reason = "a mapped file is never empty")]
pub trait MappedFile: Send + Sync + fmt::Debug {
    /// Returns the file's bytes, in whole pages of 4 KiB. All of them have space on the disk.
    fn len(&self) -> u64;

    /// Returns the file's class.
    fn kind(&self) -> MappedKind;

    /// Copies bytes to `offset`. On persistent memory they are on their way to durability when this
    /// returns. Between two writes to the same 64 bytes of which either has 512 bytes or more, the
    /// writer should persist.
    fn write(&self, offset: u64, bytes: &[u8]);

    /// Copies the bytes at `offset` out. A copy that races with writes is a mixture of old and new:
    /// the reader must prove that it was whole.
    fn read(&self, offset: u64, out: &mut [u8]);

    /// Copies `len` bytes at `offset` to the end of `out`.
    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>);

    /// Copies `len` bytes at `offset` to the end of `out`, for bytes that are no longer written and
    /// are read in no order: from an ordinary file by a system call, which maps nothing.
    ///
    /// # Errors
    /// If the disk fails.
    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.append_to(offset, len, out);
        Ok(())
    }

    /// Copies `len` bytes at `offset` to the end of `out` if that needs no wait for a disk, and
    /// returns true then. Otherwise the disk begins to read, so that a later
    /// [`read_out`](MappedFile::read_out) waits less, and several reads can be under way at once. A
    /// failure is reported by `read_out`, not by this.
    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.append_to(offset, len, out);
        true
    }

    /// Announces that the file is only read by [`read_out`](MappedFile::read_out) from now on, in
    /// no order: an ordinary file is unmapped, and the kernel reads nothing ahead.
    fn expect_reads_only(&self) {}

    /// Announces that all of the file will be read soon: the kernel starts reading the parts of an
    /// ordinary file that are not in memory.
    fn expect_reads(&self) {}

    /// Asks the processor to fetch the cache line at `offset`, or does nothing. An offset outside
    /// is ignored.
    fn prefetch(&self, _offset: u64) {}

    /// Announces that the whole pages in `len` bytes at `offset` will be written soon. Those of an
    /// ordinary file are mapped at once, which costs less than a fault each and keeps threads that
    /// write side by side from waiting for each other's faults.
    fn expect_writes(&self, _offset: u64, _len: u64) {}

    /// Returns true if the bytes at `offset` equal `bytes`.
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool;

    /// Compares the `len` bytes at `offset` with `bytes`, in lexicographic order. Nothing is
    /// allocated.
    fn compare(&self, offset: u64, len: usize, bytes: &[u8]) -> Ordering;

    /// Implements `<dyn MappedFile>::flush`.
    fn flush_at(&self, offset: u64, len: u64, place: Place);

    /// Implements `<dyn MappedFile>::persist`.
    ///
    /// # Errors
    /// If the disk fails, now or at an earlier persist.
    fn persist_at(&self, offset: u64, len: u64, place: Place) -> io::Result<()>;

    /// Returns the path by which the file was opened.
    fn path(&self) -> &Path;
}

// Behind a vtable `#[track_caller]` yields the trait's own line; hence this beside the trait.
impl dyn MappedFile + '_ {
    /// Makes earlier writes to the `len` bytes at `offset` durable: every thread's in an ordinary
    /// file, this thread's on persistent memory. Blocks the thread.
    ///
    /// # Errors
    /// If the disk fails, now or at an earlier persist. Then no write to the file since the last
    /// success can be trusted, and no later persist of this mapping succeeds. Write the bytes to
    /// another file, or give up.
    #[track_caller]
    pub fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        self.persist_at(offset, len, Location::caller())
    }

    /// Starts making the `len` bytes at `offset` durable, regardless of the thread or process that
    /// wrote them: on persistent memory this thread's next persist then waits for them as well.
    /// Recovery needs that for bytes of a process that died. In an ordinary file it does nothing,
    /// since a persist there needs no flush.
    #[track_caller]
    pub fn flush(&self, offset: u64, len: u64) {
        self.flush_at(offset, len, Location::caller());
    }
}

/// A mapped file over a region: [`Direct`] in what ships, a recorded one in crash suites, which
/// loses line by line as x86 would.
pub struct RegionFile<R> {
    region: Arc<R>,
    kind: MappedKind,
    path: PathBuf,
    read_only: bool,
}

impl<R: Region> RegionFile<R> {
    /// Returns a mapped file that covers all of a region and reports this path. A region flushed by
    /// `msync` counts as an ordinary file, any other as emulated persistent memory.
    #[must_use]
    pub fn over(region: Arc<R>, path: &Path) -> RegionFile<R> {
        let kind = match region.flush_kind() {
            FlushKind::Msync => MappedKind::File,
            _ => MappedKind::EmulatedPmem,
        };
        RegionFile { region, kind, path: path.into(), read_only: false }
    }

    /// Returns the region.
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
        if bytes.len() > PIECE_BYTES && !self.kind.is_pmem() {
            let mut at = offset;
            for piece in bytes.chunks(PIECE_BYTES) {
                self.region.write(at, piece);
                self.region.expect_no_writes(at, piece.len());
                at += piece.len() as u64;
            }
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
        assert_inside(self, offset, len as u64);
        compare(offset, len, bytes, |offset, out| self.region.read(offset, out))
    }

    fn flush_at(&self, offset: u64, len: u64, place: Place) {
        assert_inside(self, offset, len);
        if self.kind.is_pmem() && !removed(SiteKind::Flush, place) {
            self.region.flush(offset, len as usize);
        }
    }

    fn persist_at(&self, offset: u64, len: u64, place: Place) -> io::Result<()> {
        assert_inside(self, offset, len);
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

/// Maps a file of this machine, locked against all other users for as long as it is mapped.
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

/// Compares the bytes that `read` copies out with `bytes`, without allocating: for implementations
/// of [`MappedFile::compare`].
pub fn compare(offset: u64, len: usize, bytes: &[u8], read: impl Fn(u64, &mut [u8])) -> Ordering {
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

/// Checks that the range lies inside of a file: for implementations of [`MappedFile`].
///
/// # Panics
/// If it does not.
pub fn assert_inside<F: MappedFile + ?Sized>(file: &F, offset: u64, len: u64) {
    let file_bytes = file.len();
    let inside = file_bytes.checked_sub(len).is_some_and(|last| offset <= last);
    assert!(inside, "{len} bytes at {offset} are outside of a mapped file of {file_bytes} bytes");
}

#[cfg(test)]
mod tests;
