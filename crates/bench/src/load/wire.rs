//! Encoding of requests and decoding of replies, in the text dialect or in the meta dialect.

use std::fmt;
use std::str::FromStr;

use entresol_measure::trace::Operation;
use entresol_protocol::client::{self, Reply, ReplyStep, SetOptions};
use entresol_protocol::encode::Status;
use entresol_protocol::{Arithmetic, Delete, Exptime, Limits, Request, Store, StoreVerb};

/// Dialect of memcached's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Text dialect: `get`, `set` ...
    #[default]
    Text,
    /// Meta dialect: `mg`, `ms` ...
    Meta,
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Dialect::Text),
            "meta" => Ok(Dialect::Meta),
            _ => Err(format!("'{text}' is no protocol: write text or meta")),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::Text => "text",
            Dialect::Meta => "meta",
        })
    }
}

impl Dialect {
    /// Appends a request without a value: a get, a delete, or an increment or decrement by one.
    #[inline]
    pub(crate) fn append_request(self, operation: Operation, key: &[u8], out: &mut Vec<u8>) {
        let down = operation == Operation::Decrement;
        match (self, operation) {
            (Dialect::Text, Operation::Delete) => {
                client::request(out, &Request::Delete(Delete { key, noreply: false }));
            }
            (Dialect::Text, Operation::Increment | Operation::Decrement) => {
                let count = Arithmetic { key, delta: 1, down, noreply: false };
                client::request(out, &Request::Arithmetic(count));
            }
            (Dialect::Text, _) => client::get(out, key),
            (Dialect::Meta, Operation::Delete) => client::meta_delete(out, key, ""),
            (Dialect::Meta, Operation::Increment) => client::meta_arithmetic(out, key, ""),
            (Dialect::Meta, Operation::Decrement) => client::meta_arithmetic(out, key, "MD"),
            (Dialect::Meta, _) => client::meta_get(out, key, "v"),
        }
    }

    /// Appends a store of any kind.
    #[inline]
    pub(crate) fn append_store(self, store: StoreRequest<'_>, out: &mut Vec<u8>) {
        let StoreRequest { operation, key, ttl_s, value } = store;
        match self {
            Dialect::Text => {
                let exptime = Exptime(i64::from(ttl_s));
                let verb = match operation {
                    Operation::Add => StoreVerb::Add,
                    Operation::Replace => StoreVerb::Replace,
                    Operation::Append => StoreVerb::Append,
                    Operation::Prepend => StoreVerb::Prepend,
                    _ => {
                        let options = SetOptions { flags: 0, exptime, noreply: false };
                        return client::set(out, key, value, options);
                    }
                };
                let data = value;
                let store = Store { verb, key, flags: 0, exptime, data, noreply: false };
                client::request(out, &Request::Store(store));
            }
            Dialect::Meta => {
                let mode = match operation {
                    Operation::Add => "ME",
                    Operation::Replace => "MR",
                    Operation::Append => "MA",
                    Operation::Prepend => "MP",
                    _ if ttl_s == 0 => return client::meta_set(out, key, value, ""),
                    _ => "MS",
                };
                client::meta_set(out, key, value, &format!("{mode} T{ttl_s}"));
            }
        }
    }
}

/// Store of any kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreRequest<'a> {
    pub(crate) operation: Operation,
    pub(crate) key: &'a [u8],
    pub(crate) ttl_s: u32,
    pub(crate) value: &'a [u8],
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
    /// The value exists; the text dialect repeats its key.
    Value {
        /// Key as the server repeated it.
        key: Option<&'a [u8]>,
        /// Bytes of the value.
        data: &'a [u8],
    },
    /// The key does not exist.
    Absent,
    /// The request was performed.
    Done,
    /// The condition did not hold, and nothing was changed.
    Unchanged,
    /// The server refused the request, or its content was not allowed.
    Refused,
}

/// Result of parsing a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// More bytes are needed.
    Incomplete,
    /// Complete reply, with its length in bytes.
    Reply(Outcome<'a>, usize),
    /// The bytes are no reply to such a request.
    Unexpected,
}

/// Parses the reply at the beginning of `input` to a request of one key, in either dialect.
#[inline]
pub(crate) fn parse_reply<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    let (reply, consumed) = match client::reply(input, limits) {
        ReplyStep::Incomplete { .. } => return Parsed::Incomplete,
        ReplyStep::Malformed => return Parsed::Unexpected,
        ReplyStep::Reply { reply, consumed, .. } => (reply, consumed),
    };
    let outcome = match reply {
        Reply::Value { key, data, .. } => {
            const END: &[u8] = b"END\r\n";
            let rest = &input[consumed..];
            if rest.starts_with(END) {
                let outcome = Outcome::Value { key: Some(key), data };
                return Parsed::Reply(outcome, consumed + END.len());
            }
            return if END.starts_with(rest) { Parsed::Incomplete } else { Parsed::Unexpected };
        }
        Reply::MetaValue { data, .. } => Outcome::Value { key: None, data },
        Reply::Stored | Reply::Deleted | Reply::Touched | Reply::Ok | Reply::Counter(_) => {
            Outcome::Done
        }
        Reply::End | Reply::NotFound => Outcome::Absent,
        Reply::NotStored | Reply::Exists => Outcome::Unchanged,
        Reply::Meta { status, .. } => match status {
            Status::Done => Outcome::Done,
            Status::Miss | Status::NotFound => Outcome::Absent,
            _ => Outcome::Unchanged,
        },
        Reply::ClientError(_) | Reply::ServerError(_) => Outcome::Refused,
        _ => return Parsed::Unexpected,
    };
    Parsed::Reply(outcome, consumed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_both_dialects() {
        let written = |dialect: Dialect, operation| {
            let mut out = Vec::new();
            dialect.append_request(operation, b"k", &mut out);
            let store = StoreRequest { operation, key: b"k", ttl_s: 60, value: b"abc" };
            dialect.append_store(store, &mut out);
            String::from_utf8(out).unwrap()
        };
        let (text, meta) = (Dialect::Text, Dialect::Meta);
        assert_eq!(written(text, Operation::Get), "get k\r\nset k 0 60 3\r\nabc\r\n");
        assert_eq!(written(text, Operation::Add), "get k\r\nadd k 0 60 3\r\nabc\r\n");
        assert_eq!(written(meta, Operation::Get), "mg k v\r\nms k 3 MS T60\r\nabc\r\n");
        assert_eq!(written(meta, Operation::Append), "mg k v\r\nms k 3 MA T60\r\nabc\r\n");
        assert_eq!(written(meta, Operation::Decrement), "ma k MD\r\nms k 3 MS T60\r\nabc\r\n");
    }

    fn parsed(input: &[u8]) -> Parsed<'_> {
        parse_reply(input, &Limits::default())
    }

    fn check(reply: &str, expected: Outcome<'_>) {
        let bytes = format!("{reply}rest");
        assert_eq!(parsed(bytes.as_bytes()), Parsed::Reply(expected, reply.len()), "{reply}");
        for cut in 0..reply.len() {
            assert_eq!(parsed(&reply.as_bytes()[..cut]), Parsed::Incomplete, "{reply} {cut}");
        }
    }

    #[test]
    fn replies_however_they_are_cut() {
        check(
            "VALUE k 0 5\r\na\r\nbc\r\nEND\r\n",
            Outcome::Value { key: Some(b"k"), data: b"a\r\nbc" },
        );
        check("VALUE k 7 0 123\r\n\r\nEND\r\n", Outcome::Value { key: Some(b"k"), data: b"" });
        check("VA 2 s2\r\nhi\r\n", Outcome::Value { key: None, data: b"hi" });
        check("END\r\n", Outcome::Absent);
        check("EN\r\n", Outcome::Absent);
        check("STORED\r\n", Outcome::Done);
        check("HD c12\r\n", Outcome::Done);
        check("18446744073709551615\r\n", Outcome::Done);
        check("NOT_STORED\r\n", Outcome::Unchanged);
        check("SERVER_ERROR out of memory storing object\r\n", Outcome::Refused);
    }

    #[test]
    fn nonsense_is_unexpected() {
        for reply in
            ["ERROR\r\n", "VALUE k 0 x\r\n", "VA 1\r\nabc\r\n", "VALUE k 0 1\r\nabcdefgh\r\n"]
        {
            assert_eq!(parsed(reply.as_bytes()), Parsed::Unexpected, "{reply}");
        }
        assert_eq!(parsed(&[b'x'; 9000]), Parsed::Unexpected);
    }
}
