//! What goes wrong with memory at rest, and which lines somebody looked at.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::observe::LINE_BYTES;

/// The unit in which 3D XPoint loses its contents.
const POISON_BYTES: u64 = 256;

/// Ranges of 256 bytes that cannot be loaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Poison {
    /// The number of the range, and which of its words were not written since, bit by bit.
    ranges: Vec<(u64, u32)>,
}

impl Poison {
    pub(super) fn add(&mut self, offset: u64) {
        let number = offset / POISON_BYTES;
        self.ranges.retain(|(range, _)| *range != number);
        self.ranges.push((number, u32::MAX));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn ranges(&self) -> Vec<u64> {
        self.ranges.iter().map(|(number, _)| number * POISON_BYTES).collect()
    }

    /// Faults if any of the bytes cannot be loaded, as the processor would.
    pub(super) fn check(&self, offset: u64, len: usize) {
        let touched = offset / POISON_BYTES..(offset + len as u64).div_ceil(POISON_BYTES);
        if let Some((number, _)) = self.ranges.iter().find(|(range, _)| touched.contains(range)) {
            panic!("a load at {offset} of memory that is poisoned from {}", number * POISON_BYTES);
        }
    }

    /// Whole words of a line are about to be written.
    pub(super) fn written(&mut self, offset: u64, len: usize) {
        if self.ranges.is_empty() {
            return;
        }
        let words = offset.div_ceil(8)..(offset + len as u64) / 8;
        for (number, missing) in &mut self.ranges {
            let first = *number * (POISON_BYTES / 8);
            let written = (0..32).filter(|bit| words.contains(&(first + bit)));
            written.for_each(|bit| *missing &= !(1 << bit));
        }
        self.ranges.retain(|(_, missing)| *missing != 0);
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
