//! `SvTree`: a tree whose leaves validate themselves, so that an insert is one line and one fence.
//!
//! On the medium there is a list of leaves, each with the least key that it may have (its low),
//! a link to the next, and slots in no order. A slot is free if its payload is 0, and dead if its
//! key is not below the low of the next leaf. So the link alone says which keys of a leaf are its
//! own: a split makes the new leaf durable, and publishes it by one store of the link. Above the
//! leaves there is a guide in DRAM, which leads to a leaf at or before the right one; links lead
//! on.
//! Posts, a few leaves' addresses that are kept on the medium, make a guide to begin with when a
//! tree is opened; what it lacks is added by those who walked over it.
//!
//! Keys from a split on stand twice for a while, dead on the left: 1.22 lines an insert were
//! reached by a prototype, where LB+-tree (Liu et al., VLDB 2020) flushes 2.1 with its bitmaps, and
//! FAST&FAIR (Hwang et al., FAST 2018) 3.1 with its shifts. The next leaf's low as a fence is
//! Lehman and Yao's (1981).
//!
//! What is stored, in which order:
//! 1. A slot is filled by its word, then its payload, a dead one after its payload is made 0: all
//!    in one line, which keeps the order. A value is changed, or a key removed, by storing the
//!    payload.
//! 2. A new leaf is durable before a link leads to it, a record before a slot does.
//! 3. A dead slot is filled only once the link that makes it dead is durable, or lies in one line
//!    with it and was stored before.
//! 4. Before a leaf is unlinked it is empty, no post names it, and the dead slots of the one before
//!    it are durably 0: they would come alive.
//! 5. Where words are not whole keys: a leaf has dead slots only if the next one's low is told from
//!    them by its word. If words do not tell where a leaf could be split, it is replaced by two.
//!
//! Who may do what:
//! 6. A leaf is written under its latch, and what was stored is durable before the latch is given
//!    back. So who reads a leaf and finds that its latch has counted nothing meanwhile has seen
//!    what was durable, what is there and what is not. Marks in the payloads instead would let
//!    readers pass while somebody flushes, but cost a second store to a line just written back.
//! 7. Links are followed from what rule 6 made sure of, and under a guard of the pool. A leaf that
//!    nothing leads to any more says so in its link, and who comes there begins again.
//! 8. Only who unlinks or replaces a leaf holds two latches, its own and that of the one before it.
//! 9. Latches come before the guide's lock and the posts'.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use entresol_base::thread;
use entresol_media::Region;

use crate::keys::{Inline, Keys, Slot};
use crate::latch::{Latched, Latches, Seen};
use crate::root::durable;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod ground;
mod guide;
mod leaf;
mod open;
mod posts;
mod range;
mod remove;
mod split;
mod walk;

use ground::Ground;
use guide::{Guide, Side};
use leaf::{LOW_AT, Leaf, slot_at};
use posts::Posts;

/// So often a leaf is read that others keep changing, before its latch is taken.
const TRIES: u32 = 64;

/// A tree with self-validating leaves of `LINES` lines, see the head of the module.
#[derive(Debug)]
pub struct SvTree<R, K = Inline, const LINES: usize = 4> {
    ground: Ground<R, K>,
    /// What the root leads to.
    anchor: u64,
    latches: Latches,
    guide: Guide<K>,
    posts: Posts,
    splits: AtomicU64,
    replaced: AtomicU64,
    merges: AtomicU64,
}

/// A leaf that was found to have the range of a key, as it was at one time.
#[derive(Debug, Clone, Copy)]
struct View<const LINES: usize> {
    leaf: Leaf<LINES>,
    /// The low of the next leaf; 0 if there is none.
    high: u64,
}

/// Whether a key that is there already gets another value.
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

    /// The leaf with the range of a key, the last one if there is none. The caller has pinned the
    /// pool.
    #[inline]
    fn view(&self, key: Option<&K::Key>, side: Side) -> Result<View<LINES>, IndexError> {
        loop {
            let spot = self.guide.find(&self.ground, key, side)?;
            let (mut at, mut next, mut high) = (spot.leaf, spot.next, spot.high);
            loop {
                let (leaf, seen) = self.read(at);
                if leaf.link().is_dead() {
                    break;
                }
                if leaf.link().next() != next {
                    let onward = self.onward(leaf.link().next(), key, side)?;
                    if let Onward::Go(low) = onward {
                        let found = leaf.link().next();
                        // Who waits for nobody may help.
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
    }

    /// A leaf as it was durable at one time, and what its latch had counted then, if that is known.
    #[inline]
    fn read(&self, at: u64) -> (Leaf<LINES>, Option<Seen>) {
        for line in 1..LINES as u64 {
            self.region().prefetch(at + 64 * line);
        }
        for _ in 0..TRIES {
            let seen = self.latches.read(at);
            let leaf = Leaf::load(self.region(), at);
            if self.latches.is_unchanged(at, seen) {
                return (leaf, Some(seen));
            }
        }
        let _held = self.latches.lock(at);
        (Leaf::load(self.region(), at), None)
    }

    /// Whether a key lies beyond a leaf whose link leads to `next`.
    #[inline]
    fn onward(&self, next: u64, key: Option<&K::Key>, side: Side) -> Result<Onward, IndexError> {
        if next == 0 {
            return Ok(Onward::Stay(0));
        }
        self.ground.check(next, LINES)?;
        let low = self.region().load_u64(next + LOW_AT, Acquire);
        let is_beyond = match key {
            None => true,
            Some(key) => {
                let order = self.ground.compare_low(low, key)?;
                order.is_lt() || order.is_eq() && side == Side::At
            }
        };
        Ok(if is_beyond { Onward::Go(low) } else { Onward::Stay(low) })
    }

    /// The leaf with the range of a key, latched.
    #[inline]
    fn lock(&self, key: &K::Key) -> Result<(Latched<'_>, View<LINES>), IndexError> {
        loop {
            let spot = self.guide.find(&self.ground, Some(key), Side::At)?;
            let (mut at, mut next, mut high) = (spot.leaf, spot.next, spot.high);
            loop {
                for line in 0..LINES as u64 {
                    self.region().prefetch(at + 64 * line);
                }
                let held = self.latches.lock(at);
                let leaf = Leaf::load(self.region(), at);
                if leaf.link().is_dead() {
                    break;
                }
                if leaf.link().next() != next {
                    let onward = self.onward(leaf.link().next(), Some(key), Side::At)?;
                    if let Onward::Go(low) = onward {
                        let found = leaf.link().next();
                        self.add_to_guide(low, found)?;
                        (at, next, high) = (found, 0, 0);
                        continue;
                    }
                    high = onward.high();
                } else if next == 0 {
                    high = 0;
                }
                return Ok((held, View { leaf, high }));
            }
            thread::yield_now();
        }
    }

    /// Adds a leaf to the guide. The caller holds the latch of the leaf that leads to it.
    fn add_to_guide(&self, low: u64, leaf: u64) -> Result<bool, IndexError> {
        let mut scratch = K::Scratch::default();
        let key = self.ground.low_key(low, &mut scratch)?;
        self.guide.insert(&self.ground, key, low, leaf)
    }

    /// From which word on slots are dead.
    #[inline]
    fn fence(&self, view: &View<LINES>) -> Result<Option<u64>, IndexError> {
        match view.leaf.link().next() {
            0 => Ok(None),
            _ => self.ground.bound(view.high, view.leaf.link().skip()),
        }
    }

    /// The slot that has a key whose word this is.
    #[inline]
    fn find(
        &self,
        leaf: &Leaf<LINES>,
        word: u64,
        key: &K::Key,
    ) -> Result<Option<(usize, Slot)>, IndexError> {
        // A dead slot's word is that of a key beyond this leaf, so this one is not among them.
        let mut found = leaf.find(word, 0);
        while !K::WHOLE
            && let Some((number, slot)) = found
            && self.ground.keys.compare(&self.ground.pool, slot, key)?.is_ne()
        {
            found = leaf.find(word, number + 1);
        }
        Ok(found)
    }

    fn put(&self, key: &K::Key, value: u64, put: Put) -> Result<Option<u64>, IndexError> {
        crate::index::check_value(value)?;
        K::check(key)?;
        let _pin = self.ground.pool.pin();
        loop {
            let (held, view) = self.lock(key)?;
            let word = K::word(key, view.leaf.link().skip());
            if let Some((number, slot)) = self.find(&view.leaf, word, key)? {
                let before = self.ground.keys.value(&self.ground.pool, slot.payload)?;
                if put == Put::Insert || before == value {
                    return Ok(Some(before));
                }
                let payload = self.ground.keys.make(&self.ground.pool, key, value)?;
                self.store_payload(view.leaf.at, number, payload)?;
                drop(held);
                self.ground.keys.retire(&self.ground.pool, slot.payload);
                return Ok(Some(before));
            }
            if let Some(number) = self.free_slot(&view)? {
                let payload = self.ground.keys.make(&self.ground.pool, key, value)?;
                let was_dead = view.leaf.slot(number).payload != 0;
                self.fill(view.leaf.at, number, Slot { word, payload }, was_dead);
                self.persist(view.leaf.at + slot_at(number), 16)?;
                return Ok(None);
            }
            if self.split(held, &view, key, value)? {
                return Ok(None);
            }
        }
    }

    /// A slot that can be filled: one that is free rather than a dead one.
    #[inline]
    fn free_slot(&self, view: &View<LINES>) -> Result<Option<usize>, IndexError> {
        let free = (0..Leaf::<LINES>::SLOTS).find(|&number| view.leaf.slot(number).payload == 0);
        match free {
            Some(number) => Ok(Some(number)),
            None => Ok(view.leaf.dead(self.fence(view)?).next()),
        }
    }

    /// Rule 1.
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
    fn store_payload(&self, leaf: u64, number: usize, payload: u64) -> Result<(), IndexError> {
        let at = leaf + slot_at(number) + 8;
        self.region().store_u64(at, payload, Release);
        self.persist(at, 8)
    }

    #[inline]
    fn persist(&self, at: u64, bytes: usize) -> Result<(), IndexError> {
        self.region().flush(at, bytes);
        self.drain()
    }

    #[inline]
    fn drain(&self) -> Result<(), IndexError> {
        self.region().drain();
        durable(self.region())
    }
}

/// Whether a key lies beyond a leaf.
enum Onward {
    /// In the next one or after it, whose low this is.
    Go(u64),
    /// No: the next one's low, 0 if there is none.
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
        let view = self.view(Some(key), Side::At)?;
        let word = K::word(key, view.leaf.link().skip());
        match self.find(&view.leaf, word, key)? {
            Some((_, slot)) => Ok(Some(self.ground.keys.value(&self.ground.pool, slot.payload)?)),
            None => Ok(None),
        }
    }

    fn remove(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        let _pin = self.ground.pool.pin();
        let (held, view) = self.lock(key)?;
        let word = K::word(key, view.leaf.link().skip());
        let Some((number, slot)) = self.find(&view.leaf, word, key)? else { return Ok(None) };
        let value = self.ground.keys.value(&self.ground.pool, slot.payload)?;
        self.store_payload(view.leaf.at, number, 0)?;
        let fence = self.fence(&view)?;
        let is_empty = view.leaf.live(fence).all(|(other, _)| other == number);
        drop(held);
        self.ground.keys.retire(&self.ground.pool, slot.payload);
        if is_empty {
            self.unlink(view.leaf.at, view.leaf.low())?;
        }
        Ok(Some(value))
    }

    fn range(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        match direction {
            Direction::Forward => self.ascend(from, visit),
            Direction::Backward => self.descend(from, visit),
        }
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
    /// What reads the keys.
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
