//! Counters of accesses, by which indexes are compared.

use std::sync::atomic::{AtomicU64, Ordering};

use entresol_base::Place;
use entresol_media::FlushKind;
use entresol_media::observe::{FenceKind, LINE_BYTES, Observer, StoreKind};

/// Counters of a region's accesses, by any number of threads.
#[derive(Debug, Default)]
pub struct Counters {
    loads: AtomicU64,
    bytes_loaded: AtomicU64,
    words_stored: AtomicU64,
    bytes_streamed: AtomicU64,
    flushes: AtomicU64,
    lines_flushed: AtomicU64,
    drains: AtomicU64,
    copy_fences: AtomicU64,
    locked: AtomicU64,
}

/// Values of [`Counters`] at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Loads of any length.
    pub loads: u64,
    /// Bytes loaded.
    pub bytes_loaded: u64,
    /// Aligned words of eight bytes that ordinary stores touched.
    pub words_stored: u64,
    /// Bytes stored past the caches.
    pub bytes_streamed: u64,
    /// Calls of flush.
    pub flushes: u64,
    /// Lines written back by these calls.
    pub lines_flushed: u64,
    /// Drains.
    pub drains: u64,
    /// Fences within copies past the caches.
    pub copy_fences: u64,
    /// Atomic read-modify-writes, including those that wrote nothing since they found another
    /// value, and sequentially consistent stores.
    pub locked: u64,
}

impl Counters {
    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            loads: get(&self.loads),
            bytes_loaded: get(&self.bytes_loaded),
            words_stored: get(&self.words_stored),
            bytes_streamed: get(&self.bytes_streamed),
            flushes: get(&self.flushes),
            lines_flushed: get(&self.lines_flushed),
            drains: get(&self.drains),
            copy_fences: get(&self.copy_fences),
            locked: get(&self.locked),
        }
    }
}

impl Counts {
    /// Returns the counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            loads: self.loads - earlier.loads,
            bytes_loaded: self.bytes_loaded - earlier.bytes_loaded,
            words_stored: self.words_stored - earlier.words_stored,
            bytes_streamed: self.bytes_streamed - earlier.bytes_streamed,
            flushes: self.flushes - earlier.flushes,
            lines_flushed: self.lines_flushed - earlier.lines_flushed,
            drains: self.drains - earlier.drains,
            copy_fences: self.copy_fences - earlier.copy_fences,
            locked: self.locked - earlier.locked,
        }
    }
}

/// Returns the number of aligned units of `unit` bytes that hold the `len` bytes at `offset`, at
/// least one.
fn units(offset: u64, len: usize, unit: u64) -> u64 {
    (offset + len as u64 - 1) / unit - offset / unit + 1
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Observer for Counters {
    fn load(&self, _offset: u64, len: usize, _place: Place) {
        add(&self.loads, 1);
        add(&self.bytes_loaded, len as u64);
    }

    fn store(&self, offset: u64, bytes: &[u8], kind: StoreKind, _place: Place) {
        match kind {
            StoreKind::Cached => add(&self.words_stored, units(offset, bytes.len(), 8)),
            StoreKind::Streaming => add(&self.bytes_streamed, bytes.len() as u64),
        }
    }

    fn flush(&self, offset: u64, len: usize, _kind: FlushKind, _place: Place) {
        add(&self.flushes, 1);
        add(&self.lines_flushed, units(offset, len, LINE_BYTES));
    }

    fn fence(&self, kind: FenceKind, _place: Place) {
        let counter = match kind {
            FenceKind::Drain => &self.drains,
            FenceKind::Copy => &self.copy_fences,
            FenceKind::Locked => &self.locked,
        };
        add(counter, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use entresol_media::{Observed, Region};

    use super::*;

    #[test]
    fn counters_count_words_lines_and_fences() {
        let region = Observed::new(4096, Counters::default()).expect("memory");
        region.write(60, &[1; 16]);
        region.store_u64(8, 1, Relaxed);
        let before = region.observer().counts();
        assert_eq!(before.words_stored, 3 + 1);
        region.write_streaming(128, &[2; 128]);
        region.persist(60, 16);
        region.swap_u64(0, 1, Relaxed);
        let _ = region.load_line(0);
        let counts = region.observer().counts().since(&before);
        let expected = Counts {
            loads: 2,
            bytes_loaded: 72,
            words_stored: 1,
            bytes_streamed: 128,
            flushes: 1,
            lines_flushed: 2,
            drains: 1,
            copy_fences: 1,
            locked: 1,
        };
        assert_eq!(counts, expected);
    }
}
