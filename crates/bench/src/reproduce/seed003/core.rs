//! The paper's runs on an emulated memory: trees, warmed and with holes, then counted.
//!
//! The paper emulates persistent memory on DRAM (Quartz): reads that miss the last-level cache are
//! slower, and each flush is. Its trees, a few megabytes, fit into that cache of 12 MB, so a line
//! is missing from it only because `clflush` has thrown it out; but not into the 256 KB before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::rng::Rng;
use entresol_index::published::{PublishedFastFair, PublishedOds};
use entresol_index::{IndexError, Persistent, Pool, PoolOptions, Statistics};
use entresol_media::crash::Place;
use entresol_media::observe::{FenceKind, LINE_BYTES, StoreKind};
use entresol_media::{FlushKind, Observed, Observer, Region};

use crate::index::{AnyIndex, IndexName, Worker, Workload};
use crate::popularity::Popularity;

/// A tree of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tree {
    FastFair,
    /// With this part of its keys, in per cent, loaded more and removed again before.
    Ods(u64),
    Wb,
}

/// Which form of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As it was published; some crashes damage it.
    Published,
    /// Ours.
    CrashSafe,
}

impl Form {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Form::Published => "as published",
            Form::CrashSafe => "crash-safe",
        }
    }
}

impl Tree {
    /// Those that there are in both forms.
    pub(super) const BOTH: [Tree; 4] = [Tree::FastFair, Tree::Ods(0), Tree::Ods(10), Tree::Ods(20)];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Tree::FastFair => "FAST&FAIR",
            Tree::Ods(0) => "ODS",
            Tree::Ods(10) => "ODS0.1",
            Tree::Ods(_) => "ODS0.2",
            Tree::Wb => "wB+-tree",
        }
    }

    fn open<R: Region + 'static>(self, form: Form, pool: &Arc<Pool<R>>) -> Opened {
        let said = |error: IndexError| error.to_string();
        let name = match (self, form) {
            (Tree::FastFair, Form::Published) => {
                let opened = PublishedFastFair::open(pool, 0, &()).map_err(said)?;
                return Ok(Arc::new(opened));
            }
            (Tree::Ods(_), Form::Published) => {
                let opened = PublishedOds::open(pool, 0, &()).map_err(said)?;
                return Ok(Arc::new(opened));
            }
            (Tree::FastFair, Form::CrashSafe) => IndexName::FastFair,
            (Tree::Ods(_), Form::CrashSafe) => IndexName::Ods,
            (Tree::Wb, _) => IndexName::WbTree,
        };
        name.open(pool, None).map_err(|error| error.to_string())
    }
}

type Opened = Result<AnyIndex, String>;

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

/// Two caches: a last-level one that holds everything but what was flushed, and a small one.
struct Emulated {
    /// A bit for each line that is in the large cache.
    cached: Vec<AtomicU64>,
    /// The lines in the small cache, by their last bits.
    near: Vec<AtomicU64>,
    fetched: AtomicU64,
    lines_flushed: AtomicU64,
    accesses: AtomicU64,
    misses: AtomicU64,
}

impl Emulated {
    fn new(bytes: u64) -> Emulated {
        let words = bytes / LINE_BYTES / 64 + 1;
        Emulated {
            cached: (0..words).map(|_| AtomicU64::new(u64::MAX)).collect(),
            near: (0..NEAR_LINES).map(|_| AtomicU64::new(u64::MAX)).collect(),
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

    fn touch(&self, offset: u64, len: usize) {
        Emulated::count(&self.accesses, 1);
        for line in offset / LINE_BYTES..=(offset + len.max(1) as u64 - 1) / LINE_BYTES {
            let near = &self.near[(line % NEAR_LINES) as usize];
            if near.load(Relaxed) == line {
                continue;
            }
            near.store(line, Relaxed);
            Emulated::count(&self.fetched, 1);
            let (word, bit) = (&self.cached[line as usize / 64], 1 << (line % 64));
            let cached = word.load(Relaxed);
            if cached & bit == 0 {
                word.store(cached | bit, Relaxed);
                Emulated::count(&self.misses, 1);
            }
        }
    }

    fn counts(&self) -> Counts {
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
        self.touch(offset, len);
    }

    fn store(&self, offset: u64, bytes: &[u8], _kind: StoreKind, _place: Place) {
        self.touch(offset, bytes.len());
    }

    fn flush(&self, offset: u64, len: usize, _kind: FlushKind, _place: Place) {
        for line in offset / LINE_BYTES..=(offset + len as u64 - 1) / LINE_BYTES {
            Emulated::count(&self.lines_flushed, 1);
            let near = &self.near[(line % NEAR_LINES) as usize];
            if near.load(Relaxed) == line {
                near.store(u64::MAX, Relaxed);
            }
            let (word, bit) = (&self.cached[line as usize / 64], 1 << (line % 64));
            word.store(word.load(Relaxed) & !bit, Relaxed);
        }
    }

    fn fence(&self, _kind: FenceKind, _place: Place) {}
}

/// A tree, and who works on it.
pub(super) struct Run {
    index: AnyIndex,
    memory: Arc<Emulated>,
    worker: Worker,
    rng: Rng,
}

impl Run {
    /// A tree of `keys` keys, and `extra` older ones that were removed again.
    ///
    /// # Errors
    /// What the index says.
    pub(super) fn warmed(
        (tree, form): (Tree, Form),
        keys: u64,
        extra: u64,
        seed: u64,
    ) -> Result<Run, String> {
        let bytes = (keys + extra) * 200 + (32 << 20);
        let memory = Arc::new(Emulated::new(bytes));
        let region =
            Observed::new(bytes, Arc::clone(&memory)).map_err(|error| error.to_string())?;
        let pool = Pool::create(Arc::new(region), PoolOptions::default());
        let pool = Arc::new(pool.map_err(|error| error.to_string())?);
        let index = tree.open(form, &pool)?;
        let (worker, rng) = (Worker::new(seed, (0, 1)), Rng::named(seed, "003"));
        let mut run = Run { index, memory, worker, rng };
        run.counted(Workload::Insert, keys + extra)?;
        run.counted(Workload::Delete, extra)?;
        run.worker.choose(Popularity::Uniform);
        Ok(run)
    }

    /// So many operations of one kind: new keys are uniform, the oldest are removed, any are looked
    /// for.
    pub(super) fn counted(&mut self, kind: Workload, count: u64) -> Result<Counts, String> {
        self.in_order((0..count).map(|_| kind))
    }

    /// So many of each, in random order.
    pub(super) fn mixed(
        &mut self,
        inserts: u64,
        deletes: u64,
        finds: u64,
    ) -> Result<Counts, String> {
        let kinds =
            [(inserts, Workload::Insert), (deletes, Workload::Delete), (finds, Workload::Read)];
        let kinds = kinds.into_iter().flat_map(|(count, kind)| (0..count).map(move |_| kind));
        let mut order: Vec<Workload> = kinds.collect();
        self.rng.shuffle(&mut order);
        self.in_order(order.into_iter())
    }

    fn in_order(&mut self, mut kinds: impl Iterator<Item = Workload>) -> Result<Counts, String> {
        let before = self.memory.counts();
        let mut operations = 0.0;
        kinds.try_for_each(|kind| {
            operations += 1.0;
            self.worker.step(kind, &*self.index).map_err(|error| error.to_string())
        })?;
        let after = self.memory.counts();
        Ok(Counts {
            operations,
            lines_flushed: after.lines_flushed - before.lines_flushed,
            accesses: after.accesses - before.accesses,
            fetched: after.fetched - before.fetched,
            misses: after.misses - before.misses,
        })
    }

    /// What the tree consists of.
    pub(super) fn statistics(&self) -> Result<Statistics, String> {
        self.index.statistics().map_err(|error| error.to_string())
    }
}
