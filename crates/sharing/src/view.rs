//! What an operator sees of each tenant.

use std::time::Duration;

use crate::decision::Decision;
use crate::tenant::TenantId;
use crate::throttle::Throttle;
use crate::window::Window;

/// How long the stretch is that is shown.
const STRETCH: Duration = Duration::from_secs(1);

/// One tenant in its last whole second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantView {
    /// Which.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// Whether it reported at the last tick.
    pub is_here: bool,
    /// Requests answered in a second.
    pub operations_s: f64,
    /// The share of each medium's time that it used.
    pub shares: Vec<f64>,
    /// Half of its response times are not above this; none if it measures none.
    pub latency_ns_p50: Option<f64>,
    /// 99 of 100 are not above this.
    pub latency_ns_p99: Option<f64>,
    /// 999 of 1000 are not above this.
    pub latency_ns_p999: Option<f64>,
    /// How much slower it is than alone, if the policy has found out.
    pub slowdown: Option<f64>,
    /// How it is slowed on each medium.
    pub throttles: Vec<Throttle>,
    /// What was last done to it, and why.
    pub last_decision: Option<Decision>,
}

/// The second that is running and the last whole one.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    running: Window,
    whole: Window,
}

impl Recent {
    pub(crate) fn add(&mut self, window: &Window) {
        self.running.add(window);
        if self.running.elapsed >= STRETCH {
            self.whole = std::mem::take(&mut self.running);
        }
    }

    pub(crate) fn view(&self) -> TenantView {
        // Until the first second is over, what there is of it.
        let window = if self.whole.elapsed.is_zero() { &self.running } else { &self.whole };
        TenantView {
            operations_s: window.operations_s(),
            shares: (0..window.used.len()).map(|medium| window.use_of(medium)).collect(),
            latency_ns_p50: window.latency.percentile_ns(50.0),
            latency_ns_p99: window.latency.percentile_ns(99.0),
            latency_ns_p999: window.latency.percentile_ns(99.9),
            ..TenantView::default()
        }
    }
}
