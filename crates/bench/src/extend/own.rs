//! Data in a cache that reads its file itself, past the page cache; keys and metadata are in DRAM.

use std::path::Path;
use std::sync::Arc;

use entresol_base::{ByteSize, Clock, Stop, SystemClock};
use entresol_cache::{Cache, Config, Store};
use entresol_measure::BenchError;
use entresol_media::MediumSpec;

use super::items::{Hand, Items, Table};
use crate::cache_client::{CacheClient, Upkeep};

/// Bytes of an item beside its value, at most.
const ITEM_BYTES: u64 = 64;
/// DRAM of the cache: for buffers and open segments, and for each item.
const DRAM_BYTES: u64 = 32 << 20;
const DRAM_BYTES_ITEM: u64 = 64;

/// Cache on a file with all items.
pub(super) struct OwnCache {
    cache: Arc<Cache>,
    clock: SystemClock,
    _upkeep: Upkeep,
}

/// Items of one kind in the cache.
pub(super) struct OwnTable<'a> {
    of: &'a OwnCache,
    items: Items,
}

struct OwnHand {
    client: CacheClient,
    items: Items,
}

impl OwnCache {
    /// Returns the DRAM that a cache of these items may take.
    pub(super) fn dram(kinds: &[Items]) -> ByteSize {
        ByteSize(DRAM_BYTES + kinds.iter().map(|it| it.count).sum::<u64>() * DRAM_BYTES_ITEM)
    }

    /// Opens a cache on a new file, which has room for half as much again, and stores all items.
    pub(super) fn make(
        path: &Path,
        kinds: &[Items],
        threads: usize,
        stop: &Stop,
    ) -> Result<OwnCache, BenchError> {
        let bytes = |items: &Items| items.count * (items.bytes as u64 + ITEM_BYTES);
        let room = kinds.iter().map(bytes).sum::<u64>() * 3 / 2;
        let medium = MediumSpec::File { path: path.into(), model: None };
        let config = Config {
            medium: medium.clone(),
            medium_bytes: ByteSize(room.next_multiple_of(1 << 20)),
            workers: threads + 1,
            huge_pages: false,
            ..Config::dram(OwnCache::dram(kinds))
        };
        let clock = SystemClock::new();
        let opened = Cache::open(config, Arc::new(clock.clone()));
        let cache = opened.map_err(|error| BenchError::Cache(error.to_string()))?;
        let upkeep = Upkeep::begin(&cache, clock.seconds(), medium);
        let made = OwnCache { cache, clock, _upkeep: upkeep };
        for items in kinds {
            made.fill(*items, stop)?;
        }
        Ok(made)
    }

    fn client(&self) -> CacheClient {
        CacheClient::new(Arc::clone(&self.cache), self.clock.seconds())
    }

    fn fill(&self, items: Items, stop: &Stop) -> Result<(), BenchError> {
        let (mut client, mut value) = (self.client(), Vec::new());
        for item in (0..items.count).take_while(|_| !stop.is_due()) {
            value.clear();
            items.append(item, &mut value);
            if !client.store(&key(items, item), &Store::set(&value))? {
                return Err(BenchError::Cache(format!("item {item} is not stored")));
            }
        }
        Ok(())
    }

    /// Returns the items of one kind.
    pub(super) fn table(&self, items: Items) -> OwnTable<'_> {
        OwnTable { of: self, items }
    }
}

fn key(items: Items, item: u64) -> [u8; 9] {
    let mut key = [items.kind; 9];
    key[1..].copy_from_slice(&item.to_be_bytes());
    key
}

impl Table for OwnTable<'_> {
    fn hand(&self) -> Box<dyn Hand + '_> {
        Box::new(OwnHand { client: self.of.client(), items: self.items })
    }
}

impl Hand for OwnHand {
    fn get(&mut self, item: u64, out: &mut Vec<u8>) -> Result<(), BenchError> {
        out.clear();
        let gone = || BenchError::Cache(format!("item {item} was stored and is not there"));
        let found = self.client.get(&key(self.items, item))?;
        out.extend_from_slice(found.ok_or_else(gone)?);
        self.items.check(item, out)
    }
}
