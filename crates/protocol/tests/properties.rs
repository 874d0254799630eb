//! Laws of the parser, over generated inputs.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::feed;
use entresol_protocol::client::{self, SetOptions};
use entresol_protocol::{
    Arithmetic, Delete, Exptime, Limits, Request, Step, Store, StoreVerb, Touch, parse,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Small limits, so that short inputs reach them.
const TIGHT: Limits = Limits {
    line_bytes_max: 80,
    multiget_line_bytes_max: 200,
    key_bytes_max: 20,
    value_bytes_max: 40,
};

/// Pieces of which lines are made, most of them right.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "incr",
        "decr",
        "touch",
        "delete",
        "flush_all",
        "stats",
        "version",
        "verbosity",
        "quit",
        "shutdown",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "noreply",
        "key",
        "YQ==",
        "b",
        "v",
        "q",
        "k",
        "O1",
        "T30",
        "MA",
        "0",
        "1",
        "2",
        "5",
        "-1",
        "39",
        "41",
        "4294967296",
        "GET",
        "HTTP/1.1",
    ]);
    prop_oneof![
        8 => words.prop_map(|word| format!("{word} ").into_bytes()),
        4 => Just(b"\r\n".to_vec()),
        1 => Just(b"\n".to_vec()),
        1 => vec(any::<u8>(), 0..45),
    ]
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    vec(piece(), 1..40).prop_map(|pieces| pieces.concat())
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0x21u8..0x7f, 0x80u8..], 1..=250)
}

/// Asserts that the parser reads the client's request back, from every cut.
#[track_caller]
fn comes_back(request: &Request<'_>) {
    let mut bytes = Vec::new();
    client::request(&mut bytes, request);
    let whole = bytes.len();
    bytes.extend_from_slice(b"mn\r\n");
    let limits = Limits { line_bytes_max: 4096, ..Limits::default() };
    assert_eq!(parse(&bytes, &limits), Step::Request { request: *request, consumed: whole });
    for len in 0..whole {
        match parse(&bytes[..len], &limits) {
            Step::Incomplete { needed } => assert!(needed > len && needed <= whole),
            other => panic!("{other:?} from {len} of {whole} bytes"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn division_into_chunks_does_not_matter(bytes in input(), cuts in vec(1usize..30, 0..40)) {
        let whole = feed([&bytes[..]], &TIGHT);
        prop_assert_eq!(&feed(bytes.chunks(1), &TIGHT), &whole);
        let mut chunks = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (chunk, behind) = rest.split_at(cut.min(rest.len()));
            chunks.push(chunk);
            rest = behind;
        }
        chunks.push(rest);
        prop_assert_eq!(&feed(chunks, &TIGHT), &whole);
    }

    #[test]
    fn no_step_takes_more_than_there_is_or_nothing(bytes in input()) {
        match parse(&bytes, &TIGHT) {
            Step::Incomplete { needed } => prop_assert!(needed > bytes.len()),
            Step::Request { consumed, .. }
            | Step::Keys { consumed, .. }
            | Step::Refused { consumed, .. } => {
                prop_assert!(consumed > 0 && consumed <= bytes.len());
            }
        }
    }
}

proptest! {
    #[test]
    fn stores_come_back(
        key in key(), data in vec(any::<u8>(), 0..60), flags: u32, seconds: i64, cas: u64,
        verb in 0usize..6, noreply: bool,
    ) {
        let verb = [
            StoreVerb::Set, StoreVerb::Add, StoreVerb::Replace, StoreVerb::Append,
            StoreVerb::Prepend, StoreVerb::Cas(cas),
        ][verb];
        let exptime = Exptime(seconds);
        let store = Store { verb, key: &key, flags, exptime, data: &data, noreply };
        comes_back(&Request::Store(store));
        if verb == StoreVerb::Set {
            let mut quick = Vec::new();
            client::set(&mut quick, &key, &data, SetOptions { flags, exptime, noreply });
            let mut general = Vec::new();
            client::request(&mut general, &Request::Store(store));
            prop_assert_eq!(quick, general);
        }
    }

    #[test]
    fn small_commands_come_back(key in key(), delta: u64, seconds: i64, down: bool, noreply: bool) {
        let exptime = Exptime(seconds);
        comes_back(&Request::Delete(Delete { key: &key, noreply }));
        comes_back(&Request::Arithmetic(Arithmetic { key: &key, delta, down, noreply }));
        comes_back(&Request::Touch(Touch { key: &key, exptime, noreply }));
        comes_back(&Request::FlushAll { delay: exptime, noreply });
    }

    #[test]
    fn retrievals_come_back(keys in vec(key(), 1..6), seconds: i64) {
        let mut line = Vec::new();
        client::get_many(&mut line, keys.iter().map(Vec::as_slice));
        let limits = Limits::default();
        let Step::Request { request, consumed } = parse(&line, &limits) else { panic!("refused") };
        let Request::Get { keys: found, .. } = request else { panic!("{request:?}") };
        prop_assert_eq!(consumed, line.len());
        prop_assert!(found.eq(keys.iter().map(Vec::as_slice)));
        prop_assert_eq!(found.single().is_some(), keys.len() == 1);
        for cas in [false, true] {
            comes_back(&Request::Get { keys: found, cas });
            comes_back(&Request::GetAndTouch { keys: found, cas, exptime: Exptime(seconds) });
        }
    }

    #[test]
    fn meta_commands_come_back(
        key in key(), data in vec(any::<u8>(), 0..60), cas: u64, seconds: i64,
        opaque in "[!-~]{0,31}",
        order in Just(vec!["T", "C", "E", "N", "O", "q", "k", "c", "v", "s"]).prop_shuffle(),
        count in 0usize..10,
    ) {
        let flags: Vec<String> = order[..count].iter().map(|flag| match *flag {
            "T" | "N" => format!("{flag}{seconds}"),
            "C" | "E" => format!("{flag}{cas}"),
            "O" => format!("O{opaque}"),
            plain => plain.to_owned(),
        }).collect();
        let flags = flags.join(" ");
        let limits = Limits::default();
        for command in 0..4 {
            let mut line = Vec::new();
            match command {
                0 => client::meta_get(&mut line, &key, &flags),
                1 => client::meta_set(&mut line, &key, &data, &flags),
                2 => client::meta_delete(&mut line, &key, &flags),
                _ => client::meta_arithmetic(&mut line, &key, &flags),
            }
            let Step::Request { request, consumed } = parse(&line, &limits) else {
                panic!("refused: {}", line.escape_ascii());
            };
            prop_assert_eq!(consumed, line.len());
            // Spelt again it is the same line, and parsed again the same request.
            let mut again = Vec::new();
            client::request(&mut again, &request);
            prop_assert_eq!(&again, &line);
        }
    }
}
