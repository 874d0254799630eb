//! Tenants whose account is empty or stopped: their connections stand in one queue per tenant, and
//! one of them, not all, asks when the account's time has come. So a throttled tenant costs the
//! loop what it executes and one question in a while, however many connections it has.

use std::collections::VecDeque;
use std::time::Duration;

use entresol_base::Nanos;

use super::EventLoop;
use crate::slab::Key;

/// Connections that are served from one queue before the others have their turn.
const CALLS_PER_ROUND: usize = 8;
/// Whoever waits asks again after this at the latest: a limit may be changed by somebody who does
/// not tell the loops.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// When nobody asks.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);

/// A tenant's connections that wait for its account, in one loop.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Key>,
    /// When the first of them may ask; none if nobody waits or somebody is being served.
    until: Option<Nanos>,
}

impl Waiting {
    /// Whether whoever comes now stands behind others.
    pub(super) fn is_any(&self) -> bool {
        self.until.is_some() || !self.queue.is_empty()
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

impl EventLoop {
    /// Lets a connection wait behind those of its tenant that wait already.
    pub(super) fn join_waiting(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return };
        connection.waiting = true;
        seat.waiting.queue.push_back(key);
        seat.seat.counters.throttled.count();
    }

    /// Lets a connection wait until its tenant's account has something again. Who was called and
    /// executed nothing keeps its place.
    pub(super) fn wait_for_account(&mut self, key: Key, until: Nanos, executed: bool) {
        let latest = self.now.nanos.after(ASK_AGAIN);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let place = connection.seat;
        let Some(Some(seat)) = self.seats.get_mut(place) else { return };
        connection.waiting = true;
        if connection.called && !executed {
            seat.waiting.queue.push_front(key);
        } else {
            seat.waiting.queue.push_back(key);
            seat.seat.counters.throttled.count();
        }
        let until = until.min(latest);
        seat.waiting.until = Some(until);
        self.question_at = self.question_at.min(until);
        if !self.throttled.contains(&place) {
            self.throttled.push(place);
        }
    }

    /// When the first waiting connection of any tenant may ask; never if there is none. Known
    /// without looking, so that a round in which nobody may ask costs the others a comparison.
    fn first_question(&self) -> Nanos {
        let seats = self.throttled.iter().filter_map(|place| self.seats.get(*place)?.as_ref());
        seats.map(|seat| seat.waiting.until.unwrap_or(self.now.nanos)).min().unwrap_or(NEVER)
    }

    /// Somebody has changed a limit: whoever waits may ask now.
    pub(super) fn ask_again(&mut self) {
        for &place in &self.throttled {
            if let Some(Some(seat)) = self.seats.get_mut(place) {
                seat.waiting.until = None;
            }
        }
        self.question_at = self.first_question();
    }

    /// Serves waiting connections of tenants whose account has something again.
    pub(super) fn serve_throttled(&mut self) {
        if self.question_at > self.now.nanos {
            return;
        }
        let mut places = std::mem::take(&mut self.throttled);
        for &place in &places {
            self.call(place);
        }
        places.retain(|place| {
            self.seats.get(*place).and_then(Option::as_ref).is_some_and(|s| s.waiting.is_any())
        });
        // Nobody else can have been throttled meanwhile: only these were served.
        self.throttled = places;
        self.question_at = self.first_question();
    }

    fn call(&mut self, place: usize) {
        for _ in 0..CALLS_PER_ROUND {
            let Some(Some(seat)) = self.seats.get_mut(place) else { return };
            if !seat.waiting.is_due(self.now.nanos) {
                return;
            }
            seat.waiting.until = None;
            let Some(key) = seat.waiting.queue.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.waiting = false;
            connection.called = true;
            self.turn(key);
            if let Some(connection) = self.connections.get_mut(key) {
                connection.called = false;
            }
        }
    }

    /// A connection that waited goes.
    pub(super) fn leave_waiting(&mut self, place: usize, key: Key) {
        if let Some(Some(seat)) = self.seats.get_mut(place) {
            seat.waiting.queue.retain(|waiting| *waiting != key);
        }
    }
}
