//! Stores where the caches keep their contents when the power fails (eADR, or CXL with a global
//! flush): what is visible is durable, so a crash leaves the stores up to some moment.

use std::sync::atomic::Ordering;

use super::journal::Journal;
use crate::observe::LINE_BYTES;
use crate::region::Direct;

/// The stores since the last crash point, in the order in which they became visible.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    log: Vec<Entry>,
}

/// A word that was stored.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) thread: u32,
    pub(super) sequence: u64,
    /// The number of the word.
    pub(super) number: u64,
    /// What it was.
    pub(super) before: u64,
    /// Whether poison waits for it.
    pub(super) heals: bool,
}

impl Cuts {
    pub(super) fn reset(&mut self) {
        self.log.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.log.len()
    }

    pub(super) fn store(&mut self, entry: Entry) {
        self.log.push(entry);
    }

    /// How many stores bring a word for which poison waits, if one is on its way.
    pub(super) fn healer(&self, number: u64) -> Option<usize> {
        let first = self.log.iter().position(|entry| entry.heals && entry.number == number);
        first.map(|first| first + 1)
    }

    /// Whether a fence of this thread makes anything visible.
    pub(super) fn has_stored(&self, thread: u32) -> bool {
        self.log.iter().any(|entry| entry.thread == thread)
    }

    /// What this thread has stored is visible, and so is everything before.
    pub(super) fn fence(&mut self, thread: u32) {
        let last = self.log.iter().rposition(|entry| entry.thread == thread);
        self.log.drain(..last.map_or(0, |last| last + 1));
    }

    /// How many stores are visible at the least, since this thread loads one of another's.
    pub(super) fn seen(&self, offset: u64, len: usize, thread: u32) -> usize {
        let words = offset / 8..(offset + len as u64).div_ceil(8);
        let seen = |entry: &Entry| entry.thread != thread && words.contains(&entry.number);
        self.log.iter().rposition(seen).map_or(0, |last| last + 1)
    }

    /// The first `count` stores are visible.
    pub(super) fn forget(&mut self, count: usize) {
        self.log.drain(..count.min(self.log.len()));
    }

    /// When they were stored.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.log.iter().map(|entry| entry.sequence)
    }

    /// How many were stored before.
    pub(super) fn before(&self, moment: u64) -> u16 {
        self.log.partition_point(|entry| entry.sequence < moment) as u16
    }

    /// Takes back all stores but the first `choice`.
    pub(super) fn apply(&self, choice: u16, bytes: &Direct, journal: &mut Journal) {
        for entry in self.log[usize::from(choice)..].iter().rev() {
            journal.note(bytes, entry.number * 8 / LINE_BYTES);
            bytes.store_u64(entry.number * 8, entry.before, Ordering::Relaxed);
        }
    }

    pub(super) fn flip(&mut self, number: u64, bit: u64) {
        let same = self.log.iter_mut().filter(|entry| entry.number == number);
        same.for_each(|entry| entry.before ^= bit);
    }
}
