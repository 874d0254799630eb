//! Racy copies as loops over atomic bytes: for architectures without a faster way, and as a
//! reference for the faster way.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// # Safety
/// `at` must be valid for reads and writes of a byte for as long as the call lasts, and other
/// threads must access it atomically or by racy copies only.
unsafe fn load(at: *const u8) -> u8 {
    // SAFETY: the caller keeps `at` valid; a byte has no alignment.
    let byte = unsafe { AtomicU8::from_ptr(at.cast_mut()) };
    byte.load(Ordering::Relaxed)
}

/// # Safety
/// As for [`load`].
unsafe fn copy_byte(from: *const u8, to: *mut u8, index: usize) {
    // SAFETY: the caller's range holds `index`.
    let from = unsafe { from.add(index) };
    // SAFETY: the caller's range holds `index`.
    let to = unsafe { to.add(index) };
    // SAFETY: the caller keeps both bytes valid.
    let byte = unsafe { load(from) };
    // SAFETY: the caller keeps `to` valid.
    let target = unsafe { AtomicU8::from_ptr(to) };
    target.store(byte, Ordering::Relaxed);
}

/// Copies `len` bytes that do not overlap.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes; other threads may access
/// either at once, atomically or by racy copies.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    for index in 0..len {
        // SAFETY: the caller's ranges hold `index`.
        unsafe { copy_byte(from, to, index) };
    }
}

/// Copies `len` bytes that may overlap.
///
/// # Safety
/// As for [`copy`].
pub(crate) unsafe fn copy_overlapping(from: *const u8, to: *mut u8, len: usize) {
    if (to as usize) <= (from as usize) {
        // SAFETY: passed on from the caller; ascending order suits a move downwards.
        return unsafe { copy(from, to, len) };
    }
    for index in (0..len).rev() {
        // SAFETY: the caller's ranges hold `index`.
        unsafe { copy_byte(from, to, index) };
    }
}

/// Returns true if the bytes at `at` equal `bytes`.
///
/// # Safety
/// `at` must be valid for reads of as many bytes; other threads may write them at once.
pub(crate) unsafe fn equal(at: *const u8, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(index, &byte)| {
        // SAFETY: the caller's range holds `index`.
        let at = unsafe { at.add(index) };
        // SAFETY: the caller keeps the range valid.
        byte == unsafe { load(at) }
    })
}

/// Returns a mask of the words of two cache lines whose upper 16 bits equal `tag`: bit `w` for word
/// `w` of the first, bit `8 + w` for that of the second.
///
/// # Safety
/// Both must be multiples of 8 and valid for reads of 64 bytes; other threads may write them at
/// once, atomically or by racy copies.
pub(crate) unsafe fn match_tags(first: *const u8, second: *const u8, tag: u16) -> u32 {
    let mut mask = 0;
    for word in 0..16 {
        let line = if word < 8 { first } else { second };
        // SAFETY: the word lies inside of the line.
        let at = unsafe { line.add(word % 8 * 8) };
        // SAFETY: valid and aligned by the caller's promise.
        let value = unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) };
        mask |= u32::from(value.load(Ordering::Relaxed) >> 48 == u64::from(tag)) << word;
    }
    mask
}

/// Compares the four pairs of words of a cache line. Bit `4 * pair` of the result is set if the
/// first word equals `first`, bit `4 * pair + 2` if the second is 0.
///
/// # Safety
/// As for [`match_tags`], for one line.
pub(crate) unsafe fn match_pairs(line: *const u8, first: u64) -> u32 {
    let mut mask = 0;
    for word in 0..8 {
        // SAFETY: the word lies inside of the line.
        let at = unsafe { line.add(word * 8) };
        // SAFETY: valid and aligned by the caller's promise.
        let value = unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) };
        let wanted = if word % 2 == 0 { first } else { 0 };
        mask |= u32::from(value.load(Ordering::Relaxed) == wanted) << (2 * word);
    }
    mask
}
