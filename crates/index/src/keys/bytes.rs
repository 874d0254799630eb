//! Keys of any length, in records that the index allocates.
//!
//! A record is the key's length, the value, and the key. It is durable before a slot leads to it,
//! and never changes: a key gets another value by another record. A low is a record without a
//! value.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::{Keys, Slot};
use crate::{IndexError, Pool};

/// Longest key: room for a key of 64 KiB with every byte escaped by two, and some more.
pub const KEY_BYTES_MAX: usize = (128 << 10) + 64;

const HEADER_BYTES: u64 = 16;
const STEP_BYTES: usize = 64;

/// Keys of any length up to [`KEY_BYTES_MAX`], in records of the index's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bytes;

/// Returns eight bytes behind the first `skip`; missing ones count as zeroes.
#[inline]
pub(super) fn word(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*eight);
    }
    let mut padded = [0; 8];
    padded[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(padded)
}

pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Returns the bound of a key, see [`Keys::bound`]: the key must end within the word, and not with
/// a zero, which might as well be the end of a shorter key.
pub(super) fn bound(key: &[u8], skip: usize) -> Option<u64> {
    let ends = key.len() > skip && key.len() <= skip + 8;
    (ends && key.last() != Some(&0)).then(|| word(key, skip))
}

pub(super) fn check(key: &[u8]) -> Result<(), IndexError> {
    match key.len() {
        given if given > KEY_BYTES_MAX => {
            Err(IndexError::KeyTooLong { given, longest: KEY_BYTES_MAX })
        }
        _ => Ok(()),
    }
}

/// Returns the bytes of a low between two slots with these keys: a prefix of the right one.
pub(super) fn low_bytes<'a>(left: (Slot, &[u8]), right: (Slot, &'a [u8]), skip: usize) -> &'a [u8] {
    let len = match left.0.word ^ right.0.word {
        0 => common(left.1, right.1),
        different => skip + different.leading_zeros() as usize / 8,
    };
    right.1.get(..=len).unwrap_or(right.1)
}

/// Writes a record, durably.
pub(super) fn write_record<R: Region>(
    pool: &Pool<R>,
    key: &[u8],
    value: u64,
) -> Result<u64, IndexError> {
    let bytes = HEADER_BYTES + key.len() as u64;
    let at = pool.allocate(bytes)?;
    let region = pool.region();
    region.store_u64(at, key.len() as u64, Relaxed);
    region.store_u64(at + 8, value, Relaxed);
    region.write(at + HEADER_BYTES, key);
    region.persist(at, bytes as usize);
    Ok(at)
}

/// Returns the length of the key in a record.
#[inline]
fn record_len<R: Region>(pool: &Pool<R>, at: u64) -> Result<usize, IndexError> {
    let bytes = pool.region().len();
    if !at.is_multiple_of(16) || at > bytes - HEADER_BYTES {
        return Err(IndexError::damaged(at, "no record can lie here"));
    }
    let len = pool.region().load_u64(at, Relaxed);
    if len > KEY_BYTES_MAX as u64 || len > bytes - HEADER_BYTES - at {
        return Err(IndexError::damaged(at, format!("a record's key has {len} bytes")));
    }
    Ok(len as usize)
}

/// Returns the bytes of the block that a record lies in.
fn record_bytes<R: Region>(pool: &Pool<R>, at: u64) -> Result<u64, IndexError> {
    Ok(pool.block_bytes(HEADER_BYTES + record_len(pool, at)? as u64))
}

pub(super) fn read_record<'a, R: Region>(
    pool: &Pool<R>,
    at: u64,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], IndexError> {
    let len = record_len(pool, at)?;
    scratch.clear();
    pool.region().append_to(at + HEADER_BYTES, len, scratch);
    Ok(scratch)
}

/// Compares the key in a record to another.
pub(super) fn compare_record<R: Region>(
    pool: &Pool<R>,
    at: u64,
    key: &[u8],
) -> Result<Ordering, IndexError> {
    let (region, len) = (pool.region(), record_len(pool, at)?);
    let begin = at + HEADER_BYTES;
    if len == key.len() && region.equals(begin, key) {
        return Ok(Ordering::Equal);
    }
    let mut done = 0;
    for part in key[..len.min(key.len())].chunks(STEP_BYTES) {
        let mut theirs = [0; STEP_BYTES];
        region.read(begin + done, &mut theirs[..part.len()]);
        match theirs[..part.len()].cmp(part) {
            Ordering::Equal => done += part.len() as u64,
            unequal => return Ok(unequal),
        }
    }
    Ok(len.cmp(&key.len()))
}

/// Compares a low to a key. A low without a record is below all keys.
pub(super) fn compare_low<R: Region>(
    pool: &Pool<R>,
    low: u64,
    key: &[u8],
) -> Result<Ordering, IndexError> {
    if low == 0 { Ok(Ordering::Less) } else { compare_record(pool, low, key) }
}

pub(super) fn low_record_bytes<R: Region>(pool: &Pool<R>, low: u64) -> Result<u64, IndexError> {
    if low == 0 { Ok(0) } else { record_bytes(pool, low) }
}

pub(super) fn copy_low<R: Region>(pool: &Pool<R>, low: u64) -> Result<u64, IndexError> {
    if low == 0 {
        return Ok(0);
    }
    let mut scratch = Vec::new();
    write_record(pool, read_record(pool, low, &mut scratch)?, 0)
}

pub(super) fn retire_low<R: Region>(pool: &Pool<R>, low: u64) {
    if low != 0 {
        pool.retire(low);
    }
}

impl<R: Region> Keys<R> for Bytes {
    type Key = [u8];
    type Scratch = Vec<u8>;
    const WHOLE: bool = false;
    const OWNS: bool = true;

    fn check(key: &[u8]) -> Result<(), IndexError> {
        check(key)
    }

    #[inline]
    fn word(key: &[u8], skip: usize) -> u64 {
        word(key, skip)
    }

    fn common(one: &[u8], other: &[u8]) -> usize {
        common(one, other)
    }

    fn bound(key: &[u8], skip: usize) -> Option<u64> {
        bound(key, skip)
    }

    fn key<'a>(
        &self,
        pool: &Pool<R>,
        slot: Slot,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], IndexError> {
        read_record(pool, slot.payload, scratch)
    }

    fn compare(&self, pool: &Pool<R>, slot: Slot, key: &[u8]) -> Result<Ordering, IndexError> {
        compare_record(pool, slot.payload, key)
    }

    fn value(&self, pool: &Pool<R>, payload: u64) -> Result<u64, IndexError> {
        record_len(pool, payload)?;
        Ok(pool.region().load_u64(payload + 8, Relaxed))
    }

    fn make(&self, pool: &Pool<R>, key: &[u8], value: u64) -> Result<u64, IndexError> {
        write_record(pool, key, value)
    }

    fn bytes(&self, pool: &Pool<R>, payload: u64) -> Result<u64, IndexError> {
        record_bytes(pool, payload)
    }

    fn retire(&self, pool: &Pool<R>, payload: u64) {
        pool.retire(payload);
    }

    fn make_low(
        &self,
        pool: &Pool<R>,
        left: Slot,
        right: Slot,
        skip: usize,
    ) -> Result<u64, IndexError> {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let one = read_record(pool, left.payload, &mut one)?;
        let other = read_record(pool, right.payload, &mut other)?;
        write_record(pool, low_bytes((left, one), (right, other), skip), 0)
    }

    fn low_key<'a>(
        &self,
        pool: &Pool<R>,
        low: u64,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], IndexError> {
        read_record(pool, low, scratch)
    }

    fn compare_low(&self, pool: &Pool<R>, low: u64, key: &[u8]) -> Result<Ordering, IndexError> {
        compare_low(pool, low, key)
    }

    fn low_bytes(&self, pool: &Pool<R>, low: u64) -> Result<u64, IndexError> {
        low_record_bytes(pool, low)
    }

    fn copy_low(&self, pool: &Pool<R>, low: u64) -> Result<u64, IndexError> {
        copy_low(pool, low)
    }

    fn retire_low(&self, pool: &Pool<R>, low: u64) {
        retire_low(pool, low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_the_order_of_keys_and_bounds_decide_alone() {
        let keys: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"\0\0",
            b"\0a",
            b"a",
            b"a\0",
            b"a\0\0\0\0\0\0\0\0\0x",
            b"ab",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            b"abd",
            b"b\xff\xff\xff\xff\xff\xff\xff",
            b"c",
        ];
        for (one, other) in keys.iter().flat_map(|one| keys.iter().map(move |other| (one, other))) {
            if one < other {
                assert!(word(one, 0) <= word(other, 0), "{one:?} {other:?}");
            }
            if let Some(bound) = bound(other, 0) {
                assert_eq!(word(one, 0) < bound, one < other, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_low_is_between_and_short() {
        let slot = |key: &[u8], skip| Slot { word: word(key, skip), payload: 16 };
        for (left, right, skip, low) in [
            (&b"apple"[..], &b"banana"[..], 0, &b"b"[..]),
            (b"user/0001", b"user/0002", 5, b"user/0002"),
            (b"user/00010000", b"user/00010001", 0, b"user/00010001"),
            (b"ab", b"ab\0c", 0, b"ab\0c"),
            (b"ab", b"ab\0", 0, b"ab\0"),
            (b"", b"\0", 0, b"\0"),
        ] {
            let found = low_bytes((slot(left, skip), left), (slot(right, skip), right), skip);
            assert_eq!(found, low);
            assert!(left < found && found <= right);
            if word(left, skip) != word(right, skip) {
                assert!(bound(found, skip).is_some(), "{left:?} {right:?}");
            }
        }
    }
}
