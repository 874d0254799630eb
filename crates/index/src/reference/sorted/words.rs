//! Words of keys that lie in records: made for new nodes, and made anew when a node's range changes
//! and when a node is first read in an opening. See the head of `records`.

use entresol_media::Region;

use super::Style;
use super::node::{Contents, Link, Node, SLOTS_MAX, State};
use super::nodes::Nodes;
use crate::IndexError;
use crate::keys::{Keys, Slot};

impl<R: Region, S: Style, K: Keys<R>> Nodes<R, S, K> {
    /// Makes the low of a node that begins with `right`, behind `left`.
    pub(super) fn low_between(
        &self,
        level: u32,
        left: (u64, u64),
        right: (u64, u64),
    ) -> Result<u64, IndexError> {
        if K::WHOLE {
            return Ok(right.0);
        }
        if level > 0 {
            return self.keys.copy_low(&self.pool, self.node(right.1)?.low());
        }
        // Words of different nodes do not compare: whole keys do.
        let slot = |payload| Slot { word: 0, payload };
        self.keys.make_low(&self.pool, slot(left.1), slot(right.1), 0)
    }

    /// [Makes](Nodes::make) a node, with words that suit it.
    pub(super) fn make_of_records(
        &self,
        link: Link,
        leftmost: u64,
        low: u64,
        records: &[(u64, u64)],
    ) -> Result<u64, IndexError> {
        let make = || {
            let skip = self.skip(low, link.next())?;
            let mut own = [(0, 0); SLOTS_MAX];
            own[..records.len()].copy_from_slice(records);
            let records = &mut own[..records.len()];
            self.give_words(link.level(), skip, records)?;
            let link = link.with_skip(skip);
            let at = self.pool.allocate(self.shape.node_bytes)?;
            let contents = Contents { opening: self.opening, link, leftmost, low, records };
            contents.write(self.region(), at, self.shape.node_bytes);
            Ok(at)
        };
        make().inspect_err(|_| self.keys.retire_low(&self.pool, low))
    }

    fn give_words(
        &self,
        level: u32,
        skip: usize,
        records: &mut [(u64, u64)],
    ) -> Result<(), IndexError> {
        let mut scratch = K::Scratch::default();
        for (word, payload) in records {
            *word = K::word(self.key(level, *payload, &mut scratch)?, skip);
        }
        Ok(())
    }

    /// Gives a latched node the words that suit its range.
    pub(super) fn reword(&self, node: Node<'_, R>) -> Result<(), IndexError> {
        self.reword_to(node, self.skip(node.low(), node.link().next())?)
    }

    fn reword_to(&self, node: Node<'_, R>, skip: usize) -> Result<(), IndexError> {
        let (link, state) = (node.link(), node.state());
        if link.skip() == skip {
            return Ok(());
        }
        let mut records = [(0, 0); SLOTS_MAX];
        let records = &mut records[..state.count()];
        records.iter_mut().zip(node.records(state)).for_each(|(slot, record)| *slot = record);
        self.give_words(link.level(), skip, records)?;
        Self::set_words(node, state, records);
        node.set_skip(skip);
        Ok(())
    }

    /// Stores the words of a node's records; those of holes keep the order.
    fn set_words(node: Node<'_, R>, state: State, records: &[(u64, u64)]) {
        let mut words = records.iter().map(|record| record.0);
        let mut word = 0;
        for slot in 0..state.tail() {
            if state.has(slot) {
                word = words.next().unwrap_or(word);
            }
            node.set_word(slot, word);
        }
    }

    /// Gives a node, and records that are to be put behind its own, words with one skip; `next` is
    /// the node behind them all.
    pub(super) fn make_comparable(
        &self,
        node: Node<'_, R>,
        next: u64,
        records: &mut [(u64, u64)],
    ) -> Result<(), IndexError> {
        let skip = self.skip(node.low(), next)?;
        self.give_words(node.link().level(), skip, records)?;
        self.reword_to(node, skip)
    }

    /// [Settles](Nodes::settle) a latched node.
    #[cold]
    pub(super) fn settle_records(&self, node: Node<'_, R>) -> Result<(), IndexError> {
        let (link, low) = (node.link(), node.low());
        let (level, skip) = (link.level(), self.skip(low, link.next())?);
        let high = if self.has_next(node, link)? { self.node(link.next())?.low() } else { 0 };
        let mut scratch = K::Scratch::default();
        let (mut records, mut len, mut bits) = ([(0, 0); SLOTS_MAX], 0, 0u32);
        for slot in (0..self.shape.records).filter(|&slot| !node.is_hole(slot)) {
            let payload = node.value(slot);
            let key = self.key(level, payload, &mut scratch)?;
            let is_here = self.keys.compare_low(&self.pool, low, key)?.is_le()
                && (high == 0 || self.keys.compare_low(&self.pool, high, key)?.is_gt());
            // The first of two copies of a record that was being moved counts.
            if is_here && (len == 0 || self.compare(level, records[len - 1].1, key)?.is_lt()) {
                records[len] = (K::word(key, skip), payload);
                (bits, len) = (bits | 1 << slot, len + 1);
            }
        }
        let state = State::new(self.opening, bits);
        node.clear_settled(&self.shape, state, |_| true);
        Self::set_words(node, state, &records[..len]);
        node.set_skip(skip);
        if !S::IN_PLACE && state.count() < state.tail() {
            node.compact(state);
        } else {
            node.set_state(state);
        }
        Ok(())
    }
}
