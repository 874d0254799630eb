//! Reads and writes for event loops. What can be answered from memory is answered at once; threads
//! of the store do everything else and tell the caller later. The caller waits neither for a disk
//! nor for a flush.
//!
//! Several threads serve the reads, in any order. One thread serves the writes, in the order in
//! which they were given: while a write is under way, those behind it queue up. One sync makes all
//! queued writes durable that ask for it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread::{self, JoinHandle};

use crate::engine::Core;
use crate::types::Sequence;
use crate::{Batch, Kvs, StoreError};

/// Options with which [`Completions`] are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionOptions {
    /// Threads that read, which is also the number of reads that a disk sees at once.
    pub readers: usize,
    /// Most requests that may be under way, or answered and not taken.
    pub pending_max: usize,
    /// Most bytes of keys, values and batches in these requests. A single request may be larger.
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
    /// The answer itself.
    Ready(T),
    /// The answer comes as a completion, under the token that the caller gave.
    Pending,
}

/// A request that has come to its end.
#[derive(Debug)]
pub struct Completion {
    /// Token that the caller gave with the request.
    pub token: u64,
    /// Result of the request.
    pub outcome: Outcome,
}

/// Result of a read or a write.
#[derive(Debug)]
pub enum Outcome {
    /// Value that a read found, if there is one.
    Value(Result<Option<Vec<u8>>, StoreError>),
    /// Number of the write.
    Written(Result<Sequence, StoreError>),
}

/// Reads and writes of an event loop. Dropping it waits for the threads; requests that they have
/// not begun are not served.
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
    /// Signals that a read is queued, or that there is room for its value.
    may_read: Condvar,
    /// Signals that a write is queued.
    may_write: Condvar,
}

#[derive(Default)]
struct Queues {
    reads: VecDeque<Read>,
    writes: VecDeque<Write>,
    /// True while writes are taken out of the queue and not answered yet.
    is_writing: bool,
    done: Vec<Completion>,
    /// Requests that are under way, or answered and not taken.
    pending: usize,
    /// Bytes of these requests and answers.
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

impl Completions {
    /// Creates a queue of reads and writes for an event loop.
    ///
    /// # Errors
    /// Fails if the options are not valid, or if the system refuses a thread.
    pub(crate) fn begin(
        core: &Arc<Core>,
        options: CompletionOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Completions, StoreError> {
        core.check_open()?;
        if options.readers == 0 || options.readers > 1024 || options.pending_max == 0 {
            let what = format!(
                "completions with {} readers and at most {} pending: use 1 to 1024 readers, and at \
                 least 1 pending",
                options.readers, options.pending_max
            );
            return Err(StoreError::Options { what });
        }
        let shared = Arc::new(Shared {
            core: Arc::clone(core),
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

    /// Returns the value of a key at once if it is in memory, or if the key is known not to exist.
    /// Otherwise a thread reads it.
    ///
    /// # Errors
    /// Fails if the `Kvs` cannot be read. Fails as well if too much is pending: the caller then
    /// takes completions and tries again.
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

    /// Writes a batch, at once unless it would have to wait. An answered write is visible and
    /// survives the death of the process.
    ///
    /// # Errors
    /// Fails if the store refuses the batch. Fails as well if too much is pending: the caller then
    /// takes completions and tries again.
    pub fn write(&self, batch: Batch, token: u64) -> Result<Attempt<Sequence>, StoreError> {
        self.shared.core.check_open()?;
        let queues = self.shared.queues.lock();
        let is_first = queues.writes.is_empty() && !queues.is_writing;
        if is_first && !self.shared.core.would_wait() {
            // The lock is held meanwhile, or a later write could overtake this one.
            return batch.write_to(&self.shared.core).map(Attempt::Ready);
        }
        drop(queues);
        self.queue(Write { token, batch, is_durable: false })
    }

    /// Writes a batch, and answers once it survives a crash of the machine.
    ///
    /// # Errors
    /// Fails as [`write`](Completions::write) does.
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

    /// Takes all completions since the last call.
    pub fn take(&self) -> Vec<Completion> {
        let mut queues = self.shared.queues.lock();
        let done = std::mem::take(&mut queues.done);
        queues.pending -= done.len();
        queues.bytes -= done.iter().map(Completion::bytes).sum::<u64>();
        drop(queues);
        // Readers may be waiting for room for their values.
        self.shared.may_read.notify_all();
        done
    }

    /// Returns the number of requests that are under way, or answered and not taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.queues.lock().pending
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.shared.core.process.is_another() {
            // The threads are not in this process.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        self.shared.queues.lock().is_over = true;
        self.shared.may_read.notify_all();
        self.shared.may_write.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
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
    /// Counts one more request of so many bytes.
    ///
    /// # Errors
    /// Fails if the limit of requests or bytes is reached.
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
                writes.iter().map(|write| (write, write.batch.write_to(&self.core))).collect();
            let mut synced = if is_durable { self.core.sync_written() } else { Ok(()) };
            let mut done = Vec::new();
            for (write, mut result) in written {
                if write.is_durable && result.is_ok() && synced.is_err() {
                    // The first durable write gets the error itself, the others get what the store
                    // says from now on.
                    let again = self.core.files.failure.check();
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

    /// Publishes answers to requests that counted `bytes` until now.
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
            // A panic was printed. The completions stay, and the next call of `take` returns them.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| (self.wake)()));
        }
    }
}
