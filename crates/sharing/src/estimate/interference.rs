//! Interference by experiment: each candidate in turn gives up the same amount for a moment, and
//! the victim's gain is measured.
//!
//! No model of a device is needed, and none would do: on persistent memory a little writing
//! disturbs more than much reading. After each candidate every throttle is exactly what it was
//! before.

use std::collections::VecDeque;
use std::time::Duration;

use entresol_base::Nanos;

use crate::settings::{Metric, WatchSettings};
use crate::tenant::TenantId;
use crate::throttle::{Throttle, Throttles};
use crate::tick::{Hands, Tick};
use crate::window::Window;

/// Throttle of a candidate for the experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Offer {
    pub(crate) tenant: TenantId,
    pub(crate) throttle: Throttle,
    /// Amount that it gives up. A candidate with less than that gives all it has.
    pub(crate) expense: f64,
}

/// Result of an offer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gain {
    pub(crate) tenant: TenantId,
    /// Part of its badness that the victim was spared; negative if it fared worse.
    pub(crate) gain: f64,
    pub(crate) expense: f64,
}

/// An experiment under way.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) victim: TenantId,
    metric: Metric,
    watch: WatchSettings,
    /// Time after a change during which no measurement counts.
    settle: Duration,
    baseline: f64,
    saved: Throttles,
    offers: VecDeque<Offer>,
    current: Option<(Offer, Nanos, Window)>,
    gains: Vec<Gain>,
}

/// Progress of an experiment.
#[derive(Debug, PartialEq)]
pub(crate) enum Progress {
    /// The experiment goes on; the next tick is due then.
    Wait(Nanos),
    /// The gains, in the order of the offers, without those of tenants that left.
    Done(Vec<Gain>),
}

/// Tenant that an experiment is for, and the metric that judges it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) tenant: TenantId,
    pub(crate) metric: Metric,
    /// Its badness without any of the offers.
    pub(crate) baseline: f64,
}

impl Trial {
    pub(crate) fn new(
        victim: Victim,
        watch: WatchSettings,
        settle: Duration,
        offers: Vec<Offer>,
        throttles: &Throttles,
    ) -> Trial {
        Trial {
            victim: victim.tenant,
            metric: victim.metric,
            baseline: victim.baseline,
            watch,
            settle,
            saved: throttles.clone(),
            offers: offers.into(),
            current: None,
            gains: Vec::new(),
        }
    }

    pub(crate) fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Progress {
        let Some(victim) = tick.tenants.get(&self.victim) else {
            *hands.throttles = self.saved.clone();
            return Progress::Done(Vec::new());
        };
        if let Some((offer, from, mut window)) = self.current.take() {
            if tick.now > from {
                window.add(&victim.window);
            }
            let goes_on = tick.is_here(offer.tenant) && !self.watch.is_enough(self.metric, &window);
            if goes_on {
                self.current = Some((offer, from, window));
                return Progress::Wait(tick.now.after(self.settle));
            }
            *hands.throttles = self.saved.clone();
            if tick.is_here(offer.tenant) {
                // A victim without a single answer was not helped.
                let badness = self.metric.badness(&window).unwrap_or(self.baseline);
                let gain = (self.baseline - badness) / self.baseline;
                let Offer { tenant, expense, .. } = offer;
                self.gains.push(Gain { tenant, gain, expense });
            }
        }
        while let Some(offer) = self.offers.pop_front() {
            if tick.is_here(offer.tenant) {
                hands.throttles.set_all(offer.tenant, tick.media, offer.throttle);
                let from = tick.now.after(self.settle);
                self.current = Some((offer, from, Window::default()));
                return Progress::Wait(from);
            }
        }
        Progress::Done(std::mem::take(&mut self.gains))
    }
}
