//! Walks: ranges of records, statistics, and all blocks.

use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::node::{Link, Node, SLOTS_MAX};
use super::{Style, Tree};
use crate::keys::{Keys, Slot};
use crate::walk::first;
use crate::{Direction, Flow, IndexError, Statistics};

/// Records of a leaf at one time.
pub(super) struct Snapshot {
    records: [(u64, u64); SLOTS_MAX],
    len: usize,
    pub(super) link: Link,
}

impl Snapshot {
    pub(super) fn records(&self) -> &[(u64, u64)] {
        &self.records[..self.len]
    }
}

impl<R: Region, S: Style, K: Keys<R>> Tree<R, S, K> {
    pub(super) fn walk(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let _guard = self.pool.pin();
        if !K::WHOLE {
            return match direction {
                Direction::Forward => self.ascend(from, visit),
                Direction::Backward => self.descend(from, visit),
            };
        }
        let words = from.map(|key| K::word(key, 0));
        match (first(words.as_ref(), direction), direction) {
            (None, _) => Ok(()),
            (Some(first), Direction::Forward) => self.forward(first, visit),
            (Some(last), Direction::Backward) => self.backward(last, visit),
        }
    }

    /// Passes on a record whose word is its key.
    #[inline]
    fn show(
        &self,
        (word, payload): (u64, u64),
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<Flow, IndexError> {
        let mut scratch = K::Scratch::default();
        Ok(visit(self.keys.key(&self.pool, Slot { word, payload }, &mut scratch)?, payload))
    }

    fn forward(
        &self,
        first: u64,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let mut first = first;
        let mut next = None;
        loop {
            let node = match next.take() {
                Some(node) => node,
                None => self.leaf_of(first)?.node,
            };
            // Records that were merged away meanwhile are searched from the root.
            let Some(leaf) = self.snapshot(node)? else { continue };
            for &record in leaf.records().iter().filter(|(key, _)| *key >= first) {
                if self.show(record, visit)? == Flow::Stop {
                    return Ok(());
                }
            }
            let Some(high) = self.high(node, leaf.link)? else { return Ok(()) };
            first = first.max(high);
            next = Some(self.node(leaf.link.next())?);
        }
    }

    fn backward(
        &self,
        last: u64,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let mut last = last;
        loop {
            let node = self.leaf_of(last)?.node;
            let Some(leaf) = self.snapshot(node)? else { continue };
            if self.high(node, leaf.link)?.is_some_and(|high| high <= last) {
                // It was split meanwhile.
                continue;
            }
            for &record in leaf.records().iter().rev().filter(|(key, _)| *key <= last) {
                if self.show(record, visit)? == Flow::Stop {
                    return Ok(());
                }
            }
            match node.low().checked_sub(1) {
                Some(before) => last = before,
                None => return Ok(()),
            }
        }
    }

    /// Copies the records of a leaf; `None` if it is gone.
    pub(super) fn snapshot(&self, node: Node<'_, R>) -> Result<Option<Snapshot>, IndexError> {
        loop {
            let (seen, state) = self.look(node)?;
            if state.is_gone() {
                return Ok(None);
            }
            let mut leaf =
                Snapshot { records: [(0, 0); SLOTS_MAX], len: state.count(), link: node.link() };
            for (slot, record) in leaf.records.iter_mut().zip(node.records(state)) {
                *slot = record;
            }
            if self.is_true(node, seen, state) {
                return Ok(Some(leaf));
            }
        }
    }

    pub(super) fn count(&self) -> Result<Statistics, IndexError> {
        let _guard = self.pool.pin();
        let mut found = Statistics {
            volatile_bytes: self.latches.bytes(),
            splits: self.splits.load(Relaxed),
            compactions: self.compactions.load(Relaxed),
            merges: self.merges.load(Relaxed),
            height: self.root()?.link().level() + 1,
            ..Statistics::default()
        };
        self.nodes(|node, link| {
            found.nodes += 1;
            found.bytes += self.shape.node_bytes + self.keys.low_bytes(&self.pool, node.low())?;
            if link.level() == 0
                && let Some(leaf) = self.snapshot(node)?
            {
                found.keys += leaf.len as u64;
                for &(_, payload) in leaf.records() {
                    found.bytes += self.keys.bytes(&self.pool, payload)?;
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn reach(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let _guard = self.pool.pin();
        self.nodes(|node, link| {
            visit(node.at);
            if K::WHOLE {
                return Ok(());
            }
            if node.low() != 0 {
                visit(node.low());
            }
            // Inner nodes too: from now on none leads to an unreached block.
            self.payloads(node, &mut |payload| {
                if K::OWNS && link.level() == 0 {
                    visit(payload);
                }
            })
        })
    }

    /// Passes all nodes to `visit`, level by level, from left to right. The first of a level never
    /// leaves, and a walk that stands on one that is gone finds the next by its link, which stays.
    fn nodes(
        &self,
        mut visit: impl FnMut(Node<'_, R>, Link) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut first = self.root()?;
        loop {
            let (mut node, level) = (first, first.link().level());
            loop {
                let link = self.link(node);
                if link.level() != level {
                    let what = format!("a node of level {} stands in level {level}", link.level());
                    return Err(IndexError::damaged(node.at, what));
                }
                visit(node, link)?;
                if !self.has_next(node, link)? {
                    break;
                }
                node = self.node(link.next())?;
            }
            if level == 0 {
                return Ok(());
            }
            first = self.node(first.leftmost())?;
            if first.link().level() + 1 != level {
                return Err(IndexError::damaged(first.at, "a leftmost child of the wrong level"));
            }
        }
    }

    /// Returns the link of a node at a time when no thread was writing.
    fn link(&self, node: Node<'_, R>) -> Link {
        loop {
            let seen = self.latches.read(node.at);
            let link = node.link();
            if self.latches.is_unchanged(node.at, seen) {
                return link;
            }
        }
    }
}
