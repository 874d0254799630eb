//! Transcripts of the parser: bytes in, requests and refusals out.
//!
//! The refusals are those of memcached 1.6.45 (of its source since 1.6.42, where the text commands
//! got a new parser); where ours differ on purpose, the test says so.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::feed;
use entresol_protocol::Limits;

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

/// Feeds `input` and a `mn` behind it, whole and byte by byte. The `mn` must come through: whatever
/// was refused, the stream is in step again.
#[track_caller]
fn check(input: &str, expected: &[&str]) {
    check_bytes(input.as_bytes(), expected);
}

#[track_caller]
fn check_bytes(input: &[u8], expected: &[&str]) {
    let mut expected: Vec<&str> = expected.to_vec();
    if expected.last() != Some(&"(close)") {
        expected.push("mn");
    }
    let input = [input, b"mn\r\n"].concat();
    let limits = Limits { value_bytes_max: 100, ..Limits::default() };
    assert_eq!(feed([&input[..]], &limits), expected, "{}", input.escape_ascii());
    assert_eq!(feed(input.chunks(1), &limits), expected, "by bytes: {}", input.escape_ascii());
}

#[test]
fn retrieval() {
    check("get a\r\n", &["get a"]);
    check("get a\n", &["get a"]);
    check("get  a   bc  \r\n", &["get a bc"]);
    check("gets a b\r\n", &["gets a b"]);
    check("gat 10 a b\r\n", &["gat 10 a b"]);
    check("gats -1 a\r\n", &["gats -1 a"]);
    check("get get\r\nget END\r\n", &["get get", "get END"]);
    check("get / HTTP/1.0\r\n", &["get / HTTP/1.0"]);
    for malformed in ["get\r\n", "get \r\n", "gets\n", "gat\r\n", "gat 0\r\n", "gats x\r\n"] {
        check(malformed, &[BAD_LINE]);
    }
    check("gat x a\r\n", &["CLIENT_ERROR invalid exptime argument"]);
    check("gat 99999999999999999999 a\r\n", &["CLIENT_ERROR invalid exptime argument"]);
}

#[test]
fn keys_are_at_most_250_bytes() {
    let longest = "k".repeat(250);
    let longer = "k".repeat(251);
    check(&format!("get {longest}\r\n"), &[&format!("get {longest}")]);
    check(&format!("get {longer}\r\n"), &[BAD_LINE]);
    check(&format!("get a {longer} b\r\n"), &[BAD_LINE]);
    check(&format!("set {longer} 0 0 1\r\nx\r\n"), &[BAD_LINE]);
    check(&format!("set {longer} 0 0 1 noreply\r\nx\r\n"), &["(silence)"]);
    for command in
        ["delete KEY", "touch KEY 0", "incr KEY 1", "mg KEY v", "md KEY", "ma KEY", "me KEY"]
    {
        check(&format!("{}\r\n", command.replace("KEY", &longer)), &[BAD_LINE]);
    }
    check(&format!("ms {longer} 1\r\nx\r\n"), &[BAD_LINE]);
}

#[test]
fn a_limit_on_keys_can_be_lowered_but_not_raised() {
    let of = |key_bytes_max| Limits { key_bytes_max, ..Limits::default() };
    assert_eq!(feed([&b"get abc\r\n"[..]], &of(3)), ["get abc"]);
    assert_eq!(feed([&b"get abcd\r\n"[..]], &of(3)), [BAD_LINE]);
    let longer = format!("get {}\r\n", "k".repeat(251));
    assert_eq!(feed([longer.as_bytes()], &of(1000)), [BAD_LINE]);
}

/// memcached lets control bytes pass in keys (and once ended a line at NUL). They are what requests
/// are smuggled with, so here they are refused, as its documentation says.
#[test]
fn keys_hold_no_control_bytes() {
    for byte in (0..0x20u8).chain([0x7f]).filter(|&byte| byte != b'\n') {
        let key = [b'a', byte, b'b'];
        let line = |before: &[u8], after: &[u8]| [before, &key, after].concat();
        check_bytes(&line(b"get ", b"\r\n"), &[BAD_LINE]);
        check_bytes(&line(b"get x ", b" y\r\n"), &[BAD_LINE]);
        check_bytes(&line(b"set ", b" 0 0 1\r\nx\r\n"), &[BAD_LINE]);
        check_bytes(&line(b"delete ", b" noreply\r\n"), &["(silence)"]);
        check_bytes(&line(b"mg ", b" v\r\n"), &[BAD_LINE]);
        check_bytes(&line(b"mg k O", b"\r\n"), &[BAD_TOKEN]);
        check_bytes(&line(b"ms ", b" 1\r\nx\r\n"), &[BAD_LINE]);
    }
    check_bytes(b"get \xc3\xa9\xff\r\n", &["get \\xc3\\xa9\\xff"]);
    check_bytes(b"get a\r\r\n", &[BAD_LINE]);
}

#[test]
fn storage() {
    check("set a 5 60 3\r\nabc\r\n", &["set a 5 60 3\\r\\nabc"]);
    check("set a 0 0 0\r\n\r\n", &["set a 0 0 0\\r\\n"]);
    check("set a 0 0 3\nabc\r\n", &["set a 0 0 3\\r\\nabc"]);
    check("set a 0 0 4 noreply\r\n\r\n\r\n\r\n", &["set a 0 0 4 noreply\\r\\n\\r\\n\\r\\n"]);
    check("add a 0 0 1\r\nx\r\n", &["add a 0 0 1\\r\\nx"]);
    check("replace a 0 0 1\r\nx\r\n", &["replace a 0 0 1\\r\\nx"]);
    check("append a 0 0 1\r\nx\r\n", &["append a 0 0 1\\r\\nx"]);
    check("prepend a 0 0 1\r\nx\r\n", &["prepend a 0 0 1\\r\\nx"]);
    check("cas a 0 0 1 9\r\nx\r\n", &["cas a 0 0 1 9\\r\\nx"]);
    check(
        "cas a 0 0 1 18446744073709551615 noreply\r\nx\r\n",
        &["cas a 0 0 1 18446744073709551615 noreply\\r\\nx"],
    );
    check("set a 4294967295 -1 1\r\nx\r\n", &["set a 4294967295 -1 1\\r\\nx"]);
    check("set noreply 0 0 1\r\nx\r\n", &["set noreply 0 0 1\\r\\nx"]);
    check("cas noreply 0 0 1 7\r\nx\r\n", &["cas noreply 0 0 1 7\\r\\nx"]);
    check("set a 0 0 1 surplus words noreply\r\nx\r\n", &["set a 0 0 1 noreply\\r\\nx"]);
    check("set a 0 0 1 norepl\r\nx\r\n", &["set a 0 0 1\\r\\nx"]);
}

#[test]
fn storage_with_bad_numbers_skips_its_data() {
    for line in [
        "set a x 0 9",
        "set a -1 0 9",
        "set a 4294967296 0 9",
        "set a 0 1x 9",
        "set a 0 99999999999999999999 9",
        "cas a 0 0 9",
        "cas a 0 0 9 x",
        "cas a 0 0 9 -1",
        "cas a 0 0 9 18446744073709551616",
        "append a 1.5 0 9",
    ] {
        check(&format!("{line}\r\nget smug\n\r\n"), &[BAD_LINE]);
        check(&format!("{line} noreply\r\nget smug\n\r\n"), &["(silence)"]);
    }
}

/// Without a length, data and commands cannot be told apart; memcached goes on with the next line.
#[test]
fn storage_without_a_length_ends_with_its_line() {
    for line in [
        "set",
        "set a",
        "set a 0 0",
        "cas a 0 0",
        "set a 0 0 -1",
        "set a 0 0 x",
        "set a 0 0 1x",
        "set a 0 0 noreply",
        "set a 0 0 2147483646",
        "set a 0 0 4294967296",
        "set a 0 0 18446744073709551615",
        "set a 0 0 18446744073709551616 noreply",
        "ms",
        "ms a",
        "ms a x",
        "ms a -1",
        "ms a S2",
        "ms a 2147483646",
    ] {
        let silent = line.ends_with(" noreply");
        check(&format!("{line}\r\n"), &[if silent { "(silence)" } else { BAD_LINE }]);
    }
}

#[test]
fn values_over_the_limit_are_skipped_to_the_byte() {
    let data = "x".repeat(101);
    check(
        &format!("set a 0 0 100\r\n{}\r\n", &data[1..]),
        &[&format!("set a 0 0 100\\r\\n{}", &data[1..])],
    );
    check(&format!("set a 0 0 101\r\n{data}\r\n"), &["(discard a)", TOO_LARGE]);
    check(&format!("set a 0 0 101 noreply\r\n{data}\r\n"), &["(discard a)", "(silence)"]);
    check(&format!("add a 0 0 101\r\n{data}\r\n"), &[TOO_LARGE]);
    check(&format!("ms a 101 q\r\n{data}\r\n"), &["(discard a)", TOO_LARGE]);
    check(&format!("ms YQ== 101 b\r\n{data}\r\n"), &["(discard YQ==)", TOO_LARGE]);
    let limits = Limits::default();
    let endless = b"set a 0 0 2147483645\r\nget b\r\nget c\r\n";
    assert_eq!(feed([&endless[..]], &limits), ["(discard a)", TOO_LARGE, "(waiting)"]);
}

#[test]
fn a_bad_data_chunk_takes_exactly_the_announced_bytes() {
    const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
    check("set a 0 0 3\r\nabcd\n", &[BAD_CHUNK]);
    check("set a 0 0 3\r\nabcdef\r\n", &[BAD_CHUNK, BAD_LINE]);
    check("set a 0 0 3\r\nabcdefgh\r\n", &[BAD_CHUNK, "ERROR"]);
    check("set a 0 0 3 noreply\r\nabcde", &["(silence)"]);
    check("set a 0 0 3\r\nabc\n\n", &[BAD_CHUNK]);
    check("ms a 3 q\r\nabcde", &[BAD_CHUNK]);
}

#[test]
fn counters_touch_and_delete() {
    check("incr a 1\r\n", &["incr a 1"]);
    check("decr a 18446744073709551615 noreply\r\n", &["decr a 18446744073709551615 noreply"]);
    check("incr a 1 surplus\r\n", &["incr a 1"]);
    check("incr noreply 1\r\n", &["incr noreply 1"]);
    for malformed in ["incr\r\n", "incr a\r\n", "decr\r\n", "touch a\r\n", "delete\r\n"] {
        check(malformed, &[BAD_LINE]);
    }
    for silent in ["incr  99 noreply", "decr a noreply", "touch k noreply", "incr noreply"] {
        check(&format!("{silent}\r\n"), &["(silence)"]);
    }
    for delta in ["x", "-1", "18446744073709551616", "1x"] {
        check(&format!("incr a {delta}\r\n"), &["CLIENT_ERROR invalid numeric delta argument"]);
        check(&format!("incr a {delta} noreply\r\n"), &["(silence)"]);
    }
    check("touch a 0\r\n", &["touch a 0"]);
    check("touch a -5 noreply\r\n", &["touch a -5 noreply"]);
    check("touch a x\r\n", &["CLIENT_ERROR invalid exptime argument"]);
    check("touch a x noreply\r\n", &["(silence)"]);
    check("delete a\r\n", &["delete a"]);
    check("delete a 0\r\n", &["delete a"]);
    check("delete a 0 noreply\r\n", &["delete a noreply"]);
    check("delete a 10\r\n", &["delete a"]);
    check("delete a noreply\r\n", &["delete a noreply"]);
    check("delete  noreply\r\n", &["delete noreply noreply"]);
}

#[test]
fn the_rest_of_the_text_commands() {
    check("flush_all\r\n", &["flush_all 0"]);
    check("flush_all noreply\r\n", &["flush_all 0 noreply"]);
    check("flush_all 10\r\n", &["flush_all 10"]);
    check("flush_all -1 noreply\r\n", &["flush_all -1 noreply"]);
    check("flush_all x\r\n", &["CLIENT_ERROR invalid exptime argument"]);
    check("flush_all x noreply\r\n", &["(silence)"]);
    check("stats\r\n", &["stats"]);
    check("stats   cachedump  1 0  \r\n", &["stats cachedump  1 0"]);
    check("version\r\n", &["version"]);
    check("version surplus\r\n", &["version"]);
    check("verbosity 1\r\n", &["verbosity 1"]);
    check("verbosity 1 noreply\r\n", &["verbosity 1 noreply"]);
    check("verbosity noreply\r\n", &["(silence)"]);
    check("verbosity\r\n", &[BAD_LINE]);
    check("verbosity x\r\n", &[BAD_LINE]);
    check("quit\r\n", &["quit"]);
    check("config get cluster\r\n", &["config get cluster"]);
    check("config get clusters\r\n", &["ERROR"]);
    check("config\r\n", &["ERROR"]);
    check("shutdown\r\n", &["shutdown"]);
    check("shutdown graceful\r\n", &["shutdown graceful"]);
    check("shutdown now\r\n", &["shutdown"]);
}

#[test]
fn unknown_commands() {
    for line in
        ["foo", "GET a", "getx a", "shutdownx", "flush_al", "\u{0}get a", "get\u{0} a", "\tget a"]
    {
        check(&format!("{line}\r\n"), &["ERROR"]);
    }
    check(" get a\r\n", &["ERROR"]);
    check("mx a\r\n", &["ERROR"]);
    // Too short for a command of two letters and a line ending.
    for line in ["\r\n", "\n", "x\n", "x\r\n", " \n"] {
        check(line, &[BAD_LINE]);
    }
    check("mn\n", &["mn"]);
    check("mn surplus\r\n", &["mn"]);
}

#[test]
fn other_protocols_are_cut_off() {
    check("GET / HTTP/1.1\r\nHost: a\r\nset a 0 0 1\r\n", &["(close)"]);
    check("PUT /a HTTP/1.0\r\n\r\n", &["(close)"]);
    check("POST /\r\n\r\n", &["(close)"]);
    check_bytes(b"\x16\x03\x01\x02\x00\x01", &["(close)"]);
    check_bytes(b"\x16get\r\n", &["ERROR"]);
    check_bytes(b"\x80\x0b\x00\x00", &["(close)"]);
    check_bytes(b"get a\r\n\x80\x0b\x00\x00", &["get a", "(close)"]);
}

#[test]
fn lines_are_limited() {
    let limits = Limits { line_bytes_max: 64, multiget_line_bytes_max: 300, ..Limits::default() };
    let told = |input: &[u8]| {
        let whole = feed([input], &limits);
        assert_eq!(whole, feed(input.chunks(1), &limits));
        whole
    };
    let line = |command: &str, len: usize| {
        let mut line = format!("{command} ").into_bytes();
        line.resize(len - 2, b'a');
        line.extend_from_slice(b"\r\n");
        line
    };
    assert!(told(&line("delete", 64))[0].starts_with("delete a"));
    assert_eq!(told(&line("delete", 65)), ["(close)"]);
    assert_eq!(told(&[b'x'; 63]), ["(waiting)"]);
    assert_eq!(told(&[b'x'; 64]), ["(close)"]);
    assert_eq!(told(&line("mg a", 65)), ["(close)"]);
    for command in ["get", "gets", "gat 0", "gats 0"] {
        let long =
            [format!("{command} ").into_bytes(), b"abc ".repeat(70), b"\r\n".to_vec()].concat();
        assert!(told(&long)[0].starts_with(&format!("{command} abc abc")));
        let longer =
            [format!("{command} ").into_bytes(), b"abc ".repeat(75), b"\r\n".to_vec()].concat();
        let portions = told(&longer);
        assert!(portions[0].starts_with(&format!("{command} abc abc")) && portions.len() == 3);
        assert!(portions[1].starts_with(&format!("{command} abc")));
    }
    // A data block is no line.
    let data = "x".repeat(500);
    assert_eq!(told(format!("set a 0 0 500\r\n{data}\r\n").as_bytes()).len(), 1);
}

/// The words of a line are the same in whatever portions they come.
#[test]
fn a_line_of_many_keys_comes_in_portions() {
    let limits = Limits { line_bytes_max: 64, multiget_line_bytes_max: 300, ..Limits::default() };
    let keys: Vec<String> = (0..1000).map(|n| format!("key{n}")).collect();
    for (command, spaces, end) in [
        ("get", 1, "\r\n"),
        ("gets", 7, "\n"),
        ("gat 10", 299, " \r\n"),
        ("gats -1", 300, "   \n"),
        ("get", 301, "\r\n"),
    ] {
        let line = format!("{command} {}{end}get a\r\n", keys.join(&" ".repeat(spaces)));
        let told = feed([line.as_bytes()], &limits);
        assert_eq!(told, feed(line.as_bytes().chunks(1), &limits));
        let (rest, portions) = told.split_last().unwrap();
        let (end, portions) = portions.split_last().unwrap();
        assert_eq!((end.as_str(), rest.as_str()), ("(end of the line)", "get a"));
        let behind = |told: &String| told[command.len()..].to_owned();
        let found: String = portions.iter().map(behind).collect();
        assert_eq!(found.split_whitespace().collect::<Vec<_>>(), keys);
    }
}

#[test]
fn a_bad_key_far_behind_spoils_the_rest_of_its_line_only() {
    let limits = Limits { line_bytes_max: 64, multiget_line_bytes_max: 300, ..Limits::default() };
    let many = "abc ".repeat(100);
    for bad in ["k".repeat(251), "k".repeat(1000), "a\u{1}b".to_owned()] {
        let line = format!("get {many}{bad} {many}{bad} {many}\r\nget a\r\n");
        let told = feed([line.as_bytes()], &limits);
        assert_eq!(told, feed(line.as_bytes().chunks(1), &limits), "{bad}");
        let errors = told.iter().filter(|told| *told == BAD_LINE).count();
        assert_eq!((errors, told.last().unwrap().as_str()), (1, "get a"), "{bad}");
    }
    let told = feed([format!("gat x {many}\r\nget a\r\n").as_bytes()], &limits);
    assert_eq!(told, ["CLIENT_ERROR invalid exptime argument", "get a"]);
}

#[test]
fn meta_commands() {
    check("mg a\r\n", &["mg a"]);
    check("mg a v\n", &["mg a v"]);
    check("mg  a  v  s  \r\n", &["mg a v s"]);
    check("mg a b k\r\n", &["CLIENT_ERROR error decoding key"]);
    check("mg YQ== b k O1 q\r\n", &["mg YQ== b k O1 q"]);
    check("ms a 2 T60 F5 MS\r\nhi\r\n", &["ms a 2 T60 F5 MS\\r\\nhi"]);
    check("ms a 0\r\n\r\n", &["ms a 0\\r\\n"]);
    check("md a q x I T30 C7 E8\r\n", &["md a q x I T30 C7 E8"]);
    check("ma a N0 J5 D2 MD v t c\r\n", &["ma a N0 J5 D2 MD v t c"]);
    check("ma a M+\r\nma a M-\r\nma a MINCR\r\n", &["ma a M+", "ma a M-", "ma a MINCR"]);
    check("me a\r\n", &["me a"]);
    check("me YQ== b\r\n", &["me YQ== b"]);
    check("mn\r\n", &["mn"]);
    check("mg a P1 L2 Pxyz\r\n", &["CLIENT_ERROR duplicate flag"]);
    check("mg a P1 Lxyz\r\n", &["mg a P1 Lxyz"]);
}

#[test]
fn meta_refusals() {
    const OPAQUE: &str = "CLIENT_ERROR opaque token too long";
    for command in ["mg", "md", "ma", "me"] {
        check(&format!("{command}\r\n"), &[BAD_LINE]);
        check(&format!("{command} \r\n"), &[BAD_LINE]);
        check(&format!("{command} a O{}\r\n", "1".repeat(32)), &[OPAQUE]);
        check(
            &format!("{command} a{}\r\n", " s".repeat(19)),
            &["CLIENT_ERROR options flags are too long"],
        );
    }
    for command in ["mg", "md"] {
        check(&format!("{command} a s s\r\n"), &["CLIENT_ERROR duplicate flag"]);
        check_bytes(format!("{command} a \u{e9}\r\n").as_bytes(), &["CLIENT_ERROR duplicate flag"]);
        for flag in ["y", "S2", "1", "!", "~", "[", "@"] {
            check(&format!("{command} a {flag}\r\n"), &["CLIENT_ERROR invalid flag"]);
        }
        for flag in ["T", "Tx", "N", "R1x", "C", "C-1", "E", "C18446744073709551616"] {
            check(&format!("{command} a {flag}\r\n"), &[BAD_TOKEN]);
        }
        check(&format!("{command} a Fx\r\n"), &[BAD_LINE]);
        check(&format!("{command} a Tx Fx\r\n"), &[BAD_TOKEN]);
        check(&format!("{command} a Dx\r\n"), &["CLIENT_ERROR invalid numeric delta value"]);
        check(&format!("{command} a Jx Tx y\r\n"), &["CLIENT_ERROR invalid flag"]);
    }
    for flags in ["y", "s s", "Dx", "Jx", "Tx", "C", "b"] {
        check(&format!("ma a {flags}\r\n"), &["CLIENT_ERROR invalid or duplicate flag"]);
    }
    for mode in ["M", "Mx", "Mdecr", "MS"] {
        check(&format!("ma a {mode}\r\n"), &["CLIENT_ERROR invalid mode for ma M token"]);
    }
    check(&format!("mg a O{}\r\n", "1".repeat(31)), &[&format!("mg a O{}", "1".repeat(31))]);
}

#[test]
fn meta_set_refusals_skip_the_data() {
    for (flags, reply) in [
        ("y", "CLIENT_ERROR invalid flag"),
        ("S3", "CLIENT_ERROR invalid flag"),
        ("T0 T0", "CLIENT_ERROR duplicate flag"),
        ("Tx", BAD_TOKEN),
        ("Fx", BAD_LINE),
        ("F4294967296", BAD_LINE),
        ("F-1", BAD_LINE),
        ("Cx q", BAD_TOKEN),
        ("b", "CLIENT_ERROR error decoding key"),
        ("M", "CLIENT_ERROR invalid mode for ms M token"),
        ("Mset", "CLIENT_ERROR invalid mode for ms M token"),
        ("MD", "CLIENT_ERROR invalid mode for ms M token"),
        ("O12345678901234567890123456789012", "CLIENT_ERROR opaque token too long"),
        ("s s s s s s s s s s s s s s s s s s", "CLIENT_ERROR options flags are too long"),
    ] {
        check(&format!("ms a 6 {flags}\r\nquit\r\n\r\n"), &[reply]);
    }
}

#[test]
fn every_mode_of_meta_set() {
    use entresol_protocol::{MetaStoreMode, Request, Step, parse};
    for (flag, expected) in [
        ("", MetaStoreMode::Set),
        ("MS", MetaStoreMode::Set),
        ("MSET", MetaStoreMode::Set),
        ("ME", MetaStoreMode::Add),
        ("MR", MetaStoreMode::Replace),
        ("MREPLACE", MetaStoreMode::Replace),
        ("MA", MetaStoreMode::Append),
        ("MAPPEND", MetaStoreMode::Append),
        ("MP", MetaStoreMode::Prepend),
    ] {
        let input = format!("ms a 1 {flag}\r\nx\r\n");
        let Step::Request { request: Request::MetaSet(set), .. } =
            parse(input.as_bytes(), &Limits::default())
        else {
            panic!("refused: {input}");
        };
        assert_eq!(set.mode, expected, "{flag}");
    }
}

#[test]
fn every_flag_of_a_meta_command_has_its_field() {
    use entresol_protocol::{
        Exptime, Key, MetaArithmetic, MetaDelete, MetaGet, MetaSet, MetaStoreMode, Request, Step,
        parse,
    };
    #[track_caller]
    fn parsed(input: &str) -> Request<'_> {
        match parse(input.as_bytes(), &Limits::default()) {
            Step::Request { request, .. } => request,
            other => panic!("{other:?}"),
        }
    }
    let Request::MetaGet(get) = parsed("mg YQ== b q v u h c C8 E9 T1 N-2 R3\r\n") else { panic!() };
    assert_eq!(get.tokens.iter().count(), 11);
    let MetaGet { tokens, .. } = get;
    assert_eq!(
        get,
        MetaGet {
            key: Key::Base64(b"YQ=="),
            tokens,
            quiet: true,
            value: true,
            no_bump: true,
            wants_access_facts: true,
            cas: true,
            compare: Some(8),
            explicit_cas: Some(9),
            touch: Some(Exptime(1)),
            vivify: Some(Exptime(-2)),
            recache: Some(Exptime(3)),
        }
    );
    let Request::MetaGet(get) = parsed("mg a\r\n") else { panic!() };
    assert!(get.tokens.is_empty());
    assert!(!(get.quiet || get.value || get.no_bump || get.wants_access_facts || get.cas));
    assert_eq!((get.compare, get.explicit_cas), (None, None));
    assert_eq!((get.touch, get.vivify, get.recache), (None, None, None));

    let Request::MetaSet(set) = parsed("ms a 1 q I MP F7 C8 E9 T1 N2\r\nx\r\n") else { panic!() };
    let MetaSet { tokens, .. } = set;
    assert_eq!(
        set,
        MetaSet {
            key: Key::Text(b"a"),
            data: b"x",
            tokens,
            quiet: true,
            mode: MetaStoreMode::Prepend,
            flags: 7,
            exptime: Exptime(1),
            compare: Some(8),
            explicit_cas: Some(9),
            invalidate: true,
            vivify: Some(Exptime(2)),
        }
    );

    let Request::MetaDelete(delete) = parsed("md a q I x C8 E9 T1\r\n") else { panic!() };
    let MetaDelete { tokens, .. } = delete;
    assert_eq!(
        delete,
        MetaDelete {
            key: Key::Text(b"a"),
            tokens,
            quiet: true,
            compare: Some(8),
            explicit_cas: Some(9),
            invalidate: true,
            touch: Some(Exptime(1)),
            remove_value: true,
        }
    );

    let Request::MetaArithmetic(ma) = parsed("ma a q v MD D5 C8 E9 T1 N2 J6\r\n") else { panic!() };
    let MetaArithmetic { tokens, .. } = ma;
    assert_eq!(
        ma,
        MetaArithmetic {
            key: Key::Text(b"a"),
            tokens,
            quiet: true,
            value: true,
            down: true,
            delta: 5,
            compare: Some(8),
            explicit_cas: Some(9),
            touch: Some(Exptime(1)),
            vivify: Some(Exptime(2)),
            initial: 6,
        }
    );
    let Request::MetaArithmetic(ma) = parsed("ma a\r\n") else { panic!() };
    assert_eq!((ma.delta, ma.initial, ma.down), (1, 0, false));
}
