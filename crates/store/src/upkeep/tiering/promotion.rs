//! Promotion of frequently read values: their share of a faster class, and when they return to it.

use super::{
    MISPLACED_BYTES_MIN, MovedValues, Tiering, ValueMove, ValueMoves, compaction_of, on_class,
};
use crate::policy::{Classes, MediaClass, Policy};
use crate::types::{KvsId, RecordPlace, SegmentNumber};
use crate::upkeep::context::CompactionContext;
use crate::upkeep::read_frequency::ReadFrequencyStatistics;
use crate::upkeep::read_frequency::kept::SummaryUse;
use crate::version::files::live_of;
use crate::version::view::{View, ViewRun, bytes_of};
use crate::volumes::{FileKind, MoveCause};

impl CompactionContext<'_> {
    /// Updates the threshold for hot values, and the budgets for gathering them.
    pub(crate) fn look_at_read_frequency(&self, view: &View) {
        let slowest = MediaClass::ALL.into_iter().rfind(|class| self.files.volumes.has(*class));
        let mut most = 0;
        let faster = MediaClass::ALL.into_iter().filter(|class| Some(*class) < slowest);
        for class in faster {
            let (kept, of_class) = self.kept_hot(view, class);
            self.background.read_frequency.set_budget(class, of_class.saturating_sub(kept));
            most += of_class;
        }
        self.background.read_frequency.turn(most > 0);
        self.background.read_frequency.allow(most);
    }

    /// Returns the bytes of segments with gathered hot values on a class, and the limit of these
    /// bytes.
    fn kept_hot(&self, view: &View, class: MediaClass) -> (u64, u64) {
        let has_slower =
            MediaClass::ALL.into_iter().any(|other| other > class && self.files.volumes.has(other));
        let fill = self.files.volumes.fill(class).filter(|_| has_slower);
        let most = fill.map_or(0, |fill| (fill.bytes as f64 * self.options.hot_share) as u64);
        let kept = self.background.read_frequency.kept();
        let here = on_class(self.files, class, &kept).into_iter();
        let kept = here.filter_map(|number| view.segments.get(&number)).map(|it| it.len()).sum();
        (kept, most)
    }

    /// Returns the statistics of read frequencies; `None` without a choice of classes.
    pub(crate) fn read_frequency_statistics(&self, view: &View) -> Option<ReadFrequencyStatistics> {
        let all = MediaClass::ALL.map(|class| self.kept_hot(view, class)).into_iter();
        let (kept_bytes, kept_bytes_max) =
            all.fold((0, 0), |(kept, most), one| (kept + one.0, most + one.1));
        let reads_least = self.background.read_frequency.reads_least();
        let (is_restored, ignored) = match self.background.read_frequency.kept_before() {
            SummaryUse::Nothing => (false, None),
            SummaryUse::Used => (true, None),
            SummaryUse::Ignored(what) => (false, Some(what)),
        };
        let told = ReadFrequencyStatistics {
            reads_least,
            kept_bytes,
            kept_bytes_max,
            is_restored,
            ignored,
        };
        self.background.read_frequency.is_on().then_some(told)
    }

    /// Returns the move of a value whose segment moves; `None` if the value stays.
    pub(crate) fn moved_to(
        &self,
        kvs: KvsId,
        key: &[u8],
        place: RecordPlace,
        to: &ValueMove,
    ) -> Option<ValueMove> {
        if to.which == MovedValues::All || !self.background.read_frequency.is_on() {
            return (to.which != MovedValues::Hot).then_some(*to);
        }
        let (hash, bytes) = (self.entries.name(kvs, key).hash(), u64::from(place.bytes));
        if to.which == MovedValues::Hot {
            let class = to.to.as_slice().first();
            let has_room =
                || class.is_some_and(|class| self.background.read_frequency.spend(*class, bytes));
            return (self.background.read_frequency.is_hot(hash) && has_room()).then_some(*to);
        }
        let now = self
            .files
            .class_of(place.segment)
            .filter(|_| self.background.read_frequency.is_warm(hash));
        match now
            .filter(|now| self.background.read_frequency.spend(*now, bytes))
            .map(|now| Classes::new(&[now]))
        {
            Some(Ok(here)) => {
                Some(ValueMove { to: here, cause: MoveCause::Hot, which: MovedValues::All })
            }
            _ => Some(*to),
        }
    }

    /// Returns the fastest class that values of a `Kvs` may lie on, young or aged.
    fn fastest_for_values(&self, policy: &Policy) -> Option<MediaClass> {
        let all =
            [policy.new_values, policy.old_values].map(|classes| self.files.volumes.had(classes));
        all.iter().flat_map(|classes| classes.as_slice()).min().copied()
    }

    /// Promotes hot values from slower classes, if enough was read of them to be worth a
    /// compaction.
    pub(super) fn warming(&self, view: &View) -> Option<Tiering> {
        if !self.background.read_frequency.is_on() {
            return None;
        }
        let damaged = &self.background.damaged_segments;
        let mut hot = self.background.read_frequency.hot(view);
        hot.retain(|number, _| !damaged.has(*number));
        self.compactable(view).find_map(|(kvs, runs)| {
            let (policy, _) = self.files.policy(*kvs)?;
            let fastest = self.fastest_for_values(&policy)?;
            let live = live_of(runs.iter());
            let is_slow = |number: &SegmentNumber| {
                live.contains_key(number) && self.files.class_of(*number) > Some(fastest)
            };
            let slow = || hot.iter().filter(|(number, _)| is_slow(number));
            let values: u64 = slow().map(|(_, hot)| hot.values).sum();
            let read: u64 = slow().map(|(_, hot)| hot.read).sum();
            let leads = |run: &&ViewRun| {
                let mut live = run.run.summary().live.iter();
                live.any(|live| hot.contains_key(&live.segment) && is_slow(&live.segment))
            };
            let keys = bytes_of(runs.iter().filter(leads));
            if values < MISPLACED_BYTES_MIN || read < values + keys {
                return None;
            }
            let to = Classes::new(&[fastest]).ok()?;
            self.files.volumes.choose_strictly(FileKind::Values, to, values).ok()?;
            let to = ValueMove { to, cause: MoveCause::Hot, which: MovedValues::Hot };
            let mut moves: ValueMoves = slow().map(|(number, _)| (*number, to)).collect();
            self.make_way(view, fastest, values, &policy, &mut moves);
            compaction_of(view, *kvs, moves)
        })
    }

    /// Makes room for `bytes` of hot values. Adds moves that demote values no longer hot,
    /// from the oldest segments with gathered hot values.
    fn make_way(
        &self,
        view: &View,
        class: MediaClass,
        bytes: u64,
        policy: &Policy,
        moves: &mut ValueMoves,
    ) {
        let (kept, most) = self.kept_hot(view, class);
        let mut room = most.saturating_sub(kept);
        let Some(to) = self.below(class, policy.old_values, bytes) else { return };
        let kept = self.background.read_frequency.kept();
        for number in on_class(self.files, class, &kept) {
            if room >= bytes {
                break;
            }
            let Some(segment) = view.segments.get(&number) else { continue };
            if self.background.damaged_segments.has(number) {
                continue;
            }
            moves
                .insert(number, ValueMove { to, cause: MoveCause::Aged, which: MovedValues::Cold });
            room += segment.len();
        }
        self.background.read_frequency.set_budget(class, room);
    }
}
