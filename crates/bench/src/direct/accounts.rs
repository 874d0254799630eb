//! Processor time of gets with and without one more account. Both kinds of gets alternate in short
//! blocks, so that any other load of the machine meets both.

use std::sync::Arc;

use entresol_base::{Clock, SystemClock};
use entresol_cache::Cache;
use entresol_measure::BenchError;
use entresol_measure::process;
use entresol_measure::statistics::Spread;
use entresol_media::{Account, CostTable, Limit};
use fastrand::Rng;
use serde::Serialize;

use super::subjects::{AccountOnly, Accounted, CacheSubject, LoopOnly, TwiceAccounted};
use super::workloads::{Objects, PREPARED, Prepared, fill, run_block};
use super::{DirectOptions, check, objects, open_cache};

/// Gets in a block: long enough that two reads of the thread's clock are little beside them, and
/// short beside the time for which other load has the processor or its caches.
const BLOCK: usize = 16 * PREPARED;
/// Account rounds for each other round: a difference of a few nanoseconds in hundreds needs more.
const ACCOUNT_ROUNDS: usize = 3;
/// Limit of the additional account as a share of its medium; all threads' gets use less.
const ACCOUNT_SHARE: f64 = 100.0;

/// Cost of one more account on every get. Each round's figure is the median of its blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountResult {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Processor time of a get with its usual account.
    pub get_cpu_ns: Spread,
    /// Processor time of a get that is admitted and charged once more.
    pub get_twice_accounted_cpu_ns: Spread,
    /// Spread by rounds of the difference between a block of either kind and its neighbour.
    pub difference_cpu_ns: Spread,
    /// Processor time of admission and charge in a loop without a cache.
    pub account_alone_cpu_ns: Spread,
}

/// Measures the cost of an account on several threads, which share one cache and one account but
/// have handles of their own.
///
/// # Errors
/// Fails if the options cannot be measured, or an operation fails that must succeed.
pub fn account_cost_on(
    options: &DirectOptions,
    value_bytes: usize,
    threads: usize,
) -> Result<Vec<AccountResult>, BenchError> {
    on_accounted_threads(options, value_bytes, threads, |objects, shared, thread| {
        of_thread(options, objects, shared, thread)
    })
}

/// Runs `of_thread` on several threads, by their numbers, with a filled cache and one more account
/// that they share.
///
/// # Errors
/// Fails if the options cannot be measured, or if `of_thread` fails.
pub(super) fn on_accounted_threads<T: Send>(
    options: &DirectOptions,
    value_bytes: usize,
    threads: usize,
    of_thread: impl Fn(&Objects, (&Arc<Cache>, &Arc<Account>), u64) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    check(options)?;
    let objects = objects(options, value_bytes)?;
    let cache = open_cache(options, value_bytes)?;
    fill(&objects, &mut CacheSubject::new(&cache, SystemClock::new().seconds()))?;
    let account = second_account();
    let rounds = |thread| of_thread(&objects, (&cache, &account), thread);
    process::on_threads(0..threads as u64, rounds).into_iter().collect()
}

/// Creates an account whose limit is in force but never reached; its bucket is consulted like that
/// of a limited tenant.
fn second_account() -> Arc<Account> {
    let account = Account::new("second", Arc::new(CostTable::published()));
    account.set_limit(Limit::Share(ACCOUNT_SHARE));
    account
}

/// Processor times of one operation in neighbouring blocks of each kind, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    /// Gets with their usual account.
    once: f64,
    /// Gets with one more.
    twice: f64,
    /// The account alone, in the loop.
    account: f64,
    /// The loop alone.
    empty: f64,
}

/// Subjects that a thread times.
struct Subjects {
    plain: CacheSubject,
    twice: TwiceAccounted,
    alone: AccountOnly,
    bare: LoopOnly,
    prepared: Prepared,
}

impl Subjects {
    fn new(cache: &Arc<Cache>, account: &Arc<Account>, value_bytes: usize) -> Subjects {
        let now = SystemClock::new().seconds();
        let (plain, cache) = (CacheSubject::new(cache, now), CacheSubject::new(cache, now));
        let accounted = || Accounted::new(account.handle());
        let bare = || LoopOnly { value: [7; 8] };
        Subjects {
            plain,
            twice: TwiceAccounted { cache, account: accounted() },
            alone: AccountOnly { bare: bare(), account: accounted(), value_bytes },
            bare: bare(),
            prepared: Prepared::new(),
        }
    }

    /// Times a block of each kind. Those of gets have keys of their own, since the values of one
    /// are in the processor's caches afterwards; `is_plain_first` says in which order they run.
    fn time(
        &mut self,
        objects: &Objects,
        numbers: &[u32],
        is_plain_first: bool,
    ) -> Result<Blocks, BenchError> {
        let Subjects { plain, twice, alone, bare, prepared } = self;
        let (first, second) = numbers.split_at(numbers.len() / 2);
        let (once, twice) = if is_plain_first {
            let once = run_block(objects, first, prepared, plain)?;
            (once, run_block(objects, second, prepared, twice)?)
        } else {
            let twice = run_block(objects, first, prepared, twice)?;
            (run_block(objects, second, prepared, plain)?, twice)
        };
        let account = run_block(objects, first, prepared, alone)?;
        let empty = run_block(objects, second, prepared, bare)?;
        let [once, twice, account, empty] =
            [once, twice, account, empty].map(|timed| timed.cpu_ns_per_operation);
        Ok(Blocks { once, twice, account, empty })
    }
}

fn of_thread(
    options: &DirectOptions,
    objects: &Objects,
    (cache, account): (&Arc<Cache>, &Arc<Account>),
    thread: u64,
) -> Result<AccountResult, BenchError> {
    let mut subjects = Subjects::new(cache, account, objects.value_bytes);
    let mut rng = Rng::with_seed(options.seed.wrapping_add(thread));
    let both = 2 * BLOCK.min(objects.operations() / 2);
    let mut rounds = Vec::new();
    for _ in 0..options.rounds * ACCOUNT_ROUNDS {
        let pairs = objects.uniform().chunks_exact(both);
        let blocks = pairs.map(|numbers| subjects.time(objects, numbers, rng.bool()));
        rounds.push(blocks.collect::<Result<Vec<Blocks>, _>>()?);
    }
    Ok(summary(objects.value_bytes, &rounds))
}

/// Returns the spread of the rounds, each by the median of its blocks: one that something
/// interrupts does not count.
fn summary(value_bytes: usize, rounds: &[Vec<Blocks>]) -> AccountResult {
    let median = |round: &Vec<Blocks>, of: fn(&Blocks) -> f64| {
        Spread::of(&round.iter().map(of).collect::<Vec<f64>>()).median
    };
    let all = |of: fn(&Blocks) -> f64| {
        Spread::of(&rounds.iter().map(|round| median(round, of)).collect::<Vec<f64>>())
    };
    AccountResult {
        value_bytes,
        get_cpu_ns: all(|it| it.once - it.empty),
        get_twice_accounted_cpu_ns: all(|it| it.twice - it.empty),
        difference_cpu_ns: all(|it| it.twice - it.once),
        account_alone_cpu_ns: all(|it| it.account - it.empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Blocks = Blocks { once: 110.0, twice: 115.0, account: 8.0, empty: 3.0 };

    #[test]
    fn a_disturbed_block_moves_no_figure_of_its_round() {
        // Other load takes the caches for less than half of a round, and meets one kind only.
        let disturbed = Blocks { twice: 400.0, ..QUIET };
        let round = [[QUIET; 25].as_slice(), [disturbed; 24].as_slice()].concat();
        let quiet = summary(64, &[vec![QUIET; 49], vec![QUIET; 49]]);
        assert_eq!(summary(64, &[round.clone(), round]), quiet);
        assert_eq!(quiet.difference_cpu_ns, Spread { median: 5.0, min: 5.0, max: 5.0 });
        assert_eq!((quiet.get_cpu_ns.median, quiet.account_alone_cpu_ns.median), (107.0, 5.0));
    }

    #[test]
    fn load_that_slows_neighbours_alike_moves_no_difference() {
        let slowed = |by| Blocks { once: 110.0 + by, twice: 115.0 + by, ..QUIET };
        let round: Vec<Blocks> = (0..49).map(|at| slowed(f64::from(at) * 3.0)).collect();
        assert_eq!(summary(64, &[round]).difference_cpu_ns.median, 5.0);
    }

    #[test]
    fn every_thread_has_a_result_and_few_gets_are_enough() {
        for operations in [1000, 5 * BLOCK as u32] {
            let usual = DirectOptions { count: 1000, rounds: 1, ..DirectOptions::default() };
            let options = DirectOptions { operations, huge_pages: false, ..usual };
            let found = account_cost_on(&options, 64, 2).expect("a result");
            assert_eq!(found.len(), 2);
            assert!(found.iter().all(|it| it.get_cpu_ns.median > 0.0), "{found:?}");
        }
    }
}
