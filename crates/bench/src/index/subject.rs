//! Subject of a measurement: an index, with a cache in front of it if the options ask for one.

use std::sync::Arc;

use entresol_base::clock::Picos;
use entresol_base::world::World;
use entresol_index::{CacheCounts, CacheOptions, Cached, Pool};
use entresol_measure::BenchError;
use entresol_measure::index::{AnyIndex, CACHE_PROBE, Charged, DramLines, IndexName, failed};
use entresol_media::Region;

use super::IndexOptions;

/// Index with the cache in front of it, if there is one.
pub(crate) struct Subject {
    /// Index that receives the operations.
    pub(crate) index: AnyIndex,
    cache: Option<Arc<Cached<AnyIndex>>>,
}

impl Subject {
    /// Opens the index and the cache of the options in a pool. In a world, the index is charged for
    /// its work in DRAM.
    ///
    /// # Errors
    /// Returns the error of the index or of the cache.
    pub(crate) fn open<R: Region + 'static>(
        name: IndexName,
        options: &IndexOptions,
        pool: &Arc<Pool<R>>,
        world: Option<&World>,
    ) -> Result<Subject, BenchError> {
        let index = name.open(pool, options.node_bytes)?;
        let index = match world {
            Some(world) => Charged::over(world, index, DramLines::of(name)),
            None => index,
        };
        let entries = options.cache_entries();
        if entries == 0 {
            return Ok(Subject { index, cache: None });
        }
        let probe = world.map_or(Picos::ZERO, |_| CACHE_PROBE);
        let cache =
            CacheOptions { entries, probing: options.probing, probe, ..CacheOptions::default() };
        let cache = Arc::new(Cached::new(index, &cache).map_err(failed)?);
        Ok(Subject { index: Arc::clone(&cache) as AnyIndex, cache: Some(cache) })
    }

    /// Returns the hits and misses of the cache so far.
    pub(crate) fn cache_counts(&self) -> CacheCounts {
        self.cache.as_ref().map(|cache| cache.counts()).unwrap_or_default()
    }
}

/// Returns the hit ratio between two counts, or `None` if there were no look-ups.
pub(crate) fn hit_ratio(before: CacheCounts, after: CacheCounts) -> Option<f64> {
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}
