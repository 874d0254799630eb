//! A leaf: a header and slots, on whole lines.
//!
//! The first word leads to the next leaf, and has the number of bytes of keys that words leave out;
//! the second is the leaf's low. Slots of word and payload follow, in no order.

use entresol_media::{FoundPair, Region};

use crate::keys::Slot;

/// First word of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(pub(super) u64);

const NEXT: u64 = (1 << 48) - 64;

impl Link {
    /// Link of an unlinked leaf. It is never durable in a leaf that a link leads to.
    pub(super) const DEAD: Link = Link(1);

    pub(super) fn new(next: u64, skip: usize) -> Link {
        Link(next | (skip as u64) << 48)
    }

    #[inline]
    pub(super) fn is_dead(self) -> bool {
        self == Link::DEAD
    }

    /// Returns the next leaf; 0 if this is the last.
    #[inline]
    pub(super) fn next(self) -> u64 {
        self.0 & NEXT
    }

    /// Returns the number of bytes that all keys of the leaf have in common.
    #[inline]
    pub(super) fn skip(self) -> usize {
        (self.0 >> 48) as usize
    }
}

/// Largest number of common bytes that a link can hold.
pub(super) const SKIP_MAX: usize = u16::MAX as usize;

/// Offset of the low in a leaf.
pub(super) const LOW_AT: u64 = 8;

/// Returns the offset of a slot in a leaf.
#[inline]
pub(super) const fn slot_at(slot: usize) -> u64 {
    16 + 16 * slot as u64
}

/// A leaf as it was at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf<const LINES: usize> {
    pub(super) at: u64,
    lines: [[u64; 8]; LINES],
}

impl<const LINES: usize> Leaf<LINES> {
    pub(super) const SLOTS: usize = LINES * 4 - 1;
    pub(super) const BYTES: u64 = LINES as u64 * 64;

    #[inline]
    pub(super) fn load<R: Region>(region: &R, at: u64) -> Leaf<LINES> {
        let lines = std::array::from_fn(|line| region.load_line(at + 64 * line as u64));
        Leaf { at, lines }
    }

    /// Makes a leaf that is not written yet.
    pub(super) fn new(at: u64, link: Link, low: u64) -> Leaf<LINES> {
        let mut leaf = Leaf { at, lines: [[0; 8]; LINES] };
        (leaf.lines[0][0], leaf.lines[0][1]) = (link.0, low);
        leaf
    }

    /// Writes the leaf and flushes it.
    #[track_caller]
    pub(super) fn write<R: Region>(&self, region: &R) {
        let bytes = self.lines.map(|line| line.map(u64::to_le_bytes));
        let bytes = bytes.as_flattened().as_flattened();
        region.write(self.at, bytes);
        region.flush(self.at, bytes.len());
    }

    #[inline]
    pub(super) fn link(&self) -> Link {
        Link(self.lines[0][0])
    }

    #[inline]
    pub(super) fn low(&self) -> u64 {
        self.lines[0][1]
    }

    #[inline]
    pub(super) fn slot(&self, slot: usize) -> Slot {
        let words = self.lines.as_flattened();
        Slot { word: words[2 + 2 * slot], payload: words[3 + 2 * slot] }
    }

    pub(super) fn set(&mut self, slot: usize, to: Slot) {
        let words = self.lines.as_flattened_mut();
        (words[2 + 2 * slot], words[3 + 2 * slot]) = (to.word, to.payload);
    }

    /// Returns the used slots and their numbers; keys from `fence` on are not in this leaf.
    #[inline]
    pub(super) fn live(&self, fence: Option<u64>) -> impl Iterator<Item = (usize, Slot)> {
        let slots = (0..Self::SLOTS).map(|number| (number, self.slot(number)));
        slots.filter(move |(_, slot)| slot.payload != 0 && fence.is_none_or(|it| slot.word < it))
    }

    /// Returns a bit for each slot that is used and live.
    #[inline]
    pub(super) fn live_bits(&self, fence: Option<u64>) -> u64 {
        let bit = |number: usize| {
            let Slot { word, payload } = self.slot(number);
            u64::from((payload != 0) & fence.is_none_or(|it| word < it)) << number
        };
        (0..Self::SLOTS).map(bit).sum()
    }

    /// Returns the slots of keys that are not in this leaf any more.
    pub(super) fn dead(&self, fence: Option<u64>) -> impl Iterator<Item = usize> {
        let slots = (0..Self::SLOTS).map(|number| (number, self.slot(number)));
        let dead = slots
            .filter(move |(_, slot)| slot.payload != 0 && fence.is_some_and(|it| slot.word >= it));
        dead.map(|(number, _)| number)
    }
}

/// Result of a look at all slots of a leaf on the medium.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Looked {
    /// First slot, from a given one on, that is used and has a given word.
    pub(super) found: Option<(usize, Slot)>,
    /// A free slot from there on; it may be missed if it is behind the one that was found.
    pub(super) free: Option<usize>,
}

/// Looks for a word in the slots from `first` on of the leaf at `at`.
#[inline(always)]
pub(super) fn look<R: Region, const LINES: usize>(
    region: &R,
    at: u64,
    word: u64,
    first: usize,
) -> Looked {
    // The header takes the place of a slot.
    let FoundPair { found, zero } = region.find_pair::<LINES>(at, first + 1, word);
    Looked {
        found: found.map(|(pair, payload)| (pair - 1, Slot { word, payload })),
        free: zero.map(|pair| pair - 1),
    }
}
