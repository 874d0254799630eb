//! The block that a root leads to: a word that says which index it is, then the index's own words.

use entresol_media::Region;

use crate::{IndexError, Pool};

/// The words of a root block: a line.
pub(crate) const WORDS: usize = 8;
const BYTES: u64 = 8 * WORDS as u64;

/// The first word of an index's root block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) [u8; 8]);

impl Tag {
    /// The root block in this slot and its words, or none if the slot is 0.
    pub(crate) fn find<R: Region>(
        self,
        pool: &Pool<R>,
        slot: usize,
    ) -> Result<Option<(u64, [u64; WORDS])>, IndexError> {
        let at = pool.root(slot);
        if at == 0 {
            return Ok(None);
        }
        // Seen, and perhaps not durable: a process may have been killed just before.
        pool.region().persist(pool.check(at, BYTES)?, BYTES as usize);
        let words = pool.region().load_line(at);
        if words[0].to_le_bytes() != self.0 {
            let expected = String::from_utf8_lossy(&self.0);
            let what = format!("root {slot} of the pool leads to another index than {expected}");
            return Err(IndexError::damaged(at, what));
        }
        Ok(Some((at, words)))
    }

    /// Makes a root block, durably, and lets the slot lead to it. The first word is the tag's.
    pub(crate) fn make<R: Region>(
        self,
        pool: &Pool<R>,
        slot: usize,
        mut words: [u64; WORDS],
    ) -> Result<u64, IndexError> {
        let at = pool.allocate(BYTES)?;
        words[0] = u64::from_le_bytes(self.0);
        pool.region().write(at, words.map(u64::to_le_bytes).as_flattened());
        pool.region().persist(at, BYTES as usize);
        pool.set_root(slot, at);
        durable(pool.region())?;
        Ok(at)
    }
}

/// Whether what was flushed is durable.
#[inline]
pub(crate) fn durable<R: Region>(region: &R) -> Result<(), IndexError> {
    match region.sync_failure() {
        None => Ok(()),
        Some(error) => Err(IndexError::NotDurable(error)),
    }
}
