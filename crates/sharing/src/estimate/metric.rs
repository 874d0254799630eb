//! Badness: one number for how a tenant fares, whose ratios are slowdowns.

use crate::settings::Metric;
use crate::window::Window;

impl Metric {
    /// Nanoseconds of a response, or between two answers. None if there was none.
    ///
    /// The paper's algorithm 3 divides shared by alone throughput, and its figures show the
    /// inverse, which is what is meant: slower is more. With times in both places the ratio is
    /// shared / alone for either metric.
    pub(crate) fn badness(self, window: &Window) -> Option<f64> {
        match self {
            Metric::Throughput if window.operations == 0 || window.elapsed.is_zero() => None,
            Metric::Throughput => Some(window.elapsed.as_nanos() as f64 / window.operations as f64),
            Metric::Mean => window.latency.mean_ns(),
            Metric::Percentile(percent) => window.latency.percentile_ns(percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn half_the_throughput_and_twice_the_time_are_twice_as_bad() {
        let window = |operations, ns| {
            let mut window =
                Window { elapsed: Duration::from_millis(1), operations, ..Window::default() };
            window.latency.record(Duration::from_nanos(ns));
            window
        };
        let (alone, shared) = (window(1000, 30), window(500, 60));
        for metric in [Metric::Throughput, Metric::Mean, Metric::Percentile(99.0)] {
            let ratio =
                metric.badness(&shared).expect("shared") / metric.badness(&alone).expect("");
            assert!((ratio - 2.0).abs() < 1e-9, "{metric:?} {ratio}");
            assert_eq!(metric.badness(&Window::default()), None);
        }
    }
}
