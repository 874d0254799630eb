//! Choice of the runs to compact by their sizes, and how near a compaction of all of them is.

use std::ops::Range;

/// Number of runs of like size that triggers a compaction.
const LIKE_MIN: usize = 4;
/// Share of what triggers a compaction of all runs from which on that comes near.
const NEAR_FROM: f64 = 0.75;

/// Chooses the runs to compact by their sizes, which are given newest first.
pub(super) fn window(sizes: &[u64], amplification: f64) -> Option<Range<usize>> {
    let (oldest, newer) = sizes.split_last()?;
    let sum: u64 = newer.iter().sum();
    if sizes.len() >= LIKE_MIN && sum as f64 > *oldest as f64 * (amplification - 1.0) {
        return Some(0..sizes.len());
    }
    let like = count_like(sizes);
    (like >= LIKE_MIN).then_some(0..like)
}

/// Returns how near a compaction of all runs is, by their sizes: 0 if it is far, 1 if it is due
/// once there are runs enough.
pub(crate) fn nearness(sizes: &[u64], amplification: f64) -> f64 {
    let Some((oldest, newer)) = sizes.split_last() else { return 0.0 };
    let most = (*oldest as f64 * (amplification - 1.0)).max(1.0);
    let share = newer.iter().sum::<u64>() as f64 / most;
    ((share - NEAR_FROM) / (1.0 - NEAR_FROM)).clamp(0.0, 1.0)
}

/// Returns the bytes of the runs of like size, which are compacted once there are enough of them.
pub(crate) fn like_bytes(sizes: &[u64]) -> u64 {
    sizes.iter().take(count_like(sizes)).sum()
}

fn count_like(sizes: &[u64]) -> usize {
    let mut sum = 0;
    let like = sizes.iter().enumerate().take_while(|(place, size)| {
        let is_like = *place == 0 || **size <= 2 * sum;
        sum += **size;
        is_like
    });
    like.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compaction_of_all_runs_comes_nearer_until_it_is_due() {
        let of_newer = |newer: u64| nearness(&[newer / 2, newer / 2, 1000], 1.5);
        assert_eq!([0, 100, 374].map(of_newer), [0.0; 3]);
        assert!((of_newer(438) - 0.5).abs() < 0.01, "{}", of_newer(438));
        assert_eq!([500, 2000].map(of_newer), [1.0; 2]);
        assert_eq!((nearness(&[], 1.5), nearness(&[7], 1.5)), (0.0, 0.0));
        assert_eq!(nearness(&[1, 2, 0], 1.0), 1.0);
        for newer in 0..1000 {
            let sizes = [newer, newer, newer, 1000];
            let is_of_all = window(&sizes, 1.5) == Some(0..4);
            assert!(!is_of_all || nearness(&sizes, 1.5) >= 1.0, "{sizes:?}");
        }
    }

    #[test]
    fn the_bytes_of_like_runs_are_those_of_the_next_compaction_of_some() {
        for sizes in [&[1, 1, 1, 1, 9, 100][..], &[5, 5, 5, 20, 1000], &[4]] {
            let runs = window(sizes, 1.5).unwrap_or(0..0);
            let bytes: u64 = sizes[runs.clone()].iter().sum();
            assert!(runs.is_empty() || bytes == like_bytes(sizes), "{sizes:?}: {runs:?}");
        }
        assert_eq!(like_bytes(&[1, 1, 1, 1, 9, 100]), 4);
    }
}
