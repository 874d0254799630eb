//! The processor's cache: the lines in it, and those that are dirty.
//!
//! There is one cache for all threads, with 16 ways; the least recently used line of a set is
//! evicted. It holds no bytes.

/// Ways of a set.
const WAYS: usize = 16;
const EMPTY: u64 = u64::MAX;
const DIRTY: u64 = 1 << 63;

/// Lines, the most recently used of each set first.
#[derive(Debug, Clone)]
pub(super) struct LineCache {
    sets: Vec<Set>,
    /// One byte of each line's hash, in the same order: rules out most missing lines without
    /// looking at those present.
    tags: Vec<[u8; WAYS]>,
    /// Set once a line was inserted: threads that only stream need not look.
    used: bool,
}

type Set = [u64; WAYS];

impl LineCache {
    pub(super) fn new(lines: u64) -> LineCache {
        let sets = (lines / WAYS as u64).next_power_of_two().max(1) as usize;
        LineCache { sets: vec![[EMPTY; WAYS]; sets], tags: vec![[0; WAYS]; sets], used: false }
    }

    /// Returns a line's set and tag.
    fn place(&self, line: u64) -> (usize, u8) {
        // Multiplied by the golden ratio, so that strides of powers of two use all sets.
        let hash = line.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((hash >> 20) as usize & (self.sets.len() - 1), (hash >> 56) as u8)
    }

    /// Returns the line's set, and its way if it is present.
    fn find(&self, line: u64) -> (usize, Option<usize>) {
        let (set, tag) = self.place(line);
        // All ways at once, so that it compiles to one comparison.
        if !self.tags[set].iter().fold(false, |any, held| any | (*held == tag)) {
            return (set, None);
        }
        let is_it = |&held: &u64| held != EMPTY && held & !DIRTY == line;
        (set, self.sets[set].iter().position(is_it))
    }

    /// Returns true if the line is present, and makes it the most recently used.
    pub(super) fn touch(&mut self, line: u64) -> bool {
        let (set, Some(way)) = self.find(line) else { return false };
        self.sets[set][..=way].rotate_right(1);
        self.tags[set][..=way].rotate_right(1);
        true
    }

    /// Inserts a line that is missing, and returns the dirty line that it evicts, if any.
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

    /// Marks a line, which must be present, as dirty.
    pub(super) fn dirty(&mut self, line: u64) {
        if let (set, Some(way)) = self.find(line) {
            self.sets[set][..=way].rotate_right(1);
            self.tags[set][..=way].rotate_right(1);
            self.sets[set][0] |= DIRTY;
        }
    }

    /// Marks a line as clean, and returns true if it was dirty.
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
