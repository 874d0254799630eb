//! Emulated memory of the paper, with counts of flushes and of misses in two caches.
//!
//! The paper emulates persistent memory on DRAM (Quartz): reads that miss the last-level cache are
//! slower, and so are flushes. Its trees of a few megabytes fit into that cache of 12 MB, and a
//! line is missing from it only after `clflush` evicted it. They do not fit into the 256 KB of the
//! cache before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use entresol_base::Place;
use entresol_media::observe::{FenceKind, LINE_BYTES, StoreKind};
use entresol_media::{FlushKind, Observer};

/// Counts of memory operations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) operations: f64,
    pub(super) lines_flushed: f64,
    /// Loads of words or lines and stores of words, through the cache.
    pub(super) accesses: f64,
    /// Lines fetched from the last-level cache or from memory.
    pub(super) fetched: f64,
    /// Lines fetched from memory.
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

/// Returns the mean of several runs.
pub(super) fn mean(runs: &[Counts]) -> Counts {
    let mut sum = Counts::default();
    runs.iter().for_each(|run| sum.add(*run));
    sum.divided(runs.len().max(1) as f64)
}

/// Lines of the second-level cache of 256 KB, which is modelled as direct-mapped.
const NEAR_LINES: u64 = 4096;

/// Counts that a run collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Lines flushed only, which is faster.
    Flushes,
    /// Every field of [`Counts`].
    Everything,
}

/// Memory under a tree, with the caches in front of it if everything is counted.
pub(super) struct Emulated {
    caches: Option<Caches>,
    /// Set while the tree is looked at by no operation of the load.
    is_aside: AtomicBool,
    fetched: AtomicU64,
    lines_flushed: AtomicU64,
    accesses: AtomicU64,
    misses: AtomicU64,
}

/// Two caches: a last-level cache that holds all lines except the flushed ones, and a small one.
struct Caches {
    /// One bit for each line in the large cache.
    cached: Vec<AtomicU64>,
    /// Lines in the small cache, indexed by their low bits.
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

    /// Returns the word that holds the bit of a line, and the bit.
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
            is_aside: AtomicBool::new(false),
            fetched: AtomicU64::new(0),
            lines_flushed: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Adds to a counter. Only one thread counts; a plain load and store are enough.
    fn count(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Relaxed) + more, Relaxed);
    }

    /// Does something that is no operation of the load: it counts for nothing, and what it loads is
    /// not in the caches then.
    pub(super) fn aside<T>(&self, what: impl FnOnce() -> T) -> T {
        self.is_aside.store(true, Relaxed);
        let done = what();
        self.is_aside.store(false, Relaxed);
        done
    }

    fn touch(&self, caches: &Caches, offset: u64, len: usize) {
        if self.is_aside.load(Relaxed) {
            return;
        }
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
