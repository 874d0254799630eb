//! Generated conversations: a few keys, every command, any order.
//!
//! CAS numbers are compared for one key only. Here they tell versions of one key apart; in
//! memcached they number all versions of all keys.
//!
//! Accidents of memcached's are left out: `h`, the marks of `R` and `I` and the expiry, which
//! outlive a write if the new value happens to fit in the place of the old; and flags whose effect
//! depends on their place in the line.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::check;

fn key() -> impl Strategy<Value = &'static str> {
    select(vec!["%k", "%k", "%kx"])
}

fn value() -> impl Strategy<Value = &'static str> {
    select(vec!["", "a", "hi\r\nho", "555", "99999999999999999999"])
}

fn exptime() -> impl Strategy<Value = &'static str> {
    select(vec!["0", "0", "1000"])
}

fn cas() -> impl Strategy<Value = String> {
    prop_oneof![(0..4).prop_map(|place| format!("%{place}")), Just("77".to_owned())]
}

fn noreply() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " noreply"])
}

fn text_store() -> impl Strategy<Value = String> {
    let verb = select(vec!["set", "set", "add", "replace", "append", "prepend", "cas"]);
    (verb, key(), 0u32..3, exptime(), value(), cas(), noreply()).prop_map(
        |(verb, key, flags, exptime, value, cas, noreply)| {
            let (key, cas) =
                if verb == "cas" { ("%k", format!(" {cas}")) } else { (key, String::new()) };
            let len = value.len();
            format!("{verb} {key} {flags} {exptime} {len}{cas}{noreply}\r\n{value}\r\n")
        },
    )
}

fn text_other() -> impl Strategy<Value = String> {
    prop_oneof![
        (key(), key()).prop_map(|(a, b)| format!("get {a} {b}\r\n")),
        Just("gets %k\r\n".to_owned()),
        exptime().prop_map(|exptime| format!("gats {exptime} %k\r\n")),
        (exptime(), key()).prop_map(|(exptime, key)| format!("gat {exptime} {key}\r\n")),
        (key(), exptime(), noreply()).prop_map(|(key, e, n)| format!("touch {key} {e}{n}\r\n")),
        (key(), noreply()).prop_map(|(key, noreply)| format!("delete {key}{noreply}\r\n")),
    ]
}

/// Generates counting within numbers of three digits. memcached pads a number that became shorter
/// with spaces, but only if no other connection holds the item at that moment.
fn counting() -> impl Strategy<Value = String> {
    const FLAGS: &[&str] = &["v", "t", "c", "k", "O4", "N400", "J8", "D3", "MD", "q"];
    let delta = select(vec!["0", "1", "9"]);
    prop_oneof![
        (select(vec!["incr", "decr"]), key(), delta, noreply())
            .prop_map(|(verb, key, delta, noreply)| format!("{verb} {key} {delta}{noreply}\r\n")),
        flags(FLAGS).prop_map(|flags| format!("ma %k{flags}\r\n")),
    ]
}

/// Some of `flags`, in their or the opposite order.
fn flags(flags: &'static [&'static str]) -> impl Strategy<Value = String> {
    (subsequence(flags, 0..=flags.len().min(6)), cas(), any::<bool>()).prop_map(
        |(mut flags, cas, back)| {
            if back {
                flags.reverse();
            }
            // What these come to together depends on their order there.
            if flags.contains(&"N500") {
                flags.retain(|flag| *flag != "T900");
            }
            // The same; and until 1.6.42 `ma` was not quiet about what it had created.
            if flags.contains(&"N400") {
                flags.retain(|flag| *flag != "q");
            }
            flags.sort_by_key(|flag| *flag == "t");
            let spelt = |flag: &&str| format!(" {}", flag.replace("CAS", &cas));
            flags.iter().map(spelt).collect()
        },
    )
}

fn meta() -> impl Strategy<Value = String> {
    const GET: &[&str] = &["v", "k", "O1", "c", "f", "s", "t", "u", "q", "T900", "N500"];
    const SET: &[&str] = &["k", "O2", "c", "F7", "T700", "CCAS", "q"];
    const DELETE: &[&str] = &["k", "O3", "CCAS", "q"];
    let mode = select(vec!["", "", " MS", " ME", " MR", " MA", " MP"]);
    prop_oneof![
        3 => flags(GET).prop_map(|flags| format!("mg %k{flags}\r\n")),
        3 => (value(), mode, flags(SET)).prop_map(|(value, mode, flags)| {
            format!("ms %k {}{mode}{flags}\r\n{value}\r\n", value.len())
        }),
        2 => flags(DELETE).prop_map(|flags| format!("md %k{flags}\r\n")),
    ]
}

fn conversation() -> impl Strategy<Value = Vec<String>> {
    let together = prop_oneof![2 => text_store(), 2 => text_other(), 3 => meta()];
    let together = vec(together, 1..4).prop_map(|sends| sends.concat());
    vec(prop_oneof![3 => together, 1 => counting()], 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_conversation(sends in conversation()) {
        if let Err(difference) = check(&sends) {
            return Err(TestCaseError::fail(difference));
        }
    }
}
