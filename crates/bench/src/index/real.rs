//! Indexes on memory that is here, in real time.

use std::sync::Arc;

use entresol_base::{Clock, SystemClock};
use entresol_index::{Pool, PoolOptions};
use entresol_media::{Direct, PmemMode, RegionOptions, files};

use super::subjects::{AnyIndex, Subject, failed, hit_ratio};
use super::work::{Worker, Workload};
use super::{IndexName, IndexOptions, IndexResult, Place, Shape, WorkResult, region_bytes};
use crate::error::BenchError;
use crate::process::thread_cpu_ns;
use crate::progress::Progress;
use crate::statistics::Spread;

/// The first bytes of a pool's file.
const MAGIC: [u8; 8] = *b"ENTRPOOL";

/// Measures one index.
pub(super) fn run(
    options: &IndexOptions,
    name: IndexName,
    place: Option<&Place>,
    progress: &Progress,
) -> Result<IndexResult, BenchError> {
    let mut load = Vec::new();
    let mut timed = vec![Vec::new(); options.workloads.len()];
    let mut shape = Shape::default();
    for round in 0..options.rounds as u64 {
        progress.say(&format!("{name}: loading"));
        let region = region(options, place)?;
        let pool = Arc::new(Pool::create(region, PoolOptions::default()).map_err(failed)?);
        let subject = Subject::open(name, options, &pool, None)?;
        let index = &subject.index;
        let seed = options.seed.wrapping_add(round);
        let of = options.threads as u64;
        let mut workers: Vec<Worker> = (0..of).map(|part| Worker::new(seed, (part, of))).collect();
        load.push(on_threads(index, &mut workers, Workload::Insert, options.keys)?.cpu_ns);
        progress.advance(1);
        for (workload, timed) in options.workloads.iter().zip(&mut timed) {
            progress.say(&format!("{name}: {workload}"));
            workers.iter_mut().for_each(|worker| worker.choose(options.popularity));
            let before = subject.cache_counts();
            let found = on_threads(index, &mut workers, *workload, options.operations)?;
            timed.push(Timed { hits: hit_ratio(before, subject.cache_counts()), ..found });
            progress.advance(1);
        }
        shape = index.statistics().map_err(failed)?.into();
        drop((subject, pool));
        if let Some(place) = place {
            files::remove(&place.path)
                .map_err(|source| BenchError::File { path: place.path.clone(), source })?;
        }
    }
    let workloads = options.workloads.iter().zip(timed).map(|(&workload, timed)| {
        let of = |what: fn(&Timed) -> f64| Spread::of(&timed.iter().map(what).collect::<Vec<_>>());
        WorkResult {
            workload,
            operations: options.operations,
            operations_s: of(|timed| timed.operations_s),
            ns: of(|timed| timed.cpu_ns),
            p50_ns: None,
            p99_ns: None,
            counts: None,
            hit_ratio: timed.last().and_then(|timed| timed.hits),
        }
    });
    let workloads = workloads.collect();
    Ok(IndexResult { index: name, load_ns: Some(Spread::of(&load)), shape, workloads })
}

fn region(options: &IndexOptions, place: Option<&Place>) -> Result<Arc<Direct>, BenchError> {
    let bytes = region_bytes(options);
    let had = |error: entresol_media::RegionError| BenchError::Failed(error.to_string());
    let Some(place) = place else {
        return Ok(Arc::new(Direct::anonymous(bytes, true).map_err(had)?));
    };
    if files::exists(&place.path) {
        let problem = "is there already, and would be written over: give a file that is not there";
        return Err(BenchError::Usage(format!("{} {problem}", place.path.display())));
    }
    let options = RegionOptions {
        create: Some(bytes),
        magic: Some(MAGIC),
        pmem: Some(PmemMode { assume_dax: place.assume_dax }),
        ..RegionOptions::default()
    };
    Ok(Arc::new(Direct::open(&place.path, &options).map_err(had)?))
}

#[derive(Debug, Clone, Copy)]
struct Timed {
    operations_s: f64,
    cpu_ns: f64,
    /// Hits of the cache.
    hits: Option<f64>,
}

/// Lets every worker do its share of the operations in a thread of its own.
fn on_threads(
    index: &AnyIndex,
    workers: &mut [Worker],
    workload: Workload,
    operations: u64,
) -> Result<Timed, BenchError> {
    let clock = SystemClock::new();
    let began = clock.now();
    let cpu_ns: Result<Vec<u64>, BenchError> = std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(|| work(&**index, worker, workload, operations)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let passed = clock.now().since(began).as_secs_f64();
    let cpu_ns = cpu_ns?.iter().sum::<u64>() as f64 / operations as f64;
    Ok(Timed { operations_s: operations as f64 / passed.max(1e-9), cpu_ns, hits: None })
}

fn work(
    index: &dyn entresol_index::Index<Key = u64>,
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
