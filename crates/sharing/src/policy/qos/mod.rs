//! Quality of service, the paper's algorithm 2: latency-critical tenants keep their targets, and
//! best-effort tenants keep as much as that allows.
//!
//! When a target is missed, the tenant that disturbs most is found by experiment and slowed by a
//! step. When all targets are kept with slack, all tenants are released by a step. A step that
//! breaks another tenant's target is taken back. The printed algorithm says «throttle» in two
//! places where it must release: a victim that is itself slowed is released, and slack for all
//! releases all.
//!
//! With [`Choice::LargestBandwidth`] it is Caladan's rule instead: without an experiment, the
//! tenant that moves most bytes is slowed.

mod choose;
mod deed;
mod doubt;
mod hopeless;
mod slack;

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;

use self::deed::{Deed, Kind};
use self::doubt::{Doubt, is_scant};
use self::slack::Slacks;
use super::Policy;
use super::patience::Patience;
use crate::estimate::interference::{Gain, Progress, Trial, Victim};
use crate::settings::{Choice, Metric, Pace, QosSettings};
use crate::tenant::{Class, TenantId};
use crate::throttle::Throttle;
use crate::tick::{Hands, Tick, Windows};

/// Share below which no latency-critical tenant is slowed.
const CRITICAL_SHARE_MIN: f64 = 0.05;
/// Gain below which an experiment shows only noise.
const GAIN_MIN: f64 = 0.02;
/// Part by which the last step must have helped before another follows against the same culprit.
const HELPED: f64 = 0.05;
/// Excess over its target below which a victim counts as near it.
const NEAR: f64 = 0.3;
/// Slack from which a victim that was helped is clear of its target.
const CLEAR: f64 = 0.08;
/// Smallest and largest divisor of a culprit's use in one step.
const STEP_DOWN: (f64, f64) = (1.25, 4.0);
/// Maximum multiple of the expense. An experiment that shows nothing is repeated with twice as
/// much.
const EXPENSE_MAX: f64 = 16.0;
/// First wait after a step that had to be taken back.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Qos {
    settings: QosSettings,
    windows: Windows,
    /// Time before which measurements do not count.
    settled_at: Nanos,
    trial: Option<(Trial, f64)>,
    /// Last step, until its effect has been judged.
    deed: Option<Deed>,
    culprit: Option<Culprit>,
    doubt: Doubt,
    /// Multiple of the expense, raised after experiments that showed nothing.
    expense_factor: f64,
    /// Dominant share that one byte a second costs each tenant, from the last tick in which it
    /// moved any.
    share_of_byte: BTreeMap<TenantId, f64>,
    release: Patience,
    /// Tenants that were released since they were last slowed.
    released: BTreeMap<TenantId, ()>,
    /// Steps that broke a target, by the slowed tenant and its victim.
    harmful: BTreeMap<(TenantId, TenantId), Patience>,
    /// Victims beyond help.
    hopeless: BTreeMap<TenantId, Patience>,
    /// Victim for which each slowed tenant was last slowed.
    slowed_for: BTreeMap<TenantId, TenantId>,
}

/// A culprit and its victim.
#[derive(Debug, Clone, Copy)]
struct Culprit {
    victim: TenantId,
    tenant: TenantId,
    /// Badness of the victim when the culprit was last slowed.
    badness: f64,
}

impl Policy for Qos {
    fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos {
        if let Some((mut trial, slack)) = self.trial.take() {
            match trial.tick(tick, hands) {
                Progress::Wait(next) => {
                    self.trial = Some((trial, slack));
                    return next;
                }
                Progress::Done(gains) => {
                    self.conclude(tick, hands, (trial.victim, slack), &gains);
                    return self.watch_anew(tick);
                }
            }
        }
        if tick.now <= self.settled_at {
            return self.settled_at.max(tick.now.after(self.settings.tick));
        }
        self.windows.add(tick);
        if !self.has_seen_enough(tick) {
            return tick.now.after(self.settings.tick);
        }
        self.forget_the_gone(tick);
        self.judge(tick, hands);
        match &mut self.trial {
            // The trial begins in this very tick.
            Some((trial, _)) => match trial.tick(tick, hands) {
                Progress::Wait(next) => next,
                Progress::Done(_) => self.watch_anew(tick),
            },
            None => self.watch_anew(tick),
        }
    }

    fn is_trying(&self) -> bool {
        self.trial.is_some()
    }
}

impl Qos {
    pub(super) fn new(settings: QosSettings) -> Qos {
        let release = Patience::new(PATIENCE, settings.patience_max);
        Qos {
            settings,
            windows: Windows::default(),
            settled_at: Nanos(0),
            trial: None,
            deed: None,
            culprit: None,
            doubt: Doubt::default(),
            expense_factor: 1.0,
            share_of_byte: BTreeMap::new(),
            release,
            released: BTreeMap::new(),
            harmful: BTreeMap::new(),
            hopeless: BTreeMap::new(),
            slowed_for: BTreeMap::new(),
        }
    }

    fn is_adaptive(&self) -> bool {
        self.settings.pace == Pace::Adaptive
    }

    fn watch_anew(&mut self, tick: &Tick<'_>) -> Nanos {
        self.trial = None;
        self.windows.clear();
        self.settled_at = tick.now.after(self.settings.tick);
        self.settled_at
    }

    fn has_seen_enough(&self, tick: &Tick<'_>) -> bool {
        // Without a limit, tenants that come and go would restart their windows for ever.
        if self.windows.elapsed >= self.settings.watch.longest {
            return true;
        }
        tick.tenants.iter().all(|(tenant, member)| match member.settings.promised() {
            None => self.windows.elapsed >= self.settings.watch.shortest,
            Some(target) => self.windows.by.get(tenant).is_some_and(|window| {
                self.settings.watch.is_enough(Metric::Percentile(target.percent), window)
            }),
        })
    }

    fn forget_the_gone(&mut self, tick: &Tick<'_>) {
        let before = self.share_of_byte.len();
        self.share_of_byte.retain(|tenant, _| tick.is_here(*tenant));
        for (&tenant, window) in &self.windows.by {
            if window.bytes_s() > 0.0 && window.use_dominant() > 0.0 {
                self.share_of_byte.insert(tenant, window.use_dominant() / window.bytes_s());
            }
        }
        if self.share_of_byte.len() != before {
            self.release.reset();
        }
        self.released.retain(|tenant, ()| tick.is_here(*tenant));
        self.hopeless.retain(|tenant, _| tick.is_here(*tenant));
        self.slowed_for.retain(|tenant, victim| tick.is_here(*tenant) && tick.is_here(*victim));
        self.harmful.retain(|(a, b), _| tick.is_here(*a) && tick.is_here(*b));
    }

    fn judge(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) {
        let slacks = Slacks::of(tick, &self.windows, hands.throttles);
        // Only now: a step that helps does not prove that the target can be kept.
        for tenant in slacks.kept() {
            self.hopeless.remove(&tenant);
        }
        if self.take_back(tick, hands, &slacks) {
            return;
        }
        let Some((victim, slack)) = self.worst(tick, &slacks) else { return };
        if slack < 0.0 {
            let is_scant = self.is_adaptive() && self.is_scant(tick, victim);
            if !self.doubt.of_miss(victim, is_scant) {
                self.protect(tick, hands, &slacks, victim);
            }
        } else if let Some(culprit) = self.pressed(tick, victim, slack) {
            self.slow(tick, hands, &slacks, (culprit, victim));
        } else if slack <= self.settings.slack_min {
            self.doubt.note_kept();
        } else {
            let is_scant =
                self.is_adaptive() && slacks.kept().any(|tenant| self.is_scant(tick, tenant));
            if !self.doubt.of_slack(is_scant) {
                self.release_all(tick, hands, &slacks, slack);
            }
        }
    }

    fn is_scant(&self, tick: &Tick<'_>, tenant: TenantId) -> bool {
        is_scant(tick, &self.windows, &self.settings.watch, tenant)
    }

    /// Returns the culprit of a victim that is being helped and is not yet clear of its target. A
    /// tail that only just keeps it would miss it again in the next window.
    fn pressed(&mut self, tick: &Tick<'_>, victim: TenantId, slack: f64) -> Option<TenantId> {
        let culprit = self.culprit.filter(|culprit| culprit.victim == victim)?;
        if slack >= CLEAR || !self.is_adaptive() {
            self.culprit = None;
            return None;
        }
        self.has_room(tick, culprit.tenant).then_some(culprit.tenant)
    }

    /// Takes back the last step if it broke the target of a tenant that had kept it.
    fn take_back(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>, slacks: &Slacks) -> bool {
        let Some(deed) = self.deed.take() else { return false };
        let Some(broken) = deed.broken(slacks) else { return false };
        let name = tick.name(broken);
        *hands.throttles = deed.before;
        let whom = match deed.kind {
            Kind::Slowed { tenant, victim } => {
                let longest = self.settings.patience_max;
                let patience = || Patience::new(PATIENCE, longest);
                self.harmful.entry((tenant, victim)).or_insert_with(patience).fail(tick.now);
                Some(tenant)
            }
            Kind::Released(tenant) => {
                self.release.fail(tick.now);
                self.released.clear();
                tenant
            }
        };
        let wait = self.release.remaining(tick.now).as_secs_f64();
        let again = match deed.kind {
            Kind::Released(_) if self.is_adaptive() => format!("; next try in {wait:.0} s"),
            _ => String::new(),
        };
        let text = format!("the last step is taken back: it broke the target of {name}{again}");
        hands.log.add(tick.now, whom, text);
        true
    }

    fn protect(
        &mut self,
        tick: &Tick<'_>,
        hands: &mut Hands<'_>,
        slacks: &Slacks,
        victim: TenantId,
    ) {
        let slack = slacks.of_tenant(victim);
        let may_release = !self.is_adaptive() || self.release.is_over(tick.now);
        if hands.throttles.is_throttled(victim) && may_release {
            self.deed = Some(Deed::new(Kind::Released(Some(victim)), hands.throttles, slacks));
            let why = "it misses its own target".to_owned();
            return self.release(tick, hands, (victim, -slack), why);
        }
        let badness = slacks.latency_ns(victim);
        if let Some(culprit) = self.culprit.filter(|_| self.is_adaptive()) {
            let helped = badness < culprit.badness * (1.0 - HELPED);
            // So near the target a tail does not tell what helped; the step that helped before does
            // again.
            let near = badness < culprit.badness && -slack < NEAR;
            let goes_on = helped || near;
            if culprit.victim == victim && goes_on && self.has_room(tick, culprit.tenant) {
                return self.slow(tick, hands, slacks, (culprit.tenant, victim));
            }
        }
        let candidates = self.candidates(tick, slacks, victim);
        match candidates.as_slice() {
            [] => {
                // It misses its target by itself if it does so with all candidates slowed.
                let is_helped = self.slowed_for.values().any(|for_whom| *for_whom == victim);
                let is_helpless = self.doubt.is_helpless(victim);
                if self.is_adaptive() && is_helpless && is_helped {
                    self.give_up(tick, hands, victim);
                }
            }
            [only] if !self.is_adaptive() => self.slow(tick, hands, slacks, (*only, victim)),
            several => {
                let offers =
                    several.iter().filter_map(|tenant| self.offer(tick, *tenant)).collect();
                let target = tick.tenants.get(&victim).and_then(|m| m.settings.promised());
                let percentile = Metric::Percentile(target.map_or(99.0, |target| target.percent));
                let metric = self.settings.metric.unwrap_or(percentile);
                let window = self.windows.by.get(&victim);
                let baseline = window.and_then(|window| metric.badness(window)).unwrap_or(badness);
                let tried = Victim { tenant: victim, metric, baseline };
                let settle = self.settings.tick;
                let watch = self.settings.watch;
                let trial = Trial::new(tried, watch, settle, offers, hands.throttles);
                self.trial = Some((trial, slack));
            }
        }
    }

    fn conclude(
        &mut self,
        tick: &Tick<'_>,
        hands: &mut Hands<'_>,
        (victim, slack): (TenantId, f64),
        gains: &[Gain],
    ) {
        let worth = |gain: &Gain| match self.settings.pace {
            Pace::Published => gain.gain,
            Pace::Adaptive => gain.gain / gain.expense.max(f64::MIN_POSITIVE),
        };
        let real = |gain: &&Gain| !self.is_adaptive() || gain.gain >= GAIN_MIN;
        let best = gains.iter().filter(real).max_by(|a, b| worth(a).total_cmp(&worth(b)));
        let Some(best) = best.copied() else {
            return self.nobody_helps(tick, hands, victim, gains.is_empty());
        };
        if self.is_adaptive() && !self.is_within_reach(slack, gains) {
            return self.give_up(tick, hands, victim);
        }
        self.expense_factor = 1.0;
        let found: Vec<String> = gains
            .iter()
            .map(|gain| format!("{} {:+.0}%", tick.name(gain.tenant), gain.gain * 100.0))
            .collect();
        let text = format!("gain of {} at equal expense: {}", tick.name(victim), found.join(", "));
        hands.log.add(tick.now, Some(best.tenant), text);
        let slacks = Slacks::of(tick, &self.windows, hands.throttles);
        self.slow(tick, hands, &slacks, (best.tenant, victim));
    }

    fn nobody_helps(
        &mut self,
        tick: &Tick<'_>,
        hands: &mut Hands<'_>,
        victim: TenantId,
        all_gone: bool,
    ) {
        if all_gone {
            return;
        }
        if self.expense_factor < EXPENSE_MAX {
            self.expense_factor *= 2.0;
            return;
        }
        self.give_up(tick, hands, victim);
    }

    fn slow(
        &mut self,
        tick: &Tick<'_>,
        hands: &mut Hands<'_>,
        slacks: &Slacks,
        (tenant, victim): (TenantId, TenantId),
    ) {
        // Use beyond its allowance was still paid for when it was last slowed.
        let used = self.windows.use_dominant(tenant).min(hands.throttles.of(tenant).share_max());
        let share = match self.settings.pace {
            Pace::Published => used - self.expense_share(tenant),
            Pace::Adaptive => used / step_down(slacks.of_tenant(victim)),
        };
        if self.released.remove(&tenant).is_some() {
            self.release.fail(tick.now);
        }
        self.slowed_for.insert(tenant, victim);
        self.deed = Some(Deed::new(Kind::Slowed { tenant, victim }, hands.throttles, slacks));
        let badness = slacks.latency_ns(victim);
        self.culprit = Some(Culprit { victim, tenant, badness });
        let why = match self.settings.choice {
            Choice::Interference => "it disturbs",
            Choice::LargestBandwidth => "it moves most bytes beside",
        };
        let slack = slacks.of_tenant(victim) * 100.0;
        let victim = tick.name(victim);
        let why = match slack {
            ..0.0 => format!("{why} {victim}, which misses its target by {:.0}%", -slack),
            _ => format!("{why} {victim}, which only just keeps its target, by {slack:.0}%"),
        };
        let share = share.max(self.share_min(tick, tenant));
        hands.slow(tick, tenant, Throttle::share(share), why);
    }

    fn release_all(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>, slacks: &Slacks, slack: f64) {
        let slowed: Vec<TenantId> =
            tick.tenants.keys().copied().filter(|id| hands.throttles.is_throttled(*id)).collect();
        if slowed.is_empty() {
            return;
        }
        if self.is_adaptive() {
            let leaves_half = |tenant: &TenantId| {
                let allowed = hands.throttles.of(*tenant).share_max();
                self.windows.use_dominant(*tenant) < 0.5 * allowed
            };
            if self.doubt.is_idle(tick.now, slowed.iter().all(leaves_half)) {
                self.release.reset();
            }
            if !self.release.is_over(tick.now) {
                return;
            }
        }
        self.deed = Some(Deed::new(Kind::Released(None), hands.throttles, slacks));
        for tenant in slowed {
            let why = format!("all targets are kept with {:.0}% slack", slack * 100.0);
            self.release(tick, hands, (tenant, slack), why);
        }
    }

    /// Releases a tenant by a step; `room` is the distance from the target.
    fn release(
        &mut self,
        tick: &Tick<'_>,
        hands: &mut Hands<'_>,
        (tenant, room): (TenantId, f64),
        why: String,
    ) {
        let share = hands.throttles.of(tenant).share_max();
        let share = match self.settings.pace {
            Pace::Published => share + self.expense_share(tenant),
            Pace::Adaptive => share * (1.0 + (room * 0.5).clamp(0.05, 0.5)),
        };
        self.released.insert(tenant, ());
        hands.slow(tick, tenant, Throttle::share(share), why);
    }

    fn share_min(&self, tick: &Tick<'_>, tenant: TenantId) -> f64 {
        let critical =
            tick.tenants.get(&tenant).is_some_and(|m| m.settings.class == Class::LatencyCritical);
        if critical {
            self.settings.share_min.max(CRITICAL_SHARE_MIN)
        } else {
            self.settings.share_min
        }
    }
}

/// Divisor of a culprit's use: large far from the target, small near it. Squared, since tails fall
/// by less than the use that is taken from the culprit.
fn step_down(slack: f64) -> f64 {
    let late = 1.0 - slack;
    (late * late).clamp(STEP_DOWN.0, STEP_DOWN.1)
}
