//! Slots: the place of an entry, or the name of a key that has none.
//!
//! ```text
//! bits 49-63  fifteen bits of the key's hash
//! bit  48     set if it was found since it was put in, or last stayed
//! bits 28-47  version of the ring's bytes, modulo 1,048,576
//! bits  0-27  place in the ring, in units of eight bytes, plus 1; 0: only the name
//! ```
//!
//! A slot that is 0 is free. A slot that leads to other bytes has another version, unless 1,048,576
//! entries were put into the stripe while a reader copied one, and that one again as the last.

/// Number of places that a slot can name.
pub(super) const PLACES: u32 = (1 << VERSION_SHIFT) - 1;

/// Contents of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

const FOUND: u64 = 1 << 48;
const PLACE: u64 = (1 << VERSION_SHIFT) - 1;
const VERSION_SHIFT: u32 = 28;
const VERSION: u64 = (1 << 20) - 1;
const TAG_SHIFT: u32 = 49;

impl Slot {
    /// Creates the slot of an entry at a place, in units of eight bytes.
    pub(super) fn of(hash: u64, place: u32, version: u32) -> Slot {
        let version = (u64::from(version) & VERSION) << VERSION_SHIFT;
        Slot(tag(hash) << TAG_SHIFT | version | (u64::from(place) + 1))
    }

    /// Creates the name of a key without an entry, which is never 0.
    pub(super) fn name(hash: u64) -> Slot {
        Slot(tag(hash) << TAG_SHIFT | FOUND)
    }

    /// Returns true if the slot may lead to an entry with this hash.
    #[inline]
    pub(super) fn is_entry_of(self, hash: u64) -> bool {
        self.0 >> TAG_SHIFT == tag(hash) && self.is_entry()
    }

    /// Returns true if the slot leads to an entry.
    #[inline]
    pub(super) fn is_entry(self) -> bool {
        self.0 & PLACE != 0
    }

    /// Returns the place of the entry, in units of eight bytes.
    #[inline]
    pub(super) fn place(self) -> u32 {
        ((self.0 & PLACE) as u32).wrapping_sub(1)
    }

    #[inline]
    pub(super) fn was_found(self) -> bool {
        self.0 & FOUND != 0
    }

    #[inline]
    pub(super) fn found(self) -> Slot {
        Slot(self.0 | FOUND)
    }

    /// Returns true if both lead to the same entry.
    #[inline]
    pub(super) fn is_same(self, other: Slot) -> bool {
        (self.0 ^ other.0) & !FOUND == 0
    }
}

/// Returns bits of a hash that choose neither the stripe nor the line.
#[inline]
fn tag(hash: u64) -> u64 {
    hash >> 40 & 0x7FFF
}
