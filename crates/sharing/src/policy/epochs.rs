//! Enforcement by epochs, the paper's algorithm 1: a tenant that has used up its part of the epoch
//! at a tick is stopped until the next one, when all are free again.
//!
//! It leaks, so it is not what we enforce with: between two ticks a tenant may use the whole
//! device, and use held back at the end of one epoch can be added to the next.

use std::collections::BTreeMap;

use entresol_base::Nanos;

use crate::settings::EpochSettings;
use crate::tenant::{MediumId, TenantId};
use crate::throttle::Throttle;
use crate::tick::{Hands, Tick};

type Place = (TenantId, MediumId);

#[derive(Debug)]
pub(super) struct Epochs {
    settings: EpochSettings,
    began: Option<Nanos>,
    /// Device time in nanoseconds since the epoch began.
    used_ns: BTreeMap<Place, u64>,
    /// Time at which a tenant was stopped, as a part of the epoch.
    used_up_at: BTreeMap<Place, f64>,
}

/// Use in an epoch that has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended {
    /// Share of the device that was used.
    pub(super) used: BTreeMap<Place, f64>,
    /// Part of the epoch after which a tenant was stopped, for those that were.
    pub(super) used_up_at: BTreeMap<Place, f64>,
}

impl Epochs {
    pub(super) fn new(settings: EpochSettings) -> Epochs {
        Epochs { settings, began: None, used_ns: BTreeMap::new(), used_up_at: BTreeMap::new() }
    }

    /// Time of the next look.
    pub(super) fn next(&self, now: Nanos) -> Nanos {
        let end = self.began.unwrap_or(now).after(self.settings.length());
        now.after(self.settings.tick).min(end.max(Nanos(now.0.saturating_add(1))))
    }

    /// Counts a tick; returns the epoch if this was its last one.
    pub(super) fn tick(
        &mut self,
        tick: &Tick<'_>,
        assigned: &dyn Fn(TenantId, MediumId) -> Option<f64>,
        hands: &mut Hands<'_>,
    ) -> Option<Ended> {
        let began = *self.began.get_or_insert(tick.now);
        for (tenant, member) in &tick.tenants {
            for medium in MediumId::all(tick.media) {
                let used = member.window.used.get(medium.0).map_or(0, |used| used.used_ns);
                *self.used_ns.entry((*tenant, medium)).or_default() += used;
            }
        }
        if tick.now.since(began) >= self.settings.length() {
            return Some(self.begin_anew(tick, hands));
        }
        let length_ns = self.settings.length().as_nanos() as f64;
        for (&(tenant, medium), &used_ns) in &self.used_ns {
            let Some(share) = assigned(tenant, medium) else { continue };
            if tick.is_here(tenant)
                && used_ns as f64 > share * length_ns
                && hands.throttles.get(tenant, medium) != Throttle::Stopped
            {
                let part = tick.now.since(began).as_nanos() as f64 / length_ns;
                self.used_up_at.insert((tenant, medium), part);
                hands.slow_on(tick, (tenant, medium), Throttle::Stopped, &|| {
                    let used = used_ns as f64 / length_ns;
                    format!("used {:.2}% of the {:.2}% of this epoch", used * 1e2, share * 1e2)
                });
            }
        }
        None
    }

    fn begin_anew(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Ended {
        let seconds = tick.now.since(self.began.unwrap_or(tick.now)).as_secs_f64();
        let share = |(place, used_ns): (Place, u64)| (place, used_ns as f64 / 1e9 / seconds);
        let used = std::mem::take(&mut self.used_ns).into_iter().map(share).collect();
        self.began = Some(tick.now);
        for &tenant in tick.tenants.keys() {
            for medium in MediumId::all(tick.media) {
                hands.slow_on(tick, (tenant, medium), Throttle::Free, &|| {
                    "a new epoch begins".to_owned()
                });
            }
        }
        Ended { used, used_up_at: std::mem::take(&mut self.used_up_at) }
    }
}
