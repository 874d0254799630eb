//! The module's two buffers: the units read last, and the units being written.

use std::collections::VecDeque;

/// Marks an empty place.
const NONE: u64 = u64::MAX;

/// A filter of the units in a buffer, which rules out most others at once.
#[derive(Debug, Clone)]
struct Presence(Vec<u8>);

impl Presence {
    fn new() -> Presence {
        Presence(vec![0; 1 << 10])
    }

    fn slot(&mut self, unit: u64) -> &mut u8 {
        &mut self.0[Presence::index(unit)]
    }

    fn index(unit: u64) -> usize {
        (unit.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
    }

    fn may_have(&self, unit: u64) -> bool {
        self.0[Presence::index(unit)] > 0
    }
}

/// The units read last; the oldest is evicted.
#[derive(Debug, Clone)]
pub(super) struct ReadBuffer {
    units: Vec<u64>,
    next: usize,
    presence: Presence,
}

impl ReadBuffer {
    pub(super) fn new(units: usize) -> ReadBuffer {
        assert!(units < usize::from(u8::MAX), "presence is counted in bytes");
        ReadBuffer { units: vec![NONE; units], next: 0, presence: Presence::new() }
    }

    pub(super) fn has(&self, unit: u64) -> bool {
        self.presence.may_have(unit) && self.units.contains(&unit)
    }

    /// Inserts a unit that is not in the buffer, in the place of the oldest.
    pub(super) fn insert(&mut self, unit: u64) {
        let gone = std::mem::replace(&mut self.units[self.next], unit);
        if gone != NONE {
            *self.presence.slot(gone) -= 1;
        }
        *self.presence.slot(unit) += 1;
        self.next = (self.next + 1) % self.units.len();
    }

    /// Drops a unit that is being written.
    pub(super) fn forget(&mut self, unit: u64) {
        if self.has(unit)
            && let Some(held) = self.units.iter_mut().find(|held| **held == unit)
        {
            *held = NONE;
            *self.presence.slot(unit) -= 1;
        }
    }
}

/// Units that go to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written {
    /// Number of whole units.
    pub whole: u64,
    /// Number of units with lines missing: the medium must be read first.
    pub partial: u64,
}

/// Combines lines into units. A unit is written once it is complete, or when as many others as the
/// buffer holds have come since it was last added to.
#[derive(Debug, Clone)]
pub(super) struct CombiningBuffer {
    /// Units in the order in which they were last added to.
    units: VecDeque<Gathering>,
    capacity: usize,
    complete: u64,
    presence: Presence,
}

#[derive(Debug, Clone, Copy)]
struct Gathering {
    unit: u64,
    lines: u64,
}

impl CombiningBuffer {
    pub(super) fn new(capacity: usize, lines_per_unit: u64) -> CombiningBuffer {
        let complete = (1 << lines_per_unit) - 1;
        let units = VecDeque::with_capacity(capacity + 1);
        CombiningBuffer { units, capacity, complete, presence: Presence::new() }
    }

    pub(super) fn has(&self, unit: u64) -> bool {
        self.presence.may_have(unit) && self.units.iter().any(|held| held.unit == unit)
    }

    /// Adds lines, one bit each, to a unit.
    pub(super) fn add(&mut self, unit: u64, lines: u64) -> Written {
        let mut written = Written::default();
        let earlier = self.take(unit);
        let mut gathering = Gathering { unit, lines: earlier.map_or(0, |held| held.lines) | lines };
        if gathering.lines == self.complete {
            // It has been written, and keeps its place: lines that come now begin it anew.
            gathering.lines = 0;
            written.whole = 1;
        }
        self.units.push_back(gathering);
        *self.presence.slot(unit) += 1;
        if self.units.len() > self.capacity
            && let Some(gone) = self.units.pop_front()
        {
            *self.presence.slot(gone.unit) -= 1;
            written.partial = u64::from(gone.lines != 0);
        }
        written
    }

    fn take(&mut self, unit: u64) -> Option<Gathering> {
        if !self.presence.may_have(unit) {
            return None;
        }
        let place = self.units.iter().rposition(|held| held.unit == unit)?;
        *self.presence.slot(unit) -= 1;
        self.units.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the amplification of writing the first half of each of `units` units, then the
    /// second halves, over and over.
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
