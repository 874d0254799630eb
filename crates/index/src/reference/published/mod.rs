//! Two trees as they were published, with their faults: for tests that show the effects of a crash,
//! and for reports beside the numbers of [`FastFair`](crate::FastFair) and [`Ods`](crate::Ods).
//! Keep no data in them.
//!
//! FAST and FAIR as in its authors' public code for one thread: a record whose value is its left
//! neighbour's does not count; slots end at a value of zero. The one-direction shift tree as in its
//! paper: a record is removed by giving it that value. docs/index-crashes.md describes the faults.
//! One thread at a time is let in.

use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_base::sync::Mutex;
use entresol_media::Region;

use crate::index::check_value;
use crate::reference::fast_fair::Moving;
use crate::reference::ods::InPlace;
use crate::reference::sorted::Style;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics, root};

mod change;
mod rebalance;
#[cfg(test)]
mod tests;

/// FAST and FAIR as it was published.
pub type PublishedFastFair<R> = Published<R, Moving>;
/// The one-direction shift tree as it was published.
pub type PublishedOds<R> = Published<R, InPlace>;

const NODE_BYTES: u64 = 256;
const LINE_BYTES: u64 = 64;
const LEFTMOST: u64 = 0;
const SIBLING: u64 = 8;
const LEVEL: u64 = 16;
/// Offset of the state. In place: used slots, with the opening that wrote them in the upper half.
/// Moving: a mark.
const STATE: u64 = 24;
const SLOTS: u64 = 32;
/// Most records of a node; one more slot holds the zero behind them.
const RECORDS: usize = 13;

/// A tree as it was published. See the head of the module.
#[derive(Debug)]
pub struct Published<R, S> {
    pool: Arc<Pool<R>>,
    root: usize,
    /// Number of the opening, which tells if words with bits are valid.
    opening: u32,
    /// Held by the thread that is in the tree.
    inside: Mutex<()>,
    style: PhantomData<S>,
}

/// Slots of a node up to the first value of zero, and the set of those that count.
#[derive(Debug, Clone)]
struct Slots {
    records: Vec<(u64, u64)>,
    bits: u32,
}

impl Slots {
    fn counts(&self, slot: usize) -> bool {
        self.bits >> slot & 1 == 1
    }

    fn live(&self) -> impl DoubleEndedIterator<Item = (usize, (u64, u64))> + Clone {
        let slots = (0..self.records.len()).filter(|&slot| self.counts(slot));
        slots.map(|slot| (slot, self.records[slot]))
    }

    fn slot_of(&self, key: u64) -> Option<usize> {
        self.live().find(|(_, record)| record.0 == key).map(|(slot, _)| slot)
    }
}

impl<R: Region, S: Style> Published<R, S> {
    fn load(&self, at: u64) -> u64 {
        self.pool.region().load_u64(at, Relaxed)
    }

    fn store(&self, at: u64, word: u64) {
        self.pool.region().store_u64(at, word, Release);
    }

    fn persist(&self, at: u64, len: u64) {
        self.pool.region().persist(at, len as usize);
    }

    fn slot_at(node: u64, slot: usize) -> u64 {
        node + SLOTS + 16 * slot as u64
    }

    /// Returns the value that the first record must not have, to count.
    fn before_first(&self, node: u64) -> u64 {
        let is_leaf = self.load(node + LEVEL) == 0;
        self.load(node + if S::IN_PLACE && is_leaf { SIBLING } else { LEFTMOST })
    }

    /// Returns the slots that count, if this is a word with bits of this opening.
    fn known_bits(&self, state: u64) -> Option<u32> {
        (S::IN_PLACE && state >> 32 == u64::from(self.opening)).then_some(state as u32)
    }

    fn slots(&self, node: u64) -> Slots {
        let region = self.pool.region();
        let header = region.load_line(node);
        let known = self.known_bits(header[STATE as usize / 8]);
        let end = known.map_or(RECORDS + 1, |bits| 32 - bits.leading_zeros() as usize);
        let mut records = Vec::with_capacity(end);
        // Two slots lie behind the header, then four in a line.
        for (line, first) in (0..NODE_BYTES / LINE_BYTES).zip([4, 0, 0, 0]) {
            let words = if line == 0 { header } else { region.load_line(node + line * LINE_BYTES) };
            let slots = words[first..].chunks_exact(2).map(|slot| (slot[0], slot[1]));
            let slots = slots.take(end - records.len());
            let before = records.len();
            records.extend(slots.take_while(|(_, value)| known.is_some() || *value != 0));
            if records.len() == end || records.len() - before < (words.len() - first) / 2 {
                break;
            }
        }
        if let Some(bits) = known {
            return Slots { records, bits };
        }
        let before = std::iter::once(self.before_first(node));
        let before = before.chain(records.iter().map(|(_, value)| *value));
        let counting = records.iter().zip(before).zip(0..);
        let counting = counting.filter(|((record, before), _)| record.1 != *before);
        let bits = counting.fold(0, |bits, (_, slot)| bits | 1 << slot);
        self.set_bits(node, bits);
        Slots { records, bits }
    }

    /// Returns the key of the first record that counts.
    fn first(&self, node: u64) -> Option<u64> {
        let state = if S::IN_PLACE { self.load(node + STATE) } else { 0 };
        let slot = match self.known_bits(state) {
            Some(0) => return None,
            Some(bits) => bits.trailing_zeros() as usize,
            None => {
                let value = self.load(Self::slot_at(node, 0) + 8);
                if value == 0 || value == self.before_first(node) {
                    return self.slots(node).live().next().map(|(_, record)| record.0);
                }
                0
            }
        };
        Some(self.load(Self::slot_at(node, slot)))
    }

    fn sibling(&self, node: u64) -> Option<u64> {
        Some(self.load(node + SIBLING)).filter(|&sibling| sibling != 0)
    }

    /// Returns the next node of the level, if it covers the key.
    fn later(&self, node: u64, key: u64) -> Option<u64> {
        let sibling = self.sibling(node)?;
        self.first(sibling).is_some_and(|first| key >= first).then_some(sibling)
    }

    /// Returns the nodes on the way to a key, from the root down to a level.
    fn path(&self, key: u64, level: u64) -> Vec<u64> {
        let mut node = self.pool.root(self.root);
        let mut path = Vec::new();
        loop {
            let slots = self.slots(node);
            let is_here = slots.slot_of(key).is_some();
            if let Some(later) = self.later(node, key).filter(|_| !is_here) {
                node = later;
                continue;
            }
            path.push(node);
            if self.load(node + LEVEL) <= level {
                return path;
            }
            let child = slots.live().rev().find(|(_, record)| record.0 <= key);
            node = child.map_or_else(|| self.load(node + LEFTMOST), |(_, record)| record.1);
        }
    }

    fn leaf(&self, key: u64) -> u64 {
        self.path(key, 0).last().copied().unwrap_or_default()
    }

    fn first_leaf(&self) -> u64 {
        let mut node = self.pool.root(self.root);
        while self.load(node + LEVEL) > 0 {
            node = self.load(node + LEFTMOST);
        }
        node
    }

    /// Iterates over the nodes of a level from this one on.
    fn chain(&self, node: u64) -> impl Iterator<Item = u64> + '_ {
        std::iter::successors(Some(node), |&node| self.sibling(node))
    }

    fn all(&self) -> Vec<(u64, u64)> {
        let leaves = self.chain(self.first_leaf());
        let records = leaves.flat_map(|leaf| self.slots(leaf).live().collect::<Vec<_>>());
        records.map(|(_, record)| record).collect()
    }
}

impl<R: Region, S: Style> Index for Published<R, S> {
    type Key = u64;

    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        check_value(value)?;
        let _inside = self.inside.lock();
        let leaf = self.leaf(*key);
        if self.slots(leaf).slot_of(*key).is_some() {
            return Ok(false);
        }
        self.add(leaf, *key, value)?;
        Ok(true)
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        check_value(value)?;
        let _inside = self.inside.lock();
        let leaf = self.leaf(*key);
        let slots = self.slots(leaf);
        let Some(slot) = slots.slot_of(*key) else {
            self.add(leaf, *key, value)?;
            return Ok(None);
        };
        self.store(Self::slot_at(leaf, slot) + 8, value);
        self.persist(Self::slot_at(leaf, slot), 16);
        Ok(Some(slots.records[slot].1))
    }

    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        let _inside = self.inside.lock();
        let slots = self.slots(self.leaf(*key));
        Ok(slots.slot_of(*key).map(|slot| slots.records[slot].1))
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        let _inside = self.inside.lock();
        let leaf = self.leaf(*key);
        let slots = self.slots(leaf);
        let Some(slot) = slots.slot_of(*key) else { return Ok(None) };
        if S::IN_PLACE {
            self.take(leaf, &slots, slot);
        } else {
            self.shed(leaf, &slots, slot)?;
        }
        Ok(Some(slots.records[slot].1))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let mut all = {
            let _inside = self.inside.lock();
            self.all()
        };
        if direction == Direction::Backward {
            all.reverse();
        }
        let is_in = |key: u64| match (from, direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(&from), Direction::Forward) => key >= from,
            (Bound::Included(&from), Direction::Backward) => key <= from,
            (Bound::Excluded(&from), Direction::Forward) => key > from,
            (Bound::Excluded(&from), Direction::Backward) => key < from,
        };
        let mut records = all.into_iter().filter(|(key, _)| is_in(*key));
        records.find(|(key, value)| visit(key, *value) == Flow::Stop);
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        let mut nodes = 0;
        self.blocks(&mut |_| nodes += 1)?;
        let _inside = self.inside.lock();
        let height = self.load(self.pool.root(self.root) + LEVEL) as u32 + 1;
        let (bytes, keys) = (nodes * NODE_BYTES, self.all().len() as u64);
        Ok(Statistics { nodes, bytes, height, keys, ..Statistics::default() })
    }
}

impl<R: Region, S: Style> Persistent<R> for Published<R, S> {
    type Options = ();

    fn open(pool: &Arc<Pool<R>>, root: usize, (): &()) -> Result<Self, IndexError> {
        let tree = Published {
            pool: Arc::clone(pool),
            root,
            opening: pool.openings(),
            inside: Mutex::new(()),
            style: PhantomData,
        };
        if let Some(found) = root::known(pool, root) {
            let asked = "a tree as it was published".to_owned();
            return Err(IndexError::OtherIndex { root, found, asked });
        }
        if pool.root(root) == 0 {
            let first = tree.make(0, 0, 0, &[])?;
            pool.set_root(root, first);
        }
        Ok(tree)
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let _inside = self.inside.lock();
        let mut first = self.pool.root(self.root);
        loop {
            self.chain(first).for_each(&mut *visit);
            if self.load(first + LEVEL) == 0 {
                return Ok(());
            }
            first = self.load(first + LEFTMOST);
        }
    }
}
