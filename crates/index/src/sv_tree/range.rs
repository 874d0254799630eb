//! Walks over keys, up or down.
//!
//! A leaf's keys are passed on as they were at one time, together with its link. The next ones are
//! those of the next leaf at another time, so no key is passed twice, and none that stays is
//! missed.

use std::cmp::Ordering;
use std::ops::Bound;

use entresol_media::Region;

use super::SvTree;
use super::ground::Ground;
use super::guide::Side;
use super::leaf::Leaf;
use super::leaves::View;
use super::orders::Order;
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

/// Passes the keys from a bound on to a visitor, in order.
pub(super) fn pass<R: Region, K: Keys<R>, const LINES: usize>(
    tree: &SvTree<R, K, LINES>,
    from: Bound<&K::Key>,
    direction: Direction,
    visit: &mut Visit<'_, K::Key>,
) -> Result<(), IndexError> {
    let _pin = tree.leaves.ground.pool.pin();
    let view = match (direction, from) {
        (Direction::Forward, Bound::Unbounded) => tree.leaves.first()?,
        (Direction::Backward, Bound::Unbounded) => tree.view(None, Side::At)?,
        (Direction::Backward, Bound::Excluded(key)) => tree.view(Some(key), Side::Below)?,
        (_, Bound::Included(key) | Bound::Excluded(key)) => tree.view(Some(key), Side::At)?,
    };
    let mut cursor = Cursor { tree, view, ordered: Ordered::new() };
    cursor.order()?;
    match direction {
        Direction::Forward => {
            cursor.keep_above(from)?;
            cursor.ascend(visit)
        }
        Direction::Backward => {
            cursor.keep_below(from)?;
            cursor.descend(visit)
        }
    }
}

/// A leaf as it was at one time, and those of its keys that are still to be passed. The caller has
/// pinned the pool.
struct Cursor<'t, R: Region, K: Keys<R>, const LINES: usize> {
    tree: &'t SvTree<R, K, LINES>,
    view: View<LINES>,
    ordered: Ordered<LINES>,
}

impl<R: Region, K: Keys<R>, const LINES: usize> Cursor<'_, R, K, LINES> {
    fn ascend(&mut self, visit: &mut Visit<'_, K::Key>) -> Result<(), IndexError> {
        let SvTree { leaves, .. } = self.tree;
        let mut bound = K::Scratch::default();
        loop {
            if self.show(self.ordered.slots().iter(), visit)? == Flow::Stop {
                return Ok(());
            }
            let next = self.view.leaf.link().next();
            if next == 0 {
                return Ok(());
            }
            let high = self.view.high;
            let (leaf, _) = leaves.read(next)?;
            // The next leaf's lines arrive during the wait for its low.
            leaves.prefetch(leaf.link().next());
            self.view = match leaf.link().is_dead() {
                false => leaves.view_of(leaf)?,
                true => self.tree.view(Some(leaves.ground.low_key(high, &mut bound)?), Side::At)?,
            };
            self.order()?;
            if self.view.leaf.at != next {
                let key = leaves.ground.low_key(high, &mut bound)?;
                self.keep_above(Bound::Included(key))?;
            }
        }
    }

    fn descend(&mut self, visit: &mut Visit<'_, K::Key>) -> Result<(), IndexError> {
        loop {
            let shown = self.ordered.slots().iter().rev();
            if self.show(shown, visit)? == Flow::Stop || self.view.leaf.low() == 0 {
                return Ok(());
            }
            let mut low = K::Scratch::default();
            let low = self.tree.leaves.ground.low_key(self.view.leaf.low(), &mut low)?;
            self.view = self.tree.view(Some(low), Side::Below)?;
            self.order()?;
            self.keep_below(Bound::Excluded(low))?;
        }
    }

    fn show<'a>(
        &self,
        slots: impl Iterator<Item = &'a Slot>,
        visit: &mut Visit<'_, K::Key>,
    ) -> Result<Flow, IndexError> {
        let Ground { pool, keys } = &self.tree.leaves.ground;
        let mut scratch = K::Scratch::default();
        for &slot in slots {
            let value = keys.value(pool, slot.payload)?;
            let flow = match visit {
                Visit::Keys(visit) => visit(keys.key(pool, slot, &mut scratch)?, value),
                Visit::Values(visit) => visit(value),
            };
            if flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    /// Puts the leaf's keys in order.
    fn order(&mut self) -> Result<(), IndexError> {
        let SvTree { leaves, orders, .. } = self.tree;
        let (leaf, ordered) = (&self.view.leaf, &mut self.ordered);
        let fence = leaves.fence(leaf.link(), self.view.high)?;
        if follow(leaf, orders.get(leaf.at), leaf.live_bits(fence), ordered) {
            return Ok(());
        }
        (ordered.first, ordered.end) = (0, 0);
        for (_, slot) in leaf.live(fence) {
            ordered.slots.as_flattened_mut()[ordered.end] = slot;
            ordered.end += 1;
        }
        leaves.ground.sort(&mut ordered.slots.as_flattened_mut()[..ordered.end])?;
        let number = |slot: &Slot| {
            leaf.live(fence).find(|(_, it)| it == slot).map_or(0, |(number, _)| number)
        };
        orders.set(leaf.at, Order::of(ordered.slots().iter().map(number)));
        Ok(())
    }

    /// Keeps the keys above a bound.
    fn keep_above(&mut self, from: Bound<&K::Key>) -> Result<(), IndexError> {
        self.ordered.first = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.rank(key, Ordering::is_lt)?,
            Bound::Excluded(key) => self.rank(key, Ordering::is_le)?,
        };
        Ok(())
    }

    /// Keeps the keys below a bound.
    fn keep_below(&mut self, from: Bound<&K::Key>) -> Result<(), IndexError> {
        self.ordered.end = match from {
            Bound::Unbounded => self.ordered.end,
            Bound::Included(key) => self.rank(key, Ordering::is_le)?,
            Bound::Excluded(key) => self.rank(key, Ordering::is_lt)?,
        };
        Ok(())
    }

    /// Returns how many of the first keys compare to another in a way that `counts`.
    fn rank(&self, key: &K::Key, counts: fn(Ordering) -> bool) -> Result<usize, IndexError> {
        let word = K::word(key, self.view.leaf.link().skip());
        for (number, &slot) in self.ordered.slots().iter().enumerate() {
            if !counts(self.tree.leaves.ground.compare(slot, word, key)?) {
                return Ok(number);
            }
        }
        Ok(self.ordered.end)
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
