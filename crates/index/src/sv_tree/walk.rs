//! Walks over all leaves, while other threads use the tree.

use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::guide::Side;
use super::leaf::Leaf;
use super::open::ANCHOR_BYTES;
use super::{SvTree, View};
use crate::keys::Keys;
use crate::{IndexError, Statistics};

impl<R: Region, K: Keys<R>, const LINES: usize> SvTree<R, K, LINES> {
    /// Returns the bytes in DRAM that the tree has used: those of [`Statistics`], without a walk.
    #[must_use]
    pub fn volatile_bytes(&self) -> u64 {
        self.guide.bytes() + self.posts.volatile_bytes()
    }

    /// Passes all leaves in order to `visit`, and adds those to the guide that it lacks.
    fn walk(
        &self,
        each: &mut dyn FnMut(&View<LINES>) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let _pin = self.ground.pool.pin();
        let mut at = self.head();
        // Low of the last leaf that was passed; that of the first is 0.
        let mut shown = None;
        loop {
            let (leaf, seen) = self.read(at)?;
            if leaf.link().is_dead() {
                // The leaf that has its range now was passed, or is younger than this walk.
                at = match shown {
                    None => self.head(),
                    Some(0) => self.first()?.leaf.link().next(),
                    Some(low) => {
                        let mut scratch = K::Scratch::default();
                        let key = self.ground.low_key(low, &mut scratch)?;
                        self.view(Some(key), Side::At)?.leaf.link().next()
                    }
                };
            } else {
                let next = leaf.link().next();
                let view = self.view_of(leaf)?;
                each(&view)?;
                shown = Some(leaf.low());
                if next != 0
                    && let Some(_held) = seen.and_then(|it| self.latches.lock_unchanged(at, it))
                {
                    self.add_to_guide(view.high, next)?;
                }
                at = next;
            }
            if at == 0 {
                // All leaves that were there before have been read, or unlinked.
                self.settled.add_all();
                return Ok(());
            }
        }
    }

    /// Passes all blocks, see [`Persistent::blocks`](crate::Persistent::blocks).
    pub(super) fn reach(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        visit(self.anchor);
        self.posts.blocks(&self.ground.pool, visit)?;
        self.walk(&mut |view| {
            visit(view.leaf.at);
            if !K::WHOLE && view.leaf.low() != 0 {
                visit(view.leaf.low());
            }
            if K::OWNS {
                let fence = self.fence(view.leaf.link(), view.high)?;
                view.leaf.live(fence).for_each(|(_, slot)| visit(slot.payload));
            }
            Ok(())
        })
    }

    pub(super) fn count(&self) -> Result<Statistics, IndexError> {
        let (mut nodes, mut keys, mut bytes) = (0, 0, ANCHOR_BYTES);
        self.walk(&mut |view| {
            nodes += 1;
            bytes += self.ground.keys.low_bytes(&self.ground.pool, view.leaf.low())?;
            for (_, slot) in view.leaf.live(self.fence(view.leaf.link(), view.high)?) {
                keys += 1;
                bytes += self.ground.keys.bytes(&self.ground.pool, slot.payload)?;
            }
            Ok(())
        })?;
        self.posts.blocks(&self.ground.pool, &mut |_| bytes += super::posts::BLOCK_BYTES)?;
        Ok(Statistics {
            nodes,
            bytes: bytes + nodes * Leaf::<LINES>::BYTES,
            volatile_bytes: self.volatile_bytes(),
            height: self.guide.height() + 1,
            keys,
            splits: self.splits.load(Relaxed),
            compactions: self.replaced.load(Relaxed),
            merges: self.merges.load(Relaxed),
        })
    }
}
