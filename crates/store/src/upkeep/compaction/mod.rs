//! Compaction: several runs of a `Kvs` become one, dead versions are dropped, and the values of
//! mostly dead segments are moved, which frees these segments.
//!
//! Compaction takes four or more neighbouring runs of like size, the newest among them. It takes
//! all runs once the newer ones together exceed what space amplification allows. Values in segments
//! stay where they are, except when all runs of a `Kvs` are compacted: that rewrites every version,
//! and can therefore move the values.
//!
//! Compactions by size wait while the budget of a drive's writes is used up, unless space or reads
//! would suffer. Those that collect garbage never wait: room comes before the drive's life.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;
use entresol_index::Direction;

use crate::StoreError;
use crate::manifest::{Manifest, RunState};
use crate::memtable::range_deletes;
use crate::memtable::range_deletes::DeletedPrefix;
use crate::names;
use crate::run::RunWriter;
use crate::segment::Segment;
use crate::types::{Entry, Expiry, KvsId, SegmentNumber, Sequence, Value, ValuePlace, Version};
use crate::upkeep::charging::{Bill, Traffic};
use crate::upkeep::context::CompactionContext;
use crate::upkeep::dead_segments::drop_dead_segments;
use crate::upkeep::file_move::{FileMove, move_all_files};
use crate::upkeep::squeeze::squeeze_all;
use crate::upkeep::tiering::{Tiering, ValueMoves, live_in};
use crate::version::ends::Ends;
use crate::version::files::live_of;
use crate::version::merged::{Merged, TakenVersion};
use crate::version::source::Source;
use crate::version::view::{View, ViewRun, bytes_of};
use crate::volumes;
use crate::volumes::{FileKind, Planned};
use ahead::{Ahead, Due};
use garbage::{Thoroughness, Victims, is_over_bound};
use values::ValueWriter;
use window::window;

mod ahead;
pub(crate) use garbage::DEAD_BYTES_MIN;

mod garbage;
pub(crate) mod values;
pub(crate) mod window;

/// Number of runs of a `Kvs` at which compaction stops waiting for its share of the medium.
pub(crate) const RUNS_URGENT: usize = 16;
/// Divisor of the bytes that a compaction for the bound of space writes: one part must come free.
const GAIN_PARTS: u64 = 8;
/// Number of keys between calls of `go_on`.
const KEYS_BETWEEN_QUESTIONS: u64 = 256;

/// Progress of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Bytes of runs that were compacted; 0 during the flush that comes first.
    pub bytes_done: u64,
    /// Bytes of runs that are to be compacted; 0 until this is known.
    pub bytes: u64,
}

/// Planned compaction.
#[derive(Debug)]
struct Plan {
    kvs: KvsId,
    runs: Range<usize>,
    /// Segments whose values move.
    moved: ValueMoves,
}

/// Unit of background work.
enum Task {
    Compaction(Plan),
    FileMove(Vec<FileMove>),
    Squeeze(Vec<SegmentNumber>),
}

/// Does the most worthwhile compaction or file move. Returns false if there is none.
///
/// # Errors
/// Fails if a disk fails or has no room, or if data is damaged. Nothing has changed then.
pub(crate) fn compact_one(context: &CompactionContext<'_>) -> Result<bool, StoreError> {
    let _held = context.background.compacting.lock();
    compact_next(context, &mut || true)
}

/// Does the most worthwhile compaction or file move while `go_on` returns true. Returns false if
/// there is none, if it ended early, or if another one is under way.
///
/// # Errors
/// Fails as [`compact_one`] does.
pub(crate) fn compact_one_while(
    context: &CompactionContext<'_>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<bool, StoreError> {
    match context.background.compacting.try_lock() {
        Some(_held) => compact_next(context, go_on),
        None => Ok(false),
    }
}

/// Does the most worthwhile compaction or file move. The caller holds the lock of compactions.
fn compact_next(
    context: &CompactionContext<'_>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<bool, StoreError> {
    let view = context.files.current.get();
    context.look_at_read_frequency(&view);
    match task(context, &view).map(|task| task.with_room(context, &view)) {
        Some(Task::Compaction(plan)) => merge(context, &view, &plan, &mut |_| go_on()),
        Some(Task::FileMove(file_moves)) => move_all_files(context, &file_moves, &mut |_| go_on()),
        Some(Task::Squeeze(segments)) => {
            // It would hold the old files.
            drop(view);
            squeeze_all(context, &segments)
        }
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
/// Fails if a disk fails or has no room, or if data is damaged. Values that are damaged, or in a
/// missing file, are told at the end: all else is compacted, and what is left of them stays.
pub(crate) fn compact_all(
    context: &CompactionContext<'_>,
    progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
) -> Result<bool, StoreError> {
    let _held = context.background.compacting.lock();
    context.background.damaged_segments.clear();
    make_room(context)?;
    let mut so_far = CompactProgress::default();
    let mut is_first = true;
    loop {
        let before = context.files.current.get();
        if !compact_each(context, is_first, &mut so_far, progress)? {
            return Ok(false);
        }
        // A compaction shows what is dead. What it has shown, and what had no room, comes next.
        if !is_first && !has_freed(&before, &context.files.current.get()) {
            break;
        }
        is_first = false;
    }
    let is_done = age_all(context, so_far, progress)?;
    let damaged = context.background.damaged_segments.take_first();
    damaged.or_else(|| context.files.whole().err()).map_or(Ok(is_done), Err)
}

/// Squeezes segments until there is room for a compaction of all runs, with a bound of space.
fn make_room(context: &CompactionContext<'_>) -> Result<(), StoreError> {
    let gauge = &context.files.volumes.gauge;
    while !gauge.has_room_for(gauge.whole_bytes()) {
        let segments = garbage::squeezable(context, &context.files.current.get());
        let Some(segments) = segments else { break };
        if !squeeze_all(context, &segments)? {
            break;
        }
    }
    Ok(())
}

/// Compacts all runs of every `Kvs` of which a compaction would change anything, and moves values
/// as far as there is room.
fn compact_each(
    context: &CompactionContext<'_>,
    is_first: bool,
    so_far: &mut CompactProgress,
    progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
) -> Result<bool, StoreError> {
    let first = context.files.current.get();
    let garbage = Victims::of(context, &first, Thoroughness::All);
    let plans = context.compactable(&first);
    let plans = plans.map(|(kvs, _)| plan_of_all(context, &first, *kvs, &garbage));
    let is_due = |plan: &Plan, view: &View| match is_first {
        true => plan.is_worth_it(context, view),
        false => leads_to(view, plan.kvs, &plan.moved),
    };
    let plans: Vec<Plan> = plans.filter(|plan| is_due(plan, &first)).collect();
    so_far.bytes += plans.iter().map(|plan| plan.bytes(&first)).sum::<u64>();
    for plan in plans {
        let view = context.files.current.get();
        let plan = plan_of_all(context, &view, plan.kvs, &garbage);
        let of_plan = plan.bytes(&view);
        let mut go_on = |share: f64| {
            let bytes_done = so_far.bytes_done + (of_plan as f64 * share) as u64;
            let bytes = so_far.bytes;
            progress(CompactProgress { bytes_done: bytes_done.min(bytes), bytes }).is_continue()
        };
        let plan = Some(plan).filter(|plan| is_due(plan, &view));
        let plan = plan.and_then(|plan| plan.fitting(context, &view));
        if let Some(plan) = plan
            && !merge(context, &view, &plan, &mut go_on)?
        {
            return Ok(false);
        }
        so_far.bytes_done += of_plan;
    }
    so_far.bytes = so_far.bytes.max(so_far.bytes_done);
    so_far.bytes_done = so_far.bytes;
    Ok(true)
}

/// Returns true if compactions have freed more bytes of segments than they have made.
fn has_freed(before: &View, after: &View) -> bool {
    let without = |one: &View, other: &View, is_moved: bool| -> u64 {
        let all = one.segments.iter().filter(|(number, _)| !other.segments.contains_key(number));
        let all = all.filter(|(number, _)| !is_moved || !number.is_of_log());
        all.map(|(_, segment)| segment.len()).sum()
    };
    without(before, after, false) > without(after, before, true)
}

/// Moves data that lies on classes its policy does not allow to classes with room. The moved bytes
/// are added to the progress so far.
fn age_all(
    context: &CompactionContext<'_>,
    mut so_far: CompactProgress,
    progress: &mut dyn FnMut(CompactProgress) -> ControlFlow<()>,
) -> Result<bool, StoreError> {
    loop {
        let view = context.files.current.get();
        let task = context.misplaced_now(&view).map(Task::from);
        let Some(task) = task.and_then(|task| task.fitting(context, &view)) else { break };
        let mut go_on = |bytes: u64| {
            so_far = CompactProgress {
                bytes_done: so_far.bytes_done + bytes,
                bytes: so_far.bytes + bytes,
            };
            progress(so_far).is_continue()
        };
        let is_done = match task {
            Task::Compaction(plan) => merge(context, &view, &plan, &mut |_| go_on(0))?,
            Task::FileMove(file_moves) => move_all_files(context, &file_moves, &mut go_on)?,
            Task::Squeeze(segments) => squeeze_all(context, &segments)?,
        };
        if !is_done {
            return Ok(false);
        }
    }
    Ok(progress(so_far).is_continue())
}

/// Returns a compaction of all runs of a `Kvs`, in which the first victims move as far as there is
/// room.
fn plan_of_all(
    context: &CompactionContext<'_>,
    view: &View,
    kvs: KvsId,
    victims: &Victims,
) -> Plan {
    let runs = view.runs.get(&kvs).map_or(0, |runs| runs.len());
    let mut plan = Plan { kvs, runs: 0..runs, moved: ValueMoves::new() };
    plan.moved = moves_of_all(context, view, &plan, victims);
    plan
}

/// Returns the moves of a compaction of all runs: values of mostly dead segments, and values that
/// the policy does not leave where they are once they are aged.
fn moves_of_all(
    context: &CompactionContext<'_>,
    view: &View,
    plan: &Plan,
    victims: &Victims,
) -> ValueMoves {
    let Some((policy, _)) = context.files.policy(plan.kvs) else { return ValueMoves::new() };
    let keys = plan.bytes(view);
    let place = place_for_keys(context, plan, true, keys);
    let mut moves = victims.portion(context, view, (plan.kvs, &policy), (&place, keys));
    let runs = view.runs.get(&plan.kvs).map_or(&[][..], |runs| runs);
    moves.extend(context.moves_with_room(&policy, view, runs));
    moves
}

impl Task {
    /// Replaces a compaction for which there is no room within the bound of space by squeezes, if
    /// these make room.
    fn with_room(self, context: &CompactionContext<'_>, view: &View) -> Task {
        if let Task::Compaction(plan) = &self
            && context.files.volumes.gauge.has_bound()
            && !context.files.volumes.gauge.has_room_for(plan.written_bytes(context, view))
            && let Some(segments) = garbage::squeezable(context, view)
        {
            return Task::Squeeze(segments);
        }
        self
    }

    /// Replaces a planned compaction by one that fits.
    fn fitting(self, context: &CompactionContext<'_>, view: &View) -> Option<Task> {
        match self {
            Task::Compaction(plan) => plan.fitting(context, view).map(Task::Compaction),
            other => Some(other),
        }
    }
}

impl Plan {
    /// Returns the plan if one run can hold the range deletes that it keeps. Otherwise returns a
    /// plan for all runs, which keeps none, unless a transaction may still need them.
    fn fitting(self, context: &CompactionContext<'_>, view: &View) -> Option<Plan> {
        let all = view.runs.get(&self.kvs)?;
        let fits = |runs: &Range<usize>| {
            let has_oldest = runs.end == all.len();
            let old = &all[runs.clone()];
            has_oldest && !may_be_asked_for(context, old)
                || context.prefixes_for_runs(old).len() == 1
        };
        if fits(&self.runs) {
            return Some(self);
        }
        let victims = Victims::of(context, view, Thoroughness::MostlyDead);
        let mut whole = plan_of_all(context, view, self.kvs, &victims);
        whole.moved.extend(self.moved);
        fits(&whole.runs).then_some(whole)
    }

    /// Returns true if the volume of the result may be written to today.
    fn has_budget(&self, context: &CompactionContext<'_>, view: &View) -> bool {
        let is_aged = view.runs.get(&self.kvs).is_some_and(|runs| runs.len() == self.runs.len());
        let place = place_for_keys(context, self, is_aged, self.bytes(view));
        !context.files.is_used_up(&place)
    }

    /// Returns true if compacting all runs would change anything.
    fn is_worth_it(&self, context: &CompactionContext<'_>, view: &View) -> bool {
        let leads_there = || leads_to(view, self.kvs, &self.moved);
        let is_one_out_of_place = || {
            let (Some((policy, aged)), Some(runs)) =
                (context.files.policy(self.kvs), view.runs.get(&self.kvs))
            else {
                return false;
            };
            let volumes = &context.files.volumes;
            let wanted = volumes.had(policy.old_keys);
            runs.iter().filter(|run| run.number() != aged).any(|run| {
                let class = volumes.class_of(&names::of_run(run.number()));
                class.is_some_and(|class| !wanted.has(class))
            })
        };
        self.runs.len() > 1 || self.runs.len() == 1 && (leads_there() || is_one_out_of_place())
    }

    /// Returns the bytes that the compaction writes, by estimate.
    fn written_bytes(&self, context: &CompactionContext<'_>, view: &View) -> u64 {
        let is_of_all = view.runs.get(&self.kvs).is_some_and(|it| it.len() == self.runs.len());
        let read = self.bytes(view);
        let superseded = match is_of_all {
            true => context.background.space.superseded_runs(self.kvs).min(read),
            false => 0,
        };
        read - superseded + moved_bytes(context, view, self)
    }

    /// Returns the bytes of the runs.
    fn bytes(&self, view: &View) -> u64 {
        let all = view.runs.get(&self.kvs).map_or(&[][..], |runs| runs);
        bytes_of(&all[self.runs.clone()])
    }
}

impl CompactionContext<'_> {
    /// Returns the runs of each `Kvs` that may be compacted.
    pub(crate) fn compactable<'a>(
        &'a self,
        view: &'a View,
    ) -> impl Iterator<Item = (&'a KvsId, &'a Arc<Vec<ViewRun>>)> + Clone {
        let may_be = |kvs: &KvsId, runs: &Arc<Vec<ViewRun>>| {
            !runs.is_empty() && !self.files.unreadable.contains_key(kvs)
        };
        view.runs.iter().filter(move |(kvs, runs)| may_be(kvs, runs))
    }

    /// Splits the range deletes of runs into as many parts as they need runs.
    fn prefixes_for_runs(&self, runs: &[ViewRun]) -> Vec<Vec<DeletedPrefix>> {
        let all = runs.iter().flat_map(|run| run.prefixes.all()).collect();
        range_deletes::for_runs(all, self.options.range_deletes_per_run_max)
    }

    /// Records the percentage of versions that a compaction found overwritten.
    fn note_overwritten(&self, kvs: KvsId, old: &[ViewRun], left: u64) {
        let all: u64 = old.iter().map(|run| run.run.summary().entries).sum();
        let percent = all.saturating_sub(left) * 100 / all.max(1);
        let mut overwritten = self.background.overwritten.lock();
        let before = overwritten.entry(kvs).or_insert(percent);
        *before = (*before + percent) / 2;
    }
}

fn task(context: &CompactionContext<'_>, view: &View) -> Option<Task> {
    let gauge = &context.files.volumes.gauge;
    let has_many_runs = || view.runs.values().any(|runs| runs.len() >= RUNS_URGENT);
    if gauge.is_pressed()
        && !has_many_runs()
        && !mutation_site!("garbage is collected before too much space is taken")
    {
        if let Some(segments) = garbage::squeezable(context, view) {
            return Some(Task::Squeeze(segments));
        }
        match garbage(context, view, Thoroughness::Bound) {
            Some(plan) => return Some(Task::Compaction(plan)),
            None => gauge.relax(),
        }
    }
    let amplification = context.options.amplification_target();
    let all = context.compactable(view);
    let mut sizes = all.clone().map(|(kvs, runs)| {
        (*kvs, runs.iter().map(|run| run.run.summary().file_bytes).collect::<Vec<_>>())
    });
    let by_size = sizes.find_map(|(kvs, sizes)| {
        let runs = window(&sizes, amplification)?;
        let plan = match runs.len() == sizes.len() {
            true => {
                let victims = Victims::of(context, view, Thoroughness::MostlyDead);
                plan_of_all(context, view, kvs, &victims)
            }
            false => Plan { kvs, runs, moved: ValueMoves::new() },
        };
        let plan = plan.fitting(context, view)?;
        (is_urgent(context) || plan.has_budget(context, view)).then_some(plan)
    });
    if let Some(plan) = by_size {
        return Some(Task::Compaction(plan));
    }
    let tiering = context.tiering(view).map(Task::from);
    if let Some(task) = tiering.and_then(|task| task.fitting(context, view)) {
        return Some(task);
    }
    if let Some(kvs) = garbage::deleted(context, view) {
        let victims = Victims::of(context, view, Thoroughness::MostlyDead);
        let plan = plan_of_all(context, view, kvs, &victims).fitting(context, view);
        if plan.is_some() {
            return plan.map(Task::Compaction);
        }
    }
    let thoroughness = garbage::thoroughness(context, view)?;
    garbage(context, view, thoroughness).map(Task::Compaction)
}

/// Returns the compaction that collects most garbage.
fn garbage(
    context: &CompactionContext<'_>,
    view: &View,
    thoroughness: Thoroughness,
) -> Option<Plan> {
    let victims = Victims::of(context, view, thoroughness);
    let dead = victims.numbers();
    let inline = |kvs: KvsId| match thoroughness {
        Thoroughness::Bound => context.background.space.superseded_inline(kvs),
        _ => 0,
    };
    // Of runs that an earlier process wrote, a compaction of all of them shows what is live.
    let is_unknown = |kvs: KvsId, runs: usize| {
        thoroughness == Thoroughness::Bound && runs > 1 && context.background.space.is_unknown(kvs)
    };
    let bytes_in = |kvs: KvsId, runs: &[ViewRun]| {
        live_in(runs, |number| dead.contains(&number))
            + inline(kvs)
            + u64::from(is_unknown(kvs, runs.len()))
    };
    let mut owners: Vec<(u64, KvsId)> =
        context.compactable(view).map(|(kvs, runs)| (bytes_in(*kvs, runs), *kvs)).collect();
    owners.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    // The room may be too small for a portion of one `Kvs`, and suffice for one of another.
    owners.into_iter().take_while(|(bytes, _)| *bytes > 0).find_map(|(_, kvs)| {
        let plan = plan_of_all(context, view, kvs, &victims);
        let is_worth_it = match thoroughness {
            Thoroughness::Bound => {
                let cost = plan.bytes(view) + moved_bytes(context, view, &plan);
                (victims.gain(&plan.moved) + inline(kvs)) * GAIN_PARTS >= cost
                    || is_unknown(kvs, plan.runs.len())
            }
            _ => leads_to(view, kvs, &plan.moved),
        };
        Some(plan).filter(|_| is_worth_it).and_then(|plan| plan.fitting(context, view))
    })
}

/// Returns true if compaction must not wait for its share of the medium: too much is dead, or
/// readers have to search too many runs.
fn is_urgent(context: &CompactionContext<'_>) -> bool {
    let view = context.files.current.get();
    is_over_bound(&view, context.options.amplification_target())
        || view.runs.values().any(|runs| runs.len() >= RUNS_URGENT)
}

fn leads_to(view: &View, kvs: KvsId, moves: &ValueMoves) -> bool {
    let is_there =
        |runs: &Arc<Vec<ViewRun>>| live_in(runs.iter(), |it| moves.contains_key(&it)) > 0;
    view.runs.get(&kvs).is_some_and(is_there)
}

/// Carries out a plan made for `view` while `go_on` returns true. `go_on` receives the share done.
/// Returns false if the compaction ended early. The caller holds the lock of compactions.
fn merge(
    context: &CompactionContext<'_>,
    view: &Arc<View>,
    plan: &Plan,
    go_on: &mut dyn FnMut(f64) -> bool,
) -> Result<bool, StoreError> {
    let Some(all) = view.runs.get(&plan.kvs) else { return Ok(true) };
    let old = &all[plan.runs.clone()];
    let has_oldest = leaves_tombstones_out(context, all, plan);
    let is_aged = plan.runs.len() == all.len();
    let number = context.files.manifest.lock().take_run();
    let read = bytes_of(old);
    let place = place_for_keys(context, plan, is_aged, read);
    let gone = range_deletes_left(context, old, has_oldest);
    let mut writer = context.files.begin_run(&place, (number, plan.kvs), gone)?;
    let mut merged = merged_of(old)?;
    let moved_bytes = moved_bytes(context, view, plan);
    let mut values = ValueWriter::new(*context, plan.kvs, moved_bytes);
    let mut bill = Bill::new(context.files, context.background, || is_urgent(context));
    let keys: u64 = old.iter().map(|run| run.run.summary().keys).sum();
    let (mut taken, mut ahead, mut ends) = (0, Ahead::default(), Ends::default());
    let mut sampler = context.background.space.sampler(view, plan.kvs);
    let planned = Planned::new(&context.files.volumes.gauge, plan.written_bytes(context, view));
    loop {
        while !ahead.is_full()
            && let Some(next) = merged.take()?
        {
            context.files.failure.check()?;
            context.files.time.give_way();
            let is_time = taken % KEYS_BETWEEN_QUESTIONS == 0;
            let done = taken as f64 / keys.max(1) as f64;
            if context.background.scheduler.is_over() || is_time && !go_on(done) {
                return Ok(false);
            }
            if is_time {
                context.files.volumes.check_not_last(&place)?;
                let written = (&*place, writer.bytes());
                bill.moved(&traffic(context, old, done, values.traffic(), written));
                planned.wrote(values.bytes());
            }
            taken += 1;
            let due = due(context, plan, &merged, &next, has_oldest);
            due.iter().for_each(|due| ahead.add(view, due));
        }
        for due in ahead.due() {
            let entry = with_value(due, view, &mut values)?;
            ends.add(&entry);
            sampler.add(&entry);
            writer.push(&entry)?;
        }
        if !ahead.is_full() {
            break;
        }
        ahead.clear();
    }
    let run = finish(context, writer, taken)?.with(ends, sampler.finish());
    let (moved, segments) = (values.traffic(), values.finish()?);
    place.sync_names()?;
    let bytes = run.run.summary().file_bytes;
    context.files.volumes.made(names::of_run(number), &place, bytes);
    // Room is kept for the next compaction before this one makes any free: writers would take it.
    drop(planned);
    place.life.written.merge.fetch_add(bytes, Relaxed);
    let all = traffic(context, old, 1.0, moved, (&place, bytes));
    bill.settle(&all);
    context.background.bytes_read.fetch_add(all.all_read(), Relaxed);
    install(context, plan, old, Compaction { run, is_aged, segments })?;
    context.background.space.look(context.files);
    Ok(true)
}

/// Returns the range deletes that a compaction keeps.
fn range_deletes_left(
    context: &CompactionContext<'_>,
    old: &[ViewRun],
    has_oldest: bool,
) -> Vec<DeletedPrefix> {
    match has_oldest || mutation_site!("a range delete survives compaction") {
        true => Vec::new(),
        false => context.prefixes_for_runs(old).concat(),
    }
}

/// Returns the versions of runs in the order of their keys.
fn merged_of(old: &[ViewRun]) -> Result<Merged, StoreError> {
    let parts = old.iter().map(|it| (Source::merged_run(&it.run), Some(it.prefixes.clone())));
    let mut merged = Merged::new(parts.collect(), Direction::Forward, Sequence::MAX);
    merged.seek(None)?;
    Ok(merged)
}

/// Returns the bytes of the values that a plan moves: at most, or by estimate if space is short.
fn moved_bytes(context: &CompactionContext<'_>, view: &View, plan: &Plan) -> u64 {
    let runs = view.runs.get(&plan.kvs).map_or(&[][..], |runs| &runs[plan.runs.clone()]);
    let live = match context.files.volumes.gauge.is_pressed() {
        true => context.background.space.live_segments(view),
        false => live_of(runs),
    };
    let of_runs = live_of(runs).into_iter().filter(|(number, _)| plan.moved.contains_key(number));
    of_runs.map(|(number, bytes)| bytes.min(live.get(&number).copied().unwrap_or(bytes))).sum()
}

/// Returns the entry to write for a version, whose value is copied if it moves.
fn with_value<'a>(
    due: Due<'a>,
    view: &Arc<View>,
    values: &mut ValueWriter<'_>,
) -> Result<Entry<'a>, StoreError> {
    let Due { key, sequence, expiry, value, to } = due;
    let value = match (value, to) {
        // What a run beside these supersedes may have been left out of its segment.
        (Value::Apart(place), Some(to)) if !view.segment(place.segment)?.has_left_out(place) => {
            Value::Apart(values.copy(view, place, to)?)
        }
        (value, _) => value,
    };
    Ok(Entry { key, sequence, expiry, value })
}

/// Finishes the run of a compaction that has taken `taken` versions.
fn finish(
    context: &CompactionContext<'_>,
    writer: RunWriter,
    taken: u64,
) -> Result<ViewRun, StoreError> {
    let run = ViewRun::of(writer.finish(&context.files.pages)?);
    let entries = run.run.summary().entries;
    assert!(entries <= taken, "a compaction made {entries} versions of {taken}");
    Ok(run)
}

/// Returns true if a compaction can drop tombstones: there are no older runs, and no transaction
/// needs them.
fn leaves_tombstones_out(context: &CompactionContext<'_>, all: &[ViewRun], plan: &Plan) -> bool {
    let is_asked_for = may_be_asked_for(context, &all[plan.runs.clone()])
        && !mutation_site!("a tombstone stays while a transaction may ask for it");
    let has_oldest = plan.runs.end == all.len()
        || mutation_site!("a tombstone stays while there are older runs");
    has_oldest && !is_asked_for
}

/// Converts a version that the compaction has taken into the one to write; `None` if it is dropped.
fn due<'a>(
    context: &CompactionContext<'_>,
    plan: &Plan,
    merged: &'a Merged,
    TakenVersion { version, is_deleted }: &TakenVersion,
    has_oldest: bool,
) -> Option<Due<'a>> {
    let Version { mut sequence, expiry, value } = *version;
    let mut to = None;
    let value = match value {
        _ if *is_deleted && has_oldest => return None,
        _ if *is_deleted || context.files.time.has_ended(expiry) => Value::Gone,
        ValuePlace::Gone => Value::Gone,
        ValuePlace::Here => Value::Inline(merged.value()),
        ValuePlace::Apart(place) => {
            let moved = plan.moved.get(&place.segment);
            to = moved.and_then(|to| context.moved_to(plan.kvs, merged.key(), place, to));
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
    context: &CompactionContext<'_>,
    old: &[ViewRun],
    done: f64,
    mut traffic: Traffic,
    (place, written): (&volumes::OpenVolume, u64),
) -> Traffic {
    for run in old {
        if let Some(class) = context.files.volumes.class_of(&names::of_run(run.number())) {
            traffic.read(class, (run.run.summary().file_bytes as f64 * done) as u64);
        }
    }
    traffic.wrote(place.class, written);
    traffic
}

/// Chooses the volume for the run of a plan, which has at most `bytes` bytes.
fn place_for_keys(
    context: &CompactionContext<'_>,
    plan: &Plan,
    is_aged: bool,
    bytes: u64,
) -> Arc<volumes::OpenVolume> {
    let policy = context.files.policy(plan.kvs).map(|(policy, _)| policy).unwrap_or_default();
    context.files.volumes.choose_of_reserve(
        FileKind::Keys,
        context.files.volumes.had(policy.keys(is_aged)),
        bytes,
    )
}

/// Returns true if an open transaction may have to notice writes in these runs. Transactions that
/// begin later see them all.
fn may_be_asked_for(context: &CompactionContext<'_>, runs: &[ViewRun]) -> bool {
    let greatest = runs.iter().map(|run| run.run.summary().sequence_greatest).max();
    greatest > Some(context.transactions.horizon(context.files.time.instant()))
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
    context: &CompactionContext<'_>,
    Plan { kvs, moved, .. }: &Plan,
    old: &[ViewRun],
    Compaction { run, is_aged, segments }: Compaction,
) -> Result<(), StoreError> {
    let kvs = *kvs;
    context.note_overwritten(kvs, old, run.run.summary().entries);
    context.background.read_frequency.moved(moved.keys().copied());
    let mut manifest = context.files.manifest.lock();
    let mut next = Manifest::clone(&manifest);
    let dead: BTreeSet<u64> = old.iter().map(|run| run.number().0).collect();
    let is_dead = |run: &RunState| dead.contains(&run.run);
    let number = run.number();
    let values = segments.iter().map(|segment| names::of_segment(segment.number()));
    let made: Vec<String> = values.chain([names::of_run(number)]).collect();
    let Some(state) = next.kvs_mut(kvs) else {
        // The `Kvs` was dropped meanwhile.
        context.background.read_frequency.removed(segments.iter().map(|segment| segment.number()));
        return context.files.remove(&made);
    };
    let Some(place) = state.runs.iter().position(is_dead) else { return Ok(()) };
    let before = state.runs.len();
    state.runs.retain(|run| !is_dead(run));
    let removed = before - state.runs.len();
    assert_eq!(removed, old.len(), "runs of the compaction's input that are in the manifest");
    state.runs.insert(place, run.state());
    // Runs flushed meanwhile lie in front of it.
    if is_aged {
        state.aged_run = number.0;
    }
    if !mutation_site!("the manifest names the segments to which values were moved") {
        next.segments.extend(segments.iter().map(|segment| segment.number().0));
    }
    let dead_files: Vec<String> = old.iter().map(|run| names::of_run(run.number())).collect();
    if mutation_site!("compacted runs are removed once the manifest does not name them") {
        context.files.remove(&dead_files)?;
    }
    context.files.save_with(&mut manifest, next, &made)?;
    context.files.current.change(|view| {
        let of_kvs = Arc::make_mut(view.runs.entry(kvs).or_default());
        let before = of_kvs.len();
        of_kvs.retain(|run| !dead.contains(&run.number().0));
        let removed = before - of_kvs.len();
        assert_eq!(removed, old.len(), "runs of the compaction's input that are in the view");
        of_kvs.insert(place.min(of_kvs.len()), run);
        view.add_segments(segments);
    });
    // The lock is released first: a slow disk must not hold up other users of the manifest.
    drop(manifest);
    context.files.remove(&dead_files)?;
    drop_dead_segments(context.files, &context.background.read_frequency)
}
