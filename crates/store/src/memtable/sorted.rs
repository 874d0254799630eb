//! The records of a `Kvs` in a generation in the order of their keys, for a flush.
//!
//! Pairs of words are sorted: eight bytes of the key behind the common prefix of all keys, and the
//! place of the record. Records are only read where these eight bytes are equal.

use std::cmp::Ordering;

use super::{Generation, Position, Segments};
use crate::StoreError;
use crate::bytes::{common_prefix, head_of};
use crate::segment::record::{HEADER_BYTES, Kind};
use crate::types::{KvsId, Sequence};

/// Comparisons that take as long as writing a record, and those that take as long as reading a key.
const STEPS_OF_A_WRITE: u64 = 64;
const STEPS_OF_A_READ: u64 = 16;

/// A record that is being sorted.
#[derive(Debug, Clone, Copy)]
struct Sorting {
    head: u64,
    word: u64,
}

impl Generation {
    /// Returns the words of the records up to `last` in the order of their keys, and of one key
    /// with the newest first. It calls `give_way` now and then.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn in_order(
        &self,
        kvs: KvsId,
        last: Sequence,
        give_way: &dyn Fn(),
    ) -> Result<Vec<u64>, StoreError> {
        let mut steps = 0_u64;
        let mut step = |weight| {
            steps += weight;
            if steps >= STEPS_OF_A_WRITE {
                steps = 0;
                give_way();
            }
        };
        // Reserved at once for all records: the part that stays unused takes no memory.
        let records = (last.0 + 1).saturating_sub(self.first.0) as usize;
        let (mut all, mut place) = (Vec::with_capacity(records), Position::first(self.first));
        let (mut first, mut key, mut common) = (None, Vec::new(), 0);
        while let Some((word, segment, header)) = self.segments.next(&mut place, last)? {
            step(STEPS_OF_A_READ);
            if header.kvs != kvs || header.kind == Kind::RangeDelete {
                continue;
            }
            key.clear();
            let at = u64::from(word as u32) + HEADER_BYTES as u64;
            segment.read(at, header.key_bytes as usize, &mut key)?;
            match &first {
                None => {
                    common = key.len();
                    first = Some(key.clone());
                }
                Some(first) => common = common.min(common_prefix(first, &key)),
            }
            all.push(Sorting { head: 0, word });
        }
        for sorting in &mut all {
            step(STEPS_OF_A_READ);
            read_key(&self.segments, sorting.word, &mut key)?;
            sorting.head = head_of(key.get(common..).unwrap_or_default());
        }
        let (mut failed, mut other) = (None, Vec::new());
        all.sort_unstable_by(|one, two| {
            step(1);
            one.head.cmp(&two.head).then_with(|| {
                let order = compare(&self.segments, one.word, two.word, (&mut key, &mut other));
                order.unwrap_or_else(|error| {
                    failed = Some(error);
                    Ordering::Equal
                })
            })
        });
        failed.map_or(Ok(()), Err)?;
        Ok(all.into_iter().map(|sorting| sorting.word).collect())
    }
}

/// Reads the key of a record, and returns its number.
fn read_key(segments: &Segments, word: u64, key: &mut Vec<u8>) -> Result<Sequence, StoreError> {
    let (segment, offset, header) = segments.header(word)?;
    key.clear();
    segment.read(offset + HEADER_BYTES as u64, header.key_bytes as usize, key)?;
    Ok(header.sequence)
}

fn compare(
    segments: &Segments,
    one: u64,
    two: u64,
    (key, other): (&mut Vec<u8>, &mut Vec<u8>),
) -> Result<Ordering, StoreError> {
    let (older, newer) = (read_key(segments, one, key)?, read_key(segments, two, other)?);
    Ok(key.cmp(&other).then(newer.cmp(&older)))
}
