//! redb: a B-tree with copy-on-write pages.

use std::sync::Arc;

use ::redb::{Builder, Database, Durability, ReadableDatabase, TableDefinition};
use entresol_measure::BenchError;
use entresol_bench::ycsb::{Engine, Opening};

use crate::interval::Interval;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("ycsb");

pub(crate) struct Redb {
    interval: Option<Interval>,
    database: Arc<Database>,
}

fn failed(error: impl Into<::redb::Error>) -> BenchError {
    BenchError::Engine { engine: "redb", what: error.into().to_string() }
}

impl Redb {
    pub(crate) fn open(opening: &Opening<'_>) -> Result<Redb, BenchError> {
        let mut builder = Builder::new();
        let memory = opening.options.memory_bytes.map(|bytes| bytes.0);
        let cache = opening.options.cache_bytes.map(|bytes| bytes.0);
        if let Some(cache) = cache.or(memory.map(|memory| memory / 4)) {
            builder.set_cache_size(usize::try_from(cache).unwrap_or(usize::MAX));
        }
        let path = opening.directory.join("redb");
        let database = Arc::new(builder.create(path).map_err(failed)?);
        let first = database.begin_write().map_err(failed)?;
        first.open_table(TABLE).map(drop).map_err(failed)?;
        first.commit().map_err(failed)?;
        let synced = database.clone();
        let sync = move || commit(&synced).map_err(|error| error.to_string());
        Ok(Redb { interval: Some(Interval::new(sync)), database })
    }
}

/// Makes all earlier commits durable with an empty one.
fn commit(database: &Database) -> Result<(), BenchError> {
    let mut write = database.begin_write().map_err(failed)?;
    write.set_durability(Durability::Immediate).map_err(failed)?;
    write.commit().map_err(failed)
}

impl Engine for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        let mut write = self.database.begin_write().map_err(failed)?;
        write.set_durability(Durability::None).map_err(failed)?;
        write.open_table(TABLE).map_err(failed)?.insert(key, value).map(drop).map_err(failed)?;
        write.commit().map_err(failed)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        let read = self.database.begin_read().map_err(failed)?;
        let found = read.open_table(TABLE).map_err(failed)?.get(key).map_err(failed)?;
        Ok(found.map(|value| out.extend_from_slice(value.value())).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        let read = self.database.begin_read().map_err(failed)?;
        let table = read.open_table(TABLE).map_err(failed)?;
        for pair in table.range(from..).map_err(failed)?.take(most) {
            let (key, value) = pair.map_err(failed)?;
            show(key.value(), value.value());
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        commit(&self.database)
    }

    /// Does nothing: redb defers no work.
    fn settle(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        drop(self.interval.take());
        self.sync()
    }
}
