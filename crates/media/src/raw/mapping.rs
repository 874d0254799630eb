//! Mapped memory, shared by threads (and, for files, processes), with every access bounds-checked.
//!
//! Access rule: any thread may access any byte inside at any time. Words are accessed by atomics,
//! runs of bytes by racy copies (see `racy`); no reference into mapped memory ever leaves this
//! file, except references to atomics. So a race yields a mixture of bytes and never undefined
//! behaviour. The slots of `buffer` are separate: only that file can reach the memory that they lie
//! in.

use std::ffi::c_void;
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use rustix::io;
use rustix::mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags};

use super::persist::{self, LineFlush};
use super::probe;
use super::racy;

/// Alignment of anonymous mappings, so that the kernel can use huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Parts that are sent at once.
const SEND_PARTS_MAX: usize = 16;
/// A socket whose peer has gone is an error and no signal.
const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// Bytes of the caller or of a region that are sent to a socket.
#[derive(Debug)]
pub struct SendPart<'a> {
    /// Valid for `len` bytes as long as they are borrowed.
    base: *const u8,
    len: usize,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> SendPart<'a> {
    /// Returns the bytes as a part.
    #[must_use]
    pub fn bytes(bytes: &'a [u8]) -> Self {
        SendPart { base: bytes.as_ptr(), len: bytes.len(), borrowed: PhantomData }
    }
}

/// Sends the first 16 parts, one behind the other, to a socket, without waiting for it. Returns how
/// many bytes it has taken.
///
/// # Errors
/// Those of the system call, among them that nothing can be sent now.
pub fn send_parts(socket: BorrowedFd<'_>, parts: &[SendPart<'_>]) -> std::io::Result<usize> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; SEND_PARTS_MAX];
    for (part, vector) in parts.iter().zip(&mut vectors) {
        *vector = libc::iovec { iov_base: part.base.cast_mut().cast(), iov_len: part.len };
    }
    // SAFETY: all fields of a message may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = parts.len().min(SEND_PARTS_MAX);
    // SAFETY: each vector is a slice that is borrowed, or mapped memory that is. The kernel only
    // reads them, in mapped memory as another thread might.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, SEND_FLAGS) };
    usize::try_from(sent).map_err(|_| std::io::Error::last_os_error())
}

/// Receives bytes from a socket. Returns how many.
///
/// # Errors
/// Those of the system call, among them that nothing can be received now.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> std::io::Result<usize> {
    // SAFETY: the target is a slice of this length that is borrowed.
    let received =
        unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    usize::try_from(received).map_err(|_| std::io::Error::last_os_error())
}

/// The eight words of a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line([AtomicU64; 8]);

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

impl Line {
    /// Returns the words.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> &[AtomicU64; 8] {
        &self.0
    }

    /// Returns a mask of the words of two lines whose upper 16 bits equal `tag`, each read once,
    /// relaxed: bit `w` for word `w` of the first, bit `8 + w` for that of the second.
    #[inline(always)]
    #[must_use]
    pub fn match_tags(first: &Line, second: &Line, tag: u16) -> u32 {
        let (first, second) = (ptr::from_ref(first).cast(), ptr::from_ref(second).cast());
        // SAFETY: both are valid and, being lines, aligned to 64 bytes.
        unsafe { racy::match_tags(first, second, tag) }
    }

    /// Compares the line's four pairs of words, each read once, relaxed. Bit `4 * pair` of the
    /// result is set if the first word equals `first`, bit `4 * pair + 2` if the second is 0.
    #[inline(always)]
    #[must_use]
    pub fn match_pairs(&self, first: u64) -> u32 {
        // SAFETY: a line is valid and aligned to 64 bytes.
        unsafe { racy::match_pairs(ptr::from_ref(self).cast(), first) }
    }
}

/// A range of mapped memory, at least a page long, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread, and all access is through atomics and racy copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes of zeroes that take up memory page by page when they are touched.
    pub(crate) fn anonymous(len: usize, huge_pages: bool) -> io::Result<Mapping> {
        let spread = len.checked_add(HUGE_PAGE_BYTES).ok_or(io::Errno::NOMEM)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
        let start = unsafe { mm::mmap_anonymous(ptr::null_mut(), spread, protection, flags) }?;
        let start = start.cast::<u8>();
        let before = start.align_offset(HUGE_PAGE_BYTES);
        unmap(start, before);
        let base = start.wrapping_add(before);
        unmap(base.wrapping_add(len), HUGE_PAGE_BYTES - before);
        let base = NonNull::new(base).ok_or(io::Errno::NOMEM)?;
        let mapping = Mapping { base, len };
        let advice = if huge_pages { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // A kernel without huge pages refuses the advice, which does no harm.
        let _ = mapping.advise(0, len, advice);
        Ok(mapping)
    }

    /// Maps `len` bytes of a file, whole pages, shared with other processes. With `synchronous` the
    /// mapping is refused unless flushing the processor's caches makes it durable (DAX). A store
    /// that the protection forbids raises a signal, which ends the process but breaks no promise.
    pub(crate) fn file(
        file: &File,
        len: usize,
        protection: ProtFlags,
        synchronous: bool,
    ) -> io::Result<Mapping> {
        let flags = match synchronous {
            true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            false => MapFlags::SHARED,
        };
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
        // Changes of the file by other processes are races like any other. If it is shortened, an
        // access raises a signal, which ends the process but breaks no promise.
        let start = unsafe { mm::mmap(ptr::null_mut(), len, protection, flags, file, 0) }?;
        let base = NonNull::new(start.cast()).ok_or(io::Errno::NOMEM)?;
        Ok(Mapping { base, len })
    }

    /// Returns the number of mapped bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the mapped bytes. A caller that accesses them there must follow the
    /// rule at the head of this file, or be the only one that can access them.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the address of `offset`, after checking that `len` bytes from there are mapped.
    #[inline(always)]
    fn pointer(&self, offset: u64, len: usize) -> *mut u8 {
        if len > self.len || offset > (self.len - len) as u64 {
            out_of_bounds(offset, len, self.len);
        }
        // SAFETY: just checked to be inside of the mapping, which is one allocation.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// Returns the address of `offset`, a multiple of `len`, after checking that `len` bytes from
    /// there are mapped.
    #[inline(always)]
    fn aligned_pointer(&self, offset: u64, len: usize) -> *mut u8 {
        if !offset.is_multiple_of(len as u64) || offset > (self.len - len) as u64 {
            out_of_bounds(offset, len, self.len);
        }
        // SAFETY: just checked to be inside of the mapping, which is longer than any word.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// Returns the byte at `offset`.
    #[inline(always)]
    pub(crate) fn atomic_u8(&self, offset: u64) -> &AtomicU8 {
        let at = self.aligned_pointer(offset, 1);
        // SAFETY: mapped for as long as `self` lives, and accessed only by the rule at the head of
        // this file.
        unsafe { AtomicU8::from_ptr(at) }
    }

    /// Returns the four-byte word at `offset`.
    #[inline(always)]
    pub(crate) fn atomic_u32(&self, offset: u64) -> &AtomicU32 {
        let at = self.aligned_pointer(offset, 4);
        // SAFETY: as in `atomic_u8`; aligned since base and offset are.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// Returns the two four-byte words at `offset`.
    #[inline(always)]
    pub(crate) fn atomic_u32_pair(&self, offset: u64) -> &[AtomicU32; 2] {
        if !offset.is_multiple_of(4) || offset > (self.len - 8) as u64 {
            out_of_bounds(offset, 8, self.len);
        }
        // SAFETY: just checked to be inside of the mapping, which is longer than any word.
        let at = unsafe { self.base.as_ptr().add(offset as usize) };
        // SAFETY: as in `atomic_u8`; aligned since base and offset are.
        unsafe { &*at.cast::<[AtomicU32; 2]>() }
    }

    /// Returns the eight-byte word at `offset`.
    #[inline(always)]
    pub(crate) fn atomic_u64(&self, offset: u64) -> &AtomicU64 {
        let at = self.aligned_pointer(offset, 8);
        // SAFETY: as in `atomic_u8`; aligned since base and offset are.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Returns the cache line at `offset`, a multiple of 64.
    #[inline(always)]
    pub(crate) fn line(&self, offset: u64) -> &Line {
        let at = self.aligned_pointer(offset, LINE_BYTES).cast::<Line>();
        // SAFETY: as in `atomic_u8`; aligned since base and offset are.
        unsafe { &*at }
    }

    /// Returns `N` cache lines at `offset`, a multiple of 64.
    #[inline(always)]
    pub(crate) fn lines<const N: usize>(&self, offset: u64) -> &[Line; N] {
        let len = N * LINE_BYTES;
        if !offset.is_multiple_of(LINE_BYTES as u64) {
            out_of_bounds(offset, len, self.len);
        }
        let at = self.pointer(offset, len).cast::<[Line; N]>();
        // SAFETY: as in `atomic_u8`; aligned since base and offset are.
        unsafe { &*at }
    }

    /// Returns `N` eight-byte words at `offset`.
    #[inline(always)]
    pub(crate) fn words<const N: usize>(&self, offset: u64) -> &[AtomicU64; N] {
        if !offset.is_multiple_of(8) {
            out_of_bounds(offset, 8 * N, self.len);
        }
        let at = self.pointer(offset, 8 * N).cast::<[AtomicU64; N]>();
        // SAFETY: as in `atomic_u8`; aligned since base and offset are.
        unsafe { &*at }
    }

    /// Copies bytes out.
    #[inline]
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        let from = self.pointer(offset, out.len());
        // SAFETY: `pointer` checked the source, and the target is a slice of this length.
        unsafe { racy::copy(from, out.as_mut_ptr(), out.len()) }
    }

    /// Receives at most `len` bytes from a socket.
    pub(crate) fn receive(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> std::io::Result<usize> {
        let target = self.pointer(offset, len).cast();
        // SAFETY: `pointer` checked the target. The kernel writes there as another thread might.
        let received = unsafe { libc::recv(socket.as_raw_fd(), target, len, 0) };
        usize::try_from(received).map_err(|_| std::io::Error::last_os_error())
    }

    /// Writes `len` bytes at `offset` to a file, at `at` of it.
    pub(crate) fn write_to(
        &self,
        file: BorrowedFd<'_>,
        at: u64,
        offset: u64,
        len: usize,
    ) -> std::io::Result<()> {
        let mut done = 0;
        while done < len {
            let (from, rest) = (self.pointer(offset + done as u64, len - done), len - done);
            let at = libc::off_t::try_from(at + done as u64)
                .map_err(|_| std::io::ErrorKind::InvalidInput)?;
            // SAFETY: `pointer` checked the source. The kernel reads it as another thread might.
            let written = unsafe { libc::pwrite(file.as_raw_fd(), from.cast(), rest, at) };
            match usize::try_from(written) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                Err(_) => match std::io::Error::last_os_error() {
                    error if error.kind() == std::io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Continues the CRC-32C `before` over bytes.
    pub(crate) fn checksum(&self, offset: u64, len: usize, before: u32) -> u32 {
        let from = self.pointer(offset, len);
        // SAFETY: `pointer` checked the range.
        unsafe { racy::checksum(from, len, before) }
    }

    /// Returns bytes to be sent.
    pub(crate) fn part(&self, offset: u64, len: usize) -> SendPart<'_> {
        SendPart { base: self.pointer(offset, len), len, borrowed: PhantomData }
    }

    /// Copies bytes to the end of a vector.
    #[inline(always)]
    pub(crate) fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        let from = self.pointer(offset, len);
        out.reserve(len);
        let target = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: `pointer` checked the source, and `reserve` made room behind the vector's end.
        unsafe { racy::copy_inlined(from, target, len) };
        let grown = out.len() + len;
        // SAFETY: that room was filled just now.
        unsafe { out.set_len(grown) };
    }

    /// Returns true if the bytes at `offset` equal `bytes`.
    #[inline]
    pub(crate) fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        let at = self.pointer(offset, bytes.len());
        // SAFETY: `pointer` checked the range.
        unsafe { racy::equal(at, bytes) }
    }

    /// Copies bytes in.
    #[inline]
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: `pointer` checked the target, and the source is a slice of this length.
        unsafe { racy::copy(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Moves `len` bytes; the ranges may overlap.
    pub(crate) fn copy_within(&self, from: u64, to: u64, len: usize) {
        let (from, to) = (self.pointer(from, len), self.pointer(to, len));
        // SAFETY: `pointer` checked both ranges.
        unsafe { racy::copy_overlapping(from, to, len) }
    }

    /// Asks the processor to fetch the cache line at `offset`; an offset outside does nothing.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: u64) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.base.as_ptr().wrapping_add(offset as usize);
            // SAFETY: a prefetch is a hint: it reads nothing and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = offset;
    }

    /// Loads all of `len` bytes for a measurement: 8, 16 or 32 of them, or whole lines.
    #[inline(always)]
    pub(crate) fn probe_load(&self, offset: u64, len: usize) -> u64 {
        let at = self.probe_pointer(offset, len);
        // SAFETY: `probe_pointer` checked range, length and alignment.
        unsafe { probe::load(at, len) }
    }

    /// Stores ones to `len` bytes for a measurement, past the caches if `streaming` is set.
    #[inline(always)]
    pub(crate) fn probe_store(&self, offset: u64, len: usize, streaming: bool) {
        let at = self.probe_pointer(offset, len);
        if streaming {
            // SAFETY: as in `probe_load`.
            unsafe { probe::store_streaming(at, len) }
        } else {
            // SAFETY: as in `probe_load`.
            unsafe { probe::store(at, len) }
        }
    }

    #[inline(always)]
    fn probe_pointer(&self, offset: u64, len: usize) -> *mut u8 {
        let whole = matches!(len, 8 | 16 | 32) || (len > 0 && len.is_multiple_of(LINE_BYTES));
        if !whole || !offset.is_multiple_of(len.min(LINE_BYTES) as u64) {
            out_of_bounds(offset, len, self.len);
        }
        self.pointer(offset, len)
    }

    /// Begins to write the cache lines of `len` bytes back to memory.
    pub(crate) fn flush(&self, how: LineFlush, offset: u64, len: usize) {
        let at = self.pointer(offset, len);
        // SAFETY: `pointer` checked the range.
        unsafe { persist::flush_lines(how, at, len) }
    }

    /// Copies bytes in past the processor's caches; fenced when it returns.
    pub(crate) fn stream(&self, how: LineFlush, offset: u64, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: `pointer` checked the target, and the source is a slice of this length; slices of
        // mapped memory do not exist, so the two do not overlap.
        unsafe { persist::stream(how, bytes.as_ptr(), to, bytes.len()) };
    }

    /// Writes whole pages of a mapped file to its disk and waits until they are durable.
    pub(crate) fn sync(&self, offset: u64, len: usize) -> io::Result<()> {
        let at = self.pointer(offset, len).cast::<c_void>();
        // SAFETY: `pointer` checked the range; no byte is changed.
        unsafe { mm::msync(at, len, MsyncFlags::SYNC) }
    }

    /// Advises the kernel about whole pages.
    pub(crate) fn advise(&self, offset: u64, len: usize, advice: Advice) -> io::Result<()> {
        let at = self.pointer(offset, len).cast::<c_void>();
        // SAFETY: `pointer` checked the range, and advice changes at most the contents to zeroes,
        // which is a write like any other.
        unsafe { mm::madvise(at, len, advice) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base.as_ptr(), self.len);
    }
}

/// Unmaps whole pages of a mapping that this file made and to which no reference exists.
fn unmap(start: *mut u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: callers pass parts of mappings that they made and have shared with no other code.
    let result = unsafe { mm::munmap(start.cast(), len) };
    debug_assert_eq!(result, Ok(()), "unmapping {len} bytes");
}

#[cold]
#[inline(never)]
fn out_of_bounds(offset: u64, len: usize, region: usize) -> ! {
    panic!("{len} bytes at {offset} are misaligned or outside of a region of {region} bytes");
}
