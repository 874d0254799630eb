//! A transaction's own writes to a `Kvs`, and the state that they give to its keys.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use entresol_base::Seconds;

use crate::memtable::range_deletes::Prefixes;
use crate::segment::record::{Draft, HEADER_BYTES, Kind};
use crate::types::{Expiry, KvsId, Sequence};

/// A transaction's writes to single keys of a `Kvs`.
pub(crate) type OwnWrites = BTreeMap<Vec<u8>, OwnWrite>;

/// A write that is not committed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnWrite {
    /// The new value; `None` deletes the key.
    pub(crate) value: Option<Vec<u8>>,
    /// Time to live of the value, from the commit on.
    pub(crate) seconds: Option<u32>,
    /// Time at which the value expires for the transaction itself.
    pub(crate) expiry: Expiry,
}

/// A transaction's writes to a `Kvs`.
///
/// A range delete drops the earlier writes to its keys, so those that are left are later than any
/// range delete. On commit, all range deletes may therefore come first, in any order.
#[derive(Debug, Default)]
pub(crate) struct OwnKvs {
    writes: Arc<OwnWrites>,
    /// Prefixes of range deletes, none of which begins with another.
    prefixes: BTreeSet<Vec<u8>>,
}

/// State that a transaction itself gives to a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OwnAnswer<'a> {
    /// The last write to the key.
    Write(&'a OwnWrite),
    /// The key was deleted by a range delete.
    Gone,
}

impl OwnWrite {
    /// Returns about as many bytes as the write takes in memory.
    fn bytes(&self, key: &[u8]) -> u64 {
        (key.len() + self.value.as_ref().map_or(0, Vec::len) + HEADER_BYTES + 4) as u64
    }

    pub(crate) fn is_over(&self, now: Seconds) -> bool {
        self.expiry.is_over(now)
    }

    fn draft<'a>(
        &'a self,
        kvs: KvsId,
        key: &'a [u8],
        expiry: impl Fn(Option<u32>) -> Expiry,
    ) -> Draft<'a> {
        match &self.value {
            Some(value) => Draft::put(kvs, key, value, expiry(self.seconds)),
            None => Draft::gone(kvs, Kind::Gone, key),
        }
    }
}

fn from_on(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(key), Bound::Unbounded)
}

fn bytes_of_prefix(prefix: &[u8]) -> u64 {
    (prefix.len() + HEADER_BYTES + 4) as u64
}

impl OwnKvs {
    /// Returns the bytes by which memory grows when a write replaces an earlier one of its key. The
    /// result is negative if it shrinks.
    pub(crate) fn growth(&self, key: &[u8], write: &OwnWrite) -> i64 {
        let before = self.writes.get(key).map_or(0, |before| before.bytes(key));
        write.bytes(key) as i64 - before as i64
    }

    /// Adds a write to a key.
    pub(crate) fn write(&mut self, key: &[u8], write: OwnWrite) {
        Arc::make_mut(&mut self.writes).insert(key.to_vec(), write);
    }

    /// Returns the bytes by which memory grows when a range delete replaces the writes that it
    /// covers. The result is negative if it shrinks.
    pub(crate) fn growth_by_prefix(&self, prefix: &[u8]) -> i64 {
        let own = if self.covers(prefix) { 0 } else { bytes_of_prefix(prefix) as i64 };
        let writes = self.writes_with(prefix).map(|(key, write)| write.bytes(key));
        let prefixes = self.prefixes_with(prefix).filter(|it| *it != prefix);
        let prefixes = prefixes.map(|it| bytes_of_prefix(it));
        own - writes.chain(prefixes).sum::<u64>() as i64
    }

    /// Deletes all keys with a prefix.
    pub(crate) fn delete_prefix(&mut self, prefix: &[u8]) {
        let writes: Vec<Vec<u8>> = self.writes_with(prefix).map(|(key, _)| key.clone()).collect();
        if !writes.is_empty() {
            let own = Arc::make_mut(&mut self.writes);
            for key in &writes {
                own.remove(key);
            }
        }
        if self.covers(prefix) {
            return;
        }
        let longer: Vec<Vec<u8>> = self.prefixes_with(prefix).cloned().collect();
        for longer in &longer {
            self.prefixes.remove(longer);
        }
        self.prefixes.insert(prefix.to_vec());
    }

    fn writes_with<'a>(
        &'a self,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a OwnWrite)> {
        let from = self.writes.range::<[u8], _>(from_on(prefix));
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }

    fn prefixes_with<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a Vec<u8>> {
        let from = self.prefixes.range::<[u8], _>(from_on(prefix));
        from.take_while(move |it| it.starts_with(prefix))
    }

    /// Returns true if a range delete covers a key, or all keys with a prefix.
    fn covers(&self, key: &[u8]) -> bool {
        // A prefix of the key sorts before it. Every prefix in between would begin with that one,
        // which the set rules out.
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let before = self.prefixes.range::<[u8], _>(up_to).next_back();
        before.is_some_and(|prefix| key.starts_with(prefix))
    }

    /// Returns the state that the transaction gives to a key, if any.
    pub(crate) fn said_of(&self, key: &[u8]) -> Option<OwnAnswer<'_>> {
        match self.writes.get(key) {
            Some(write) => Some(OwnAnswer::Write(write)),
            None => self.covers(key).then_some(OwnAnswer::Gone),
        }
    }

    /// Returns the writes to single keys.
    pub(crate) fn writes(&self) -> Arc<OwnWrites> {
        self.writes.clone()
    }

    /// Returns the range deletes, numbered as later than every published write.
    pub(crate) fn range_deletes(&self) -> Option<Arc<Prefixes>> {
        let all = self.prefixes.iter().map(|prefix| (prefix.clone(), Sequence::MAX));
        (!self.prefixes.is_empty()).then(|| Arc::new(Prefixes::of(all)))
    }

    /// Returns the drafts to commit. Range deletes come first: every write that is left is later.
    /// `expiry` computes when a value that is written now expires.
    pub(crate) fn drafts(
        &self,
        kvs: KvsId,
        expiry: impl Fn(Option<u32>) -> Expiry,
    ) -> impl Iterator<Item = Draft<'_>> {
        let prefixes = self.prefixes.iter();
        let prefixes = prefixes.map(move |prefix| Draft::gone(kvs, Kind::RangeDelete, prefix));
        let writes = self.writes.iter().map(move |(key, write)| write.draft(kvs, key, &expiry));
        prefixes.chain(writes)
    }
}

#[cfg(test)]
mod tests {
    use entresol_base::rng::Rng;

    use super::*;

    fn write(value: Option<u8>) -> OwnWrite {
        let value = value.map(|value| vec![value; usize::from(value)]);
        OwnWrite { value, seconds: None, expiry: Expiry::NEVER }
    }

    fn name(rng: &mut Rng) -> Vec<u8> {
        (0..1 + rng.below(4)).map(|_| [7, 8, 255][rng.below(3) as usize]).collect()
    }

    /// Applies writes and range deletes in random order, and compares with a list in which the last
    /// one counts. The bytes that were added up must match the bytes that are left.
    #[test]
    fn the_last_word_on_a_key_counts() {
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            let (mut own, mut bytes) = (OwnKvs::default(), 0_i64);
            let mut all: Vec<(Vec<u8>, Option<OwnWrite>)> = Vec::new();
            for number in 0..rng.below(30) as u8 {
                let name = name(&mut rng);
                if rng.one_in(4) {
                    bytes += own.growth_by_prefix(&name);
                    own.delete_prefix(&name);
                    all.push((name, None));
                } else {
                    let write = write((!rng.one_in(3)).then_some(number));
                    bytes += own.growth(&name, &write);
                    own.write(&name, write.clone());
                    all.push((name, Some(write)));
                }
            }
            for _ in 0..50 {
                let key = name(&mut rng);
                let last = all.iter().rev().find(|(name, write)| match write {
                    Some(_) => *name == key,
                    None => key.starts_with(name),
                });
                let expected = last.map(|(_, write)| match write {
                    Some(write) => OwnAnswer::Write(write),
                    None => OwnAnswer::Gone,
                });
                assert_eq!(own.said_of(&key), expected, "{key:?} of {all:?}");
                let covering = own.range_deletes();
                let covering = covering.and_then(|it| it.covering(&key, Sequence::MAX));
                assert_eq!(own.covers(&key), covering.is_some(), "{key:?} of {all:?}");
            }
            let left =
                own.drafts(KvsId(1), |_| Expiry::NEVER).map(|draft| draft.bytes() + 4).sum::<u64>();
            assert_eq!(bytes, left as i64, "{all:?}");
        }
    }
}
