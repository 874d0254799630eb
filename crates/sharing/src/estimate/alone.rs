//! Performance alone, measured while one tenant runs free and the others are paused for a moment.
//!
//! Pauses come one at a time, at random times around the period, so that no tenant can wait for one
//! and race. The median of the last three counts, so that one bad pause does not. A tenant can
//! still notice a pause by its response times and race in it to look slowed. Three bounds guard
//! against that. No tenant is believed to be faster alone than the costs of its accesses allow.
//! None is believed to have more requests under way than beside the others. Requests that cost less
//! in a pause count for less. After a pause every throttle is exactly what it was before.
//!
//! On a slow medium a pause holds few requests, writes that the others left in the device's buffers
//! outlast it, and chance decides its result. There a pause lasts for many response times, only its
//! end counts, and the median is over more of them. They are rare enough that all pauses together
//! keep to their part of the time. This is ours; the paper knows persistent memory only.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use entresol_base::Nanos;
use entresol_base::rng::Rng;

use crate::settings::{AloneSettings, Metric};
use crate::tenant::TenantId;
use crate::throttle::{Throttle, Throttles};
use crate::tick::{Hands, Tick, Windows};
use crate::window::Window;

/// Number of pauses whose median counts.
const SAMPLES: usize = 3;
/// Divisor of a pause's length that gives its settling time. Before that, requests under way and
/// writes in the device's buffers are still felt.
const SETTLING: u32 = 5;
/// Response times of a tenant that a pause should hold, unless it holds [`REQUESTS`]. A medium is
/// slow for a tenant if `pause_max` holds neither: a drive needs that long to write what is in its
/// buffer, and a count of so few is off by a twentieth.
const RESPONSES: f64 = 32.0;
const REQUESTS: f64 = 400.0;
/// Multiple of `pause_max` that a pause lasts on a slow medium.
const LONGER: u32 = 16;
/// Part of a pause on a slow medium that passes before anything counts. A modelled drive stayed
/// slow for 55 ms after two segments of a cache had been written.
const SETTLING_LONG: f64 = 0.75;
/// Number of pauses on a slow medium whose median counts.
const SAMPLES_LONG: usize = 9;
/// Minimum number of pauses on a slow medium before their median counts.
const SAMPLES_LONG_MIN: usize = 2;
/// Maximum part of the time that all pauses on a slow medium take together.
const PART_MAX: f64 = 0.025;
/// Divisor of the gap between the first pauses of a load on a slow medium.
const SOONER: u32 = 2;
/// Looks in a row that must show another load on a slow medium: a few requests of a kind may be
/// chance.
const LOOKS_LONG: u32 = 2;
/// Factor by which a tenant may have more requests under way alone than together. Their number
/// varies by that much.
const UNDER_WAY_MORE: f64 = 1.1;
/// Factor by which requests must be cheaper in a pause than before it to count as another load. The
/// mix of a few dozen requests varies by itself; with a smaller factor honest tenants would look
/// slower alone than they are, and so less slowed.
const CHEAPER: f64 = 2.0;

#[derive(Debug)]
pub(crate) struct Alone {
    settings: AloneSettings,
    metric: Metric,
    rng: Rng,
    known: BTreeMap<TenantId, Known>,
    pause: Option<Pause>,
    /// True if pauses become longer on a slow medium.
    is_patient: bool,
    news: News,
}

/// Findings about slow media since the policy last asked.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Set once a pause has added to a load that was not well known yet.
    pub(crate) has_learnt: bool,
    /// Set once a medium has proved slow for a tenant, so that results of short pauses are void.
    pub(crate) has_become_slow: bool,
}

#[derive(Debug, Default)]
struct Known {
    samples: VecDeque<Sample>,
    together: Option<Together>,
    taken_at: Option<Nanos>,
    due: Nanos,
    /// Minimum time between two pauses, by the length of the last one.
    gap: Duration,
    load: Option<Load>,
    /// Looks in a row that have shown another load.
    changed: u32,
    /// True if the samples belong to an earlier load.
    is_stale: bool,
    /// True if the medium is slow for the tenant: see [`RESPONSES`].
    is_slow: bool,
}

/// Result of one pause.
#[derive(Debug, Clone, Copy)]
struct Sample {
    badness: f64,
    response_ns: Option<f64>,
    /// Device time of a request.
    cost_ns: f64,
    operations: u64,
}

/// A tenant's load beside the others.
#[derive(Debug, Clone, Copy)]
struct Together {
    /// Requests under way, by Little's law; unknown if the tenant reports no response times.
    under_way: Option<f64>,
    cost_ns: f64,
}

/// Character of a load, independent of its speed.
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
    /// Time for which requests under way may finish.
    settling: Duration,
    /// Window that counts; none until the settling time is over.
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

    /// Turns on longer pauses for slow media.
    pub(crate) fn patient(self) -> Alone {
        Alone { is_patient: true, ..self }
    }

    /// Returns true while the other tenants are paused.
    pub(crate) fn is_pausing(&self) -> bool {
        self.pause.is_some()
    }

    /// Badness of a tenant alone.
    pub(crate) fn badness(&self, tenant: TenantId) -> Option<f64> {
        let known = self.known.get(&tenant)?;
        let beliefs = self.beliefs(known);
        // On a slow medium a single pause is too little to slow other tenants by.
        let enough = if known.is_slow { SAMPLES_LONG_MIN } else { 1 };
        beliefs.get(beliefs.len() / 2).copied().filter(|_| beliefs.len() >= enough)
    }

    /// Badness according to each pause, the best first.
    fn beliefs(&self, known: &Known) -> Vec<f64> {
        let believed = |sample: &Sample| self.believed(sample, known.together);
        let mut beliefs: Vec<f64> = known.samples.iter().map(believed).collect();
        beliefs.sort_by(f64::total_cmp);
        beliefs
    }

    /// Returns true if the medium is slow for a tenant, so that its measurements may be chance.
    pub(crate) fn is_slow(&self, tenant: TenantId) -> bool {
        self.known.get(&tenant).is_some_and(|known| known.is_slow)
    }

    /// Takes the findings since the last call.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Standard error of the performance alone on a slow medium, as a part of it; zero elsewhere.
    /// It follows from the spread of the pauses, and is at least what their number of requests lets
    /// expect.
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

    /// Slowdown of a tenant in `window`, compared with being alone.
    pub(crate) fn slowdown(&self, tenant: TenantId, window: &Window) -> Option<f64> {
        Some(self.metric.badness(window)? / self.badness(tenant)?)
    }

    /// Continues a pause or begins the next one. During a pause nothing else may change a throttle,
    /// and the tick does not show how the tenants share.
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
            // Another part of the policy may have asked for this tick.
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
        // The throttles are still those that the pause set, except that tenants removed from the
        // settings meanwhile have none.
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
        // A drive's cost table is of random writes; sequential ones may cost half as much. There a
        // racing tenant is recognised by its requests under way.
        let is_judged_by_cost = !(known.is_slow && window.latency.count() > 0);
        let over = if is_judged_by_cost { window.use_dominant().max(1.0) } else { 1.0 };
        known.samples.push_back(Sample {
            badness: badness * over,
            // Not the mean: the first requests came before the pause and may have waited long for
            // the tenant's share.
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

    /// Compares the loads with the known ones. A changed one is measured anew soon, but at most
    /// five times in a period. Returns true if any has changed.
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
            // Judged while the tenant is not slowed. A slow medium stays slow for it, since a
            // slowed tenant may leave as much behind as ever.
            let is_free = !throttles.is_throttled(*tenant);
            let is_slow = self.is_patient && is_free && is_slow(&self.settings, window);
            if is_slow && !known.is_slow {
                // Results of short pauses are worthless here.
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

/// Returns true if a medium is slow for a tenant with this window beside the others.
fn is_slow(settings: &AloneSettings, window: &Window) -> bool {
    let responses_ns = window.latency.mean_ns().unwrap_or(0.0) * RESPONSES;
    let requests = window.operations_s() * settings.pause_max.as_secs_f64();
    responses_ns > settings.pause_max.as_nanos() as f64 && requests < REQUESTS
}

/// Standard error of the mean of `values`, as a part of it; unknown for fewer than two.
pub(crate) fn standard_error(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count - 1.0) / count).sqrt() / mean.max(f64::MIN_POSITIVE))
}

/// Device time of a request on the medium that it uses most.
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
