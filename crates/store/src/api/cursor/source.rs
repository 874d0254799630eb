//! What a cursor compactions: the newest versions in one generation or run, in the order of their
//! keys.

use std::ops::{Bound, Range};
use std::sync::Arc;

use entresol_index::{Direction, Flow};

use crate::StoreError;
use crate::api::transaction::{Own, OwnWrite};
use crate::bytes::head_of;
use crate::memtable::{Found, Generation};
use crate::run::{self, Next, Run};
use crate::segment::Segment;
use crate::types::{KvsId, Sequence, ValuePlace, Version};

/// So many records are taken from an index at first, and at most: twice as many each time, since
/// most walks end soon, and of several sources each has few of the keys.
const RECORDS_AT_FIRST: usize = 8;
const RECORDS_AT_ONCE: usize = 64;
/// For keys of so many bytes there is room at once.
const KEY_BYTES_USUAL: usize = 32;

/// Newest versions in the order of their keys.
#[derive(Debug)]
pub(crate) enum Source {
    Own(OfOwn),
    MemtableSource(MemtableSource),
    Run(OfRun),
}

/// What a transaction has written itself.
#[derive(Debug)]
pub(crate) struct OfOwn {
    own: Arc<Own>,
    direction: Direction,
    key: Option<Vec<u8>>,
}

/// What was written last. Records are taken several at a time: while the index is walked over they
/// are on their way from memory.
#[derive(Debug)]
pub(crate) struct MemtableSource {
    generation: Arc<Generation>,
    kvs: KvsId,
    at: Sequence,
    direction: Direction,
    /// How many records are taken next.
    at_once: usize,
    words: Vec<u64>,
    taken: Vec<Taken>,
    /// Which of them it is at.
    place: usize,
    /// The keys of those that were taken.
    keys: Vec<u8>,
    /// The key that was read last, and whether there is no more behind it.
    last: Vec<u8>,
    is_over: bool,
}

/// A version that was taken, the newest of its key.
#[derive(Debug)]
struct Taken {
    /// Where its key is.
    key: Range<usize>,
    found: Found,
    /// Where its record is.
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

    /// Runs have one version of a key, and views none that are too new.
    pub(crate) fn run(run: &Arc<Run>, direction: Direction) -> Source {
        Source::Run(OfRun { cursor: run.cursor(), direction })
    }

    /// A run that is merged into another.
    pub(crate) fn merged_run(run: &Arc<Run>) -> Source {
        let (cursor, direction) = (run.cursor_for_compaction(), Direction::Forward);
        Source::Run(OfRun { cursor, direction })
    }

    /// Sets it to the first key at or behind a bound, in its direction; without one to the first.
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

    /// The key that it is at; none at the end.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Own(own) => own.key.as_deref(),
            Source::MemtableSource(young) => young.key(),
            Source::Run(run) => run.cursor.key(),
        }
    }

    /// The first eight bytes of that key, as [`head_of`] says.
    #[inline]
    pub(crate) fn head(&self) -> Option<u64> {
        match self {
            Source::Run(run) => run.cursor.head(),
            _ => self.key().map(head_of),
        }
    }

    /// The newest version of that key.
    #[inline]
    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Source::Own(own) => own.version(),
            Source::MemtableSource(young) => {
                young.taken.get(young.place).map(|Taken { found, .. }| Version {
                    sequence: found.sequence,
                    expiry: found.expiry,
                    value: found.value.map_or(ValuePlace::Gone, ValuePlace::Apart),
                })
            }
            Source::Run(run) => run.cursor.version(),
        }
    }

    /// Its value, if that lies beside the key.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Source::Own(own) => own.write().and_then(|write| write.value.as_deref()),
            Source::MemtableSource(_) => None,
            Source::Run(run) => run.cursor.value(),
        }
        .unwrap_or_default()
    }

    /// The segment that its value lies in, if the source knows that.
    pub(crate) fn segment(&self) -> Option<&Segment> {
        let Source::MemtableSource(young) = self else { return None };
        let Taken { word, .. } = young.taken.get(young.place)?;
        young.generation.segment((word >> 32) as u32).ok()
    }

    /// Goes on to the next key if that costs next to nothing, and answers its head, and whether it
    /// has a value beside it, for ever. Otherwise the source stays where it is.
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

    /// Goes on to the next key.
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

    /// Newer than all that counts.
    fn version(&self) -> Option<Version> {
        let write = self.write()?;
        let value = if write.value.is_some() { ValuePlace::Here } else { ValuePlace::Gone };
        Some(Version { sequence: Sequence::MAX, expiry: write.expiry, value })
    }
}

impl MemtableSource {
    fn key(&self) -> Option<&[u8]> {
        self.keys.get(self.taken.get(self.place)?.key.clone())
    }

    fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        self.at_once = RECORDS_AT_FIRST;
        // Of a key's versions the newest comes first.
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

    /// Takes more records until it is at a key, or there are no more.
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

    /// Takes records from a place on: of each key the newest that is not too new.
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
        // Forwards the newest of its versions has been met, unless it is too new.
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

    /// Takes a version of the key that was read last, unless there is a newer one.
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

    /// Takes the newest version of the key that was read last; the others are passed over then.
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
        // Of a key's versions the newest comes first.
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
