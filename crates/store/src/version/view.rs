//! Views: the generations and runs of a store at one moment. A reader that holds a view reads the
//! same data throughout, even if they are flushed, compacted or removed meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_base::sync::RwLock;
use entresol_media::Directory;

use crate::StoreError;
use crate::cache::block::BlockCache;
use crate::cache::budget::Room;
use crate::memtable::Generation;
use crate::memtable::range_deletes::Prefixes;
use crate::run::{Run, RunSummary};
use crate::types::{Expiry, KvsId, RecordPlace, RunNumber, SegmentNumber, Sequence, Value};
use crate::version::manifest::RunState;
use crate::wal::segment::Segment;

/// All data of a store.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Generation that takes the writes.
    pub(crate) young: Arc<Generation>,
    /// Closed generations, the newest first, each with its last write.
    pub(crate) closed: Vec<(Arc<Generation>, Sequence)>,
    /// Runs of each `Kvs`, the newest first.
    pub(crate) runs: BTreeMap<KvsId, Arc<Vec<ViewRun>>>,
    /// Flushed segments that hold values.
    pub(crate) segments: Arc<BTreeMap<SegmentNumber, Arc<Segment>>>,
}

/// Run of a view, with its range deletes prepared for lookups.
#[derive(Debug, Clone)]
pub(crate) struct ViewRun {
    pub(crate) run: Arc<Run>,
    pub(crate) prefixes: Arc<Prefixes>,
}

/// Newest view.
#[derive(Debug)]
pub(crate) struct Current {
    view: RwLock<Arc<View>>,
    /// Memory budget, which learns the size of the runs.
    room: Arc<Room>,
}

/// Version of a key. A value that lay beside its key was appended to the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
    pub(crate) value: Held,
}

/// Position of a version's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// In the reader's buffer, or beside the key.
    Here,
    /// In a record of a segment.
    Apart(RecordPlace),
    /// Nowhere: the version is a tombstone.
    Gone,
}

impl ViewRun {
    /// Opens a run.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is damaged, or is not the run that `state` names.
    pub(crate) fn open(
        directory: &Arc<dyn Directory>,
        state: RunState,
        pages: &Arc<BlockCache>,
    ) -> Result<ViewRun, StoreError> {
        let run = Run::open(directory, state.number(), pages)?;
        run.check_mark(state.mark)?;
        Ok(ViewRun::of(run))
    }

    /// Wraps a run that is open.
    pub(crate) fn of(run: Arc<Run>) -> ViewRun {
        let prefixes = run.range_deletes().iter();
        let prefixes = Prefixes::of(prefixes.map(|gone| (gone.prefix.to_vec(), gone.sequence)));
        ViewRun { run, prefixes: Arc::new(prefixes) }
    }

    /// Returns the number of the run.
    pub(crate) fn number(&self) -> RunNumber {
        self.run.summary().number
    }

    /// Returns the run's entry in the manifest.
    pub(crate) fn state(&self) -> RunState {
        let RunSummary { number, mark, .. } = *self.run.summary();
        RunState { run: number.0, mark }
    }
}

impl Held {
    /// Returns the position of a value in a run, for a caller that has the run at hand.
    pub(crate) fn at(value: Value<'_>) -> Held {
        match value {
            Value::Inline(_) => Held::Here,
            Value::Apart(place) => Held::Apart(place),
            Value::Gone => Held::Gone,
        }
    }

    /// Returns the position of a value in a run. A value beside its key is appended to `out`.
    pub(crate) fn of(value: Value<'_>, out: &mut Vec<u8>) -> Held {
        if let Value::Inline(value) = value {
            out.extend_from_slice(value);
        }
        Held::at(value)
    }
}

impl Current {
    pub(crate) fn new(view: View, room: &Arc<Room>) -> Current {
        room.set_runs(view.run_bytes());
        Current { view: RwLock::new(Arc::new(view)), room: Arc::clone(room) }
    }

    /// Returns the newest view.
    pub(crate) fn get(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// Replaces the view by a changed one.
    pub(crate) fn change(&self, change: impl FnOnce(&mut View)) {
        let mut current = self.view.write();
        let mut view = View::clone(&current);
        change(&mut view);
        self.room.set_runs(view.run_bytes());
        let before = std::mem::replace(&mut *current, Arc::new(view));
        drop(current);
        // Parts that only the old view had are dropped after the lock is released.
        drop(before);
    }
}

impl Default for View {
    fn default() -> View {
        View {
            young: Arc::new(Generation::new(0, Sequence(1))),
            closed: Vec::new(),
            runs: BTreeMap::new(),
            segments: Arc::default(),
        }
    }
}

impl View {
    /// Adds segments that values now lie in.
    pub(crate) fn add_segments(&mut self, segments: impl IntoIterator<Item = Arc<Segment>>) {
        let all = Arc::make_mut(&mut self.segments);
        for segment in segments {
            let number = segment.number();
            let before = all.insert(number, segment);
            assert!(before.is_none(), "segment {} comes for the second time", number.0);
        }
    }

    /// Returns the generations, the newest first.
    pub(crate) fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.young).chain(self.closed.iter().map(|(closed, _)| closed))
    }

    /// Returns the bytes of all runs.
    fn run_bytes(&self) -> u64 {
        let runs = self.runs.values().flat_map(|runs| runs.iter());
        runs.map(|flushed| flushed.run.summary().file_bytes).sum()
    }

    /// Finds the newest version of a key up to a sequence number. Returns `None` if there is none,
    /// or if a later range delete covers it. A value beside its key is appended to `out`.
    ///
    /// # Errors
    /// Fails if a disk fails, or if data is damaged.
    pub(crate) fn find(
        &self,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
        out: &mut Vec<u8>,
    ) -> Result<Option<Version>, StoreError> {
        let mut gone = Sequence(0);
        if let Some(version) = self.find_in_memtables(kvs, key, at, &mut gone)? {
            let is_there = version.sequence >= gone
                || mutation_site!("a range delete hides versions in memtables");
            return Ok(is_there.then_some(version));
        }
        for flushed in self.runs.get(&kvs).into_iter().flat_map(|runs| runs.iter()) {
            gone = gone.max(flushed.prefixes.covering(key, at).unwrap_or_default());
            if let Some(found) = flushed.run.get(key, at)? {
                let value = Held::of(found.value(), out);
                let (sequence, expiry) = (found.sequence(), found.expiry());
                let version = Version { sequence, expiry, value };
                let is_there = version.sequence >= gone
                    || mutation_site!("a range delete hides versions in runs");
                return Ok(is_there.then_some(version));
            }
        }
        Ok(None)
    }

    /// Finds the newest version in the generations. Raises `gone` to the latest range delete of the
    /// key that the search met.
    ///
    /// # Errors
    /// Fails if data is damaged.
    pub(crate) fn find_in_memtables(
        &self,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
        gone: &mut Sequence,
    ) -> Result<Option<Version>, StoreError> {
        for generation in self.generations() {
            if let Some(prefixes) = generation.prefixes(kvs) {
                *gone = (*gone).max(prefixes.covering(key, at).unwrap_or_default());
            }
            if let Some(found) = generation.find(kvs, key, at)? {
                let value = found.value.map_or(Held::Gone, Held::Apart);
                let version = Version { sequence: found.sequence, expiry: found.expiry, value };
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    /// Returns the segment that a record lies in.
    ///
    /// # Errors
    /// Fails if there is no such segment.
    pub(crate) fn segment(&self, number: SegmentNumber) -> Result<&Arc<Segment>, StoreError> {
        let flushed = self.segments.get(&number);
        let found = flushed.or_else(|| {
            let mut young = self.generations().flat_map(|it| it.segments().iter());
            young.find(|segment| segment.number() == number)
        });
        found.ok_or(StoreError::NoSegment { number: number.0 })
    }

    /// Appends the value in a key's record to `out`.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the record is damaged or belongs to another key.
    pub(crate) fn value(
        &self,
        place: RecordPlace,
        (kvs, key): (KvsId, &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let before = out.len();
        let value_bytes = self.segment(place.segment)?.append_value_of(place, (kvs, key), out)?;
        // The value ends the record. Everything before it is cut out.
        out.drain(before..out.len() - value_bytes);
        Ok(())
    }
}
