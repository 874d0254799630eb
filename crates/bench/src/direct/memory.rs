//! Measures the DRAM that an object takes at the quota, and stores that are refused while memory is
//! free.

use std::sync::Arc;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_cache::{Cache, Config, OpenError};
use entresol_measure::BenchError;
use entresol_measure::process::resident;
use entresol_measure::progress::Progress;
use entresol_measure::values::KeyMaker;
use serde::Serialize;

use super::subjects::{CacheSubject, Subject};
use super::{DirectOptions, cache_error};

/// Bytes per object, in addition to key and value, for which the quota is set.
const QUOTA_OVERHEAD_BYTES: u64 = 24;
/// Most stores between two readings of the statistics. Few objects are read more often, at each
/// 64th of them.
const LOOK_EVERY_AT_MOST: u64 = 1024;

/// Result of filling a cache to its quota and half as much again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryAtQuota {
    /// Quota of DRAM in bytes.
    pub quota_bytes: u64,
    /// Items in the cache at the first eviction.
    pub items_at_first_eviction: u64,
    /// Quota divided by these items.
    pub quota_bytes_per_object: f64,
    /// Bytes that the cache accounted for, divided by these items.
    pub accounted_bytes_per_object: f64,
    /// Growth of resident memory, divided by these items.
    pub resident_bytes_per_object: f64,
    /// Items in the cache after half as many more stores.
    pub items_after_overflow: u64,
    /// Quota divided by the items at that point.
    pub quota_bytes_per_object_after_overflow: f64,
    /// Stores refused before the first eviction, while memory was free.
    pub refused_while_free: u64,
    /// Stores refused in all.
    pub refused: u64,
}

/// Fills a cache whose quota suffices for `options.count` objects with 24 bytes each in addition to
/// key and value. Returns `None` if no cache can be that small.
pub(super) fn measure(
    options: &DirectOptions,
    progress: &Progress,
) -> Result<Option<MemoryAtQuota>, BenchError> {
    let object_bytes = (options.key_bytes + options.value_bytes) as u64 + QUOTA_OVERHEAD_BYTES;
    let quota_bytes = u64::from(options.count) * object_bytes;
    let offered = u64::from(options.count) * 3 / 2;
    let keys = KeyMaker::new(options.key_bytes, offered).ok_or_else(|| {
        let problem = format!("keys of {} bytes are too short", options.key_bytes);
        BenchError::Usage(problem)
    })?;
    let resident_before = resident()?.all_bytes;
    let clock = Arc::new(SystemClock::new());
    let now = clock.seconds();
    let config = Config {
        huge_pages: options.huge_pages,
        seed: Some(options.seed),
        ..Config::dram(ByteSize(quota_bytes))
    };
    let cache = match Cache::open(config, clock) {
        Err(OpenError::QuotaTooSmall { .. }) => return Ok(None),
        opened => opened.map_err(cache_error)?,
    };
    let mut subject = CacheSubject::new(&cache, now);
    let look_every = (u64::from(options.count) / 64).clamp(1, LOOK_EVERY_AT_MOST);
    let mut at_first_eviction = None;
    let (mut key, value) = (Vec::new(), vec![b'v'; options.value_bytes]);
    let (mut refused, mut refused_while_free, mut items_before) = (0, 0, 0);
    for number in 0..offered {
        key.clear();
        keys.append(number, &mut key);
        refused += u64::from(!subject.set(&key, &value));
        if number % look_every == 0 && progress.is_stopped() {
            return Err(BenchError::Interrupted { has_results: false });
        }
        if number % look_every == 0 && at_first_eviction.is_none() {
            let statistics = cache.statistics();
            if statistics.events.evicted_items + statistics.events.displaced_out > 0 {
                let resident = resident()?.all_bytes.saturating_sub(resident_before);
                at_first_eviction = Some((items_before, statistics.dram_used_bytes, resident));
            } else {
                items_before = statistics.items;
                refused_while_free = refused;
            }
        }
    }
    let statistics = cache.statistics();
    let (items, used, resident) = match at_first_eviction {
        Some(found) => found,
        None => {
            let resident = resident()?.all_bytes.saturating_sub(resident_before);
            (statistics.items, statistics.dram_used_bytes, resident)
        }
    };
    let per_object = |bytes: u64, items: u64| bytes as f64 / items.max(1) as f64;
    Ok(Some(MemoryAtQuota {
        quota_bytes,
        items_at_first_eviction: items,
        quota_bytes_per_object: per_object(quota_bytes, items),
        accounted_bytes_per_object: per_object(used, items),
        resident_bytes_per_object: per_object(resident, items),
        items_after_overflow: statistics.items,
        quota_bytes_per_object_after_overflow: per_object(quota_bytes, statistics.items),
        refused_while_free,
        refused,
    }))
}
