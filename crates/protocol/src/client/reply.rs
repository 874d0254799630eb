//! Parser of replies, one line or one value at a time.
//!
//! Replies name themselves, so the parser needs no memory of the requests: a `get` of three keys is
//! answered by up to three [`Reply::Value`] and a [`Reply::End`].

use crate::encode::Status;
use crate::scan::{Words, unsigned, unsigned_32};
use crate::{FlagTokens, Limits};

/// Longest line of a reply; lines of statistics are the longest.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// One reply, or one part of the reply to a retrieval or to `stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `VALUE key flags length [cas]` and the value.
    Value {
        /// Key of the item.
        key: &'a [u8],
        /// Client flags, 32 bits.
        flags: u32,
        /// CAS of the item, if it was asked for.
        cas: Option<u64>,
        /// Value; empty from [`reply_head`].
        data: &'a [u8],
    },
    /// `END`.
    End,
    /// `STORED`.
    Stored,
    /// `NOT_STORED`.
    NotStored,
    /// `EXISTS`.
    Exists,
    /// `NOT_FOUND`.
    NotFound,
    /// `DELETED`.
    Deleted,
    /// `TOUCHED`.
    Touched,
    /// `OK`.
    Ok,
    /// `RESET`.
    Reset,
    /// New number after `incr` or `decr`.
    Counter(u64),
    /// `VERSION` and the rest of the line.
    Version(&'a [u8]),
    /// `STAT name value`.
    Stat {
        /// Name of the statistic.
        name: &'a [u8],
        /// Rest of the line.
        value: &'a [u8],
    },
    /// `VA length flags` and the value.
    MetaValue {
        /// Value; empty from [`reply_head`].
        data: &'a [u8],
        /// Flags in their order.
        tokens: FlagTokens<'a>,
    },
    /// `HD`, `EN`, `NF`, `NS`, `EX`.
    Meta {
        /// Meaning of the code.
        status: Status,
        /// Flags in their order.
        tokens: FlagTokens<'a>,
    },
    /// `MN`.
    MetaNoop,
    /// `ME` and the rest of the line.
    MetaDebug(&'a [u8]),
    /// `ERROR`.
    Error,
    /// `CLIENT_ERROR` and the rest of the line.
    ClientError(&'a [u8]),
    /// `SERVER_ERROR` and the rest of the line.
    ServerError(&'a [u8]),
}

/// Contents of the front of a client's receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStep<'a> {
    /// The reply is not complete yet.
    Incomplete {
        /// Minimum number of bytes that the buffer must hold before another try can help.
        needed: usize,
    },
    /// One reply.
    Reply {
        /// Parsed reply.
        reply: Reply<'a>,
        /// Bytes of the buffer that it took.
        consumed: usize,
        /// Bytes of value and line ending that follow; not 0 only from [`reply_head`].
        to_skip: usize,
    },
    /// The peer is not a memcached server, or the stream is out of step: close.
    Malformed,
}

/// Parses the reply at the front of `input`, value included.
#[inline]
#[must_use]
pub fn reply<'a>(input: &'a [u8], limits: &Limits) -> ReplyStep<'a> {
    let (mut reply, consumed, to_skip) = match reply_head(input, limits) {
        ReplyStep::Reply { reply, consumed, to_skip } if to_skip != 0 => (reply, consumed, to_skip),
        complete => return complete,
    };
    let Some(block) = input.get(consumed..consumed + to_skip) else {
        return ReplyStep::Incomplete { needed: consumed + to_skip };
    };
    let Some(value) = block.strip_suffix(b"\r\n") else {
        return ReplyStep::Malformed;
    };
    if let Reply::Value { data, .. } | Reply::MetaValue { data, .. } = &mut reply {
        *data = value;
    }
    ReplyStep::Reply { reply, consumed: consumed + to_skip, to_skip: 0 }
}

/// Parses the reply at the front of `input` up to its value, so that a client can drop the value as
/// it arrives.
#[inline]
#[must_use]
pub fn reply_head<'a>(input: &'a [u8], limits: &Limits) -> ReplyStep<'a> {
    let window = input.get(..LINE_BYTES_MAX).unwrap_or(input);
    let Some(newline) = memchr::memchr(b'\n', window) else {
        return if window.len() == LINE_BYTES_MAX {
            ReplyStep::Malformed
        } else {
            ReplyStep::Incomplete { needed: input.len() + 1 }
        };
    };
    let line = input.get(..newline).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match parse_line(line) {
        Some((reply, data_len)) => {
            let to_skip = match data_len {
                None => 0,
                Some(len) if len as usize <= limits.value_bytes_max => len as usize + 2,
                Some(_) => return ReplyStep::Malformed,
            };
            ReplyStep::Reply { reply, consumed: newline + 1, to_skip }
        }
        None => ReplyStep::Malformed,
    }
}

/// Parses a line into a reply and the length of the value behind it, if there is one.
#[inline]
fn parse_line(line: &[u8]) -> Option<(Reply<'_>, Option<u32>)> {
    if let Some(rest) = line.strip_prefix(b"VALUE ") {
        return value(Words::new(rest));
    }
    if let Some((code, rest)) = line.split_first_chunk::<2>()
        && (rest.is_empty() || rest.starts_with(b" "))
        && let Some(found) = meta(*code, Words::new(rest))
    {
        return Some(found);
    }
    let reply = match line {
        b"END" => Reply::End,
        b"STORED" => Reply::Stored,
        b"NOT_STORED" => Reply::NotStored,
        b"EXISTS" => Reply::Exists,
        b"NOT_FOUND" => Reply::NotFound,
        b"DELETED" => Reply::Deleted,
        b"TOUCHED" => Reply::Touched,
        b"OK" => Reply::Ok,
        b"RESET" => Reply::Reset,
        b"ERROR" => Reply::Error,
        _ => rare(line)?,
    };
    Some((reply, None))
}

fn value(mut words: Words<'_>) -> Option<(Reply<'_>, Option<u32>)> {
    let key = words.next()?;
    let flags = words.next().and_then(unsigned_32)?;
    let len = words.next().and_then(unsigned_32)?;
    let cas = match words.next() {
        Some(word) => Some(unsigned(word)?),
        None => None,
    };
    Some((Reply::Value { key, flags, cas, data: &[] }, Some(len)))
}

fn meta(code: [u8; 2], mut words: Words<'_>) -> Option<(Reply<'_>, Option<u32>)> {
    let status = match &code {
        b"VA" => {
            let len = words.next().and_then(unsigned_32)?;
            let tokens = FlagTokens::new(words);
            return Some((Reply::MetaValue { data: &[], tokens }, Some(len)));
        }
        b"HD" => Status::Done,
        b"EN" => Status::Miss,
        b"NF" => Status::NotFound,
        b"NS" => Status::NotStored,
        b"EX" => Status::Exists,
        b"MN" => return Some((Reply::MetaNoop, None)),
        b"ME" => return Some((Reply::MetaDebug(words.rest()), None)),
        _ => return None,
    };
    Some((Reply::Meta { status, tokens: FlagTokens::new(words) }, None))
}

/// Replies whose speed does not matter.
fn rare(line: &[u8]) -> Option<Reply<'_>> {
    if let Some(rest) = line.strip_prefix(b"STAT ") {
        let mut words = Words::new(rest);
        let name = words.next()?;
        return Some(Reply::Stat { name, value: words.rest() });
    }
    if let Some(rest) = line.strip_prefix(b"VERSION ") {
        return Some(Reply::Version(rest));
    }
    if let Some(rest) = line.strip_prefix(b"CLIENT_ERROR ") {
        return Some(Reply::ClientError(rest));
    }
    if let Some(rest) = line.strip_prefix(b"SERVER_ERROR") {
        return Some(Reply::ServerError(rest.strip_prefix(b" ").unwrap_or(rest)));
    }
    // memcached keeps the length of a decremented number and pads it with spaces.
    let end = line.iter().rposition(|&byte| byte != b' ')?;
    unsigned(line.get(..=end)?).map(Reply::Counter)
}
