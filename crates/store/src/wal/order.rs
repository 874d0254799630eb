//! The order of publication: each write after all before it, however long each of them takes.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use entresol_base::mutation_site;
use entresol_base::sync::{Condvar, Mutex};

use crate::types::{SegmentNumber, Sequence};

/// Times that a waiting thread looks before it sleeps. If the write before is still not complete by
/// then, its thread sleeps too, for a page that is being created, or has no processor. A thread
/// that yields instead loses its own turn for a whole slice of the scheduler (since Linux 6.18).
const SPINS: u32 = 256;
/// Time after which a sleeping thread looks again.
const SLEEP: Duration = Duration::from_millis(10);

/// Position in the log up to which all writes are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last published write.
    pub(crate) last: Sequence,
    /// Segment that holds it.
    pub(crate) segment: SegmentNumber,
    /// Offset behind it.
    pub(crate) end: u64,
}

/// Tracks which writes are published.
#[derive(Debug)]
pub(crate) struct Order {
    /// Number of the last published write.
    published: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    position: Position,
    /// Number of threads that sleep until more writes are published.
    sleeping: u32,
    /// Complete groups behind one that is not: number of the first write, and position of the last
    /// one.
    early: Vec<(Sequence, Position)>,
}

impl Order {
    /// Creates an order in which all writes up to a position are published.
    pub(crate) fn new(position: Position) -> Order {
        let state = State { position, sleeping: 0, early: Vec::new() };
        let published = AtomicU64::new(position.last.0);
        Order { published, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns the last published write. All writes before it are published too.
    pub(crate) fn published(&self) -> Sequence {
        Sequence(self.published.load(Acquire))
    }

    /// Returns the position up to which all writes are published.
    pub(crate) fn position(&self) -> Position {
        self.state.lock().position
    }

    /// Notes that the writes from `first` up to a position are complete, and publishes all that may
    /// be.
    pub(crate) fn complete(&self, first: Sequence, position: Position) {
        let state = &mut *self.state.lock();
        let counts = state.position.last;
        debug_assert!(
            counts < first && first <= position.last,
            "writes {} to {} are complete, and {} counts already",
            first.0,
            position.last.0,
            counts.0,
        );
        state.early.push((first, position));
        let next = |state: &State| {
            let next = Sequence(state.position.last.0 + 1);
            state.early.iter().position(|(first, _)| {
                *first == next || mutation_site!("writes count in the order of their numbers")
            })
        };
        let before = counts;
        while let Some(place) = next(state) {
            state.position = state.early.swap_remove(place).1;
            self.published.store(state.position.last.0, Release);
        }
        if state.sleeping > 0 && state.position.last > before {
            self.changed.notify_all();
        }
    }

    /// Waits until a write is published, or until `is_over` returns true.
    pub(crate) fn wait(&self, last: Sequence, is_over: impl Fn() -> bool) {
        if mutation_site!("a write waits for those before it") {
            return;
        }
        let mut spins = 0;
        while self.published() < last && !is_over() {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                self.sleep(last);
            }
        }
    }

    /// Sleeps until more writes are published, at most for `SLEEP`. Returns at once if `last` is
    /// published.
    fn sleep(&self, last: Sequence) {
        let mut state = self.state.lock();
        if state.position.last < last {
            state.sleeping += 1;
            self.changed.wait_timeout(&mut state, SLEEP);
            state.sleeping -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_count_after_all_before_them() {
        let at =
            |last: u64, end: u64| Position { last: Sequence(last), segment: SegmentNumber(1), end };
        let order = Order::new(at(10, 100));
        order.complete(Sequence(13), at(13, 400));
        order.complete(Sequence(14), at(20, 500));
        assert_eq!((order.published(), order.position()), (Sequence(10), at(10, 100)));
        order.complete(Sequence(11), at(12, 300));
        assert_eq!((order.published(), order.position()), (Sequence(20), at(20, 500)));
        order.wait(Sequence(20), || false);
        order.wait(Sequence(21), || true);
    }
}
