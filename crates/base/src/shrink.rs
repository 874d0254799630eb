//! Shrinks a failing history of operations: drops chunks, then single operations, while the rest
//! still fails (Zeller's delta debugging). Deterministic, and bounded in runs.

/// Limit on the work of shrinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShrinkLimits {
    /// Maximum number of runs of the history.
    pub runs_max: u32,
}

impl Default for ShrinkLimits {
    fn default() -> Self {
        ShrinkLimits { runs_max: 2_000 }
    }
}

/// Finds a small part of `history`, in its order, for which `fails` still returns true. A history
/// that does not fail comes back unchanged. If the limit was not reached, no single operation can
/// be dropped from the result without losing the failure.
pub fn shrink<Op: Clone>(
    history: Vec<Op>,
    mut fails: impl FnMut(&[Op]) -> bool,
    limits: ShrinkLimits,
) -> Vec<Op> {
    let mut runs = 0;
    let mut try_one = |candidate: &[Op]| {
        runs += 1;
        (runs <= limits.runs_max).then(|| fails(candidate))
    };
    if try_one(&history) != Some(true) {
        return history;
    }
    let mut best = history;
    let mut chunk = best.len().div_ceil(2).max(1);
    loop {
        let before = best.len();
        let mut start = 0;
        while start < best.len() {
            let end = (start + chunk).min(best.len());
            let without = [&best[..start], &best[end..]].concat();
            match try_one(&without) {
                None => return best,
                Some(true) => best = without,
                Some(false) => start = end,
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if best.len() == before {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(len: u32, needed: &[u32], runs_expected_max: u32) {
        let mut runs = 0;
        let fails = |part: &[u32]| {
            runs += 1;
            needed.iter().all(|op| part.contains(op))
        };
        let small = shrink((0..len).collect(), fails, ShrinkLimits::default());
        assert_eq!(small, needed);
        assert!(runs <= runs_expected_max, "{runs} runs");
    }

    #[test]
    fn only_what_is_needed_stays_and_in_its_order() {
        check(1_000, &[17, 640, 641], 200);
        check(1_000, &[999], 60);
        check(3, &[0, 1, 2], 20);
        check(0, &[], 1);
        check(100, &[], 20);
    }

    #[test]
    fn operations_that_only_matter_together_stay_together() {
        // Fails while opens and closes balance and there is at least one pair.
        let balanced = |part: &[i32]| !part.is_empty() && part.iter().sum::<i32>() == 0;
        let small = shrink([1, -1].repeat(64), balanced, ShrinkLimits::default());
        assert_eq!(small, [1, -1]);
    }

    #[test]
    fn a_history_that_does_not_fail_comes_back_whole() {
        assert_eq!(shrink(vec![1, 2, 3], |_| false, ShrinkLimits::default()), [1, 2, 3]);
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let mut runs = 0;
        let fails = |part: &[u32]| {
            runs += 1;
            (0..4_096).step_by(3).all(|op| part.contains(&op))
        };
        let small = shrink((0..4_096).collect(), fails, ShrinkLimits { runs_max: 10 });
        assert_eq!((small.len(), runs), (4_096, 10));
    }
}
