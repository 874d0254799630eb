//! Keys in records that lie outside of the index, which reads them through a trait.

use std::cmp::Ordering;

use entresol_media::Region;

use super::bytes;
use super::{Keys, Slot};
use crate::{IndexError, Pool};

/// Records outside of the index: the index leads to them by the value that it was given for a key.
///
/// The index knows keys as bytes in the order of bytes. Records need not hold them in that form: a
/// key and a descending number, say, can be presented as the key, escaped so that none is the
/// beginning of another, then the number inverted.
pub trait Records: Send + Sync {
    /// Appends the key of a record to `out`.
    ///
    /// # Errors
    /// If there is no such record.
    fn key(&self, record: u64, out: &mut Vec<u8>) -> Result<(), IndexError>;

    /// Compares the key of a record to another.
    ///
    /// # Errors
    /// If there is no such record.
    fn compare(&self, record: u64, key: &[u8]) -> Result<Ordering, IndexError>;
}

/// Keys in records elsewhere. A record is durable before the index is told of it, and stays as long
/// as a reader may look at it: while the index leads to it, and until all readers of that time have
/// finished. So a record is removed, or its room used again, after [`Pool::wait_for_readers`], or
/// with the index itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outside<T>(pub T);

impl<R: Region, T: Records> Keys<R> for Outside<T> {
    type Key = [u8];
    type Scratch = Vec<u8>;
    const WHOLE: bool = false;
    const OWNS: bool = false;

    fn check(key: &[u8]) -> Result<(), IndexError> {
        bytes::check(key)
    }

    #[inline]
    fn word(key: &[u8], skip: usize) -> u64 {
        bytes::word(key, skip)
    }

    fn common(one: &[u8], other: &[u8]) -> usize {
        bytes::common(one, other)
    }

    fn bound(key: &[u8], skip: usize) -> Option<u64> {
        bytes::bound(key, skip)
    }

    fn key<'a>(
        &self,
        _: &Pool<R>,
        slot: Slot,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], IndexError> {
        scratch.clear();
        self.0.key(slot.payload, scratch)?;
        Ok(scratch)
    }

    fn compare(&self, _: &Pool<R>, slot: Slot, key: &[u8]) -> Result<Ordering, IndexError> {
        self.0.compare(slot.payload, key)
    }

    #[inline]
    fn value(&self, _: &Pool<R>, payload: u64) -> Result<u64, IndexError> {
        Ok(payload)
    }

    #[inline]
    fn make(&self, _: &Pool<R>, _: &[u8], value: u64) -> Result<u64, IndexError> {
        Ok(value)
    }

    #[inline]
    fn bytes(&self, _: &Pool<R>, _: u64) -> Result<u64, IndexError> {
        Ok(0)
    }

    #[inline]
    fn retire(&self, _: &Pool<R>, _: u64) {}

    fn make_low(
        &self,
        pool: &Pool<R>,
        left: Slot,
        right: Slot,
        skip: usize,
    ) -> Result<u64, IndexError> {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        self.0.key(left.payload, &mut one)?;
        self.0.key(right.payload, &mut other)?;
        bytes::write_record(pool, bytes::low_bytes((left, &one), (right, &other), skip), 0)
    }

    fn low_key<'a>(
        &self,
        pool: &Pool<R>,
        low: u64,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], IndexError> {
        bytes::read_record(pool, low, scratch)
    }

    fn compare_low(&self, pool: &Pool<R>, low: u64, key: &[u8]) -> Result<Ordering, IndexError> {
        bytes::compare_low(pool, low, key)
    }

    fn low_bytes(&self, pool: &Pool<R>, low: u64) -> Result<u64, IndexError> {
        bytes::low_record_bytes(pool, low)
    }

    fn copy_low(&self, pool: &Pool<R>, low: u64) -> Result<u64, IndexError> {
        bytes::copy_low(pool, low)
    }

    fn retire_low(&self, pool: &Pool<R>, low: u64) {
        bytes::retire_low(pool, low);
    }
}
