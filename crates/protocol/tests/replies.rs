//! Replies as memcached writes them, and as the client's half reads them back.
#![allow(missing_docs, clippy::unwrap_used)]

use entresol_protocol::client::{Reply, ReplyStep, reply, reply_head};
use entresol_protocol::encode::{
    self, DebugFacts, MetaFacts, Status, ValueFacts, Win, meta_arithmetic, meta_debug,
    meta_get_header, meta_set, meta_status,
};
use entresol_protocol::{Limits, Request, Step, parse};

const FACTS: MetaFacts = MetaFacts {
    value_len: 3,
    flags: 5,
    cas: 15,
    ttl_s: Some(60),
    last_access_s: 2,
    fetched: true,
    stale: false,
    win: Win::None,
};

/// The reply that `write` gives to the request on `line`.
fn answer(line: &str, write: impl FnOnce(&Request<'_>, &mut Vec<u8>)) -> String {
    let Step::Request { request, .. } = parse(line.as_bytes(), &Limits::default()) else {
        panic!("refused: {line}");
    };
    let mut out = Vec::new();
    write(&request, &mut out);
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn check_get(line: &str, facts: MetaFacts, expected: &str) {
    let got = answer(line, |request, out| match request {
        Request::MetaGet(get) => meta_get_header(out, get, &facts),
        other => panic!("{other:?}"),
    });
    assert_eq!(got, expected, "{line}");
}

#[test]
fn values_and_numbers() {
    let mut out = Vec::new();
    let facts = ValueFacts { flags: u32::MAX, value_len: 0, cas: None };
    encode::value_header(&mut out, b"a", facts);
    encode::value_header(
        &mut out,
        b"b",
        ValueFacts { flags: 0, value_len: 7, cas: Some(u64::MAX) },
    );
    encode::counter(&mut out, 0);
    encode::counter(&mut out, u64::MAX);
    encode::version(&mut out, "1.6.45");
    encode::stat(&mut out, "pid", "7");
    let expected = "VALUE a 4294967295 0\r\nVALUE b 0 7 18446744073709551615\r\n0\r\n\
                    18446744073709551615\r\nVERSION 1.6.45\r\nSTAT pid 7\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// Taken from memcached's own replies to the same requests.
#[test]
fn meta_get_flags_come_in_the_order_of_the_request() {
    check_get("mg a\r\n", FACTS, "HD\r\n");
    check_get("mg a v\r\n", FACTS, "VA 3\r\n");
    check_get("mg a s v f k O123 t c h l\r\n", FACTS, "VA 3 s3 f5 ka O123 t60 c15 h1 l2\r\n");
    check_get("mg a l h c t O123 k f v s\r\n", FACTS, "VA 3 l2 h1 c15 t60 O123 ka f5 s3\r\n");
    check_get(
        "mg a t h q u T0 N0 R0 P1 L1 E7\r\n",
        MetaFacts { ttl_s: None, fetched: false, ..FACTS },
        "HD t-1 h0\r\n",
    );
    check_get("mg Zm9v b k v\r\n", FACTS, "VA 3 kZm9v b\r\n");
    // A key that was not spelt properly comes back in its proper spelling.
    check_get("mg Zh== b k\r\n", FACTS, "HD kZg== b\r\n");
}

#[test]
fn stale_and_win_tokens_come_last() {
    let with = |stale, win| MetaFacts { stale, win, ..FACTS };
    check_get("mg a v\r\n", with(true, Win::Won), "VA 3 X W\r\n");
    check_get("mg a v\r\n", with(true, Win::AlreadySent), "VA 3 Z X\r\n");
    check_get("mg a t\r\n", with(false, Win::Won), "HD t60 W\r\n");
    check_get("mg a t\r\n", with(false, Win::AlreadySent), "HD t60 Z\r\n");
}

#[test]
fn meta_replies_without_an_item() {
    let miss = |line: &str, status| {
        answer(line, |request, out| match request {
            Request::MetaGet(get) => meta_status(out, status, get.key, get.tokens),
            Request::MetaDelete(delete) => meta_status(out, status, delete.key, delete.tokens),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(miss("mg b k O1 s t\r\n", Status::Miss), "EN kb O1\r\n");
    assert_eq!(miss("mg YQ== b k\r\n", Status::Miss), "EN kYQ== b\r\n");
    assert_eq!(miss("md a q O1 k C5\r\n", Status::NotFound), "NF O1 ka\r\n");
    assert_eq!(miss("md a\r\n", Status::Done), "HD\r\n");
    assert_eq!(miss("md a C5\r\n", Status::Exists), "EX\r\n");
}

#[test]
fn meta_set_and_arithmetic_replies() {
    let set = |line: &str, status, facts| {
        answer(line, |request, out| match request {
            Request::MetaSet(set) => meta_set(out, status, set, &facts),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(set("ms a 2 k c O9 s T0\r\nab\r\n", Status::Done, FACTS), "HD ka c15 O9 s3\r\n");
    assert_eq!(set("ms YQ== 2 k b\r\nab\r\n", Status::Done, FACTS), "HD kYQ== b\r\n");
    let nothing = MetaFacts { cas: 0, ..FACTS };
    assert_eq!(set("ms a 2 k c MA\r\nab\r\n", Status::NotStored, nothing), "NS ka c0\r\n");

    let count = |line: &str, facts| {
        answer(line, |request, out| match request {
            Request::MetaArithmetic(ma) => meta_arithmetic(out, ma, 14, &facts),
            other => panic!("{other:?}"),
        })
    };
    let forever = MetaFacts { ttl_s: None, ..FACTS };
    assert_eq!(count("ma n v t c k O1\r\n", forever), "VA 2 t-1 c15 kn O1\r\n14\r\n");
    assert_eq!(count("ma n t N30 J14\r\n", FACTS), "HD t60\r\n");
}

#[test]
fn meta_debug_reply() {
    let me = answer("me a\r\n", |request, out| match request {
        Request::MetaDebug(me) => {
            meta_debug(out, me.key, &FACTS, &DebugFacts { class: 1, total_bytes: 63 });
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(me, "ME a exp=60 la=2 cas=15 fetch=yes cls=1 size=63\r\n");
}

/// Returns all replies in `input`; asserts that half a reply is never taken for a whole one.
#[track_caller]
fn replies(input: &[u8]) -> Vec<String> {
    let limits = Limits::default();
    let mut told = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let ReplyStep::Reply { reply: found, consumed, to_skip: 0 } = reply(rest, &limits) else {
            panic!("not a reply: {}", rest.escape_ascii());
        };
        for len in 0..consumed {
            match reply(&rest[..len], &limits) {
                ReplyStep::Incomplete { needed } => assert!(needed > len && needed <= consumed),
                other => panic!("{other:?} from half of {}", rest.escape_ascii()),
            }
        }
        told.push(format!("{found:?}"));
        rest = &rest[consumed..];
    }
    told
}

#[test]
fn the_client_reads_every_reply() {
    let words: [(&[u8], Reply<'_>); 17] = [
        (encode::END, Reply::End),
        (encode::STORED, Reply::Stored),
        (encode::NOT_STORED, Reply::NotStored),
        (encode::EXISTS, Reply::Exists),
        (encode::NOT_FOUND, Reply::NotFound),
        (encode::DELETED, Reply::Deleted),
        (encode::TOUCHED, Reply::Touched),
        (encode::OK, Reply::Ok),
        (encode::RESET, Reply::Reset),
        (encode::ERROR, Reply::Error),
        (encode::META_NOOP, Reply::MetaNoop),
        (encode::TOO_LARGE, Reply::ServerError(b"object too large for cache")),
        (encode::SHUTDOWN_DISABLED, Reply::ServerError(b": shutdown not enabled")),
        (b"STAT a b c\r\n", Reply::Stat { name: b"a", value: b"b c" }),
        (b"VERSION 1\r\n", Reply::Version(b"1")),
        (b"12  \r\n", Reply::Counter(12)),
        (b"ME a exp=1\r\n", Reply::MetaDebug(b"a exp=1")),
    ];
    for (bytes, expected) in words {
        assert_eq!(replies(bytes), [format!("{expected:?}")]);
    }
    let value = Reply::Value { key: b"a", flags: 1, cas: Some(7), data: b"x\r\nE" };
    assert_eq!(
        replies(b"VALUE a 1 4 7\r\nx\r\nE\r\nEND\r\n"),
        [format!("{value:?}"), "End".to_owned()]
    );
    assert_eq!(replies(b"VA 0 t-1 W\r\n\r\nHD O1\r\nEN\r\nNF\r\nNS c0\r\nEX\r\n").len(), 6);
}

#[test]
fn a_value_can_be_skipped_unseen() {
    let ReplyStep::Reply { consumed, to_skip, reply } =
        reply_head(b"VALUE a 1 1000\r\nxx", &Limits::default())
    else {
        panic!();
    };
    assert_eq!((consumed, to_skip), (16, 1002));
    assert_eq!(reply, Reply::Value { key: b"a", flags: 1, cas: None, data: b"" });
}

#[test]
fn what_is_no_reply_is_called_so() {
    let limits = Limits::default();
    for bytes in [
        &b"\r\n"[..],
        b"HTTP/1.1 200 OK\r\n",
        b"VALUE a 1\r\n",
        b"VALUE a 1 x\r\n",
        b"VALUE a 1 1 x\r\nx\r\n",
        b"VALUE a 1 4294967295\r\n",
        b"VA\r\n",
        b"STAT\r\n",
        b"HDx\r\n",
        b"VALUE a 1 1\r\nxxx",
        b"18446744073709551616\r\n",
        &[b'x'; 10_000],
    ] {
        assert_eq!(reply(bytes, &limits), ReplyStep::Malformed, "{}", bytes.escape_ascii());
    }
}
