//! Merges: nodes with few records are merged with the one before or take some of its records, and
//! empty ones are freed. See rule 6 at the head of the module.

use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::node::{Link, Node, SLOTS_MAX, State};
use super::write::Lines;
use super::{Style, Tree};
use crate::IndexError;
use crate::keys::Keys;

/// Two neighbours under one parent.
struct Pair<'a, R> {
    left: Node<'a, R>,
    right: Node<'a, R>,
}

/// Records that a node hands to the one before it.
struct Moved {
    records: [(u64, u64); SLOTS_MAX + 1],
    len: usize,
}

impl Moved {
    /// Collects the records of a node. Those of an inner node begin with its leftmost child, under
    /// the node's low key.
    fn of<R: Region>(node: Node<'_, R>) -> Moved {
        let leftmost = (node.link().level() > 0).then(|| (node.low(), node.leftmost()));
        let mut moved = Moved { records: [(0, 0); SLOTS_MAX + 1], len: 0 };
        for record in leftmost.into_iter().chain(node.records(node.state())) {
            moved.records[moved.len] = record;
            moved.len += 1;
        }
        moved
    }

    fn records(&self) -> &[(u64, u64)] {
        &self.records[..self.len]
    }

    fn records_mut(&mut self) -> &mut [(u64, u64)] {
        &mut self.records[..self.len]
    }
}

impl<R: Region, S: Style, K: Keys<R>> Tree<R, S, K> {
    /// Merges a node that has few records with a neighbour, then nodes above it that have few.
    #[cold]
    pub(super) fn merge_up(&self, small: Node<'_, R>) -> Result<(), IndexError> {
        let _held = self.merging.lock();
        let mut next = Some(small);
        while let Some(small) = next {
            next = self.merge(small)?;
        }
        Ok(())
    }

    /// Merges a node; returns the node above if that one has few records now.
    fn merge(&self, small: Node<'_, R>) -> Result<Option<Node<'_, R>>, IndexError> {
        if self.look(small)?.1.count() >= self.shape.merge_below {
            return Ok(None);
        }
        if self.root()?.at == small.at {
            self.shrink()?;
            return Ok(None);
        }
        let Some(Pair { left, right }) = self.pair(small)? else { return Ok(None) };
        if !self.mark_leaving(right)? {
            return Ok(None);
        }
        let disowned = self.disown(right);
        let Ok(Some((parent, left_over))) = disowned else {
            self.unmark_leaving(right);
            return disowned.map(|_| None);
        };
        match self.absorb(left, right) {
            Ok(new) => {
                self.merges.fetch_add(1, Relaxed);
                self.pool.retire(right.at);
                self.keys.retire_low(&self.pool, right.low());
                new.map_or(Ok(()), |new| self.adopt_if_room(new))?;
            }
            Err(error) => {
                self.unmark_leaving(right);
                self.adopt_if_room(right.at)?;
                if !matches!(error, IndexError::Full { .. }) {
                    return Err(error);
                }
            }
        }
        Ok((left_over < self.shape.merge_below).then_some(parent))
    }

    /// Returns a node and a neighbour under one parent: the one before it, unless only the one
    /// behind it fits. `None` if neither fits and the node has enough records.
    fn pair(&self, small: Node<'_, R>) -> Result<Option<Pair<'_, R>>, IndexError> {
        let (before, after) = loop {
            let Some(place) = self.find_low(small.low(), small.link().level() + 1)? else {
                return Ok(None);
            };
            let (parent, state) = (place.node, place.state);
            let children = || {
                let leftmost = std::iter::once(parent.leftmost());
                leftmost.chain(parent.records(state).map(|(_, child)| child))
            };
            let pairs = || children().zip(children().skip(1));
            let before = pairs().find(|&(_, right)| right == small.at);
            let after = pairs().find(|&(left, _)| left == small.at);
            if self.is_true(parent, place.seen, state) {
                break (before, after);
            }
        };
        let must_share = self.look(small)?.1.count() < self.shape.share_below;
        let mut chosen = None;
        for (left, right) in before.into_iter().chain(after) {
            let pair = Pair { left: self.node(left)?, right: self.node(right)? };
            if self.fit(&pair)? {
                return Ok(Some(pair));
            }
            chosen = chosen.or(must_share.then_some(pair));
        }
        Ok(chosen)
    }

    /// Returns true if one node can hold the records of both.
    fn fit(&self, pair: &Pair<'_, R>) -> Result<bool, IndexError> {
        let leftmost = usize::from(pair.right.link().level() > 0);
        let count = |node| self.look(node).map(|(_, state)| state.count());
        Ok(count(pair.left)? + count(pair.right)? + leftmost <= self.shape.records)
    }

    /// Marks a node as leaving.
    fn mark_leaving(&self, node: Node<'_, R>) -> Result<bool, IndexError> {
        loop {
            let (seen, state) = self.look(node)?;
            if state.is_leaving() {
                return Ok(false);
            }
            if let Some(_latched) = self.latches.lock_unchanged(node.at, seen) {
                node.set_state(state.leaving());
                return Ok(true);
            }
        }
    }

    fn unmark_leaving(&self, node: Node<'_, R>) {
        let _latched = self.latches.lock(node.at);
        node.set_state(node.state().staying());
    }

    /// Removes a node from the level above; returns the node there, and the number of records left
    /// in it. `None` if it is not there, or leftmost.
    fn disown(&self, child: Node<'_, R>) -> Result<Option<(Node<'_, R>, usize)>, IndexError> {
        loop {
            let Some(place) = self.find_low(child.low(), child.link().level() + 1)? else {
                return Ok(None);
            };
            let Some(_latched) = self.latch(&place) else { continue };
            let (parent, state) = (place.node, place.state);
            let slot = self.slot_of_low(&place, child.low());
            let Some(slot) = slot.filter(|&slot| parent.value(slot) == child.at) else {
                return Ok(None);
            };
            self.take(parent, state, slot);
            return Ok(Some((parent, state.count() - 1)));
        }
    }

    /// Moves the records of a leaving node to the one before it, which is `left` or behind it. If
    /// one node cannot hold them, returns a new node that has the greater half.
    fn absorb(&self, left: Node<'_, R>, right: Node<'_, R>) -> Result<Option<u64>, IndexError> {
        let mut before = left;
        loop {
            let (seen, state) = self.look(before)?;
            let link = before.link();
            if !self.latches.is_unchanged(before.at, seen) {
                continue;
            }
            if link.next() != right.at {
                before = self.node(link.next())?;
                continue;
            }
            let Some(_latched) = self.latches.lock_unchanged(before.at, seen) else { continue };
            debug_assert!(
                right.state().is_leaving() && !right.state().is_gone() && !state.is_gone(),
                "node {} joins {}, and one of them is no longer there",
                right.at,
                before.at
            );
            let new = self.join(before, state, right)?;
            debug_assert!(before.link().next() != right.at, "node {} is still linked", right.at);
            right.set_state(right.state().gone());
            return Ok(new);
        }
    }

    fn join(
        &self,
        left: Node<'_, R>,
        state: State,
        right: Node<'_, R>,
    ) -> Result<Option<u64>, IndexError> {
        let (mut moved, link) = (Moved::of(right), right.link());
        if !K::WHOLE {
            self.make_comparable(left, link.next(), moved.records_mut())?;
        }
        let moved = moved.records();
        let total = state.count() + moved.len();
        if total <= self.shape.records {
            let state = self.append(left, state, moved);
            left.set_link(link.with_skip(left.link().skip()));
            left.set_state(state);
            return Ok(None);
        }
        let stay = total.div_ceil(2);
        let (state, new) = if stay < state.count() {
            let mut upper = [(0, 0); 2 * SLOTS_MAX];
            let all = left.records(state).skip(stay).chain(moved.iter().copied());
            let len = upper.iter_mut().zip(all).map(|(slot, record)| *slot = record).count();
            let kept = (0..state.tail()).filter(|&slot| state.has(slot)).take(stay);
            let state = state.with_bits(kept.fold(0, |bits, slot| bits | 1 << slot));
            let last = left.records(state).last();
            (state, self.make_of(link, last, &upper[..len])?)
        } else {
            let (lower, upper) = moved.split_at(stay - state.count());
            let last = lower.last().copied().or_else(|| left.records(state).last());
            let new = self.make_of(link, last, upper)?;
            (self.append(left, state, lower), new)
        };
        left.set_link(Link::new(new, link.level()).with_skip(left.link().skip()));
        left.set_state(state);
        if !K::WHOLE {
            self.clear_rest(left, state, |_| true);
        }
        Ok(Some(new))
    }

    /// Makes a node of records that come behind `before`; in an inner node the first becomes the
    /// leftmost child.
    fn make_of(
        &self,
        link: Link,
        last: Option<(u64, u64)>,
        records: &[(u64, u64)],
    ) -> Result<u64, IndexError> {
        let first = records[0];
        let low = self.low_between(link.level(), last.unwrap_or((0, 0)), first)?;
        match link.level() {
            0 => self.make(link, 0, low, records),
            _ => self.make(link, first.1, low, &records[1..]),
        }
    }

    /// Writes records behind all others. They do not count until a link is stored that lets them;
    /// older contents of the slots must not count then.
    fn append(&self, node: Node<'_, R>, state: State, records: &[(u64, u64)]) -> State {
        let fits = state.tail() + records.len() <= self.shape.records;
        let state = if fits { state } else { self.compact(node, state) };
        let (tail, mut bits) = (state.tail(), state.bits());
        let mut lines = Lines::new(self.region());
        for (slot, &(key, value)) in (tail..).zip(records) {
            lines.put(node, slot, [key, value]);
            bits |= 1 << slot;
        }
        for slot in tail + records.len()..self.shape.records {
            if !node.is_hole(slot) {
                lines.clear(node, slot);
            }
        }
        lines.finish();
        state.with_bits(bits)
    }

    /// Makes the root's only child the root.
    fn shrink(&self) -> Result<(), IndexError> {
        let _held = self.rooting.lock();
        loop {
            let root = self.root()?;
            let (seen, state) = self.look(root)?;
            let link = root.link();
            if link.level() == 0 || link.next() != 0 || state.count() > 0 {
                return Ok(());
            }
            let child = self.node(root.leftmost())?;
            let Some(_latched) = self.latches.lock_unchanged(root.at, seen) else { continue };
            self.set_root(child.at);
            root.set_state(state.gone());
            self.pool.retire(root.at);
        }
    }
}
