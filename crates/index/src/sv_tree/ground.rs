//! The ground of a tree: the pool, and the meaning of the words in it.

use std::cmp::Ordering;
use std::sync::Arc;

use entresol_media::Region;

use super::leaf::SKIP_MAX;
use crate::keys::{Keys, Slot};
use crate::{IndexError, Pool};

/// Pool and keys of a tree; see the head of the file.
#[derive(Debug)]
pub(super) struct Ground<R, K> {
    pub(super) pool: Arc<Pool<R>>,
    pub(super) keys: K,
}

impl<R: Region, K: Keys<R>> Ground<R, K> {
    /// Refuses links that lead to no leaf.
    #[inline]
    pub(super) fn check(&self, leaf: u64, lines: usize) -> Result<(), IndexError> {
        self.pool.check(leaf, 64 * lines as u64).map(drop)
    }

    pub(super) fn low_key<'a>(
        &self,
        low: u64,
        scratch: &'a mut K::Scratch,
    ) -> Result<&'a K::Key, IndexError> {
        self.keys.low_key(&self.pool, low, scratch)
    }

    #[inline]
    pub(super) fn compare_low(&self, low: u64, key: &K::Key) -> Result<Ordering, IndexError> {
        self.keys.compare_low(&self.pool, low, key)
    }

    /// Returns the word of a low among keys with `skip` bytes in common.
    #[inline]
    pub(super) fn low_word(&self, low: u64, skip: usize) -> Result<u64, IndexError> {
        if K::WHOLE || low == 0 {
            return Ok(low);
        }
        Ok(K::word(self.low_key(low, &mut K::Scratch::default())?, skip))
    }

    /// Returns the word from which on keys are not below a low, if words can tell.
    #[inline]
    pub(super) fn bound(&self, low: u64, skip: usize) -> Result<Option<u64>, IndexError> {
        if K::WHOLE {
            return Ok(Some(low));
        }
        Ok(K::bound(self.low_key(low, &mut K::Scratch::default())?, skip))
    }

    /// Returns the number of bytes that all keys between two lows share; a low of 0 stands for
    /// none.
    #[inline]
    pub(super) fn common(&self, low: u64, high: u64) -> Result<usize, IndexError> {
        if K::WHOLE || low == 0 || high == 0 {
            return Ok(0);
        }
        let (mut one, mut other) = (K::Scratch::default(), K::Scratch::default());
        let one = self.low_key(low, &mut one)?;
        Ok(K::common(one, self.low_key(high, &mut other)?).min(SKIP_MAX))
    }

    /// Rewrites a slot for a leaf with another `skip`.
    pub(super) fn reworded(&self, slot: Slot, skip: usize) -> Result<Slot, IndexError> {
        let mut scratch = K::Scratch::default();
        let word = K::word(self.keys.key(&self.pool, slot, &mut scratch)?, skip);
        Ok(Slot { word, ..slot })
    }

    /// Sorts slots of one leaf by their keys.
    pub(super) fn sort(&self, slots: &mut [Slot]) -> Result<(), IndexError> {
        for end in 1..slots.len() {
            let mut at = end;
            while at > 0 && self.is_less(slots[at], slots[at - 1])? {
                slots.swap(at, at - 1);
                at -= 1;
            }
        }
        Ok(())
    }

    #[inline]
    fn is_less(&self, one: Slot, other: Slot) -> Result<bool, IndexError> {
        if K::WHOLE || one.word != other.word {
            return Ok(one.word < other.word);
        }
        let mut scratch = K::Scratch::default();
        let key = self.keys.key(&self.pool, one, &mut scratch)?;
        Ok(self.keys.compare(&self.pool, other, key)?.is_gt())
    }

    /// Compares a slot's key to one that has `word` among the leaf's words.
    #[inline]
    pub(super) fn compare(
        &self,
        slot: Slot,
        word: u64,
        key: &K::Key,
    ) -> Result<Ordering, IndexError> {
        match slot.word.cmp(&word) {
            Ordering::Equal if !K::WHOLE => self.keys.compare(&self.pool, slot, key),
            order => Ok(order),
        }
    }
}
