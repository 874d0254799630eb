//! Marks: blocks of unswept chunks that the indexes reach.

use std::collections::HashMap;

use super::layout::{ChunkWord, Layout};
use crate::IndexError;

/// Reached blocks of all unswept chunks.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) chunks: HashMap<u32, Marked>,
    pub(super) reached: u64,
}

/// Marks of one chunk.
#[derive(Debug)]
pub(super) struct Marked {
    pub(super) word: ChunkWord,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) bits: Vec<u64>,
}

impl Marked {
    /// Returns the word and the bit of the block that begins at an offset in the chunk.
    fn bit(&mut self, within: u64) -> Option<(&mut u64, u64)> {
        let block = within / self.block_bytes;
        let is_block = within.is_multiple_of(self.block_bytes) && block < self.blocks;
        let word = self.bits.get_mut(block as usize / 64).filter(|_| is_block)?;
        Some((word, 1 << (block % 64)))
    }
}

impl Marks {
    /// Marks the block at `offset` as reached. Returns false if it lies in none of the chunks that
    /// are marked.
    pub(super) fn mark(&mut self, layout: &Layout, offset: u64) -> Result<bool, IndexError> {
        let (chunk, within) = layout.chunk_of(offset);
        let Some(marked) = self.chunks.get_mut(&chunk) else { return Ok(false) };
        let block_bytes = marked.block_bytes;
        let Some((word, bit)) = marked.bit(within) else {
            let what = format!("in a chunk of blocks of {block_bytes} bytes none begins here");
            return Err(IndexError::damaged(offset, what));
        };
        self.reached += u64::from(*word & bit == 0);
        *word |= bit;
        Ok(true)
    }

    /// Clears the mark of the block at `offset`, which was freed.
    pub(super) fn clear(&mut self, layout: &Layout, offset: u64) {
        let (chunk, within) = layout.chunk_of(offset);
        let marked = self.chunks.get_mut(&chunk).and_then(|marked| marked.bit(within));
        if let Some((word, bit)) = marked {
            self.reached -= u64::from(*word & bit != 0);
            *word &= !bit;
        }
    }
}
