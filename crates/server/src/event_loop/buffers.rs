//! Memory quota for the buffers of all of a tenant's connections.
//!
//! While it is used up, nothing more is executed for the tenant. Connections that have not moved
//! for a while are then closed, the largest first, so that slow clients cannot block the others.

use std::time::Duration;

use entresol_base::Nanos;

use super::EventLoop;
use super::turn::After;
use crate::slab::Key;

/// Delay before a connection that found the buffers full is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Minimum interval between searches for connections to close.
const SHED_EVERY: Duration = Duration::from_millis(100);
/// Time without progress after which a connection may be closed to make room.
const UNMOVED: Duration = Duration::from_secs(1);

/// A tenant's buffers in one loop, and the loop's share of the tenant's limit.
#[derive(Debug, Default)]
pub(super) struct BufferQuota {
    limit_bytes: usize,
    held_bytes: usize,
    shed_at: Nanos,
}

impl BufferQuota {
    /// Quota with a loop's share of a tenant's limit.
    pub(super) fn share(limit_bytes: usize, loops: usize) -> Self {
        let mut quota = BufferQuota::default();
        quota.set_share(limit_bytes, loops);
        quota
    }

    /// Changes the share to that of another limit.
    pub(super) fn set_share(&mut self, limit_bytes: usize, loops: usize) {
        self.limit_bytes = limit_bytes / loops.max(1);
    }

    pub(super) fn is_full(&self) -> bool {
        self.held_bytes > self.limit_bytes
    }

    /// Notes that a connection counted with `before` bytes now holds `after`.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        let held = self.held_bytes;
        debug_assert!(before <= held, "{before} bytes of a connection, {held} of all together");
        self.held_bytes = (self.held_bytes + after).saturating_sub(before);
    }
}

impl EventLoop {
    /// Counts the buffers that a connection now holds.
    pub(super) fn count_buffers(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let held = connection.held_bytes();
        if let Some(Some(seat)) = self.seats.get_mut(connection.seat) {
            seat.buffers.change(connection.counted_bytes, held);
            connection.counted_bytes = held;
        }
    }

    /// Parks a connection whose tenant's buffers are full, and now and then closes some to make
    /// room.
    pub(super) fn wait_for_buffers(&mut self, key: Key) -> After {
        let now = self.now.nanos;
        let Some(connection) = self.connections.get_mut(key) else { return After::Wait };
        let place = connection.seat;
        let until = now.after(LOOK_AGAIN);
        connection.parked_until = Some(until);
        self.timers.park(key, until);
        if let Some(Some(seat)) = self.seats.get_mut(place)
            && seat.buffers.shed_at <= now
        {
            seat.buffers.shed_at = now.after(SHED_EVERY);
            self.shed(place);
        }
        After::Wait
    }

    /// Closes connections of a tenant that have not moved, the largest first, until there is room.
    fn shed(&mut self, place: usize) {
        let now = self.now.nanos;
        let mut unmoved: Vec<(usize, Key)> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.seat == place && connection.reads == 0)
            .filter(|(_, connection)| {
                connection.stalled_since.is_some_and(|since| now.since(since) >= UNMOVED)
            })
            .map(|(key, connection)| (connection.counted_bytes, key))
            .collect();
        unmoved.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (_, key) in unmoved {
            let Some(Some(seat)) = self.seats.get_mut(place) else { return };
            if !seat.buffers.is_full() {
                return;
            }
            seat.seat.counters.buffer_kicks.count();
            self.close(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_has_its_share_and_counts_changes() {
        let mut quota = BufferQuota::share(1000, 4);
        quota.change(0, 250);
        assert!(!quota.is_full());
        quota.change(50, 51);
        assert!(quota.is_full());
        quota.change(251, 0);
        assert!(!quota.is_full());
    }
}
