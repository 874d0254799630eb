//! Unlinking of empty leaves.

use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_base::thread;
use entresol_media::Region;

use super::SvTree;
use super::guide::Side;
use super::leaf::{Leaf, Link, slot_at};
use crate::IndexError;
use crate::keys::Keys;

/// Result of an attempt.
enum Unlinked {
    /// The leaf was unlinked; this one came after it.
    Gone { next: u64 },
    /// The leaf must stay.
    Stays,
    /// Another thread interfered; it is worth another look.
    Again,
}

impl<R: Region, K: Keys<R>, const LINES: usize> SvTree<R, K, LINES> {
    /// Unlinks a leaf if it is empty, not the first, and the one before it can take its range; then
    /// those after it that are empty as well.
    #[cold]
    pub(super) fn unlink(&self, leaf: u64, low: u64) -> Result<(), IndexError> {
        let (mut at, mut low) = (leaf, low);
        while low != 0 {
            match self.try_unlink(at, low)? {
                Unlinked::Gone { next } if !K::WHOLE && next != 0 => {
                    // The next one may have had to stay because of the one just unlinked.
                    (at, low) = (next, self.leaves.low_of(next)?);
                }
                Unlinked::Gone { .. } | Unlinked::Stays => return Ok(()),
                Unlinked::Again => thread::yield_now(),
            }
        }
        Ok(())
    }

    fn try_unlink(&self, at: u64, low: u64) -> Result<Unlinked, IndexError> {
        let mut scratch = K::Scratch::default();
        let key = self.leaves.ground.low_key(low, &mut scratch)?;
        let before_at = self.view(Some(key), Side::Below)?.leaf.at;
        self.leaves.make_sure(at)?;
        let held = self.leaves.latches.lock_both(before_at, at);
        let before = Leaf::<LINES>::load(self.leaves.region(), before_at);
        let leaf = Leaf::<LINES>::load(self.leaves.region(), at);
        if leaf.link().is_dead() {
            return Ok(Unlinked::Stays);
        }
        if before.link().is_dead() || before.link().next() != at {
            return Ok(Unlinked::Again);
        }
        let next = leaf.link().next();
        let view = self.leaves.view_of(leaf)?;
        if leaf.live(self.leaves.fence(view.leaf.link(), view.high)?).next().is_some() {
            return Ok(Unlinked::Stays);
        }
        let (skip, in_common) =
            (before.link().skip(), self.leaves.ground.common(before.low(), view.high)?);
        if in_common < skip {
            return Ok(Unlinked::Stays);
        }
        debug_assert!(before_at != at && next != at, "leaf {at} is linked to itself");
        debug_assert!(at != self.leaves.head(), "the first leaf {at} is unlinked");
        self.guide.remove(&self.leaves.ground, key, at)?;
        self.posts.remove(&self.leaves.ground.pool, at);
        self.zero_dead(&before, self.leaves.ground.bound(low, skip)?)?;
        self.leaves.region().store_u64(before_at, Link::new(next, skip).0, Release);
        self.leaves.persist(before_at, 8)?;
        self.leaves.region().store_u64(at, Link::DEAD.0, Release);
        self.merges.fetch_add(1, Relaxed);
        debug_assert!(
            Link(self.leaves.region().load_u64(before_at, Relaxed)).next() == next,
            "leaf {at} is retired, and {before_at} leads to it"
        );
        drop(held);
        self.leaves.ground.pool.retire(at);
        self.leaves.ground.keys.retire_low(&self.leaves.ground.pool, low);
        Ok(Unlinked::Gone { next })
    }

    /// Zeroes the dead slots of a leaf (rule 4): slots that are dead because of the next leaf would
    /// come alive without it.
    fn zero_dead(&self, leaf: &Leaf<LINES>, fence: Option<u64>) -> Result<(), IndexError> {
        let mut line = None;
        for number in leaf.dead(fence) {
            let at = leaf.at + slot_at(number);
            self.leaves.region().store_u64(at + 8, 0, Release);
            if line != Some(at / 64) {
                self.flush_line(line);
                line = Some(at / 64);
            }
        }
        if line.is_some() {
            self.flush_line(line);
            self.leaves.drain()?;
        }
        Ok(())
    }

    fn flush_line(&self, line: Option<u64>) {
        if let Some(line) = line {
            self.leaves.region().flush(64 * line, 64);
        }
    }
}
