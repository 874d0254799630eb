//! The module's two buffers: the units that were read last, and the units that are being written.

use std::collections::VecDeque;

/// The units that were read last; the least recently used goes.
#[derive(Debug, Clone)]
pub(super) struct ReadBuffer {
    units: Vec<u64>,
    next: usize,
}

impl ReadBuffer {
    pub(super) fn new(units: usize) -> ReadBuffer {
        ReadBuffer { units: vec![u64::MAX; units], next: 0 }
    }

    pub(super) fn has(&self, unit: u64) -> bool {
        self.units.contains(&unit)
    }

    /// Puts a unit there that is not, in the place of the oldest.
    pub(super) fn insert(&mut self, unit: u64) {
        self.units[self.next] = unit;
        self.next = (self.next + 1) % self.units.len();
    }

    /// Drops a unit that is being written.
    pub(super) fn forget(&mut self, unit: u64) {
        if let Some(held) = self.units.iter_mut().find(|held| **held == unit) {
            *held = u64::MAX;
        }
    }
}

/// Units that go to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written {
    /// Whole ones.
    pub whole: u64,
    /// Those of which lines are missing: the medium has to be read first.
    pub partial: u64,
}

/// Combines lines into units: a unit is written once it is complete, or when it has not been added
/// to while as many others came as the buffer holds.
#[derive(Debug, Clone)]
pub(super) struct CombiningBuffer {
    /// Units in the order in which they were last added to.
    units: VecDeque<Gathering>,
    capacity: usize,
    complete: u64,
}

#[derive(Debug, Clone, Copy)]
struct Gathering {
    unit: u64,
    lines: u64,
}

impl CombiningBuffer {
    pub(super) fn new(capacity: usize, lines_per_unit: u64) -> CombiningBuffer {
        let complete = (1 << lines_per_unit) - 1;
        CombiningBuffer { units: VecDeque::with_capacity(capacity + 1), capacity, complete }
    }

    pub(super) fn has(&self, unit: u64) -> bool {
        self.units.iter().any(|gathering| gathering.unit == unit)
    }

    /// Adds lines, one bit each, to a unit.
    pub(super) fn add(&mut self, unit: u64, lines: u64) -> Written {
        let mut written = Written::default();
        let found = self.units.iter().rposition(|gathering| gathering.unit == unit);
        let earlier = found.and_then(|place| self.units.remove(place));
        let mut gathering = Gathering { unit, lines: earlier.map_or(0, |held| held.lines) | lines };
        if gathering.lines == self.complete {
            // It has been written, and keeps its place: lines that come now begin it anew.
            gathering.lines = 0;
            written.whole = 1;
        }
        self.units.push_back(gathering);
        if self.units.len() > self.capacity {
            let gone = self.units.pop_front();
            written.partial = u64::from(gone.is_some_and(|gone| gone.lines != 0));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Amplification of writing the first half of each of `units` units, then the second halves,
    /// over and over.
    fn halves(units: u64) -> f64 {
        let mut buffer = CombiningBuffer::new(64, 4);
        let (mut written, rounds) = (0, 50);
        for _ in 0..rounds {
            for lines in [0b0011, 0b1100] {
                for unit in 0..units {
                    let out = buffer.add(unit, lines);
                    written += out.whole + out.partial;
                }
            }
        }
        written as f64 / (units * rounds) as f64
    }

    #[test]
    fn halves_are_combined_up_to_the_buffers_size() {
        // The public measurement: 1.04 up to 18 KiB, 2.0 from about 51 KiB.
        assert!((halves(60) - 1.0).abs() < 0.01);
        assert!((halves(220) - 2.0).abs() < 0.05);
    }

    #[test]
    fn a_unit_in_order_is_written_once_and_a_lone_line_partly() {
        let mut buffer = CombiningBuffer::new(2, 4);
        for line in 0..3 {
            assert_eq!(buffer.add(7, 1 << line), Written::default());
        }
        assert_eq!(buffer.add(7, 8), Written { whole: 1, partial: 0 });
        buffer.add(8, 1);
        buffer.add(9, 1);
        assert_eq!(buffer.add(10, 1), Written { whole: 0, partial: 1 });
        assert!(!buffer.has(8) && buffer.has(9));
    }

    #[test]
    fn the_read_buffer_keeps_the_newest() {
        let mut buffer = ReadBuffer::new(2);
        (1..=3).for_each(|unit| buffer.insert(unit));
        assert!(!buffer.has(1) && buffer.has(2) && buffer.has(3));
        buffer.forget(3);
        assert!(!buffer.has(3));
    }
}
