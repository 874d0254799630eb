//! The paper's emulated memory: what is flushed, and what two caches before it lack.
//!
//! The paper emulates persistent memory on DRAM (Quartz): reads that miss the last-level cache are
//! slower, and each flush is. Its trees, a few megabytes, fit into that cache of 12 MB, so a line
//! is missing from it only because `clflush` has thrown it out; but not into the 256 KB before it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::Place;
use entresol_media::observe::{FenceKind, LINE_BYTES, StoreKind};
use entresol_media::{FlushKind, Observer};

/// What was done to the memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) operations: f64,
    pub(super) lines_flushed: f64,
    /// Words and lines loaded and words stored, from or into the cache.
    pub(super) accesses: f64,
    /// Lines that had to be fetched from the last-level cache, or from memory.
    pub(super) fetched: f64,
    /// Of these, from memory.
    pub(super) misses: f64,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        self.operations += more.operations;
        self.lines_flushed += more.lines_flushed;
        self.accesses += more.accesses;
        self.fetched += more.fetched;
        self.misses += more.misses;
    }

    fn divided(self, by: f64) -> Counts {
        Counts {
            operations: self.operations / by,
            lines_flushed: self.lines_flushed / by,
            accesses: self.accesses / by,
            fetched: self.fetched / by,
            misses: self.misses / by,
        }
    }
}

/// The mean of several runs.
pub(super) fn mean(runs: &[Counts]) -> Counts {
    let mut sum = Counts::default();
    runs.iter().for_each(|run| sum.add(*run));
    sum.divided(runs.len().max(1) as f64)
}

/// Lines of the second-level cache, 256 KB, which is taken for one with a place for each line.
const NEAR_LINES: u64 = 4096;

/// What of a run is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Lines flushed, no more: that is quicker.
    Flushes,
    /// All of [`Counts`].
    Everything,
}

/// The memory under a tree, and the caches before it if everything is counted.
pub(super) struct Emulated {
    caches: Option<Caches>,
    fetched: AtomicU64,
    lines_flushed: AtomicU64,
    accesses: AtomicU64,
    misses: AtomicU64,
}

/// Two caches: a last-level one that holds everything but what was flushed, and a small one.
struct Caches {
    /// A bit for each line that is in the large cache.
    cached: Vec<AtomicU64>,
    /// The lines in the small cache, by their last bits.
    near: Vec<AtomicU64>,
}

impl Caches {
    fn new(bytes: u64) -> Caches {
        let words = bytes / LINE_BYTES / 64 + 1;
        Caches {
            cached: (0..words).map(|_| AtomicU64::new(u64::MAX)).collect(),
            near: (0..NEAR_LINES).map(|_| AtomicU64::new(u64::MAX)).collect(),
        }
    }

    fn near(&self, line: u64) -> &AtomicU64 {
        &self.near[(line % NEAR_LINES) as usize]
    }

    /// The word with the line's bit, and the bit.
    fn cached(&self, line: u64) -> (&AtomicU64, u64) {
        (&self.cached[line as usize / 64], 1 << (line % 64))
    }

    fn forget(&self, line: u64) {
        let near = self.near(line);
        if near.load(Relaxed) == line {
            near.store(u64::MAX, Relaxed);
        }
        let (word, bit) = self.cached(line);
        word.store(word.load(Relaxed) & !bit, Relaxed);
    }
}

impl Emulated {
    pub(super) fn new(bytes: u64, counted: Counted) -> Emulated {
        Emulated {
            caches: (counted == Counted::Everything).then(|| Caches::new(bytes)),
            fetched: AtomicU64::new(0),
            lines_flushed: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// One thread counts, so that plain additions do.
    fn count(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Relaxed) + more, Relaxed);
    }

    fn touch(&self, caches: &Caches, offset: u64, len: usize) {
        Emulated::count(&self.accesses, 1);
        for line in offset / LINE_BYTES..=(offset + len.max(1) as u64 - 1) / LINE_BYTES {
            let near = caches.near(line);
            if near.load(Relaxed) == line {
                continue;
            }
            near.store(line, Relaxed);
            Emulated::count(&self.fetched, 1);
            let (word, bit) = caches.cached(line);
            let cached = word.load(Relaxed);
            if cached & bit == 0 {
                word.store(cached | bit, Relaxed);
                Emulated::count(&self.misses, 1);
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Relaxed) as f64;
        Counts {
            operations: 0.0,
            lines_flushed: get(&self.lines_flushed),
            accesses: get(&self.accesses),
            fetched: get(&self.fetched),
            misses: get(&self.misses),
        }
    }
}

impl Observer for Emulated {
    fn load(&self, offset: u64, len: usize, _place: Place) {
        if let Some(caches) = &self.caches {
            self.touch(caches, offset, len);
        }
    }

    fn store(&self, offset: u64, bytes: &[u8], _kind: StoreKind, _place: Place) {
        if let Some(caches) = &self.caches {
            self.touch(caches, offset, bytes.len());
        }
    }

    fn flush(&self, offset: u64, len: usize, _kind: FlushKind, _place: Place) {
        for line in offset / LINE_BYTES..=(offset + len as u64 - 1) / LINE_BYTES {
            Emulated::count(&self.lines_flushed, 1);
            self.caches.iter().for_each(|caches| caches.forget(line));
        }
    }

    fn fence(&self, _kind: FenceKind, _place: Place) {}
}
