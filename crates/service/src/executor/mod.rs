//! The executor: a connection's bytes in, replies out, against one tenant's cache.
//!
//! It has no socket and no clock, so that tests and fuzzing run the code that a server runs. A
//! batch of pipelined requests is parsed as a whole. Then the index buckets of all its keys are
//! prefetched, then the records that they name. Only then is the first request executed; by that
//! time most of its memory has arrived.

mod apart;
mod arrival;
mod control;
mod dump;
mod meta;
mod output;
mod plan;
mod retrieval;
mod text;

use std::io;
use std::os::fd::BorrowedFd;

use entresol_base::{Nanos, Seconds};
use entresol_cache::{
    DeleteOptions, FileIo, KeyHash, OldValue, PendingRead, Store, StoreMode, Stored, StoredInPlace,
    Walk,
};
use entresol_media::Admission;
use entresol_protocol::{AfterRefusal, KeyBuffer, KeyLine, Limits, Refusal, Request, Step};

use crate::moment::Now;
use crate::tenant::Seat;
use arrival::{Arrival, Arrived, Begun, Bytes};
use control::Control;
use dump::KeyList;
use plan::{Planned, Tail};

pub use output::{Hole, Output, ReadRoom};

/// Limits of one turn of one connection.
#[derive(Debug, Clone, Copy)]
pub struct TurnLimits {
    /// Limits of the protocol.
    pub protocol: Limits,
    /// Keys and other requests executed.
    pub requests: usize,
    /// Bytes of replies held; beyond it nothing more is executed.
    pub output_bytes: usize,
    /// Reads of values under way.
    pub pending_reads: usize,
}

/// Protocol state of a connection between turns.
#[derive(Debug, Default)]
pub struct Session {
    /// Bytes still to come that belong to a refused request.
    swallow: u64,
    /// True while the rest of a refused line is still to come.
    swallow_line: bool,
    /// Command of the line of keys whose front has been answered.
    line: Option<KeyLine>,
    /// Keys of the first request that have been answered.
    keys_done: usize,
    /// Old value that the first request waited for.
    old: Option<OldValue>,
    /// Position of the list of keys that the first request has begun.
    listing: Option<Walk>,
    /// Request whose value is arriving in its place.
    arrival: Option<Box<Arrival>>,
    /// Value that has arrived for the request that is executed next, or is being put together.
    arrived: Option<Arrived>,
}

impl Session {
    /// Hands in the old value that [`Then::Fetch`] asked for.
    pub fn provide(&mut self, old: OldValue) {
        self.old = Some(old);
    }

    /// Returns true if the request before the next byte is not complete.
    #[inline]
    #[must_use]
    pub fn is_amid_request(&self) -> bool {
        self.is_swallowing() || self.line.is_some() || self.is_arriving()
    }

    /// Returns true while a large value arrives, which takes room in the cache.
    #[inline]
    #[must_use]
    pub fn is_arriving(&self) -> bool {
        self.arrival.is_some()
    }

    /// Returns the large value that arrives or is being put together.
    #[inline]
    fn unfinished(&self) -> Option<&Arrived> {
        self.arrival.as_ref().map(|arrival| arrival.value()).or(self.arrived.as_ref())
    }

    /// Returns true while a large value is being copied to its place, part by part.
    #[inline]
    #[must_use]
    pub fn is_copying(&self) -> bool {
        matches!(self.unfinished(), Some(Arrived::Unfinished(_)))
    }

    /// Returns the bytes of that value that have arrived, or were copied.
    #[inline]
    #[must_use]
    pub fn arrived_bytes(&self) -> usize {
        self.unfinished().map_or(0, Arrived::written)
    }

    /// Returns the bytes of that value that lie in pieces, which others may lack.
    #[must_use]
    pub fn piece_bytes(&self) -> usize {
        self.unfinished().filter(|it| it.is_in_pieces()).map_or(0, Arrived::written)
    }

    /// Returns the bytes of buffers that the session holds for that value.
    #[inline]
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.unfinished().map_or(0, Arrived::buffered_bytes)
    }

    /// Receives the next bytes of that value, at most so many, from a socket into their place.
    /// `None` if they have no place that a socket can write to: then they are input like others.
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        most: usize,
        seat: &mut Seat,
        now: Seconds,
    ) -> Option<io::Result<usize>> {
        self.arrival.as_mut()?.receive(socket, most, seat, now)
    }

    /// Moves the reads and writes of a block file that it needs to `out`.
    pub fn take_requests(&mut self, out: &mut Vec<FileIo>) {
        if let Some(value) = self.unfinished_mut() {
            value.take_requests(out);
        }
    }

    /// Returns true if it goes on only once one of those is over.
    #[must_use]
    pub fn waits_for_file(&mut self) -> bool {
        self.unfinished_mut().is_some_and(Arrived::waits_for_file)
    }

    /// Begins the arrival of the value at the front of `rest`, whose request needs so many bytes.
    /// Returns the bytes of the request's line, or how the turn ends.
    fn begin_arrival(
        &mut self,
        rest: &[u8],
        needed: usize,
        seat: &mut Seat,
        limits: &Limits,
        now: Now,
    ) -> Result<usize, Then> {
        match Arrival::begin(rest, needed, seat, limits, now.seconds) {
            Begun::Arrival(arrival, line) => {
                self.arrival = Some(arrival);
                Ok(line)
            }
            Begun::No => Err(Then::Read { needed }),
            Begun::Busy => Err(wait_for_buffer(seat, now)),
        }
    }

    fn unfinished_mut(&mut self) -> Option<&mut Arrived> {
        self.arrival.as_mut().map(|arrival| arrival.value_mut()).or(self.arrived.as_mut())
    }

    /// Frees the place of what has arrived of a large value, or was copied. The rest of a value in
    /// pieces is skipped, and its request refused.
    pub fn give_up_arrival(&mut self) {
        if let Some(arrival) = &mut self.arrival {
            arrival.give_up();
        } else if let Some(arrived) = &mut self.arrived {
            *arrived = Arrived::NoRoom;
        }
    }

    /// Returns true while keys are being listed, which takes many turns.
    #[inline]
    #[must_use]
    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Returns true while bytes of a refused request are being skipped.
    #[inline]
    fn is_swallowing(&self) -> bool {
        self.swallow > 0 || self.swallow_line
    }
}

/// End of a turn. In every case the connection keeps the bytes that were not consumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// All whole requests are executed. The rest must grow to `needed` bytes before another turn
    /// pays.
    Read {
        /// Minimum number of bytes, counted from the first that was not consumed.
        needed: usize,
    },
    /// The turn's limits are reached; there may be more to execute.
    Yield,
    /// Nothing more may be executed before this moment.
    Park {
        /// Time of the next turn.
        until: Nanos,
    },
    /// The tenant's account lets nothing more happen before this moment.
    Throttle {
        /// Time of the next question to the account.
        until: Nanos,
    },
    /// The next request needs an old value, which must be read and handed to [`Session::provide`].
    Fetch(PendingRead),
    /// The large value that arrives, or is being copied, lacks room. Others may have to go: see
    /// [`Session::give_up_arrival`].
    MakeRoom,
    /// The large value that arrives, or is being copied, waits for a block file: see
    /// [`Session::take_requests`].
    AwaitFile,
    /// The client ended the connection or broke the protocol: send what is due and close.
    Close,
}

/// Result of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// End of the turn.
    pub then: Then,
    /// Number of requests executed.
    pub requests: usize,
}

/// End of the execution of one request.
enum Flow {
    Done,
    Stop(Then),
}

/// Bytes of values and replies that a turn may move before the others have theirs. Copying that
/// much takes some 100 us.
const TURN_BYTES: usize = 256 * 1024;
/// Time for which a connection waits for a write buffer to come back.
const WRITE_WAIT: std::time::Duration = std::time::Duration::from_micros(500);

/// Executor of one thread: scratch memory that all its connections share.
#[derive(Debug, Default)]
pub struct Executor {
    planned: Vec<Planned<'static>>,
    hashes: Vec<KeyHash>,
    key: KeyBuffer,
}

/// Context of executing one request.
struct Call<'c> {
    seat: &'c mut Seat,
    session: &'c mut Session,
    out: &'c mut Output,
    hashes: &'c [KeyHash],
    key: &'c mut KeyBuffer,
    limits: &'c TurnLimits,
    now: Now,
    left: &'c mut usize,
    /// Bytes that this turn may still copy for stores.
    bytes_left: &'c mut usize,
}

/// Context of executing one command for one key.
struct Command<'c> {
    seat: &'c mut Seat,
    out: &'c mut Output,
    /// Old value, if the command has waited for it.
    old: Option<&'c OldValue>,
    /// Value of a storage command, if it did not come with its line or is being copied.
    arrived: &'c mut Option<Arrived>,
    /// Room for a key that is sent in base64.
    key: &'c mut KeyBuffer,
    hash: KeyHash,
    now: Now,
}

impl Executor {
    /// Executes the whole requests at the front of `input` until a limit of the turn is reached.
    pub fn run(
        &mut self,
        input: &[u8],
        session: &mut Session,
        seat: &mut Seat,
        limits: &TurnLimits,
        now: Now,
        out: &mut Output,
    ) -> Turn {
        let mut consumed = skip(session, input);
        if session.is_swallowing() {
            return Turn { consumed, then: Then::Read { needed: 1 }, requests: 0 };
        }
        let rate = seat.tenant.requests_per_second();
        if let Some(until) = seat.tenant.request_pace.wait(now.nanos).filter(|_| rate > 0) {
            seat.counters.request_waits.count();
            return Turn { consumed, then: Then::Throttle { until }, requests: 0 };
        }
        let mut left = requests_of_turn(limits.requests, rate);
        let (most, keys_before, mut bytes_left) = (left, session.keys_done, TURN_BYTES);
        let mut planned = plan::recycle(std::mem::take(&mut self.planned));
        let then = loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let (line, protocol) = (session.line, &limits.protocol);
            let is_arriving = session.is_arriving();
            let tail = if is_arriving {
                planned.clear();
                Tail::Full
            } else {
                plan::plan(rest, line, seat, protocol, left, &mut planned, &mut self.hashes)
            };
            let mut call = Call {
                seat,
                session,
                out,
                hashes: &self.hashes,
                key: &mut self.key,
                limits,
                now,
                left: &mut left,
                bytes_left: &mut bytes_left,
            };
            let (done, stopped) =
                if is_arriving { call.arrive(rest) } else { call.batch(&planned) };
            consumed += done;
            consumed += skip(session, input.get(consumed..).unwrap_or_default());
            match (stopped, tail) {
                (Some(then), _) => break then,
                (None, _) if session.is_swallowing() => break Then::Read { needed: 1 },
                (None, Tail::Incomplete { needed }) => {
                    let rest = input.get(consumed..).unwrap_or_default();
                    match session.begin_arrival(rest, needed, seat, protocol, now) {
                        Ok(line) => consumed += line,
                        Err(then) => break then,
                    }
                }
                (None, Tail::Full) if left == 0 => break Then::Yield,
                (None, Tail::Full) => {}
            }
        };
        self.planned = plan::recycle(planned);
        debug_assert!(consumed <= input.len(), "{consumed} bytes of {} are consumed", input.len());
        let requests = most - left;
        // A request for many keys that goes on in the next turn has its first key uncounted.
        let begun = usize::from(session.keys_done > 0 && session.keys_done != keys_before);
        if rate > 0 {
            seat.tenant.request_pace.note((requests + begun) as u64, rate, now.nanos);
        }
        Turn { consumed, then, requests }
    }
}

/// Counts a wait for a write buffer, and returns its end.
fn wait_for_buffer(seat: &Seat, now: Now) -> Then {
    seat.counters.write_waits.count();
    Then::Park { until: now.nanos.after(WRITE_WAIT) }
}

/// Returns the requests that a turn may execute: those of ten milliseconds if they have a rate.
fn requests_of_turn(limit: usize, per_second: u32) -> usize {
    match per_second {
        0 => limit,
        rate => limit.min((rate / 100).max(1) as usize),
    }
}

/// Skips bytes of a refused request; returns how many.
fn skip(session: &mut Session, input: &[u8]) -> usize {
    let skipped = usize::try_from(session.swallow).unwrap_or(usize::MAX).min(input.len());
    session.swallow -= skipped as u64;
    if !session.swallow_line {
        return skipped;
    }
    let rest = input.get(skipped..).unwrap_or_default();
    let end = memchr::memchr(b'\n', rest);
    session.swallow_line = end.is_none();
    skipped + end.map_or(rest.len(), |end| end + 1)
}

impl<'c> Call<'c> {
    /// Executes a batch; returns the bytes dealt with, and why it stopped early.
    fn batch(&mut self, planned: &[Planned<'_>]) -> (usize, Option<Then>) {
        let mut done = 0;
        for planned in planned {
            let (hashes, rest) = self.hashes.split_at(planned.keys.min(self.hashes.len()));
            match self.step(planned, hashes) {
                Flow::Done => {
                    done = planned.end;
                    self.session.keys_done = 0;
                    self.session.line = planned.line;
                    self.session.old = None;
                }
                Flow::Stop(Then::Close) => return (planned.end, Some(Then::Close)),
                Flow::Stop(then) => return (done, Some(then)),
            }
            self.hashes = rest;
        }
        (done, None)
    }

    #[inline]
    fn step(&mut self, planned: &Planned<'_>, hashes: &[KeyHash]) -> Flow {
        if let Some(stop) = self.may_not_start() {
            return Flow::Stop(stop);
        }
        match planned.step {
            Step::Request { request, .. } | Step::Keys { request, .. } => {
                let flow = self.request(&request, hashes);
                if matches!((&flow, planned.line), (Flow::Done, None)) {
                    self.end_retrieval(&request);
                }
                if matches!(flow, Flow::Done) {
                    *self.left = self.left.saturating_sub(1);
                }
                let moved = self.seat.worker.take_moved_bytes();
                *self.bytes_left = self.bytes_left.saturating_sub(moved);
                flow
            }
            Step::Refused { reply, refusal, then, discard, .. } => {
                self.seat.counters.protocol_errors.count();
                self.count_refusal(refusal);
                if let Some(key) = discard {
                    self.seat.discard(key, self.key, self.now.seconds);
                }
                if let Some(refusal) = reply {
                    self.out.bytes.extend_from_slice(refusal.reply());
                }
                match then {
                    AfterRefusal::Continue => {}
                    AfterRefusal::Swallow(bytes) => self.session.swallow = bytes,
                    AfterRefusal::SwallowLine => self.session.swallow_line = true,
                    AfterRefusal::Close => return Flow::Stop(Then::Close),
                }
                Flow::Done
            }
            Step::Incomplete { .. } => Flow::Done,
        }
    }

    /// Counts what the parser has refused where memcached counts it: a value that is too large is
    /// no store, but one with a malformed data block is.
    fn count_refusal(&self, refusal: Option<Refusal>) {
        let counters = &self.seat.counters;
        match refusal {
            Some(Refusal::TooLarge) => counters.store_too_large.count(),
            Some(Refusal::BadDataChunk) => counters.cmd_set.count(),
            _ => {}
        }
    }

    /// Reason for which the next request, or its next key, may not be executed in this turn.
    #[inline]
    fn may_not_start(&mut self) -> Option<Then> {
        if *self.left == 0
            || *self.bytes_left == 0
            || self.out.len() >= self.limits.output_bytes.min(TURN_BYTES)
            || self.out.holes.len() >= self.limits.pending_reads
        {
            return Some(Then::Yield);
        }
        let until = match self.seat.worker.admit(self.now.nanos) {
            Admission::Go => return None,
            Admission::Wait { until } => until,
            Admission::Stopped => Nanos(u64::MAX),
        };
        self.seat.counters.account_refusals.count();
        Some(Then::Throttle { until })
    }

    #[inline]
    fn request(&mut self, request: &Request<'_>, hashes: &[KeyHash]) -> Flow {
        let hash = hashes.first().copied();
        match (request, hash) {
            (Request::Get { keys, cas }, _) => self.get(*keys, *cas, None, hashes),
            (Request::GetAndTouch { keys, cas, exptime }, _) => {
                self.get(*keys, *cas, Some(*exptime), hashes)
            }
            (Request::Store(store), Some(hash)) => self.command(hash).store(store),
            (Request::Delete(delete), Some(hash)) => self.command(hash).delete(delete),
            (Request::Arithmetic(arithmetic), Some(hash)) => {
                self.command(hash).arithmetic(arithmetic)
            }
            (Request::Touch(touch), Some(hash)) => self.command(hash).touch(touch),
            (Request::MetaGet(get), Some(hash)) => self.command(hash).meta_get(get),
            (Request::MetaSet(set), Some(hash)) => self.command(hash).meta_set(set),
            (Request::MetaDelete(delete), Some(hash)) => self.command(hash).meta_delete(delete),
            (Request::MetaArithmetic(arithmetic), Some(hash)) => {
                self.command(hash).meta_arithmetic(arithmetic)
            }
            (Request::MetaDebug(debug), Some(hash)) => self.command(hash).meta_debug(debug),
            _ => self.control(request),
        }
    }

    #[inline]
    fn command(&mut self, hash: KeyHash) -> Command<'_> {
        let (old, arrived) = (self.session.old.as_ref(), &mut self.session.arrived);
        Command { seat: self.seat, out: self.out, old, arrived, key: self.key, hash, now: self.now }
    }

    fn control(&mut self, request: &Request<'_>) -> Flow {
        if let Request::LruCrawler { argument } = request {
            *self.bytes_left = 0;
            return self.key_list().go_on(argument);
        }
        if matches!(request, Request::Stats { .. } | Request::MemoryLimit { .. }) {
            // These read the whole tenant, so one of them fills a turn.
            *self.bytes_left = 0;
        }
        Control { seat: self.seat, out: self.out, now: self.now }.run(request)
    }

    fn key_list(&mut self) -> KeyList<'_> {
        KeyList {
            tenant: &self.seat.tenant,
            worker: &mut self.seat.worker,
            walk: &mut self.session.listing,
            out: &mut self.out.bytes,
            now: self.now,
        }
    }
}

impl Command<'_> {
    /// Stores the value of a request, or the one that arrived ahead of it.
    #[inline]
    fn send(&mut self, key: &[u8], store: &Store<'_>) -> Stored {
        let (worker, now) = (&mut self.seat.worker, self.now.seconds);
        let mut stored = match self.arrived.take() {
            None => worker.begin_store(key, self.hash, now, store, self.old),
            Some(arrived) => return self.send_arrived(key, store, arrived),
        };
        if matches!(stored, Stored::Unfinished) {
            stored = self.go_on(key, store);
        }
        stored
    }

    /// Stores a value that did not come with its request, or goes on to copy one.
    #[cold]
    fn send_arrived(&mut self, key: &[u8], store: &Store<'_>, arrived: Arrived) -> Stored {
        let (worker, now) = (&mut self.seat.worker, self.now.seconds);
        let stored = match arrived {
            Arrived::Value(upload) => worker.begin_store_upload(key, self.hash, now, store, upload),
            Arrived::Reserved(place) => match place.store(worker, key, self.hash, now, store) {
                StoredInPlace::Done(stored) => stored,
                StoredInPlace::Elsewhere(value) => {
                    return self.send_bytes(key, store, Bytes::whole(value));
                }
            },
            Arrived::Bytes(bytes) => return self.send_bytes(key, store, bytes),
            Arrived::Unfinished(join) => worker.go_on(key, self.hash, now, store, join),
            Arrived::NoRoom => {
                if store.mode == StoreMode::Set && store.compare.is_none() {
                    // As in memcached, an item that could not be replaced is not served any more.
                    worker.delete(key, self.hash, now, &DeleteOptions::default(), None);
                }
                Stored::NoMemory
            }
        };
        if stored == Stored::Unfinished {
            *self.arrived = self.seat.worker.take_unfinished().map(Arrived::Unfinished);
        }
        stored
    }

    /// Stores a value that is no longer in its place.
    fn send_bytes(&mut self, key: &[u8], store: &Store<'_>, bytes: Bytes) -> Stored {
        let store = Store { value: &bytes.value, ..*store };
        let (worker, now) = (&mut self.seat.worker, self.now.seconds);
        let stored = worker.begin_store(key, self.hash, now, &store, self.old);
        if stored == Stored::Busy {
            *self.arrived = Some(Arrived::Bytes(bytes));
        }
        stored
    }

    /// Copies the first part of a large value.
    #[cold]
    fn go_on(&mut self, key: &[u8], store: &Store<'_>) -> Stored {
        match self.seat.worker.take_unfinished() {
            Some(join) => self.send_arrived(key, store, Arrived::Unfinished(join)),
            None => Stored::NoMemory,
        }
    }

    /// Lets others have their turns before the next part of a large value is copied.
    #[cold]
    fn put_off(&mut self) -> Flow {
        if self.arrived.as_mut().is_some_and(Arrived::waits_for_file) {
            return Flow::Stop(Then::AwaitFile);
        }
        let lacks_room =
            |arrived: &Arrived| matches!(arrived, Arrived::Unfinished(join) if join.lacks_room());
        let waits = self.arrived.as_ref().is_some_and(lacks_room);
        Flow::Stop(if waits { Then::MakeRoom } else { Then::Yield })
    }

    /// Parks the connection until a write buffer has come back.
    fn wait_for_buffer(&mut self) -> Flow {
        Flow::Stop(wait_for_buffer(self.seat, self.now))
    }
}

#[cfg(test)]
mod tests;
