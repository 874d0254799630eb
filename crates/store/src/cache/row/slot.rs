//! Slots: where an entry lies, or the name of one that is not there.
//!
//! ```text
//! bits 49-63  fifteen bits of the key's hash
//! bit  48     found since it came, or stayed
//! bits 28-47  which version of the ring's bytes it is, modulo 1,048,576
//! bits  0-27  where in the ring, in eight bytes, plus 1; 0: only the name
//! ```
//!
//! A slot that is 0 is free. One that leads to other bytes has another version, unless 1,048,576
//! entries were put into the stripe while a reader copied one, and that one again as the last.

/// Fewer volumes than these can be said.
pub(super) const PLACES: u32 = (1 << VERSION_SHIFT) - 1;

/// What a slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

const FOUND: u64 = 1 << 48;
const PLACE: u64 = (1 << VERSION_SHIFT) - 1;
const VERSION_SHIFT: u32 = 28;
const VERSION: u64 = (1 << 20) - 1;
const TAG_SHIFT: u32 = 49;

impl Slot {
    /// The slot of an entry at a place, in units of eight bytes.
    pub(super) fn of(hash: u64, place: u32, version: u32) -> Slot {
        let version = (u64::from(version) & VERSION) << VERSION_SHIFT;
        Slot(tag(hash) << TAG_SHIFT | version | (u64::from(place) + 1))
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
