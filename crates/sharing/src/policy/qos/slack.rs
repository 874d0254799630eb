//! Slack of latency-critical tenants, their distance from the target: (target - latency) / target.

use std::collections::BTreeMap;

use crate::tenant::TenantId;
use crate::throttle::Throttles;
use crate::tick::{Tick, Windows};

/// Slack of a slowed tenant that answers nothing: as if it took twice its target, so that no tenant
/// stays slowed for being silent.
const SILENT_SLACK: f64 = -1.0;
/// Lowest slack that a tenant is given.
const SLACK_MIN: f64 = -1e6;

#[derive(Debug, Clone, Default)]
pub(super) struct Slacks {
    /// Slack and response time in nanoseconds.
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
                // A tenant without requests misses nothing.
                None => continue,
            };
            let latency = latency.unwrap_or(target_ns * (1.0 - SILENT_SLACK));
            slacks.by.insert(tenant, (slack, latency));
        }
        slacks
    }

    /// Finds the tenant with the least slack among those that `counts` accepts.
    pub(super) fn worst(&self, counts: impl Fn(TenantId) -> bool) -> Option<(TenantId, f64)> {
        let slacks = self.by.iter().map(|(&tenant, &(slack, _))| (tenant, slack));
        let slacks = slacks.filter(|(tenant, _)| counts(*tenant));
        slacks.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Slack of a tenant; one without a target has plenty.
    pub(super) fn of_tenant(&self, tenant: TenantId) -> f64 {
        self.by.get(&tenant).map_or(1.0, |&(slack, _)| slack)
    }

    pub(super) fn latency_ns(&self, tenant: TenantId) -> f64 {
        self.by.get(&tenant).map_or(0.0, |&(_, latency)| latency)
    }

    /// Tenants that keep their targets.
    pub(super) fn kept(&self) -> impl Iterator<Item = TenantId> + '_ {
        self.by.iter().filter(|(_, (slack, _))| *slack >= 0.0).map(|(&tenant, _)| tenant)
    }
}
