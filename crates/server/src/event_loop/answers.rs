//! Response times: from the earliest time at which requests may have arrived to the end of the
//! round in which they were answered. One clock read ends a round for all of them.

use std::time::Duration;

use entresol_base::Nanos;

use super::EventLoop;

/// Wait for events beyond which the loop counts as having been idle.
const WAITED: Duration = Duration::from_micros(20);

/// Requests of one connection that were answered together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// Index of the tenant's seat.
    pub(super) seat: usize,
    /// Earliest time at which the last of them may have arrived.
    pub(super) arrived: Nanos,
    pub(super) requests: usize,
}

impl EventLoop {
    /// Begins a round. Bytes found now arrived during the wait or, if there was none, some time
    /// during the round before. In that case they count from the beginning of that round, so that
    /// waiting behind other connections is never left out.
    pub(super) fn begin_round(&mut self) {
        let nanos = self.clock.now();
        let waited = nanos.since(self.round_ended) > WAITED;
        self.arrival = if waited { nanos } else { self.now.nanos };
        self.now.seconds = self.timers.seconds(nanos, self.clock.as_ref());
        self.now.nanos = nanos;
    }

    /// Ends a round: every request answered in it took until now.
    pub(super) fn end_round(&mut self) {
        let now = self.clock.now();
        self.round_ended = now;
        for answered in self.answered.drain(..) {
            let Some(Some(seat)) = self.seats.get(answered.seat) else { continue };
            let took = now.since(answered.arrived);
            let requests = answered.requests as u64;
            seat.seat.latency.record(took, requests);
            if self.slow_log.is_slow(took) {
                seat.seat.counters.slow_requests.add(requests);
                self.slow_log.log(&seat.name, answered.requests, took, now);
            }
        }
    }
}
