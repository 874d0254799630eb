//! Queues served by a pool of threads with blocking reads and writes: for kernels that refuse
//! io_uring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::{IoBuffer, IoCompletion, IoQueue, IoRequest, OpenFile};
use crate::event::Event;
use crate::raw::buffer::SpareBuffers;

/// Threads per file. On the disks that were measured more requests at once only wait longer.
const THREADS: usize = 8;

/// Threads of one file. They end when the last queue and the file are dropped.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    file: Arc<OpenFile>,
    work: Mutex<Work>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    jobs: VecDeque<Job>,
    closing: bool,
}

#[derive(Debug)]
struct Job {
    request: IoRequest,
    outbox: Arc<Outbox>,
}

/// Completions of one queue, filled by the threads.
#[derive(Debug)]
struct Outbox {
    done: Mutex<Vec<IoCompletion>>,
    event: Event,
}

impl Pool {
    pub(super) fn start(file: &Arc<OpenFile>) -> io::Result<Arc<Pool>> {
        let shared = Arc::new(Shared {
            file: Arc::clone(file),
            work: Mutex::default(),
            arrived: Condvar::new(),
        });
        let mut pool = Pool { shared, threads: Vec::with_capacity(THREADS) };
        for number in 0..THREADS {
            let shared = Arc::clone(&pool.shared);
            let thread = Builder::new().name(format!("file-io-{number}"));
            pool.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(Arc::new(pool))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.work).closing = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // The panic was reported when it happened; nothing more can be done about it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Carries out jobs until the pool closes and none is left.
    fn serve(&self) {
        while let Some(Job { request, outbox }) = self.next() {
            let IoRequest { access, offset, mut buffer, token } = request;
            let result = self.file.perform(access, offset, &mut buffer);
            lock(&outbox.done).push(IoCompletion { token, result, buffer });
            outbox.event.signal();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut work = lock(&self.work);
        loop {
            if let Some(job) = work.jobs.pop_front() {
                return Some(job);
            }
            if work.closing {
                return None;
            }
            work = self.arrived.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One thread's queue to the pool.
pub(super) struct ThreadQueue {
    pool: Arc<Pool>,
    outbox: Arc<Outbox>,
    /// Requests submitted and not kicked.
    waiting: Vec<IoRequest>,
    in_flight: usize,
    depth: usize,
    spares: Arc<SpareBuffers>,
}

impl ThreadQueue {
    pub(super) fn new(pool: Arc<Pool>, depth: usize) -> io::Result<ThreadQueue> {
        let outbox = Arc::new(Outbox { done: Mutex::default(), event: Event::new()? });
        let (waiting, spares) = (Vec::new(), Arc::default());
        Ok(ThreadQueue { pool, outbox, waiting, in_flight: 0, depth, spares })
    }

    fn start(&mut self) {
        let jobs = self.waiting.len();
        if jobs == 0 {
            return;
        }
        let left = self.in_flight;
        assert!(jobs <= left && left <= self.depth, "{jobs} of {left} start, {} fit", self.depth);
        let outbox = &self.outbox;
        let batch = self.waiting.drain(..).map(|request| Job { request, outbox: outbox.clone() });
        lock(&self.pool.shared.work).jobs.extend(batch);
        for _ in 0..jobs.min(THREADS) {
            self.pool.shared.arrived.notify_one();
        }
    }
}

impl IoQueue for ThreadQueue {
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight >= self.depth {
            return Err(request);
        }
        self.in_flight += 1;
        self.waiting.push(request);
        Ok(())
    }

    fn kick(&mut self) -> io::Result<()> {
        self.start();
        Ok(())
    }

    fn reap(&mut self, out: &mut Vec<IoCompletion>) {
        self.outbox.event.clear();
        let mut done = lock(&self.outbox.done);
        let (came, left) = (done.len(), self.in_flight);
        assert!(came <= left, "{came} requests are complete, {left} were under way");
        self.in_flight -= came;
        out.append(&mut done);
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.start();
        self.outbox.event.clear();
        if !lock(&self.outbox.done).is_empty() {
            // Cleared too early: a poller of the descriptor must see it again.
            self.outbox.event.signal();
            return Ok(());
        }
        if self.in_flight == 0 {
            return Ok(());
        }
        self.outbox.event.wait(timeout)
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.outbox.event.as_fd()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn buffer(&self, len: usize) -> IoBuffer {
        self.spares.buffer(len)
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if self.wait(None).is_err() {
                // Nothing is lost without the wait: the threads own the buffers and go on.
                return;
            }
            self.reap(&mut done);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded data is consistent after every statement, so a panic elsewhere does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
