//! One connection: requests go out in one write, replies come back in the order of the requests.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use entresol_base::Nanos;
use entresol_protocol::Limits;

use super::address::Stream;
use super::wire::{Outcome, Parsed, parse_reply};

const INPUT_BYTES_MIN: usize = 64 << 10;
/// A reply that announces more is taken for a broken stream.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    /// When it was due; its response time counts from here.
    pub(crate) due: Nanos,
    /// The number of its key.
    pub(crate) number: u64,
    /// Whether it is a get; else a set.
    pub(crate) is_get: bool,
}

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The system said so, or the server hung up.
    Io(io::Error),
    /// The server sent something that is no reply.
    Reply(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

/// A connection with its buffers.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Encoded requests that have not been sent.
    pub(crate) out: Vec<u8>,
    sent: usize,
    /// Requests whose replies are awaited, oldest first.
    pub(crate) in_flight: VecDeque<InFlight>,
    /// Due times of requests that wait for room in the pipeline (open loop).
    pub(crate) waiting: VecDeque<Nanos>,
    /// It has nothing more to ask in this phase (closed loop).
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

    /// Whether nothing is on its way and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Sends what is encoded, as far as the socket takes it; the rest goes when it is writable.
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

    /// Reads what has come and hands every whole reply with its request to `take`.
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
            // A read that leaves room has emptied the socket: no second call to learn that.
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

    /// Moves an incomplete reply to the front, and grows the buffer if it fills all of it.
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
