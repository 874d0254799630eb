//! Memory that is a device of a model in a world, and what an index takes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use entresol_base::clock::Picos;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_index::{Pool, PoolOptions};
use entresol_media::model::memory::{MediumCounts, Parameters};
use entresol_media::observe::Step;
use entresol_media::{Observed, Observer};
use entresol_simulated::SimulatedMemory;
use entresol_simulated::{Counters, Counts};

use super::no_region;
use super::subjects::{AnyIndex, failed};
use super::work::{Worker, Workload};
use crate::error::BenchError;

/// Processor time of an operation: an assumption, the same for every index.
pub const CPU_PER_OPERATION: Picos = Picos(50_000);

/// Device under the index. It takes time only during a measurement.
pub struct Device {
    is_timed: AtomicBool,
    memory: SimulatedMemory,
}

impl Device {
    /// Creates an idle device, accesses to which take no time yet.
    #[must_use]
    pub fn new(world: &World, parameters: Parameters) -> Arc<Device> {
        let memory = SimulatedMemory::new(world, parameters);
        Arc::new(Device { is_timed: AtomicBool::new(false), memory })
    }

    /// Sets whether accesses take time.
    pub fn set_timed(&self, is_timed: bool) {
        self.is_timed.store(is_timed, Relaxed);
    }

    /// Returns the device's work so far.
    #[must_use]
    pub fn counts(&self) -> MediumCounts {
        self.memory.counts()
    }
}

impl Observer for Device {
    fn wait(&self, step: &Step) {
        if self.is_timed.load(Relaxed) {
            self.memory.wait(step);
        }
    }
}

/// Memory on a device of a model.
pub type OnModel = Observed<(Arc<Device>, Arc<Counters>)>;

/// Device in a world, with a pool on it. Operations take no time unless they are measured.
pub struct Lab {
    world: World,
    device: Arc<Device>,
    counters: Arc<Counters>,
    region: Arc<OnModel>,
    pool: Arc<Pool<OnModel>>,
}

/// Measurements of several operations.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Time of all operations.
    pub passed: Picos,
    /// Times of the operations in picoseconds, in ascending order.
    pub times: Vec<u64>,
    /// Accesses to the region.
    pub counts: Counts,
    /// Units that the device read and wrote.
    pub medium: MediumCounts,
}

impl Measured {
    /// Returns the mean time of an operation in nanoseconds.
    pub fn ns(&self) -> f64 {
        self.times.iter().sum::<u64>() as f64 / self.times.len().max(1) as f64 / 1e3
    }

    /// Returns the operations per second of all threads together.
    pub fn operations_s(&self) -> f64 {
        self.times.len() as f64 / (self.passed.0 as f64 / 1e12)
    }

    /// Returns the time in nanoseconds that this share of the operations does not exceed.
    pub fn share_ns(&self, share: f64) -> f64 {
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
    pub fn new(world: &World, parameters: Parameters, bytes: u64) -> Result<Lab, BenchError> {
        let device = Device::new(world, parameters);
        let counters = Arc::new(Counters::default());
        let observers = (Arc::clone(&device), Arc::clone(&counters));
        let region = Observed::new(bytes, observers);
        let region = Arc::new(region.map_err(no_region)?);
        let pool = Pool::create(Arc::clone(&region), PoolOptions::default()).map_err(failed)?;
        Ok(Lab { world: world.clone(), device, counters, region, pool: Arc::new(pool) })
    }

    /// The pool on the device.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<OnModel>> {
        &self.pool
    }

    /// Opens the pool again, as after a restart. The previous pool is no longer in use.
    ///
    /// # Errors
    /// Returns the error of the pool.
    pub fn reopened(&self) -> Result<Arc<Pool<OnModel>>, BenchError> {
        Ok(Arc::new(Pool::open(Arc::clone(&self.region)).map_err(failed)?))
    }

    /// Inserts `keys` keys into an index and returns the workers that operate on it.
    ///
    /// # Errors
    /// Fails if the index gives a wrong result.
    pub fn load(
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
    pub fn timed<T>(&self, what: impl FnOnce() -> T) -> (T, Picos) {
        let before = self.world.now();
        self.device.set_timed(true);
        let answer = what();
        self.device.set_timed(false);
        (answer, Picos(self.world.now().0 - before.0))
    }

    /// Runs each worker's share of the operations in a thread of its own.
    ///
    /// # Errors
    /// Fails if the index gives a wrong result.
    pub fn measure(
        &self,
        index: &AnyIndex,
        workers: &mut Vec<Worker>,
        workload: Workload,
        operations: u64,
    ) -> Result<Measured, BenchError> {
        let before = (self.counters.counts(), self.device.counts());
        let given = std::mem::take(workers);
        let work = || on_threads(&self.world, index, given, workload, operations);
        let (worked, passed) = self.timed(work);
        let (given, mut times) = worked?;
        *workers = given;
        times.sort_unstable();
        let counts = self.counters.counts().since(&before.0);
        let medium = self.device.counts().since(before.1);
        Ok(Measured { passed, times, counts, medium })
    }
}

/// Runs `what` in a new world.
///
/// # Errors
/// Returns the error of `what`, or of the world if it ends badly.
pub fn in_world<T: 'static>(
    seed: u64,
    what: impl FnOnce(&World) -> Result<T, BenchError> + 'static,
) -> Result<T, BenchError> {
    let world = World::new(WorldOptions::seeded(seed));
    let within = world.clone();
    let ran = world.run(move || what(&within));
    ran.map_err(|failure| BenchError::Failed(failure.to_string()))?
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
