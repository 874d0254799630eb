//! Replies of a turn, with holes for values from a block file, and large values that are sent from
//! their place in the cache.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use entresol_cache::{Damaged, PendingRead, Pinned};
use entresol_media::{SendPart, send_parts};

use super::Flow;
use crate::counters::Counters;

/// Replies in the order of their requests.
#[derive(Debug, Default)]
pub struct Output {
    /// Bytes of the replies.
    pub bytes: Vec<u8>,
    /// Holes in the order of their places.
    pub holes: Vec<Hole>,
    /// Large values in the order of their places.
    values: Vec<Inserted>,
    /// Bytes of these values.
    value_bytes: usize,
}

/// A large value that is sent in the middle of the replies.
#[derive(Debug)]
struct Inserted {
    /// Offset in the bytes of the replies, before which it is sent.
    at: usize,
    value: Pinned,
}

/// Part of a range of the replies.
enum Part {
    /// These bytes.
    Bytes(Range<usize>),
    /// Range of the large value with this number.
    Value(usize, Range<usize>),
}

/// A reply whose value must be read from a block file.
#[derive(Debug)]
pub struct Hole {
    /// Range of the whole reply in the output: header, value and line ending.
    pub reply: Range<usize>,
    /// Read that fills the hole.
    pub read: PendingRead,
    /// Reply that takes its place if the read fails.
    pub miss: Vec<u8>,
    /// True if the lookup counts as a touch rather than a get.
    pub touch: bool,
    /// Set once the read has failed.
    pub failed: bool,
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

    /// Returns true if large values are among the replies.
    #[inline]
    #[must_use]
    pub fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// Returns true if this alone keeps the memory of a large value.
    #[must_use]
    pub fn has_orphan(&self) -> bool {
        self.values.iter().any(|it| it.value.is_orphan())
    }

    /// Returns the bytes of memory that large values take beside their place in the cache.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.values.iter().map(|it| it.value.buffered_bytes()).sum()
    }

    /// Adds a large value behind the replies so far.
    pub(super) fn add_value(&mut self, value: Pinned) {
        self.value_bytes += value.len();
        self.values.push(Inserted { at: self.bytes.len(), value });
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
        self.values.iter().map(|it| &it.value).find(|value| value.is_damaged())
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
                    checked.map_err(|Damaged| io::ErrorKind::InvalidData)?;
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
        for (number, Inserted { at: place, value }) in self.values.iter().enumerate() {
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

    /// Adds a hole in a reply that is written whole.
    pub(crate) fn add_hole(&mut self, hole: Hole) {
        let (reply, room, end) = (&hole.reply, &hole.read.room, self.bytes.len());
        debug_assert!(
            reply.start <= room.start && room.end <= reply.end && reply.end <= end,
            "value at {room:?} in the reply at {reply:?} of {end} bytes"
        );
        debug_assert!(
            self.holes.last().is_none_or(|last| last.reply.end <= reply.start),
            "the reply at {reply:?} reaches into the one before it"
        );
        self.holes.push(hole);
    }

    /// Fills a hole with its value; `None` says that the read came to nothing.
    pub fn fill(&mut self, hole: usize, value: Option<&[u8]>) {
        let count = self.holes.len();
        debug_assert!(hole < count, "hole {hole} is filled, there are {count}");
        let Some(hole) = self.holes.get_mut(hole) else { return };
        let room = self.bytes.get_mut(hole.read.room.clone());
        match (value, room) {
            (Some(value), Some(room)) if value.len() == room.len() => room.copy_from_slice(value),
            _ => hole.failed = true,
        }
    }

    /// Replaces the replies of failed reads by misses, and counts all lookups. Called once no read
    /// is under way; leaves no holes.
    pub fn close_holes(&mut self, counters: &Counters) {
        // From the back, so that the ranges of earlier holes stay valid.
        for hole in self.holes.drain(..).rev() {
            counters.count_lookup(hole.touch, !hole.failed);
            if hole.failed {
                counters.medium_read_failures.count();
                self.bytes.splice(hole.reply, hole.miss);
            }
        }
    }
}
