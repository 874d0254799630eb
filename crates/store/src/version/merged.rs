//! A merged iterator over several sources, which shows the newest version of each key.

use std::cmp::Ordering;
use std::sync::Arc;

use entresol_index::Direction;

use super::source::Source;
use crate::StoreError;
use crate::cache::row::RowCache;
use crate::memtable::range_deletes::Prefixes;
use crate::types::{Expiry, KvsId, RecordPlace, Sequence, ValuePlace, Version};
use crate::version::view::View;

/// A source, and its range deletes.
pub(crate) type MergedPart = (Source, Option<Arc<Prefixes>>);

/// Merged iterator over sources, the newest first.
///
/// The sources are kept in the order of their current keys. A source that advances seldom moves far
/// back in this order, and the first eight bytes of its key mostly tell how far.
#[derive(Debug)]
pub(crate) struct Merged {
    parts: Vec<Ahead>,
    direction: Direction,
    at: Sequence,
    /// Parts that are not at their end, in the order of their keys. Of parts at the same key, the
    /// newest comes first.
    order: Vec<usize>,
    /// Number of parts at the front of `order` that are at the key that was taken last.
    taken: usize,
    /// The key that was taken last, once no part is at it any more.
    key: Vec<u8>,
    /// True if the value that was taken last was read from its record, which is in `record`.
    is_apart: bool,
    record: Vec<u8>,
    /// Index in the record at which the value begins.
    value_from: usize,
    /// True if any part has range deletes that are visible.
    any_deleted: bool,
}

/// A part, and the first bytes of its current key as a number that sorts in the direction of the
/// walk.
#[derive(Debug)]
struct Ahead {
    source: Source,
    prefixes: Option<Arc<Prefixes>>,
    head: u64,
}

/// Result of [`Merged::take`], beside the key and a value that lies beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenVersion {
    pub(crate) version: Version,
    /// True if a later range delete covers the key.
    pub(crate) is_deleted: bool,
}

impl TakenVersion {
    /// Result of [`Merged::take_simply`].
    pub(crate) const SIMPLE: TakenVersion = TakenVersion {
        version: Version { sequence: Sequence(0), expiry: Expiry::NEVER, value: ValuePlace::Here },
        is_deleted: false,
    };
}

impl Default for Merged {
    fn default() -> Merged {
        Merged::new(Vec::new(), Direction::Forward, Sequence(0))
    }
}

impl Merged {
    /// Creates an iterator over parts as a reader at `at` sees them, not positioned yet.
    pub(crate) fn new(parts: Vec<MergedPart>, direction: Direction, at: Sequence) -> Merged {
        // Range deletes that come after `at` hide nothing that this iterator shows.
        let any = |part: &MergedPart| part.1.as_ref().is_some_and(|prefixes| prefixes.any());
        let ahead = |(source, prefixes)| Ahead { source, prefixes, head: 0 };
        Merged {
            any_deleted: parts.iter().any(any),
            order: Vec::with_capacity(parts.len()),
            parts: parts.into_iter().map(ahead).collect(),
            direction,
            at,
            taken: 0,
            key: Vec::new(),
            is_apart: false,
            record: Vec::new(),
            value_from: 0,
        }
    }

    /// Positions the iterator at the first key at or behind a bound in its direction, or at the
    /// first key of all.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub(crate) fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        self.taken = 0;
        self.order.clear();
        self.parts.iter_mut().try_for_each(|part| part.source.seek(bound))?;
        for number in (0..self.parts.len()).rev() {
            if self.look_ahead(number) {
                self.order.insert(0, number);
                self.put_in_order(0);
            }
        }
        Ok(())
    }

    /// Returns the key that was taken last.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.order.first() {
            Some(&first) if self.taken > 0 => self.parts[first].source.key().unwrap_or_default(),
            _ => &self.key,
        }
    }

    /// Returns the value of the key that was taken last.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self.order.first() {
            _ if self.is_apart => self.record.get(self.value_from..).unwrap_or_default(),
            Some(&first) => self.parts[first].source.value(),
            None => &[],
        }
    }

    /// Returns true if the version that was taken last comes from a run, not from a memtable.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        let first = self.order.first();
        first.is_some_and(|&first| self.parts[first].source.segment().is_none())
    }

    /// Looks for the value of a version of the current key in the row cache, for values that lie in
    /// records. Returns false if it is not there.
    pub(crate) fn find_value(&mut self, cache: &RowCache, kvs: KvsId, version: Sequence) -> bool {
        let Some(&first) = self.order.first() else { return false };
        let key = self.parts[first].source.key().unwrap_or_default();
        self.record.clear();
        self.value_from = 0;
        self.is_apart = cache.peek(&cache.name(kvs, key), version, &mut self.record);
        self.is_apart
    }

    /// Reads the value of the current key from its record.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the record is damaged or belongs to another key.
    pub(crate) fn read_value(
        &mut self,
        place: RecordPlace,
        view: &View,
        kvs: KvsId,
    ) -> Result<(), StoreError> {
        let Some(&first) = self.order.first() else { return Ok(()) };
        let source = &self.parts[first].source;
        let segment = match source.segment() {
            Some(segment) => segment,
            None => view.segment(place.segment)?,
        };
        let key = source.key().unwrap_or_default();
        self.record.clear();
        let value_bytes = segment.append_value_of(place, (kvs, key), &mut self.record)?;
        self.value_from = self.record.len() - value_bytes;
        self.is_apart = true;
        Ok(())
    }

    /// Reads the value of the current key from its record, and notices waits. Returns true if the
    /// read waited for a disk, and `None` if reads of this segment never wait.
    ///
    /// # Errors
    /// Fails as [`read_value`](Merged::read_value) does.
    #[inline(never)]
    pub(crate) fn read_and_look(
        &mut self,
        place: RecordPlace,
        view: &View,
        kvs: KvsId,
    ) -> Result<Option<bool>, StoreError> {
        let Some(&first) = self.order.first() else { return Ok(None) };
        let source = &self.parts[first].source;
        let segment = match source.segment() {
            Some(segment) => segment,
            None => view.segment(place.segment)?,
        };
        let (offset, bytes) = (segment.locate(place.offset)?, place.bytes as usize);
        self.record.clear();
        let is_read = segment.try_read(offset, bytes, &mut self.record);
        if !is_read {
            segment.read_begun(offset, bytes, &mut self.record)?;
        }
        let key = source.key().unwrap_or_default();
        let value_bytes = segment.value_in(place, (kvs, key), &self.record)?.len();
        self.value_from = self.record.len() - value_bytes;
        self.is_apart = true;
        Ok(segment.may_wait().then_some(!is_read))
    }

    /// Takes the next key if that is simple, as it mostly is. The key must follow the last one in
    /// the same source and come before those of all other sources. Its value must lie beside it and
    /// never expire, and there must be no range deletes. If it returns false, [`Merged::take`]
    /// takes the next key.
    #[inline]
    pub(crate) fn take_simply(&mut self) -> bool {
        let Some(&first) = self.order.first() else { return false };
        if self.taken != 1 || self.any_deleted {
            return false;
        }
        let behind = self.order.get(1).map_or(u64::MAX, |&second| self.parts[second].head);
        let part = &mut self.parts[first];
        let Some((head, is_simple)) = part.source.advance_simply() else { return false };
        part.head = head;
        self.is_apart = false;
        if is_simple && head < behind {
            return true;
        }
        // The source has advanced already.
        self.taken = 0;
        self.put_in_order(0);
        false
    }

    /// Takes the next key of all parts. Returns `None` at the end, and after an error.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub(crate) fn take(&mut self) -> Result<Option<TakenVersion>, StoreError> {
        self.is_apart = false;
        if let Err(error) = self.advance() {
            self.order.clear();
            return Err(error);
        }
        let Some(&first) = self.order.first() else { return Ok(None) };
        self.taken = 1;
        while let Some(&next) = self.order.get(self.taken)
            && self.parts[next].head == self.parts[first].head
            && self.parts[next].source.key() == self.parts[first].source.key()
        {
            self.taken += 1;
        }
        let gone = if self.any_deleted { self.gone(first) } else { Sequence(0) };
        match self.parts[first].source.version() {
            Some(version) => {
                Ok(Some(TakenVersion { version, is_deleted: version.sequence < gone }))
            }
            None => Err(StoreError::Internal { what: "a key has no version".to_owned() }),
        }
    }

    /// Returns the last range delete that covers the current key, in the parts up to and including
    /// `last`.
    fn gone(&self, last: usize) -> Sequence {
        let parts = self.parts[..=last].iter();
        let covering = parts.filter_map(|Ahead { source, prefixes, .. }| {
            // A transaction's own range deletes are later than every published write.
            let at = if matches!(source, Source::Own(_)) { Sequence::MAX } else { self.at };
            prefixes.as_ref()?.covering(self.key(), at)
        });
        covering.max().unwrap_or_default()
    }

    /// Advances all parts that are at the key that was taken last, if there is one.
    fn advance(&mut self) -> Result<(), StoreError> {
        if let (1.., Some(&first)) = (self.taken, self.order.first()) {
            self.key.clear();
            self.key.extend_from_slice(self.parts[first].source.key().unwrap_or_default());
        }
        while let Some(place) = self.taken.checked_sub(1) {
            self.taken = place;
            let number = self.order[place];
            self.parts[number].source.advance()?;
            if self.look_ahead(number) {
                self.put_in_order(place);
            } else {
                self.order.remove(place);
            }
        }
        Ok(())
    }

    /// Updates the head of a part's current key. Returns false at the end of the part.
    #[inline]
    fn look_ahead(&mut self, number: usize) -> bool {
        let part = &mut self.parts[number];
        let Some(head) = part.source.head() else { return false };
        part.head = match self.direction {
            Direction::Forward => head,
            Direction::Backward => !head,
        };
        true
    }

    /// Moves the part at `place` backward in `order` past all parts that come before it. The order
    /// behind `place` is correct already.
    #[inline]
    fn put_in_order(&mut self, mut place: usize) {
        while let Some(&next) = self.order.get(place + 1)
            && self.is_behind(self.order[place], next)
        {
            self.order.swap(place, place + 1);
            place += 1;
        }
    }

    /// Returns true if a part comes after another.
    #[inline]
    fn is_behind(&self, number: usize, other: usize) -> bool {
        let (one, two) = (&self.parts[number], &self.parts[other]);
        match one.head.cmp(&two.head) {
            Ordering::Equal => self.by_keys(number, other).is_gt(),
            unequal => unequal.is_gt(),
        }
    }

    #[inline(never)]
    fn by_keys(&self, number: usize, other: usize) -> Ordering {
        let (one, two) = (self.parts[number].source.key(), self.parts[other].source.key());
        let order = match self.direction {
            Direction::Forward => one.cmp(&two),
            Direction::Backward => two.cmp(&one),
        };
        order.then(number.cmp(&other))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use entresol_base::rng::Rng;

    use super::*;
    use crate::memtable::own::{OwnWrite, OwnWrites};

    fn key(number: u64) -> Vec<u8> {
        format!("{number:03}").into_bytes()
    }

    /// Merges sources with any overlap, from any position, in both directions, and compares with a
    /// map.
    #[test]
    fn of_each_key_the_newest_source_is_taken() {
        let mut rng = Rng::new(5);
        for _ in 0..300 {
            let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let (keys, dense) = (1 + rng.below(60), 1 + rng.below(4));
            let sources: Vec<OwnWrites> = (0..rng.below(5))
                .map(|source| {
                    let numbers = (0..keys).filter(|_| rng.below(dense) == 0);
                    let value = |number| format!("{source}/{number}").into_bytes();
                    let write = |number| OwnWrite {
                        value: Some(value(number)),
                        seconds: None,
                        expiry: Expiry::NEVER,
                    };
                    numbers.map(|number| (key(number), write(number))).collect()
                })
                .collect();
            for (key, write) in sources.iter().rev().flatten() {
                all.insert(key.clone(), write.value.clone().expect("a value"));
            }
            let from = key(rng.below(keys + 2));
            for direction in [Direction::Forward, Direction::Backward] {
                let source =
                    |own: &OwnWrites| (Source::own(Arc::new(own.clone()), direction), None);
                let parts = sources.iter().map(source).collect();
                let mut merged = Merged::new(parts, direction, Sequence::MAX);
                merged.seek(Some((&from, true))).expect("in memory");
                let mut taken = Vec::new();
                while merged.take().expect("in memory").is_some() {
                    taken.push((merged.key().to_vec(), merged.value().to_vec()));
                }
                let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
                let expected: Vec<_> = match direction {
                    Direction::Forward => all.range(from.clone()..).map(pair).collect(),
                    Direction::Backward => all.range(..=from.clone()).rev().map(pair).collect(),
                };
                assert_eq!(taken, expected);
            }
        }
    }
}
