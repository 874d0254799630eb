//! Entrance of connections whose clients must authenticate, and their exit when a reload has
//! removed or changed their user.
//!
//! A claim is verified elsewhere. Meanwhile its connection waits, and holds no more than any
//! stranger.

use std::sync::Arc;

use entresol_base::Nanos;
use entresol_service::auth::{Claim, Gate, INPUT_BYTES_MAX, Step, User};
use entresol_service::verifiers::{Busy, Verifiers};

use super::foreign::Foreign;
use super::orders::LoopBell;
use super::rounds::Round;
use super::table::Table;
use super::turn::After;
use crate::buffer::{BufferPool, SMALL_REST_BYTES};
use crate::connection::{Connection, Stream, Transfer};
use crate::slab::Key;
use crate::stranger::Stranger;

/// Bytes of memory that a stranger may take.
const STRANGER_BYTES_MAX: usize = 32 * 1024;
// Its input goes out of the loop's large buffer whenever it waits, so that it keeps no more.
const _: () = assert!(INPUT_BYTES_MAX <= SMALL_REST_BYTES);
const _: () = assert!(
    INPUT_BYTES_MAX + size_of::<Connection>() + size_of::<Stranger>() <= STRANGER_BYTES_MAX
);

/// Cost of a step of a handshake in a round, as bytes moved: some 100 us of computation.
const HANDSHAKE_COST: usize = 128 * 1024;
/// Reply to a client whose certificate names no user.
const NO_USER: &[u8] = b"CLIENT_ERROR the certificate names no user\r\n";
/// Connections of removed users that are closed in one round.
const CLOSES_PER_ROUND: usize = 32;
/// Reply to a client whose claim cannot wait, since too many do.
const BUSY: &[u8] = b"SERVER_ERROR too many clients authenticate; try again\r\n";
/// Reply to a client whose claim is true.
const WELCOME: &[u8] = b"STORED\r\n";

/// Deciders on claims.
#[derive(Clone)]
pub(crate) struct Doorkeeper {
    pub(crate) gate: Arc<Gate>,
    pub(crate) verifiers: Arc<Verifiers>,
    /// Bell of the loop that asks.
    pub(crate) bell: LoopBell,
}

/// Decision on the claim of a connection.
pub(crate) struct Decision {
    key: Key,
    user: Option<Arc<User>>,
}

/// Entrance of one loop.
#[derive(Default)]
pub(super) struct Entrance {
    /// Deciders, if clients must authenticate.
    doorkeeper: Option<Doorkeeper>,
    /// Connections that must be closed.
    leaving: Vec<Key>,
    /// Lines about clients that speak another protocol.
    foreign: Foreign,
}

impl Entrance {
    /// State of a new connection.
    pub(super) fn stranger(&self, now: Nanos, is_tls: bool) -> Option<Box<Stranger>> {
        (is_tls || self.doorkeeper.is_some()).then(|| Stranger::new(now))
    }

    /// Returns true while connections must be closed.
    pub(super) fn has_work(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Lets only users of this doorkeeper in, and closes the connections of those whom it does not
    /// know.
    pub(super) fn guard(&mut self, table: &mut Table, doorkeeper: Doorkeeper) {
        let may_stay = |user: &Option<Arc<User>>, is_stranger: bool| match user {
            Some(user) => doorkeeper.gate.holds(user),
            None => is_stranger,
        };
        let mut leaving = Vec::new();
        for (key, connection) in table.connections.iter() {
            if !may_stay(&connection.user, connection.stranger.is_some()) {
                leaving.push(key);
            }
        }
        for key in &leaving {
            if let Some(connection) = table.connections.get_mut(*key) {
                // Nothing more is executed for it, however long its turn to be closed takes.
                connection.closing = true;
            }
        }
        self.leaving.extend(leaving);
        self.doorkeeper = Some(doorkeeper);
    }

    /// Closes some connections whose users may not stay.
    pub(super) fn go_on_expelling(&mut self, table: &mut Table) {
        let left = self.leaving.len().saturating_sub(CLOSES_PER_ROUND);
        for key in self.leaving.split_off(left) {
            table.close(key);
        }
    }

    /// Gives a turn to a connection whose client has not authenticated yet.
    pub(super) fn enter(&mut self, table: &mut Table, round: &Round, key: Key) -> After {
        loop {
            let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
            if let Stream::Tls(stream) = &mut connection.stream
                && !stream.is_secure()
            {
                match self.shake_hands(table, round, key) {
                    None => continue,
                    Some(after) => return after,
                }
            }
            let Some(stranger) = &mut connection.stranger else { return After::Again };
            if stranger.waits {
                return After::Wait;
            }
            let (consumed, step) = stranger.entry.step(connection.input.data());
            match step {
                Step::More => {
                    // The line may be dealt with before its data is there.
                    connection.input.consume(consumed);
                    if receive(connection, &mut table.buffers) > 0 {
                        continue;
                    }
                    table.buffers.settle(&mut connection.input);
                    let is_over = connection.half_closed && !connection.readable;
                    let is_over = is_over || round.drain.is_some();
                    return if is_over { After::Close } else { After::Wait };
                }
                Step::Reply(line) => {
                    connection.input.consume(consumed);
                    if !say(connection, line) {
                        return After::Close;
                    }
                }
                Step::Close(line) => {
                    self.log_foreign(table, key, round.now.nanos);
                    return turn_away(table, key, line);
                }
                Step::Verify(claim) => {
                    connection.input.consume(consumed);
                    return self.decide(table, round, key, claim);
                }
            }
        }
    }

    /// Goes on with a handshake. Returns none once it is done and the client has yet to say who it
    /// is.
    fn shake_hands(&mut self, table: &mut Table, round: &Round, key: Key) -> Option<After> {
        let Some(connection) = table.connections.get_mut(key) else { return Some(After::Wait) };
        let Stream::Tls(stream) = &mut connection.stream else { return None };
        let before = stream.received_bytes();
        let shaken = stream.shake_hands();
        if stream.received_bytes() > before {
            // Others have their turn between the computations of two handshakes.
            table.ready.charge(HANDSHAKE_COST, 0);
        }
        match shaken {
            Ok(true) => {}
            Ok(false) => {
                connection.readable = false;
                let is_over = connection.half_closed || round.drain.is_some();
                return Some(if is_over { After::Close } else { After::Wait });
            }
            Err(_) => {
                self.log_handshake(table, key, round.now.nanos);
                return Some(After::Close);
            }
        }
        // What the client has sent behind its part of the handshake is in the session already.
        connection.readable = true;
        let Some(doorkeeper) = &self.doorkeeper else {
            connection.stranger = None;
            return Some(welcome(table, round, key));
        };
        if !stream.names_user() {
            return None;
        }
        match stream.holder().and_then(|name| doorkeeper.gate.named(&name)) {
            Some(user) => Some(let_in(table, round, key, user, b"")),
            None => {
                table.count_attempt(key, false);
                Some(turn_away(table, key, NO_USER))
            }
        }
    }

    fn log_handshake(&mut self, table: &mut Table, key: Key, now: Nanos) {
        let Some(connection) = table.connections.get_mut(key) else { return };
        let Some(Some(seat)) = table.seats.get(connection.seat) else { return };
        if let Some(cause) = connection.stream.take_failure() {
            self.foreign.log_failure(&cause, &seat.name, &connection.stream, now);
        }
    }

    /// Lets a client in whose claim is known to be true, or has the claim verified.
    fn decide(&mut self, table: &mut Table, round: &Round, key: Key, claim: Claim) -> After {
        let Some(doorkeeper) = self.doorkeeper.clone() else { return After::Close };
        table.count_attempt(key, true);
        if let Some(user) = doorkeeper.gate.recall(&claim) {
            return let_in(table, round, key, user, WELCOME);
        }
        let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
        table.buffers.settle(&mut connection.input);
        if let Some(stranger) = &mut connection.stranger {
            stranger.waits = true;
        }
        let Doorkeeper { gate, verifiers, bell } = doorkeeper;
        let done = move |user| bell.decided(Decision { key, user });
        match verifiers.verify(gate, claim, done) {
            Ok(()) => After::Wait,
            Err(Busy) => turn_away(table, key, BUSY),
        }
    }

    /// Lets clients in whose claims were true, and refuses the others.
    pub(super) fn hear(&mut self, table: &mut Table, round: &Round, decisions: Vec<Decision>) {
        for Decision { key, user } in decisions {
            let Some(connection) = table.connections.get_mut(key) else { continue };
            if connection.closing {
                continue;
            }
            let Some(stranger) = &mut connection.stranger else { continue };
            stranger.waits = false;
            let gate = self.doorkeeper.as_ref().map(|it| &it.gate);
            // A reload may have come in between.
            let after = match user.filter(|user| gate.is_some_and(|gate| gate.holds(user))) {
                Some(user) => let_in(table, round, key, user, WELCOME),
                None => refuse(table, key),
            };
            table.count_buffers(key);
            table.follow(key, after);
        }
    }

    fn log_foreign(&mut self, table: &Table, key: Key, now: Nanos) {
        let Some(connection) = table.connections.get(key) else { return };
        let Some(seat) = table.seat(connection.seat) else { return };
        self.foreign.log(connection.input.data(), &seat.name, &connection.stream, now);
    }
}

/// Refuses a claim that is not true.
fn refuse(table: &mut Table, key: Key) -> After {
    table.count_attempt(key, false);
    let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
    let Some(stranger) = &mut connection.stranger else { return After::Wait };
    match stranger.entry.fail() {
        Step::Reply(line) if say(connection, line) => After::Again,
        Step::Close(line) => turn_away(table, key, line),
        _ => After::Close,
    }
}

/// Makes a connection its user's, who may have another tenant than the listener, and says `line`.
fn let_in(table: &mut Table, round: &Round, key: Key, user: Arc<User>, line: &[u8]) -> After {
    let now = round.now.nanos;
    if let Some(tenant) = &user.tenant
        && let Err(line) = table.move_to(key, tenant, now)
    {
        return turn_away(table, key, line);
    }
    let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
    connection.stranger = None;
    connection.user = Some(user);
    if !line.is_empty() && !say(connection, line) {
        return After::Close;
    }
    welcome(table, round, key)
}

/// Lets a connection that is no stranger any more begin.
fn welcome(table: &mut Table, round: &Round, key: Key) -> After {
    let Some(connection) = table.connections.get_mut(key) else { return After::Wait };
    connection.guard.client.is_active(round.now.nanos);
    connection.runnable = !connection.input.is_empty();
    if connection.runnable || connection.readable || connection.half_closed {
        return After::Again;
    }
    if round.drain.is_some() { After::Close } else { After::Wait }
}

/// Sends a last line to a client that is not let in.
pub(super) fn turn_away(table: &mut Table, key: Key, line: &[u8]) -> After {
    if let Some(connection) = table.connections.get_mut(key) {
        say(connection, line);
    }
    After::Close
}

/// Reads once, as much as a stranger may hold; returns the bytes that arrived.
fn receive(connection: &mut Connection, buffers: &mut BufferPool) -> usize {
    let room = INPUT_BYTES_MAX.saturating_sub(connection.input.data().len());
    if !connection.readable || room == 0 {
        return 0;
    }
    buffers.make_room(&mut connection.input, 1);
    let free = connection.input.room();
    let offered = room.min(free.len());
    let free = free.get_mut(..offered).unwrap_or_default();
    match Transfer::of(connection.stream.read(free)) {
        Transfer::Bytes(count) => {
            connection.input.filled(count);
            connection.readable = count == offered
                || connection.half_closed
                || count == 0
                || connection.stream.has_ended();
            count
        }
        Transfer::Blocked => {
            connection.readable = false;
            0
        }
        Transfer::Ended => {
            connection.readable = false;
            connection.half_closed = true;
            0
        }
    }
}

/// Sends a line; returns false if it does not fit, since a stranger is not waited for.
fn say(connection: &mut Connection, line: &[u8]) -> bool {
    match Transfer::of(connection.stream.write(line)) {
        Transfer::Bytes(sent) => sent == line.len(),
        Transfer::Blocked | Transfer::Ended => false,
    }
}
