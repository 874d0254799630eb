//! Lines of `lru_crawler metadump` and `mgdump`.

use super::meta::Details;
use super::number;
use crate::base64;

/// Facts of an item that [`metadump`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpFacts {
    /// Second at which it expires, since 1970; none if it never does.
    pub expires_at_s: Option<u64>,
    /// Second of its last access, since 1970.
    pub accessed_at_s: u64,
    /// CAS of the item.
    pub cas: u64,
    /// True if it was read since it was written.
    pub fetched: bool,
    /// Group of the item; in memcached its slab class.
    pub class: u32,
    /// Bytes that the item takes, all included.
    pub total_bytes: u64,
    /// Client flags, 32 bits.
    pub flags: u32,
}

/// Appends the line of `lru_crawler metadump` for an item. It ends with a bare line feed, as in
/// memcached.
pub fn metadump(out: &mut Vec<u8>, key: &[u8], facts: &DumpFacts) {
    out.extend_from_slice(b"key=");
    percent_encode(out, key);
    let details = Details {
        expiry_s: facts.expires_at_s,
        access_s: facts.accessed_at_s,
        cas: facts.cas,
        fetched: facts.fetched,
        class: facts.class,
        total_bytes: facts.total_bytes,
    };
    details.append(out);
    out.extend_from_slice(b" flags=");
    number(out, u64::from(facts.flags));
    out.push(b'\n');
}

/// Appends the line of `lru_crawler mgdump` for an item: a request that reads it. A key that cannot
/// stand in a line is given in base64.
pub fn mgdump(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"mg ");
    if key.iter().any(|byte| *byte <= b' ' || *byte == 0x7F) {
        base64::encode(key, out);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
    out.extend_from_slice(super::CRLF);
}

/// Appends a key, with every byte other than unreserved ones (RFC 3986) as `%` and two digits.
fn percent_encode(out: &mut Vec<u8>, key: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            _ => out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
        }
    }
}
