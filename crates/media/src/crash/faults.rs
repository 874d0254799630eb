//! What goes wrong with memory at rest, and which lines somebody looked at.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::observe::LINE_BYTES;

/// The unit in which 3D XPoint loses its contents.
const POISON_BYTES: u64 = 256;

/// Its words.
const POISON_WORDS: u64 = POISON_BYTES / 8;

/// Ranges of 256 bytes that cannot be loaded, or that a crash may leave so.
#[derive(Debug, Clone, Default)]
pub(super) struct Poison {
    ranges: Vec<Range>,
}

/// A range; its words bit by bit.
#[derive(Debug, Clone)]
struct Range {
    number: u64,
    /// The words that were not written since it was poisoned.
    missing: u32,
    /// Those, and the words of which it is not known that what was written is durable.
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

    /// Whether nothing faults and nothing may after a crash.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn faulting(&self) -> impl Iterator<Item = u64> {
        self.ranges.iter().filter(|range| range.missing != 0).map(|range| range.number)
    }

    pub(super) fn ranges(&self) -> Vec<u64> {
        self.faulting().map(|number| number * POISON_BYTES).collect()
    }

    /// Faults if any of the bytes cannot be loaded, as the processor would.
    pub(super) fn check(&self, offset: u64, len: usize) {
        let touched = offset / POISON_BYTES..(offset + len as u64).div_ceil(POISON_BYTES);
        if let Some(number) = self.faulting().find(|number| touched.contains(number)) {
            panic!("a load at {offset} of memory that is poisoned from {}", number * POISON_BYTES);
        }
    }

    /// Whether it matters to it that the word is written: that is not durable yet.
    pub(super) fn awaits(&self, word: u64) -> bool {
        self.ranges.iter().any(|range| range.unsure & range.bits(|own| own == word) != 0)
    }

    /// These words are about to be written. `is_pending` says of a word that was written before
    /// whether that may still be lost.
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

    /// What is left of it by a crash. `is_lost` says of a word that was written whether the crash
    /// has lost that.
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

/// Which lines of a region were loaded from.
#[derive(Debug, Default)]
pub(super) struct Looked {
    lines: OnceLock<Vec<AtomicU64>>,
    active: AtomicBool,
}

impl Looked {
    /// Begins to note what is loaded of a region of this many bytes.
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
                    // One thread runs at a time: an ordinary load and store will do.
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

    /// Forgets everything; whether anything was being noted.
    pub(super) fn forget(&self) -> bool {
        self.lines.get().into_iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
        self.active.swap(false, Ordering::Relaxed)
    }
}
