//! Splits of full leaves.

use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_media::Region;

use super::SvTree;
use super::leaf::{Leaf, Link, slot_at};
use super::leaves::{Place, View};
use super::posts::Post;
use crate::IndexError;
use crate::keys::{Keys, Slot};
use crate::latch::Latched;

/// More slots than a leaf has.
const MANY: usize = 64;

/// The slots of a leaf and one more, in the order of keys.
struct Sorted {
    slots: [Slot; MANY],
    len: usize,
}

impl Sorted {
    fn slots(&self) -> &[Slot] {
        &self.slots[..self.len]
    }

    /// Returns the position nearest to `wanted` at which words tell the halves apart.
    fn boundary(&self, wanted: usize) -> Option<usize> {
        let differs = |&at: &usize| self.slots[at - 1].word != self.slots[at].word;
        (1..self.len).filter(differs).min_by_key(|&at| at.abs_diff(wanted))
    }
}

impl<R: Region, K: Keys<R>, const LINES: usize> SvTree<R, K, LINES> {
    /// Slots in half of a leaf's lines: a new leaf gets no more, so that it has empty lines behind.
    const FILLED: usize = LINES / 2 * 4 - 1;

    /// Splits a full leaf and adds a key. Returns true if the key was added; otherwise there may be
    /// room now.
    #[cold]
    pub(super) fn split(
        &self,
        held: Latched<'_>,
        place: &Place,
        key: &K::Key,
        value: u64,
    ) -> Result<bool, IndexError> {
        let leaf = Leaf::<LINES>::load(self.leaves.region(), place.at);
        let view = &View { leaf, high: place.high };
        let link = place.link;
        let word = K::word(key, link.skip());
        let mut sorted = self.sorted(&view.leaf)?;
        let rank = self.rank_in(&sorted, word, key)?;
        let full = sorted.len;
        // A key behind all others is often followed by more: leave a full leaf behind.
        let is_last = rank == full && link.next() == 0;
        let wanted = if is_last { full } else { full + 1 - Self::FILLED };
        sorted.slots.copy_within(rank..full, rank + 1);
        // The word does not depend on the payload, which can wait until there is room for sure.
        sorted.slots[rank] = Slot { word, payload: 0 };
        sorted.len += 1;
        let Some(boundary) = sorted.boundary(wanted) else {
            drop(held);
            self.replace(view.leaf.at, view.leaf.low())?;
            return Ok(false);
        };
        debug_assert!(0 < boundary && boundary < sorted.len, "{boundary} of {} slots", sorted.len);
        let at = self.leaves.ground.pool.allocate(Leaf::<LINES>::BYTES)?;
        let made = self.leaves.ground.keys.make(&self.leaves.ground.pool, key, value);
        sorted.slots[rank].payload = made.inspect_err(|_| self.leaves.ground.pool.free(at))?;
        let new = self.new_leaf(at, view, &sorted, boundary);
        let new = new.inspect_err(|_| {
            self.leaves.ground.pool.free(at);
            self.leaves.ground.keys.retire(&self.leaves.ground.pool, sorted.slots[rank].payload);
        })?;
        new.write(self.leaves.region());
        self.leaves.drain()?;
        self.leaves.settled.add(at);
        let before = Link(self.leaves.region().load_u64(view.leaf.at, Relaxed));
        debug_assert!(
            before == link && !before.is_dead(),
            "leaf {} changed in a split",
            view.leaf.at
        );
        self.leaves.region().store_u64(view.leaf.at, Link::new(at, link.skip()).0, Release);
        let added = sorted.slots[rank];
        if rank < boundary {
            self.add_left(view, new.low(), added)?
        } else {
            self.leaves.persist(view.leaf.at, 8)?
        }
        self.splits.fetch_add(1, Relaxed);
        // The key is added in any case: a leaf that the guide lacks is found by links.
        if let Ok(true) = self.add_to_guide(new.low(), at) {
            self.posts.add(&self.leaves.ground.pool, Post { low: new.low(), leaf: at });
        }
        Ok(true)
    }

    fn sorted(&self, leaf: &Leaf<LINES>) -> Result<Sorted, IndexError> {
        let len = Leaf::<LINES>::SLOTS;
        let mut slots = [Slot { word: 0, payload: 0 }; MANY];
        slots[..len].iter_mut().enumerate().for_each(|(number, slot)| *slot = leaf.slot(number));
        self.leaves.ground.sort(&mut slots[..len])?;
        Ok(Sorted { slots, len })
    }

    /// Returns the number of keys below an absent key.
    fn rank_in(&self, sorted: &Sorted, word: u64, key: &K::Key) -> Result<usize, IndexError> {
        for (rank, &slot) in sorted.slots().iter().enumerate() {
            if self.leaves.ground.compare(slot, word, key)?.is_gt() {
                return Ok(rank);
            }
        }
        Ok(sorted.len)
    }

    /// Makes a leaf with the slots from a boundary on, and a low of its own.
    fn new_leaf(
        &self,
        at: u64,
        view: &View<LINES>,
        sorted: &Sorted,
        boundary: usize,
    ) -> Result<Leaf<LINES>, IndexError> {
        let (link, slots) = (view.leaf.link(), sorted.slots());
        let (left, right) = (slots[boundary - 1], slots[boundary]);
        let (pool, keys) = (&self.leaves.ground.pool, &self.leaves.ground.keys);
        let low = keys.make_low(pool, left, right, link.skip())?;
        let new = self.fill_new(at, (low, view.high), link, &slots[boundary..]);
        new.inspect_err(|_| keys.retire_low(pool, low))
    }

    /// Makes a leaf with these slots, whose words are those of a leaf with this link.
    fn fill_new(
        &self,
        at: u64,
        (low, high): (u64, u64),
        link: Link,
        slots: &[Slot],
    ) -> Result<Leaf<LINES>, IndexError> {
        let skip = self.leaves.ground.common(low, if link.next() == 0 { 0 } else { high })?;
        let mut new = Leaf::new(at, Link::new(link.next(), skip), low);
        for (number, &slot) in slots.iter().enumerate() {
            let same = skip == link.skip();
            new.set(number, if same { slot } else { self.leaves.ground.reworded(slot, skip)? });
        }
        Ok(new)
    }

    /// Adds a key to the left of a split, whose link was just stored, and makes both durable. One
    /// flush does it if the dead slot that is filled is in the line of the link (rule 3).
    fn add_left(&self, view: &View<LINES>, low: u64, slot: Slot) -> Result<(), IndexError> {
        let fence = self.leaves.ground.bound(low, view.leaf.link().skip())?;
        let Some(number) = view.leaf.dead(fence).next() else {
            return Err(IndexError::damaged(view.leaf.at, "a split has freed no slot"));
        };
        let at = view.leaf.at + slot_at(number);
        if slot_at(number) >= 64 {
            self.leaves.persist(view.leaf.at, 8)?;
        }
        self.leaves.fill(view.leaf.at, number, slot, true);
        self.leaves.persist(at, 16)
    }

    /// Makes two leaves of a full one whose words do not tell its keys apart.
    fn replace(&self, at: u64, low: u64) -> Result<(), IndexError> {
        let before = match low {
            0 => None,
            _ => {
                let mut scratch = K::Scratch::default();
                let key = self.leaves.ground.low_key(low, &mut scratch)?;
                Some(self.view(Some(key), super::Side::Below)?.leaf.at)
            }
        };
        let held = self.leaves.latches.lock_both(before.unwrap_or(at), at);
        let leaf = Leaf::<LINES>::load(self.leaves.region(), at);
        let leads = match before {
            None => self.leaves.head() == at,
            Some(before) => {
                let link = Link(self.leaves.region().load_u64(before, Relaxed));
                !link.is_dead() && link.next() == at
            }
        };
        if leaf.link().is_dead()
            || !leads
            || (0..Leaf::<LINES>::SLOTS).any(|it| leaf.slot(it).payload == 0)
        {
            return Ok(());
        }
        let view = self.leaves.view_of(leaf)?;
        if leaf.dead(self.leaves.fence(view.leaf.link(), view.high)?).next().is_some() {
            return Ok(());
        }
        let [left, right] = self.two_of(&view)?;
        left.write(self.leaves.region());
        right.write(self.leaves.region());
        self.leaves.drain()?;
        [left.at, right.at].into_iter().for_each(|at| self.leaves.settled.add(at));
        // Rule 4.
        self.posts.remove(&self.leaves.ground.pool, at);
        match before {
            None => self.leaves.set_head(left.at)?,
            Some(before) => {
                let skip = Link(self.leaves.region().load_u64(before, Relaxed)).skip();
                self.leaves.region().store_u64(before, Link::new(left.at, skip).0, Release);
                self.leaves.persist(before, 8)?;
            }
        }
        self.replaced.fetch_add(1, Relaxed);
        // The right one first: until the left one is in the guide no thread comes to the leaf
        // before the right one, and so none removes it.
        let is_split = self.add_to_guide(right.low(), right.at)?;
        if is_split {
            self.posts.add(&self.leaves.ground.pool, Post { low: right.low(), leaf: right.at });
        }
        let mut scratch = K::Scratch::default();
        let key =
            if low == 0 { None } else { Some(self.leaves.ground.low_key(low, &mut scratch)?) };
        self.guide.replace(&self.leaves.ground, key, at, left.at)?;
        self.leaves.region().store_u64(at, Link::DEAD.0, Release);
        drop(held);
        self.leaves.ground.pool.retire(at);
        Ok(())
    }

    /// Returns two leaves with the keys of one, not written yet.
    fn two_of(&self, view: &View<LINES>) -> Result<[Leaf<LINES>; 2], IndexError> {
        let (pool, leaf) = (&self.leaves.ground.pool, &view.leaf);
        let (link, sorted) = (leaf.link(), self.sorted(leaf)?);
        let half = sorted.len.div_ceil(2);
        let (slots, skip) = (sorted.slots(), link.skip());
        let one_at = pool.allocate(Leaf::<LINES>::BYTES)?;
        let other_at = pool.allocate(Leaf::<LINES>::BYTES);
        let other_at = other_at.inspect_err(|_| pool.free(one_at))?;
        let make = || {
            let low = self.leaves.ground.keys.make_low(pool, slots[half - 1], slots[half], skip)?;
            let fill = || {
                let right = self.fill_new(other_at, (low, view.high), link, &slots[half..])?;
                let to_right = Link::new(other_at, skip);
                let left = self.fill_new(one_at, (leaf.low(), low), to_right, &slots[..half])?;
                Ok([left, right])
            };
            fill().inspect_err(|_| self.leaves.ground.keys.retire_low(pool, low))
        };
        make().inspect_err(|_| [one_at, other_at].into_iter().for_each(|at| pool.free(at)))
    }
}
