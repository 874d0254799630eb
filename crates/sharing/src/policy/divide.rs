//! Division of a whole by weight among claims: none gets more than it asks for while another goes
//! short, and nothing is left over.

/// A claim to a part of the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Claim {
    pub(crate) weight: f64,
    /// Amount needed; at or above the whole it means «as much as there is».
    pub(crate) wanted: f64,
}

/// Parts of `whole` in the order of the claims. They add up to `whole` if there is a claim.
pub(crate) fn divide(whole: f64, claims: &[Claim]) -> Vec<f64> {
    let parts = parts_of(whole, claims);
    let sum: f64 = parts.iter().sum();
    debug_assert!(
        claims.is_empty() || (sum - whole).abs() <= whole.abs() * 1e-9,
        "{parts:?} of {whole} for {claims:?}"
    );
    parts
}

fn parts_of(whole: f64, claims: &[Claim]) -> Vec<f64> {
    let mut parts = vec![0.0; claims.len()];
    let mut open: Vec<usize> = (0..claims.len()).collect();
    let mut left = whole;
    loop {
        let weights: f64 = open.iter().map(|&index| claims[index].weight).sum();
        let fair = |index: usize| left * claims[index].weight / weights;
        let (modest, greedy): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&index| claims[index].wanted <= fair(index));
        if modest.is_empty() {
            for &index in &greedy {
                parts[index] = fair(index);
            }
            return parts;
        }
        for &index in &modest {
            parts[index] = claims[index].wanted.max(0.0);
        }
        left -= modest.iter().map(|&index| parts[index]).sum::<f64>();
        if greedy.is_empty() {
            break;
        }
        open = greedy;
    }
    // All claims are met: the rest is spread by weight, for a tenant that wakes up.
    let weights: f64 = claims.iter().map(|claim| claim.weight).sum();
    for (part, claim) in parts.iter_mut().zip(claims) {
        *part += left.max(0.0) * claim.weight / weights;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(claims: &[(f64, f64)], expected: &[f64]) {
        let claims: Vec<Claim> =
            claims.iter().map(|&(weight, wanted)| Claim { weight, wanted }).collect();
        let parts = divide(1.0, &claims);
        for (part, expected) in parts.iter().zip(expected) {
            assert!((part - expected).abs() < 1e-12, "{parts:?} for {claims:?}");
        }
    }

    #[test]
    fn the_busy_share_by_weight() {
        check(&[(2.0, 1.0), (1.0, 1.0)], &[2.0 / 3.0, 1.0 / 3.0]);
    }

    #[test]
    fn what_one_leaves_the_others_get() {
        check(&[(2.0, 0.1), (1.0, 1.0)], &[0.1, 0.9]);
        check(&[(1.0, 0.1), (1.0, 0.4), (1.0, 1.0)], &[0.1, 0.4, 0.5]);
    }

    #[test]
    fn what_nobody_needs_is_spread_by_weight() {
        check(&[(2.0, 0.1), (1.0, 0.3)], &[0.1 + 0.4, 0.3 + 0.2]);
        assert!(divide(1.0, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn parts_add_up_and_nobody_is_below_both_its_wish_and_its_fair_part(
            claims in prop::collection::vec((0.01f64..100.0, 0.0f64..2.0), 1..12),
            whole in 0.01f64..1.0,
        ) {
            let claims: Vec<Claim> =
                claims.into_iter().map(|(weight, wanted)| Claim { weight, wanted }).collect();
            let parts = divide(whole, &claims);
            let weights: f64 = claims.iter().map(|claim| claim.weight).sum();
            prop_assert!((parts.iter().sum::<f64>() - whole).abs() < 1e-9);
            for (part, claim) in parts.iter().zip(&claims) {
                let owed = claim.wanted.min(whole * claim.weight / weights);
                prop_assert!(*part >= owed - 1e-9, "{part} of {owed}");
            }
        }
    }
}
