//! An event loop: a thread that waits for its sockets, block files and timers, and for nothing
//! else.
//!
//! Each wake-up reads the clock and gives every ready connection one turn: one read, the whole
//! requests in it, one write. All reads of block files that the turns asked for are then handed to
//! the system together. A second clock read tells how long the answers took. A connection with more
//! work than a turn allows queues up behind the others.

mod accounts;
mod buffers;
mod doors;
mod entrance;
mod foreign;
mod large;
mod orders;
mod reads;
mod ready;
mod rounds;
mod seats;
mod table;
mod timers;
mod turn;
mod waiting;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_service::config::ConnectionLimits;
use entresol_service::registry::Registry;
use entresol_service::slow_log::SlowLog;
use mio::{Events, Poll, Token, Waker};

pub(crate) use doors::keep_alive;
pub(crate) use entrance::Doorkeeper;
pub(crate) use orders::{LoopBell, LoopHandle, Order, start};

use crate::slab::Key;
use doors::Doors;
use orders::Mailbox;
use reads::Readings;
use rounds::Rounds;
use seats::Dismissals;
use table::Table;
use timers::Sweeper;
use turn::Turns;

/// Events taken from the system at a time.
const EVENTS_MAX: usize = 1024;
/// Token of the mailbox. Connections' tokens have the top bit set; sources' tokens lie below it.
const MAILBOX: Token = Token(usize::MAX >> 1);
const CONNECTION_BIT: usize = 1 << 63;

/// An event loop: its parts, and the order in which a round uses them.
pub(crate) struct EventLoop {
    /// Number of this loop.
    number: usize,
    mailbox: Arc<Mailbox>,
    limits: ConnectionLimits,
    slow_log: SlowLog,
    registry: Arc<Registry>,
    rounds: Rounds,
    doors: Doors,
    table: Table,
    turns: Turns,
    readings: Readings,
    sweeper: Sweeper,
    dismissals: Dismissals,
    /// Time at which the loop goes round at the latest, for work that it could not finish.
    wake_at: Option<Nanos>,
}

impl EventLoop {
    fn new(
        number: usize,
        poll: Poll,
        registry: Arc<Registry>,
        mailbox: Arc<Mailbox>,
        limits: ConnectionLimits,
        slow_log: SlowLog,
    ) -> Self {
        EventLoop {
            number,
            mailbox,
            limits,
            slow_log,
            rounds: Rounds::new(Arc::clone(&registry.clock)),
            registry,
            doors: Doors::new(number, poll),
            table: Table::default(),
            turns: Turns::default(),
            readings: Readings::new(number),
            sweeper: Sweeper::default(),
            dismissals: Dismissals::default(),
            wake_at: None,
        }
    }

    /// Runs until ordered to stop, and returns true; returns false if the loop cannot go on.
    fn run(mut self) -> bool {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.is_drained() {
            if let Err(error) = self.doors.wait(&mut events, self.patience()) {
                let thread = self.number;
                tracing::error!(thread, %error, "cannot wait for events; stopping this event loop");
                return false;
            }
            self.rounds.begin();
            for event in &events {
                self.dispatch(event);
            }
            self.go_round();
            self.end_round();
        }
        true
    }

    /// Does what there is to do now: first what has waited, then what is new, then what is left.
    fn go_round(&mut self) {
        let EventLoop { table, turns, doors, .. } = self;
        let round = &self.rounds.round;
        let now = round.now.nanos;
        if doors.is_accepting() {
            doors.accept(table, &turns.entrance, round);
        }
        turns.parked.wake(table, now);
        if turns.accounts.is_due(now) {
            turns.serve_throttled(table, round);
        }
        turns.serve_ready(table, round);
        let room_at = if table.tight.is_empty() { None } else { table.make_room(now) };
        if !self.dismissals.is_empty() {
            self.dismissals.go_on(table, doors, &mut turns.accounts);
        }
        if turns.entrance.has_work() {
            turns.entrance.go_on_expelling(table);
        }
        let reads_at = self.readings.submit(table, now);
        let later = self.wake_at.filter(|at| *at > now);
        self.wake_at = [later, room_at, reads_at].into_iter().flatten().min();
    }

    fn dispatch(&mut self, event: &mio::event::Event) {
        let Token(token) = event.token();
        if token & CONNECTION_BIT != 0 {
            self.notice(Key::unpack((token & !CONNECTION_BIT) as u64), event);
        } else if event.token() == MAILBOX {
            self.read_mailbox();
        } else if let Some(place) = self.doors.notice(Key::unpack(token as u64)) {
            let round = &self.rounds.round;
            for key in self.readings.reap(&mut self.table, place, round.now.nanos) {
                self.turns.finish_after_reads(&mut self.table, round, key);
            }
        }
    }

    /// Takes an event of a connection.
    fn notice(&mut self, key: Key, event: &mio::event::Event) {
        let round = &self.rounds.round;
        let Some(connection) = self.table.connections.get_mut(key) else { return };
        let over = event.is_read_closed() || event.is_error();
        let is_leaving = over && !connection.half_closed && connection.waiting;
        connection.half_closed |= over;
        if event.is_error() && connection.waiting {
            // The client has given up and will read no answer.
            return self.table.close(key);
        }
        if !connection.readable && (over || event.is_readable()) {
            connection.readable = true;
            connection.readable_since = round.arrival;
        }
        self.table.enqueue(key);
        if is_leaving {
            self.table.note_leaving(key, round.now.nanos);
        }
    }

    /// Time that the loop may wait for events.
    fn patience(&self) -> Option<Duration> {
        let has_work = !self.table.ready.is_empty()
            || !self.dismissals.is_empty()
            || self.turns.entrance.has_work();
        if has_work {
            return Some(Duration::ZERO);
        }
        let round = &self.rounds.round;
        let next = [
            self.turns.parked.next(),
            self.turns.accounts.next(),
            self.doors.next(),
            self.readings.next(),
            self.sweeper.next(),
            self.wake_at,
            round.drain.map(|drain| drain.until),
        ];
        let next = next.into_iter().flatten().min()?;
        Some(next.since(round.now.nanos))
    }

    /// Ends a round: every request answered in it took until now.
    fn end_round(&mut self) {
        let now = self.rounds.end();
        let answered = &mut self.turns.answered;
        if !answered.is_empty() {
            self.registry.note_activity();
        }
        for answered in answered.drain(..) {
            let Some(seat) = self.table.seat(answered.seat) else { continue };
            let took = now.since(answered.arrived);
            let requests = answered.requests as u64;
            seat.seat.latency.record(took, requests);
            if self.slow_log.is_slow(took) {
                seat.seat.counters.slow_requests.add(requests);
                self.slow_log.log(&seat.name, answered.requests, took, now);
            }
        }
        let now = self.rounds.round.now.nanos;
        self.doors.end_fault(now);
        self.readings.end_fault(now);
        let is_throttled = self.turns.accounts.is_any();
        self.sweeper.sweep(&mut self.table, &self.limits, is_throttled, now);
    }

    /// Returns true once a draining loop has answered all, or its time is over.
    fn is_drained(&self) -> bool {
        let round = &self.rounds.round;
        let is_over = |until: Nanos| self.table.connections.len() == 0 || until <= round.now.nanos;
        round.drain.is_some_and(|drain| is_over(drain.until))
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
