//! Merge of several chunks of a `Kvs`: their records in the order of keys, or in its reverse.
//!
//! Records lie scattered in the order of keys. So the headers and keys of a few records of each
//! chunk are read ahead, while the processor fetches the next ones.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::Segments;
use super::chunk::{Chunk, read_key};
use crate::StoreError;
use crate::bytes::{common_prefix, head_of};
use crate::segment::record::{HEADER_BYTES, Header};
use crate::types::Sequence;

/// Most records of a chunk that are read ahead, and bytes of their keys at which that ends.
const RECORDS_AHEAD: usize = 32;
const KEY_BYTES_AHEAD: usize = 2048;

/// A record that a merge comes to.
pub(crate) struct Merged<'m> {
    pub(crate) word: u64,
    pub(crate) header: Header,
    pub(crate) key: &'m [u8],
}

/// A walk over several chunks.
pub(super) struct Merge<'a> {
    segments: &'a Segments,
    is_backward: bool,
    /// Bytes that all keys begin with, behind which heads begin here.
    common: usize,
    walks: Vec<Walk>,
    /// First record of each walk that is not over, the one that comes next last.
    firsts: Vec<First>,
    /// Walk whose first record was passed on, and is not among them any more.
    passed: Option<usize>,
    other: Vec<u8>,
}

/// First record of a walk.
#[derive(Debug, Clone, Copy)]
struct First {
    /// The head of its key, inverted in a backward walk: the least comes next.
    rank: u64,
    walk: usize,
}

/// A walk over one chunk.
struct Walk {
    chunk: Arc<Chunk>,
    /// Records that are not read.
    rest: Range<usize>,
    /// Records that are read, and the number of those that were passed on.
    read: Vec<Read>,
    passed: usize,
    /// Keys of the records that are read.
    keys: Vec<u8>,
    /// Records to read ahead.
    ahead: usize,
}

/// A record that was read.
#[derive(Debug, Clone, Copy)]
struct Read {
    word: u64,
    header: Header,
    /// Beginning of its key among those of the walk.
    key: usize,
}

impl Walk {
    fn new(chunk: Arc<Chunk>, at: usize, is_backward: bool) -> Walk {
        let rest = if is_backward { 0..at } else { at..chunk.len() };
        Walk { chunk, rest, read: Vec::new(), passed: 0, keys: Vec::new(), ahead: 1 }
    }

    /// Returns the record that comes next, if it was read, and its key.
    fn first(&self) -> Option<(Read, &[u8])> {
        let read = *self.read.get(self.passed)?;
        Some((read, self.keys.get(read.key..read.key + read.header.key_bytes as usize)?))
    }

    /// Reads a few records if all that were read are passed on.
    fn read_on(&mut self, segments: &Segments, is_backward: bool) -> Result<(), StoreError> {
        if self.passed < self.read.len() {
            return Ok(());
        }
        self.read.clear();
        self.keys.clear();
        self.passed = 0;
        let count = self.ahead.min(self.rest.len());
        // A walk that goes on is a long one.
        self.ahead = RECORDS_AHEAD.min(2 * self.ahead);
        let Range { start, end } = self.rest;
        let word =
            |number| self.chunk.word(if is_backward { end - 1 - number } else { start + number });
        if count > 1 {
            (0..count).filter_map(word).for_each(|word| segments.prefetch(word));
        }
        for word in (0..count).map_while(word) {
            let (segment, offset, header) = segments.header(word)?;
            self.read.push(Read { word, header, key: self.keys.len() });
            let at = offset + HEADER_BYTES as u64;
            segment.read(at, header.key_bytes as usize, &mut self.keys)?;
            if self.keys.len() >= KEY_BYTES_AHEAD {
                break;
            }
        }
        let read = self.read.len();
        self.rest = if is_backward { start..end - read } else { start + read..end };
        Ok(())
    }
}

impl<'a> Merge<'a> {
    /// Begins a walk over chunks, each from the record with its number on, or from the one before.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(super) fn new(
        segments: &'a Segments,
        chunks: Vec<(Arc<Chunk>, usize)>,
        is_backward: bool,
    ) -> Result<Merge<'a>, StoreError> {
        let first = chunks.first().map(|(chunk, _)| chunk.prefix().to_vec()).unwrap_or_default();
        let common = chunks.iter().map(|(chunk, _)| common_prefix(&first, chunk.prefix())).min();
        let firsts = Vec::with_capacity(chunks.len());
        let walks = chunks.into_iter().map(|(chunk, at)| Walk::new(chunk, at, is_backward));
        let mut merge = Merge {
            segments,
            is_backward,
            common: common.unwrap_or_default(),
            walks: walks.collect(),
            firsts,
            passed: None,
            other: Vec::new(),
        };
        (0..merge.walks.len()).try_for_each(|walk| merge.place(walk))?;
        Ok(merge)
    }

    /// Puts the next record of a walk, if there is one, in its place among the first ones.
    fn place(&mut self, number: usize) -> Result<(), StoreError> {
        let Some(walk) = self.walks.get_mut(number) else { return Ok(()) };
        walk.read_on(self.segments, self.is_backward)?;
        let Some((first, key)) = walk.first() else { return Ok(()) };
        let head = head_of(key.get(self.common..).unwrap_or_default());
        let rank = if self.is_backward { !head } else { head };
        let at = self.firsts.partition_point(|it| it.rank > rank);
        let equal = self.firsts.get(at..).unwrap_or_default();
        let equal = equal.get(..equal.partition_point(|it| it.rank == rank)).unwrap_or_default();
        let walks = &self.walks;
        let is_later = |it: &First| {
            let other = walks.get(it.walk).and_then(Walk::first);
            let walk = walks.get(number).and_then(Walk::first);
            let (Some((other, others)), Some((_, key))) = (other, walk) else { return false };
            let order = in_order((others, other.header.sequence), (key, first.header.sequence));
            order.is_gt() != self.is_backward
        };
        let at = at + equal.partition_point(is_later);
        self.firsts.insert(at, First { rank, walk: number });
        Ok(())
    }

    /// Goes on behind the record that was passed on last.
    fn go_on(&mut self) -> Result<(), StoreError> {
        let Some(number) = self.passed.take() else { return Ok(()) };
        if let Some(walk) = self.walks.get_mut(number) {
            walk.passed += 1;
        }
        self.place(number)
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(super) fn next(&mut self) -> Result<Option<Merged<'_>>, StoreError> {
        self.go_on()?;
        let Some(First { walk, .. }) = self.firsts.pop() else { return Ok(None) };
        self.passed = Some(walk);
        let first = self.walks.get(walk).and_then(Walk::first);
        Ok(first.map(|(Read { word, header, .. }, key)| Merged { word, header, key }))
    }

    /// Returns true if the next record comes before another one.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(super) fn is_before(&mut self, word: u64) -> Result<bool, StoreError> {
        self.go_on()?;
        let first = self.firsts.last().and_then(|first| self.walks.get(first.walk)?.first());
        let Some((first, key)) = first else { return Ok(false) };
        let sequence = read_key(self.segments, word, &mut self.other)?;
        let order = in_order((key, first.header.sequence), (&self.other, sequence));
        Ok(order.is_lt() != self.is_backward)
    }
}

/// Compares two versions: of one key, the newer one comes first.
fn in_order((key, sequence): (&[u8], Sequence), (other, others): (&[u8], Sequence)) -> Ordering {
    key.cmp(other).then(others.cmp(&sequence))
}

/// Makes one chunk of several. Returns `None` if `goes_on`, which it calls for each record, returns
/// false.
///
/// # Errors
/// Fails if a record is damaged.
pub(super) fn merged(
    segments: &Segments,
    chunks: &[Arc<Chunk>],
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<Chunk>, StoreError> {
    let records = chunks.iter().map(|chunk| chunk.len()).sum();
    let all = chunks.iter().map(|chunk| (chunk.clone(), 0)).collect();
    let mut merge = Merge::new(segments, all, false)?;
    let common = merge.common;
    let prefix = chunks.first().and_then(|chunk| chunk.prefix().get(..common)).unwrap_or_default();
    let mut made = Chunk::new(prefix.to_vec(), records);
    while let Some(Merged { word, key, .. }) = merge.next()? {
        if !goes_on() {
            return Ok(None);
        }
        made.push(head_of(key.get(common..).unwrap_or_default()), word);
    }
    Ok(Some(made))
}
