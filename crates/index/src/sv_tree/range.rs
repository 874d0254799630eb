//! Walks over keys, up or down.
//!
//! A leaf's keys are passed on as they were at one time, together with its link. The next ones are
//! those of the next leaf at another time, so no key is passed twice, and none that stays is
//! missed.

use std::cmp::Ordering;
use std::ops::Bound;

use entresol_base::thread;
use entresol_media::Region;

use super::guide::Side;
use super::leaf::Leaf;
use super::orders::Order;
use super::{GONE_MAX, SvTree, View};
use crate::keys::{Keys, Slot};
use crate::{Direction, Flow, IndexError};

/// The keys of a leaf in their order.
struct Ordered<const LINES: usize> {
    slots: [[Slot; 4]; LINES],
    first: usize,
    end: usize,
}

impl<const LINES: usize> Ordered<LINES> {
    fn new() -> Ordered<LINES> {
        Ordered { slots: [[Slot { word: 0, payload: 0 }; 4]; LINES], first: 0, end: 0 }
    }

    fn slots(&self) -> &[Slot] {
        &self.slots.as_flattened()[self.first..self.end]
    }
}

/// Visitor of a walk.
pub(super) enum Visit<'a, Key: ?Sized> {
    /// Takes keys and values.
    Keys(&'a mut dyn FnMut(&Key, u64) -> Flow),
    /// Takes values: keys are read only where the walk needs them to find its way.
    Values(&'a mut dyn FnMut(u64) -> Flow),
}

impl<R: Region, K: Keys<R>, const LINES: usize> SvTree<R, K, LINES> {
    pub(super) fn walk_over(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut Visit<'_, K::Key>,
    ) -> Result<(), IndexError> {
        match direction {
            Direction::Forward => self.ascend(from, visit),
            Direction::Backward => self.descend(from, visit),
        }
    }

    fn ascend(
        &self,
        from: Bound<&K::Key>,
        visit: &mut Visit<'_, K::Key>,
    ) -> Result<(), IndexError> {
        let _pin = self.ground.pool.pin();
        let mut view = match from {
            Bound::Unbounded => self.first()?,
            Bound::Included(key) | Bound::Excluded(key) => self.view(Some(key), Side::At)?,
        };
        let mut ordered = Ordered::new();
        self.order(&view, &mut ordered)?;
        self.above(&view, &mut ordered, from)?;
        let mut bound = K::Scratch::default();
        loop {
            if self.show(ordered.slots().iter(), visit)? == Flow::Stop {
                return Ok(());
            }
            let next = view.leaf.link().next();
            if next == 0 {
                return Ok(());
            }
            let high = view.high;
            let (leaf, _) = self.read(next)?;
            // The next leaf's lines arrive during the wait for its low.
            self.prefetch(leaf.link().next());
            view = match leaf.link().is_dead() {
                false => self.view_of(leaf)?,
                true => self.view(Some(self.ground.low_key(high, &mut bound)?), Side::At)?,
            };
            self.order(&view, &mut ordered)?;
            if view.leaf.at != next {
                let key = self.ground.low_key(high, &mut bound)?;
                self.above(&view, &mut ordered, Bound::Included(key))?;
            }
        }
    }

    fn descend(
        &self,
        from: Bound<&K::Key>,
        visit: &mut Visit<'_, K::Key>,
    ) -> Result<(), IndexError> {
        let _pin = self.ground.pool.pin();
        let mut view = match from {
            Bound::Unbounded => self.view(None, Side::At)?,
            Bound::Included(key) => self.view(Some(key), Side::At)?,
            Bound::Excluded(key) => self.view(Some(key), Side::Below)?,
        };
        let mut ordered = Ordered::new();
        self.order(&view, &mut ordered)?;
        self.below(&view, &mut ordered, from)?;
        loop {
            let shown = ordered.slots().iter().rev();
            if self.show(shown, visit)? == Flow::Stop || view.leaf.low() == 0 {
                return Ok(());
            }
            let mut low = K::Scratch::default();
            let low = self.ground.low_key(view.leaf.low(), &mut low)?;
            view = self.view(Some(low), Side::Below)?;
            self.order(&view, &mut ordered)?;
            self.below(&view, &mut ordered, Bound::Excluded(low))?;
        }
    }

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

    /// Returns the view of a leaf that was read whole, with the low of the next one.
    pub(super) fn view_of(&self, leaf: Leaf<LINES>) -> Result<View<LINES>, IndexError> {
        let next = leaf.link().next();
        let high = self.low_of(next)?;
        if next != 0 {
            self.check_rising(leaf.low(), high, next)?;
        }
        Ok(View { leaf, high })
    }

    fn show<'a>(
        &self,
        slots: impl Iterator<Item = &'a Slot>,
        visit: &mut Visit<'_, K::Key>,
    ) -> Result<Flow, IndexError> {
        let mut scratch = K::Scratch::default();
        for &slot in slots {
            let value = self.ground.keys.value(&self.ground.pool, slot.payload)?;
            let flow = match visit {
                Visit::Keys(visit) => {
                    visit(self.ground.keys.key(&self.ground.pool, slot, &mut scratch)?, value)
                }
                Visit::Values(visit) => visit(value),
            };
            if flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    /// Puts a leaf's keys in order.
    fn order(&self, view: &View<LINES>, ordered: &mut Ordered<LINES>) -> Result<(), IndexError> {
        let fence = self.fence(view.leaf.link(), view.high)?;
        let live = view.leaf.live_bits(fence);
        if follow(&view.leaf, self.orders.get(view.leaf.at), live, ordered) {
            return Ok(());
        }
        (ordered.first, ordered.end) = (0, 0);
        for (_, slot) in view.leaf.live(fence) {
            ordered.slots.as_flattened_mut()[ordered.end] = slot;
            ordered.end += 1;
        }
        self.ground.sort(&mut ordered.slots.as_flattened_mut()[..ordered.end])?;
        let number = |slot: &Slot| {
            view.leaf.live(fence).find(|(_, it)| it == slot).map_or(0, |(number, _)| number)
        };
        self.orders.set(view.leaf.at, Order::of(ordered.slots().iter().map(number)));
        Ok(())
    }

    /// Keeps the keys above a bound.
    fn above(
        &self,
        view: &View<LINES>,
        ordered: &mut Ordered<LINES>,
        from: Bound<&K::Key>,
    ) -> Result<(), IndexError> {
        ordered.first = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.rank(view, ordered, key, Ordering::is_lt)?,
            Bound::Excluded(key) => self.rank(view, ordered, key, Ordering::is_le)?,
        };
        Ok(())
    }

    /// Keeps the keys below a bound.
    fn below(
        &self,
        view: &View<LINES>,
        ordered: &mut Ordered<LINES>,
        from: Bound<&K::Key>,
    ) -> Result<(), IndexError> {
        ordered.end = match from {
            Bound::Unbounded => ordered.end,
            Bound::Included(key) => self.rank(view, ordered, key, Ordering::is_le)?,
            Bound::Excluded(key) => self.rank(view, ordered, key, Ordering::is_lt)?,
        };
        Ok(())
    }

    /// Returns how many of the first keys compare to another in a way that `counts`.
    fn rank(
        &self,
        view: &View<LINES>,
        ordered: &Ordered<LINES>,
        key: &K::Key,
        counts: fn(Ordering) -> bool,
    ) -> Result<usize, IndexError> {
        let word = K::word(key, view.leaf.link().skip());
        for (number, &slot) in ordered.slots().iter().enumerate() {
            if !counts(self.ground.compare(slot, word, key)?) {
                return Ok(number);
            }
        }
        Ok(ordered.end)
    }
}

/// Puts the slots of a leaf in an order that they once had. Returns true if the order still holds,
/// and exactly the slots of `live` are used.
#[inline]
fn follow<const LINES: usize>(
    leaf: &Leaf<LINES>,
    order: Order,
    live: u64,
    ordered: &mut Ordered<LINES>,
) -> bool {
    let (mut seen, mut is_rising, mut last) = (0, true, None);
    for place in 0..order.len() {
        let (number, slot) = (order.number(place), leaf.slot(order.number(place)));
        seen |= 1 << number;
        is_rising &= last.is_none_or(|last| last < slot.word);
        last = Some(slot.word);
        ordered.slots.as_flattened_mut()[place] = slot;
    }
    (ordered.first, ordered.end) = (0, order.len());
    is_rising && seen == live
}
