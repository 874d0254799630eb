//! An index on the model, with or without a cache in DRAM in front of it, used by one thread.

use std::sync::Arc;

use entresol_base::world::World;
use entresol_index::{CacheOptions, Cached, Probing};
use entresol_measure::BenchError;
use entresol_measure::index::{
    AnyIndex, CACHE_PROBE, Charged, DramLines, IndexName, Lab, Worker, Workload, failed,
};
use entresol_measure::popularity::{Popularity, THETA_DEFAULT};
use entresol_media::model::memory::AEP;

/// Indexes of the paper that the cache accelerates.
pub(super) const INDEXES: [IndexName; 3] =
    [IndexName::FastFair, IndexName::FpTree, IndexName::SkipList];
/// Keys of the index for each entry of the cache.
pub(super) const CACHED_ONE_IN: u64 = 10;
pub(super) const ZIPF: Popularity = Popularity::Zipf { theta: THETA_DEFAULT };

/// Creates a cache of `entries` records in front of an index. Its helpers are woken for nothing.
pub(super) fn cache(
    index: &Arc<Charged>,
    entries: u64,
    probing: Probing,
    helpers: usize,
) -> Result<Arc<Cached<AnyIndex>>, BenchError> {
    with(index, &options(entries, probing, helpers))
}

/// Options of a cache of `entries` records on the model.
pub(super) fn options(entries: u64, probing: Probing, helpers: usize) -> CacheOptions {
    let (entries, probe) = (entries as usize, CACHE_PROBE);
    CacheOptions { entries, probing, helpers, probe, ..CacheOptions::default() }
}

/// Creates a cache with these options in front of an index.
pub(super) fn with(
    index: &Arc<Charged>,
    options: &CacheOptions,
) -> Result<Arc<Cached<AnyIndex>>, BenchError> {
    let cached = Cached::new(Arc::clone(index) as AnyIndex, options).map_err(failed)?;
    Ok(Arc::new(cached))
}

/// Loaded index on a device, with the one thread that uses it.
pub(super) struct Bench {
    lab: Lab,
    pub(super) bare: Arc<Charged>,
    workers: Vec<Worker>,
}

impl Bench {
    pub(super) fn new(
        world: &World,
        name: IndexName,
        keys: u64,
        seed: u64,
    ) -> Result<Bench, BenchError> {
        let lab = Lab::new(world, AEP, (64 << 20) + keys * 200)?;
        let bare = Charged::over(world, name.open(lab.pool(), None)?, DramLines::of(name));
        let workers = lab.load(&(Arc::clone(&bare) as AnyIndex), (seed, 1), keys)?;
        Ok(Bench { lab, bare, workers })
    }

    pub(super) fn bare(&self) -> AnyIndex {
        Arc::clone(&self.bare) as AnyIndex
    }

    /// Returns the mean time of an operation in nanoseconds. A first run of the same length warms
    /// the processor's cache.
    pub(super) fn ns(
        &mut self,
        index: &AnyIndex,
        (workload, law): (Workload, Popularity),
        operations: u64,
    ) -> Result<f64, BenchError> {
        self.workers.iter_mut().for_each(|worker| worker.choose(law));
        self.lab.measure(index, &mut self.workers, workload, operations)?;
        Ok(self.lab.measure(index, &mut self.workers, workload, operations)?.ns())
    }

    /// Fills a cache in DRAM by reads that take no virtual time.
    pub(super) fn warm(
        &mut self,
        index: &AnyIndex,
        law: Popularity,
        reads: u64,
    ) -> Result<(), BenchError> {
        for worker in &mut self.workers {
            worker.choose(law);
            for _ in 0..reads {
                worker.step(Workload::Read, &**index)?;
            }
        }
        Ok(())
    }
}

/// Times of all figures with caches, for the scenarios.
pub(super) const TIMES: &str = "An operation takes 50 ns of processor, a probe of the cache 80 ns, \
    and 40 ns for each line of DRAM that an index touches (FP-Tree 6, skip list 16; chosen), \
    beside what the model says of the medium.";
