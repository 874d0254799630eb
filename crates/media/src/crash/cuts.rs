//! Stores where the caches keep their contents when the power fails (eADR, or CXL with a global
//! flush): what is visible is durable, so a crash leaves the stores up to some moment.

use std::sync::atomic::Ordering;

use super::journal::Journal;
use crate::observe::LINE_BYTES;
use crate::region::Direct;

/// The stores since the last crash point, in the order in which they became visible.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// Who stored, the number of the word, and what it was before.
    log: Vec<(u32, u64, u64)>,
}

impl Cuts {
    pub(super) fn reset(&mut self) {
        self.log.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.log.len()
    }

    pub(super) fn store(&mut self, number: u64, before: u64, thread: u32) {
        self.log.push((thread, number, before));
    }

    /// Whether a fence of this thread makes anything visible.
    pub(super) fn has_stored(&self, thread: u32) -> bool {
        self.log.iter().any(|&(who, ..)| who == thread)
    }

    /// What this thread has stored is visible, and so is everything before.
    pub(super) fn fence(&mut self, thread: u32) {
        let last = self.log.iter().rposition(|&(who, ..)| who == thread);
        self.log.drain(..last.map_or(0, |last| last + 1));
    }

    /// How many stores are visible at the least, since this thread loads one of another's.
    pub(super) fn seen(&self, offset: u64, len: usize, thread: u32) -> usize {
        let words = offset / 8..(offset + len as u64).div_ceil(8);
        let seen = |&(who, word, _): &(u32, u64, u64)| who != thread && words.contains(&word);
        self.log.iter().rposition(seen).map_or(0, |last| last + 1)
    }

    /// The first `count` stores are visible.
    pub(super) fn forget(&mut self, count: usize) {
        self.log.drain(..count.min(self.log.len()));
    }

    /// Takes back all stores but the first `choice`.
    pub(super) fn apply(&self, choice: u16, bytes: &Direct, journal: &mut Journal) {
        for &(_, number, before) in self.log[usize::from(choice)..].iter().rev() {
            journal.note(bytes, number * 8 / LINE_BYTES);
            bytes.store_u64(number * 8, before, Ordering::Relaxed);
        }
    }

    pub(super) fn flip(&mut self, number: u64, bit: u64) {
        let same = self.log.iter_mut().filter(|(_, word, _)| *word == number);
        same.for_each(|(.., before)| *before ^= bit);
    }
}
