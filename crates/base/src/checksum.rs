//! CRC-32C, the one checksum of all bytes on a medium.

use std::panic::Location;

use crate::mutants::{self, SiteKind};

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continues `crc` over more bytes: `crc32c_append(crc32c(a), b)` is the checksum of `a` then `b`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Returns true if `bytes` have this CRC-32C. All bytes read from a medium are checked with it, so
/// that suites can be tried without the check.
#[must_use]
#[track_caller]
#[inline]
pub fn matches(crc: u32, bytes: &[u8]) -> bool {
    mutants::removed(SiteKind::Checksum, Location::caller()) || crc32c(bytes) == crc
}

/// Returns true if `bytes`, behind others whose checksum is `before`, have this CRC-32C, see
/// [`matches()`].
#[must_use]
#[track_caller]
#[inline]
pub fn matches_behind(before: u32, crc: u32, bytes: &[u8]) -> bool {
    mutants::removed(SiteKind::Checksum, Location::caller()) || crc32c_append(before, bytes) == crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_and_continuation() {
        // The check value of the CRC catalogue for CRC-32/ISCSI.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert!(matches(0xE306_9283, b"123456789") && !matches(0xE306_9283, b"123456780"));
        assert_eq!(crc32c_append(crc32c(b"1234"), b"56789"), 0xE306_9283);
        assert!(matches_behind(crc32c(b"1234"), 0xE306_9283, b"56789"));
    }
}
