//! The request parser under arbitrary bytes: it never panics, consumes no more than the input and
//! never nothing, takes equal steps for any division of the bytes, and parses the client's encoding
//! of a request to that request.
#![no_main]

#[path = "../../crates/protocol/tests/common/mod.rs"]
mod common;

use entresol_protocol::{Limits, Step, client, parse, parse_keys};
use libfuzzer_sys::fuzz_target;

/// Limits so low that short inputs exceed them.
const TIGHT: Limits = Limits {
    line_bytes_max: 64,
    multiget_line_bytes_max: 200,
    key_bytes_max: 12,
    value_bytes_max: 24,
};

fuzz_target!(|input: &[u8]| {
    let Some((&division, bytes)) = input.split_first() else { return };
    let limits = if division & 1 == 0 { Limits::default() } else { TIGHT };
    let whole = common::feed([bytes], &limits);
    let chunk_len = usize::from(division >> 1) % 48 + 1;
    assert_eq!(common::feed(bytes.chunks(chunk_len), &limits), whole);

    let (mut rest, mut line) = (bytes, None);
    loop {
        let goes_on = line.is_some();
        let step = match line.take() {
            None => parse(rest, &limits),
            Some(line) => parse_keys(line, rest, &limits),
        };
        match step {
            Step::Incomplete { needed } => {
                assert!(needed > rest.len());
                break;
            }
            Step::Request { request, consumed } => {
                // The end of a long line may hold no key.
                if !goes_on {
                    let mut written = Vec::new();
                    client::request(&mut written, &request);
                    reads_the_same(&written);
                }
                assert!(consumed > 0);
                rest = &rest[consumed..];
            }
            Step::Keys { line: begun, consumed, .. } => {
                assert!(consumed > 0);
                line = Some(begun);
                rest = &rest[consumed..];
            }
            Step::Refused { consumed, .. } => {
                assert!(consumed > 0);
                rest = &rest[consumed..];
            }
        }
        if rest.is_empty() {
            break;
        }
    }
});

fn reads_the_same(written: &[u8]) {
    let Step::Request { request, consumed } = parse(written, &Limits::default()) else {
        panic!("refused: {}", written.escape_ascii());
    };
    assert_eq!(consumed, written.len());
    let mut again = Vec::new();
    client::request(&mut again, &request);
    assert_eq!(again, written);
}
