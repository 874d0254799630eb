//! A connection's turn: the backlog is sent, then one read, the whole requests in it, one write.

use entresol_base::{Nanos, Seconds};
use entresol_service::Now;
use entresol_service::executor::{Executor, Output, Then, Turn};

use super::accounts::Accounts;
use super::entrance::Entrance;
use super::foreign::Foreign;
use super::large;
use super::ready::{Kind, Ready};
use super::rounds::Round;
use super::seats::LoopSeat;
use super::table::Table;
use super::timers::Parked;
use crate::buffer::TURN_BYTES;
use crate::connection::{Connection, Transfer};
use crate::slab::Key;

/// Time within which a client takes a reply that is larger than its socket's buffers, unless it is
/// slow.
const LATE: std::time::Duration = std::time::Duration::from_millis(10);
/// Bytes of a backlog that are sent in one turn while no other connection waits for its own.
const ALONE_BYTES: usize = 4 << 20;
/// Bytes of replies after which a short turn ends.
const SHORT_OUTPUT_BYTES: usize = 16 * 1024;

/// Memory of replies that a loop keeps for the next ones: more than replies with values of the
/// usual limits take.
const KEPT_OUTPUT_BYTES: usize = 32 << 20;

/// Connections that are served from a throttled tenant's queue before the others have their turn.
const CALLS_PER_ROUND: usize = 8;
/// Bytes of a read behind a value that was received into its place, and number of such reads: the
/// end of its request, and the beginning of the next one, which may have as large a value.
const SHORT_READ_BYTES: usize = 4096;
const SHORT_READS: u8 = 2;

/// Fate of a connection after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Wait,
    Again,
    Close,
}

/// Requests of one connection that were answered together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// Place of the tenant's seat.
    pub(super) seat: usize,
    /// Earliest time at which the last of them may have arrived.
    pub(super) arrived: Nanos,
    pub(super) requests: usize,
}

/// All that gives turns to connections, and what their turns leave for later.
#[derive(Default)]
pub(super) struct Turns {
    executor: Executor,
    /// Replies of the current turn.
    output: Output,
    pub(super) parked: Parked,
    pub(super) accounts: Accounts,
    /// Entrance of clients that must authenticate.
    pub(super) entrance: Entrance,
    /// Lines about clients that speak another protocol.
    foreign: Foreign,
    /// Requests answered in this round.
    pub(super) answered: Vec<Answered>,
}

impl Turns {
    /// Gives one turn to every connection that was in the queue when this began and whose last turn
    /// was small, and to as many new and as many other ones as the budgets allow, but at least one.
    pub(super) fn serve_ready(&mut self, table: &mut Table, round: &Round) {
        self.serve(table, round, Kind::Light);
        self.serve(table, round, Kind::Fresh);
        self.serve(table, round, Kind::Heavy);
    }

    #[inline]
    fn serve(&mut self, table: &mut Table, round: &Round, kind: Kind) {
        for _ in 0..table.ready.begin(kind) {
            let Some(key) = table.ready.next(kind) else { break };
            self.turn(table, round, key);
        }
    }

    /// Serves waiting connections of tenants whose account has device time again.
    pub(super) fn serve_throttled(&mut self, table: &mut Table, round: &Round) {
        let places = self.accounts.take();
        for &place in &places {
            self.call(table, round, place);
        }
        self.accounts.keep(places, table, round.now.nanos);
    }

    fn call(&mut self, table: &mut Table, round: &Round, place: usize) {
        for _ in 0..CALLS_PER_ROUND {
            let Some(seat) = table.seat_mut(place) else { return };
            if !seat.waiting.is_due(round.now.nanos) {
                return;
            }
            seat.waiting.until = None;
            let Some((key, is_leaving)) = seat.waiting.next() else { return };
            let Some(connection) = table.connections.get_mut(key) else { continue };
            if connection.half_closed != is_leaving {
                // The connection waits in the other queue.
                continue;
            }
            connection.waiting = false;
            connection.called = true;
            self.turn(table, round, key);
            if let Some(connection) = table.connections.get_mut(key) {
                connection.called = false;
            }
        }
    }

    /// Gives a connection its turn.
    fn turn(&mut self, table: &mut Table, round: &Round, key: Key) {
        let Some(connection) = table.connections.get_mut(key) else { return };
        connection.queued = false;
        if connection.is_held() {
            return;
        }
        let after = self.advance(table, round, key);
        table.count_buffers(key);
        table.watch(key);
        table.follow(key, after);
    }

    fn advance(&mut self, table: &mut Table, round: &Round, key: Key) -> After {
        let now = round.now;
        let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
        let Some(Some(seat)) = table.seats.get_mut(connection.seat) else { return After::Close };
        let sent = self.send_backlog(key, connection, seat, &mut table.ready, now.nanos);
        if let Some(after) = sent {
            return after;
        }
        if connection.closing {
            return After::Close;
        }
        if connection.stranger.is_some() {
            return self.entrance.enter(table, round, key);
        }
        let has_work = connection.runnable || connection.readable;
        let is_tight = seat.buffers.is_tight();
        if has_work && is_tight && connection.is_slow {
            return table.wait_for_room(key);
        }
        if has_work && !connection.called && seat.waiting.is_any() {
            table.join_waiting(key, false, now.nanos);
            return After::Wait;
        }
        if connection.session.waits_for_file() {
            connection.waits_for_file = true;
            return After::Wait;
        }
        let before = connection.input.data().len() + connection.session.arrived_bytes();
        if !connection.runnable && !receive(connection, seat, &mut table.buffers, now) {
            let ended = connection.half_closed && !connection.readable;
            if ended && let Some(cause) = connection.stream.take_failure() {
                self.foreign.log_failure(&cause, &seat.name, &connection.stream, now.nanos);
            }
            table.ready.charge(0, 0);
            return if ended { After::Close } else { finish(table, round, key) };
        }
        connection.debug_assert_answered();
        debug_assert!(self.output.holes.is_empty(), "holes of another connection's replies");
        self.output.clear();
        let received = connection.input.data().len() + connection.session.arrived_bytes() - before;
        let mut limits = seat.limits;
        // So little is known of a new client that its first turn is a short one.
        if std::mem::take(&mut connection.is_fresh) || is_tight {
            limits.output_bytes = limits.output_bytes.min(SHORT_OUTPUT_BYTES);
        }
        let turn = self.executor.run(
            connection.input.data(),
            &mut connection.session,
            &mut seat.seat,
            &limits,
            now,
            &mut self.output,
        );
        if turn.then == Then::Close && turn.requests == 0 {
            self.foreign.log(connection.input.data(), &seat.name, &connection.stream, now.nanos);
        }
        connection.input.consume(turn.consumed);
        let copied = if connection.session.is_copying() { TURN_BYTES } else { 0 };
        let moved = received + copied + self.output.len().min(TURN_BYTES);
        connection.is_light = table.ready.charge(moved, turn.requests) && turn.then != Then::Yield;
        self.settle(table, round, key, turn)
    }

    /// Ends a turn after the execution: sends replies and decides how to go on.
    fn settle(&mut self, table: &mut Table, round: &Round, key: Key, turn: Turn) -> After {
        let now = round.now.nanos;
        let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
        let Some(Some(seat)) = table.seats.get_mut(connection.seat) else { return After::Close };
        connection.unanswered += turn.requests;
        let goes_on = connection.session.is_listing() || connection.session.is_copying();
        if turn.consumed > 0 || goes_on {
            connection.guard.client.is_active(now);
            let trickles = connection.trickled > 0 && connection.session.is_arriving();
            if goes_on || !trickles {
                connection.stalled_since = None;
            }
        }
        connection.runnable = !matches!(turn.then, Then::Read { .. } | Then::Close);
        let (mut throttled_until, mut parked_until, mut makes_room) = (None, None, false);
        match turn.then {
            Then::Read { needed } => {
                connection.needed = needed;
                if !connection.input.is_empty() || connection.session.is_amid_request() {
                    connection.stalled_since.get_or_insert(now);
                }
            }
            Then::Yield => seat.seat.counters.conn_yields.count(),
            Then::Park { until } => parked_until = Some(until),
            Then::Throttle { until } => throttled_until = Some(until),
            Then::Fetch(read) => seat.reads.fetch(key, connection, read),
            Then::MakeRoom => makes_room = true,
            Then::AwaitFile => connection.waits_for_file = true,
            Then::Close => connection.closing = true,
        }
        if !makes_room {
            connection.lacks_room_since = None;
        }
        seat.reads.go_on(key, connection);
        table.buffers.settle(&mut connection.input);
        self.send_replies(table, key, now);
        if makes_room {
            parked_until = large::make_room(table, key, now);
        }
        if let Some(until) = parked_until {
            self.park(table, key, until);
        }
        if let Some(until) = throttled_until {
            self.accounts.wait(table, round, key, until, turn.requests > 0);
        }
        finish(table, round, key)
    }

    /// Sends the replies of an execution, or leaves them to the connection where they wait for a
    /// file or for the client.
    fn send_replies(&mut self, table: &mut Table, key: Key, now: Nanos) {
        let Some(connection) = table.connections.get_mut(key) else { return };
        let Some(Some(seat)) = table.seats.get_mut(connection.seat) else { return };
        if self.output.has_values() && self.output.holes.is_empty() {
            std::mem::swap(&mut connection.output, &mut self.output);
            (connection.moved_at, connection.backlog_since) = (now, now);
            connection.sent = 0;
            let sent = self.send_backlog(key, connection, seat, &mut table.ready, now);
            if let Some(After::Close) = sent {
                connection.output.clear();
                connection.closing = true;
            }
            // Those of a block file are answered once they have been read.
            if !connection.output.is_opening() {
                self.count_answered(table, key);
            }
        } else if self.output.holes.is_empty() {
            send(connection, seat, &mut self.output.bytes, now);
            if self.output.bytes.capacity() > KEPT_OUTPUT_BYTES {
                self.output.bytes = Vec::new();
            }
            self.count_answered(table, key);
        } else {
            debug_assert!(!connection.has_backlog(), "replies overtake earlier ones");
            std::mem::swap(&mut connection.output, &mut self.output);
            connection.sent = 0;
            fill_holes(key, connection, seat);
        }
    }

    /// Lets a connection wait for a moment.
    fn park(&mut self, table: &mut Table, key: Key, until: Nanos) {
        if let Some(connection) = table.connections.get_mut(key) {
            connection.parked_until = Some(until);
            self.parked.add(key, until);
        }
    }

    /// Notes that a connection's requests have been answered.
    fn count_answered(&mut self, table: &mut Table, key: Key) {
        let Some(connection) = table.connections.get_mut(key) else { return };
        let requests = std::mem::take(&mut connection.unanswered);
        if requests > 0 {
            let (seat, arrived) = (connection.seat, connection.arrived);
            self.answered.push(Answered { seat, arrived, requests });
        }
    }

    /// Ends the wait of a connection for its reads: sends replies and decides how to go on.
    pub(super) fn finish_after_reads(&mut self, table: &mut Table, round: &Round, key: Key) {
        self.count_answered(table, key);
        let now = round.now.nanos;
        let Some(connection) = table.connections.get_mut(key) else { return };
        let Some(Some(seat)) = table.seats.get_mut(connection.seat) else { return };
        (connection.moved_at, connection.backlog_since) = (now, now);
        let after = self.send_backlog(key, connection, seat, &mut table.ready, now);
        table.count_buffers(key);
        table.watch(key);
        let after = after.unwrap_or_else(|| finish(table, round, key));
        table.follow(key, after);
    }

    /// Sends the replies that earlier turns have left; `None` if nothing is left now.
    fn send_backlog(
        &mut self,
        key: Key,
        connection: &mut Connection,
        seat: &mut LoopSeat,
        ready: &mut Ready,
        now: Nanos,
    ) -> Option<After> {
        if !connection.has_backlog() {
            return None;
        }
        let before = connection.sent;
        let most = if ready.is_empty() { ALONE_BYTES } else { TURN_BYTES };
        if !connection.output.holes.is_empty() {
            return Some(fill_holes(key, connection, seat));
        }
        let mut has_room = seat.reads.read_ahead(key, connection, &seat.buffers);
        let transfer = connection.flush(most);
        if connection.sent > before {
            has_room = seat.reads.read_ahead(key, connection, &seat.buffers);
        }
        let sent = connection.sent - before;
        seat.seat.counters.bytes_written.add(sent as u64);
        if sent > 0 {
            connection.stalled_since = None;
            connection.moved_at = now;
        }
        match transfer {
            Transfer::Bytes(_) if connection.waits_for_file => {
                if !has_room {
                    connection.waits_for_file = false;
                    seat.buffers.wait_to_read(key, connection);
                }
                Some(After::Wait)
            }
            Transfer::Bytes(_) if connection.has_backlog() => {
                connection.is_light = ready.charge(sent, 0);
                Some(After::Again)
            }
            Transfer::Bytes(_) => {
                connection.is_slow = now.since(connection.backlog_since) > LATE;
                self.take_back(connection);
                None
            }
            Transfer::Blocked => {
                connection.stalled_since.get_or_insert(now);
                Some(After::Wait)
            }
            Transfer::Ended => {
                if let Some(value) = connection.output.damaged() {
                    seat.seat.worker.drop_damaged_pinned(value);
                }
                Some(After::Close)
            }
        }
    }

    /// Takes back the memory of replies that were sent, if it is more than the loop has for the
    /// next ones: the kernel need not clear it again.
    fn take_back(&mut self, connection: &mut Connection) {
        let mut bytes = std::mem::take(&mut connection.output.bytes);
        connection.output.clear();
        connection.sent = 0;
        let more = bytes.capacity() > self.output.bytes.capacity();
        if more && bytes.capacity() <= KEPT_OUTPUT_BYTES {
            bytes.clear();
            self.output.bytes = bytes;
        }
    }
}

/// Starts the reads that fill the holes of a connection's replies, once its tenant's buffers have
/// room for the beginnings of the large values among them.
fn fill_holes(key: Key, connection: &mut Connection, seat: &mut LoopSeat) -> After {
    if seat.reads.read_ahead(key, connection, &seat.buffers) {
        seat.reads.fill_holes(key, connection);
    } else {
        seat.buffers.wait_to_read(key, connection);
    }
    After::Wait
}

/// Decides how a connection goes on once its requests are answered.
fn finish(table: &mut Table, round: &Round, key: Key) -> After {
    let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
    if connection.is_held() {
        return After::Wait;
    }
    if connection.has_backlog() {
        return if connection.takes_more { After::Again } else { After::Wait };
    }
    if connection.closing {
        return After::Close;
    }
    if connection.runnable || connection.readable {
        return After::Again;
    }
    if round.drain.is_some() { After::Close } else { After::Wait }
}

/// Sends the turn's replies; bytes that the client does not take become its backlog.
fn send(connection: &mut Connection, seat: &mut LoopSeat, replies: &mut Vec<u8>, now: Nanos) {
    let offered = replies.get(..TURN_BYTES).unwrap_or(replies);
    if offered.is_empty() {
        return;
    }
    let sent = match Transfer::of(connection.stream.write(offered)) {
        Transfer::Bytes(sent) => sent,
        Transfer::Blocked => 0,
        Transfer::Ended => {
            connection.closing = true;
            return;
        }
    };
    seat.seat.counters.bytes_written.add(sent as u64);
    connection.is_slow = false;
    let rest = replies.get(sent..).unwrap_or_default();
    if rest.is_empty() {
        return;
    }
    debug_assert!(connection.output.bytes.is_empty(), "replies follow others not yet sent");
    connection.takes_more = sent == offered.len();
    // The backlog takes over the memory of the replies, unless most of that would be empty.
    if rest.len() >= replies.capacity() / 4 {
        std::mem::swap(&mut connection.output.bytes, replies);
        connection.sent = sent;
    } else {
        connection.output.bytes.extend_from_slice(rest);
        connection.sent = 0;
    }
    if !connection.takes_more {
        connection.stalled_since.get_or_insert(now);
    }
    (connection.moved_at, connection.backlog_since) = (now, now);
}

/// Reads once; returns true if bytes arrived.
fn receive(
    connection: &mut Connection,
    seat: &mut LoopSeat,
    buffers: &mut crate::buffer::BufferPool,
    now: Now,
) -> bool {
    if !connection.readable {
        return false;
    }
    let in_place = receive_in_place(connection, seat, now.seconds);
    let (transfer, offered) = match in_place {
        Some(received) => {
            connection.short_reads = SHORT_READS;
            received
        }
        None => {
            buffers.make_room(&mut connection.input, connection.needed);
            let mut room = connection.input.room();
            if connection.short_reads > 0 && room.len() > SHORT_READ_BYTES {
                room = &mut room[..SHORT_READ_BYTES];
                connection.short_reads -= 1;
            }
            let offered = room.len();
            let transfer = Transfer::of(connection.stream.read(room));
            if let Transfer::Bytes(count) = transfer {
                connection.input.filled(count);
            }
            (transfer, offered)
        }
    };
    match transfer {
        Transfer::Bytes(count) => {
            connection.note_received(count, now.nanos);
            seat.seat.counters.bytes_read.add(count as u64);
            // A short read has emptied the socket; further bytes bring a new event.
            connection.readable = count == offered
                || connection.half_closed
                || count == 0
                || connection.stream.has_ended();
            if count > 0 {
                connection.arrived = connection.readable_since;
                // Bytes still in the socket may have arrived by now, and were not seen before.
                connection.readable_since = now.nanos;
            }
            count > 0
        }
        Transfer::Blocked => {
            connection.readable = false;
            if connection.stream.is_amid_record() {
                connection.stalled_since.get_or_insert(now.nanos);
            }
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

/// Receives bytes of a large value into their place, if that is where the next ones belong. Returns
/// the outcome and how many bytes there was room for.
fn receive_in_place(
    connection: &mut Connection,
    seat: &mut LoopSeat,
    now: Seconds,
) -> Option<(Transfer, usize)> {
    if !connection.session.is_arriving() || !connection.input.is_empty() {
        return None;
    }
    let (session, socket) = (&mut connection.session, connection.stream.plain_socket()?);
    let received = session.receive(socket, TURN_BYTES, &mut seat.seat, now)?;
    // The room ends where the next piece begins, which says nothing about the socket.
    let offered = received.as_ref().copied().unwrap_or(0);
    Some((Transfer::of(received), offered))
}
