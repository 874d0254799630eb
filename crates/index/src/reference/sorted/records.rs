//! Keys that lie in records: the differences where the word in a slot is not the whole key.
//!
//! A word is eight bytes of the key behind the prefix that all keys of the node share (its skip).
//! If two words are equal, the records decide to which the slots lead; in an inner node these are
//! the children's lows. The low of a node is a record of its own, which never changes and goes with
//! the node.
//!
//! After a crash it counts to which records the slots lead, and in which order: words and skips are
//! made anew by the first thread that touches a node in an opening, and so need not be durable when
//! a node's range changes. That reads the record of each slot that is not a hole. So no slot, live
//! or not, may lead to a block that was freed and used again:
//! - slots that no longer count after a split or a merge are durably made holes before the latch is
//!   released, and a record is freed once no slot leads to it durably;
//! - slots that a crash leaves twice, or beyond the next node's low, lead to intact records,
//!   because blocks of an earlier opening are not used again before a sweep of the pool has ended,
//!   and a sweep comes to every node.

use std::cmp::Ordering;

use entresol_media::Region;

use super::Style;
use super::node::{Link, Node, SLOTS_MAX, State};
use super::nodes::{Nodes, Place};
use crate::IndexError;
use crate::keys::{Keys, Slot};
use crate::latch::Seen;

/// Goal of a search.
#[derive(Debug)]
pub(super) enum Goal<'a, Q: ?Sized> {
    /// Position of the least key.
    Least,
    /// Position at which this key is or would be.
    At(&'a Q),
    /// Position of the greatest key below this one.
    Below(&'a Q),
    /// Position of the greatest key.
    Last,
}

impl<Q: ?Sized> Clone for Goal<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Goal<'_, Q> {}

/// Position of a goal in a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Number of the first record that is not less than the goal.
    pub(super) position: usize,
    /// Slot that has the key, where words do not tell.
    pub(super) found: Option<usize>,
}

impl<R: Region, S: Style, K: Keys<R>> Nodes<R, S, K> {
    /// Returns the slot of a key in the leaf that covers it.
    #[inline]
    pub(super) fn slot_of(&self, place: &Place<'_, R>, key: &K::Key) -> Option<usize> {
        if K::WHOLE {
            return place.node.slot_of(K::word(key, 0), place.position, place.state);
        }
        place.found
    }

    /// Returns the slot of a low that was searched.
    pub(super) fn slot_of_low(&self, place: &Place<'_, R>, low: u64) -> Option<usize> {
        match K::WHOLE {
            true => place.node.slot_of(low, place.position, place.state),
            false => place.found,
        }
    }

    pub(super) fn at_low<'a>(
        &self,
        low: u64,
        scratch: &'a mut K::Scratch,
    ) -> Result<Goal<'a, K::Key>, IndexError> {
        Ok(match low {
            0 => Goal::Least,
            low => Goal::At(self.keys.low_key(&self.pool, low, scratch)?),
        })
    }

    /// Returns the word of a key in a node.
    #[inline]
    pub(super) fn word(&self, node: Node<'_, R>, key: &K::Key) -> u64 {
        if K::WHOLE { K::word(key, 0) } else { K::word(key, node.link().skip()) }
    }

    /// Returns the word of a low, which is not 0, in a node.
    pub(super) fn word_of_low(&self, node: Node<'_, R>, low: u64) -> Result<u64, IndexError> {
        if K::WHOLE {
            return Ok(low);
        }
        let mut scratch = K::Scratch::default();
        Ok(self.word(node, self.keys.low_key(&self.pool, low, &mut scratch)?))
    }

    /// Returns the word of a goal, where words are whole keys.
    #[inline]
    fn whole(goal: Goal<'_, K::Key>) -> u64 {
        match goal {
            Goal::Least => 0,
            Goal::At(key) => K::word(key, 0),
            Goal::Below(key) => K::word(key, 0).saturating_sub(1),
            Goal::Last => u64::MAX,
        }
    }

    /// Returns the child that covers a goal, unless a later node of this level does.
    #[inline]
    pub(super) fn child(
        &self,
        node: Node<'_, R>,
        state: State,
        spot: Spot,
        goal: Goal<'_, K::Key>,
    ) -> u64 {
        if K::WHOLE {
            return node.child(Self::whole(goal), spot.position, state);
        }
        match spot.found {
            Some(slot) => node.value(slot),
            None => match state.count_before(spot.position) {
                0 => node.leftmost(),
                _ => node.value(state.upto(spot.position).tail() - 1),
            },
        }
    }

    /// Returns true if a goal behind all records of a node is in a later one.
    #[inline]
    pub(super) fn is_later(
        &self,
        node: Node<'_, R>,
        link: Link,
        goal: Goal<'_, K::Key>,
    ) -> Result<bool, IndexError> {
        if K::WHOLE {
            return Ok(self.high(node, link)?.is_some_and(|high| Self::whole(goal) >= high));
        }
        Ok(self.is_beyond(link, goal)? && self.has_next(node, link)?)
    }

    /// Returns true if a goal is in the next node or behind it.
    pub(super) fn is_beyond(&self, link: Link, goal: Goal<'_, K::Key>) -> Result<bool, IndexError> {
        if link.next() == 0 {
            return Ok(false);
        }
        let low = self.node(link.next())?.low();
        Ok(match goal {
            Goal::Least => false,
            Goal::Last => true,
            Goal::At(key) => self.keys.compare_low(&self.pool, low, key)?.is_le(),
            Goal::Below(key) => self.keys.compare_low(&self.pool, low, key)?.is_lt(),
        })
    }

    /// Returns the position of a goal among the records of a node; `None` if a write interfered.
    /// Only records that the node had are read.
    #[inline]
    pub(super) fn spot(
        &self,
        node: Node<'_, R>,
        link: Link,
        seen: (Seen, State),
        goal: Goal<'_, K::Key>,
    ) -> Result<Option<Spot>, IndexError> {
        if K::WHOLE {
            let position = node.position(Self::whole(goal), seen.1.tail());
            return Ok(Some(Spot { position, found: None }));
        }
        self.spot_of_record(node, link, seen, goal)
    }

    fn spot_of_record(
        &self,
        node: Node<'_, R>,
        link: Link,
        (seen, state): (Seen, State),
        goal: Goal<'_, K::Key>,
    ) -> Result<Option<Spot>, IndexError> {
        let tail = state.tail();
        let (key, is_at) = match goal {
            Goal::Least => return Ok(Some(Spot { position: 0, found: None })),
            Goal::Last => return Ok(Some(Spot { position: tail, found: None })),
            Goal::At(key) => (key, true),
            Goal::Below(key) => (key, false),
        };
        let (skip, low) = (link.skip(), node.low());
        if !self.is_true(node, seen, state) {
            return Ok(None);
        }
        if skip > 0 && low != 0 {
            let mut scratch = K::Scratch::default();
            // Words say nothing about a key with another beginning: it is behind them all.
            if K::common(self.keys.low_key(&self.pool, low, &mut scratch)?, key) < skip {
                return Ok(Some(Spot { position: tail, found: None }));
            }
        }
        let word = K::word(key, skip);
        let first = node.position(word, tail);
        let (mut alike, mut len) = ([0; SLOTS_MAX], 0);
        for slot in (first..tail).take_while(|&slot| node.key(slot) == word) {
            if state.has(slot) {
                alike[len] = slot;
                len += 1;
            }
        }
        let (mut from, mut to) = (0, len);
        while from < to {
            let (middle, slot) = ((from + to) / 2, alike[(from + to) / 2]);
            let payload = node.value(slot);
            if !self.is_true(node, seen, state) {
                return Ok(None);
            }
            match self.compare(link.level(), payload, key)? {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => {
                    return Ok(Some(Spot { position: slot, found: is_at.then_some(slot) }));
                }
            }
        }
        let position = if from == 0 { first } else { alike[from - 1] + 1 };
        Ok(Some(Spot { position, found: None }))
    }

    /// Compares the key of a record in a node of this level to another.
    pub(super) fn compare(
        &self,
        level: u32,
        payload: u64,
        key: &K::Key,
    ) -> Result<Ordering, IndexError> {
        if level == 0 {
            return self.keys.compare(&self.pool, Slot { word: 0, payload }, key);
        }
        self.keys.compare_low(&self.pool, self.node(payload)?.low(), key)
    }

    /// Returns the key of a record in a node of this level.
    pub(super) fn key<'a>(
        &self,
        level: u32,
        payload: u64,
        scratch: &'a mut K::Scratch,
    ) -> Result<&'a K::Key, IndexError> {
        if level == 0 {
            return self.keys.key(&self.pool, Slot { word: 0, payload }, scratch);
        }
        self.keys.low_key(&self.pool, self.node(payload)?.low(), scratch)
    }

    /// Returns the number of leading bytes that all keys from a low to that of the next node, which
    /// may be 0, share.
    pub(super) fn skip(&self, low: u64, next: u64) -> Result<usize, IndexError> {
        if low == 0 || next == 0 {
            return Ok(0);
        }
        let (mut one, mut other) = (K::Scratch::default(), K::Scratch::default());
        let one = self.keys.low_key(&self.pool, low, &mut one)?;
        let other = self.keys.low_key(&self.pool, self.node(next)?.low(), &mut other)?;
        Ok(Link::new(0, 0).with_skip(K::common(one, other)).skip())
    }

    /// Returns true if there is a next node; its low must be above that of this one.
    pub(super) fn has_next(&self, node: Node<'_, R>, link: Link) -> Result<bool, IndexError> {
        if K::WHOLE || link.next() == 0 {
            return self.high(node, link).map(|high| high.is_some());
        }
        let mut scratch = K::Scratch::default();
        let high = self.keys.low_key(&self.pool, self.node(link.next())?.low(), &mut scratch)?;
        if self.keys.compare_low(&self.pool, node.low(), high)?.is_lt() {
            return Ok(true);
        }
        Err(IndexError::damaged(link.next(), "its low key is not above that of the one before"))
    }
}
