//! What happened in a scene, moment by moment.

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;

use crate::decision::Decision;
use crate::tenant::TenantId;
use crate::throttle::Throttle;

/// One tenant since the moment before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TenantMoment {
    /// Requests answered in a second.
    pub operations_s: f64,
    /// Bytes moved in a second.
    pub bytes_s: f64,
    /// The share of the device's time that was charged.
    pub share: f64,
    /// The 99th percentile of the response times; none if nothing was answered.
    pub latency_ns_p99: Option<f64>,
    /// How much slower than alone, if the policy has found out.
    pub slowdown: Option<f64>,
    /// How it is slowed now.
    pub throttle: Throttle,
}

/// All tenants at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// When.
    pub at: Nanos,
    /// Each.
    pub tenants: BTreeMap<TenantId, TenantMoment>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Story {
    /// In the order of time.
    pub moments: Vec<Moment>,
    /// What the controller decided and why.
    pub decisions: Vec<Decision>,
}

impl Story {
    /// One tenant's moments from some time on.
    pub fn of(
        &self,
        tenant: TenantId,
        from: Duration,
    ) -> impl Iterator<Item = (Nanos, &TenantMoment)> + '_ {
        let from = Nanos(0).after(from);
        let later = self.moments.iter().filter(move |moment| moment.at > from);
        later.filter_map(move |moment| Some((moment.at, moment.tenants.get(&tenant)?)))
    }

    /// The mean of something over a tenant's moments from some time on; none if there are none.
    #[must_use]
    pub fn mean(
        &self,
        tenant: TenantId,
        from: Duration,
        of: impl Fn(&TenantMoment) -> f64,
    ) -> Option<f64> {
        let values: Vec<f64> = self.of(tenant, from).map(|(_, moment)| of(moment)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}
