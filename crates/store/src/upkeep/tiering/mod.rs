//! Tiering: moves between classes of media, and the reasons for them.
//!
//! The result of a compaction of all runs of a `Kvs` is aged, and lies where the policy of the
//! `Kvs` wants old data. Where the policy leaves a choice, room decides. From a nearly full class,
//! the oldest values are demoted, then keys. To a half empty class, values are promoted. A gap
//! between [`RETURN_ABOVE`] and [`SINK_BELOW`] keeps data from moving to and fro. Frequently read
//! values stay on a faster class, or return to it, within their share of it
//! ([`read_frequency`](crate::upkeep::read_frequency)).
//!
//! While the budget of a drive's writes is used up, only what makes room moves to it: demotion from
//! a nearly full class, and data that leaves a retiring volume.
//!
//! A file that is nearly all live moves as a whole ([`file_move`](crate::upkeep::file_move)), so
//! nothing that refers to it must be rewritten. Values of other segments move one by one, in a
//! compaction of the runs that refer to them, which leaves dead ones behind.

mod promotion;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::names;
use crate::policy::{Classes, MediaClass, Policy};
use crate::segment::{FIRST_RECORD, Segment};
use crate::types::{KvsId, SegmentNumber};
use crate::upkeep::context::CompactionContext;
use crate::upkeep::file_move::{FileMove, FlushedFile};
use crate::version::files::{Files, live_of};
use crate::version::view::{View, ViewRun};
use crate::volumes::{ClassFill, FileKind, MoveCause, SINK_BELOW, Volumes};

/// Free share of a class at which demotion ends.
const SINK_UNTIL: f64 = 0.3;
/// Free share of a class above which values are promoted to it.
const RETURN_ABOVE: f64 = 0.5;
/// Free share of a class at which promotion ends.
const RETURN_UNTIL: f64 = 0.4;
/// Misplaced bytes that are not worth a compaction.
const MISPLACED_BYTES_MIN: u64 = 1 << 20;
/// Percentage of bytes live at which a segment moves as a whole.
const WHOLE_PERCENT_MIN: u64 = 90;
/// Percentage of overwritten versions in past compactions at which runs are compacted before their
/// values are demoted.
const OVERWRITTEN_PERCENT_MIN: u64 = 10;

/// Selection of the values of a segment that move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MovedValues {
    /// All values.
    All,
    /// Hot values.
    Hot,
    /// Values that are not hot. Of these, values that are still warm stay on their class.
    Cold,
}

/// Destination and reason of a move of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueMove {
    pub(crate) to: Classes,
    pub(crate) cause: MoveCause,
    pub(crate) which: MovedValues,
}

/// Moves of values, by segment.
pub(crate) type ValueMoves = BTreeMap<SegmentNumber, ValueMove>;

/// Work that tiering asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tiering {
    /// Moves of whole files.
    FileMoves(Vec<FileMove>),
    /// Compaction of runs of a `Kvs`, in which values move.
    Compaction { kvs: KvsId, runs: Range<usize>, moves: ValueMoves },
}

/// Share of a `Kvs` in a segment.
#[derive(Debug, Clone, Copy)]
struct Owner {
    kvs: KvsId,
    policy: Policy,
    is_aged: bool,
    bytes: u64,
}

/// `Kvs` with values in a segment, by segment.
type Owners = BTreeMap<SegmentNumber, Vec<Owner>>;

impl ValueMove {
    fn all(to: Classes, cause: MoveCause) -> ValueMove {
        ValueMove { to, cause, which: MovedValues::All }
    }
}

impl CompactionContext<'_> {
    /// Returns the move that a policy alone demands for the values of a segment; `None` if they may
    /// stay.
    fn move_by_policy(
        &self,
        policy: &Policy,
        is_aged: bool,
        number: SegmentNumber,
    ) -> Option<ValueMove> {
        let place = self.files.volumes.find(&names::of_segment(number))?;
        let (wanted, aged) = (
            self.files.volumes.had(policy.values(is_aged)),
            self.files.volumes.had(policy.old_values),
        );
        // Young values that the log has put on a class for aged values stay there.
        let may_stay = wanted.has(place.class) || aged.has(place.class) && !is_aged;
        let is_slower = || wanted.as_slice().iter().all(|class| *class > place.class);
        let (cause, which) = match place.is_retiring() {
            false if may_stay => return None,
            false if is_slower() => (MoveCause::Aged, MovedValues::Cold),
            _ => (MoveCause::Misplaced, MovedValues::All),
        };
        Some(ValueMove { to: wanted, cause, which })
    }

    /// Returns the moves that a policy alone demands for segments.
    pub(crate) fn moves_by_policy<'a>(
        &self,
        policy: &Policy,
        is_aged: bool,
        segments: impl Iterator<Item = &'a SegmentNumber>,
    ) -> ValueMoves {
        let to = |number: &SegmentNumber| {
            Some((*number, self.move_by_policy(policy, is_aged, *number)?))
        };
        segments.filter_map(to).collect()
    }

    /// Returns the moves that a policy demands once all runs are compacted into one, without
    /// segments that move as a whole. There are none if the classes that the policy wants have no
    /// room.
    pub(crate) fn moves_with_room(
        &self,
        policy: &Policy,
        view: &View,
        runs: &[ViewRun],
    ) -> ValueMoves {
        let live = live_of(runs);
        let mut moves = self.moves_by_policy(policy, true, live.keys());
        let is_kept = |number: &SegmentNumber| {
            let segment = view.segments.get(number);
            let is_retiring = self.files.volumes.is_retiring(&names::of_segment(*number));
            is_retiring || segment.is_none_or(|it| is_nearly_all(it, live[number]))
        };
        let kept = self.background.read_frequency.kept();
        let damaged = &self.background.damaged_segments;
        moves.retain(|number, _| {
            !is_kept(number) && !kept.contains(number) && !damaged.has(*number)
        });
        let bytes = moves.keys().filter_map(|number| live.get(number)).sum();
        let wanted = self.files.volumes.had(policy.old_values);
        if self.files.volumes.choose_strictly(FileKind::Values, wanted, bytes).is_err() {
            moves.clear();
        }
        moves
    }

    /// Returns the move of live values out of a mostly dead segment: never to a faster class.
    pub(crate) fn move_of_garbage(&self, policy: &Policy, number: SegmentNumber) -> ValueMove {
        let classes = self.files.volumes.had(policy.old_values);
        let to = match self.files.class_of(number) {
            Some(now) => classes.filtered(|class| class >= now),
            None => classes,
        };
        ValueMove::all(to, MoveCause::Garbage)
    }

    /// Returns the most worthwhile work of tiering, if there is any.
    pub(crate) fn tiering(&self, view: &View) -> Option<Tiering> {
        let owners = self.owners(view)?;
        let has_budget = |work: &Tiering| self.has_budget(work);
        self.misplaced(view, &owners, MISPLACED_BYTES_MIN)
            .filter(|work| self.files.volumes.is_any_retiring() || has_budget(work))
            .or_else(|| self.sinking(view, &owners))
            .or_else(|| self.warming(view).filter(has_budget))
            .or_else(|| self.returning(view, &owners).filter(has_budget))
    }

    /// Returns true if the volumes that would be written to may be today.
    fn has_budget(&self, work: &Tiering) -> bool {
        let may_be = |kind: FileKind, to: Classes| {
            let place = self.files.volumes.choose_strictly(kind, to, 0);
            place.is_ok_and(|place| !self.files.is_used_up(&place))
        };
        match work {
            Tiering::FileMoves(moves) => moves.iter().all(|it| may_be(it.file.kind(), it.to)),
            Tiering::Compaction { moves, .. } => {
                moves.values().all(|it| may_be(FileKind::Values, it.to))
            }
        }
    }

    /// Returns the `Kvs` with values in each segment that may move; `None` if there is only one
    /// volume.
    fn owners(&self, view: &View) -> Option<Owners> {
        if self.files.volumes.count_volumes() < 2 {
            return None;
        }
        let stays = |number: SegmentNumber| {
            self.background.damaged_segments.has(number)
                && !self.files.volumes.is_retiring(&names::of_segment(number))
        };
        let mut owners = Owners::new();
        for (kvs, runs) in self.compactable(view) {
            let Some((policy, aged)) = self.files.policy(*kvs) else { continue };
            for run in runs.iter() {
                let is_aged = run.number() == aged;
                let live = run.run.summary().live.iter();
                for live in live.filter(|live| !stays(live.segment)) {
                    let of_segment = owners.entry(live.segment).or_default();
                    match of_segment.iter_mut().find(|owner| owner.kvs == *kvs) {
                        Some(owner) => {
                            owner.bytes += live.bytes;
                            owner.is_aged &= is_aged;
                        }
                        None => {
                            let bytes = live.bytes;
                            of_segment.push(Owner { kvs: *kvs, policy, is_aged, bytes });
                        }
                    }
                }
            }
        }
        Some(owners)
    }

    /// Returns moves of data that lies on a class its policy does not allow, or on a retiring
    /// volume, if its destination has room.
    pub(crate) fn misplaced_now(&self, view: &View) -> Option<Tiering> {
        self.misplaced(view, &self.owners(view)?, 1)
    }

    /// Returns moves of misplaced data. Compactions count only if they move at least `least` bytes,
    /// together with the file moves.
    fn misplaced(&self, view: &View, owners: &Owners, least: u64) -> Option<Tiering> {
        let kept = self.background.read_frequency.kept();
        let hot = self.background.read_frequency.hot(view);
        let (mut file_moves, mut rewritten) =
            (FileMoves::default(), BTreeMap::<KvsId, ValueMoves>::new());
        for (number, of_segment) in owners {
            let Some(segment) = view.segments.get(number) else { continue };
            let wish = |owner: &Owner| self.move_by_policy(&owner.policy, owner.is_aged, *number);
            let wishes: Vec<Option<ValueMove>> = of_segment.iter().map(wish).collect();
            let Some(wish) = wishes.iter().flatten().next() else { continue };
            let file = FlushedFile::Segment(*number);
            let is_retiring = self.files.volumes.is_retiring(&file.name());
            let live: u64 = of_segment.iter().map(|owner| owner.bytes).sum();
            let live = live.saturating_sub(hot.get(number).map_or(0, |hot| hot.values));
            let do_agree = wishes.iter().all(|other| *other == Some(*wish));
            if is_retiring || do_agree && is_nearly_all(segment, live) && !kept.contains(number) {
                file_moves.add(
                    &self.files.volumes,
                    FileMove { file, to: wish.to, cause: wish.cause },
                    segment.len(),
                );
            } else if !kept.contains(number) {
                for (owner, wish) in of_segment.iter().zip(&wishes) {
                    if let Some(wish) = wish {
                        rewritten.entry(owner.kvs).or_default().insert(*number, *wish);
                    }
                }
            }
        }
        for (kvs, runs) in self.compactable(view) {
            let Some((policy, aged)) = self.files.policy(*kvs) else { continue };
            for run in runs.iter() {
                let file = FlushedFile::Run(*kvs, run.number());
                let Some(place) = self.files.volumes.find(&file.name()) else { continue };
                let wanted = self.files.volumes.had(policy.keys(run.number() == aged));
                if place.is_retiring() || !wanted.has(place.class) {
                    let file_move = FileMove { file, to: wanted, cause: MoveCause::Misplaced };
                    file_moves.add(&self.files.volumes, file_move, run.run.summary().file_bytes);
                }
            }
        }
        // Values that only a compaction can move come first. Otherwise too little of them might be
        // left for one.
        let least = least.saturating_sub(file_moves.sum());
        let compactions = rewritten.into_iter();
        let mut compactions =
            compactions.filter_map(|(kvs, moves)| self.rewriting(view, kvs, moves, least));
        compactions.next().or_else(|| file_moves.all())
    }

    /// Returns a compaction that moves values, if they have at least `least` bytes, and room.
    fn rewriting(&self, view: &View, kvs: KvsId, moves: ValueMoves, least: u64) -> Option<Tiering> {
        let live = live_of(view.runs.get(&kvs)?.iter());
        let mut bytes = BTreeMap::<Vec<MediaClass>, (Classes, u64)>::new();
        for (number, to) in &moves {
            let of_target = bytes.entry(to.to.into()).or_insert((to.to, 0));
            of_target.1 += live.get(number).copied().unwrap_or_default();
        }
        let sum: u64 = bytes.values().map(|(_, bytes)| bytes).sum();
        let has_room = |(to, bytes): &(Classes, u64)| {
            self.files.volumes.choose_strictly(FileKind::Values, *to, *bytes).is_ok()
        };
        if sum < least || !bytes.values().all(has_room) {
            return None;
        }
        compaction_of(view, kvs, moves)
    }

    /// Returns demotions of values, or of keys, from a nearly full class.
    fn sinking(&self, view: &View, owners: &Owners) -> Option<Tiering> {
        let classes = MediaClass::ALL.into_iter();
        classes.filter_map(|class| self.sinking_from(view, owners, class)).next()
    }

    fn sinking_from(&self, view: &View, owners: &Owners, class: MediaClass) -> Option<Tiering> {
        let fill = self.files.volumes.fill(class)?;
        if fill.free as f64 >= fill.bytes as f64 * SINK_BELOW {
            return None;
        }
        let needed = (fill.bytes as f64 * SINK_UNTIL) as u64 - fill.free;
        let mut bytes = 0;
        let mut sinking = Vec::new();
        for (number, segment) in self.in_order_of_age(view) {
            if bytes >= needed {
                break;
            }
            let Some(of_segment) = owners.get(&number) else { continue };
            if self.files.class_of(number) == Some(class)
                && let Some(to) = self.below_for_all(class, of_segment, needed)
            {
                sinking.push((number, segment, to));
                bytes += segment.len();
            }
        }
        if sinking.is_empty() {
            return self.sinking_keys(view, class, needed);
        }
        let kvs = most_of(sinking.iter().filter_map(|(number, ..)| owners.get(number)))?;
        if let Some(merge) = self.compaction_of_overwritten(view, kvs) {
            return Some(merge);
        }
        let hot = self.background.read_frequency.hot(view);
        let (mut file_moves, mut moves) = (FileMoves::default(), ValueMoves::new());
        for (number, segment, to) in sinking {
            let of_segment = owners.get(&number).map_or(&[][..], |owners| owners);
            let live: u64 = of_segment.iter().map(|owner| owner.bytes).sum();
            let hot = hot.get(&number).map_or(0, |hot| hot.values);
            if is_nearly_all(segment, live.saturating_sub(hot)) {
                let file = FlushedFile::Segment(number);
                file_moves.add(
                    &self.files.volumes,
                    FileMove { file, to, cause: MoveCause::Aged },
                    segment.len(),
                );
            } else if of_segment.iter().any(|owner| owner.kvs == kvs) {
                moves.insert(
                    number,
                    ValueMove { to, cause: MoveCause::Aged, which: MovedValues::Cold },
                );
            }
        }
        file_moves.all().or_else(|| compaction_of(view, kvs, moves))
    }

    /// Returns the classes to demote a segment's values to, if all its `Kvs` agree.
    fn below_for_all(&self, class: MediaClass, owners: &[Owner], bytes: u64) -> Option<Classes> {
        let mut all = owners.iter().map(|owner| self.below(class, owner.policy.old_values, bytes));
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    /// Restricts classes to those slower than `class`, if they have room for `bytes` bytes.
    fn below(&self, class: MediaClass, classes: Classes, bytes: u64) -> Option<Classes> {
        let below = self.files.volumes.had(classes).filtered(|it| it > class);
        let is_below = below.as_slice().iter().all(|it| *it > class);
        let has_room =
            || self.files.volumes.choose_strictly(FileKind::Values, below, bytes).is_ok();
        (is_below && has_room()).then_some(below)
    }

    /// Returns a compaction of the younger runs of a `Kvs`, if many of their versions were
    /// overwritten: overwritten values need not be demoted.
    fn compaction_of_overwritten(&self, view: &View, kvs: KvsId) -> Option<Tiering> {
        let runs = view.runs.get(&kvs)?;
        let (_, aged) = self.files.policy(kvs)?;
        let young = runs.iter().take_while(|run| run.number() != aged).count();
        let overwritten = self.background.overwritten.lock().get(&kvs).copied().unwrap_or_default();
        let is_worth_it = young > 1 && overwritten >= OVERWRITTEN_PERCENT_MIN;
        is_worth_it.then(|| Tiering::Compaction { kvs, runs: 0..young, moves: ValueMoves::new() })
    }

    fn sinking_keys(&self, view: &View, class: MediaClass, bytes: u64) -> Option<Tiering> {
        let keys = self.compactable(view).filter_map(|(kvs, runs)| {
            let (policy, _) = self.files.policy(*kvs)?;
            let to = self.below(class, policy.old_keys, bytes)?;
            let here = runs.iter().filter(|run| {
                self.files.volumes.class_of(&names::of_run(run.number())) == Some(class)
            });
            let largest = here.max_by_key(|run| run.run.summary().file_bytes)?;
            let file = FlushedFile::Run(*kvs, largest.number());
            let bytes = largest.run.summary().file_bytes;
            Some((bytes, FileMove { file, to, cause: MoveCause::Aged }))
        });
        let (bytes, file_move) = keys.max_by_key(|(bytes, _)| *bytes)?;
        let mut file_moves = FileMoves::default();
        file_moves.add(&self.files.volumes, file_move, bytes);
        file_moves.all()
    }

    /// Returns promotions of keys to a class with room for them, or of values to a half empty
    /// class.
    fn returning(&self, view: &View, owners: &Owners) -> Option<Tiering> {
        MediaClass::ALL.into_iter().find_map(|class| {
            let fill = self.files.volumes.fill(class)?;
            if let Some(tiering) = self.returning_keys(view, class, fill) {
                return Some(tiering);
            }
            if (fill.free as f64) < fill.bytes as f64 * RETURN_ABOVE {
                return None;
            }
            let room = fill.free - (fill.bytes as f64 * RETURN_UNTIL) as u64;
            self.returning_values(owners, view, class, room)
        })
    }

    fn returning_values(
        &self,
        owners: &Owners,
        view: &View,
        class: MediaClass,
        room: u64,
    ) -> Option<Tiering> {
        let (mut file_moves, mut moves) =
            (FileMoves::default(), BTreeMap::<KvsId, ValueMoves>::new());
        let mut bytes = 0;
        // The newest values are promoted first.
        for (number, of_segment) in owners.iter().rev() {
            let (Some(now), Some(segment)) =
                (self.files.class_of(*number), view.segments.get(number))
            else {
                continue;
            };
            let wanted = of_segment.iter().map(|owner| {
                let classes = self.files.volumes.had(owner.policy.old_values);
                classes.prefers(class, now).then_some((owner.kvs, classes))
            });
            let Some(wanted) = wanted.collect::<Option<Vec<_>>>() else { continue };
            let Some((kvs, to)) = wanted.first().copied() else { continue };
            let do_agree = wanted.iter().all(|(_, other)| *other == to);
            let live: u64 = of_segment.iter().map(|owner| owner.bytes).sum();
            if do_agree && is_nearly_all(segment, live) && bytes + segment.len() <= room {
                let file_move = FileMove {
                    file: FlushedFile::Segment(*number),
                    to,
                    cause: MoveCause::Returned,
                };
                file_moves.add(&self.files.volumes, file_move, segment.len());
                bytes += segment.len();
            } else if bytes + live <= room {
                let to = ValueMove::all(to, MoveCause::Returned);
                moves.entry(kvs).or_default().insert(*number, to);
                bytes += live;
            }
        }
        let compactions = moves.into_iter();
        let mut compactions = compactions
            .filter_map(|(kvs, moves)| self.rewriting(view, kvs, moves, MISPLACED_BYTES_MIN));
        file_moves.all().or_else(|| compactions.next())
    }

    /// Returns a promotion of a run to a class that its policy prefers, if that has room.
    fn returning_keys(&self, view: &View, class: MediaClass, fill: ClassFill) -> Option<Tiering> {
        let kept = (fill.bytes as f64 * SINK_UNTIL) as u64;
        self.compactable(view).find_map(|(kvs, runs)| {
            let (policy, aged) = self.files.policy(*kvs)?;
            runs.iter().find_map(|run| {
                let file = FlushedFile::Run(*kvs, run.number());
                let keys = self.files.volumes.had(policy.keys(run.number() == aged));
                let bytes = run.run.summary().file_bytes;
                let now = self.files.volumes.class_of(&file.name())?;
                let has_room = fill.free >= kept.saturating_add(bytes);
                if !keys.prefers(class, now) || !has_room {
                    return None;
                }
                let mut file_moves = FileMoves::default();
                let file_move = FileMove { file, to: keys.before(now), cause: MoveCause::Returned };
                file_moves.add(&self.files.volumes, file_move, bytes);
                file_moves.all()
            })
        })
    }

    /// Returns the flushed segments: those of the log in its order, those of moved values, and last
    /// those with gathered hot values.
    fn in_order_of_age<'a>(&self, view: &'a View) -> Vec<(SegmentNumber, &'a Segment)> {
        let kept = self.background.read_frequency.kept();
        let all = view.segments.iter().map(|(number, segment)| (*number, &**segment));
        let (hot, mut others): (Vec<_>, Vec<_>) =
            all.partition(|(number, _)| kept.contains(number));
        others.extend(hot);
        others
    }
}

/// File moves for all of which there is room.
#[derive(Debug, Default)]
struct FileMoves {
    all: Vec<FileMove>,
    /// Bytes that move to each choice of classes.
    bytes: BTreeMap<Vec<MediaClass>, u64>,
}

impl FileMoves {
    /// Adds a file, if its destination has room and is elsewhere.
    fn add(&mut self, volumes: &Volumes, file_move: FileMove, bytes: u64) {
        let sum = self.bytes.entry(file_move.to.into()).or_default();
        if file_move.target(volumes, *sum + bytes).is_some() {
            *sum += bytes;
            self.all.push(file_move);
        }
    }

    /// Returns the bytes of all files.
    fn sum(&self) -> u64 {
        self.bytes.values().sum()
    }

    fn all(self) -> Option<Tiering> {
        (!self.all.is_empty()).then_some(Tiering::FileMoves(self.all))
    }
}

/// Returns a compaction of the runs of a `Kvs` that refer to segments, or of all runs if the oldest
/// is among them; `None` if no run refers to the segments.
fn compaction_of(view: &View, kvs: KvsId, moves: ValueMoves) -> Option<Tiering> {
    let runs = view.runs.get(&kvs)?;
    let leads = |run: &ViewRun| live_in([run], |number| moves.contains_key(&number)) > 0;
    let (first, last) = (runs.iter().position(leads)?, runs.iter().rposition(leads)?);
    let first = if last + 1 == runs.len() { 0 } else { first };
    Some(Tiering::Compaction { kvs, runs: first..last + 1, moves })
}

/// Returns the `Kvs` with the most bytes in some segments.
fn most_of<'a>(segments: impl Iterator<Item = &'a Vec<Owner>>) -> Option<KvsId> {
    let mut bytes = BTreeMap::<KvsId, u64>::new();
    for owner in segments.flatten() {
        *bytes.entry(owner.kvs).or_default() += owner.bytes;
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(kvs, _)| kvs)
}

/// Returns true if nearly all of a segment is live, hence moving single values is not worth it.
fn is_nearly_all(segment: &Segment, live: u64) -> bool {
    live * 100 >= (segment.len() - FIRST_RECORD) * WHOLE_PERCENT_MIN
}

/// Returns the bytes that runs refer to in some segments.
pub(crate) fn live_in<'a>(
    runs: impl IntoIterator<Item = &'a ViewRun>,
    is_meant: impl Fn(SegmentNumber) -> bool,
) -> u64 {
    let live = runs.into_iter().flat_map(|run| run.run.summary().live.iter());
    live.filter(|live| is_meant(live.segment)).map(|live| live.bytes).sum()
}

/// Returns the segments that lie on a class.
fn on_class(
    files: &Files,
    class: MediaClass,
    segments: &BTreeSet<SegmentNumber>,
) -> Vec<SegmentNumber> {
    let here = segments.iter().copied().filter(|number| files.class_of(*number) == Some(class));
    here.collect()
}
