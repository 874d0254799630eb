//! Decimal numbers as values, for incrementing and decrementing.

/// Digits of the largest number of 64 bits.
pub(super) const DIGITS_MAX: usize = 20;

/// Parses a decimal number as memcached does: after any spaces, up to its end or another space.
pub(super) fn parse_number(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii_start();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends = value.get(digits).is_none_or(u8::is_ascii_whitespace);
    if digits == 0 || digits > DIGITS_MAX || !ends {
        return None;
    }
    value[..digits].iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// Writes a decimal number; returns the number of its digits.
pub(super) fn write_number(number: u64, digits: &mut [u8; DIGITS_MAX]) -> usize {
    let text = number.to_string();
    digits[..text.len()].copy_from_slice(text.as_bytes());
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        assert_eq!(parse_number(b"007"), Some(7));
        assert_eq!(parse_number(b"18446744073709551615"), Some(u64::MAX));
        for text in ["9 ", " 9", "9 1", "9\r\n"] {
            assert_eq!(parse_number(text.as_bytes()), Some(9), "{text}");
        }
        for text in ["", " ", "9a", "-1", "18446744073709551616", "a9"] {
            assert_eq!(parse_number(text.as_bytes()), None, "{text}");
        }
    }
}
