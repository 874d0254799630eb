//! Walking over keys, up or down.
//!
//! A leaf's keys are shown as they were at one time, together with its link: what is shown next is
//! the next leaf at another time, so nothing is shown twice, and what stays is not left out.

use std::cmp::Ordering;
use std::ops::Bound;

use entresol_media::Region;

use super::guide::Side;
use super::leaf::Leaf;
use super::{SvTree, View};
use crate::keys::{Keys, Slot};
use crate::{Flow, IndexError};

/// More slots than a leaf has.
const MANY: usize = 64;

/// The keys of a leaf in their order.
struct Ordered {
    slots: [Slot; MANY],
    len: usize,
}

impl<R: Region, K: Keys<R>, const LINES: usize> SvTree<R, K, LINES> {
    pub(super) fn ascend(
        &self,
        from: Bound<&K::Key>,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let _pin = self.ground.pool.pin();
        let mut view = match from {
            Bound::Unbounded => self.first()?,
            Bound::Included(key) | Bound::Excluded(key) => self.view(Some(key), Side::At)?,
        };
        let first = self.ordered(&view)?;
        let mut ordered = self.above(&view, first, from)?;
        let mut bound = K::Scratch::default();
        loop {
            if self.show(ordered.slots[..ordered.len].iter(), visit)? == Flow::Stop {
                return Ok(());
            }
            let next = view.leaf.link().next();
            if next == 0 {
                return Ok(());
            }
            self.region().prefetch(next);
            let high = view.high;
            let (leaf, _) = self.read(next);
            view = match leaf.link().is_dead() {
                false => View { leaf, high: self.low_of(leaf.link().next())? },
                true => self.view(Some(self.ground.low_key(high, &mut bound)?), Side::At)?,
            };
            ordered = self.ordered(&view)?;
            if view.leaf.at != next {
                let key = self.ground.low_key(high, &mut bound)?;
                ordered = self.above(&view, ordered, Bound::Included(key))?;
            }
        }
    }

    pub(super) fn descend(
        &self,
        from: Bound<&K::Key>,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let _pin = self.ground.pool.pin();
        let mut view = match from {
            Bound::Unbounded => self.view(None, Side::At)?,
            Bound::Included(key) => self.view(Some(key), Side::At)?,
            Bound::Excluded(key) => self.view(Some(key), Side::Below)?,
        };
        let first = self.ordered(&view)?;
        let mut ordered = self.below(&view, first, from)?;
        loop {
            let shown = ordered.slots[..ordered.len].iter().rev();
            if self.show(shown, visit)? == Flow::Stop || view.leaf.low() == 0 {
                return Ok(());
            }
            let mut low = K::Scratch::default();
            let low = self.ground.low_key(view.leaf.low(), &mut low)?;
            view = self.view(Some(low), Side::Below)?;
            let before = self.ordered(&view)?;
            ordered = self.below(&view, before, Bound::Excluded(low))?;
        }
    }

    fn first(&self) -> Result<View<LINES>, IndexError> {
        loop {
            let (leaf, _) = self.read(self.head());
            if !leaf.link().is_dead() {
                return Ok(View { leaf, high: self.low_of(leaf.link().next())? });
            }
        }
    }

    fn show<'a>(
        &self,
        slots: impl Iterator<Item = &'a Slot>,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<Flow, IndexError> {
        let mut scratch = K::Scratch::default();
        for &slot in slots {
            let value = self.ground.keys.value(&self.ground.pool, slot.payload)?;
            let key = self.ground.keys.key(&self.ground.pool, slot, &mut scratch)?;
            if visit(key, value) == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    fn ordered(&self, view: &View<LINES>) -> Result<Ordered, IndexError> {
        let mut ordered = Ordered { slots: [Slot { word: 0, payload: 0 }; MANY], len: 0 };
        for (_, slot) in view.leaf.live(self.fence(view)?) {
            ordered.slots[ordered.len] = slot;
            ordered.len += 1;
        }
        self.ground.sort(&mut ordered.slots[..ordered.len])?;
        Ok(ordered)
    }

    /// Those from a bound up.
    fn above(
        &self,
        view: &View<LINES>,
        mut ordered: Ordered,
        from: Bound<&K::Key>,
    ) -> Result<Ordered, IndexError> {
        let first = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.rank(view, &ordered, key, Ordering::is_lt)?,
            Bound::Excluded(key) => self.rank(view, &ordered, key, Ordering::is_le)?,
        };
        ordered.slots.copy_within(first..ordered.len, 0);
        ordered.len -= first;
        Ok(ordered)
    }

    /// Those from a bound down.
    fn below(
        &self,
        view: &View<LINES>,
        mut ordered: Ordered,
        from: Bound<&K::Key>,
    ) -> Result<Ordered, IndexError> {
        ordered.len = match from {
            Bound::Unbounded => ordered.len,
            Bound::Included(key) => self.rank(view, &ordered, key, Ordering::is_le)?,
            Bound::Excluded(key) => self.rank(view, &ordered, key, Ordering::is_lt)?,
        };
        Ok(ordered)
    }

    /// How many of the first keys compare so to another.
    fn rank(
        &self,
        view: &View<LINES>,
        ordered: &Ordered,
        key: &K::Key,
        counts: fn(Ordering) -> bool,
    ) -> Result<usize, IndexError> {
        let word = K::word(key, view.leaf.link().skip());
        for (number, &slot) in ordered.slots[..ordered.len].iter().enumerate() {
            if !counts(self.ground.compare(slot, word, key)?) {
                return Ok(number);
            }
        }
        Ok(ordered.len)
    }
}

const _: () = assert!(Leaf::<16>::SLOTS < MANY);
