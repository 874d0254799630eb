//! Victims beyond help, which miss their targets by themselves or would do so alone.
//!
//! No tenant is slowed for such a victim, those that were are free again, and it hides no other
//! tenant whose target can be kept.

use std::time::Duration;

use super::deed::{Deed, Kind};
use super::slack::Slacks;
use super::{PATIENCE, Qos};
use crate::estimate::interference::Gain;
use crate::policy::patience::Patience;
use crate::settings::Expense;
use crate::tenant::TenantId;
use crate::throttle::Throttle;
use crate::tick::{Hands, Tick};

/// Minimum part of the way to its target that a victim could gain if the candidates gave up all
/// their use, in proportion to the experiments. Below it, the target is out of reach.
const WAY_MIN: f64 = 0.5;

impl Qos {
    /// Returns true if a victim was found to be beyond help and another try is not due.
    pub(super) fn is_left(&self, tick: &Tick<'_>, victim: TenantId) -> bool {
        self.is_adaptive()
            && self.hopeless.get(&victim).is_some_and(|patience| !patience.is_over(tick.now))
    }

    /// Finds the tenant with the least slack among those that can be helped.
    pub(super) fn worst(&self, tick: &Tick<'_>, slacks: &Slacks) -> Option<(TenantId, f64)> {
        slacks.worst(|tenant| !self.is_left(tick, tenant))
    }

    /// Returns true if slowing the candidates can bring a victim near its target.
    pub(super) fn is_within_reach(&self, slack: f64, gains: &[Gain]) -> bool {
        if slack >= 0.0 || self.settings.metric.is_some() {
            return true;
        }
        // Part of its response time that has to go.
        let way = -slack / (1.0 - slack);
        let whole = |gain: &Gain| {
            let window = self.windows.by.get(&gain.tenant);
            let all = window.map_or(0.0, |window| match self.settings.expense {
                Expense::Bytes(_) => window.bytes_s(),
                Expense::Share(_) => window.use_dominant(),
            });
            gain.gain.max(0.0) * (all / gain.expense.max(f64::MIN_POSITIVE)).max(1.0)
        };
        gains.iter().map(whole).sum::<f64>() >= way * WAY_MIN
    }

    /// Gives up a victim for a while, and frees the tenants that were slowed for it.
    pub(super) fn give_up(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>, victim: TenantId) {
        self.expense_factor = 1.0;
        self.culprit = None;
        let longest = self.settings.patience_max;
        let patience =
            self.hopeless.entry(victim).or_insert_with(|| Patience::new(PATIENCE, longest));
        patience.fail(tick.now);
        let wait: Duration = patience.remaining(tick.now);
        let wait = wait.as_secs_f64();
        let text =
            format!("misses its target, and slowing others does not help; next try in {wait:.0} s");
        hands.log.add(tick.now, Some(victim), text);
        let for_it =
            |(tenant, cause): (&TenantId, &TenantId)| (*cause == victim).then_some(*tenant);
        let slowed: Vec<TenantId> = self.slowed_for.iter().filter_map(for_it).collect();
        if slowed.is_empty() {
            return;
        }
        let slacks = Slacks::of(tick, &self.windows, hands.throttles);
        self.deed = Some(Deed::new(Kind::Released(None), hands.throttles, &slacks));
        for tenant in slowed {
            self.slowed_for.remove(&tenant);
            let why = format!("slowing it does not bring {} to its target", tick.name(victim));
            hands.slow(tick, tenant, Throttle::Free, why);
        }
    }
}
