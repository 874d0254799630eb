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
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use entresol_base::thread;
use entresol_media::Region;

use crate::keys::{Inline, Keys, Slot};
use crate::latch::{Latched, Latches, Seen};
use crate::root::durable;
use crate::settled::Settled;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod ground;
mod guide;
mod leaf;
mod open;
mod orders;
mod posts;
mod range;
mod remove;
mod split;
mod walk;

use ground::Ground;
use guide::{Guide, Side, Spot};
use leaf::{LOW_AT, Leaf, Link, Looked, slot_at};
use orders::Orders;
use posts::Posts;
use range::Visit;

/// Number of reads of a leaf that others keep changing, before the reader takes its latch.
const TRIES: u32 = 64;

/// Number of times that a thread begins again at a leaf that was unlinked. Another leaf must have
/// gone each time; this many in a row are damage.
const GONE_MAX: u32 = 100_000;

/// A tree with self-validating leaves of `LINES` lines; see the head of the module.
#[derive(Debug)]
pub struct SvTree<R, K = Inline, const LINES: usize = 4> {
    ground: Ground<R, K>,
    /// Root block.
    anchor: u64,
    latches: Latches,
    guide: Guide<K>,
    posts: Posts,
    orders: Orders,
    settled: Settled,
    splits: AtomicU64,
    replaced: AtomicU64,
    merges: AtomicU64,
}

/// A leaf that was found to have the range of a key, as it was at one time.
#[derive(Debug, Clone, Copy)]
struct View<const LINES: usize> {
    leaf: Leaf<LINES>,
    /// Low of the next leaf; 0 if there is none.
    high: u64,
}

/// A latched leaf that has the range of a key.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    link: Link,
    /// Low of the next leaf; 0 if there is none.
    high: u64,
}

/// Treatment of a key that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Put {
    Insert,
    Upsert,
}

impl<R: Region, K: Keys<R>, const LINES: usize> SvTree<R, K, LINES> {
    #[inline]
    fn region(&self) -> &R {
        self.ground.pool.region()
    }

    /// Returns the leaf with the range of a key, or the last one if there is no key. The caller has
    /// pinned the pool.
    #[inline]
    fn view(&self, key: Option<&K::Key>, side: Side) -> Result<View<LINES>, IndexError> {
        for _ in 0..GONE_MAX {
            let spot = self.guide.find(&self.ground, key, side)?;
            let (mut at, mut next, mut high) = Self::taken_from(&spot);
            loop {
                let (leaf, seen) = self.read(at)?;
                if leaf.link().is_dead() {
                    break;
                }
                if leaf.link().next() != next {
                    let onward = self.onward(leaf.link().next(), key, side)?;
                    if let Onward::Go(low) = onward {
                        self.check_rising(leaf.low(), low, leaf.link().next())?;
                        let found = leaf.link().next();
                        // Only a thread that need not wait for the latch helps.
                        let held = seen.and_then(|seen| self.latches.lock_unchanged(at, seen));
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
        Err(self.gone())
    }

    #[cold]
    fn gone(&self) -> IndexError {
        IndexError::damaged(self.anchor, "links lead to leaves that were unlinked")
    }

    /// Ensures that a leaf's visible contents are durable.
    #[inline]
    fn make_sure(&self, leaf: u64) -> Result<(), IndexError> {
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
    fn check_rising(&self, from: u64, to: u64, leaf: u64) -> Result<(), IndexError> {
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

    /// Returns a leaf, the one after it, and that one's low, as far as the guide can be trusted.
    /// Where words leave a prefix out, a node of the guide may for a moment have left out more than
    /// keys below it share. Such a key arrives at a leaf before its own, and is led on by lows,
    /// which have to be read.
    fn taken_from(spot: &Spot) -> (u64, u64, u64) {
        if K::WHOLE { (spot.leaf, spot.next, spot.high) } else { (spot.leaf, 0, 0) }
    }

    /// Reads a leaf as it was durable at one time, with its latch's count then, if that is known.
    #[inline]
    fn read(&self, at: u64) -> Result<(Leaf<LINES>, Option<Seen>), IndexError> {
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

    /// Decides if a key lies beyond a leaf whose link leads to `next`.
    #[inline]
    fn onward(&self, next: u64, key: Option<&K::Key>, side: Side) -> Result<Onward, IndexError> {
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

    /// Returns the low of a leaf, which never changes.
    #[inline]
    fn low_at(&self, leaf: u64) -> u64 {
        self.region().load_u64(leaf + LOW_AT, Acquire)
    }

    /// Latches the leaf with the range of a key.
    #[inline]
    fn lock(&self, key: &K::Key) -> Result<(Latched<'_>, Place), IndexError> {
        for _ in 0..GONE_MAX {
            let spot = self.guide.find(&self.ground, Some(key), Side::At)?;
            let (mut at, mut next, mut high) = Self::taken_from(&spot);
            loop {
                self.prefetch(at);
                self.make_sure(at)?;
                let held = self.latches.lock(at);
                let link = Link(self.region().load_u64(at, Relaxed));
                if link.is_dead() {
                    break;
                }
                if link.next() != next {
                    let onward = self.onward(link.next(), Some(key), Side::At)?;
                    if let Onward::Go(low) = onward {
                        self.check_rising(self.low_at(at), low, link.next())?;
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
        Err(self.gone())
    }

    /// Returns the value of a key whose word is all of it: [`SvTree::view`] without a copy of the
    /// leaf. `None` if a change interfered, or in less simple cases.
    #[inline]
    fn glance(&self, key: &K::Key) -> Result<Option<Option<u64>>, IndexError> {
        let spot = self.guide.find(&self.ground, Some(key), Side::At)?;
        self.prefetch(spot.leaf);
        self.make_sure(spot.leaf)?;
        let seen = self.latches.read(spot.leaf);
        let link = Link(self.region().load_u64(spot.leaf, Relaxed));
        if link.is_dead() || link.next() != spot.next && self.is_beyond(link, key)? {
            return Ok(None);
        }
        let looked = leaf::look::<R, LINES>(self.region(), spot.leaf, K::word(key, 0), 0);
        let is_whole = self.latches.is_unchanged(spot.leaf, seen);
        Ok(is_whole.then_some(looked.found.map(|(_, slot)| slot.payload)))
    }

    fn is_beyond(&self, link: Link, key: &K::Key) -> Result<bool, IndexError> {
        let onward = self.onward(link.next(), Some(key), Side::At)?;
        Ok(matches!(onward, Onward::Go(_)))
    }

    #[inline]
    fn prefetch(&self, leaf: u64) {
        for line in 0..LINES as u64 {
            self.region().prefetch(leaf + 64 * line);
        }
    }

    /// Adds a leaf to the guide. The caller holds the latch of the leaf before it.
    fn add_to_guide(&self, low: u64, leaf: u64) -> Result<bool, IndexError> {
        let mut scratch = K::Scratch::default();
        let key = self.ground.low_key(low, &mut scratch)?;
        self.guide.insert(&self.ground, key, low, leaf)
    }

    /// Returns the word from which on slots are dead.
    #[inline]
    fn fence(&self, link: Link, high: u64) -> Result<Option<u64>, IndexError> {
        if link.next() == 0 { Ok(None) } else { self.ground.bound(high, link.skip()) }
    }

    /// Returns the slot of a key in a leaf that no thread changes, and a free slot if there is
    /// none.
    #[inline]
    fn look(&self, at: u64, word: u64, key: &K::Key) -> Result<Looked, IndexError> {
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

    fn put(&self, key: &K::Key, value: u64, put: Put) -> Result<Option<u64>, IndexError> {
        crate::index::check_value(value)?;
        K::check(key)?;
        let (pool, keys) = (&self.ground.pool, &self.ground.keys);
        let _pin = pool.pin();
        loop {
            let (held, place) = self.lock(key)?;
            let word = K::word(key, place.link.skip());
            let looked = self.look(place.at, word, key)?;
            if let Some((number, slot)) = looked.found {
                let before = keys.value(pool, slot.payload)?;
                if put == Put::Insert || before == value {
                    return Ok(Some(before));
                }
                self.store_payload(place.at, number, keys.make(pool, key, value)?)?;
                drop(held);
                keys.retire(pool, slot.payload);
                return Ok(Some(before));
            }
            let free = match looked.free {
                Some(number) => Some((number, false)),
                None => self.dead_slot(&place)?.map(|number| (number, true)),
            };
            if let Some((number, was_dead)) = free {
                let payload = keys.make(pool, key, value)?;
                self.fill(place.at, number, Slot { word, payload }, was_dead);
                self.persist(place.at + slot_at(number), 16)?;
                return Ok(None);
            }
            if self.split(held, &place, key, value)? {
                return Ok(None);
            }
        }
    }

    fn dead_slot(&self, place: &Place) -> Result<Option<usize>, IndexError> {
        let fence = self.fence(place.link, place.high)?;
        Ok(Leaf::<LINES>::load(self.region(), place.at).dead(fence).next())
    }

    /// Fills a slot in the order of rule 1.
    #[inline]
    fn fill(&self, leaf: u64, number: usize, slot: Slot, was_dead: bool) {
        let (region, at) = (self.region(), leaf + slot_at(number));
        if was_dead {
            region.store_u64(at + 8, 0, Release);
        }
        region.store_u64(at, slot.word, Release);
        region.store_u64(at + 8, slot.payload, Release);
    }

    #[inline]
    #[track_caller]
    fn store_payload(&self, leaf: u64, number: usize, payload: u64) -> Result<(), IndexError> {
        let at = leaf + slot_at(number) + 8;
        self.region().store_u64(at, payload, Release);
        self.persist(at, 8)
    }

    #[inline]
    #[track_caller]
    fn persist(&self, at: u64, bytes: usize) -> Result<(), IndexError> {
        self.region().flush(at, bytes);
        self.drain()
    }

    #[inline]
    #[track_caller]
    fn drain(&self) -> Result<(), IndexError> {
        self.region().drain();
        durable(self.region())
    }
}

/// Position of a key relative to a leaf.
enum Onward {
    /// Beyond the leaf: in the next one, whose low this is, or behind it.
    Go(u64),
    /// Within the leaf; holds the low of the next leaf, 0 if there is none.
    Stay(u64),
}

impl Onward {
    fn high(&self) -> u64 {
        let (Onward::Go(low) | Onward::Stay(low)) = *self;
        low
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
        let _pin = self.ground.pool.pin();
        if K::WHOLE
            && let Some(value) = self.glance(key)?
        {
            return Ok(value);
        }
        let view = self.view(Some(key), Side::At)?;
        let word = K::word(key, view.leaf.link().skip());
        for (_, slot) in view.leaf.live(None).filter(|(_, slot)| slot.word == word) {
            if K::WHOLE || self.ground.keys.compare(&self.ground.pool, slot, key)?.is_eq() {
                return Ok(Some(self.ground.keys.value(&self.ground.pool, slot.payload)?));
            }
        }
        Ok(None)
    }

    fn remove(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        let (pool, keys) = (&self.ground.pool, &self.ground.keys);
        let _pin = pool.pin();
        let (held, place) = self.lock(key)?;
        let looked = self.look(place.at, K::word(key, place.link.skip()), key)?;
        let Some((number, slot)) = looked.found else { return Ok(None) };
        let value = keys.value(pool, slot.payload)?;
        let fence = self.fence(place.link, place.high)?;
        self.store_payload(place.at, number, 0)?;
        let leaf = Leaf::<LINES>::load(self.region(), place.at);
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
        self.walk_over(from, direction, &mut Visit::Keys(visit))
    }

    fn range_values(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<(), IndexError> {
        self.walk_over(from, direction, &mut Visit::Values(visit))
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        self.count()
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
        self.reach(visit)
    }
}

#[cfg(test)]
mod tests;
