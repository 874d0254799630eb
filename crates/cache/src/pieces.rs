//! Pieces of a large value: slices of segments, in the order of a list that stands in the value's
//! record.
//!
//! A segment that holds pieces has no header and no records. It is cut into slices of equal size:
//! a large value takes whole segments, and its rest takes slices of segments that it shares with
//! others. Slices are numbered through all segments of a medium.
//!
//! | bytes of the list | what |
//! |---|---|
//! | 4 | bytes of the value |
//! | 4 | number of the value's medium: 0, since a cache has one |
//! | 8 a piece | number of its slice, and the CRC-32C of its bytes |

use entresol_media::Direct;

use crate::record::Head;

/// Bytes of the list before its first piece.
const FIRST_AT: u64 = 8;
/// Bytes of the list for each piece.
const ENTRY_BYTES: u64 = 8;
/// Slices of a segment, unless that makes them too small or too large: on average half of the last
/// one is lost.
const PER_SEGMENT: u64 = 32;
/// Most slices of a segment: those that are taken are bits of a word.
const PER_SEGMENT_MAX: u64 = 64;
/// Smallest slice: a block of a file.
const SLICE_BYTES_MIN: u64 = 4 << 10;
/// Largest slice: each has a checksum, and is read as a whole to check it.
const SLICE_BYTES_MAX: u64 = 256 << 10;
/// Number of a value's medium.
const MEDIUM: u32 = 0;

/// Cut of the segments into slices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slices {
    pub(crate) bytes: u64,
    pub(crate) per_segment: u32,
}

/// A piece of a value: the number of its slice, and the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) slice: u32,
    pub(crate) checksum: u32,
}

/// List of a value's pieces in the arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    pub(crate) value_len: u32,
    medium: u32,
    at: u64,
    bytes: u64,
}

impl Slices {
    /// Cuts segments of this many bytes.
    pub(crate) fn of(segment_bytes: u64) -> Slices {
        let bytes = segment_bytes / PER_SEGMENT / SLICE_BYTES_MIN * SLICE_BYTES_MIN;
        let bytes = bytes.clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        let per_segment = (segment_bytes / bytes).min(PER_SEGMENT_MAX);
        Slices { bytes, per_segment: per_segment as u32 }
    }

    /// Returns the number of slices that a value takes.
    pub(crate) fn for_value(&self, value_len: u64) -> usize {
        value_len.div_ceil(self.bytes) as usize
    }

    /// Returns the bytes of the list of a value's pieces.
    pub(crate) fn list_bytes(&self, value_len: u64) -> u64 {
        FIRST_AT + self.for_value(value_len) as u64 * ENTRY_BYTES
    }

    /// Returns the bytes of the longest value whose list is no longer than this.
    pub(crate) fn value_bytes_for(&self, list_bytes: u64) -> u64 {
        list_bytes.saturating_sub(FIRST_AT) / ENTRY_BYTES * self.bytes
    }

    /// Returns the word of a segment whose slices are all taken.
    pub(crate) fn all_taken(&self) -> u64 {
        u64::MAX >> (PER_SEGMENT_MAX - u64::from(self.per_segment))
    }

    /// Returns the number of a segment's slice.
    pub(crate) fn number(&self, segment: u32, index: u32) -> u32 {
        segment * self.per_segment + index
    }

    /// Returns the segment of a slice, and the slice's place in it.
    pub(crate) fn segment_of(&self, slice: u32) -> (u32, u32) {
        (slice / self.per_segment, slice % self.per_segment)
    }
}

impl List {
    /// Reads the beginning of the list in a record, which may be torn.
    pub(crate) fn load(arena: &Direct, head: &Head) -> List {
        let at = head.value_at();
        let mut words = [0; FIRST_AT as usize];
        arena.read(at, &mut words);
        let [a, b, c, d, e, f, g, h] = words;
        List {
            value_len: u32::from_le_bytes([a, b, c, d]),
            medium: u32::from_le_bytes([e, f, g, h]),
            at,
            bytes: head.value_len as u64,
        }
    }

    /// Returns true if it is as long as its value's length says, and inside the arena.
    pub(crate) fn is_whole(&self, arena: &Direct, slices: &Slices) -> bool {
        self.medium == MEDIUM
            && self.bytes == slices.list_bytes(self.value_len.into())
            && self.at + self.bytes <= arena.len()
    }

    /// Returns the number of pieces.
    pub(crate) fn count(&self) -> usize {
        (self.bytes.saturating_sub(FIRST_AT) / ENTRY_BYTES) as usize
    }

    /// Iterates over the pieces.
    pub(crate) fn pieces<'a>(&self, arena: &'a Direct) -> impl Iterator<Item = Piece> + 'a {
        let first = self.at + FIRST_AT;
        (0..self.count() as u64).map(move |number| {
            let mut bytes = [0; ENTRY_BYTES as usize];
            arena.read(first + number * ENTRY_BYTES, &mut bytes);
            let [a, b, c, d, e, f, g, h] = bytes;
            let slice = u32::from_le_bytes([a, b, c, d]);
            Piece { slice, checksum: u32::from_le_bytes([e, f, g, h]) }
        })
    }

    /// Replaces the list by that of another place of the same value.
    pub(crate) fn replace(&self, arena: &Direct, pieces: &[Piece]) {
        debug_assert!(pieces.len() == self.count(), "{} pieces of {self:?}", pieces.len());
        arena.write(self.at, &encode(self.value_len.into(), pieces));
    }
}

/// Encodes the list of a value's pieces.
pub(crate) fn encode(value_len: u64, pieces: &[Piece]) -> Vec<u8> {
    let words = [value_len as u32, MEDIUM].into_iter();
    let words = words.chain(pieces.iter().flat_map(|piece| [piece.slice, piece.checksum]));
    words.flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_every_size_are_cut_into_slices_that_a_word_can_count() {
        for segment_bytes in (2..=4096).map(|pages| pages * 4096_u64) {
            let slices = Slices::of(segment_bytes);
            let used = slices.bytes * u64::from(slices.per_segment);
            assert!(used <= segment_bytes && used * 8 >= segment_bytes * 7, "{segment_bytes}");
            assert_eq!(slices.all_taken().count_ones(), slices.per_segment);
            assert_eq!(slices.segment_of(slices.number(7, 1)), (7, 1));
        }
        assert_eq!(Slices::of(2 << 20).bytes, 64 << 10);
        assert_eq!(Slices::of(16 << 20).bytes, 256 << 10);
    }
}
