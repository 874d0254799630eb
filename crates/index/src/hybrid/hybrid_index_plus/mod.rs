//! `HybridIndexPlus`: a tree on the medium for ranges, and a hash table in DRAM for points.
//!
//! Persistent memory is read three to four times as slowly as DRAM and written almost as fast. So
//! the table, which points are read from, is in DRAM, and the tree on the medium, where a range
//! reads whole leaves. A write changes both before it returns: first the tree, durably, then the
//! table. After a crash the tree is there at once; the table is rebuilt in the background, and the
//! tree answers until it is whole («HybridIndex+» in «Rethinking Index Design Based on PM Device»,
//! section 3.1). The tree can be any of this crate's.
//!
//! That section also asks for a switch: while most operations write, the table is told later, and
//! they cost as much as those of the tree; while most read, it is told at once. Changes that the
//! table has not been told of stand in a short list, which every look-up consults first; a thread
//! works them off, or the writer that finds the list full.
//!
//! No old value is ever returned: while a key is being written, look-ups of it ask the tree.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::sync::{Mutex, RwLock};
use entresol_media::Region;

use crate::hybrid::queue::{Background, Queue};
use crate::hybrid::switch::{Switch, TOLD};
use crate::mix::mix;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod known;

use known::{Answer, GONE, Known};

/// Number of stripes: keys in different ones do not wait for one another.
const STRIPES: usize = 256;
/// Records taken from the tree at once while the table is built.
const BATCH: usize = 256;

/// Time at which the table in DRAM is told of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Telling {
    /// Later while most operations write, at once while most read.
    #[default]
    ByLoad,
    /// Before the write returns.
    AtOnce,
    /// After the write has returned.
    Later,
}

/// Options for opening a [`HybridIndexPlus`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HybridPlusOptions<T> {
    /// Options of the tree.
    pub tree: T,
    /// Time at which the table is told.
    pub telling: Telling,
}

/// A tree and a table; see the head of the module.
#[derive(Debug)]
pub struct HybridIndexPlus<T: 'static> {
    shared: Arc<Shared<T>>,
    _background: Background,
}

#[derive(Debug)]
struct Shared<T> {
    tree: T,
    stripes: Box<[Stripe]>,
    telling: Telling,
    /// Switch that is on while most operations write.
    writes_press: Switch,
    /// Stripes with a list to work off.
    lists: Queue<usize>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    /// Held by the writer of a key.
    writer: Mutex<()>,
    known: RwLock<Known>,
    /// Operations in the lower half, writes in the upper one, since they were last reported.
    operations: AtomicU64,
}

impl<T: Index<Key = u64>> Shared<T> {
    fn number(key: u64) -> usize {
        mix(key) as usize % STRIPES
    }

    fn count(&self, stripe: &Stripe, is_write: bool) {
        let before = stripe.operations.fetch_add(1 | u64::from(is_write) << 32, Relaxed);
        if before & u64::from(u32::MAX) >= TOLD - 1 {
            let counted = stripe.operations.swap(0, Relaxed);
            let changed = self.writes_press.tell(counted & u64::from(u32::MAX), counted >> 32);
            if changed && !self.writes_press.is_on() {
                // All lists are to be worked off; a list that finds no room in the queue is short
                // anyway.
                for number in 0..STRIPES {
                    self.lists.offer(number);
                }
            }
        }
    }

    fn is_told_later(&self) -> bool {
        match self.telling {
            Telling::ByLoad => self.writes_press.is_on(),
            Telling::AtOnce => false,
            Telling::Later => true,
        }
    }

    fn get(&self, key: u64) -> Result<Option<u64>, IndexError> {
        let stripe = &self.stripes[Shared::<T>::number(key)];
        self.count(stripe, false);
        let answer = stripe.known.read().answer(key);
        match answer {
            Answer::Value(value) => Ok(Some(value)),
            Answer::Gone => Ok(None),
            Answer::AskTree => self.tree.get(&key),
        }
    }

    /// Changes a key in the tree, then in the table, if `value` returns its new value: that or
    /// `GONE`.
    fn write<A>(
        &self,
        key: u64,
        in_tree: impl FnOnce(&T) -> Result<A, IndexError>,
        value: impl FnOnce(&A) -> Option<u64>,
    ) -> Result<A, IndexError> {
        let number = Shared::<T>::number(key);
        let stripe = &self.stripes[number];
        self.count(stripe, true);
        let _held = stripe.writer.lock();
        stripe.known.write().begin(key);
        let answer = in_tree(&self.tree);
        let mut known = stripe.known.write();
        let Ok(found) = &answer else {
            known.doubt(key);
            return answer;
        };
        let many = known.end(key, value(found), self.is_told_later());
        drop(known);
        if many {
            self.lists.offer(number);
        }
        answer
    }

    /// Builds the table, then works lists off until the index is dropped.
    fn work(&self) {
        if !self.rebuild() {
            return;
        }
        let mut numbers = Vec::new();
        while self.lists.take(&mut numbers) {
            for &number in &numbers {
                self.stripes[number].known.write().work_off();
            }
            self.lists.done(numbers.len());
            numbers.clear();
        }
    }

    /// Builds the table from the tree; returns false if it was closed meanwhile. If the tree is
    /// damaged the table stays incomplete, and look-ups of missing keys get the error from the
    /// tree.
    fn rebuild(&self) -> bool {
        let mut batch = Vec::with_capacity(BATCH);
        let mut last = None;
        loop {
            let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let walked = self.tree.range(from, Direction::Forward, &mut |&key, value| {
                batch.push((key, value));
                if batch.len() < BATCH { Flow::On } else { Flow::Stop }
            });
            if self.lists.is_closed() {
                return false;
            }
            if walked.is_err() {
                return true;
            }
            let Some(&(key, _)) = batch.last() else { break };
            last = Some(key);
            for (key, value) in batch.drain(..) {
                self.stripes[Shared::<T>::number(key)].known.write().recall(key, value);
            }
        }
        self.stripes.iter().for_each(|stripe| stripe.known.write().complete());
        true
    }
}

impl<T: Index<Key = u64>> HybridIndexPlus<T> {
    /// Returns the tree on the medium.
    #[must_use]
    pub fn tree(&self) -> &T {
        &self.shared.tree
    }

    /// Returns true if the table in DRAM has every key again.
    #[must_use]
    pub fn is_rebuilt(&self) -> bool {
        self.shared.stripes.iter().all(|stripe| stripe.known.read().is_complete())
    }

    /// Returns true if the table is told of writes later at present.
    #[must_use]
    pub fn is_told_later(&self) -> bool {
        self.shared.is_told_later()
    }
}

impl<T: Index<Key = u64>> Index for HybridIndexPlus<T> {
    type Key = u64;

    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        let known = |&added: &bool| added.then_some(value);
        self.shared.write(*key, |tree| tree.insert(key, value), known)
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        self.shared.write(*key, |tree| tree.upsert(key, value), |_| Some(value))
    }

    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.shared.get(*key)
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.shared.write(*key, |tree| tree.remove(key), |old| old.map(|_| GONE))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        self.shared.tree.range(from, direction, visit)
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        let mut statistics = self.shared.tree.statistics()?;
        let tables: u64 = self.shared.stripes.iter().map(|it| it.known.read().bytes()).sum();
        statistics.volatile_bytes += tables + size_of_val(&*self.shared.stripes) as u64;
        Ok(statistics)
    }
}

impl<R: Region, T: Persistent<R, Key = u64> + 'static> Persistent<R> for HybridIndexPlus<T> {
    type Options = HybridPlusOptions<T::Options>;

    fn open(
        pool: &Arc<Pool<R>>,
        root: usize,
        options: &HybridPlusOptions<T::Options>,
    ) -> Result<HybridIndexPlus<T>, IndexError> {
        let shared = Arc::new(Shared {
            tree: T::open(pool, root, &options.tree)?,
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            telling: options.telling,
            writes_press: Switch::default(),
            lists: Queue::new(2 * STRIPES),
        });
        let theirs = Arc::clone(&shared);
        let _background = Background::start("table of a hybrid index", move || theirs.work());
        Ok(HybridIndexPlus { shared, _background })
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        self.shared.tree.blocks(visit)
    }
}

impl<T: 'static> Drop for HybridIndexPlus<T> {
    fn drop(&mut self) {
        self.shared.lists.close();
    }
}

#[cfg(test)]
mod tests;
