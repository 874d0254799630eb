//! Layout of a node on the medium, and the searches in it.
//!
//! ```text
//! 0   leftmost child; 0 in a leaf
//! 8   next node of the level (its offset; 0 if there is none), low six bits: the level, 0 a leaf;
//!     high 16 bits: bytes of keys that the words leave out, 0 where words are keys
//! 16  the low key, or its offset: no key below it belongs here; it never changes
//! 24  volatile: number of the opening (32 bits), marks (2), used slots (30)
//! 32  slots of sixteen bytes: key, value; or a word of the key, and the record, or the child
//! ```

use std::hint::select_unpredictable;
use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_media::Region;

/// Bytes of a line, in which stores become durable in their order.
pub(super) const LINE_BYTES: u64 = 64;
/// Value of a slot without a record.
pub(super) const HOLE: u64 = u64::MAX;
/// Most slots that the volatile word has bits for.
pub(super) const SLOTS_MAX: usize = 30;

const LEFTMOST: u64 = 0;
const LINK: u64 = 8;
const LOW: u64 = 16;
const STATE: u64 = 24;
const SLOTS: u64 = 32;
const SLOT_BYTES: u64 = 16;
const LEVELS: u64 = LINE_BYTES - 1;
const SKIP_SHIFT: u32 = 48;
const SKIPS: u64 = !((1 << SKIP_SHIFT) - 1);

/// Next node of a level, the level, and the skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(u64);

impl Link {
    pub(super) fn new(next: u64, level: u32) -> Link {
        Link(next | u64::from(level))
    }

    /// Returns the next node; 0 if there is none.
    #[inline]
    pub(super) fn next(self) -> u64 {
        self.0 & !(LEVELS | SKIPS)
    }

    /// Returns the number of bytes that all keys of the node share and words leave out.
    #[inline]
    pub(super) fn skip(self) -> usize {
        (self.0 >> SKIP_SHIFT) as usize
    }

    /// Returns the link with another skip, or the greatest that there is room for.
    pub(super) fn with_skip(self, skip: usize) -> Link {
        Link(self.0 & !SKIPS | (skip as u64).min(SKIPS >> SKIP_SHIFT) << SKIP_SHIFT)
    }

    #[inline]
    pub(super) fn level(self) -> u32 {
        (self.0 & LEVELS) as u32
    }
}

/// Volatile word of a node, valid only in the opening in which it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    /// Mark of a node that a merge is about to empty; no thread writes to it.
    const LEAVING: u64 = 1 << 30;
    /// Mark of a node whose records have moved elsewhere.
    const GONE: u64 = 1 << 31;

    pub(super) fn new(opening: u32, bits: u32) -> State {
        State(u64::from(opening) << 32 | u64::from(bits))
    }

    #[inline]
    pub(super) fn is_of(self, opening: u32) -> bool {
        (self.0 >> 32) as u32 == opening
    }

    /// Returns a bit for each slot with a record.
    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0 as u32 & ((1 << SLOTS_MAX) - 1)
    }

    /// Returns the number of records.
    #[inline]
    pub(super) fn count(self) -> usize {
        self.bits().count_ones() as usize
    }

    /// Returns the number of records before a slot.
    pub(super) fn count_before(self, slot: usize) -> usize {
        (self.bits() & ((1 << slot) - 1)).count_ones() as usize
    }

    /// Returns the state with only the records before a slot.
    pub(super) fn upto(self, slot: usize) -> State {
        self.with_bits(self.bits() & ((1 << slot) - 1))
    }

    /// Returns the first slot behind all records.
    #[inline]
    pub(super) fn tail(self) -> usize {
        32 - self.bits().leading_zeros() as usize
    }

    #[inline]
    pub(super) fn has(self, slot: usize) -> bool {
        self.0 >> slot & 1 == 1
    }

    #[inline]
    pub(super) fn is_leaving(self) -> bool {
        self.0 & (State::LEAVING | State::GONE) != 0
    }

    #[inline]
    pub(super) fn is_gone(self) -> bool {
        self.0 & State::GONE != 0
    }

    pub(super) fn leaving(self) -> State {
        State(self.0 | State::LEAVING)
    }

    pub(super) fn staying(self) -> State {
        State(self.0 & !State::LEAVING)
    }

    pub(super) fn gone(self) -> State {
        State(self.0 | State::GONE)
    }

    /// Returns the state with other records.
    #[inline]
    pub(super) fn with_bits(self, bits: u32) -> State {
        State(self.0 & !((1 << SLOTS_MAX) - 1) | u64::from(bits))
    }
}

/// A node, by its offset. All loads are relaxed: a latch orders them, or shows that they were
/// useless.
#[derive(Debug)]
pub(super) struct Node<'a, R> {
    pub(super) region: &'a R,
    pub(super) at: u64,
}

impl<R> Clone for Node<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Node<'_, R> {}

impl<'a, R: Region> Node<'a, R> {
    #[inline]
    pub(super) fn new(region: &'a R, at: u64) -> Node<'a, R> {
        Node { region, at }
    }

    #[inline]
    pub(super) fn leftmost(self) -> u64 {
        self.region.load_u64(self.at + LEFTMOST, Relaxed)
    }

    #[inline]
    pub(super) fn link(self) -> Link {
        Link(self.region.load_u64(self.at + LINK, Relaxed))
    }

    #[inline]
    pub(super) fn low(self) -> u64 {
        self.region.load_u64(self.at + LOW, Relaxed)
    }

    #[inline]
    pub(super) fn state(self) -> State {
        State(self.region.load_u64(self.at + STATE, Relaxed))
    }

    #[inline]
    pub(super) fn key(self, slot: usize) -> u64 {
        self.region.load_u64(self.key_at(slot), Relaxed)
    }

    #[inline]
    pub(super) fn value(self, slot: usize) -> u64 {
        self.region.load_u64(self.value_at(slot), Relaxed)
    }

    /// Returns true if a slot has no record, whatever its key.
    #[inline]
    pub(super) fn is_hole(self, slot: usize) -> bool {
        matches!(self.value(slot), 0 | HOLE)
    }

    /// Returns the key and the value of a slot.
    #[inline]
    pub(super) fn record(self, slot: usize) -> [u64; 2] {
        self.region.load_pair(self.key_at(slot))
    }

    #[inline]
    pub(super) fn key_at(self, slot: usize) -> u64 {
        self.at + SLOTS + SLOT_BYTES * slot as u64
    }

    #[inline]
    pub(super) fn value_at(self, slot: usize) -> u64 {
        self.key_at(slot) + 8
    }

    /// Links another node behind this one, durably and atomically.
    pub(super) fn set_link(self, link: Link) {
        self.region.store_u64(self.at + LINK, link.0, Release);
        self.region.persist(self.at + LINK, 8);
    }

    /// Stores the skip in the link, not durably, for a node whose words leave another prefix out.
    pub(super) fn set_skip(self, skip: usize) {
        self.region.store_u64(self.at + LINK, self.link().with_skip(skip).0, Release);
    }

    /// Stores the word of a slot's key, not durably.
    pub(super) fn set_word(self, slot: usize, word: u64) {
        if self.key(slot) != word {
            self.region.store_u64(self.key_at(slot), word, Release);
        }
    }

    #[inline]
    pub(super) fn set_state(self, state: State) {
        self.region.store_u64(self.at + STATE, state.0, Release);
    }

    /// Prefetches all lines but the first, which is about to be loaded anyway.
    #[inline]
    pub(super) fn prefetch(self, node_bytes: u64) {
        for line in 1..node_bytes / LINE_BYTES {
            self.region.prefetch(self.at + line * LINE_BYTES);
        }
    }

    /// Returns the first of `tail` slots whose key is not below `key`; `tail` if there is none. The
    /// keys of all these slots are in order, even where there is no record.
    #[inline]
    pub(super) fn position(self, key: u64, tail: usize) -> usize {
        if tail == 0 {
            return 0;
        }
        // Branch-free, so that nothing is mispredicted.
        let (mut first, mut len) = (0, tail);
        while len > 1 {
            let half = len / 2;
            let is_behind = self.key(first + half - 1) < key;
            first = select_unpredictable(is_behind, first + half, first);
            len -= half;
        }
        first + usize::from(self.key(first) < key)
    }

    /// Returns the slot that has a record of this key, from its [`position`](Node::position) on.
    #[inline]
    pub(super) fn slot_of(self, key: u64, position: usize, state: State) -> Option<usize> {
        let tail = state.tail();
        (position..tail).take_while(|&slot| self.key(slot) == key).find(|&slot| state.has(slot))
    }

    /// Returns the child that covers a key, unless a later node of this level does.
    #[inline]
    pub(super) fn child(self, key: u64, position: usize, state: State) -> u64 {
        if let Some(slot) = self.slot_of(key, position, state) {
            return self.value(slot);
        }
        match state.with_bits(state.bits() & ((1 << position) - 1)).tail() {
            0 => self.leftmost(),
            tail => self.value(tail - 1),
        }
    }

    /// Returns the records in the order of their keys.
    pub(super) fn records(self, state: State) -> impl Iterator<Item = (u64, u64)> {
        let slots = (0..state.tail()).filter(move |&slot| state.has(slot));
        slots.map(move |slot| (self.key(slot), self.value(slot)))
    }
}

/// Contents of a new node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents<'a> {
    pub(super) opening: u32,
    pub(super) link: Link,
    pub(super) leftmost: u64,
    pub(super) low: u64,
    pub(super) records: &'a [(u64, u64)],
}

impl Contents<'_> {
    /// Writes a node at an offset that no link leads to yet, durably.
    pub(super) fn write<R: Region>(&self, region: &R, at: u64, node_bytes: u64) {
        const WORDS_MAX: usize = (SLOTS as usize + SLOT_BYTES as usize * SLOTS_MAX) / 8;
        let mut words = [0u64; WORDS_MAX];
        let bits = (1u32 << self.records.len()) - 1;
        words[..4].copy_from_slice(&[
            self.leftmost,
            self.link.0,
            self.low,
            State::new(self.opening, bits).0,
        ]);
        for (slot, &(key, value)) in words[4..].chunks_exact_mut(2).zip(self.records) {
            slot.copy_from_slice(&[key, value]);
        }
        let bytes = words.map(u64::to_le_bytes);
        region.write(at, &bytes.as_flattened()[..node_bytes as usize]);
        region.persist(at, node_bytes as usize);
    }
}
