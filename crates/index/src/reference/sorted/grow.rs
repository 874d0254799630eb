//! Room for more records: splits, and the changes in the levels above that follow.

use std::sync::atomic::Ordering::Relaxed;

use entresol_media::Region;

use super::node::{Link, Node};
use super::nodes::Place;
use super::{Style, Tree};
use crate::IndexError;
use crate::keys::Keys;

impl<R: Region, S: Style, K: Keys<R>> Tree<R, S, K> {
    /// Adds a record to a latched node. Returns the new node, if the node had to be split.
    #[inline]
    pub(super) fn add_here(
        &self,
        place: &Place<'_, R>,
        record: (u64, u64),
    ) -> Result<Option<u64>, IndexError> {
        let &Place { node, state, position, .. } = place;
        if node.put(&self.nodes.shape, state, position, record) {
            return Ok(None);
        }
        if state.count() < self.nodes.shape.compact_below {
            self.compactions.fetch_add(1, Relaxed);
            let rank = state.count_before(position);
            let state = node.compact(state);
            node.put(&self.nodes.shape, state, rank, record);
            return Ok(None);
        }
        self.split(place, record).map(Some)
    }

    /// Moves the upper half of the records to a new node, and adds a record to one of the two. One
    /// store, of the link, publishes it. Records that stay behind in the upper slots no longer
    /// count, since their keys are not below the new node's low key.
    #[cold]
    fn split(&self, place: &Place<'_, R>, record: (u64, u64)) -> Result<u64, IndexError> {
        let &Place { node, state, position, .. } = place;
        let mut records = [(0, 0); super::node::SLOTS_MAX + 1];
        let count = state.count();
        let stay = count / 2;
        for (slot, record) in records.iter_mut().zip(node.records(state)) {
            *slot = record;
        }
        let (rank, link, middle) = (state.count_before(position), node.link(), records[stay]);
        let last = if rank == stay { record } else { records[stay - 1] };
        let low = self.nodes.low_between(link.level(), last, middle)?;
        let goes = rank > stay;
        if goes {
            records.copy_within(rank..count, rank + 1);
            records[rank] = record;
        }
        // In an inner node the middle record's key becomes the new node's low key, and no record.
        let (leftmost, first) = if link.level() > 0 { (middle.1, stay + 1) } else { (0, stay) };
        let upper = &records[first..count + usize::from(goes)];
        let new = self.nodes.make(link, leftmost, low, upper)?;
        node.set_link(Link::new(new, link.level()).with_skip(link.skip()));
        let kept = (0..state.tail()).filter(|&slot| state.has(slot)).take(stay);
        let state = state.with_bits(kept.fold(0, |bits, slot| bits | 1 << slot));
        debug_assert_eq!(state.count(), stay, "so many of {count} records stay in a node");
        node.set_state(state);
        self.splits.fetch_add(1, Relaxed);
        if !K::WHOLE {
            node.clear_rest(&self.nodes.shape, state, |_| true);
        }
        if !goes {
            node.put(&self.nodes.shape, state, position.min(state.tail()), record);
        }
        if !K::WHOLE {
            // The split is done in any case: the words only tell less than they could.
            drop(self.nodes.reword(node));
        }
        Ok(new)
    }

    /// [Adopts](Tree::adopt) a node unless there is no room: links lead to it all the same, and the
    /// next writer that comes by tries again.
    pub(super) fn adopt_if_room(&self, child: u64) -> Result<(), IndexError> {
        match self.adopt(child) {
            Err(IndexError::Full { .. }) => Ok(()),
            done => done,
        }
    }

    /// Makes a node known to the level above, if it is not.
    #[cold]
    pub(super) fn adopt(&self, child: u64) -> Result<(), IndexError> {
        let node = self.nodes.node(child)?;
        let (low, level) = (node.low(), node.link().level() + 1);
        let split = loop {
            let Some(place) = self.find_low(low, level)? else {
                if self.grow(child)? {
                    return Ok(());
                }
                continue;
            };
            if let Some(unknown) = place.unknown {
                self.adopt(unknown)?;
            }
            let Some(_latched) = self.nodes.latch(&place) else { continue };
            let parent = place.node;
            let slot = self.nodes.slot_of_low(&place, low);
            let known = slot.map_or(parent.leftmost(), |slot| parent.value(slot));
            if known == child || self.is_leaving(node) {
                return Ok(());
            }
            if slot.is_some() {
                let what = format!("it has {known} where {child} should be");
                return Err(IndexError::damaged(parent.at, what));
            }
            break self.add_here(&place, (self.nodes.word_of_low(parent, low)?, child))?;
        };
        match split {
            Some(new) => self.adopt(new),
            None => Ok(()),
        }
    }

    /// Returns true if a merge is removing a node, or has removed it.
    fn is_leaving(&self, node: Node<'_, R>) -> bool {
        let state = node.state();
        state.is_of(self.nodes.opening) && state.is_leaving()
    }

    /// Puts a root above the root, with links to it and to one of the nodes behind it. Returns true
    /// if the root was of this level.
    fn grow(&self, child: u64) -> Result<bool, IndexError> {
        let _held = self.rooting.lock();
        let (root, child) = (self.root()?, self.nodes.node(child)?);
        let level = child.link().level();
        if root.link().level() != level {
            return Ok(false);
        }
        if self.is_leaving(child) {
            // It was merged, and with it went the root that had both.
            return Ok(true);
        }
        let records = [(child.low(), child.at)];
        let new = self.nodes.make(Link::new(0, level + 1), root.at, 0, &records)?;
        self.set_root(new);
        Ok(true)
    }
}
