//! Conflict detection: finds changes by other writers to the keys that a transaction writes.

use std::sync::Arc;

use entresol_index::Direction;

use crate::StoreError;
use crate::api::cursor::source::Source;
use crate::memtable::Generation;
use crate::memtable::range_deletes::Prefixes;
use crate::types::{KvsId, Sequence};
use crate::version::view::{View, ViewRun};
use crate::wal::record::{Draft, Kind};

/// A part of a view that may hold changes after a given write.
enum Part<'a> {
    MemtableSource(&'a Arc<Generation>),
    Run(&'a ViewRun),
}

impl View {
    /// Returns true if a write after `since` changed the key of a draft, or any key with its
    /// prefix. Deletes count as changes. `now` is the last published write.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub(super) fn was_changed(
        &self,
        draft: &Draft<'_>,
        since: Sequence,
        now: Sequence,
    ) -> Result<bool, StoreError> {
        if draft.kind == Kind::RangeDelete {
            return self.was_changed_within(draft.kvs, draft.key, since, now);
        }
        Ok(self.last_change(draft.kvs, draft.key, since)? > since)
    }

    /// Returns the parts that may hold changes after `since`, the newest first.
    fn parts_behind(&self, kvs: KvsId, since: Sequence) -> impl Iterator<Item = Part<'_>> {
        let closed = self.closed.iter().take_while(move |(_, last)| *last > since);
        // The active generation has no last write yet.
        let young = std::iter::once(&self.young).chain(closed.map(|(closed, _)| closed));
        let runs = self.runs.get(&kvs).into_iter().flat_map(|runs| runs.iter());
        let is_behind = move |it: &&ViewRun| it.run.summary().sequence_greatest > since;
        // Once a run has no writes after `since`, no older run has any.
        young.map(Part::MemtableSource).chain(runs.take_while(is_behind).map(Part::Run))
    }

    /// Returns the last write that changed a key if it comes after `since`, and otherwise some
    /// write that does not. Deletes count as changes.
    fn last_change(&self, kvs: KvsId, key: &[u8], since: Sequence) -> Result<Sequence, StoreError> {
        let mut gone = Sequence(0);
        let covering = |prefixes: &Prefixes| prefixes.covering(key, Sequence::MAX);
        for part in self.parts_behind(kvs, since) {
            let (covering, found) = match part {
                Part::MemtableSource(generation) => {
                    let prefixes = generation.prefixes(kvs);
                    let found = generation.find(kvs, key, Sequence::MAX)?;
                    (prefixes.and_then(|it| covering(&it)), found.map(|it| it.sequence))
                }
                Part::Run(flushed) => {
                    let found = flushed.run.get(key, Sequence::MAX)?;
                    (covering(&flushed.prefixes), found.map(|it| it.sequence()))
                }
            };
            gone = gone.max(covering.unwrap_or_default());
            if let Some(found) = found {
                return Ok(gone.max(found));
            }
        }
        Ok(gone)
    }

    /// Returns true if any key with a prefix was changed after `since`.
    fn was_changed_within(
        &self,
        kvs: KvsId,
        prefix: &[u8],
        since: Sequence,
        now: Sequence,
    ) -> Result<bool, StoreError> {
        if now <= since {
            return Ok(false);
        }
        for part in self.parts_behind(kvs, since) {
            let (prefixes, source) = match part {
                Part::MemtableSource(generation) => {
                    let source = Source::young(generation.clone(), kvs, now, Direction::Forward);
                    (generation.prefixes(kvs), source)
                }
                Part::Run(flushed) => {
                    (Some(flushed.prefixes.clone()), Source::run(&flushed.run, Direction::Forward))
                }
            };
            if prefixes.is_some_and(|it| it.concerns(prefix, since))
                || has_newer(source, prefix, since)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns true if a source has a version after `since` of a key with a prefix.
fn has_newer(mut source: Source, prefix: &[u8], since: Sequence) -> Result<bool, StoreError> {
    source.seek(Some((prefix, true)))?;
    while source.key().is_some_and(|key| key.starts_with(prefix)) {
        if source.version().is_some_and(|version| version.sequence > since) {
            return Ok(true);
        }
        source.advance()?;
    }
    Ok(false)
}
