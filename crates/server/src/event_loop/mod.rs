//! One event loop: a thread that waits for its sockets, its block files and its timers, and never
//! for anything else.
//!
//! Each wake-up reads the clock, gives every ready connection one turn (one read, the whole
//! requests in it, one write), then hands all reads of block files that the turns asked for to
//! the system together, and reads the clock again, to know how long the answers took. Who has more
//! to do than a turn allows stands in a queue behind the others.

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
use mio::{Events, Poll, Token, Waker};

pub(crate) use orders::{LoopBell, LoopHandle, Order, start};

use crate::buffer::BufferPool;
use crate::config::ConnectionLimits;
use crate::connection::Connection;
use crate::executor::{Executor, Now, Output};
use crate::slab::{Key, Slab};
use crate::slow_log::SlowLog;
use answers::Answered;
use orders::Mailbox;
use seats::{Dismissal, LoopSeat, Source};
use throttled::NEVER;
use timers::Timers;

/// Events taken from the system at a time.
const EVENTS_MAX: usize = 1024;
/// The token of the mailbox; connections' tokens have the top bit set, and below it lie sources.
const MAILBOX: Token = Token(usize::MAX >> 1);
const CONNECTION_BIT: usize = 1 << 63;

pub(crate) struct EventLoop {
    /// Which of the loops this is.
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
    /// Connections that have something to do now.
    ready: VecDeque<Key>,
    /// Listeners that may have more to accept.
    accepting: VecDeque<Key>,
    timers: Timers,
    /// Tenants that go, whose connections are being closed.
    dismissals: Vec<Dismissal>,
    /// Places of the tenants that have connections waiting for their account.
    throttled: Vec<usize>,
    /// When the first of them may ask its account.
    question_at: Nanos,
    /// When what this round finds can first have arrived.
    arrival: Nanos,
    round_ended: Nanos,
    /// What was answered in this round.
    answered: Vec<Answered>,
    executor: Executor,
    output: Output,
    buffers: BufferPool,
    /// The loop ends at this moment at the latest, and earlier if no connection is left.
    draining: Option<Nanos>,
    drain_began: Nanos,
    stopped: bool,
}

impl EventLoop {
    /// Runs until ordered to stop; whether it was.
    fn run(mut self) -> bool {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.stopped {
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                let thread = self.number;
                tracing::error!(thread, %error, "cannot wait for events; this event loop ends");
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
                // The client has given up, and nobody is there to read an answer.
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

    /// Puts a connection into the queue unless it stands there.
    fn enqueue(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push_back(key);
        }
    }

    /// One turn for everyone who stood in the queue when this began.
    fn serve_ready(&mut self) {
        for _ in 0..self.ready.len() {
            if let Some(key) = self.ready.pop_front() {
                self.turn(key);
            }
        }
    }

    /// How long the loop may wait for events.
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

/// What a connection's events are called.
fn connection_token(key: Key) -> Token {
    Token(CONNECTION_BIT | key.pack() as usize)
}

/// What a source's events are called.
fn source_token(key: Key) -> Token {
    Token(key.pack() as usize)
}

fn new_waker(poll: &Poll) -> io::Result<Waker> {
    Waker::new(poll.registry(), MAILBOX)
}
