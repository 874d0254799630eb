//! Number of intervals for which tenants are watched before a judgement.
//!
//! One interval is enough if it holds thousands of requests. On a slow medium it does not, and a
//! drive that is busy with itself for a moment looks like unfairness. There the policy watches
//! several intervals, until their mean is certain enough for the judgement or the maximum has
//! passed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::estimate::alone::standard_error;
use crate::tenant::TenantId;
use crate::tick::Windows;

/// Minimum number of intervals whose spread means anything.
const LEAST: u32 = 5;
/// Maximum number of intervals before a judgement.
const MOST: u32 = 20;

/// Intervals since the last judgement.
#[derive(Debug, Default)]
pub(super) struct Looks {
    count: u32,
    by: BTreeMap<TenantId, Looked>,
}

#[derive(Debug, Default)]
struct Looked {
    operations: u64,
    elapsed: Duration,
    /// Requests a second, interval by interval.
    rates: Vec<f64>,
}

impl Looks {
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Adds an interval; `windows` holds all since the last judgement.
    pub(super) fn add(&mut self, windows: &Windows) {
        self.count += 1;
        self.by.retain(|tenant, _| windows.by.contains_key(tenant));
        for (tenant, window) in &windows.by {
            let looked = self.by.entry(*tenant).or_default();
            let operations = window.operations.saturating_sub(looked.operations);
            let elapsed = window.elapsed.saturating_sub(looked.elapsed);
            (looked.operations, looked.elapsed) = (window.operations, window.elapsed);
            if !elapsed.is_zero() {
                looked.rates.push(operations as f64 / elapsed.as_secs_f64());
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Looks::default();
    }

    pub(super) fn are_few(&self) -> bool {
        self.count < LEAST
    }

    pub(super) fn are_just_enough(&self) -> bool {
        self.count == LEAST
    }

    pub(super) fn are_most(&self) -> bool {
        self.count >= MOST
    }

    /// Standard error of a tenant's mean rate, as a part of it.
    pub(super) fn error(&self, tenant: TenantId) -> f64 {
        self.by.get(&tenant).and_then(|looked| standard_error(&looked.rates)).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Window;

    const T: TenantId = TenantId(1);

    #[test]
    fn the_error_is_that_of_the_mean_of_the_intervals() {
        let mut looks = Looks::default();
        let mut windows = Windows::default();
        for operations in [90, 110, 90, 110, 90, 110, 90, 110, 90, 110] {
            let elapsed = Duration::from_millis(100);
            let window = Window { elapsed, operations, ..Window::default() };
            windows.by.entry(T).or_default().add(&window);
            assert!(!looks.are_most());
            looks.add(&windows);
        }
        assert_eq!(looks.count(), 10);
        // A deviation of 10 in 100, ten times.
        assert!((looks.error(T) - 0.1 / 3.0).abs() < 1e-9, "{}", looks.error(T));
        assert_eq!(looks.error(TenantId(2)), 0.0);
    }
}
