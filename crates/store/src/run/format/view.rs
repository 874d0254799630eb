//! A block as it is read: its entries one by one, and the search for a key. Nothing here trusts the
//! bytes; what cannot be is answered with none, and reported by whoever knows where it lies.

use std::cmp::Ordering;

use crate::types::{Expiry, PAGE_BYTES, RecordPlace, SegmentNumber, Value};

use super::block::{
    APART, BlockKind, Body, CHILD, CRC_BYTES, Child, EXPIRES, GONE, HEAD_BYTES, INLINE,
    RESTART_BYTES, RESTART_ENTRIES, WHAT,
};
use crate::bytes::{Reader, common_prefix, head_of, u16_at, u32_at, u64_at};

/// What is sought: the first entry at or behind a key and sequence.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Target<'a> {
    pub(in crate::run) key: &'a [u8],
    /// The greatest sequence of this key that will do, less the least of the run; none: no version
    /// of this key will.
    pub(in crate::run) delta: Option<u64>,
}

/// An entry, with its bytes named by where they lie. No block has so many bytes that 32 bits would
/// not do.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Item {
    /// How many bytes of the key are those of the key before.
    shared: u32,
    suffix: u32,
    suffix_bytes: u32,
    /// How many bytes of a value lie behind the key.
    value_bytes: u32,
    pub(in crate::run) delta: u64,
    pub(in crate::run) expiry: Expiry,
    /// Where that lies which leads elsewhere, if anything does.
    leads: u32,
    what: u8,
}

impl Item {
    /// The entry that begins at `at`, of entries that end with `entries`.
    #[inline]
    pub(in crate::run) fn read(entries: &[u8], at: usize) -> Option<Item> {
        // Most are so simple that this takes a third of the time.
        match Item::read_simple(entries, at) {
            Some(item) => Some(item),
            None => Item::read_any(entries, at),
        }
    }

    /// One whose value lies beside it and does not end, whose lengths take a byte, but the value's
    /// up to two, and whose sequence takes up to five; none if it is another, or nonsense.
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

    /// How many bytes of the key are those of the key before.
    #[inline]
    pub(in crate::run) fn shared(&self) -> usize {
        self.shared as usize
    }

    /// Where the next entry begins.
    #[inline]
    pub(in crate::run) fn next(&self) -> usize {
        self.value_at() + self.value_bytes as usize
    }

    #[inline]
    fn value_at(&self) -> usize {
        self.suffix as usize + self.suffix_bytes as usize
    }

    /// What of the key is not shared with the key before, and perhaps more behind it, in one piece;
    /// none if that is longer than such a piece, or the block ends too soon.
    #[inline]
    pub(in crate::run) fn short_suffix_of<'a, const BYTES: usize>(
        &self,
        bytes: &'a [u8],
    ) -> Option<(&'a [u8; BYTES], usize)> {
        let len = self.suffix_bytes as usize;
        let piece = bytes.get(self.suffix as usize..)?.first_chunk()?;
        (len <= BYTES).then_some((piece, len))
    }

    /// What of the key is not shared with the key before.
    #[inline]
    pub(in crate::run) fn suffix_of<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.suffix as usize..self.value_at())
    }

    /// Whether it has a value, or says that its key is gone.
    #[inline]
    pub(in crate::run) fn is_value(&self) -> bool {
        self.what != CHILD
    }

    /// Whether its value lies beside the key.
    #[inline]
    pub(in crate::run) fn is_inline(&self) -> bool {
        self.what == INLINE
    }

    /// The value that lies beside the key; none if there is none.
    #[inline]
    pub(in crate::run) fn inline_of<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.what != INLINE {
            return None;
        }
        bytes.get(self.value_at()..self.next())
    }

    /// What lies under the key.
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

/// Where a search ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Spot {
    /// The number of the entry; that of all entries if everything lies before the target.
    pub(in crate::run) number: u32,
    /// The entry itself, and whether it has the target's key.
    pub(in crate::run) found: Option<(Item, bool)>,
}

/// A block whose head makes sense.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Block<'a> {
    /// From the beginning to the end of the last entry.
    pub(in crate::run) bytes: &'a [u8],
    heads: &'a [u8],
    starts: &'a [u8],
    /// How many entries there are: at least one.
    pub(in crate::run) entries: u32,
    common: usize,
}

/// What a block's head says of its size and nature.
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
    /// A block of entries, if the bytes can be one.
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

    /// Where the entry with number `restart` times [`RESTART_ENTRIES`] begins.
    #[inline]
    pub(in crate::run) fn start(&self, restart: u32) -> Option<usize> {
        let start = u32_at(self.starts, restart as usize * 4)? as usize;
        (start >= HEAD_BYTES).then_some(start)
    }

    fn restarts(&self) -> u32 {
        self.entries.div_ceil(RESTART_ENTRIES)
    }

    /// The entry there, which has its whole key.
    #[inline]
    pub(in crate::run) fn restart_item(&self, restart: u32) -> Option<Item> {
        let item = Item::read(self.bytes, self.start(restart)?)?;
        (item.shared() == 0).then_some(item)
    }

    /// The first entry that is not before the target.
    pub(in crate::run) fn seek(&self, target: &Target<'_>) -> Option<Spot> {
        let first = self.restart_item(0)?;
        let prefix = first.suffix_of(self.bytes)?.get(..self.common)?;
        let rest = match target.key.get(..self.common) {
            Some(beginning) => match beginning.cmp(prefix) {
                Ordering::Less => return Some(self.spot(0, first, false)),
                Ordering::Greater => return Some(self.end()),
                Ordering::Equal => target.key.get(self.common..)?,
            },
            // The target is shorter than what all keys begin with: before all or behind all.
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

    /// The last restart that is before the target, or the first of all. Keys are compared by their
    /// eight bytes behind what all begin with; only those that are equal there are looked at.
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

    /// Goes on from a restart to the first entry that is not before the target. Keys are not put
    /// together for it: what an entry shares with the one before says how it compares, unless it
    /// is just as much as that one had in common with the target.
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

/// Whether an entry is before the target in the order of keys and descending sequences.
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

    use super::*;
    use crate::bytes::push_varint;

    /// Whatever the quick way reads, the other one reads alike; and it reads what is simple.
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
