//! Files on persistent memory, whose sectors are lines: a write becomes durable when it was flushed
//! and the flushing thread drains.

use std::ops::Range;

use entresol_base::world::ThreadId;

use super::File;

const WORD_BYTES: u64 = 8;

/// A line that a thread has flushed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushed {
    thread: ThreadId,
    line: u64,
    /// Last write that is flushed, by any thread.
    order: u64,
}

impl File {
    /// Writes a random subset of the words in `bytes`, as in the middle of a copy.
    pub(in crate::disk) fn write_drawn(&mut self, order: u64, offset: u64, bytes: &[u8]) {
        let mut mixed = vec![0; bytes.len()];
        self.read(offset, &mut mixed);
        for (place, (mixed, byte)) in (offset..).zip(mixed.iter_mut().zip(bytes)) {
            let drawn = ((order << 32) ^ (place / self.sector)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            if (drawn >> (56 + place / WORD_BYTES % 8)) & 1 == 1 {
                *mixed = *byte;
            }
        }
        self.write_within(order, offset, &mixed);
    }

    /// Flushes these lines, as far as they are not durable.
    pub(in crate::disk) fn flush(&mut self, lines: Range<u64>, thread: ThreadId) {
        for (&line, versions) in self.unsettled.range(lines) {
            let order = versions.last().map_or(0, |version| version.order);
            self.flushed.push(Flushed { thread, line, order });
        }
    }

    /// Returns true if a drain of this thread makes anything durable.
    pub(in crate::disk) fn has_flushed(&self, thread: ThreadId) -> bool {
        self.flushed.iter().any(|flushed| flushed.thread == thread)
    }

    /// Makes this thread's flushed lines durable.
    pub(in crate::disk) fn drain(&mut self, thread: ThreadId) {
        for Flushed { line, order, .. } in
            self.flushed.extract_if(.., |flushed| flushed.thread == thread)
        {
            let Some(versions) = self.unsettled.get_mut(&line) else { continue };
            let done = versions.partition_point(|version| version.order <= order);
            if let Some(version) = versions.drain(..done).next_back() {
                self.durable.set(line, version.bytes);
            }
            if versions.is_empty() {
                self.unsettled.remove(&line);
            }
        }
    }
}
