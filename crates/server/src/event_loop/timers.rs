//! Timers of a loop: they wake parked connections and close idle ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_service::auth::TIMED_OUT;
use entresol_service::config::ConnectionLimits;

use super::entrance::turn_away;
use super::large;
use super::table::Table;
use super::waiting::LEAVING_MAX;
use crate::slab::Key;

/// Interval between searches for idle and stalled connections.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Connections that wait for a moment, the next one first.
#[derive(Debug, Default)]
pub(super) struct Parked {
    waiting: BinaryHeap<Reverse<(Nanos, Key)>>,
}

impl Parked {
    pub(super) fn add(&mut self, key: Key, until: Nanos) {
        self.waiting.push(Reverse((until, key)));
    }

    /// Time at which the first of them is to be woken.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.waiting.peek().map(|Reverse((until, _))| *until)
    }

    /// Enqueues connections whose time has come.
    pub(super) fn wake(&mut self, table: &mut Table, now: Nanos) {
        while let Some(Reverse((until, key))) = self.waiting.peek().copied() {
            if until > now {
                break;
            }
            self.waiting.pop();
            if let Some(connection) = table.connections.get_mut(key) {
                connection.parked_until = None;
                table.enqueue(key);
            }
        }
    }
}

/// Search for connections that have to be closed, once a second while there may be any.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    next: Option<Nanos>,
}

impl Sweeper {
    /// Time of the next search, if there is to be one.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.next
    }

    /// Closes connections that are idle or make no progress, if any can be and it is time.
    pub(super) fn sweep(
        &mut self,
        table: &mut Table,
        limits: &ConnectionLimits,
        is_throttled: bool,
        now: Nanos,
    ) {
        let is_needed = table.watched || !limits.idle_time.is_zero() || is_throttled;
        if table.connections.len() == 0 || !is_needed {
            self.next = None;
            return;
        }
        let due = *self.next.get_or_insert(now.after(SWEEP_EVERY));
        if due > now {
            return;
        }
        self.next = Some(now.after(SWEEP_EVERY));
        table.close_left_since(Nanos(now.0.saturating_sub(LEAVING_MAX.as_nanos() as u64)));
        close_late_strangers(table, limits, now);
        close_expired(table, limits, now);
        large::free_stalled(table, now);
        table.watched = table
            .connections
            .iter()
            .any(|(_, it)| it.stalled_since.is_some() || it.stranger.is_some());
    }
}

/// Closes connections whose clients have not authenticated in time.
fn close_late_strangers(table: &mut Table, limits: &ConnectionLimits, now: Nanos) {
    let late = table.connections.iter().filter_map(|(key, connection)| {
        let since = connection.stranger.as_ref()?.since;
        is_over(since, limits.auth_time, now).then_some(key)
    });
    for key in Vec::from_iter(late) {
        table.count_attempt(key, false);
        turn_away(table, key, TIMED_OUT);
        table.close(key);
    }
}

/// Closes connections that are idle or make no progress.
fn close_expired(table: &mut Table, limits: &ConnectionLimits, now: Nanos) {
    let expired: Vec<Key> = table
        .connections
        .iter()
        .filter(|(_, connection)| connection.stranger.is_none())
        .filter(|(_, connection)| !connection.is_held())
        .filter(|(_, connection)| match connection.stalled_since {
            Some(since) => is_over(since, limits.progress_time, now),
            None => is_over(connection.guard.client.last_active(), limits.idle_time, now),
        })
        .map(|(key, _)| key)
        .collect();
    for key in expired {
        if let Some(connection) = table.connections.get(key)
            && let Some(seat) = table.seat(connection.seat)
        {
            seat.seat.counters.idle_kicks.count();
        }
        table.close(key);
    }
}

/// Returns true if a limit that there is has passed.
fn is_over(since: Nanos, limit: Duration, now: Nanos) -> bool {
    !limit.is_zero() && now.since(since) >= limit
}
