//! The order in which writes come to count: each after all before it, however long each takes.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use entresol_base::mutation_site;
use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread;

use crate::types::{SegmentNumber, Sequence};

/// So often a thread looks before it lets others run.
const SPINS: u32 = 64;
/// So often it lets others run before it sleeps: then a thread before it sleeps as well, since its
/// page is being made, or has no processor, which it gets sooner if nobody asks for one in vain.
const YIELDS: u32 = 32;
/// After so long a thread that sleeps looks whether it is over.
const SLEEP: Duration = Duration::from_millis(10);

/// Up to where in the log all writes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last write.
    pub(crate) last: Sequence,
    /// The segment in which it lies.
    pub(crate) segment: SegmentNumber,
    /// Where it ends.
    pub(crate) end: u64,
}

/// Which writes count.
#[derive(Debug)]
pub(crate) struct Order {
    /// All up to this one count.
    published: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    position: Position,
    /// Threads that sleep until more counts.
    sleeping: u32,
    /// Complete, but something before them is not: the first write, and up to where.
    early: Vec<(Sequence, Position)>,
}

impl Order {
    /// All writes up to a position count already.
    pub(crate) fn new(position: Position) -> Order {
        let state = State { position, sleeping: 0, early: Vec::new() };
        let published = AtomicU64::new(position.last.0);
        Order { published, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The last write that counts, with all before it.
    pub(crate) fn published(&self) -> Sequence {
        Sequence(self.published.load(Acquire))
    }

    /// Up to where all writes count.
    pub(crate) fn position(&self) -> Position {
        self.state.lock().position
    }

    /// Says that the writes from `first` up to a position are complete.
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

    /// Waits until a write counts, or `is_over`.
    pub(crate) fn wait(&self, last: Sequence, is_over: impl Fn() -> bool) {
        if mutation_site!("a write waits for those before it") {
            return;
        }
        let mut spins = 0;
        while self.published() < last && !is_over() {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else if spins < SPINS + YIELDS {
                thread::yield_now();
            } else {
                self.sleep(last);
            }
        }
    }

    /// Sleeps until more counts than did, unless the write does, or for a while.
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
