//! Compaction: several runs of a `Kvs` become one, dead versions are dropped, and the values of
//! mostly dead segments are moved, which frees these segments.
//!
//! Compaction takes four or more neighbouring runs of like size, the newest among them. It takes
//! all runs once the newer ones together exceed what space amplification allows. Values in segments
//! stay where they are, except when all runs of a `Kvs` are compacted: that rewrites every version,
//! and can therefore move the values.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;
use entresol_index::Direction;

use crate::StoreError;
use crate::api::cursor::merged::{Merged, Taken};
use crate::api::cursor::source::Source;
use crate::api::kvdb::CompactProgress;
use crate::memtable::range_deletes;
use crate::memtable::range_deletes::Gone;
use crate::run::{self, RunWriter};
use crate::types::{Entry, Expiry, KvsId, SegmentNumber, Sequence, Value};
use crate::upkeep::charging::{Bill, Traffic};
use crate::upkeep::file_move::{FileMove, move_all_files};
use crate::upkeep::tiering::{Moves, Tiering, live_in};
use crate::version::core::{Core, live_segments};
use crate::version::manifest::{Manifest, RunState};
use crate::version::view::{Held, Version, View, ViewRun};
use crate::volumes;
use crate::volumes::What;
use crate::wal::segment;
use crate::wal::segment::Segment;
use ahead::{Ahead, Due};
use values::ValueWriter;

mod ahead;
pub(crate) mod values;

/// Number of runs of like size that triggers a compaction.
const LIKE_MIN: usize = 4;
/// Number of runs of a `Kvs` at which compaction stops waiting for its share of the medium.
const RUNS_URGENT: usize = 16;
/// Percentage of bytes live in a segment below which its values are moved.
const LIVE_PERCENT_MIN: u64 = 70;
/// Bytes dead that are not worth a compaction.
const DEAD_BYTES_MIN: u64 = 4 << 20;
/// Number of keys between calls of `go_on`.
const KEYS_BETWEEN_QUESTIONS: u64 = 256;

/// Planned compaction.
#[derive(Debug)]
struct Plan {
    kvs: KvsId,
    runs: Range<usize>,
    /// Segments whose values move.
    moved: Moves,
}

/// Unit of background work.
enum Task {
    Compaction(Plan),
    FileMove(Vec<FileMove>),
}

/// Does the most worthwhile compaction or file move. Returns false if there is none.
///
/// # Errors
/// Fails if a disk fails or has no room, or if data is damaged. Nothing has changed then.
pub(crate) fn compact_one(core: &Core) -> Result<bool, StoreError> {
    let _held = core.merging.lock();
    let view = core.current.get();
    core.look_at_read_frequency(&view);
    match task(core, &view) {
        Some(Task::Compaction(plan)) => merge(core, &view, &plan, &mut |_| true),
        Some(Task::FileMove(file_moves)) => move_all_files(core, &file_moves, &mut |_| true),
        None => Ok(false),
    }
}

impl From<Tiering> for Task {
    fn from(tiering: Tiering) -> Task {
        match tiering {
            Tiering::FileMoves(file_moves) => Task::FileMove(file_moves),
            Tiering::Compaction { kvs, runs, moves } => {
                Task::Compaction(Plan { kvs, runs, moved: moves })
            }
        }
    }
}

/// Compacts all runs of every `Kvs`, and frees dead space. Returns false if `progress` ended it
/// early.
///
/// # Errors
/// Fails if a disk fails or has no room, or if data is damaged.
pub(crate) fn compact_all(
    core: &Core,
    progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
) -> Result<bool, StoreError> {
    let _held = core.merging.lock();
    let first = core.current.get();
    let plans = core.compactable(&first).map(|(kvs, _)| plan_of_all(core, &first, *kvs));
    let plans: Vec<Plan> = plans.filter(|plan| plan.is_worth_it(core, &first)).collect();
    let bytes = plans.iter().map(|plan| plan.bytes(&first)).sum();
    let mut bytes_done = 0;
    for plan in plans {
        let view = core.current.get();
        let plan = plan_of_all(core, &view, plan.kvs);
        let of_plan = plan.bytes(&view);
        let mut go_on = |share: f64| {
            let bytes_done = bytes_done + (of_plan as f64 * share) as u64;
            progress(CompactProgress { bytes_done: bytes_done.min(bytes), bytes }).is_continue()
        };
        let plan = Some(plan).filter(|plan| plan.is_worth_it(core, &view));
        let plan = plan.and_then(|plan| plan.fitting(core, &view));
        if let Some(plan) = plan
            && !merge(core, &view, &plan, &mut go_on)?
        {
            return Ok(false);
        }
        bytes_done += of_plan;
    }
    age_all(core, CompactProgress { bytes_done: bytes, bytes }, progress)
}

/// Moves data that lies on classes its policy does not allow to classes with room. The moved bytes
/// are added to the progress so far.
fn age_all(
    core: &Core,
    mut so_far: CompactProgress,
    progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
) -> Result<bool, StoreError> {
    loop {
        let view = core.current.get();
        let task = core.misplaced_now(&view).map(Task::from);
        let Some(task) = task.and_then(|task| task.fitting(core, &view)) else { break };
        let mut go_on = |bytes: u64| {
            so_far = CompactProgress {
                bytes_done: so_far.bytes_done + bytes,
                bytes: so_far.bytes + bytes,
            };
            progress(so_far).is_continue()
        };
        let is_done = match task {
            Task::Compaction(plan) => merge(core, &view, &plan, &mut |_| go_on(0))?,
            Task::FileMove(file_moves) => move_all_files(core, &file_moves, &mut go_on)?,
        };
        if !is_done {
            return Ok(false);
        }
    }
    Ok(progress(so_far).is_continue())
}

fn plan_of_all(core: &Core, view: &View, kvs: KvsId) -> Plan {
    let runs = view.runs.get(&kvs).map_or(0, |runs| runs.len());
    Plan { kvs, runs: 0..runs, moved: moves_of_all(core, view, kvs) }
}

/// Returns the moves of a compaction of all runs: values of mostly dead segments, and values that
/// the policy does not leave where they are once they are aged.
fn moves_of_all(core: &Core, view: &View, kvs: KvsId) -> Moves {
    let Some((policy, _)) = core.policy(kvs) else { return Moves::new() };
    let dead = mostly_dead(view).into_iter();
    let mut moves: Moves =
        dead.map(|number| (number, core.move_of_garbage(&policy, number))).collect();
    let runs = view.runs.get(&kvs).map_or(&[][..], |runs| runs);
    moves.extend(core.moves_with_room(&policy, view, runs));
    moves
}

impl Task {
    /// Replaces a planned compaction by one that fits.
    fn fitting(self, core: &Core, view: &View) -> Option<Task> {
        match self {
            Task::Compaction(plan) => plan.fitting(core, view).map(Task::Compaction),
            Task::FileMove(file_moves) => Some(Task::FileMove(file_moves)),
        }
    }
}

impl Plan {
    /// Returns the plan if one run can hold the range deletes that it keeps. Otherwise returns a
    /// plan for all runs, which keeps none, unless a transaction may still need them.
    fn fitting(self, core: &Core, view: &View) -> Option<Plan> {
        let all = view.runs.get(&self.kvs)?;
        let fits = |runs: &Range<usize>| {
            let has_oldest = runs.end == all.len();
            let old = &all[runs.clone()];
            has_oldest && !may_be_asked_for(core, old) || core.prefixes_for_runs(old).len() == 1
        };
        if fits(&self.runs) {
            return Some(self);
        }
        let mut whole = plan_of_all(core, view, self.kvs);
        whole.moved.extend(self.moved);
        fits(&whole.runs).then_some(whole)
    }

    /// Returns true if compacting all runs would change anything.
    fn is_worth_it(&self, core: &Core, view: &View) -> bool {
        let leads_there = || leads_to(view, self.kvs, &self.moved);
        let is_one_out_of_place = || {
            let (Some((policy, aged)), Some(runs)) =
                (core.policy(self.kvs), view.runs.get(&self.kvs))
            else {
                return false;
            };
            let is_young = runs.iter().any(|run| run.number() != aged);
            is_young && policy.aged_keys != policy.young_keys
        };
        self.runs.len() > 1 || self.runs.len() == 1 && (leads_there() || is_one_out_of_place())
    }

    /// Returns the bytes of the runs.
    fn bytes(&self, view: &View) -> u64 {
        let all = view.runs.get(&self.kvs).map_or(&[][..], |runs| runs);
        all[self.runs.clone()].iter().map(|run| run.run.summary().file_bytes).sum()
    }
}

impl Core {
    /// Returns the runs of each `Kvs` that may be compacted.
    pub(crate) fn compactable<'a>(
        &'a self,
        view: &'a View,
    ) -> impl Iterator<Item = (&'a KvsId, &'a Arc<Vec<ViewRun>>)> + Clone {
        let may_be = |kvs: &KvsId, runs: &Arc<Vec<ViewRun>>| {
            !runs.is_empty() && !self.unreadable.contains_key(kvs)
        };
        view.runs.iter().filter(move |(kvs, runs)| may_be(kvs, runs))
    }

    /// Splits the range deletes of runs into as many parts as they need runs.
    fn prefixes_for_runs(&self, runs: &[ViewRun]) -> Vec<Vec<Gone>> {
        let all = runs.iter().flat_map(|run| run.prefixes.all()).collect();
        range_deletes::for_runs(all, self.options.prefixes_per_run_max)
    }

    /// Records the percentage of versions that a compaction found overwritten.
    fn note_overwritten(&self, kvs: KvsId, old: &[ViewRun], left: u64) {
        let all: u64 = old.iter().map(|run| run.run.summary().entries).sum();
        let percent = all.saturating_sub(left) * 100 / all.max(1);
        let mut overwritten = self.overwritten.lock();
        let before = overwritten.entry(kvs).or_insert(percent);
        *before = (*before + percent) / 2;
    }
}

fn task(core: &Core, view: &View) -> Option<Task> {
    let amplification = core.options.space_amplification_max;
    let all = core.compactable(view);
    let mut sizes = all.clone().map(|(kvs, runs)| {
        (*kvs, runs.iter().map(|run| run.run.summary().file_bytes).collect::<Vec<_>>())
    });
    let by_size = sizes.find_map(|(kvs, sizes)| {
        let runs = window(&sizes, amplification)?;
        let is_all = runs.len() == sizes.len();
        let moved = if is_all { moves_of_all(core, view, kvs) } else { Moves::new() };
        Plan { kvs, runs, moved }.fitting(core, view)
    });
    if let Some(plan) = by_size {
        return Some(Task::Compaction(plan));
    }
    let tiering = core.tiering(view).map(Task::from);
    if let Some(task) = tiering.and_then(|task| task.fitting(core, view)) {
        return Some(task);
    }
    if !is_over_bound(view, amplification) {
        return None;
    }
    let dead = mostly_dead(view);
    let bytes_in = |runs: &[ViewRun]| live_in(runs, |number| dead.contains(&number));
    let most = all.max_by_key(|(_, runs)| bytes_in(runs))?;
    let plan = (bytes_in(most.1) > 0).then(|| plan_of_all(core, view, *most.0));
    plan.and_then(|plan| plan.fitting(core, view)).map(Task::Compaction)
}

/// Returns true if more bytes are dead in the segments than space amplification allows.
fn is_over_bound(view: &View, amplification: f64) -> bool {
    let live: u64 = live_segments(view).values().sum();
    let held: u64 = view.segments.values().map(|segment| segment.len()).sum();
    held >= DEAD_BYTES_MIN + (live as f64 * amplification) as u64
}

/// Returns true if compaction must not wait for its share of the medium: too much is dead, or
/// readers have to search too many runs.
fn is_urgent(core: &Core) -> bool {
    let view = core.current.get();
    is_over_bound(&view, core.options.space_amplification_max)
        || view.runs.values().any(|runs| runs.len() >= RUNS_URGENT)
}

/// Chooses the runs to compact by their sizes, which are given newest first.
fn window(sizes: &[u64], amplification: f64) -> Option<Range<usize>> {
    let (oldest, newer) = sizes.split_last()?;
    let sum: u64 = newer.iter().sum();
    if newer.len() + 1 >= LIKE_MIN && sum as f64 > *oldest as f64 * (amplification - 1.0) {
        return Some(0..sizes.len());
    }
    let mut sum = 0;
    let like = sizes.iter().enumerate().take_while(|(place, size)| {
        let is_like = *place == 0 || **size <= 2 * sum;
        sum += **size;
        is_like
    });
    let like = like.count();
    (like >= LIKE_MIN).then_some(0..like)
}

/// Returns the segments of which little is live.
fn mostly_dead(view: &View) -> BTreeSet<SegmentNumber> {
    let live = live_segments(view);
    let all = view.segments.iter().filter(|(number, segment)| {
        let live = live.get(number).copied().unwrap_or_default();
        live * 100 < segment.len() * LIVE_PERCENT_MIN
    });
    all.map(|(number, _)| *number).collect()
}

fn leads_to(view: &View, kvs: KvsId, moves: &Moves) -> bool {
    let is_there =
        |runs: &Arc<Vec<ViewRun>>| live_in(runs.iter(), |it| moves.contains_key(&it)) > 0;
    view.runs.get(&kvs).is_some_and(is_there)
}

/// Carries out a plan made for `view` while `go_on` returns true. `go_on` receives the share done.
/// Returns false if the compaction ended early. The caller holds the lock of compactions.
fn merge(
    core: &Core,
    view: &Arc<View>,
    plan: &Plan,
    go_on: &mut dyn FnMut(f64) -> bool,
) -> Result<bool, StoreError> {
    let Some(all) = view.runs.get(&plan.kvs) else { return Ok(true) };
    let old = &all[plan.runs.clone()];
    let has_oldest = leaves_tombstones_out(core, all, plan);
    let is_aged = plan.runs.len() == all.len();
    let number = core.manifest.lock().take_run();
    let read: u64 = old.iter().map(|run| run.run.summary().file_bytes).sum();
    let place = place_for_keys(core, plan, is_aged, read);
    let gone = match has_oldest || mutation_site!("a prefix that is gone stays so") {
        true => Vec::new(),
        false => core.prefixes_for_runs(old).concat(),
    };
    let mut writer = core.begin_run(&place, (number, plan.kvs), gone)?;
    let parts = old.iter().map(|it| (Source::merged_run(&it.run), Some(it.prefixes.clone())));
    let mut merged = Merged::new(parts.collect(), Direction::Forward, Sequence::MAX);
    merged.seek(None)?;
    let moved_bytes = live_in(old, |number| plan.moved.contains_key(&number));
    let mut values = ValueWriter::new(core, plan.kvs, moved_bytes);
    let mut bill = Bill::new(core, is_urgent);
    let keys: u64 = old.iter().map(|run| run.run.summary().keys).sum();
    let (mut taken, mut ahead) = (0, Ahead::default());
    loop {
        while !ahead.is_full()
            && let Some(next) = merged.take()?
        {
            core.failure.check()?;
            let is_time = taken % KEYS_BETWEEN_QUESTIONS == 0;
            let done = taken as f64 / keys.max(1) as f64;
            if core.work.is_over() || is_time && !go_on(done) {
                return Ok(false);
            }
            if is_time {
                bill.moved(&traffic(core, old, done, values.traffic(), (&place, writer.bytes())));
            }
            taken += 1;
            if let Some(due) = due(core, plan, &merged, &next, has_oldest) {
                ahead.add(view, &due);
            }
        }
        for Due { key, sequence, expiry, value, to } in ahead.due() {
            let value = match (value, to) {
                (Value::Apart(place), Some(to)) => Value::Apart(values.copy(view, place, to)?),
                (value, _) => value,
            };
            writer.push(&Entry { key, sequence, expiry, value })?;
        }
        if !ahead.is_full() {
            break;
        }
        ahead.clear();
    }
    let run = finish(core, writer, taken)?;
    let moved = values.traffic();
    let segments = values.finish()?;
    place.sync_names()?;
    let bytes = run.run.summary().file_bytes;
    core.volumes.made(run::file_name(number), &place, bytes);
    place.written.merge.fetch_add(bytes, Relaxed);
    let all = traffic(core, old, 1.0, moved, (&place, bytes));
    bill.settle(&all);
    core.counters.compaction_read.fetch_add(all.all_read(), Relaxed);
    install(core, plan, old, Compaction { run, is_aged, segments })?;
    Ok(true)
}

/// Finishes the run of a compaction that has taken `taken` versions.
fn finish(core: &Core, writer: RunWriter, taken: u64) -> Result<ViewRun, StoreError> {
    let run = ViewRun::of(writer.finish(&core.pages)?);
    let entries = run.run.summary().entries;
    assert!(entries <= taken, "of {taken} versions a merge has made {entries}");
    Ok(run)
}

/// Returns true if a compaction can drop tombstones: there are no older runs, and no transaction
/// needs them.
fn leaves_tombstones_out(core: &Core, all: &[ViewRun], plan: &Plan) -> bool {
    let is_asked_for = may_be_asked_for(core, &all[plan.runs.clone()])
        && !mutation_site!("a tombstone stays while a transaction may ask for it");
    let has_oldest = plan.runs.end == all.len()
        || mutation_site!("a tombstone stays while there are older runs");
    has_oldest && !is_asked_for
}

/// Converts a version that the compaction has taken into the one to write; `None` if it is dropped.
fn due<'a>(
    core: &Core,
    plan: &Plan,
    merged: &'a Merged,
    Taken { version, is_deleted }: &Taken,
    has_oldest: bool,
) -> Option<Due<'a>> {
    let Version { mut sequence, expiry, value } = *version;
    let mut to = None;
    let value = match value {
        _ if *is_deleted && has_oldest => return None,
        _ if *is_deleted || core.has_ended(expiry) => Value::Gone,
        Held::Gone => Value::Gone,
        Held::Here => Value::Inline(merged.value()),
        Held::Apart(place) => {
            let moved = plan.moved.get(&place.segment);
            to = moved.and_then(|to| core.moved_to(plan.kvs, merged.key(), place, to));
            Value::Apart(place)
        }
    };
    let is_deleted = value == Value::Gone;
    if is_deleted && has_oldest {
        return None;
    }
    let is_endless = is_deleted || mutation_site!("a compaction keeps when a value ends");
    let expiry = if is_endless { Expiry::NEVER } else { expiry };
    if mutation_site!("a compaction keeps the number of a version") {
        sequence.0 += 1;
    }
    Some(Due { key: merged.key(), sequence, expiry, value, to })
}

/// Returns the traffic of a compaction of which a share is done, added to that of its moved values.
fn traffic(
    core: &Core,
    old: &[ViewRun],
    done: f64,
    mut traffic: Traffic,
    (place, written): (&volumes::Held, u64),
) -> Traffic {
    for run in old {
        if let Some(class) = core.volumes.class_of(&run::file_name(run.number())) {
            traffic.read(class, (run.run.summary().file_bytes as f64 * done) as u64);
        }
    }
    traffic.wrote(place.class, written);
    traffic
}

/// Chooses the volume for the run of a plan, which has at most `bytes` bytes.
fn place_for_keys(core: &Core, plan: &Plan, is_aged: bool, bytes: u64) -> Arc<volumes::Held> {
    let policy = core.policy(plan.kvs).map(|(policy, _)| policy).unwrap_or_default();
    core.volumes.choose_of_reserve(What::Keys, core.had(policy.keys(is_aged)), bytes)
}

/// Returns true if an open transaction may have to notice writes in these runs. Transactions that
/// begin later see them all.
fn may_be_asked_for(core: &Core, runs: &[ViewRun]) -> bool {
    let greatest = runs.iter().map(|run| run.run.summary().sequence_greatest).max();
    greatest > Some(core.transactions.horizon(core.clock.now()))
}

/// Result of a compaction.
struct Compaction {
    run: ViewRun,
    /// True if it has compacted all runs.
    is_aged: bool,
    segments: Vec<Arc<Segment>>,
}

/// Replaces the compacted runs by their successor, and removes files that became dead.
fn install(
    core: &Core,
    Plan { kvs, moved, .. }: &Plan,
    old: &[ViewRun],
    Compaction { run, is_aged, segments }: Compaction,
) -> Result<(), StoreError> {
    let kvs = *kvs;
    core.note_overwritten(kvs, old, run.run.summary().entries);
    core.read_frequency.moved(moved.keys().copied());
    let mut manifest = core.manifest.lock();
    let mut next = Manifest::clone(&manifest);
    let dead: BTreeSet<u64> = old.iter().map(|run| run.number().0).collect();
    let is_dead = |run: &RunState| dead.contains(&run.run);
    let number = run.number();
    let values = segments.iter().map(|segment| segment::file_name(segment.number()));
    let made: Vec<String> = values.chain([run::file_name(number)]).collect();
    let Some(state) = next.kvs_mut(kvs) else {
        // The `Kvs` was dropped meanwhile.
        core.read_frequency.removed(segments.iter().map(|segment| segment.number()));
        return core.remove(&made);
    };
    let Some(place) = state.runs.iter().position(is_dead) else { return Ok(()) };
    let before = state.runs.len();
    state.runs.retain(|run| !is_dead(run));
    let removed = before - state.runs.len();
    assert_eq!(removed, old.len(), "so many of the runs that were merged are in the manifest");
    state.runs.insert(place, run.state());
    // Runs flushed meanwhile lie in front of it.
    if is_aged {
        state.aged_run = number.0;
    }
    if !mutation_site!("the manifest names the segments to which values were moved") {
        next.segments.extend(segments.iter().map(|segment| segment.number().0));
    }
    let dead_files: Vec<String> = old.iter().map(|run| run::file_name(run.number())).collect();
    if mutation_site!("merged runs are removed once the manifest does not name them") {
        core.remove(&dead_files)?;
    }
    core.save_with(&mut manifest, next, &made)?;
    core.current.change(|view| {
        let of_kvs = Arc::make_mut(view.runs.entry(kvs).or_default());
        let before = of_kvs.len();
        of_kvs.retain(|run| !dead.contains(&run.number().0));
        let removed = before - of_kvs.len();
        assert_eq!(removed, old.len(), "so many of the runs that were merged are read");
        of_kvs.insert(place.min(of_kvs.len()), run);
        view.add_segments(segments);
    });
    // The lock is released first: a slow disk must not hold up other users of the manifest.
    drop(manifest);
    core.remove(&dead_files)?;
    core.drop_dead_segments()
}
