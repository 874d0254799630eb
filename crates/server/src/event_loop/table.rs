//! The connections of one loop and the seats of their tenants, kept in step: what a connection
//! takes, its seat counts, and what has closed stands in no queue for long.
//!
//! The table neither reads nor executes anything. Its `impl` blocks lie in three files: here is
//! what keeps it consistent, in `buffers` the room that connections take, and in `waiting` the
//! queues of tenants whose account is empty.

use entresol_base::Nanos;
use entresol_service::tenant::ConnectionGuard;
use mio::net::TcpStream;

use super::ready::Ready;
use super::seats::LoopSeat;
use super::turn::After;
use crate::buffer::BufferPool;
use crate::connection::{Connection, Stream};
use crate::slab::{Key, Slab};
use crate::tls::TlsStream;

/// Reply to a client whose tenant is leaving.
const NOT_SERVED: &[u8] = b"SERVER_ERROR the tenant of this user is not served\r\n";
/// Reply to a client whose tenant has its maximum of connections.
pub(super) const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";

/// Connections and seats of one loop.
#[derive(Default)]
pub(super) struct Table {
    pub(super) connections: Slab<Connection>,
    /// Seats of the tenants by their places, which are the same in every loop.
    pub(super) seats: Vec<Option<LoopSeat>>,
    /// Connections that have work now.
    pub(super) ready: Ready,
    /// Places of the tenants whose connections hold much of their buffers.
    pub(super) tight: Vec<usize>,
    /// Buffers that connections borrow for their turns.
    pub(super) buffers: BufferPool,
    /// True if a connection may be stalled, or may have to be closed for not authenticating.
    pub(super) watched: bool,
}

impl Table {
    pub(super) fn seat(&self, place: usize) -> Option<&LoopSeat> {
        self.seats.get(place)?.as_ref()
    }

    pub(super) fn seat_mut(&mut self, place: usize) -> Option<&mut LoopSeat> {
        self.seats.get_mut(place)?.as_mut()
    }

    /// Takes a seat in at its place.
    pub(super) fn seat_at(&mut self, place: usize, seat: LoopSeat) {
        if self.seats.len() <= place {
            self.seats.resize_with(place + 1, || None);
        }
        let before = self.seats[place].as_ref().map(|seat| seat.name.clone());
        assert!(before.is_none(), "{} takes slot {place}, which {before:?} holds", seat.name);
        self.seats[place] = Some(seat);
    }

    /// Makes a stream that speaks TLS with the certificates of the tenant at `place`.
    pub(super) fn secure(&self, place: usize, tcp: TcpStream) -> Option<Stream> {
        let acceptor = self.seat(place)?.acceptor.as_ref()?;
        let stream = TlsStream::new(tcp, acceptor)?;
        Some(Stream::Tls(Box::new(stream)))
    }

    /// Counts a connection towards its tenant, if the tenant may have one more.
    pub(super) fn count_in(
        &self,
        place: usize,
        stream: &Stream,
        now: Nanos,
    ) -> Option<ConnectionGuard> {
        ConnectionGuard::new(&self.seat(place)?.seat.tenant, stream.peer(), now)
    }

    /// Puts a connection into the queue of those that have work, unless it is there already.
    #[inline]
    pub(super) fn enqueue(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push(key, connection);
        }
    }

    /// Does with a connection what its turn has led to.
    #[inline]
    pub(super) fn follow(&mut self, key: Key, after: After) {
        match after {
            After::Wait => {}
            After::Again => self.enqueue(key),
            After::Close => self.close(key),
        }
    }

    /// Notes that a connection may have stalled.
    #[inline]
    pub(super) fn watch(&mut self, key: Key) {
        let connection = self.connections.get(key);
        self.watched |= connection.is_some_and(|it| it.stalled_since.is_some());
    }

    /// Moves a connection to the seat of a tenant, unless it is there.
    pub(super) fn move_to(
        &mut self,
        key: Key,
        tenant: &str,
        now: Nanos,
    ) -> Result<(), &'static [u8]> {
        let is_it = |seat: &Option<LoopSeat>| {
            seat.as_ref().is_some_and(|seat| seat.name == *tenant && seat.is_open)
        };
        let place = self.seats.iter().position(is_it).ok_or(NOT_SERVED)?;
        let Some(connection) = self.connections.get(key) else { return Ok(()) };
        let (from, counted) = (connection.seat, connection.counted_bytes);
        if from == place {
            return Ok(());
        }
        let guard = self.count_in(place, &connection.stream, now).ok_or_else(|| {
            if let Some(seat) = self.seat(place) {
                seat.seat.counters.rejected_connections.count();
            }
            TOO_MANY_CONNECTIONS
        })?;
        if let Some(seat) = self.seat_mut(from) {
            seat.buffers.change(counted, 0);
        }
        if let Some(connection) = self.connections.get_mut(key) {
            (connection.seat, connection.guard, connection.counted_bytes) = (place, guard, 0);
        }
        Ok(())
    }

    /// Counts a password that was sent, or a client that has not sent the right one.
    pub(super) fn count_attempt(&self, key: Key, is_new: bool) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(seat) = self.seat(connection.seat) else { return };
        let counters = &seat.seat.counters;
        if is_new { counters.auth_cmds.count() } else { counters.auth_errors.count() }
    }

    /// Closes a connection. Closing its socket, which nothing else holds, ends its registration.
    pub(super) fn close(&mut self, key: Key) {
        if let Some(mut connection) = self.connections.remove(key) {
            connection.stream.say_goodbye();
            if connection.waiting {
                self.leave_waiting(connection.seat);
            }
            if let Some(seat) = self.seat_mut(connection.seat) {
                seat.buffers.change(connection.counted_bytes, 0);
            }
        }
    }
}
