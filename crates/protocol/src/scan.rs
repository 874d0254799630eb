//! Scanning shared by requests and replies: words, their ends, and numbers.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = ONES * 0x80;

/// End of the word at the front of `bytes`: the first space or control byte, or the end.
///
/// Takes eight bytes a step. A byte below 0x21 borrows into its high bit when 0x21 is subtracted,
/// and 0x7f becomes zero under exclusive or; borrows can only spoil bytes above the first hit.
#[inline]
pub(crate) fn word_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((eight, behind)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight);
        let low = word.wrapping_sub(ONES * 0x21) & !word;
        let delete = word ^ (ONES * 0x7f);
        let delete = delete.wrapping_sub(ONES) & !delete;
        let hits = (low | delete) & HIGH_BITS;
        if hits != 0 {
            return bytes.len() - rest.len() + (hits.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    let end = rest.iter().position(|&byte| ends_word(byte)).unwrap_or(rest.len());
    bytes.len() - rest.len() + end
}

/// Position of the first space of `bytes`, or their end. Takes eight bytes a step, like
/// [`word_end`].
#[inline]
fn space_or_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((eight, behind)) = rest.split_first_chunk::<8>() {
        let difference = u64::from_le_bytes(*eight) ^ (ONES * 0x20);
        let hits = difference.wrapping_sub(ONES) & !difference & HIGH_BITS;
        if hits != 0 {
            return bytes.len() - rest.len() + (hits.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    bytes.len() - rest.len() + end
}

#[inline]
fn ends_word(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

/// Returns true if `word` holds a byte that no key and no opaque may hold.
#[inline]
pub(crate) fn has_control(word: &[u8]) -> bool {
    word_end(word) != word.len()
}

/// Words of a line, separated by spaces only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    #[inline]
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Words { rest: line }
    }

    /// Rest of the line after the words taken so far, without leading spaces.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        let mut rest = self.rest;
        while let [b' ', behind @ ..] = rest {
            rest = behind;
        }
        rest
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest();
        let (word, rest) = rest.split_at_checked(space_or_end(rest))?;
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// Parses an unsigned decimal number of 64 bits, digits only.
#[inline]
pub(crate) fn unsigned(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Parses an unsigned decimal number of 32 bits.
#[inline]
pub(crate) fn unsigned_32(word: &[u8]) -> Option<u32> {
    unsigned(word).and_then(|value| u32::try_from(value).ok())
}

/// Parses a decimal number of 64 bits with an optional minus sign.
#[inline]
pub(crate) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(unsigned(digits)?),
        None => unsigned(word).and_then(|value| i64::try_from(value).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_end_where_their_type_ends() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned(b"00000000000000000000000000007"), Some(7));
        assert_eq!(unsigned_32(b"4294967295"), Some(u32::MAX));
        assert_eq!(unsigned_32(b"4294967296"), None);
        assert_eq!(signed(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"-9223372036854775809"), None);
        for malformed in [&b""[..], b"-", b"--1", b"+1", b"1x", b"x1", b"1 ", b"\x0b1", b"0x1"] {
            assert_eq!(signed(malformed), None, "{malformed:?}");
            assert_eq!(unsigned(malformed), None, "{malformed:?}");
        }
        assert_eq!(unsigned(b"-1"), None);
    }

    #[test]
    fn words_are_parted_by_spaces_only() {
        let words: Vec<&[u8]> = Words::new(b"  a \t  bc ").collect();
        assert_eq!(words, [&b"a"[..], b"\t", b"bc"]);
    }

    proptest! {
        #[test]
        fn the_wide_scan_agrees_with_the_plain_one(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let plain = bytes.iter().position(|&byte| ends_word(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(word_end(&bytes), plain);
            let plain = bytes.iter().position(|&byte| byte == b' ').unwrap_or(bytes.len());
            prop_assert_eq!(space_or_end(&bytes), plain);
        }

        #[test]
        fn the_wide_scan_finds_every_end(byte: u8, at in 0usize..40, filler in 0x21u8..0x7f) {
            let mut bytes = [filler; 40];
            bytes[at] = byte;
            prop_assert_eq!(word_end(&bytes), if ends_word(byte) { at } else { 40 });
            prop_assert_eq!(space_or_end(&bytes), if byte == b' ' { at } else { 40 });
        }
    }
}
