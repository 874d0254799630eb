//! Summary of the read frequencies, kept in a file of its own while a store is closed: a reopened
//! store need not learn them anew.
//!
//! No data depends on the file. Closing writes it, and an opening uses it if the log still ends at
//! the same write. A damaged or outdated file is ignored, and a lost one costs only time.
//!
//! ```text
//!   0  8 B  "ENTRHEAT"
//!   8  u32  CRC-32C over all that follows
//!  12  u32  format version, 1
//!  16  u64  the store's identity
//!  24  u64  the last write when the store was closed
//!  32  u64  reads that were counted
//!  40  16   u64: bytes of values by how often their keys were read
//! 168  u32  the number of counters, a power of two
//! 172  u32  the number of segments
//! 176       the segments, 25 bytes each: u64 number, u64 bytes of hot values, u64 bytes that were
//!           read of them, u8 1: hot values were gathered in it
//!           the counters, four bits each, of two in a byte the first one lower
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::checksum;
use entresol_media::{Directory, FileError};

use super::{COUNT_MAX, HotBytes, ReadFrequency};
use crate::StoreError;
use crate::bytes::{u32_at, u64_at};
use crate::names;
use crate::types::{SegmentNumber, Sequence};

const MAGIC: [u8; 8] = *b"ENTRHEAT";
const VERSION: u32 = 1;
/// Offset of the levels, and that of the end of the levels.
const LEVELS: usize = 40;
const COUNTS: usize = LEVELS + 8 * (COUNT_MAX as usize + 1);
const HEAD_BYTES: usize = COUNTS + 8;
const SEGMENT_BYTES: usize = 25;
/// Largest number of counters in the file, where they take 512 KiB. Beyond it, counters are merged
/// in pairs.
const COUNTERS_MAX: usize = 1 << 20;
/// Largest number of segments in the file.
const SEGMENTS_MAX: usize = 1 << 16;
/// Bound for counts of bytes: no store holds or reads more.
const BYTES_MAX: u64 = 1 << 56;

/// Identity and state of the store that a summary belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Identity of the store.
    pub(crate) store: u64,
    /// Last write of the store.
    pub(crate) last: Sequence,
}

/// Contents of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Summary {
    reads: u64,
    levels: [u64; COUNT_MAX as usize + 1],
    /// Hot bytes of each segment, and true if hot values were gathered there.
    segments: BTreeMap<SegmentNumber, (HotBytes, bool)>,
    counters: Vec<u8>,
}

/// Fate of the summary when the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum SummaryUse {
    /// The store had no summary.
    #[default]
    Nothing,
    /// The summary is used.
    Used,
    /// The summary is ignored for this reason.
    Ignored(String),
}

impl ReadFrequency {
    /// Creates the counters of a store with `memory_bytes` of memory, and restores the last
    /// process's summary if it matches the stamp. Segments that no longer exist are left out.
    pub(crate) fn restored(
        memory_bytes: u64,
        home: &dyn Directory,
        stamp: Stamp,
        is_there: &dyn Fn(SegmentNumber) -> bool,
    ) -> ReadFrequency {
        let read_frequency = ReadFrequency::new(memory_bytes);
        let kept = match read(home, Some(stamp)) {
            Ok(None) => SummaryUse::Nothing,
            Ok(Some(summary)) => {
                read_frequency.take(summary, is_there);
                SummaryUse::Used
            }
            Err(what) => SummaryUse::Ignored(what),
        };
        *read_frequency.from_before.lock() = kept;
        read_frequency
    }

    /// Writes a summary for the next process, if there is anything to keep.
    ///
    /// # Errors
    /// Fails if the disk fails. The previous summary is then left, or none.
    pub(crate) fn keep_for_later(
        &self,
        home: &dyn Directory,
        stamp: Stamp,
    ) -> Result<(), StoreError> {
        if !self.is_on() && *self.from_before.lock() != SummaryUse::Used {
            return Ok(());
        }
        Ok(home.replace(names::READ_FREQUENCY, &encode(&self.summary(), stamp))?)
    }

    fn summary(&self) -> Summary {
        let kept = self.kept();
        let gathered = kept.iter().map(|number| (*number, (HotBytes::default(), true)));
        let mut segments: BTreeMap<SegmentNumber, (HotBytes, bool)> = gathered.collect();
        for (number, hot) in self.hot.lock().iter() {
            segments.entry(*number).or_default().0 = *hot;
        }
        let counters = self.counters.iter().map(|counter| counter.load(Relaxed)).collect();
        let level = |number: usize| self.levels[number].load(Relaxed).max(0) as u64;
        Summary {
            reads: self.reads.load(Relaxed),
            levels: std::array::from_fn(level),
            segments: segments.into_iter().take(SEGMENTS_MAX).collect(),
            counters: folded(counters, COUNTERS_MAX),
        }
    }

    fn take(&self, summary: Summary, is_there: &dyn Fn(SegmentNumber) -> bool) {
        // The lowest bits of a key's hash choose its counters, however many there are.
        let counters = folded(summary.counters, self.counters.len());
        for (counter, kept) in self.counters.iter().zip(counters.iter().cycle()) {
            counter.store(*kept, Relaxed);
        }
        self.reads.store(summary.reads % self.counters.len() as u64, Relaxed);
        for (level, bytes) in self.levels.iter().zip(summary.levels) {
            level.store(bytes as i64, Relaxed);
        }
        let (mut hot, mut kept) = (self.hot.lock(), self.kept.lock());
        for (number, (bytes, is_kept)) in summary.segments {
            if is_there(number) {
                if bytes != HotBytes::default() {
                    hot.insert(number, bytes);
                }
                if is_kept {
                    kept.insert(number);
                }
            }
        }
    }
}

/// Reduces counters to at most `most`. Of counters that are merged, the greatest value is kept.
fn folded(mut counters: Vec<u8>, most: usize) -> Vec<u8> {
    while counters.len() > most {
        let behind = counters.split_off(counters.len() / 2);
        for (counter, other) in counters.iter_mut().zip(behind) {
            *counter = other.max(*counter);
        }
    }
    counters
}

fn encode(summary: &Summary, stamp: Stamp) -> Vec<u8> {
    let Summary { reads, levels, segments, counters } = summary;
    let mut bytes = Vec::with_capacity(
        HEAD_BYTES + segments.len() * SEGMENT_BYTES + counters.len().div_ceil(2),
    );
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    for word in [stamp.store, stamp.last.0, *reads].iter().chain(levels) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&(counters.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    for (number, (hot, is_kept)) in segments {
        for word in [number.0, hot.values, hot.read] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.push((*is_kept).into());
    }
    for pair in counters.chunks(2) {
        let [first, second] = [0, 1].map(|at| pair.get(at).copied().unwrap_or_default());
        bytes.push(first | second << 4);
    }
    let crc = checksum::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads the summary in a directory, if there is one, or returns why it cannot be used. Without a
/// stamp, a summary of any store and state will do.
fn read(home: &dyn Directory, stamp: Option<Stamp>) -> Result<Option<Summary>, String> {
    let bytes = match home.read(names::READ_FREQUENCY) {
        Ok(bytes) => bytes,
        Err(FileError::NoFile { .. }) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let (summary, found) = decode(&bytes)?;
    match stamp {
        Some(stamp) if stamp.store != found.store => Err("it belongs to another store".to_owned()),
        Some(stamp) if stamp.last != found.last => Err(format!(
            "it was saved at write {}, but the last write is {}: the store was not closed since",
            found.last.0, stamp.last.0
        )),
        _ => Ok(Some(summary)),
    }
}

/// Returns what is wrong with the summary in a directory, if anything is.
pub(crate) fn what_is_wrong(home: &dyn Directory) -> Option<String> {
    read(home, None).err()
}

fn decode(bytes: &[u8]) -> Result<(Summary, Stamp), String> {
    let wrong = |what: &str| what.to_owned();
    let word = |at: usize| u64_at(bytes, at).ok_or_else(|| wrong("it is too short"));
    let half = |at: usize| u32_at(bytes, at).ok_or_else(|| wrong("it is too short"));
    if !bytes.starts_with(&MAGIC) {
        return Err(wrong("it does not begin as a file of this kind does"));
    }
    if !checksum::matches(half(8)?, bytes.get(12..).unwrap_or_default()) {
        return Err(wrong("its checksum is wrong"));
    }
    let version = half(12)?;
    if version != VERSION {
        return Err(format!("it has format version {version}, but this program reads {VERSION}"));
    }
    let stamp = Stamp { store: word(16)?, last: Sequence(word(24)?) };
    let reads = word(32)?;
    let mut levels = [0; COUNT_MAX as usize + 1];
    for (number, level) in levels.iter_mut().enumerate() {
        *level = word(LEVELS + 8 * number)?;
    }
    let (counters, segments) = (half(COUNTS)? as usize, half(COUNTS + 4)? as usize);
    if !counters.is_power_of_two() || counters > COUNTERS_MAX || segments > SEGMENTS_MAX {
        return Err(wrong("its numbers of counters and segments are impossible"));
    }
    let begin_of_counters = HEAD_BYTES + segments * SEGMENT_BYTES;
    if bytes.len() != begin_of_counters + counters.div_ceil(2) {
        return Err(wrong("its length is not the one it names"));
    }
    let mut of_segments = BTreeMap::new();
    for at in (HEAD_BYTES..begin_of_counters).step_by(SEGMENT_BYTES) {
        let hot = HotBytes { values: word(at + 8)?, read: word(at + 16)? };
        let is_kept = bytes.get(at + 24) == Some(&1);
        of_segments.insert(SegmentNumber(word(at)?), (hot, is_kept));
    }
    let hot = of_segments.values().flat_map(|(hot, _)| [hot.values, hot.read]);
    if levels.into_iter().chain(hot).any(|bytes| bytes > BYTES_MAX) {
        return Err(wrong("it counts an impossible number of bytes"));
    }
    let pairs = bytes.get(begin_of_counters..).unwrap_or_default().iter();
    let unpacked = pairs.flat_map(|pair| [pair & COUNT_MAX, pair >> 4]).take(counters);
    let counters = unpacked.collect();
    Ok((Summary { reads, levels, segments: of_segments, counters }, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { store: 7, last: Sequence(1000) };

    fn hash(number: u64) -> u64 {
        entresol_base::hash::KeyHasher::seeded(1).hash(&number.to_le_bytes())
    }

    fn warm(memory_bytes: u64) -> ReadFrequency {
        let read_frequency = ReadFrequency::new(memory_bytes);
        for number in (0..100).flat_map(|number| [number; 6]) {
            read_frequency.read(hash(number), SegmentNumber(3), 1000);
        }
        read_frequency.keep(SegmentNumber(4));
        read_frequency.keep(SegmentNumber(9));
        read_frequency
    }

    #[test]
    fn what_was_hot_is_so_again_whatever_the_memory_is() {
        let before = warm(16 << 20);
        let bytes = encode(&before.summary(), STAMP);
        let (summary, stamp) = decode(&bytes).expect("right");
        assert_eq!((&summary, stamp), (&before.summary(), STAMP));
        for memory_bytes in [16 << 20, 4 << 20, 256 << 20] {
            let after = ReadFrequency::new(memory_bytes);
            after.take(summary.clone(), &|number| number.0 != 9);
            after.allow(200_000);
            assert!((0..100).all(|number| after.is_hot(hash(number))));
            let others = (100..2000).filter(|number| after.is_hot(hash(*number))).count();
            assert!(others < 40, "{others} of {memory_bytes} seem hot by their counters");
            assert_eq!(after.kept(), [SegmentNumber(4)].into(), "another one is gone");
            assert_eq!(*after.hot.lock(), *before.hot.lock());
            // The restored counters keep counting and forgetting.
            (0..2).for_each(|_| after.halve());
            assert!((0..100).all(|number| !after.is_hot(hash(number))));
        }
        let large = ReadFrequency::new(8 << 30);
        assert!(encode(&large.summary(), STAMP).len() <= (512 << 10) + 1000);
    }

    #[test]
    fn a_summary_with_any_bit_turned_over_or_cut_short_is_none() {
        let read_frequency = warm(1 << 19);
        let right = encode(&read_frequency.summary(), STAMP);
        assert!(decode(&right).is_ok());
        for bit in 0..right.len() * 8 {
            let mut flipped = right.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..right.len() {
            assert!(decode(&right[..len]).is_err(), "{len} bytes");
        }
    }
}
