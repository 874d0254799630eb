//! The story of a scene, moment by moment.

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_sharing::{Decision, TenantId, Throttle};

/// A tenant since the moment before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TenantMoment {
    /// Requests answered in a second.
    pub(crate) operations_s: f64,
    /// Bytes moved in a second.
    pub(crate) bytes_s: f64,
    /// Share of the device's time that was charged.
    pub(crate) share: f64,
    /// 99th percentile of the response times; none if nothing was answered.
    pub(crate) latency_ns_p99: Option<f64>,
    /// Slowdown compared with being alone, if the policy has measured it.
    pub(crate) slowdown: Option<f64>,
    /// Throttle at the moment.
    pub(crate) throttle: Throttle,
}

/// All tenants at a moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moment {
    /// Time of the moment.
    pub(crate) at: Nanos,
    /// Tenants by number.
    pub(crate) tenants: BTreeMap<TenantId, TenantMoment>,
}

/// Work of a tenant's cache in a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheStory {
    /// Gets answered.
    pub(crate) gets: u64,
    /// Gets that found their item.
    pub(crate) hits: u64,
    /// Items evicted.
    pub(crate) evicted: u64,
}

/// Moments and decisions of a scene.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Story {
    /// Moments in the order of time.
    pub(crate) moments: Vec<Moment>,
    /// Decisions of the controller, with their reasons.
    pub(crate) decisions: Vec<Decision>,
    /// Work of the tenants' caches.
    pub(crate) caches: BTreeMap<TenantId, CacheStory>,
}

impl Story {
    /// Moments of a tenant from some time on.
    pub(crate) fn of(
        &self,
        tenant: TenantId,
        from: Duration,
    ) -> impl Iterator<Item = (Nanos, &TenantMoment)> + '_ {
        let from = Nanos(0).after(from);
        let later = self.moments.iter().filter(move |moment| moment.at > from);
        later.filter_map(move |moment| Some((moment.at, moment.tenants.get(&tenant)?)))
    }

    /// Mean of a value over a tenant's moments from some time on; none if there are none.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn mean(
        &self,
        tenant: TenantId,
        from: Duration,
        of: impl Fn(&TenantMoment) -> f64,
    ) -> Option<f64> {
        let values: Vec<f64> = self.of(tenant, from).map(|(_, moment)| of(moment)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}
