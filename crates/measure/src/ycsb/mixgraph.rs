//! RocksDB's `mixgraph`, which was fitted to a day of ZippyDB at Facebook (Cao, Dong, Vemuri, Du:
//! Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook, FAST 2020,
//! section 6), with the published parameters of `db_bench` (RocksDB's pull request 5953).
//!
//! The daily wave of the request rate is left out: with the published parameters it is seven in a
//! thousand of the mean.

use fastrand::Rng;

/// Number of ranges of keys.
const RANGES: u64 = 30;
/// Parameters of a range's popularity, `a e^(b x) + c e^(d x)`.
const RANGE: [f64; 4] = [14.18, -2.917, 0.0164, -0.08082];
/// Parameters of a key's popularity within its range, `a x^b`.
const KEY: [f64; 2] = [0.002_312, 0.3467];
/// Shape and scale of the generalised Pareto distribution of value sizes in bytes.
const VALUE: [f64; 2] = [0.2615, 25.45];
/// Shape and scale of the generalised Pareto distribution of scan lengths in records.
const SCAN: [f64; 2] = [2.517, 14.236];
pub(super) const VALUE_BYTES_MIN: usize = 10;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1024;
const SCAN_LEN_MAX: u64 = 10_000;
/// Sum of all weights, which express popularities as whole numbers.
const WEIGHTS: f64 = 100_000_000.0;

/// Draws keys from ranges of different popularity.
#[derive(Debug, Clone)]
pub struct KeyRanges {
    /// Cumulative weights of the ranges, in shuffled order.
    ends: Vec<u64>,
    range_keys: u64,
    keys: u64,
    seed: u64,
}

impl KeyRanges {
    pub(super) fn new(keys: u64, seed: u64) -> KeyRanges {
        let weight = |x: u64| {
            let [a, b, c, d] = RANGE;
            let x = x as f64;
            a * (b * x).exp() + c * (d * x).exp()
        };
        let mut weights: Vec<f64> = (1..=RANGES).map(weight).collect();
        let total: f64 = weights.iter().sum();
        // The shuffle separates popular ranges.
        Rng::with_seed(seed).shuffle(&mut weights);
        let mut end = 0;
        let ends = weights.iter().map(|weight| {
            end += ((weight / total * WEIGHTS) as u64).max(1);
            end
        });
        KeyRanges { ends: ends.collect(), range_keys: (keys / RANGES).max(1), keys, seed }
    }

    #[inline]
    pub(super) fn next(&self, rng: &mut Rng) -> u64 {
        let all = self.ends.last().copied().unwrap_or(1);
        let drawn = rng.u64(0..all);
        let range = self.ends.partition_point(|end| *end <= drawn) as u64;
        let [a, b] = KEY;
        // The inverse of the power law gives the rank of a key. A rank stands for a random key of
        // the range, the same one each time.
        let rank = (rng.f64() / a).powf(1.0 / b).ceil() as u64;
        let place = Rng::with_seed(rank ^ self.seed).u64(0..self.range_keys);
        (range * self.range_keys + place) % self.keys.max(1)
    }
}

/// Draws from a generalised Pareto distribution that begins at 0.
fn pareto([shape, scale]: [f64; 2], rng: &mut Rng) -> u64 {
    let below = 1.0 - rng.f64();
    (scale * (below.powf(-shape) - 1.0) / shape).ceil() as u64
}

/// Draws the size of a value in bytes.
pub fn value_bytes(rng: &mut Rng) -> usize {
    match pareto(VALUE, rng) as usize {
        it if it < VALUE_BYTES_MIN => VALUE_BYTES_MIN,
        it if it > VALUE_BYTES_MAX => VALUE_BYTES_MIN.max(it % VALUE_BYTES_MAX),
        it => it,
    }
}

/// Draws the number of records of a scan.
pub fn scan_len(rng: &mut Rng) -> usize {
    (pareto(SCAN, rng) % SCAN_LEN_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_published_mean() {
        // The distribution's own mean is scale / (1 - shape) = 34.5; sizes below the minimum are
        // raised.
        let mut rng = Rng::with_seed(1);
        let all: Vec<usize> = (0..200_000).map(|_| value_bytes(&mut rng)).collect();
        let mean = all.iter().sum::<usize>() as f64 / all.len() as f64;
        assert!((34.0..38.0).contains(&mean), "{mean}");
        assert!(all.iter().all(|it| (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(it)));
    }

    #[test]
    fn scans_are_short_with_a_long_tail() {
        let mut rng = Rng::with_seed(1);
        let mut all: Vec<usize> = (0..200_000).map(|_| scan_len(&mut rng)).collect();
        all.sort_unstable();
        // The median is scale (2^shape - 1) / shape.
        assert!((24..=28).contains(&all[100_000]), "{}", all[100_000]);
        assert!(all[199_999] > 5_000 && all[199_999] < 10_000);
    }

    #[test]
    fn some_ranges_are_hot() {
        let keys = 3_000_000;
        let ranges = KeyRanges::new(keys, 7);
        let mut rng = Rng::with_seed(1);
        let mut counts = [0_u32; RANGES as usize];
        for _ in 0..100_000 {
            counts[(ranges.next(&mut rng) / (keys / RANGES)) as usize] += 1;
        }
        counts.sort_unstable();
        // The share is a e^b + c e^d at x = 1, divided by the sum over all 30.
        let hottest = f64::from(counts[29]) / 1e5;
        assert!((hottest - 0.79).abs() < 0.03, "{hottest}");
        assert!(counts[0] > 20, "{counts:?}");
    }
}
