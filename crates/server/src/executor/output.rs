//! Replies on their way out, with holes where values from a block file belong.

use std::ops::Range;

use entresol_cache::PendingRead;

use crate::counters::Counters;

/// Replies in the order of their requests.
#[derive(Debug, Default)]
pub struct Output {
    /// The replies' bytes.
    pub bytes: Vec<u8>,
    /// Values to be filled in, in the order of their places.
    pub holes: Vec<Hole>,
}

/// A reply whose value must be read from a block file.
#[derive(Debug)]
pub struct Hole {
    /// Where the whole reply lies in the output: header, value and line ending.
    pub reply: Range<usize>,
    /// What to read.
    pub read: PendingRead,
    /// What takes the reply's place if the read comes to nothing.
    pub miss: Vec<u8>,
    /// The lookup counts as a touch rather than a get.
    pub touch: bool,
    /// The read came to nothing.
    pub failed: bool,
}

impl Output {
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

    /// Once no read is under way: puts misses in the place of replies whose reads came to nothing,
    /// and counts all of them. After this there are no holes.
    pub fn close_holes(&mut self, counters: &Counters) {
        // From the back, so that the places of those before stay what they are.
        for hole in self.holes.drain(..).rev() {
            let (commands, hits, misses) = if hole.touch {
                (&counters.cmd_touch, &counters.touch_hits, &counters.touch_misses)
            } else {
                (&counters.cmd_get, &counters.get_hits, &counters.get_misses)
            };
            commands.count();
            if hole.failed {
                misses.count();
                counters.medium_read_failures.count();
                self.bytes.splice(hole.reply, hole.miss);
            } else {
                hits.count();
            }
        }
    }
}
