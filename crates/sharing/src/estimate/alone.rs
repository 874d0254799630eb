//! Performance alone: one tenant runs free while the others are paused for a moment.
//!
//! Pauses come one at a time, at random times around the period, so that nobody can wait for one
//! and race; the median of the last three is what counts, so that one that went wrong does not. A
//! tenant that sees a pause, by its response times, may still race then to look slowed: so nobody
//! is believed to be faster alone than the costs of its accesses allow, nor to have had more
//! requests under way than it had together with the others, and requests that cost less in a pause
//! count for less. After a pause every throttle is exactly what it was before.

use std::collections::{BTreeMap, VecDeque};

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
}

#[derive(Debug, Default)]
struct Known {
    samples: VecDeque<Sample>,
    together: Option<Together>,
    taken_at: Option<Nanos>,
    due: Nanos,
    load: Option<Load>,
    /// The samples are of another load.
    is_stale: bool,
}

/// What a pause has shown.
#[derive(Debug, Clone, Copy)]
struct Sample {
    badness: f64,
    response_ns: Option<f64>,
    /// Device time of a request.
    cost_ns: f64,
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
    /// None until what was under way is over.
    window: Option<Window>,
    saved: Throttles,
}

impl Alone {
    pub(crate) fn new(settings: AloneSettings, metric: Metric, seed: u64) -> Alone {
        let rng = Rng::named(seed, "alone");
        Alone { settings, metric, rng, known: BTreeMap::new(), pause: None }
    }

    /// Whether the others stand still now.
    pub(crate) fn is_pausing(&self) -> bool {
        self.pause.is_some()
    }

    /// How bad a tenant fares alone.
    pub(crate) fn badness(&self, tenant: TenantId) -> Option<f64> {
        let known = self.known.get(&tenant)?;
        let believed = |sample: &Sample| self.believed(sample, known.together);
        let mut samples: Vec<f64> = known.samples.iter().map(believed).collect();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
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
        let saved = hands.throttles.clone();
        for &other in tick.tenants.keys() {
            let throttle = if other == tenant { Throttle::Free } else { Throttle::Stopped };
            hands.throttles.set_all(other, tick.media, throttle);
        }
        self.pause = Some(Pause { tenant, began: tick.now, window: None, saved });
        tick.now.after(self.settings.pause / SETTLING)
    }

    fn go_on(&mut self, mut pause: Pause, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Option<Nanos> {
        if let Some(member) = tick.tenants.get(&pause.tenant) {
            let window = match pause.window.take() {
                Some(mut window) => {
                    window.add(&member.window);
                    window
                }
                None => Window::default(),
            };
            let lasted = tick.now.since(pause.began);
            let few = window.operations < self.settings.operations_min;
            let end = if few { self.settings.pause_max } else { self.settings.pause };
            if lasted < end {
                let soon = self.settings.pause.saturating_sub(lasted);
                let soon = if soon.is_zero() { self.settings.pause } else { soon };
                let next = tick.now.after((end - lasted).min(soon));
                pause.window = Some(window);
                self.pause = Some(pause);
                return Some(next);
            }
            self.learn(pause.tenant, &window, tick.now);
        }
        *hands.throttles = pause.saved;
        None
    }

    fn learn(&mut self, tenant: TenantId, window: &Window, now: Nanos) {
        let jitter = 0.5 + self.rng.next_f64();
        let known = self.known.entry(tenant).or_default();
        known.due = now.after(self.settings.period.mul_f64(jitter));
        known.taken_at = Some(now);
        let Some(badness) = self.metric.badness(window) else { return };
        if std::mem::take(&mut known.is_stale) {
            known.samples.clear();
        }
        known.samples.push_back(Sample {
            badness: badness * window.use_dominant().max(1.0),
            // Not the mean: the first answers were asked for before the pause, and may have waited
            // for the tenant's share for long.
            response_ns: window.latency.percentile_ns(50.0),
            cost_ns: cost_ns(window),
        });
        if known.samples.len() > SAMPLES {
            known.samples.pop_front();
        }
    }

    /// Compares the loads with those that were known; a changed one is measured anew soon, but not
    /// more often than five times in a period. Yields whether any has changed.
    pub(crate) fn notice(&mut self, now: Nanos, windows: &Windows) -> bool {
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
            let load = Load {
                bytes_each: window.bytes_s() / window.operations_s(),
                write_part: window.write_part(),
            };
            let same = known.load.is_none_or(|before| before.is_like(load, self.settings.change));
            if same && known.load.is_some() {
                continue;
            }
            known.load = Some(load);
            if !same {
                any = true;
                known.is_stale = true;
                let gap = self.settings.period / 5;
                let soonest = known.taken_at.map_or(now, |taken| taken.after(gap));
                known.due = known.due.min(soonest.max(now));
            }
        }
        any
    }
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
