//! Ranges of keys that lie in records, in both directions.

use std::ops::Bound;

use entresol_media::Region;

use super::Style;
use super::records::Goal;
use super::walk::Walk;
use crate::keys::{Keys, Slot};
use crate::{Flow, IndexError};

impl<R: Region, S: Style, K: Keys<R>> Walk<'_, R, S, K> {
    /// Passes records on upwards.
    pub(super) fn ascend(
        &self,
        from: Bound<&K::Key>,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let mut scratch = K::Scratch::default();
        // Low of the last node that was gone to; its predecessors are done.
        let (mut since, mut next) = (0, None);
        loop {
            let (node, is_found) = match next.take() {
                Some(node) => (node, false),
                None => {
                    let goal = match from {
                        _ if since != 0 => self.nodes.at_low(since, &mut scratch)?,
                        Bound::Included(key) | Bound::Excluded(key) => Goal::At(key),
                        Bound::Unbounded => Goal::Least,
                    };
                    (self.tree.leaf(goal)?.node, true)
                }
            };
            // Records that were merged away meanwhile are searched from the root.
            let Some(leaf) = self.snapshot(node)? else { continue };
            for &(word, payload) in leaf.records() {
                let key =
                    self.nodes.keys.key(&self.nodes.pool, Slot { word, payload }, &mut scratch)?;
                let is_before = is_found
                    && match from {
                        _ if since != 0 => {
                            self.tree.nodes.keys.compare_low(&self.nodes.pool, since, key)?.is_gt()
                        }
                        Bound::Included(from) => key < from,
                        Bound::Excluded(from) => key <= from,
                        Bound::Unbounded => false,
                    };
                if !is_before
                    && visit(key, self.nodes.keys.value(&self.nodes.pool, payload)?) == Flow::Stop
                {
                    return Ok(());
                }
            }
            if !self.nodes.has_next(node, leaf.link)? {
                return Ok(());
            }
            let node = self.nodes.node(leaf.link.next())?;
            (since, next) = (node.low(), Some(node));
        }
    }

    /// Passes records on downwards; each node is found by the low of the one before.
    pub(super) fn descend(
        &self,
        from: Bound<&K::Key>,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let (mut low_scratch, mut scratch) = (K::Scratch::default(), K::Scratch::default());
        // All keys from this low on are done.
        let mut until = 0;
        loop {
            let goal = match from {
                _ if until != 0 => Goal::Below(self.nodes.keys.low_key(
                    &self.nodes.pool,
                    until,
                    &mut low_scratch,
                )?),
                Bound::Included(key) => Goal::At(key),
                Bound::Excluded(key) => Goal::Below(key),
                Bound::Unbounded => Goal::Last,
            };
            let node = self.tree.leaf(goal)?.node;
            let Some(leaf) = self.snapshot(node)? else { continue };
            if self.nodes.is_beyond(leaf.link, goal)? {
                // It was split meanwhile.
                continue;
            }
            let mut is_below = false;
            for &(word, payload) in leaf.records().iter().rev() {
                let key =
                    self.nodes.keys.key(&self.nodes.pool, Slot { word, payload }, &mut scratch)?;
                is_below = is_below
                    || match from {
                        _ if until != 0 => {
                            self.tree.nodes.keys.compare_low(&self.nodes.pool, until, key)?.is_gt()
                        }
                        Bound::Included(from) => key <= from,
                        Bound::Excluded(from) => key < from,
                        Bound::Unbounded => true,
                    };
                if is_below
                    && visit(key, self.nodes.keys.value(&self.nodes.pool, payload)?) == Flow::Stop
                {
                    return Ok(());
                }
            }
            until = node.low();
            if until == 0 {
                return Ok(());
            }
        }
    }
}
