//! The memory budget of a whole store: how much of it each use may take.
//!
//! Most shares are fixed. Memory that one use frees seldom comes back from the allocator in one
//! piece, so another use of it would take it twice. The exceptions are the row cache and the block
//! cache, which map their memory themselves, and take what others leave ([`room`]).

use crate::KvdbOptions;
use crate::types::Sequence;

mod room;

pub(crate) use room::{Borrower, Room, RoomShare};

/// Fewest bytes of an index for which a generation is closed.
const INDEX_BYTES_MIN: u64 = 256 << 10;
/// An empty index of a generation takes less than this fraction of the generation's bytes.
const INDEX_PART: u64 = 10;
/// Bytes that a sorted record takes: six of its place, and its share of eight bytes of one key in
/// sixteen, rounded up.
const SORTING_BYTES: u64 = 7;

/// Memory of two writers, of a flush and of a compaction. Each has its buffer, the hashes of a
/// group of keys with their filter, and some blocks.
const WRITERS_BYTES: u64 = 8 << 20;

/// Memory that is not counted one by one. Of a small budget it is these sixteenths. Of a large one
/// it is these bytes, for code, stacks and the state of files, and one sixteenth for holes that the
/// allocator leaves.
const UNCOUNTED_SIXTEENTHS: u64 = 3;
const UNCOUNTED_BYTES: u64 = 12 << 20;

/// Bytes that each use may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The row cache's own memory, half of what it is to have.
    pub(crate) entries: u64,
    /// The other half, the block cache and memtable indexes, together.
    pub(crate) room: u64,
    /// The block cache's own memory, whatever the others take. It holds blocks that are cached or
    /// in use by readers, and what is known of each run.
    pub(crate) pages: u64,
    /// Buffers of flushes and compactions.
    pub(crate) writing: u64,
    /// Limits of one generation.
    pub(crate) generation: GenerationLimits,
    /// Bytes of a segment of the log, fewer than the option asks for if a generation has fewer too.
    pub(crate) segment_bytes: u64,
}

/// Limits at which a generation is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GenerationLimits {
    /// Bytes of its segments.
    pub(crate) bytes: u64,
    /// Bytes of its indexes, and of its records' places in the order of keys.
    pub(crate) index_bytes: u64,
    /// Number of its range deletes. It is half of what one run holds, so that they fit in one run
    /// unless a large group comes on top.
    pub(crate) prefixes: u64,
}

impl Shares {
    pub(crate) fn of(options: &KvdbOptions) -> Shares {
        let memory = options.memory_bytes;
        let entries = options.row_cache_bytes.min(memory / 4);
        let writing = WRITERS_BYTES.min(memory / 8);
        let young = memory / 4;
        // The active generation, and those that wait to be flushed.
        let generations = u64::from(options.generations_waiting_max) + 1;
        let index_bytes = (young / generations).max(INDEX_BYTES_MIN);
        let generation = GenerationLimits {
            bytes: options.generation_bytes.min(index_bytes * INDEX_PART),
            index_bytes,
            prefixes: u64::from(options.range_deletes_per_run_max).div_ceil(2),
        };
        let segment_bytes = match generation.bytes < options.generation_bytes {
            true => options.segment_bytes.min(generation.bytes / 2 / 4096 * 4096),
            false => options.segment_bytes,
        };
        let sixteenth = memory / 16;
        let uncounted = (sixteenth * UNCOUNTED_SIXTEENTHS).min(UNCOUNTED_BYTES + sixteenth);
        let pages = memory - uncounted - entries - writing - young;
        let (entries, room) = (entries / 2, pages + young + entries / 2);
        Shares { entries, room, pages, writing, generation, segment_bytes }
    }
}

impl GenerationLimits {
    /// Returns true if a generation should be closed whose indexes take so many bytes once all is
    /// sorted.
    pub(crate) fn are_reached(&self, index_bytes: u64) -> bool {
        index_bytes >= self.index_bytes
    }
}

/// Returns the bytes that sorting the records with these numbers takes.
pub(crate) fn sorting_bytes(first: Sequence, last: Sequence) -> u64 {
    (last.0 + 1).saturating_sub(first.0) * SORTING_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: KvdbOptions) -> Shares {
        let shares = Shares::of(&options);
        let GenerationLimits { index_bytes, .. } = shares.generation;
        let generations = u64::from(options.generations_waiting_max) + 1;
        let young = generations * index_bytes;
        let sum = shares.entries + shares.room + shares.writing;
        let uncounted = options.memory_bytes - sum;
        assert!(uncounted >= (options.memory_bytes / 16 * 3).min(12 << 20), "{shares:?}");
        assert!(shares.room >= shares.pages + young, "{shares:?} of {options:?}");
        shares
    }

    #[test]
    fn shares_leave_some_of_the_memory() {
        let usual = KvdbOptions::default();
        for memory_bytes in [8 << 20, 32 << 20, 64 << 20, 1 << 30] {
            for generations_waiting_max in [1, 4] {
                check(KvdbOptions { memory_bytes, generations_waiting_max, ..usual });
            }
            check(KvdbOptions { memory_bytes, row_cache_bytes: 0, ..usual });
        }
    }

    #[test]
    fn with_the_usual_memory_generations_are_as_large_as_asked_for() {
        let shares = check(KvdbOptions::default());
        assert_eq!(shares.generation.bytes, KvdbOptions::default().generation_bytes);
        assert!(shares.pages >= 64 << 20, "{shares:?}");
    }
}
