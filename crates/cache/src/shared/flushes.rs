//! Sequence numbers of segments' lives, and flushes: everything below one number is void at once.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use entresol_base::sync::Mutex;
use entresol_base::{Seconds, mutation_site};

use crate::restart::Restart;

/// Stands for no ordered flush: the second before second 0.
const NO_FLUSH: u32 = u32::MAX;

/// Sequence numbers, and the flushes that are in force or ordered.
pub(crate) struct Flushes {
    /// Locked while a flush takes its number: a segment has a greater one only if its thread can
    /// see the flush. Otherwise it could copy an item there that it does not yet see to be flushed.
    next_sequence: Mutex<u64>,
    /// Sequence number below which all segments are flushed; 0 when none of them is left.
    below: AtomicU64,
    /// Second before that at which an ordered flush takes effect, or `NO_FLUSH`: no second is
    /// greater, so that every request compares once.
    after: AtomicU32,
    /// Held while an ordered flush is carried out.
    flushing: Mutex<()>,
}

impl Flushes {
    pub(crate) fn new() -> Self {
        Flushes {
            next_sequence: Mutex::new(1),
            below: AtomicU64::new(0),
            after: AtomicU32::new(NO_FLUSH),
            flushing: Mutex::new(()),
        }
    }

    /// Takes the next sequence number.
    pub(crate) fn take_sequence(&self) -> u64 {
        let mut next = self.next_sequence.lock();
        *next += 1;
        *next - 1
    }

    /// Ensures that later sequence numbers are above this one.
    pub(crate) fn pass_sequence(&self, sequence: u64) {
        let mut next = self.next_sequence.lock();
        *next = (*next).max(sequence + 1);
    }

    /// Returns the sequence number below which segments are flushed.
    #[inline]
    pub(crate) fn below(&self) -> u64 {
        self.below.load(Ordering::Acquire)
    }

    /// Flushes everything that was stored until now.
    pub(crate) fn flush_now(&self, restart: Option<&Restart>) {
        let mut next = self.next_sequence.lock();
        let below = *next;
        *next += 1;
        if let Some(restart) = restart
            && !mutation_site!("a flush is in the map")
        {
            restart.record_flush(below);
        }
        self.below.store(below, Ordering::SeqCst);
    }

    /// Returns true if the time of an ordered flush has come.
    #[inline]
    pub(crate) fn is_due(&self, now: Seconds) -> bool {
        self.after.load(Ordering::Relaxed) < now.0
    }

    /// Carries out the flush that was ordered.
    #[cold]
    pub(crate) fn carry_out(&self, now: Seconds, restart: Option<&Restart>) {
        // The order is struck out once it was carried out: until then every thread that sees it
        // waits here, so that none serves an item meanwhile.
        let _flushing = self.flushing.lock();
        let (order, none) = (&self.after, NO_FLUSH);
        let after = order.load(Ordering::SeqCst);
        if after < now.0 {
            self.flush_now(restart);
            let _ = order.compare_exchange(after, none, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Orders a flush for a second, or cancels it if that is 0.
    pub(crate) fn order(&self, at_s: u32) {
        self.after.store(at_s.wrapping_sub(1), Ordering::SeqCst);
    }

    /// Ends the flush below a number, unless another one has followed.
    pub(crate) fn end(&self, below: u64) {
        let _ = self.below.compare_exchange(below, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}
