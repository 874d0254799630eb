//! Connections that have work, and the order in which they have their turns.
//!
//! A connection whose last turn was small is served ahead of all others. New ones come next, and
//! then those with large turns; each of the two has a budget for each round, after which the loop
//! looks for new work. So a client with small requests waits for one round at most, and a new one
//! for few, however many clients ask for much.

use std::collections::VecDeque;

use crate::connection::Connection;
use crate::slab::Key;

/// Cost of the large turns of one round. Copying that much takes some 100 us, sending it as long.
const ROUND_COST: usize = 256 * 1024;
/// Maximum cost of a small turn.
const SMALL_COST: usize = 16 * 1024;
/// Cost of a turn, and of a request, besides the bytes that they move.
const CALL_COST: usize = 256;

/// Queues of connections that have work.
#[derive(Debug, Default)]
pub(super) struct Ready {
    light: VecDeque<Key>,
    /// Connections that have had no turn yet.
    fresh: VecDeque<Key>,
    heavy: VecDeque<Key>,
    /// Cost that the large turns of this round may still have.
    budget: usize,
}

impl Ready {
    pub(super) fn is_empty(&self) -> bool {
        self.light.is_empty() && self.fresh.is_empty() && self.heavy.is_empty()
    }

    pub(super) fn push(&mut self, key: Key, connection: &Connection) {
        let kind = match connection {
            Connection { is_light: true, .. } => Kind::Light,
            Connection { is_fresh: true, .. } => Kind::Fresh,
            _ => Kind::Heavy,
        };
        self.queue(kind).push_back(key);
    }

    #[inline]
    fn queue(&mut self, kind: Kind) -> &mut VecDeque<Key> {
        match kind {
            Kind::Light => &mut self.light,
            Kind::Fresh => &mut self.fresh,
            Kind::Heavy => &mut self.heavy,
        }
    }

    /// Begins to serve a queue with a new budget; returns the number of connections in it.
    #[inline]
    pub(super) fn begin(&mut self, kind: Kind) -> usize {
        self.budget = ROUND_COST;
        self.queue(kind).len()
    }

    /// Takes the connection of a queue that is served next, unless the budget is spent. Small
    /// turns have none, since all of them together are small.
    #[inline]
    pub(super) fn next(&mut self, kind: Kind) -> Option<Key> {
        let is_spent = self.budget == 0 && !matches!(kind, Kind::Light);
        if is_spent { None } else { self.queue(kind).pop_front() }
    }

    /// Charges a turn to the round; returns true if it was a small one.
    pub(super) fn charge(&mut self, bytes: usize, requests: usize) -> bool {
        let cost = bytes + CALL_COST * (1 + requests);
        self.budget = self.budget.saturating_sub(cost);
        cost <= SMALL_COST
    }
}

/// Queues of [`Ready`], in the order in which a round serves them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Light,
    Fresh,
    Heavy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_small_by_its_bytes_and_its_requests() {
        let mut ready = Ready { budget: ROUND_COST, ..Ready::default() };
        assert!(ready.charge(100, 1));
        assert!(ready.charge(8000, 30));
        assert!(!ready.charge(0, 64));
        assert!(!ready.charge(16 * 1024, 1));
        assert!(ready.budget < ROUND_COST);
        ready.charge(1 << 20, 1);
        assert_eq!(ready.budget, 0);
    }
}
