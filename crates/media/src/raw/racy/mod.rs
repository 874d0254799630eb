//! Copies and comparisons of bytes that other threads may be writing at once.
//!
//! A reader of the cache copies a value without a lock and checks afterwards that it still was the
//! item; a writer may have changed those bytes meanwhile. In Rust's memory model an ordinary copy
//! of racing bytes (`ptr::copy`, a slice) is undefined behaviour, whatever is done with the result,
//! since the compiler may assume that no race exists and read twice, narrow or reorder. Byte-wise
//! atomic copies would be the right tool, but are not in the language yet, and a loop of `AtomicU8`
//! costs ten times a `memcpy`. So the copies are written in assembly, which the compiler cannot
//! look into: to it each block is an opaque function that performs some relaxed atomic byte loads
//! and stores, in unknown order, once each. The processor defines the result of racing plain loads
//! and stores: some mixture of old and new bytes. Callers order these accesses with the atomics and
//! fences around them.
//!
//! On other architectures than x86-64 the copies are loops over `AtomicU8`, correct but slow.

mod checksum;
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod streams;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

pub(crate) use checksum::checksum;
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(crate) use portable::{
    copy, copy as copy_inlined, copy_overlapping, equal, match_pairs, match_tags,
};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86::{copy, copy_inlined, copy_overlapping, equal, match_pairs, match_tags};

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::{portable, x86};

    type Copy = unsafe fn(*const u8, *mut u8, usize);
    type MatchTags = unsafe fn(*const u8, *const u8, u16) -> u32;
    type MatchPairs = unsafe fn(*const u8, u64) -> u32;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    fn check_copy(copy: Copy, len: usize, shift: usize) {
        let source = pattern(len + shift);
        let mut target = vec![0xEE; len + shift + 64];
        // SAFETY: both vectors hold `len` bytes behind `shift`, and no other code knows them.
        unsafe { copy(source[shift..].as_ptr(), target[shift..].as_mut_ptr(), len) };
        assert_eq!(target[shift..shift + len], source[shift..], "{len} bytes at {shift}");
        assert!(target[..shift].iter().chain(&target[shift + len..]).all(|&b| b == 0xEE));
    }

    fn check_overlap(copy: Copy, from: usize, to: usize, len: usize) {
        let mut bytes = pattern(from.max(to) + len);
        let mut expected = bytes.clone();
        expected.copy_within(from..from + len, to);
        let base = bytes.as_mut_ptr();
        // SAFETY: `from + len` is inside of the vector.
        let source = unsafe { base.add(from) };
        // SAFETY: `to + len` is inside of the vector.
        let target = unsafe { base.add(to) };
        // SAFETY: both ranges are inside of the vector, and no other code knows it.
        unsafe { copy(source, target, len) };
        assert!(bytes == expected, "{len} bytes from {from} to {to}");
    }

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else_touched() {
        for copy in [x86::copy as Copy, portable::copy, x86::copy_overlapping] {
            for len in (0..700).chain([1023, 1024, 2047, 2048, 2049, 4095, 4096, 9000, 70_001]) {
                for shift in [0, 1, 7, 8, 15, 33, 63] {
                    check_copy(copy, len, shift);
                }
            }
        }
    }

    #[test]
    fn overlapping_ranges_are_moved_like_memmove() {
        for copy in [x86::copy_overlapping as Copy, portable::copy_overlapping] {
            for len in [0, 1, 3, 9, 20, 64, 100, 129, 191, 500, 3000, 5001, 20_000] {
                for distance in [0, 1, 5, 16, 63, 64, 65, 300, 6000] {
                    check_overlap(copy, distance, 0, len);
                    check_overlap(copy, 0, distance, len);
                }
            }
        }
    }

    #[test]
    fn comparison_sees_every_differing_byte() {
        for equal in [x86::equal as unsafe fn(*const u8, &[u8]) -> bool, portable::equal] {
            for len in (0..300).chain([1000, 4097]) {
                let bytes = pattern(len + 1);
                let mut other = bytes[1..].to_vec();
                // SAFETY: `len` bytes lie behind the first one.
                assert!(unsafe { equal(bytes[1..].as_ptr(), &other) }, "{len}");
                for at in 0..len {
                    other[at] ^= 0x10;
                    // SAFETY: as above.
                    assert!(!unsafe { equal(bytes[1..].as_ptr(), &other) }, "{len} at {at}");
                    other[at] ^= 0x10;
                }
            }
        }
    }

    #[test]
    fn tags_are_found_in_every_word_of_both_lines() {
        #[repr(align(64))]
        struct Lines([u64; 16]);
        for tag in [0_u16, 1, 0x7FFF, 0x8000, 0xABCD, 0xFFFF] {
            for at in 0..16 {
                // Near misses everywhere else: other upper bits, and the tag in lower ones.
                let mut lines = Lines(std::array::from_fn(|word| {
                    let other = u64::from(tag ^ 1 << (word % 16));
                    other << 48 | u64::from(tag) << 32 | u64::from(tag) << 16 | u64::from(tag)
                }));
                lines.0[at] = u64::from(tag) << 48 | at as u64;
                lines.0[15 - at] = u64::from(tag) << 48;
                let (first, second) = lines.0.split_at(8);
                let (first, second) = (first.as_ptr().cast::<u8>(), second.as_ptr().cast::<u8>());
                for match_tags in [x86::match_tags as MatchTags, portable::match_tags] {
                    // SAFETY: both are aligned lines that no other code knows.
                    let mask = unsafe { match_tags(first, second, tag) };
                    assert_eq!(mask, 1 << at | 1 << (15 - at), "tag {tag:#x}, word {at}");
                }
            }
        }
    }

    #[test]
    fn pairs_are_found_by_whole_words() {
        #[repr(align(64))]
        struct Line([u64; 8]);
        let words = [0, 1, u64::MAX, 1 << 31, 1 << 32, 0xFFFF_FFFF, !0xFFFF_FFFF, 0x8000_8000];
        for first in words {
            for pair in 0..4 {
                for near in words {
                    let mut line = Line([!first, 7, !first, 7, !first, 7, !first, 7]);
                    (line.0[2 * pair], line.0[2 * pair + 1]) = (near, near);
                    let expected = u32::from(near == first) | u32::from(near == 0) << 2;
                    for match_pairs in [x86::match_pairs as MatchPairs, portable::match_pairs] {
                        // SAFETY: an aligned line that no other code knows.
                        let mask = unsafe { match_pairs(line.0.as_ptr().cast(), first) };
                        assert_eq!(mask, expected << (4 * pair), "{near:#x} for {first:#x}");
                    }
                }
            }
        }
    }
}
