//! fjall: sorted runs in levels, with a journal.

use entresol_measure::BenchError;
use entresol_bench::ycsb::{Engine, Opening};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::interval::Interval;

/// Number of workers. With the default, one for each processor, no worker is left to close a
/// memtable while both compact.
const WORKERS: usize = 4;

pub(crate) struct Fjall {
    interval: Option<Interval>,
    keyspace: Keyspace,
    database: Database,
}

fn failed(error: fjall::Error) -> BenchError {
    BenchError::Engine { engine: "fjall", what: error.to_string() }
}

impl Fjall {
    pub(crate) fn open(opening: &Opening<'_>) -> Result<Fjall, BenchError> {
        let memory = opening.options.memory_bytes.map(|bytes| bytes.0);
        let cache = opening.options.cache_bytes.map(|bytes| bytes.0);
        let mut builder = Database::builder(opening.directory);
        builder = builder.journal_compression(CompressionType::None).worker_threads(WORKERS);
        if let Some(cache) = cache.or(memory.map(|memory| memory / 4)) {
            builder = builder.cache_size(cache);
        }
        let database = builder.open().map_err(failed)?;
        let options = || {
            let options = KeyspaceCreateOptions::default()
                .expect_point_read_hits(true)
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled());
            match memory {
                Some(memory) => options.max_memtable_size((memory / 16).clamp(8 << 20, 64 << 20)),
                None => options,
            }
        };
        let keyspace = database.keyspace("ycsb", options).map_err(failed)?;
        let synced = database.clone();
        let sync = move || synced.persist(PersistMode::SyncData).map_err(|it| it.to_string());
        Ok(Fjall { interval: Some(Interval::new(sync)), keyspace, database })
    }
}

impl Engine for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.keyspace.insert(key, value).map_err(failed)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        let found = self.keyspace.get(key).map_err(failed)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        for pair in self.keyspace.range(from..).take(most) {
            let (key, value) = pair.into_inner().map_err(failed)?;
            show(&key, &value);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        self.database.persist(PersistMode::SyncAll).map_err(failed)
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.keyspace.rotate_memtable_and_wait().map_err(failed)?;
        self.keyspace.major_compact().map_err(failed)
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        drop(self.interval.take());
        self.sync()
    }
}
