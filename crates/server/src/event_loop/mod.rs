//! An event loop: a thread that waits for its sockets, block files and timers, and for nothing
//! else.
//!
//! Each wake-up reads the clock and gives every ready connection one turn: one read, the whole
//! requests in it, one write. All reads of block files that the turns asked for are then handed to
//! the system together. A second clock read tells how long the answers took. A connection with more
//! work than a turn allows queues up behind the others.

mod answers;
mod buffers;
mod orders;
mod reads;
mod seats;
mod throttled;
mod timers;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use entresol_base::{Clock, Nanos};
use entresol_service::Now;
use entresol_service::config::ConnectionLimits;
use entresol_service::executor::{Executor, Output};
use entresol_service::slow_log::SlowLog;
use mio::{Events, Poll, Token, Waker};

pub(crate) use orders::{LoopBell, LoopHandle, Order, start};

use crate::buffer::BufferPool;
use crate::connection::Connection;
use crate::slab::{Key, Slab};
use answers::Answered;
use orders::Mailbox;
use seats::{Dismissal, LoopSeat, Source};
use throttled::NEVER;
use timers::Timers;

/// Events taken from the system at a time.
const EVENTS_MAX: usize = 1024;
/// Token of the mailbox. Connections' tokens have the top bit set; sources' tokens lie below it.
const MAILBOX: Token = Token(usize::MAX >> 1);
const CONNECTION_BIT: usize = 1 << 63;

pub(crate) struct EventLoop {
    /// Number of this loop.
    number: usize,
    poll: Poll,
    clock: Arc<dyn Clock>,
    now: Now,
    mailbox: Arc<Mailbox>,
    limits: ConnectionLimits,
    slow_log: SlowLog,
    seats: Vec<Option<LoopSeat>>,
    /// Listeners and block files, by token.
    sources: Slab<Source>,
    connections: Slab<Connection>,
    /// Connections that have work now.
    ready: VecDeque<Key>,
    /// Listeners that may have more to accept.
    accepting: VecDeque<Key>,
    timers: Timers,
    /// Tenants that are leaving, whose connections are being closed.
    dismissals: Vec<Dismissal>,
    /// Seats of the tenants that have connections waiting for their account.
    throttled: Vec<usize>,
    /// Time at which the first of them may ask its account.
    question_at: Nanos,
    /// Earliest time at which the bytes found in this round may have arrived.
    arrival: Nanos,
    round_ended: Nanos,
    /// Requests answered in this round.
    answered: Vec<Answered>,
    executor: Executor,
    output: Output,
    buffers: BufferPool,
    /// Time at which a draining loop ends; it ends earlier if no connection is left.
    draining: Option<Nanos>,
    drain_began: Nanos,
    stopped: bool,
}

impl EventLoop {
    fn new(
        number: usize,
        poll: Poll,
        clock: Arc<dyn Clock>,
        mailbox: Arc<Mailbox>,
        limits: ConnectionLimits,
        slow_log: SlowLog,
    ) -> Self {
        let (nanos, seconds) = (clock.now(), clock.seconds());
        EventLoop {
            number,
            poll,
            clock,
            now: Now { nanos, seconds },
            mailbox,
            limits,
            slow_log,
            seats: Vec::new(),
            sources: Default::default(),
            connections: Default::default(),
            ready: Default::default(),
            accepting: Default::default(),
            timers: Timers::default(),
            dismissals: Vec::new(),
            throttled: Vec::new(),
            question_at: NEVER,
            arrival: nanos,
            round_ended: nanos,
            answered: Vec::new(),
            executor: Default::default(),
            output: Default::default(),
            buffers: Default::default(),
            draining: None,
            drain_began: nanos,
            stopped: false,
        }
    }

    /// Runs until ordered to stop, and returns true; returns false if the loop cannot go on.
    fn run(mut self) -> bool {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.stopped {
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                let thread = self.number;
                tracing::error!(thread, %error, "cannot wait for events; stopping this event loop");
                return false;
            }
            self.begin_round();
            for event in &events {
                self.dispatch(event);
            }
            self.accept_more();
            self.wake_parked();
            self.serve_throttled();
            self.serve_ready();
            self.go_on_dismissing();
            self.submit_reads();
            self.end_round();
            self.sweep();
            self.end_if_drained();
        }
        true
    }

    fn dispatch(&mut self, event: &mio::event::Event) {
        let Token(token) = event.token();
        if token & CONNECTION_BIT != 0 {
            let key = Key::unpack((token & !CONNECTION_BIT) as u64);
            let Some(connection) = self.connections.get_mut(key) else { return };
            let over = event.is_read_closed() || event.is_error();
            let is_leaving = over && !connection.half_closed && connection.waiting;
            connection.half_closed |= over;
            if event.is_error() && connection.waiting {
                // The client has given up and will read no answer.
                return self.close(key);
            }
            if !connection.readable && (over || event.is_readable()) {
                connection.readable = true;
                connection.readable_since = self.arrival;
            }
            self.enqueue(key);
            if is_leaving {
                self.note_leaving(key);
            }
        } else if event.token() == MAILBOX {
            self.read_mailbox();
        } else {
            let key = Key::unpack(token as u64);
            match self.sources.get_mut(key) {
                Some(Source::Reads { seat }) => {
                    let seat = *seat;
                    self.reap_reads(seat);
                }
                Some(_) => self.accepting.push_back(key),
                None => {}
            }
        }
    }

    /// Puts a connection into the queue, unless it is there already.
    fn enqueue(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push_back(key);
        }
    }

    /// Gives one turn to every connection that was in the queue when this began.
    fn serve_ready(&mut self) {
        for _ in 0..self.ready.len() {
            if let Some(key) = self.ready.pop_front() {
                self.turn(key);
            }
        }
    }

    /// Time that the loop may wait for events.
    fn patience(&self) -> Option<std::time::Duration> {
        if !self.ready.is_empty() || !self.dismissals.is_empty() {
            return Some(std::time::Duration::ZERO);
        }
        let accept_at = (!self.accepting.is_empty()).then_some(self.timers.accept_at());
        let question_at = (self.question_at != NEVER).then_some(self.question_at);
        let next = [self.timers.next(), question_at, accept_at, self.draining];
        let next = next.into_iter().flatten().min()?;
        Some(next.since(self.now.nanos))
    }

    fn end_if_drained(&mut self) {
        if let Some(deadline) = self.draining
            && (self.connections.len() == 0 || deadline <= self.now.nanos)
        {
            self.stopped = true;
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(mut connection) = self.connections.remove(key) {
            connection.stream.deregister(self.poll.registry());
            if connection.waiting {
                self.leave_waiting(connection.seat);
            }
            if let Some(Some(seat)) = self.seats.get_mut(connection.seat) {
                seat.buffers.change(connection.counted_bytes, 0);
            }
        }
    }
}

/// Token of a connection's events.
fn connection_token(key: Key) -> Token {
    Token(CONNECTION_BIT | key.pack() as usize)
}

/// Token of a source's events.
fn source_token(key: Key) -> Token {
    Token(key.pack() as usize)
}

fn new_waker(poll: &Poll) -> io::Result<Waker> {
    Waker::new(poll.registry(), MAILBOX)
}

#[cfg(test)]
pub(crate) mod tests;
