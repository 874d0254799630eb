//! The processor's cache: which lines it has, and which of them it has changed.
//!
//! One cache for all threads, 16 ways, the least recently used line of a set goes. It holds no
//! bytes.

/// Ways of a set.
const WAYS: usize = 16;
const EMPTY: u64 = u64::MAX;
const DIRTY: u64 = 1 << 63;

/// Lines, the most recently used of each set first.
#[derive(Debug, Clone)]
pub(super) struct LineCache {
    lines: Vec<u64>,
    sets: u64,
    /// Whether there was ever a line: threads that only stream need not look.
    used: bool,
}

impl LineCache {
    pub(super) fn new(lines: u64) -> LineCache {
        let sets = (lines / WAYS as u64).next_power_of_two().max(1);
        LineCache { lines: vec![EMPTY; sets as usize * WAYS], sets, used: false }
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        // Multiplied by the golden ratio, so that strides of powers of two use all sets.
        let hash = line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let first = (hash & (self.sets - 1)) as usize * WAYS;
        &mut self.lines[first..first + WAYS]
    }

    /// Whether the line is there; if so it is the most recently used.
    pub(super) fn touch(&mut self, line: u64) -> bool {
        let set = self.set(line);
        let Some(way) = set.iter().position(|&held| held != EMPTY && held & !DIRTY == line) else {
            return false;
        };
        set[..=way].rotate_right(1);
        true
    }

    /// Puts a line there; the answer is a changed line that had to go.
    pub(super) fn insert(&mut self, line: u64) -> Option<u64> {
        if self.touch(line) {
            return None;
        }
        self.used = true;
        let set = self.set(line);
        set.rotate_right(1);
        let gone = std::mem::replace(&mut set[0], line);
        (gone != EMPTY && gone & DIRTY != 0).then_some(gone & !DIRTY)
    }

    /// Marks a line, which must be there, as changed.
    pub(super) fn dirty(&mut self, line: u64) {
        if self.touch(line) {
            self.set(line)[0] |= DIRTY;
        }
    }

    /// Forgets that a line was changed; whether it was.
    pub(super) fn clean(&mut self, line: u64) -> bool {
        let set = self.set(line);
        match set.iter_mut().find(|held| **held == line | DIRTY) {
            Some(held) => {
                *held = line;
                true
            }
            None => false,
        }
    }

    /// Drops a line.
    pub(super) fn drop_line(&mut self, line: u64) {
        if !self.used {
            return;
        }
        let set = self.set(line);
        if let Some(way) = set.iter().position(|&held| held != EMPTY && held & !DIRTY == line) {
            set[way..].rotate_left(1);
            set[WAYS - 1] = EMPTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_of_a_set_goes_and_changed_ones_are_handed_back() {
        let mut cache = LineCache::new(16);
        for line in 0..16 {
            assert_eq!(cache.insert(line), None);
        }
        cache.dirty(1);
        (0..16).filter(|&line| line != 1).for_each(|line| assert!(cache.touch(line)));
        assert_eq!(cache.insert(16), Some(1));
        assert!(cache.touch(0) && !cache.touch(1) && cache.touch(16));
        cache.dirty(0);
        assert!(cache.clean(0) && !cache.clean(0) && cache.touch(0));
        cache.drop_line(0);
        assert!(!cache.touch(0));
    }
}
