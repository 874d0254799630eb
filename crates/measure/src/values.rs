//! Keys and values derived from a number: made in a few nanoseconds and checked when they are read.

use entresol_base::checksum::{crc32c, crc32c_append};

/// Smallest size of a value that holds its key's number, its version and a checksum.
pub const CHECKED_VALUE_BYTES_MIN: usize = 20;

/// Writes keys of one length: the number in hexadecimal digits, padded in front.
#[derive(Debug, Clone)]
pub struct KeyMaker {
    key_bytes: usize,
}

impl KeyMaker {
    /// Creates a maker of keys of `key_bytes` bytes. Returns `None` if `keys` distinct keys do not
    /// fit into that length, or if it exceeds 250 bytes.
    #[must_use]
    pub fn new(key_bytes: usize, keys: u64) -> Option<KeyMaker> {
        let digits = (64 - keys.saturating_sub(1).leading_zeros()).div_ceil(4).max(1) as usize;
        (digits <= key_bytes && key_bytes <= 250).then_some(KeyMaker { key_bytes })
    }

    /// Returns the length of every key.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Appends the key of number `number` to `out`.
    #[inline]
    pub fn append(&self, number: u64, out: &mut Vec<u8>) {
        let digits = hex_digits(number);
        if self.key_bytes == 16 {
            out.extend_from_slice(&digits);
            return;
        }
        let padding = self.key_bytes.saturating_sub(16);
        out.resize(out.len() + padding, b'k');
        out.extend_from_slice(&digits[16 - (self.key_bytes - padding)..]);
    }
}

/// Returns the sixteen hexadecimal digits of `number`. Eight nibbles are spread and mapped at once.
#[inline]
fn hex_digits(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    digits[..8].copy_from_slice(&eight_digits((number >> 32) as u32));
    digits[8..].copy_from_slice(&eight_digits(number as u32));
    digits
}

#[inline]
fn eight_digits(number: u32) -> [u8; 8] {
    let mut x = u64::from(number);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // Adding 6 to a nibble over 9 carries into its fifth bit; these nibbles become letters.
    let letters = ((x + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (x + 0x3030_3030_3030_3030 + letters * 39).to_be_bytes()
}

/// Reason why a value is not the one that was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    /// The length differs.
    #[error("{found} bytes came back of {expected}")]
    Length {
        /// Bytes that were stored, or the smallest size of a checked value.
        expected: usize,
        /// Bytes that were read.
        found: usize,
    },
    /// The checksum does not match.
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Checksum {
        /// Checksum computed over the bytes that were read.
        expected: u32,
        /// Checksum found at the end of the value.
        found: u32,
    },
    /// The value was stored under another key.
    #[error("it belongs to key number {found}")]
    Owner {
        /// Number of the key that the value belongs to.
        found: u64,
    },
}

/// Makes values of one length and, in checked mode, verifies them when they are read.
#[derive(Debug, Clone)]
pub struct ValueMaker {
    value_bytes: usize,
    checked: bool,
    pattern: Vec<u8>,
    versions: u64,
}

impl ValueMaker {
    /// Creates a maker of values of `value_bytes` bytes. Returns `None` for checked values shorter
    /// than [`CHECKED_VALUE_BYTES_MIN`].
    #[must_use]
    pub fn new(value_bytes: usize, checked: bool, seed: u64) -> Option<ValueMaker> {
        if checked && value_bytes < CHECKED_VALUE_BYTES_MIN {
            return None;
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        // The characters are printable to keep a captured conversation readable.
        let pattern = (0..value_bytes).map(|_| rng.u8(b'!'..=b'~')).collect();
        Some(ValueMaker { value_bytes, checked, pattern, versions: seed << 32 })
    }

    /// Returns the length of every value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Appends a new value for the key of number `number`.
    #[inline]
    pub fn append(&mut self, number: u64, out: &mut Vec<u8>) {
        self.append_of(number, self.value_bytes, out);
    }

    /// Appends a new value of `bytes` bytes for the key of number `number`. The length is capped at
    /// that of the maker, and a checked value has at least [`CHECKED_VALUE_BYTES_MIN`].
    #[inline]
    pub fn append_of(&mut self, number: u64, bytes: usize, out: &mut Vec<u8>) {
        let least = if self.checked { CHECKED_VALUE_BYTES_MIN } else { 0 };
        let bytes = bytes.max(least).min(self.value_bytes);
        let start = out.len();
        out.extend_from_slice(&self.pattern[..bytes]);
        if self.checked {
            self.versions += 1;
            let value = &mut out[start..];
            value[..8].copy_from_slice(&number.to_le_bytes());
            value[8..16].copy_from_slice(&self.versions.to_le_bytes());
            let body = bytes - 4;
            let checksum = crc32c(&value[..body]);
            value[body..].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Checks that `value` has the maker's length and was made for the key of number `number`.
    ///
    /// # Errors
    /// Returns the fault that was found.
    pub fn check(&self, number: u64, value: &[u8]) -> Result<(), ValueFault> {
        if value.len() != self.value_bytes {
            return Err(ValueFault::Length { expected: self.value_bytes, found: value.len() });
        }
        self.check_any(number, value)
    }

    /// Checks a value of any length; otherwise like [`check`](ValueMaker::check).
    ///
    /// # Errors
    /// Returns the fault that was found.
    pub fn check_any(&self, number: u64, value: &[u8]) -> Result<(), ValueFault> {
        if !self.checked {
            return Ok(());
        }
        if value.len() < CHECKED_VALUE_BYTES_MIN {
            let (expected, found) = (CHECKED_VALUE_BYTES_MIN, value.len());
            return Err(ValueFault::Length { expected, found });
        }
        let (body, checksum) = value.split_at(value.len() - 4);
        let found = checksum.try_into().map_or(0, u32::from_le_bytes);
        let expected = crc32c_append(0, body);
        if found != expected {
            return Err(ValueFault::Checksum { expected, found });
        }
        let owner = body[..8].try_into().map_or(0, u64::from_le_bytes);
        if owner != number {
            return Err(ValueFault::Owner { found: owner });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_numbers_digits() {
        for (key_bytes, number, expected) in [
            (16, 0x0123_4567_89ab_cdef, "0123456789abcdef"),
            (16, 0xff_a09f, "0000000000ffa09f"),
            (5, 0xff09f, "ff09f"),
            (20, 0xa, "kkkk000000000000000a"),
        ] {
            let mut key = Vec::new();
            KeyMaker::new(key_bytes, 0xf_ffff).unwrap().append(number, &mut key);
            assert_eq!(String::from_utf8(key).unwrap(), expected);
        }
    }

    #[test]
    fn keys_too_short_to_differ_are_refused() {
        assert!(KeyMaker::new(2, 256).is_some());
        assert!(KeyMaker::new(2, 257).is_none());
        assert!(KeyMaker::new(251, 1).is_none());
    }

    #[test]
    fn a_checked_value_is_known_again_and_nothing_else_is() {
        let mut maker = ValueMaker::new(100, true, 1).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        maker.append(7, &mut first);
        maker.append(7, &mut second);
        assert_ne!(first, second, "each store is a version of its own");
        assert_eq!(maker.check(7, &first), Ok(()));
        assert_eq!(maker.check(8, &first), Err(ValueFault::Owner { found: 7 }));
        assert!(matches!(maker.check(7, &first[..99]), Err(ValueFault::Length { .. })));
        for byte in 0..first.len() {
            let mut damaged = first.clone();
            damaged[byte] ^= 1;
            assert!(matches!(maker.check(7, &damaged), Err(ValueFault::Checksum { .. })));
        }
    }

    #[test]
    fn a_checked_value_of_another_length_is_known_again() {
        let mut maker = ValueMaker::new(100, true, 1).unwrap();
        for (asked, bytes) in [(3, CHECKED_VALUE_BYTES_MIN), (57, 57), (1000, 100)] {
            let mut value = Vec::new();
            maker.append_of(7, asked, &mut value);
            assert_eq!((value.len(), maker.check_any(7, &value)), (bytes, Ok(())));
            assert!(maker.check_any(8, &value).is_err());
            assert!(maker.check_any(7, &value[..bytes - 1]).is_err());
        }
    }

    #[test]
    fn values_too_short_to_be_checked_are_refused() {
        assert!(ValueMaker::new(19, true, 1).is_none());
        assert!(ValueMaker::new(19, false, 1).is_some());
    }
}
