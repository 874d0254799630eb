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
    sets: Vec<Set>,
    /// A byte of each line's hash, in the same order: most lines that are not there are told apart
    /// without looking at those that are.
    tags: Vec<[u8; WAYS]>,
    /// Whether there was ever a line: threads that only stream need not look.
    used: bool,
}

type Set = [u64; WAYS];

impl LineCache {
    pub(super) fn new(lines: u64) -> LineCache {
        let sets = (lines / WAYS as u64).next_power_of_two().max(1) as usize;
        LineCache { sets: vec![[EMPTY; WAYS]; sets], tags: vec![[0; WAYS]; sets], used: false }
    }

    /// A line's set and tag.
    fn place(&self, line: u64) -> (usize, u8) {
        // Multiplied by the golden ratio, so that strides of powers of two use all sets.
        let hash = line.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((hash >> 20) as usize & (self.sets.len() - 1), (hash >> 56) as u8)
    }

    /// The line's set, and its way if it is there.
    fn find(&self, line: u64) -> (usize, Option<usize>) {
        let (set, tag) = self.place(line);
        // All ways at once, so that it compiles to one comparison.
        if !self.tags[set].iter().fold(false, |any, held| any | (*held == tag)) {
            return (set, None);
        }
        let is_it = |&held: &u64| held != EMPTY && held & !DIRTY == line;
        (set, self.sets[set].iter().position(is_it))
    }

    /// Whether the line is there; if so it is the most recently used.
    pub(super) fn touch(&mut self, line: u64) -> bool {
        let (set, Some(way)) = self.find(line) else { return false };
        self.sets[set][..=way].rotate_right(1);
        self.tags[set][..=way].rotate_right(1);
        true
    }

    /// Puts a line there that is not; the answer is a changed line that had to go.
    pub(super) fn insert(&mut self, line: u64) -> Option<u64> {
        self.used = true;
        let (set, tag) = self.place(line);
        let (lines, tags) = (&mut self.sets[set], &mut self.tags[set]);
        let gone = lines[WAYS - 1];
        lines.copy_within(..WAYS - 1, 1);
        tags.copy_within(..WAYS - 1, 1);
        (lines[0], tags[0]) = (line, tag);
        (gone != EMPTY && gone & DIRTY != 0).then_some(gone & !DIRTY)
    }

    /// Marks a line, which must be there, as changed.
    pub(super) fn dirty(&mut self, line: u64) {
        if let (set, Some(way)) = self.find(line) {
            self.sets[set][..=way].rotate_right(1);
            self.tags[set][..=way].rotate_right(1);
            self.sets[set][0] |= DIRTY;
        }
    }

    /// Forgets that a line was changed; whether it was.
    pub(super) fn clean(&mut self, line: u64) -> bool {
        match self.find(line) {
            (set, Some(way)) if self.sets[set][way] & DIRTY != 0 => {
                self.sets[set][way] = line;
                true
            }
            _ => false,
        }
    }

    /// Drops a line.
    pub(super) fn drop_line(&mut self, line: u64) {
        if !self.used {
            return;
        }
        if let (set, Some(way)) = self.find(line) {
            self.sets[set][way..].rotate_left(1);
            self.tags[set][way..].rotate_left(1);
            self.sets[set][WAYS - 1] = EMPTY;
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
