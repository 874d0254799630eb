//! Toy tree: sorted leaves of 256 bytes, in the manner of FAST and FAIR. Its inner nodes are in
//! DRAM and are rebuilt when it is opened.
//!
//! A leaf holds the offset of the next leaf, its lowest key, and 15 slots of key and value. The
//! slots are sorted and end at a value of zero. Three stores change a slot, of which the first
//! turns it into a hole: readers see a whole record or none. A key in two neighbouring slots counts
//! once. Before stores continue in another line, the last line is made durable. Keys from the next
//! leaf's lowest key on are ignored, whatever the slots hold; a single store of the link therefore
//! splits a leaf.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use entresol_media::Region;

use super::{Map, Plant};

const LEAF_BYTES: u64 = 256;
const LINE_BYTES: u64 = 64;
const SLOTS: usize = 15;
/// Value of a slot without a record.
const HOLE: u64 = u64::MAX;
const FIRST_LEAF: u64 = LEAF_BYTES;

/// Toy tree in a region.
pub(in super::super) struct Tree<R> {
    region: Arc<R>,
    /// Leaves by their lowest keys.
    leaves: BTreeMap<u64, u64>,
    /// Offset of the next new leaf.
    free: u64,
    plant: Option<Plant>,
}

/// Words of a leaf, and the first key beyond it.
struct Leaf {
    at: u64,
    words: [u64; 32],
    high: u64,
}

impl Leaf {
    fn key(&self, slot: usize) -> u64 {
        self.words[2 + 2 * slot]
    }

    fn value(&self, slot: usize) -> u64 {
        self.words[3 + 2 * slot]
    }

    /// Returns the number of slots before the first free one or the first whose key belongs to
    /// another leaf.
    fn len(&self) -> usize {
        let free = |&slot: &usize| self.value(slot) == 0 || self.is_elsewhere(slot);
        (0..SLOTS).find(free).unwrap_or(SLOTS)
    }

    fn is_elsewhere(&self, slot: usize) -> bool {
        self.value(slot) != HOLE && self.key(slot) >= self.high
    }

    fn is_twice(&self, slot: usize) -> bool {
        slot > 0 && self.value(slot - 1) != HOLE && self.key(slot) == self.key(slot - 1)
    }

    fn records(&self) -> impl Iterator<Item = (u64, u64)> {
        let slots = (0..self.len()).filter(|&slot| self.value(slot) != HOLE);
        slots.filter(|&slot| !self.is_twice(slot)).map(|slot| (self.key(slot), self.value(slot)))
    }
}

/// Stores records and makes their lines durable in order.
struct Writer<'a, R> {
    tree: &'a Tree<R>,
    line: Option<u64>,
}

impl<R: Region> Writer<'_, R> {
    /// Prepares a store to the line at `at`: a previous line is made durable first.
    fn enter(&mut self, at: u64) {
        let line = at / LINE_BYTES * LINE_BYTES;
        if let Some(before) = self.line.replace(line)
            && before != line
            && self.tree.plant != Some(Plant::MissingFlushAtBorder)
        {
            self.tree.region.flush(before, LINE_BYTES as usize);
            self.tree.region.drain();
        }
    }

    fn put(&mut self, leaf: u64, slot: usize, key: u64, value: u64) {
        let at = leaf + 16 + 16 * slot as u64;
        self.enter(at);
        let region = &self.tree.region;
        region.store_u64(at + 8, HOLE, Release);
        region.store_u64(at, key, Release);
        region.store_u64(at + 8, value, Release);
    }

    fn set_value(&mut self, leaf: u64, slot: usize, value: u64) {
        let at = leaf + 24 + 16 * slot as u64;
        self.enter(at);
        self.tree.region.store_u64(at, value, Release);
    }

    /// Makes all stores durable.
    fn finish(self) {
        if let Some(line) = self.line {
            if self.tree.plant != Some(Plant::MissingLastFlush) {
                self.tree.region.flush(line, LINE_BYTES as usize);
            }
            self.tree.region.drain();
        }
    }
}

impl<R: Region> Tree<R> {
    fn writer(&self) -> Writer<'_, R> {
        Writer { tree: self, line: None }
    }

    fn leaf(&self, at: u64) -> Leaf {
        let mut words = [0; 32];
        for (line, part) in words.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&self.region.load_line(at + line as u64 * LINE_BYTES));
        }
        let high = match words[0] {
            0 => u64::MAX,
            next => self.region.load_u64(next + 8, Acquire),
        };
        Leaf { at, words, high }
    }

    fn leaf_of(&self, key: u64) -> Leaf {
        let found = self.leaves.range(..=key).next_back();
        self.leaf(found.map_or(FIRST_LEAF, |(_, &at)| at))
    }

    /// Completes interrupted changes of the slots.
    fn repair(&self, at: u64) {
        loop {
            let leaf = self.leaf(at);
            let len = leaf.len();
            let odd = |&slot: &usize| leaf.value(slot) == HOLE || leaf.is_twice(slot);
            let Some(slot) = (0..len).find(odd) else { return };
            self.close_gap(&leaf, slot, len);
        }
    }

    /// Overwrites a slot with its successor, and so on to the end.
    fn close_gap(&self, leaf: &Leaf, slot: usize, len: usize) {
        let mut writer = self.writer();
        for slot in slot..len - 1 {
            writer.put(leaf.at, slot, leaf.key(slot + 1), leaf.value(slot + 1));
        }
        writer.set_value(leaf.at, len - 1, 0);
        writer.finish();
    }

    fn insert(&self, leaf: &Leaf, slot: usize, len: usize, key: u64, value: u64) {
        let mut writer = self.writer();
        for slot in (slot..len).rev() {
            writer.put(leaf.at, slot + 1, leaf.key(slot), leaf.value(slot));
        }
        writer.put(leaf.at, slot, key, value);
        writer.finish();
    }

    /// Moves the upper half of a full leaf into a new one.
    fn split(&mut self, leaf: &Leaf) -> Result<(), String> {
        let (new, half) = (self.free, SLOTS / 2);
        if new + LEAF_BYTES > self.region.len() {
            return Err("the region is full".to_owned());
        }
        let low = leaf.key(half);
        if self.plant == Some(Plant::WrongOrder) {
            self.link(leaf.at, new);
        }
        let mut words = [0; 32];
        (words[0], words[1]) = (leaf.words[0], low);
        words[2..2 + 2 * (SLOTS - half)].copy_from_slice(&leaf.words[2 + 2 * half..]);
        let bytes = words.map(u64::to_le_bytes);
        self.region.write(new, bytes.as_flattened());
        if self.plant != Some(Plant::MissingFlush) {
            self.region.flush(new, LEAF_BYTES as usize);
        }
        if self.plant != Some(Plant::MissingFence) {
            self.region.drain();
        }
        if self.plant != Some(Plant::WrongOrder) {
            self.link(leaf.at, new);
        }
        // Need not be durable, since those keys are not below the lowest key of the new leaf.
        self.region.store_u64(leaf.at + 24 + 16 * half as u64, 0, Release);
        self.leaves.insert(low, new);
        self.free += LEAF_BYTES;
        Ok(())
    }

    fn link(&self, leaf: u64, next: u64) {
        self.region.store_u64(leaf, next, Release);
        self.region.persist(leaf, 8);
    }

    fn check_place(&self, at: u64) -> Result<(), String> {
        let inside = at >= FIRST_LEAF && at + LEAF_BYTES <= self.region.len();
        match inside && at.is_multiple_of(LEAF_BYTES) {
            true => Ok(()),
            false => Err(format!("a link to {at}, which is no leaf")),
        }
    }
}

impl<R: Region> Map<R> for Tree<R> {
    fn open(region: Arc<R>, plant: Option<Plant>) -> Result<Tree<R>, String> {
        let mut tree = Tree { region, leaves: BTreeMap::new(), free: 0, plant };
        let (mut at, mut last, mut low_before) = (FIRST_LEAF, FIRST_LEAF, None);
        loop {
            tree.check_place(at)?;
            let low = tree.region.load_u64(at + 8, Relaxed);
            if low_before.is_some_and(|before| low <= before) {
                return Err(format!("the leaf at {at} is not behind the one before it"));
            }
            tree.leaves.insert(low, at);
            let next = tree.region.load_u64(at, Acquire);
            if next != 0 {
                tree.check_place(next)?;
            }
            tree.repair(at);
            (low_before, last) = (Some(low), last.max(at));
            if next == 0 {
                tree.free = last + LEAF_BYTES;
                return Ok(tree);
            }
            at = next;
        }
    }

    fn put(&mut self, key: u64, value: u64) -> Result<(), String> {
        let mut leaf = self.leaf_of(key);
        let mut len = leaf.len();
        if let Some(slot) = (0..len).find(|&slot| leaf.key(slot) == key) {
            let mut writer = self.writer();
            writer.set_value(leaf.at, slot, value);
            writer.finish();
            return Ok(());
        }
        if len == SLOTS {
            self.split(&leaf)?;
            leaf = self.leaf_of(key);
            len = leaf.len();
        }
        let slot = (0..len).find(|&slot| leaf.key(slot) > key).unwrap_or(len);
        self.insert(&leaf, slot, len, key, value);
        Ok(())
    }

    fn remove(&mut self, key: u64) -> Result<(), String> {
        let leaf = self.leaf_of(key);
        let len = leaf.len();
        if let Some(slot) = (0..len).find(|&slot| leaf.key(slot) == key) {
            self.close_gap(&leaf, slot, len);
        }
        Ok(())
    }

    fn each(&self, with: &mut dyn FnMut(u64, u64)) {
        for &at in self.leaves.values() {
            self.leaf(at).records().for_each(|(key, value)| with(key, value));
        }
    }
}
