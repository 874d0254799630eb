//! Sequence numbers of segments' lives, the tokens that no place implies, and flushes: everything
//! below one number is void at once.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use entresol_base::sync::Mutex;
use entresol_base::{Seconds, mutation_site};

use crate::restart::Restart;
use crate::segment::tokens_of;

/// Sequence numbers that are left out after a restart: segments that left no trace had some of
/// them, and clients may hold tokens that came from those.
const LEFT_OUT: u64 = 1 << 20;
/// Stands for no ordered flush: the second before second 0.
const NO_FLUSH: u32 = u32::MAX;

/// Sequence numbers, and the flushes that are in force or ordered.
pub(crate) struct Flushes {
    /// Locked while a flush takes its number: a segment has a greater one only if its thread can
    /// see the flush. Otherwise it could copy an item there that it does not yet see to be flushed.
    numbers: Mutex<Numbers>,
    /// Sequence number below which all segments are flushed; 0 when none of them is left.
    below: AtomicU64,
    /// Second before that at which an ordered flush takes effect, or `NO_FLUSH`: no second is
    /// greater, so that every request compares once.
    after: AtomicU32,
    /// Held while an ordered flush is carried out.
    flushing: Mutex<()>,
}

struct Numbers {
    next_sequence: u64,
    /// Tokens of a sequence number that no segment has, for items whose place implies one that is
    /// too low.
    tokens: Range<u64>,
}

impl Numbers {
    fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }
}

impl Flushes {
    pub(crate) fn new() -> Self {
        Flushes {
            numbers: Mutex::new(Numbers { next_sequence: 1, tokens: 0..0 }),
            below: AtomicU64::new(0),
            after: AtomicU32::new(NO_FLUSH),
            flushing: Mutex::new(()),
        }
    }

    /// Takes the next sequence number.
    pub(crate) fn take_sequence(&self) -> u64 {
        self.numbers.lock().take_sequence()
    }

    /// Returns a token above another of the key, which no place implies and no item had before. One
    /// that a client chose may be above them all: then the next number follows.
    #[cold]
    pub(crate) fn take_token(&self, above: u64) -> u64 {
        let mut numbers = self.numbers.lock();
        if above >= tokens_of(numbers.next_sequence).start
            && let Some(token) = above.checked_add(1)
        {
            return token;
        }
        if numbers.tokens.is_empty() || numbers.tokens.start <= above {
            let sequence = numbers.take_sequence();
            numbers.tokens = tokens_of(sequence);
        }
        numbers.tokens.start += 1;
        numbers.tokens.start - 1
    }

    /// Ensures that later sequence numbers are above this one.
    pub(crate) fn pass_sequence(&self, sequence: u64) {
        let mut numbers = self.numbers.lock();
        numbers.next_sequence = numbers.next_sequence.max(sequence + 1);
    }

    /// Leaves out the sequence numbers that the last process may have used without a trace, and
    /// returns the next one.
    pub(crate) fn leave_out_unseen(&self) -> u64 {
        let mut numbers = self.numbers.lock();
        numbers.next_sequence += LEFT_OUT;
        numbers.next_sequence
    }

    /// Returns the sequence number below which segments are flushed.
    #[inline]
    pub(crate) fn below(&self) -> u64 {
        self.below.load(Ordering::Acquire)
    }

    /// Flushes everything that was stored until now.
    pub(crate) fn flush_now(&self, restart: Option<&Restart>) {
        let mut numbers = self.numbers.lock();
        let below = numbers.take_sequence();
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
