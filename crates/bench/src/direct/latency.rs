//! Latencies of gets with and without one more account, as distributions. Both kinds of gets
//! alternate in short blocks of one run, so that any other load of the machine meets both.

use std::hint::black_box;
use std::sync::Arc;

use entresol_base::{Clock, Nanos, SystemClock};
use entresol_cache::Cache;
use entresol_measure::BenchError;
use entresol_measure::statistics::Spread;
use entresol_media::Account;
use fastrand::Rng;

use super::DirectOptions;
use super::accounts::on_accounted_threads;
use super::subjects::{Accounted, CacheSubject, Subject, TwiceAccounted};
use super::workloads::{Objects, PREPARED, Prepared};

/// Pairs of blocks in a round, of [`PREPARED`] gets each: 2048 gets of either kind, so that about
/// twenty are beyond the 99th percentile.
const PAIRS_OF_ROUND: usize = 32;
/// Nanoseconds that count as equal. Clocks of virtual machines count in such steps, a twentieth of
/// a get; within a step a percentile lies by its rank.
const STEP_NS: u32 = 10;
/// Clock reads whose median is the time that a clock read adds to a latency.
const CLOCK_READS: usize = 10_000;

/// Percentiles of the latencies of one round, in nanoseconds without the clock's own time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Percentiles {
    p50_ns: f64,
    p99_ns: f64,
}

/// Latencies of gets with their usual account and with one more.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountLatency {
    /// Median latency of a get with its usual account, by round.
    pub get_p50_ns: Spread,
    /// 99th percentile of the same, by round.
    pub get_p99_ns: Spread,
    /// Ratio of the median latency with an account to that without one, by round.
    pub p50_ratio: Spread,
    /// Ratio of the 99th percentiles, likewise, by round.
    pub p99_ratio: Spread,
    /// Rounds of all threads together.
    pub rounds: usize,
}

/// Measures the latencies of gets with one more account and without it, on several threads that
/// share one cache and one account.
///
/// # Errors
/// Fails if the options cannot be measured, or an operation fails that must succeed.
pub fn account_latency_on(
    options: &DirectOptions,
    value_bytes: usize,
    threads: usize,
) -> Result<AccountLatency, BenchError> {
    let all = on_accounted_threads(options, value_bytes, threads, |objects, shared, thread| {
        of_thread(options, objects, shared, thread)
    })?;
    Ok(summary(&all.concat()))
}

/// Measures the rounds of one thread: the usual gets, and those with one more account.
fn of_thread(
    options: &DirectOptions,
    objects: &Objects,
    (cache, account): (&Arc<Cache>, &Arc<Account>),
    thread: u64,
) -> Result<Vec<[Percentiles; 2]>, BenchError> {
    let clock = SystemClock::new();
    let mut plain = CacheSubject::new(cache, clock.seconds());
    let cache = CacheSubject::new(cache, clock.seconds());
    let mut twice = TwiceAccounted { cache, account: Accounted::new(account.handle()) };
    let mut rng = Rng::with_seed(options.seed.wrapping_add(thread));
    let clock_ns = clock_ns(&clock);
    let (mut prepared, mut rounds) = (Prepared::new(), Vec::new());
    for _ in 0..options.rounds {
        let pairs: Vec<&[u32]> = objects.uniform().chunks_exact(2 * PREPARED).collect();
        for pairs in pairs.chunks_exact(PAIRS_OF_ROUND) {
            let mut times = [Vec::new(), Vec::new()];
            for pair in pairs {
                let (first, second) = pair.split_at(PREPARED);
                let [once, more] = &mut times;
                if rng.bool() {
                    block(&clock, &mut prepared, (objects, first), &mut plain, once)?;
                    block(&clock, &mut prepared, (objects, second), &mut twice, more)?;
                } else {
                    block(&clock, &mut prepared, (objects, first), &mut twice, more)?;
                    block(&clock, &mut prepared, (objects, second), &mut plain, once)?;
                }
            }
            rounds.push(times.map(|times| percentiles(times, clock_ns)));
        }
    }
    Ok(rounds)
}

/// Times each get of a block by itself.
fn block<S: Subject>(
    clock: &SystemClock,
    prepared: &mut Prepared,
    (objects, numbers): (&Objects, &[u32]),
    subject: &mut S,
    times_ns: &mut Vec<u32>,
) -> Result<(), BenchError> {
    prepared.keys(objects, numbers);
    let (mut out, mut found) = (Vec::with_capacity(objects.value_bytes), 0);
    let mut took = [0; PREPARED];
    for (key, took) in prepared.each_key(objects).zip(&mut took) {
        out.clear();
        let began = clock.now();
        found += usize::from(subject.get(key, &mut out));
        *took = since_ns(clock, began);
        black_box(&out);
    }
    if found != numbers.len() {
        let missing = numbers.len() - found;
        return Err(BenchError::Cache(format!("{missing} of {} gets failed", numbers.len())));
    }
    times_ns.extend(took);
    Ok(())
}

fn since_ns(clock: &SystemClock, began: Nanos) -> u32 {
    u32::try_from(clock.now().since(began).as_nanos()).unwrap_or(u32::MAX)
}

/// Returns the median time between two reads of the clock with nothing between them.
fn clock_ns(clock: &SystemClock) -> f64 {
    let times = (0..CLOCK_READS).map(|_| since_ns(clock, clock.now())).collect();
    percentiles(times, 0.0).p50_ns
}

fn percentiles(times_ns: Vec<u32>, clock_ns: f64) -> Percentiles {
    let mut steps: Vec<u32> = times_ns.into_iter().map(|ns| ns / STEP_NS).collect();
    steps.sort_unstable();
    let at = |share| (at(&steps, share) - clock_ns).max(1.0);
    Percentiles { p50_ns: at(0.5), p99_ns: at(0.99) }
}

/// Returns the time that this share of the sorted steps does not exceed, in nanoseconds. Times of
/// one step are taken as spread evenly over it.
fn at(steps: &[u32], share: f64) -> f64 {
    let rank = ((steps.len() as f64 * share) as usize).min(steps.len().saturating_sub(1));
    let Some(&step) = steps.get(rank) else { return 0.0 };
    let first = steps.partition_point(|it| *it < step);
    let after = steps.partition_point(|it| *it <= step);
    let within = (rank - first) as f64 / (after - first) as f64;
    f64::from(STEP_NS) * (f64::from(step) + within)
}

/// Returns the medians over all rounds. A get has one account: what a second one adds is taken off
/// it, which gives the get without any.
fn summary(rounds: &[[Percentiles; 2]]) -> AccountLatency {
    let all = |of: &dyn Fn(&[Percentiles; 2]) -> f64| {
        Spread::of(&rounds.iter().map(of).collect::<Vec<_>>())
    };
    let ratio = |of: fn(&Percentiles) -> f64| {
        all(&|[once, more]| {
            let (once, more) = (of(once), of(more));
            once / (2.0 * once - more).max(f64::MIN_POSITIVE)
        })
    };
    AccountLatency {
        get_p50_ns: all(&|[once, _]| once.p50_ns),
        get_p99_ns: all(&|[once, _]| once.p99_ns),
        p50_ratio: ratio(|round| round.p50_ns),
        p99_ratio: ratio(|round| round.p99_ns),
        rounds: rounds.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{objects, open_cache};
    use super::*;

    fn round(once: [f64; 2], more: [f64; 2]) -> [Percentiles; 2] {
        [once, more].map(|[p50_ns, p99_ns]| Percentiles { p50_ns, p99_ns })
    }

    #[test]
    fn what_a_second_account_adds_is_what_the_first_has_added() {
        // 100 ns without an account, 110 with one, 120 with two; the tail has no part of it.
        let one = round([110.0, 500.0], [120.0, 500.0]);
        let found = summary(&[one]);
        assert!((found.p50_ratio.median - 1.1).abs() < 1e-9, "{found:?}");
        assert!((found.p99_ratio.median - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_percentile_within_a_step_of_the_clock_lies_by_its_rank() {
        // Half of the times are of the step from 200 ns, and the median is its first.
        let times = |of_200: usize| {
            let mut times = vec![100; 1000 - of_200];
            times.extend(vec![200; of_200]);
            percentiles(times, 0.0).p50_ns
        };
        assert_eq!(times(500), 200.0);
        assert!((times(1000) - 205.0).abs() < 1e-9 && (times(750) - 203.33).abs() < 0.01);
        let all = percentiles((0..1000).collect(), 20.0);
        assert!((all.p50_ns - 480.0).abs() < 1e-9 && (all.p99_ns - 970.0).abs() < 1e-9);
    }

    #[test]
    fn a_disturbed_round_moves_no_median() {
        let usual = round([110.0, 500.0], [112.0, 505.0]);
        let disturbed = round([110.0, 500.0], [190.0, 90_000.0]);
        let quiet = summary(&[usual; 9]);
        let noisy = summary(&[[usual; 8].as_slice(), [disturbed; 4].as_slice()].concat());
        assert_eq!(noisy.p50_ratio.median, quiet.p50_ratio.median);
        assert_eq!(noisy.p99_ratio.median, quiet.p99_ratio.median);
        assert!(noisy.p50_ratio.max > quiet.p50_ratio.max);
    }

    #[test]
    fn every_thread_measures_all_rounds() {
        let gets_of_round = 2 * PREPARED * PAIRS_OF_ROUND;
        let options = DirectOptions {
            count: 1000,
            operations: 3 * gets_of_round as u32 + 1,
            rounds: 2,
            huge_pages: false,
            ..DirectOptions::default()
        };
        let found = account_latency_on(&options, 64, 2).expect("a result");
        assert_eq!(found.rounds, 2 * 2 * 3);
        assert!(found.get_p50_ns.median > 0.0 && found.get_p50_ns.max <= found.get_p99_ns.max);
    }

    #[test]
    fn a_get_that_finds_nothing_is_an_error() {
        let options = DirectOptions { count: 1000, ..DirectOptions::default() };
        let objects = objects(&options, 64).expect("objects");
        let cache = open_cache(&options, 64).expect("a cache");
        let clock = SystemClock::new();
        let mut empty = CacheSubject::new(&cache, clock.seconds());
        let (mut prepared, mut times) = (Prepared::new(), Vec::new());
        let of = (&objects, &objects.uniform()[..PREPARED]);
        let error = block(&clock, &mut prepared, of, &mut empty, &mut times).expect_err("misses");
        assert!(error.to_string().contains("64 of 64 gets failed"), "{error}");
        assert!(times.is_empty());
    }
}
