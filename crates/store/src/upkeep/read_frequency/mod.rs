//! Read frequency: which values in flushed segments are read often.
//!
//! A sketch of small counters counts reads. Each key has two counters, and the lesser one is its
//! count: a count-min sketch that forgets, since all counters are halved after as many reads as
//! there are counters. A value is **hot** if its key was read at least
//! [`ReadFrequency::reads_least`] times. That threshold keeps all hot values together within their
//! share of the faster class. A hot value stays where it was promoted to until its count has fallen
//! to half the threshold, which keeps values from moving to and fro. Reads answered by a cache and
//! reads by cursors are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use entresol_base::sync::Mutex;
use serde::Serialize;

use crate::types::{KvsId, RecordPlace, SegmentNumber};
use crate::version::core::Core;
use crate::version::view::View;
use crate::volumes::policy::MediaClass;
use kept::Kept;

pub(crate) mod kept;

/// Largest value of a counter.
const COUNT_MAX: u8 = 15;
/// Lower bound of the threshold for hot values.
const READS_MIN: u8 = 3;
/// Part of a store's memory that the counters take.
const MEMORY_PART: u64 = 256;
/// Bytes of hot values to read between checks for values worth moving.
const READ_BYTES_BETWEEN_LOOKS: u64 = 4 << 20;

/// Hot bytes of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HotBytes {
    /// Bytes of values that became hot.
    pub(crate) values: u64,
    /// Bytes read of hot values.
    pub(crate) read: u64,
}

/// Statistics of the read frequency of values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReadFrequencyStatistics {
    /// Number of recent reads of its key that makes a value hot.
    pub reads_least: u64,
    /// Bytes of segments on faster classes in which hot values were gathered.
    pub kept_bytes: u64,
    /// Limit of these bytes.
    pub kept_bytes_max: u64,
    /// True if the counts continue those saved when the store was closed.
    pub is_restored: bool,
    /// Reason why the saved counts are ignored, if there were any.
    pub ignored: Option<String>,
}

/// Counts of reads.
#[derive(Debug)]
pub(crate) struct ReadFrequency {
    /// True if there is a choice of classes.
    is_on: AtomicBool,
    counters: Box<[AtomicU8]>,
    reads: AtomicU64,
    /// Approximate bytes of values by the number of reads of their keys.
    levels: [AtomicI64; COUNT_MAX as usize + 1],
    reads_least: AtomicU8,
    hot: Mutex<BTreeMap<SegmentNumber, HotBytes>>,
    /// Bytes of hot values that were read.
    read_bytes: AtomicU64,
    /// Segments in which hot values were gathered.
    kept: Mutex<BTreeSet<SegmentNumber>>,
    /// Bytes that may still be gathered on each class.
    budget: [AtomicI64; MediaClass::ALL.len()],
    /// Fate of the counts that the last process saved.
    from_before: Mutex<Kept>,
}

impl ReadFrequency {
    /// Creates counters for a store with `memory_bytes` of memory.
    pub(crate) fn new(memory_bytes: u64) -> ReadFrequency {
        let counters = (memory_bytes / MEMORY_PART).max(1024).next_power_of_two() / 2;
        ReadFrequency {
            is_on: AtomicBool::new(false),
            counters: (0..counters).map(|_| AtomicU8::new(0)).collect(),
            reads: AtomicU64::new(0),
            levels: Default::default(),
            reads_least: AtomicU8::new(READS_MIN),
            hot: Mutex::default(),
            read_bytes: AtomicU64::new(0),
            kept: Mutex::default(),
            budget: Default::default(),
            from_before: Mutex::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Sets whether there is a choice of classes. Without one, nothing is counted.
    pub(crate) fn turn(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    /// Counts a read of a value by the hash of its key. Returns true if it is time to check whether
    /// values should move.
    pub(crate) fn read(&self, hash: u64, segment: SegmentNumber, bytes: u64) -> bool {
        let count = self.count_up(hash, bytes);
        let least = self.reads_least.load(Relaxed);
        if count < least {
            return false;
        }
        let mut all = self.hot.lock();
        let hot = all.entry(segment).or_default();
        hot.read += bytes;
        if count == least {
            hot.values += bytes;
        }
        drop(all);
        let before = self.read_bytes.fetch_add(bytes, Relaxed);
        before / READ_BYTES_BETWEEN_LOOKS != (before + bytes) / READ_BYTES_BETWEEN_LOOKS
    }

    /// Counts a read. Two concurrent reads of one key may count as one.
    fn count_up(&self, hash: u64, bytes: u64) -> u8 {
        let [one, other] = self.counters_of(hash);
        let count = one.load(Relaxed).min(other.load(Relaxed));
        // Counters are halved after as many reads as there are counters: with more reads, keys that
        // share counters would seem hot.
        let reads = self.reads.fetch_add(1, Relaxed) + 1;
        if reads.is_multiple_of(self.counters.len() as u64) {
            self.halve();
        }
        if count == COUNT_MAX {
            return count;
        }
        for counter in [one, other] {
            if counter.load(Relaxed) == count {
                counter.store(count + 1, Relaxed);
            }
        }
        let bytes = bytes as i64;
        if count > 0 {
            self.levels[usize::from(count)].fetch_sub(bytes, Relaxed);
        }
        self.levels[usize::from(count) + 1].fetch_add(bytes, Relaxed);
        count + 1
    }

    fn counters_of(&self, hash: u64) -> [&AtomicU8; 2] {
        let last = self.counters.len() as u64 - 1;
        [hash, hash >> 32].map(|hash| &self.counters[(hash & last) as usize])
    }

    fn halve(&self) {
        for counter in &self.counters {
            counter.store(counter.load(Relaxed) / 2, Relaxed);
        }
        for (level, bytes) in self.levels.iter().enumerate() {
            let bytes = bytes.swap(0, Relaxed);
            if level > 1 {
                self.levels[level / 2].fetch_add(bytes, Relaxed);
            }
        }
    }

    /// Returns the approximate number of recent reads of a key.
    fn count(&self, hash: u64) -> u8 {
        let [one, other] = self.counters_of(hash);
        one.load(Relaxed).min(other.load(Relaxed))
    }

    /// Returns true if a value is hot.
    pub(crate) fn is_hot(&self, hash: u64) -> bool {
        self.count(hash) >= self.reads_least.load(Relaxed)
    }

    /// Returns true if a value that was hot is still read often enough to stay.
    pub(crate) fn is_warm(&self, hash: u64) -> bool {
        let count = self.count(hash);
        count > 1 && count * 2 >= self.reads_least.load(Relaxed)
    }

    /// Sets the threshold for hot values, by the bytes that these may take.
    pub(crate) fn allow(&self, bytes_max: u64) {
        let mut sum = 0;
        let mut least = COUNT_MAX;
        for level in (READS_MIN..=COUNT_MAX).rev() {
            sum += self.levels[usize::from(level)].load(Relaxed).max(0) as u64;
            if sum > bytes_max {
                break;
            }
            least = level;
        }
        self.reads_least.store(least, Relaxed);
    }

    /// Returns the hot bytes of each segment of a view, and forgets other segments.
    pub(crate) fn hot(&self, view: &View) -> BTreeMap<SegmentNumber, HotBytes> {
        let mut hot = self.hot.lock();
        hot.retain(|number, _| view.segments.contains_key(number));
        hot.clone()
    }

    /// Forgets the hot bytes of segments whose values have moved.
    pub(crate) fn moved(&self, segments: impl Iterator<Item = SegmentNumber>) {
        let mut hot = self.hot.lock();
        for number in segments {
            hot.remove(&number);
        }
    }

    /// Records a segment in which hot values were gathered.
    pub(crate) fn keep(&self, segment: SegmentNumber) {
        self.kept.lock().insert(segment);
    }

    /// Returns the segments in which hot values were gathered. Some may not be in a view yet.
    pub(crate) fn kept(&self) -> BTreeSet<SegmentNumber> {
        self.kept.lock().clone()
    }

    /// Forgets segments that are removed.
    pub(crate) fn removed(&self, segments: impl Iterator<Item = SegmentNumber>) {
        let mut kept = self.kept.lock();
        for number in segments {
            kept.remove(&number);
        }
    }

    /// Sets the bytes that may be gathered on a class from now on.
    pub(crate) fn set_budget(&self, class: MediaClass, bytes: u64) {
        self.budget[class as usize].store(bytes as i64, Relaxed);
    }

    /// Takes bytes from the budget of a class. Returns false if it had too few.
    pub(crate) fn spend(&self, class: MediaClass, bytes: u64) -> bool {
        let (budget, bytes) = (&self.budget[class as usize], bytes as i64);
        let has = budget.fetch_sub(bytes, Relaxed) >= bytes;
        if !has {
            budget.fetch_add(bytes, Relaxed);
        }
        has
    }

    /// Returns the fate of the counts that the last process saved.
    pub(crate) fn kept_before(&self) -> Kept {
        self.from_before.lock().clone()
    }

    /// Returns the threshold for hot values.
    pub(crate) fn reads_least(&self) -> u64 {
        u64::from(self.reads_least.load(Relaxed))
    }
}

impl Core {
    /// Counts a read of a value in a flushed segment, if there is a choice of classes.
    pub(crate) fn count_read(&self, view: &View, kvs: KvsId, key: &[u8], place: RecordPlace) {
        if self.read_frequency.is_on() && view.segments.contains_key(&place.segment) {
            let hash = self.entries.name(kvs, key).hash();
            if self.read_frequency.read(hash, place.segment, u64::from(place.bytes)) {
                self.work.tell();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentNumber = SegmentNumber(7);

    fn hash(number: u64) -> u64 {
        entresol_base::hash::KeyHasher::seeded(1).hash(&number.to_le_bytes())
    }

    fn read(read_frequency: &ReadFrequency, numbers: std::ops::Range<u64>, times: usize) {
        for number in (0..times).flat_map(|_| numbers.clone()) {
            read_frequency.read(hash(number), SEGMENT, 1000);
        }
    }

    #[test]
    fn what_is_hot_takes_no_more_than_its_share() {
        let read_frequency = ReadFrequency::new(16 << 20);
        read(&read_frequency, 0..1000, 4);
        read(&read_frequency, 0..100, 6);
        read_frequency.allow(200_000);
        assert!((0..100).all(|number| read_frequency.is_hot(hash(number))));
        let others = (100..1000).filter(|number| read_frequency.is_hot(hash(*number))).count();
        assert!(others < 20, "{others} of which few were read as often, by their counters");
        read_frequency.allow(2_000_000);
        assert!((0..1000).all(|number| read_frequency.is_hot(hash(number))), "all have room");
        assert_eq!(read_frequency.reads_least(), 3, "what was read once or twice never is");
        // Two keys of a thousand may have a counter in common.
        let HotBytes { values, read } = read_frequency.hot.lock()[&SEGMENT];
        assert!(values.abs_diff(1000 * 1000) <= 5000, "{values}");
        assert!(read.abs_diff((2 * 1000 + 6 * 100) * 1000) <= 20_000, "{read}");
    }

    #[test]
    fn what_is_not_read_any_more_cools_down_by_and_by() {
        let read_frequency = ReadFrequency::new(1 << 20);
        read(&read_frequency, 0..1, 6);
        assert!(read_frequency.is_hot(hash(0)));
        read_frequency.halve();
        read(&read_frequency, 0..1, 1);
        assert!(read_frequency.is_hot(hash(0)) && read_frequency.is_warm(hash(0)));
        read_frequency.halve();
        assert!(
            !read_frequency.is_hot(hash(0)) && read_frequency.is_warm(hash(0)),
            "it is left where it is"
        );
        read_frequency.halve();
        assert!(!read_frequency.is_warm(hash(0)));
        let left: i64 = read_frequency.levels.iter().map(|bytes| bytes.load(Relaxed)).sum();
        assert!((0..=1000).contains(&left), "{left} bytes are counted of one value");
    }

    #[test]
    fn no_more_is_gathered_than_there_is_room_for() {
        let read_frequency = ReadFrequency::new(1 << 20);
        let class = MediaClass::Staging;
        read_frequency.set_budget(class, 2500);
        let spent = [1000, 1000, 1000, 500].map(|bytes| read_frequency.spend(class, bytes));
        assert_eq!(spent, [true, true, false, true]);
        assert!(!read_frequency.spend(MediaClass::Pmem, 1));
    }
}
