//! Who is reading: so that nothing that somebody may look at is used again.
//!
//! Each reader claims a slot and leaves there the epoch in which it began. A block retired in some
//! epoch is free when all readers began in later ones: they came after what led to it was gone.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use entresol_base::sync::Mutex;
use entresol_base::thread;

/// More readers than this at once share a lock.
const SLOTS: usize = 128;

/// The epochs in which those who are reading began.
#[derive(Debug)]
pub(super) struct Readers {
    now: AtomicU64,
    slots: Box<[Slot]>,
    /// Those who found no slot free.
    crowd: Mutex<Vec<u64>>,
}

/// 0 when free. On a line of its own, since each thread writes its own all the time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// Keeps blocks as they are, see [`Pool::pin`](super::Pool::pin).
#[derive(Debug)]
#[must_use = "blocks are kept as long as the guard lives"]
pub struct Guard<'a>(Claim<'a>);

/// Where the epoch in which a reader began is noted.
#[derive(Debug)]
enum Claim<'a> {
    Slot(&'a Slot),
    Crowd(&'a Readers, u64),
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.0 {
            Claim::Slot(slot) => slot.0.store(0, Release),
            Claim::Crowd(readers, epoch) => readers.leave_crowd(epoch),
        }
    }
}

impl Readers {
    pub(super) fn new() -> Readers {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Readers { now: AtomicU64::new(1), slots, crowd: Mutex::default() }
    }

    /// Now: the epoch that a block is retired in.
    pub(super) fn epoch(&self) -> u64 {
        // What led to the block is gone for everybody who comes into a later epoch.
        fence(SeqCst);
        self.now.load(SeqCst)
    }

    #[inline]
    pub(super) fn pin(&self) -> Guard<'_> {
        let first = thread::current_id().0 as usize % SLOTS;
        for slot in self.slots[first..].iter().chain(&self.slots[..first]) {
            let now = self.now.load(Relaxed);
            if slot.0.load(Relaxed) == 0 && slot.0.compare_exchange(0, now, SeqCst, Relaxed).is_ok()
            {
                // What is read from here on is read after this is known. On x86 the exchange
                // is such a fence already.
                if !cfg!(target_arch = "x86_64") {
                    fence(SeqCst);
                }
                return Guard(Claim::Slot(slot));
            }
        }
        self.join_crowd()
    }

    /// Who begins an epoch looks at the crowd under its lock, so either sees this reader, or did so
    /// before: then what it frees has gone for this reader.
    #[cold]
    fn join_crowd(&self) -> Guard<'_> {
        let mut crowd = self.crowd.lock();
        let now = self.now.load(SeqCst);
        crowd.push(now);
        Guard(Claim::Crowd(self, now))
    }

    #[cold]
    fn leave_crowd(&self, epoch: u64) {
        let mut crowd = self.crowd.lock();
        if let Some(place) = crowd.iter().position(|&it| it == epoch) {
            crowd.swap_remove(place);
        }
    }

    /// Begins a new epoch; answers with the oldest that somebody is still in.
    pub(super) fn advance(&self) -> u64 {
        let next = self.now.fetch_add(1, SeqCst) + 1;
        let slots = self.slots.iter().map(|slot| slot.0.load(SeqCst)).filter(|&it| it != 0).min();
        let crowd = self.crowd.lock().iter().copied().min();
        slots.into_iter().chain(crowd).fold(next, u64::min)
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
        let retired = readers.epoch();
        while let Some(guard) = guards.pop() {
            assert!(retired >= readers.advance(), "{} guards are left", guards.len() + 1);
            drop(guard);
        }
        assert!(retired < readers.advance());
        assert!(readers.crowd.lock().is_empty());
    }
}
