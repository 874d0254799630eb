//! Policies: each takes the tenants' windows and sets their throttles.
//!
//! A policy never reads a clock: it is told the time, and says when it wants the next tick. It
//! keeps its state by tenant, and drops that of tenants that have left.

mod bandwidth;
mod divide;
mod epochs;
mod fair;
mod groups;
mod limit;
mod none;
mod patience;
mod proportional;
mod qos;

use std::fmt::Debug;

use entresol_base::Nanos;

use crate::settings::{PolicySettings, Settings};
use crate::tenant::TenantId;
use crate::tick::{Hands, Tick};

pub(crate) use groups::Groups;

/// A promise and the way it is kept.
pub(crate) trait Policy: Debug + Send {
    /// Takes a tick, acts, and returns the time of the next one.
    fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos;

    /// Returns true while an experiment or a pause is under way, when nothing else may change a
    /// throttle. Each ends within a bounded time.
    fn is_trying(&self) -> bool {
        false
    }

    /// Slowdown of a tenant compared with being alone, if the policy knows it.
    fn slowdown(&self, tenant: TenantId) -> Option<f64> {
        let _ = tenant;
        None
    }
}

/// Builds the policy that these settings ask for.
pub(crate) fn of_settings(settings: &Settings) -> Box<dyn Policy> {
    let outer = of(&settings.policy, settings.seed);
    if settings.groups.is_empty() {
        return outer;
    }
    Box::new(Groups::new(outer, settings))
}

pub(crate) fn of(policy: &PolicySettings, seed: u64) -> Box<dyn Policy> {
    match policy.clone() {
        PolicySettings::None => Box::new(none::None),
        PolicySettings::Limit(settings) => Box::new(limit::Limits::new(settings)),
        PolicySettings::Bandwidth(settings) => Box::new(bandwidth::Bandwidth::new(settings)),
        PolicySettings::Qos(settings) => Box::new(qos::Qos::new(settings)),
        PolicySettings::Fair(settings) => Box::new(fair::Fair::new(settings, seed)),
        PolicySettings::Proportional(settings) => {
            Box::new(proportional::Proportional::new(settings, seed))
        }
    }
}
