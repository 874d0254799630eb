//! What readers see: generations and runs, as they were at one time. Whoever holds a view reads
//! what it had, whatever is flushed, merged or removed meanwhile.

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
    /// The generation that is written to.
    pub(crate) young: Arc<Generation>,
    /// Those that are to be flushed, the newest first, each with its last write.
    pub(crate) closed: Vec<(Arc<Generation>, Sequence)>,
    /// The runs of each `Kvs`, the newest first.
    pub(crate) runs: BTreeMap<KvsId, Arc<Vec<ViewRun>>>,
    /// Flushed segments that values lie in.
    pub(crate) segments: Arc<BTreeMap<SegmentNumber, Arc<Segment>>>,
}

/// A run, and what is asked of it often.
#[derive(Debug, Clone)]
pub(crate) struct ViewRun {
    pub(crate) run: Arc<Run>,
    pub(crate) prefixes: Arc<Prefixes>,
}

/// The newest view.
#[derive(Debug)]
pub(crate) struct Current {
    view: RwLock<Arc<View>>,
    /// Is told how large the runs are.
    room: Arc<Room>,
}

/// A version that was found. Its value, if it lies beside its key, was appended to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
    pub(crate) value: Held,
}

/// Where the value of a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// In the buffer, or beside its key.
    Here,
    /// In a record.
    Apart(RecordPlace),
    /// Nowhere: the key is gone.
    Gone,
}

impl ViewRun {
    /// Opens a run.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is another one.
    pub(crate) fn open(
        directory: &Arc<dyn Directory>,
        state: RunState,
        pages: &Arc<BlockCache>,
    ) -> Result<ViewRun, StoreError> {
        let run = Run::open(directory, state.number(), pages)?;
        run.check_mark(state.mark)?;
        Ok(ViewRun::of(run))
    }

    /// A run that is open.
    pub(crate) fn of(run: Arc<Run>) -> ViewRun {
        let prefixes = run.range_deletes().iter();
        let prefixes = Prefixes::of(prefixes.map(|gone| (gone.prefix.to_vec(), gone.sequence)));
        ViewRun { run, prefixes: Arc::new(prefixes) }
    }

    /// Its number.
    pub(crate) fn number(&self) -> RunNumber {
        self.run.summary().number
    }

    /// What a manifest says of it.
    pub(crate) fn state(&self) -> RunState {
        let RunSummary { number, mark, .. } = *self.run.summary();
        RunState { run: number.0, mark }
    }
}

impl Held {
    /// Where a value is that a run has said, if who asks knows the run.
    pub(crate) fn at(value: Value<'_>) -> Held {
        match value {
            Value::Inline(_) => Held::Here,
            Value::Apart(place) => Held::Apart(place),
            Value::Gone => Held::Gone,
        }
    }

    /// Where a value is that a run has said; one beside its key is appended to `out`.
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

    /// The view of now.
    pub(crate) fn get(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// Changes it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut View)) {
        let mut current = self.view.write();
        let mut view = View::clone(&current);
        change(&mut view);
        self.room.set_runs(view.run_bytes());
        let before = std::mem::replace(&mut *current, Arc::new(view));
        drop(current);
        // What only it had is dropped without the lock.
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
    /// Adds segments that values lie in from now on.
    pub(crate) fn add_segments(&mut self, segments: impl IntoIterator<Item = Arc<Segment>>) {
        let all = Arc::make_mut(&mut self.segments);
        for segment in segments {
            let number = segment.number();
            let before = all.insert(number, segment);
            assert!(before.is_none(), "segment {} comes for the second time", number.0);
        }
    }

    /// The generations, the newest first.
    pub(crate) fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.young).chain(self.closed.iter().map(|(closed, _)| closed))
    }

    /// The bytes of all runs.
    fn run_bytes(&self) -> u64 {
        let runs = self.runs.values().flat_map(|runs| runs.iter());
        runs.map(|flushed| flushed.run.summary().file_bytes).sum()
    }

    /// The newest version of a key that is not above a sequence number, none if there is none or
    /// its prefix is gone since. A value beside its key is appended to `out`.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
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

    /// The newest version in the generations, and in `gone` the last removal of a prefix of the key
    /// that was met on the way.
    ///
    /// # Errors
    /// If what is read is damaged.
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

    /// The segment that a record lies in.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn segment(&self, number: SegmentNumber) -> Result<&Arc<Segment>, StoreError> {
        let flushed = self.segments.get(&number);
        let found = flushed.or_else(|| {
            let mut young = self.generations().flat_map(|it| it.segments().iter());
            young.find(|segment| segment.number() == number)
        });
        found.ok_or(StoreError::NoSegment { number: number.0 })
    }

    /// Appends the value of a key, which lies in a record, to `out`.
    ///
    /// # Errors
    /// If a disk fails, or the record is damaged or another key's.
    pub(crate) fn value(
        &self,
        place: RecordPlace,
        (kvs, key): (KvsId, &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let before = out.len();
        let value_bytes = self.segment(place.segment)?.append_value_of(place, (kvs, key), out)?;
        // The value ends the record, and all before it goes.
        out.drain(before..out.len() - value_bytes);
        Ok(())
    }
}
