//! A block as it is read: its entries one by one, and the search for a key. Nothing here trusts the
//! bytes. Impossible ones yield `None`, and the caller, which knows the location, reports the
//! damage.

use std::cmp::Ordering;

use crate::types::{Expiry, RecordPlace, SegmentNumber, Value};

use super::block::{
    APART, BlockKind, Body, CHILD, CRC_BYTES, Child, EXPIRES, GONE, HEAD_BYTES, INLINE, PAGE_BYTES,
    RESTART_BYTES, RESTART_ENTRIES, WHAT,
};
use super::bytes::{Reader, common_prefix, head_of, u16_at, u32_at, u64_at};

/// Target of a search: the first entry at or behind a key and sequence number.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Target<'a> {
    pub(in crate::run) key: &'a [u8],
    /// Greatest acceptable sequence number of this key, minus the base of the run; `None` if no
    /// version of this key is acceptable.
    pub(in crate::run) delta: Option<u64>,
}

/// An entry, with its bytes as ranges. All blocks are short enough for 32 bits.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Item {
    /// Bytes that the key shares with the key before.
    shared: u32,
    suffix: u32,
    suffix_bytes: u32,
    /// Bytes of the value behind the key.
    value_bytes: u32,
    pub(in crate::run) delta: u64,
    pub(in crate::run) expiry: Expiry,
    /// Index of the place of a value or block elsewhere, if the entry has one.
    leads: u32,
    what: u8,
}

impl Item {
    /// Decodes the entry that begins at `at`; the entries end where `entries` ends.
    #[inline]
    pub(in crate::run) fn read(entries: &[u8], at: usize) -> Option<Item> {
        // Most entries are simple, and this takes a third of the time.
        match Item::read_simple(entries, at) {
            Some(item) => Some(item),
            None => Item::read_any(entries, at),
        }
    }

    /// Decodes a simple entry. Its value lies beside it and does not expire, its lengths take one
    /// byte, but the value's up to two, and its sequence number takes up to five. Returns `None`
    /// for any other entry, or for nonsense.
    #[inline]
    fn read_simple(entries: &[u8], at: usize) -> Option<Item> {
        let word = u64_at(entries, at)?;
        let (shared, suffix_bytes) = (word >> 8 & 0xFF, word >> 16 & 0xFF);
        let rest = word >> 24;
        let ends = !rest & 0x80_8080_8080;
        if word as u8 != INLINE || (shared | suffix_bytes) > 0x7F || ends == 0 {
            return None;
        }
        let delta_bits = ends.trailing_zeros() + 1;
        let bits = rest & (u64::MAX >> (64 - delta_bits));
        let low = bits & 0x7F | bits >> 1 & 0x3F80 | bits >> 2 & 0x1F_C000;
        let delta = low | bits >> 3 & 0xFE0_0000 | bits >> 4 & 0x7_F000_0000;
        let lengths_end = at + 3 + delta_bits as usize / 8;
        let length = u16_at(entries, lengths_end)?;
        let (value_bytes, suffix) = match length & 0x8080 {
            0 | 0x8000 => (length & 0x7F, lengths_end + 1),
            0x80 => (length & 0x7F | length >> 1 & 0x3F80, lengths_end + 2),
            _ => return None,
        };
        let (shared, suffix_bytes) = (shared as u32, suffix_bytes as u32);
        let (suffix, value_bytes) = (suffix as u32, u32::from(value_bytes));
        let (expiry, leads, what) = (Expiry::NEVER, 0, INLINE);
        let item = Item { shared, suffix, suffix_bytes, value_bytes, delta, expiry, leads, what };
        (item.next() <= entries.len()).then_some(item)
    }

    #[inline(never)]
    fn read_any(entries: &[u8], at: usize) -> Option<Item> {
        let mut reader = Reader::new(entries, at);
        let flags = reader.byte()?;
        let shared = u32::try_from(reader.varint()?).ok()?;
        let suffix_bytes = reader.length()?;
        let delta = reader.varint()?;
        let expiry = if flags & EXPIRES == 0 { 0 } else { reader.u32()? };
        let (mut leads, mut value_bytes) = (0, 0);
        match flags & !EXPIRES {
            INLINE => value_bytes = reader.length()?,
            APART => {
                leads = u32::try_from(reader.at()).ok()?;
                read_place(&mut reader)?;
            }
            GONE => {}
            CHILD => {
                leads = u32::try_from(reader.at()).ok()?;
                read_child(&mut reader)?;
            }
            _ => return None,
        }
        let suffix = u32::try_from(reader.skip(suffix_bytes)?).ok()?;
        reader.skip(value_bytes)?;
        let (suffix_bytes, value_bytes) = (suffix_bytes as u32, value_bytes as u32);
        let (expiry, what) = (Expiry(expiry), flags & WHAT);
        Some(Item { shared, suffix, suffix_bytes, value_bytes, delta, expiry, leads, what })
    }

    /// Returns the number of bytes that the key shares with the key before.
    #[inline]
    pub(in crate::run) fn shared(&self) -> usize {
        self.shared as usize
    }

    /// Returns the index at which the next entry begins.
    #[inline]
    pub(in crate::run) fn next(&self) -> usize {
        self.value_at() + self.value_bytes as usize
    }

    #[inline]
    fn value_at(&self) -> usize {
        self.suffix as usize + self.suffix_bytes as usize
    }

    /// Returns the part of the key that is not shared, and perhaps bytes behind it, as an array
    /// with a length. Returns `None` if the part is longer than the array, or if the block ends too
    /// soon.
    #[inline]
    pub(in crate::run) fn short_suffix_of<'a, const BYTES: usize>(
        &self,
        bytes: &'a [u8],
    ) -> Option<(&'a [u8; BYTES], usize)> {
        let len = self.suffix_bytes as usize;
        let piece = bytes.get(self.suffix as usize..)?.first_chunk()?;
        (len <= BYTES).then_some((piece, len))
    }

    /// Returns the part of the key that is not shared with the key before.
    #[inline]
    pub(in crate::run) fn suffix_of<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.suffix as usize..self.value_at())
    }

    /// Returns true if the entry has a value or is a tombstone.
    #[inline]
    pub(in crate::run) fn is_value(&self) -> bool {
        self.what != CHILD
    }

    /// Returns true if the value lies beside the key.
    #[inline]
    pub(in crate::run) fn is_inline(&self) -> bool {
        self.what == INLINE
    }

    /// Returns the value that lies beside the key, if there is one.
    #[inline]
    pub(in crate::run) fn inline_of<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.what != INLINE {
            return None;
        }
        bytes.get(self.value_at()..self.next())
    }

    /// Returns the contents under the key.
    #[inline]
    pub(in crate::run) fn body_of<'a>(&self, bytes: &'a [u8]) -> Option<Body<'a>> {
        if self.what == INLINE {
            return self.inline_of(bytes).map(|value| Body::Value(Value::Inline(value)));
        }
        let mut reader = Reader::new(bytes, self.leads as usize);
        Some(match self.what {
            APART => Body::Value(Value::Apart(read_place(&mut reader)?)),
            GONE => Body::Value(Value::Gone),
            _ => Body::Child(read_child(&mut reader)?),
        })
    }
}

fn read_place(reader: &mut Reader<'_>) -> Option<RecordPlace> {
    let segment = SegmentNumber(reader.varint()?);
    let offset = reader.varint()?;
    let bytes = u32::try_from(reader.varint()?).ok()?;
    Some(RecordPlace { segment, offset, bytes })
}

fn read_child(reader: &mut Reader<'_>) -> Option<Child> {
    let page = reader.varint()?;
    let pages = u32::try_from(reader.varint()?).ok()?;
    Some(Child { page, pages })
}

/// Result of a search.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Spot {
    /// Number of the entry, or of all entries if they all come before the target.
    pub(in crate::run) number: u32,
    /// The entry itself, and true if it has the target's key.
    pub(in crate::run) found: Option<(Item, bool)>,
}

/// A block whose header is plausible.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Block<'a> {
    /// Bytes from the beginning to the end of the last entry.
    pub(in crate::run) bytes: &'a [u8],
    heads: &'a [u8],
    starts: &'a [u8],
    /// Number of entries, at least one.
    pub(in crate::run) entries: u32,
    common: usize,
}

/// Kind and size of a block, from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) struct Nature {
    pub(in crate::run) kind: u8,
    pub(in crate::run) level: u8,
    pub(in crate::run) pages: u32,
}

impl Nature {
    pub(in crate::run) fn of(bytes: &[u8]) -> Option<Nature> {
        let (kind, level) = (*bytes.first()?, *bytes.get(1)?);
        Some(Nature { kind, level, pages: u32_at(bytes, 12)? })
    }

    pub(in crate::run) fn is(self, kind: BlockKind, level: u8) -> bool {
        self.kind == kind as u8 && self.level == level
    }
}

impl<'a> Block<'a> {
    /// Returns a block of entries, if the bytes can be one.
    #[inline]
    pub(in crate::run) fn of(bytes: &'a [u8]) -> Option<Block<'a>> {
        let used = u32_at(bytes, 4)? as usize;
        let entries = u32_at(bytes, 8)?;
        let common = usize::from(u16_at(bytes, 2)?);
        let restarts = entries.div_ceil(RESTART_ENTRIES) as usize;
        let room = bytes.len().checked_sub(CRC_BYTES)?;
        if entries == 0 || used > room || !bytes.len().is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let end = used.checked_sub(restarts.checked_mul(RESTART_BYTES)?)?;
        let heads = bytes.get(end..end + restarts * 8)?;
        let starts = bytes.get(end + restarts * 8..used)?;
        let bytes = bytes.get(..end).filter(|entries| entries.len() > HEAD_BYTES)?;
        Some(Block { bytes, heads, starts, entries, common })
    }

    /// Returns the index at which the entry with the number `restart * RESTART_ENTRIES` begins.
    #[inline]
    pub(in crate::run) fn start(&self, restart: u32) -> Option<usize> {
        let start = u32_at(self.starts, restart as usize * 4)? as usize;
        (start >= HEAD_BYTES).then_some(start)
    }

    fn restarts(&self) -> u32 {
        self.entries.div_ceil(RESTART_ENTRIES)
    }

    /// Returns the entry of a restart, which has its whole key.
    #[inline]
    pub(in crate::run) fn restart_item(&self, restart: u32) -> Option<Item> {
        let item = Item::read(self.bytes, self.start(restart)?)?;
        (item.shared() == 0).then_some(item)
    }

    /// Returns the first entry that is not before the target.
    pub(in crate::run) fn seek(&self, target: &Target<'_>) -> Option<Spot> {
        let first = self.restart_item(0)?;
        let prefix = first.suffix_of(self.bytes)?.get(..self.common)?;
        let rest = match target.key.get(..self.common) {
            Some(beginning) => match beginning.cmp(prefix) {
                Ordering::Less => return Some(self.spot(0, first, false)),
                Ordering::Greater => return Some(self.end()),
                Ordering::Equal => target.key.get(self.common..)?,
            },
            // A target shorter than the common prefix of all keys is before or behind all of them.
            None if target.key <= prefix => return Some(self.spot(0, first, false)),
            None => return Some(self.end()),
        };
        let restart = self.last_restart_before(target, head_of(rest))?;
        self.scan(target, restart)
    }

    fn spot(&self, number: u32, item: Item, has_key: bool) -> Spot {
        Spot { number, found: Some((item, has_key)) }
    }

    fn end(&self) -> Spot {
        Spot { number: self.entries, found: None }
    }

    /// Returns the last restart before the target, or the first of all. Keys are compared by eight
    /// bytes behind their common prefix, and decoded only if these are equal.
    fn last_restart_before(&self, target: &Target<'_>, head: u64) -> Option<u32> {
        let (mut from, mut to) = (0, self.restarts());
        while from < to {
            let middle = from + (to - from) / 2;
            let here = u64_at(self.heads, middle as usize * 8)?;
            let before = match here.cmp(&head) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => {
                    let item = self.restart_item(middle)?;
                    is_before(item.suffix_of(self.bytes)?, item.delta, target)
                }
            };
            if before {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Some(from.saturating_sub(1))
    }

    /// Returns the first entry from a restart on that is not before the target. Keys need not be
    /// assembled. The bytes that an entry shares with the one before tell how it compares, unless
    /// these are just as many as that one had in common with the target.
    fn scan(&self, target: &Target<'_>, restart: u32) -> Option<Spot> {
        let mut at = self.start(restart)?;
        let mut number = restart.checked_mul(RESTART_ENTRIES)?;
        let mut common = 0;
        while number < self.entries {
            let item = Item::read(self.bytes, at)?;
            let suffix = item.suffix_of(self.bytes)?;
            let shared = item.shared();
            if number.is_multiple_of(RESTART_ENTRIES) {
                common = 0;
            }
            if shared < common {
                return Some(self.spot(number, item, false));
            }
            if shared == common {
                let rest = target.key.get(common..)?;
                let more = common_prefix(suffix, rest);
                match suffix.get(more).cmp(&rest.get(more)) {
                    Ordering::Less => {}
                    Ordering::Greater => return Some(self.spot(number, item, false)),
                    Ordering::Equal if target.delta.is_some_and(|most| item.delta <= most) => {
                        return Some(self.spot(number, item, true));
                    }
                    Ordering::Equal => {}
                }
                common += more;
            }
            at = item.next();
            number += 1;
        }
        Some(self.end())
    }
}

/// Returns true if an entry is before the target in the order of keys and descending sequence
/// numbers.
fn is_before(key: &[u8], delta: u64, target: &Target<'_>) -> bool {
    match key.cmp(target.key) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => target.delta.is_none_or(|most| delta > most),
    }
}

#[cfg(test)]
mod tests {
    use entresol_base::rng::Rng;

    use super::super::bytes::push_varint;
    use super::*;

    /// The fast decoder agrees with the general one wherever it decodes, and decodes simple
    /// entries.
    #[test]
    fn simple_entries_are_read_as_any_are() {
        let mut rng = Rng::new(3);
        let mut simple = 0;
        for _ in 0..50_000 {
            let mut entry = vec![
                [INLINE, INLINE, INLINE, APART, GONE, INLINE | EXPIRES][rng.below(6) as usize],
            ];
            let suffix = [3, 20, 127, 128][rng.below(4) as usize];
            let value = [0, 5, 127, 128, 300, 16_383, 16_384][rng.below(7) as usize];
            push_varint(&mut entry, rng.below(200));
            push_varint(&mut entry, suffix);
            push_varint(&mut entry, rng.next_u64() >> rng.below(64));
            push_varint(&mut entry, value);
            entry.resize(entry.len() + (suffix + value) as usize, 7);
            match rng.below(4) {
                0 => entry.truncate(rng.below(entry.len() as u64 + 1) as usize),
                1 => entry.extend_from_slice(&[9; 40]),
                _ => {}
            }
            if let Some(item) = Item::read_simple(&entry, 0) {
                let any = Item::read_any(&entry, 0).expect("the same");
                assert_eq!(format!("{item:?}"), format!("{any:?}"));
                simple += 1;
            }
        }
        assert!(simple > 3_000, "only {simple}");
    }
}
