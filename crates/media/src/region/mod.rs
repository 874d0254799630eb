//! Regions: byte-addressable memory shared by threads, in which positions are offsets.
//!
//! Every access is checked against the region's bounds: an offset outside is a programmer's error
//! and panics. Accesses may race. Words are atomic. A copy that races with writes yields a mixture
//! of old and new bytes; the caller must find out (by a version, a checksum, or an index entry that
//! must still be equal afterwards) if the copy is valid.
//!
//! Code for persistent memory is written against the trait [`Region`], so it runs unchanged on
//! [`Direct`], which is the one that ships, and under observation.

use std::io;
use std::sync::atomic::Ordering;

use crate::placement::FileError;

mod direct;

pub use direct::{Direct, Line, SendPart, receive, send_parts};

/// Memory or file that holds a region's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionKind {
    /// The process's own memory, which is lost when the process ends.
    Anonymous,
    /// A file on a DAX file system under `MAP_SYNC`, or a DAX device of persistent memory: flushed
    /// and drained bytes survive a power failure.
    Dax,
    /// An ordinary file, or a DAX device of volatile memory, declared to be persistent memory. It
    /// is flushed like persistent memory. Its bytes survive the death of the process, but not a
    /// power failure.
    Emulated,
    /// An ordinary mapped file: its bytes survive the death of the process and, once flushed, a
    /// power failure.
    MappedFile,
}

/// Means by which a region's bytes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushKind {
    /// None: the memory is volatile.
    None,
    /// `clwb`, which writes a line back and keeps it cached.
    Clwb,
    /// `clflushopt`, which writes a line back and evicts it.
    Clflushopt,
    /// `clflush`, which writes back and evicts like `clflushopt`, but one line at a time.
    Clflush,
    /// `msync`.
    Msync,
}

/// Reason why a region could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system refused to reserve address space.
    #[error(
        "cannot reserve {bytes} bytes of memory: {cause}; raise the process's limit (`ulimit -v`; \
         more is reserved than used), or lower the tenant's memory quota"
    )]
    Reserve {
        /// Bytes that were asked for.
        bytes: u64,
        /// The system's error.
        cause: io::Error,
    },
    /// The region's file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Options for opening a region's file.
#[derive(Debug, Clone, Default)]
pub struct RegionOptions {
    /// Creates the file with this many bytes, rounded up to whole pages and all of them allocated,
    /// if it does not exist or is empty. Without this the file must exist. A DAX device must have
    /// as many.
    pub create: Option<u64>,
    /// Lengthens a file that is shorter than `create` instead of refusing it. No file is ever
    /// shortened.
    pub grow: bool,
    /// First eight bytes of the file. A new file gets them, and a DAX device whose first 4 KiB are
    /// zero; what begins otherwise is refused and left alone.
    pub magic: Option<[u8; 8]>,
    /// Treats the file as persistent memory instead of as an ordinary mapped file.
    pub pmem: Option<PmemMode>,
    /// Opens an existing file for reads only: it need not be writable, and no space is allocated
    /// for it. A store to the region ends the process.
    pub read_only: bool,
}

/// Conditions on which a file is taken for persistent memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PmemMode {
    /// Accepts a file that is not on a DAX file system, and a DAX device of volatile memory; the
    /// region is then [`RegionKind::Emulated`].
    pub assume_dax: bool,
}

/// Result of [`Region::find_pair`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FoundPair {
    /// Number of the first matching pair, and its second word.
    pub found: Option<(usize, u64)>,
    /// First pair whose second word is 0. It may be missing if it lies behind the pair that was
    /// found.
    pub zero: Option<usize>,
}

/// Byte-addressable memory shared by threads, with operations that make its bytes durable.
///
/// After a crash a word is stored whole or not at all; of a longer write any of its aligned
/// eight-byte words may survive. A store may become durable at any time, but need not before it is
/// flushed and this thread drains.
#[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
pub trait Region: Send + Sync {
    /// Returns the region's bytes.
    fn len(&self) -> u64;

    /// Returns the means by which the bytes are made durable.
    fn flush_kind(&self) -> FlushKind;

    /// Returns the error because of which flushed bytes may not be durable, see
    /// [`Direct::sync_failure`].
    fn sync_failure(&self) -> Option<io::Error> {
        None
    }

    /// Loads the byte at `offset`.
    #[track_caller]
    fn load_u8(&self, offset: u64, order: Ordering) -> u8;

    /// Loads the word at `offset`, a multiple of 4.
    #[track_caller]
    fn load_u32(&self, offset: u64, order: Ordering) -> u32;

    /// Loads the word at `offset`, a multiple of 8.
    #[track_caller]
    fn load_u64(&self, offset: u64, order: Ordering) -> u64;

    /// Loads the cache line at `offset`, a multiple of 64, as eight relaxed words.
    #[track_caller]
    fn load_line(&self, offset: u64) -> [u64; 8];

    /// Searches the pairs of words in the lines at `offset`, a multiple of 64, four pairs a line,
    /// starting at pair `from`, for one whose first word is `first` and whose second word is not 0.
    #[track_caller]
    fn find_pair<const LINES: usize>(&self, offset: u64, from: usize, first: u64) -> FoundPair {
        let mut looked = FoundPair::default();
        for line in 0..LINES {
            let words = self.load_line(offset + 64 * line as u64);
            for (pair, &[its_first, second]) in words.as_chunks::<2>().0.iter().enumerate() {
                let number = 4 * line + pair;
                if number < from {
                } else if second == 0 {
                    looked.zero.get_or_insert(number);
                } else if its_first == first {
                    looked.found = Some((number, second));
                    return looked;
                }
            }
        }
        looked
    }

    /// Loads the pair of words at `offset`, a multiple of 8.
    #[track_caller]
    fn load_pair(&self, offset: u64) -> [u64; 2] {
        [0, 8].map(|at| self.load_u64(offset + at, Ordering::Relaxed))
    }

    /// Stores a pair of words at `offset`, a multiple of 8. The second word is set to `none` first,
    /// unless it is that or 0, so that no reader sees the old second word with the new first one.
    #[track_caller]
    fn replace_pair(&self, offset: u64, none: u64, pair: [u64; 2]) {
        let before = self.load_u64(offset + 8, Ordering::Relaxed);
        if before != 0 && before != none {
            self.store_u64(offset + 8, none, Ordering::Release);
        }
        self.store_u64(offset, pair[0], Ordering::Release);
        self.store_u64(offset + 8, pair[1], Ordering::Release);
    }

    /// Copies the bytes at `offset` out.
    #[track_caller]
    fn read(&self, offset: u64, out: &mut [u8]);

    /// Copies `len` bytes at `offset` to the end of `out`.
    #[track_caller]
    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>);

    /// Copies `len` bytes at `offset` to the end of `out`; from an ordinary mapped file by a system
    /// call.
    ///
    /// # Errors
    /// If the disk fails.
    #[track_caller]
    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.append_to(offset, len, out);
        Ok(())
    }

    /// Copies `len` bytes at `offset` to the end of `out` if they are in memory, and returns true
    /// then. Otherwise the disk begins to read them.
    #[track_caller]
    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.append_to(offset, len, out);
        true
    }

    /// Hints that the whole region is only read from now on, by system calls and in no order.
    fn expect_reads_only(&self) {}

    /// Hints that the whole region will be read soon, in order or not.
    fn expect_reads(&self) {}

    /// Hints that `len` bytes at `offset` are read in no order from now on.
    fn expect_reads_in_no_order(&self, _offset: u64, _len: usize) {}

    /// Returns true if the bytes at `offset` equal `bytes`.
    #[track_caller]
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool;

    /// Asks the processor to fetch the cache line at `offset`. An offset outside is ignored.
    fn prefetch(&self, offset: u64);

    /// Stores the byte at `offset`.
    #[track_caller]
    fn store_u8(&self, offset: u64, value: u8, order: Ordering);

    /// Stores the word at `offset`, a multiple of 4.
    #[track_caller]
    fn store_u32(&self, offset: u64, value: u32, order: Ordering);

    /// Stores the word at `offset`, a multiple of 8.
    #[track_caller]
    fn store_u64(&self, offset: u64, value: u64, order: Ordering);

    /// Stores `new` at `offset`, a multiple of 4, if `current` is there; returns the old word.
    ///
    /// # Errors
    /// Returns the word that was there instead.
    #[track_caller]
    fn compare_exchange_u32(
        &self,
        offset: u64,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;

    /// Stores `new` at `offset`, a multiple of 8, if `current` is there; returns the old word.
    ///
    /// # Errors
    /// Returns the word that was there instead.
    #[track_caller]
    fn compare_exchange_u64(
        &self,
        offset: u64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;

    /// Stores `new` at `offset`, a multiple of 8; returns the old word.
    #[track_caller]
    fn swap_u64(&self, offset: u64, new: u64, order: Ordering) -> u64;

    /// Adds to the word at `offset`, a multiple of 8, wrapping; returns the old word.
    #[track_caller]
    fn fetch_add_u64(&self, offset: u64, value: u64, order: Ordering) -> u64;

    /// Sets bits of the word at `offset`, a multiple of 8; returns the old word.
    #[track_caller]
    fn fetch_or_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64;

    /// Clears the bits of the word at `offset`, a multiple of 8, that `bits` lacks; returns the old
    /// word.
    #[track_caller]
    fn fetch_and_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64;

    /// Copies `bytes` to `offset` by ordinary stores.
    #[track_caller]
    fn write(&self, offset: u64, bytes: &[u8]);

    /// Copies `bytes` to `offset` past the processor's caches, see [`Direct::write_streaming`];
    /// only a drain is needed to make them durable.
    #[track_caller]
    fn write_streaming(&self, offset: u64, bytes: &[u8]);

    /// Writes zeroes over `len` bytes at `offset`.
    #[track_caller]
    fn zero(&self, offset: u64, len: u64);

    /// Begins to make `len` bytes at `offset` durable.
    #[track_caller]
    fn flush(&self, offset: u64, len: usize);

    /// Waits until everything that this thread has flushed or streamed is durable.
    #[track_caller]
    fn drain(&self);

    /// Hints that `len` bytes at `offset` will be written soon.
    fn expect_writes(&self, _offset: u64, _len: usize) {}

    /// Hints that `len` bytes at `offset` will be flushed and then hardly written again.
    fn expect_no_writes(&self, _offset: u64, _len: usize) {}

    /// Makes `len` bytes at `offset` durable.
    #[track_caller]
    fn persist(&self, offset: u64, len: usize) {
        self.flush(offset, len);
        self.drain();
    }
}

#[cfg(test)]
mod tests;
