//! How long requests took: from the moment at which they can first have been there to the end of
//! the round in which they were answered. One clock read ends a round for everybody.

use std::time::Duration;

use entresol_base::Nanos;

use super::EventLoop;

/// A wait for events that took longer than this began with nothing to do.
const WAITED: Duration = Duration::from_micros(20);

/// Requests of one connection that were answered together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// The tenant's place.
    pub(super) seat: usize,
    /// When the last of them can first have arrived.
    pub(super) arrived: Nanos,
    pub(super) requests: usize,
}

impl EventLoop {
    /// Begins a round. What is found to have arrived came during the wait, or, if there was none,
    /// at some time during the round before: then it counts from that round's beginning, so that
    /// waiting behind others in the loop is never left out.
    pub(super) fn begin_round(&mut self) {
        let nanos = self.clock.now();
        let waited = nanos.since(self.round_ended) > WAITED;
        self.arrival = if waited { nanos } else { self.now.nanos };
        self.now.seconds = self.timers.seconds(nanos, self.clock.as_ref());
        self.now.nanos = nanos;
    }

    /// Ends a round: everything that was answered in it took until now.
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
