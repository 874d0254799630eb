//! Steps of a large copy past the processor's caches, to persistent memory and to an observed
//! region alike.
//!
//! The copy proceeds in units of the medium with a fence after each, so that the modules combine
//! whole units. Without the fences the processor sends lines out of order, units are written in
//! parts, and bandwidth falls (Rethinking Index Design Based on PM Device, figure 5).

use std::ops::Range;

/// Bytes of the unit in which persistent memory is written.
pub(crate) const UNIT_BYTES: usize = 256;
const LINE_BYTES: usize = 64;

/// One step of a copy. Ranges count from the copy's beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyStep {
    /// Stores and flushes a part of a line, at either end.
    Part(Range<usize>),
    /// Stores whole lines of one unit past the caches.
    Lines(Range<usize>),
    /// Orders everything stored so far before all later stores.
    Fence,
}

/// Returns the steps of copying `len` bytes to `to`, an address or an offset.
#[inline]
pub(crate) fn copy_steps(to: usize, len: usize) -> CopySteps {
    let head = (to.wrapping_neg() % LINE_BYTES).min(len);
    CopySteps { to, len, head, at: 0, owed: false, fenced: false }
}

/// Iterator over a copy's steps, see [`copy_steps`].
#[derive(Debug)]
pub(crate) struct CopySteps {
    to: usize,
    len: usize,
    head: usize,
    at: usize,
    owed: bool,
    fenced: bool,
}

impl Iterator for CopySteps {
    type Item = CopyStep;

    #[inline]
    fn next(&mut self) -> Option<CopyStep> {
        let (from, left) = (self.at, self.len - self.at);
        if self.owed || (left == 0 && !self.fenced) {
            (self.owed, self.fenced) = (false, true);
            return Some(CopyStep::Fence);
        }
        if left == 0 {
            return None;
        }
        if from < self.head {
            self.at = self.head;
            return Some(CopyStep::Part(from..self.at));
        }
        self.owed = true;
        if left < LINE_BYTES {
            self.at = self.len;
            return Some(CopyStep::Part(from..self.at));
        }
        let rest_of_unit = UNIT_BYTES - self.to.wrapping_add(from) % UNIT_BYTES;
        self.at += rest_of_unit.min(left - left % LINE_BYTES);
        Some(CopyStep::Lines(from..self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::CopyStep::{Fence, Lines, Part};
    use super::*;

    fn check(to: usize, len: usize, steps: &[CopyStep]) {
        assert_eq!(copy_steps(to, len).collect::<Vec<_>>(), steps, "{len} bytes to {to}");
    }

    #[test]
    fn copies_go_unit_by_unit_with_a_fence_each() {
        check(0, 512, &[Lines(0..256), Fence, Lines(256..512), Fence]);
        check(64, 256, &[Lines(0..192), Fence, Lines(192..256), Fence]);
        check(60, 72, &[Part(0..4), Lines(4..68), Fence, Part(68..72), Fence]);
        check(3, 5, &[Part(0..5), Fence]);
        check(64, 10, &[Part(0..10), Fence]);
        check(7, 0, &[Fence]);
    }

    #[test]
    fn every_byte_is_copied_once() {
        for to in 0..130 {
            for len in 0..600 {
                let mut at = 0;
                for step in copy_steps(to, len) {
                    if let Part(range) | Lines(range) = step {
                        assert_eq!(range.start, at);
                        at = range.end;
                    }
                }
                assert_eq!(at, len);
            }
        }
    }
}
