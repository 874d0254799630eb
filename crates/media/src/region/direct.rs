//! Memory mapped directly: the region that ships.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};

use super::{FlushKind, FoundPair, PmemMode, Region, RegionError, RegionKind, RegionOptions};
use crate::ahead;
use crate::device::{DaxDevice, DeviceError, SYSFS};
use crate::placement::{self, FileError, PAGE_BYTES, Placement, Prepared};
use crate::raw::mapping::Mapping;
pub use crate::raw::mapping::{Line, SendPart, receive, send_parts};
use crate::raw::persist::{LineFlush, fence};

/// Bytes read for one advice; most systems read more at once.
const READ_AHEAD_BYTES: usize = 128 << 10;
/// Number of lines that are searched for a pair at once: their match bits fill a word.
const PART_LINES: usize = 4;

/// First bit of each pair's four.
const FIRST_BITS: u64 = 0x1111_1111_1111_1111;

/// Byte-addressable memory shared by threads.
#[derive(Debug)]
pub struct Direct {
    mapping: Mapping,
    kind: RegionKind,
    line_flush: LineFlush,
    backing: Backing,
    /// Error number of the first sync that failed.
    sync_failure: AtomicI32,
}

/// Source of the mapped bytes. What is open in it holds the lock.
#[derive(Debug)]
enum Backing {
    Anonymous,
    File(File, PathBuf),
    Device { _locked: File },
}

impl Direct {
    /// Reserves memory of the process's own: `reserve_bytes`, rounded up to whole pages, all zero,
    /// which take up memory only when they are touched. With `huge_pages` the kernel is asked to
    /// use pages of 2 MiB where it can, otherwise not to.
    ///
    /// # Errors
    /// If the system refuses the reservation.
    pub fn anonymous(reserve_bytes: u64, huge_pages: bool) -> Result<Direct, RegionError> {
        let refused = |cause| RegionError::Reserve { bytes: reserve_bytes, cause };
        let len = reserve_bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .and_then(|len| usize::try_from(len).ok())
            .ok_or_else(|| refused(std::io::ErrorKind::OutOfMemory.into()))?;
        let mapping = Mapping::anonymous(len, huge_pages).map_err(|errno| refused(errno.into()))?;
        Ok(Direct::new(mapping, RegionKind::Anonymous, Backing::Anonymous))
    }

    /// Maps all whole pages of a file, or all of a DAX device if persistent memory is asked for. A
    /// lock excludes other processes for as long as the region lives, from a device only those that
    /// ask for it too. Nothing is changed, made or left behind on failure.
    ///
    /// # Errors
    /// If the file or device cannot be had as asked for.
    pub fn open(path: &Path, options: &RegionOptions) -> Result<Direct, RegionError> {
        Ok(Direct::open_file(path, options)?)
    }

    pub(crate) fn open_file(path: &Path, options: &RegionOptions) -> Result<Direct, FileError> {
        if let Some(mode) = options.pmem
            && let Some(device) = DaxDevice::find(path, Path::new(SYSFS))?
        {
            let file = device.open(options.read_only)?;
            placement::lock(&file, path)?;
            return Direct::over_device(&device, file, options, mode);
        }
        let placement = Placement {
            create: options.create,
            grow: options.grow,
            magic: options.magic,
            device: false,
            read_only: options.read_only,
        };
        let prepared = placement.prepare(path)?;
        let (mapping, kind) = map(path, &prepared, options)?;
        let file = match kind {
            RegionKind::Emulated => prepared.keep_as_found()?,
            _ => prepared.keep()?,
        };
        Ok(Direct::new(mapping, kind, Backing::File(file, path.into())))
    }

    /// Maps a DAX device. Its mappings need no `MAP_SYNC`: there is no metadata that a fault could
    /// leave behind.
    pub(super) fn over_device(
        device: &DaxDevice,
        file: File,
        options: &RegionOptions,
        mode: PmemMode,
    ) -> Result<Direct, FileError> {
        let path = device.path();
        let failed =
            |errno: Errno| FileError::Io { doing: "map", path: path.into(), cause: errno.into() };
        let kind = match device.persistence(mode.assume_dax)? {
            true => RegionKind::Dax,
            false => RegionKind::Emulated,
        };
        let bytes = device.mappable(options.create.unwrap_or(0))?;
        let len = usize::try_from(bytes).map_err(|_| failed(Errno::OVERFLOW))?;
        let mapping = Mapping::file(&file, len, protection(options), false).map_err(failed)?;
        let region = Direct::new(mapping, kind, Backing::Device { _locked: file });
        match options.magic {
            Some(magic) if !region.has_magic(magic, options.read_only) => {
                Err(DeviceError::Foreign { path: path.into() }.into())
            }
            _ => Ok(region),
        }
    }

    /// Returns true if a device begins with the magic bytes, which one that counts as unused gets.
    fn has_magic(&self, magic: [u8; 8], read_only: bool) -> bool {
        if self.equals(0, &magic) {
            return true;
        }
        let is_free = !read_only && self.equals(0, &[0; PAGE_BYTES as usize]);
        if is_free {
            self.store_u64(0, u64::from_ne_bytes(magic), Ordering::Relaxed);
            self.persist(0, 8);
        }
        is_free
    }

    /// Zeroes the first bytes of a DAX device, so that it counts as unused again. Other regions
    /// stay as they are: their files are removed.
    pub fn vacate(&self) {
        if let Backing::Device { .. } = self.backing {
            // The magic bytes go last: a device that begins with neither them nor zeroes is refused
            // to everyone.
            self.zero(8, PAGE_BYTES - 8);
            self.persist(8, PAGE_BYTES as usize - 8);
            self.store_u64(0, 0, Ordering::Relaxed);
            self.persist(0, 8);
        }
    }

    fn new(mapping: Mapping, kind: RegionKind, backing: Backing) -> Direct {
        let line_flush = LineFlush::of_this_processor();
        Direct { mapping, kind, line_flush, backing, sync_failure: AtomicI32::new(0) }
    }

    /// Returns the region's bytes.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Returns the kind of memory or file that holds the bytes.
    #[must_use]
    pub fn kind(&self) -> RegionKind {
        self.kind
    }

    /// Returns the means by which the bytes are made durable.
    #[must_use]
    pub fn flush_kind(&self) -> FlushKind {
        match self.kind {
            RegionKind::Anonymous => FlushKind::None,
            RegionKind::MappedFile => FlushKind::Msync,
            RegionKind::Dax | RegionKind::Emulated => self.line_flush.into(),
        }
    }

    /// Returns the first failure of a sync, because of which flushed bytes may not be durable. Once
    /// there is one, nothing written since the last successful sync can be trusted to survive.
    #[must_use]
    pub fn sync_failure(&self) -> Option<io::Error> {
        match self.sync_failure.load(Ordering::Acquire) {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number)),
        }
    }

    /// Sets a sync failure, for tests.
    #[cfg(test)]
    pub(crate) fn fail_sync(&self, errno: Errno) {
        self.sync_failure.store(errno.raw_os_error(), Ordering::Release);
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

    /// Stores `new` at `offset`, a multiple of 4, if `current` is there; returns the old word.
    ///
    /// # Errors
    /// Returns the word that was there instead.
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

    /// Stores `new` at `offset`, a multiple of 8; returns the old word.
    #[inline]
    pub fn swap_u64(&self, offset: u64, new: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).swap(new, order)
    }

    /// Stores `new` at `offset`, a multiple of 8, if `current` is there; returns the old word.
    ///
    /// # Errors
    /// Returns the word that was there instead.
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

    /// Sets bits of the word at `offset`, a multiple of 8; returns the old word.
    #[inline]
    pub fn fetch_or_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).fetch_or(bits, order)
    }

    /// Clears the bits of the word at `offset`, a multiple of 8, that `bits` lacks; returns the old
    /// word.
    #[inline]
    pub fn fetch_and_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).fetch_and(bits, order)
    }

    /// Adds to the word at `offset`, a multiple of 8, wrapping; returns the old word.
    #[inline]
    pub fn fetch_add_u64(&self, offset: u64, value: u64, order: Ordering) -> u64 {
        self.mapping.atomic_u64(offset).fetch_add(value, order)
    }

    /// Flips bits of the word at `offset`, a multiple of 8.
    pub fn fetch_xor_u64(&self, offset: u64, bits: u64) {
        self.mapping.atomic_u64(offset).fetch_xor(bits, Ordering::Relaxed);
    }

    /// Returns the cache line at `offset`, a multiple of 64.
    #[inline]
    #[must_use]
    pub fn line(&self, offset: u64) -> &Line {
        self.mapping.line(offset)
    }

    /// Returns `N` words at `offset`, a multiple of 8.
    #[inline]
    #[must_use]
    pub fn words<const N: usize>(&self, offset: u64) -> &[AtomicU64; N] {
        self.mapping.words(offset)
    }

    /// Loads the cache line at `offset`, a multiple of 64, as eight relaxed words.
    #[inline]
    #[must_use]
    pub fn load_line(&self, offset: u64) -> [u64; 8] {
        let words = self.line(offset).words();
        std::array::from_fn(|word| words[word].load(Ordering::Relaxed))
    }

    /// Loads two adjacent words of four bytes at `offset`, a multiple of 4.
    #[inline]
    #[must_use]
    pub fn load_u32_pair(&self, offset: u64, order: Ordering) -> [u32; 2] {
        self.mapping.atomic_u32_pair(offset).each_ref().map(|word| word.load(order))
    }

    /// Copies the bytes at `offset` out.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        self.mapping.read(offset, out);
    }

    /// Receives at most `len` bytes at `offset` from a socket.
    ///
    /// # Errors
    /// Those of the system call, among them that nothing can be received now.
    pub fn receive(&self, socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        self.mapping.receive(socket, offset, len)
    }

    /// Continues the CRC-32C `before` over `len` bytes at `offset`, without a copy of them.
    #[must_use]
    pub fn checksum(&self, offset: u64, len: usize, before: u32) -> u32 {
        self.mapping.checksum(offset, len, before)
    }

    /// Returns `len` bytes at `offset` as a part of what [`send_parts`](crate::send_parts) sends.
    #[must_use]
    pub fn send_part(&self, offset: u64, len: usize) -> SendPart<'_> {
        self.mapping.part(offset, len)
    }

    /// Copies `len` bytes at `offset` to the end of `out`.
    #[inline]
    pub fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        self.mapping.append_to(offset, len, out);
    }

    /// Copies `len` bytes at `offset` to the end of `out`; from an ordinary mapped file by a system
    /// call.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(file) = self.ordinary_file() else {
            self.mapping.append_to(offset, len, out);
            return Ok(());
        };
        let before = out.len();
        out.resize(before + len, 0);
        let done = file.read_exact_at(&mut out[before..], offset);
        if done.is_err() {
            out.truncate(before);
        }
        done
    }

    /// Copies `len` bytes at `offset` to the end of `out` if they are in memory, and returns true
    /// then. Otherwise the disk begins to read them.
    pub fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        match self.ordinary_file() {
            Some(file) => ahead::try_read(file, offset, len, out),
            None => {
                self.mapping.append_to(offset, len, out);
                true
            }
        }
    }

    /// Returns the file if it is an ordinary one.
    fn ordinary_file(&self) -> Option<&File> {
        match &self.backing {
            Backing::File(file, _) if self.kind == RegionKind::MappedFile => Some(file),
            _ => None,
        }
    }

    /// Copies `len` bytes at `offset` to the end of `out` if they lie inside of the region: for
    /// readers whose offset and length may stem from a record that was being written.
    #[inline]
    #[must_use]
    pub fn try_append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let inside = self.len().checked_sub(len as u64).is_some_and(|last| offset <= last);
        if inside {
            self.mapping.append_to(offset, len, out);
        }
        inside
    }

    /// Returns true if the bytes at `offset` equal `bytes`.
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

    /// Copies `bytes` to `offset`, on persistent memory by stores past the processor's caches, in
    /// steps of 256 bytes with a fence each. The bytes are visible to other threads before anything
    /// that the caller stores later; a [`Direct::drain`] makes them durable.
    pub fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        match self.kind {
            RegionKind::Dax | RegionKind::Emulated => {
                self.mapping.stream(self.line_flush, offset, bytes);
            }
            RegionKind::Anonymous | RegionKind::MappedFile => {
                self.mapping.write(offset, bytes);
                self.flush(offset, bytes.len());
            }
        }
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

    /// Begins to make `len` bytes at `offset` durable. On an ordinary mapped file it waits for the
    /// disk, and [`Direct::sync_failure`] tells if that failed.
    #[inline]
    pub fn flush(&self, offset: u64, len: usize) {
        match self.kind {
            RegionKind::Anonymous => {}
            RegionKind::Dax | RegionKind::Emulated => {
                self.mapping.flush(self.line_flush, offset, len);
            }
            RegionKind::MappedFile => self.sync_pages(offset, len),
        }
    }

    /// Waits until everything that this thread has flushed is durable.
    #[inline]
    pub fn drain(&self) {
        if matches!(self.kind, RegionKind::Dax | RegionKind::Emulated) {
            fence();
        }
    }

    /// Makes `len` bytes at `offset` durable.
    #[inline]
    pub fn persist(&self, offset: u64, len: usize) {
        self.flush(offset, len);
        self.drain();
    }

    /// Returns the mapping, for loops with instructions of their own choice.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Maps the whole pages in `len` bytes at `offset` of an ordinary mapped file for writing, all
    /// at once, so that writes to them do not fault one by one.
    pub fn expect_writes(&self, offset: u64, len: usize) {
        let (first, end) = self.whole_pages(offset, len);
        if self.kind == RegionKind::MappedFile && end > first {
            // An older kernel does not know the advice; pages then fault one by one.
            let advice = Advice::LinuxPopulateWrite;
            let _ = self.mapping.advise(first, (end - first) as usize, advice);
        }
    }

    /// Unmaps the whole pages in `len` bytes at `offset` of an ordinary mapped file; they stay in
    /// the page cache. The kernel write-protects each page that it writes back, and interrupts
    /// every processor for each mapped one; unmapping interrupts them only once.
    pub fn expect_no_writes(&self, offset: u64, len: usize) {
        let (first, end) = self.whole_pages(offset, len);
        if self.kind == RegionKind::MappedFile && end > first {
            // If this fails, flushing takes longer.
            let _ = self.mapping.advise(first, (end - first) as usize, Advice::LinuxDontNeed);
        }
    }

    /// Announces that the whole pages in `len` bytes at `offset` of an ordinary mapped file are
    /// read in no order from now on. Otherwise the kernel reads far ahead of a page that it has
    /// reclaimed, and reclaims other pages for that.
    pub fn expect_reads_in_no_order(&self, offset: u64, len: usize) {
        let (first, end) = self.whole_pages(offset, len);
        if self.kind == RegionKind::MappedFile && end > first {
            // If the kernel ignores the advice, it reads more than is needed.
            let _ = self.mapping.advise(first, (end - first) as usize, Advice::Random);
        }
    }

    /// Announces that all of an ordinary mapped file will be read soon: the kernel starts reading
    /// what is not in memory.
    pub fn expect_reads(&self) {
        let Some(file) = self.ordinary_file() else { return };
        for offset in (0..self.len()).step_by(READ_AHEAD_BYTES) {
            // If the kernel ignores the advice, each page is waited for.
            let len = NonZeroU64::new(READ_AHEAD_BYTES as u64);
            let _ = rustix::fs::fadvise(file, offset, len, rustix::fs::Advice::WillNeed);
        }
    }

    /// Unmaps an ordinary file, which is only read from now on, by system calls and in no order.
    pub fn expect_reads_only(&self) {
        self.expect_no_writes(0, self.len() as usize);
        if let Some(file) = self.ordinary_file() {
            // If the kernel ignores the advice, it reads more than is needed.
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
        }
    }

    /// Returns the bounds of the pages whose ends lie in `len` bytes at `offset`; the first may
    /// begin before them.
    fn whole_pages(&self, offset: u64, len: usize) -> (u64, u64) {
        let end = (offset + len as u64).min(self.len());
        (offset / PAGE_BYTES * PAGE_BYTES, end / PAGE_BYTES * PAGE_BYTES)
    }

    fn sync_pages(&self, offset: u64, len: usize) {
        let first = offset / PAGE_BYTES * PAGE_BYTES;
        let end = (offset + len as u64).next_multiple_of(PAGE_BYTES);
        if let Err(errno) = self.mapping.sync(first, (end - first) as usize) {
            let number = errno.raw_os_error();
            // Only the first failure is kept, which caused the others.
            let order = Ordering::AcqRel;
            let _ = self.sync_failure.compare_exchange(0, number, order, Ordering::Relaxed);
        }
    }

    /// Returns the space of the whole pages in `len` bytes at `offset` to the system. All of the
    /// bytes read as zero afterwards. Space of a file must be [claimed](Direct::claim) before it is
    /// used again.
    pub fn discard(&self, offset: u64, len: u64) {
        let end = offset + len;
        let first_page = offset.next_multiple_of(PAGE_BYTES).min(end);
        let last_page = (end / PAGE_BYTES * PAGE_BYTES).max(first_page);
        self.zero(offset, first_page - offset);
        if !self.discard_pages(first_page, last_page - first_page) {
            self.zero(first_page, last_page - first_page);
        }
        self.zero(last_page, end - last_page);
    }

    fn discard_pages(&self, offset: u64, len: u64) -> bool {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match &self.backing {
            _ if len == 0 => true,
            Backing::Anonymous => {
                self.mapping.advise(offset, len as usize, Advice::LinuxDontNeed).is_ok()
            }
            Backing::File(file, _) => rustix::fs::fallocate(file, hole, offset, len).is_ok(),
            // All of it is this region's, for as long as the device exists.
            Backing::Device { .. } => false,
        }
    }

    /// Allocates the space of `len` discarded bytes at `offset`. Without this, a store to them ends
    /// the process if the file system turns out to be full.
    ///
    /// # Errors
    /// If there is no space.
    pub fn claim(&self, offset: u64, len: u64) -> Result<(), FileError> {
        match &self.backing {
            Backing::File(file, path) if len > 0 => placement::allocate(file, offset, len)
                .map_err(|cause| FileError::allocation(path, len, cause)),
            _ => Ok(()),
        }
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

impl Region for Direct {
    #[inline]
    fn len(&self) -> u64 {
        Direct::len(self)
    }

    #[inline]
    fn flush_kind(&self) -> FlushKind {
        Direct::flush_kind(self)
    }

    #[inline]
    fn sync_failure(&self) -> Option<io::Error> {
        Direct::sync_failure(self)
    }

    #[inline]
    fn load_u8(&self, offset: u64, order: Ordering) -> u8 {
        Direct::load_u8(self, offset, order)
    }

    #[inline]
    fn load_u32(&self, offset: u64, order: Ordering) -> u32 {
        Direct::load_u32(self, offset, order)
    }

    #[inline]
    fn load_u64(&self, offset: u64, order: Ordering) -> u64 {
        Direct::load_u64(self, offset, order)
    }

    #[inline]
    fn load_line(&self, offset: u64) -> [u64; 8] {
        Direct::load_line(self, offset)
    }

    #[inline]
    fn find_pair<const LINES: usize>(&self, offset: u64, from: usize, first: u64) -> FoundPair {
        let lines = self.mapping.lines::<LINES>(offset);
        let mut looked = FoundPair::default();
        // The matches in four lines, the usual size of a node, are combined before any branch
        // depends on them, so that the processor does not mispredict while the lines are being
        // loaded.
        for (part, four) in lines.chunks(PART_LINES).enumerate() {
            let matches = four.iter().zip(0..).fold(0, |matches, (line, number): (_, u32)| {
                matches | u64::from(line.match_pairs(first)) << (16 * number)
            });
            let before = part * PART_LINES * 4;
            let looked_at =
                FIRST_BITS & u64::MAX.unbounded_shl(4 * from.saturating_sub(before) as u32);
            let zeroes = matches >> 2 & looked_at;
            let same = matches & looked_at & !zeroes;
            if looked.zero.is_none() && zeroes != 0 {
                looked.zero = Some(before + zeroes.trailing_zeros() as usize / 4);
            }
            if same != 0 {
                let pair = same.trailing_zeros() as usize / 4;
                let second = &four[pair / 4 % four.len()].words()[pair % 4 * 2 + 1];
                looked.found = Some((before + pair, second.load(Ordering::Relaxed)));
                break;
            }
        }
        looked
    }

    #[inline]
    fn load_pair(&self, offset: u64) -> [u64; 2] {
        self.words::<2>(offset).each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn replace_pair(&self, offset: u64, none: u64, pair: [u64; 2]) {
        let words = self.words::<2>(offset);
        let before = words[1].load(Ordering::Relaxed);
        if before != 0 && before != none {
            words[1].store(none, Ordering::Release);
        }
        words[0].store(pair[0], Ordering::Release);
        words[1].store(pair[1], Ordering::Release);
    }

    #[inline]
    fn read(&self, offset: u64, out: &mut [u8]) {
        Direct::read(self, offset, out)
    }

    #[inline]
    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        Direct::append_to(self, offset, len, out)
    }

    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        Direct::read_out(self, offset, len, out)
    }

    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        Direct::try_read_out(self, offset, len, out)
    }

    fn expect_reads_only(&self) {
        Direct::expect_reads_only(self);
    }

    fn expect_reads(&self) {
        Direct::expect_reads(self);
    }

    fn expect_reads_in_no_order(&self, offset: u64, len: usize) {
        Direct::expect_reads_in_no_order(self, offset, len);
    }

    #[inline]
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        Direct::equals(self, offset, bytes)
    }

    #[inline]
    fn prefetch(&self, offset: u64) {
        Direct::prefetch(self, offset)
    }

    #[inline]
    fn store_u8(&self, offset: u64, value: u8, order: Ordering) {
        Direct::store_u8(self, offset, value, order)
    }

    #[inline]
    fn store_u32(&self, offset: u64, value: u32, order: Ordering) {
        Direct::store_u32(self, offset, value, order)
    }

    #[inline]
    fn store_u64(&self, offset: u64, value: u64, order: Ordering) {
        Direct::store_u64(self, offset, value, order)
    }

    #[inline]
    fn compare_exchange_u32(
        &self,
        offset: u64,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        Direct::compare_exchange_u32(self, offset, current, new, success, failure)
    }

    #[inline]
    fn compare_exchange_u64(
        &self,
        offset: u64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        Direct::compare_exchange_u64(self, offset, current, new, success, failure)
    }

    #[inline]
    fn swap_u64(&self, offset: u64, new: u64, order: Ordering) -> u64 {
        Direct::swap_u64(self, offset, new, order)
    }

    #[inline]
    fn fetch_add_u64(&self, offset: u64, value: u64, order: Ordering) -> u64 {
        Direct::fetch_add_u64(self, offset, value, order)
    }

    #[inline]
    fn fetch_or_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        Direct::fetch_or_u64(self, offset, bits, order)
    }

    #[inline]
    fn fetch_and_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        Direct::fetch_and_u64(self, offset, bits, order)
    }

    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) {
        Direct::write(self, offset, bytes)
    }

    #[inline]
    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        Direct::write_streaming(self, offset, bytes)
    }

    #[inline]
    fn zero(&self, offset: u64, len: u64) {
        Direct::zero(self, offset, len)
    }

    #[inline]
    fn flush(&self, offset: u64, len: usize) {
        Direct::flush(self, offset, len)
    }

    #[inline]
    fn drain(&self) {
        Direct::drain(self)
    }

    fn expect_writes(&self, offset: u64, len: usize) {
        Direct::expect_writes(self, offset, len)
    }

    fn expect_no_writes(&self, offset: u64, len: usize) {
        Direct::expect_no_writes(self, offset, len)
    }
}

fn protection(options: &RegionOptions) -> ProtFlags {
    match options.read_only {
        true => ProtFlags::READ,
        false => ProtFlags::READ | ProtFlags::WRITE,
    }
}

fn map(
    path: &Path,
    prepared: &Prepared,
    options: &RegionOptions,
) -> Result<(Mapping, RegionKind), FileError> {
    let failed =
        |errno: Errno| FileError::Io { doing: "map", path: path.into(), cause: errno.into() };
    let len = prepared.len() / PAGE_BYTES * PAGE_BYTES;
    if len == 0 {
        let found = prepared.len();
        return Err(FileError::TooSmall { path: path.into(), found, needed: PAGE_BYTES });
    }
    let len = usize::try_from(len).map_err(|_| failed(Errno::OVERFLOW))?;
    let map = |synchronous| Mapping::file(prepared.file(), len, protection(options), synchronous);
    let Some(PmemMode { assume_dax }) = options.pmem else {
        return Ok((map(false).map_err(failed)?, RegionKind::MappedFile));
    };
    match map(true) {
        Ok(mapping) => Ok((mapping, RegionKind::Dax)),
        // A kernel that does not know the flag reports it as invalid.
        Err(Errno::OPNOTSUPP | Errno::INVAL) if assume_dax => {
            Ok((map(false).map_err(failed)?, RegionKind::Emulated))
        }
        Err(Errno::OPNOTSUPP | Errno::INVAL) => Err(FileError::NotDax { path: path.into() }),
        Err(errno) => Err(failed(errno)),
    }
}

impl From<LineFlush> for FlushKind {
    fn from(how: LineFlush) -> FlushKind {
        match how {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            LineFlush::Clwb => FlushKind::Clwb,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            LineFlush::Clflushopt => FlushKind::Clflushopt,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            LineFlush::Clflush => FlushKind::Clflush,
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            LineFlush::None => FlushKind::None,
        }
    }
}
