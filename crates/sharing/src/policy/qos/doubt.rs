//! Doubt about windows with few response times.
//!
//! A tenant with few requests shows a tail of two or three answers in a window: one slow answer is
//! a miss, and none is slack. No tenant is slowed or released because of such a window alone.

use std::time::Duration;

use entresol_base::Nanos;

use super::Qos;
use super::slack::Slacks;
use crate::settings::Metric;
use crate::tenant::TenantId;
use crate::throttle::Throttles;
use crate::tick::Tick;

/// Windows with slack in a row before tenants are released because of them.
const CALM_WINDOWS: u32 = 4;
/// Misses in a row without a candidate before the victim is given up.
const HELPLESS_MISSES: u32 = 4;
/// Time for which a tenant must leave half of its allowance to count as having another load. A
/// tenant that was just slowed may be paying off earlier use.
const IDLE: Duration = Duration::from_secs(2);

/// Recent findings that do not count by themselves.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    missed: Option<TenantId>,
    calm: u32,
    idle_since: Option<Nanos>,
    /// Tenant that misses its target while there is no candidate, and its misses in a row.
    helpless: Option<(TenantId, u32)>,
}

impl Qos {
    /// Returns true if a tenant's window was closed before its tail held enough.
    fn is_scant(&self, tick: &Tick<'_>, tenant: TenantId) -> bool {
        let target = tick.tenants.get(&tenant).and_then(|member| member.settings.promised());
        let (Some(target), Some(window)) = (target, self.windows.by.get(&tenant)) else {
            return false;
        };
        let watch = &self.settings.watch;
        window.latency.count() > 0 && !watch.has_tail(Metric::Percentile(target.percent), window)
    }

    /// Returns true if a miss waits for another window to confirm it.
    pub(super) fn doubts_miss(&mut self, tick: &Tick<'_>, victim: TenantId) -> bool {
        self.doubt.calm = 0;
        let before = self.doubt.missed.replace(victim);
        self.is_adaptive() && self.is_scant(tick, victim) && before != Some(victim)
    }

    /// Returns true if a victim misses its target by itself: it still does so with all candidates
    /// slowed. Called once for each miss without a candidate.
    pub(super) fn is_helpless(&mut self, victim: TenantId) -> bool {
        let before = self.doubt.helpless.filter(|(tenant, _)| *tenant == victim);
        let misses = before.map_or(0, |(_, misses)| misses) + 1;
        self.doubt.helpless = (misses < HELPLESS_MISSES).then_some((victim, misses));
        self.is_adaptive()
            && misses >= HELPLESS_MISSES
            && self.slowed_for.values().any(|for_whom| *for_whom == victim)
    }

    /// Returns true if slack waits for further windows to confirm it; no tenant in `slacks` misses.
    pub(super) fn doubts_slack(&mut self, tick: &Tick<'_>, slacks: &Slacks) -> bool {
        self.doubt.missed = None;
        self.doubt.helpless = None;
        if !self.is_adaptive() || !slacks.kept().any(|tenant| self.is_scant(tick, tenant)) {
            return false;
        }
        self.doubt.calm += 1;
        if self.doubt.calm < CALM_WINDOWS {
            return true;
        }
        self.doubt.calm = 0;
        false
    }

    /// Notes a window without a miss and without much slack.
    pub(super) fn note_kept(&mut self) {
        self.doubt.missed = None;
        self.doubt.helpless = None;
        self.doubt.calm = 0;
    }

    /// Returns true if all slowed tenants have long left half of their allowance.
    pub(super) fn is_idle(
        &mut self,
        tick: &Tick<'_>,
        slowed: &[TenantId],
        throttles: &Throttles,
    ) -> bool {
        let leaves_half = |tenant: &TenantId| {
            self.windows.use_dominant(*tenant) < 0.5 * throttles.of(*tenant).share_max()
        };
        if !slowed.iter().all(leaves_half) {
            self.doubt.idle_since = None;
            return false;
        }
        let since = *self.doubt.idle_since.get_or_insert(tick.now);
        tick.now.since(since) >= IDLE
    }
}
