//! Encoder of replies to meta commands: a code of two letters, then the flags in the request's
//! order.

use super::{CRLF, number};
use crate::{FlagTokens, Key, MetaArithmetic, MetaGet, MetaSet, base64};

/// Facts of an item that the flags of a meta reply can state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaFacts {
    /// Bytes of the value (`s`, and behind `VA`).
    pub value_len: u32,
    /// Client flags, 32 bits (`f`).
    pub flags: u32,
    /// CAS of the item (`c`).
    pub cas: u64,
    /// Seconds left to live, `None` for ever (`t`).
    pub ttl_s: Option<u32>,
    /// Seconds since the last access (`l`).
    pub last_access_s: u32,
    /// True if it had been fetched before (`h`).
    pub fetched: bool,
    /// True if the item was marked stale (`X`).
    pub stale: bool,
    /// Right to renew the item (`W` or `Z`).
    pub win: Win,
}

/// Right to renew an item that is stale, new or about to expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Win {
    /// The item needs no renewal.
    #[default]
    None,
    /// This client has won the right (`W`).
    Won,
    /// Another client won it before (`Z`).
    AlreadySent,
}

/// Codes of replies without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `HD`: done.
    Done,
    /// `EN`: a miss of `mg` and `me`.
    Miss,
    /// `NF`: no such item.
    NotFound,
    /// `NS`: the condition was not met.
    NotStored,
    /// `EX`: the item has another CAS.
    Exists,
}

impl Status {
    fn code(self) -> &'static [u8; 2] {
        match self {
            Status::Done => b"HD",
            Status::Miss => b"EN",
            Status::NotFound => b"NF",
            Status::NotStored => b"NS",
            Status::Exists => b"EX",
        }
    }
}

/// Appends the first line of a hit of `mg`. A requested value follows it, and [`CRLF`] follows the
/// value.
pub fn meta_get_header(out: &mut Vec<u8>, request: &MetaGet<'_>, facts: &MetaFacts) {
    value_or_done(out, request.value.then_some(facts.value_len));
    for token in request.tokens.iter() {
        match token.first() {
            Some(b's') => flag(out, b's', u64::from(facts.value_len)),
            Some(b't') => time_to_live(out, facts.ttl_s),
            Some(b'c') => flag(out, b'c', facts.cas),
            Some(b'f') => flag(out, b'f', u64::from(facts.flags)),
            Some(b'l') => flag(out, b'l', u64::from(facts.last_access_s)),
            Some(b'h') => flag(out, b'h', u64::from(facts.fetched)),
            _ => echo(out, token, request.key),
        }
    }
    if facts.win == Win::AlreadySent {
        out.extend_from_slice(b" Z");
    }
    if facts.stale {
        out.extend_from_slice(b" X");
    }
    if facts.win == Win::Won {
        out.extend_from_slice(b" W");
    }
    out.extend_from_slice(CRLF);
}

/// Appends a reply without facts of an item: any of `mg`, `md` and `ma` without a hit, and every
/// reply of `md`.
pub fn meta_status(out: &mut Vec<u8>, status: Status, key: Key<'_>, tokens: FlagTokens<'_>) {
    out.extend_from_slice(status.code());
    for token in tokens.iter() {
        echo(out, token, key);
    }
    out.extend_from_slice(CRLF);
}

/// Appends the reply of `ms`. `cas` is the stored item's, 0 if nothing was stored. `value_len` is
/// the length of the whole value, which after append and prepend exceeds that of the request.
pub fn meta_set(out: &mut Vec<u8>, status: Status, request: &MetaSet<'_>, facts: &MetaFacts) {
    out.extend_from_slice(status.code());
    for token in request.tokens.iter() {
        match token.first() {
            Some(b'c') => flag(out, b'c', facts.cas),
            Some(b's') => flag(out, b's', u64::from(facts.value_len)),
            _ => echo(out, token, request.key),
        }
    }
    out.extend_from_slice(CRLF);
}

/// Appends the whole reply of a successful `ma`. Only the CAS and the time to live of `facts`
/// count.
pub fn meta_arithmetic(
    out: &mut Vec<u8>,
    request: &MetaArithmetic<'_>,
    counter: u64,
    facts: &MetaFacts,
) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(counter).as_bytes();
    value_or_done(out, request.value.then_some(digits.len() as u32));
    for token in request.tokens.iter() {
        match token.first() {
            Some(b't') => time_to_live(out, facts.ttl_s),
            Some(b'c') => flag(out, b'c', facts.cas),
            _ => echo(out, token, request.key),
        }
    }
    out.extend_from_slice(CRLF);
    if request.value {
        out.extend_from_slice(digits);
        out.extend_from_slice(CRLF);
    }
}

/// Facts of an item that `me` reports besides [`MetaFacts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DebugFacts {
    /// Group of the item; in memcached its slab class.
    pub class: u32,
    /// Bytes that the item takes, all included.
    pub total_bytes: u64,
}

/// Appends the reply of `me` to a hit; a miss is [`Status::Miss`] without flags.
pub fn meta_debug(out: &mut Vec<u8>, key: Key<'_>, facts: &MetaFacts, debug: &DebugFacts) {
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(key.token());
    let details = Details {
        expiry_s: facts.ttl_s.map(u64::from),
        access_s: facts.last_access_s.into(),
        cas: facts.cas,
        fetched: facts.fetched,
        class: debug.class,
        total_bytes: debug.total_bytes,
    };
    details.append(out);
    out.extend_from_slice(CRLF);
}

/// Words that `me` and `lru_crawler metadump` have in common. The times are durations in the one
/// and seconds since 1970 in the other.
pub(super) struct Details {
    pub(super) expiry_s: Option<u64>,
    pub(super) access_s: u64,
    pub(super) cas: u64,
    pub(super) fetched: bool,
    pub(super) class: u32,
    pub(super) total_bytes: u64,
}

impl Details {
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" exp=");
        lifetime(out, self.expiry_s);
        out.extend_from_slice(b" la=");
        number(out, self.access_s);
        out.extend_from_slice(b" cas=");
        number(out, self.cas);
        out.extend_from_slice(if self.fetched { b" fetch=yes cls=" } else { b" fetch=no cls=" });
        number(out, u64::from(self.class));
        out.extend_from_slice(b" size=");
        number(out, self.total_bytes);
    }
}

fn value_or_done(out: &mut Vec<u8>, value_len: Option<u32>) {
    match value_len {
        Some(len) => {
            out.extend_from_slice(b"VA ");
            number(out, u64::from(len));
        }
        None => out.extend_from_slice(b"HD"),
    }
}

/// Appends the two flags that every reply repeats; all others are silent.
fn echo(out: &mut Vec<u8>, token: &[u8], key: Key<'_>) {
    match token.first() {
        Some(b'O') => {
            out.push(b' ');
            out.extend_from_slice(token);
        }
        Some(b'k') => {
            out.extend_from_slice(b" k");
            match key {
                Key::Text(text) => out.extend_from_slice(text),
                Key::Base64(_) => {
                    base64::encode(key.resolve(&mut crate::KeyBuffer::default()), out);
                    out.extend_from_slice(b" b");
                }
            }
        }
        _ => {}
    }
}

fn flag(out: &mut Vec<u8>, name: u8, value: u64) {
    out.extend_from_slice(&[b' ', name]);
    number(out, value);
}

fn time_to_live(out: &mut Vec<u8>, ttl_s: Option<u32>) {
    out.extend_from_slice(b" t");
    lifetime(out, ttl_s.map(u64::from));
}

fn lifetime(out: &mut Vec<u8>, seconds: Option<u64>) {
    match seconds {
        Some(seconds) => number(out, seconds),
        None => out.extend_from_slice(b"-1"),
    }
}
