//! Changes within one latched node.

use std::sync::atomic::Ordering::Release;

use entresol_media::Region;

use super::node::{HOLE, LINE_BYTES, Node, State};
use super::nodes::Shape;

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

impl<R: Region> Node<'_, R> {
    /// Adds a record at its position, if there is a hole at or right of it.
    #[inline]
    pub(super) fn put(
        self,
        shape: &Shape,
        state: State,
        position: usize,
        (key, value): (u64, u64),
    ) -> bool {
        let mut lines = Lines::new(self.region);
        // The hole just before the position is right of all lesser records as well.
        if position > 0 && !state.has(position - 1) {
            lines.put(self, position - 1, [key, value]);
            lines.finish();
            self.set_state(state.with_bits(state.bits() | 1 << (position - 1)));
            return true;
        }
        let hole = position + (state.bits() >> position).trailing_ones() as usize;
        if hole >= shape.records {
            return false;
        }
        for slot in (position..hole).rev() {
            lines.put(self, slot + 1, self.record(slot));
        }
        lines.put(self, position, [key, value]);
        lines.finish();
        self.set_state(state.with_bits(state.bits() | 1 << hole));
        true
    }

    /// Gives a record another value.
    pub(super) fn set_value(self, slot: usize, value: u64) {
        self.region.store_u64(self.value_at(slot), value, Release);
        self.region.persist(self.value_at(slot), 8);
    }

    /// Removes a record: in place its slot becomes a hole, otherwise the records behind it move.
    #[inline]
    pub(super) fn take(self, state: State, slot: usize, in_place: bool) {
        let mut lines = Lines::new(self.region);
        let mut last = slot;
        if !in_place {
            last = state.tail() - 1;
            for slot in slot..last {
                lines.put(self, slot, self.record(slot + 1));
            }
        }
        lines.clear(self, last);
        lines.finish();
        self.set_state(state.with_bits(state.bits() & !(1 << last)));
    }

    /// Moves all records to the left, so that there are holes behind them only.
    pub(super) fn compact(self, state: State) -> State {
        let mut lines = Lines::new(self.region);
        let (count, tail) = (state.count(), state.tail());
        let from = (0..tail).filter(|&slot| state.has(slot));
        for (slot, from) in from.enumerate().filter(|(slot, from)| slot != from) {
            lines.put(self, slot, self.record(from));
        }
        (count..tail).for_each(|slot| lines.clear(self, slot));
        lines.finish();
        let state = state.with_bits((1 << count) - 1);
        self.set_state(state);
        state
    }

    /// Makes a node's visible contents durable, and then holes of the chosen slots that have no
    /// record. In this order: a killed process may not have flushed the copy that counts, and the
    /// other, in another line, would be all that a crash leaves.
    pub(super) fn clear_settled(
        self,
        shape: &Shape,
        state: State,
        is_chosen: impl Fn(usize) -> bool,
    ) {
        self.region.persist(self.at, shape.node_bytes as usize);
        self.clear_rest(shape, state, is_chosen);
    }

    /// Makes holes of those chosen slots that have no record, durably.
    pub(super) fn clear_rest(self, shape: &Shape, state: State, is_chosen: impl Fn(usize) -> bool) {
        let mut lines = Lines::new(self.region);
        let rest = (0..shape.records).filter(|&slot| !state.has(slot) && is_chosen(slot));
        rest.filter(|&slot| !self.is_hole(slot)).for_each(|slot| lines.clear(self, slot));
        lines.finish();
    }

    /// Writes records behind all others. They do not count until a link is stored that lets them;
    /// older contents of the slots must not count then.
    pub(super) fn append(self, shape: &Shape, state: State, records: &[(u64, u64)]) -> State {
        let fits = state.tail() + records.len() <= shape.records;
        let state = if fits { state } else { self.compact(state) };
        let (tail, mut bits) = (state.tail(), state.bits());
        let mut lines = Lines::new(self.region);
        for (slot, &(key, value)) in (tail..).zip(records) {
            lines.put(self, slot, [key, value]);
            bits |= 1 << slot;
        }
        for slot in tail + records.len()..shape.records {
            if !self.is_hole(slot) {
                lines.clear(self, slot);
            }
        }
        lines.finish();
        state.with_bits(bits)
    }
}
