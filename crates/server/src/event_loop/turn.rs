//! A connection's turn: the backlog is sent, then one read, the whole requests in it, one write.

use entresol_base::Nanos;
use entresol_service::executor::{Then, Turn};

use super::EventLoop;
use super::answers::Answered;
use super::seats::LoopSeat;
use crate::connection::{Connection, Transfer};
use crate::slab::Key;

/// Fate of a connection after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Wait,
    Again,
    Close,
}

impl EventLoop {
    /// Gives a connection its turn.
    pub(super) fn turn(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.queued = false;
        if connection.is_held() {
            return;
        }
        let after = self.advance(key);
        self.count_buffers(key);
        match after {
            After::Wait => {}
            After::Again => self.enqueue(key),
            After::Close => self.close(key),
        }
    }

    fn advance(&mut self, key: Key) -> After {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(key) else { return After::Wait };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return After::Close };
        if let Some(after) = send_backlog(connection, seat, now.nanos) {
            return after;
        }
        if connection.closing {
            return After::Close;
        }
        if seat.buffers.is_full() {
            return self.wait_for_buffers(key);
        }
        let has_work = connection.runnable || connection.readable;
        if has_work && !connection.called && seat.waiting.is_any() {
            self.join_waiting(key);
            return After::Wait;
        }
        if !connection.runnable && !receive(connection, seat, &mut self.buffers, now.nanos) {
            let ended = connection.half_closed && !connection.readable;
            return if ended { After::Close } else { self.finish(key) };
        }
        connection.debug_assert_answered();
        debug_assert!(self.output.holes.is_empty(), "holes of another connection's replies");
        self.output.bytes.clear();
        let turn = self.executor.run(
            connection.input.data(),
            &mut connection.session,
            &mut seat.seat,
            &seat.limits,
            now,
            &mut self.output,
        );
        connection.input.consume(turn.consumed);
        self.settle(key, turn)
    }

    /// Ends a turn after the execution: sends replies and decides how to go on.
    fn settle(&mut self, key: Key, turn: Turn) -> After {
        let now = self.now.nanos;
        let Some(connection) = self.connections.get_mut(key) else { return After::Wait };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return After::Close };
        connection.unanswered += turn.requests;
        if turn.consumed > 0 {
            connection.guard.client.is_active(now);
            connection.stalled_since = None;
        }
        connection.runnable = !matches!(turn.then, Then::Read { .. } | Then::Close);
        let mut throttled_until = None;
        match turn.then {
            Then::Read { needed } => {
                connection.needed = needed;
                if !connection.input.is_empty() || connection.session.is_swallowing() {
                    connection.stalled_since.get_or_insert(now);
                }
            }
            Then::Yield => seat.seat.counters.conn_yields.count(),
            Then::Park { until } => {
                connection.parked_until = Some(until);
                self.timers.park(key, until);
            }
            Then::Throttle { until } => throttled_until = Some(until),
            Then::Fetch(read) => seat.reads.fetch(key, connection, read),
            Then::Close => connection.closing = true,
        }
        self.buffers.settle(&mut connection.input);
        if self.output.holes.is_empty() {
            send(connection, seat, &self.output.bytes, now);
            self.count_answered(key);
        } else {
            debug_assert!(!connection.has_backlog(), "replies overtake earlier ones");
            std::mem::swap(&mut connection.output, &mut self.output);
            seat.reads.fill_holes(key, connection);
        }
        if let Some(until) = throttled_until {
            self.wait_for_account(key, until, turn.requests > 0);
        }
        self.finish(key)
    }

    /// Notes that a connection's requests have been answered.
    pub(super) fn count_answered(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let requests = std::mem::take(&mut connection.unanswered);
        if requests > 0 {
            let (seat, arrived) = (connection.seat, connection.arrived);
            self.answered.push(Answered { seat, arrived, requests });
        }
    }

    /// Ends the wait for reads: sends replies and decides how to go on.
    pub(super) fn finish_after_reads(&mut self, key: Key) {
        self.count_buffers(key);
        let now = self.now.nanos;
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(Some(seat)) = self.seats.get_mut(connection.seat) else { return };
        let after = send_backlog(connection, seat, now);
        match after.unwrap_or_else(|| self.finish(key)) {
            After::Wait => {}
            After::Again => self.enqueue(key),
            After::Close => self.close(key),
        }
    }

    fn finish(&mut self, key: Key) -> After {
        let Some(connection) = self.connections.get_mut(key) else { return After::Wait };
        if connection.is_held() || connection.has_backlog() {
            return After::Wait;
        }
        if connection.closing {
            return After::Close;
        }
        if connection.runnable || connection.readable {
            return After::Again;
        }
        if self.draining.is_some() { After::Close } else { After::Wait }
    }
}

/// Sends the replies that earlier turns have left; `None` if nothing is left now.
fn send_backlog(connection: &mut Connection, seat: &mut LoopSeat, now: Nanos) -> Option<After> {
    if !connection.has_backlog() {
        return None;
    }
    let before = connection.sent;
    let length = connection.output.bytes.len();
    let transfer = connection.flush();
    let sent = if connection.has_backlog() { connection.sent } else { length } - before;
    seat.seat.counters.bytes_written.add(sent as u64);
    if sent > 0 {
        connection.stalled_since = None;
    }
    match transfer {
        Transfer::Bytes(_) => None,
        Transfer::Blocked => {
            connection.stalled_since.get_or_insert(now);
            Some(After::Wait)
        }
        Transfer::Ended => Some(After::Close),
    }
}

/// Sends the turn's replies; bytes that the client does not take become its backlog.
fn send(connection: &mut Connection, seat: &mut LoopSeat, bytes: &[u8], now: Nanos) {
    if bytes.is_empty() {
        return;
    }
    let sent = match Transfer::of(connection.stream.write(bytes)) {
        Transfer::Bytes(sent) => sent,
        Transfer::Blocked => 0,
        Transfer::Ended => {
            connection.closing = true;
            return;
        }
    };
    seat.seat.counters.bytes_written.add(sent as u64);
    if let Some(rest) = bytes.get(sent..)
        && !rest.is_empty()
    {
        debug_assert!(connection.output.bytes.is_empty(), "replies follow others not yet sent");
        connection.output.bytes.extend_from_slice(rest);
        connection.sent = 0;
        connection.stalled_since.get_or_insert(now);
    }
}

/// Reads once; returns true if bytes arrived.
fn receive(
    connection: &mut Connection,
    seat: &mut LoopSeat,
    buffers: &mut crate::buffer::BufferPool,
    now: Nanos,
) -> bool {
    if !connection.readable {
        return false;
    }
    buffers.make_room(&mut connection.input, connection.needed);
    let room = connection.input.room();
    let offered = room.len();
    match Transfer::of(connection.stream.read(room)) {
        Transfer::Bytes(count) => {
            connection.input.filled(count);
            seat.seat.counters.bytes_read.add(count as u64);
            // A short read has emptied the socket; further bytes bring a new event.
            connection.readable = count == offered || connection.half_closed || count == 0;
            if count > 0 {
                connection.arrived = connection.readable_since;
                // Bytes still in the socket may have arrived by now, and were not seen before.
                connection.readable_since = now;
            }
            count > 0
        }
        Transfer::Blocked => {
            connection.readable = false;
            buffers.settle(&mut connection.input);
            false
        }
        Transfer::Ended => {
            connection.readable = false;
            connection.half_closed = true;
            buffers.settle(&mut connection.input);
            false
        }
    }
}
