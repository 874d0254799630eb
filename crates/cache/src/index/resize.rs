//! Resizing of the table, a bucket at a time, and displacement: items that move to their other
//! buckets so that one of them has a free slot.

use std::sync::atomic::Ordering;

use super::{BUCKET_BYTES, BUCKETS_MIN, Index, SLOTS, VERSION, addresses, is_free, location_of};

/// Position in a bucket's version of the number of its life.
const LIFE_SHIFT: u32 = 52;
/// Maximum of buckets searched for a free slot before an insert gives up.
const DISPLACEMENT_BUCKETS_MAX: usize = 256;

/// State of growing and shrinking, behind their lock.
#[derive(Default)]
pub(super) struct Growth {
    /// Buckets that may have been touched since memory was last given back.
    touched: u64,
    /// Number of times that memory was given back.
    trims: u64,
}

#[derive(Clone, Copy)]
struct Step {
    bucket: u64,
    from: Option<(usize, u64, u64)>,
}

fn other_bucket(hash: u64, bucket: u64, n: u64) -> u64 {
    let (first, second) = addresses(hash, n);
    if bucket == first { second } else { first }
}

/// Returns true if an item of bucket `old` belongs in the new bucket once there are `n + 1`.
fn moves_to(hash: u64, old: u64, new: u64, n: u64) -> bool {
    let (first, second) = addresses(hash, n);
    let (first_then, second_then) = addresses(hash, n + 1);
    if first == old { first_then == new } else { second == old && second_then == new }
}

impl Index {
    fn fetch_records(&self, bucket: u64, fetch: &impl Fn(u64)) {
        for word in &self.table.load_line(bucket * BUCKET_BYTES)[1..] {
            fetch(location_of(*word));
        }
    }

    /// Frees a slot in one of a key's buckets by moving other items to their other buckets. `fetch`
    /// as in `grow`.
    pub(crate) fn make_room(
        &self,
        hash: u64,
        fetch: &impl Fn(u64),
        rehash: &impl Fn(u64) -> u64,
    ) -> bool {
        let (first, second) = addresses(hash, self.buckets.load(Ordering::Acquire));
        self.displace([first, second], |_| false, fetch, rehash)
    }

    /// Frees a slot in one of two buckets by moving items to their other buckets, but to none that
    /// is `barred`; free slots of barred buckets do not count. Returns false if there is no way.
    fn displace(
        &self,
        roots: [u64; 2],
        barred: impl Fn(u64) -> bool,
        fetch: &impl Fn(u64),
        rehash: &impl Fn(u64) -> u64,
    ) -> bool {
        let n = self.buckets.load(Ordering::Acquire);
        // Breadth first: each step names the bucket to search and the slot that would move there.
        let mut steps = Vec::with_capacity(2 + 2 * SLOTS);
        for bucket in roots {
            steps.push(Step { bucket, from: None });
            self.fetch_records(bucket, fetch);
        }
        let mut next = 0;
        while next < steps.len() && steps.len() < DISPLACEMENT_BUCKETS_MAX {
            let bucket = steps[next].bucket;
            for slot in 1..=SLOTS as u64 {
                let at = bucket * BUCKET_BYTES + slot * 8;
                let word = self.table.load_u64(at, Ordering::Acquire);
                if is_free(word) {
                    if barred(bucket) {
                        continue;
                    }
                    return self.carry_out(&steps, next, rehash);
                }
                let other = other_bucket(rehash(location_of(word)), bucket, n);
                if other == bucket || barred(other) {
                    continue;
                }
                steps.push(Step { bucket: other, from: Some((next, at, word)) });
                if self.free_slot(other).is_some() {
                    return self.carry_out(&steps, steps.len() - 1, rehash);
                }
            }
            next += 1;
        }
        false
    }

    /// Moves items along the path that ends at `last`, from its end, each move checked under locks.
    fn carry_out(&self, steps: &[Step], mut last: usize, rehash: &impl Fn(u64) -> u64) -> bool {
        while let Some((parent, from_at, word)) = steps[last].from {
            let (from, to) = (steps[parent].bucket, steps[last].bucket);
            self.lock_both(from, to);
            let moved = self.move_slot(from_at, word, from, to, rehash);
            self.unlock_both(from, to);
            if !moved {
                // Another writer changed one of the two buckets: there may be room now, or the
                // caller searches again.
                return true;
            }
            last = parent;
        }
        true
    }

    fn move_slot(
        &self,
        from_at: u64,
        word: u64,
        from: u64,
        to: u64,
        rehash: &impl Fn(u64) -> u64,
    ) -> bool {
        let current = self.table.load_u64(from_at, Ordering::Relaxed);
        if is_free(current) || location_of(current) != location_of(word) {
            return false;
        }
        // Under the lock the record is whole, so this hash is that of the item itself.
        let n = self.buckets.load(Ordering::Acquire);
        if other_bucket(rehash(location_of(current)), from, n) != to {
            return false;
        }
        let Some(to_at) = self.free_slot(to) else { return false };
        self.change(to_at, current);
        self.change(from_at, 0);
        true
    }

    /// Adds one bucket and splits the items of another between the two; returns false if the table
    /// is at its maximum. `fetch` prefetches the record at a location, so that the waits for all
    /// records of the bucket overlap.
    pub(crate) fn grow(&self, fetch: &impl Fn(u64), rehash: &impl Fn(u64) -> u64) -> bool {
        let Some(mut growth) = self.growth.try_lock() else { return true };
        let n = self.buckets.load(Ordering::Acquire);
        if n >= self.buckets_max {
            return false;
        }
        let (old, new) = (n - (1 << n.ilog2()), n);
        self.table.prefetch((old + 1) * BUCKET_BYTES);
        self.table.prefetch(new * BUCKET_BYTES);
        self.fetch_records(old, fetch);
        self.lock_both(old, new);
        growth.touched = growth.touched.max(n + 1);
        self.begin_life(new, growth.trims);
        debug_assert!(self.used_slots(new) == 0, "bucket {new} is new, but holds items");
        let mut line = self.table.load_line(old * BUCKET_BYTES);
        for word in &mut line[1..] {
            if !is_free(*word) && !moves_to(rehash(location_of(*word)), old, new, n) {
                *word = 0;
            }
        }
        let moving = || line.iter().enumerate().skip(1).filter(|(_, word)| !is_free(**word));
        for (slot, word) in moving() {
            self.change(new * BUCKET_BYTES + slot as u64 * 8, *word);
        }
        self.buckets.store(n + 1, Ordering::Release);
        for (slot, _) in moving() {
            self.change(old * BUCKET_BYTES + slot as u64 * 8, 0);
        }
        self.unlock_both(old, new);
        true
    }

    /// Removes the last bucket: its items go to the one that it was split from, where displacement
    /// makes room for them. Returns false if there is none, or the table is at its minimum. `fetch`
    /// as in `grow`.
    pub(crate) fn shrink(&self, fetch: &impl Fn(u64), rehash: &impl Fn(u64) -> u64) -> bool {
        let Some(_growing) = self.growth.try_lock() else { return false };
        let n = self.buckets.load(Ordering::Acquire);
        if n <= BUCKETS_MIN {
            return false;
        }
        let last = n - 1;
        let buddy = last - (1 << last.ilog2());
        let either = |bucket| bucket == buddy || bucket == last;
        // At most all slots of one bucket are too many; writers may fill some that were freed.
        for _ in 0..2 * SLOTS {
            if self.merge(buddy, last) {
                return true;
            }
            if !self.displace([buddy, last], either, fetch, rehash) {
                return false;
            }
        }
        false
    }

    /// Moves the items of the last bucket to its buddy and cuts it off; returns false if they do
    /// not fit.
    fn merge(&self, buddy: u64, last: u64) -> bool {
        self.lock_both(buddy, last);
        let fits = self.used_slots(buddy) + self.used_slots(last) <= SLOTS;
        if fits {
            let line = self.table.load_line(last * BUCKET_BYTES);
            for word in line.iter().skip(1).filter(|word| !is_free(**word)) {
                let free = self.free_slot(buddy);
                assert!(free.is_some(), "bucket {buddy} had room for bucket {last} and has none");
                free.into_iter().for_each(|free| self.change(free, *word));
            }
            self.buckets.store(last, Ordering::Release);
            for slot in (1..=SLOTS).filter(|slot| !is_free(line[*slot])) {
                self.change(last * BUCKET_BYTES + slot as u64 * 8, 0);
            }
        }
        self.unlock_both(buddy, last);
        fits
    }

    /// Starts a new life of a bucket whose memory was given back and has lost its version. It must
    /// not count through the same versions again under the eyes of a slow reader, so each life has
    /// a million versions of its own.
    fn begin_life(&self, locked: u64, trims: u64) {
        let at = locked * BUCKET_BYTES;
        let header = self.table.load_u64(at, Ordering::Relaxed);
        if header < VERSION {
            self.table.store_u64(at, header | trims << LIFE_SHIFT, Ordering::Release);
        }
    }

    /// Gives the memory behind the last bucket back to the system, in whole pages.
    pub(crate) fn trim(&self) {
        const PAGE: u64 = 4096;
        let Some(mut growth) = self.growth.try_lock() else { return };
        let used = self.bytes().next_multiple_of(PAGE);
        let all = self.table.len();
        if used >= all || used / BUCKET_BYTES >= growth.touched {
            return;
        }
        // A writer that has not noticed yet that the table is shorter may hold a lock there for a
        // moment. All of them are taken first, since giving the memory back unlocks them.
        for bucket in used / BUCKET_BYTES..growth.touched {
            self.lock_bucket(bucket);
            debug_assert!(self.used_slots(bucket) == 0, "bucket {bucket} is cut off with items");
        }
        self.table.discard(used, all - used);
        growth.touched = used / BUCKET_BYTES;
        growth.trims += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Heat;
    use super::*;

    /// Table whose locations are numbers of hashes, grown as the cache grows it.
    struct Grown {
        index: Index,
        hashes: Vec<u64>,
    }

    impl Grown {
        fn insert(&self, location: u64) {
            let hash = self.hashes[location as usize];
            let rehash = |at: u64| self.hashes[at as usize];
            while self.index.wants_growth() {
                self.index.grow(&|_| (), &rehash);
            }
            while !self.index.lock(hash).insert(location, Heat::NEW) {
                assert!(self.index.make_room(hash, &|_| (), &rehash), "no room for {location}");
            }
            self.index.count(1);
        }

        fn remove(&self, location: u64) {
            let pair = self.index.lock(self.hashes[location as usize]);
            pair.remove(&pair.find_location(location).unwrap());
            self.index.count(-1);
        }
    }

    /// Items that displacement has moved need not fit into the bucket that theirs was split from.
    #[test]
    fn the_table_shrinks_whatever_displacement_has_done_to_its_items() {
        const STAYING: u64 = 3_000;
        const ALL: u64 = 63_000;
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let hashes = (0..ALL).map(|_| random.u64(..)).collect();
            let index = Index::new(1 << 20, false).unwrap();
            let grown = Grown { index, hashes };
            (0..STAYING).for_each(|location| grown.insert(location));
            let rehash = |at: u64| grown.hashes[at as usize];
            for _ in 0..3 {
                (STAYING..ALL).for_each(|location| grown.insert(location));
                (STAYING..ALL).for_each(|location| grown.remove(location));
                while grown.index.wants_shrinking() && grown.index.shrink(&|_| (), &rehash) {}
                assert!(
                    !grown.index.wants_shrinking(),
                    "seed {seed}: {} bytes",
                    grown.index.bytes()
                );
            }
            for (location, hash) in (0..STAYING).zip(&grown.hashes) {
                let found = grown.index.lock(*hash).find_location(location);
                assert!(found.is_some(), "seed {seed}: {location} is lost");
            }
        }
    }
}
