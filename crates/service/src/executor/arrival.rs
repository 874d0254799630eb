//! Large values on their way in: they go into their place in the cache as they arrive, and the
//! request is executed once the whole value is there.

use std::io;
use std::os::fd::BorrowedFd;

use entresol_base::Seconds;
use entresol_cache::{FileIo, Join, Upload};
use entresol_protocol::{Limits, Request, Step, parse_without_data};

use super::plan::{Planned, hash_keys};
use super::{Call, Flow, Then};
use crate::tenant::Seat;

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
    /// Written to its place.
    Value(Upload),
    /// Being put together with an old one, or copied to its place from the input.
    Unfinished(Box<Join>),
    /// Skipped, since the quota had no room for it.
    NoRoom,
}

impl Arrival {
    /// Begins the arrival of the value of the storage command at the front of `rest`, if such a
    /// value has a place of its own. `needed` are the bytes of the whole request.
    pub(super) fn begin(
        rest: &[u8],
        needed: usize,
        seat: &Seat,
        limits: &Limits,
    ) -> Option<(Arrival, usize)> {
        let end = memchr::memchr(b'\n', rest)? + 1;
        let len = needed.checked_sub(end + LINE_ENDING.len())?;
        let line = rest.get(..end)?;
        if seat.null_store.is_some() || needed <= rest.len() {
            return None;
        }
        let upload = seat.worker.begin(len)?;
        let step = parse_without_data(line, true, limits);
        let Step::Request { request: Request::Store(_) | Request::MetaSet(_), .. } = step else {
            return None;
        };
        let value = Arrived::Value(upload);
        Some((Arrival { line: line.to_vec(), value, missing: len }, end))
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
        let Arrived::Value(upload) = &mut self.value else { return None };
        let received = upload.receive(&mut seat.worker, socket, most, now)?;
        self.missing -= received.as_ref().copied().unwrap_or(0);
        Some(received)
    }

    /// Returns the value as far as it has arrived.
    pub(super) fn value_mut(&mut self) -> &mut Arrived {
        &mut self.value
    }

    /// Frees what has arrived: the rest is skipped, and the request refused.
    pub(super) fn give_up(&mut self) {
        self.value = Arrived::NoRoom;
    }
}

impl Arrived {
    /// Returns the bytes of the value that was sent, unless its request has them.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Arrived::Value(upload) => Some(upload.len()),
            Arrived::Unfinished(join) => join.added_len(),
            Arrived::NoRoom => None,
        }
    }

    /// Moves the reads and writes of a block file that it needs to `out`.
    pub(super) fn take_requests(&mut self, out: &mut Vec<FileIo>) {
        match self {
            Arrived::Value(upload) => upload.take_requests(out),
            Arrived::Unfinished(join) => join.take_requests(out),
            Arrived::NoRoom => {}
        }
    }

    /// Returns true if it goes on only once one of those is over.
    pub(super) fn waits_for_file(&mut self) -> bool {
        match self {
            Arrived::Value(upload) => upload.waits_for_file(),
            Arrived::Unfinished(join) => join.waits_for_file(),
            Arrived::NoRoom => false,
        }
    }

    /// Returns the bytes that are in their place.
    pub(super) fn written(&self) -> usize {
        match self {
            Arrived::Value(upload) => upload.written(),
            Arrived::Unfinished(join) => join.written(),
            Arrived::NoRoom => 0,
        }
    }

    /// Returns the bytes of memory that it takes beside its place in the cache.
    pub(super) fn buffered_bytes(&self) -> usize {
        match self {
            Arrived::Value(upload) => upload.buffered_bytes(),
            Arrived::Unfinished(join) => join.buffered_bytes(),
            Arrived::NoRoom => 0,
        }
    }
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
