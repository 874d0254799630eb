//! Items by their numbers: the values of the key-value loop, and the pieces of columns.

use entresol_base::ByteSize;
use entresol_measure::BenchError;

/// Bytes of a value of the key-value loop.
pub(super) const VALUE_BYTES: usize = 4096;
/// Bytes of a piece of a column: words of eight bytes.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Columns of the table, one after the other, of which a scan reads the first two.
pub(super) const COLUMNS: u64 = 4;

/// Items of one size by their numbers, in some place.
pub(super) trait Table: Sync {
    /// Creates the access of one thread.
    fn hand(&self) -> Box<dyn Hand + '_>;
}

/// Access of one thread.
pub(super) trait Hand {
    /// Replaces the content of `out` by an item.
    fn get(&mut self, item: u64, out: &mut Vec<u8>) -> Result<(), BenchError>;
}

/// Kind, number and size of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Items {
    /// Number that tells the keys of values and of pieces apart.
    pub(super) kind: u8,
    pub(super) count: u64,
    pub(super) bytes: usize,
    /// True if a get of a mapped item counts a reference and moves the item in the list.
    pub(super) is_linked: bool,
}

impl Items {
    /// Returns the values that take so many bytes.
    pub(super) fn values(size: ByteSize, is_linked: bool) -> Items {
        Items { kind: 0, count: size.0 / VALUE_BYTES as u64, bytes: VALUE_BYTES, is_linked }
    }

    /// Returns the pieces of columns that take so many bytes together.
    pub(super) fn pieces(size: ByteSize) -> Items {
        let count = size.0 / PIECE_BYTES as u64 / COLUMNS * COLUMNS;
        Items { kind: 1, count, bytes: PIECE_BYTES, is_linked: false }
    }

    /// Appends the content of an item: words that follow from its number.
    pub(super) fn append(self, item: u64, out: &mut Vec<u8>) {
        let words = (self.bytes / 8) as u64;
        out.extend((0..words).flat_map(|word| word_of(item, word).to_le_bytes()));
    }

    /// Fails unless the ends of an item are right.
    pub(super) fn check(self, item: u64, bytes: &[u8]) -> Result<(), BenchError> {
        let last = (self.bytes / 8) as u64 - 1;
        let is = |found: Option<&[u8; 8]>, word| found == Some(&word_of(item, word).to_le_bytes());
        let ends = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>());
        if bytes.len() == self.bytes && is(ends.0, 0) && is(ends.1, last) {
            return Ok(());
        }
        let problem = "its ends are those of no such item".to_owned();
        Err(BenchError::WrongValue { key: item.to_string(), problem })
    }
}

fn word_of(item: u64, word: u64) -> u64 {
    (item.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
}
