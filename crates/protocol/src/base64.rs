//! Standard base64 with padding, for binary keys, without allocation.
//!
//! Decoding is strict about length, alphabet and padding. Like memcached it accepts spare bits that
//! are not zero; such a key is echoed in its canonical spelling.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes `text` into the front of `out` and returns the number of bytes. Returns `None` if `text`
/// is empty or malformed, or `out` is too small.
pub(crate) fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    ENGINE.decode_slice(text, out).ok().filter(|len| *len > 0)
}

/// Returns true if `text` is the base64 of a key.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    decode(text, &mut [0; crate::limits::KEY_BYTES_CEILING]).is_some()
}

/// Appends `bytes` in base64.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + bytes.len().div_ceil(3) * 4, 0);
    let room = out.get_mut(begin..).unwrap_or_default();
    // Of the size that it must have: nothing can be refused.
    let written = ENGINE.encode_slice(bytes, room).unwrap_or(0);
    debug_assert_eq!(begin + written, out.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_pairs_both_ways() {
        for (text, bytes) in [
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decoded(text), bytes.as_bytes());
            let mut written = Vec::new();
            encode(bytes.as_bytes(), &mut written);
            assert_eq!(written, text.as_bytes());
        }
    }

    fn decoded(text: &str) -> Vec<u8> {
        let mut room = [0; 16];
        let len = decode(text.as_bytes(), &mut room).unwrap();
        room[..len].to_vec()
    }

    #[test]
    fn spare_bits_are_overlooked() {
        assert_eq!(decoded("Zh=="), b"f");
        assert_eq!(decoded("Zm9="), b"fo");
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["", "Z", "Zg", "Zg=", "====", "Z===", "Zg==Zg==", "Zm9!", "Zm9v\n"] {
            assert_eq!(decode(text.as_bytes(), &mut [0; 16]), None, "{text:?}");
        }
        assert_eq!(decode(b"Zm9v", &mut [0; 2]), None);
    }

    proptest::proptest! {
        #[test]
        fn every_key_comes_back(bytes in proptest::collection::vec(0u8.., 1..187)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            let mut room = [0; 250];
            let len = decode(&text, &mut room).unwrap();
            proptest::prop_assert_eq!(&room[..len], &bytes[..]);
        }
    }
}
