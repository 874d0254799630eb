//! `SkipList`: a list on the medium, towers over it in DRAM.
//!
//! The list has a node for each record: its key, its value, and the offset of the next node, in
//! half a line. About every second node has a tower, which stands over half as many nodes again at
//! each level, and leads to within two nodes of any key. After a crash only the list is left, and
//! the towers are built anew while the index is opened (NV-Skiplist: Q. Chen, H. Lee, Y. Kim, H. Y.
//! Yeom, Y. Son, «Design and implementation of skiplist-based key-value store on non-volatile
//! memory», Cluster Computing 22 (2019), section 3).
//!
//! A node is durable before the one store that links it: an insert costs two lines. A removal is
//! one store in the node before, durable before the node is freed. Towers only shorten the way, so
//! nothing of them has to survive a crash.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_base::sync::RwLock;
use entresol_media::Region;

use crate::index::check_value;
use crate::root::{Tag, durable};
use crate::walk::in_batches;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod towers;

use towers::Towers;

const TAG: Tag = Tag(*b"SKIPLIST");
/// Offset of the link to the next node, in the root block as in a node.
const NEXT: u64 = 16;
const KEY: u64 = 0;
const VALUE: u64 = 8;
/// Bytes of a node, which never crosses a line.
const NODE_BYTES: u64 = 32;
/// Records passed on under one lock.
const BATCH: usize = 64;

/// A persistent skip list; see the head of the module.
#[derive(Debug)]
pub struct SkipList<R> {
    pool: Arc<Pool<R>>,
    /// Offset of the root block, which stands before all nodes.
    head: u64,
    towers: RwLock<Towers>,
}

/// Two neighbours in the list, between which a key would be.
#[derive(Debug, Clone, Copy)]
struct Gap {
    before: u64,
    /// Node behind the gap, and its key.
    after: Option<(u64, u64)>,
}

impl Gap {
    /// Returns the node behind the gap, if it has this key.
    fn node_of(self, key: u64) -> Option<u64> {
        self.after.filter(|&(_, found)| found == key).map(|(at, _)| at)
    }
}

impl<R: Region> SkipList<R> {
    fn load(&self, at: u64) -> u64 {
        self.pool.region().load_u64(at, Relaxed)
    }

    /// Stores a word, durably.
    fn put(&self, at: u64, word: u64) -> Result<(), IndexError> {
        let region = self.pool.region();
        region.store_u64(at, word, Release);
        region.persist(at, 8);
        durable(region)
    }

    /// Returns the node behind this one, and its key.
    fn after(&self, at: u64) -> Option<(u64, u64)> {
        let next = self.load(at + NEXT);
        (next != 0).then(|| (next, self.load(next + KEY)))
    }

    /// Returns the gap at which a key is or would be.
    fn gap(&self, towers: &Towers, key: u64) -> Gap {
        let mut before = towers.before(key, 0);
        loop {
            match self.after(before) {
                Some((next, found)) if found < key => before = next,
                after => return Gap { before, after },
            }
        }
    }

    fn add(&self, towers: &mut Towers, gap: Gap, key: u64, value: u64) -> Result<(), IndexError> {
        let node = self.pool.allocate(NODE_BYTES)?;
        let region = self.pool.region();
        region.store_u64(node + KEY, key, Relaxed);
        region.store_u64(node + VALUE, value, Relaxed);
        region.store_u64(node + NEXT, gap.after.map_or(0, |(at, _)| at), Relaxed);
        region.persist(node, NODE_BYTES as usize);
        self.put(gap.before + NEXT, node)?;
        towers.add(key, node);
        Ok(())
    }

    /// Builds the towers, and checks the list meanwhile.
    fn rebuild(&self, towers: &mut Towers) -> Result<(), IndexError> {
        let (mut at, mut last) = (self.head, None);
        loop {
            // A killed process leaves words that are visible, but not durable.
            self.pool.region().flush(at, NODE_BYTES as usize);
            let next = self.load(at + NEXT);
            if next == 0 {
                self.pool.region().drain();
                return durable(self.pool.region());
            }
            let line = self.pool.check(next / 64 * 64, 64)?;
            if !next.is_multiple_of(NODE_BYTES) {
                let what = format!("a link to {next}, where no node of the list can lie");
                return Err(IndexError::damaged(line, what));
            }
            let key = self.load(next + KEY);
            if last.is_some_and(|last| last >= key) {
                let what = format!("the node at {next} is not behind the one before it");
                return Err(IndexError::damaged(at, what));
            }
            check_value(self.load(next + VALUE)).map_err(|error| {
                IndexError::damaged(next, format!("a node has an impossible value: {error}"))
            })?;
            towers.append(key, next);
            (at, last) = (next, Some(key));
        }
    }

    fn forward(&self, from: u64, batch: &mut Vec<(u64, u64)>) {
        let towers = self.towers.read();
        let mut after = self.gap(&towers, from).after;
        while let Some((at, key)) = after
            && batch.len() < BATCH
        {
            batch.push((key, self.load(at + VALUE)));
            after = self.after(at);
        }
    }

    /// Collects the records between some tower and `from` in reverse: the list leads forward only.
    fn backward(&self, from: u64, batch: &mut Vec<(u64, u64)>) {
        let towers = self.towers.read();
        let is_before = |&(_, key): &(u64, u64)| key <= from;
        let mut at = towers.not_after(from, 4);
        if at != self.head {
            batch.push((self.load(at + KEY), self.load(at + VALUE)));
        }
        while let Some((next, key)) = self.after(at).filter(is_before) {
            batch.push((key, self.load(next + VALUE)));
            at = next;
        }
        batch.reverse();
    }
}

impl<R: Region> Index for SkipList<R> {
    type Key = u64;

    fn insert(&self, &key: &u64, value: u64) -> Result<bool, IndexError> {
        check_value(value)?;
        let mut towers = self.towers.write();
        let gap = self.gap(&towers, key);
        if gap.node_of(key).is_some() {
            return Ok(false);
        }
        self.add(&mut towers, gap, key, value)?;
        Ok(true)
    }

    fn upsert(&self, &key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        check_value(value)?;
        let mut towers = self.towers.write();
        let gap = self.gap(&towers, key);
        let Some(node) = gap.node_of(key) else {
            self.add(&mut towers, gap, key, value)?;
            return Ok(None);
        };
        let old = self.load(node + VALUE);
        self.put(node + VALUE, value)?;
        Ok(Some(old))
    }

    fn get(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        let towers = self.towers.read();
        let node = self.gap(&towers, key).node_of(key);
        Ok(node.map(|node| self.load(node + VALUE)))
    }

    fn remove(&self, &key: &u64) -> Result<Option<u64>, IndexError> {
        let mut towers = self.towers.write();
        let gap = self.gap(&towers, key);
        let Some(node) = gap.node_of(key) else { return Ok(None) };
        let old = self.load(node + VALUE);
        self.put(gap.before + NEXT, self.load(node + NEXT))?;
        towers.remove(key);
        self.pool.free(node);
        Ok(Some(old))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        in_batches(from, direction, visit, |from, batch| {
            match direction {
                Direction::Forward => self.forward(from, batch),
                Direction::Backward => self.backward(from, batch),
            }
            Ok(())
        })
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        let towers = self.towers.read();
        let mut keys = 0;
        let mut at = self.head;
        while let Some((next, _)) = self.after(at) {
            (at, keys) = (next, keys + 1);
        }
        Ok(Statistics {
            nodes: keys,
            bytes: keys * NODE_BYTES + 64,
            volatile_bytes: towers.bytes(),
            height: towers.height() + 1,
            keys,
            ..Statistics::default()
        })
    }
}

impl<R: Region> Persistent<R> for SkipList<R> {
    type Options = ();

    fn open(pool: &Arc<Pool<R>>, root: usize, _: &()) -> Result<SkipList<R>, IndexError> {
        let head = match TAG.find(pool, root)? {
            Some((at, _)) => at,
            None => TAG.make(pool, root, [0; 8])?,
        };
        let mut towers = Towers::new(head);
        let list = SkipList { pool: Arc::clone(pool), head, towers: RwLock::default() };
        list.rebuild(&mut towers)?;
        *list.towers.write() = towers;
        Ok(list)
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let _towers = self.towers.read();
        visit(self.head);
        let mut at = self.head;
        while let Some((next, _)) = self.after(at) {
            visit(next);
            at = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
