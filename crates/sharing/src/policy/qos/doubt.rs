//! What a few response times do not say for certain. A tenant that asks seldom shows a tail of two
//! or three answers in a window: one slow answer is a miss, and none is slack. Nobody is slowed or
//! released for such a window alone.

use std::time::Duration;

use entresol_base::Nanos;

use super::Qos;
use super::slack::Slacks;
use crate::policy::Tick;
use crate::settings::Metric;
use crate::tenant::TenantId;
use crate::throttle::Throttles;

/// Windows with slack, one after the other, before anybody is released by them.
const CALM_WINDOWS: u32 = 4;
/// Misses with nobody left to be slowed, one after the other, before the victim is left to itself.
const HELPLESS_MISSES: u32 = 4;
/// A tenant that leaves half of what it may have for so long has another load than the one that had
/// to be slowed; one that was just slowed may be paying off what it had used before.
const IDLE: Duration = Duration::from_secs(2);

/// What was seen of late that does not count by itself.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    missed: Option<TenantId>,
    calm: u32,
    idle_since: Option<Nanos>,
    /// Who has missed its target how often, one after the other, with nobody left to be slowed.
    helpless: Option<(TenantId, u32)>,
}

impl Qos {
    /// Whether a tenant's window was closed before its tail had enough in it.
    fn is_scant(&self, tick: &Tick<'_>, tenant: TenantId) -> bool {
        let target = tick.tenants.get(&tenant).and_then(|member| member.settings.promised());
        let (Some(target), Some(window)) = (target, self.windows.by.get(&tenant)) else {
            return false;
        };
        let watch = &self.settings.watch;
        window.latency.count() > 0 && !watch.has_tail(Metric::Percentile(target.percent), window)
    }

    /// Whether a miss waits for another window to confirm it.
    pub(super) fn doubts_miss(&mut self, tick: &Tick<'_>, victim: TenantId) -> bool {
        self.doubt.calm = 0;
        let before = self.doubt.missed.replace(victim);
        self.is_adaptive() && self.is_scant(tick, victim) && before != Some(victim)
    }

    /// Whether a victim goes on missing its target though all who may be slowed are: then it does
    /// so by itself. Asked once for each miss with nobody left.
    pub(super) fn is_helpless(&mut self, victim: TenantId) -> bool {
        let before = self.doubt.helpless.filter(|(tenant, _)| *tenant == victim);
        let misses = before.map_or(0, |(_, misses)| misses) + 1;
        self.doubt.helpless = (misses < HELPLESS_MISSES).then_some((victim, misses));
        self.is_adaptive()
            && misses >= HELPLESS_MISSES
            && self.slowed_for.values().any(|for_whom| *for_whom == victim)
    }

    /// Whether slack waits for further windows to confirm it; `slacks` has nobody who misses.
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

    /// Nothing was missed, and there is not much slack either.
    pub(super) fn note_kept(&mut self) {
        self.doubt.missed = None;
        self.doubt.helpless = None;
        self.doubt.calm = 0;
    }

    /// Whether all who are slowed leave half of what they may have, and have done so for long.
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
