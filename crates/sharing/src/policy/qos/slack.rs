//! How far each latency-critical tenant is from its target: (target - latency) / target.

use std::collections::BTreeMap;

use crate::policy::{Tick, Windows};
use crate::tenant::TenantId;
use crate::throttle::Throttles;

/// A tenant that was slowed and answers nothing any more is taken for one that needs twice its
/// target, so that nobody stays slowed for being silent.
const SILENT_SLACK: f64 = -1.0;
/// No one is judged worse than this.
const SLACK_MIN: f64 = -1e6;

#[derive(Debug, Clone, Default)]
pub(super) struct Slacks {
    /// Slack, and the response time in nanoseconds.
    by: BTreeMap<TenantId, (f64, f64)>,
}

impl Slacks {
    pub(super) fn of(tick: &Tick<'_>, windows: &Windows, throttles: &Throttles) -> Slacks {
        let mut slacks = Slacks::default();
        for (&tenant, member) in &tick.tenants {
            let Some(target) = member.settings.promised() else { continue };
            let target_ns = target.latency.as_nanos() as f64;
            let window = windows.by.get(&tenant);
            let latency = window.and_then(|window| window.latency.percentile_ns(target.percent));
            let slack = match latency {
                Some(ns) => ((target_ns - ns) / target_ns).max(SLACK_MIN),
                None if throttles.is_throttled(tenant) => SILENT_SLACK,
                // It asks for nothing, so it misses nothing.
                None => continue,
            };
            let latency = latency.unwrap_or(target_ns * (1.0 - SILENT_SLACK));
            slacks.by.insert(tenant, (slack, latency));
        }
        slacks
    }

    /// Who has the least of those that `counts` names.
    pub(super) fn worst(&self, counts: impl Fn(TenantId) -> bool) -> Option<(TenantId, f64)> {
        let slacks = self.by.iter().map(|(&tenant, &(slack, _))| (tenant, slack));
        let slacks = slacks.filter(|(tenant, _)| counts(*tenant));
        slacks.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// A tenant's; none at all is as good as much.
    pub(super) fn of_tenant(&self, tenant: TenantId) -> f64 {
        self.by.get(&tenant).map_or(1.0, |&(slack, _)| slack)
    }

    pub(super) fn latency_ns(&self, tenant: TenantId) -> f64 {
        self.by.get(&tenant).map_or(0.0, |&(_, latency)| latency)
    }

    /// Those who keep their targets.
    pub(super) fn kept(&self) -> impl Iterator<Item = TenantId> + '_ {
        self.by.iter().filter(|(_, (slack, _))| *slack >= 0.0).map(|(&tenant, _)| tenant)
    }
}
