//! A tenant's demand for a medium in the next round, from its use in the last one.

use std::collections::BTreeMap;

use super::{Place, Proportional};
use crate::policy::epochs::Ended;
use crate::settings::{Donation, Metric};
use crate::tenant::MediumId;
use crate::tick::Tick;

/// Part of its allowance from which a tenant counts as busy and takes what it can get.
const BUSY: f64 = 0.95;
/// Factor over the share that it kept from which an owner has come back.
const BACK: f64 = 1.3;
/// Largest part of its idle share that an owner lends at once.
const STEP_MAX: f64 = 0.6;
const STEP_MIN: f64 = 0.02;

impl Proportional {
    pub(super) fn wanted(&self, tick: &Tick<'_>, place: Place, ended: &Ended) -> f64 {
        let fair = Self::fair(tick, place.0);
        let assigned = self.assigned.get(&place).copied().unwrap_or(fair);
        let used = ended.used.get(&place).copied().unwrap_or(0.0);
        if self.epochs.is_some() {
            if let Some(&at) = ended.used_up_at.get(&place) {
                return (assigned / at.max(0.01)).min(1.0);
            }
        } else if self.used_alone(place, used) >= BUSY * assigned.max(fair) * self.part_of(place) {
            return 1.0;
        }
        self.kept(tick, place, (assigned, used))
    }

    /// Share that a tenant would use alone, as far as that is known. Adaptive donation calls it
    /// idle beyond that only: a tenant whose requests wait for the medium and not for its share,
    /// beside writes say, uses less than it is given, and would get still less if others had the
    /// rest. The paper's other forms look at the use alone.
    fn used_alone(&self, (tenant, _): Place, used: f64) -> f64 {
        let (donation, metric) = (self.settings.donation, self.settings.metric);
        match (donation, metric, self.slowdowns.get(&tenant)) {
            (Donation::Adaptive, Metric::Throughput, Some(slowdown)) => used * slowdown.max(1.0),
            // Times of answers do not show how many more there would be.
            _ => used,
        }
    }

    /// Share that an owner keeps when it did not need all of it.
    fn kept(&self, tick: &Tick<'_>, (tenant, _): Place, (assigned, used): (f64, f64)) -> f64 {
        let fair = Self::fair(tick, tenant);
        // Guaranteed slowdown compared with being alone: the inverse of its part.
        let slowdown_max = 1.0 / fair;
        let slowdown = self.slowdowns.get(&tenant).copied();
        match self.settings.donation {
            Donation::Never => fair,
            Donation::Naive => used,
            // An idle owner has no performance to lose.
            _ if used <= 0.0 => 0.0,
            Donation::Steps(step) => match slowdown {
                Some(slowdown) if slowdown >= slowdown_max => (assigned * (1.0 + step)).min(fair),
                // Its performance is unknown, so nothing is risked.
                None => fair,
                Some(_) => (assigned * (1.0 - step)).max(used),
            },
            Donation::Adaptive => match slowdown {
                None => fair,
                Some(slowdown) => self.adapted((assigned, used), fair, slowdown / slowdown_max),
            },
        }
    }

    /// Adapts the share that is kept to `nearness`, which is one where the guarantee is just kept.
    fn adapted(&self, (assigned, used): (f64, f64), fair: f64, nearness: f64) -> f64 {
        let safe = 1.0 - self.settings.margin;
        if nearness > safe {
            // The nearer, the more is taken back; beyond the guarantee, all at once.
            let part = (nearness - safe) / self.settings.margin.max(0.01);
            return (assigned + (fair - assigned) * part.clamp(0.1, 1.0)).min(fair);
        }
        let room = safe - nearness;
        if room < self.settings.margin / 2.0 {
            return assigned;
        }
        let step = (room * 2.0).clamp(STEP_MIN, STEP_MAX);
        (assigned - (assigned - used).max(0.0) * step).max(used)
    }

    /// Returns true if a tenant that lent some of its share uses more than it kept. It need not
    /// wait for the end of the round.
    pub(super) fn owner_is_back(&self, tick: &Tick<'_>) -> bool {
        if self.settings.donation == Donation::Never {
            return false;
        }
        let last: BTreeMap<Place, f64> = tick
            .tenants
            .iter()
            .flat_map(|(&tenant, member)| {
                MediumId::all(tick.media)
                    .map(move |medium| ((tenant, medium), member.window.use_of(medium.0)))
            })
            .collect();
        self.assigned.iter().any(|(place, &assigned)| {
            let fair = Self::fair(tick, place.0);
            let used = last.get(place).copied().unwrap_or(0.0);
            assigned < fair * 0.95 && used > assigned * BACK && used > fair * 0.1
        })
    }
}
