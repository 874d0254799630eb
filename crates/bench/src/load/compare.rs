//! Comparison of two servers under the same load, in interleaved pairs: the disturbances of a noisy
//! machine cancel.

use entresol_base::SystemClock;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::statistics::{PairedRatio, Spread, paired_ratio};
use fastrand::Rng;
use serde::Serialize;

use super::{Address, LoadOptions, LoadResult, measure, preload};

/// Options of a comparison.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Load, with the first server as its target.
    pub load: LoadOptions,
    /// Second server. If it is the first one again, the comparison tests the method (A/A).
    pub against: Address,
    /// Process of the second server, if it cannot be found by its address.
    pub against_pid: Option<u32>,
    /// Number of pairs.
    pub pairs: usize,
}

/// One side of a comparison over all pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Server of this side.
    pub server: String,
    /// Requests answered per second.
    pub throughput_ops_s: Spread,
    /// MB (10^6 bytes) of values stored and found per second.
    pub value_mb_s: Spread,
    /// Processor time of the server for each request.
    pub server_cpu_us_per_request: Option<Spread>,
    /// Processor time of the server for each GB (10^9 bytes) of values stored and found.
    pub server_cpu_s_per_gb: Option<Spread>,
    /// Median response time of each run.
    pub p50_us: Spread,
    /// 99th percentile of the response times of each run.
    pub p99_us: Spread,
    /// Share of gets that found a value, in the lowest run.
    pub hit_ratio_min: f64,
    /// Processor time of the generator for each request.
    pub client_cpu_us_per_request: Spread,
    /// Complete result of the run whose throughput is nearest to the median.
    pub typical: LoadResult,
}

/// Comparison of two servers under the same load. Ratios are the first server to the second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Results of the first server.
    pub first: Side,
    /// Results of the second server.
    pub second: Side,
    /// Ratio of processor time per request.
    pub cpu_ratio: Option<PairedRatio>,
    /// Ratio of throughput.
    pub throughput_ratio: Option<PairedRatio>,
    /// Ratio of the 99th percentiles of response time; only in an open loop, where the offered
    /// loads are equal.
    pub p99_ratio: Option<PairedRatio>,
    /// Pairs whose response times are excluded because a generator was too late (open loop).
    pub pairs_void: usize,
}

/// Measures both servers `pairs` times, in random order within each pair.
///
/// # Errors
/// Fails like [`super::run_load`], for either server.
pub fn compare(options: &CompareOptions, progress: &Progress) -> Result<Comparison, BenchError> {
    let first = &options.load;
    first.check()?;
    if options.pairs == 0 {
        return Err(BenchError::Usage("--pairs must be at least 1".to_owned()));
    }
    let second = LoadOptions {
        address: options.against.clone(),
        server_pid: options.against_pid,
        ..first.clone()
    };
    let clock = SystemClock::new();
    if first.preload {
        progress.say("storing every key once");
        preload(first, &clock, progress.stop())?;
        if second.address != first.address {
            preload(&second, &clock, progress.stop())?;
        }
    }
    let mut rng = Rng::with_seed(first.seed);
    let mut runs = Vec::with_capacity(options.pairs);
    for pair in 0..options.pairs {
        progress.say(&format!("pair {} of {}", pair + 1, options.pairs));
        let seed = first.seed.wrapping_add(pair as u64);
        let run =
            |side: &LoadOptions| measure(&LoadOptions { seed, ..side.clone() }, &clock, progress);
        let pair = if rng.bool() {
            run(first).and_then(|a| Ok((a, run(&second)?)))
        } else {
            run(&second).and_then(|b| Ok((run(first)?, b)))
        };
        // An interrupted pair compares nothing.
        match pair {
            _ if progress.is_stopped() => break,
            pair => runs.push(pair?),
        }
    }
    if runs.is_empty() {
        return Err(BenchError::Interrupted { has_results: false });
    }
    Ok(evaluate(&runs, first.seed))
}

/// Computes the ratios. Response times of pairs with a late generator are excluded; the processor
/// time of the server for each request is not affected.
fn evaluate(runs: &[(LoadResult, LoadResult)], seed: u64) -> Comparison {
    let in_time = |(a, b): &&(LoadResult, LoadResult)| {
        a.r#loop == "open" && !a.generator_too_late && !b.generator_too_late
    };
    let ratio = |figure: &dyn Fn(&LoadResult) -> Option<f64>| {
        let pairs: Option<Vec<(f64, f64)>> =
            runs.iter().map(|(a, b)| Some((figure(a)?, figure(b)?))).collect();
        paired_ratio(&pairs?, seed)
    };
    let response: Vec<(f64, f64)> =
        runs.iter().filter(in_time).map(|(a, b)| (a.latency.p99_us, b.latency.p99_us)).collect();
    let late = |(a, b): &&(LoadResult, LoadResult)| a.generator_too_late || b.generator_too_late;
    Comparison {
        cpu_ratio: ratio(&|run| run.server_cpu_us_per_request),
        throughput_ratio: ratio(&|run| Some(run.throughput_ops_s)),
        p99_ratio: paired_ratio(&response, seed),
        pairs_void: runs.iter().filter(late).count(),
        first: side(runs.iter().map(|(a, _)| a)),
        second: side(runs.iter().map(|(_, b)| b)),
    }
}

fn side<'a>(runs: impl Iterator<Item = &'a LoadResult>) -> Side {
    let runs: Vec<&LoadResult> = runs.collect();
    let spread = |figure: &dyn Fn(&LoadResult) -> f64| {
        Spread::of(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>())
    };
    let cpu: Option<Vec<f64>> = runs.iter().map(|run| run.server_cpu_us_per_request).collect();
    let cpu_of_bytes: Option<Vec<f64>> = runs.iter().map(|run| run.server_cpu_s_per_gb).collect();
    let throughput_ops_s = spread(&|run| run.throughput_ops_s);
    let distance = |run: &LoadResult| (run.throughput_ops_s - throughput_ops_s.median).abs();
    let mut typical = runs[0];
    for run in &runs {
        if distance(run) < distance(typical) {
            typical = run;
        }
    }
    Side {
        server: typical.server.clone(),
        throughput_ops_s,
        value_mb_s: spread(&|run| run.value_bytes_s / 1e6),
        server_cpu_us_per_request: cpu.map(|cpu| Spread::of(&cpu)),
        server_cpu_s_per_gb: cpu_of_bytes.map(|cpu| Spread::of(&cpu)),
        p50_us: spread(&|run| run.latency.p50_us),
        p99_us: spread(&|run| run.latency.p99_us),
        hit_ratio_min: runs.iter().map(|run| run.hit_ratio).fold(1.0, f64::min),
        client_cpu_us_per_request: spread(&|run| run.client_cpu_us_per_request),
        typical: typical.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_base::Nanos;

    fn run(cpu_us: f64, too_late: bool) -> LoadResult {
        let address: Address = "127.0.0.1:1".parse().unwrap();
        let options = LoadOptions { rate_ops_s: Some(1.0), ..LoadOptions::new(address) };
        let tally = super::super::Tally::default();
        let mut result = LoadResult::new(&options, &tally, Nanos(0), Some(0));
        result.server_cpu_us_per_request = Some(cpu_us);
        result.latency.p99_us = 100.0 * cpu_us;
        result.throughput_ops_s = 1.0;
        result.generator_too_late = too_late;
        result
    }

    #[test]
    fn response_times_of_late_generators_are_put_aside_and_counted() {
        let runs = vec![(run(1.0, false), run(2.0, false)), (run(9.0, true), run(2.0, false))];
        let compared = evaluate(&runs, 1);
        assert_eq!(compared.pairs_void, 1);
        let p99 = compared.p99_ratio.unwrap();
        assert!((p99.ratio - 0.5).abs() < 1e-9 && p99.pairs == 1, "{p99:?}");
        assert_eq!(compared.cpu_ratio.unwrap().pairs, 2);
        let all_late = evaluate(&[(run(1.0, true), run(2.0, true))], 1);
        assert_eq!((all_late.pairs_void, all_late.p99_ratio), (1, None));
    }
}
