//! Stores on machines whose caches keep their contents when the power fails (eADR, or CXL with a
//! global flush). A visible store is durable there, so a crash leaves the stores up to some moment.

use std::sync::atomic::Ordering;

use entresol_media::observe::LINE_BYTES;
use entresol_media::region::Direct;

use super::journal::Journal;

/// Stores since the last crash point, in the order in which they became visible.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    log: Vec<Entry>,
}

/// A word that was stored.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) thread: u32,
    pub(super) sequence: u64,
    /// Number of the word.
    pub(super) number: u64,
    /// Its old value.
    pub(super) before: u64,
    /// True if storing it heals poison.
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

    /// Returns how many stores must be kept to include a pending one that heals poison of this
    /// word.
    pub(super) fn healer(&self, number: u64) -> Option<usize> {
        let first = self.log.iter().position(|entry| entry.heals && entry.number == number);
        first.map(|first| first + 1)
    }

    /// Returns true if a fence of this thread makes any store visible.
    pub(super) fn has_stored(&self, thread: u32) -> bool {
        self.log.iter().any(|entry| entry.thread == thread)
    }

    /// Makes this thread's stores, and all earlier ones, visible.
    pub(super) fn fence(&mut self, thread: u32) {
        let last = self.log.iter().rposition(|entry| entry.thread == thread);
        self.log.drain(..last.map_or(0, |last| last + 1));
    }

    /// Returns the minimum number of visible stores, given that this thread loads another's store.
    pub(super) fn seen(&self, offset: u64, len: usize, thread: u32) -> usize {
        let words = offset / 8..(offset + len as u64).div_ceil(8);
        let seen = |entry: &Entry| entry.thread != thread && words.contains(&entry.number);
        self.log.iter().rposition(seen).map_or(0, |last| last + 1)
    }

    /// Drops the first `count` stores, which are visible.
    pub(super) fn forget(&mut self, count: usize) {
        self.log.drain(..count.min(self.log.len()));
    }

    /// Returns the moments of the stores.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.log.iter().map(|entry| entry.sequence)
    }

    /// Returns the number of stores before a moment.
    pub(super) fn before(&self, moment: u64) -> u16 {
        self.log.partition_point(|entry| entry.sequence < moment) as u16
    }

    /// Undoes all stores but the first `choice`.
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
