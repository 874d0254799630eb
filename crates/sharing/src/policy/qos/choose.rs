//! Choice of candidates, and of the amount that each gives up in an experiment.

use super::slack::Slacks;
use super::{EXPENSE_MAX, Qos};
use crate::estimate::interference::Offer;
use crate::settings::{Choice, Expense};
use crate::tenant::{Class, TenantId};
use crate::throttle::Throttle;
use crate::tick::Tick;

/// Multiple of its floor below which a tenant has nothing left to give.
const ROOM_MIN: f64 = 1.1;

impl Qos {
    /// Returns true if a tenant can be slowed any further.
    pub(super) fn has_room(&self, tick: &Tick<'_>, tenant: TenantId) -> bool {
        self.windows.use_dominant(tenant) > ROOM_MIN * self.share_min(tick, tenant)
    }

    /// Lists the best-effort tenants with the largest use. If there is none, lists the
    /// latency-critical ones with slack; if none has enough, the one with most of it.
    pub(super) fn candidates(
        &self,
        tick: &Tick<'_>,
        slacks: &Slacks,
        victim: TenantId,
    ) -> Vec<TenantId> {
        let may = |tenant: &TenantId| {
            let harmful = self.harmful.get(&(*tenant, victim));
            *tenant != victim
                && self.has_room(tick, *tenant)
                && harmful.is_none_or(|patience| patience.is_over(tick.now))
        };
        let is_best_effort = |tenant: &TenantId| {
            tick.tenants.get(tenant).is_some_and(|m| m.settings.class == Class::BestEffort)
        };
        let best_effort: Vec<TenantId> =
            tick.tenants.keys().copied().filter(is_best_effort).filter(may).collect();
        if !best_effort.is_empty() {
            return self.largest(best_effort);
        }
        let critical = || tick.tenants.keys().copied().filter(|id| !is_best_effort(id)).filter(may);
        let slack = |tenant: &TenantId| slacks.of_tenant(*tenant);
        let with_slack: Vec<TenantId> =
            critical().filter(|tenant| slack(tenant) > self.settings.slack_min).collect();
        if !with_slack.is_empty() {
            return self.largest(with_slack);
        }
        // A tenant without slack cannot spare any: slowing it would only move the miss to it.
        let most = critical().filter(|tenant| slack(tenant) > 0.0);
        most.max_by(|a, b| slack(a).total_cmp(&slack(b))).into_iter().collect()
    }

    fn largest(&self, mut tenants: Vec<TenantId>) -> Vec<TenantId> {
        let size = |tenant: &TenantId| match self.settings.choice {
            Choice::Interference => self.windows.use_dominant(*tenant),
            Choice::LargestBandwidth => self.windows.by.get(tenant).map_or(0.0, |w| w.bytes_s()),
        };
        // The sort is stable, so equal ones stay in the order of their numbers.
        tenants.sort_by(|a, b| size(b).total_cmp(&size(a)));
        tenants.truncate(match self.settings.choice {
            Choice::Interference => self.settings.candidates_max,
            Choice::LargestBandwidth => 1,
        });
        tenants
    }

    /// Throttle and expense of a candidate for the experiment, in which it keeps its floor as well.
    pub(super) fn offer(&self, tick: &Tick<'_>, tenant: TenantId) -> Option<Offer> {
        let used = self.windows.use_dominant(tenant);
        let wanted = self.expense_share(tenant) * self.expense_factor.min(EXPENSE_MAX);
        if used <= 0.0 || wanted <= 0.0 {
            return None;
        }
        let left = (used - wanted).max(self.share_min(tick, tenant).min(used));
        let per_share = match self.settings.expense {
            Expense::Share(_) => 1.0,
            Expense::Bytes(_) => 1.0 / self.share_of_byte.get(&tenant)?,
        };
        let expense = (used - left) * per_share;
        Some(Offer { tenant, throttle: Throttle::share(left), expense })
    }

    /// One expense as a share of the medium's time; all of it for a tenant that has not moved a
    /// byte yet, whose cost of a byte is unknown.
    pub(super) fn expense_share(&self, tenant: TenantId) -> f64 {
        match self.settings.expense {
            Expense::Share(share) => share,
            Expense::Bytes(bytes_s) => {
                self.share_of_byte.get(&tenant).map_or(1.0, |share| share * bytes_s)
            }
        }
    }
}
