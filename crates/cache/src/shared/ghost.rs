//! Ghost tags: short hashes of the keys that eviction let go last, each with the log that it left.
//! A key that is stored again while its tag is there was let go too early.
//!
//! | bits of a line of 64 bytes | contents |
//! |---|---|
//! | 16 | number of the tag to be replaced next |
//! | 31 times 16 | tag (15 bits, 0 for none) and, in the upper bit, the log |
//!
//! Tags are hints: threads write them without a lock, and a lost or a false one costs no more than
//! a misplaced item.

use std::sync::atomic::{AtomicU64, Ordering};

use entresol_media::{Direct, RegionError};

use crate::segment::Log;

/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;
/// Tags of a line.
const TAGS: u64 = 31;
/// Tags for an item of the cache. The tags of a line are replaced in the order of their writing,
/// and lines fill unevenly, so this many remember about as many keys as the cache holds.
const TAGS_NUMERATOR: u64 = 11;
const TAGS_DENOMINATOR: u64 = 10;
/// Tags among the newest of their line, as one part in this many.
const NEWEST_SHARE: u64 = 5;

const LANE_BITS: u32 = 16;
const LANE: u64 = 0xFFFF;
/// The lowest bit of each lane.
const ONES: u64 = 0x0001_0001_0001_0001;
/// The tag bits of each lane.
const TAG_BITS: u64 = 0x7FFF * ONES;
const MAIN: u64 = 0x8000;

/// A tag that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// Log that let the key go.
    pub(crate) from: Log,
    /// True if few other keys of its line were let go since.
    pub(crate) is_newest: bool,
}

/// Table of tags. It is empty until `resize`.
pub(crate) struct Ghosts {
    table: Direct,
    lines: AtomicU64,
    lines_max: u64,
}

impl Ghosts {
    /// Makes an empty table that can grow to `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Result<Self, RegionError> {
        let lines_max = (bytes_max / LINE_BYTES).max(1);
        let table = Direct::anonymous(lines_max * LINE_BYTES, false)?;
        Ok(Ghosts { table, lines: AtomicU64::new(0), lines_max })
    }

    /// Returns the bytes of the table in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.load(Ordering::Relaxed) * LINE_BYTES
    }

    /// Returns the bytes that the table should have for this many items, if it is far from that.
    ///
    /// A change of the size moves every key to another line, which forgets all tags. So the size
    /// follows only large changes.
    pub(crate) fn wanted_bytes(&self, items: u64) -> Option<u64> {
        let wanted = (items * TAGS_NUMERATOR).div_ceil(TAGS * TAGS_DENOMINATOR).max(1);
        let (wanted, lines) = (wanted.min(self.lines_max), self.lines.load(Ordering::Relaxed));
        let is_far = wanted > lines + lines / 4 || wanted < lines / 2;
        is_far.then_some(wanted * LINE_BYTES)
    }

    /// Changes the size of the table, under a lock of the caller. Forgets all tags.
    pub(crate) fn resize(&self, bytes: u64) {
        const PAGE: u64 = 4096;
        let lines = bytes / LINE_BYTES;
        assert!(lines <= self.lines_max, "{lines} lines of tags exceed {}", self.lines_max);
        let before = self.lines.swap(lines, Ordering::Relaxed);
        let kept = bytes.next_multiple_of(PAGE);
        if before * LINE_BYTES > kept {
            self.table.discard(kept, before * LINE_BYTES - kept);
        }
    }

    /// Prefetches the line of a key.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(at) = self.line_of(hash) {
            self.table.prefetch(at);
        }
    }

    /// Remembers a key that a log lets go.
    pub(crate) fn put(&self, hash: u64, from: Log) {
        let Some(at) = self.line_of(hash) else { return };
        let first = self.table.load_u64(at, Ordering::Relaxed);
        let next = first & LANE;
        let from = if from == Log::Main { MAIN } else { 0 };
        let after = if next + 1 < TAGS { next + 1 } else { 0 };
        self.table.store_u64(at, first & !LANE | after, Ordering::Relaxed);
        self.store(at, 1 + next, tag_of(hash) | from);
    }

    /// Finds a key's tag and forgets it.
    pub(crate) fn take(&self, hash: u64) -> Option<Ghost> {
        let at = self.line_of(hash)?;
        let line = self.table.load_line(at);
        let wanted = tag_of(hash) * ONES;
        for (number, word) in line.iter().enumerate() {
            // A lane that equals the tag becomes 0, and adding all tag bits carries into the upper
            // bit of all others.
            let differing = (word & TAG_BITS) ^ wanted;
            let mut equal = !(differing + TAG_BITS) & (MAIN * ONES);
            if number == 0 {
                equal &= !LANE;
            }
            if equal != 0 {
                let lane = number as u64 * 4 + u64::from(equal.trailing_zeros() / LANE_BITS);
                let from = word >> (lane % 4 * u64::from(LANE_BITS)) & MAIN;
                self.store(at, lane, 0);
                let age = ((line[0] & LANE) % TAGS + TAGS - lane) % TAGS;
                return Some(Ghost {
                    from: if from == MAIN { Log::Main } else { Log::Small },
                    is_newest: age * NEWEST_SHARE < TAGS,
                });
            }
        }
        None
    }

    fn store(&self, at: u64, lane: u64, value: u64) {
        let (word_at, shift) = (at + lane / 4 * 8, lane % 4 * u64::from(LANE_BITS));
        let word = self.table.load_u64(word_at, Ordering::Relaxed);
        self.table.store_u64(word_at, word & !(LANE << shift) | value << shift, Ordering::Relaxed);
    }

    fn line_of(&self, hash: u64) -> Option<u64> {
        let lines = self.lines.load(Ordering::Relaxed);
        // All bits of the hash take part, so that the line tells little about the tag.
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let line = (u128::from(mixed) * u128::from(lines)) >> 64;
        (lines > 0).then_some(line as u64 * LINE_BYTES)
    }
}

fn tag_of(hash: u64) -> u64 {
    (hash >> 20 & 0x7FFF).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ghosts(items: u64) -> Ghosts {
        let ghosts = Ghosts::new(1 << 20).unwrap();
        ghosts.resize(ghosts.wanted_bytes(items).expect("it is empty"));
        ghosts
    }

    fn hashes(seed: u64) -> impl Iterator<Item = u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(move || random.u64(..))
    }

    #[test]
    fn a_tag_is_found_once_with_its_log() {
        let ghosts = ghosts(1000);
        assert_eq!(ghosts.take(99), None);
        for (number, hash) in hashes(1).take(100).enumerate() {
            let from = if number % 2 == 0 { Log::Small } else { Log::Main };
            ghosts.put(hash, from);
            assert_eq!(ghosts.take(hash), Some(Ghost { from, is_newest: true }), "{number}");
            assert_eq!(ghosts.take(hash), None, "{number}");
        }
    }

    #[test]
    fn the_last_keys_are_remembered_and_older_ones_are_not() {
        let ghosts = ghosts(10_000);
        let all: Vec<u64> = hashes(2).take(30_000).collect();
        for hash in &all {
            ghosts.put(*hash, Log::Small);
        }
        let found = |hashes: &[u64]| hashes.iter().filter(|it| ghosts.take(**it).is_some()).count();
        let (old, recent) = (found(&all[..10_000]), found(&all[25_000..]));
        assert!(old < 200, "{old} of 10,000");
        assert!(recent > 4900, "{recent} of 5,000");
    }

    #[test]
    fn the_newest_of_a_line_are_told_apart() {
        let ghosts = ghosts(1);
        assert_eq!(ghosts.bytes(), LINE_BYTES);
        let all: Vec<u64> = hashes(3).take(100).collect();
        for hash in &all {
            ghosts.put(*hash, Log::Main);
        }
        let newest: Vec<bool> = all[69..]
            .iter()
            .rev()
            .filter_map(|it| ghosts.take(*it))
            .map(|it| it.is_newest)
            .collect();
        assert_eq!(newest.len(), 31);
        assert_eq!(newest.iter().filter(|it| **it).count(), 7);
        assert!(newest[..7].iter().all(|it| *it));
    }

    #[test]
    fn the_size_follows_large_changes_only() {
        let ghosts = ghosts(10_000);
        let bytes = ghosts.bytes();
        assert!(bytes <= 10_000 * 23 / 10, "{bytes} bytes for 10,000 items");
        assert_eq!(ghosts.wanted_bytes(11_000), None);
        assert_eq!(ghosts.wanted_bytes(6_000), None);
        assert!(ghosts.wanted_bytes(20_000).is_some_and(|wanted| wanted > bytes));
        assert!(ghosts.wanted_bytes(2_000).is_some_and(|wanted| wanted < bytes));
    }
}
