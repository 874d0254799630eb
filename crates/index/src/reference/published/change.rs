//! Changes of a node in the published trees, and splits.

use entresol_media::Region;

use super::{LEVEL, LINE_BYTES, NODE_BYTES, Published, RECORDS, SIBLING, SLOTS, STATE, Slots};
use crate::IndexError;
use crate::reference::sorted::Style;

impl<R: Region, S: Style> Published<R, S> {
    pub(super) fn make(
        &self,
        level: u64,
        leftmost: u64,
        sibling: u64,
        records: &[(u64, u64)],
    ) -> Result<u64, IndexError> {
        let at = self.pool.allocate(NODE_BYTES)?;
        let mut words = [0u64; NODE_BYTES as usize / 8];
        words[..3].copy_from_slice(&[leftmost, sibling, level]);
        for (slot, &(key, value)) in words[SLOTS as usize / 8..].chunks_exact_mut(2).zip(records) {
            slot.copy_from_slice(&[key, value]);
        }
        self.pool.region().write(at, words.map(u64::to_le_bytes).as_flattened());
        self.persist(at, NODE_BYTES);
        self.set_bits(at, (1 << records.len()) - 1);
        Ok(at)
    }

    /// Stores the used slots; volatile, and so not flushed on purpose.
    pub(super) fn set_bits(&self, node: u64, bits: u32) {
        if S::IN_PLACE {
            self.store(node + STATE, u64::from(self.opening) << 32 | u64::from(bits));
        }
    }

    /// Copies a slot, the value first, and flushes a line when its first slot is copied.
    fn copy(&self, node: u64, from: usize, to: usize) {
        let (from, to) = (Self::slot_at(node, from), Self::slot_at(node, to));
        self.store(to + 8, self.load(from + 8));
        self.store(to, self.load(from));
        if to.is_multiple_of(LINE_BYTES) {
            self.persist(to, 16);
        }
    }

    pub(super) fn add(&self, node: u64, key: u64, value: u64) -> Result<(), IndexError> {
        let slots = self.slots(node);
        let tail = slots.records.len();
        let position = slots.live().rev().find(|(_, record)| record.0 < key);
        let position = position.map_or(0, |(slot, _)| slot + 1);
        let is_hole = |&slot: &usize| S::IN_PLACE && !slots.counts(slot);
        let hole = (position..tail).find(is_hole).unwrap_or(tail);
        if hole == RECORDS {
            let live = slots.live().count();
            // Seven tenths of thirteen.
            if S::IN_PLACE && live * 10 < RECORDS * 7 {
                self.compact(node, &slots);
                return self.add(node, key, value);
            }
            return self.split(node, &slots, key, value);
        }
        if hole == tail {
            // Flushed in the public code only where this word begins a line, which it never does.
            self.store(Self::slot_at(node, tail + 1) + 8, 0);
        }
        for slot in (position..hole).rev() {
            self.copy(node, slot, slot + 1);
        }
        let at = Self::slot_at(node, position);
        let before = match position {
            0 => self.before_first(node),
            _ => self.load(Self::slot_at(node, position - 1) + 8),
        };
        self.store(at + 8, before);
        self.store(at, key);
        self.store(at + 8, value);
        self.persist(at, 16);
        self.set_bits(node, slots.bits | 1 << hole);
        Ok(())
    }

    pub(super) fn take(&self, node: u64, slots: &Slots, slot: usize) {
        let before = match slot {
            0 => self.before_first(node),
            _ => self.load(Self::slot_at(node, slot - 1) + 8),
        };
        let at = Self::slot_at(node, slot);
        self.store(at + 8, before);
        if S::IN_PLACE {
            self.persist(at, 16);
            self.set_bits(node, slots.bits & !(1 << slot));
            return;
        }
        // The key first, and each line is flushed when its first slot is written.
        for slot in slot..slots.records.len() {
            let (from, to) = (Self::slot_at(node, slot + 1), Self::slot_at(node, slot));
            self.store(to, self.load(from));
            self.store(to + 8, self.load(from + 8));
            if to.is_multiple_of(LINE_BYTES) {
                self.persist(to, 16);
            }
        }
    }

    /// Ends a node before a slot.
    pub(super) fn cut(&self, node: u64, slots: &Slots, slot: usize) {
        self.store(Self::slot_at(node, slot) + 8, 0);
        self.persist(Self::slot_at(node, slot), 16);
        // The count in the header.
        self.persist(node, 8);
        self.set_bits(node, slots.bits & ((1 << slot) - 1));
    }

    fn compact(&self, node: u64, slots: &Slots) {
        let live = slots.live().count();
        for (to, (from, _)) in slots.live().enumerate().filter(|(to, (from, _))| to != from) {
            self.copy(node, from, to);
        }
        let end = Self::slot_at(node, live);
        self.store(end + 8, 0);
        self.persist(end, 16);
        self.set_bits(node, (1 << live) - 1);
    }

    fn split(&self, node: u64, slots: &Slots, key: u64, value: u64) -> Result<(), IndexError> {
        let live: Vec<(usize, (u64, u64))> = slots.live().collect();
        let stay = live.len() / 2;
        let (slot, (low, middle)) = live[stay];
        let level = self.load(node + LEVEL);
        let first = if level > 0 { stay + 1 } else { stay };
        let upper: Vec<(u64, u64)> = live[first..].iter().map(|(_, record)| *record).collect();
        let leftmost = if level > 0 { middle } else { 0 };
        let new = self.make(level, leftmost, self.load(node + SIBLING), &upper)?;
        self.store(node + SIBLING, new);
        self.persist(node + SIBLING, 8);
        self.cut(node, slots, slot);
        self.add(if key < low { node } else { new }, key, value)?;
        if self.pool.root(self.root) == node {
            let root = self.make(level + 1, node, 0, &[(low, new)])?;
            self.pool.set_root(self.root, root);
            return Ok(());
        }
        let parent = self.path(low, level + 1).last().copied();
        match parent.filter(|&parent| self.load(parent + LEVEL) == level + 1) {
            Some(parent) => self.add(parent, low, new),
            // As in the public code: a node that a crash left without a parent stays so.
            None => Ok(()),
        }
    }
}
