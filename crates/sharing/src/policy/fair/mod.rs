//! Fair slowdown, the paper's algorithm 3: sharing slows all tenants alike, by weight if wanted,
//! and none beyond a limit of its own.
//!
//! Each round the tenant with the smallest slowdown is slowed and the one with the largest is
//! released, until the two are near enough. After some fair rounds all are released by a step, lest
//! all are slowed alike for nothing. On a slow medium, where a difference may be chance, it is
//! watched for longer, and steps are shorter the less certain it is.

mod even;
mod guard;
mod looks;
mod strides;

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;

use self::looks::Looks;
use self::strides::Strides;
use super::Policy;
use super::patience::Patience;
use crate::estimate::alone::Alone;
use crate::settings::{FairPace, FairSettings};
use crate::tenant::TenantId;
use crate::throttle::{Throttle, Throttles};
use crate::tick::{Hands, Tick, Windows};
use crate::window::Window;

/// First wait after a release that had to be taken back.
const PATIENCE: Duration = Duration::from_secs(1);
/// Factor by which shares are released when all is fair.
const LIFT: f64 = 1.05;
/// Number of judgements over which the slowdown shown on a slow medium is averaged.
const SHOWN: u32 = 8;

#[derive(Debug)]
pub(super) struct Fair {
    settings: FairSettings,
    alone: Alone,
    windows: Windows,
    looks: Looks,
    slowdowns: BTreeMap<TenantId, f64>,
    /// Slowdowns that are shown, each with the number of judgements in its mean.
    shown: BTreeMap<TenantId, (f64, u32)>,
    /// Fair rounds in a row.
    rounds: u32,
    /// Throttles before the last release of all, until it has proved harmless.
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
        if self.windows.elapsed >= interval * (self.looks.count() + 1) {
            self.looks.add(&self.windows);
            self.strides.retain(|tenant| tick.is_here(tenant));
            if self.has_seen_enough(tick, hands) {
                self.adjust(tick, hands);
                self.windows.clear();
                self.looks.clear();
            }
        }
        // An idle tenant has no performance to measure; a slowed one has.
        let throttles = hands.throttles.clone();
        let active = |tenant: TenantId| {
            let moves = self.windows.by.get(&tenant).is_none_or(|window| window.operations > 0);
            moves || throttles.is_throttled(tenant)
        };
        if let Some(next) = self.alone.tick(tick, hands, &active) {
            return next;
        }
        let due = interval * (self.looks.count() + 1);
        let end = tick.now.after(due.saturating_sub(self.windows.elapsed));
        tick.now.after(self.settings.tick).min(end.max(Nanos(tick.now.0.saturating_add(1))))
    }

    fn is_trying(&self) -> bool {
        self.alone.is_pausing()
    }

    fn slowdown(&self, tenant: TenantId) -> Option<f64> {
        self.shown.get(&tenant).map(|(shown, _)| *shown)
    }
}

impl Fair {
    pub(super) fn new(settings: FairSettings, seed: u64) -> Fair {
        let alone = Alone::new(settings.alone, settings.metric, seed);
        // The paper's pauses are all alike. Where only limits of slowdown are kept, a long pause
        // would itself break them.
        let is_patient = settings.pace == FairPace::Adaptive && settings.equalise;
        Fair {
            alone: if is_patient { alone.patient() } else { alone },
            windows: Windows::default(),
            looks: Looks::default(),
            slowdowns: BTreeMap::new(),
            shown: BTreeMap::new(),
            rounds: 0,
            lifted_from: None,
            patience: Patience::new(PATIENCE, settings.patience_max),
            strides: Strides::new(PATIENCE, settings.patience_max),
            settings,
        }
    }

    /// Returns true if these intervals are enough to judge by, and has set the slowdowns then.
    fn has_seen_enough(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> bool {
        let any_slow = |alone: &Alone| tick.tenants.keys().any(|tenant| alone.is_slow(*tenant));
        let was_slow = any_slow(&self.alone);
        if was_slow && self.looks.are_few() {
            return false;
        }
        // Once in a judgement: later looks contain most of this one.
        if (!was_slow || self.looks.are_just_enough())
            && self.alone.notice(tick.now, &self.windows, hands.throttles)
        {
            self.patience.reset();
            self.strides.reset();
            self.shown.clear();
        }
        let news = self.alone.take_news();
        if news.has_become_slow {
            for &tenant in tick.tenants.keys() {
                let why = "the medium is slow: results of short pauses are void".to_owned();
                hands.slow(tick, tenant, Throttle::Free, why);
            }
        }
        if news.has_become_slow || news.has_learnt {
            // Steps that turned because of void results are no reason for shorter ones.
            self.strides.reset();
        }
        let is_slow = any_slow(&self.alone);
        if is_slow && self.looks.are_few() {
            return false;
        }
        let now = self.windows.by.iter();
        let slowdown = |(&tenant, window)| Some((tenant, self.alone.slowdown(tenant, window)?));
        self.slowdowns = now.filter_map(slowdown).collect();
        let is_enough = !is_slow || self.looks.are_most() || self.is_sure(tick);
        if is_enough {
            self.show();
        }
        is_enough
    }

    /// Updates the slowdowns that are shown: on a slow medium, means over the last judgements.
    fn show(&mut self) {
        self.shown.retain(|tenant, _| self.slowdowns.contains_key(tenant));
        for (&tenant, &slowdown) in &self.slowdowns {
            let (shown, count) = self.shown.entry(tenant).or_insert((slowdown, 0));
            *count = if self.alone.is_slow(tenant) { (*count + 1).min(SHOWN) } else { 1 };
            *shown += (slowdown - *shown) / f64::from(*count);
        }
    }

    fn adjust(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        for &tenant in tick.tenants.keys() {
            let answers = |window: &Window| window.operations > 0;
            let known = self.slowdowns.contains_key(&tenant);
            // The tenant answers nothing because it was slowed too far, not because its load came
            // to rest.
            if !known && self.windows.by.get(&tenant).is_some_and(|window| !answers(window)) {
                let why = "it answers nothing while it is slowed".to_owned();
                self.ease(tick, hands, (tenant, 2.0), why);
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

    /// Releases all by a step, unless the last release failed a short while ago.
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

    /// Takes back the last release if it caused the harm.
    fn take_back(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> bool {
        let Some(before) = self.lifted_from.take() else { return false };
        *hands.throttles = before;
        self.patience.fail(tick.now);
        let wait = self.patience.remaining(tick.now).as_secs_f64();
        let text = format!("the release of all is taken back; no other for {wait:.0} s");
        hands.log.add(tick.now, None, text);
        true
    }
}
