//! The closing of a sealed segment, which makes it self-contained on its medium: a copy of its
//! records behind its values, and at its very end a block that vouches for them.

use entresol_base::checksum::crc32c;

/// Bytes of the closing block, at the segment's end.
pub(crate) const BLOCK_BYTES: usize = 64;
/// Alignment of the records behind the values.
const RECORDS_ALIGNMENT: u64 = 64;
/// Bytes of a segment that hold neither values nor records, at most.
pub(crate) const OVERHEAD_BYTES: u64 = BLOCK_BYTES as u64 + RECORDS_ALIGNMENT;
const MAGIC: [u8; 8] = *b"ENTSEGM1";

/// Records of a sealed segment, and facts about the segment as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closing {
    pub(crate) sequence: u64,
    pub(crate) class: u8,
    pub(crate) value_used: u32,
    pub(crate) records: Vec<u8>,
}

/// A closing block as read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) sequence: u64,
    pub(crate) class: u8,
    pub(crate) value_used: u32,
    pub(crate) record_bytes: u32,
    records_checksum: u32,
}

impl Closing {
    /// Returns the offset of the records in the segment.
    pub(crate) fn records_at(&self) -> u64 {
        records_at(self.value_used)
    }

    /// Returns true if neither the records nor the closing block are written over values or each
    /// other.
    pub(crate) fn fits(&self, segment_bytes: u64) -> bool {
        self.end() <= self.block_at(segment_bytes)
    }

    /// Neither the records nor the closing block are written over values or each other.
    pub(crate) fn assert_fits(&self, segment_bytes: u64) {
        let (end, block) = (self.end(), self.block_at(segment_bytes));
        let fits = self.fits(segment_bytes);
        assert!(fits, "records end at {end}, behind their closing block at {block}");
    }

    /// Returns the offset behind the records in the segment.
    fn end(&self) -> u64 {
        self.records_at() + self.records.len() as u64
    }

    /// Offset of the closing block in the segment.
    pub(crate) fn block_at(&self, segment_bytes: u64) -> u64 {
        segment_bytes - BLOCK_BYTES as u64
    }

    pub(crate) fn block(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        block[16..20].copy_from_slice(&self.value_used.to_le_bytes());
        block[20..24].copy_from_slice(&(self.records.len() as u32).to_le_bytes());
        block[24..28].copy_from_slice(&crc32c(&self.records).to_le_bytes());
        block[28] = self.class;
        let checksum = crc32c(&block[..BLOCK_BYTES - 4]);
        block[BLOCK_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        block
    }
}

impl Block {
    /// Decodes a closing block; `None` if it is damaged or not one.
    pub(crate) fn decode(block: &[u8; BLOCK_BYTES]) -> Option<Block> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| block[at + i]));
        if block[..8] != MAGIC || word(BLOCK_BYTES - 4) != crc32c(&block[..BLOCK_BYTES - 4]) {
            return None;
        }
        Some(Block {
            sequence: u64::from(word(8)) | u64::from(word(12)) << 32,
            value_used: word(16),
            record_bytes: word(20),
            records_checksum: word(24),
            class: block[28],
        })
    }

    /// Returns the offset of the records in the segment.
    pub(crate) fn records_at(&self) -> u64 {
        records_at(self.value_used)
    }

    /// Returns true if these are the records that the block vouches for.
    pub(crate) fn vouches_for(&self, records: &[u8]) -> bool {
        crc32c(records) == self.records_checksum
    }
}

fn records_at(value_used: u32) -> u64 {
    u64::from(value_used).next_multiple_of(RECORDS_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_block_is_found() {
        let closing =
            Closing { sequence: 77, class: 3, value_used: 1000, records: b"records".to_vec() };
        let block = closing.block();
        let decoded = Block::decode(&block).expect("it was just made");
        assert_eq!((decoded.sequence, decoded.class, decoded.value_used), (77, 3, 1000));
        assert!(decoded.vouches_for(b"records") && !decoded.vouches_for(b"recordz"));
        for bit in 0..BLOCK_BYTES * 8 {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Block::decode(&flipped), None, "bit {bit}");
        }
    }
}
