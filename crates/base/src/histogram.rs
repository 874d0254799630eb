//! Latency histograms: every request is recorded, percentiles are never averaged.

use std::time::Duration;

/// Response times from 1 ns to 60 s with three significant digits; merges exactly.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
}

const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

impl Histogram {
    /// Creates an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        let counts =
            hdrhistogram::Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
                .unwrap_or_else(|_| {
                    unreachable!("the bounds are constants that hdrhistogram takes")
                });
        Histogram { counts }
    }

    /// Records one time; longer than 60 s counts as 60 s.
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts.saturating_record(ns.clamp(LOWEST_NS, HIGHEST_NS));
    }

    /// Adds the records of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        // The bounds are the same constants, so the addition cannot be refused.
        let _ = self.counts.add(&other.counts);
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Time that `percent` of the records do not exceed, in microseconds; 0 when empty.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.counts.value_at_percentile(percent) as f64 / 1e3
    }

    /// Mean in microseconds; 0 when empty.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.counts.mean() / 1e3
    }

    /// Longest time in microseconds; 0 when empty.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.counts.max() as f64 / 1e3
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.counts.reset();
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_set() {
        let mut histogram = Histogram::new();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        assert!((histogram.percentile_us(50.0) - 500.0).abs() < 1.0);
        assert!((histogram.percentile_us(99.0) - 990.0).abs() < 1.0);
        assert_eq!(histogram.count(), 1000);
    }

    #[test]
    fn merging_is_recording_into_one() {
        let (mut a, mut b) = (Histogram::new(), Histogram::new());
        a.record(Duration::from_micros(10));
        b.record(Duration::from_secs(3600));
        a.merge(&b);
        assert_eq!(a.count(), 2);
        assert!((a.max_us() / 60e6 - 1.0).abs() < 0.001);
    }
}
