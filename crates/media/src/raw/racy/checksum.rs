//! CRC-32C of bytes that other threads may change meanwhile: of some mixture of old and new bytes.

use entresol_base::checksum::crc32c_append;

/// Bytes that are copied at once where the processor has no instruction for the checksum.
const COPIED_BYTES: usize = 4096;

/// Continues the checksum `before` over `len` bytes.
///
/// # Safety
/// `from` must be valid for reads of `len` bytes; other threads may write to them at once,
/// atomically or by racy copies.
pub(crate) unsafe fn checksum(from: *const u8, len: usize, before: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: passed on from the caller; the processor was asked.
        return unsafe { super::streams::checksum(from, len, before) };
    }
    // SAFETY: passed on from the caller.
    unsafe { checksum_of_copies(from, len, before) }
}

/// Continues a checksum by copies of a few bytes each.
///
/// # Safety
/// As for [`checksum`].
unsafe fn checksum_of_copies(from: *const u8, len: usize, before: u32) -> u32 {
    let (mut sum, mut part) = (before, [0; COPIED_BYTES]);
    for at in (0..len).step_by(COPIED_BYTES) {
        let part = &mut part[..(len - at).min(COPIED_BYTES)];
        // SAFETY: `at` is below `len`.
        let from = unsafe { from.add(at) };
        // SAFETY: this many bytes from here are inside, and the target is a slice of this length.
        unsafe { super::copy(from, part.as_mut_ptr(), part.len()) };
        sum = crc32c_append(sum, part);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_library_for_every_length_and_alignment() {
        let bytes: Vec<u8> =
            (0..60_000_u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
        let lengths = [0, 1, 7, 8, 9, 100, 4096, 12_287, 12_288, 12_289, 24_600, 50_000];
        for start in 0..9 {
            for len in lengths {
                let part = &bytes[start..start + len];
                for before in [0, 0x1234_5678, u32::MAX] {
                    let expected = crc32c_append(before, part);
                    // SAFETY: a slice of this length.
                    let found = unsafe { checksum(part.as_ptr(), len, before) };
                    // SAFETY: as above.
                    let copied = unsafe { checksum_of_copies(part.as_ptr(), len, before) };
                    assert_eq!((found, copied), (expected, expected), "{len} from {start}");
                }
            }
        }
    }
}
