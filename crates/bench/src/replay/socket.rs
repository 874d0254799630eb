//! Server as the tenant: one connection and one request at a time. A store after a miss then
//! precedes the next request of the trace.

use std::io::{self, Read, Write};
use std::time::Duration;

use entresol_cache::Statistics;
use entresol_measure::BenchError;
use entresol_measure::trace::Operation;
use entresol_protocol::Limits;

use super::{Answers, StoreCall};
use crate::load::wire::{Outcome, Parsed, StoreRequest, parse_reply};
use crate::load::{Address, BlockingStream, Dialect};

const INPUT_BYTES: usize = 64 << 10;
const VALUE_BYTES_MAX: usize = 1 << 30;
/// Time without a reply after which a server has failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);

pub(super) struct SocketAnswers {
    address: String,
    stream: BlockingStream,
    dialect: Dialect,
    out: Vec<u8>,
    input: Vec<u8>,
    limits: Limits,
}

/// Outcome without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Found,
    Absent,
    Done,
    Refused,
}

impl SocketAnswers {
    pub(super) fn connect(
        address: &Address,
        dialect: Dialect,
    ) -> Result<SocketAnswers, BenchError> {
        let name = address.to_string();
        let stream = address
            .connect_blocking(SILENCE_MAX)
            .map_err(|source| BenchError::Server { address: name.clone(), source })?;
        Ok(SocketAnswers {
            address: name,
            stream,
            dialect,
            out: Vec::new(),
            input: vec![0; INPUT_BYTES],
            limits: Limits { value_bytes_max: VALUE_BYTES_MAX, ..Limits::default() },
        })
    }

    /// Sends the encoded request and reads one reply.
    fn exchange(&mut self) -> Result<Answer, BenchError> {
        let server = |source| BenchError::Server { address: self.address.clone(), source };
        self.stream.write_all(&self.out).map_err(server)?;
        self.out.clear();
        let mut filled = 0;
        loop {
            if filled == self.input.len() {
                self.input.resize(filled * 2, 0);
            }
            match self.stream.read(&mut self.input[filled..]).map_err(server)? {
                0 => return Err(server(io::ErrorKind::UnexpectedEof.into())),
                read => filled += read,
            }
            let outcome = match parse_reply(&self.input[..filled], &self.limits) {
                Parsed::Incomplete => continue,
                Parsed::Reply(outcome, consumed) if consumed == filled => outcome,
                Parsed::Reply(..) | Parsed::Unexpected => {
                    let beginning = &self.input[..filled.min(60)];
                    let reply = String::from_utf8_lossy(beginning).escape_debug().to_string();
                    return Err(BenchError::Reply { address: self.address.clone(), reply });
                }
            };
            return Ok(match outcome {
                Outcome::Value { .. } => Answer::Found,
                Outcome::Absent => Answer::Absent,
                Outcome::Done | Outcome::Unchanged => Answer::Done,
                Outcome::Refused => Answer::Refused,
            });
        }
    }
}

impl Answers for SocketAnswers {
    fn time(&mut self, _at_s: u32) {}

    fn get(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        self.dialect.append_request(Operation::Get, key, &mut self.out);
        Ok(self.exchange()? == Answer::Found)
    }

    fn store(&mut self, call: StoreCall<'_>) -> Result<bool, BenchError> {
        let StoreCall { operation, key, value, ttl_s } = call;
        let request = StoreRequest { operation, key, ttl_s, value };
        self.dialect.append_store(request, &mut self.out);
        Ok(self.exchange()? != Answer::Refused)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), BenchError> {
        self.dialect.append_request(Operation::Delete, key, &mut self.out);
        self.exchange().map(|_| ())
    }

    fn count(&mut self, key: &[u8], down: bool) -> Result<(), BenchError> {
        let operation = if down { Operation::Decrement } else { Operation::Increment };
        self.dialect.append_request(operation, key, &mut self.out);
        self.exchange().map(|_| ())
    }

    fn statistics(&self) -> Option<Statistics> {
        None
    }
}
