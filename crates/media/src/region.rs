//! Regions: byte-addressable memory shared by threads, in which positions are offsets.
//!
//! Every access is checked against the region's bounds: an offset outside is a programmer's error
//! and panics. Accesses may race. Words are atomic; a copy that races with writes yields a mixture
//! of old and new bytes, and it is for the caller to find out (by a version, a checksum, or an index
//! entry that must still be the same afterwards) whether to believe them.

use std::sync::atomic::Ordering;

use rustix::mm::Advice;

use crate::raw::mapping::Mapping;

/// The unit of mapping. Larger pages of other systems are multiples of it.
const PAGE_BYTES: u64 = 4096;

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
    #[error("cannot reserve {bytes} bytes of memory: {cause}; lower the tenant's memory quota")]
    Reserve {
        /// How much was asked for.
        bytes: u64,
        /// What the system said.
        cause: std::io::Error,
    },
}

/// Byte-addressable memory shared by threads.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    kind: RegionKind,
    flush_kind: FlushKind,
}

impl Region {
    /// Reserves memory of the process's own: `reserve_bytes`, rounded up to whole pages, all zero,
    /// which take up memory only as they are touched. With `huge_pages` the system is asked to back
    /// it by pages of 2 MiB where it can, otherwise to refrain.
    ///
    /// # Errors
    /// If the system refuses the reservation.
    pub fn anonymous(reserve_bytes: u64, huge_pages: bool) -> Result<Region, RegionError> {
        let refused = |cause| RegionError::Reserve { bytes: reserve_bytes, cause };
        let len = reserve_bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .and_then(|len| usize::try_from(len).ok())
            .ok_or_else(|| refused(std::io::ErrorKind::OutOfMemory.into()))?;
        let mapping = Mapping::anonymous(len, huge_pages).map_err(|errno| refused(errno.into()))?;
        Ok(Region { mapping, kind: RegionKind::Anonymous, flush_kind: FlushKind::None })
    }

    /// The region's bytes.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// What the bytes live on.
    #[must_use]
    pub fn kind(&self) -> RegionKind {
        self.kind
    }

    /// How the bytes are made durable.
    #[must_use]
    pub fn flush_kind(&self) -> FlushKind {
        self.flush_kind
    }

    /// Loads the byte at `offset`.
    #[inline]
    #[must_use]
    pub fn load_u8(&self, offset: u64, order: Ordering) -> u8 {
        self.mapping.atomic_u8(offset).load(order)
    }

    /// Stores the byte at `offset`.
    #[inline]
    pub fn store_u8(&self, offset: u64, value: u8, order: Ordering) {
        self.mapping.atomic_u8(offset).store(value, order);
    }

    /// Loads the word at `offset`, a multiple of 4.
    #[inline]
    #[must_use]
    pub fn load_u32(&self, offset: u64, order: Ordering) -> u32 {
        self.mapping.atomic_u32(offset).load(order)
    }

    /// Stores the word at `offset`, a multiple of 4.
    #[inline]
    pub fn store_u32(&self, offset: u64, value: u32, order: Ordering) {
        self.mapping.atomic_u32(offset).store(value, order);
    }

    /// Puts `new` at `offset`, a multiple of 4, if `current` is there; says what was there.
    ///
    /// # Errors
    /// The word that was there instead.
    #[inline]
    pub fn compare_exchange_u32(
        &self,
        offset: u64,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.mapping.atomic_u32(offset).compare_exchange(current, new, success, failure)
    }

    /// Sets bits of the word at `offset`, a multiple of 4; says what was there.
    #[inline]
    pub fn fetch_or_u32(&self, offset: u64, bits: u32, order: Ordering) -> u32 {
        self.mapping.atomic_u32(offset).fetch_or(bits, order)
    }

    /// Clears the bits of the word at `offset`, a multiple of 4, that `bits` lacks; says what was
    /// there.
    #[inline]
    pub fn fetch_and_u32(&self, offset: u64, bits: u32, order: Ordering) -> u32 {
        self.mapping.atomic_u32(offset).fetch_and(bits, order)
    }

    /// Adds to the word at `offset`, a multiple of 4, wrapping; says what was there.
    #[inline]
    pub fn fetch_add_u32(&self, offset: u64, value: u32, order: Ordering) -> u32 {
        self.mapping.atomic_u32(offset).fetch_add(value, order)
    }

    /// Loads the word at `offset`, a multiple of 8.
    #[inline]
    #[must_use]
    pub fn load_u64(&self, offset: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).load(order)
    }

    /// Stores the word at `offset`, a multiple of 8.
    #[inline]
    pub fn store_u64(&self, offset: u64, value: u64, order: Ordering) {
        self.mapping.atomic_u64(offset).store(value, order);
    }

    /// Puts `new` at `offset`, a multiple of 8; says what was there.
    #[inline]
    pub fn swap_u64(&self, offset: u64, new: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).swap(new, order)
    }

    /// Puts `new` at `offset`, a multiple of 8, if `current` is there; says what was there.
    ///
    /// # Errors
    /// The word that was there instead.
    #[inline]
    pub fn compare_exchange_u64(
        &self,
        offset: u64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.mapping.atomic_u64(offset).compare_exchange(current, new, success, failure)
    }

    /// Sets bits of the word at `offset`, a multiple of 8; says what was there.
    #[inline]
    pub fn fetch_or_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).fetch_or(bits, order)
    }

    /// Clears the bits of the word at `offset`, a multiple of 8, that `bits` lacks; says what was
    /// there.
    #[inline]
    pub fn fetch_and_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).fetch_and(bits, order)
    }

    /// Adds to the word at `offset`, a multiple of 8, wrapping; says what was there.
    #[inline]
    pub fn fetch_add_u64(&self, offset: u64, value: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).fetch_add(value, order)
    }

    /// Loads the cache line at `offset`, a multiple of 64, as eight relaxed words.
    #[inline]
    #[must_use]
    pub fn load_line(&self, offset: u64) -> [u64; 8] {
        let line = self.mapping.atomic_line(offset);
        std::array::from_fn(|word| line[word].load(Ordering::Relaxed))
    }

    /// Copies the bytes at `offset` out.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        self.mapping.read(offset, out);
    }

    /// Copies `len` bytes at `offset` to the end of `out`.
    #[inline]
    pub fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        self.mapping.append_to(offset, len, out);
    }

    /// Whether the bytes at `offset` are `bytes`.
    #[inline]
    #[must_use]
    pub fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.mapping.equals(offset, bytes)
    }

    /// Copies `bytes` to `offset` by ordinary stores.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    /// Copies `bytes` to `offset` past the processor's caches where that pays. The bytes are
    /// visible to other threads before anything that the caller stores later; a [`Region::drain`]
    /// makes them durable.
    pub fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    /// Moves `len` bytes; the ranges may overlap.
    pub fn copy_within(&self, from: u64, to: u64, len: usize) {
        self.mapping.copy_within(from, to, len);
    }

    /// Asks the processor to fetch the cache line at `offset`. An offset outside is ignored.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        self.mapping.prefetch(offset);
    }

    /// Begins to make `len` bytes at `offset` durable.
    pub fn flush(&self, offset: u64, len: usize) {
        let _ = (offset, len);
    }

    /// Waits until everything that this thread has flushed is durable.
    pub fn drain(&self) {}

    /// Makes `len` bytes at `offset` durable.
    pub fn persist(&self, offset: u64, len: usize) {
        self.flush(offset, len);
        self.drain();
    }

    /// Returns the memory of `len` bytes at `offset` to the system, as far as they fill whole
    /// pages. All of them read zero afterwards.
    pub fn discard(&self, offset: u64, len: u64) {
        let end = offset + len;
        let first_page = offset.next_multiple_of(PAGE_BYTES).min(end);
        let last_page = (end / PAGE_BYTES * PAGE_BYTES).max(first_page);
        self.zero(offset, first_page - offset);
        let pages = (last_page - first_page) as usize;
        if self.mapping.advise(first_page, pages, Advice::LinuxDontNeed).is_err() {
            self.zero(first_page, pages as u64);
        }
        self.zero(last_page, end - last_page);
    }

    /// Writes zeroes over `len` bytes at `offset`.
    pub fn zero(&self, offset: u64, len: u64) {
        const ZEROES: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
        let mut at = offset;
        while at < offset + len {
            let step = (offset + len - at).min(PAGE_BYTES);
            self.write(at, &ZEROES[..step as usize]);
            at += step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn region() -> Region {
        Region::anonymous(1 << 20, false).expect("memory")
    }

    #[test]
    fn a_region_is_zero_whole_pages_and_refuses_what_is_outside() {
        let region = Region::anonymous(5000, false).expect("memory");
        assert_eq!(region.len(), 8192);
        assert_eq!((region.kind(), region.flush_kind()), (RegionKind::Anonymous, FlushKind::None));
        let mut out = vec![1; 8192];
        region.read(0, &mut out);
        assert!(out.iter().all(|&byte| byte == 0));
        let refused = |access: &dyn Fn()| catch_unwind(AssertUnwindSafe(access)).is_err();
        assert!(refused(&|| region.write(8190, b"abc")));
        assert!(refused(&|| region.write(u64::MAX, b"a")));
        assert!(refused(&|| region.store_u64(8192, 1, Ordering::Relaxed)));
        assert!(refused(&|| region.store_u64(12, 1, Ordering::Relaxed)));
        assert!(refused(&|| assert_ne!(region.load_line(8192 - 32), [1; 8])));
        assert!(refused(&|| region.append_to(0, 8193, &mut Vec::new())));
        assert!(refused(&|| region.copy_within(0, 8000, 200)));
        region.prefetch(u64::MAX);
        region.write(8192, b"");
    }

    #[test]
    fn a_reservation_takes_no_memory_and_an_absurd_one_is_an_error() {
        Region::anonymous(1 << 40, true).expect("address space").store_u8(
            1 << 39,
            1,
            Ordering::Relaxed,
        );
        let error = Region::anonymous(u64::MAX / 2, false).expect_err("absurd").to_string();
        assert!(error.contains("lower the tenant's memory quota"), "{error}");
        assert!(Region::anonymous(u64::MAX, false).is_err());
    }

    #[test]
    fn words_lines_and_bytes_see_each_other() {
        let region = region();
        region.write(64, &std::array::from_fn::<u8, 64, _>(|i| i as u8));
        assert_eq!(region.load_u32(64, Ordering::Relaxed), 0x0302_0100);
        assert_eq!(region.load_line(64)[7], 0x3f3e_3d3c_3b3a_3938);
        assert_eq!(region.fetch_or_u32(64, 0xF0, Ordering::Relaxed), 0x0302_0100);
        assert_eq!(region.load_u8(64, Ordering::Relaxed), 0xF0);
        assert_eq!(region.fetch_add_u64(72, 1, Ordering::Relaxed), 0x0f0e_0d0c_0b0a_0908);
        let relaxed = Ordering::Relaxed;
        assert_eq!(region.compare_exchange_u64(128, 0, 7, relaxed, relaxed), Ok(0));
        assert_eq!(region.compare_exchange_u64(128, 0, 8, relaxed, relaxed), Err(7));
        assert_eq!(region.swap_u64(128, 9, relaxed), 7);
        assert!(region.equals(65, &[1, 2, 3]) && !region.equals(65, &[1, 2, 4]));
        assert!(region.equals(999_999, b""));
    }

    #[test]
    fn appending_keeps_what_the_vector_held() {
        let region = region();
        region.write(1000, b"a value of some length that is copied out");
        let mut out = b"header ".to_vec();
        region.append_to(1000, 7, &mut out);
        region.append_to(1002, 5, &mut out);
        assert_eq!(out, b"header a valuevalue");
    }

    #[test]
    fn discarded_bytes_read_zero_and_their_neighbours_stay() {
        let region = region();
        for (offset, len) in [(100, 50), (4000, 10_000), (4096, 4096), (8191, 2), (0, 1 << 20)] {
            region.write(0, &vec![0xAB; 1 << 20]);
            region.discard(offset, len);
            let mut out = vec![0; 1 << 20];
            region.read(0, &mut out);
            for (at, &byte) in out.iter().enumerate() {
                let inside = (offset..offset + len).contains(&(at as u64));
                assert_eq!(byte, if inside { 0 } else { 0xAB }, "{at} of {offset}+{len}");
            }
        }
    }

    #[test]
    fn racing_copies_yield_mixtures_of_what_was_written() {
        let region = region();
        let stop = std::sync::atomic::AtomicBool::new(false);
        region.write(0, &[b'a'; 300]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    region.write(0, &[b'b'; 300]);
                    region.write(0, &[b'a'; 300]);
                }
            });
            let mut out = Vec::new();
            for len in (0..300).cycle().take(30_000) {
                out.clear();
                region.append_to(300 - len as u64, len, &mut out);
                assert_eq!(out.len(), len);
                assert!(out.iter().all(|byte| b"ab".contains(byte)));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn regions_are_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Region>();
    }
}
