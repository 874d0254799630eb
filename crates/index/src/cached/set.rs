//! A set of a cache: thirteen records, a hand that goes round them, and a version.

use entresol_base::sync::Mutex;

use super::CacheCounts;

/// With the lock and all that is beside them, four lines.
pub(super) const WAYS: usize = 13;

/// A set and its lock, on lines of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Locked(pub(super) Mutex<Set>);

const _: () = assert!(size_of::<Locked>() == 256);

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Set {
    keys: [u64; WAYS],
    /// 0 where there is no record.
    values: [u64; WAYS],
    /// Goes up whenever somebody begins to change a key of this set.
    version: u64,
    pub(super) counts: CacheCounts,
    /// Who has begun to change a key of this set and not ended.
    writers: u32,
    /// Records that were read since the hand came by, as bits.
    read: u16,
    hand: u8,
    /// Misses since the last were told.
    misses: u8,
}

/// What a change needs to know when it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    version: u64,
    was_cached: bool,
    was_alone: bool,
}

impl Set {
    fn way(&self, key: u64) -> Option<usize> {
        (0..WAYS).find(|&way| self.keys[way] == key && self.values[way] != 0)
    }

    /// The value of a key, if it is here.
    pub(super) fn get(&mut self, key: u64) -> Option<u64> {
        let Some(way) = self.way(key) else {
            self.counts.misses += 1;
            self.misses += 1;
            return None;
        };
        self.counts.hits += 1;
        self.read |= 1 << way;
        Some(self.values[way])
    }

    /// The misses among the last `every` look-ups, once there were so many more.
    pub(super) fn take_misses(&mut self, every: u64) -> Option<u64> {
        let all = self.counts.hits + self.counts.misses;
        all.is_multiple_of(every).then(|| std::mem::take(&mut self.misses).into())
    }

    /// The version that a fill must carry; none while somebody changes a key of this set, for
    /// nobody knows what a reader finds meanwhile.
    pub(super) fn version_to_fill(&self) -> Option<u64> {
        (self.writers == 0).then_some(self.version)
    }

    /// Puts in what somebody read, unless a change has begun since.
    pub(super) fn fill(&mut self, key: u64, value: u64, version: u64) {
        if version == self.version || is_unchecked() {
            self.put(key, value);
        }
    }

    fn put(&mut self, key: u64, value: u64) {
        let way = self.way(key).unwrap_or_else(|| self.victim());
        (self.keys[way], self.values[way]) = (key, value);
        // Not read yet: what nobody asks for again goes when the hand next comes by.
        self.read &= !(1 << way);
    }

    /// A place that is free, or whose record was not read since the hand came by.
    fn victim(&mut self) -> usize {
        if let Some(free) = self.values.iter().position(|&value| value == 0) {
            return free;
        }
        loop {
            let way = usize::from(self.hand);
            self.hand = (self.hand + 1) % WAYS as u8;
            if self.read >> way & 1 == 0 {
                return way;
            }
            self.read &= !(1 << way);
        }
    }

    /// A key is about to be changed: nobody finds it here from now on.
    pub(super) fn begin(&mut self, key: u64) -> Begun {
        let was_alone = self.writers == 0;
        let way = self.way(key);
        if let Some(way) = way {
            self.values[way] = 0;
        }
        self.version += 1;
        self.writers += 1;
        Begun { version: self.version, was_cached: way.is_some(), was_alone }
    }

    /// It was changed, to `value` if it has one. Back it comes if it was here and nobody else has
    /// changed anything meanwhile: who of two was last in the index is not known here.
    pub(super) fn end(&mut self, key: u64, begun: Begun, value: Option<u64>) {
        self.writers -= 1;
        let is_alone = begun.was_alone && begun.version == self.version;
        if let Some(value) = value
            && begun.was_cached
            && is_alone
        {
            self.put(key, value);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.iter().filter(|&&value| value != 0).count()
    }
}

#[cfg(not(test))]
const fn is_unchecked() -> bool {
    false
}

/// Whether the version is left out, to see that a suite notices.
#[cfg(test)]
pub(super) fn is_unchecked() -> bool {
    UNCHECKED.get()
}

#[cfg(test)]
thread_local! {
    // A world's threads share it.
    pub(super) static UNCHECKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
