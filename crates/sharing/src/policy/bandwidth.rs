//! Limits of bandwidth: a maximum of bytes a second for each tenant.
//!
//! It exists for comparison: a byte's cost depends on its direction and its access, so equal bytes
//! are unequal shares. Accounts count device time, so the rate is translated by the recent cost of
//! the tenant's own bytes.

use std::collections::BTreeMap;

use entresol_base::Nanos;

use super::Policy;
use crate::settings::BandwidthSettings;
use crate::tenant::{MediumId, TenantId};
use crate::throttle::Throttle;
use crate::tick::{Hands, Tick};

/// Part of the older bytes that is remembered at each tick.
const MEMORY: f64 = 0.8;
/// Relative change of a share below which it is noise and is left alone.
const CHANGE_MIN: f64 = 0.01;

#[derive(Debug, Default, Clone, Copy)]
struct Bytes {
    used_ns: f64,
    bytes: f64,
}

#[derive(Debug)]
pub(super) struct Bandwidth {
    settings: BandwidthSettings,
    recent: BTreeMap<(TenantId, MediumId), Bytes>,
}

impl Bandwidth {
    pub(super) fn new(settings: BandwidthSettings) -> Bandwidth {
        Bandwidth { settings, recent: BTreeMap::new() }
    }
}

impl Policy for Bandwidth {
    fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos {
        self.recent.retain(|(tenant, _), _| tick.is_here(*tenant));
        for (&tenant, member) in &tick.tenants {
            for medium in MediumId::all(tick.media) {
                let place = (tenant, medium);
                let Some(bytes_s_max) = member.settings.bytes_s_max else {
                    let why = || "it has no limit of bytes".to_owned();
                    hands.slow_on(tick, place, Throttle::Free, &why);
                    continue;
                };
                let recent = self.recent.entry(place).or_default();
                if let Some(used) = member.window.used.get(medium.0) {
                    recent.used_ns = recent.used_ns * MEMORY + used.used_ns as f64;
                    recent.bytes = recent.bytes * MEMORY + member.window.bytes(medium.0) as f64;
                }
                let wanted = match bytes_s_max {
                    0.0 => Throttle::Stopped,
                    // Nothing has moved yet: the cost is unknown, and no limit is needed.
                    _ if recent.bytes < 1.0 => continue,
                    most => Throttle::share(most * recent.used_ns / recent.bytes / 1e9),
                };
                let set = hands.throttles.get(tenant, medium);
                let near = |a: f64, b: f64| (a / b - 1.0).abs() < CHANGE_MIN;
                if !near(wanted.share_max(), set.share_max()) || set == Throttle::Free {
                    hands.slow_on(tick, place, wanted, &|| {
                        format!("{:.0} MB/s at what its bytes cost", bytes_s_max / 1e6)
                    });
                }
            }
        }
        tick.now.after(self.settings.tick)
    }
}
