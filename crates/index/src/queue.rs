//! What is to be done behind somebody's back: a bounded queue, and the thread that works it off.

use std::collections::VecDeque;

use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread::{self, JoinHandle};

/// A bounded queue. Whoever works it off is woken when enough waits, or somebody waits for it.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    /// For who works it off.
    fed: Condvar,
    /// For who waits for room, or until something is done.
    moved: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// How many have come, and how many of them are done.
    come: u64,
    done: u64,
    /// Everything up to here is wanted.
    wanted: u64,
    is_closed: bool,
}

/// So many wake the thread, where the limit is not below that.
const ENOUGH: usize = 16;

impl<T> Queue<T> {
    /// An empty queue of at most `limit`, at least 1.
    pub(crate) fn new(limit: usize) -> Queue<T> {
        let items = VecDeque::new();
        let state = State { items, come: 0, done: 0, wanted: 0, is_closed: false };
        let (fed, moved) = (Condvar::new(), Condvar::new());
        Queue { state: Mutex::new(state), fed, moved, limit: limit.max(1) }
    }

    /// Adds one, and waits as long as there is no room.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.state.lock();
        self.moved.wait_while(&mut state, |it| it.items.len() >= self.limit && !it.is_closed);
        self.add(&mut state, item);
    }

    /// Adds one if there is room; says whether there was.
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

    /// Moves some to `out`, once there are enough or somebody waits for them. False: closed.
    pub(crate) fn take(&self, out: &mut Vec<T>) -> bool {
        let mut state = self.state.lock();
        self.fed.wait_while(&mut state, |it| {
            let is_enough = it.items.len() >= ENOUGH.min(self.limit) || it.wanted > it.done;
            !it.is_closed && (it.items.is_empty() || !is_enough)
        });
        self.move_some(&mut state, out);
        !state.is_closed
    }

    /// The same without waiting.
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

    /// So many more of those that were taken are done.
    pub(crate) fn done(&self, count: usize) {
        let mut state = self.state.lock();
        state.done += count as u64;
        self.moved.notify_all();
    }

    /// Waits until all that has come is done; false if it will never be, since it was closed.
    pub(crate) fn settle(&self) -> bool {
        let mut state = self.state.lock();
        let come = state.come;
        state.wanted = state.wanted.max(come);
        self.fed.notify_one();
        self.moved.wait_while(&mut state, |it| it.done < come && !it.is_closed);
        state.done >= come
    }

    /// Closes it when dropped: whoever works it off holds this, so that nobody waits for a thread
    /// that has panicked.
    pub(crate) fn closing(&self) -> Closing<'_, T> {
        Closing(self)
    }

    /// Nothing more is worked off, and nobody waits any more.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.fed.notify_all();
        self.moved.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Bytes in DRAM.
    pub(crate) fn bytes(&self) -> u64 {
        (self.state.lock().items.capacity() * size_of::<T>()) as u64
    }
}

/// See [`Queue::closing`].
#[derive(Debug)]
#[must_use = "the queue is closed as soon as this is dropped"]
pub(crate) struct Closing<'a, T>(&'a Queue<T>);

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A thread that ends before this is dropped. Whoever drops it has told the thread to.
#[derive(Debug)]
pub(crate) struct Background(Option<JoinHandle<()>>);

impl Background {
    pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Background {
        Background(Some(thread::spawn(name, work)))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Who unwinds waits for nobody: the thread may be what failed.
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
        // There is room for two: who comes later would wait for what is not taken any more.
        (0..20).for_each(|item| queue.push(item));
        assert!(!queue.settle());
        assert!(works.join().is_err());
    }
}
