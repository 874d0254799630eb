//! Engine of an open store: the state that its handles and threads share, the path of every write
//! and read, the opening of a store, and the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_base::thread::{self, ThreadId};
use entresol_media::machine::ProcessMark;

use crate::StoreError;
use crate::cache::budget::Room;
use crate::cache::row::RowCache;
use crate::engine::dead_keys::DeadKeys;
use crate::engine::read::Waits;
use crate::engine::threads::RETRY;
use crate::engine::write::WriteSide;
use crate::options::KvdbOptions;
use crate::types::Sequence;
use crate::upkeep::context::{Background, CompactionContext, FlushContext, ImageContext};
use crate::upkeep::read_frequency::kept::Stamp;
use crate::version::files::Files;
use crate::version::transactions::Transactions;
use crate::wal::Log;

pub(crate) mod dead_keys;
mod idle;
pub(crate) mod read;
pub(crate) mod recovery;
pub(crate) mod statistics;
pub(crate) mod sync_deadline;
pub(crate) mod threads;
pub(crate) mod write;

/// State that all handles of a store share.
pub(crate) struct Core {
    pub(crate) files: Files,
    pub(crate) caches: Caches,
    pub(crate) writes: WriteSide,
    pub(crate) background: Background,
    pub(crate) transactions: Transactions,
    /// Ranges of keys in which nothing lives.
    pub(crate) dead_keys: DeadKeys,
    pub(crate) options: KvdbOptions,
    pub(crate) recovered: RecoveredLog,
    pub(crate) is_closed: AtomicBool,
    /// Process that opened the store.
    pub(crate) process: ProcessMark,
    /// Threads in the callbacks of compactions.
    pub(crate) reports: Reports,
}

/// Threads that are in the callback to which a compaction reports its progress. The compaction
/// holds the lock of compactions meanwhile, and a call that needs it would wait for itself.
#[derive(Default)]
pub(crate) struct Reports {
    inside: Mutex<Vec<ThreadId>>,
}

impl Reports {
    /// Calls a callback of a compaction.
    pub(crate) fn within<T>(&self, callback: impl FnOnce() -> T) -> T {
        struct Leave<'r>(&'r Reports);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                let me = thread::current_id();
                self.0.inside.lock().retain(|it| *it != me);
            }
        }
        self.inside.lock().push(thread::current_id());
        let _leave = Leave(self);
        callback()
    }

    /// Refuses a call that needs the lock of compactions.
    ///
    /// # Errors
    /// Fails if this thread is in such a callback.
    pub(crate) fn check_outside(&self, call: &'static str) -> Result<(), StoreError> {
        let is_inside = self.inside.lock().contains(&thread::current_id());
        if is_inside { Err(StoreError::WithinReport { call }) } else { Ok(()) }
    }
}

/// Caches of readers, beside the block cache of the runs.
pub(crate) struct Caches {
    /// Row cache, which also holds the locks of keys.
    pub(crate) entries: Arc<RowCache>,
    /// Memory budget that the row cache borrows from.
    pub(crate) room: Arc<Room>,
    /// Waits of cursors that read values.
    pub(crate) waits: Waits,
}

/// Facts about the log that recovery found.
pub(crate) struct RecoveredLog {
    /// Last recovered write if the log may continue on a missing volume.
    pub(crate) uncertain_behind: Option<Sequence>,
    /// Log records that recovery read.
    pub(crate) records_read: u64,
}

impl Core {
    /// Returns the log of a writable store.
    ///
    /// # Errors
    /// Fails if the store is closed or read-only.
    pub(crate) fn log(&self) -> Result<&Log, StoreError> {
        self.check_open()?;
        self.writes.log.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// Returns the log for the store's own threads, which go on while the store closes.
    ///
    /// # Errors
    /// Fails if the store is read-only.
    pub(crate) fn log_behind(&self) -> Result<&Log, StoreError> {
        self.writes.log.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// Checks that the store is open, and that this is the process that opened it.
    ///
    /// # Errors
    /// Fails if the store is closed, or if the process is a child of the one that opened it.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed.load(Relaxed) || self.process.is_another() {
            return Err(self.why_closed());
        }
        Ok(())
    }

    #[cold]
    fn why_closed(&self) -> StoreError {
        match self.process.is_another() {
            true => StoreError::Forked,
            false => StoreError::Closed,
        }
    }

    /// Returns the last visible write.
    pub(crate) fn published(&self) -> Sequence {
        self.writes.log.as_ref().map_or(self.writes.last_recovered, Log::published)
    }

    /// Makes all acknowledged writes durable.
    ///
    /// # Errors
    /// Fails if the disk fails; the store then refuses all further writes.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.log()?;
        self.sync_written()
    }

    /// Makes writes durable that were acknowledged before the call, even if the store is being
    /// closed: closing makes them durable as well, so refusing here would be a false answer.
    ///
    /// # Errors
    /// Fails if the disk fails, and if it failed while the store was closed.
    pub(crate) fn sync_written(&self) -> Result<(), StoreError> {
        let log = self.log_behind()?;
        let begun = self.files.time.instant();
        let done = log.sync();
        self.writes.stalls.sync.add(self.files.time.instant().since(begun));
        done.map(drop)
    }

    /// Flushes everything written before the call. Returns false if `go_on` ended the wait early.
    ///
    /// # Errors
    /// Fails if the disk fails or has no room.
    pub(crate) fn flush_all(&self, go_on: &mut dyn FnMut() -> bool) -> Result<bool, StoreError> {
        let _awaited = self.background.accounts.await_flush();
        let last = self.log()?.close_generation()?;
        self.background.scheduler.tell();
        let (before, _) = self.background.scheduler.attempts();
        loop {
            let seen = self.background.scheduler.events();
            self.files.failure.check()?;
            self.check_open()?;
            if self.files.manifest.lock().log.flushed >= last.0 {
                return Ok(true);
            }
            if let (tried, Some(lacked)) = self.background.scheduler.attempts()
                && tried > before
            {
                return Err(lacked.into());
            }
            if !go_on() {
                return Ok(false);
            }
            self.background.scheduler.wait(seen, RETRY);
        }
    }

    /// Makes all writes durable and records that in the manifest, which is the last one.
    pub(crate) fn make_all_durable(&self) -> Result<(), StoreError> {
        let Some(log) = &self.writes.log else { return Ok(()) };
        let last = log.sync()?;
        let manifest = &mut *self.files.manifest.lock();
        let mut next = manifest.clone();
        if !mutation_site!("the manifest says up to where the log is durable") {
            // A flush may have made later writes durable meanwhile, and recorded them.
            next.log.durable = next.log.durable.max(last.0);
        }
        self.files.volumes.end_edits();
        self.files.save(manifest, next)
    }

    /// Saves the read frequencies for the next process. A failure costs that process only time, and
    /// that process reports it.
    pub(crate) fn keep_read_frequency(&self) {
        if self.writes.log.is_some() {
            let stamp = Stamp { store: self.files.manifest.lock().store, last: self.published() };
            _ = self.background.read_frequency.keep_for_later(&**self.files.volumes.home(), stamp);
        }
    }

    /// Returns the context of compactions, tiering and file moves.
    pub(crate) fn compaction_context(&self) -> CompactionContext<'_> {
        CompactionContext {
            files: &self.files,
            background: &self.background,
            transactions: &self.transactions,
            entries: &self.caches.entries,
            options: &self.options,
        }
    }

    /// Returns the context of flushes.
    ///
    /// # Errors
    /// Fails if the store is read-only.
    pub(crate) fn flush_context(&self) -> Result<FlushContext<'_>, StoreError> {
        let (compaction, log) = (self.compaction_context(), self.log_behind()?);
        Ok(FlushContext { compaction, log, room: &self.caches.room })
    }

    /// Returns the context of the writer of memtable images.
    ///
    /// # Errors
    /// Fails if the store is read-only.
    pub(crate) fn image_context(&self) -> Result<ImageContext<'_>, StoreError> {
        let Core { files, background, options, .. } = self;
        Ok(ImageContext { files, background, log: self.log_behind()?, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, CursorOptions, Kvdb, KvsOptions, TransactionOptions};

    #[test]
    fn a_child_of_the_process_that_opened_a_store_cannot_use_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("store");
        let store = Kvdb::create_at(&path, KvdbOptions::default()).expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        kvs.put(b"key", b"value").expect("room");
        let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
        let snapshot = store.snapshot().expect("open");
        let transaction = |store: &Kvdb| store.transaction(TransactionOptions::default());
        let mut begun = transaction(&store).expect("open");
        begun.put(&kvs, b"key", b"of the child").expect("fits");
        let mut batch = Batch::new();
        batch.put(&kvs, b"key", b"of the child").expect("fits");
        store.core().process.pretend(true);
        let refusals = [
            kvs.put(b"key", b"of the child").map(drop),
            kvs.delete(b"key").map(drop),
            kvs.delete_prefix(b"k").map(drop),
            kvs.get(b"key").map(drop),
            kvs.get_at(&snapshot, b"key").map(drop),
            cursor.next().map(drop),
            store.write(&batch).map(drop),
            begun.commit_durably().map(drop),
            transaction(&store).map(drop),
            store.snapshot().map(drop),
            store.sync(),
            store.compact(),
            store.create_kvs("other", KvsOptions::default()).map(drop),
            store.statistics().map(drop),
        ];
        for (number, refused) in refusals.into_iter().enumerate() {
            assert!(matches!(refused, Err(StoreError::Forked)), "{number}: {refused:?}");
        }
        store.core().process.pretend(false);
        assert_eq!(kvs.get(b"key").expect("readable"), Some(b"value".to_vec()));
        drop((cursor, snapshot));
        store.close().expect("durable");
    }
}
