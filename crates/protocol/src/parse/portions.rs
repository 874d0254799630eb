//! Lines of keys that are too long to be awaited whole, worked through in portions.
//!
//! A portion is as long as the longest line of keys that is awaited whole, less the word that it
//! ends in the middle of. So the same bytes in any division give the same portions.

use super::{key_bytes_max, refuse};
use crate::scan::{Words, has_control, signed, word_end};
use crate::{AfterRefusal, Exptime, KeyLine, Keys, Limits, Refusal, Request, Step};

/// Parses the first portion, command included. `window` has no line ending, and the length of a
/// portion.
pub(super) fn first<'a>(window: &'a [u8], limits: &Limits) -> Step<'a> {
    let mut words = Words::new(window);
    let command = words.next().unwrap_or_default();
    let cas = command.ends_with(b"s");
    let exptime = if command.starts_with(b"gat") {
        match words.next().and_then(signed) {
            Some(exptime) => Some(Exptime(exptime)),
            None => return spoilt(Refusal::BadExptime, window),
        }
    } else {
        None
    };
    portion(KeyLine { cas, exptime }, window, words, limits)
}

/// Parses the keys at the front of `input`, which continue a line whose front has been parsed.
///
/// Returns [`Step::Keys`] while the line goes on and [`Step::Request`] for its end.
#[must_use]
pub fn parse_keys<'a>(line: KeyLine, input: &'a [u8], limits: &Limits) -> Step<'a> {
    let length = limits.multiget_line_bytes_max.max(limits.line_bytes_max);
    let window = input.get(..length).unwrap_or(input);
    if let Some(newline) = memchr::memchr(b'\n', window) {
        let text = window.get(..newline).unwrap_or_default();
        let words = Words::new(text.strip_suffix(b"\r").unwrap_or(text));
        let consumed = newline + 1;
        return match keys(words, limits) {
            Some(keys) => Step::Request { request: retrieval(line, keys), consumed },
            None => refuse(Some(Refusal::BadLine), consumed, AfterRefusal::Continue),
        };
    }
    if input.len() < length {
        return Step::Incomplete { needed: input.len() + 1 };
    }
    portion(line, window, Words::new(window), limits)
}

/// Takes the whole words of a window without a line ending as keys.
fn portion<'a>(line: KeyLine, window: &'a [u8], words: Words<'a>, limits: &Limits) -> Step<'a> {
    let cut = window.iter().rposition(|&byte| byte == b' ').map_or(0, |last| last + 1);
    let behind = window.len() - cut;
    let rest = words.rest();
    let whole = rest.get(..rest.len().saturating_sub(behind)).unwrap_or_default();
    match keys(Words::new(whole), limits) {
        Some(keys) if behind <= key_bytes_max(limits) + 1 && cut > 0 => {
            Step::Keys { request: retrieval(line, keys), consumed: cut, line }
        }
        _ => spoilt(Refusal::BadLine, window),
    }
}

/// Refuses the whole line, whatever follows.
fn spoilt<'a>(refusal: Refusal, window: &'a [u8]) -> Step<'a> {
    refuse(Some(refusal), window.len(), AfterRefusal::SwallowLine)
}

/// Reads all words as keys; there may be none.
fn keys<'a>(mut words: Words<'a>, limits: &Limits) -> Option<Keys<'a>> {
    let rest = words.rest();
    let is_key = |key: &[u8]| key.len() <= key_bytes_max(limits) && !has_control(key);
    words.all(is_key).then(|| Keys::new(rest, word_end(rest)))
}

fn retrieval(line: KeyLine, keys: Keys<'_>) -> Request<'_> {
    match line.exptime {
        None => Request::Get { keys, cas: line.cas },
        Some(exptime) => Request::GetAndTouch { keys, cas: line.cas, exptime },
    }
}
