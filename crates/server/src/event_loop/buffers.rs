//! Memory quota for the buffers of all of a tenant's connections.
//!
//! A client that takes what it asked for holds nothing between turns, so it is served however much
//! the others hold. Once three quarters of the quota are held, turns are short, and clients that
//! took their last reply late wait for room. Connections that have not moved for a second are then
//! closed, as many as it takes. Beyond the quota itself, connections are closed that have moved
//! more recently: those first that have kept the most bytes for the longest time.
//!
//! What is read ahead of large values on a block file counts before it is read. From three quarters
//! on a value has no more than the part that is sent next, and beyond the quota it waits; then
//! connections are closed like beyond the quota, until fewer than three quarters are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use entresol_base::Nanos;
use entresol_service::executor::ReadRoom;

use super::table::Table;
use super::turn::After;
use crate::connection::Connection;
use crate::slab::Key;

/// Interval between searches for connections to close while nothing forces one.
const SHED_EVERY: Duration = Duration::from_millis(100);
/// Time without progress after which a connection may be closed to make room.
const UNMOVED: Duration = Duration::from_secs(1);
/// Largest requests that a loop's share always has room for: a single client must be able to take
/// the largest value slowly, whatever the quota, while another one sends such a value into a buffer
/// that grows by doubling.
const LARGEST_REQUESTS: usize = 4;
/// Bytes of these at most. A share then still has room for half as much again as one of them, so
/// that a client by itself is never closed for the size of its value; for several with such values
/// the tenant's limit must provide.
const LARGEST_REQUESTS_BYTES: usize = 64 << 20;

/// A tenant's buffers in one loop, and the loop's share of the tenant's limit.
#[derive(Debug, Default)]
pub(super) struct BufferQuota {
    limit_bytes: usize,
    held_bytes: usize,
    /// Bytes that the tenant's connections hold in all loops together.
    total_bytes: Arc<AtomicUsize>,
    shed_at: Nanos,
    /// Connections that wait for room: those of slow clients, and those whose next bytes are still
    /// to be read.
    waiting: Vec<Key>,
    /// True if any of these is to read.
    lacks_reads: bool,
}

impl BufferQuota {
    /// Makes a quota that counts towards a tenant's total.
    pub(super) fn of(total_bytes: Arc<AtomicUsize>) -> Self {
        BufferQuota { total_bytes, ..BufferQuota::default() }
    }

    /// Sets the limit to a loop's share of a tenant's limit. `request_bytes` is the largest
    /// request.
    pub(super) fn set_share(&mut self, limit_bytes: usize, loops: usize, request_bytes: usize) {
        let several = request_bytes.saturating_mul(LARGEST_REQUESTS).min(LARGEST_REQUESTS_BYTES);
        let least = several.max(request_bytes.saturating_add(request_bytes / 2));
        self.limit_bytes = (limit_bytes / loops.max(1)).max(least);
    }

    /// Returns true if so much is held that slow clients must wait.
    pub(super) fn is_tight(&self) -> bool {
        self.held_bytes > self.tight_bytes()
    }

    fn tight_bytes(&self) -> usize {
        self.limit_bytes / 4 * 3
    }

    fn is_full(&self) -> bool {
        self.held_bytes > self.limit_bytes
    }

    /// Returns the room for reads of a connection counted with `before` bytes that now holds
    /// `now`. The first reads of one have room in any case while the quota is not tight: a quarter
    /// of it is more than they take.
    pub(super) fn room_of(&self, before: usize, now: usize) -> ReadRoom {
        let held = (self.held_bytes + now).saturating_sub(before);
        let spare = self.tight_bytes().saturating_sub(held);
        let is_tight = held > self.tight_bytes();
        let most = if is_tight { self.limit_bytes.saturating_sub(held) } else { usize::MAX };
        ReadRoom { most, spare }
    }

    /// Makes a connection wait until there is room for its reads.
    pub(super) fn wait_to_read(&mut self, key: Key, connection: &mut Connection) {
        // That it does not move is not its client's fault.
        (connection.waits_for_room, connection.stalled_since) = (true, None);
        self.waiting.push(key);
        self.lacks_reads = true;
    }

    /// Notes that a connection counted with `before` bytes now holds `after`.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        if before == after {
            return;
        }
        // The sum of all loops is never negative, but may wrap on its way.
        self.total_bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        let held = self.held_bytes;
        debug_assert!(before <= held, "{before} bytes of a connection, {held} of all together");
        self.held_bytes = (self.held_bytes + after).saturating_sub(before);
    }
}

/// A connection that may be closed to make room.
struct Candidate {
    key: Key,
    bytes: usize,
    unmoved: Duration,
}

impl Candidate {
    /// Bytes kept, times the time for which they did not move.
    fn burden(&self) -> u128 {
        self.bytes as u128 * self.unmoved.as_nanos()
    }
}

impl Table {
    /// Counts the buffers that a connection now holds.
    pub(super) fn count_buffers(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let held = connection.held_bytes();
        let place = connection.seat;
        if let Some(Some(seat)) = self.seats.get_mut(place) {
            seat.buffers.change(connection.counted_bytes, held);
            connection.counted_bytes = held;
            if seat.buffers.is_tight() && !self.tight.contains(&place) {
                self.tight.push(place);
            }
        }
    }

    /// Makes the connection of a slow client wait until its tenant's buffers have room.
    pub(super) fn wait_for_room(&mut self, key: Key) -> After {
        let Some(connection) = self.connections.get_mut(key) else { return After::Wait };
        if let Some(Some(seat)) = self.seats.get_mut(connection.seat) {
            connection.waits_for_room = true;
            seat.buffers.waiting.push(key);
        }
        After::Wait
    }

    /// Makes room in the buffers of tenants whose connections hold much, and wakes slow clients
    /// where there is room again. Returns the time by which it must be called again.
    pub(super) fn make_room(&mut self, now: Nanos) -> Option<Nanos> {
        let mut again_at = None;
        for place in std::mem::take(&mut self.tight) {
            self.shed(place, now);
            let Some(Some(seat)) = self.seats.get_mut(place) else { continue };
            if seat.buffers.is_tight() {
                if !seat.buffers.waiting.is_empty() {
                    again_at = Some(now.after(SHED_EVERY));
                }
                self.tight.push(place);
                continue;
            }
            seat.buffers.lacks_reads = false;
            for key in std::mem::take(&mut seat.buffers.waiting) {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.waits_for_room = false;
                }
                self.enqueue(key);
            }
        }
        again_at
    }

    /// Closes connections of a tenant: while slow clients have to wait, those that have not moved
    /// for a second, the largest first; while the quota is exceeded or another one needs room to
    /// read, others too.
    fn shed(&mut self, place: usize, now: Nanos) {
        let Some(Some(seat)) = self.seats.get_mut(place) else { return };
        let (is_full, lacks_reads) = (seat.buffers.is_full(), seat.buffers.lacks_reads);
        if !seat.buffers.is_tight() || (!is_full && seat.buffers.shed_at > now) {
            return;
        }
        seat.buffers.shed_at = now.after(SHED_EVERY);
        let stuck = self.connections.iter().filter(|(_, connection)| {
            connection.seat == place && connection.reads == 0 && connection.stalled_since.is_some()
        });
        let candidate = |(key, connection): (Key, &Connection)| Candidate {
            key,
            bytes: connection.counted_bytes,
            unmoved: now.since(connection.moved_at),
        };
        let (mut old, mut recent): (Vec<_>, Vec<_>) =
            stuck.map(candidate).partition(|candidate| candidate.unmoved >= UNMOVED);
        old.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.bytes));
        self.close_while(place, &old, BufferQuota::is_tight);
        recent.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.burden()));
        let is_over = if lacks_reads { BufferQuota::is_tight } else { BufferQuota::is_full };
        self.close_while(place, &recent, is_over);
    }

    /// Closes candidates in their order as long as the tenant's quota meets the condition.
    fn close_while(
        &mut self,
        place: usize,
        candidates: &[Candidate],
        condition: fn(&BufferQuota) -> bool,
    ) {
        for candidate in candidates {
            let Some(Some(seat)) = self.seats.get_mut(place) else { return };
            if !condition(&seat.buffers) {
                return;
            }
            seat.seat.counters.buffer_kicks.count();
            self.close(candidate.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(limit_bytes: usize, loops: usize, request_bytes: usize) -> BufferQuota {
        let mut quota = BufferQuota::default();
        quota.set_share(limit_bytes, loops, request_bytes);
        quota
    }

    #[test]
    fn a_loop_has_its_share_and_counts_changes() {
        let mut quota = share(1000, 4, 1);
        quota.change(0, 250);
        assert!(quota.is_tight() && !quota.is_full());
        quota.change(50, 51);
        assert!(quota.is_full());
        quota.change(251, 180);
        assert!(!quota.is_tight());
    }

    #[test]
    fn a_share_has_room_for_some_of_the_largest_requests() {
        let mut quota = share(1000, 4, 300);
        quota.change(0, 1200);
        assert!(!quota.is_full());
        quota.change(0, 1);
        assert!(quota.is_full());
    }

    #[test]
    fn very_large_requests_raise_a_share_by_little_more_than_one_takes() {
        for (request, least) in [(16 << 20, 64 << 20), (40 << 20, 64 << 20), (1 << 30, 3 << 29)] {
            let mut quota = share(1000, 4, request);
            quota.change(0, request);
            assert!(!quota.is_tight(), "{request}");
            quota.change(request, least);
            assert!(!quota.is_full(), "{request}");
            quota.change(0, 1);
            assert!(quota.is_full(), "{request}");
        }
    }
}
