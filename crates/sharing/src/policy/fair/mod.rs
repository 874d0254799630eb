//! Fair slow-down: sharing slows everybody alike (the paper's algorithm 3), weighted if wanted, and
//! tenants with a limit of their own are never slowed beyond it.
//!
//! Each round the tenant with the smallest slow-down is slowed and the one with the largest is
//! released, until the two are near enough. After some fair rounds all are released a step, lest
//! everybody is slowed alike for nothing. Where the medium is slow, and so a difference may be
//! chance, it is looked at for longer and steps are the shorter the less sure it is.

mod even;
mod guard;
mod looks;
mod strides;

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;

use self::looks::Looks;
use self::strides::Strides;
use super::patience::Patience;
use super::{Hands, Policy, Tick, Windows};
use crate::estimate::alone::Alone;
use crate::settings::{FairPace, FairSettings};
use crate::tenant::TenantId;
use crate::throttle::{Throttle, Throttles};
use crate::window::Window;

/// The first wait after a release that had to be taken back.
const PATIENCE: Duration = Duration::from_secs(1);
/// What is released when all is fair.
const LIFT: f64 = 1.05;
/// What is shown of a slow-down on a slow medium is a mean over about so many judgements.
const SHOWN: u32 = 8;

#[derive(Debug)]
pub(super) struct Fair {
    settings: FairSettings,
    alone: Alone,
    windows: Windows,
    looks: Looks,
    slowdowns: BTreeMap<TenantId, f64>,
    /// What is shown of them, and of how many judgements it is the mean.
    shown: BTreeMap<TenantId, (f64, u32)>,
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
        if self.windows.elapsed >= interval * (self.looks.count() + 1) {
            self.looks.add(&self.windows);
            self.strides.retain(|tenant| tick.is_here(tenant));
            if self.has_seen_enough(tick, hands) {
                self.adjust(tick, hands);
                self.windows.clear();
                self.looks.clear();
            }
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
        // The paper's pauses are all alike. Where only tenants' own limits are kept, a long pause
        // would itself be what they are promised to be spared.
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

    /// Whether these intervals are enough to judge by. Sets the slow-downs if so.
    fn has_seen_enough(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> bool {
        let any_slow = |alone: &Alone| tick.tenants.keys().any(|tenant| alone.is_slow(*tenant));
        let was_slow = any_slow(&self.alone);
        if was_slow && self.looks.are_few() {
            return false;
        }
        // Once in a judgement: the next looks have most of this one in them.
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
                let why = "the medium is slow: what short pauses showed is forgotten".to_owned();
                hands.slow(tick, tenant, Throttle::Free, why);
            }
        }
        if news.has_become_slow || news.has_learnt {
            // Steps that turned for what was thought before are no reason for shorter ones.
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

    /// What is shown of slow-downs: on a slow medium a mean over the last judgements.
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
            // It was slowed so far that it answers nothing: that is no load that came to rest, it
            // is our doing.
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
