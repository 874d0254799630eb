//! Doors of a loop: the poll at which it waits, the tenants' listeners, through which connections
//! come, and the completions of their block files.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use entresol_base::Nanos;
use mio::net::{TcpListener, UnixListener};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use socket2::{SockRef, TcpKeepalive};

use super::entrance::Entrance;
use super::reads::Reads;
use super::rounds::Round;
use super::seats::LoopSeat;
use super::table::{TOO_MANY_CONNECTIONS, Table};
use super::{connection_token, source_token};
use crate::connection::{Connection, Stream};
use crate::fault::Fault;
use crate::listener::{LoopListeners, duplicate_tcp, duplicate_unix};
use crate::slab::{Key, Slab};

/// Connections accepted from one listener before others have their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause in accepting after the system has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time without a byte after which the kernel asks a peer whether it is there.
const ALIVE_AFTER: Duration = Duration::from_secs(60);
/// Interval between its further questions.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// A source of events other than a connection.
pub(super) enum Source {
    Tcp { seat: usize, listener: TcpListener, is_tls: bool },
    Unix { seat: usize, listener: UnixListener },
    Reads { seat: usize },
}

/// Lets the kernel find out that a peer has vanished without a word, as memcached does. A socket
/// that refuses is served nevertheless.
pub(crate) fn keep_alive(stream: &impl std::os::fd::AsFd) {
    let keepalive = TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Poll of one loop, with its listeners and block files.
pub(super) struct Doors {
    /// Number of the loop.
    thread: usize,
    poll: Poll,
    /// Listeners and block files, by token.
    pub(super) sources: Slab<Source>,
    /// Listeners that may have more to accept.
    accepting: VecDeque<Key>,
    /// Time before which nothing is accepted.
    accept_at: Nanos,
    /// Lines about connections that cannot be accepted.
    fault: Fault,
}

impl Doors {
    pub(super) fn new(thread: usize, poll: Poll) -> Self {
        Doors {
            thread,
            poll,
            sources: Slab::default(),
            accepting: VecDeque::new(),
            accept_at: Nanos::default(),
            fault: Fault::default(),
        }
    }

    /// Waits for events, for as long as `patience` says.
    pub(super) fn wait(
        &mut self,
        events: &mut Events,
        patience: Option<Duration>,
    ) -> io::Result<()> {
        match self.poll.poll(events, patience) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes in the sources of the tenant at `place`, all or none. Nothing is accepted yet.
    pub(super) fn add(
        &mut self,
        place: usize,
        listeners: LoopListeners,
        reads: &Reads,
    ) -> io::Result<Vec<Key>> {
        let mut sources = Vec::new();
        for listener in listeners.tcp {
            sources.push(self.sources.insert(Source::Tcp { seat: place, listener, is_tls: false }));
        }
        for listener in listeners.tls {
            sources.push(self.sources.insert(Source::Tcp { seat: place, listener, is_tls: true }));
        }
        for listener in listeners.unix {
            sources.push(self.sources.insert(Source::Unix { seat: place, listener }));
        }
        if reads.event_fd().is_some() {
            sources.push(self.sources.insert(Source::Reads { seat: place }));
        }
        if let Err(error) = sources.iter().try_for_each(|key| self.register(*key, reads)) {
            self.remove(&sources);
            return Err(error);
        }
        Ok(sources)
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

    /// Duplicates the listeners among these sources.
    pub(super) fn lend(&self, sources: &[Key]) -> io::Result<LoopListeners> {
        let mut lent = LoopListeners::default();
        for key in sources {
            match self.sources.get(*key) {
                Some(Source::Tcp { listener, is_tls, .. }) => {
                    let listeners = if *is_tls { &mut lent.tls } else { &mut lent.tcp };
                    listeners.push(duplicate_tcp(listener)?);
                }
                Some(Source::Unix { listener, .. }) => lent.unix.push(duplicate_unix(listener)?),
                Some(Source::Reads { .. }) | None => {}
            }
        }
        Ok(lent)
    }

    /// Begins to accept a tenant's connections, those among them that already wait.
    pub(super) fn open(&mut self, seat: &mut LoopSeat) {
        seat.is_open = true;
        self.accepting.extend(&seat.sources);
    }

    /// Closes a tenant's listeners; its reads go on.
    pub(super) fn stop_listening(&mut self, seat: &mut LoopSeat) {
        seat.is_open = false;
        let reads = |key: &Key| matches!(self.sources.get(*key), Some(Source::Reads { .. }));
        let (stay, go): (_, Vec<Key>) =
            std::mem::take(&mut seat.sources).into_iter().partition(reads);
        seat.sources = stay;
        self.remove(&go);
    }

    /// Removes sources, and closes those that are listeners.
    pub(super) fn remove(&mut self, sources: &[Key]) {
        for key in sources {
            // A UNIX listener is shared with the other loops, so closing it would not end its
            // registration here.
            match self.sources.remove(*key) {
                Some(Source::Tcp { mut listener, .. }) => {
                    drop(self.poll.registry().deregister(&mut listener));
                }
                Some(Source::Unix { mut listener, .. }) => {
                    drop(self.poll.registry().deregister(&mut listener));
                }
                Some(Source::Reads { .. }) | None => {}
            }
        }
    }

    /// Takes an event of a source. Returns the tenant's place if reads of its block file have
    /// completed.
    pub(super) fn notice(&mut self, key: Key) -> Option<usize> {
        match self.sources.get(key)? {
            Source::Reads { seat } => Some(*seat),
            Source::Tcp { .. } | Source::Unix { .. } => {
                self.accepting.push_back(key);
                None
            }
        }
    }

    /// Returns true if connections may wait to be accepted.
    #[inline]
    pub(super) fn is_accepting(&self) -> bool {
        !self.accepting.is_empty()
    }

    /// Time at which there may be something to do.
    pub(super) fn next(&self) -> Option<Nanos> {
        let accept_at = (!self.accepting.is_empty()).then_some(self.accept_at);
        [accept_at, self.fault.over_at()].into_iter().flatten().min()
    }

    /// Accepts from every listener that may have connections waiting.
    pub(super) fn accept(&mut self, table: &mut Table, entrance: &Entrance, round: &Round) {
        let now = round.now.nanos;
        if self.accept_at > now {
            return;
        }
        for _ in 0..self.accepting.len() {
            let Some(key) = self.accepting.pop_front() else { return };
            match self.accept_from(key, table, entrance, now) {
                Ok(true) => self.accepting.push_back(key),
                Ok(false) => {}
                Err(error) => {
                    if let Some(times) = self.fault.occurred(now) {
                        let thread = self.thread;
                        tracing::warn!(thread, %error, times, "cannot accept; retrying");
                    }
                    self.accept_at = now.after(ACCEPT_PAUSE);
                    self.accepting.push_back(key);
                    return;
                }
            }
        }
    }

    /// Accepts some connections; returns true if there may be more.
    fn accept_from(
        &mut self,
        key: Key,
        table: &mut Table,
        entrance: &Entrance,
        now: Nanos,
    ) -> io::Result<bool> {
        let place = match self.sources.get(key) {
            Some(Source::Tcp { seat, .. } | Source::Unix { seat, .. }) => *seat,
            _ => return Ok(false),
        };
        if !table.seat(place).is_some_and(|seat| seat.is_open) {
            return Ok(false);
        }
        for _ in 0..ACCEPTS_PER_TURN {
            let accepted = match self.sources.get_mut(key) {
                Some(Source::Tcp { listener, is_tls, .. }) => {
                    listener.accept().map(|(stream, _)| {
                        // Else replies to small requests wait for the client's acknowledgement.
                        let _ = stream.set_nodelay(true);
                        keep_alive(&stream);
                        if *is_tls {
                            table.secure(place, stream)
                        } else {
                            Some(Stream::Tcp(stream))
                        }
                    })
                }
                Some(Source::Unix { listener, .. }) => {
                    listener.accept().map(|(stream, _)| Some(Stream::Unix(stream)))
                }
                _ => return Ok(false),
            };
            match accepted {
                // A listener without certificates, of a configuration that was not read in full.
                Ok(None) => {}
                Ok(Some(stream)) => self.connect(table, place, stream, entrance, now),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }

    fn connect(
        &mut self,
        table: &mut Table,
        place: usize,
        mut stream: Stream,
        entrance: &Entrance,
        now: Nanos,
    ) {
        let guard = match table.count_in(place, &stream, now) {
            None if table.close_leaving(place, now) => table.count_in(place, &stream, now),
            guard => guard,
        };
        let Some(seat) = table.seat(place) else { return };
        let counters = &seat.seat.counters;
        let Some(guard) = guard else {
            counters.rejected_connections.count();
            // A new socket's send buffer has room for a line. If it has not, the client gets none.
            let _ = stream.write(TOO_MANY_CONNECTIONS);
            return;
        };
        counters.total_connections.count();
        let key = table.connections.insert(Connection::new(stream, place, guard));
        let Some(connection) = table.connections.get_mut(key) else { return };
        let is_tls = matches!(connection.stream, Stream::Tls(_));
        connection.stranger = entrance.stranger(now, is_tls);
        table.watched |= connection.stranger.is_some();
        if let Err(error) = self.watch(connection, connection_token(key)) {
            if let Some(times) = self.fault.occurred(now) {
                tracing::warn!(%error, times, "cannot watch a connection; closing it");
            }
            table.close(key);
        }
    }

    /// Waits for a connection's events as well.
    pub(super) fn watch(&self, connection: &mut Connection, token: Token) -> io::Result<()> {
        connection.stream.register(self.poll.registry(), token)
    }

    /// Logs the end of a fault.
    pub(super) fn end_fault(&mut self, now: Nanos) {
        if let Some(times) = self.fault.is_over(now) {
            tracing::info!(thread = self.thread, times, "connections can be accepted again");
        }
    }
}
