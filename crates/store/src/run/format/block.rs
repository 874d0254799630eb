//! Blocks: the unit in which a run is written, verified and cached. `docs/format.md` draws the
//! layout of entries in a block. This file writes blocks.

use entresol_base::checksum;

use crate::types::{Entry, Expiry, RunNumber, Value};

use super::bytes::{common_prefix, head_of, push_varint, u32_at};

/// Bytes of a page. Every block is whole pages.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of a block's header.
pub(in crate::run) const HEAD_BYTES: usize = 16;
/// Bytes of the checksum at the end of a block.
pub(in crate::run) const CRC_BYTES: usize = 4;
/// One entry in so many is a restart: it has its whole key, so that a search can begin there. With
/// values of 100 bytes, every entry that a search passes is a cache miss or two. Twice as many
/// restarts would cost three more bytes an entry.
pub(in crate::run) const RESTART_ENTRIES: u32 = 4;
/// Bytes that are kept of each restart behind the entries: eight bytes of its key, and its offset.
pub(in crate::run) const RESTART_BYTES: usize = 12;
/// Fewest entries of an index block, however long its keys are, unless it is the last of its level.
/// With fewer, a level might be no smaller than the one below.
const CHILDREN_MIN: u32 = 4;
/// A block stops growing once it has so many times the pages of the wanted size.
const GROWTH_MAX: usize = 8;

/// Kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::run) enum BlockKind {
    /// Entries of the run.
    Data = 1,
    /// Places of the blocks of the level below, and the greatest key that each may hold.
    Index = 2,
    /// Bits of the keys' filter.
    Filter = 3,
    /// Places of the filters of groups of keys.
    Groups = 4,
    /// Range deletes.
    Gone = 5,
    /// Bytes of each segment that the entries lead to.
    Live = 6,
}

/// Location of a block: its run and first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) struct Address {
    pub(in crate::run) run: RunNumber,
    pub(in crate::run) page: u64,
}

impl Address {
    pub(in crate::run) fn offset(self) -> u64 {
        self.page.saturating_mul(PAGE_BYTES as u64)
    }

    /// Returns the checksum of the address, which goes into that of the bytes. A block that was
    /// written elsewhere thus fails verification.
    fn crc(self) -> u32 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.run.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset().to_le_bytes());
        checksum::crc32c(&bytes)
    }
}

/// Writes the checksum into the last bytes of whole pages.
pub(in crate::run) fn seal(address: Address, pages: &mut [u8]) {
    let body = pages.len().saturating_sub(CRC_BYTES);
    let (body, end) = pages.split_at_mut(body);
    end.copy_from_slice(&(checksum::crc32c(body) ^ address.crc()).to_le_bytes());
}

/// Returns true if whole pages are what was written at the address. Each caller counts as a check
/// of its own.
#[track_caller]
pub(in crate::run) fn is_sealed(address: Address, pages: &[u8]) -> bool {
    let Some(end) = pages.len().checked_sub(CRC_BYTES) else { return false };
    let (Some(crc), Some(body)) = (u32_at(pages, end), pages.get(..end)) else { return false };
    // A closure would be the caller that is recorded.
    checksum::matches(crc ^ address.crc(), body)
}

/// Returns the number of pages that so many bytes take.
pub(in crate::run) fn pages_of(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES)
}

/// Location of another block, as an index block stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) struct Child {
    pub(in crate::run) page: u64,
    pub(in crate::run) pages: u32,
}

/// Contents under a key in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum Body<'a> {
    Value(Value<'a>),
    Child(Child),
}

/// A key with its contents, as it is written.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Record<'a> {
    pub(in crate::run) key: &'a [u8],
    /// Sequence number minus the base of the run.
    pub(in crate::run) delta: u64,
    pub(in crate::run) expiry: Expiry,
    pub(in crate::run) body: Body<'a>,
}

impl<'a> Record<'a> {
    pub(in crate::run) fn of(entry: &Entry<'a>, delta: u64) -> Record<'a> {
        let body = Body::Value(entry.value);
        Record { key: entry.key, delta, expiry: entry.expiry, body }
    }
}

/// Values of the two low bits of an entry's first byte: the kind of its contents.
pub(in crate::run) const INLINE: u8 = 0;
pub(in crate::run) const APART: u8 = 1;
pub(in crate::run) const GONE: u8 = 2;
pub(in crate::run) const CHILD: u8 = 3;
pub(in crate::run) const WHAT: u8 = 3;
/// Bit that is set for an entry that expires.
pub(in crate::run) const EXPIRES: u8 = 4;

/// A block that is being filled.
#[derive(Debug)]
pub(in crate::run) struct BlockBuilder {
    kind: BlockKind,
    level: u8,
    /// Bytes of a block if its entries permit.
    wanted: usize,
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: u32,
    /// Length of the common prefix of all keys.
    common: usize,
    last: Vec<u8>,
}

impl BlockBuilder {
    pub(in crate::run) fn new(kind: BlockKind, level: u8, wanted: usize) -> BlockBuilder {
        let bytes = vec![0; HEAD_BYTES];
        let (restarts, last) = (Vec::new(), Vec::new());
        BlockBuilder { kind, level, wanted, bytes, restarts, entries: 0, common: 0, last }
    }

    pub(in crate::run) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the key that was added last, to this block or to the one before.
    pub(in crate::run) fn last_key(&self) -> &[u8] {
        &self.last
    }

    /// Adds an entry whose key shares `shared` bytes with the last key. Returns false and leaves
    /// the block as it was if the block should be finished first.
    pub(in crate::run) fn add(&mut self, record: &Record<'_>, shared: usize) -> bool {
        let before = self.bytes.len();
        let restarts = self.entries.is_multiple_of(RESTART_ENTRIES);
        self.encode(record, if restarts { 0 } else { shared });
        let used_before = before + self.restarts.len() * RESTART_BYTES + CRC_BYTES;
        let more = self.bytes.len() - before + usize::from(restarts) * RESTART_BYTES;
        let least = if self.kind == BlockKind::Index { CHILDREN_MIN } else { 1 };
        if self.entries >= least && !self.has_room(used_before, more) {
            self.bytes.truncate(before);
            return false;
        }
        if restarts {
            self.restarts.push(before as u32);
        }
        self.common = if self.entries == 0 { record.key.len() } else { self.common.min(shared) };
        self.entries += 1;
        self.last.truncate(shared);
        self.last.extend_from_slice(record.key.get(shared..).unwrap_or_default());
        true
    }

    /// Returns true if a block of `used` bytes may get `more`. It may up to the wanted size, and
    /// beyond that while more than an eighth of its pages would stay empty.
    fn has_room(&self, used: usize, more: usize) -> bool {
        if used + more <= self.wanted {
            return true;
        }
        let pages = pages_of(used).max(self.wanted / PAGE_BYTES) * PAGE_BYTES;
        used + more <= pages || (used < pages / 8 * 7 && pages < self.wanted * GROWTH_MAX)
    }

    fn encode(&mut self, record: &Record<'_>, shared: usize) {
        let out = &mut self.bytes;
        let suffix = record.key.get(shared..).unwrap_or_default();
        let what = match record.body {
            Body::Value(Value::Inline(_)) => INLINE,
            Body::Value(Value::Apart(_)) => APART,
            Body::Value(Value::Gone) => GONE,
            Body::Child(_) => CHILD,
        };
        let expires = record.expiry != Expiry::default();
        out.push(if expires { what | EXPIRES } else { what });
        push_varint(out, shared as u64);
        push_varint(out, suffix.len() as u64);
        push_varint(out, record.delta);
        if expires {
            out.extend_from_slice(&record.expiry.0.to_le_bytes());
        }
        match record.body {
            Body::Value(Value::Inline(value)) => push_varint(out, value.len() as u64),
            Body::Value(Value::Apart(place)) => {
                push_varint(out, place.segment.0);
                push_varint(out, place.offset);
                push_varint(out, u64::from(place.bytes));
            }
            Body::Value(Value::Gone) => {}
            Body::Child(child) => {
                push_varint(out, child.page);
                push_varint(out, u64::from(child.pages));
            }
        }
        out.extend_from_slice(suffix);
        if let Body::Value(Value::Inline(value)) = record.body {
            out.extend_from_slice(value);
        }
    }

    /// Returns the block, once it is finished.
    pub(in crate::run) fn finished(&self) -> &[u8] {
        &self.bytes
    }

    /// Finishes the block, to be written at `address`, and returns it. The builder must be cleared
    /// before it is used again.
    pub(in crate::run) fn finish(&mut self, address: Address) -> &[u8] {
        let entries_end = self.bytes.len();
        for at in 0..self.restarts.len() {
            let head = self.restart_head(at, entries_end);
            self.bytes.extend_from_slice(&head.to_le_bytes());
        }
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        let used = self.bytes.len();
        let pages = pages_of(used + CRC_BYTES);
        self.bytes.resize(pages * PAGE_BYTES, 0);
        let common = u16::try_from(self.common).unwrap_or(u16::MAX);
        self.bytes[0] = self.kind as u8;
        self.bytes[1] = self.level;
        self.bytes[2..4].copy_from_slice(&common.to_le_bytes());
        self.bytes[4..8].copy_from_slice(&(used as u32).to_le_bytes());
        self.bytes[8..12].copy_from_slice(&self.entries.to_le_bytes());
        self.bytes[12..16].copy_from_slice(&(pages as u32).to_le_bytes());
        seal(address, &mut self.bytes);
        &self.bytes
    }

    /// Returns the eight bytes of a restart's key behind the common prefix.
    fn restart_head(&self, at: usize, entries_end: usize) -> u64 {
        let entry = self.restarts.get(at).map_or(0, |&start| start as usize);
        let entries = self.bytes.get(..entries_end).unwrap_or_default();
        let key = super::view::Item::read(entries, entry).and_then(|item| item.suffix_of(entries));
        let common = self.common.min(usize::from(u16::MAX));
        head_of(key.and_then(|key| key.get(common..)).unwrap_or_default())
    }

    pub(in crate::run) fn clear(&mut self) {
        self.bytes.truncate(HEAD_BYTES);
        self.restarts.clear();
        self.entries = 0;
        self.common = 0;
    }
}

/// Returns a short key that is at or above `last` and, in all versions that it can have, below
/// `next`. Returns `None` if only `last` itself will do.
pub(in crate::run) fn separator<'a>(last: &[u8], next: &'a [u8]) -> Option<&'a [u8]> {
    let common = common_prefix(last, next);
    (common < last.len() && common + 1 < next.len()).then(|| &next[..=common])
}
