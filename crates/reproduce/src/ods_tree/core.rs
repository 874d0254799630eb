//! Runs of the paper: trees are loaded, given holes and then measured.

use std::sync::Arc;

use entresol_base::rng::Rng;
use entresol_index::published::{PublishedFastFair, PublishedOds};
use entresol_index::{IndexError, Ods, OdsOptions, Persistent, Pool, PoolOptions, Statistics};
use entresol_measure::index::{AnyIndex, IndexName, Worker, Workload};
use entresol_measure::popularity::Popularity;
use entresol_media::{Observed, Region};

use super::emulated::{Counted, Counts, Emulated};
use crate::Check;

/// Tree of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tree {
    FastFair,
    /// ODS tree. This many per cent of its keys are loaded in addition and deleted again before the
    /// run.
    Ods(u64),
    /// ODS tree without a threshold: a node without holes at its end is split, however empty it is.
    Splitting(u64),
    Wb,
}

/// Form of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Algorithm as published; some crashes damage it.
    Published,
    /// Algorithm as this library ships it.
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

impl Form {
    /// Marks a check with the form of the tree that it is about.
    pub(super) fn named(self, check: Check) -> Check {
        match self {
            Form::Published => check.published(),
            Form::CrashSafe => check,
        }
    }
}

impl Tree {
    /// Trees that exist in both forms.
    pub(super) const BOTH: [Tree; 4] = [Tree::FastFair, Tree::Ods(0), Tree::Ods(10), Tree::Ods(20)];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Tree::FastFair => "FAST&FAIR",
            Tree::Ods(0) => "ODS",
            Tree::Ods(10) => "ODS0.1",
            Tree::Ods(_) => "ODS0.2",
            Tree::Splitting(_) => "ODS that always splits",
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
            (Tree::Splitting(_), _) => {
                let options = OdsOptions { split_from: 0.0, ..OdsOptions::default() };
                let opened = Ods::<R>::open(pool, 0, &options).map_err(said)?;
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

/// Tree with the worker that uses it.
pub(super) struct Run {
    index: AnyIndex,
    memory: Arc<Emulated>,
    worker: Worker,
    rng: Rng,
}

impl Run {
    /// Creates a tree of `keys` keys after `extra` older keys were inserted and deleted again.
    ///
    /// # Errors
    /// Returns the error of the index.
    pub(super) fn warmed(
        (tree, form): (Tree, Form),
        (keys, extra): (u64, u64),
        counted: Counted,
        seed: u64,
    ) -> Result<Run, String> {
        let bytes = (keys + extra) * 200 + (32 << 20);
        let memory = Arc::new(Emulated::new(bytes, counted));
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

    /// Runs `count` operations of one kind. Inserts draw new keys uniformly, deletes remove the
    /// oldest key, and reads look for any key.
    pub(super) fn counted(&mut self, kind: Workload, count: u64) -> Result<Counts, String> {
        self.in_order((0..count).map(|_| kind))
    }

    /// Runs the given numbers of inserts, deletes and finds in random order.
    pub(super) fn mixed(&mut self, parts: [u64; 3]) -> Result<Counts, String> {
        let order = self.shuffled(parts);
        self.in_order(order.into_iter())
    }

    /// Returns the given numbers of inserts, deletes and finds in random order.
    pub(super) fn shuffled(&mut self, parts: [u64; 3]) -> Vec<Workload> {
        let kinds = [Workload::Insert, Workload::Delete, Workload::Read];
        let kinds = parts.into_iter().zip(kinds);
        let kinds = kinds.flat_map(|(count, kind)| (0..count).map(move |_| kind));
        let mut order: Vec<Workload> = kinds.collect();
        self.rng.shuffle(&mut order);
        order
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

    /// Returns the statistics of the tree.
    pub(super) fn statistics(&self) -> Result<Statistics, String> {
        self.memory.aside(|| self.index.statistics()).map_err(|error| error.to_string())
    }
}
