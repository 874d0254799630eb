//! Results of a load, as `--json` prints them.

use entresol_base::Nanos;
use entresol_base::histogram::Histogram;
use entresol_measure::report::svg::Line;
use serde::Serialize;

use super::LoadOptions;
use super::generator::Tally;

/// Point of a latency curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Share of requests in per cent.
    pub percent: f64,
    /// Response time that this share does not exceed.
    pub us: f64,
}

/// Percentiles of a latency curve.
const CURVE_PERCENTS: [f64; 14] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999];
/// Least number of requests beyond a percentile. With fewer, the slowest request would stand for
/// it, which is no measurement.
const REQUESTS_BEHIND_MIN: f64 = 10.0;

/// Summary of response times. Percentiles are never averaged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Number of response times.
    pub count: u64,
    /// Mean response time.
    pub mean_us: f64,
    /// 50th percentile.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile; absent if fewer than ten requests lie beyond it.
    pub p99_9_us: Option<f64>,
    /// 99.99th percentile; absent if fewer than ten requests lie beyond it.
    pub p99_99_us: Option<f64>,
    /// Slowest response time.
    pub max_us: f64,
    /// Distribution, as far as the number of requests suffices.
    pub curve: Vec<CurvePoint>,
}

impl LatencySummary {
    /// Returns the distribution as a line to draw.
    #[must_use]
    pub fn line(&self, label: &str) -> Line {
        let points = self.curve.iter().map(|point| (point.percent, point.us)).collect();
        Line { label: label.to_owned(), points }
    }

    /// Summarizes a histogram.
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

/// Results of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadResult {
    /// Address of the server.
    pub server: String,
    /// Kind of loop: `closed` or `open`.
    pub r#loop: &'static str,
    /// Requests answered in the measured phase.
    pub requests: u64,
    /// Number of gets.
    pub gets: u64,
    /// Gets that found a value.
    pub hits: u64,
    /// Share of gets that found a value.
    pub hit_ratio: f64,
    /// Number of sets.
    pub sets: u64,
    /// Sets that the server refused.
    pub sets_refused: u64,
    /// Seconds from the first request to the last reply.
    pub duration_s: f64,
    /// Requests answered per second.
    pub throughput_ops_s: f64,
    /// Requests due per second (open loop).
    pub offered_ops_s: Option<f64>,
    /// Response times of all requests; in an open loop, they count from the due time.
    pub latency: LatencySummary,
    /// Response times of gets.
    pub get_latency: LatencySummary,
    /// Response times of sets.
    pub set_latency: LatencySummary,
    /// 99th percentile of the generator's own delay (open loop).
    pub generator_late_p99_us: Option<f64>,
    /// True if the generator was late by more than the median response time for over 1% of the
    /// requests (open loop). The response times then describe the generator rather than the server.
    pub generator_too_late: bool,
    /// Bytes of values stored and found per second.
    pub value_bytes_s: f64,
    /// Processor time of the server, user and system, for each request.
    pub server_cpu_us_per_request: Option<f64>,
    /// Processor time of the server for each GB (10^9 bytes) of values stored and found.
    pub server_cpu_s_per_gb: Option<f64>,
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
        let moved = tally.hits + tally.sets - tally.refused;
        let value_bytes = moved as f64 * options.value_bytes as f64;
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
            value_bytes_s: value_bytes / duration_s.max(1e-9),
            server_cpu_s_per_gb: server_cpu_ns
                .filter(|_| value_bytes > 0.0)
                .map(|ns| ns as f64 / value_bytes),
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
