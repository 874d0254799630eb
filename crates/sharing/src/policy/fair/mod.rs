//! Fair slow-down: sharing slows everybody alike (the paper's algorithm 3), weighted if wanted, and
//! tenants with a limit of their own are never slowed beyond it.
//!
//! Each round the tenant with the smallest slow-down is slowed and the one with the largest is
//! released, until the two are near enough. After some fair rounds all are released a step, lest
//! everybody is slowed alike for nothing.

mod even;
mod guard;
mod strides;

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;

use self::strides::Strides;
use super::patience::Patience;
use super::{Hands, Policy, Tick, Windows};
use crate::estimate::alone::Alone;
use crate::settings::{FairPace, FairSettings};
use crate::tenant::TenantId;
use crate::throttle::{Throttle, Throttles};

/// The first wait after a release that had to be taken back.
const PATIENCE: Duration = Duration::from_secs(1);
/// What is released when all is fair.
const LIFT: f64 = 1.05;

#[derive(Debug)]
pub(super) struct Fair {
    settings: FairSettings,
    alone: Alone,
    windows: Windows,
    slowdowns: BTreeMap<TenantId, f64>,
    /// Fair rounds in a row.
    rounds: u32,
    /// The throttles before the last release of all, until all has stayed well for so many rounds.
    lifted_from: Option<Throttles>,
    patience: Patience,
    strides: Strides,
}

impl Policy for Fair {
    fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos {
        if self.alone.is_pausing() {
            let none = |_: TenantId| false;
            let next = self.alone.tick(tick, hands, &none);
            return next.unwrap_or(tick.now.after(self.settings.tick));
        }
        self.windows.add(tick);
        let interval = self.settings.interval;
        if self.windows.elapsed >= interval {
            if self.alone.notice(tick.now, &self.windows) {
                self.patience.reset();
                self.strides.reset();
            }
            self.strides.retain(|tenant| tick.is_here(tenant));
            self.adjust(tick, hands);
            self.windows.clear();
        }
        // Who does nothing has no performance to learn; who is slowed has one.
        let throttles = hands.throttles.clone();
        let active = |tenant: TenantId| {
            let moves = self.windows.by.get(&tenant).is_none_or(|window| window.operations > 0);
            moves || throttles.is_throttled(tenant)
        };
        if let Some(next) = self.alone.tick(tick, hands, &active) {
            return next;
        }
        let end = tick.now.after(interval.saturating_sub(self.windows.elapsed));
        tick.now.after(self.settings.tick).min(end.max(Nanos(tick.now.0.saturating_add(1))))
    }

    fn is_trying(&self) -> bool {
        self.alone.is_pausing()
    }

    fn slowdown(&self, tenant: TenantId) -> Option<f64> {
        self.slowdowns.get(&tenant).copied()
    }
}

impl Fair {
    pub(super) fn new(settings: FairSettings, seed: u64) -> Fair {
        Fair {
            alone: Alone::new(settings.alone, settings.metric, seed),
            windows: Windows::default(),
            slowdowns: BTreeMap::new(),
            rounds: 0,
            lifted_from: None,
            patience: Patience::new(PATIENCE, settings.patience_max),
            strides: Strides::new(PATIENCE, settings.patience_max),
            settings,
        }
    }

    fn adjust(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        self.slowdowns.clear();
        for &tenant in tick.tenants.keys() {
            let window = self.windows.by.get(&tenant);
            match window.and_then(|window| self.alone.slowdown(tenant, window)) {
                Some(slowdown) => {
                    self.slowdowns.insert(tenant, slowdown);
                }
                // It was slowed so far that it answers nothing: that is no load that came to
                // rest, it is our doing.
                None if window.is_some_and(|window| window.operations == 0) => {
                    let why = "it answers nothing while it is slowed".to_owned();
                    self.ease(tick, hands, (tenant, 2.0), why);
                }
                None => {}
            }
        }
        if self.guard(tick, hands) {
            self.rounds = 0;
            return;
        }
        if self.settings.equalise {
            self.equalise(tick, hands);
        } else {
            self.relax(tick, hands);
        }
    }

    /// Slows a tenant to this part of what it gets.
    fn press(
        &mut self,
        tick: &Tick<'_>,
        hands: &mut Hands<'_>,
        whom: (TenantId, f64),
        why: String,
    ) {
        let (tenant, factor) = whom;
        let throttle = match self.settings.pace {
            FairPace::Adaptive => {
                let used = self.windows.use_dominant(tenant);
                let share = used.min(hands.throttles.of(tenant).share_max()) * factor;
                Throttle::share(share.max(self.settings.share_min))
            }
            FairPace::Delays(step) => match hands.throttles.of(tenant) {
                Throttle::Delay(units) => Throttle::Delay(units.saturating_add(step)),
                _ => Throttle::Delay(step),
            },
        };
        hands.slow(tick, tenant, throttle, why);
    }

    /// Releases a tenant to this multiple of what it may have.
    fn ease(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>, whom: (TenantId, f64), why: String) {
        let (tenant, factor) = whom;
        let throttle = match hands.throttles.of(tenant) {
            Throttle::Free => return,
            Throttle::Share(share) => Throttle::share(share * factor),
            Throttle::Stopped => Throttle::share(self.settings.share_min),
            Throttle::Delay(units) => {
                let FairPace::Delays(step) = self.settings.pace else { return };
                match units.saturating_sub(step) {
                    0 => Throttle::Free,
                    units => Throttle::Delay(units),
                }
            }
        };
        hands.slow(tick, tenant, throttle, why);
    }

    /// Releases all a step, unless the last time went wrong a short while ago.
    fn lift(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>, why: &str) {
        let slowed: Vec<TenantId> =
            tick.tenants.keys().copied().filter(|id| hands.throttles.is_throttled(*id)).collect();
        let published = self.settings.pace != FairPace::Adaptive;
        if slowed.is_empty() || !(published || self.patience.is_over(tick.now)) {
            return;
        }
        self.lifted_from = (!published).then(|| hands.throttles.clone());
        for tenant in slowed {
            self.ease(tick, hands, (tenant, LIFT), why.to_owned());
        }
    }

    /// Takes the last release back, if it is the one that went wrong.
    fn take_back(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> bool {
        let Some(before) = self.lifted_from.take() else { return false };
        *hands.throttles = before;
        self.patience.fail(tick.now);
        let wait = self.patience.remaining(tick.now).as_secs_f64();
        let text = format!("the release of all is taken back; not again for {wait:.0} s");
        hands.log.add(tick.now, None, text);
        true
    }
}
