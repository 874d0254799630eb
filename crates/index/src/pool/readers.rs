//! Readers: their epochs, so that no block is reused while a reader may look at it.
//!
//! Each reader has a slot and stores there the epoch in which it began. A block retired in some
//! epoch is free when all readers began in later ones: they came after the link to it was gone.
//!
//! Pinning takes a plain store. An exchange or a fence would hold up all loads behind it, also
//! those of the next operation: a third of a look-up's time, where lines come from memory. For
//! this,
//! 1. a thread has a slot of its own, by its number, which no other thread writes to. Threads with
//!    numbers too high for that, and threads that have a guard already, exchange a word of a shared
//!    slot;
//! 2. a thread that asks for the oldest epoch makes all threads pass a fence ([`Barrier`]): a
//!    reader whose slot it does not see as taken loads nothing before that fence, and so sees no
//!    link that was gone.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::atomic::{Ordering::SeqCst, fence};

use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_media::Barrier;

/// Number of slots with an owner, and of shared slots. More readers at once share a lock.
const SLOTS: usize = 128;

/// Epochs in which the current readers began.
#[derive(Debug)]
pub(super) struct Readers {
    now: AtomicU64,
    barrier: Barrier,
    /// Slots of the threads with these numbers.
    own: Box<[Slot; SLOTS]>,
    shared: Box<[Slot; SLOTS]>,
    /// Epochs of readers that found no slot free.
    crowd: Mutex<Vec<u64>>,
}

/// Epoch of a reader, 0 when free. It has a cache line of its own, since its thread writes it all
/// the time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// Guard that keeps blocks unchanged, see [`Pool::pin`](super::Pool::pin).
#[derive(Debug)]
#[must_use = "blocks are kept as long as the guard lives"]
pub struct Guard<'a>(Claim<'a>);

/// Place that holds the epoch in which a reader began.
#[derive(Debug)]
enum Claim<'a> {
    Slot(&'a Slot),
    Crowd(&'a Readers, u64),
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.0 {
            Claim::Slot(slot) => {
                debug_assert!(slot.0.load(Relaxed) != 0, "a reader leaves that was not there");
                slot.0.store(0, Release);
            }
            Claim::Crowd(readers, epoch) => readers.leave_crowd(epoch),
        }
    }
}

impl Readers {
    pub(super) fn new() -> Readers {
        let slots = || Box::new(std::array::from_fn(|_| Slot::default()));
        Readers {
            now: AtomicU64::new(1),
            barrier: Barrier::new(),
            own: slots(),
            shared: slots(),
            crowd: Mutex::default(),
        }
    }

    /// Returns the current epoch, in which a block is retired.
    pub(super) fn epoch(&self) -> u64 {
        // A reader that begins in a later epoch finds no link to the block.
        fence(SeqCst);
        self.now.load(SeqCst)
    }

    #[inline]
    pub(super) fn pin(&self) -> Guard<'_> {
        let number = thread::current_id().0 as usize;
        if let Some(slot) = self.own.get(number)
            && slot.0.load(Relaxed) == 0
        {
            // No other thread writes to it. An epoch that has passed meanwhile only keeps more than
            // it must.
            slot.0.store(self.now.load(Acquire), Release);
            self.barrier.light();
            return Guard(Claim::Slot(slot));
        }
        self.pin_shared(number % SLOTS)
    }

    #[cold]
    fn pin_shared(&self, first: usize) -> Guard<'_> {
        for slot in self.shared[first..].iter().chain(&self.shared[..first]) {
            let now = self.now.load(Relaxed);
            if slot.0.load(Relaxed) == 0 && slot.0.compare_exchange(0, now, SeqCst, Relaxed).is_ok()
            {
                // Loads from here on must follow this store. On x86 the exchange is such a fence
                // already.
                if !cfg!(target_arch = "x86_64") {
                    fence(SeqCst);
                }
                return Guard(Claim::Slot(slot));
            }
        }
        self.join_crowd()
    }

    /// Joins the crowd under its lock. A thread that advances the epoch takes that lock too: either
    /// it sees this reader, or it looked before this reader came, which then finds no link to the
    /// blocks that are freed.
    fn join_crowd(&self) -> Guard<'_> {
        let mut crowd = self.crowd.lock();
        let now = self.now.load(SeqCst);
        crowd.push(now);
        Guard(Claim::Crowd(self, now))
    }

    #[cold]
    fn leave_crowd(&self, epoch: u64) {
        let mut crowd = self.crowd.lock();
        let place = crowd.iter().position(|&it| it == epoch);
        assert!(place.is_some(), "a reader of epoch {epoch} leaves, and there are {crowd:?}");
        place.map(|place| crowd.swap_remove(place));
    }

    /// Begins a new epoch; returns the oldest that a reader is still in, or may be.
    pub(super) fn advance(&self) -> u64 {
        let next = self.now.fetch_add(1, SeqCst) + 1;
        if !self.barrier.heavy() {
            return 0;
        }
        let slots = self.own.iter().chain(self.shared.iter()).map(|slot| slot.0.load(SeqCst));
        let oldest = slots.filter(|&it| it != 0).min();
        let crowd = self.crowd.lock().iter().copied().min();
        oldest.into_iter().chain(crowd).fold(next, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_retired_before_a_reader_came_is_free_while_it_reads() {
        let readers = Readers::new();
        let before = readers.epoch();
        readers.advance();
        let guard = readers.pin();
        let meanwhile = readers.epoch();
        let oldest = readers.advance();
        assert!(before < oldest);
        assert!(meanwhile >= oldest);
        drop(guard);
        assert!(meanwhile < readers.advance());
    }

    #[test]
    fn a_thread_may_read_twice_at_once() {
        let readers = Readers::new();
        let (first, second) = (readers.pin(), readers.pin());
        let retired = readers.epoch();
        drop(first);
        assert!(retired >= readers.advance());
        drop(second);
        assert!(retired < readers.advance());
    }

    #[test]
    fn a_reader_may_have_more_guards_than_there_are_slots() {
        let readers = Readers::new();
        let mut guards: Vec<Guard<'_>> = (0..3 * SLOTS).map(|_| readers.pin()).collect();
        assert!(!readers.crowd.lock().is_empty());
        let retired = readers.epoch();
        while let Some(guard) = guards.pop() {
            assert!(retired >= readers.advance(), "{} guards are left", guards.len() + 1);
            drop(guard);
        }
        assert!(retired < readers.advance());
        assert!(readers.crowd.lock().is_empty());
    }
}
