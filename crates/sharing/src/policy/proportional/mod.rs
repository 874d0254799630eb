//! Proportional shares, the paper's algorithm 4: each tenant has its weight's part of the medium,
//! and others may use what it leaves idle as long as it keeps its guarantee.
//!
//! The assigned parts add up to one over all tenants of a medium. With the paper's epochs they are
//! the limits. With the bucket, a tenant that lent some may still use all of its fair part at once,
//! without waiting for the next round.

mod demand;
mod yields;

use std::collections::BTreeMap;

use entresol_base::Nanos;

use super::Policy;
use super::divide::{Claim, divide};
use super::epochs::{Ended, Epochs};
use crate::estimate::alone::Alone;
use crate::settings::{Donation, Enforcement, ProportionalSettings};
use crate::tenant::{MediumId, TenantId};
use crate::throttle::Throttle;
use crate::tick::{Hands, Tick, Windows};
use yields::Yield;

type Place = (TenantId, MediumId);

#[derive(Debug)]
pub(super) struct Proportional {
    settings: ProportionalSettings,
    alone: Alone,
    epochs: Option<Epochs>,
    windows: Windows,
    assigned: BTreeMap<Place, f64>,
    slowdowns: BTreeMap<TenantId, f64>,
    yields: BTreeMap<MediumId, Yield>,
}

impl Policy for Proportional {
    fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos {
        if self.alone.is_pausing() {
            let none = |_: TenantId| false;
            let next = self.alone.tick(tick, hands, &none);
            return next.unwrap_or(tick.now.after(self.settings.tick));
        }
        self.windows.add(tick);
        self.welcome(tick, hands);
        if let Some(ended) = self.ended(tick, hands) {
            self.alone.notice(tick.now, &self.windows, hands.throttles);
            self.assign_anew(tick, &ended);
            self.set(tick, hands);
            self.windows.clear();
        }
        let moves = |tenant: TenantId| {
            self.windows.by.get(&tenant).is_none_or(|window| window.operations > 0)
        };
        let wanted = |tenant: TenantId| {
            matches!(self.settings.donation, Donation::Steps(_) | Donation::Adaptive)
                && moves(tenant)
        };
        if let Some(next) = self.alone.tick(tick, hands, &wanted) {
            return next;
        }
        match &self.epochs {
            Some(epochs) => epochs.next(tick.now),
            None => tick.now.after(self.settings.tick),
        }
    }

    fn is_trying(&self) -> bool {
        self.alone.is_pausing()
    }

    fn slowdown(&self, tenant: TenantId) -> Option<f64> {
        self.slowdowns.get(&tenant).copied()
    }
}

impl Proportional {
    pub(super) fn new(settings: ProportionalSettings, seed: u64) -> Proportional {
        let epochs = match settings.enforcement {
            Enforcement::Bucket => None,
            Enforcement::Epochs(epochs) => Some(Epochs::new(epochs)),
        };
        Proportional {
            alone: Alone::new(settings.alone, settings.metric, seed),
            epochs,
            windows: Windows::default(),
            assigned: BTreeMap::new(),
            slowdowns: BTreeMap::new(),
            yields: BTreeMap::new(),
            settings,
        }
    }

    /// A tenant's part by weight.
    fn fair(tick: &Tick<'_>, tenant: TenantId) -> f64 {
        let weights: f64 = tick.tenants.values().map(|member| member.settings.weight).sum();
        tick.tenants.get(&tenant).map_or(0.0, |member| member.settings.weight / weights)
    }

    /// Starts all tenants at their fair parts again when one has come or left, since that changes
    /// them.
    fn welcome(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        let known = |tenant: &TenantId| self.assigned.contains_key(&(*tenant, MediumId(0)));
        let here = self.assigned.keys().all(|(tenant, _)| tick.is_here(*tenant));
        if here && tick.tenants.keys().all(known) {
            return;
        }
        self.assigned.clear();
        self.yields.clear();
        self.slowdowns.retain(|tenant, _| tick.is_here(*tenant));
        for &tenant in tick.tenants.keys() {
            for medium in MediumId::all(tick.media) {
                self.assigned.insert((tenant, medium), Self::fair(tick, tenant));
            }
        }
        self.windows.clear();
        self.set(tick, hands);
    }

    /// Returns the use of each medium once a round is over.
    fn ended(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Option<Ended> {
        if let Some(epochs) = &mut self.epochs {
            let assigned = |tenant, medium| self.assigned.get(&(tenant, medium)).copied();
            return epochs.tick(tick, &assigned, hands);
        }
        let back = self.owner_is_back(tick);
        if !back && self.windows.elapsed < self.settings.period {
            return None;
        }
        let mut ended = Ended::default();
        for (&tenant, member) in &tick.tenants {
            // An owner that has come back is judged by its latest tick.
            let whole = self.windows.by.get(&tenant).filter(|_| !back);
            let window = whole.unwrap_or(&member.window);
            for medium in MediumId::all(tick.media) {
                ended.used.insert((tenant, medium), window.use_of(medium.0));
            }
        }
        Some(ended)
    }

    fn assign_anew(&mut self, tick: &Tick<'_>, ended: &Ended) {
        self.slowdowns.clear();
        for (&tenant, window) in &self.windows.by {
            if let Some(slowdown) = self.alone.slowdown(tenant, window) {
                self.slowdowns.insert(tenant, slowdown);
            }
        }
        for medium in MediumId::all(tick.media) {
            let claims: Vec<Claim> = tick
                .tenants
                .iter()
                .map(|(&tenant, member)| Claim {
                    weight: member.settings.weight,
                    wanted: self.wanted(tick, (tenant, medium), ended),
                })
                .collect();
            self.learn_yield(tick, medium, &claims, ended);
            let parts = divide(1.0, &claims);
            for (&tenant, part) in tick.tenants.keys().zip(parts) {
                self.assigned.insert((tenant, medium), part);
            }
        }
    }

    /// Sets the shares as throttles. With epochs, their counting enforces them instead.
    fn set(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        if self.epochs.is_some() {
            return;
        }
        for (&(tenant, medium), &assigned) in &self.assigned {
            let fair = Self::fair(tick, tenant);
            let part = self.part_of((tenant, medium));
            let throttle = Throttle::share(assigned.max(fair) * part);
            let why = || match assigned - fair {
                _ if part < 0.999 => {
                    format!("{:.1}% of its part, as much as the medium does", part * 100.0)
                }
                extra if extra > 0.005 => format!("others leave it {:.1}%", extra * 100.0),
                extra if extra < -0.005 => {
                    format!("it leaves others {:.1}% of its own", -extra * 100.0)
                }
                _ => "its part by weight".to_owned(),
            };
            let set = hands.throttles.get(tenant, medium).share_max();
            if (set - throttle.share_max()).abs() > 0.001 {
                hands.slow_on(tick, (tenant, medium), throttle, &why);
            }
        }
    }
}
