//! RocksDB: sorted runs in levels, with a log.

use std::sync::Arc;

use ::rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Options};
use entresol_measure::BenchError;
use entresol_bench::ycsb::{Engine, Opening};

use crate::interval::Interval;

/// Memory to tune for, unless the options say.
const MEMORY_BYTES: u64 = 512 << 20;
const BLOCK_BYTES: usize = 4 << 10;
const BACKGROUND_JOBS: i32 = 4;
const BLOOM_BITS_EACH: f64 = 10.0;
/// Number of files at which level 0 is compacted: the library's default.
const LEVEL_0_FILES: u64 = 4;

pub(crate) struct Rocksdb {
    interval: Option<Interval>,
    database: Arc<DB>,
}

fn failed(error: ::rocksdb::Error) -> BenchError {
    BenchError::Engine { engine: "rocksdb", what: error.into_string() }
}

/// Returns the options that RocksDB's documentation advises for the given memory. `README.md` names
/// its pages.
fn options(opening: &Opening<'_>) -> Result<Options, BenchError> {
    let memory = opening.options.memory_bytes.map_or(MEMORY_BYTES, |bytes| bytes.0);
    let cache = opening.options.cache_bytes.map_or(memory / 3, |bytes| bytes.0);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(size(cache)).map_err(failed)?);
    table.set_block_size(BLOCK_BYTES);
    table.set_bloom_filter(BLOOM_BITS_EACH, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(5);
    let write_buffer = (memory / 8).clamp(8 << 20, 64 << 20);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(size(write_buffer));
    options.set_max_bytes_for_level_base(LEVEL_0_FILES * write_buffer);
    options.set_target_file_size_base(write_buffer);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_bytes_per_sync(1 << 20);
    Ok(options)
}

impl Rocksdb {
    pub(crate) fn open(opening: &Opening<'_>) -> Result<Rocksdb, BenchError> {
        let options = options(opening)?;
        let database = Arc::new(DB::open(&options, opening.directory).map_err(failed)?);
        let synced = database.clone();
        let sync = move || synced.flush_wal(true).map_err(::rocksdb::Error::into_string);
        Ok(Rocksdb { interval: Some(Interval::new(sync)), database })
    }
}

impl Engine for Rocksdb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.database.put(key, value).map_err(failed)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        let found = self.database.get_pinned(key).map_err(failed)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        let mut iterator = self.database.raw_iterator();
        iterator.seek(from);
        for _ in 0..most {
            let Some((key, value)) = iterator.item() else { break };
            show(key, value);
            iterator.next();
        }
        iterator.status().map_err(failed)
    }

    fn sync(&self) -> Result<(), BenchError> {
        self.database.flush_wal(true).map_err(failed)
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.database.flush().map_err(failed)?;
        self.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        drop(self.interval.take());
        self.sync()
    }
}
