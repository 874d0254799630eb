//! Tenants whose account is empty or stopped: their connections stand in one queue per tenant, and
//! one of them, not all, asks when the account's time has come. So a throttled tenant costs the
//! loop what it executes and one question in a while, however many connections it has.
//!
//! A client that has closed its side may still read its answer, or may have given up: it is served
//! after all who have not, and not waited for longer than [`LEAVING_MAX`]. So a tenant whose
//! clients give up early spends its share on those who are still there.

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

/// So long who has closed its side is kept while others of its tenant are served.
pub(super) const LEAVING_MAX: Duration = Duration::from_secs(1);

/// A server that stops refuses who would wait for longer than it may take, but not before this: a
/// policy stops a tenant for a moment to see how fast another one is alone.
const REFUSED_AFTER: Duration = Duration::from_millis(200);
/// What whoever is refused gets to read.
const STOPPING: &[u8] = b"SERVER_ERROR the server is stopping\r\n";

/// When nobody asks.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);

/// A tenant's connections that wait for its account, in one loop.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Key>,
    /// How many at most stand in a queue and do not wait there any more.
    stale: usize,
    /// Those whose clients have closed their side, and since when they have been known to.
    leaving: VecDeque<(Nanos, Key)>,
    /// When the first of them may ask; none if nobody waits or somebody is being served.
    until: Option<Nanos>,
}

impl Waiting {
    /// Whether whoever comes now stands behind others.
    pub(super) fn is_any(&self) -> bool {
        self.until.is_some() || !self.queue.is_empty() || !self.leaving.is_empty()
    }

    /// Whoever is to be served next, and whether it is known to be leaving.
    fn next(&mut self) -> Option<(Key, bool)> {
        let staying = self.queue.pop_front().map(|key| (key, false));
        staying.or_else(|| self.leaving.pop_front().map(|(_, key)| (key, true)))
    }

    /// Takes the one out that has been leaving for longest, if that is since a moment or longer.
    fn take_left_since(&mut self, moment: Nanos) -> Option<Key> {
        let (_, key) = self.leaving.pop_front_if(|(since, _)| *since <= moment)?;
        Some(key)
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
        debug_assert!(!connection.waiting, "a connection waits in two places");
        connection.waiting = true;
        match connection.half_closed {
            true => seat.waiting.leaving.push_back((self.now.nanos, key)),
            false => seat.waiting.queue.push_back(key),
        }
        seat.seat.counters.throttled.count();
    }

    /// The client of a connection that waits has closed its side.
    pub(super) fn note_leaving(&mut self, key: Key) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return };
        seat.waiting.leaving.push_back((self.now.nanos, key));
        self.leave_waiting(connection.seat);
    }

    /// Closes the connection of a tenant that waits though its client has closed its side since a
    /// moment or longer; whether there was one.
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

    /// Lets a connection wait until its tenant's account has something again. Who was called and
    /// executed nothing keeps its place.
    pub(super) fn wait_for_account(&mut self, key: Key, until: Nanos, executed: bool) {
        let latest = self.now.nanos.after(ASK_AGAIN);
        let hopeless = self.draining.is_some_and(|end| until > end);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if hopeless && self.now.nanos.since(self.drain_began) >= REFUSED_AFTER {
            if !connection.has_backlog() {
                // The socket's buffer takes a line, or the client does not read anyway.
                let _ = connection.stream.write(STOPPING);
            }
            return self.close(key);
        }
        let place = connection.seat;
        let Some(Some(seat)) = self.seats.get_mut(place) else { return };
        debug_assert!(!connection.waiting, "a connection waits in two places");
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
        // Nobody else can have been throttled meanwhile: only these were served.
        debug_assert!(
            self.throttled.iter().all(|place| places.contains(place)),
            "{:?} wait for accounts, of whom only {places:?} are remembered",
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
                // It stands in the other queue.
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

    /// A connection that waited goes, or has joined those that are leaving. Where it stood is
    /// cleared now and then, so that thousands who go at once cost no more than each of them.
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

    /// Closes all connections that wait though their clients have closed their side since a moment
    /// or longer.
    pub(super) fn close_left_since(&mut self, moment: Nanos) {
        for place in 0..self.seats.len() {
            while self.close_leaving(place, moment) {}
        }
    }
}
