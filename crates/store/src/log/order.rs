//! The order in which writes come to count: each after all before it, however long each takes.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

use entresol_base::mutants::left_out;
use entresol_base::sync::Mutex;
use entresol_base::thread;

use crate::entry::{SegmentNumber, Sequence};

/// So often a thread looks before it lets others run.
const SPINS: u32 = 64;

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
}

#[derive(Debug)]
struct State {
    position: Position,
    /// Complete, but something before them is not: the first write, and up to where.
    early: Vec<(Sequence, Position)>,
}

impl Order {
    /// All writes up to a position count already.
    pub(crate) fn new(position: Position) -> Order {
        let state = State { position, early: Vec::new() };
        Order { published: AtomicU64::new(position.last.0), state: Mutex::new(state) }
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
        state.early.push((first, position));
        let next = |state: &State| {
            let next = Sequence(state.position.last.0 + 1);
            state.early.iter().position(|(first, _)| *first == next || left_out())
        };
        while let Some(place) = next(state) {
            state.position = state.early.swap_remove(place).1;
            self.published.store(state.position.last.0, Release);
        }
    }

    /// Waits until a write counts, or `is_over`.
    pub(crate) fn wait(&self, last: Sequence, is_over: impl Fn() -> bool) {
        let mut spins = 0;
        while self.published() < last && !is_over() && !left_out() {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
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
