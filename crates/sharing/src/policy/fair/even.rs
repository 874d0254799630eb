//! Making slow-downs equal: slow who is slowed least, release who is slowed most.

use super::Fair;
use crate::policy::{Hands, Tick};
use crate::settings::FairPace;
use crate::tenant::TenantId;

/// How much of the way to the middle is gone in one round: what is taken from one helps the other,
/// so the whole way would be too far.
const DAMPING: f64 = 0.7;
/// A tenant with a limit of its own is left alone once it is this near to it.
const LIMIT_NEAR: f64 = 0.95;

impl Fair {
    pub(super) fn equalise(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        // By weight: who counts double is slowed half as much.
        let weighted: Vec<(TenantId, f64)> = self
            .slowdowns
            .iter()
            .filter_map(|(&tenant, &slowdown)| {
                Some((tenant, slowdown * tick.tenants.get(&tenant)?.settings.weight))
            })
            .collect();
        let by_slowdown = |a: &&(TenantId, f64), b: &&(TenantId, f64)| a.1.total_cmp(&b.1);
        let may_slow = |(tenant, _): &&(TenantId, f64)| self.has_room(tick, *tenant);
        let Some(&(most, largest)) = weighted.iter().max_by(by_slowdown) else { return };
        let Some(&(least, smallest)) = weighted.iter().filter(may_slow).min_by(by_slowdown) else {
            return;
        };
        let unfairness = largest / smallest;
        // Once it has been reached, fairness is held until it is lost.
        let was_fair = self.rounds > 0;
        let enough = match self.settings.pace {
            FairPace::Adaptive if !was_fair => (1.0 + self.settings.unfairness_max) / 2.0,
            // What is seen is off by a hundredth or two: that much is kept clear.
            FairPace::Adaptive => (1.0 + 2.0 * self.settings.unfairness_max) / 3.0,
            _ => self.settings.unfairness_max,
        };
        if unfairness <= enough || most == least {
            return self.be_fair(tick, hands);
        }
        self.rounds = 0;
        if self.take_back(tick, hands) {
            return;
        }
        // From the smallest to the geometric middle of the two.
        let ratio = unfairness.sqrt();
        let down = damped(1.0 / ratio).clamp(0.6, 0.99);
        let up = damped(ratio).clamp(1.01, 1.6);
        let name = tick.name(most);
        let why = format!("{name} is slowed {unfairness:.2} times as much");
        self.press(tick, hands, (least, down), why);
        let why = format!("it is slowed {unfairness:.2} times as much as {}", tick.name(least));
        self.ease(tick, hands, (most, up), why);
    }

    fn be_fair(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        self.lifted_from = None;
        self.rounds += 1;
        if self.rounds > self.settings.rounds {
            self.rounds = 1;
            self.lift(tick, hands, "all has been fair for a while");
        }
    }

    /// Whether a tenant may be slowed further without coming near its own limit.
    fn has_room(&self, tick: &Tick<'_>, tenant: TenantId) -> bool {
        let limit = tick.tenants.get(&tenant).and_then(|member| member.settings.slowdown_max);
        let slowdown = self.slowdowns.get(&tenant).copied().unwrap_or(1.0);
        limit.is_none_or(|limit| slowdown < limit * LIMIT_NEAR)
    }
}

/// A factor brought nearer to one. Linear, since the platforms' powers differ in the last bit.
fn damped(factor: f64) -> f64 {
    1.0 + (factor - 1.0) * DAMPING
}
