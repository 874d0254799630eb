//! One limit of memory for a whole store: which use may take how much of it.
//!
//! Most shares are fixed. Memory that one use gives up seldom comes back from the allocator in one
//! piece, so that another that took it as well would take it twice. The exceptions are the cache of
//! entries and that of pages of runs, which map theirs, and take what others leave ([`room`]).

use crate::KvdbOptions;
use crate::run::WRITERS_BYTES;
use crate::types::Sequence;

mod room;

pub(crate) use room::{Borrower, Room, Taken};

/// No generation is closed for an index of fewer bytes.
const INDEX_BYTES_MIN: u64 = 256 << 10;
/// An empty index of a generation takes less than this part of the generation.
const INDEX_PART: u64 = 10;
/// What sorting takes for a record: a word and eight bytes of the key.
const SORTING_BYTES: u64 = 16;

/// What is not counted one by one: of small memory this part, of large one the bytes that code,
/// stacks and what is known of files take, and a third of this part, for holes that the allocator
/// leaves.
const UNCOUNTED_SIXTEENTHS: u64 = 3;
const UNCOUNTED_BYTES: u64 = 12 << 20;

/// What each use may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// What the cache of entries has for itself, half of what it is to have.
    pub(crate) entries: u64,
    /// The rest of that, pages of runs and indexes of the youngest data together.
    pub(crate) room: u64,
    /// BlockCache of runs, cached or held by readers, and what is known of each run: what they may
    /// have whatever the others take.
    pub(crate) pages: u64,
    /// What flushing and merging write.
    pub(crate) writing: u64,
    /// One generation.
    pub(crate) generation: GenerationLimits,
    /// A segment of the log: less than was asked for where a generation is.
    pub(crate) segment_bytes: u64,
}

/// A generation that has grown to one of these is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GenerationLimits {
    /// Bytes of its segments.
    pub(crate) bytes: u64,
    /// Bytes of its indexes.
    pub(crate) index_bytes: u64,
    /// Bytes that it takes to sort its records.
    pub(crate) sorting_bytes: u64,
    /// Prefixes that are gone by it: half of what one run says, so that one says them unless a
    /// large group comes on top.
    pub(crate) prefixes: u64,
}

impl Shares {
    pub(crate) fn of(options: &KvdbOptions) -> Shares {
        let memory = options.memory_bytes;
        let entries = options.row_cache_bytes.min(memory / 4);
        let writing = WRITERS_BYTES.min(memory / 8);
        let young = memory / 4;
        // The one that is written to, those that wait, and one that is sorted meanwhile.
        let generations = u64::from(options.generations_waiting_max) + 1;
        let index_bytes = (young / (generations + 2)).max(INDEX_BYTES_MIN);
        let generation = GenerationLimits {
            bytes: options.generation_bytes.min(index_bytes * INDEX_PART),
            index_bytes,
            sorting_bytes: 2 * index_bytes,
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
    /// Whether a generation with such an index, and records of such numbers, is to be closed.
    pub(crate) fn are_reached(&self, index_bytes: u64, first: Sequence, last: Sequence) -> bool {
        index_bytes >= self.index_bytes || sorting_bytes(first, last) >= self.sorting_bytes
    }
}

/// What it takes to sort the records of such numbers.
pub(crate) fn sorting_bytes(first: Sequence, last: Sequence) -> u64 {
    (last.0 + 1).saturating_sub(first.0) * SORTING_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: KvdbOptions) -> Shares {
        let shares = Shares::of(&options);
        let GenerationLimits { index_bytes, sorting_bytes, .. } = shares.generation;
        let generations = u64::from(options.generations_waiting_max) + 1;
        let young = generations * index_bytes + sorting_bytes;
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
