//! The last step of the policy, kept until its effect on the other tenants is known.

use super::slack::Slacks;
use crate::tenant::TenantId;
use crate::throttle::Throttles;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// `tenant` was slowed for `victim`.
    Slowed { tenant: TenantId, victim: TenantId },
    /// One tenant was released, or all were.
    Released(Option<TenantId>),
}

#[derive(Debug)]
pub(super) struct Deed {
    pub(super) kind: Kind,
    /// Throttles of all tenants before the step.
    pub(super) before: Throttles,
    /// Tenants that kept their targets before the step.
    kept: Vec<TenantId>,
}

impl Deed {
    pub(super) fn new(kind: Kind, before: &Throttles, slacks: &Slacks) -> Deed {
        Deed { kind, before: before.clone(), kept: slacks.kept().collect() }
    }

    /// Finds a tenant whose target the step broke. Slowing a tenant can break only its own target;
    /// releasing one can break any.
    pub(super) fn broken(&self, after: &Slacks) -> Option<TenantId> {
        let concerns = |tenant: &TenantId| match self.kind {
            Kind::Slowed { tenant: slowed, .. } => *tenant == slowed,
            Kind::Released(_) => true,
        };
        let misses = |tenant: &TenantId| after.of_tenant(*tenant) < 0.0;
        self.kept.iter().copied().filter(concerns).find(misses)
    }
}
