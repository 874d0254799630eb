//! Encoder of replies, which are appended to a `Vec<u8>` byte for byte as memcached writes them.

mod dump;
mod meta;

pub use dump::{DumpFacts, metadump, mgdump};
pub use meta::{
    DebugFacts, MetaFacts, Status, Win, meta_arithmetic, meta_debug, meta_get_header, meta_set,
    meta_status,
};

/// Line ending, also behind a data block.
pub const CRLF: &[u8] = b"\r\n";
/// End of the reply to a retrieval and to `stats`.
pub const END: &[u8] = b"END\r\n";
/// Reply to a store that succeeded.
pub const STORED: &[u8] = b"STORED\r\n";
/// Reply to a store whose condition was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// Reply to a store after another client has changed the item.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// Reply to a command for an item that does not exist.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// Reply to a delete that succeeded.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// Reply to a touch that succeeded.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// Reply to a command without a result.
pub const OK: &[u8] = b"OK\r\n";
/// Reply to the reset of statistics.
pub const RESET: &[u8] = b"RESET\r\n";
/// Reply to `mn`.
pub const META_NOOP: &[u8] = b"MN\r\n";
/// End of the reply to `lru_crawler mgdump`.
pub const META_END: &[u8] = b"EN\r\n";
/// Reply to a list of keys of a class that cannot be.
pub const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
/// Reply to a list of keys where none is allowed.
pub const CRAWLER_DISABLED: &[u8] = b"CLIENT_ERROR lru crawler disabled\r\n";
/// Reply to an unknown command.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// Reply to counting a value that is not a decimal number of 64 bits.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// Reply to a store whose value does not fit the cache.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// Reply to a store without memory for the item.
pub const NO_MEMORY_STORING: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// Reply to counting without memory for the new number.
pub const NO_MEMORY_COUNTING: &[u8] = b"SERVER_ERROR out of memory\r\n";
/// Reply to `shutdown`, which is not allowed here.
pub const SHUTDOWN_DISABLED: &[u8] = b"SERVER_ERROR: shutdown not enabled\r\n";

/// Appends `number` in decimal.
#[inline]
pub fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the line before a value: `VALUE key flags length [cas]`.
///
/// The value itself and [`CRLF`] follow it.
#[inline]
pub fn value_header(
    out: &mut Vec<u8>,
    key: &[u8],
    ValueFacts { flags, value_len, cas }: ValueFacts,
) {
    out.reserve(key.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(out, u64::from(flags));
    out.push(b' ');
    number(out, u64::from(value_len));
    if let Some(cas) = cas {
        out.push(b' ');
        number(out, cas);
    }
    out.extend_from_slice(CRLF);
}

/// Facts of an item that [`value_header`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueFacts {
    /// Client flags, 32 bits.
    pub flags: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// CAS of the item, for `gets` and `gats`.
    pub cas: Option<u64>,
}

/// Appends the reply to a successful `incr` or `decr`.
#[inline]
pub fn counter(out: &mut Vec<u8>, value: u64) {
    number(out, value);
    out.extend_from_slice(CRLF);
}

/// Appends `VERSION version`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    line(out, &[b"VERSION ", version.as_bytes()]);
}

/// Appends `STAT name value`; [`END`] follows the last one.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    line(out, &[b"STAT ", name.as_bytes(), b" ", value.as_bytes()]);
}

fn line(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(CRLF);
}
