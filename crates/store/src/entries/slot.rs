//! Slots: where an entry lies, or the name of one that is not there.
//!
//! ```text
//! bits 49-63  fifteen bits of the key's hash
//! bit  48     found since it came, or stayed
//! bits 32-47  how often the ring had come round, modulo 65,536
//! bits  0-31  where in the ring, in eight bytes, plus 1; 0: only the name
//! ```
//!
//! A slot that is 0 is free. One that leads somewhere else has another number of rounds, unless the
//! ring came round 65,536 times while a reader looked.

/// What a slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

const FOUND: u64 = 1 << 48;
const PLACE: u64 = (1 << 32) - 1;
const TAG_SHIFT: u32 = 49;

impl Slot {
    /// The slot of an entry at a place, in units of eight bytes.
    pub(super) fn of(hash: u64, place: u32, round: u16) -> Slot {
        Slot(tag(hash) << TAG_SHIFT | u64::from(round) << 32 | (u64::from(place) + 1))
    }

    /// The name of a key whose entry is not there: never 0.
    pub(super) fn name(hash: u64) -> Slot {
        Slot(tag(hash) << TAG_SHIFT | FOUND)
    }

    /// Whether it may be that of an entry with such a hash.
    #[inline]
    pub(super) fn is_entry_of(self, hash: u64) -> bool {
        self.0 >> TAG_SHIFT == tag(hash) && self.is_entry()
    }

    /// Whether it leads to an entry.
    #[inline]
    pub(super) fn is_entry(self) -> bool {
        self.0 & PLACE != 0
    }

    /// Where the entry lies, in units of eight bytes.
    #[inline]
    pub(super) fn place(self) -> u32 {
        (self.0 as u32).wrapping_sub(1)
    }

    #[inline]
    pub(super) fn was_found(self) -> bool {
        self.0 & FOUND != 0
    }

    #[inline]
    pub(super) fn found(self) -> Slot {
        Slot(self.0 | FOUND)
    }

    /// Whether both lead to the same entry.
    #[inline]
    pub(super) fn is_same(self, other: Slot) -> bool {
        (self.0 ^ other.0) & !FOUND == 0
    }
}

/// Bits that decide neither the stripe nor the line.
#[inline]
fn tag(hash: u64) -> u64 {
    hash >> 40 & 0x7FFF
}
