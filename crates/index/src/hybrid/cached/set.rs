//! A set of a cache: thirteen records, a hand that goes round them, and a version.

use std::borrow::Borrow;

use entresol_base::sync::Mutex;

use super::CacheCounts;

/// Records of a set: with the lock and the other fields they fill four lines if a key has eight
/// bytes.
pub(super) const WAYS: usize = 13;

/// A set and its lock, on lines of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Locked<K>(pub(super) Mutex<Set<K>>);

const _: () = assert!(size_of::<Locked<u64>>() == 256);

/// Records of a set; see the head of the file.
#[derive(Debug, Default)]
pub(super) struct Set<K> {
    keys: [K; WAYS],
    /// Values; 0 where there is no record.
    values: [u64; WAYS],
    /// Number of changes that were begun on keys of this set.
    version: u64,
    pub(super) counts: CacheCounts,
    /// Number of changes of keys of this set that have begun and not ended.
    writers: u32,
    /// Records that were read since the hand came by, as bits.
    read: u16,
    hand: u8,
    /// Misses since they were last reported.
    misses: u8,
}

/// State of a change in progress, needed at its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    version: u64,
    was_cached: bool,
    was_alone: bool,
}

impl<K> Set<K> {
    fn way<Q: Eq + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        (0..WAYS).find(|&way| self.keys[way].borrow() == key && self.values[way] != 0)
    }

    /// Returns the keys, with remains of removed ones.
    pub(super) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Returns the value of a key, if it is here.
    pub(super) fn get<Q: Eq + ?Sized>(&mut self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        let Some(way) = self.way(key) else {
            self.counts.misses += 1;
            self.misses += 1;
            return None;
        };
        self.counts.hits += 1;
        self.read |= 1 << way;
        Some(self.values[way])
    }

    /// Returns the misses among the last `every` look-ups, once there were that many more.
    pub(super) fn take_misses(&mut self, every: u64) -> Option<u64> {
        let all = self.counts.hits + self.counts.misses;
        all.is_multiple_of(every).then(|| std::mem::take(&mut self.misses).into())
    }

    /// Returns the version that a fill must carry; `None` while a key of this set is being changed,
    /// since a reader may find either value meanwhile.
    pub(super) fn version_to_fill(&self) -> Option<u64> {
        (self.writers == 0).then_some(self.version)
    }

    /// Enters a value that a reader found, unless a change has begun since.
    pub(super) fn fill<Q>(&mut self, key: &Q, value: u64, version: u64)
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        if version == self.version || is_unchecked() {
            self.put(key, value);
        }
    }

    fn put<Q>(&mut self, key: &Q, value: u64)
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let way = self.way(key).unwrap_or_else(|| {
            let way = self.victim();
            self.keys[way] = key.to_owned();
            way
        });
        self.values[way] = value;
        // Not read yet: a key that is not asked for again goes when the hand next comes by.
        self.read &= !(1 << way);
    }

    /// Returns a free slot, or one whose record was not read since the hand came by.
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

    /// Begins the change of a key: no reader finds it here from now on.
    pub(super) fn begin<Q: Eq + ?Sized>(&mut self, key: &Q) -> Begun
    where
        K: Borrow<Q>,
    {
        let was_alone = self.writers == 0;
        let way = self.way(key);
        if let Some(way) = way {
            self.values[way] = 0;
        }
        self.version += 1;
        self.writers += 1;
        Begun { version: self.version, was_cached: way.is_some(), was_alone }
    }

    /// Ends the change of a key, to `value` if it has one. The key comes back if it was here and
    /// there was no other change meanwhile: of two, the last in the index is not known here.
    pub(super) fn end<Q>(&mut self, key: &Q, begun: Begun, value: Option<u64>)
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        debug_assert!(
            self.writers > 0 && begun.version <= self.version,
            "a change ends that began with version {}: {} are under way, it is {}",
            begun.version,
            self.writers,
            self.version,
        );
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

/// Returns true if the version is ignored, to see that a suite notices.
#[cfg(test)]
pub(super) fn is_unchecked() -> bool {
    UNCHECKED.get()
}

#[cfg(test)]
thread_local! {
    // A world's threads share it.
    pub(super) static UNCHECKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
