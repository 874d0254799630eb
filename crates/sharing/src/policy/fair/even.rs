//! Equalising slowdowns: the least slowed tenant is slowed, the most slowed one is released.

use super::Fair;
use crate::settings::FairPace;
use crate::tenant::TenantId;
use crate::throttle::Throttle;
use crate::tick::{Hands, Tick};

/// Part of the way to the middle that one round goes. Slowing one tenant also helps the other, so
/// the whole way would be too far.
const DAMPING: f64 = 0.7;
/// Part of its own limit at which a tenant is left alone. It is well before the others are slowed
/// for that limit, lest the two steps undo each other.
const LIMIT_NEAR: f64 = 0.88;

/// Standard errors beyond which a difference is not chance.
const SURE: f64 = 3.0;

/// The two tenants whose slowdowns lie furthest apart.
struct Unfair {
    least: TenantId,
    most: TenantId,
    /// Larger slowdown over the smaller, by weight.
    unfairness: f64,
}

impl Fair {
    pub(super) fn equalise(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        let Some(Unfair { least, most, unfairness }) = self.unfair(tick) else { return };
        let doubt = self.doubt([least, most]);
        // Fairness once reached is held until it is lost.
        let was_fair = self.rounds > 0;
        let enough = match self.settings.pace {
            FairPace::Adaptive if !was_fair => (1.0 + self.settings.unfairness_max) / 2.0,
            // A measured slowdown is off by a hundredth or two: that much is kept clear.
            FairPace::Adaptive => (1.0 + 2.0 * self.settings.unfairness_max) / 3.0,
            _ => self.settings.unfairness_max,
        };
        if unfairness <= enough.max(1.0 + doubt) || most == least {
            return self.be_fair(tick, hands);
        }
        self.rounds = 0;
        if self.take_back(tick, hands) {
            return;
        }
        // From the smallest to the geometric middle of the two.
        let ratio = unfairness.sqrt();
        let damping = DAMPING * belief(unfairness - 1.0, doubt);
        let damped = |factor| damped(factor, damping);
        let down = damped(1.0 / ratio).clamp(0.6, 0.99).max(self.down_min(tick, least));
        let up = damped(ratio).clamp(1.01, 1.6);
        let steps = match self.settings.pace {
            FairPace::Adaptive => [self.stride(hands, least, down), self.stride(hands, most, up)],
            FairPace::Delays(_) => [Some(down), Some(up)],
        };
        if let Some(down) = steps[0] {
            let name = tick.name(most);
            let why = format!("{name} is slowed {unfairness:.2} times as much");
            self.press(tick, hands, (least, down), why);
        }
        if let Some(up) = steps[1] {
            let why = format!("it is slowed {unfairness:.2} times as much as {}", tick.name(least));
            self.ease(tick, hands, (most, up), why);
        }
        if steps == [None, None] {
            self.strides.rest(tick.now, unfairness);
        }
    }

    /// Finds the least slowed tenant that may be slowed, and the most slowed one.
    fn unfair(&self, tick: &Tick<'_>) -> Option<Unfair> {
        // By weight: a tenant that counts double is slowed half as much.
        let weighted: Vec<(TenantId, f64)> = self
            .slowdowns
            .iter()
            .filter_map(|(&tenant, &slowdown)| {
                Some((tenant, slowdown * tick.tenants.get(&tenant)?.settings.weight))
            })
            .collect();
        let by_slowdown = |a: &&(TenantId, f64), b: &&(TenantId, f64)| a.1.total_cmp(&b.1);
        let may_slow = |(tenant, _): &&(TenantId, f64)| self.has_room(tick, *tenant);
        let &(most, largest) = weighted.iter().max_by(by_slowdown)?;
        let &(least, smallest) = weighted.iter().filter(may_slow).min_by(by_slowdown)?;
        Some(Unfair { least, most, unfairness: largest / smallest })
    }

    /// Standard error of the quotient of two slowdowns, as a part of it.
    fn doubt(&self, two: [TenantId; 2]) -> f64 {
        let slow = two.into_iter().filter(|tenant| self.alone.is_slow(*tenant));
        let squares = |tenant| self.looks.error(tenant).powi(2) + self.alone.doubt(tenant).powi(2);
        slow.map(squares).sum::<f64>().sqrt()
    }

    /// Returns true if longer looks would not make the difference clearer in a way that matters.
    pub(super) fn is_sure(&self, tick: &Tick<'_>) -> bool {
        let Some(Unfair { least, most, unfairness }) = self.unfair(tick) else { return true };
        let error = self.looks.error(least).hypot(self.looks.error(most));
        let tolerated = (self.settings.unfairness_max - 1.0) / 2.0;
        error <= tolerated.max((unfairness - 1.0) / SURE)
    }

    /// Length of a step in this direction; none if the tenant cannot go that way, or not far enough
    /// to matter.
    fn stride(&mut self, hands: &Hands<'_>, tenant: TenantId, factor: f64) -> Option<f64> {
        let set = hands.throttles.of(tenant);
        let is_at_end = match factor < 1.0 {
            true => set.share_max() <= self.settings.share_min,
            false => set == Throttle::Free,
        };
        if is_at_end { None } else { self.strides.step(tenant, factor) }
    }

    fn be_fair(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        // Rounds count as many as intervals, so that longer looks do not delay the release.
        self.rounds = self.rounds.saturating_add(self.looks.count().max(1));
        if self.rounds > self.settings.rounds {
            self.rounds = 1;
            self.lifted_from = None;
            self.lift(tick, hands, "all has been fair for a while");
        }
    }

    /// Smallest factor of a step that leaves a tenant clear of its own limit: the slowdown grows at
    /// most as its share falls.
    fn down_min(&self, tick: &Tick<'_>, tenant: TenantId) -> f64 {
        let limit = tick.tenants.get(&tenant).and_then(|member| member.settings.slowdown_max);
        let slowdown = self.slowdowns.get(&tenant).copied().unwrap_or(1.0);
        limit.map_or(0.0, |limit| (slowdown / (limit * LIMIT_NEAR)).min(0.99))
    }

    /// Returns true if a tenant may be slowed further without coming near its own limit.
    fn has_room(&self, tick: &Tick<'_>, tenant: TenantId) -> bool {
        let limit = tick.tenants.get(&tenant).and_then(|member| member.settings.slowdown_max);
        let slowdown = self.slowdowns.get(&tenant).copied().unwrap_or(1.0);
        limit.is_none_or(|limit| slowdown < limit * LIMIT_NEAR)
    }
}

/// Brings a factor nearer to one. Linear, since the platforms' powers differ in the last bit.
fn damped(factor: f64, damping: f64) -> f64 {
    1.0 + (factor - 1.0) * damping
}

/// Part of a difference that is believed: all of it without a doubt, half if it may as well be
/// chance.
fn belief(difference: f64, doubt: f64) -> f64 {
    if doubt > 0.0 { 1.0 / (1.0 + (doubt / difference).powi(2)) } else { 1.0 }
}
