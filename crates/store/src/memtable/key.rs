//! Keys of the memtable trees: a key and a descending sequence number as bytes. In their order, a
//! key's newest version comes first.
//!
//! A zero byte in a key becomes 0, 255. The key ends with 0, 0, so that no key is a prefix of
//! another. The sequence number follows, inverted, in big-endian order.

use entresol_index::keys;

use crate::options::KEY_BYTES_MAX;
use crate::types::Sequence;

/// Bytes behind a key.
const END_BYTES: usize = 10;

// A key of nothing but zeros doubles its length, and must still fit in a tree.
const _: () = assert!(2 * KEY_BYTES_MAX + END_BYTES <= keys::KEY_BYTES_MAX);

/// Appends the encoded key of a version.
pub(crate) fn append(key: &[u8], sequence: Sequence, out: &mut Vec<u8>) {
    out.reserve(key.len() + END_BYTES);
    if key.contains(&0) {
        for (number, part) in key.split(|&byte| byte == 0).enumerate() {
            if number > 0 {
                out.extend_from_slice(&[0, 255]);
            }
            out.extend_from_slice(part);
        }
    } else {
        out.extend_from_slice(key);
    }
    let mut end = [0; END_BYTES];
    end[2..].copy_from_slice(&(!sequence.0).to_be_bytes());
    out.extend_from_slice(&end);
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
        }
    }
}
