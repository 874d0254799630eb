//! Indexes on a model of memory, in virtual time: every flush, fence and unit is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use entresol_base::clock::Picos;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_index::{Pool, PoolOptions};
use entresol_media::model::memory::{MediumCounts, Parameters, SimulatedMemory};
use entresol_media::observe::Step;
use entresol_media::{Counters, Counts, ModelName, Observed, Observer};

use super::rounds::{Modelled, Round, results};
use super::subjects::{AnyIndex, Subject, failed, hit_ratio};
use super::work::{Worker, Workload};
use super::{IndexName, IndexOptions, IndexResult, PerOperation, Shape, region_bytes};
use crate::error::BenchError;
use crate::progress::Progress;

/// The processor's own work for an operation, whatever the index: an assumption, the same for all.
pub const CPU_PER_OPERATION: Picos = Picos(50_000);

/// The device under the index, which takes time only while something is measured.
struct Device {
    is_timed: AtomicBool,
    memory: SimulatedMemory,
}

impl Observer for Device {
    fn wait(&self, step: &Step) {
        if self.is_timed.load(Relaxed) {
            self.memory.wait(step);
        }
    }
}

/// Measures one index.
pub(super) fn run(
    options: &IndexOptions,
    name: IndexName,
    model: ModelName,
    progress: &Progress,
) -> Result<IndexResult, BenchError> {
    let parameters = Parameters::of(model).ok_or_else(|| {
        BenchError::Usage(format!("model:{model} is no model of memory in this version"))
    })?;
    let mut rounds = vec![Vec::new(); options.workloads.len()];
    let mut shape = Shape::default();
    for round in 0..options.rounds as u64 {
        let seed = options.seed.wrapping_add(round);
        let world = World::new(WorldOptions::seeded(seed));
        let (options, progress, within) = (options.clone(), progress.clone(), world.clone());
        let ran =
            world.run(move || one_round(&within, &options, name, parameters, seed, &progress));
        let (found, of_workloads) =
            ran.map_err(|failure| BenchError::Failed(failure.to_string()))??;
        shape = found;
        for (rounds, found) in rounds.iter_mut().zip(of_workloads) {
            rounds.push(found);
        }
    }
    let workloads = results(options, rounds);
    Ok(IndexResult { index: name, load_ns: None, shape, workloads })
}

fn one_round(
    world: &World,
    options: &IndexOptions,
    name: IndexName,
    parameters: Parameters,
    seed: u64,
    progress: &Progress,
) -> Result<(Shape, Vec<Round>), BenchError> {
    progress.say(&format!("{name}: loading"));
    let device = Arc::new(Device {
        is_timed: AtomicBool::new(false),
        memory: SimulatedMemory::new(world, parameters),
    });
    let counters = Arc::new(Counters::default());
    let observers = (Arc::clone(&device), Arc::clone(&counters));
    let region = Observed::new(region_bytes(options), observers);
    let region = Arc::new(region.map_err(|error| BenchError::Failed(error.to_string()))?);
    let pool = Arc::new(Pool::create(region, PoolOptions::default()).map_err(failed)?);
    let subject = Subject::open(name, options, &pool, Some(world))?;
    let index = &subject.index;
    let of = options.threads as u64;
    let mut workers: Vec<Worker> = (0..of).map(|part| Worker::new(seed, (part, of))).collect();
    for worker in &mut workers {
        for _ in 0..worker.share(options.keys) {
            worker.step(Workload::Insert, &**index)?;
        }
    }
    progress.advance(1);
    let mut rounds = Vec::new();
    for &workload in &options.workloads {
        progress.say(&format!("{name}: {workload}"));
        workers.iter_mut().for_each(|worker| worker.choose(options.popularity));
        device.is_timed.store(true, Relaxed);
        let before = (world.now(), counters.counts(), device.memory.counts());
        let cache = subject.cache_counts();
        let mut times;
        (workers, times) = on_threads(world, index, workers, workload, options.operations)?;
        let passed = Picos(world.now().0 - before.0.0);
        device.is_timed.store(false, Relaxed);
        times.sort_unstable();
        let counts = counters.counts().since(&before.1);
        let medium = device.memory.counts().since(before.2);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e3;
        rounds.push(Round {
            operations_s: options.operations as f64 / (passed.0 as f64 / 1e12),
            ns: times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e3,
            modelled: Some(Modelled {
                p50_ns: at(0.5),
                p99_ns: at(0.99),
                counts: per_operation(&counts, &medium, options.operations),
            }),
            hit_ratio: hit_ratio(cache, subject.cache_counts()),
        });
        progress.advance(1);
    }
    Ok((index.statistics().map_err(failed)?.into(), rounds))
}

/// What became of a worker, and how long each of its operations took, in picoseconds.
type Worked = (Worker, Result<Vec<u64>, BenchError>);

fn on_threads(
    world: &World,
    index: &AnyIndex,
    workers: Vec<Worker>,
    workload: Workload,
    operations: u64,
) -> Result<(Vec<Worker>, Vec<u64>), BenchError> {
    let threads: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            let (world, index) = (world.clone(), Arc::clone(index));
            let done: Arc<Mutex<Option<Worked>>> = Arc::default();
            let slot = Arc::clone(&done);
            let thread = thread::spawn("worker", move || {
                *slot.lock() = Some(work(&world, &index, worker, workload, operations));
            });
            (thread, done)
        })
        .collect();
    let (mut workers, mut times) = (Vec::new(), Vec::new());
    for (thread, done) in threads {
        let ended = thread.join();
        let worked = done.lock().take();
        let (Ok(()), Some((worker, worked))) = (ended, worked) else {
            return Err(BenchError::Failed("a simulated thread panicked".to_owned()));
        };
        workers.push(worker);
        times.extend(worked?);
    }
    Ok((workers, times))
}

fn work(
    world: &World,
    index: &AnyIndex,
    mut worker: Worker,
    workload: Workload,
    operations: u64,
) -> Worked {
    let mut times = Vec::new();
    for _ in 0..worker.share(operations) {
        let began = world.now();
        world.spend(CPU_PER_OPERATION);
        if let Err(error) = worker.step(workload, &**index) {
            return (worker, Err(error));
        }
        times.push(world.now().0 - began.0);
    }
    (worker, Ok(times))
}

fn per_operation(counts: &Counts, medium: &MediumCounts, operations: u64) -> PerOperation {
    let of = |count: u64| count as f64 / operations as f64;
    PerOperation {
        lines_flushed: of(counts.lines_flushed),
        flushes: of(counts.flushes),
        drains: of(counts.drains),
        words_stored: of(counts.words_stored),
        bytes_streamed: of(counts.bytes_streamed),
        loads: of(counts.loads),
        units_read: of(medium.units_read + medium.units_read_to_write),
        units_written: of(medium.units_written),
    }
}
