//! Rebalancing after a removal in FAST and FAIR, as in its authors' public code for one thread.
//!
//! A node that is less than half full moves its records to the one before it; if both have too many
//! for one, they share them evenly. Every record that moves is inserted on its own, and shifts the
//! records behind it. Only neighbours with a common parent are considered; the leftmost child of a
//! parent receives the next node instead.

use entresol_media::Region;

use super::{LEFTMOST, LEVEL, Published, RECORDS, SIBLING, STATE, Slots};
use crate::IndexError;
use crate::reference::sorted::Style;

impl<R: Region, S: Style> Published<R, S> {
    /// Removes a record from a node of any level, and rebalances nodes with too few.
    pub(super) fn shed(&self, node: u64, slots: &Slots, slot: usize) -> Result<(), IndexError> {
        let (key, _) = slots.records[slot];
        let (count, level) = (slots.live().count(), self.load(node + LEVEL));
        if self.pool.root(self.root) == node {
            if level > 0 && count == 1 && self.sibling(node).is_none() {
                self.pool.set_root(self.root, self.load(node + LEFTMOST));
                self.pool.free(node);
            } else {
                self.take(node, slots, slot);
            }
            return Ok(());
        }
        self.take(node, slots, slot);
        if count > RECORDS / 2 { Ok(()) } else { self.rebalance(node, key) }
    }

    fn rebalance(&self, small: u64, key: u64) -> Result<(), IndexError> {
        let (mut node, mut key) = (small, key);
        let level = self.load(small + LEVEL);
        let (parent, children, slot) = loop {
            let Some(&parent) = self.path(key, level + 1).last() else { return Ok(()) };
            let children = self.slots(parent);
            let known = children.live().find(|(_, record)| record.1 == node).map(|(slot, _)| slot);
            if let Some(slot) = known {
                break (parent, children, slot);
            }
            // The leftmost child receives the next node.
            let Some(next) = self.sibling(node) else { return Ok(()) };
            let Some((_, first)) = self.slots(next).live().next() else { return Ok(()) };
            (node, key) = (next, first.0);
        };
        let left = match slot {
            0 => self.load(parent + LEFTMOST),
            _ => children.records[slot - 1].1,
        };
        let low = children.records[slot].0;
        self.shed(parent, &children, slot)?;
        let (own, before) = (self.slots(node), self.slots(left));
        let (count, count_before) = (own.live().count(), before.live().count());
        let total = count + count_before + usize::from(level > 0);
        if total <= RECORDS {
            self.give_all(left, node, low)
        } else if count < count_before {
            self.take_some(left, node, low, total / 2)
        } else {
            self.give_some(left, node, low, count - total / 2)
        }
    }

    /// Returns the records of a node; in an inner node its leftmost child comes first, under the
    /// low key.
    fn moving(&self, node: u64, low: u64) -> Vec<(u64, u64)> {
        let is_inner = self.load(node + LEVEL) > 0;
        let leftmost = is_inner.then(|| (low, self.load(node + LEFTMOST)));
        let records = self.slots(node).live().map(|(_, record)| record).collect::<Vec<_>>();
        leftmost.into_iter().chain(records).collect()
    }

    /// Marks a node that is being emptied. Nothing here reads the mark.
    fn mark(&self, node: u64) {
        self.store(node + STATE, 1);
        self.persist(node + STATE, 1);
    }

    fn set_sibling(&self, node: u64, sibling: u64) {
        self.store(node + SIBLING, sibling);
        self.persist(node + SIBLING, 8);
    }

    fn give_all(&self, left: u64, node: u64, low: u64) -> Result<(), IndexError> {
        self.mark(node);
        for (key, value) in self.moving(node, low) {
            self.add(left, key, value)?;
        }
        self.set_sibling(left, self.load(node + SIBLING));
        self.pool.free(node);
        Ok(())
    }

    /// Moves the records behind the first `stay` of the node before over, and cuts it off there.
    fn take_some(&self, left: u64, node: u64, low: u64, stay: usize) -> Result<(), IndexError> {
        let before = self.slots(left);
        let is_inner = self.load(node + LEVEL) > 0;
        if is_inner {
            self.add(node, low, self.load(node + LEFTMOST))?;
        }
        let first = stay + usize::from(is_inner);
        let moving: Vec<_> = before.live().skip(first).collect();
        for (_, (key, value)) in moving.into_iter().rev() {
            self.add(node, key, value)?;
        }
        let Some((slot, (low, child))) = before.live().nth(stay) else { return Ok(()) };
        if is_inner {
            self.store(node + LEFTMOST, child);
            self.persist(node + LEFTMOST, 8);
        }
        self.cut(left, &before, slot);
        self.lead_to(left, low, node)
    }

    /// Moves the first `gone` records to the node before, and the others to a new one.
    fn give_some(&self, left: u64, node: u64, low: u64, gone: usize) -> Result<(), IndexError> {
        self.mark(node);
        let (moving, level) = (self.moving(node, low), self.load(node + LEVEL));
        let (gone, stay) = moving.split_at(gone.min(moving.len() - 1));
        let (low, child) = stay[0];
        let (leftmost, records) = if level > 0 { (child, &stay[1..]) } else { (0, stay) };
        for &(key, value) in gone {
            self.add(left, key, value)?;
        }
        let new = self.make(level, leftmost, self.load(node + SIBLING), records)?;
        self.set_sibling(left, new);
        self.pool.free(node);
        self.lead_to(left, low, new)
    }

    /// Makes a node known above the one before it.
    fn lead_to(&self, left: u64, low: u64, node: u64) -> Result<(), IndexError> {
        let level = self.load(left + LEVEL) + 1;
        if self.pool.root(self.root) == left {
            let root = self.make(level, left, 0, &[(low, node)])?;
            self.pool.set_root(self.root, root);
            return Ok(());
        }
        match self.path(low, level).last() {
            Some(&parent) if self.load(parent + LEVEL) == level => self.add(parent, low, node),
            _ => Ok(()),
        }
    }
}
