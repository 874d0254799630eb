//! Standard base64 with padding, for binary keys, without allocation.
//!
//! Decoding is strict about length, alphabet and padding. Like memcached it accepts spare bits that
//! are not zero; such a key is echoed in its canonical spelling.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const INVALID: u8 = 0xff;
const VALUES: [u8; 256] = values();

const fn values() -> [u8; 256] {
    let mut table = [INVALID; 256];
    let mut value = 0;
    while value < 64 {
        table[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    table
}

/// Decodes `text` into the front of `out` and returns the number of bytes. Returns `None` if `text`
/// is empty or malformed, or `out` is too small.
pub(crate) fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let (body, last) = text.split_at_checked(text.len().checked_sub(4)?)?;
    let mut len = 0;
    for quad in body.chunks(4) {
        let bits = sextets(quad)?;
        out.get_mut(len..len + 3)?.copy_from_slice(&bits.to_be_bytes()[1..]);
        len += 3;
    }
    let padding = last.iter().rev().take_while(|&&byte| byte == b'=').count();
    let kept = 3usize.checked_sub(padding)?;
    let bits = sextets(last.get(..4 - padding)?)? << (6 * padding);
    if kept == 0 {
        return None;
    }
    out.get_mut(len..len + kept)?.copy_from_slice(&bits.to_be_bytes()[1..=kept]);
    Some(len + kept)
}

/// Bits of up to four letters, the last in the lowest place. A short group is refused unless the
/// caller has removed its padding.
fn sextets(letters: &[u8]) -> Option<u32> {
    let mut bits = 0;
    for &letter in letters {
        let value = VALUES[usize::from(letter)];
        if value == INVALID {
            return None;
        }
        bits = bits << 6 | u32::from(value);
    }
    Some(bits)
}

/// Returns true if `text` is the base64 of a key.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    decode(text, &mut [0; crate::limits::KEY_BYTES_CEILING]).is_some()
}

/// Appends `bytes` in base64.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for letter in 0..4 {
            let value = bits >> (18 - 6 * letter) & 63;
            out.push(if letter <= group.len() { ALPHABET[value as usize] } else { b'=' });
        }
    }
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
