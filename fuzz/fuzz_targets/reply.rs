//! The client's parser under arbitrary bytes: it never panics, consumes no more than the input and
//! never nothing, never accepts half a reply, and its two forms agree.
#![no_main]

use entresol_protocol::Limits;
use entresol_protocol::client::{ReplyStep, reply, reply_head};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let limits = Limits { value_bytes_max: 200, ..Limits::default() };
    let mut rest = input;
    loop {
        let step = reply(rest, &limits);
        heads_agree(rest, &step, &limits);
        match step {
            ReplyStep::Reply { consumed, to_skip, .. } => {
                assert!(consumed > 0 && to_skip == 0);
                for len in 0..consumed.min(64) {
                    let part = reply(&rest[..len], &limits);
                    let ReplyStep::Incomplete { needed } = part else { panic!("{part:?}") };
                    assert!(needed > len && needed <= consumed);
                }
                rest = &rest[consumed..];
            }
            ReplyStep::Incomplete { needed } => {
                assert!(needed > rest.len());
                break;
            }
            ReplyStep::Malformed => break,
        }
        if rest.is_empty() {
            break;
        }
    }
});

/// Checks that a reply's head is parsed no later than the whole reply, and ends at the same place.
fn heads_agree(input: &[u8], step: &ReplyStep<'_>, limits: &Limits) {
    match (reply_head(input, limits), step) {
        (ReplyStep::Reply { consumed, to_skip, .. }, ReplyStep::Reply { consumed: all, .. }) => {
            assert_eq!(consumed + to_skip, *all);
        }
        (ReplyStep::Reply { consumed, to_skip, .. }, ReplyStep::Incomplete { needed }) => {
            assert_eq!(consumed + to_skip, *needed);
        }
        (ReplyStep::Reply { to_skip, .. }, ReplyStep::Malformed) => assert!(to_skip > 0),
        (head, step) => assert_eq!(head, *step),
    }
}
