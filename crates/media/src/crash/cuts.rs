//! Stores where the caches keep their contents when the power fails (eADR, or CXL with a global
//! flush): what is visible is durable, so a crash leaves the stores up to some moment.

use std::sync::atomic::Ordering;

use super::journal::Journal;
use crate::observe::LINE_BYTES;
use crate::region::Direct;

/// The stores since the last crash point, in the order in which they became visible.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// The number of a word and what it was before the store.
    log: Vec<(u64, u64)>,
}

impl Cuts {
    pub(super) fn reset(&mut self) {
        self.log.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.log.len()
    }

    pub(super) fn store(&mut self, number: u64, before: u64) {
        self.log.push((number, before));
    }

    /// Takes back all stores but the first `choice`.
    pub(super) fn apply(&self, choice: u16, bytes: &Direct, journal: &mut Journal) {
        for &(number, before) in self.log[usize::from(choice)..].iter().rev() {
            journal.note(bytes, number * 8 / LINE_BYTES);
            bytes.store_u64(number * 8, before, Ordering::Relaxed);
        }
    }

    pub(super) fn flip(&mut self, number: u64, bit: u64) {
        let same = self.log.iter_mut().filter(|(word, _)| *word == number);
        same.for_each(|(_, before)| *before ^= bit);
    }
}
