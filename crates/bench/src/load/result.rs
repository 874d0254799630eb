//! What a load measured, as it is printed with `--json`.

use entresol_base::Nanos;
use entresol_base::histogram::Histogram;
use entresol_measure::report::svg::Line;
use serde::Serialize;

use super::LoadOptions;
use super::generator::Tally;

/// A point of a latency curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// This share of requests, in percent ...
    pub percent: f64,
    /// ... was no slower than this.
    pub us: f64,
}

/// Percentiles of a latency curve.
const CURVE_PERCENTS: [f64; 14] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999];
/// Below a share of 1 in `n` the slowest request stands for a percentile; that is no measurement.
const REQUESTS_BEHIND_MIN: f64 = 10.0;

/// Response times, never averaged over percentiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencySummary {
    /// How many were recorded.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// Half are no slower.
    pub p50_us: f64,
    /// Nine in ten are no slower.
    pub p90_us: f64,
    /// 99 in a hundred are no slower.
    pub p99_us: f64,
    /// 999 in a thousand are no slower; absent if fewer than ten requests lie behind it.
    pub p99_9_us: Option<f64>,
    /// 9,999 in ten thousand are no slower; absent if fewer than ten requests lie behind it.
    pub p99_99_us: Option<f64>,
    /// The slowest.
    pub max_us: f64,
    /// The distribution, as far as the requests suffice.
    pub curve: Vec<CurvePoint>,
}

impl LatencySummary {
    /// The distribution as a line to draw.
    #[must_use]
    pub fn line(&self, label: &str) -> Line {
        let points = self.curve.iter().map(|point| (point.percent, point.us)).collect();
        Line { label: label.to_owned(), points }
    }

    /// Sums up a histogram.
    #[must_use]
    pub fn of(histogram: &Histogram) -> LatencySummary {
        let count = histogram.count();
        let counts =
            |percent: f64| count as f64 * (100.0 - percent) / 100.0 >= REQUESTS_BEHIND_MIN - 1e-6;
        let rare = |percent| counts(percent).then(|| histogram.percentile_us(percent));
        LatencySummary {
            count,
            mean_us: histogram.mean_us(),
            p50_us: histogram.percentile_us(50.0),
            p90_us: histogram.percentile_us(90.0),
            p99_us: histogram.percentile_us(99.0),
            p99_9_us: rare(99.9),
            p99_99_us: rare(99.99),
            max_us: histogram.max_us(),
            curve: CURVE_PERCENTS
                .into_iter()
                .filter(|&percent| counts(percent))
                .map(|percent| CurvePoint { percent, us: histogram.percentile_us(percent) })
                .collect(),
        }
    }
}

/// What a load measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadResult {
    /// The server.
    pub server: String,
    /// `closed` or `open`.
    pub r#loop: &'static str,
    /// Requests answered in the measured phase.
    pub requests: u64,
    /// Of them gets.
    pub gets: u64,
    /// Gets that found a value.
    pub hits: u64,
    /// Share of gets that found a value.
    pub hit_ratio: f64,
    /// Sets.
    pub sets: u64,
    /// Sets that the server refused.
    pub sets_refused: u64,
    /// From the first request to the last reply.
    pub duration_s: f64,
    /// Requests answered a second.
    pub throughput_ops_s: f64,
    /// Requests due a second (open loop).
    pub offered_ops_s: Option<f64>,
    /// Response times of all requests, in an open loop from when each was due.
    pub latency: LatencySummary,
    /// Response times of gets.
    pub get_latency: LatencySummary,
    /// Response times of sets.
    pub set_latency: LatencySummary,
    /// Open loop: how late the generator itself was, 99th percentile.
    pub generator_late_p99_us: Option<f64>,
    /// Open loop: the generator was late by more than the median response for over 1% of requests,
    /// so the response times say more about it than about the server.
    pub generator_too_late: bool,
    /// Processor time of the server, user and system, for each request.
    pub server_cpu_us_per_request: Option<f64>,
    /// Processor time of the generator for each request.
    pub client_cpu_us_per_request: f64,
}

impl LoadResult {
    pub(super) fn new(
        options: &LoadOptions,
        tally: &Tally,
        began: Nanos,
        server_cpu_ns: Option<u64>,
    ) -> LoadResult {
        let mut all = tally.get_times.clone();
        all.merge(&tally.set_times);
        let latency = LatencySummary::of(&all);
        let requests = tally.requests();
        let per_request_us = |ns: u64| ns as f64 / 1e3 / requests.max(1) as f64;
        let duration_s = tally.ended.since(began).as_secs_f64();
        let open = options.rate_ops_s.is_some();
        let late_us = open.then(|| tally.generator_late.percentile_us(99.0));
        LoadResult {
            server: options.address.to_string(),
            r#loop: if open { "open" } else { "closed" },
            requests,
            gets: tally.gets,
            hits: tally.hits,
            hit_ratio: tally.hits as f64 / tally.gets.max(1) as f64,
            sets: tally.sets,
            sets_refused: tally.refused,
            duration_s,
            throughput_ops_s: requests as f64 / duration_s.max(1e-9),
            offered_ops_s: options.rate_ops_s,
            generator_too_late: late_us.is_some_and(|late| late > latency.p50_us),
            generator_late_p99_us: late_us,
            get_latency: LatencySummary::of(&tally.get_times),
            set_latency: LatencySummary::of(&tally.set_times),
            latency,
            server_cpu_us_per_request: server_cpu_ns.map(per_request_us),
            client_cpu_us_per_request: per_request_us(tally.client_cpu_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn percentiles_that_too_few_requests_back_are_left_out() {
        let mut histogram = Histogram::new();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        let summary = LatencySummary::of(&histogram);
        assert!((summary.p99_us / 9_900.0 - 1.0).abs() < 0.002);
        assert!(summary.p99_9_us.is_some_and(|us| (us / 9_990.0 - 1.0).abs() < 0.002));
        assert_eq!(summary.p99_99_us, None);
        assert!(summary.curve.iter().all(|point| point.percent <= 99.9));
    }
}
