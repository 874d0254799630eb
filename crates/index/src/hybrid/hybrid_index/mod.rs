//! `HybridIndex`: a hash table on the medium for points, and a tree in DRAM for ranges.
//!
//! A write changes the table durably and adds the change to a bounded queue, from which a thread
//! updates the tree: so a write costs as much as one to the table. Points are read from the table.
//! A range waits until the tree has all writes before it. After a crash only the table is left; the
//! thread builds the tree from it and works on the queue meanwhile, so points are served at once,
//! and ranges when the whole tree is there (HiKV: Xia, Jiang, Xiong, Sun, USENIX ATC 2017, sections
//! 3.2 and 3.3; as «HybridIndex» in «Rethinking Index Design Based on PM Device», section 3.1).
//!
//! The tree in DRAM is a `BTreeMap` under a lock for many readers or one writer; the paper's is a
//! B+-tree under hardware transactions.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use entresol_base::sync::{Condvar, Mutex, RwLock};
use entresol_media::Region;

use crate::hybrid::queue::{Background, Queue};
use crate::mix::mix;
use crate::root::durable;
use crate::walk::in_batches;
use crate::{
    Direction, Flow, HashTable, HashTableOptions, Index, IndexError, Persistent, Pool, Statistics,
};

/// Number of lock stripes: writers of keys in different ones do not wait for one another.
const STRIPES: usize = 64;
/// Records passed on under one lock.
const BATCH: usize = 64;

/// Options of a new [`HybridIndex`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HybridOptions {
    /// Options of the table. An existing one keeps those that it was made with.
    pub table: HashTableOptions,
    /// Number of changes, at least 1, that the tree may lag behind; then writers wait.
    pub queue_entries: usize,
}

impl Default for HybridOptions {
    fn default() -> HybridOptions {
        HybridOptions { table: HashTableOptions::default(), queue_entries: 4096 }
    }
}

/// A hash table and a tree; see the head of the module.
#[derive(Debug)]
pub struct HybridIndex<R: Region + 'static> {
    shared: Arc<Shared<R>>,
    _background: Background,
}

#[derive(Debug)]
struct Shared<R> {
    table: HashTable<R>,
    tree: RwLock<BTreeMap<u64, u64>>,
    queue: Queue<Change>,
    /// Held from before a key is changed in the table until the change is in the queue, so that the
    /// queue has the changes of a key in the order in which they were made.
    stripes: Box<[Mutex<()>]>,
    building: Mutex<Building>,
    built: Condvar,
}

/// Progress of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Building {
    Begun,
    Done,
    /// The thread that builds and keeps the tree has ended.
    Stopped,
}

/// Guard that marks the tree as stopped when its thread ends, in any way.
struct Stopping<'a, R: Region>(&'a Shared<R>);

impl<R: Region> Drop for Stopping<'_, R> {
    fn drop(&mut self) {
        *self.0.building.lock() = Building::Stopped;
        self.0.built.notify_all();
        self.0.queue.close();
    }
}

/// Name of the thread that keeps the tree.
const THREAD: &str = "tree of a hybrid index";

/// New state of a key.
#[derive(Debug, Clone, Copy)]
struct Change {
    key: u64,
    value: Option<u64>,
}

impl<R: Region> Shared<R> {
    fn stripe(&self, key: u64) -> &Mutex<()> {
        &self.stripes[mix(key) as usize % STRIPES]
    }

    /// Changes a key in the table, and queues the change for the tree if there is one.
    fn change<T>(
        &self,
        key: u64,
        in_table: impl FnOnce(&HashTable<R>) -> Result<T, IndexError>,
        value: impl FnOnce(&T) -> Option<Option<u64>>,
    ) -> Result<T, IndexError> {
        let _held = self.stripe(key).lock();
        let answer = in_table(&self.table)?;
        if let Some(value) = value(&answer) {
            self.queue.push(Change { key, value });
        }
        Ok(answer)
    }

    /// Waits until the tree has all changes that a reader can have seen in the table.
    fn settle(&self) -> Result<(), IndexError> {
        // Writers that have changed the table and not queued the change yet are waited for.
        self.stripes.iter().for_each(|stripe| drop(stripe.lock()));
        let mut building = self.building.lock();
        self.built.wait_while(&mut building, |building| *building == Building::Begun);
        let is_done = *building == Building::Done;
        drop(building);
        if is_done && self.queue.settle() {
            return Ok(());
        }
        durable(self.table.region())?;
        Err(IndexError::Stopped { thread: THREAD })
    }

    fn apply(&self, changes: &mut Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let mut tree = self.tree.write();
        for &Change { key, value } in &*changes {
            match value {
                Some(value) => drop(tree.insert(key, value)),
                None => drop(tree.remove(&key)),
            }
        }
        drop(tree);
        self.queue.done(changes.len());
        changes.clear();
    }

    /// Builds the tree, then works on the queue until it is closed. A segment's records enter the
    /// tree before any change that may be younger, so later ones win.
    fn work(&self) {
        let _stopping = Stopping(self);
        let (mut changes, mut records) = (Vec::new(), Vec::new());
        let mut next = Some(0);
        while let Some(from) = next {
            next = match self.table.scan(from, &mut records) {
                Ok(next) => next,
                // The medium has failed, and every write reports it.
                Err(_) => return,
            };
            self.tree.write().extend(records.drain(..));
            if !self.queue.take_now(&mut changes) {
                return;
            }
            self.apply(&mut changes);
        }
        *self.building.lock() = Building::Done;
        self.built.notify_all();
        while self.queue.take(&mut changes) {
            self.apply(&mut changes);
        }
    }

    fn batch(&self, from: u64, direction: Direction, batch: &mut Vec<(u64, u64)>) {
        let tree = self.tree.read();
        let record = |(&key, &value): (&u64, &u64)| (key, value);
        match direction {
            Direction::Forward => batch.extend(tree.range(from..).take(BATCH).map(record)),
            Direction::Backward => {
                batch.extend(tree.range(..=from).rev().take(BATCH).map(record));
            }
        }
    }
}

impl<R: Region> Index for HybridIndex<R> {
    type Key = u64;

    fn insert(&self, &key: &u64, value: u64) -> Result<bool, IndexError> {
        let told = |&added: &bool| added.then_some(Some(value));
        self.shared.change(key, |table| table.insert(key, value), told)
    }

    fn upsert(&self, &key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        self.shared.change(key, |table| table.upsert(key, value), |_| Some(Some(value)))
    }

    fn get(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        self.shared.table.get(key)
    }

    fn remove(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        self.shared.change(key, |table| table.remove(key), |old| old.map(|_| None))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        self.shared.settle()?;
        in_batches(from, direction, visit, |from, batch| {
            self.shared.batch(from, direction, batch);
            Ok(())
        })
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        let mut statistics = self.shared.table.statistics()?;
        // Two words each, in nodes that are about two thirds full.
        statistics.volatile_bytes +=
            24 * self.shared.tree.read().len() as u64 + self.shared.queue.bytes();
        Ok(statistics)
    }
}

impl<R: Region + 'static> Persistent<R> for HybridIndex<R> {
    type Options = HybridOptions;

    fn open(
        pool: &Arc<Pool<R>>,
        root: usize,
        options: &HybridOptions,
    ) -> Result<HybridIndex<R>, IndexError> {
        let shared = Arc::new(Shared {
            table: HashTable::open(pool, root, &options.table)?,
            tree: RwLock::default(),
            queue: Queue::new(options.queue_entries),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            building: Mutex::new(Building::Begun),
            built: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let _background = Background::start(THREAD, move || theirs.work());
        Ok(HybridIndex { shared, _background })
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        self.shared.table.blocks(visit)
    }
}

impl<R: Region + 'static> Drop for HybridIndex<R> {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

#[cfg(test)]
mod tests;
