//! Medians with their spread, and ratios of interleaved pairs with their confidence.

use std::fmt;

use fastrand::Rng;
use serde::Serialize;

use crate::report::table::number;

/// Number of resamples of the pairs for a confidence interval.
pub const RESAMPLES: u32 = 5_000;

/// Least number of pairs for a claim: a bootstrap over a handful of pairs is overconfident.
pub const PAIRS_MIN: usize = 10;

/// Summary of several rounds of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Median of the rounds.
    pub median: f64,
    /// Lowest round.
    pub min: f64,
    /// Highest round.
    pub max: f64,
}

impl Spread {
    /// Returns the median and range of `rounds`; zeros if there are none.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Spread {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return Spread { median: 0.0, min: 0.0, max: 0.0 };
        };
        Spread { median: median_of_sorted(&sorted), min: *min, max: *max }
    }
}

/// Formats as `median (lowest to highest)`.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to {})", number(self.median), number(self.min), number(self.max))
    }
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Ratio of two measurements over interleaved pairs, with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedRatio {
    /// Geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// Lower end of the 95% interval.
    pub ci95_low: f64,
    /// Upper end of the 95% interval.
    pub ci95_high: f64,
    /// Number of pairs behind the ratio.
    pub pairs: usize,
}

impl PairedRatio {
    /// Returns true if there are at least [`PAIRS_MIN`] pairs and the interval excludes 1. Only
    /// then is a difference claimed.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.pairs >= PAIRS_MIN && (self.ci95_low > 1.0 || self.ci95_high < 1.0)
    }
}

/// Returns the ratio of the first to the second of each pair: the mean of the logarithms with a
/// bootstrap interval. Whole pairs are resampled, since the two halves of a pair share their
/// disturbances. A pair with a half that is not positive is left out and lowers the count.
#[must_use]
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<PairedRatio> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(first, second)| *first > 0.0 && *second > 0.0)
        .map(|(first, second)| (first / second).ln())
        .collect();
    if logs.is_empty() {
        return None;
    }
    let mut rng = Rng::with_seed(seed);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sum: f64 = (0..logs.len()).map(|_| logs[rng.usize(0..logs.len())]).sum();
            sum / logs.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((means.len() - 1) as f64 * share).round() as usize];
    Some(PairedRatio {
        ratio: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
        ci95_low: at(0.025).exp(),
        ci95_high: at(0.975).exp(),
        pairs: logs.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        let odd = Spread::of(&[9.0, 1.0, 5.0]);
        assert_eq!((odd.median, odd.min, odd.max), (5.0, 1.0, 9.0));
        assert!((Spread::of(&[4.0, 1.0, 2.0, 3.0]).median - 2.5).abs() < 1e-12);
        assert!(Spread::of(&[]).median.abs() < 1e-12);
    }

    #[test]
    fn a_shared_disturbance_cancels_within_pairs() {
        // The second half is always 25% larger, while the level drifts by a factor of twenty.
        let pairs: Vec<(f64, f64)> =
            (0..20).map(|i| (f64::from(i + 1), f64::from(i + 1) * 1.25)).collect();
        let ratio = paired_ratio(&pairs, 1).unwrap();
        assert!((ratio.ratio - 0.8).abs() < 1e-9);
        assert!(ratio.ci95_high - ratio.ci95_low < 1e-9 && ratio.differs());
    }

    #[test]
    fn the_interval_has_the_width_that_theory_gives() {
        // Logs of +-0.1 in equal parts: standard error 0.1/sqrt(400), so +-1.96 * 0.005.
        let pairs: Vec<(f64, f64)> = (0..400)
            .map(|i| (if i % 2 == 0 { 0.1_f64.exp() } else { (-0.1_f64).exp() }, 1.0))
            .collect();
        let ratio = paired_ratio(&pairs, 5).unwrap();
        assert!((ratio.ratio - 1.0).abs() < 1e-9);
        assert!((ratio.ci95_high.ln() - 0.0098).abs() < 0.0012, "{ratio:?}");
        assert!((ratio.ci95_low.ln() + 0.0098).abs() < 0.0012, "{ratio:?}");
        assert!(!ratio.differs());
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut rng = Rng::with_seed(11);
        let mut covered = 0;
        for run in 0..200 {
            let pairs: Vec<(f64, f64)> = (0..30)
                .map(|_| {
                    let noise: f64 = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
                    (2.0 * (0.2 * noise).exp(), 1.0)
                })
                .collect();
            let ratio = paired_ratio(&pairs, run).unwrap();
            covered += u32::from(ratio.ci95_low <= 2.0 && 2.0 <= ratio.ci95_high);
        }
        assert!((176..=198).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn a_handful_of_pairs_claims_nothing() {
        assert!(!paired_ratio(&[(1.0, 2.0); 9], 1).unwrap().differs());
        assert!(paired_ratio(&[(1.0, 2.0); 10], 1).unwrap().differs());
    }

    #[test]
    fn empty_halves_are_left_out() {
        assert_eq!(paired_ratio(&[(0.0, 1.0)], 1), None);
        assert_eq!(paired_ratio(&[(0.0, 1.0), (2.0, 1.0)], 1).unwrap().pairs, 1);
    }
}
