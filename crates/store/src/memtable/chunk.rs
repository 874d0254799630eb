//! Chunks: records of a `Kvs` in the order of their keys, and of one key with the newest first.
//!
//! A chunk never changes. It has the places of its records, and a **head** of every few of them:
//! eight bytes of the key behind the prefix that all keys of the chunk have in common. A search
//! reads records only where heads do not tell which comes first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Position, SEGMENTS_MAX, Segments};
use crate::StoreError;
use crate::bytes::{common_prefix, head_of};
use crate::segment::record::{HEADER_BYTES, Kind};
use crate::types::{KvsId, Sequence};

/// Records of a chunk that is sorted at once: more would not fit into a processor's caches.
pub(super) const RECORDS_A_CHUNK: usize = 1 << 14;
/// Records for each head.
const STRIDE: usize = 16;
// A chunk keeps the indexes of segments in two bytes.
const _: () = assert!(SEGMENTS_MAX <= 1 << 16);
/// Bytes of the prefix that a chunk keeps at most, for each record.
pub(super) const PREFIX_BYTES_A_RECORD: usize = 2;
/// Most records with equal heads that are sorted by comparing their keys.
const COMPARED_MAX: usize = 8;
/// Heads behind one another at which keys are read, before they are compared as a whole.
const LEVELS_MAX: u32 = 32;
/// Keys whose reading takes as long as writing a record.
const READS_OF_A_WRITE: u32 = 4;

/// Records in the order of their keys.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Prefix of all keys.
    prefix: Vec<u8>,
    /// Heads of the records whose numbers are multiples of the stride.
    heads: Vec<u64>,
    /// Indexes of segments, and offsets in them.
    segments: Vec<u16>,
    offsets: Vec<u32>,
}

/// Chunks of a part of the log, and the position behind it.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) chunks: Vec<(KvsId, Chunk)>,
    pub(super) end: Position,
}

/// A record that is being sorted.
#[derive(Debug, Clone, Copy)]
struct Sorting {
    head: u64,
    word: u64,
}

/// Records of a `Kvs` that are being sorted.
#[derive(Default)]
struct SortingKvs {
    first: Vec<u8>,
    all: Vec<Sorting>,
    /// Bytes that the keys so far have in common, behind which heads begin, and the number of the
    /// first record for which that is so. The bytes become fewer.
    commons: Vec<(usize, usize)>,
}

impl Chunk {
    /// Creates an empty chunk for so many records, whose keys all begin with `prefix`.
    pub(super) fn new(prefix: Vec<u8>, records: usize) -> Chunk {
        Chunk {
            prefix,
            heads: Vec::with_capacity(records.div_ceil(STRIDE)),
            segments: Vec::with_capacity(records),
            offsets: Vec::with_capacity(records),
        }
    }

    /// Adds the record that comes next in the order of keys.
    pub(super) fn push(&mut self, head: u64, word: u64) {
        if self.offsets.len().is_multiple_of(STRIDE) {
            self.heads.push(head);
        }
        self.segments.push((word >> 32) as u16);
        self.offsets.push(word as u32);
    }

    /// Returns the prefix of all keys.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the number of records.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns the bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        (size_of::<Chunk>() + 8 * self.heads.len() + 6 * self.len() + self.prefix.len()) as u64
    }

    /// Returns the place of a record.
    pub(super) fn word(&self, at: usize) -> Option<u64> {
        let (segment, offset) = (self.segments.get(at)?, self.offsets.get(at)?);
        Some(u64::from(*segment) << 32 | u64::from(*offset))
    }

    /// Returns the number of records that come before a version of a key; with `is_past`, that
    /// version itself counts too.
    pub(super) fn count_before(
        &self,
        segments: &Segments,
        (key, sequence): (&[u8], Sequence),
        is_past: bool,
    ) -> Result<usize, StoreError> {
        let Some(rest) = key.strip_prefix(self.prefix.as_slice()) else {
            return Ok(if key < self.prefix.as_slice() { 0 } else { self.len() });
        };
        let head = head_of(rest);
        let first = self.heads.partition_point(|it| *it < head);
        let equal = self.heads.get(first..).unwrap_or_default().partition_point(|it| *it == head);
        // The record of the head before may be less, and so may be those behind it.
        let mut from = first.checked_sub(1).map_or(0, |before| before * STRIDE + 1);
        let mut to = ((first + equal) * STRIDE).min(self.len());
        let mut own = Vec::new();
        while from < to {
            let middle = from.midpoint(to);
            let word = self.word(middle).unwrap_or_default();
            let number = read_key(segments, word, &mut own)?;
            let is_before = match own.as_slice().cmp(key).then(sequence.cmp(&number)) {
                Ordering::Less => true,
                Ordering::Equal => is_past,
                Ordering::Greater => false,
            };
            if is_before {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(from)
    }
}

/// Sorts at most [`RECORDS_A_CHUNK`] records from a position on, up to `last`, which is published.
/// It calls `give_way` now and then.
///
/// # Errors
/// Fails if a record is damaged.
pub(super) fn sort(
    segments: &Segments,
    mut at: Position,
    last: Sequence,
    give_way: &dyn Fn(),
) -> Result<Batch, StoreError> {
    let mut reads = 0;
    let mut step = || {
        reads += 1;
        if reads == READS_OF_A_WRITE {
            reads = 0;
            give_way();
        }
    };
    let (mut kvs, mut key) = (BTreeMap::<KvsId, SortingKvs>::new(), Vec::new());
    let end = at.next.0 + RECORDS_A_CHUNK as u64;
    let last = last.min(Sequence(end - 1));
    while let Some((word, segment, header)) = segments.next(&mut at, last)? {
        step();
        if header.kind == Kind::RangeDelete {
            continue;
        }
        key.clear();
        let from = u64::from(word as u32) + HEADER_BYTES as u64;
        segment.read(from, header.key_bytes as usize, &mut key)?;
        kvs.entry(header.kvs).or_default().add(&key, word);
    }
    let chunks = kvs.into_iter().map(|(kvs, it)| Ok((kvs, it.sort(segments, &mut step)?)));
    Ok(Batch { chunks: chunks.collect::<Result<_, StoreError>>()?, end: at })
}

impl SortingKvs {
    fn add(&mut self, key: &[u8], word: u64) {
        let common = match self.commons.last() {
            Some((common, _)) => common_prefix(&self.first, key).min(*common),
            None => {
                self.first = key.to_vec();
                key.len()
            }
        };
        if self.commons.last().is_none_or(|(before, _)| common < *before) {
            self.commons.push((common, self.all.len()));
        }
        self.all.push(Sorting { head: head_of(key.get(common..).unwrap_or_default()), word });
    }

    /// Lets all heads begin behind bytes that all keys have in common. Returns their number.
    fn settle(&mut self) -> usize {
        let common = self.commons.last().map_or(0, |(common, _)| *common);
        // A few records must not cost the memory of a long key.
        let common = common.min(PREFIX_BYTES_A_RECORD * self.all.len());
        let ends = self.commons.iter().skip(1).map(|(_, first)| *first).chain([self.all.len()]);
        for ((before, from), to) in self.commons.iter().zip(ends) {
            let between = self.first.get(common..*before).unwrap_or_default();
            for sorting in self.all.get_mut(*from..to).unwrap_or_default() {
                sorting.head = head_with(between, sorting.head);
            }
        }
        common
    }

    fn sort(mut self, segments: &Segments, step: &mut dyn FnMut()) -> Result<Chunk, StoreError> {
        let common = self.settle();
        // Numbers alone are sorted several times faster.
        self.all.sort_unstable_by_key(|sorting| sorting.head);
        for equal in self.all.chunk_by_mut(|one, two| one.head == two.head) {
            sort_equal(segments, equal, LEVELS_MAX, step)?;
        }
        self.first.truncate(common);
        let mut chunk = Chunk::new(self.first, self.all.len());
        self.all.into_iter().for_each(|it| chunk.push(it.head, it.word));
        Ok(chunk)
    }
}

/// Sorts records whose heads are equal, by heads behind all bytes that their keys have in common.
fn sort_equal(
    segments: &Segments,
    equal: &mut [Sorting],
    levels: u32,
    step: &mut dyn FnMut(),
) -> Result<(), StoreError> {
    let Some(Sorting { head, word }) = equal.first().copied() else { return Ok(()) };
    if equal.len() <= COMPARED_MAX || levels == 0 {
        return sort_by_keys(segments, equal, step);
    }
    let (mut first, mut key) = (Vec::new(), Vec::new());
    read_key(segments, word, &mut first)?;
    let (mut common, mut longest) = (first.len(), first.len());
    for sorting in equal.iter() {
        step();
        read_key(segments, sorting.word, &mut key)?;
        common = common_prefix(&first, &key).min(common);
        longest = longest.max(key.len());
    }
    let is_one_key = longest == common;
    for sorting in equal.iter_mut() {
        step();
        let sequence = read_key(segments, sorting.word, &mut key)?;
        let rest = key.get(common..).unwrap_or_default();
        sorting.head = if is_one_key { !sequence.0 } else { head_of(rest) };
    }
    equal.sort_unstable_by_key(|sorting| sorting.head);
    // Heads do not tell a key from that key with zeros behind it.
    let differ = equal.first().map(|it| it.head) != equal.last().map(|it| it.head);
    let levels = if differ { levels - 1 } else { 0 };
    for equal in equal.chunk_by_mut(|one, two| one.head == two.head) {
        sort_equal(segments, equal, levels, step)?;
    }
    equal.iter_mut().for_each(|sorting| sorting.head = head);
    Ok(())
}

fn sort_by_keys(
    segments: &Segments,
    all: &mut [Sorting],
    step: &mut dyn FnMut(),
) -> Result<(), StoreError> {
    let (mut key, mut other) = (Vec::new(), Vec::new());
    let mut failed = None;
    all.sort_unstable_by(|one, two| {
        step();
        let order = compare(segments, one.word, two.word, (&mut key, &mut other));
        order.unwrap_or_else(|error| {
            failed = Some(error);
            Ordering::Equal
        })
    });
    failed.map_or(Ok(()), Err)
}

/// Returns the head of a key that has these bytes in front of those of another head.
fn head_with(between: &[u8], head: u64) -> u64 {
    match between.len() {
        0 => head,
        len @ 1..8 => head_of(between) | head >> (8 * len),
        _ => head_of(between),
    }
}

/// Reads the key of a record, and returns its number.
pub(super) fn read_key(
    segments: &Segments,
    word: u64,
    key: &mut Vec<u8>,
) -> Result<Sequence, StoreError> {
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
