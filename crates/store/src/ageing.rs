//! Ageing: what moves from one class of media to another, and why.
//!
//! Data move in merges only, which write the keys anew anyway. What a merge of all runs of a `Kvs`
//! yields is aged, and lies where the policy of the `Kvs` wants aged data. Where that leaves a
//! choice, room decides: of a class that is nearly full the values sink that were written first,
//! then keys; to a class that is half empty values return. Between the two lie
//! [`RETURN_ABOVE`] and [`SINK_BELOW`], so that nothing goes to and fro.

use std::collections::BTreeMap;

use crate::entry::{KvsId, RunNumber, SegmentNumber};
use crate::inner::{Inner, Live, live_of};
use crate::log::segment::{self, Segment};
use crate::places::{Cause, Fill, What};
use crate::policy::{Classes, MediaClass, Policy};
use crate::run;
use crate::view::{Frozen, View};

/// With less than this share of a class free, values sink.
pub(crate) const SINK_BELOW: f64 = 0.2;
/// They sink until so much is free.
const SINK_UNTIL: f64 = 0.3;
/// With more than this share of a class free, values return to it.
const RETURN_ABOVE: f64 = 0.5;
/// They return until so little is free.
const RETURN_UNTIL: f64 = 0.4;
/// Bytes in a wrong place that are not worth a merge.
const MISPLACED_BYTES_MIN: u64 = 1 << 20;

/// Where values of a segment move, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) to: Classes,
    pub(crate) cause: Cause,
}

/// The segments of which the values move.
pub(crate) type Moves = BTreeMap<SegmentNumber, Move>;

/// What ageing asks of a merge.
#[derive(Debug, Clone)]
pub(crate) struct Ageing {
    pub(crate) kvs: KvsId,
    pub(crate) moves: Moves,
    /// Where keys go, if not where the policy wants them first.
    pub(crate) keys: Option<Classes>,
}

impl Inner {
    /// The policy of a `Kvs`, and its aged run; none if there is no such `Kvs`.
    pub(crate) fn policy(&self, kvs: KvsId) -> Option<(Policy, RunNumber)> {
        let manifest = self.manifest.lock();
        let state = manifest.kvs.iter().find(|state| state.id == kvs.0)?;
        Some((state.policy, RunNumber(state.aged_run)))
    }

    /// Those of some classes that the store has; if it has none of them, all classes.
    pub(crate) fn had(&self, classes: Classes) -> Classes {
        let has_any = classes.as_slice().iter().any(|class| self.places.has(*class));
        if has_any { classes.filtered(|class| self.places.has(class)) } else { Classes::FASTEST }
    }

    fn class_of(&self, segment: SegmentNumber) -> Option<MediaClass> {
        self.places.class_of(&segment::file_name(segment))
    }

    /// Whether a file cannot stay where it is, whatever policies say.
    fn must_move(&self, name: &str) -> bool {
        self.places.find(name).is_some_and(|place| place.is_retiring())
    }

    /// Whether a file may not stay where it is.
    fn is_misplaced(&self, name: &str, classes: Classes) -> bool {
        let place = self.places.find(name);
        place.is_some_and(|place| place.is_retiring() || !classes.has(place.class))
    }

    /// The segments among some of which values have to move by a policy alone.
    pub(crate) fn moves_by_policy<'a>(
        &self,
        policy: &Policy,
        is_aged: bool,
        segments: impl Iterator<Item = &'a SegmentNumber>,
    ) -> Moves {
        let (wanted, aged) = (self.had(policy.values(is_aged)), self.had(policy.aged_values));
        // What the log has put where it belongs once it is aged stays there.
        let may_stay = |class| wanted.has(class) || aged.has(class) && !is_aged;
        let mut moves = Moves::new();
        for &number in segments {
            let name = segment::file_name(number);
            let Some(place) = self.places.find(&name) else { continue };
            let is_slower = || wanted.as_slice().iter().all(|class| *class > place.class);
            let cause = match place.is_retiring() {
                false if may_stay(place.class) => continue,
                false if is_slower() => Cause::Aged,
                _ => Cause::Misplaced,
            };
            moves.insert(number, Move { to: wanted, cause });
        }
        moves
    }

    /// Which values of runs move by a policy alone once all runs are merged into one: none if there
    /// is no room where they should be, unless they cannot stay.
    pub(crate) fn moves_with_room(&self, policy: &Policy, runs: &[Frozen]) -> Moves {
        let live = live_of(runs);
        let mut moves = self.moves_by_policy(policy, true, live.keys());
        let bytes = moves.keys().filter_map(|number| live.get(number)).sum();
        let wanted = self.had(policy.aged_values);
        if self.places.choose_strictly(What::Values, wanted, bytes).is_err() {
            moves.retain(|number, _| self.must_move(&segment::file_name(*number)));
        }
        moves
    }

    /// Where the values of a segment go of which most is dead: not to a faster class.
    pub(crate) fn move_of_garbage(&self, policy: &Policy, number: SegmentNumber) -> Move {
        let classes = self.had(policy.aged_values);
        let to = match self.class_of(number) {
            Some(now) => classes.filtered(|class| class >= now),
            None => classes,
        };
        Move { to, cause: Cause::Garbage }
    }

    /// What is most worth moving, if anything is.
    pub(crate) fn ageing(&self, view: &View) -> Option<Ageing> {
        self.misplaced(view).or_else(|| self.sinking(view)).or_else(|| self.returning(view))
    }

    /// A `Kvs` that has data where its policy does not want them, and room where it does.
    fn misplaced(&self, view: &View) -> Option<Ageing> {
        self.mergeable(view).find_map(|(kvs, runs)| {
            let (policy, aged) = self.policy(*kvs)?;
            let (mut values, mut keys) = (Misplaced::default(), Misplaced::default());
            let mut moves = Moves::new();
            for run in runs.iter() {
                let is_aged = run.number() == aged;
                let live = run.run.summary().live.iter();
                let of_run =
                    self.moves_by_policy(&policy, is_aged, live.clone().map(|it| &it.segment));
                for live in live.filter(|live| of_run.contains_key(&live.segment)) {
                    values.add(self, &segment::file_name(live.segment), live.bytes);
                }
                moves.extend(of_run);
                let name = run::file_name(run.number());
                if self.is_misplaced(&name, self.had(policy.keys(is_aged))) {
                    keys.add(self, &name, run.run.summary().file_bytes);
                }
            }
            // What would not find room where it should be stays.
            values.forget_without_room(self, What::Values, policy.aged_values);
            keys.forget_without_room(self, What::Keys, policy.aged_keys);
            let is_worth_it = values.of_retiring + keys.of_retiring > 0
                || values.others + keys.others >= MISPLACED_BYTES_MIN;
            is_worth_it.then_some(Ageing { kvs: *kvs, moves, keys: None })
        })
    }

    /// A `Kvs` of which values, or keys, sink from a class that is nearly full.
    fn sinking(&self, view: &View) -> Option<Ageing> {
        let classes = MediaClass::ALL.into_iter();
        classes.filter_map(|class| self.sinking_from(view, class)).next()
    }

    fn sinking_from(&self, view: &View, class: MediaClass) -> Option<Ageing> {
        let fill = self.places.fill(class)?;
        if fill.free as f64 >= fill.bytes as f64 * SINK_BELOW {
            return None;
        }
        let needed = (fill.bytes as f64 * SINK_UNTIL) as u64 - fill.free;
        let below = |classes: Classes| {
            let below = self.had(classes).filtered(|it| it > class);
            let is_below = below.as_slice().iter().all(|it| *it > class);
            (is_below && self.places.choose_strictly(What::Values, below, needed).is_ok())
                .then_some(below)
        };
        let sinkable: Vec<(KvsId, Live, Classes)> = self
            .mergeable(view)
            .filter_map(|(kvs, runs)| {
                let (policy, _) = self.policy(*kvs)?;
                Some((*kvs, live_of(runs.iter()), below(policy.aged_values)?))
            })
            .collect();
        let mut moved = Vec::new();
        let mut bytes = 0;
        for (number, segment) in in_order_of_age(view) {
            let is_sinkable = || sinkable.iter().any(|(_, live, _)| live.contains_key(&number));
            if bytes < needed && self.class_of(number) == Some(class) && is_sinkable() {
                moved.push(number);
                bytes += segment.len();
            }
        }
        let bytes_of =
            |live: &Live| -> u64 { moved.iter().filter_map(|number| live.get(number)).sum() };
        let most = sinkable.iter().max_by_key(|(_, live, _)| bytes_of(live));
        if let Some((kvs, live, to)) = most
            && bytes_of(live) > 0
        {
            let to = Move { to: *to, cause: Cause::Aged };
            let moves = moved.iter().map(|number| (*number, to)).collect();
            return Some(Ageing { kvs: *kvs, moves, keys: None });
        }
        let keys = self.mergeable(view).filter_map(|(kvs, runs)| {
            let (policy, _) = self.policy(*kvs)?;
            let (last, keys) = (runs.last()?, below(policy.aged_keys)?);
            let name = run::file_name(last.number());
            let is_here = self.places.class_of(&name) == Some(class);
            is_here.then_some((last.run.summary().file_bytes, *kvs, keys))
        });
        let (_, kvs, keys) = keys.max_by_key(|(bytes, ..)| *bytes)?;
        Some(Ageing { kvs, moves: Moves::new(), keys: Some(keys) })
    }

    /// A `Kvs` of which keys return to a class that has room for them, or values to one that has
    /// become half empty.
    fn returning(&self, view: &View) -> Option<Ageing> {
        MediaClass::ALL.into_iter().find_map(|class| {
            let fill = self.places.fill(class)?;
            if let Some(ageing) = self.returning_keys(view, class, fill) {
                return Some(ageing);
            }
            if (fill.free as f64) < fill.bytes as f64 * RETURN_ABOVE {
                return None;
            }
            let room = fill.free - (fill.bytes as f64 * RETURN_UNTIL) as u64;
            self.mergeable(view).find_map(|(kvs, runs)| {
                let (policy, _) = self.policy(*kvs)?;
                let classes = self.had(policy.aged_values);
                let to = Move { to: classes, cause: Cause::Returned };
                let mut moves = Moves::new();
                let mut bytes = 0;
                // What was written last comes back first.
                for (number, live) in live_of(runs.iter()).into_iter().rev() {
                    let now = self.class_of(number);
                    let is_wanted = now.is_some_and(|now| classes.prefers(class, now));
                    if is_wanted && bytes + live <= room {
                        moves.insert(number, to);
                        bytes += live;
                    }
                }
                (bytes >= MISPLACED_BYTES_MIN).then_some(Ageing { kvs: *kvs, moves, keys: None })
            })
        })
    }

    /// A `Kvs` of which the keys lie on a slower class, and a class that they may be on has room.
    fn returning_keys(&self, view: &View, class: MediaClass, fill: Fill) -> Option<Ageing> {
        let kept = (fill.bytes as f64 * SINK_UNTIL) as u64;
        self.mergeable(view).find_map(|(kvs, runs)| {
            let (policy, _) = self.policy(*kvs)?;
            let keys = self.had(policy.aged_keys);
            let last = runs.last()?.run.summary();
            let now = self.places.class_of(&run::file_name(last.number))?;
            let has_room = fill.free >= kept.saturating_add(last.file_bytes);
            let is_worth_it = keys.prefers(class, now) && has_room;
            let keys = Some(keys.before(now));
            is_worth_it.then_some(Ageing { kvs: *kvs, moves: Moves::new(), keys })
        })
    }
}

/// Bytes that do not lie where they should.
#[derive(Debug, Default)]
struct Misplaced {
    of_retiring: u64,
    others: u64,
}

impl Misplaced {
    /// Forgets all if it has no room where it should be.
    fn forget_without_room(&mut self, inner: &Inner, what: What, classes: Classes) {
        let bytes = self.of_retiring + self.others;
        if inner.places.choose_strictly(what, inner.had(classes), bytes).is_err() {
            *self = Misplaced::default();
        }
    }

    fn add(&mut self, inner: &Inner, name: &str, bytes: u64) {
        match inner.must_move(name) {
            true => self.of_retiring += bytes,
            false => self.others += bytes,
        }
    }
}

/// The frozen segments: those of the log first, in its order, then what merges have moved.
fn in_order_of_age(view: &View) -> impl Iterator<Item = (SegmentNumber, &Segment)> {
    view.segments.iter().map(|(number, segment)| (*number, &**segment))
}

/// The bytes that runs lead to in some segments.
pub(crate) fn live_in(runs: &[Frozen], is_meant: impl Fn(SegmentNumber) -> bool) -> u64 {
    let live = runs.iter().flat_map(|run| run.run.summary().live.iter());
    live.filter(|live| is_meant(live.segment)).map(|live| live.bytes).sum()
}
