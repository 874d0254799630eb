//! Views: the generations and runs of a store at one moment. A reader that holds a view reads the
//! same data throughout, even if they are flushed, compacted or removed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use entresol_base::sync::{Mutex, RwLock};
use entresol_base::{Clock, Nanos, mutation_site};
use entresol_media::Directory;

use crate::StoreError;
use crate::cache::block::BlockCache;
use crate::cache::budget::Room;
use crate::manifest::RunState;
use crate::memtable::Generation;
use crate::memtable::range_deletes::Prefixes;
use crate::names;
use crate::run::{Run, RunSummary};
use crate::segment::Segment;
use crate::types::{KvsId, RecordPlace, RunNumber, SegmentNumber, Sequence, ValuePlace, Version};
use crate::version::ends::Ends;
use crate::version::sample::Sample;
use crate::volumes::Volumes;

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
    /// Times at which its values expire, as far as they are known.
    pub(crate) ends: Arc<Ends>,
    /// Sample of its keys; `None` if there is no bound of space, or an earlier process wrote it.
    pub(crate) sample: Option<Arc<Sample>>,
}

/// Newest view.
pub(crate) struct Current {
    view: RwLock<Arc<View>>,
    /// Earlier views that readers may still hold, and the times at which they were replaced.
    earlier: Mutex<Vec<(Weak<View>, Nanos)>>,
    clock: Arc<dyn Clock>,
    /// Memory budget, which learns the size of the runs.
    room: Arc<Room>,
    /// Volumes, which learn how much a compaction takes.
    volumes: Arc<Volumes>,
}

/// Files that earlier views hold, and the newest one does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Segments of the newest view that an earlier one holds as well.
    pub(crate) segments: BTreeSet<SegmentNumber>,
    /// Number of earlier views.
    pub(crate) views: u64,
    /// Bytes of files that only earlier views hold.
    pub(crate) file_bytes: u64,
    /// Bytes of memory that only earlier views hold.
    pub(crate) memory_bytes: u64,
    /// Time at which the oldest of them was replaced.
    pub(crate) since: Option<Nanos>,
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
        ViewRun { run, prefixes: Arc::new(prefixes), ends: Arc::default(), sample: None }
    }

    /// Sets the times at which its values expire, and the sample of its keys.
    pub(crate) fn with(self, ends: Ends, sample: Sample) -> ViewRun {
        ViewRun { ends: Arc::new(ends), sample: Some(Arc::new(sample)), ..self }
    }

    /// Returns a copy of the run in another file.
    pub(crate) fn moved_to(&self, moved: ViewRun) -> ViewRun {
        ViewRun { ends: self.ends.clone(), sample: self.sample.clone(), ..moved }
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

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Current {
    pub(crate) fn new(
        view: View,
        clock: Arc<dyn Clock>,
        room: &Arc<Room>,
        volumes: &Arc<Volumes>,
    ) -> Current {
        room.set_runs(view.run_bytes());
        volumes.set_merging(view.runs_of_each());
        Current {
            view: RwLock::new(Arc::new(view)),
            earlier: Mutex::default(),
            clock,
            room: Arc::clone(room),
            volumes: Arc::clone(volumes),
        }
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
        if !view.has_runs_of(&current) {
            view.assert_newest_first();
            self.volumes.set_merging(view.runs_of_each());
        }
        let before = std::mem::replace(&mut *current, Arc::new(view));
        drop(current);
        {
            let mut earlier = self.earlier.lock();
            earlier.retain(|(view, _)| view.strong_count() > 0);
            earlier.push((Arc::downgrade(&before), self.clock.now()));
        }
        // Parts that only the old view had are dropped after the lock is released.
        drop(before);
    }

    /// Returns what readers hold of earlier views.
    pub(crate) fn held(&self) -> Held {
        let now = self.get();
        let earlier: Vec<_> = {
            let mut earlier = self.earlier.lock();
            earlier.retain(|(view, _)| view.strong_count() > 0);
            earlier.iter().filter_map(|(view, since)| Some((view.upgrade()?, *since))).collect()
        };
        let mut held = Held { views: earlier.len() as u64, ..Held::default() };
        held.since = earlier.iter().map(|(_, since)| *since).min();
        let mut counted = BTreeSet::new();
        let young = |view: &View| -> Vec<Arc<Segment>> {
            view.generations().flat_map(|it| it.segments().iter().cloned()).collect()
        };
        let kept: BTreeSet<SegmentNumber> = young(&now).iter().map(|it| it.number()).collect();
        let runs: BTreeSet<RunNumber> =
            now.runs.values().flat_map(|runs| runs.iter().map(ViewRun::number)).collect();
        let (mut runs_counted, mut generations) = (BTreeSet::new(), Vec::new());
        for (view, _) in &earlier {
            for segment in view.segments.values().chain(&young(view)) {
                let number = segment.number();
                match now.segments.get(&number) {
                    Some(of_now) if Arc::ptr_eq(of_now, segment) => {
                        held.segments.insert(number);
                    }
                    None if kept.contains(&number) => {}
                    // The file has no name any more, or one that another file has by now.
                    _ if counted.insert(Arc::as_ptr(segment)) => held.file_bytes += segment.len(),
                    _ => {}
                }
            }
            for run in view.runs.values().flat_map(|runs| runs.iter()) {
                if !runs.contains(&run.number()) && runs_counted.insert(run.number()) {
                    held.file_bytes += run.run.summary().file_bytes;
                }
            }
            for generation in view.generations() {
                let is_same = |other: &&Arc<Generation>| Arc::ptr_eq(other, generation);
                if !now.generations().any(|other| is_same(&other))
                    && !generations.iter().any(is_same)
                {
                    held.memory_bytes += generation.index_bytes();
                    generations.push(generation);
                }
            }
        }
        held
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

    /// Returns true if the runs are those of another view.
    fn has_runs_of(&self, other: &View) -> bool {
        let is_same = |((a, one), (b, other)): ((&KvsId, &Arc<_>), (&KvsId, &Arc<_>))| {
            a == b && Arc::ptr_eq(one, other)
        };
        self.runs.len() == other.runs.len() && self.runs.iter().zip(&other.runs).all(is_same)
    }

    /// Asserts that the runs of each `Kvs` lie newest first: a lookup ends at the first run that
    /// has its key. Runs of range deletes alone are left out, since one flush may write several.
    fn assert_newest_first(&self) {
        for (kvs, runs) in &self.runs {
            let of_entries = runs.iter().map(|run| run.run.summary()).filter(|it| it.entries > 0);
            let mut newer: Option<&RunSummary> = None;
            for run in of_entries {
                assert!(
                    newer.is_none_or(|newer| newer.sequence_least > run.sequence_greatest),
                    "a run of {kvs:?} with {newer:?} lies before one with {run:?}",
                );
                newer = Some(run);
            }
        }
    }

    /// Returns the latest write of the runs.
    pub(crate) fn newest_flushed(&self) -> Sequence {
        let runs = self.runs.values().flat_map(|runs| runs.iter());
        runs.map(|run| run.run.summary().sequence_greatest).max().unwrap_or_default()
    }

    /// Returns true if a run or a segment of the view lies in the file of this name.
    pub(crate) fn leads_to(&self, name: &str) -> bool {
        let run = names::run_number(name);
        let mut runs = self.runs.values().flat_map(|runs| runs.iter());
        let segment = names::segment_number(name);
        segment.is_some_and(|number| self.segments.contains_key(&number))
            || run.is_some_and(|number| runs.any(|run| run.number() == number))
    }

    /// Returns the runs of each `Kvs`, with their bytes.
    fn runs_of_each(&self) -> impl Iterator<Item = Vec<(RunNumber, u64)>> {
        let bytes = |run: &ViewRun| (run.number(), run.run.summary().file_bytes);
        self.runs.values().map(move |runs| runs.iter().map(bytes).collect())
    }

    /// Returns the bytes of all runs.
    fn run_bytes(&self) -> u64 {
        bytes_of(self.runs.values().flat_map(|runs| runs.iter()))
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
                let value = ValuePlace::of(found.value(), out);
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
                let value = found.value.map_or(ValuePlace::Gone, ValuePlace::Apart);
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

/// Returns the bytes of the files of runs.
pub(crate) fn bytes_of<'a>(runs: impl IntoIterator<Item = &'a ViewRun>) -> u64 {
    runs.into_iter().map(|run| run.run.summary().file_bytes).sum()
}
