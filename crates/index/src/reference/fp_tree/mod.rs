//! `FpTree`: leaves on the medium with a fingerprint for each record, inner nodes in DRAM.
//!
//! A leaf has a bitmap of its records, a byte of each key's hash, the next leaf, its lowest key,
//! and records in no order. A search compares fingerprints and reads one key on average. The part
//! above the leaves is built anew while the index is opened (FPTree: Oukid, Lasperas, Nica,
//! Willhalm, Lehner, SIGMOD 2016, sections 4 and 5). There are 56 records in a leaf, whose
//! fingerprints and bitmap fill one line.
//!
//! Differences from the paper: above the leaves is a `BTreeMap` under a lock for many readers or
//! one writer, instead of a tree under hardware transactions. A value of eight bytes is updated in
//! place, by one store. And splits and removals of leaves need no log: since each leaf knows its
//! lowest key, the one store that links a new leaf is the split, and keys beyond the next leaf's
//! lowest one do not count; the one store that links past a leaf removes it with its last record.
//!
//! An insert costs three lines: the record and its fingerprint, then, behind a fence, the bitmap.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::sync::RwLock;
use entresol_media::Region;

use crate::index::{check_node_bytes, check_value};
use crate::root::{Tag, durable};
use crate::walk::in_batches;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod leaf;

use leaf::{Leaf, Leaves, Record};

const TAG: Tag = Tag(*b"FP-TREE1");
/// Words of the root block.
const SLOTS_WORD: usize = 1;
const FIRST_WORD: usize = 2;

/// Options of a new [`FpTree`]. An existing one keeps those that it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FpTreeOptions {
    /// Records of a leaf, from 2 to 56.
    pub leaf_records: usize,
}

impl Default for FpTreeOptions {
    fn default() -> FpTreeOptions {
        FpTreeOptions { leaf_records: leaf::SLOTS_MAX }
    }
}

impl FpTreeOptions {
    /// Returns the options for leaves of this size: a multiple of 64 from 128 to 1024.
    ///
    /// # Errors
    /// If leaves cannot have this size.
    pub fn of_bytes(leaf_bytes: u64) -> Result<FpTreeOptions, IndexError> {
        check_node_bytes(leaf_bytes, 128..=1024)?;
        Ok(FpTreeOptions { leaf_records: Leaves::slots_in(leaf_bytes) })
    }
}

/// A tree with fingerprints; see the head of the module.
#[derive(Debug)]
pub struct FpTree<R> {
    pool: Arc<Pool<R>>,
    root: u64,
    leaves: Leaves,
    /// Leaves by their lowest keys.
    above: RwLock<BTreeMap<u64, u64>>,
    splits: AtomicU64,
    merges: AtomicU64,
}

type Above = BTreeMap<u64, u64>;

impl<R: Region> FpTree<R> {
    fn region(&self) -> &R {
        self.pool.region()
    }

    fn leaf_of(&self, above: &Above, key: u64) -> Leaf {
        let found = above.range(..=key).next_back();
        // The first leaf has all keys that are before the second one's.
        let at = found.map_or_else(|| above.values().next().copied().unwrap_or(0), |(_, &at)| at);
        self.leaves.load(self.region(), at)
    }

    /// Adds a record that is not there.
    fn add(&self, above: &mut Above, leaf: Leaf, record: Record) -> Result<(), IndexError> {
        let leaf = match leaf.free_slot(&self.leaves) {
            Some(_) => leaf,
            None => {
                self.split(above, &leaf)?;
                self.leaf_of(above, record.key)
            }
        };
        if let Some(slot) = leaf.free_slot(&self.leaves) {
            self.leaves.put(self.region(), &leaf, slot, record);
        }
        durable(self.region())
    }

    /// Moves the upper half of a full leaf to a new one.
    fn split(&self, above: &mut Above, leaf: &Leaf) -> Result<(), IndexError> {
        let region = self.region();
        let new = self.pool.allocate(self.leaves.bytes())?;
        let records = self.leaves.sorted(region, leaf);
        let upper = &records[records.len() / 2..];
        let low = upper[0].key;
        self.leaves.write(region, new, self.leaves.next(region, leaf.at), upper);
        // The split: from here on keys from `low` on are in the new leaf.
        self.leaves.link(region, leaf.at, new);
        let before = above.insert(low, new);
        debug_assert!(before.is_none(), "{before:?} begins with {low} as well");
        self.splits.fetch_add(1, Relaxed);
        let lower = self.leaves.below(region, leaf, low);
        debug_assert_eq!(
            lower.count_ones() as usize + upper.len(),
            records.len(),
            "the halves of the leaf at {} have so many of its records",
            leaf.at,
        );
        self.leaves.set_bitmap(region, leaf.at, lower);
        durable(region)
    }

    /// Removes a record, and its leaf if it was the last one in it.
    fn take(&self, above: &mut Above, leaf: &Leaf, slot: usize) -> Result<(), IndexError> {
        let region = self.region();
        let rest = leaf.bitmap & !(1 << slot);
        let low = self.leaves.low(region, leaf.at);
        let before = above.range(..low).next_back().map(|(_, &at)| at);
        match before {
            Some(before) if rest == 0 => {
                self.leaves.link(region, before, self.leaves.next(region, leaf.at));
                let known = above.remove(&low);
                assert_eq!(known, Some(leaf.at), "{low} leads here, to a leaf that goes");
                self.merges.fetch_add(1, Relaxed);
                self.pool.free(leaf.at);
            }
            _ => self.leaves.set_bitmap(region, leaf.at, rest),
        }
        durable(region)
    }

    /// Walks the leaves, completes interrupted splits, and builds the part above.
    fn rebuild(&self, first: u64) -> Result<Above, IndexError> {
        let region = self.region();
        let mut above = Above::new();
        let (mut at, mut lowest) = (first, None);
        while at != 0 {
            self.pool.check(at, self.leaves.bytes())?;
            let low = self.leaves.low(region, at);
            let leaf = self.leaves.load(region, at);
            if lowest.is_some_and(|before| low <= before) || leaf.bitmap > self.leaves.full() {
                let what = "this is not a leaf, or not behind the one before it";
                return Err(IndexError::damaged(at, what));
            }
            // A killed process leaves words that are visible, but not durable.
            region.flush(at, self.leaves.bytes() as usize);
            let next = self.leaves.next(region, at);
            if leaf.bitmap == self.leaves.full() && next != 0 {
                // Only a full leaf is split.
                let beyond = self.leaves.low(region, self.pool.check(next, self.leaves.bytes())?);
                let lower = self.leaves.below(region, &leaf, beyond);
                if lower != leaf.bitmap {
                    // The link was seen, but may not be durable.
                    region.drain();
                    self.leaves.set_bitmap(region, at, lower);
                }
            }
            above.insert(low, at);
            (at, lowest) = (next, Some(low));
        }
        region.drain();
        durable(region)?;
        Ok(above)
    }

    /// Collects the records of the first leaf, in this direction, that has some from `from` on.
    fn batch(&self, from: u64, direction: Direction, batch: &mut Vec<(u64, u64)>) {
        let above = self.above.read();
        let show = |at: u64, batch: &mut Vec<(u64, u64)>| {
            let leaf = self.leaves.load(self.region(), at);
            let mut records = self.leaves.sorted(self.region(), &leaf);
            match direction {
                Direction::Forward => records.retain(|record| record.key >= from),
                Direction::Backward => {
                    records.retain(|record| record.key <= from);
                    records.reverse();
                }
            }
            batch.extend(records.iter().map(|record| (record.key, record.value)));
            !batch.is_empty()
        };
        match direction {
            Direction::Forward => {
                let first = above.range(..=from).next_back().map_or(0, |(&low, _)| low);
                above.range(first..).find(|&(_, &at)| show(at, batch));
            }
            Direction::Backward => {
                above.range(..=from).rev().find(|&(_, &at)| show(at, batch));
            }
        }
    }
}

impl<R: Region> Index for FpTree<R> {
    type Key = u64;

    fn insert(&self, &key: &u64, value: u64) -> Result<bool, IndexError> {
        check_value(value)?;
        let mut above = self.above.write();
        let leaf = self.leaf_of(&above, key);
        if self.leaves.find(self.region(), &leaf, key).is_some() {
            return Ok(false);
        }
        self.add(&mut above, leaf, Record { key, value })?;
        Ok(true)
    }

    fn upsert(&self, &key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        check_value(value)?;
        let mut above = self.above.write();
        let leaf = self.leaf_of(&above, key);
        let Some((slot, old)) = self.leaves.find(self.region(), &leaf, key) else {
            self.add(&mut above, leaf, Record { key, value })?;
            return Ok(None);
        };
        self.leaves.set_value(self.region(), leaf.at, slot, value);
        durable(self.region())?;
        Ok(Some(old))
    }

    fn get(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        let above = self.above.read();
        let leaf = self.leaf_of(&above, key);
        Ok(self.leaves.find(self.region(), &leaf, key).map(|(_, value)| value))
    }

    fn remove(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        let mut above = self.above.write();
        let leaf = self.leaf_of(&above, key);
        let Some((slot, old)) = self.leaves.find(self.region(), &leaf, key) else {
            return Ok(None);
        };
        self.take(&mut above, &leaf, slot)?;
        Ok(Some(old))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        in_batches(from, direction, visit, |from, batch| {
            self.batch(from, direction, batch);
            Ok(())
        })
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        let above = self.above.read();
        let leaves = above.values().map(|&at| self.leaves.load(self.region(), at));
        Ok(Statistics {
            nodes: above.len() as u64,
            bytes: above.len() as u64 * self.leaves.bytes() + 64,
            // Two words each, in nodes of a B-tree that are about two thirds full.
            volatile_bytes: above.len() as u64 * 24,
            height: 2,
            keys: leaves.map(|leaf| u64::from(leaf.bitmap.count_ones())).sum(),
            splits: self.splits.load(Relaxed),
            merges: self.merges.load(Relaxed),
            ..Statistics::default()
        })
    }
}

impl<R: Region> Persistent<R> for FpTree<R> {
    type Options = FpTreeOptions;

    fn open(
        pool: &Arc<Pool<R>>,
        root: usize,
        options: &FpTreeOptions,
    ) -> Result<FpTree<R>, IndexError> {
        let (root, leaves, first) = match TAG.find(pool, root)? {
            Some((at, words)) => {
                let slots = usize::try_from(words[SLOTS_WORD]).unwrap_or(usize::MAX);
                let leaves = Leaves::new(slots).map_err(|what| IndexError::damaged(at, what))?;
                (at, leaves, words[FIRST_WORD])
            }
            None => {
                let leaves = Leaves::new(options.leaf_records)
                    .map_err(|what| IndexError::Options { what })?;
                let first = pool.allocate(leaves.bytes())?;
                leaves.write(pool.region(), first, 0, &[]);
                let mut words = [0; 8];
                words[SLOTS_WORD] = options.leaf_records as u64;
                words[FIRST_WORD] = first;
                (TAG.make(pool, root, words)?, leaves, first)
            }
        };
        let tree = FpTree {
            pool: Arc::clone(pool),
            root,
            leaves,
            above: RwLock::default(),
            splits: AtomicU64::new(0),
            merges: AtomicU64::new(0),
        };
        *tree.above.write() = tree.rebuild(first)?;
        Ok(tree)
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let above = self.above.read();
        visit(self.root);
        above.values().for_each(|&at| visit(at));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
