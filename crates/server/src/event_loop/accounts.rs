//! Throttled tenants, whose account is empty or stopped.
//!
//! One connection of a tenant, not all, asks the account when it is due, so a throttled tenant
//! costs the loop its executed requests and an occasional question, however many connections it
//! has. [`Waiting`](super::waiting::Waiting) has their queue.

use std::time::Duration;

use entresol_base::Nanos;

use super::rounds::Round;
use super::table::Table;
use crate::slab::Key;

/// Maximum time before a waiting connection asks again. A limit may be changed without a word to
/// the loops.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Minimum time before a stopping server refuses connections that would wait beyond its end. A
/// policy stops a tenant for a moment to see how fast another one is alone.
const REFUSED_AFTER: Duration = Duration::from_millis(200);
/// Reply to a connection that a stopping server refuses.
const STOPPING: &[u8] = b"SERVER_ERROR the server is stopping\r\n";

/// Time of a question that is never asked.
const NEVER: Nanos = Nanos(u64::MAX);

/// Tenants that have connections waiting for their account.
pub(super) struct Accounts {
    /// Places of the tenants.
    places: Vec<usize>,
    /// Time at which the first of them may ask its account.
    question_at: Nanos,
}

impl Default for Accounts {
    fn default() -> Self {
        Accounts { places: Vec::new(), question_at: NEVER }
    }
}

impl Accounts {
    /// Returns true if a tenant is throttled.
    pub(super) fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// Time of the next question, if there is one to ask.
    pub(super) fn next(&self) -> Option<Nanos> {
        (self.question_at != NEVER).then_some(self.question_at)
    }

    /// Makes a connection wait until its tenant's account has device time again. A connection that
    /// was called and executed nothing keeps its place.
    pub(super) fn wait(
        &mut self,
        table: &mut Table,
        round: &Round,
        key: Key,
        until: Nanos,
        executed: bool,
    ) {
        let now = round.now.nanos;
        let is_hopeless = round
            .drain
            .is_some_and(|drain| until > drain.until && now.since(drain.began) >= REFUSED_AFTER);
        let Some(connection) = table.connections.get_mut(key) else { return };
        if is_hopeless {
            if !connection.has_backlog() {
                // The socket's buffer has room for a line, or the client does not read anyway.
                let _ = connection.stream.write(STOPPING);
            }
            return table.close(key);
        }
        let (place, was_called) = (connection.seat, connection.called);
        table.join_waiting(key, was_called && !executed, now);
        let Some(seat) = table.seat_mut(place) else { return };
        let until = until.min(now.after(ASK_AGAIN));
        seat.waiting.until = Some(until);
        self.question_at = self.question_at.min(until);
        if !self.places.contains(&place) {
            self.places.push(place);
        }
    }

    /// Lets all waiting connections ask now, since a limit has changed.
    pub(super) fn ask_again(&mut self, table: &mut Table, now: Nanos) {
        for &place in &self.places {
            if let Some(seat) = table.seat_mut(place) {
                seat.waiting.until = None;
            }
        }
        self.question_at = self.first_question(table, now);
    }

    /// Returns true if a tenant may ask its account now.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.question_at <= now
    }

    /// Takes the throttled tenants, to be served. They come back with [`Self::keep`].
    pub(super) fn take(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.places)
    }

    /// Keeps those of the tenants that are throttled still, after they were served.
    pub(super) fn keep(&mut self, mut places: Vec<usize>, table: &Table, now: Nanos) {
        // No other tenant can have been throttled meanwhile, since only these were served.
        debug_assert!(
            self.places.iter().all(|place| places.contains(place)),
            "{:?} wait for accounts, but only {places:?} are recorded",
            self.places
        );
        places.retain(|place| table.seat(*place).is_some_and(|seat| seat.waiting.is_any()));
        self.places = places;
        self.question_at = self.first_question(table, now);
    }

    /// Forgets a tenant, which has left.
    pub(super) fn forget(&mut self, place: usize) {
        self.places.retain(|throttled| *throttled != place);
    }

    /// Time at which the first waiting connection of any tenant may ask, or [`NEVER`]. It is kept,
    /// so that a round in which none may ask costs one comparison.
    fn first_question(&self, table: &Table, now: Nanos) -> Nanos {
        let seats = self.places.iter().filter_map(|place| table.seat(*place));
        seats.map(|seat| seat.waiting.until.unwrap_or(now)).min().unwrap_or(NEVER)
    }
}
