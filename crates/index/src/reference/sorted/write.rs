//! Changes within one latched node.

use std::sync::atomic::Ordering::Release;

use entresol_media::Region;

use super::node::{HOLE, LINE_BYTES, Node, State};
use super::{Style, Tree};
use crate::IndexError;
use crate::keys::Keys;

/// Stores of records into slots. Before stores go on in another line, the last one is made durable:
/// so of a record that is moved one copy or the other is durable at any time.
pub(super) struct Lines<'a, R> {
    region: &'a R,
    line: Option<u64>,
}

impl<'a, R: Region> Lines<'a, R> {
    pub(super) fn new(region: &'a R) -> Lines<'a, R> {
        Lines { region, line: None }
    }

    #[inline]
    fn enter(&mut self, at: u64) {
        let line = at / LINE_BYTES * LINE_BYTES;
        match self.line {
            Some(before) if before == line => {}
            Some(before) => {
                self.region.persist(before, LINE_BYTES as usize);
                self.line = Some(line);
            }
            None => self.line = Some(line),
        }
    }

    /// Puts a record into a slot: no record, then no record of another key, then this one.
    // Left to itself the compiler may call it for each slot: 1% of the instructions of all changes.
    #[inline(always)]
    pub(super) fn put(&mut self, node: Node<'_, R>, slot: usize, [key, value]: [u64; 2]) {
        self.enter(node.value_at(slot));
        self.region.replace_pair(node.key_at(slot), HOLE, [key, value]);
    }

    /// Makes a slot a hole, if it is none.
    #[inline(always)]
    pub(super) fn clear(&mut self, node: Node<'_, R>, slot: usize) {
        self.enter(node.value_at(slot));
        if !node.is_hole(slot) {
            self.region.store_u64(node.value_at(slot), HOLE, Release);
        }
    }

    /// Makes all stores durable.
    #[inline]
    pub(super) fn finish(self) {
        if let Some(line) = self.line {
            self.region.persist(line, LINE_BYTES as usize);
        }
    }
}

impl<R: Region, S: Style, K: Keys<R>> Tree<R, S, K> {
    /// Adds a record at its position, if there is a hole at or right of it.
    #[inline]
    pub(super) fn put(
        &self,
        node: Node<'_, R>,
        state: State,
        position: usize,
        (key, value): (u64, u64),
    ) -> bool {
        let mut lines = Lines::new(self.region());
        // The hole just before the position is right of all lesser records as well.
        if position > 0 && !state.has(position - 1) {
            lines.put(node, position - 1, [key, value]);
            lines.finish();
            node.set_state(state.with_bits(state.bits() | 1 << (position - 1)));
            return true;
        }
        let hole = position + (state.bits() >> position).trailing_ones() as usize;
        if hole >= self.shape.records {
            return false;
        }
        for slot in (position..hole).rev() {
            lines.put(node, slot + 1, node.record(slot));
        }
        lines.put(node, position, [key, value]);
        lines.finish();
        node.set_state(state.with_bits(state.bits() | 1 << hole));
        true
    }

    /// Gives a record another value.
    pub(super) fn set_value(&self, node: Node<'_, R>, slot: usize, value: u64) {
        self.region().store_u64(node.value_at(slot), value, Release);
        self.region().persist(node.value_at(slot), 8);
    }

    /// Removes a record, by making its slot a hole or by moving the records behind it.
    #[inline]
    pub(super) fn take(&self, node: Node<'_, R>, state: State, slot: usize) {
        let mut lines = Lines::new(self.region());
        let mut last = slot;
        if !S::IN_PLACE {
            last = state.tail() - 1;
            for slot in slot..last {
                lines.put(node, slot, node.record(slot + 1));
            }
        }
        lines.clear(node, last);
        lines.finish();
        node.set_state(state.with_bits(state.bits() & !(1 << last)));
    }

    /// Moves all records to the left, so that there are holes behind them only.
    pub(super) fn compact(&self, node: Node<'_, R>, state: State) -> State {
        let mut lines = Lines::new(self.region());
        let (count, tail) = (state.count(), state.tail());
        let from = (0..tail).filter(|&slot| state.has(slot));
        for (slot, from) in from.enumerate().filter(|(slot, from)| slot != from) {
            lines.put(node, slot, node.record(from));
        }
        (count..tail).for_each(|slot| lines.clear(node, slot));
        lines.finish();
        let state = state.with_bits((1 << count) - 1);
        node.set_state(state);
        state
    }

    /// Prepares a node from an earlier opening for use: finds its records, clears second copies
    /// that an interrupted change left, and makes all of it durable, since a killed process leaves
    /// visible stores that are not.
    #[cold]
    pub(super) fn settle(&self, at: u64) -> Result<(), IndexError> {
        let node = self.node(at)?;
        let _held = self.latches.lock(at);
        if node.state().is_of(self.opening) {
            return Ok(());
        }
        if !K::WHOLE {
            return self.settle_records(node);
        }
        let high = self.high(node, node.link())?;
        let low = node.low();
        let (mut bits, mut twice, mut greatest) = (0u32, 0u32, None);
        for slot in 0..self.shape.records {
            let key = node.key(slot);
            let is_here = key >= low && high.is_none_or(|high| key < high);
            if node.is_hole(slot) || !is_here {
                continue;
            }
            if greatest.is_none_or(|greatest| key > greatest) {
                (bits, greatest) = (bits | 1 << slot, Some(key));
            } else {
                // A second copy of a record that was being moved.
                twice |= 1 << slot;
            }
        }
        let state = State::new(self.opening, bits);
        self.clear_settled(node, state, |slot| twice >> slot & 1 == 1 || slot < state.tail());
        let mut before = low;
        for slot in 0..state.tail() {
            // Searches rely on the order of all keys. Those of holes need not be durable.
            if state.has(slot) {
                before = node.key(slot);
            } else {
                node.set_word(slot, before);
            }
        }
        if !S::IN_PLACE && state.count() < state.tail() {
            self.compact(node, state);
        } else {
            node.set_state(state);
        }
        Ok(())
    }

    /// Makes a node's visible contents durable, and then holes of the chosen slots that have no
    /// record. In this order: a killed process may not have flushed the copy that counts, and the
    /// other, in another line, would be all that a crash leaves.
    pub(super) fn clear_settled(
        &self,
        node: Node<'_, R>,
        state: State,
        is_chosen: impl Fn(usize) -> bool,
    ) {
        self.region().persist(node.at, self.shape.node_bytes as usize);
        self.clear_rest(node, state, is_chosen);
    }

    /// Makes holes of those chosen slots that have no record, durably.
    pub(super) fn clear_rest(
        &self,
        node: Node<'_, R>,
        state: State,
        is_chosen: impl Fn(usize) -> bool,
    ) {
        let mut lines = Lines::new(self.region());
        let rest = (0..self.shape.records).filter(|&slot| !state.has(slot) && is_chosen(slot));
        rest.filter(|&slot| !node.is_hole(slot)).for_each(|slot| lines.clear(node, slot));
        lines.finish();
    }
}
