//! Seats of the tenants in one loop, and the sources that wake the loop for them.

use std::io;
use std::sync::mpsc::Sender;

use entresol_protocol::Limits;
use entresol_service::config::ConnectionLimits;
use entresol_service::executor::TurnLimits;
use entresol_service::tenant::{ConnectionGuard, Seat, Tenant};
use mio::net::{TcpListener, UnixListener};
use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::buffers::BufferQuota;
use super::reads::Reads;
use super::throttled::Waiting;
use super::{EventLoop, connection_token, source_token};
use crate::connection::{Connection, Stream};
use crate::listener::LoopListeners;
use crate::slab::Key;

/// Connections accepted from one listener before others have their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections of a leaving tenant that are closed in one round. Closing a socket takes some ten
/// microseconds, and other tenants have their turn in between.
const CLOSES_PER_ROUND: usize = 32;
/// Reply to a client whose tenant has its maximum of connections.
const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";

/// A tenant's seat in one loop.
pub(super) struct LoopSeat {
    pub(super) seat: Seat,
    pub(super) name: String,
    pub(super) limits: TurnLimits,
    pub(super) reads: Reads,
    /// Memory quota of its connections' buffers in this loop.
    pub(super) buffers: BufferQuota,
    /// Connections that wait for the tenant's account.
    pub(super) waiting: Waiting,
    sources: Vec<Key>,
}

/// A tenant that is leaving, and the sender of the answer to its dismissal.
pub(super) struct Dismissal {
    place: usize,
    connections: Vec<Key>,
    answer: Sender<io::Result<()>>,
}

/// A source of events other than a connection.
pub(super) enum Source {
    Tcp { seat: usize, listener: TcpListener },
    Unix { seat: usize, listener: UnixListener },
    Reads { seat: usize },
}

/// Limits of a turn of a connection of `tenant`.
pub(super) fn turn_limits(tenant: &Tenant, limits: &ConnectionLimits) -> TurnLimits {
    let value_limit = tenant.cache().value_limit().0;
    TurnLimits {
        protocol: Limits {
            line_bytes_max: limits.request_line_bytes,
            multiget_line_bytes_max: limits.multiget_line_bytes,
            value_bytes_max: usize::try_from(value_limit).unwrap_or(usize::MAX),
            ..Limits::default()
        },
        requests: limits.requests_per_turn,
        output_bytes: limits.output_bytes,
        pending_reads: limits.pending_reads,
    }
}

impl EventLoop {
    /// Takes a tenant in at `place`.
    pub(super) fn admit(
        &mut self,
        place: usize,
        seat: Seat,
        listeners: LoopListeners,
    ) -> io::Result<()> {
        let reads = Reads::new(seat.tenant.cache().file())?;
        let mut sources = Vec::new();
        for listener in listeners.tcp {
            sources.push(self.sources.insert(Source::Tcp { seat: place, listener }));
        }
        for listener in listeners.unix {
            sources.push(self.sources.insert(Source::Unix { seat: place, listener }));
        }
        if reads.event_fd().is_some() {
            sources.push(self.sources.insert(Source::Reads { seat: place }));
        }
        if let Err(error) = sources.iter().try_for_each(|key| self.register(*key, &reads)) {
            for key in sources {
                self.remove_source(key);
            }
            return Err(error);
        }
        let limits = turn_limits(&seat.tenant, &self.limits);
        let loops = seat.tenant.server().threads;
        let buffers = BufferQuota::share(self.limits.buffers_bytes, loops);
        let name = seat.tenant.name();
        if self.seats.len() <= place {
            self.seats.resize_with(place + 1, || None);
        }
        let waiting = Waiting::default();
        let seat = LoopSeat { seat, name, limits, reads, buffers, waiting, sources };
        let before = self.seats[place].as_ref().map(|seat| seat.name.clone());
        assert!(before.is_none(), "{} takes slot {place}, which {before:?} holds", seat.name);
        self.seats[place] = Some(seat);
        Ok(())
    }

    fn register(&mut self, key: Key, reads: &Reads) -> io::Result<()> {
        let registry = self.poll.registry();
        let token: Token = source_token(key);
        match self.sources.get_mut(key) {
            Some(Source::Tcp { listener, .. }) => {
                registry.register(listener, token, Interest::READABLE)
            }
            Some(Source::Unix { listener, .. }) => {
                registry.register(listener, token, Interest::READABLE)
            }
            Some(Source::Reads { .. }) => match reads.event_fd() {
                Some(fd) => registry.register(&mut SourceFd(&fd), token, Interest::READABLE),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Closes a tenant's listeners, and then its connections, before its seat is given up.
    pub(super) fn begin_dismissal(&mut self, place: usize, answer: Sender<io::Result<()>>) {
        self.stop_listening(place);
        let theirs = self.connections.iter().filter(|(_, connection)| connection.seat == place);
        let connections = theirs.map(|(key, _)| key).collect();
        self.dismissals.push(Dismissal { place, connections, answer });
    }

    /// Closes some connections of a leaving tenant.
    pub(super) fn go_on_dismissing(&mut self) {
        let Some(dismissal) = self.dismissals.last_mut() else { return };
        let left = dismissal.connections.len().saturating_sub(CLOSES_PER_ROUND);
        let place = dismissal.place;
        for key in dismissal.connections.split_off(left) {
            self.close(key);
        }
        if left > 0 {
            return;
        }
        let left = self.connections.iter().filter(|(_, one)| one.seat == place).count();
        assert!(left == 0, "slot {place} is given up, but has {left} connections");
        self.throttled.retain(|throttled| *throttled != place);
        if let Some(seat) = self.seats.get_mut(place).and_then(Option::take) {
            for key in &seat.sources {
                self.remove_source(*key);
            }
        }
        if let Some(dismissal) = self.dismissals.pop() {
            // The controlling thread may have given up waiting.
            let _ = dismissal.answer.send(Ok(()));
        }
    }

    /// Closes a tenant's listeners; its reads go on.
    pub(super) fn stop_listening(&mut self, place: usize) {
        let Some(Some(seat)) = self.seats.get_mut(place) else { return };
        let reads = |key: &Key| matches!(self.sources.get(*key), Some(Source::Reads { .. }));
        let (stay, go) = std::mem::take(&mut seat.sources).into_iter().partition(reads);
        seat.sources = stay;
        for key in Vec::into_iter(go) {
            self.remove_source(key);
        }
    }

    /// Removes a source, and closes it if it is a listener.
    fn remove_source(&mut self, key: Key) {
        let registry = self.poll.registry();
        // A UNIX listener is shared with the other loops, so closing it would not end its
        // registration here.
        match self.sources.remove(key) {
            Some(Source::Tcp { mut listener, .. }) => drop(registry.deregister(&mut listener)),
            Some(Source::Unix { mut listener, .. }) => drop(registry.deregister(&mut listener)),
            Some(Source::Reads { .. }) | None => {}
        }
    }

    /// Puts changed limits into effect.
    pub(super) fn change_limits(&mut self, limits: ConnectionLimits) {
        self.limits = limits;
        for seat in self.seats.iter_mut().flatten() {
            seat.limits = turn_limits(&seat.seat.tenant, &limits);
            seat.buffers.set_share(limits.buffers_bytes, seat.seat.tenant.server().threads);
        }
    }

    /// Accepts from every listener that may have connections waiting.
    pub(super) fn accept_more(&mut self) {
        if self.timers.accept_at() > self.now.nanos {
            return;
        }
        for _ in 0..self.accepting.len() {
            let Some(key) = self.accepting.pop_front() else { return };
            match self.accept_from(key) {
                Ok(true) => self.accepting.push_back(key),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; retrying soon");
                    self.timers.pause_accepting(self.now.nanos);
                    self.accepting.push_back(key);
                    return;
                }
            }
        }
    }

    /// Accepts some connections; returns true if there may be more.
    fn accept_from(&mut self, key: Key) -> io::Result<bool> {
        for _ in 0..ACCEPTS_PER_TURN {
            let accepted = match self.sources.get_mut(key) {
                Some(Source::Tcp { seat, listener }) => listener.accept().map(|(stream, _)| {
                    // Without it, replies to small requests wait for the client's acknowledgement.
                    let _ = stream.set_nodelay(true);
                    (*seat, Stream::Tcp(stream))
                }),
                Some(Source::Unix { seat, listener }) => {
                    listener.accept().map(|(stream, _)| (*seat, Stream::Unix(stream)))
                }
                _ => return Ok(false),
            };
            match accepted {
                Ok((seat, stream)) => self.connect(seat, stream),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }

    /// Counts a connection towards its tenant, if the tenant may have one more.
    fn count_in(&self, place: usize, stream: &Stream) -> Option<ConnectionGuard> {
        let seat = self.seats.get(place)?.as_ref()?;
        ConnectionGuard::new(&seat.seat.tenant, stream.peer(), self.now.nanos)
    }

    fn connect(&mut self, place: usize, mut stream: Stream) {
        let guard = match self.count_in(place, &stream) {
            None if self.close_leaving(place, self.now.nanos) => self.count_in(place, &stream),
            guard => guard,
        };
        let Some(Some(seat)) = self.seats.get(place) else { return };
        let counters = &seat.seat.counters;
        let Some(guard) = guard else {
            counters.rejected_connections.count();
            // A new socket's send buffer has room for a line. If it has not, the client gets none.
            let _ = stream.write(TOO_MANY_CONNECTIONS);
            return;
        };
        counters.total_connections.count();
        let key = self.connections.insert(Connection::new(stream, place, guard));
        let Some(connection) = self.connections.get_mut(key) else { return };
        let token = connection_token(key);
        if let Err(error) = connection.stream.register(self.poll.registry(), token) {
            tracing::warn!(%error, "cannot watch a connection; closing it");
            self.close(key);
        }
    }
}
