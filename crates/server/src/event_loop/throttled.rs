//! Throttled tenants, whose account is empty or stopped.
//!
//! Their connections wait in one queue per tenant. One of them, not all, asks the account when it
//! is due, so a throttled tenant costs the loop its executed requests and an occasional question,
//! however many connections it has.
//!
//! A client that has closed its side may still read its answer, or may have given up. Its
//! connection is served after all others of the tenant, and kept for at most [`LEAVING_MAX`]. A
//! tenant whose clients give up early thus spends its share on those that stay.

use std::collections::VecDeque;
use std::time::Duration;

use entresol_base::Nanos;

use super::EventLoop;
use crate::slab::Key;

/// Connections that are served from one queue before the others have their turn.
const CALLS_PER_ROUND: usize = 8;
/// Maximum time before a waiting connection asks again. A limit may be changed without a word to
/// the loops.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Time for which a connection is kept whose client has closed its side, while others of its tenant
/// are served.
pub(super) const LEAVING_MAX: Duration = Duration::from_secs(1);

/// Minimum time before a stopping server refuses connections that would wait beyond its end. A
/// policy stops a tenant for a moment to see how fast another one is alone.
const REFUSED_AFTER: Duration = Duration::from_millis(200);
/// Reply to a connection that a stopping server refuses.
const STOPPING: &[u8] = b"SERVER_ERROR the server is stopping\r\n";

/// Time of a question that is never asked.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);

/// A tenant's connections that wait for its account, in one loop.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Key>,
    /// Upper bound of the entries whose connections no longer wait in that queue.
    stale: usize,
    /// Connections whose clients have closed their side, with the time at which the loop noticed.
    leaving: VecDeque<(Nanos, Key)>,
    /// Time at which the first may ask; none if no connection waits or one is being served.
    until: Option<Nanos>,
}

impl Waiting {
    /// Returns true if a new request has to queue up behind others.
    pub(super) fn is_any(&self) -> bool {
        self.until.is_some() || !self.queue.is_empty() || !self.leaving.is_empty()
    }

    /// Takes the connection to be served next, and whether its queue is that of leaving clients.
    fn next(&mut self) -> Option<(Key, bool)> {
        let staying = self.queue.pop_front().map(|key| (key, false));
        staying.or_else(|| self.leaving.pop_front().map(|(_, key)| (key, true)))
    }

    /// Takes the connection that has been leaving for longest, if it has since `moment` or earlier.
    fn take_left_since(&mut self, moment: Nanos) -> Option<Key> {
        let (_, key) = self.leaving.pop_front_if(|(since, _)| *since <= moment)?;
        Some(key)
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

impl EventLoop {
    /// Queues a connection behind those of its tenant that already wait.
    pub(super) fn join_waiting(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return };
        debug_assert!(!connection.waiting, "a connection waits in two queues");
        connection.waiting = true;
        match connection.half_closed {
            true => seat.waiting.leaving.push_back((self.now.nanos, key)),
            false => seat.waiting.queue.push_back(key),
        }
        seat.seat.counters.throttled.count();
    }

    /// Notes that the client of a waiting connection has closed its side.
    pub(super) fn note_leaving(&mut self, key: Key) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return };
        seat.waiting.leaving.push_back((self.now.nanos, key));
        self.leave_waiting(connection.seat);
    }

    /// Closes a waiting connection of a tenant whose client closed its side at `moment` or earlier.
    /// Returns true if there was one.
    pub(super) fn close_leaving(&mut self, place: usize, moment: Nanos) -> bool {
        while let Some(Some(seat)) = self.seats.get_mut(place)
            && let Some(key) = seat.waiting.take_left_since(moment)
        {
            if self.connections.get(key).is_some_and(|it| it.waiting && it.half_closed) {
                self.close(key);
                return true;
            }
        }
        false
    }

    /// Makes a connection wait until its tenant's account has device time again. A connection that
    /// was called and executed nothing keeps its place.
    pub(super) fn wait_for_account(&mut self, key: Key, until: Nanos, executed: bool) {
        let latest = self.now.nanos.after(ASK_AGAIN);
        let hopeless = self.draining.is_some_and(|end| until > end);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if hopeless && self.now.nanos.since(self.drain_began) >= REFUSED_AFTER {
            if !connection.has_backlog() {
                // The socket's buffer has room for a line, or the client does not read anyway.
                let _ = connection.stream.write(STOPPING);
            }
            return self.close(key);
        }
        let place = connection.seat;
        let Some(Some(seat)) = self.seats.get_mut(place) else { return };
        debug_assert!(!connection.waiting, "a connection waits in two queues");
        connection.waiting = true;
        let keeps_place = connection.called && !executed;
        match connection.half_closed {
            true => seat.waiting.leaving.push_back((self.now.nanos, key)),
            false if keeps_place => seat.waiting.queue.push_front(key),
            false => seat.waiting.queue.push_back(key),
        }
        if !keeps_place {
            seat.seat.counters.throttled.count();
        }
        let until = until.min(latest);
        seat.waiting.until = Some(until);
        self.question_at = self.question_at.min(until);
        if !self.throttled.contains(&place) {
            self.throttled.push(place);
        }
    }

    /// Time at which the first waiting connection of any tenant may ask, or [`NEVER`]. The loop
    /// keeps it, so that a round in which none may ask costs one comparison.
    fn first_question(&self) -> Nanos {
        let seats = self.throttled.iter().filter_map(|place| self.seats.get(*place)?.as_ref());
        seats.map(|seat| seat.waiting.until.unwrap_or(self.now.nanos)).min().unwrap_or(NEVER)
    }

    /// Lets all waiting connections ask now, since a limit has changed.
    pub(super) fn ask_again(&mut self) {
        for &place in &self.throttled {
            if let Some(Some(seat)) = self.seats.get_mut(place) {
                seat.waiting.until = None;
            }
        }
        self.question_at = self.first_question();
    }

    /// Serves waiting connections of tenants whose account has device time again.
    pub(super) fn serve_throttled(&mut self) {
        if self.question_at > self.now.nanos {
            return;
        }
        let mut places = std::mem::take(&mut self.throttled);
        for &place in &places {
            self.call(place);
        }
        // No other tenant can have been throttled meanwhile, since only these were served.
        debug_assert!(
            self.throttled.iter().all(|place| places.contains(place)),
            "{:?} wait for accounts, but only {places:?} are recorded",
            self.throttled
        );
        places.retain(|place| {
            self.seats.get(*place).and_then(Option::as_ref).is_some_and(|s| s.waiting.is_any())
        });
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
            let Some((key, is_leaving)) = seat.waiting.next() else { return };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if connection.half_closed != is_leaving {
                // The connection waits in the other queue.
                continue;
            }
            connection.waiting = false;
            connection.called = true;
            self.turn(key);
            if let Some(connection) = self.connections.get_mut(key) {
                connection.called = false;
            }
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

    /// Closes all waiting connections whose clients closed their side at `moment` or earlier.
    pub(super) fn close_left_since(&mut self, moment: Nanos) {
        for place in 0..self.seats.len() {
            while self.close_leaving(place, moment) {}
        }
    }
}
