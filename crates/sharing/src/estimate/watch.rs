//! Tests whether a window is long enough to judge by.

use crate::settings::{Metric, WatchSettings};
use crate::window::Window;

impl WatchSettings {
    /// Returns true if `window` is enough for this metric.
    pub(crate) fn is_enough(&self, metric: Metric, window: &Window) -> bool {
        window.elapsed >= self.longest
            || window.elapsed >= self.shortest && self.has_tail(metric, window)
    }

    /// Returns true if `window` holds enough of its tail, however long that took.
    pub(crate) fn has_tail(&self, metric: Metric, window: &Window) -> bool {
        let beyond = match metric {
            Metric::Throughput => window.operations as f64,
            Metric::Mean => window.latency.count() as f64,
            Metric::Percentile(percent) => window.latency.count() as f64 * (1.0 - percent / 100.0),
        };
        beyond >= self.tail_min as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_tail_is_judged_once_it_has_enough_in_it() {
        let watch = WatchSettings::default();
        let check = |ms, count, enough| {
            let elapsed = Duration::from_millis(ms);
            let mut window = Window { elapsed, operations: count, ..Window::default() };
            (0..count).for_each(|_| window.latency.record(Duration::from_nanos(1)));
            assert_eq!(watch.is_enough(Metric::Percentile(99.0), &window), enough, "{ms} {count}");
        };
        check(10, 100_000, false);
        check(20, 9_000, false);
        check(20, 11_000, true);
        check(500, 0, true);
    }
}
