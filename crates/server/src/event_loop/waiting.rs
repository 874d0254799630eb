//! Connections that wait for their tenant's account, in one queue per tenant.
//!
//! A client that has closed its side may still read its answer, or may have given up. Its
//! connection is served after all others of the tenant, and kept for at most [`LEAVING_MAX`]. A
//! tenant whose clients give up early thus spends its share on those that stay.

use std::collections::VecDeque;
use std::time::Duration;

use entresol_base::Nanos;

use super::table::Table;
use crate::slab::Key;

/// Time for which a connection is kept whose client has closed its side, while others of its tenant
/// are served.
pub(super) const LEAVING_MAX: Duration = Duration::from_secs(1);

/// A tenant's connections that wait for its account, in one loop.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Key>,
    /// Upper bound of the entries whose connections no longer wait in that queue.
    stale: usize,
    /// Connections whose clients have closed their side, with the time at which the loop noticed.
    leaving: VecDeque<(Nanos, Key)>,
    /// Time at which the first may ask; none if no connection waits or one is being served.
    pub(super) until: Option<Nanos>,
}

impl Waiting {
    /// Returns true if a new request has to queue up behind others.
    pub(super) fn is_any(&self) -> bool {
        self.until.is_some() || !self.queue.is_empty() || !self.leaving.is_empty()
    }

    /// Takes the connection to be served next, and whether its queue is that of leaving clients.
    pub(super) fn next(&mut self) -> Option<(Key, bool)> {
        let staying = self.queue.pop_front().map(|key| (key, false));
        staying.or_else(|| self.leaving.pop_front().map(|(_, key)| (key, true)))
    }

    /// Takes the connection that has been leaving for longest, if it has since `moment` or earlier.
    fn take_left_since(&mut self, moment: Nanos) -> Option<Key> {
        let (_, key) = self.leaving.pop_front_if(|(since, _)| *since <= moment)?;
        Some(key)
    }

    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Puts a connection at the end of its queue, or at the front of it.
    fn push(&mut self, key: Key, place: Place, now: Nanos) {
        match place {
            Place::Leaving => self.leaving.push_back((now, key)),
            Place::First => self.queue.push_front(key),
            Place::Last => self.queue.push_back(key),
        }
    }
}

/// Place of a connection among those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind all others, since its client has closed its side.
    Leaving,
    /// Ahead of all others, since it was called in vain.
    First,
    /// Behind those that came before it.
    Last,
}

impl Table {
    /// Queues a connection with those of its tenant that wait, and counts it unless it was called
    /// in vain.
    pub(super) fn join_waiting(&mut self, key: Key, was_called_in_vain: bool, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return };
        debug_assert!(!connection.waiting, "a connection waits in two queues");
        connection.waiting = true;
        let place = match connection.half_closed {
            true => Place::Leaving,
            false if was_called_in_vain => Place::First,
            false => Place::Last,
        };
        seat.waiting.push(key, place, now);
        if !was_called_in_vain {
            seat.seat.counters.throttled.count();
        }
    }

    /// Notes that the client of a waiting connection has closed its side.
    pub(super) fn note_leaving(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get(key) else { return };
        let place = connection.seat;
        let Some(seat) = self.seat_mut(place) else { return };
        seat.waiting.push(key, Place::Leaving, now);
        self.leave_waiting(place);
    }

    /// Closes a waiting connection of a tenant whose client closed its side at `moment` or earlier.
    /// Returns true if there was one.
    pub(super) fn close_leaving(&mut self, place: usize, moment: Nanos) -> bool {
        while let Some(seat) = self.seat_mut(place)
            && let Some(key) = seat.waiting.take_left_since(moment)
        {
            if self.connections.get(key).is_some_and(|it| it.waiting && it.half_closed) {
                self.close(key);
                return true;
            }
        }
        false
    }

    /// Closes all waiting connections whose clients closed their side at `moment` or earlier.
    pub(super) fn close_left_since(&mut self, moment: Nanos) {
        for place in 0..self.seats.len() {
            while self.close_leaving(place, moment) {}
        }
    }

    /// Counts a stale entry: a waiting connection has closed or joined the leaving ones. The queues
    /// are cleaned only once half of their entries are stale, so that thousands of closes cost a
    /// constant each.
    pub(super) fn leave_waiting(&mut self, place: usize) {
        let Some(Some(seat)) = self.seats.get_mut(place) else { return };
        let Waiting { queue, leaving, stale, .. } = &mut seat.waiting;
        *stale += 1;
        if *stale * 2 <= queue.len() + leaving.len() {
            return;
        }
        *stale = 0;
        let waits = |key: Key, half_closed: bool| {
            let connection = self.connections.get(key);
            connection.is_some_and(|it| it.waiting && it.half_closed == half_closed)
        };
        queue.retain(|key| waits(*key, false));
        leaving.retain(|(_, key)| waits(*key, true));
    }
}
