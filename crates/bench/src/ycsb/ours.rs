//! Our own store, measured like any other.

use std::sync::Arc;

use entresol_base::SystemClock;
use entresol_media::{Directory, LocalDirectory};
use entresol_store::{CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, Statistics, StoreError};

use super::{Engine, Opening};
use crate::error::BenchError;

const NAME: &str = "ycsb";
/// What a store needs beside caches, however small they are.
const APART_BYTES: u64 = 13 << 20;

/// A store with one `Kvs`.
#[derive(Debug)]
pub struct Entresol {
    store: Kvdb,
    kvs: Kvs,
}

impl Entresol {
    /// What it is called in reports.
    pub const NAME: &'static str = "entresol";

    /// Creates or opens it.
    ///
    /// # Errors
    /// If the directory cannot be had, or options do not fit.
    pub fn open(opening: &Opening<'_>) -> Result<Entresol, BenchError> {
        let options = options(opening);
        let directory = match opening.create {
            true => LocalDirectory::open(opening.directory),
            false => LocalDirectory::open_existing(opening.directory),
        };
        let directory = match opening.options.model {
            Some(model) => directory.and_then(|directory| directory.slowed(model)),
            None => directory,
        };
        let directory: Arc<dyn Directory> = Arc::new(directory.map_err(|it| failed(&it.into()))?);
        let clock = Arc::new(SystemClock::new());
        let store = match opening.create {
            true => Kvdb::create(directory, options, clock),
            false => Kvdb::open(directory, options, clock),
        };
        let store = store.map_err(|it| failed(&it))?;
        let kvs = match opening.create {
            true => store.create_kvs(NAME, KvsOptions::default()),
            false => store.kvs(NAME),
        };
        Ok(Entresol { kvs: kvs.map_err(|it| failed(&it))?, store })
    }
}

fn options(opening: &Opening<'_>) -> KvdbOptions {
    let mut options = KvdbOptions { pmem: opening.options.pmem, ..KvdbOptions::default() };
    if let Some(cache) = opening.options.cache_bytes {
        // Half for what is read one by one, half or more for what is walked over, which is what the
        // other uses leave.
        options.entry_cache_bytes = (cache.0 / 2).max(128 << 10);
        options.memory_bytes = 2 * cache.0 + APART_BYTES;
    }
    if let Some(memory) = opening.options.memory_bytes {
        options.memory_bytes = memory.0;
    }
    if let Some(generation) = opening.options.generation_bytes {
        options.generation_bytes = generation.0;
        options.segment_bytes = options.segment_bytes.min(generation.0);
    }
    options
}

fn failed(error: &StoreError) -> BenchError {
    BenchError::Engine { engine: Entresol::NAME, what: error.to_string() }
}

impl Engine for Entresol {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.kvs.put(key, value).map(drop).map_err(|it| failed(&it))
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.kvs.get_into(key, out).map_err(|it| failed(&it))
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        let mut cursor = self.kvs.cursor(CursorOptions::default()).map_err(|it| failed(&it))?;
        cursor.seek(from);
        for _ in 0..most {
            match cursor.next().map_err(|it| failed(&it))? {
                Some((key, value)) => show(key, value),
                None => break,
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        self.store.sync().map_err(|it| failed(&it))
    }

    fn medium(&self) -> &'static str {
        let of = |statistics: Statistics| statistics.media.first()?.kind;
        self.store.statistics().ok().and_then(of).unwrap_or("file")
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.store.compact().map_err(|it| failed(&it))
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.store.close().map_err(|it| failed(&it))
    }
}
