//! Large values on their way in: they go into their place in the cache as they arrive, and the
//! request is executed once the whole value is there.

use std::io;
use std::os::fd::BorrowedFd;

use entresol_base::Seconds;
use entresol_cache::{FileIo, Join, Reservation, Reserved, Store, Upload};
use entresol_protocol::{Key, KeyBuffer, Limits, Request, Step, parse_without_data};

use super::plan::{Planned, hash_keys};
use super::{Call, Flow, Then, meta, text};
use crate::tenant::Seat;

/// Bytes that are still to come of a value between others, from which on it is worth a place of its
/// own: below, another copy costs less than another system call.
const RESERVED_BYTES_MIN: usize = 32 << 10;
/// Bytes of a line ending.
const LINE_ENDING: &[u8] = b"\r\n";

/// A storage command whose value is arriving.
#[derive(Debug)]
pub(super) struct Arrival {
    line: Vec<u8>,
    value: Arrived,
    /// Bytes of the value that are still to come.
    missing: usize,
}

/// Value of a storage command that did not come with its line.
#[derive(Debug)]
pub(super) enum Arrived {
    /// Written to its pieces.
    Value(Upload),
    /// Written to its place between others.
    Reserved(Reservation),
    /// Kept in memory, since its place was not to wait for it any longer, or is of no use.
    Bytes(Bytes),
    /// Being put together with an old one, or copied to its place from the input.
    Unfinished(Box<Join>),
    /// Skipped, since the quota had no room for it.
    NoRoom,
}

/// A value in memory, as far as it has arrived.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) value: Vec<u8>,
    /// Bytes of the whole value.
    len: usize,
}

impl Bytes {
    /// Keeps a whole value.
    pub(super) fn whole(value: Vec<u8>) -> Bytes {
        Bytes { len: value.len(), value }
    }
}

/// Result of looking for a place for a value whose request is not whole.
pub(super) enum Begun {
    /// The value arrives in its place, behind a line of so many bytes.
    Arrival(Box<Arrival>, usize),
    /// Nothing: it is received as a whole before it is stored.
    No,
    /// Wait for a write buffer, of which none is free.
    Busy,
}

impl Begun {
    fn arrival(line: &[u8], value: Arrived, missing: usize) -> Begun {
        Begun::Arrival(Box::new(Arrival { line: line.to_vec(), value, missing }), line.len())
    }
}

impl Arrival {
    /// Begins the arrival of the value of the storage command at the front of `rest`, if such a
    /// value has a place of its own. `needed` are the bytes of the whole request.
    pub(super) fn begin(
        rest: &[u8],
        needed: usize,
        seat: &mut Seat,
        limits: &Limits,
        now: Seconds,
    ) -> Begun {
        let line = memchr::memchr(b'\n', rest).and_then(|end| rest.get(..=end));
        let Some(line) = line.filter(|_| seat.null_store.is_none()) else { return Begun::No };
        let len = needed.checked_sub(line.len() + LINE_ENDING.len());
        let missing = needed.saturating_sub(rest.len());
        let Some(len) = len.filter(|_| missing > 0) else { return Begun::No };
        let upload = seat.worker.begin(len);
        if upload.is_none() && missing < RESERVED_BYTES_MIN {
            return Begun::No;
        }
        let Step::Request { request, .. } = parse_without_data(line, true, limits) else {
            return Begun::No;
        };
        let place = (len, line.len());
        let reserved = match (&request, upload) {
            (Request::Store(_) | Request::MetaSet(_), Some(upload)) => {
                return Begun::arrival(line, Arrived::Value(upload), len);
            }
            (Request::Store(set), None) => {
                reserve(seat, Key::Text(set.key), now, &text::store(set, now), place)
            }
            (Request::MetaSet(set), None) => {
                reserve(seat, set.key, now, &meta::store(set, now), place)
            }
            _ => Reserved::Nothing,
        };
        match reserved {
            Reserved::Place(place) => Begun::arrival(line, Arrived::Reserved(place), len),
            Reserved::Nothing => Begun::No,
            Reserved::Busy => Begun::Busy,
        }
    }

    /// Returns the value as far as it has arrived.
    pub(super) fn value(&self) -> &Arrived {
        &self.value
    }

    /// Writes the next bytes of the value to their place; returns how many of `input` they were.
    /// They are fewer if there is no room for more.
    fn take_in(&mut self, input: &[u8], seat: &mut Seat, now: Seconds) -> usize {
        let bytes = input.get(..self.missing).unwrap_or(input);
        let taken = match &mut self.value {
            Arrived::Value(upload) => upload.write(&mut seat.worker, bytes, now),
            Arrived::Reserved(place) => place.write(&mut seat.worker, bytes),
            Arrived::Bytes(Bytes { value, .. }) => {
                value.extend_from_slice(bytes);
                bytes.len()
            }
            Arrived::Unfinished(_) | Arrived::NoRoom => bytes.len(),
        };
        self.missing -= taken;
        taken
    }

    /// Receives the next bytes of the value, at most so many, into their place; `None` if they have
    /// no place that a socket can write to.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        most: usize,
        seat: &mut Seat,
        now: Seconds,
    ) -> Option<io::Result<usize>> {
        let received = match &mut self.value {
            Arrived::Value(upload) => upload.receive(&mut seat.worker, socket, most, now)?,
            Arrived::Reserved(place) if self.missing > 0 => {
                place.receive(&mut seat.worker, socket, most)
            }
            _ => return None,
        };
        self.missing -= received.as_ref().copied().unwrap_or(0);
        Some(received)
    }

    /// Returns the value as far as it has arrived.
    pub(super) fn value_mut(&mut self) -> &mut Arrived {
        &mut self.value
    }

    /// Frees the place of what has arrived. A value in pieces goes: the rest is skipped, and the
    /// request refused. One between others is small enough to be kept in memory.
    pub(super) fn give_up(&mut self) {
        self.value = match std::mem::replace(&mut self.value, Arrived::NoRoom) {
            Arrived::Reserved(place) => {
                let len = place.len();
                Arrived::Bytes(Bytes { value: place.into_bytes(), len })
            }
            Arrived::Bytes(bytes) => Arrived::Bytes(bytes),
            Arrived::Value(_) | Arrived::Unfinished(_) | Arrived::NoRoom => Arrived::NoRoom,
        };
    }
}

impl Arrived {
    /// Returns the bytes of the value that was sent, unless its request has them.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Arrived::Value(upload) => Some(upload.len()),
            Arrived::Reserved(place) => Some(place.len()),
            Arrived::Bytes(bytes) => Some(bytes.len),
            Arrived::Unfinished(join) => join.added_len(),
            Arrived::NoRoom => None,
        }
    }

    /// Moves the reads and writes of a block file that it needs to `out`.
    pub(super) fn take_requests(&mut self, out: &mut Vec<FileIo>) {
        match self {
            Arrived::Value(upload) => upload.take_requests(out),
            Arrived::Unfinished(join) => join.take_requests(out),
            Arrived::Reserved(_) | Arrived::Bytes(_) | Arrived::NoRoom => {}
        }
    }

    /// Returns true if it goes on only once one of those is over.
    pub(super) fn waits_for_file(&mut self) -> bool {
        match self {
            Arrived::Value(upload) => upload.waits_for_file(),
            Arrived::Unfinished(join) => join.waits_for_file(),
            Arrived::Reserved(_) | Arrived::Bytes(_) | Arrived::NoRoom => false,
        }
    }

    /// Returns the bytes that have arrived, or were copied.
    pub(super) fn written(&self) -> usize {
        match self {
            Arrived::Value(upload) => upload.written(),
            Arrived::Reserved(place) => place.written(),
            Arrived::Bytes(bytes) => bytes.value.len(),
            Arrived::Unfinished(join) => join.written(),
            Arrived::NoRoom => 0,
        }
    }

    /// Returns true if it has segments for itself.
    pub(super) fn is_in_pieces(&self) -> bool {
        matches!(self, Arrived::Value(_) | Arrived::Unfinished(_))
    }

    /// Returns the bytes of memory that it takes beside its place in the cache.
    pub(super) fn buffered_bytes(&self) -> usize {
        match self {
            Arrived::Value(upload) => upload.buffered_bytes(),
            Arrived::Unfinished(join) => join.buffered_bytes(),
            Arrived::Bytes(bytes) => bytes.value.capacity(),
            Arrived::Reserved(_) | Arrived::NoRoom => 0,
        }
    }
}

/// Reserves a place between those of other items for a value of so many bytes, which follows so
/// many bytes of its request.
fn reserve(
    seat: &mut Seat,
    key: Key<'_>,
    now: Seconds,
    store: &Store<'_>,
    place: (usize, usize),
) -> Reserved {
    let mut buffer = KeyBuffer::default();
    let key = key.resolve(&mut buffer);
    let hash = seat.worker.hash(key);
    Reservation::begin(&mut seat.worker, key, hash, now, store, place)
}

impl Call<'_> {
    /// Hands the front of `input` to the value that is arriving, and executes its request behind
    /// it. Returns the bytes dealt with, and why the turn stops.
    pub(super) fn arrive(&mut self, input: &[u8]) -> (usize, Option<Then>) {
        if let Some(stop) = self.may_not_start() {
            return (0, Some(stop));
        }
        let Some(mut arrival) = self.session.arrival.take() else { return (0, None) };
        let taken = arrival.take_in(input, self.seat, self.now.seconds);
        let moved = self.seat.worker.take_moved_bytes();
        *self.bytes_left = self.bytes_left.saturating_sub(moved);
        if arrival.value.waits_for_file() {
            self.session.arrival = Some(arrival);
            return (taken, Some(Then::AwaitFile));
        }
        if arrival.missing > 0 && taken < input.len() {
            self.session.arrival = Some(arrival);
            return (taken, Some(Then::MakeRoom));
        }
        let ending = input.get(taken..).and_then(|rest| rest.get(..LINE_ENDING.len()));
        let Some(ending) = ending.filter(|_| arrival.missing == 0) else {
            let needed = if arrival.missing == 0 { LINE_ENDING.len() } else { 1 };
            self.session.arrival = Some(arrival);
            return (taken, Some(Then::Read { needed }));
        };
        let Arrival { line, value, .. } = *arrival;
        let is_terminated = ending == LINE_ENDING;
        match parse_without_data(&line, is_terminated, &self.limits.protocol) {
            Step::Request { request, .. } => {
                let mut hashes = Vec::with_capacity(1);
                hash_keys(&request, self.seat, &mut hashes);
                self.session.arrived = Some(value);
                let flow = self.request(&request, &hashes);
                self.seat.worker.take_moved_bytes();
                if let Flow::Stop(then) = flow {
                    let value = self.session.arrived.take();
                    debug_assert!(value.is_some(), "a value is lost, and its request is not done");
                    let value = value.unwrap_or(Arrived::NoRoom);
                    self.session.arrival = Some(Box::new(Arrival { line, value, missing: 0 }));
                    return (taken, Some(then));
                }
                self.session.arrived = None;
                *self.left = self.left.saturating_sub(1);
            }
            step => {
                // Malformed: the value goes, and the refusal may have to wait for its turn.
                drop(value);
                let planned = Planned { step, end: 0, keys: 0, line: None };
                if let Flow::Stop(then) = self.step(&planned, &[]) {
                    let value = Arrived::NoRoom;
                    self.session.arrival = Some(Box::new(Arrival { line, value, missing: 0 }));
                    return (taken, Some(then));
                }
            }
        }
        (taken + LINE_ENDING.len(), None)
    }
}
