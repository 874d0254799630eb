//! Walks: ranges of records, statistics, and all blocks.

use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::node::{Link, Node, SLOTS_MAX};
use super::nodes::Nodes;
use super::{Style, Tree};
use crate::keys::{Keys, Slot};
use crate::pool::Guard;
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

/// A walk over a tree, during which nodes that it stands on stay unchanged if they go.
pub(super) struct Walk<'t, R: Region, S, K> {
    pub(super) tree: &'t Tree<R, S, K>,
    pub(super) nodes: &'t Nodes<R, S, K>,
    _guard: Guard<'t>,
}

impl<'t, R: Region, S: Style, K: Keys<R>> Walk<'t, R, S, K> {
    pub(super) fn new(tree: &'t Tree<R, S, K>) -> Self {
        Walk { tree, nodes: &tree.nodes, _guard: tree.nodes.pool.pin() }
    }

    /// Passes on the records from a bound on.
    pub(super) fn range(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
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
        Ok(visit(
            self.nodes.keys.key(&self.nodes.pool, Slot { word, payload }, &mut scratch)?,
            payload,
        ))
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
                None => self.tree.leaf_of(first)?.node,
            };
            // Records that were merged away meanwhile are searched from the root.
            let Some(leaf) = self.snapshot(node)? else { continue };
            for &record in leaf.records().iter().filter(|(key, _)| *key >= first) {
                if self.show(record, visit)? == Flow::Stop {
                    return Ok(());
                }
            }
            let Some(high) = self.nodes.high(node, leaf.link)? else { return Ok(()) };
            first = first.max(high);
            next = Some(self.nodes.node(leaf.link.next())?);
        }
    }

    fn backward(
        &self,
        last: u64,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let mut last = last;
        loop {
            let node = self.tree.leaf_of(last)?.node;
            let Some(leaf) = self.snapshot(node)? else { continue };
            if self.nodes.high(node, leaf.link)?.is_some_and(|high| high <= last) {
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
            let (seen, state) = self.nodes.look(node)?;
            if state.is_gone() {
                return Ok(None);
            }
            let mut leaf =
                Snapshot { records: [(0, 0); SLOTS_MAX], len: state.count(), link: node.link() };
            for (slot, record) in leaf.records.iter_mut().zip(node.records(state)) {
                *slot = record;
            }
            if self.nodes.is_true(node, seen, state) {
                return Ok(Some(leaf));
            }
        }
    }

    /// Counts nodes, keys and bytes.
    pub(super) fn count(&self) -> Result<Statistics, IndexError> {
        let mut found = Statistics {
            volatile_bytes: self.nodes.latches.bytes(),
            splits: self.tree.splits.load(Relaxed),
            compactions: self.tree.compactions.load(Relaxed),
            merges: self.tree.merges.load(Relaxed),
            height: self.tree.root()?.link().level() + 1,
            ..Statistics::default()
        };
        self.nodes(|node, link| {
            found.nodes += 1;
            found.bytes += self.nodes.shape.node_bytes
                + self.nodes.keys.low_bytes(&self.nodes.pool, node.low())?;
            if link.level() == 0
                && let Some(leaf) = self.snapshot(node)?
            {
                found.keys += leaf.len as u64;
                for &(_, payload) in leaf.records() {
                    found.bytes += self.nodes.keys.bytes(&self.nodes.pool, payload)?;
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Passes all blocks, see [`Persistent::blocks`](crate::Persistent::blocks).
    pub(super) fn reach(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
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
        let mut first = self.tree.root()?;
        loop {
            let (mut node, level) = (first, first.link().level());
            loop {
                let link = self.link(node);
                if link.level() != level {
                    let what = format!("a node of level {} stands in level {level}", link.level());
                    return Err(IndexError::damaged(node.at, what));
                }
                visit(node, link)?;
                if !self.nodes.has_next(node, link)? {
                    break;
                }
                node = self.nodes.node(link.next())?;
            }
            if level == 0 {
                return Ok(());
            }
            first = self.nodes.node(first.leftmost())?;
            if first.link().level() + 1 != level {
                return Err(IndexError::damaged(first.at, "a leftmost child of the wrong level"));
            }
        }
    }

    /// Returns the link of a node at a time when no thread was writing.
    fn link(&self, node: Node<'_, R>) -> Link {
        loop {
            let seen = self.nodes.latches.read(node.at);
            let link = node.link();
            if self.nodes.latches.is_unchanged(node.at, seen) {
                return link;
            }
        }
    }

    /// Collects the payloads of a node, even of one that is gone, which stays unchanged.
    fn payloads(&self, node: Node<'_, R>, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        loop {
            let (seen, state) = self.nodes.look(node)?;
            let mut found = [(0, 0); SLOTS_MAX];
            let records = found.iter_mut().zip(node.records(state));
            let len = records.map(|(slot, record)| *slot = record).count();
            if self.nodes.latches.is_unchanged(node.at, seen) {
                found[..len].iter().for_each(|&(_, payload)| visit(payload));
                return Ok(());
            }
        }
    }
}
