//! Views of tenants for the operator.

use std::time::Duration;

use crate::decision::Decision;
use crate::tenant::TenantId;
use crate::throttle::Throttle;
use crate::window::Window;

/// Length of the interval that is shown.
const STRETCH: Duration = Duration::from_secs(1);

/// View of a tenant in its last whole second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantView {
    /// Number of the tenant.
    pub tenant: TenantId,
    /// Name of the tenant.
    pub name: String,
    /// True if it reported at the last tick.
    pub is_here: bool,
    /// Requests answered in a second.
    pub operations_s: f64,
    /// Share of each medium's time that it used.
    pub shares: Vec<f64>,
    /// Median response time; none if it measures none.
    pub latency_ns_p50: Option<f64>,
    /// 99th percentile of response times.
    pub latency_ns_p99: Option<f64>,
    /// 99.9th percentile of response times.
    pub latency_ns_p999: Option<f64>,
    /// Slowdown compared with being alone, if the policy has measured it.
    pub slowdown: Option<f64>,
    /// Throttle on each medium.
    pub throttles: Vec<Throttle>,
    /// Last decision about it.
    pub last_decision: Option<Decision>,
}

/// Window of the current second and of the last whole one.
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
        // The first second is shown while it runs.
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
