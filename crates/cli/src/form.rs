//! Forms of bytes on the command line: text, hexadecimal digits, or base64 (RFC 4648).

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};
use clap::ValueEnum;

/// Form of keys and values on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Bytes as they are.
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
    /// Four characters for three bytes.
    Base64,
}

impl Form {
    /// Decodes the bytes that were typed; the error names the mistake and its position.
    pub(crate) fn read(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Form::Text => Ok(text.as_bytes().to_vec()),
            Form::Hex => from_hex(text.as_bytes()),
            Form::Base64 => from_base64(text.as_bytes()),
        }
    }

    /// Encodes bytes for output; fails if they should be text and are not.
    pub(crate) fn show(self, bytes: &[u8]) -> Result<String, String> {
        match self {
            Form::Text => String::from_utf8(bytes.to_vec()).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                format!("byte {at} of {} is not UTF-8: use --encoding hex or base64", bytes.len())
            }),
            Form::Hex => Ok(to_hex(bytes)),
            Form::Base64 => Ok(STANDARD.encode(bytes)),
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

fn from_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) {
        return Err(format!("'{}' has an odd number of digits", text.escape_ascii()));
    }
    let digit = |at: usize| {
        let digit = char::from(text[at]).to_digit(16);
        digit.map(|it| it as u8).ok_or_else(|| format!("character {at} is not a hexadecimal digit"))
    };
    (0..text.len()).step_by(2).map(|at| Ok(digit(at)? << 4 | digit(at + 1)?)).collect()
}

fn from_base64(text: &[u8]) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| match error {
        DecodeError::InvalidByte(at, _) => format!("character {at} is not a character of base64"),
        DecodeError::InvalidLastSymbol(..) => {
            "the last character has unused bits that are not zero".to_owned()
        }
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => {
            "base64 has groups of four characters, the last one padded with =".to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_as_the_same_bytes() {
        for len in 0..70_u8 {
            let bytes: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(37) ^ 0x5a).collect();
            for form in [Form::Hex, Form::Base64] {
                let text = form.show(&bytes).unwrap();
                assert_eq!(form.read(&text), Ok(bytes.clone()), "{text}");
            }
        }
        // Examples of RFC 4648.
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            assert_eq!(Form::Base64.show(bytes.as_bytes()).unwrap(), text);
        }
        assert_eq!(Form::Hex.show(b"\x00\xfe").unwrap(), "00fe");
        assert_eq!(Form::Hex.read("00FE"), Ok(vec![0, 0xfe]));
    }

    #[test]
    fn what_was_typed_wrongly_is_told() {
        for (form, text) in [
            (Form::Hex, "abc"),
            (Form::Hex, "zz"),
            (Form::Hex, "aé"),
            (Form::Base64, "Zg="),
            (Form::Base64, "Zg"),
            (Form::Base64, "Zh=="),
            (Form::Base64, "Z==="),
            (Form::Base64, "Zg==Zg=="),
            (Form::Base64, "Zm 8="),
        ] {
            assert!(form.read(text).is_err(), "{text}");
        }
        assert!(Form::Text.show(&[b'a', 0xff]).unwrap_err().contains("byte 1 of 2"));
    }
}
