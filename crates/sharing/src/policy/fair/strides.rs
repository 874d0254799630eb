//! Length of the steps of fair slowdown.
//!
//! Each time a tenant's direction turns, its steps are halved, and steps too short to matter are
//! left out. A constant load thus comes to rest, whatever its tenants answer. Steps grow again
//! under another load, and otherwise after ever longer waits, so that the number of tries grows
//! with the logarithm of time only.

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;

use crate::policy::patience::Patience;
use crate::tenant::TenantId;

/// Shortest step that is worth a decision.
const STEP_MIN: f64 = 0.004;
/// Factor by which unfairness must exceed that at rest to be another load's.
const WORSE: f64 = 1.15;
/// Rounds in a row for which unfairness must be worse to be another load's.
const WORSE_ROUNDS: u32 = 3;

#[derive(Debug)]
pub(super) struct Strides {
    by: BTreeMap<TenantId, Stride>,
    patience: Patience,
    /// Unfairness when a step was first left out, and the rounds for which it has been worse.
    rest: Option<(f64, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Stride {
    scale: f64,
    is_up: bool,
}

impl Strides {
    pub(super) fn new(first: Duration, longest: Duration) -> Strides {
        Strides { by: BTreeMap::new(), patience: Patience::new(first, longest), rest: None }
    }

    /// Begins anew for another load.
    pub(super) fn reset(&mut self) {
        self.by.clear();
        self.patience.reset();
        self.rest = None;
    }

    pub(super) fn retain(&mut self, keep: impl Fn(TenantId) -> bool) {
        self.by.retain(|tenant, _| keep(*tenant));
    }

    /// Shortens a wanted factor; none if the step becomes too short.
    pub(super) fn step(&mut self, tenant: TenantId, wanted: f64) -> Option<f64> {
        let is_up = wanted > 1.0;
        let stride = self.by.entry(tenant).or_insert(Stride { scale: 1.0, is_up });
        if stride.is_up != is_up {
            *stride = Stride { scale: stride.scale / 2.0, is_up };
        }
        let factor = 1.0 + (wanted - 1.0) * stride.scale;
        ((factor - 1.0).abs() >= STEP_MIN).then_some(factor)
    }

    /// Notes that nothing was changed in spite of this unfairness. The rest lasts until it is worse
    /// or the wait is over.
    pub(super) fn rest(&mut self, now: Nanos, unfairness: f64) {
        let Some((at_rest, worse)) = &mut self.rest else {
            self.patience.fail(now);
            self.rest = Some((unfairness, 0));
            return;
        };
        *worse = if unfairness > *at_rest * WORSE { *worse + 1 } else { 0 };
        if *worse >= WORSE_ROUNDS {
            self.reset();
        } else if self.patience.is_over(now) {
            self.by.clear();
            self.rest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TenantId = TenantId(1);

    fn strides() -> Strides {
        Strides::new(Duration::from_secs(1), Duration::from_secs(600))
    }

    #[test]
    fn each_turn_halves_the_step_until_it_is_left_out() {
        let mut strides = strides();
        assert_eq!(strides.step(T, 0.9), Some(0.9));
        assert_eq!(strides.step(T, 0.9), Some(0.9), "the same way: as far as before");
        let mut turns = 0;
        while strides.step(T, if turns % 2 == 0 { 1.1 } else { 0.9 }).is_some() {
            turns += 1;
            assert!(turns < 10);
        }
        assert_eq!(turns, 4, "a tenth is halved four times before it is below 0.4%");
        strides.reset();
        assert_eq!(strides.step(T, 0.9), Some(0.9));
    }

    #[test]
    fn rest_ends_after_waits_that_double_and_at_once_under_another_load() {
        let mut strides = strides();
        let mut ends = Vec::new();
        for tenth in 0..600 {
            let now = Nanos(tenth * 100_000_000);
            let rested = strides.rest.is_some();
            strides.rest(now, 1.2);
            if rested && strides.rest.is_none() {
                ends.push(tenth);
            }
        }
        assert!((4..=5).contains(&ends.len()), "after 1, 3, 7, 15 and 31 s: {ends:?}");
        let now = Nanos(61_000_000_000);
        (0..WORSE_ROUNDS).for_each(|_| strides.rest(now, 1.5));
        assert!(strides.rest.is_none() && strides.patience.is_over(now), "it is worse");
    }
}
