//! Regions: byte-addressable memory shared by threads, in which positions are offsets.
//!
//! Every access is checked against the region's bounds: an offset outside is a programmer's error
//! and panics. Accesses may race. Words are atomic; a copy that races with writes yields a mixture
//! of old and new bytes, and it is for the caller to find out (by a version, a checksum, or an
//! index entry that must still be the same afterwards) whether to believe them.
//!
//! What lies on persistent memory is written against the trait [`Region`], and so runs unchanged
//! on [`Direct`], which is what is shipped, and under observation.

use std::io;
use std::sync::atomic::Ordering;

use crate::placement::FileError;

mod direct;

pub use direct::{Direct, Line};

/// What a region's bytes live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionKind {
    /// The process's own memory: gone with the process.
    Anonymous,
    /// A file on a DAX filesystem under `MAP_SYNC`: what is flushed and drained survives a power
    /// failure.
    Dax,
    /// An ordinary file that was declared persistent memory for trials. It is flushed as
    /// persistent memory is, and survives the death of the process, not a power failure.
    Emulated,
    /// An ordinary mapped file: survives the death of the process; once flushed, a power failure.
    MappedFile,
}

/// How a region's bytes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushKind {
    /// Not at all: the memory is volatile.
    None,
    /// By `clwb`, which writes a line back and keeps it cached.
    Clwb,
    /// By `clflushopt`, which writes a line back and drops it.
    Clflushopt,
    /// By `clflush`, which does so one line at a time.
    Clflush,
    /// By `msync`.
    Msync,
}

/// Why a region could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system refused to reserve address space.
    #[error(
        "cannot reserve {bytes} bytes of memory: {cause}; let the process have more (`ulimit -v`; \
         a store reserves more than it uses), or lower the tenant's memory quota"
    )]
    Reserve {
        /// How much was asked for.
        bytes: u64,
        /// What the system said.
        cause: io::Error,
    },
    /// The region's file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// How a region's file is opened.
#[derive(Debug, Clone, Default)]
pub struct RegionOptions {
    /// Make the file with this many bytes, rounded up to whole pages and all of them allocated, if
    /// it does not exist or is empty. Without this it must exist.
    pub create: Option<u64>,
    /// Lengthen a file that is shorter than `create`, instead of refusing it. It is never
    /// shortened.
    pub grow: bool,
    /// The first eight bytes of every file that is ours: a new file gets them, and a file that
    /// begins otherwise is left alone and refused.
    pub magic: Option<[u8; 8]>,
    /// Persistent memory, instead of an ordinary mapped file.
    pub pmem: Option<PmemMode>,
    /// The file exists and is only read: it need not be writable, and none of its space is
    /// allocated. A store to the region ends the process.
    pub read_only: bool,
}

/// How a file is taken for persistent memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PmemMode {
    /// Take a file that is not on a DAX filesystem as well; the region is then
    /// [`RegionKind::Emulated`].
    pub assume_dax: bool,
}

/// What [`Region::find_pair`] found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FoundPair {
    /// The number of the first pair, and its second word.
    pub found: Option<(usize, u64)>,
    /// The first pair whose second word is 0; perhaps none if it is behind the one that was found.
    pub zero: Option<usize>,
}

/// Byte-addressable memory shared by threads, and how its bytes are made durable.
///
/// A word is stored whole or, after a crash, not at all; a longer write may survive in any of its
/// aligned words of eight bytes. A store may become durable at any time, but need not before it is
/// flushed and this thread drains.
#[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
pub trait Region: Send + Sync {
    /// The region's bytes.
    fn len(&self) -> u64;

    /// How the bytes are made durable.
    fn flush_kind(&self) -> FlushKind;

    /// Why something that was flushed may not be durable, see [`Direct::sync_failure`].
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

    /// Looks at the pairs of words in the lines at `offset`, a multiple of 64, four in each, from
    /// the pair `from` on, for one with `first` as its first word and another second word than 0.
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

    /// Stores another pair of words at `offset`, a multiple of 8: the second word is made `none`
    /// first, unless it is that or 0, so that nobody sees it with another first word.
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

    /// The same, of an ordinary mapped file by a call of the system.
    ///
    /// # Errors
    /// If the disk fails.
    #[track_caller]
    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.append_to(offset, len, out);
        Ok(())
    }

    /// The same if the bytes are in memory, and says whether they are; if not, the disk begins to
    /// read them.
    #[track_caller]
    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.append_to(offset, len, out);
        true
    }

    /// Says that all of it is only read from now on, by calls of the system and in no order. A
    /// hint.
    fn expect_reads_only(&self) {}

    /// Says that all of it is going to be read soon, in order or not. A hint.
    fn expect_reads(&self) {}

    /// Says that `len` bytes at `offset` are read in no order from now on. A hint.
    fn expect_reads_in_no_order(&self, _offset: u64, _len: usize) {}

    /// Whether the bytes at `offset` are `bytes`.
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

    /// Puts `new` at `offset`, a multiple of 4, if `current` is there; says what was there.
    ///
    /// # Errors
    /// The word that was there instead.
    #[track_caller]
    fn compare_exchange_u32(
        &self,
        offset: u64,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;

    /// Puts `new` at `offset`, a multiple of 8, if `current` is there; says what was there.
    ///
    /// # Errors
    /// The word that was there instead.
    #[track_caller]
    fn compare_exchange_u64(
        &self,
        offset: u64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;

    /// Puts `new` at `offset`, a multiple of 8; says what was there.
    #[track_caller]
    fn swap_u64(&self, offset: u64, new: u64, order: Ordering) -> u64;

    /// Adds to the word at `offset`, a multiple of 8, wrapping; says what was there.
    #[track_caller]
    fn fetch_add_u64(&self, offset: u64, value: u64, order: Ordering) -> u64;

    /// Sets bits of the word at `offset`, a multiple of 8; says what was there.
    #[track_caller]
    fn fetch_or_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64;

    /// Clears the bits of the word at `offset`, a multiple of 8, that `bits` lacks; says what was
    /// there.
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

    /// Says that `len` bytes at `offset` are going to be written soon. A hint.
    fn expect_writes(&self, _offset: u64, _len: usize) {}

    /// Says that `len` bytes at `offset` are going to be flushed and then hardly written again. A
    /// hint.
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
