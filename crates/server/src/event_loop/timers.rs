//! Timers of a loop: they wake parked connections and close idle ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use entresol_base::{Clock, Nanos, Seconds};

use super::EventLoop;
use super::throttled::LEAVING_MAX;
use crate::slab::Key;

/// Interval between searches for idle and stalled connections.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Maximum age of the coarse clock.
const SECONDS_EVERY: Duration = Duration::from_millis(5);
/// Pause in accepting after the system has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Timers {
    parked: BinaryHeap<Reverse<(Nanos, Key)>>,
    next_sweep: Option<Nanos>,
    wake_at: Option<Nanos>,
    accept_at: Nanos,
    seconds: Seconds,
    seconds_read_at: Option<Nanos>,
}

impl Timers {
    /// Coarse time, read anew only when it may have changed.
    pub(super) fn seconds(&mut self, now: Nanos, clock: &dyn Clock) -> Seconds {
        let fresh = self.seconds_read_at.is_some_and(|read| now.since(read) < SECONDS_EVERY);
        if !fresh {
            self.seconds = clock.seconds();
            self.seconds_read_at = Some(now);
        }
        self.seconds
    }

    pub(super) fn park(&mut self, key: Key, until: Nanos) {
        self.parked.push(Reverse((until, key)));
    }

    /// Makes the loop go round at this time at the latest.
    pub(super) fn wake_at(&mut self, at: Nanos) {
        self.wake_at = Some(at);
    }

    pub(super) fn accept_at(&self) -> Nanos {
        self.accept_at
    }

    pub(super) fn pause_accepting(&mut self, now: Nanos) {
        self.accept_at = now.after(ACCEPT_PAUSE);
    }

    /// Next time at which a timer is due.
    pub(super) fn next(&self) -> Option<Nanos> {
        let parked = self.parked.peek().map(|Reverse((until, _))| *until);
        [parked, self.next_sweep, self.wake_at].into_iter().flatten().min()
    }
}

impl EventLoop {
    /// Enqueues parked connections whose time has come.
    pub(super) fn wake_parked(&mut self) {
        if self.timers.wake_at.is_some_and(|at| at <= self.now.nanos) {
            self.timers.wake_at = None;
        }
        while let Some(Reverse((until, key))) = self.timers.parked.peek().copied() {
            if until > self.now.nanos {
                break;
            }
            self.timers.parked.pop();
            if let Some(connection) = self.connections.get_mut(key) {
                connection.parked_until = None;
                self.enqueue(key);
            }
        }
    }

    /// Once a second, closes connections that are idle or make no progress.
    pub(super) fn sweep(&mut self) {
        let now = self.now.nanos;
        if self.connections.len() == 0 {
            self.timers.next_sweep = None;
            return;
        }
        let due = *self.timers.next_sweep.get_or_insert(now.after(SWEEP_EVERY));
        if due > now {
            return;
        }
        self.timers.next_sweep = Some(now.after(SWEEP_EVERY));
        self.close_left_since(Nanos(now.0.saturating_sub(LEAVING_MAX.as_nanos() as u64)));
        let (idle, progress) = (self.limits.idle_time, self.limits.progress_time);
        let over = |since: Nanos, limit: Duration| !limit.is_zero() && now.since(since) >= limit;
        let expired: Vec<Key> = self
            .connections
            .iter()
            .filter(|(_, connection)| !connection.is_held())
            .filter(|(_, connection)| match connection.stalled_since {
                Some(since) => over(since, progress),
                None => over(connection.guard.client.last_active(), idle),
            })
            .map(|(key, _)| key)
            .collect();
        for key in expired {
            if let Some(connection) = self.connections.get_mut(key)
                && let Some(Some(seat)) = self.seats.get(connection.seat)
            {
                seat.seat.counters.idle_kicks.count();
            }
            self.close(key);
        }
    }
}
