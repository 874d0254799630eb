//! Merges: nodes with few records are merged with the one before or take some of its records, and
//! empty ones are freed. See rule 6 at the head of the module.

use std::sync::atomic::Ordering::Relaxed;

use entresol_base::sync::MutexGuard;
use entresol_media::Region;

use super::node::{Link, Node, SLOTS_MAX, State};
use super::nodes::Nodes;
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

/// The merge that goes on in a tree: there is one at a time.
pub(super) struct Merge<'t, R, S, K> {
    tree: &'t Tree<R, S, K>,
    nodes: &'t Nodes<R, S, K>,
    _held: MutexGuard<'t, ()>,
}

impl<'t, R: Region, S: Style, K: Keys<R>> Merge<'t, R, S, K> {
    /// Begins a merge, once no other goes on.
    #[cold]
    pub(super) fn begin(tree: &'t Tree<R, S, K>) -> Self {
        Merge { tree, nodes: &tree.nodes, _held: tree.merging.lock() }
    }

    /// Merges a node that has few records with a neighbour, then nodes above it that have few.
    #[cold]
    pub(super) fn upwards(&self, small: Node<'_, R>) -> Result<(), IndexError> {
        let mut small = self.merge(small)?;
        while let Some(above) = small {
            small = self.merge(above)?;
        }
        Ok(())
    }

    /// Merges a node; returns the node above if that one has few records now.
    fn merge(&self, small: Node<'_, R>) -> Result<Option<Node<'_, R>>, IndexError> {
        if self.nodes.look(small)?.1.count() >= self.nodes.shape.merge_below {
            return Ok(None);
        }
        if self.tree.root()?.at == small.at {
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
                self.tree.merges.fetch_add(1, Relaxed);
                self.nodes.pool.retire(right.at);
                self.nodes.keys.retire_low(&self.nodes.pool, right.low());
                new.map_or(Ok(()), |new| self.tree.adopt_if_room(new))?;
            }
            Err(error) => {
                self.unmark_leaving(right);
                self.tree.adopt_if_room(right.at)?;
                if !matches!(error, IndexError::Full { .. }) {
                    return Err(error);
                }
            }
        }
        Ok((left_over < self.nodes.shape.merge_below).then_some(parent))
    }

    /// Returns a node and a neighbour under one parent: the one before it, unless only the one
    /// behind it fits. `None` if neither fits and the node has enough records.
    fn pair(&self, small: Node<'_, R>) -> Result<Option<Pair<'_, R>>, IndexError> {
        let (before, after) = loop {
            let Some(place) = self.tree.find_low(small.low(), small.link().level() + 1)? else {
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
            if self.nodes.is_true(parent, place.seen, state) {
                break (before, after);
            }
        };
        let must_share = self.nodes.look(small)?.1.count() < self.nodes.shape.share_below;
        let mut chosen = None;
        for (left, right) in before.into_iter().chain(after) {
            let pair = Pair { left: self.nodes.node(left)?, right: self.nodes.node(right)? };
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
        let count = |node| self.nodes.look(node).map(|(_, state)| state.count());
        Ok(count(pair.left)? + count(pair.right)? + leftmost <= self.nodes.shape.records)
    }

    /// Marks a node as leaving.
    fn mark_leaving(&self, node: Node<'_, R>) -> Result<bool, IndexError> {
        loop {
            let (seen, state) = self.nodes.look(node)?;
            if state.is_leaving() {
                return Ok(false);
            }
            if let Some(_latched) = self.nodes.latches.lock_unchanged(node.at, seen) {
                node.set_state(state.leaving());
                return Ok(true);
            }
        }
    }

    fn unmark_leaving(&self, node: Node<'_, R>) {
        let _latched = self.nodes.latches.lock(node.at);
        node.set_state(node.state().staying());
    }

    /// Removes a node from the level above; returns the node there, and the number of records left
    /// in it. `None` if it is not there, or leftmost.
    fn disown(&self, child: Node<'_, R>) -> Result<Option<(Node<'_, R>, usize)>, IndexError> {
        loop {
            let Some(place) = self.tree.find_low(child.low(), child.link().level() + 1)? else {
                return Ok(None);
            };
            let Some(_latched) = self.nodes.latch(&place) else { continue };
            let (parent, state) = (place.node, place.state);
            let slot = self.nodes.slot_of_low(&place, child.low());
            let Some(slot) = slot.filter(|&slot| parent.value(slot) == child.at) else {
                return Ok(None);
            };
            parent.take(state, slot, S::IN_PLACE);
            return Ok(Some((parent, state.count() - 1)));
        }
    }

    /// Moves the records of a leaving node to the one before it, which is `left` or behind it. If
    /// one node cannot hold them, returns a new node that has the greater half.
    fn absorb(&self, left: Node<'_, R>, right: Node<'_, R>) -> Result<Option<u64>, IndexError> {
        let mut before = left;
        loop {
            let (seen, state) = self.nodes.look(before)?;
            let link = before.link();
            if !self.nodes.latches.is_unchanged(before.at, seen) {
                continue;
            }
            if link.next() != right.at {
                before = self.nodes.node(link.next())?;
                continue;
            }
            let Some(_latched) = self.nodes.latches.lock_unchanged(before.at, seen) else {
                continue;
            };
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
            self.nodes.make_comparable(left, link.next(), moved.records_mut())?;
        }
        let moved = moved.records();
        let total = state.count() + moved.len();
        if total <= self.nodes.shape.records {
            let state = left.append(&self.nodes.shape, state, moved);
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
            (left.append(&self.nodes.shape, state, lower), new)
        };
        left.set_link(Link::new(new, link.level()).with_skip(left.link().skip()));
        left.set_state(state);
        if !K::WHOLE {
            left.clear_rest(&self.nodes.shape, state, |_| true);
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
        let low = self.nodes.low_between(link.level(), last.unwrap_or((0, 0)), first)?;
        match link.level() {
            0 => self.nodes.make(link, 0, low, records),
            _ => self.nodes.make(link, first.1, low, &records[1..]),
        }
    }

    /// Makes the root's only child the root.
    fn shrink(&self) -> Result<(), IndexError> {
        let _held = self.tree.rooting.lock();
        loop {
            let root = self.tree.root()?;
            let (seen, state) = self.nodes.look(root)?;
            let link = root.link();
            if link.level() == 0 || link.next() != 0 || state.count() > 0 {
                return Ok(());
            }
            let child = self.nodes.node(root.leftmost())?;
            let Some(_latched) = self.nodes.latches.lock_unchanged(root.at, seen) else {
                continue;
            };
            self.tree.set_root(child.at);
            root.set_state(state.gone());
            self.nodes.pool.retire(root.at);
        }
    }
}
