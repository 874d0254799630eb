//! Measurement of direct calls of the cache, beside a plain map of boxed values in the same run.

mod accounts;
mod counted;
pub mod lab;
mod latency;
mod memory;
mod modelled;
mod report;
mod subjects;
mod workloads;

use std::sync::Arc;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_cache::{Cache, Config};
use entresol_measure::BenchError;
use entresol_measure::process::{self, resident};
use entresol_measure::progress::Progress;
use entresol_measure::statistics::Spread;
use entresol_measure::values::KeyMaker;
use fastrand::Rng;
use serde::Serialize;

use subjects::{BoxedMap, CacheSubject, LockedMap, LoopOnly, Subject};
use workloads::{Objects, Timed, fill, run};

pub use accounts::{AccountResult, account_cost_on};
pub use counted::{CountedOperation, run_counted};
pub use latency::{AccountLatency, account_latency_on};
pub use memory::MemoryAtQuota;
pub use modelled::{ModelledLoop, ModelledOptions, ModelledResult, modelled_steps, run_modelled};
pub use workloads::Workload;

/// Value sizes for which the cost of accounts is measured.
const ACCOUNT_VALUE_BYTES: [usize; 2] = [64, 256];

/// Options of a run.
#[derive(Debug, Clone)]
pub struct DirectOptions {
    /// Number of objects.
    pub count: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations of a timed loop.
    pub operations: u32,
    /// Number of runs of every loop.
    pub rounds: usize,
    /// Largest number of threads of the mixed loop.
    pub threads: usize,
    /// True if the cache requests huge pages; the map uses the memory of the allocator.
    pub huge_pages: bool,
    /// Seed of keys and orders.
    pub seed: u64,
}

impl Default for DirectOptions {
    fn default() -> Self {
        DirectOptions {
            count: 1_000_000,
            key_bytes: 16,
            value_bytes: 100,
            operations: 1_000_000,
            rounds: 5,
            threads: 2,
            huge_pages: true,
            seed: 1,
        }
    }
}

/// Result of one loop for both subjects.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadResult {
    /// Loop of the result.
    pub workload: Workload,
    /// Processor time of one operation of the cache.
    pub cache_cpu_ns: Spread,
    /// Processor time of one operation of the map.
    pub map_cpu_ns: Spread,
    /// Median of the cache divided by the median of the map.
    pub ratio: f64,
}

/// Result of the mixed loop on several threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadsResult {
    /// Number of threads.
    pub threads: usize,
    /// Operations of the cache per second, all threads together, by wall time.
    pub cache_ops_s: Spread,
    /// Processor time of one operation of the cache.
    pub cache_cpu_ns: Spread,
    /// Operations per second of the map behind one lock.
    pub map_ops_s: Spread,
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DirectResult {
    /// Number of objects.
    pub objects: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Number of runs of every loop.
    pub rounds: usize,
    /// True if the cache requested huge pages.
    pub huge_pages: bool,
    /// Processor time of the first store of an object in the cache.
    pub cache_fill_cpu_ns: f64,
    /// Processor time of the first store of an object in the map.
    pub map_fill_cpu_ns: f64,
    /// Processor time of the measuring loop, which is subtracted from every figure.
    pub loop_cpu_ns: f64,
    /// Growth of resident memory for each object of the map.
    pub map_resident_bytes_per_object: f64,
    /// Memory of the cache at its quota; `None` if so few objects do not fill the smallest cache.
    pub memory: Option<MemoryAtQuota>,
    /// Results of one thread.
    pub workloads: Vec<WorkloadResult>,
    /// Results of half gets and half sets on several threads.
    pub mixed: Vec<ThreadsResult>,
    /// Cost of accounts.
    pub accounts: Vec<AccountResult>,
}

/// Runs all measurements, or as many as fit until an end is requested.
///
/// # Errors
/// Fails if an end is requested before the first round of the first loop is done, the cache cannot
/// be opened, or an operation fails that must succeed.
pub fn run_direct(
    options: &DirectOptions,
    progress: &Progress,
) -> Result<DirectResult, BenchError> {
    check(options)?;
    progress.say("memory at the quota");
    // Memory comes first, while no other data of this process can hide its growth.
    let memory = memory::measure(options, progress)?;
    progress.advance(1);
    let objects = objects(options, options.value_bytes)?;
    let cache = open_cache(options, options.value_bytes)?;
    let clock = SystemClock::new();
    let mut ours = CacheSubject::new(&cache, clock.seconds());
    progress.say("filling");
    let cache_fill_cpu_ns = fill(&objects, &mut ours)?.cpu_ns_per_operation;
    let resident_before = resident()?.all_bytes;
    let mut map = BoxedMap::default();
    let map_fill_cpu_ns = fill(&objects, &mut map)?.cpu_ns_per_operation;
    let map_bytes = resident()?.all_bytes.saturating_sub(resident_before);
    let (workloads, loop_cpu_ns) = single(options, &objects, &mut ours, &mut map, progress)?;
    drop(map);
    let mixed = mixed(options, &objects, &cache, progress)?;
    drop((ours, cache));
    let mut accounts = Vec::new();
    for value_bytes in ACCOUNT_VALUE_BYTES {
        if progress.is_stopped() {
            break;
        }
        progress.say(&format!("accounts, {value_bytes} B"));
        accounts.extend(account_cost_on(options, value_bytes, 1)?);
        progress.advance(1);
    }
    Ok(DirectResult {
        objects: options.count,
        key_bytes: options.key_bytes,
        value_bytes: options.value_bytes,
        rounds: options.rounds,
        huge_pages: options.huge_pages,
        cache_fill_cpu_ns,
        map_fill_cpu_ns,
        loop_cpu_ns,
        map_resident_bytes_per_object: map_bytes as f64 / f64::from(options.count),
        memory,
        workloads,
        mixed,
        accounts,
    })
}

/// Returns the number of steps that [`run_direct`] reports.
#[must_use]
pub fn direct_steps(options: &DirectOptions) -> u64 {
    (1 + Workload::SINGLE.len() * options.rounds + options.threads + ACCOUNT_VALUE_BYTES.len())
        as u64
}

fn check(options: &DirectOptions) -> Result<(), BenchError> {
    let problem = if options.count == 0 || options.operations < 1000 {
        "--keys must be at least 1, --operations at least 1000"
    } else if options.value_bytes < 8 {
        "--value-size must be at least 8: a dependent get draws its key from the value"
    } else if options.rounds == 0 || options.threads == 0 {
        "--rounds and --threads must be at least 1"
    } else {
        return Ok(());
    };
    Err(BenchError::Usage(problem.to_owned()))
}

fn objects(options: &DirectOptions, value_bytes: usize) -> Result<Objects, BenchError> {
    let keys = KeyMaker::new(options.key_bytes, u64::from(options.count)).ok_or_else(|| {
        let problem = format!("keys of {} bytes: too short or too long", options.key_bytes);
        BenchError::Usage(problem)
    })?;
    let operations = options.operations as usize;
    Ok(Objects::new(keys, options.count, value_bytes, operations, options.seed))
}

/// Opens a cache with room for all objects and for overwriting them.
fn open_cache(options: &DirectOptions, value_bytes: usize) -> Result<Arc<Cache>, BenchError> {
    let object_bytes = (options.key_bytes + value_bytes + 32) as u64;
    let dram = ByteSize(u64::from(options.count) * object_bytes * 3 / 2 + (64 << 20));
    let config = Config {
        huge_pages: options.huge_pages,
        workers: options.threads,
        seed: Some(options.seed),
        ..Config::dram(dram)
    };
    Cache::open(config, Arc::new(SystemClock::new())).map_err(cache_error)
}

fn cache_error(error: impl std::fmt::Display) -> BenchError {
    BenchError::Cache(error.to_string())
}

/// Runs all loops of one thread, with cache and map in random order within each round.
fn single(
    options: &DirectOptions,
    objects: &Objects,
    ours: &mut CacheSubject,
    map: &mut BoxedMap,
    progress: &Progress,
) -> Result<(Vec<WorkloadResult>, f64), BenchError> {
    let mut rng = Rng::with_seed(options.seed);
    let mut bare = LoopOnly { value: [7; 8] };
    let mut results = Vec::new();
    let mut loops = Vec::new();
    for workload in Workload::SINGLE {
        progress.say(workload.label());
        let (mut cache_ns, mut map_ns) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            if progress.is_stopped() {
                break;
            }
            let empty = run(workload, objects, &mut bare)?.cpu_ns_per_operation;
            let net = |timed: Timed| (timed.cpu_ns_per_operation - empty).max(0.0);
            if rng.bool() {
                cache_ns.push(net(run(workload, objects, ours)?));
                map_ns.push(net(run(workload, objects, map)?));
            } else {
                map_ns.push(net(run(workload, objects, map)?));
                cache_ns.push(net(run(workload, objects, ours)?));
            }
            loops.push(empty);
            progress.advance(1);
        }
        if cache_ns.is_empty() {
            break;
        }
        let (cache_cpu_ns, map_cpu_ns) = (Spread::of(&cache_ns), Spread::of(&map_ns));
        let ratio = cache_cpu_ns.median / map_cpu_ns.median.max(f64::MIN_POSITIVE);
        results.push(WorkloadResult { workload, cache_cpu_ns, map_cpu_ns, ratio });
    }
    if results.is_empty() {
        return Err(BenchError::Interrupted { has_results: false });
    }
    Ok((results, Spread::of(&loops).median))
}

fn mixed(
    options: &DirectOptions,
    objects: &Objects,
    cache: &Arc<Cache>,
    progress: &Progress,
) -> Result<Vec<ThreadsResult>, BenchError> {
    let clock = SystemClock::new();
    let locked = LockedMap::default();
    fill(objects, &mut locked.clone())?;
    let mut results = Vec::new();
    for threads in 1..=options.threads {
        progress.say(&format!("half gets, half sets, {threads} threads"));
        let (mut cache_ops, mut cache_ns, mut map_ops) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            if progress.is_stopped() {
                break;
            }
            let subjects = (0..threads).map(|_| CacheSubject::new(cache, clock.seconds()));
            let (ops, ns) = on_threads(objects, subjects.collect(), &clock)?;
            cache_ops.push(ops);
            cache_ns.push(ns);
            map_ops.push(on_threads(objects, vec![locked.clone(); threads], &clock)?.0);
        }
        if cache_ops.is_empty() {
            break;
        }
        results.push(ThreadsResult {
            threads,
            cache_ops_s: Spread::of(&cache_ops),
            cache_cpu_ns: Spread::of(&cache_ns),
            map_ops_s: Spread::of(&map_ops),
        });
        progress.advance(1);
    }
    Ok(results)
}

/// Runs the mixed loop on each subject in a thread of its own. Returns the operations per second of
/// all of them and the processor time of one operation.
fn on_threads<S: Subject + Send>(
    objects: &Objects,
    subjects: Vec<S>,
    clock: &SystemClock,
) -> Result<(f64, f64), BenchError> {
    let threads = subjects.len();
    let began = clock.now();
    let work = |mut subject: S| run(Workload::Mixed, objects, &mut subject);
    let timed: Result<Vec<Timed>, BenchError> =
        process::on_threads(subjects, work).into_iter().collect();
    let passed = clock.now().since(began).as_secs_f64();
    let cpu: Vec<f64> = timed?.iter().map(|timed| timed.cpu_ns_per_operation).collect();
    let operations = (objects.operations() * threads) as f64;
    Ok((operations / passed.max(1e-9), cpu.iter().sum::<f64>() / cpu.len().max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_measures_everything() {
        let options = DirectOptions {
            count: 100_000,
            operations: 50_000,
            rounds: 1,
            huge_pages: false,
            ..DirectOptions::default()
        };
        let result = run_direct(&options, &Progress::hidden()).unwrap();
        assert_eq!(result.workloads.len(), Workload::SINGLE.len());
        assert!(result.workloads.iter().all(|found| found.map_cpu_ns.median > 0.0));
        assert_eq!(result.mixed.len(), 2);
        let memory = result.memory.as_ref().expect("100,000 objects fill a cache");
        assert_eq!(memory.refused_while_free, 0);
        assert!(memory.items_at_first_eviction > 10_000, "{memory:?}");
        let tables = result.tables();
        assert!(tables.iter().any(|table| table.to_string().contains("set, overwriting")));
    }

    #[test]
    fn few_objects_are_measured_as_well() {
        for count in [1, 2, 1000, 60_000] {
            let (operations, rounds, huge_pages) = (1000, 1, false);
            let usual = DirectOptions::default();
            let options = DirectOptions { count, operations, rounds, huge_pages, ..usual };
            let result = run_direct(&options, &Progress::hidden()).expect("a result");
            assert_eq!(result.workloads.len(), Workload::SINGLE.len());
            match &result.memory {
                None => assert!(count <= 2, "a cache can be small enough for {count} objects"),
                Some(memory) => {
                    assert!(count > 2, "{count} objects fill no cache");
                    assert_eq!(memory.refused_while_free, 0, "{memory:?}");
                    let expected = u64::from(count) / 2..=u64::from(count) * 3 / 2;
                    assert!(expected.contains(&memory.items_at_first_eviction), "{memory:?}");
                }
            }
            assert!(result.tables()[1].to_string().contains("boxed map, resident growth"));
        }
    }

    #[test]
    fn an_end_before_there_is_anything_is_told() {
        let progress = Progress::hidden();
        progress.stop().ask();
        let options = DirectOptions { count: 100, operations: 1000, ..DirectOptions::default() };
        let error = run_direct(&options, &progress).expect_err("nothing was measured");
        assert!(matches!(error, BenchError::Interrupted { has_results: false }), "{error}");
    }

    #[test]
    fn options_that_cannot_be_measured_are_refused() {
        let short = DirectOptions { value_bytes: 4, ..DirectOptions::default() };
        let error = run_direct(&short, &Progress::hidden()).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("--value-size"));
    }
}
