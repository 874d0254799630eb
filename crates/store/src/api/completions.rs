//! The form for event loops: what can be answered from memory is answered at once, all else by
//! threads of the store, and told later. Who calls waits neither for a disk nor for flushing.
//!
//! Reads go to some threads, in any order. Writes go to one, in the order in which they were given:
//! as long as one is under way, those behind it queue up. What waits there to be durable is made so
//! by one sync.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread::{self, JoinHandle};

use crate::types::Sequence;
use crate::version::core::Core;
use crate::{Batch, Kvdb, Kvs, StoreError};

/// How [`Completions`] are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionOptions {
    /// Threads that read: so many reads are on their way to the disk at once.
    pub readers: usize,
    /// The most that may be under way, or answered and not taken.
    pub pending_max: usize,
    /// The most bytes of keys, values and batches in them; a single one may be larger.
    pub pending_bytes_max: u64,
}

impl Default for CompletionOptions {
    fn default() -> CompletionOptions {
        CompletionOptions { readers: 4, pending_max: 4096, pending_bytes_max: 64 << 20 }
    }
}

/// An answer, or the promise of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt<T> {
    /// Here it is.
    Ready(T),
    /// It will be among the completions, under the token that was given.
    Pending,
}

/// What has come to its end.
#[derive(Debug)]
pub struct Completion {
    /// What the caller gave.
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How something ended.
#[derive(Debug)]
pub enum Outcome {
    /// A read: the value, if there is one.
    Value(Result<Option<Vec<u8>>, StoreError>),
    /// A write: its number.
    Written(Result<Sequence, StoreError>),
}

/// Reads and writes of an event loop that are under way. Dropping it waits for the threads; what
/// they had not begun is not done.
///
/// ```
/// # fn main() -> Result<(), entresol_store::StoreError> {
/// # let scratch = tempfile::tempdir().expect("a directory");
/// # let path = scratch.path().join("store");
/// use std::sync::mpsc::channel;
///
/// use entresol_store::{Attempt, Batch, CompletionOptions, Kvdb, KvdbOptions, KvsOptions, Outcome};
///
/// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
/// let users = store.create_kvs("users", KvsOptions::default())?;
/// // An event loop would write to an eventfd that it polls.
/// let (wake, woken) = channel();
/// let completions = store.completions(CompletionOptions::default(), move || {
///     let _ = wake.send(());
/// })?;
///
/// let mut batch = Batch::new();
/// batch.put(&users, b"ada", b"1815")?;
/// assert_eq!(completions.write_durably(batch, 7)?, Attempt::Pending);
/// woken.recv().expect("the write is durable");
/// let done = completions.take();
/// assert!(done[0].token == 7 && matches!(done[0].outcome, Outcome::Written(Ok(_))));
///
/// // What was just written is in memory.
/// let found = completions.get(&users, b"ada", 8)?;
/// assert_eq!(found, Attempt::Ready(Some(b"1815".to_vec())));
/// # Ok(())
/// # }
/// ```
pub struct Completions {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    core: Arc<Core>,
    options: CompletionOptions,
    wake: Box<dyn Fn() + Send + Sync>,
    queues: Mutex<Queues>,
    /// There is something to read, or room for what is read.
    may_read: Condvar,
    /// There is something to write.
    may_write: Condvar,
}

#[derive(Default)]
struct Queues {
    reads: VecDeque<Read>,
    writes: VecDeque<Write>,
    /// Writes were taken out of the queue and are not answered yet.
    is_writing: bool,
    done: Vec<Completion>,
    /// Everything that was asked for and not taken.
    pending: usize,
    /// The bytes of what waits or was answered.
    bytes: u64,
    is_over: bool,
}

struct Read {
    token: u64,
    kvs: Kvs,
    key: Vec<u8>,
}

struct Write {
    token: u64,
    batch: Batch,
    is_durable: bool,
}

impl Kvdb {
    /// A queue of reads and writes for an event loop. `wake` is called, by any thread, whenever
    /// there is something to take where there was nothing.
    ///
    /// # Errors
    /// If the options cannot be, or the system gives no thread.
    pub fn completions(
        &self,
        options: CompletionOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Completions, StoreError> {
        self.core().check_open()?;
        if options.readers == 0 || options.readers > 1024 || options.pending_max == 0 {
            let what = format!(
                "completions with {} readers and at most {} pending: use 1 to 1024 readers, and at \
                 least 1 pending",
                options.readers, options.pending_max
            );
            return Err(StoreError::Options { what });
        }
        let shared = Arc::new(Shared {
            core: Arc::clone(self.core()),
            options,
            wake: Box::new(wake),
            queues: Mutex::default(),
            may_read: Condvar::default(),
            may_write: Condvar::default(),
        });
        let mut completions = Completions { shared, threads: Vec::new() };
        let mut begin = |run: fn(&Shared)| -> Result<(), StoreError> {
            let shared = Arc::clone(&completions.shared);
            let thread = thread::try_spawn("store-complete", move || run(&shared));
            completions.threads.push(thread.map_err(|cause| StoreError::Options {
                what: format!("cannot start a thread for completions: {cause}"),
            })?);
            Ok(())
        };
        begin(Shared::write_all)?;
        (0..options.readers).try_for_each(|_| begin(Shared::read_all))?;
        Ok(completions)
    }
}

impl Completions {
    /// The value of a key: at once if it is in memory, or known to be nowhere.
    ///
    /// # Errors
    /// If the `Kvs` cannot be asked, or too much is pending already: take what is done, then try
    /// again.
    pub fn get(
        &self,
        kvs: &Kvs,
        key: &[u8],
        token: u64,
    ) -> Result<Attempt<Option<Vec<u8>>>, StoreError> {
        kvs.check_there()?;
        if !Arc::ptr_eq(kvs.core(), &self.shared.core) {
            let what = format!("the Kvs '{}' belongs to another store", kvs.name());
            return Err(StoreError::Options { what });
        }
        let mut value = Vec::new();
        if let Some(found) = self.shared.core.newest_in_memory(kvs.id(), key, &mut value)? {
            return Ok(Attempt::Ready(found.map(|_| value)));
        }
        let mut queues = self.shared.queues.lock();
        self.shared.admit(&mut queues, key.len() as u64)?;
        queues.reads.push_back(Read { token, kvs: kvs.clone(), key: key.to_vec() });
        drop(queues);
        self.shared.may_read.notify_one();
        Ok(Attempt::Pending)
    }

    /// Writes a batch: at once if nobody has to be waited for. It counts, and survives the death of
    /// the process, when it is answered.
    ///
    /// # Errors
    /// If the store refuses it, or too much is pending already: take what is done, then try again.
    pub fn write(&self, batch: Batch, token: u64) -> Result<Attempt<Sequence>, StoreError> {
        self.shared.core.check_open()?;
        let queues = self.shared.queues.lock();
        let is_first = queues.writes.is_empty() && !queues.is_writing;
        if is_first && !self.shared.core.would_wait() {
            // Under the lock, so that no later one comes before it.
            return self.shared.core.write_batch(&batch).map(Attempt::Ready);
        }
        drop(queues);
        self.queue(Write { token, batch, is_durable: false })
    }

    /// Writes a batch, and answers when it survives the machine as well.
    ///
    /// # Errors
    /// As [`write`](Completions::write).
    pub fn write_durably(&self, batch: Batch, token: u64) -> Result<Attempt<Sequence>, StoreError> {
        self.shared.core.check_open()?;
        self.queue(Write { token, batch, is_durable: true })
    }

    fn queue(&self, write: Write) -> Result<Attempt<Sequence>, StoreError> {
        let mut queues = self.shared.queues.lock();
        self.shared.admit(&mut queues, write.batch.bytes())?;
        queues.writes.push_back(write);
        drop(queues);
        self.shared.may_write.notify_one();
        Ok(Attempt::Pending)
    }

    /// What has come to its end since the last call.
    pub fn take(&self) -> Vec<Completion> {
        let mut queues = self.shared.queues.lock();
        let done = std::mem::take(&mut queues.done);
        queues.pending -= done.len();
        queues.bytes -= done.iter().map(Completion::bytes).sum::<u64>();
        drop(queues);
        // Readers may have waited for room for what they are going to read.
        self.shared.may_read.notify_all();
        done
    }

    /// How much is under way, or can be taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.queues.lock().pending
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.shared.queues.lock().is_over = true;
        self.shared.may_read.notify_all();
        self.shared.may_write.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions").field("pending", &self.pending()).finish_non_exhaustive()
    }
}

impl Completion {
    fn bytes(&self) -> u64 {
        match &self.outcome {
            Outcome::Value(Ok(Some(value))) => value.len() as u64,
            _ => 0,
        }
    }
}

impl Shared {
    /// Makes room for one more, if there is any.
    fn admit(&self, queues: &mut Queues, bytes: u64) -> Result<(), StoreError> {
        let CompletionOptions { pending_max, pending_bytes_max, .. } = self.options;
        let is_large = queues.pending > 0 && queues.bytes + bytes > pending_bytes_max;
        if queues.pending >= pending_max || is_large {
            let (pending, bytes) = (queues.pending, queues.bytes);
            return Err(StoreError::TooMuchPending { pending, bytes });
        }
        queues.pending += 1;
        queues.bytes += bytes;
        Ok(())
    }

    fn read_all(&self) {
        loop {
            let mut queues = self.queues.lock();
            let has_room = |queues: &Queues| {
                queues.done.is_empty() || queues.bytes <= self.options.pending_bytes_max
            };
            let waits = |it: &mut Queues| !it.is_over && (it.reads.is_empty() || !has_room(it));
            self.may_read.wait_while(&mut queues, waits);
            if queues.is_over {
                return;
            }
            let Some(Read { token, kvs, key }) = queues.reads.pop_front() else { continue };
            drop(queues);
            let outcome = Outcome::Value(kvs.get(&key));
            self.complete(vec![Completion { token, outcome }], key.len() as u64);
        }
    }

    fn write_all(&self) {
        loop {
            let mut queues = self.queues.lock();
            self.may_write.wait_while(&mut queues, |it| !it.is_over && it.writes.is_empty());
            if queues.is_over {
                return;
            }
            let writes = std::mem::take(&mut queues.writes);
            queues.is_writing = true;
            drop(queues);
            let bytes = writes.iter().map(|write| write.batch.bytes()).sum();
            let is_durable = writes.iter().any(|write| write.is_durable);
            let written: Vec<_> =
                writes.iter().map(|write| (write, self.core.write_batch(&write.batch))).collect();
            let mut synced = if is_durable { self.core.sync() } else { Ok(()) };
            let mut done = Vec::new();
            for (write, mut result) in written {
                if write.is_durable && result.is_ok() && synced.is_err() {
                    // The others are told what the store says from now on.
                    let again = self.core.failure.check();
                    result =
                        Err(std::mem::replace(&mut synced, again).err().unwrap_or_else(|| {
                            StoreError::Internal {
                                what: "a sync failed for an unknown reason".to_owned(),
                            }
                        }));
                }
                done.push(Completion { token: write.token, outcome: Outcome::Written(result) });
            }
            self.complete(done, bytes);
        }
    }

    /// Puts answers where they can be taken; `bytes` waited until now.
    fn complete(&self, done: Vec<Completion>, bytes: u64) {
        let mut queues = self.queues.lock();
        if done.iter().any(|it| matches!(it.outcome, Outcome::Written(_))) {
            queues.is_writing = false;
        }
        let was_empty = queues.done.is_empty();
        queues.bytes += done.iter().map(Completion::bytes).sum::<u64>();
        queues.bytes -= bytes;
        queues.done.extend(done);
        drop(queues);
        if was_empty {
            (self.wake)();
        }
    }
}
