//! Doubt about windows with few response times.
//!
//! A tenant with few requests shows a tail of two or three answers in a window: one slow answer is
//! a miss, and none is slack. No tenant is slowed or released because of such a window alone.

use std::time::Duration;

use entresol_base::Nanos;

use crate::settings::{Metric, WatchSettings};
use crate::tenant::TenantId;
use crate::tick::{Tick, Windows};

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

impl Doubt {
    /// Returns true if a miss waits for another window to confirm it; `is_scant` says that the
    /// victim's window was.
    pub(super) fn of_miss(&mut self, victim: TenantId, is_scant: bool) -> bool {
        self.calm = 0;
        let before = self.missed.replace(victim);
        is_scant && before != Some(victim)
    }

    /// Returns true if a victim has missed its target long enough without a candidate. Called once
    /// for each such miss.
    pub(super) fn is_helpless(&mut self, victim: TenantId) -> bool {
        let before = self.helpless.filter(|(tenant, _)| *tenant == victim);
        let misses = before.map_or(0, |(_, misses)| misses) + 1;
        self.helpless = (misses < HELPLESS_MISSES).then_some((victim, misses));
        misses >= HELPLESS_MISSES
    }

    /// Returns true if slack waits for further windows to confirm it; `is_scant` says that one of
    /// the present windows was. No tenant misses its target.
    pub(super) fn of_slack(&mut self, is_scant: bool) -> bool {
        self.missed = None;
        self.helpless = None;
        if !is_scant {
            return false;
        }
        self.calm += 1;
        if self.calm < CALM_WINDOWS {
            return true;
        }
        self.calm = 0;
        false
    }

    /// Notes a window without a miss and without much slack.
    pub(super) fn note_kept(&mut self) {
        self.missed = None;
        self.helpless = None;
        self.calm = 0;
    }

    /// Returns true if all slowed tenants have long left half of their allowance; `leave_half` says
    /// that they do now.
    pub(super) fn is_idle(&mut self, now: Nanos, leave_half: bool) -> bool {
        if !leave_half {
            self.idle_since = None;
            return false;
        }
        now.since(*self.idle_since.get_or_insert(now)) >= IDLE
    }
}

/// Returns true if a tenant's window was closed before its tail held enough.
pub(super) fn is_scant(
    tick: &Tick<'_>,
    windows: &Windows,
    watch: &WatchSettings,
    tenant: TenantId,
) -> bool {
    let target = tick.tenants.get(&tenant).and_then(|member| member.settings.promised());
    let (Some(target), Some(window)) = (target, windows.by.get(&tenant)) else { return false };
    window.latency.count() > 0 && !watch.has_tail(Metric::Percentile(target.percent), window)
}
