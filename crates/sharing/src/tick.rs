//! A tick: the windows that a policy or an estimator takes, and the throttles that it sets.

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;

use crate::decision::Decisions;
use crate::tenant::{MediumId, TenantId, TenantSettings};
use crate::throttle::{Throttle, Throttles};
use crate::window::Window;

/// A tenant at a tick.
#[derive(Debug, Clone)]
pub(crate) struct Member<'a> {
    pub(crate) settings: &'a TenantSettings,
    /// Its use and response times since the tick before.
    pub(crate) window: Window,
}

/// Input of a policy.
#[derive(Debug)]
pub(crate) struct Tick<'a> {
    pub(crate) now: Nanos,
    /// Number of media.
    pub(crate) media: usize,
    /// Names of the media, for the log.
    pub(crate) media_names: &'a [String],
    /// Tenants that have reported. A tenant that hangs is missing.
    pub(crate) tenants: BTreeMap<TenantId, Member<'a>>,
}

impl Tick<'_> {
    pub(crate) fn name(&self, tenant: TenantId) -> String {
        match self.tenants.get(&tenant) {
            Some(member) => format!("'{}'", member.settings.name),
            None => "a tenant that has left".to_owned(),
        }
    }

    pub(crate) fn is_here(&self, tenant: TenantId) -> bool {
        self.tenants.contains_key(&tenant)
    }
}

/// Output of a policy.
#[derive(Debug)]
pub(crate) struct Hands<'a> {
    pub(crate) throttles: &'a mut Throttles,
    pub(crate) log: &'a mut Decisions,
}

impl Hands<'_> {
    /// Slows a tenant on every medium and logs the reason.
    pub(crate) fn slow(
        &mut self,
        tick: &Tick<'_>,
        tenant: TenantId,
        throttle: Throttle,
        why: String,
    ) {
        let before = self.throttles.of(tenant);
        self.throttles.set_all(tenant, tick.media, throttle);
        if before != throttle {
            self.log.add(tick.now, Some(tenant), format!("{before} -> {throttle}: {why}"));
        }
    }

    /// Slows a tenant on one medium and logs the reason.
    pub(crate) fn slow_on(
        &mut self,
        tick: &Tick<'_>,
        (tenant, medium): (TenantId, MediumId),
        throttle: Throttle,
        why: &dyn Fn() -> String,
    ) {
        let before = self.throttles.get(tenant, medium);
        if before != throttle {
            self.throttles.set(tenant, medium, throttle);
            let name = tick.media_names.get(medium.0).map_or("", String::as_str);
            let text = format!("on {name}: {before} -> {throttle}: {}", why());
            self.log.add(tick.now, Some(tenant), text);
        }
    }
}

/// Windows of all tenants since some moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows {
    pub(crate) elapsed: Duration,
    pub(crate) by: BTreeMap<TenantId, Window>,
}

impl Windows {
    /// Adds a tick, and drops tenants that are not in it.
    pub(crate) fn add(&mut self, tick: &Tick<'_>) {
        let longest = tick.tenants.values().map(|member| member.window.elapsed).max();
        self.elapsed += longest.unwrap_or_default();
        self.by.retain(|tenant, _| tick.is_here(*tenant));
        for (tenant, member) in &tick.tenants {
            self.by.entry(*tenant).or_default().add(&member.window);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Windows::default();
    }

    pub(crate) fn use_dominant(&self, tenant: TenantId) -> f64 {
        self.by.get(&tenant).map_or(0.0, Window::use_dominant)
    }
}
