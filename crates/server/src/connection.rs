//! One client's connection: its socket, what it has sent and what it has yet to take.

use std::io::{self, Read, Write};

use entresol_base::Nanos;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::buffer::Buffer;
use crate::executor::{Output, Session};
use crate::tenant::ConnectionGuard;

/// A socket of either kind.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }

    /// Asks for news of the socket, once for its whole life: events come on edges only.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) {
        // The socket is about to be closed, which ends the registration in any case.
        let _ = registry.deregister(self.source());
    }

    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(room),
            Stream::Unix(stream) => stream.read(room),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    /// The peer, as `stats conns` shows it.
    pub(crate) fn peer(&self) -> String {
        match self {
            Stream::Tcp(stream) => match stream.peer_addr() {
                Ok(address) if address.is_ipv6() => format!("tcp6:{address}"),
                Ok(address) => format!("tcp:{address}"),
                Err(_) => "tcp:closed".to_owned(),
            },
            Stream::Unix(_) => "unix:client".to_owned(),
        }
    }
}

/// What a read or write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// So many bytes.
    Bytes(usize),
    /// Not now.
    Blocked,
    /// Never again.
    Ended,
}

impl Transfer {
    pub(crate) fn of(result: io::Result<usize>) -> Transfer {
        match result {
            Ok(0) => Transfer::Ended,
            Ok(count) => Transfer::Bytes(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Transfer::Blocked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Transfer::Bytes(0),
            Err(_) => Transfer::Ended,
        }
    }
}

/// A connection. An idle one holds no buffer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// The place of its tenant in the loop.
    pub(crate) seat: usize,
    pub(crate) session: Session,
    /// Received and not executed.
    pub(crate) input: Buffer,
    /// Bytes of input that the next request takes at least.
    pub(crate) needed: usize,
    /// Replies not taken yet, or with holes not filled yet.
    pub(crate) output: Output,
    /// How much of the output was sent.
    pub(crate) sent: usize,
    /// Reads from a block file under way for this connection.
    pub(crate) reads: usize,
    /// Bytes of buffers that its tenant's place in the loop counts for it.
    pub(crate) counted_bytes: usize,
    /// Nothing is executed before this moment.
    pub(crate) parked_until: Option<Nanos>,
    /// The input may hold a whole request: execute before reading.
    pub(crate) runnable: bool,
    /// The socket may hold bytes.
    pub(crate) readable: bool,
    /// The peer has closed its side: read until the end shows.
    pub(crate) half_closed: bool,
    /// Close as soon as the output is sent.
    pub(crate) closing: bool,
    /// Stands in the loop's queue.
    pub(crate) queued: bool,
    /// Since when a request has been incomplete or a reply not taken.
    pub(crate) stalled_since: Option<Nanos>,
    /// When what the socket holds can first have been there.
    pub(crate) readable_since: Nanos,
    /// When what was received last can first have been there.
    pub(crate) arrived: Nanos,
    /// Requests that were executed and not answered yet.
    pub(crate) unanswered: usize,
    /// Stands in the queue of those that wait for their tenant's account.
    pub(crate) waiting: bool,
    /// Has been called from that queue, and is being served.
    pub(crate) called: bool,
    /// Counts the connection out of its tenant when dropped.
    pub(crate) guard: ConnectionGuard,
}

impl Connection {
    pub(crate) fn new(stream: Stream, seat: usize, guard: ConnectionGuard) -> Self {
        Connection {
            stream,
            seat,
            session: Session::default(),
            input: Buffer::default(),
            needed: 1,
            output: Output::default(),
            sent: 0,
            reads: 0,
            counted_bytes: 0,
            parked_until: None,
            runnable: false,
            readable: false,
            half_closed: false,
            closing: false,
            queued: false,
            stalled_since: None,
            readable_since: Nanos(0),
            arrived: Nanos(0),
            unanswered: 0,
            waiting: false,
            called: false,
            guard,
        }
    }

    /// Whether replies wait to be sent.
    pub(crate) fn has_backlog(&self) -> bool {
        self.sent < self.output.bytes.len()
    }

    /// Before more is executed, everything before it was answered and handed to the socket: so
    /// every request gets one answer, and answers keep the order of their requests.
    pub(crate) fn debug_assert_answered(&self) {
        let (requests, reads, holes) = (self.unanswered, self.reads, self.output.holes.len());
        debug_assert!(
            requests == 0 && reads == 0 && holes == 0 && !self.has_backlog(),
            "{requests} requests are not answered, {reads} reads under way, {holes} holes"
        );
    }

    /// Whether something other than the client must happen first.
    pub(crate) fn is_held(&self) -> bool {
        self.reads > 0 || self.parked_until.is_some() || self.waiting
    }

    /// Bytes of buffers that it holds, those of reads under way included.
    pub(crate) fn held_bytes(&self) -> usize {
        let replies = self.output.bytes.capacity();
        // What is being read will be copied into room that the replies already have.
        let reading = if self.reads > 0 { replies } else { 0 };
        self.input.capacity() + replies + reading
    }

    /// Sends as much of the backlog as the client takes.
    pub(crate) fn flush(&mut self) -> Transfer {
        while self.has_backlog() {
            let rest = self.output.bytes.get(self.sent..).unwrap_or_default();
            match Transfer::of(self.stream.write(rest)) {
                Transfer::Bytes(count) => self.sent += count,
                other => return other,
            }
        }
        self.output.bytes = Vec::new();
        self.sent = 0;
        Transfer::Bytes(0)
    }
}
