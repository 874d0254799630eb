//! Indexes on memory of this machine, in real time.

use std::sync::Arc;

use entresol_base::{Clock, SystemClock};
use entresol_index::{Index, Pool, PoolOptions, pool};
use entresol_measure::BenchError;
use entresol_measure::index::{AnyIndex, Worker, failed, no_region};
use entresol_measure::process::{self, thread_cpu_ns};
use entresol_measure::progress::Progress;
use entresol_measure::statistics::Spread;
use entresol_media::{Direct, PmemMode, RegionOptions, files};

use super::rounds::{Round, results};
use super::subject::{Subject, hit_ratio};
use super::{IndexName, IndexOptions, IndexResult, Place, Shape, Workload, region_bytes};

/// First bytes of a DAX device on which an index is about to be made. A pool then has its own
/// there, and a device that begins with those is another's and refused.
const DEVICE_MAGIC: [u8; 8] = *b"ENTBENCH";

/// Region of one round. Dropping it makes a DAX device count as unused again.
struct Borrowed(Arc<Direct>);

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.0.vacate();
    }
}

/// Measures one index.
pub(super) fn run(
    options: &IndexOptions,
    name: IndexName,
    place: Option<&Place>,
    progress: &Progress,
) -> Result<IndexResult, BenchError> {
    let (mut load, mut first_answers) = (Vec::new(), Vec::new());
    let mut rounds = vec![Vec::new(); options.workloads.len()];
    let mut shape = Shape::default();
    for round in 0..options.rounds as u64 {
        if progress.is_stopped() {
            break;
        }
        progress.say(&format!("{name}: loading"));
        let borrowed = Borrowed(region(options, place)?);
        let region = &borrowed.0;
        let pool = Pool::create(Arc::clone(region), PoolOptions::default());
        let pool = Arc::new(pool.map_err(failed)?);
        let subject = Subject::open(name, options, &pool, None)?;
        let index = &subject.index;
        let seed = options.seed.wrapping_add(round);
        let of = options.threads as u64;
        let mut workers: Vec<Worker> = (0..of).map(|part| Worker::new(seed, (part, of))).collect();
        load.push(on_threads(index, &mut workers, Workload::Insert, options.keys)?.ns);
        progress.advance(1);
        for (workload, rounds) in options.workloads.iter().zip(&mut rounds) {
            if progress.is_stopped() {
                break;
            }
            progress.say(&format!("{name}: {workload}"));
            workers.iter_mut().for_each(|worker| worker.choose(options.popularity));
            let before = subject.cache_counts();
            let found = on_threads(index, &mut workers, *workload, options.operations)?;
            let hit_ratio = hit_ratio(before, subject.cache_counts());
            rounds.push(Round { hit_ratio, ..found });
            progress.advance(1);
        }
        shape = index.statistics().map_err(failed)?.into();
        drop((subject, pool));
        if let Some(worker) = workers.iter_mut().find(|worker| worker.has_keys())
            && IndexName::PERSISTENT.contains(&name)
        {
            first_answers.push(first_answer_ns(options, name, region, worker)?);
        }
    }
    let workloads = results(options, rounds);
    let first_answer_ns = (!first_answers.is_empty()).then(|| Spread::of(&first_answers));
    let load_ns = Some(Spread::of(&load));
    Ok(IndexResult { index: name, load_ns, first_answer_ns, shape, workloads })
}

/// Measures the time to reopen the index in the region, as the next process would, and to find a
/// key.
fn first_answer_ns(
    options: &IndexOptions,
    name: IndexName,
    region: &Arc<Direct>,
    worker: &mut Worker,
) -> Result<f64, BenchError> {
    worker.choose(options.popularity);
    let clock = SystemClock::new();
    let began = clock.now();
    let pool = Arc::new(Pool::open(Arc::clone(region)).map_err(failed)?);
    let subject = Subject::open(name, options, &pool, None)?;
    worker.step(Workload::Read, &*subject.index)?;
    Ok(clock.now().since(began).as_secs_f64() * 1e9)
}

fn region(options: &IndexOptions, place: Option<&Place>) -> Result<Arc<Direct>, BenchError> {
    let bytes = region_bytes(options);
    let Some(place) = place else {
        return Ok(Arc::new(Direct::anonymous(bytes, true).map_err(no_region)?));
    };
    let is_device = files::is_character_device(&place.path);
    if files::exists(&place.path) && !is_device {
        let problem = "exists already, and would be overwritten: give a file that does not exist";
        return Err(BenchError::Usage(format!("{} {problem}", place.path.display())));
    }
    let options = RegionOptions {
        create: Some(bytes),
        magic: Some(if is_device { DEVICE_MAGIC } else { pool::MAGIC }),
        pmem: Some(PmemMode { assume_dax: place.assume_dax }),
        ..RegionOptions::default()
    };
    let region = Direct::open(&place.path, &options).map_err(no_region)?;
    if is_device {
        return Ok(Arc::new(region));
    }
    // The file has no name from here on, and nothing remains however this process ends.
    files::remove(&place.path)
        .map_err(|source| BenchError::File { path: place.path.clone(), source })?;
    Ok(Arc::new(region))
}

/// Runs each worker's share of the operations in a thread of its own.
fn on_threads(
    index: &AnyIndex,
    workers: &mut [Worker],
    workload: Workload,
    operations: u64,
) -> Result<Round, BenchError> {
    let clock = SystemClock::new();
    let began = clock.now();
    let work = |worker: &mut Worker| work(&**index, worker, workload, operations);
    let cpu_ns: Result<Vec<u64>, BenchError> =
        process::on_threads(workers, work).into_iter().collect();
    let passed = clock.now().since(began).as_secs_f64();
    Ok(Round {
        operations_s: operations as f64 / passed.max(1e-9),
        ns: cpu_ns?.iter().sum::<u64>() as f64 / operations as f64,
        modelled: None,
        hit_ratio: None,
    })
}

fn work(
    index: &dyn Index<Key = u64>,
    worker: &mut Worker,
    workload: Workload,
    operations: u64,
) -> Result<u64, BenchError> {
    let before = thread_cpu_ns();
    for _ in 0..worker.share(operations) {
        worker.step(workload, index)?;
    }
    Ok(thread_cpu_ns() - before)
}
