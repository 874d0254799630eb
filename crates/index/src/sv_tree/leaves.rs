//! Leaves of a tree on the medium, with their latches. This file knows in which order a leaf is
//! read and written, but not which leaf has a key: that takes the guide.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use entresol_base::thread;
use entresol_media::Region;

use super::ground::Ground;
use super::guide::Side;
use super::leaf::{self, LOW_AT, Leaf, Link, Looked, slot_at};
use crate::IndexError;
use crate::keys::{Keys, Slot};
use crate::latch::{Latches, Seen};
use crate::root::durable;
use crate::settled::Settled;

/// Number of reads of a leaf that others keep changing, before the reader takes its latch.
const TRIES: u32 = 64;

/// Number of times that a thread begins again at a leaf that was unlinked. Another leaf must have
/// gone each time; this many in a row are damage.
pub(super) const GONE_MAX: u32 = 100_000;

/// Place of the first leaf's offset in the anchor.
pub(super) const HEAD_AT: u64 = 8;

/// List of leaves of `LINES` lines; see the head of the file.
#[derive(Debug)]
pub(super) struct Leaves<R, K, const LINES: usize> {
    pub(super) ground: Ground<R, K>,
    /// Root block.
    pub(super) anchor: u64,
    pub(super) latches: Latches,
    pub(super) settled: Settled,
}

/// A leaf that was found to have the range of a key, as it was at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<const LINES: usize> {
    pub(super) leaf: Leaf<LINES>,
    /// Low of the next leaf; 0 if there is none.
    pub(super) high: u64,
}

/// A latched leaf that has the range of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) link: Link,
    /// Low of the next leaf; 0 if there is none.
    pub(super) high: u64,
}

/// Position of a key relative to a leaf.
pub(super) enum Onward {
    /// Beyond the leaf: in the next one, whose low this is, or behind it.
    Go(u64),
    /// Within the leaf; holds the low of the next leaf, 0 if there is none.
    Stay(u64),
}

impl Onward {
    pub(super) fn high(&self) -> u64 {
        let (Onward::Go(low) | Onward::Stay(low)) = *self;
        low
    }
}

impl<R: Region, K: Keys<R>, const LINES: usize> Leaves<R, K, LINES> {
    #[inline]
    pub(super) fn region(&self) -> &R {
        self.ground.pool.region()
    }

    /// Returns the first leaf.
    pub(super) fn head(&self) -> u64 {
        self.region().load_u64(self.anchor + HEAD_AT, Acquire)
    }

    /// Makes another leaf, which is durable, the first.
    pub(super) fn set_head(&self, leaf: u64) -> Result<(), IndexError> {
        self.region().store_u64(self.anchor + HEAD_AT, leaf, Release);
        self.persist(self.anchor + HEAD_AT, 8)
    }

    /// Returns the view of the first leaf.
    pub(super) fn first(&self) -> Result<View<LINES>, IndexError> {
        for _ in 0..GONE_MAX {
            let (leaf, _) = self.read(self.head())?;
            self.prefetch(leaf.link().next());
            if !leaf.link().is_dead() {
                return self.view_of(leaf);
            }
            thread::yield_now();
        }
        Err(self.gone())
    }

    #[cold]
    pub(super) fn gone(&self) -> IndexError {
        IndexError::damaged(self.anchor, "links lead to leaves that were unlinked")
    }

    /// Ensures that a leaf's visible contents are durable.
    #[inline]
    pub(super) fn make_sure(&self, leaf: u64) -> Result<(), IndexError> {
        if self.settled.has(leaf) { Ok(()) } else { self.settle(leaf) }
    }

    #[cold]
    fn settle(&self, leaf: u64) -> Result<(), IndexError> {
        let _held = self.latches.lock(leaf);
        if self.settled.has(leaf) {
            return Ok(());
        }
        // A thread that unlinks a leaf in this opening has been here before.
        if Link(self.region().load_u64(leaf, Relaxed)).is_dead() {
            return Err(IndexError::damaged(leaf, "a link leads to this leaf, which was unlinked"));
        }
        self.settled.settle(self.region(), leaf)
    }

    /// Refuses a leaf whose low is not above that of its predecessor: links in a ring would be
    /// followed for ever.
    #[inline]
    pub(super) fn check_rising(&self, from: u64, to: u64, leaf: u64) -> Result<(), IndexError> {
        let rises = match (from, to) {
            _ if K::WHOLE => from < to,
            (_, 0) => false,
            (0, _) => true,
            _ => {
                let mut scratch = K::Scratch::default();
                self.ground.compare_low(from, self.ground.low_key(to, &mut scratch)?)?.is_lt()
            }
        };
        if rises {
            return Ok(());
        }
        Err(IndexError::damaged(leaf, "its low is not above that of the leaf before it"))
    }

    /// Reads a leaf as it was durable at one time, with its latch's count then, if that is known.
    #[inline]
    pub(super) fn read(&self, at: u64) -> Result<(Leaf<LINES>, Option<Seen>), IndexError> {
        self.prefetch(at);
        self.make_sure(at)?;
        for _ in 0..TRIES {
            let seen = self.latches.read(at);
            let leaf = Leaf::load(self.region(), at);
            if self.latches.is_unchanged(at, seen) {
                return Ok((leaf, Some(seen)));
            }
        }
        let _held = self.latches.lock(at);
        Ok((Leaf::load(self.region(), at), None))
    }

    /// Returns the view of a leaf that was read whole, with the low of the next one.
    pub(super) fn view_of(&self, leaf: Leaf<LINES>) -> Result<View<LINES>, IndexError> {
        let next = leaf.link().next();
        let high = self.low_of(next)?;
        if next != 0 {
            self.check_rising(leaf.low(), high, next)?;
        }
        Ok(View { leaf, high })
    }

    /// Decides if a key lies beyond a leaf whose link leads to `next`.
    #[inline]
    pub(super) fn onward(
        &self,
        next: u64,
        key: Option<&K::Key>,
        side: Side,
    ) -> Result<Onward, IndexError> {
        if next == 0 {
            return Ok(Onward::Stay(0));
        }
        self.ground.check(next, LINES)?;
        let low = self.low_at(next);
        let is_beyond = match key {
            None => true,
            Some(key) => {
                let order = self.ground.compare_low(low, key)?;
                order.is_lt() || order.is_eq() && side == Side::At
            }
        };
        Ok(if is_beyond { Onward::Go(low) } else { Onward::Stay(low) })
    }

    /// Returns true if a key lies beyond a leaf with this link.
    pub(super) fn is_beyond(&self, link: Link, key: &K::Key) -> Result<bool, IndexError> {
        let onward = self.onward(link.next(), Some(key), Side::At)?;
        Ok(matches!(onward, Onward::Go(_)))
    }

    /// Returns the low of a leaf, which never changes.
    #[inline]
    pub(super) fn low_at(&self, leaf: u64) -> u64 {
        self.region().load_u64(leaf + LOW_AT, Acquire)
    }

    /// Returns the low of a leaf; 0 if there is none.
    pub(super) fn low_of(&self, leaf: u64) -> Result<u64, IndexError> {
        if leaf == 0 {
            return Ok(0);
        }
        self.ground.check(leaf, LINES)?;
        Ok(self.low_at(leaf))
    }

    #[inline]
    pub(super) fn prefetch(&self, leaf: u64) {
        for line in 0..LINES as u64 {
            self.region().prefetch(leaf + 64 * line);
        }
    }

    /// Returns the word from which on slots are dead.
    #[inline]
    pub(super) fn fence(&self, link: Link, high: u64) -> Result<Option<u64>, IndexError> {
        if link.next() == 0 { Ok(None) } else { self.ground.bound(high, link.skip()) }
    }

    /// Returns the slot of a key in a leaf that no thread changes, and a free slot if there is
    /// none.
    #[inline]
    pub(super) fn look(&self, at: u64, word: u64, key: &K::Key) -> Result<Looked, IndexError> {
        // A dead slot's word is that of a key beyond this leaf, so this one is not among them.
        let mut looked = leaf::look::<R, LINES>(self.region(), at, word, 0);
        while !K::WHOLE
            && let Some((number, slot)) = looked.found
            && self.ground.keys.compare(&self.ground.pool, slot, key)?.is_ne()
        {
            let behind = leaf::look::<R, LINES>(self.region(), at, word, number + 1);
            looked = Looked { free: looked.free.or(behind.free), ..behind };
        }
        Ok(looked)
    }

    /// Returns a dead slot of a latched leaf.
    #[inline]
    pub(super) fn dead_slot(&self, place: &Place) -> Result<Option<usize>, IndexError> {
        let fence = self.fence(place.link, place.high)?;
        Ok(Leaf::<LINES>::load(self.region(), place.at).dead(fence).next())
    }

    /// Fills a slot in the order of rule 1.
    #[inline]
    pub(super) fn fill(&self, leaf: u64, number: usize, slot: Slot, was_dead: bool) {
        let (region, at) = (self.region(), leaf + slot_at(number));
        if was_dead {
            region.store_u64(at + 8, 0, Release);
        }
        region.store_u64(at, slot.word, Release);
        region.store_u64(at + 8, slot.payload, Release);
    }

    #[inline]
    #[track_caller]
    pub(super) fn store_payload(
        &self,
        leaf: u64,
        number: usize,
        payload: u64,
    ) -> Result<(), IndexError> {
        let at = leaf + slot_at(number) + 8;
        self.region().store_u64(at, payload, Release);
        self.persist(at, 8)
    }

    #[inline]
    #[track_caller]
    pub(super) fn persist(&self, at: u64, bytes: usize) -> Result<(), IndexError> {
        self.region().flush(at, bytes);
        self.drain()
    }

    #[inline]
    #[track_caller]
    pub(super) fn drain(&self) -> Result<(), IndexError> {
        self.region().drain();
        durable(self.region())
    }
}
