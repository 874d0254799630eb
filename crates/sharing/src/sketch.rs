//! A sketch of one tenant's response times since the last reading, which merges exactly.
//!
//! Tails can be judged within tens of milliseconds only if the times of every tick can be added to
//! those of the next. So all sketches have the same buckets, 32 to each power of two, which state a
//! time within 1.6%. A sketch takes 5 KiB, so there can be one for each tenant and tick; `base`'s
//! histogram has three digits and takes 200.

use std::time::Duration;

/// Binary logarithm of the buckets in a power of two.
const SPLIT_BITS: u32 = 5;
const SPLIT: u64 = 1 << SPLIT_BITS;
/// Longest time that is told apart, 68 s; longer ones count as this.
const HIGHEST_NS: u64 = (1 << 36) - 1;
/// Buckets of one power of two.
pub(crate) const ROW: usize = SPLIT as usize;
pub(crate) const ROWS: usize = (36 - SPLIT_BITS + 1) as usize;
const BUCKETS: usize = ROWS * ROW;

/// Response times in a form that merges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Counts by bucket. Empty until the first record, so that an idle tenant costs nothing.
    counts: Vec<u64>,
    count: u64,
}

impl Sketch {
    /// Creates an empty sketch.
    #[must_use]
    pub fn new() -> Sketch {
        Sketch::default()
    }

    /// Records one response time.
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        self.counts[bucket(ns)] += 1;
        self.count += 1;
    }

    /// Adds records to one bucket.
    pub(crate) fn add_to_bucket(&mut self, bucket: usize, records: u64) {
        if records == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(records);
        self.count = self.count.saturating_add(records);
    }

    /// Adds the records of `other`.
    pub fn merge(&mut self, other: &Sketch) {
        if other.count == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.count = 0;
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Time in nanoseconds that `percent` of the records do not exceed. None when empty, or if
    /// `percent` is no number.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> Option<f64> {
        if self.count == 0 || percent.is_nan() {
            return None;
        }
        let above = (self.count as f64 * (1.0 - percent.clamp(0.0, 100.0) / 100.0)).floor();
        let mut above = above as u64;
        for (index, &count) in self.counts.iter().enumerate().rev() {
            if count > above {
                return Some(middle_ns(index));
            }
            above -= count;
        }
        // All but the smallest are above: 0 per cent.
        self.counts.iter().position(|&count| count > 0).map(middle_ns)
    }

    /// Mean in nanoseconds; none when empty.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        let sum: f64 =
            self.counts.iter().enumerate().map(|(i, &count)| middle_ns(i) * count as f64).sum();
        (self.count > 0).then(|| sum / self.count as f64)
    }
}

/// Bucket of a time in nanoseconds.
#[inline]
pub(crate) fn bucket(ns: u64) -> usize {
    let ns = ns.min(HIGHEST_NS);
    if ns < SPLIT {
        return ns as usize;
    }
    let power = ns.ilog2() - SPLIT_BITS;
    // The leading one stands for the row, the next five bits for the place in it.
    ((u64::from(power) << SPLIT_BITS) + (ns >> power)) as usize
}

fn middle_ns(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < 2 * SPLIT {
        return bucket as f64;
    }
    let power = (bucket >> SPLIT_BITS) - 1;
    let low = (SPLIT + (bucket & (SPLIT - 1))) << power;
    low as f64 + ((1u64 << power) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_sketch_knows_nothing() {
        assert_eq!(Sketch::new().percentile_ns(99.0), None);
        assert_eq!(Sketch::new().mean_ns(), None);
    }

    #[test]
    fn what_is_no_percentile_is_none() {
        let mut sketch = Sketch::new();
        sketch.record(Duration::from_nanos(7));
        assert_eq!(sketch.percentile_ns(f64::NAN), None);
        for percent in [-5.0, 0.0, 50.0, 100.0, 1e300] {
            assert_eq!(sketch.percentile_ns(percent), Some(7.0));
        }
        sketch.record(Duration::MAX);
        assert!(sketch.percentile_ns(100.0).expect("some") > 6e10);
    }

    #[test]
    fn buckets_run_on_without_gap() {
        let mut last = 0;
        for ns in 0..100_000 {
            let at = bucket(ns);
            assert!(at == last || at == last + 1, "{ns}");
            last = at;
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    proptest! {
        #[test]
        fn percentiles_are_within_two_per_cent(
            mut times in prop::collection::vec(1u64..5_000_000_000, 1..400),
            percent in 0.0f64..100.0,
            split in 0usize..400,
        ) {
            let (mut one, mut two) = (Sketch::new(), Sketch::new());
            for (index, &ns) in times.iter().enumerate() {
                let part = if index < split { &mut one } else { &mut two };
                part.record(Duration::from_nanos(ns));
            }
            one.merge(&two);
            times.sort_unstable();
            let above = (times.len() as f64 * (1.0 - percent / 100.0)).floor() as usize;
            let exact = times[times.len().saturating_sub(above + 1)] as f64;
            let ours = one.percentile_ns(percent).expect("not empty");
            prop_assert!((ours / exact - 1.0).abs() < 0.02, "{ours} for {exact}");
            prop_assert_eq!(one.count(), times.len() as u64);
        }
    }
}
