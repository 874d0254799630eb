//! Limits of slowdown: when a tenant comes too near its own, the others are slowed; when all are
//! well within theirs, the others are released.

use super::Fair;
use crate::tenant::TenantId;
use crate::tick::{Hands, Tick};

/// Slowdown over limit below which the others may be released.
const WELL_WITHIN: f64 = 0.88;
/// Smallest factor by which one round cuts a share.
const CUT_MAX: f64 = 0.5;

impl Fair {
    /// Slows the others if a tenant is too near its limit; returns true if it did.
    pub(super) fn guard(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> bool {
        let Some((victim, nearness)) = self.nearest(tick) else { return false };
        if nearness <= 1.0 - self.settings.margin {
            return false;
        }
        if self.take_back(tick, hands) {
            return true;
        }
        let factor = ((1.0 - self.settings.margin) / nearness).clamp(CUT_MAX, 0.99);
        let slowdown = self.slowdowns.get(&victim).copied().unwrap_or(1.0);
        for other in self.others(tick, victim) {
            let why =
                format!("{} is slowed {slowdown:.2} times, near its limit", tick.name(victim));
            self.press(tick, hands, (other, factor), why);
        }
        let text = format!("it is slowed {slowdown:.2} times, near its limit");
        self.ease(tick, hands, (victim, 1.0 / factor), text);
        true
    }

    /// Releases the others if all limits are far away.
    pub(super) fn relax(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        let nearness = self.nearest(tick).map_or(0.0, |(_, nearness)| nearness);
        if nearness < WELL_WITHIN {
            self.lifted_from = None;
            self.lift(tick, hands, "all are well within their limits");
        }
    }

    /// Finds the tenant nearest to its limit, with slowdown over limit.
    fn nearest(&self, tick: &Tick<'_>) -> Option<(TenantId, f64)> {
        let nearness = |(&tenant, &slowdown): (&TenantId, &f64)| {
            Some((tenant, slowdown / tick.tenants.get(&tenant)?.settings.slowdown_max?))
        };
        let all = self.slowdowns.iter().filter_map(nearness);
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Tenants that can be slowed for `victim`: they use the medium, and are not nearly as near a
    /// limit of their own.
    fn others(&self, tick: &Tick<'_>, victim: TenantId) -> Vec<TenantId> {
        let may = |tenant: &TenantId| {
            let limit = tick.tenants.get(tenant).and_then(|member| member.settings.slowdown_max);
            let slowdown = self.slowdowns.get(tenant).copied().unwrap_or(1.0);
            *tenant != victim
                && self.windows.use_dominant(*tenant) > self.settings.share_min
                && limit.is_none_or(|limit| slowdown < limit * WELL_WITHIN)
        };
        tick.tenants.keys().copied().filter(may).collect()
    }
}
