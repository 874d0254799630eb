//! A tenant as the sharing thread sees it: its last readings, and the throttle in effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use entresol_media::Usage;
use entresol_sharing::{Follower, MediumId, Reading, Sketch, TenantId, Throttle};

use crate::tenant::Tenant;

/// A tenant that the sharing thread follows.
pub(super) struct Followed {
    pub(super) id: TenantId,
    /// Medium of its account.
    pub(super) medium: MediumId,
    tenant: Arc<Tenant>,
    latencies: Vec<Follower>,
    /// Throttle last set on its account; none before the first time.
    set: Option<Throttle>,
}

/// Updates the list to the tenants that are served. A tenant that is not, or no longer, in the
/// configuration is left out.
pub(super) fn keep_up(
    followed: &mut Vec<Followed>,
    tenants: &[Arc<Tenant>],
    ids: &BTreeMap<String, TenantId>,
    media: &[String],
) {
    followed.retain(|one| tenants.iter().any(|tenant| Arc::ptr_eq(tenant, &one.tenant)));
    for tenant in tenants {
        let settings = tenant.settings();
        let device = settings.device();
        let medium = media.iter().position(|medium| *medium == device).map(MediumId);
        let known = followed.iter_mut().find(|one| Arc::ptr_eq(&one.tenant, tenant));
        match (known, ids.get(&settings.name), medium) {
            (Some(one), _, Some(medium)) => one.medium = medium,
            (None, Some(&id), Some(medium)) => {
                let latencies = vec![Follower::default(); tenant.latencies().len()];
                let tenant = Arc::clone(tenant);
                followed.push(Followed { id, medium, tenant, latencies, set: None });
            }
            _ => {}
        }
    }
}

impl Followed {
    /// Reads the tenant's use so far, and its response times since the last call.
    pub(super) fn read(&mut self, media: usize) -> Reading {
        let mut latency = Sketch::new();
        let mut operations = 0;
        for (live, follower) in self.tenant.latencies().iter().zip(&mut self.latencies) {
            follower.follow(live, &mut latency);
            operations += live.count();
        }
        let mut used = vec![Usage::default(); media];
        if let Some(used) = used.get_mut(self.medium.0) {
            *used = self.tenant.cache().account().usage();
        }
        Reading { tenant: self.id, used, operations: Some(operations), latency }
    }

    /// Sets the tenant's throttle; returns true if it may now use more than before.
    pub(super) fn slow(&mut self, throttle: Throttle) -> bool {
        if self.set == Some(throttle) {
            return false;
        }
        let before = self.set.replace(throttle).unwrap_or_default();
        self.tenant.cache().account().set_limit(throttle.limit());
        throttle.share_max() > before.share_max()
    }
}
