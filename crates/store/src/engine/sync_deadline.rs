//! Deadline of the syncs in the background. A sync makes durable what was acknowledged before it
//! began. Writers wait once the writes behind that are as old as the store's options allow.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use entresol_base::Nanos;

use crate::scheduler::StallCount;
use crate::types::Sequence;

/// Writes between looks at the clock while syncs are quick. A look costs a hundredth of a put.
const WRITES_UNWATCHED: u64 = 16;

/// Deadline of the next sync to end. The thread that syncs moves it, writers look at it.
#[derive(Debug)]
pub(crate) struct SyncDeadline {
    interval: Duration,
    lag_max: Duration,
    /// Time before which everything acknowledged is durable.
    durable_at: AtomicU64,
    /// True while a sync is under way, or the last one was slow: every writer looks then.
    is_watched: AtomicBool,
    /// Last write at which a writer looked.
    looked: AtomicU64,
    /// Times by which syncs ended later than the interval.
    pub(crate) lateness: StallCount,
}

impl SyncDeadline {
    /// Creates the deadline of a store in which everything is durable at a time.
    pub(crate) fn new(interval: Duration, lag_max: Duration, now: Nanos) -> SyncDeadline {
        SyncDeadline {
            interval,
            lag_max,
            durable_at: AtomicU64::new(now.0),
            is_watched: AtomicBool::new(false),
            looked: AtomicU64::new(0),
            lateness: StallCount::default(),
        }
    }

    /// Returns true if a writer must wait. While syncs are quick, only some writers look.
    #[inline]
    pub(crate) fn stops(&self, published: Sequence, now: impl Fn() -> Nanos) -> bool {
        if !self.is_watched.load(Relaxed) {
            if published.0 < self.looked.load(Relaxed) + WRITES_UNWATCHED {
                return false;
            }
            self.looked.store(published.0, Relaxed);
        }
        self.is_over(now())
    }

    /// Returns true if writes that are not durable may be older than allowed.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        now > Nanos(self.durable_at.load(Relaxed)).after(self.lag_max)
    }

    /// Notes that no write was left to sync at a time. Returns true if writers may be waiting.
    pub(crate) fn all_durable(&self, at: Nanos) -> bool {
        let was_over = self.is_over(at);
        self.move_to(at);
        self.is_watched.store(false, Relaxed);
        was_over
    }

    /// Notes that a sync begins.
    pub(crate) fn begin(&self) {
        self.is_watched.store(true, Relaxed);
    }

    /// Notes that a sync from `begun` to `ended` has succeeded. Returns true if writers may be
    /// waiting.
    pub(crate) fn end(&self, begun: Nanos, ended: Nanos) -> bool {
        let was_over = self.is_over(ended);
        let late = ended.since(self.move_to(begun)).saturating_sub(self.interval);
        if !late.is_zero() {
            self.lateness.add(late);
        }
        self.is_watched.store(ended.since(begun) > self.lag_max / 4, Relaxed);
        was_over
    }

    /// Returns the rest between syncs that take a time each: a write that comes as one begins waits
    /// for its end, for the rest, and for the next one.
    pub(crate) fn rest(&self, interval: Duration, took: Duration) -> Duration {
        interval.saturating_sub(2 * took).max(interval / 8)
    }

    /// Moves the time before which everything is durable, and returns the one before.
    fn move_to(&self, durable_at: Nanos) -> Nanos {
        let before = Nanos(self.durable_at.swap(durable_at.0, Relaxed));
        assert!(
            before <= durable_at,
            "all was durable at {before:?}, and now only what was there at {durable_at:?}",
        );
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Deadline of 200 ms for an interval of 100 ms, and whether it stops the writer of a number at
    /// a time in milliseconds.
    fn deadline() -> (SyncDeadline, impl Fn(&SyncDeadline, u64, u64) -> bool) {
        let deadline =
            SyncDeadline::new(Duration::from_millis(100), Duration::from_millis(200), Nanos(0));
        (deadline, |it, published, ms| it.stops(Sequence(published), || Nanos(ms * MS)))
    }

    #[test]
    fn a_thread_that_does_not_come_to_sync_stops_writers() {
        let (deadline, stops) = deadline();
        deadline.begin();
        assert!(!deadline.end(Nanos(100 * MS), Nanos(105 * MS)));
        let stopped = (1..=2 * WRITES_UNWATCHED).filter(|write| stops(&deadline, *write, 301));
        assert_eq!(stopped.count(), 2, "one in so many looks");
        assert!((1..100).all(|write| !stops(&deadline, write, 300)), "it is not too late");
    }

    #[test]
    fn a_slow_sync_stops_every_writer_and_its_end_tells_them() {
        let (deadline, stops) = deadline();
        deadline.begin();
        assert!(!stops(&deadline, 1, 200) && stops(&deadline, 1, 201) && stops(&deadline, 2, 201));
        assert!(deadline.end(Nanos(100 * MS), Nanos(500 * MS)), "they may be waiting");
        assert!(stops(&deadline, 3, 501), "what came after it began is too old by now");
        assert!(deadline.all_durable(Nanos(510 * MS)), "they still are");
        assert!(!stops(&deadline, 3, 511) && !deadline.all_durable(Nanos(600 * MS)));
        assert_eq!(deadline.lateness.get().longest_us, 400_000);
    }

    #[test]
    fn slow_syncs_follow_each_other_sooner() {
        let (deadline, _) = deadline();
        let rest = |took| deadline.rest(Duration::from_millis(80), Duration::from_millis(took));
        assert_eq!([0, 5, 30, 500].map(|took| rest(took).as_millis()), [80, 70, 20, 10]);
    }
}
