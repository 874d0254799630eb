//! Files of persistent memory, whose sectors are lines: what is written to them becomes durable
//! when it was flushed and the thread that did so drains.

use std::ops::Range;

use entresol_base::world::ThreadId;

use super::File;

const WORD_BYTES: u64 = 8;

/// A line that a thread has flushed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushed {
    thread: ThreadId,
    line: u64,
    /// The last write that is flushed, by whomever.
    order: u64,
}

impl File {
    /// Writes some words of `bytes`, of each line any: in the midst of a copy.
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

    /// Flushes these lines, as far as anything in them is not durable.
    pub(in crate::disk) fn flush(&mut self, lines: Range<u64>, thread: ThreadId) {
        for (&line, versions) in self.unsettled.range(lines) {
            let order = versions.last().map_or(0, |version| version.order);
            self.flushed.push(Flushed { thread, line, order });
        }
    }

    /// Whether a drain of this thread makes anything durable.
    pub(in crate::disk) fn has_flushed(&self, thread: ThreadId) -> bool {
        self.flushed.iter().any(|flushed| flushed.thread == thread)
    }

    /// Makes durable what this thread has flushed.
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
