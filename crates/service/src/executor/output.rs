//! Replies of a turn, with holes for values from a block file.

use std::ops::Range;

use entresol_cache::PendingRead;

use super::Flow;
use crate::counters::Counters;

/// Replies in the order of their requests.
#[derive(Debug, Default)]
pub struct Output {
    /// Bytes of the replies.
    pub bytes: Vec<u8>,
    /// Holes in the order of their places.
    pub holes: Vec<Hole>,
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
