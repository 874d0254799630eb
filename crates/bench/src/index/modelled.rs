//! Indexes on a model of memory, in virtual time, with counts of every flush, fence and unit.

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
use super::{IndexName, IndexOptions, IndexResult, PerOperation, Shape, no_region, region_bytes};
use crate::error::BenchError;
use crate::progress::Progress;

/// Processor time of an operation: an assumption, the same for every index.
pub const CPU_PER_OPERATION: Picos = Picos(50_000);

/// Device under the index. It takes time only during a measurement.
pub(crate) struct Device {
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

/// Memory on a device of a model.
pub(crate) type OnModel = Observed<(Arc<Device>, Arc<Counters>)>;

/// Device in a world, with a pool on it. Operations take no time unless they are measured.
pub(crate) struct Lab {
    world: World,
    device: Arc<Device>,
    counters: Arc<Counters>,
    region: Arc<OnModel>,
    pool: Arc<Pool<OnModel>>,
}

/// Measurements of several operations.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// Time of all operations.
    pub(crate) passed: Picos,
    /// Times of the operations in picoseconds, in ascending order.
    pub(crate) times: Vec<u64>,
    counts: Counts,
    medium: MediumCounts,
}

impl Measured {
    /// Returns the mean time of an operation in nanoseconds.
    pub(crate) fn ns(&self) -> f64 {
        self.times.iter().sum::<u64>() as f64 / self.times.len().max(1) as f64 / 1e3
    }

    /// Returns the operations per second of all threads together.
    pub(crate) fn operations_s(&self) -> f64 {
        self.times.len() as f64 / (self.passed.0 as f64 / 1e12)
    }

    /// Returns the time in nanoseconds that this share of the operations does not exceed.
    pub(crate) fn share_ns(&self, share: f64) -> f64 {
        let last = self.times.len().saturating_sub(1) as f64;
        self.times.get((last * share) as usize).map_or(0.0, |&time| time as f64 / 1e3)
    }
}

impl Lab {
    /// Creates an idle device with an empty pool of `bytes` bytes. The caller runs inside the
    /// world.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub(crate) fn new(
        world: &World,
        parameters: Parameters,
        bytes: u64,
    ) -> Result<Lab, BenchError> {
        let device = Arc::new(Device {
            is_timed: AtomicBool::new(false),
            memory: SimulatedMemory::new(world, parameters),
        });
        let counters = Arc::new(Counters::default());
        let observers = (Arc::clone(&device), Arc::clone(&counters));
        let region = Observed::new(bytes, observers);
        let region = Arc::new(region.map_err(no_region)?);
        let pool = Pool::create(Arc::clone(&region), PoolOptions::default()).map_err(failed)?;
        Ok(Lab { world: world.clone(), device, counters, region, pool: Arc::new(pool) })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool<OnModel>> {
        &self.pool
    }

    /// Opens the pool again, as after a restart. The previous pool is no longer in use.
    ///
    /// # Errors
    /// Returns the error of the pool.
    pub(crate) fn reopened(&self) -> Result<Arc<Pool<OnModel>>, BenchError> {
        Ok(Arc::new(Pool::open(Arc::clone(&self.region)).map_err(failed)?))
    }

    /// Inserts `keys` keys into an index and returns the workers that operate on it.
    ///
    /// # Errors
    /// Fails if the index gives a wrong result.
    pub(crate) fn load(
        &self,
        index: &AnyIndex,
        (seed, threads): (u64, usize),
        keys: u64,
    ) -> Result<Vec<Worker>, BenchError> {
        let of = threads as u64;
        let mut workers: Vec<Worker> = (0..of).map(|part| Worker::new(seed, (part, of))).collect();
        for worker in &mut workers {
            for _ in 0..worker.share(keys) {
                worker.step(Workload::Insert, &**index)?;
            }
        }
        Ok(workers)
    }

    /// Runs `what` with the device timed and returns its result and its time.
    pub(crate) fn timed<T>(&self, what: impl FnOnce() -> T) -> (T, Picos) {
        let before = self.world.now();
        self.device.is_timed.store(true, Relaxed);
        let answer = what();
        self.device.is_timed.store(false, Relaxed);
        (answer, Picos(self.world.now().0 - before.0))
    }

    /// Runs each worker's share of the operations in a thread of its own.
    ///
    /// # Errors
    /// Fails if the index gives a wrong result.
    pub(crate) fn measure(
        &self,
        index: &AnyIndex,
        workers: &mut Vec<Worker>,
        workload: Workload,
        operations: u64,
    ) -> Result<Measured, BenchError> {
        let before = (self.counters.counts(), self.device.memory.counts());
        let given = std::mem::take(workers);
        let work = || on_threads(&self.world, index, given, workload, operations);
        let (worked, passed) = self.timed(work);
        let (given, mut times) = worked?;
        *workers = given;
        times.sort_unstable();
        let counts = self.counters.counts().since(&before.0);
        let medium = self.device.memory.counts().since(before.1);
        Ok(Measured { passed, times, counts, medium })
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
        if progress.is_stopped() {
            break;
        }
        let seed = options.seed.wrapping_add(round);
        let (options, progress) = (options.clone(), progress.clone());
        let (found, of_workloads) = in_world(seed, move |world| {
            one_round(world, &options, name, parameters, seed, &progress)
        })?;
        shape = found;
        for (rounds, found) in rounds.iter_mut().zip(of_workloads) {
            rounds.push(found);
        }
    }
    let workloads = results(options, rounds);
    Ok(IndexResult { index: name, load_ns: None, first_answer_ns: None, shape, workloads })
}

/// Runs `what` in a new world.
///
/// # Errors
/// Returns the error of `what`, or of the world if it ends badly.
pub(crate) fn in_world<T: 'static>(
    seed: u64,
    what: impl FnOnce(&World) -> Result<T, BenchError> + 'static,
) -> Result<T, BenchError> {
    let world = World::new(WorldOptions::seeded(seed));
    let within = world.clone();
    let ran = world.run(move || what(&within));
    ran.map_err(|failure| BenchError::Failed(failure.to_string()))?
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
    let lab = Lab::new(world, parameters, region_bytes(options))?;
    let subject = Subject::open(name, options, lab.pool(), Some(world))?;
    let index = &subject.index;
    let mut workers = lab.load(index, (seed, options.threads), options.keys)?;
    progress.advance(1);
    let mut rounds = Vec::new();
    for &workload in &options.workloads {
        if progress.is_stopped() {
            break;
        }
        progress.say(&format!("{name}: {workload}"));
        workers.iter_mut().for_each(|worker| worker.choose(options.popularity));
        let cache = subject.cache_counts();
        let measured = lab.measure(index, &mut workers, workload, options.operations)?;
        rounds.push(Round {
            operations_s: measured.operations_s(),
            ns: measured.ns(),
            modelled: Some(Modelled {
                p50_ns: measured.share_ns(0.5),
                p99_ns: measured.share_ns(0.99),
                counts: per_operation(&measured.counts, &measured.medium, options.operations),
            }),
            hit_ratio: hit_ratio(cache, subject.cache_counts()),
        });
        progress.advance(1);
    }
    Ok((index.statistics().map_err(failed)?.into(), rounds))
}

/// Worker with the times of its operations in picoseconds.
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
