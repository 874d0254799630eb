//! The keys of the youngest index: a key and a descending sequence number as bytes, in whose order
//! a key's newest version comes first.
//!
//! A zero in a key becomes 0, 255; the key ends with 0, 0, so that none is the beginning of
//! another; the sequence number follows, inverted, in big-endian order.

use crate::entry::Sequence;

/// Appends what all versions of a key begin with.
pub(crate) fn append_key(key: &[u8], out: &mut Vec<u8>) {
    for (number, part) in key.split(|&byte| byte == 0).enumerate() {
        if number > 0 {
            out.extend_from_slice(&[0, 255]);
        }
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&[0, 0]);
}

/// Appends the key of a version.
pub(crate) fn append(key: &[u8], sequence: Sequence, out: &mut Vec<u8>) {
    append_key(key, out);
    out.extend_from_slice(&(!sequence.0).to_be_bytes());
}

/// Whether what is in the index is a version of the key that [`append_key`] gave.
pub(crate) fn is_version_of(found: &[u8], key: &[u8]) -> bool {
    found.len() == key.len() + 8 && found.starts_with(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(key: &[u8], sequence: u64) -> Vec<u8> {
        let mut out = Vec::new();
        append(key, Sequence(sequence), &mut out);
        out
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_keys_and_then_of_falling_numbers(
            one in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..6),
            other in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..6),
            numbers in (0..3u64, 0..3u64),
        ) {
            let by_parts = one.cmp(&other).then(numbers.1.cmp(&numbers.0));
            let by_bytes = encoded(&one, numbers.0).cmp(&encoded(&other, numbers.1));
            prop_assert_eq!(by_parts, by_bytes);
            let mut key = Vec::new();
            append_key(&one, &mut key);
            prop_assert_eq!(is_version_of(&encoded(&other, numbers.1), &key), one == other);
        }
    }
}
