//! Limits of resources: a maximum share of a medium's time for each tenant.
//!
//! The accounts' buckets hold the shares, so there is nothing to watch: a limit is exact in every
//! interval, up to the bucket's burst. The paper's epochs stand beside it, for comparison.

use std::time::Duration;

use entresol_base::Nanos;

use super::Policy;
use super::epochs::Epochs;
use crate::settings::{Enforcement, LimitSettings};
use crate::tenant::{MediumId, TenantId};
use crate::throttle::Throttle;
use crate::tick::{Hands, Tick};

/// Interval in which new tenants and changed shares are noticed.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Limits {
    epochs: Option<Epochs>,
}

impl Limits {
    pub(super) fn new(settings: LimitSettings) -> Limits {
        let epochs = match settings.enforcement {
            Enforcement::Bucket => None,
            Enforcement::Epochs(epochs) => Some(Epochs::new(epochs)),
        };
        Limits { epochs }
    }
}

impl Policy for Limits {
    fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos {
        let assigned = |tenant: TenantId, medium: MediumId| {
            *tick.tenants.get(&tenant)?.settings.share_max.get(medium.0)?
        };
        if let Some(epochs) = &mut self.epochs {
            epochs.tick(tick, &assigned, hands);
            return epochs.next(tick.now);
        }
        for &tenant in tick.tenants.keys() {
            for medium in MediumId::all(tick.media) {
                let throttle = assigned(tenant, medium).map_or(Throttle::Free, Throttle::share);
                let why = || "the share that it was given".to_owned();
                hands.slow_on(tick, (tenant, medium), throttle, &why);
            }
        }
        tick.now.after(TICK)
    }
}
