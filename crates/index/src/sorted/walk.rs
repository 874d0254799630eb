//! Walks: ranges of records, statistics, and all blocks.

use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::node::{Link, Node, SLOTS_MAX};
use super::{Style, Tree};
use crate::walk::first;
use crate::{Direction, Flow, IndexError, Statistics};

/// What a leaf had at one time.
struct Snapshot {
    records: [(u64, u64); SLOTS_MAX],
    len: usize,
    link: Link,
}

impl Snapshot {
    fn records(&self) -> &[(u64, u64)] {
        &self.records[..self.len]
    }
}

type Visit<'a> = &'a mut dyn FnMut(&u64, u64) -> Flow;

impl<R: Region, S: Style> Tree<R, S> {
    pub(super) fn walk(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), IndexError> {
        let _guard = self.pool.pin();
        match (first(from, direction), direction) {
            (None, _) => Ok(()),
            (Some(first), Direction::Forward) => self.forward(first, visit),
            (Some(last), Direction::Backward) => self.backward(last, visit),
        }
    }

    fn forward(&self, first: u64, visit: Visit<'_>) -> Result<(), IndexError> {
        let mut first = first;
        let mut next = None;
        loop {
            let node = match next.take() {
                Some(node) => node,
                None => self.leaf(first)?.node,
            };
            // What was merged meanwhile is looked for from the root.
            let Some(leaf) = self.snapshot(node)? else { continue };
            for (key, value) in leaf.records().iter().filter(|(key, _)| *key >= first) {
                if visit(key, *value) == Flow::Stop {
                    return Ok(());
                }
            }
            let Some(high) = self.high(node, leaf.link)? else { return Ok(()) };
            first = first.max(high);
            next = Some(self.node(leaf.link.next())?);
        }
    }

    fn backward(&self, last: u64, visit: Visit<'_>) -> Result<(), IndexError> {
        let mut last = last;
        loop {
            let node = self.leaf(last)?.node;
            let Some(leaf) = self.snapshot(node)? else { continue };
            if self.high(node, leaf.link)?.is_some_and(|high| high <= last) {
                // It was split meanwhile.
                continue;
            }
            for (key, value) in leaf.records().iter().rev().filter(|(key, _)| *key <= last) {
                if visit(key, *value) == Flow::Stop {
                    return Ok(());
                }
            }
            match node.low().checked_sub(1) {
                Some(before) => last = before,
                None => return Ok(()),
            }
        }
    }

    /// What a leaf has; none if it is gone.
    fn snapshot(&self, node: Node<'_, R>) -> Result<Option<Snapshot>, IndexError> {
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
            if link.level() == 0 {
                found.keys += self.snapshot(node)?.map_or(0, |leaf| leaf.len as u64);
            }
            Ok(())
        })?;
        found.bytes = found.nodes * self.shape.node_bytes;
        Ok(found)
    }

    pub(super) fn reach(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let _guard = self.pool.pin();
        self.nodes(|node, _| {
            visit(node.at);
            Ok(())
        })
    }

    /// Shows all nodes, level by level, from left to right. The first of a level never leaves, and
    /// who stands on one that is gone finds the next by its link: it stays as it was.
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
                if self.high(node, link)?.is_none() {
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

    /// The link of a node at a time when nobody was writing.
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
