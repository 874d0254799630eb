//! Response times that one thread records while others follow, without locks or waiting.
//!
//! Who may touch what: the recording thread alone writes the counts (plain additions, no locked
//! instruction), and any thread may read them; a follower owns what it has seen.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sketch::{ROW, ROWS, Sketch, bucket};

/// Buckets of one power of two.
type Row = [AtomicU64; ROW];

/// Response times of one thread for one tenant since it began.
#[derive(Debug, Default)]
pub struct LiveSketch {
    /// Rows are allocated on first use: most tenants' times lie within a few powers of two.
    rows: [OnceLock<Box<Row>>; ROWS],
    counts: [AtomicU64; ROWS],
}

impl LiveSketch {
    /// Records that `requests` requests took `time`. Only one thread may do this.
    #[inline]
    pub fn record(&self, time: Duration, requests: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let at = bucket(ns);
        let row = self.rows[at / ROW].get_or_init(Default::default);
        add(&row[at % ROW], requests);
        add(&self.counts[at / ROW], requests);
    }

    /// Number of requests recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(count.load(Ordering::Relaxed)))
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

/// A reader's state of a [`LiveSketch`]: the counts that it has seen so far.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    rows: [Option<Box<[u64; ROW]>>; ROWS],
    counts: [u64; ROWS],
}

impl Follower {
    /// Adds the requests recorded since the last call to `sketch`. Rows without any are skipped.
    pub fn follow(&mut self, live: &LiveSketch, sketch: &mut Sketch) {
        for index in 0..ROWS {
            if live.counts[index].load(Ordering::Relaxed) == self.counts[index] {
                continue;
            }
            let Some(row) = live.rows[index].get() else { continue };
            let seen = self.rows[index].get_or_insert_with(|| Box::new([0; ROW]));
            for (place, (count, seen)) in row.iter().zip(seen.iter_mut()).enumerate() {
                let now = count.load(Ordering::Relaxed);
                let growth = now.wrapping_sub(std::mem::replace(seen, now));
                // Requests recorded meanwhile count with their buckets, whatever the row's count
                // was.
                self.counts[index] = self.counts[index].wrapping_add(growth);
                sketch.add_to_bucket(index * ROW + place, growth);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_follower_sees_everything_once() {
        let live = LiveSketch::default();
        let (mut follower, mut sketch) = (Follower::default(), Sketch::new());
        follower.follow(&live, &mut sketch);
        assert_eq!(sketch.count(), 0);
        live.record(Duration::from_micros(10), 3);
        live.record(Duration::from_millis(10), 1);
        follower.follow(&live, &mut sketch);
        follower.follow(&live, &mut sketch);
        assert_eq!((sketch.count(), live.count()), (4, 4));
        live.record(Duration::MAX, 1);
        let mut next = Sketch::new();
        follower.follow(&live, &mut next);
        assert_eq!(next.count(), 1);
        assert!(next.percentile_ns(50.0).expect("one") > 6e10);
    }

    #[test]
    fn what_is_recorded_meanwhile_is_seen_sooner_or_later() {
        const RECORDS: u64 = 200_000;
        let live = LiveSketch::default();
        let mut sketch = Sketch::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..RECORDS {
                    live.record(Duration::from_nanos(number % 5000), 1);
                }
            });
            let mut follower = Follower::default();
            while sketch.count() < RECORDS {
                follower.follow(&live, &mut sketch);
            }
            follower.follow(&live, &mut sketch);
        });
        assert_eq!(sketch.count(), RECORDS);
        let median = sketch.percentile_ns(50.0).expect("many");
        assert!((median / 2500.0 - 1.0).abs() < 0.03, "{median}");
    }

    proptest! {
        #[test]
        fn following_is_recording(
            times in prop::collection::vec((0u64..1 << 37, 1u64..5), 0..200),
            looks in 1usize..20,
        ) {
            let (live, mut follower) = (LiveSketch::default(), Follower::default());
            let (mut followed, mut recorded) = (Sketch::new(), Sketch::new());
            for (index, &(ns, requests)) in times.iter().enumerate() {
                live.record(Duration::from_nanos(ns), requests);
                (0..requests).for_each(|_| recorded.record(Duration::from_nanos(ns)));
                if index % looks == 0 {
                    follower.follow(&live, &mut followed);
                }
            }
            follower.follow(&live, &mut followed);
            prop_assert_eq!(followed, recorded);
        }
    }
}
