//! Keys: contents of a tree's slots, so that one tree serves keys of every kind.
//!
//! A slot is two words: eight bytes of the key in a form whose order as numbers is the order of
//! keys, and a payload, which is never 0. With [`Inline`] the word is the key and the payload its
//! value, and nothing else is ever read. Keys of any length lie in records: the word has the eight
//! bytes behind the prefix that all keys of the node share. If two words are equal, the records
//! decide, to which the payloads lead. With [`Bytes`] the index allocates the records; with
//! [`Outside`] they lie elsewhere, and the caller reads them.
//!
//! The length of the prefix follows from the node's bounds: the bytes that the least key which it
//! may have and the least key of the next node have in common. So it holds for every key that may
//! ever come, and no prefix is stored. A bound is a *low*: a word that is the key itself, or that
//! leads to a record which belongs to the node, not to a key; 0 is below all keys.

use std::cmp::Ordering;

use entresol_media::Region;

use crate::{IndexError, Pool};

mod bytes;
mod outside;

pub use bytes::{Bytes, KEY_BYTES_MAX};
pub use outside::{Outside, Records};

/// Contents of a slot that is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Eight bytes of the key, see [`Keys::word`].
    pub word: u64,
    /// Value, or offset of the record; never 0.
    pub payload: u64,
}

/// Meaning of slots; see the head of the module.
///
/// The caller of a method that reads a record keeps the record alive by [`Pool::pin`], and has its
/// offset from a node that was read whole, so that an error is damage and no race.
pub trait Keys<R: Region>: Send + Sync {
    /// Type of a key.
    type Key: Ord + ToOwned + ?Sized;
    /// Buffer for a key that lies in a record.
    type Scratch: Default + Send;
    /// True if the word is the whole key.
    const WHOLE: bool;
    /// True if a payload is a block of the pool that belongs to the slot.
    const OWNS: bool;

    /// Refuses keys that cannot be kept.
    ///
    /// # Errors
    /// If the key is too long.
    fn check(key: &Self::Key) -> Result<(), IndexError>;

    /// Returns eight bytes of the key behind the first `skip`, as a number. Of two keys with equal
    /// first `skip` bytes the lesser never has the greater number.
    fn word(key: &Self::Key, skip: usize) -> u64;

    /// Returns the number of leading bytes that two keys share; 0 if words are whole keys.
    fn common(one: &Self::Key, other: &Self::Key) -> usize;

    /// Returns a key's word if it separates keys with equal first `skip` bytes: all lesser keys
    /// have lesser words, and no others have.
    fn bound(key: &Self::Key, skip: usize) -> Option<u64>;

    /// Returns the key in a slot.
    ///
    /// # Errors
    /// If there is no record where the slot leads.
    fn key<'a>(
        &self,
        pool: &Pool<R>,
        slot: Slot,
        scratch: &'a mut Self::Scratch,
    ) -> Result<&'a Self::Key, IndexError>;

    /// Compares the key in a slot to one with an equal word.
    ///
    /// # Errors
    /// If there is no record where the slot leads.
    fn compare(&self, pool: &Pool<R>, slot: Slot, key: &Self::Key) -> Result<Ordering, IndexError>;

    /// Returns the value in a slot.
    ///
    /// # Errors
    /// If there is no record where the slot leads.
    fn value(&self, pool: &Pool<R>, payload: u64) -> Result<u64, IndexError>;

    /// Makes a durable payload for a key and a value.
    ///
    /// # Errors
    /// If there is no room for a record.
    fn make(&self, pool: &Pool<R>, key: &Self::Key, value: u64) -> Result<u64, IndexError>;

    /// Returns the bytes of the record that [`make`](Keys::make) made; 0 if it makes none.
    ///
    /// # Errors
    /// If there is no record where the payload leads.
    fn bytes(&self, pool: &Pool<R>, payload: u64) -> Result<u64, IndexError>;

    /// Frees the block that [`make`](Keys::make) took, once no reader looks at it.
    fn retire(&self, pool: &Pool<R>, payload: u64);

    /// Makes a durable low that is above the key in `left` and not above the one in `right`, which
    /// are words of keys with equal first `skip` bytes. If the words differ, the low has a
    /// [`bound`](Keys::bound) with that `skip`.
    ///
    /// # Errors
    /// If there is no room, or no record where a slot leads.
    fn make_low(
        &self,
        pool: &Pool<R>,
        left: Slot,
        right: Slot,
        skip: usize,
    ) -> Result<u64, IndexError>;

    /// Returns the key of a low, which is not 0 unless words are whole keys.
    ///
    /// # Errors
    /// If there is no record where the low leads.
    fn low_key<'a>(
        &self,
        pool: &Pool<R>,
        low: u64,
        scratch: &'a mut Self::Scratch,
    ) -> Result<&'a Self::Key, IndexError>;

    /// Compares a low to a key.
    ///
    /// # Errors
    /// If there is no record where the low leads.
    fn compare_low(
        &self,
        pool: &Pool<R>,
        low: u64,
        key: &Self::Key,
    ) -> Result<Ordering, IndexError>;

    /// Returns the bytes of a low's record; 0 if it has none.
    ///
    /// # Errors
    /// If there is no record where the low leads.
    fn low_bytes(&self, pool: &Pool<R>, low: u64) -> Result<u64, IndexError>;

    /// Copies a low durably, for another owner.
    ///
    /// # Errors
    /// If there is no room, or no record where the low leads.
    fn copy_low(&self, pool: &Pool<R>, low: u64) -> Result<u64, IndexError>;

    /// Frees a low, once no reader looks at it.
    fn retire_low(&self, pool: &Pool<R>, low: u64);
}

/// Keys of eight bytes in the slot itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl<R: Region> Keys<R> for Inline {
    type Key = u64;
    type Scratch = u64;
    const WHOLE: bool = true;
    const OWNS: bool = false;

    #[inline]
    fn check(_: &u64) -> Result<(), IndexError> {
        Ok(())
    }

    #[inline]
    fn word(key: &u64, _: usize) -> u64 {
        *key
    }

    #[inline]
    fn common(_: &u64, _: &u64) -> usize {
        0
    }

    #[inline]
    fn bound(key: &u64, _: usize) -> Option<u64> {
        Some(*key)
    }

    #[inline]
    fn key<'a>(
        &self,
        _: &Pool<R>,
        slot: Slot,
        scratch: &'a mut u64,
    ) -> Result<&'a u64, IndexError> {
        *scratch = slot.word;
        Ok(scratch)
    }

    #[inline]
    fn compare(&self, _: &Pool<R>, slot: Slot, key: &u64) -> Result<Ordering, IndexError> {
        Ok(slot.word.cmp(key))
    }

    #[inline]
    fn value(&self, _: &Pool<R>, payload: u64) -> Result<u64, IndexError> {
        Ok(payload)
    }

    #[inline]
    fn make(&self, _: &Pool<R>, _: &u64, value: u64) -> Result<u64, IndexError> {
        Ok(value)
    }

    #[inline]
    fn bytes(&self, _: &Pool<R>, _: u64) -> Result<u64, IndexError> {
        Ok(0)
    }

    #[inline]
    fn retire(&self, _: &Pool<R>, _: u64) {}

    #[inline]
    fn make_low(&self, _: &Pool<R>, _: Slot, right: Slot, _: usize) -> Result<u64, IndexError> {
        Ok(right.word)
    }

    #[inline]
    fn low_key<'a>(
        &self,
        _: &Pool<R>,
        low: u64,
        scratch: &'a mut u64,
    ) -> Result<&'a u64, IndexError> {
        *scratch = low;
        Ok(scratch)
    }

    #[inline]
    fn compare_low(&self, _: &Pool<R>, low: u64, key: &u64) -> Result<Ordering, IndexError> {
        Ok(low.cmp(key))
    }

    #[inline]
    fn low_bytes(&self, _: &Pool<R>, _: u64) -> Result<u64, IndexError> {
        Ok(0)
    }

    #[inline]
    fn copy_low(&self, _: &Pool<R>, low: u64) -> Result<u64, IndexError> {
        Ok(low)
    }

    #[inline]
    fn retire_low(&self, _: &Pool<R>, _: u64) {}
}
