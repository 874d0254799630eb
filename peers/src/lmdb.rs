//! LMDB, through heed: a B-tree in a mapped file.

use std::ops::Bound;
use std::time::Duration;

use entresol_measure::BenchError;
use entresol_bench::ycsb::{Engine, Opening};
use heed::types::Bytes;
use heed::{Env, EnvFlags, EnvOpenOptions};

use crate::interval::Interval;

/// Size of the mapping, which costs only address space.
const MAP_BYTES: usize = 64 << 30;
const READERS_MAX: u32 = 256;
/// Longest wait for users of the mapping to end.
const CLOSING_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Lmdb {
    interval: Interval,
    table: heed::Database<Bytes, Bytes>,
    env: Env,
}

fn failed(error: heed::Error) -> BenchError {
    BenchError::Engine { engine: "lmdb", what: error.to_string() }
}

impl Lmdb {
    #[expect(unsafe_code, reason = "a file that others could write to is mapped")]
    pub(crate) fn open(opening: &Opening<'_>) -> Result<Lmdb, BenchError> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(READERS_MAX);
        let mut flags = EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP | EnvFlags::NO_MEM_INIT;
        if opening.options.memory_bytes.is_some() {
            flags |= EnvFlags::NO_READ_AHEAD;
        }
        // SAFETY: with WRITE_MAP a stray pointer could damage the data, and with NO_SYNC a power
        // cut could. The measured data may be lost.
        unsafe { options.flags(flags) };
        // SAFETY: the directory was created for this run, and no other process writes to its files.
        let env = unsafe { options.open(opening.directory) }.map_err(failed)?;
        let mut write = env.write_txn().map_err(failed)?;
        let table = env.create_database(&mut write, None).map_err(failed)?;
        write.commit().map_err(failed)?;
        let synced = env.clone();
        let sync = move || synced.force_sync().map_err(|error| error.to_string());
        Ok(Lmdb { interval: Interval::new(sync), table, env })
    }
}

impl Engine for Lmdb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        let mut write = self.env.write_txn().map_err(failed)?;
        self.table.put(&mut write, key, value).map_err(failed)?;
        write.commit().map_err(failed)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        let read = self.env.read_txn().map_err(failed)?;
        let found = self.table.get(&read, key).map_err(failed)?;
        Ok(found.map(|value| out.extend_from_slice(value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        let read = self.env.read_txn().map_err(failed)?;
        let from = (Bound::Included(from), Bound::Unbounded);
        for pair in self.table.range(&read, &from).map_err(failed)?.take(most) {
            let (key, value) = pair.map_err(failed)?;
            show(key, value);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        self.env.force_sync().map_err(failed)
    }

    /// Does nothing: LMDB defers no work.
    fn settle(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        let Lmdb { interval, env, .. } = *self;
        drop(interval);
        env.force_sync().map_err(failed)?;
        // The environment cannot be opened again before it has closed.
        let closing = env.prepare_for_closing();
        match closing.wait_timeout(CLOSING_MAX) {
            true => Ok(()),
            false => {
                let what = "it does not close".to_owned();
                Err(BenchError::Engine { engine: "lmdb", what })
            }
        }
    }
}
