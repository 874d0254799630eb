//! Performance alone: one tenant runs free while the others are paused for a moment.
//!
//! Pauses come one at a time, at random times around the period, so that nobody can wait for one
//! and race; the median of the last three is what counts, so that one that went wrong does not. A
//! tenant that sees a pause, by its response times, may still race then to look slowed: so nobody
//! is believed to be faster alone than the costs of its accesses allow, nor to have had more
//! requests under way than it had together with the others, and requests that cost less in a pause
//! count for less. After a pause every throttle is exactly what it was before.
//!
//! On a slow medium, where a pause holds few requests, what the others left in the device's buffers
//! outlasts it, and chance decides what it shows. There a pause lasts for many response times, only
//! its end counts, the median is of more of them, and they are as rare as keeps all pauses within
//! their part of the time. This is ours; the paper knows persistent memory only.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use entresol_base::Nanos;
use entresol_base::rng::Rng;

use crate::policy::{Hands, Tick, Windows};
use crate::settings::{AloneSettings, Metric};
use crate::tenant::TenantId;
use crate::throttle::{Throttle, Throttles};
use crate::window::Window;

/// The median of so many pauses counts.
const SAMPLES: usize = 3;
/// One part in so many of a pause passes before anything counts: what the others have under way,
/// and what they left in the device's buffers, is still felt then.
const SETTLING: u32 = 5;
/// A pause is to hold so many response times of its tenant, or so many requests. A medium is slow
/// for a tenant of which `pause_max` holds neither: a drive needs that long to write what is in its
/// buffer, and a count of so many is off by a twentieth.
const RESPONSES: f64 = 32.0;
const REQUESTS: f64 = 400.0;
/// On a slow medium pauses last for so many times `pause_max`, ...
const LONGER: u32 = 16;
/// ... of which this part passes before anything counts: a modelled drive behind two segments of a
/// cache that were being written was slow for 55 ms, ...
const SETTLING_LONG: f64 = 0.75;
/// ... the median is of so many, ...
const SAMPLES_LONG: usize = 9;
/// ... and at least of so many, ...
const SAMPLES_LONG_MIN: usize = 2;
/// ... and all of them together take at most this part of the time, ...
const PART_MAX: f64 = 0.025;
/// ... but for the first ones of a load, which come so many times sooner.
const SOONER: u32 = 2;
/// Another load shows in so many looks there: a few requests of a kind may be chance.
const LOOKS_LONG: u32 = 2;
/// So many times the requests that it had under way together are believed of a tenant alone: what
/// it had varies by as much.
const UNDER_WAY_MORE: f64 = 1.1;
/// Requests that cost so many times less in a pause than before it are another load's. The mix of a
/// few dozen requests varies by itself: a smaller quotient would make honest tenants look slower
/// alone than they are, and so less slowed.
const CHEAPER: f64 = 2.0;

#[derive(Debug)]
pub(crate) struct Alone {
    settings: AloneSettings,
    metric: Metric,
    rng: Rng,
    known: BTreeMap<TenantId, Known>,
    pause: Option<Pause>,
    /// Whether pauses become longer where the medium is slow.
    is_patient: bool,
    news: News,
}

/// What has become known of slow media since the last time that somebody asked.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// A pause has shown something of a load that was not well known yet.
    pub(crate) has_learnt: bool,
    /// A medium has shown itself to be slow for a tenant: what was thought of it before came of
    /// short pauses.
    pub(crate) has_become_slow: bool,
}

#[derive(Debug, Default)]
struct Known {
    samples: VecDeque<Sample>,
    together: Option<Together>,
    taken_at: Option<Nanos>,
    due: Nanos,
    /// The least time between two pauses, by what the last one took.
    gap: Duration,
    load: Option<Load>,
    /// For how many looks it has been another one.
    changed: u32,
    /// The samples are of another load.
    is_stale: bool,
    /// The medium is slow for it: see [`RESPONSES`].
    is_slow: bool,
}

/// What a pause has shown.
#[derive(Debug, Clone, Copy)]
struct Sample {
    badness: f64,
    response_ns: Option<f64>,
    /// Device time of a request.
    cost_ns: f64,
    operations: u64,
}

/// What a tenant did beside the others.
#[derive(Debug, Clone, Copy)]
struct Together {
    /// Requests under way, by Little's law; not known if it reports no response times.
    under_way: Option<f64>,
    cost_ns: f64,
}

/// What the load looked like, whatever speed it was given.
#[derive(Debug, Clone, Copy)]
struct Load {
    bytes_each: f64,
    write_part: f64,
}

#[derive(Debug)]
struct Pause {
    tenant: TenantId,
    began: Nanos,
    length: Duration,
    /// For how long what was under way is waited for.
    settling: Duration,
    /// None until what was under way is over.
    window: Option<Window>,
    /// The throttles before it, and in it.
    saved: Throttles,
    set: Throttles,
}

impl Alone {
    pub(crate) fn new(settings: AloneSettings, metric: Metric, seed: u64) -> Alone {
        let rng = Rng::named(seed, "alone");
        Alone {
            settings,
            metric,
            rng,
            known: BTreeMap::new(),
            pause: None,
            is_patient: false,
            news: News::default(),
        }
    }

    /// The same, with longer pauses where the medium is slow.
    pub(crate) fn patient(self) -> Alone {
        Alone { is_patient: true, ..self }
    }

    /// Whether the others stand still now.
    pub(crate) fn is_pausing(&self) -> bool {
        self.pause.is_some()
    }

    /// How bad a tenant fares alone.
    pub(crate) fn badness(&self, tenant: TenantId) -> Option<f64> {
        let known = self.known.get(&tenant)?;
        let beliefs = self.beliefs(known);
        // On a slow medium one pause is too little to slow anybody by.
        let enough = if known.is_slow { SAMPLES_LONG_MIN } else { 1 };
        beliefs.get(beliefs.len() / 2).copied().filter(|_| beliefs.len() >= enough)
    }

    /// What each pause says, the best first.
    fn beliefs(&self, known: &Known) -> Vec<f64> {
        let believed = |sample: &Sample| self.believed(sample, known.together);
        let mut beliefs: Vec<f64> = known.samples.iter().map(believed).collect();
        beliefs.sort_by(f64::total_cmp);
        beliefs
    }

    /// Whether the medium is slow for a tenant, so that what is seen of it may be chance.
    pub(crate) fn is_slow(&self, tenant: TenantId) -> bool {
        self.known.get(&tenant).is_some_and(|known| known.is_slow)
    }

    /// What has become known since the last call.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// How far off the performance alone may be on a slow medium, as a part of it: one standard
    /// error. It follows from how far the pauses lie apart, and is no less than their number of
    /// requests lets expect. Elsewhere none is reckoned with.
    pub(crate) fn doubt(&self, tenant: TenantId) -> f64 {
        let Some(known) = self.known.get(&tenant).filter(|known| known.is_slow) else {
            return 0.0;
        };
        let operations: u64 = known.samples.iter().map(|sample| sample.operations).sum();
        let counted = 1.0 / (operations.max(1) as f64).sqrt();
        // The error of a median is a quarter larger than that of a mean.
        standard_error(&self.beliefs(known)).map_or(counted, |error| counted.max(1.25 * error))
    }

    fn believed(&self, sample: &Sample, together: Option<Together>) -> f64 {
        let Some(together) = together.filter(|_| self.settings.is_checked) else {
            return sample.badness;
        };
        let least = match (self.metric, sample.response_ns, together.under_way) {
            (Metric::Throughput, Some(ns), Some(count)) if count > 0.0 => {
                ns / (count * UNDER_WAY_MORE)
            }
            _ => 0.0,
        };
        let ratio = together.cost_ns / sample.cost_ns.max(f64::MIN_POSITIVE);
        let cheaper = ratio.is_finite() && ratio > CHEAPER;
        sample.badness.max(least) * if cheaper { ratio } else { 1.0 }
    }

    /// How many times slower than alone a tenant was in `window`.
    pub(crate) fn slowdown(&self, tenant: TenantId, window: &Window) -> Option<f64> {
        Some(self.metric.badness(window)? / self.badness(tenant)?)
    }

    /// Goes on with a pause or begins the next one. As long as there is a pause, nothing else may
    /// change a throttle, and what the tick shows is not how the tenants share.
    pub(crate) fn tick(
        &mut self,
        tick: &Tick<'_>,
        hands: &mut Hands<'_>,
        wanted: &dyn Fn(TenantId) -> bool,
    ) -> Option<Nanos> {
        if let Some(pause) = self.pause.take() {
            return self.go_on(pause, tick, hands);
        }
        self.known.retain(|tenant, _| tick.is_here(*tenant));
        let due = |tenant: &&TenantId| {
            wanted(**tenant) && self.known.get(tenant).is_none_or(|known| known.due <= tick.now)
        };
        let longest_waiting =
            |tenant: &&TenantId| self.known.get(tenant).map_or(Nanos(0), |known| known.due);
        let tenant = tick.tenants.keys().filter(due).min_by_key(longest_waiting).copied()?;
        Some(self.begin(tenant, tick, hands))
    }

    fn begin(&mut self, tenant: TenantId, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos {
        debug_assert!(self.pause.is_none(), "a pause for {tenant:?} begins within another");
        let saved = hands.throttles.clone();
        for &other in tick.tenants.keys() {
            let throttle = if other == tenant { Throttle::Free } else { Throttle::Stopped };
            hands.throttles.set_all(other, tick.media, throttle);
        }
        let (length, settling) = if self.is_slow(tenant) {
            let long = self.settings.pause_max * LONGER;
            (long, long.mul_f64(SETTLING_LONG))
        } else {
            (self.settings.pause, self.settings.pause / SETTLING)
        };
        let (began, set) = (tick.now, hands.throttles.clone());
        self.pause = Some(Pause { tenant, began, length, settling, window: None, saved, set });
        tick.now.after(settling)
    }

    fn go_on(&mut self, mut pause: Pause, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Option<Nanos> {
        let lasted = tick.now.since(pause.began);
        if let Some(member) = tick.tenants.get(&pause.tenant) {
            // Others than us may have asked for this tick.
            if lasted < pause.settling {
                let next = pause.began.after(pause.settling);
                self.pause = Some(pause);
                return Some(next);
            }
            let window = match pause.window.take() {
                Some(mut window) => {
                    window.add(&member.window);
                    window
                }
                None => Window::default(),
            };
            let few = window.operations < self.settings.operations_min;
            let end = if few { pause.length.max(self.settings.pause_max) } else { pause.length };
            if lasted < end {
                let soon = pause.length.saturating_sub(lasted);
                let soon = if soon.is_zero() { self.settings.pause } else { soon };
                let next = tick.now.after((end - lasted).min(soon));
                pause.window = Some(window);
                self.pause = Some(pause);
                return Some(next);
            }
            self.learn((pause.tenant, lasted), &window, tick.now);
        }
        // Only whoever was taken out of the settings meanwhile is slowed otherwise: not at all.
        let as_set = |(id, medium, throttle)| pause.set.get(id, medium) == throttle;
        debug_assert!(
            hands.throttles.iter().all(as_set),
            "a pause for {:?} set {:?}, and at its end it was {:?}",
            pause.tenant,
            pause.set,
            hands.throttles
        );
        *hands.throttles = pause.saved;
        None
    }

    fn learn(&mut self, (tenant, lasted): (TenantId, Duration), window: &Window, now: Nanos) {
        let jitter = 0.5 + self.rng.next_f64();
        let tenants = self.known.len().max(1) as f64;
        let known = self.known.entry(tenant).or_default();
        let (gap, samples_max) = match known.is_slow {
            true => (lasted.mul_f64(tenants / PART_MAX), SAMPLES_LONG),
            false => (Duration::ZERO, SAMPLES),
        };
        known.gap = gap;
        let is_first = known.is_stale || known.samples.len() < SAMPLES;
        let period = self.settings.period.max(if is_first { gap / SOONER } else { gap });
        known.due = now.after(period.mul_f64(jitter));
        known.taken_at = Some(now);
        let Some(badness) = self.metric.badness(window) else { return };
        if std::mem::take(&mut known.is_stale) {
            known.samples.clear();
        }
        // A drive's cost table is of random writes; what is written in a row may cost it half as
        // much. There a racer is known by what it has under way.
        let is_judged_by_cost = !(known.is_slow && window.latency.count() > 0);
        let over = if is_judged_by_cost { window.use_dominant().max(1.0) } else { 1.0 };
        known.samples.push_back(Sample {
            badness: badness * over,
            // Not the mean: the first answers were asked for before the pause, and may have waited
            // for the tenant's share for long.
            response_ns: window.latency.percentile_ns(50.0),
            cost_ns: cost_ns(window),
            operations: window.operations,
        });
        if known.samples.len() > samples_max {
            known.samples.pop_front();
        } else if known.is_slow {
            self.news.has_learnt = true;
        }
    }

    /// Compares the loads with those that were known; a changed one is measured anew soon, but not
    /// more often than five times in a period. Yields whether any has changed.
    pub(crate) fn notice(&mut self, now: Nanos, windows: &Windows, throttles: &Throttles) -> bool {
        let mut any = false;
        for (tenant, window) in &windows.by {
            let Some(known) = self.known.get_mut(tenant) else { continue };
            if window.operations < self.settings.operations_min {
                continue;
            }
            let under_way = |ns: f64| window.operations_s() * ns / 1e9;
            known.together = Some(Together {
                under_way: window.latency.mean_ns().map(under_way),
                cost_ns: cost_ns(window),
            });
            // By what it does while nobody slows it. Once slow it stays so: what is slowed by now
            // may leave as much behind as ever.
            let is_free = !throttles.is_throttled(*tenant);
            let is_slow = self.is_patient && is_free && is_slow(&self.settings, window);
            if is_slow && !known.is_slow {
                // What short pauses have shown is worth nothing here.
                known.is_slow = true;
                known.samples.clear();
                self.news.has_become_slow = true;
            }
            let load = Load {
                bytes_each: window.bytes_s() / window.operations_s(),
                write_part: window.write_part(),
            };
            let same = known.load.is_none_or(|before| before.is_like(load, self.settings.change));
            known.changed = if same { 0 } else { known.changed + 1 };
            let looks = if known.is_slow { LOOKS_LONG } else { 1 };
            if known.load.is_some() && known.changed < looks {
                continue;
            }
            known.load = Some(load);
            known.changed = 0;
            if !same {
                any = true;
                known.is_stale = true;
                known.is_slow = if is_free { is_slow } else { known.is_slow };
                let gap = (self.settings.period / 5).max(known.gap / SOONER);
                let soonest = known.taken_at.map_or(now, |taken| taken.after(gap));
                known.due = known.due.min(soonest.max(now));
            }
        }
        any
    }
}

/// Whether a medium on which a tenant did this, beside the others, is slow for it.
fn is_slow(settings: &AloneSettings, window: &Window) -> bool {
    let responses_ns = window.latency.mean_ns().unwrap_or(0.0) * RESPONSES;
    let requests = window.operations_s() * settings.pause_max.as_secs_f64();
    responses_ns > settings.pause_max.as_nanos() as f64 && requests < REQUESTS
}

/// One standard error of the mean of `values`, as a part of it; not known of fewer than two.
pub(crate) fn standard_error(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count - 1.0) / count).sqrt() / mean.max(f64::MIN_POSITIVE))
}

/// Device time of a request, on the medium that it uses most.
fn cost_ns(window: &Window) -> f64 {
    window.use_dominant() / window.operations_s().max(f64::MIN_POSITIVE) * 1e9
}

impl Load {
    fn is_like(self, other: Load, change: f64) -> bool {
        let ratio = self.bytes_each.max(1.0) / other.bytes_each.max(1.0);
        let part = (self.write_part - other.write_part).abs();
        ratio <= 1.0 + change && ratio >= 1.0 / (1.0 + change) && part <= change
    }
}
