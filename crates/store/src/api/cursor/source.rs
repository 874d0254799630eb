//! The sources that a cursor merges: the newest versions in one generation, run or transaction, in
//! the order of their keys.

use std::ops::{Bound, Range};
use std::sync::Arc;

use entresol_index::{Direction, Flow};

use crate::StoreError;
use crate::api::transaction::{Own, OwnWrite};
use crate::memtable::{Found, Generation};
use crate::run::format::bytes::head_of;
use crate::run::{self, Next, Run};
use crate::types::{KvsId, Sequence};
use crate::version::view::{Held, Version};
use crate::wal::segment::Segment;

/// Records that are taken from a memtable's index in the first step, and the most in any step. The
/// number doubles with each step: most walks end soon, and each of several sources has few of the
/// keys.
const RECORDS_AT_FIRST: usize = 8;
const RECORDS_AT_ONCE: usize = 64;
/// Length of keys for which room is reserved at once.
const KEY_BYTES_USUAL: usize = 32;

/// Newest versions in the order of their keys.
#[derive(Debug)]
pub(crate) enum Source {
    Own(OfOwn),
    MemtableSource(MemtableSource),
    Run(OfRun),
}

/// A transaction's own writes.
#[derive(Debug)]
pub(crate) struct OfOwn {
    own: Arc<Own>,
    direction: Direction,
    key: Option<Vec<u8>>,
}

/// A generation. Records are taken several at a time, so that the processor prefetches them while
/// the index is walked.
#[derive(Debug)]
pub(crate) struct MemtableSource {
    generation: Arc<Generation>,
    kvs: KvsId,
    at: Sequence,
    direction: Direction,
    /// Number of records to take in the next step.
    at_once: usize,
    words: Vec<u64>,
    taken: Vec<Taken>,
    /// Index of the current version in `taken`.
    place: usize,
    /// Keys of the versions in `taken`.
    keys: Vec<u8>,
    /// The key that was read last, and true if no record follows it.
    last: Vec<u8>,
    is_over: bool,
}

/// The newest version of a key.
#[derive(Debug)]
struct Taken {
    /// Position of its key in `keys`.
    key: Range<usize>,
    found: Found,
    /// Position of its record.
    word: u64,
}

#[derive(Debug)]
pub(crate) struct OfRun {
    cursor: run::Cursor,
    direction: Direction,
}

impl Source {
    pub(crate) fn own(own: Arc<Own>, direction: Direction) -> Source {
        Source::Own(OfOwn { own, direction, key: None })
    }

    pub(crate) fn young(
        generation: Arc<Generation>,
        kvs: KvsId,
        at: Sequence,
        direction: Direction,
    ) -> Source {
        Source::MemtableSource(MemtableSource {
            generation,
            kvs,
            at,
            direction,
            at_once: RECORDS_AT_FIRST,
            words: Vec::new(),
            taken: Vec::new(),
            place: 0,
            keys: Vec::new(),
            last: Vec::new(),
            is_over: true,
        })
    }

    /// Creates a source over a run for readers. A run has one version of a key, and a view has no
    /// run that is newer than its readers.
    pub(crate) fn run(run: &Arc<Run>, direction: Direction) -> Source {
        Source::Run(OfRun { cursor: run.cursor(), direction })
    }

    /// Creates a source over a run that is an input of a compaction.
    pub(crate) fn merged_run(run: &Arc<Run>) -> Source {
        let (cursor, direction) = (run.cursor_for_compaction(), Direction::Forward);
        Source::Run(OfRun { cursor, direction })
    }

    /// Positions the source at the first key at or behind a bound in its direction, or at the first
    /// key of all.
    pub(crate) fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        match self {
            Source::Own(own) => {
                own.seek(bound);
                Ok(())
            }
            Source::MemtableSource(young) => young.seek(bound),
            Source::Run(run) => run.seek(bound),
        }
    }

    /// Returns the current key, or `None` at the end.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Own(own) => own.key.as_deref(),
            Source::MemtableSource(young) => young.key(),
            Source::Run(run) => run.cursor.key(),
        }
    }

    /// Returns the first eight bytes of the current key as [`head_of`] computes them.
    #[inline]
    pub(crate) fn head(&self) -> Option<u64> {
        match self {
            Source::Run(run) => run.cursor.head(),
            _ => self.key().map(head_of),
        }
    }

    /// Returns the newest version of the current key.
    #[inline]
    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Source::Own(own) => own.version(),
            Source::MemtableSource(young) => {
                young.taken.get(young.place).map(|Taken { found, .. }| Version {
                    sequence: found.sequence,
                    expiry: found.expiry,
                    value: found.value.map_or(Held::Gone, Held::Apart),
                })
            }
            Source::Run(run) => run.cursor.version(),
        }
    }

    /// Returns the value of that version if it lies beside the key, and otherwise nothing.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Source::Own(own) => own.write().and_then(|write| write.value.as_deref()),
            Source::MemtableSource(_) => None,
            Source::Run(run) => run.cursor.value(),
        }
        .unwrap_or_default()
    }

    /// Returns the segment of that version's value if the source knows it.
    pub(crate) fn segment(&self) -> Option<&Segment> {
        let Source::MemtableSource(young) = self else { return None };
        let Taken { word, .. } = young.taken.get(young.place)?;
        young.generation.segment((word >> 32) as u32).ok()
    }

    /// Advances to the next key if that is nearly free. Returns the head of the key, and true if
    /// its value lies beside it and never expires. Otherwise the source stays where it is.
    #[inline]
    pub(crate) fn advance_simply(&mut self) -> Option<(u64, bool)> {
        match self {
            Source::Run(OfRun { cursor, direction: Direction::Forward }) => {
                let next = cursor.next_in_block()?;
                Some((cursor.head()?, next == Next::Simple))
            }
            _ => None,
        }
    }

    /// Advances to the next key.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<(), StoreError> {
        match self {
            Source::Own(own) => {
                own.advance();
                Ok(())
            }
            Source::MemtableSource(young) => young.advance(),
            Source::Run(run) => run.advance(),
        }
    }
}

impl OfOwn {
    fn seek(&mut self, bound: Option<(&[u8], bool)>) {
        let bound = match bound {
            None => Bound::Unbounded,
            Some((key, true)) => Bound::Included(key),
            Some((key, false)) => Bound::Excluded(key),
        };
        let keys = |range: (Bound<&[u8]>, Bound<&[u8]>)| self.own.range::<[u8], _>(range);
        let found = match self.direction {
            Direction::Forward => keys((bound, Bound::Unbounded)).next(),
            Direction::Backward => keys((Bound::Unbounded, bound)).next_back(),
        };
        self.key = found.map(|(key, _)| key.clone());
    }

    fn advance(&mut self) {
        if let Some(key) = self.key.take() {
            self.seek(Some((&key, false)));
        }
    }

    fn write(&self) -> Option<&OwnWrite> {
        self.own.get(self.key.as_deref()?)
    }

    /// Returns the version of the current key, numbered as later than every published write.
    fn version(&self) -> Option<Version> {
        let write = self.write()?;
        let value = if write.value.is_some() { Held::Here } else { Held::Gone };
        Some(Version { sequence: Sequence::MAX, expiry: write.expiry, value })
    }
}

impl MemtableSource {
    fn key(&self) -> Option<&[u8]> {
        self.keys.get(self.taken.get(self.place)?.key.clone())
    }

    fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        self.at_once = RECORDS_AT_FIRST;
        // The versions of a key are in descending order, the newest first.
        self.fill(match (bound, self.direction) {
            (None, _) => Bound::Unbounded,
            (Some((key, true)), Direction::Forward) => Bound::Included((key, Sequence::MAX)),
            (Some((key, false)), Direction::Forward) => Bound::Excluded((key, Sequence(0))),
            (Some((key, true)), Direction::Backward) => Bound::Included((key, Sequence(0))),
            (Some((key, false)), Direction::Backward) => Bound::Excluded((key, Sequence::MAX)),
        })?;
        self.fill_more()
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        self.place += 1;
        self.fill_more()
    }

    /// Takes more records until the source is at a key, or at its end.
    #[inline]
    fn fill_more(&mut self) -> Result<(), StoreError> {
        while self.place >= self.taken.len() && !self.is_over {
            let last = std::mem::take(&mut self.last);
            let versions_end = match self.direction {
                Direction::Forward => Sequence(0),
                Direction::Backward => Sequence::MAX,
            };
            self.fill(Bound::Excluded((&last, versions_end)))?;
        }
        Ok(())
    }

    /// Takes records from a position on: of each key the newest version that is not too new.
    fn fill(&mut self, from: Bound<(&[u8], Sequence)>) -> Result<(), StoreError> {
        let MemtableSource { generation, kvs, at, direction, at_once, words, is_over, .. } = self;
        (self.place, *is_over) = (0, true);
        self.taken.clear();
        self.taken.reserve(*at_once);
        self.keys.clear();
        self.keys.reserve(*at_once * KEY_BYTES_USUAL);
        self.last.reserve(KEY_BYTES_USUAL);
        words.clear();
        words.reserve(*at_once);
        generation.words(*kvs, *at, from, *direction, &mut |word| {
            if words.len() == *at_once {
                *is_over = false;
                return Flow::Stop;
            }
            generation.prefetch(word);
            words.push(word);
            Flow::On
        })?;
        *at_once = (2 * *at_once).min(RECORDS_AT_ONCE);
        for number in 0..self.words.len() {
            let word = self.words[number];
            let found = self.generation.record(word, &mut self.last)?;
            if found.sequence <= self.at {
                self.take(found, word);
            }
        }
        // A forward walk has met the newest version of its last key already, unless that one is too
        // new.
        let is_complete = self.direction == Direction::Forward
            && self
                .taken
                .last()
                .is_some_and(|it| self.keys.get(it.key.clone()) == Some(&self.last));
        if !self.is_over && !is_complete {
            self.complete_last()?;
        }
        Ok(())
    }

    /// Takes a version of the key that was read last, unless a newer one was taken.
    fn take(&mut self, found: Found, word: u64) {
        match self.taken.last_mut() {
            Some(taken) if self.keys.get(taken.key.clone()) == Some(&self.last) => {
                if self.direction == Direction::Backward {
                    (taken.found, taken.word) = (found, word);
                }
            }
            _ => {
                let from = self.keys.len();
                self.keys.extend_from_slice(&self.last);
                self.taken.push(Taken { key: from..self.keys.len(), found, word });
            }
        }
    }

    /// Takes the newest version of the key that was read last. The older ones are skipped then.
    fn complete_last(&mut self) -> Result<(), StoreError> {
        let newest = self.generation.find_older(self.kvs, &self.last, self.at)?;
        if let Some((found, word)) = newest {
            self.take(found, word);
        }
        Ok(())
    }
}

impl OfRun {
    fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        // The versions of a key are in descending order, the newest first.
        match (self.direction, bound) {
            (Direction::Forward, None) => self.cursor.seek_first()?,
            (Direction::Backward, None) => self.cursor.seek_last()?,
            (Direction::Forward, Some((key, true))) => {
                self.cursor.seek_first_at_or_after(key, Sequence::MAX)?
            }
            (Direction::Forward, Some((key, false))) => {
                self.cursor.seek_first_at_or_after(key, Sequence(0))?
            }
            (Direction::Backward, Some((key, true))) => {
                self.cursor.seek_last_before(key, Sequence(0))?
            }
            (Direction::Backward, Some((key, false))) => {
                self.cursor.seek_last_before(key, Sequence::MAX)?
            }
        };
        Ok(())
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        match self.direction {
            Direction::Forward => self.cursor.next()?,
            Direction::Backward => self.cursor.prev()?,
        };
        Ok(())
    }
}
