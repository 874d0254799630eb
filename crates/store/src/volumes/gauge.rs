//! Gauge of the space that a store takes, and of what it may take for its live bytes. Writers read
//! it with each write, and are slowed down more and more as the space runs out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bytes that a store may take beyond its bound, less a little for files that are not counted.
const BESIDE_BYTES: u64 = 15 << 20;
/// Most bytes of a generation of a store with little in it.
const GENERATION_BYTES_MIN: u64 = 8 << 20;
/// Divisor of the bytes beyond those, of which a generation takes one part.
const GENERATION_PARTS: u64 = 48;
/// Divisor of a generation, of which one part is flushed while writers are slowed down.
const HASTY_GENERATION_PARTS: u64 = 4;
/// Divisor of a generation, of which a segment takes one part, less so many bytes.
const SEGMENT_PARTS: u64 = 4;
const SEGMENT_LESS_BYTES: u64 = 1 << 20;
/// Divisors of the live bytes that unflushed writes add, and of the slack, of which a segment takes
/// one part if that is more: while keys are loaded, there is no garbage to leave room for.
const NEW_SEGMENT_PARTS: u64 = 8;
const SLACK_SEGMENT_PARTS: u64 = 16;
/// Divisor of the slack, of which spare segments take one part.
const SPARE_PARTS: u64 = 16;
/// Least divisor of the slack, and least bytes, in which writers are slowed down.
const SLOPE_PARTS: u64 = 64;
const SLOPE_BYTES_MIN: u64 = 2 << 20;
/// Divisor of the slack, of which one compaction moves one part. Each rewrites all keys, and what
/// is kept for it is not left to garbage.
const PORTION_PARTS: u64 = 5;
/// Divisor of the slack, of which a compaction unites one part of what is left of segments.
const SCRAPS_PARTS: u64 = 32;
/// Segments of the log for which room is taken at once, so that the slope ends before them.
const SEGMENTS_AHEAD: u64 = 2;
/// Delay for each byte where the slope begins, exponent of two by which it grows to its end, and
/// the most beyond: a mebibyte then takes 17 seconds.
const DELAY_NS_MIN: u64 = 2;
const DELAY_DOUBLINGS: u64 = 10;
const DELAY_DOUBLINGS_MAX: u64 = 13;
/// Longest delay of one write.
const DELAY_MAX: Duration = Duration::from_millis(250);

/// Gauge of a store's space. Without a bound it never learns of one, and any number may be taken.
#[derive(Debug)]
pub(crate) struct SpaceGauge {
    /// Bytes of all files.
    files: AtomicU64,
    /// Bytes that the compaction under way has still to write, or that are kept for the next one.
    ahead: AtomicU64,
    /// True if a compaction is under way.
    is_compacting: AtomicBool,
    /// Bytes above which writers are slowed down.
    slowed_above: AtomicU64,
    /// Bytes in which they are slowed down, up to the most that may be taken.
    slope: AtomicU64,
    /// Bytes of the segments of the log that are not flushed.
    log: AtomicU64,
    /// Bytes that may be taken on top, since there was nothing to collect.
    relaxed: AtomicU64,
    /// Bytes above which garbage is collected.
    pressed_above: AtomicU64,
    /// Bytes that are left to garbage, the log and outputs of compactions.
    slack: AtomicU64,
    /// Most bytes of a generation, and of a segment of it.
    generation: AtomicU64,
    segment: AtomicU64,
    /// Bytes that one compaction moves.
    portion: AtomicU64,
    /// Bytes that are kept for the next compaction.
    kept: AtomicU64,
    /// Bytes that a compaction of all runs of a `Kvs` takes, of the one that has most of them.
    whole: AtomicU64,
    /// Bytes for which a compaction waits.
    awaited: AtomicU64,
}

/// Facts about a store that decide how much space it may take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpaceFacts {
    /// Bytes that may be taken for each live byte.
    pub(crate) bound: f64,
    /// Bytes of keys and values that can be read, of what is flushed.
    pub(crate) flushed_bytes: u64,
    /// Bytes that writes add to these, or take away, which are not flushed yet.
    pub(crate) added_bytes: i64,
    /// Bytes of keys and values that lie in runs. They are written a second time before they are
    /// removed.
    pub(crate) inline_bytes: u64,
    /// Bytes that a compaction of all runs of a `Kvs` writes, of the one that has most of them.
    pub(crate) rewritten_bytes: u64,
    /// Share of the room for such a compaction that is kept, which grows as one comes near.
    pub(crate) kept_share: f64,
    /// Bytes that what is done until then writes at once: squeezed segments, or some runs.
    pub(crate) next_bytes: u64,
    /// Bytes of flushed segments.
    pub(crate) value_bytes: u64,
    /// True if these are squeezed one by one, without any keys.
    pub(crate) are_squeezed: bool,
}

impl Default for SpaceGauge {
    fn default() -> SpaceGauge {
        let most = || AtomicU64::new(u64::MAX);
        let none = || AtomicU64::new(0);
        SpaceGauge {
            files: none(),
            ahead: none(),
            is_compacting: AtomicBool::new(false),
            slowed_above: most(),
            slope: none(),
            log: none(),
            relaxed: none(),
            pressed_above: most(),
            slack: most(),
            generation: most(),
            segment: most(),
            portion: most(),
            kept: none(),
            whole: none(),
            awaited: none(),
        }
    }
}

impl SpaceGauge {
    /// Sets what may be taken by what is live.
    pub(crate) fn learn(&self, facts: SpaceFacts) {
        let SpaceFacts { bound, flushed_bytes, added_bytes, inline_bytes, .. } = facts;
        let live_bytes = flushed_bytes.saturating_add_signed(added_bytes);
        let for_live = (live_bytes as f64 * bound) as u64 + BESIDE_BYTES;
        let slack = for_live - live_bytes;
        let parts = if facts.are_squeezed { SCRAPS_PARTS } else { PORTION_PARTS };
        let portion = (slack / parts).min(facts.value_bytes);
        let whole = facts.rewritten_bytes + portion;
        let slope = SLOPE_BYTES_MIN + slack / SLOPE_PARTS;
        // A generation is flushed once it has so much garbage, or is the reason for as much: what
        // is new in it does not count.
        let usual = GENERATION_BYTES_MIN + (slack - BESIDE_BYTES) / GENERATION_PARTS;
        let added = added_bytes.max(0) as u64;
        let segment = usual / SEGMENT_PARTS - SEGMENT_LESS_BYTES;
        let of_new = (added / NEW_SEGMENT_PARTS).min(slack / SLACK_SEGMENT_PARTS);
        let segment = segment.max(of_new);
        // At least as much as the slope and a segment: behind a compaction, writers may be at the
        // slope's end before a flush shows what can be squeezed.
        let next = facts.next_bytes.max(slope + segment).min(whole);
        let kept = ((whole as f64 * facts.kept_share) as u64).max(next);
        self.generation.store(usual + added, Relaxed);
        self.segment.store(segment, Relaxed);
        self.slack.store(slack, Relaxed);
        self.portion.store(portion, Relaxed);
        self.kept.store(kept, Relaxed);
        self.whole.store(whole, Relaxed);
        if !self.is_compacting.load(Relaxed) {
            self.ahead.store(kept.max(self.awaited.load(Relaxed)), Relaxed);
        }
        let ahead = slope + SEGMENTS_AHEAD * segment;
        let slowed_above = (for_live + inline_bytes).saturating_sub(ahead);
        let relaxed = slowed_above.saturating_add(self.relaxed.load(Relaxed));
        self.slope.store(slope, Relaxed);
        self.slowed_above.store(relaxed, Relaxed);
        self.pressed_above.store(slowed_above.saturating_sub(slope), Relaxed);
    }

    /// Takes back what [`relax`](SpaceGauge::relax) has allowed, when the files have changed.
    pub(crate) fn forget(&self) {
        self.relaxed.store(0, Relaxed);
    }

    /// Counts bytes of a file.
    pub(crate) fn take(&self, bytes: u64) {
        self.files.fetch_add(bytes, Relaxed);
    }

    /// Subtracts bytes of a file that is gone.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.files.fetch_sub(bytes, Relaxed);
    }

    /// Notes that the log continues in a segment of so many bytes.
    pub(crate) fn log_grows(&self, bytes: u64) {
        self.log.fetch_add(bytes, Relaxed);
    }

    /// Notes that segments of so many bytes were flushed.
    pub(crate) fn log_flushed(&self, bytes: u64) {
        let flushed = |log: u64| Some(log.saturating_sub(bytes));
        let _ = self.log.fetch_update(Relaxed, Relaxed, flushed);
    }

    /// Returns the bytes that are taken, or will be before anything comes free.
    fn taken(&self) -> u64 {
        self.files.load(Relaxed) + self.ahead.load(Relaxed)
    }

    /// Returns the delay of a write of so many bytes.
    #[inline]
    pub(crate) fn delay(&self, bytes: u64) -> Duration {
        let (taken, above) = (self.taken(), self.slowed_above.load(Relaxed));
        if taken <= above {
            return Duration::ZERO;
        }
        delay_within(bytes, taken - above, self.slope.load(Relaxed))
    }

    /// Returns the most bytes of a generation. While writers are slowed down, that is less, so that
    /// what its flush shows to be garbage can be collected soon.
    pub(crate) fn generation_bytes(&self) -> u64 {
        let generation = self.generation.load(Relaxed);
        if self.delay(1).is_zero() { generation } else { generation / HASTY_GENERATION_PARTS }
    }

    /// Returns the most bytes of a segment of the log.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment.load(Relaxed)
    }

    /// Returns the most bytes of spare segments, beyond the first one.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.slack.load(Relaxed) / SPARE_PARTS
    }

    /// Returns true if garbage is to be collected, since writers are about to be slowed down.
    pub(crate) fn is_pressed(&self) -> bool {
        self.taken() > self.pressed_above.load(Relaxed)
    }

    /// Returns true if there is a bound.
    pub(crate) fn has_bound(&self) -> bool {
        self.slowed_above.load(Relaxed) < u64::MAX
    }

    /// Returns true if a compaction that writes so many bytes may begin. Otherwise it waits: so
    /// much is kept for it from now on, until the next one begins.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        let above = self.slowed_above.load(Relaxed);
        let most = above.saturating_add(self.slope.load(Relaxed));
        if self.files.load(Relaxed).saturating_add(bytes) <= most {
            return true;
        }
        self.awaited.store(bytes, Relaxed);
        self.ahead.fetch_max(bytes, Relaxed);
        false
    }

    /// Returns the bytes that are kept for the next compaction.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.load(Relaxed)
    }

    /// Returns the bytes that a compaction of all runs of a `Kvs` takes.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.whole.load(Relaxed)
    }

    /// Returns the bytes of values that a compaction may move.
    pub(crate) fn portion(&self) -> u64 {
        self.portion.load(Relaxed)
    }

    /// Lets writers take a little more if there is nothing to collect, and the log is not the
    /// reason: a flush would show what is garbage.
    pub(crate) fn relax(&self) {
        let (taken, slope) = (self.taken(), self.slope.load(Relaxed));
        let without_log = taken.saturating_sub(self.log.load(Relaxed));
        if without_log > self.pressed_above.load(Relaxed) {
            let above = taken.saturating_add(slope);
            let before = self.slowed_above.fetch_max(above, Relaxed);
            self.relaxed.fetch_add(above.saturating_sub(before), Relaxed);
        }
    }
}

/// Returns the delay of a write that takes `bytes` where `over` bytes of the slope are taken.
#[cold]
fn delay_within(bytes: u64, over: u64, slope: u64) -> Duration {
    // It is linear between two doublings.
    let place = ((over * DELAY_DOUBLINGS) << 10) / slope.max(1);
    let place = place.min(DELAY_DOUBLINGS_MAX << 10);
    let (doublings, between) = (place >> 10, place & 1023);
    let for_1024 = (DELAY_NS_MIN * (1024 + between)) << doublings;
    Duration::from_nanos(bytes.saturating_mul(for_1024) >> 10).min(DELAY_MAX)
}

/// Bytes that a compaction is about to write. They are taken from its beginning. At its end room is
/// kept for the next one.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    gauge: &'a SpaceGauge,
    bytes: u64,
}

impl<'a> Planned<'a> {
    /// Plans for a compaction that writes so many bytes.
    pub(crate) fn new(gauge: &'a SpaceGauge, bytes: u64) -> Planned<'a> {
        let awaited = gauge.awaited.swap(0, Relaxed);
        let bytes = bytes.max(awaited).max(gauge.kept.load(Relaxed));
        gauge.is_compacting.store(true, Relaxed);
        gauge.ahead.store(bytes, Relaxed);
        Planned { gauge, bytes }
    }

    /// Notes that so many bytes of them are counted as those of files.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.gauge.ahead.store(self.bytes.saturating_sub(bytes), Relaxed);
    }
}

impl Drop for Planned<'_> {
    fn drop(&mut self) {
        self.gauge.is_compacting.store(false, Relaxed);
        self.gauge.ahead.store(self.gauge.kept.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn facts(flushed_bytes: u64, added_bytes: i64) -> SpaceFacts {
        SpaceFacts {
            bound: 1.5,
            flushed_bytes,
            added_bytes,
            inline_bytes: 0,
            rewritten_bytes: flushed_bytes / 20,
            kept_share: 1.0,
            next_bytes: 0,
            value_bytes: flushed_bytes,
            are_squeezed: false,
        }
    }

    fn gauge(live_bytes: u64) -> SpaceGauge {
        let gauge = SpaceGauge::default();
        assert_eq!(gauge.delay(1000), Duration::ZERO, "nothing is known yet");
        assert!(!gauge.has_bound() && gauge.has_room_for(u64::MAX));
        gauge.learn(facts(live_bytes, 0));
        gauge
    }

    #[test]
    fn a_load_fills_whole_generations_without_delay_and_garbage_does_not() {
        let gauge = gauge(0);
        for mib in 1..200 {
            gauge.take(MIB);
            gauge.learn(facts(0, (mib * MIB) as i64));
            assert_eq!(gauge.delay(1000), Duration::ZERO, "{mib} MiB of new keys");
            assert!(gauge.generation_bytes() > mib * MIB, "{mib} MiB of new keys");
        }
        let most = gauge.generation_bytes();
        gauge.take(most - 199 * MIB);
        assert!(most < 220 * MIB, "{most} bytes, of which 199 MiB live");
    }

    #[test]
    fn writers_are_slowed_more_and_more_and_never_stopped() {
        let gauge = gauge(100 * MIB);
        let most = 166 * MIB;
        let mut before = Duration::ZERO;
        for part in 0..=60 {
            let delay = gauge.delay(1000);
            assert!(delay >= before, "{part}: {delay:?} after {before:?}");
            assert!(delay.is_zero() || part > 40, "{part}: {delay:?}");
            before = delay;
            gauge.take(most / 60);
        }
        assert!(before > Duration::from_millis(1), "{before:?}");
        gauge.take(100 * MIB);
        assert!(gauge.delay(1000) < Duration::from_millis(20));
        assert!(gauge.delay(1 << 30) <= DELAY_MAX);
    }

    #[test]
    fn writers_go_on_where_nothing_can_be_collected_once_the_log_is_flushed() {
        let gauge = gauge(100 * MIB);
        gauge.take(150 * MIB);
        gauge.log_grows(100 * MIB);
        gauge.relax();
        assert!(gauge.is_pressed() && !gauge.delay(1000).is_zero(), "a flush comes first");
        assert!(gauge.generation_bytes() < GENERATION_BYTES_MIN, "and comes soon");
        gauge.log_flushed(100 * MIB);
        gauge.relax();
        assert!(gauge.delay(1000).is_zero());
    }

    #[test]
    fn what_a_compaction_writes_is_taken_from_its_beginning() {
        let gauge = gauge(100 * MIB);
        gauge.take(100 * MIB);
        let before = gauge.taken();
        let planned = Planned::new(&gauge, 10 * MIB);
        assert_eq!(gauge.taken(), before, "so much was kept for it");
        gauge.take(4 * MIB);
        planned.wrote(4 * MIB);
        assert_eq!(gauge.taken(), before);
        gauge.give_back(6 * MIB);
        drop(planned);
        assert_eq!(gauge.taken(), before - 2 * MIB);
    }

    #[test]
    fn room_for_all_runs_is_kept_only_as_their_compaction_comes_near() {
        let taken_at = |kept_share: f64| {
            let gauge = SpaceGauge::default();
            let facts = facts(400 * MIB, 0);
            gauge.learn(SpaceFacts { are_squeezed: true, kept_share, next_bytes: MIB, ..facts });
            while gauge.delay(1000).is_zero() {
                gauge.take(MIB);
            }
            gauge.files.load(Relaxed) / MIB
        };
        let [far, near, due] = [0.0, 0.75, 1.0].map(taken_at);
        assert!(far > near + 5 && near > due + 5, "MiB taken: {far}, {near}, {due}");
        // 20 MiB of runs, a portion of 6.7 MiB, the slope of 5.4 MiB, segments of 2 MiB.
        assert_eq!((far, due), (599, 579));
    }

    #[test]
    fn a_compaction_waits_until_there_is_room_for_it() {
        let gauge = SpaceGauge::default();
        let facts = facts(400 * MIB, 0);
        gauge.learn(SpaceFacts { are_squeezed: true, kept_share: 0.0, next_bytes: MIB, ..facts });
        gauge.take(595 * MIB);
        assert!(gauge.delay(1000).is_zero() && gauge.has_room_for(5 * MIB));
        assert!(!gauge.has_room_for(27 * MIB));
        assert!(!gauge.delay(1000).is_zero(), "writers leave the room to it");
        gauge.learn(SpaceFacts { are_squeezed: true, kept_share: 0.0, next_bytes: MIB, ..facts });
        assert!(!gauge.delay(1000).is_zero(), "a new estimate changes nothing of that");
        // A squeeze makes room.
        let squeeze = Planned::new(&gauge, 2 * MIB);
        assert!(!gauge.delay(1000).is_zero());
        gauge.give_back(20 * MIB);
        drop(squeeze);
        assert!(gauge.has_room_for(27 * MIB));
    }
}
