//! The last step, kept until it is known what it did to the others.

use super::slack::Slacks;
use crate::tenant::TenantId;
use crate::throttle::Throttles;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// This tenant was slowed for that one.
    Slowed { tenant: TenantId, victim: TenantId },
    /// This one was released, or all were.
    Released(Option<TenantId>),
}

#[derive(Debug)]
pub(super) struct Deed {
    pub(super) kind: Kind,
    /// Everybody's throttles before it.
    pub(super) before: Throttles,
    /// Who kept its target before it.
    kept: Vec<TenantId>,
}

impl Deed {
    pub(super) fn new(kind: Kind, before: &Throttles, slacks: &Slacks) -> Deed {
        Deed { kind, before: before.clone(), kept: slacks.kept().collect() }
    }

    /// Somebody who kept its target before, and does not now because of this step: slowing a
    /// tenant can break its own target only, releasing one can break anybody's.
    pub(super) fn broken(&self, after: &Slacks) -> Option<TenantId> {
        let concerns = |tenant: &TenantId| match self.kind {
            Kind::Slowed { tenant: slowed, .. } => *tenant == slowed,
            Kind::Released(_) => true,
        };
        let misses = |tenant: &TenantId| after.of_tenant(*tenant) < 0.0;
        self.kept.iter().copied().filter(concerns).find(misses)
    }
}
