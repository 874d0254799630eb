//! Operations on one key.

use std::ops::Bound;
use std::sync::Arc;

use entresol_media::Region;

use super::merge::Merge;
use super::nodes::Place;
use super::records::Goal;
use super::walk::Walk;
use super::{Style, Tree};
use crate::index::check_value;
use crate::keys::Keys;
use crate::root::durable;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

/// Treatment of a record that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Present {
    /// The record keeps its value.
    Kept,
    /// The record gets the new value.
    Replaced,
}

impl<R: Region, S: Style, K: Keys<R>> Tree<R, S, K> {
    /// Returns the leaf for a goal.
    #[inline]
    pub(super) fn leaf(&self, goal: Goal<'_, K::Key>) -> Result<Place<'_, R>, IndexError> {
        self.there(self.find(goal, 0)?)
    }

    /// Returns the leaf for a key that is its word.
    pub(super) fn leaf_of(&self, word: u64) -> Result<Place<'_, R>, IndexError> {
        let mut scratch = K::Scratch::default();
        self.leaf(self.nodes.at_low(word, &mut scratch)?)
    }

    /// Unwraps a leaf that was found: there is always one.
    #[inline]
    fn there<'a>(&self, found: Option<Place<'a, R>>) -> Result<Place<'a, R>, IndexError> {
        found.ok_or_else(|| {
            IndexError::damaged(self.nodes.pool.root(self.root), "the tree has no leaf")
        })
    }

    #[inline]
    fn find_value(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        let _guard = self.nodes.pool.pin();
        loop {
            let place = self.leaf(Goal::At(key))?;
            let payload = self.nodes.slot_of(&place, key).map(|slot| place.node.value(slot));
            if self.nodes.is_true(place.node, place.seen, place.state) {
                return payload.map(|it| self.nodes.keys.value(&self.nodes.pool, it)).transpose();
            }
        }
    }

    /// Adds a record; returns the value that its key had before.
    #[inline]
    fn add(&self, key: &K::Key, value: u64, present: Present) -> Result<Option<u64>, IndexError> {
        check_value(value)?;
        K::check(key)?;
        let (pool, keys) = (&self.nodes.pool, &self.nodes.keys);
        let _guard = pool.pin();
        let (split, unknown) = loop {
            let place = self.leaf(Goal::At(key))?;
            let Place { node, seen, state, unknown, .. } = place;
            let slot = self.nodes.slot_of(&place, key);
            let before = slot.map(|slot| node.value(slot));
            if let Some(payload) = before
                && present == Present::Kept
            {
                match self.nodes.is_true(node, seen, state) {
                    true => return keys.value(pool, payload).map(Some),
                    false => continue,
                }
            }
            let Some(latched) = self.nodes.latch(&place) else { continue };
            if let (Some(slot), Some(payload)) = (slot, before) {
                let before = keys.value(pool, payload)?;
                node.set_value(slot, keys.make(pool, key, value)?);
                drop(latched);
                keys.retire(pool, payload);
                return durable(self.nodes.region()).map(|()| Some(before));
            }
            let payload = keys.make(pool, key, value)?;
            let added = self.add_here(&place, (self.nodes.word(node, key), payload));
            break (added.inspect_err(|_| keys.retire(pool, payload))?, unknown);
        };
        // The record is added in any case: the next thread that comes there reports damage.
        let adopted = [unknown, split].into_iter().flatten();
        adopted.for_each(|node| drop(self.adopt_if_room(node)));
        durable(self.nodes.region()).map(|()| None)
    }

    fn remove_key(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        let _guard = self.nodes.pool.pin();
        loop {
            let place = self.leaf(Goal::At(key))?;
            let Place { node, seen, state, unknown, .. } = place;
            let Some(slot) = self.nodes.slot_of(&place, key) else {
                match self.nodes.is_true(node, seen, state) {
                    true => return Ok(None),
                    false => continue,
                }
            };
            let payload = node.value(slot);
            let Some(latched) = self.nodes.latch(&place) else { continue };
            let before = self.nodes.keys.value(&self.nodes.pool, payload)?;
            node.take(state, slot, S::IN_PLACE);
            drop(latched);
            self.nodes.keys.retire(&self.nodes.pool, payload);
            // The record is removed in any case: the next thread that comes there reports damage.
            if let Some(node) = unknown {
                drop(self.adopt_if_room(node));
            }
            if state.count() - 1 < self.nodes.shape.merge_below {
                drop(Merge::begin(self).upwards(node));
            }
            return durable(self.nodes.region()).map(|()| Some(before));
        }
    }
}

impl<R: Region, S: Style, K: Keys<R>> Index for Tree<R, S, K> {
    type Key = K::Key;

    #[inline]
    fn insert(&self, key: &K::Key, value: u64) -> Result<bool, IndexError> {
        self.add(key, value, Present::Kept).map(|before| before.is_none())
    }

    #[inline]
    fn upsert(&self, key: &K::Key, value: u64) -> Result<Option<u64>, IndexError> {
        self.add(key, value, Present::Replaced)
    }

    #[inline]
    fn get(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        self.find_value(key)
    }

    fn remove(&self, key: &K::Key) -> Result<Option<u64>, IndexError> {
        self.remove_key(key)
    }

    fn range(
        &self,
        from: Bound<&K::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&K::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        Walk::new(self).range(from, direction, visit)
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        Walk::new(self).count()
    }
}

impl<R: Region, S: Style, K: Keys<R> + Default> Persistent<R> for Tree<R, S, K> {
    type Options = S::Options;

    fn open(pool: &Arc<Pool<R>>, root: usize, options: &S::Options) -> Result<Self, IndexError> {
        Tree::open_at(pool, root, S::chosen(options), K::default())
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        Walk::new(self).reach(visit)
    }
}
