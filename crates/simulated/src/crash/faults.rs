//! Faults of memory at rest, and the lines that were loaded.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use entresol_media::observe::LINE_BYTES;

/// Bytes of the unit in which 3D XPoint loses its contents.
const POISON_BYTES: u64 = 256;

/// Words of that unit.
const POISON_WORDS: u64 = POISON_BYTES / 8;

/// Ranges of 256 bytes that cannot be loaded, or that a crash may leave so.
#[derive(Debug, Clone, Default)]
pub(super) struct Poison {
    ranges: Vec<Range>,
}

/// A range, with one bit per word.
#[derive(Debug, Clone)]
struct Range {
    number: u64,
    /// Words that were not written since the range was poisoned.
    missing: u32,
    /// These words, and those whose writes may not be durable.
    unsure: u32,
}

impl Range {
    fn words(&self, bits: u32) -> impl Iterator<Item = u64> + use<> {
        let first = self.number * POISON_WORDS;
        (0..POISON_WORDS).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| first + bit)
    }

    fn bits(&self, is_among: impl Fn(u64) -> bool) -> u32 {
        let first = self.number * POISON_WORDS;
        (0..POISON_WORDS).filter(|bit| is_among(first + bit)).fold(0, |bits, bit| bits | 1 << bit)
    }
}

impl Poison {
    pub(super) fn add(&mut self, offset: u64) {
        let number = offset / POISON_BYTES;
        self.ranges.retain(|range| range.number != number);
        self.ranges.push(Range { number, missing: u32::MAX, unsure: u32::MAX });
    }

    /// Returns true if no load faults, and none can after a crash.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn faulting(&self) -> impl Iterator<Item = u64> {
        self.ranges.iter().filter(|range| range.missing != 0).map(|range| range.number)
    }

    pub(super) fn ranges(&self) -> Vec<u64> {
        self.faulting().map(|number| number * POISON_BYTES).collect()
    }

    /// Panics if any of the bytes cannot be loaded, in place of the processor's fault.
    pub(super) fn check(&self, offset: u64, len: usize) {
        let touched = offset / POISON_BYTES..(offset + len as u64).div_ceil(POISON_BYTES);
        if let Some(number) = self.faulting().find(|number| touched.contains(number)) {
            panic!("a load at {offset} of memory that is poisoned from {}", number * POISON_BYTES);
        }
    }

    /// Returns true if writing this word heals poison, since no write of it is durable yet.
    pub(super) fn awaits(&self, word: u64) -> bool {
        self.ranges.iter().any(|range| range.unsure & range.bits(|own| own == word) != 0)
    }

    /// Notes that these words will be written. `is_pending` tells of a written word if the write
    /// may still be lost.
    pub(super) fn written(
        &mut self,
        words: std::ops::Range<u64>,
        is_pending: impl Fn(u64) -> bool,
    ) {
        for range in &mut self.ranges {
            let durable = range.words(range.unsure & !range.missing);
            let durable: Vec<u64> = durable.filter(|&word| !is_pending(word)).collect();
            range.unsure &= !range.bits(|word| durable.contains(&word));
            range.missing &= !range.bits(|word| words.contains(&word));
        }
        self.ranges.retain(|range| range.unsure != 0);
    }

    /// Returns the poison after a crash. `is_lost` tells of a written word if the crash loses the
    /// write.
    pub(super) fn after(&self, is_lost: impl Fn(u64) -> bool) -> Poison {
        let mut left = self.clone();
        for range in &mut left.ranges {
            let lost: Vec<u64> =
                range.words(range.unsure & !range.missing).filter(|&word| is_lost(word)).collect();
            range.missing |= range.bits(|word| lost.contains(&word));
            range.unsure = range.missing;
        }
        left.ranges.retain(|range| range.missing != 0);
        left
    }
}

/// Lines of a region that were loaded.
#[derive(Debug, Default)]
pub(super) struct Looked {
    lines: OnceLock<Vec<AtomicU64>>,
    active: AtomicBool,
}

impl Looked {
    /// Begins to note loads of a region of this many bytes.
    pub(super) fn begin(&self, region_bytes: u64) {
        let words = (region_bytes / LINE_BYTES).div_ceil(64);
        self.lines.get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
        self.active.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn note(&self, offset: u64, len: usize) {
        if let Some(lines) = self.lines.get() {
            for line in offset / LINE_BYTES..(offset + len as u64).div_ceil(LINE_BYTES) {
                if let Some(word) = lines.get((line / 64) as usize) {
                    // One thread runs at a time, so an ordinary load and store will do.
                    let bits = word.load(Ordering::Relaxed) | 1 << (line % 64);
                    word.store(bits, Ordering::Relaxed);
                }
            }
        }
    }

    pub(super) fn has(&self, line: u64) -> bool {
        let word = self.lines.get().and_then(|lines| lines.get((line / 64) as usize));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (line % 64) & 1 == 1)
    }

    /// Forgets all lines; returns true if loads were being noted.
    pub(super) fn forget(&self) -> bool {
        self.lines.get().into_iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
        self.active.swap(false, Ordering::Relaxed)
    }
}
