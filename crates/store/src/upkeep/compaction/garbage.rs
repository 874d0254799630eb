//! Garbage collection: the choice of segments whose live values move, emptiest first, in portions
//! that the free room can take. Each portion is installed, and its segments are freed, before the
//! next one is chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::Seconds;

use crate::policy::{Classes, Policy};
use crate::types::{KvsId, SegmentNumber};
use crate::upkeep::context::CompactionContext;
use crate::upkeep::squeeze::place_to_squeeze;
use crate::upkeep::tiering::ValueMoves;
use crate::upkeep::worth::Squeezable;
use crate::version::files::{live_of, live_segments};
use crate::version::view::{View, ViewRun};
use crate::volumes::{FileKind, OpenVolume};

/// Percentage of bytes live in a segment below which its values are moved.
const LIVE_PERCENT_MIN: u64 = 70;
/// Percentage of bytes live below which values are moved while new ones are refused for lack of
/// room.
const LIVE_PERCENT_MIN_IF_FULL: u64 = 90;
/// Bytes held for each byte live above which values are moved at all in that state.
const AMPLIFICATION_IF_FULL: f64 = 1.1;
/// One part in so many of all segments may stay dead behind a compaction of everything.
const DEAD_PART: u64 = 100;
/// Dead bytes that are not worth a compaction.
pub(crate) const DEAD_BYTES_MIN: u64 = 4 << 20;
/// Share of a `Kvs` that must be dead for a compaction while nothing is written.
const IDLE_DEAD_PART: f64 = 0.1;
/// Bytes of a segment that are not records, and cannot be saved by writing it anew: its header, and
/// what its length is rounded up by.
const WASTE_BYTES: u64 = 8 << 10;

/// Segments that are squeezed before the best ones are chosen anew.
const SQUEEZED_AT_ONCE: usize = 8;
/// Bytes of a squeezed segment below which a compaction of all runs unites it with others.
const SCRAP_BYTES: u64 = 128 << 10;

/// Measure of how much may stay dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thoroughness {
    /// Only mostly dead segments are worth writing their live values again.
    MostlyDead,
    /// The store is about to take more than it may.
    Bound,
    /// New values are refused for lack of room.
    Full,
    /// A caller has asked for all dead bytes.
    All,
}

/// Segment whose live values may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Victim {
    number: SegmentNumber,
    bytes: u64,
    live: u64,
    /// Bytes that are live at most.
    live_max: u64,
    /// True if it is all that squeezing has left of a segment.
    is_scrap: bool,
}

impl Victim {
    /// Returns the bytes that moving the live values elsewhere frees.
    fn gain(&self) -> u64 {
        self.bytes.saturating_sub(self.live + WASTE_BYTES)
    }

    fn is_emptier(&self, percent: u64) -> bool {
        self.live * 100 < self.bytes * percent
    }
}

/// Segments whose live values should move, the emptiest first.
#[derive(Debug)]
pub(super) struct Victims {
    all: Vec<Victim>,
    thoroughness: Thoroughness,
    /// Segments that readers hold, so that they do not come free at once.
    held: BTreeSet<SegmentNumber>,
}

impl Victims {
    /// Chooses segments of a view.
    pub(super) fn of(
        context: &CompactionContext<'_>,
        view: &View,
        thoroughness: Thoroughness,
    ) -> Victims {
        let most = live_segments(view);
        // Only the bound of space goes by estimates: they must not fill a disk.
        let live = match thoroughness {
            Thoroughness::Bound => context.background.space.live_segments(view),
            _ => most.clone(),
        };
        let damaged = &context.background.damaged_segments;
        let whole = view.segments.iter().filter(|(number, _)| !damaged.has(**number));
        let all = whole.map(|(number, segment)| {
            let live = live.get(number).copied().unwrap_or_default();
            let live_max = most.get(number).copied().unwrap_or_default();
            let bytes = segment.len();
            // Keys may lead to more than it has.
            let live_max = live_max.min(bytes);
            let is_scrap = segment.table().is_some() && bytes < SCRAP_BYTES;
            Victim { number: *number, bytes, live, live_max, is_scrap }
        });
        let mut all: Vec<Victim> = all.collect();
        // Of segments that are equally empty, the oldest comes first.
        all.sort_by_key(|it| (u128::from(it.live) << 32) / u128::from(it.bytes.max(1)));
        match thoroughness {
            Thoroughness::Bound => all.retain(|it| it.gain() > 0),
            Thoroughness::MostlyDead => {
                all.retain(|it| it.is_emptier(LIVE_PERCENT_MIN) || it.is_scrap);
                all.sort_by_key(|it| !it.is_scrap);
            }
            Thoroughness::Full => all.retain(|it| it.is_emptier(LIVE_PERCENT_MIN_IF_FULL)),
            Thoroughness::All => {
                let held: u64 = all.iter().map(|it| it.bytes).sum();
                let mut left: u64 = all.iter().map(Victim::gain).sum();
                all.retain(|it| {
                    let is_worth_it = left > held / DEAD_PART && it.gain() > 0;
                    left -= it.gain();
                    is_worth_it
                });
            }
        }
        Victims { all, thoroughness, held: context.files.current.held().segments }
    }

    /// Returns the numbers of the segments.
    pub(super) fn numbers(&self) -> BTreeSet<SegmentNumber> {
        self.all.iter().map(|victim| victim.number).collect()
    }

    /// Returns the bytes that come free if the values of these segments move.
    pub(super) fn gain(&self, moves: &ValueMoves) -> u64 {
        let moved = self.all.iter().filter(|victim| moves.contains_key(&victim.number));
        moved.map(Victim::gain).sum()
    }

    /// Returns the moves of the first segments, as many as the free room can take beside the keys
    /// that the compaction writes, of at most `keys` bytes.
    pub(super) fn portion(
        &self,
        context: &CompactionContext<'_>,
        view: &View,
        (kvs, policy): (KvsId, &Policy),
        (keys_place, keys): (&Arc<OpenVolume>, u64),
    ) -> ValueMoves {
        let Some(runs) = view.runs.get(&kvs) else { return ValueMoves::new() };
        let live = live_of(runs.iter());
        let mut budgets = Budgets::new(context, keys_place, keys);
        let mut moves = ValueMoves::new();
        let mut left = match self.thoroughness {
            Thoroughness::All => u64::MAX,
            _ => context.files.volumes.gauge.portion(),
        };
        for victim in self.all.iter().filter(|victim| live.contains_key(&victim.number)) {
            let to = context.move_of_garbage(policy, victim.number);
            let is_held = self.held.contains(&victim.number);
            if (victim.live <= left || moves.is_empty())
                && budgets.take(to.to, victim.live_max, is_held, moves.is_empty())
            {
                moves.insert(victim.number, to);
                left = left.saturating_sub(victim.live);
            }
        }
        moves
    }
}

/// Returns segments to be squeezed, the best first: each by itself, so that little room is kept
/// for it. Returns `None` if there are none, or if a compaction must show what is live.
pub(super) fn squeezable(
    context: &CompactionContext<'_>,
    view: &View,
) -> Option<Vec<SegmentNumber>> {
    let space = &context.background.space;
    let is_unknown =
        |(kvs, runs): (&KvsId, &Arc<Vec<ViewRun>>)| runs.len() > 1 && space.is_unknown(*kvs);
    if view.runs.iter().any(is_unknown) {
        return None;
    }
    let all = space.squeezable(view).into_iter().filter(|it| {
        !space.is_spared(it.number) && place_to_squeeze(context.files, it.number).is_some()
    });
    let all: Vec<Squeezable> = all.collect();
    // Those for which no room is kept wait until there is nothing else.
    let kept = context.files.volumes.gauge.kept_bytes();
    let fitting = all.iter().filter(|it| it.left <= kept).take(SQUEEZED_AT_ONCE);
    let mut best: Vec<SegmentNumber> = fitting.map(|it| it.number).collect();
    if best.is_empty() {
        best.extend(all.first().map(|it| it.number));
    }
    (!best.is_empty()).then_some(best)
}

/// Returns true if more bytes are dead in the segments than space amplification allows.
pub(super) fn is_over_bound(view: &View, amplification: f64) -> bool {
    let live: u64 = live_segments(view).values().sum();
    let held: u64 = view.segments.values().map(|segment| segment.len()).sum();
    held >= DEAD_BYTES_MIN + (live as f64 * amplification) as u64
}

/// Returns how thorough background work is now, if anything is to be collected.
pub(super) fn thoroughness(context: &CompactionContext<'_>, view: &View) -> Option<Thoroughness> {
    if is_over_bound(view, context.options.amplification_target()) {
        return Some(Thoroughness::MostlyDead);
    }
    let is_full = context.files.volumes.choose_for_log(context.options.segment_bytes).is_err();
    let is_over = is_full && is_over_bound(view, AMPLIFICATION_IF_FULL);
    is_over.then_some(Thoroughness::Full)
}

/// Returns a `Kvs` whose deletes and expired values are worth a compaction of all its runs, and its
/// overwritten values while nothing is written. The segments count these as live until then.
pub(super) fn deleted(context: &CompactionContext<'_>, view: &View) -> Option<KvsId> {
    let is_idle = context.background.is_idle.load(Relaxed);
    let most = 1.0 - 1.0 / context.options.amplification_target();
    let part = if is_idle { IDLE_DEAD_PART } else { most };
    let now = is_idle.then(|| context.files.time.now());
    let dead = context.compactable(view).filter_map(|(kvs, runs)| {
        let (dead, all) = dead_of(runs, now);
        let overwritten = match is_idle && runs.len() > 1 && all >= DEAD_BYTES_MIN {
            true => context.background.space.overwritten(*kvs, runs).min(all),
            false => 0,
        };
        let is_due = |dead: u64, part| dead >= DEAD_BYTES_MIN && dead as f64 >= all as f64 * part;
        (is_due(dead, part) || is_due(overwritten, most)).then_some((dead.max(overwritten), *kvs))
    });
    dead.max_by_key(|(dead, _)| *dead).map(|(_, kvs)| kvs)
}

/// Returns the bytes that newer runs delete from older ones, by estimate, and all bytes. At a time
/// `now` of leisure, range deletes count as if they deleted everything, and expired values count.
fn dead_of(runs: &[ViewRun], now: Option<Seconds>) -> (u64, u64) {
    let bytes = |run: &ViewRun| -> u64 {
        let summary = run.run.summary();
        summary.file_bytes + summary.live.iter().map(|live| live.bytes).sum::<u64>()
    };
    let all: u64 = runs.iter().map(bytes).sum();
    let Some((_, newer)) = runs.split_last() else { return (0, 0) };
    let entries: u64 = runs.iter().map(|run| run.run.summary().entries).sum();
    let gone: u64 = newer.iter().map(|run| run.run.summary().gone).sum();
    let deleted = all / entries.max(1) * gone.min(entries - gone);
    let Some(now) = now else { return (deleted, all) };
    match newer.iter().any(|run| run.prefixes.any()) {
        true => (all, all),
        false => (deleted + runs.iter().map(|run| run.ends.ended(now)).sum::<u64>(), all),
    }
}

/// Bytes that may still move to each volume.
struct Budgets<'a> {
    context: &'a CompactionContext<'a>,
    keys_place: &'a Arc<OpenVolume>,
    keys: u64,
    places: Vec<(Classes, Arc<OpenVolume>)>,
    /// Bytes left by the number of a volume: for values whose segments come free at once, and for
    /// those whose segments readers hold.
    left: BTreeMap<(u32, bool), u64>,
}

impl<'a> Budgets<'a> {
    fn new(
        context: &'a CompactionContext<'a>,
        keys_place: &'a Arc<OpenVolume>,
        keys: u64,
    ) -> Budgets<'a> {
        Budgets { context, keys_place, keys, places: Vec::new(), left: BTreeMap::new() }
    }

    /// Takes the room for the values of a segment. Returns false if there is not enough. The first
    /// segment may take all that is free, others leave half of it to writers that make room.
    fn take(&mut self, to: Classes, bytes: u64, is_held: bool, is_first: bool) -> bool {
        let volumes = &self.context.files.volumes;
        let place = match self.places.iter().find(|(classes, _)| *classes == to) {
            Some((_, place)) => place.clone(),
            None => {
                let place = volumes.choose_of_reserve(FileKind::Values, to, bytes);
                self.places.push((to, place.clone()));
                place
            }
        };
        let keys = if Arc::ptr_eq(&place, self.keys_place) { self.keys } else { 0 };
        let room = || volumes.room_to_collect(&place, keys, is_held);
        let left = self.left.entry((place.number, is_held)).or_insert_with(|| room() / 2);
        if bytes <= *left {
            *left -= bytes;
            return true;
        }
        is_first && bytes <= room()
    }
}
