//! Walks over all leaves, while other threads use the tree.

use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::guide::Side;
use super::leaf::Leaf;
use super::leaves::View;
use super::open::ANCHOR_BYTES;
use super::{SvTree, posts};
use crate::keys::Keys;
use crate::pool::Guard;
use crate::{IndexError, Statistics};

/// A walk over all leaves in order, which adds those to the guide that it lacks.
pub(super) struct Walk<'t, R: Region, K: Keys<R>, const LINES: usize> {
    tree: &'t SvTree<R, K, LINES>,
    _pin: Guard<'t>,
    /// Next leaf; 0 after the last.
    at: u64,
    /// Low of the last leaf that was passed; that of the first is 0.
    shown: Option<u64>,
}

impl<'t, R: Region, K: Keys<R>, const LINES: usize> Walk<'t, R, K, LINES> {
    pub(super) fn new(tree: &'t SvTree<R, K, LINES>) -> Self {
        let _pin = tree.leaves.ground.pool.pin();
        Walk { tree, _pin, at: tree.leaves.head(), shown: None }
    }

    /// Returns the next leaf, as it was at one time; `None` behind the last.
    fn next(&mut self) -> Result<Option<View<LINES>>, IndexError> {
        let SvTree { leaves, .. } = self.tree;
        while self.at != 0 {
            let (leaf, seen) = leaves.read(self.at)?;
            if leaf.link().is_dead() {
                self.at = self.behind_shown()?;
                continue;
            }
            let (view, next) = (leaves.view_of(leaf)?, leaf.link().next());
            if next != 0
                && let Some(_held) = seen.and_then(|it| leaves.latches.lock_unchanged(self.at, it))
            {
                self.tree.add_to_guide(view.high, next)?;
            }
            (self.at, self.shown) = (next, Some(leaf.low()));
            return Ok(Some(view));
        }
        // All leaves that were there before have been read, or unlinked.
        leaves.settled.add_all();
        Ok(None)
    }

    /// Returns the leaf behind the last that was passed, after the next one was unlinked. The leaf
    /// that has its range now was passed, or is younger than this walk.
    fn behind_shown(&self) -> Result<u64, IndexError> {
        let SvTree { leaves, .. } = self.tree;
        let Some(low) = self.shown else { return Ok(leaves.head()) };
        if low == 0 {
            return Ok(leaves.first()?.leaf.link().next());
        }
        let mut scratch = K::Scratch::default();
        let key = leaves.ground.low_key(low, &mut scratch)?;
        Ok(self.tree.view(Some(key), Side::At)?.leaf.link().next())
    }

    /// Passes all blocks, see [`Persistent::blocks`](crate::Persistent::blocks).
    pub(super) fn reach(mut self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let SvTree { leaves, posts, .. } = self.tree;
        visit(leaves.anchor);
        posts.blocks(&leaves.ground.pool, visit)?;
        while let Some(view) = self.next()? {
            visit(view.leaf.at);
            if !K::WHOLE && view.leaf.low() != 0 {
                visit(view.leaf.low());
            }
            if K::OWNS {
                let fence = leaves.fence(view.leaf.link(), view.high)?;
                view.leaf.live(fence).for_each(|(_, slot)| visit(slot.payload));
            }
        }
        Ok(())
    }

    /// Counts leaves, keys and bytes.
    pub(super) fn count(mut self) -> Result<Statistics, IndexError> {
        let (tree, leaves) = (self.tree, &self.tree.leaves);
        let (pool, keys_of) = (&leaves.ground.pool, &leaves.ground.keys);
        let (mut nodes, mut keys, mut bytes) = (0, 0, ANCHOR_BYTES);
        while let Some(view) = self.next()? {
            nodes += 1;
            bytes += keys_of.low_bytes(pool, view.leaf.low())?;
            for (_, slot) in view.leaf.live(leaves.fence(view.leaf.link(), view.high)?) {
                keys += 1;
                bytes += keys_of.bytes(pool, slot.payload)?;
            }
        }
        tree.posts.blocks(pool, &mut |_| bytes += posts::BLOCK_BYTES)?;
        Ok(Statistics {
            nodes,
            bytes: bytes + nodes * Leaf::<LINES>::BYTES,
            volatile_bytes: tree.volatile_bytes(),
            height: tree.guide.height() + 1,
            keys,
            splits: tree.splits.load(Relaxed),
            compactions: tree.replaced.load(Relaxed),
            merges: tree.merges.load(Relaxed),
        })
    }
}
