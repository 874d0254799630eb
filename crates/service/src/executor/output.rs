//! Replies of a turn, with holes for values from a block file, and values that are sent from memory
//! of their own.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use entresol_cache::{Damaged, FileIo, PendingRead, Pinned, Worker};
use entresol_media::{IoBuffer, SendPart, send_parts};
use entresol_protocol::encode;

use super::Flow;
use super::apart::{Apart, ReadValue};
use crate::counters::Counters;

/// Bytes of replies before a large value on a block file from which on it is read.
const READ_AHEAD_BYTES: usize = 256 << 10;
/// Bytes of a value from a block file that are copied into the replies at most. Longer ones are
/// sent from the buffer that they were read into; the buffers of shorter ones are few, and the next
/// reads need them.
const COPIED_BYTES_MAX: usize = 32 << 10;

/// Replies in the order of their requests.
#[derive(Debug, Default)]
pub struct Output {
    /// Bytes of the replies.
    pub bytes: Vec<u8>,
    /// Holes in the order of their places.
    pub holes: Vec<Hole>,
    /// Values that are sent from memory of their own, in the order of their places.
    values: Vec<Inserted>,
    /// Bytes of these values.
    value_bytes: usize,
}

/// A value that is sent in the middle of the replies.
#[derive(Debug)]
struct Inserted {
    /// Offset in the bytes of the replies, before which it is sent.
    at: usize,
    value: Apart,
    /// Lookup that is a miss if the value turns out to be damaged before any of it is sent.
    opening: Option<Opening>,
}

/// Lookup of a large value on a block file whose beginning is being read.
#[derive(Debug)]
struct Opening {
    /// Range of the reply in the output, without the value.
    reply: Range<usize>,
    miss: Vec<u8>,
    touch: bool,
}

/// Bytes that may be read ahead of large values on a block file.
#[derive(Debug, Clone, Copy)]
pub struct ReadRoom {
    /// Bytes that may be read at most.
    pub most: usize,
    /// Bytes of these for more than what is needed next.
    pub spare: usize,
}

impl ReadRoom {
    fn take(&mut self, bytes: usize) {
        self.most = self.most.saturating_sub(bytes);
        self.spare = self.spare.saturating_sub(bytes);
    }
}

/// Part of a range of the replies.
enum Part {
    /// These bytes.
    Bytes(Range<usize>),
    /// Range of the inserted value with this number.
    Value(usize, Range<usize>),
}

/// A reply whose value must be read from a block file.
#[derive(Debug)]
pub struct Hole {
    /// Range of the reply in the output: header, value, if that is copied, and line ending.
    reply: Range<usize>,
    /// Read that fills the hole.
    pub read: PendingRead,
    place: HolePlace,
    /// Reply that takes its place if the read fails.
    miss: Vec<u8>,
    /// True if the lookup counts as a touch rather than a get.
    touch: bool,
    /// Set once the read has failed.
    failed: bool,
}

/// Place of the value of a hole.
#[derive(Debug)]
enum HolePlace {
    /// This range of the bytes of the replies.
    Room(Range<usize>),
    /// Inserted value with this number.
    Value(usize),
}

impl Output {
    /// Returns the bytes of all replies, large values included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.value_bytes
    }

    /// Returns true if there are no replies.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if values are among the replies that are sent from memory of their own.
    #[inline]
    #[must_use]
    pub fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// Returns true if this alone keeps the memory of a large value.
    #[must_use]
    pub fn has_orphan(&self) -> bool {
        self.values.iter().any(|it| it.value.pinned().is_some_and(Pinned::is_orphan))
    }

    /// Returns the bytes of memory that inserted values take beside their place in the cache.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.values.iter().map(|it| it.value.buffered_bytes()).sum()
    }

    /// Adds a large value behind the replies so far, in a reply that began at `start`, and the end
    /// of that reply. `miss` is the reply that takes its place if the value turns out to be damaged
    /// before any of it is sent. Returns true if the lookup is over; otherwise it is counted later.
    pub(super) fn add_value(
        &mut self,
        value: Pinned,
        start: usize,
        touch: bool,
        miss: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(encode::CRLF);
        let reply = start..self.bytes.len();
        let opening = value.is_on_file().then(|| Opening { reply, miss: miss(), touch });
        let is_open = opening.is_none();
        self.insert(at, Apart::Pinned(value), opening);
        is_open
    }

    fn insert(&mut self, at: usize, value: Apart, opening: Option<Opening>) {
        debug_assert!(
            self.values.last().is_none_or(|last| last.at <= at),
            "a value at {at} behind {:?}",
            self.values.last()
        );
        self.value_bytes += value.len();
        self.values.push(Inserted { at, value, opening });
    }

    fn remove(&mut self, number: usize) {
        self.value_bytes -= self.values.remove(number).value.len();
    }

    /// Lets go what was read of large values before byte `sent`.
    pub fn let_go(&mut self, sent: usize) {
        let mut before = 0;
        for Inserted { at, value, .. } in &mut self.values {
            let start = *at + before;
            before += value.len();
            value.let_go(sent.saturating_sub(start));
        }
    }

    /// Moves the reads that bring what is sent behind byte `sent` to `out`, as far as there is
    /// room. Before the first byte is sent, the beginning of every value is read, or that of none.
    /// Returns false if there is no room for what is needed first.
    pub fn read_ahead(&mut self, sent: usize, room: &mut ReadRoom, out: &mut Vec<FileIo>) -> bool {
        let is_opening = self.is_opening();
        let is_held = |it: &Inserted| it.opening.is_some();
        let wanted = self.values.iter().filter(|it| is_held(it)).map(|it| it.value.wanted_bytes());
        if is_opening && wanted.sum::<usize>() > room.most {
            return false;
        }
        let (mut before, mut is_first) = (0, true);
        for it in &mut self.values {
            let (start, len) = (it.at + before, it.value.len());
            before += len;
            let is_next = !is_opening && start <= sent + READ_AHEAD_BYTES && sent < start + len;
            if !is_held(it) && !is_next {
                continue;
            }
            let wanted = it.value.wanted_bytes();
            if wanted > room.most {
                return !is_first;
            }
            let asked = it.value.read_ahead(room.spare.saturating_sub(wanted), out);
            room.take(asked);
            is_first = false;
        }
        true
    }

    /// Returns true while the beginnings of values are read, before which nothing is sent.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.values.iter().any(|it| it.opening.is_some())
    }

    /// Returns true if nothing can be sent, from byte `sent` on, before a read is over.
    #[must_use]
    pub fn waits_for_file(&mut self, sent: usize) -> bool {
        if self.is_opening() {
            return self.values.iter_mut().any(|it| {
                it.opening.is_some() && it.value.check_to(1).is_ok_and(|checked| checked == 0)
            });
        }
        let Part::Value(number, range) = self.part(sent, self.len()) else { return false };
        let checked = self.values[number].value.check_to(range.start + 1);
        checked.is_ok_and(|checked| checked <= range.start)
    }

    /// Ends the lookups whose values have been read at their beginning.
    fn end_openings(&mut self, worker: &mut Worker, counters: &Counters) {
        // From the back, so that the ranges of earlier replies stay valid.
        for number in (0..self.values.len()).rev() {
            let Inserted { value, opening, .. } = &mut self.values[number];
            let (Some(opening), Some(value)) = (opening.take(), value.pinned_mut()) else {
                continue;
            };
            worker.end_opening(value);
            counters.count_lookup(opening.touch, !value.is_damaged());
            if value.is_damaged() {
                counters.medium_read_failures.count();
                self.remove(number);
                self.replace(opening.reply, &opening.miss);
            }
        }
    }

    /// Puts another reply into the place of one, and moves what is behind it.
    fn replace(&mut self, reply: Range<usize>, by: &[u8]) {
        for other in self.values.iter_mut().filter(|other| other.at >= reply.end) {
            let moved = |at: usize| at - reply.len() + by.len();
            other.at = moved(other.at);
            if let Some(opening) = &mut other.opening {
                opening.reply = moved(opening.reply.start)..moved(opening.reply.end);
            }
        }
        debug_assert!(self.holes.is_empty(), "a hole is filled later than a reply before it");
        self.bytes.splice(reply, by.iter().copied());
    }

    /// Forgets all replies, and keeps the memory of their bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.holes.clear();
        self.values.clear();
        self.value_bytes = 0;
    }

    /// Returns a large value that is damaged, if it was found.
    #[must_use]
    pub fn damaged(&self) -> Option<&Pinned> {
        let mut pinned = self.values.iter().filter_map(|it| it.value.pinned());
        pinned.find(|value| value.is_damaged())
    }

    /// Sends at most so many bytes of the replies, from byte `sent` of them on, to a socket.
    /// Returns how many it has taken.
    ///
    /// # Errors
    /// Those of the system call; [`io::ErrorKind::InvalidData`] if a value is damaged.
    pub fn send(&mut self, socket: BorrowedFd<'_>, sent: usize, most: usize) -> io::Result<usize> {
        let mut parts = Vec::new();
        for part in self.checked_parts(sent, most)? {
            match part {
                Part::Bytes(range) => parts.push(SendPart::bytes(&self.bytes[range])),
                Part::Value(number, range) => {
                    self.values[number].value.append_parts(range.start, range.len(), &mut parts);
                }
            }
        }
        send_parts(socket, &parts)
    }

    /// Appends bytes of the replies like those that `send` sends to `out`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if a value is damaged.
    pub fn copy(&mut self, sent: usize, most: usize, out: &mut Vec<u8>) -> io::Result<()> {
        for part in self.checked_parts(sent, most)? {
            match part {
                Part::Bytes(range) => out.extend_from_slice(&self.bytes[range]),
                Part::Value(number, range) => {
                    self.values[number].value.append_range(range.start, range.len(), out);
                }
            }
        }
        Ok(())
    }

    /// Returns the parts of at most so many bytes of the replies, from byte `start` of them on,
    /// once the values among them are checked that far.
    fn checked_parts(&mut self, start: usize, most: usize) -> io::Result<Vec<Part>> {
        let (mut parts, mut at, end) = (Vec::new(), start, self.len().min(start + most));
        while at < end {
            let part = self.part(at, end);
            at += match &part {
                Part::Bytes(range) => range.len(),
                Part::Value(number, range) => {
                    let checked = self.values[*number].value.check_to(range.end);
                    let checked = checked.map_err(|Damaged| io::ErrorKind::InvalidData)?;
                    if checked < range.end {
                        // The rest is still to be read.
                        if checked > range.start {
                            parts.push(Part::Value(*number, range.start..checked));
                        }
                        break;
                    }
                    range.len()
                }
            };
            parts.push(part);
        }
        Ok(parts)
    }

    /// Returns the part that begins at a byte before the end of the replies, and ends at `end` at
    /// the latest.
    fn part(&self, at: usize, end: usize) -> Part {
        let mut before = 0;
        for (number, Inserted { at: place, value, .. }) in self.values.iter().enumerate() {
            let start = place + before;
            if at < start {
                return Part::Bytes(at - before..end.min(start) - before);
            }
            if at < start + value.len() {
                return Part::Value(number, at - start..(end - start).min(value.len()));
            }
            before += value.len();
        }
        Part::Bytes(at - before..end - before)
    }

    /// Appends a fixed reply unless the client wants none.
    #[inline]
    pub(super) fn reply(&mut self, noreply: bool, reply: &[u8]) -> Flow {
        if !noreply {
            self.bytes.extend_from_slice(reply);
        }
        Flow::Done
    }

    /// Adds a hole for a value behind the replies so far, in a reply that began at `start`, and the
    /// end of that reply. `miss` is the reply that takes its place if the read fails.
    pub(crate) fn add_hole(&mut self, read: PendingRead, start: usize, touch: bool, miss: Vec<u8>) {
        let (at, len) = (self.bytes.len(), read.meta.value_len as usize);
        debug_assert!(
            start <= at && self.holes.last().is_none_or(|last| last.reply.end <= start),
            "the reply at {start} reaches into the one before it, or begins behind {at}"
        );
        let place = if len > COPIED_BYTES_MAX {
            self.insert(at, Apart::Read(ReadValue::to_come(len)), None);
            HolePlace::Value(self.values.len() - 1)
        } else {
            self.bytes.resize(at + len, 0);
            HolePlace::Room(at..at + len)
        };
        self.bytes.extend_from_slice(encode::CRLF);
        let reply = start..self.bytes.len();
        self.holes.push(Hole { reply, read, place, miss, touch, failed: false });
    }

    /// Fills a hole with the range of a buffer that holds its value; `None` says that the read came
    /// to nothing.
    pub fn fill(&mut self, hole: usize, read: Option<(IoBuffer, Range<usize>)>) {
        let count = self.holes.len();
        debug_assert!(hole < count, "hole {hole} is filled, there are {count}");
        let Some(hole) = self.holes.get_mut(hole) else { return };
        let is_filled = read.is_some_and(|(buffer, range)| match &hole.place {
            HolePlace::Value(number) => self.values[*number].value.fill(buffer, range),
            HolePlace::Room(room) => {
                let room = self.bytes.get_mut(room.clone()).unwrap_or_default();
                let value = buffer.get(range).filter(|value| value.len() == room.len());
                value.map(|value| room.copy_from_slice(value)).is_some()
            }
        });
        hole.failed = !is_filled;
    }

    /// Replaces the replies of failed reads by misses, and counts all lookups. Called once no read
    /// is under way; leaves no holes.
    pub fn close_holes(&mut self, worker: &mut Worker, counters: &Counters) {
        // From the back, so that the ranges of earlier holes stay valid.
        for hole in std::mem::take(&mut self.holes).into_iter().rev() {
            counters.count_lookup(hole.touch, !hole.failed);
            if hole.failed {
                counters.medium_read_failures.count();
                if let HolePlace::Value(number) = hole.place {
                    self.remove(number);
                }
                self.replace(hole.reply, &hole.miss);
            }
        }
        self.end_openings(worker, counters);
    }
}
