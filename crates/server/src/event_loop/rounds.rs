//! Rounds of a loop: when each began, and since when the bytes found in it may have been waiting.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{Clock, Nanos};
use entresol_service::Now;

/// Wait for events beyond which the loop counts as having been idle.
const WAITED: Duration = Duration::from_micros(20);
/// Maximum age of the coarse clock.
const SECONDS_EVERY: Duration = Duration::from_millis(5);

/// A round, as all that happens in it sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Now,
    /// Earliest time at which the bytes found in this round may have arrived.
    pub(super) arrival: Nanos,
    /// Set while the loop drains.
    pub(super) drain: Option<Drain>,
}

/// Period in which a loop that is to stop answers what has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) began: Nanos,
    /// Time at which the loop ends; it ends earlier if no connection is left.
    pub(super) until: Nanos,
}

/// Clock of a loop, and its current round.
pub(super) struct Rounds {
    clock: Arc<dyn Clock>,
    pub(super) round: Round,
    ended: Nanos,
    seconds_read_at: Option<Nanos>,
}

impl Rounds {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (nanos, seconds) = (clock.now(), clock.seconds());
        let now = Now { nanos, seconds };
        let round = Round { now, arrival: nanos, drain: None };
        Rounds { clock, round, ended: nanos, seconds_read_at: None }
    }

    /// Begins a round. Bytes found now arrived during the wait or, if there was none, some time
    /// during the round before. In that case they count from the beginning of that round, so that
    /// waiting behind other connections is never left out.
    pub(super) fn begin(&mut self) {
        let nanos = self.clock.now();
        let waited = nanos.since(self.ended) > WAITED;
        self.round.arrival = if waited { nanos } else { self.round.now.nanos };
        let is_fresh = |read: Nanos| nanos.since(read) < SECONDS_EVERY;
        if !self.seconds_read_at.is_some_and(is_fresh) {
            self.round.now.seconds = self.clock.seconds();
            self.seconds_read_at = Some(nanos);
        }
        self.round.now.nanos = nanos;
    }

    /// Ends a round, and returns the time of its end.
    pub(super) fn end(&mut self) -> Nanos {
        self.ended = self.clock.now();
        self.ended
    }

    /// Begins to drain.
    pub(super) fn drain(&mut self, within: Duration) {
        let began = self.round.now.nanos;
        self.round.drain = Some(Drain { began, until: began.after(within) });
    }
}
