//! Connection to a server: requests go out in one write, replies come back in the order of the
//! requests.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use entresol_base::Nanos;
use entresol_protocol::Limits;

use super::address::Stream;
use super::wire::{Outcome, Parsed, parse_reply};

const INPUT_BYTES_MIN: usize = 64 << 10;
/// Largest announced value; a reply beyond it is taken for a broken stream.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// Request in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    /// Due time, from which the response time counts.
    pub(crate) due: Nanos,
    /// Number of the key.
    pub(crate) number: u64,
    /// True for a get, false for a set.
    pub(crate) is_get: bool,
}

/// Reason why a connection is unusable.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The operating system reported an error, or the server closed the connection.
    Io(io::Error),
    /// The server sent bytes that are no reply.
    Reply(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

/// Connection with its buffers.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Encoded requests that are not sent completely.
    pub(crate) out: Vec<u8>,
    sent: usize,
    /// Requests that await a reply, oldest first.
    pub(crate) in_flight: VecDeque<InFlight>,
    /// Due times of requests that wait for room in the pipeline (open loop).
    pub(crate) waiting: VecDeque<Nanos>,
    /// True if the connection has no more requests in this phase (closed loop).
    pub(crate) resting: bool,
    input: Vec<u8>,
    parsed: usize,
    filled: usize,
    limits: Limits,
}

impl Connection {
    pub(crate) fn new(stream: Stream) -> Connection {
        Connection {
            stream,
            out: Vec::new(),
            sent: 0,
            in_flight: VecDeque::new(),
            waiting: VecDeque::new(),
            resting: false,
            input: vec![0; INPUT_BYTES_MIN],
            parsed: 0,
            filled: 0,
            limits: Limits { value_bytes_max: VALUE_BYTES_MAX, ..Limits::default() },
        }
    }

    /// Returns true if no request is in flight and none waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Sends encoded requests as far as the socket accepts them. The rest follows once it is
    /// writable.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(Broken::Io(ErrorKind::WriteZero.into())),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::Io(error)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads available bytes and passes every complete reply with its request to `take`.
    pub(crate) fn receive<E: From<Broken>>(
        &mut self,
        mut take: impl FnMut(InFlight, Outcome<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let room = self.input.len() - self.filled;
            let read = match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(Broken::Io(ErrorKind::UnexpectedEof.into()).into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Broken::Io(error).into()),
            };
            self.filled += read;
            self.take_replies(&mut take)?;
            self.make_room();
            // A read that leaves room has emptied the socket; a second call would only confirm
            // that.
            if read < room {
                return Ok(());
            }
        }
    }

    fn take_replies<E: From<Broken>>(
        &mut self,
        take: &mut impl FnMut(InFlight, Outcome<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.parsed < self.filled {
            let input = &self.input[self.parsed..self.filled];
            match parse_reply(input, &self.limits) {
                Parsed::Incomplete => return Ok(()),
                Parsed::Reply(outcome, consumed) => {
                    let Some(request) = self.in_flight.pop_front() else {
                        return Err(Broken::Reply("a reply to no request".to_owned()).into());
                    };
                    take(request, outcome)?;
                    self.parsed += consumed;
                }
                Parsed::Unexpected => {
                    let beginning = &input[..input.len().min(60)];
                    let text = String::from_utf8_lossy(beginning).escape_debug().to_string();
                    return Err(Broken::Reply(text).into());
                }
            }
        }
        Ok(())
    }

    /// Moves an incomplete reply to the front if room is short, and doubles the buffer if the reply
    /// fills over half of it.
    fn make_room(&mut self) {
        if self.parsed == self.filled {
            self.parsed = 0;
            self.filled = 0;
        } else if self.input.len() - self.filled < self.input.len() / 4 {
            self.input.copy_within(self.parsed..self.filled, 0);
            self.filled -= self.parsed;
            self.parsed = 0;
            if self.filled > self.input.len() / 2 {
                self.input.resize(self.input.len() * 2, 0);
            }
        }
    }
}
