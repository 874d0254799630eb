//! What is measured: an index, with a cache before it if one is asked for.

use std::sync::Arc;

use entresol_base::clock::Picos;
use entresol_base::world::World;
use entresol_index::{CacheCounts, CacheOptions, Cached, Pool};
use entresol_measure::BenchError;
use entresol_measure::index::{AnyIndex, CACHE_PROBE, Charged, DramLines, IndexName, failed};
use entresol_media::Region;

use super::IndexOptions;

/// An index, and the cache before it if there is one.
pub(crate) struct Subject {
    /// What operations go to.
    pub(crate) index: AnyIndex,
    cache: Option<Arc<Cached<AnyIndex>>>,
}

impl Subject {
    /// What the options say, in a pool; in a world it is charged for its work in DRAM.
    ///
    /// # Errors
    /// What the index or the cache says.
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

    /// Hits and misses of the cache so far.
    pub(crate) fn cache_counts(&self) -> CacheCounts {
        self.cache.as_ref().map(|cache| cache.counts()).unwrap_or_default()
    }
}

/// The hits among the look-ups between two counts; none if there were none.
pub(crate) fn hit_ratio(before: CacheCounts, after: CacheCounts) -> Option<f64> {
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}
