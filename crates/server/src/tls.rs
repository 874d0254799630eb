//! A socket that speaks TLS: reads and writes take clear text, as those of other sockets do.
//!
//! What is encrypted and not yet sent is bounded by one record. The last byte of it counts as
//! unsent until all of it is, so a caller that keeps what was not sent needs to know nothing of it.

use std::io::{self, Read, Write};

use entresol_service::tls::{Acceptor, holder};
use mio::event::Source;
use mio::net::TcpStream;
use rustls::ServerConnection;

/// Bytes of clear text that are encrypted before the socket must have taken them.
const RECORD_BYTES: usize = 16 * 1024;
/// Bytes of a record that the session holds at most until it is whole.
const PARTIAL_BYTES_MAX: usize = RECORD_BYTES + 4096;
/// Bytes that a client may send before its handshake is done; a chain of four certificates takes
/// about half of that. With the server's own chain, which has at most 8 KiB, and the session, a
/// client in its handshake holds less than 32 KiB.
const HANDSHAKE_BYTES_MAX: usize = 12 * 1024;

/// A TCP socket and its TLS session.
#[derive(Debug)]
pub(crate) struct TlsStream {
    tcp: TcpStream,
    session: ServerConnection,
    /// True once the handshake is done.
    is_secure: bool,
    /// True if the client's certificate names its user.
    names_user: bool,
    /// Bytes received during the handshake.
    received_bytes: usize,
    /// Bytes received of a record that is not whole, at most.
    partial_bytes: usize,
    /// Bytes decrypted and not read.
    clear_bytes: usize,
    /// Clear bytes of what is encrypted and not sent.
    encrypted_bytes: usize,
    /// True if the first byte of the next write is among those.
    is_ahead: bool,
    /// True once the peer has said that no more follows.
    has_ended: bool,
    /// Cause of the session's failure, until it is logged.
    failure: Option<rustls::Error>,
    has_failed: bool,
    /// True if the last read has emptied the socket.
    is_drained: bool,
}

/// Reader of a socket that notes whether it was emptied.
struct Tap<'a> {
    tcp: &'a mut TcpStream,
    is_empty: bool,
    /// Bytes that it takes at most.
    bytes_max: usize,
}

impl Read for Tap<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let offered = room.len().min(self.bytes_max);
        let room = room.get_mut(..offered).unwrap_or_default();
        let count = self.tcp.read(room)?;
        self.is_empty = count < offered;
        Ok(count)
    }
}

impl TlsStream {
    /// Begins a session; none if rustls refuses the configuration, which has been checked.
    pub(crate) fn new(tcp: TcpStream, acceptor: &Acceptor) -> Option<Self> {
        let mut session = ServerConnection::new(acceptor.config.clone()).ok()?;
        session.set_buffer_limit(Some(2 * RECORD_BYTES));
        Some(TlsStream {
            tcp,
            session,
            is_secure: false,
            names_user: acceptor.names_user,
            received_bytes: 0,
            partial_bytes: 0,
            clear_bytes: 0,
            encrypted_bytes: 0,
            is_ahead: false,
            has_ended: false,
            failure: None,
            has_failed: false,
            is_drained: false,
        })
    }

    pub(crate) fn source(&mut self) -> &mut dyn Source {
        &mut self.tcp
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Returns true once the handshake is done.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns true if the client's certificate names its user.
    pub(crate) fn names_user(&self) -> bool {
        self.names_user
    }

    /// Bytes received during the handshake.
    pub(crate) fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// Returns true once the peer has said that no more follows.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Bytes that the session holds of requests and replies, beside what it takes itself.
    pub(crate) fn held_bytes(&self) -> usize {
        self.partial_bytes + self.clear_bytes + self.encrypted_bytes
    }

    /// Returns true if the peer has sent a part of a record and not the rest.
    pub(crate) fn is_amid_record(&self) -> bool {
        self.partial_bytes > 0
    }

    /// Cause of the session's failure, once.
    pub(crate) fn take_failure(&mut self) -> Option<rustls::Error> {
        self.failure.take()
    }

    /// Name that the client's certificate gives its holder.
    pub(crate) fn holder(&self) -> Option<String> {
        self.session.peer_certificates()?.first().and_then(holder)
    }

    /// Goes on with the handshake as far as the socket allows; returns true once it is done.
    pub(crate) fn shake_hands(&mut self) -> io::Result<bool> {
        loop {
            self.push()?;
            if !self.session.is_handshaking() {
                self.is_secure = true;
                self.partial_bytes = 0;
                return Ok(true);
            }
            let left = HANDSHAKE_BYTES_MAX.saturating_sub(self.received_bytes);
            if left == 0 {
                let cause = format!("its handshake has more than {HANDSHAKE_BYTES_MAX} bytes");
                return Err(self.fail(rustls::Error::General(cause)));
            }
            match self.pull(left) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads as much clear text as there is room for. Fewer bytes say that the socket is empty.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        let mut is_empty = false;
        loop {
            let rest = room.get_mut(count..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(count);
            }
            match self.session.reader().read(rest) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(count);
                }
                Ok(more) => {
                    count += more;
                    self.clear_bytes = self.clear_bytes.saturating_sub(more);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer has closed without a word. Whole requests before that are answered.
                Err(_) => return Ok(count),
            }
            let more = match is_empty {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => self.pull(usize::MAX),
            };
            match more {
                Ok(_) if self.session.wants_write() => drop(self.push()),
                Ok(_) => {}
                Err(_) if count > 0 => return Ok(count),
                Err(error) => return Err(error),
            }
            is_empty = self.is_drained;
        }
    }

    /// Writes what the socket takes; of what is encrypted but not sent, the last byte counts as
    /// unsent, and the next write must begin with it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.push()?;
        if !self.is_secure || self.session.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut count = usize::from(std::mem::take(&mut self.is_ahead));
        debug_assert!(count <= bytes.len(), "the byte that was encrypted ahead is not there");
        while let Some(rest) = bytes.get(count..)
            && !rest.is_empty()
        {
            let record = rest.get(..RECORD_BYTES).unwrap_or(rest);
            let encrypted = self.session.writer().write(record)?;
            if encrypted == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            count += encrypted;
            self.encrypted_bytes = encrypted;
            self.push()?;
            if self.session.wants_write() {
                self.is_ahead = true;
                count -= 1;
                break;
            }
        }
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    /// Says that no more follows, if the socket has room for it.
    pub(crate) fn say_goodbye(&mut self) {
        if self.is_secure && !self.has_failed {
            self.session.send_close_notify();
            // The connection closes whether it arrives or not.
            let _ = self.push();
        }
    }

    /// Receives and decrypts once.
    fn pull(&mut self, bytes_max: usize) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut tap = Tap { tcp: &mut self.tcp, is_empty: false, bytes_max };
        let count = self.session.read_tls(&mut tap)?;
        self.is_drained = tap.is_empty;
        if !self.is_secure {
            self.received_bytes += count;
        }
        match self.session.process_new_packets() {
            Ok(state) => {
                self.clear_bytes = state.plaintext_bytes_to_read();
                // Behind a record that became whole there is no more than what came last, which the
                // session has room for anyway.
                self.partial_bytes = match self.clear_bytes {
                    0 => (self.partial_bytes + count).min(PARTIAL_BYTES_MAX),
                    _ => 0,
                };
                Ok(count)
            }
            Err(cause) => {
                // The alert tells the client why; it is closed whether that arrives or not.
                let _ = self.push();
                Err(self.fail(cause))
            }
        }
    }

    /// Sends what is encrypted, as far as the socket takes it.
    fn push(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.tcp) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.encrypted_bytes = 0;
        Ok(())
    }

    fn fail(&mut self, cause: rustls::Error) -> io::Error {
        self.failure = Some(cause);
        // The failure is found by a further read, once what came before it is dealt with.
        (self.has_failed, self.has_ended) = (true, true);
        io::ErrorKind::InvalidData.into()
    }
}
