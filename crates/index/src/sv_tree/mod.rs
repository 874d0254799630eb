//! `SvTree`: a tree whose leaves validate themselves, so that an insert is one line and one fence.
//!
//! On the medium there is a list of leaves, each with the least key that it may have (its low), a
//! link to the next, and slots in no order. A slot is free if its payload is 0, and dead if its key
//! is not below the low of the next leaf. So the link alone decides which keys of a leaf are its
//! own: a split makes the new leaf durable, and publishes it by one store of the link. Above the
//! leaves there is a guide in DRAM, which leads to a leaf at or before the right one; links lead on
//! from there. Posts, the offsets of some leaves kept on the medium, make a first guide when a tree
//! is opened; threads that walk over a leaf that the guide lacks add it.
//!
//! Keys from a split on are stored twice for a while, dead on the left: a prototype reached 1.22
//! lines an insert, where LB+-tree (Liu et al., VLDB 2020) flushes 2.1 with its bitmaps, and
//! FAST&FAIR (Hwang et al., FAST 2018) 3.1 with its shifts. The next leaf's low as a fence is
//! Lehman and Yao's (1981).
//!
//! Order of stores:
//! 1. A slot is filled by its word, then its payload; a dead one after its payload is made 0. All
//!    of it is in one line, which keeps the order. A value is changed, or a key removed, by storing
//!    the payload.
//! 2. A new leaf is durable before a link leads to it, a record before a slot does.
//! 3. A dead slot is filled only once the link that makes it dead is durable, or lies in one line
//!    with it and was stored before.
//! 4. Before a leaf is unlinked it is empty, no post names it, and the dead slots of the one before
//!    it are durably 0: they would come alive.
//! 5. If words are not whole keys, a leaf has dead slots only if the next one's low is told from
//!    them by its word. If words do not tell where a leaf could be split, it is replaced by two.
//! 6. Stores of a killed process are visible, but need not be durable: a leaf of an earlier opening
//!    is flushed by the first thread that touches it, before that thread relies on it.
//!
//! Rules of access:
//! 7. A leaf is written under its latch, and the stores are durable before the latch is released.
//!    So a reader that finds the latch's count unchanged has seen durable contents, present and
//!    absent keys alike. Marks in the payloads instead would let readers pass during a flush, but
//!    cost a second store to a line just written back.
//! 8. Links are followed only from contents that rule 7 has confirmed, and under a guard of the
//!    pool. A leaf that was unlinked says so in its link, and a thread that comes there begins
//!    again.
//! 9. Only a thread that unlinks or replaces a leaf holds two latches: the leaf's and that of the
//!    one before it.
//! 10. Latches come before the guide's lock and the posts'.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::thread;
use entresol_media::Region;

use crate::keys::{Inline, Keys, Slot};
use crate::latch::Latched;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod ground;
mod guide;
mod leaf;
mod leaves;
mod open;
mod orders;
mod posts;
mod range;
mod remove;
mod split;
mod walk;

use guide::{Guide, Side, Spot};
use leaf::{Leaf, Link, slot_at};
use leaves::{GONE_MAX, Leaves, Onward, Place, View};
use orders::Orders;
use posts::Posts;
use range::Visit;
use walk::Walk;

/// A tree with self-validating leaves of `LINES` lines; see the head of the module.
#[derive(Debug)]
pub struct SvTree<R, K = Inline, const LINES: usize = 4> {
    leaves: Leaves<R, K, LINES>,
    guide: Guide<K>,
    posts: Posts,
    orders: Orders,
    splits: AtomicU64,
    replaced: AtomicU64,
    merges: AtomicU64,
}

/// Treatment of a key that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Put {
    Insert,
    Upsert,
}

impl<R: Region, K: Keys<R>, const LINES: usize> SvTree<R, K, LINES> {
    const LINES_RIGHT: () = assert!(LINES.is_power_of_two() && LINES >= 2 && LINES <= 16);

    /// Opens the tree at this root of the pool, or makes an empty one if the root is 0. It answers
    /// at once. Leaves between posts are found by following links until a thread has been there, or
    /// [blocks](crate::Persistent::blocks) has walked over all leaves.
    ///
    /// # Errors
    /// If there is another kind of tree, no room, or damage.
    pub fn open_with(pool: &Arc<Pool<R>>, root: usize, keys: K) -> Result<Self, IndexError> {
        let () = Self::LINES_RIGHT;
        let (leaves, posts, known) = open::open::<R, K, LINES>(pool, root, keys)?;
        let bytes = pool.region().len();
        Ok(SvTree {
            guide: Guide::new(&leaves.ground, known, bytes / Leaf::<LINES>::BYTES)?,
            leaves,
            posts,
            orders: Orders::new(bytes, Leaf::<LINES>::BYTES)
                .map_err(|error| IndexError::Options { what: error.to_string() })?,
            splits: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            merges: AtomicU64::new(0),
        })
    }

    /// Returns the bytes in DRAM that the tree has used: those of [`Statistics`], without a walk.
    #[must_use]
    pub fn volatile_bytes(&self) -> u64 {
        self.guide.bytes() + self.posts.volatile_bytes()
    }

    /// Returns the leaf with the range of a key, or the last one if there is no key. The caller has
    /// pinned the pool.
    #[inline]
    fn view(&self, key: Option<&K::Key>, side: Side) -> Result<View<LINES>, IndexError> {
        for _ in 0..GONE_MAX {
            let spot = self.guide.find(&self.leaves.ground, key, side)?;
            let (mut at, mut next, mut high) = Self::taken_from(&spot);
            loop {
                let (leaf, seen) = self.leaves.read(at)?;
                if leaf.link().is_dead() {
                    break;
                }
                if leaf.link().next() != next {
                    let onward = self.leaves.onward(leaf.link().next(), key, side)?;
                    if let Onward::Go(low) = onward {
                        self.leaves.check_rising(leaf.low(), low, leaf.link().next())?;
                        let found = leaf.link().next();
                        // Only a thread that need not wait for the latch helps.
                        let held =
                            seen.and_then(|seen| self.leaves.latches.lock_unchanged(at, seen));
                        if held.is_some() {
                            self.add_to_guide(low, found)?;
                        }
                        (at, next, high) = (found, 0, 0);
                        continue;
                    }
                    high = onward.high();
                } else if next == 0 {
                    high = 0;
                }
                return Ok(View { leaf, high });
            }
            thread::yield_now();
        }
        Err(self.leaves.gone())
    }

    /// Returns a leaf, the one after it, and that one's low, as far as the guide can be trusted.
    /// Where words leave a prefix out, a node of the guide may for a moment have left out more than
    /// keys below it share. Such a key arrives at a leaf before its own, and is led on by lows,
    /// which have to be read.
    fn taken_from(spot: &Spot) -> (u64, u64, u64) {
        if K::WHOLE { (spot.leaf, spot.next, spot.high) } else { (spot.leaf, 0, 0) }
    }

    /// Latches the leaf with the range of a key.
    #[inline]
    fn lock(&self, key: &K::Key) -> Result<(Latched<'_>, Place), IndexError> {
        for _ in 0..GONE_MAX {
            let spot = self.guide.find(&self.leaves.ground, Some(key), Side::At)?;
            let (mut at, mut next, mut high) = Self::taken_from(&spot);
            loop {
                self.leaves.prefetch(at);
                self.leaves.make_sure(at)?;
                let held = self.leaves.latches.lock(at);
                let link = Link(self.leaves.region().load_u64(at, Relaxed));
                if link.is_dead() {
                    break;
                }
                if link.next() != next {
                    let onward = self.leaves.onward(link.next(), Some(key), Side::At)?;
                    if let Onward::Go(low) = onward {
                        self.leaves.check_rising(self.leaves.low_at(at), low, link.next())?;
                        self.add_to_guide(low, link.next())?;
                        (at, next, high) = (link.next(), 0, 0);
                        continue;
                    }
                    high = onward.high();
                } else if next == 0 {
                    high = 0;
                }
                return Ok((held, Place { at, link, high }));
            }
            thread::yield_now();
        }
        Err(self.leaves.gone())
    }

    /// Returns the value of a key whose word is all of it: [`SvTree::view`] without a copy of the
    /// leaf. `None` if a change interfered, or in less simple cases.
    #[inline]
    fn glance(&self, key: &K::Key) -> Result<Option<Option<u64>>, IndexError> {
        let spot = self.guide.find(&self.leaves.ground, Some(key), Side::At)?;
        self.leaves.prefetch(spot.leaf);
        self.leaves.make_sure(spot.leaf)?;
        let seen = self.leaves.latches.read(spot.leaf);
        let link = Link(self.leaves.region().load_u64(spot.leaf, Relaxed));
        if link.is_dead() || link.next() != spot.next && self.leaves.is_beyond(link, key)? {
            return Ok(None);
        }
        let looked = leaf::look::<R, LINES>(self.leaves.region(), spot.leaf, K::word(key, 0), 0);
        let is_whole = self.leaves.latches.is_unchanged(spot.leaf, seen);
        Ok(is_whole.then_some(looked.found.map(|(_, slot)| slot.payload)))
    }

    /// Adds a leaf to the guide. The caller holds the latch of the leaf before it.
    fn add_to_guide(&self, low: u64, leaf: u64) -> Result<bool, IndexError> {
        let mut scratch = K::Scratch::default();
        let key = self.leaves.ground.low_key(low, &mut scratch)?;
        self.guide.insert(&self.leaves.ground, key, low, leaf)
    }

    fn put(&self, key: &K::Key, value: u64, put: Put) -> Result<Option<u64>, IndexError> {
        crate::index::check_value(value)?;
        K::check(key)?;
        let (pool, keys) = (&self.leaves.ground.pool, &self.leaves.ground.keys);
        let _pin = pool.pin();
        loop {
            let (held, place) = self.lock(key)?;
            let word = K::word(key, place.link.skip());
            let looked = self.leaves.look(place.at, word, key)?;
            if let Some((number, slot)) = looked.found {
                let before = keys.value(pool, slot.payload)?;
                if put == Put::Insert || before == value {
                    return Ok(Some(before));
                }
                self.leaves.store_payload(place.at, number, keys.make(pool, key, value)?)?;
                drop(held);
                keys.retire(pool, slot.payload);
                return Ok(Some(before));
            }
            let free = match looked.free {
                Some(number) => Some((number, false)),
                None => self.leaves.dead_slot(&place)?.map(|number| (number, true)),
            };
            if let Some((number, was_dead)) = free {
                let payload = keys.make(pool, key, value)?;
                self.leaves.fill(place.at, number, Slot { word, payload }, was_dead);
                self.leaves.persist(place.at + slot_at(number), 16)?;
                return Ok(None);
            }
            if self.split(held, &place, key, value)? {
                return Ok(None);
            }
        }
    }
}

impl<R: Region, K: Keys<R>, const LINES: usize> Index for SvTree<R, K, LINES> {
    type Key = K::Key;

    fn insert(&self, key: &K::Key, value: u64) -> Result<bool, IndexError> {
        Ok(self.put(key, value, Put::Insert)?.is_none())
    }

    fn upsert(&self, key: &K::Key, value: u64) -> Result<Option<u64>, IndexError> {
        self.put(key, value, Put::Upsert)
    }

    fn get(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        let _pin = self.leaves.ground.pool.pin();
        if K::WHOLE
            && let Some(value) = self.glance(key)?
        {
            return Ok(value);
        }
        let view = self.view(Some(key), Side::At)?;
        let word = K::word(key, view.leaf.link().skip());
        for (_, slot) in view.leaf.live(None).filter(|(_, slot)| slot.word == word) {
            if K::WHOLE
                || self.leaves.ground.keys.compare(&self.leaves.ground.pool, slot, key)?.is_eq()
            {
                return Ok(Some(
                    self.leaves.ground.keys.value(&self.leaves.ground.pool, slot.payload)?,
                ));
            }
        }
        Ok(None)
    }

    fn remove(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        let (pool, keys) = (&self.leaves.ground.pool, &self.leaves.ground.keys);
        let _pin = pool.pin();
        let (held, place) = self.lock(key)?;
        let looked = self.leaves.look(place.at, K::word(key, place.link.skip()), key)?;
        let Some((number, slot)) = looked.found else { return Ok(None) };
        let value = keys.value(pool, slot.payload)?;
        let fence = self.leaves.fence(place.link, place.high)?;
        self.leaves.store_payload(place.at, number, 0)?;
        let leaf = Leaf::<LINES>::load(self.leaves.region(), place.at);
        let is_empty = leaf.live(fence).next().is_none();
        drop(held);
        keys.retire(pool, slot.payload);
        if is_empty {
            // The key is removed in any case: the next thread that comes there reports damage.
            drop(self.unlink(place.at, leaf.low()));
        }
        Ok(Some(value))
    }

    fn range(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        range::pass(self, from, direction, &mut Visit::Keys(visit))
    }

    fn range_values(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<(), IndexError> {
        range::pass(self, from, direction, &mut Visit::Values(visit))
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        Walk::new(self).count()
    }
}

impl<R, K, const LINES: usize> Persistent<R> for SvTree<R, K, LINES>
where
    R: Region,
    K: Keys<R> + Clone + Default,
{
    /// Reader of the keys.
    type Options = K;

    fn open(pool: &Arc<Pool<R>>, root: usize, keys: &K) -> Result<Self, IndexError> {
        SvTree::open_with(pool, root, keys.clone())
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        Walk::new(self).reach(visit)
    }
}

#[cfg(test)]
mod tests;
