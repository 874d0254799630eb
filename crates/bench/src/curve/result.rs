//! Results of a run, as `--json` prints them.

use entresol_base::histogram::Histogram;
use entresol_measure::statistics::Spread;
use serde::Serialize;

use super::{CurveOptions, LOADS_PERCENT, Loaded};

/// Least number of requests beyond a percentile. With fewer, the slowest request would stand for
/// it, which is no measurement.
const REQUESTS_BEHIND_MIN: f64 = 10.0;
/// Least achieved share of a load; below it, the system does not keep up.
const KEPT_UP: f64 = 0.98;

/// Result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct CurveResult {
    /// Bytes of a block or a value.
    pub size_bytes: u64,
    /// Share of reads.
    pub read_share: f64,
    /// Times that each load was run.
    pub rounds: usize,
    /// Systems, in the order in which they were given.
    pub systems: Vec<SystemResult>,
}

/// Curve of one system.
#[derive(Debug, Clone, Serialize)]
pub struct SystemResult {
    /// System as the user named it.
    pub subject: String,
    /// Description of the system and its clients.
    pub description: String,
    /// Most requests a second.
    pub saturation_ops_s: Spread,
    /// Loads in ascending order.
    pub points: Vec<Point>,
    /// Index of the point at the knee, where the ratio of rate and mean response time is greatest;
    /// absent if no point is valid.
    pub knee: Option<usize>,
}

/// Response times at one load. Those of all rounds are taken together.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Load in per cent of saturation.
    pub percent: u32,
    /// Requests a second that fell due.
    pub offered_ops_s: f64,
    /// Requests a second that were answered.
    pub achieved_ops_s: f64,
    /// Requests that were answered.
    pub requests: u64,
    /// Mean response time.
    pub mean_us: f64,
    /// 50th percentile.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99th percentile of each round.
    pub p99_us_rounds: Spread,
    /// 99.9th percentile; absent if fewer than ten requests lie beyond it.
    pub p99_9_us: Option<f64>,
    /// 99.99th percentile; absent if fewer than ten requests lie beyond it.
    pub p99_99_us: Option<f64>,
    /// 99.999th percentile; absent if fewer than ten requests lie beyond it.
    pub p99_999_us: Option<f64>,
    /// Slowest response time.
    pub max_us: f64,
    /// True if nearly all requests that fell due were answered in the time of the load.
    pub kept_up: bool,
    /// 99th percentile of the generator's own delay, in the worst round.
    pub generator_late_p99_us: f64,
    /// True if that exceeds the median response time: the times then describe the generator.
    pub is_void: bool,
}

impl Point {
    pub(super) fn of(percent: u32, rounds: &[Loaded]) -> Option<Point> {
        let mut times = Histogram::new();
        rounds.iter().for_each(|round| times.merge(&round.times));
        let requests = times.count();
        let seconds: f64 = rounds.iter().map(|round| round.seconds).sum();
        if requests == 0 || seconds <= 0.0 {
            return None;
        }
        let behind = |percent: f64| requests as f64 * (100.0 - percent) / 100.0;
        let rare = |percent: f64| {
            (behind(percent) >= REQUESTS_BEHIND_MIN - 1e-6).then(|| times.percentile_us(percent))
        };
        let p99: Vec<f64> = rounds.iter().map(|round| round.times.percentile_us(99.0)).collect();
        let late = rounds.iter().map(|round| round.late_p99_us).fold(0.0, f64::max);
        let offered: f64 = rounds.iter().map(|round| round.offered).sum::<f64>();
        let offered_ops_s = offered / rounds.len() as f64;
        let achieved_ops_s = requests as f64 / seconds;
        let p50_us = times.percentile_us(50.0);
        Some(Point {
            percent,
            offered_ops_s,
            achieved_ops_s,
            requests,
            mean_us: times.mean_us(),
            p50_us,
            p99_us: times.percentile_us(99.0),
            p99_us_rounds: Spread::of(&p99),
            p99_9_us: rare(99.9),
            p99_99_us: rare(99.99),
            p99_999_us: rare(99.999),
            max_us: times.max_us(),
            kept_up: rounds.iter().all(|round| round.kept_up(KEPT_UP)),
            generator_late_p99_us: late,
            is_void: late > p50_us,
        })
    }

    /// Returns true if the point says something about the system.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.kept_up && !self.is_void
    }
}

impl SystemResult {
    pub(super) fn new(
        subject: String,
        description: String,
        (saturation, loads): (Spread, &[Vec<Loaded>]),
    ) -> SystemResult {
        let points = LOADS_PERCENT.into_iter().zip(loads);
        let points: Vec<Point> =
            points.filter_map(|(percent, rounds)| Point::of(percent, rounds)).collect();
        let knee = knee(&points);
        SystemResult { subject, description, saturation_ops_s: saturation, points, knee }
    }
}

/// Returns the valid point with the greatest ratio of rate and mean response time (Kleinrock's
/// power). Below it a greater load costs little, and above it little is gained.
fn knee(points: &[Point]) -> Option<usize> {
    let power = |at: &usize| points[*at].achieved_ops_s / points[*at].mean_us.max(1e-9);
    let valid = (0..points.len()).filter(|at| points[*at].is_valid());
    valid.max_by(|a, b| power(a).total_cmp(&power(b)))
}

impl CurveResult {
    pub(super) fn new(options: &CurveOptions, systems: Vec<SystemResult>) -> CurveResult {
        CurveResult {
            size_bytes: options.size.0,
            read_share: options.read_share,
            rounds: options.rounds,
            systems,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn loaded(us: u64, requests: u64, seconds: f64, late_p99_us: f64) -> Loaded {
        let mut times = Histogram::new();
        (0..requests).for_each(|_| times.record(Duration::from_micros(us)));
        Loaded { times, late_p99_us, due: requests, seconds, offered: requests as f64, time_s: 1.0 }
    }

    fn point(us: u64, requests: u64) -> Point {
        Point::of(50, &[loaded(us, requests, 1.0, 0.0)]).expect("requests")
    }

    #[test]
    fn the_knee_is_where_more_load_begins_to_cost_more_than_it_gains() {
        // An M/M/1 queue has its greatest power at half of its saturation.
        let of_queue = |percent: u64| point(1_000 * 100 / (100 - percent), 100 * percent);
        let points: Vec<Point> = LOADS_PERCENT.iter().map(|it| of_queue(u64::from(*it))).collect();
        assert_eq!(knee(&points).map(|at| LOADS_PERCENT[at]), Some(50));
        // A system without queueing has it at the end.
        let flat: Vec<Point> = LOADS_PERCENT.iter().map(|it| point(10, u64::from(*it))).collect();
        assert_eq!(knee(&flat).map(|at| LOADS_PERCENT[at]), Some(95));
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn rare_percentiles_need_requests_and_are_those_of_all_rounds_together() {
        let rounds = [loaded(10, 60_000, 1.0, 0.0), loaded(1_000, 50_000, 1.0, 0.0)];
        let point = Point::of(5, &rounds).expect("requests");
        assert!(point.p99_99_us.is_some() && point.p99_999_us.is_none());
        assert!((point.p99_us / 1_000.0 - 1.0).abs() < 0.01, "no average of 10 and 1,000");
        assert!(point.p99_us_rounds.min < 11.0 && point.p99_us_rounds.max > 990.0);
        assert!((point.achieved_ops_s - 55_000.0).abs() < 1.0);
    }

    #[test]
    fn a_point_is_void_if_the_generator_was_late_and_marked_if_the_system_fell_behind() {
        assert!(Point::of(5, &[loaded(10, 100, 1.0, 11.0)]).expect("requests").is_void);
        assert!(!Point::of(5, &[loaded(10, 100, 1.0, 9.0)]).expect("requests").is_void);
        let slow = Point::of(5, &[loaded(10, 100, 1.5, 0.0)]).expect("requests");
        assert!(!slow.kept_up && !slow.is_valid());
        assert!(point(10, 100).kept_up);
        assert!(Point::of(5, &[]).is_none());
    }
}
