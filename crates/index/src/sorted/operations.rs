//! The operations on one key.

use std::ops::Bound;
use std::sync::Arc;

use entresol_media::Region;

use super::{Place, Style, Tree};
use crate::index::check_value;
use crate::root::durable;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

/// What becomes of a record that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Present {
    /// It stays.
    Kept,
    /// It gets the new value.
    Replaced,
}

impl<R: Region, S: Style> Tree<R, S> {
    /// The leaf for a key. There is always one.
    #[inline]
    pub(super) fn leaf(&self, key: u64) -> Result<Place<'_, R>, IndexError> {
        match self.find(key, 0)? {
            Some(place) => Ok(place),
            None => Err(IndexError::damaged(self.pool.root(self.root), "the tree has no leaf")),
        }
    }

    #[inline]
    fn find_value(&self, key: u64) -> Result<Option<u64>, IndexError> {
        let _guard = self.pool.pin();
        loop {
            let Place { node, seen, state, position, .. } = self.leaf(key)?;
            let slot = node.slot_of(key, position, state);
            let value = slot.map(|slot| node.value(slot));
            if self.is_true(node, seen, state) {
                return Ok(value);
            }
        }
    }

    /// Adds a record; answers with the value that its key had before.
    #[inline]
    fn add(&self, key: u64, value: u64, present: Present) -> Result<Option<u64>, IndexError> {
        check_value(value)?;
        let _guard = self.pool.pin();
        let (split, unknown) = loop {
            let place = self.leaf(key)?;
            let Place { node, seen, state, position, unknown } = place;
            let slot = node.slot_of(key, position, state);
            let before = slot.map(|slot| node.value(slot));
            if before.is_some() && present == Present::Kept {
                match self.is_true(node, seen, state) {
                    true => return Ok(before),
                    false => continue,
                }
            }
            let Some(_latched) = self.latch(&place) else { continue };
            if let Some(slot) = slot {
                self.set_value(node, slot, value);
                return durable(self.region()).map(|()| before);
            }
            break (self.add_here(&place, (key, value))?, unknown);
        };
        // The record is there, whatever comes of this: of damage hears who next comes there.
        let adopted = [unknown, split].into_iter().flatten();
        adopted.for_each(|node| drop(self.adopt_if_room(node)));
        durable(self.region()).map(|()| None)
    }

    fn remove_key(&self, key: u64) -> Result<Option<u64>, IndexError> {
        let _guard = self.pool.pin();
        loop {
            let place = self.leaf(key)?;
            let Place { node, seen, state, position, unknown } = place;
            let Some(slot) = node.slot_of(key, position, state) else {
                match self.is_true(node, seen, state) {
                    true => return Ok(None),
                    false => continue,
                }
            };
            let before = node.value(slot);
            let Some(latched) = self.latch(&place) else { continue };
            self.take(node, state, slot);
            drop(latched);
            // The record has gone, whatever comes of this: of damage hears who next comes there.
            if let Some(node) = unknown {
                drop(self.adopt_if_room(node));
            }
            if state.count() - 1 < self.shape.merge_below {
                drop(self.merge_up(node));
            }
            return durable(self.region()).map(|()| Some(before));
        }
    }
}

impl<R: Region, S: Style> Index for Tree<R, S> {
    type Key = u64;

    #[inline]
    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        self.add(*key, value, Present::Kept).map(|before| before.is_none())
    }

    #[inline]
    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        self.add(*key, value, Present::Replaced)
    }

    #[inline]
    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.find_value(*key)
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.remove_key(*key)
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        self.walk(from, direction, visit)
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        self.count()
    }
}

impl<R: Region, S: Style> Persistent<R> for Tree<R, S> {
    type Options = S::Options;

    fn open(pool: &Arc<Pool<R>>, root: usize, options: &S::Options) -> Result<Self, IndexError> {
        Tree::open_at(pool, root, S::chosen(options))
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        self.reach(visit)
    }
}
