//! A bounded queue of work for a background thread, and that thread.

use std::collections::VecDeque;

use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread::{self, JoinHandle};

/// A bounded queue. Its worker is woken when enough items wait, or a thread waits for one of them.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Wakes the worker.
    fed: Condvar,
    /// Wakes threads that wait for room, or for an item to be done.
    moved: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// Number of items that have come.
    come: u64,
    done: u64,
    /// Number of items that a thread waits for: all up to here are wanted at once.
    wanted: u64,
    is_closed: bool,
}

/// Number of waiting items that wakes the worker, unless the limit is lower.
const ENOUGH: usize = 16;

impl<T> Queue<T> {
    /// Makes an empty queue of at most `limit` items, at least 1.
    pub(crate) fn new(limit: usize) -> Queue<T> {
        let items = VecDeque::new();
        let state = State { items, come: 0, done: 0, wanted: 0, is_closed: false };
        let (fed, moved) = (Condvar::new(), Condvar::new());
        Queue { state: Mutex::new(state), fed, moved, limit: limit.max(1) }
    }

    /// Adds an item, waiting while there is no room.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.state.lock();
        self.moved.wait_while(&mut state, |it| it.items.len() >= self.limit && !it.is_closed);
        self.add(&mut state, item);
    }

    /// Adds an item if there is room; returns true if there was.
    pub(crate) fn offer(&self, item: T) -> bool {
        let mut state = self.state.lock();
        let has_room = state.items.len() < self.limit;
        if has_room {
            self.add(&mut state, item);
        }
        has_room
    }

    fn add(&self, state: &mut State<T>, item: T) {
        state.come += 1;
        if state.is_closed {
            return;
        }
        state.items.push_back(item);
        if state.items.len() == ENOUGH.min(self.limit) {
            self.fed.notify_one();
        }
    }

    /// Moves items to `out`, once there are enough or a thread waits for them. Returns false if the
    /// queue is closed.
    pub(crate) fn take(&self, out: &mut Vec<T>) -> bool {
        let mut state = self.state.lock();
        self.fed.wait_while(&mut state, |it| {
            let is_enough = it.items.len() >= ENOUGH.min(self.limit) || it.wanted > it.done;
            !it.is_closed && (it.items.is_empty() || !is_enough)
        });
        self.move_some(&mut state, out);
        !state.is_closed
    }

    /// Moves items to `out` without waiting.
    pub(crate) fn take_now(&self, out: &mut Vec<T>) -> bool {
        let mut state = self.state.lock();
        self.move_some(&mut state, out);
        !state.is_closed
    }

    fn move_some(&self, state: &mut State<T>, out: &mut Vec<T>) {
        let some = state.items.len().min(4 * ENOUGH);
        out.extend(state.items.drain(..some));
        self.moved.notify_all();
    }

    /// Counts `count` more of the items taken as done.
    pub(crate) fn done(&self, count: usize) {
        let mut state = self.state.lock();
        state.done += count as u64;
        self.moved.notify_all();
    }

    /// Waits until all items so far are done; returns false if the queue was closed, so that they
    /// never will be.
    pub(crate) fn settle(&self) -> bool {
        let mut state = self.state.lock();
        let come = state.come;
        state.wanted = state.wanted.max(come);
        self.fed.notify_one();
        self.moved.wait_while(&mut state, |it| it.done < come && !it.is_closed);
        state.done >= come
    }

    /// Returns a guard that closes the queue when dropped. The worker holds it, so that no thread
    /// waits for a worker that has panicked.
    pub(crate) fn closing(&self) -> Closing<'_, T> {
        Closing(self)
    }

    /// Closes the queue: no item is processed and no thread waits any more.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.fed.notify_all();
        self.moved.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Bytes of DRAM that the queue takes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.state.lock().items.capacity() * size_of::<T>()) as u64
    }
}

/// Guard that closes the queue; see [`Queue::closing`].
#[derive(Debug)]
#[must_use = "the queue is closed as soon as this is dropped"]
pub(crate) struct Closing<'a, T>(&'a Queue<T>);

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A thread that is joined when this is dropped. The owner has told it to end before that.
#[derive(Debug)]
pub(crate) struct Background(Option<JoinHandle<()>>);

impl Background {
    pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Background {
        Background(Some(thread::spawn(name, work)))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A panicking thread waits for no other: this one may be the cause.
        if let Some(thread) = self.0.take()
            && !std::thread::panicking()
        {
            // A panic of the thread has been reported already.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn nobody_waits_for_a_thread_that_has_panicked() {
        let queue = Arc::new(Queue::new(2));
        let theirs = Arc::clone(&queue);
        let works = thread::spawn("works", move || {
            let _closing = theirs.closing();
            assert!(theirs.take(&mut Vec::new()));
            std::panic::resume_unwind(Box::new("at work"));
        });
        // There is room for two; a third would wait for items that are never taken.
        (0..20).for_each(|item| queue.push(item));
        assert!(!queue.settle());
        assert!(works.join().is_err());
    }
}
