//! Records: the form of a write on a medium.
//!
//! ```text
//!  0  u32  CRC-32C over the record's address and all that follows
//!  4  u8   kind: 1 put, 2 tombstone, 3 range delete, 4 seal
//!  5  u8   1: the next record belongs to the same group
//!  6  u16  Kvs
//!  8  u32  bytes of the key
//! 12  u32  bytes of the value
//! 16  u64  sequence number
//! 24       the key, then the value
//! ```
//!
//! All numbers are little-endian. A value that expires has kind 5 instead of 1, and its expiry, a
//! `u32`, precedes its first byte. The address is the store's identity, the segment's number and
//! the record's offset, eight bytes each, so a record counts only where it was written.

use entresol_base::checksum;
use entresol_base::mutation_site;

use crate::types::{Expiry, KvsId, SegmentNumber, Sequence};

/// Bytes before a key.
pub(crate) const HEADER_BYTES: usize = 24;
/// Most bytes of a record beside its key and value.
pub(crate) const OVERHEAD: usize = HEADER_BYTES + 4;

/// Meaning of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The key has a value.
    Put,
    /// The key has a value until it expires.
    PutUntil,
    /// A tombstone: the key is deleted.
    Gone,
    /// All keys with a prefix are deleted.
    RangeDelete,
    /// The segment has no more records.
    Seal,
}

impl Kind {
    const fn byte(self) -> u8 {
        match self {
            Kind::Put => 1,
            Kind::Gone => 2,
            Kind::RangeDelete => 3,
            Kind::Seal => 4,
            Kind::PutUntil => 5,
        }
    }

    const fn of(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Put,
            2 => Kind::Gone,
            3 => Kind::RangeDelete,
            4 => Kind::Seal,
            5 => Kind::PutUntil,
            _ => return None,
        })
    }
}

/// Location of a record, which its checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// Checksum of the address with offset 0.
    segment: u32,
    offset: u64,
}

/// Changes of an address's checksum by each value of the offset's four lowest bytes.
static BY_OFFSET: [[u32; 256]; 4] = by_offset();

impl Address {
    /// Returns the address of a segment's beginning.
    pub(crate) fn of_segment(store: u64, segment: SegmentNumber) -> Address {
        let mut place = [0; 24];
        place[..8].copy_from_slice(&store.to_le_bytes());
        place[8..16].copy_from_slice(&segment.0.to_le_bytes());
        Address { segment: checksum::crc32c(&place), offset: 0 }
    }

    /// Returns the address of an offset in the same segment.
    #[inline]
    pub(crate) fn at(self, offset: u64) -> Address {
        Address { offset, ..self }
    }

    /// Returns the checksum of the address, which the checksum of the record continues. A CRC is
    /// linear, so each byte of the offset changes that of the segment in its own way. Computing it
    /// anew takes ten times the instructions.
    #[inline]
    fn sum(self) -> u32 {
        let Address { segment, offset } = self;
        let Ok(low) = u32::try_from(offset) else {
            let mut place = [0; 24];
            let zero = checksum::crc32c(&place);
            place[16..].copy_from_slice(&offset.to_le_bytes());
            return segment ^ zero ^ checksum::crc32c(&place);
        };
        let [first, second, third, fourth] = low.to_le_bytes().map(usize::from);
        let [of_first, of_second, of_third, of_fourth] = &BY_OFFSET;
        segment ^ of_first[first] ^ of_second[second] ^ of_third[third] ^ of_fourth[fourth]
    }
}

const fn by_offset() -> [[u32; 256]; 4] {
    /// Polynomial of CRC-32C, with its bits in reverse.
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 4 {
        let mut value = 0;
        while value < 256 {
            let (mut crc, mut bit) = (value as u32, 8 * (8 - byte));
            while bit > 0 {
                crc = crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
                bit -= 1;
            }
            tables[byte][value] = crc;
            value += 1;
        }
        byte += 1;
    }
    tables
}

/// A record that has no location yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) kind: Kind,
    pub(crate) kvs: KvsId,
    pub(crate) expiry: Expiry,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Draft<'a> {
    /// Creates a draft that gives a key a value.
    pub(crate) fn put(kvs: KvsId, key: &'a [u8], value: &'a [u8], expiry: Expiry) -> Draft<'a> {
        let kind = if expiry == Expiry::NEVER { Kind::Put } else { Kind::PutUntil };
        Draft { kind, kvs, expiry, key, value }
    }

    /// Creates a draft that deletes a key, or all keys with a prefix.
    pub(crate) fn gone(kvs: KvsId, kind: Kind, key: &'a [u8]) -> Draft<'a> {
        Draft { kind, kvs, expiry: Expiry::NEVER, key, value: &[] }
    }

    /// Creates the draft that ends a segment.
    pub(crate) fn seal() -> Draft<'static> {
        Draft::gone(KvsId(0), Kind::Seal, &[])
    }

    /// Returns the length of the record in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let expiry = if self.kind == Kind::PutUntil { 4 } else { 0 };
        (HEADER_BYTES + self.key.len() + expiry + self.value.len()) as u64
    }

    /// Appends the record, as it is encoded for `address`, to `out`.
    pub(crate) fn encode(
        &self,
        address: Address,
        sequence: Sequence,
        more_follow: bool,
        out: &mut Vec<u8>,
    ) {
        let begin = out.len();
        self.put_head(sequence, more_follow, out);
        out.extend_from_slice(self.value);
        let crc = checksum::crc32c_append(address.sum(), covered(&out[begin..]));
        out[begin..begin + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Appends the part of the encoded record before the value to `out`, for a value that is too
    /// large to be copied.
    pub(crate) fn encode_head(
        &self,
        address: Address,
        sequence: Sequence,
        more_follow: bool,
        out: &mut Vec<u8>,
    ) {
        let begin = out.len();
        self.put_head(sequence, more_follow, out);
        let head = &mut out[begin..];
        let end = covered_end(head.len() + self.value.len());
        let crc = checksum::crc32c_append(address.sum(), &head[4..end.min(head.len())]);
        let crc = match end > head.len() {
            true => checksum::crc32c_append(crc, self.value),
            false => crc,
        };
        head[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Appends header, key and time of expiry, without the checksum.
    fn put_head(&self, sequence: Sequence, more_follow: bool, out: &mut Vec<u8>) {
        let expiry = self.expiry.0.to_le_bytes();
        let expiry: &[u8] = if self.kind == Kind::PutUntil { &expiry } else { &[] };
        let value_bytes = (expiry.len() + self.value.len()) as u32;
        let mut header = [0; HEADER_BYTES];
        header[4] = self.kind.byte();
        header[5] = more_follow.into();
        header[6..8].copy_from_slice(&(self.kvs.0 as u16).to_le_bytes());
        header[8..12].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        header[12..16].copy_from_slice(&value_bytes.to_le_bytes());
        header[16..24].copy_from_slice(&sequence.0.to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(self.key);
        out.extend_from_slice(expiry);
    }
}

/// Returns the bytes of a record that its checksum covers.
fn covered(record: &[u8]) -> &[u8] {
    &record[4..covered_end(record.len())]
}

/// Returns the end of the bytes that the checksum of a record of `len` bytes covers.
fn covered_end(len: usize) -> usize {
    if mutation_site!("a record's checksum covers its key and its value") {
        return HEADER_BYTES;
    }
    len
}

/// Header of a record whose checksum is not verified yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) more_follow: bool,
    pub(crate) kvs: KvsId,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) sequence: Sequence,
}

impl Header {
    /// Parses a header, and returns `None` if the bytes do not form one.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|more| bytes[at + more]));
        let half = u16::from_le_bytes([bytes[6], bytes[7]]);
        let sequence = u64::from(word(16)) | u64::from(word(20)) << 32;
        Some(Header {
            kind: Kind::of(bytes[4])?,
            more_follow: match bytes[5] {
                0 => false,
                1 => true,
                _ => return None,
            },
            kvs: KvsId(half.into()),
            key_bytes: word(8),
            value_bytes: word(12),
            sequence: Sequence(sequence),
        })
    }

    /// Returns the length of the whole record in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }
}

/// A record that was read and verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) header: Header,
    pub(crate) key: &'a [u8],
    pub(crate) expiry: Expiry,
    pub(crate) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the record that `bytes` hold, if it was written to this address.
    pub(crate) fn decode(address: Address, bytes: &'a [u8]) -> Option<Record<'a>> {
        let (first, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let header = Header::decode(first)?;
        if header.bytes() != bytes.len() as u64 {
            return None;
        }
        let crc = u32::from_le_bytes([first[0], first[1], first[2], first[3]]);
        if !checksum::matches_behind(address.sum(), crc, covered(bytes)) {
            return None;
        }
        let (key, value) = rest.split_at_checked(header.key_bytes as usize)?;
        let (expiry, value) = match header.kind {
            Kind::PutUntil => {
                let (expiry, value) = value.split_first_chunk::<4>()?;
                (Expiry(u32::from_le_bytes(*expiry)), value)
            }
            _ => (Expiry::NEVER, value),
        };
        Some(Record { header, key, expiry, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(store: u64, segment: u64, offset: u64) -> Address {
        Address::of_segment(store, SegmentNumber(segment)).at(offset)
    }

    fn usual() -> Address {
        address(7, 3, 4096)
    }

    fn encoded(draft: Draft<'_>) -> Vec<u8> {
        let (mut bytes, mut in_parts) = (Vec::new(), Vec::new());
        draft.encode(usual(), Sequence(99), false, &mut bytes);
        draft.encode_head(usual(), Sequence(99), false, &mut in_parts);
        in_parts.extend_from_slice(draft.value);
        assert_eq!(in_parts, bytes);
        assert_eq!(bytes.len() as u64, draft.bytes());
        bytes
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let put = encoded(Draft::put(KvsId(5), b"key", b"value", Expiry::NEVER));
        assert_eq!(put.len(), 24 + 3 + 5, "a plain put costs 24 bytes");
        let read = Record::decode(usual(), &put).expect("whole");
        assert_eq!((read.key, read.value, read.expiry), (&b"key"[..], &b"value"[..], Expiry(0)));
        assert_eq!((read.header.kind, read.header.kvs), (Kind::Put, KvsId(5)));
        assert_eq!(read.header.sequence, Sequence(99));
        let until = encoded(Draft::put(KvsId(5), b"key", b"", Expiry(1000)));
        let read = Record::decode(usual(), &until).expect("whole");
        assert_eq!((read.value, read.expiry), (&b""[..], Expiry(1000)));
        let gone = encoded(Draft::gone(KvsId(5), Kind::Gone, b"key"));
        assert_eq!(Record::decode(usual(), &gone).expect("whole").header.kind, Kind::Gone);
    }

    #[test]
    fn the_checksum_of_an_address_is_that_of_its_bytes() {
        let mut rng = entresol_base::rng::Rng::new(1);
        let below = [1, 300, 1 << 20, 1 << 32, u64::MAX];
        for offset in below.map(|most| [most - 1, rng.below(most), most]).concat() {
            let (store, segment) = (rng.below(u64::MAX), rng.below(1 << 40));
            let bytes = [store, segment, offset].map(u64::to_le_bytes).concat();
            assert_eq!(address(store, segment, offset).sum(), checksum::crc32c(&bytes));
        }
    }

    #[test]
    fn a_record_is_none_elsewhere_or_with_a_bit_turned_over() {
        let put = encoded(Draft::put(KvsId(5), b"key", b"value", Expiry(9)));
        for elsewhere in [address(8, 3, 4096), address(7, 4, 4096), address(7, 3, 4097)] {
            assert_eq!(Record::decode(elsewhere, &put), None);
        }
        for bit in 0..put.len() * 8 {
            let mut flipped = put.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(usual(), &flipped), None, "bit {bit}");
        }
        for len in 0..put.len() {
            assert_eq!(Record::decode(usual(), &put[..len]), None);
        }
    }
}
