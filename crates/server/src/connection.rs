//! A client's connection: its socket, the bytes received and the replies not yet taken.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use entresol_base::Nanos;
use entresol_service::auth::User;
use entresol_service::executor::{Output, Session};
use entresol_service::tenant::ConnectionGuard;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::buffer::Buffer;
use crate::stranger::Stranger;
use crate::tls::TlsStream;

/// Socket of either kind.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Boxed, so that connections of clear text are no larger for it.
    Tls(Box<TlsStream>),
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
            Stream::Tls(stream) => stream.source(),
        }
    }

    /// Registers the socket once for its whole life; events are edge-triggered.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(room),
            Stream::Unix(stream) => stream.read(room),
            Stream::Tls(stream) => stream.read(room),
        }
    }

    /// Returns the socket if what is read of the stream is what arrives there.
    pub(crate) fn plain_socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Stream::Tcp(stream) => Some(stream.as_fd()),
            Stream::Unix(stream) => Some(stream.as_fd()),
            Stream::Tls(_) => None,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    /// Returns true if the peer has ended its side of the session, of which the socket knows
    /// nothing.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_ended())
    }

    /// Tells a peer that speaks TLS that no more follows, if the socket has room.
    pub(crate) fn say_goodbye(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.say_goodbye();
        }
    }

    /// Cause for which a session has failed, once.
    pub(crate) fn take_failure(&mut self) -> Option<rustls::Error> {
        match self {
            Stream::Tls(stream) => stream.take_failure(),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }

    /// Returns true if the peer has sent a part of a record that nothing can be read of yet.
    pub(crate) fn is_amid_record(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.is_amid_record())
    }

    /// Bytes that a session holds of requests and replies.
    #[inline]
    fn held_bytes(&self) -> usize {
        match self {
            Stream::Tls(stream) => stream.held_bytes(),
            Stream::Tcp(_) | Stream::Unix(_) => 0,
        }
    }

    /// Address of the peer, as `stats conns` shows it.
    pub(crate) fn peer(&self) -> String {
        match self {
            Stream::Tcp(stream) => peer_of("tcp", stream),
            Stream::Tls(stream) => peer_of("tls", stream.tcp()),
            Stream::Unix(_) => "unix:client".to_owned(),
        }
    }
}

fn peer_of(kind: &str, stream: &TcpStream) -> String {
    match stream.peer_addr() {
        Ok(address) if address.is_ipv6() => format!("{kind}6:{address}"),
        Ok(address) => format!("{kind}:{address}"),
        Err(_) => format!("{kind}:closed"),
    }
}

/// Outcome of a read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// Number of bytes moved.
    Bytes(usize),
    /// Nothing can be moved now.
    Blocked,
    /// Nothing can be moved any more.
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

/// Bytes of large values that are checked and then sent while the processor's caches have them:
/// each system call sends so much and wakes the client once.
const SENT_AT_ONCE: usize = 1 << 20;
/// Bytes of a large value that are progress: a client that sends fewer in the time for which a
/// value may stand still holds its room for nothing.
const TRICKLE_BYTES: usize = 16 << 10;
/// Bytes of large values that are copied to be encrypted.
const COPIED_AT_ONCE: usize = 64 << 10;

/// A connection. An idle one holds no buffer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Index of its tenant's seat in the loop.
    pub(crate) seat: usize,
    pub(crate) session: Session,
    /// State until the client has authenticated; none from then on, or if it need not.
    pub(crate) stranger: Option<Box<Stranger>>,
    /// User who has authenticated.
    pub(crate) user: Option<Arc<User>>,
    /// Bytes received and not executed.
    pub(crate) input: Buffer,
    /// Bytes of input that the next request needs at least.
    pub(crate) needed: usize,
    /// Replies not taken yet, or with holes not filled yet.
    pub(crate) output: Output,
    /// Bytes of the output that were sent.
    pub(crate) sent: usize,
    /// True if the socket may take more of the output at once.
    pub(crate) takes_more: bool,
    /// Reads from a block file under way for this connection.
    pub(crate) reads: usize,
    /// True while it cannot go on before a block file has been read or written for a large value.
    pub(crate) waits_for_file: bool,
    /// Bytes of buffers that its seat has counted for it.
    pub(crate) counted_bytes: usize,
    /// Time before which nothing is executed.
    pub(crate) parked_until: Option<Nanos>,
    /// True if the input may hold a whole request, which is executed before reading.
    pub(crate) runnable: bool,
    /// True if the socket may hold bytes.
    pub(crate) readable: bool,
    /// True once the peer has closed its side; the loop reads on until the end.
    pub(crate) half_closed: bool,
    /// True if the connection closes as soon as the output is sent.
    pub(crate) closing: bool,
    /// True while it stands in the loop's queue.
    pub(crate) queued: bool,
    /// Time since which a request has been incomplete or a reply not taken.
    pub(crate) stalled_since: Option<Nanos>,
    /// Bytes of the value that arrives which have come since then.
    pub(crate) trickled: usize,
    /// Time since which there has been no room for the value that arrives.
    pub(crate) lacks_room_since: Option<Nanos>,
    /// Time at which bytes last moved in either direction.
    pub(crate) moved_at: Nanos,
    /// Time since which the backlog has been waiting for the client.
    pub(crate) backlog_since: Nanos,
    /// True if the client took its last reply late.
    pub(crate) is_slow: bool,
    /// True until its first request is executed.
    pub(crate) is_fresh: bool,
    /// Number of reads that take little, since a large value seems to follow, which is received
    /// into its place.
    pub(crate) short_reads: u8,
    /// True if its last turn was a small one, so that it is served ahead of large ones.
    pub(crate) is_light: bool,
    /// True while it waits for room in its tenant's buffers.
    pub(crate) waits_for_room: bool,
    /// Earliest time at which the bytes now in the socket may have arrived.
    pub(crate) readable_since: Nanos,
    /// Earliest time at which the bytes received last may have arrived.
    pub(crate) arrived: Nanos,
    /// Requests executed and not answered yet.
    pub(crate) unanswered: usize,
    /// True while it waits in the queue for its tenant's account.
    pub(crate) waiting: bool,
    /// True while it is served after its call from that queue.
    pub(crate) called: bool,
    /// Uncounts the connection from its tenant when dropped.
    pub(crate) guard: ConnectionGuard,
}

impl Connection {
    pub(crate) fn new(stream: Stream, seat: usize, guard: ConnectionGuard) -> Self {
        Connection {
            stream,
            seat,
            session: Session::default(),
            stranger: None,
            user: None,
            input: Buffer::default(),
            needed: 1,
            output: Output::default(),
            sent: 0,
            takes_more: false,
            reads: 0,
            waits_for_file: false,
            counted_bytes: 0,
            parked_until: None,
            runnable: false,
            readable: false,
            half_closed: false,
            closing: false,
            queued: false,
            stalled_since: None,
            trickled: 0,
            lacks_room_since: None,
            moved_at: Nanos(0),
            backlog_since: Nanos(0),
            is_slow: false,
            is_fresh: true,
            short_reads: 0,
            is_light: false,
            waits_for_room: false,
            readable_since: Nanos(0),
            arrived: Nanos(0),
            unanswered: 0,
            waiting: false,
            called: false,
            guard,
        }
    }

    /// Returns true if replies wait to be sent.
    pub(crate) fn has_backlog(&self) -> bool {
        self.sent < self.output.len()
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

    /// Returns true if the connection cannot continue until something other than its client acts.
    pub(crate) fn is_held(&self) -> bool {
        self.reads > 0
            || self.waits_for_file
            || self.parked_until.is_some()
            || self.waiting
            || self.waits_for_room
    }

    /// Returns true if a block file still has to be read or written before it can go on.
    pub(crate) fn needs_file(&mut self) -> bool {
        self.output.waits_for_file(self.sent) || self.session.waits_for_file()
    }

    /// Bytes of buffers that it holds, pending reads included.
    pub(crate) fn held_bytes(&self) -> usize {
        let replies = self.output.bytes.capacity();
        // Small values that are read will be copied into room that the replies already have.
        let reading = if self.reads > 0 { replies } else { 0 };
        let arriving = self.session.buffered_bytes();
        let pinned = self.output.buffered_bytes();
        self.input.capacity() + arriving + replies + pinned + reading + self.stream.held_bytes()
    }

    /// Notes bytes that have come. Few bytes of a large value are no progress.
    pub(crate) fn note_received(&mut self, bytes: usize, now: Nanos) {
        self.moved_at = now;
        if !self.session.is_arriving() {
            self.trickled = 0;
            return;
        }
        self.trickled += bytes;
        if self.trickled >= TRICKLE_BYTES {
            self.trickled = 0;
            self.stalled_since = None;
        }
    }

    /// Sends as much of the backlog as the client takes, but no more than `most` bytes.
    pub(crate) fn flush(&mut self, most: usize) -> Transfer {
        debug_assert!(self.output.holes.is_empty(), "replies are sent with holes in them");
        let end = self.output.len().min(self.sent + most);
        while self.sent < end {
            if self.output.waits_for_file(self.sent) {
                (self.waits_for_file, self.takes_more) = (true, false);
                return Transfer::Bytes(0);
            }
            match Transfer::of(self.send_next(end)) {
                Transfer::Bytes(count) => self.sent += count,
                other => {
                    self.takes_more = false;
                    return other;
                }
            }
        }
        self.takes_more = self.has_backlog();
        Transfer::Bytes(0)
    }

    fn send_next(&mut self, end: usize) -> io::Result<usize> {
        if !self.output.has_values() {
            let rest = self.output.bytes.get(self.sent..end).unwrap_or_default();
            return self.stream.write(rest);
        }
        let most = (end - self.sent).min(SENT_AT_ONCE);
        if let Some(socket) = self.stream.plain_socket() {
            return self.output.send(socket, self.sent, most);
        }
        let mut copied = Vec::new();
        self.output.copy(self.sent, most.min(COPIED_AT_ONCE), &mut copied)?;
        self.stream.write(&copied)
    }
}
