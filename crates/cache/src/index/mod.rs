//! The hash index: cache-line buckets of seven slots, two candidate buckets a key, displacement,
//! and linear hashing, so that the table grows and shrinks a bucket at a time at a constant load.
//!
//! A bucket is 64 bytes: a header word (bit 0 lock, upper half version) and seven slot words (16
//! bits of tag, 8 of heat, 40 of location plus one). A slot without a location is free. Arenas take
//! half of the locations; those with the upper bit set are the room for keys outside of DRAM.
//!
//! Rules of access:
//! 1. Slots and headers are written only under the bucket's lock bit, with one exception: readers
//!    store a slot's byte of heat without it. If the slot has just been given to another item, that
//!    item is a little warmer or colder than it should be; if it has just been emptied, the heat
//!    stays behind in it, so a free slot is not always zero. A writer that needs two buckets locks
//!    the lower one first. Replacing a slot's location or emptying the slot takes its bucket's
//!    lock; inserting a key, or relying on a key's absence, takes the locks of both of the key's
//!    buckets.
//! 2. A writer that changes a slot's location increments the bucket's version after it stored the
//!    slot and before it unlocks. A slot that moves is stored at its new place, with that bucket's
//!    version incremented, before it is cleared at the old one.
//! 3. Readers never look at the lock bit and never wait: they read the version, the slots, the
//!    record that a slot names, and the version again. Memory that a slot has named may be
//!    rewritten only after the slot and then the version were changed, so an unchanged version
//!    proves that the record was whole. Memory of the table that was given back to the system
//!    starts again with versions that it never had.
//! 4. A miss is proven by both buckets' versions and the number of buckets being unchanged.

mod resize;

use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_media::{Direct, Line, RegionError};

use self::resize::Growth;

pub(crate) const BUCKET_BYTES: u64 = 64;
pub(crate) const SLOTS: usize = 7;
const LOCK: u64 = 1;
const VERSION: u64 = 1 << 32;
const LOCATION_BITS: u32 = 40;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
/// Byte of a slot word that holds its heat.
const HEAT_BYTE: u64 = (LOCATION_BITS / 8) as u64;
/// Buckets of a new table.
const BUCKETS_MIN: u64 = 256;
/// Share of used slots above which the table grows: nine tenths let displacement succeed soon, and
/// take 10.2 bytes of table an item.
const LOAD_NUMERATOR: i64 = 9;
const LOAD_DENOMINATOR: i64 = 10;
/// Share of used slots below which the table shrinks.
const SHRINK_NUMERATOR: i64 = 1;
const SHRINK_DENOMINATOR: i64 = 2;

/// A slot's place and the word that it held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    at: u64,
    /// Header of its bucket, read before the slot.
    header: u64,
    word: u64,
}

impl Found {
    #[inline(always)]
    fn bucket_at(self) -> u64 {
        self.at & !(BUCKET_BYTES - 1)
    }

    /// Returns the location that the slot names.
    pub(crate) fn location(self) -> u64 {
        location_of(self.word)
    }

    /// Returns the number of the slot in its bucket.
    pub(crate) fn slot(self) -> u64 {
        (self.at & (BUCKET_BYTES - 1)) / 8 - 1
    }

    /// Returns true if the slot has named one and the same item since it was found `before`. An
    /// equal location proves nothing, since holes are filled again: the version must be equal.
    pub(crate) fn is_still(&self, before: &Found) -> bool {
        self.at == before.at && self.header ^ before.header < VERSION
    }

    /// Returns the offset of the slot's bucket, and the bucket's header as it was read.
    #[inline(always)]
    pub(crate) fn bucket(self) -> (u64, u64) {
        (self.bucket_at(), self.header)
    }

    /// Returns the item's history.
    #[inline]
    pub(crate) fn heat(self) -> Heat {
        Heat((self.word >> LOCATION_BITS) as u8)
    }
}

/// First slot with a key's tag, as it was read.
pub(crate) struct Probe<'a> {
    pub(crate) found: Found,
    line: &'a Line,
}

impl Probe<'_> {
    /// Returns true if everything read since `probe` belonged to the item that was found.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self) -> bool {
        fence(Ordering::Acquire);
        self.line.words()[0].load(Ordering::Relaxed) ^ self.found.header < VERSION
    }
}

/// History of an item: a count of its reads since eviction last passed it, the number of passes
/// that it outlived without a read, and two marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Heat(u8);

impl Heat {
    /// Mark: the item was read after it was written.
    const READ: u8 = 0x80;
    /// Mark: the main log let the item go, and it is back in the small one.
    const RETURNED: u8 = 0x40;
    const PASSES_SHIFT: u8 = 4;
    const PASSES: u8 = 0x30;
    const COUNT: u8 = 0x07;
    /// Reads that count beyond the present pass: an item read once more than that stays one pass
    /// longer, no more.
    const CARRIED_MAX: u8 = 2;

    /// Heat of a new item.
    pub(crate) const NEW: Heat = Heat(0);
    /// Heat of a new item that the main log let go not long ago.
    pub(crate) const BACK: Heat = Heat(Heat::RETURNED);
    /// Heat of a new item that is too large to go to the main log at once.
    pub(crate) const LARGE: Heat = Heat(1);

    /// Returns the number of reads that count, up to 7.
    #[inline]
    pub(crate) fn count(self) -> u8 {
        self.0 & Heat::COUNT
    }

    /// Returns the number of passes of eviction since the last read.
    pub(crate) fn passes(self) -> u8 {
        (self.0 & Heat::PASSES) >> Heat::PASSES_SHIFT
    }

    /// Returns true if the item was read.
    #[inline]
    pub(crate) fn is_read(self) -> bool {
        self.0 & Heat::READ != 0
    }

    /// Returns true if the main log let the item go before it was stored.
    pub(crate) fn is_back(self) -> bool {
        self.0 & Heat::RETURNED != 0
    }

    /// Returns the heat after one more read, which counts only if the item's segment is not young.
    #[inline(always)]
    pub(crate) fn read(self, young: bool) -> Heat {
        let counts = !young & (self.count() < Heat::COUNT);
        Heat(Heat::READ | (self.0 + u8::from(counts)))
    }

    /// Returns the heat of the item's successor: equally warm, but not yet read.
    pub(crate) fn inherited(self) -> Heat {
        Heat(self.0 & !Heat::READ)
    }

    /// Returns the heat of an item that a limit of keys leaves where it is, since it was read after
    /// it was last left; `None` if it was not. Reads in a young segment, which do not count, make
    /// it stay once.
    pub(crate) fn spared(self) -> Option<Heat> {
        let count = self.count().min(Heat::CARRIED_MAX);
        let rest = self.0 & !(Heat::COUNT | Heat::PASSES);
        if count > 0 {
            return Some(Heat(rest | (count - 1)));
        }
        (self.is_read() && self.passes() == 0).then_some(Heat(rest | 1 << Heat::PASSES_SHIFT))
    }

    /// Returns the heat of an item that the small log passes on to the main one.
    pub(crate) fn settled(self) -> Heat {
        let passes = u8::from(self.count() == 0);
        Heat((self.0 & Heat::READ) | passes << Heat::PASSES_SHIFT)
    }

    /// Returns the heat of an item that stays in the main log.
    pub(crate) fn passed(self) -> Heat {
        let count = self.count().min(Heat::CARRIED_MAX).saturating_sub(1);
        let passes = if self.count() > 0 { 0 } else { (self.passes() + 1).min(3) };
        Heat((self.0 & Heat::READ) | passes << Heat::PASSES_SHIFT | count)
    }
}

/// The hash table. Locations are opaque 40-bit numbers; `rehash` closures return the hash of the
/// key of the item at a location.
pub(crate) struct Index {
    table: Direct,
    buckets: AtomicU64,
    buckets_max: u64,
    items: AtomicI64,
    growth: Mutex<Growth>,
}

#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    (hash >> 48).max(1)
}

#[inline(always)]
fn location_of(word: u64) -> u64 {
    (word & LOCATION_MASK).wrapping_sub(1)
}

/// Returns true if a slot names no location; it may still hold heat.
#[inline(always)]
fn is_free(word: u64) -> bool {
    word & LOCATION_MASK == 0
}

#[inline(always)]
fn word_of(hash: u64, location: u64, heat: Heat) -> u64 {
    debug_assert!(location < LOCATION_MASK, "{location} does not fit into a slot");
    (tag_of(hash) << 48) | (u64::from(heat.0) << LOCATION_BITS) | (location + 1)
}

/// Returns the bucket of hash bits `h` among `n` buckets, by linear hashing.
#[inline(always)]
fn address(h: u64, n: u64) -> u64 {
    let high = u64::MAX >> (n | 1).leading_zeros();
    let wide = h & high;
    if wide < n { wide } else { h & (high >> 1) }
}

/// Derives the hash bits of the second candidate, practically independent of the first's.
#[inline(always)]
fn second_hash(hash: u64) -> u64 {
    (hash >> 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24
}

#[inline(always)]
fn addresses(hash: u64, n: u64) -> (u64, u64) {
    (address(hash & LOCATION_MASK, n), address(second_hash(hash), n))
}

impl Index {
    /// Makes an empty table that can grow to `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64, huge_pages: bool) -> Result<Self, RegionError> {
        let buckets_max = (bytes_max / BUCKET_BYTES).max(BUCKETS_MIN);
        let table = Direct::anonymous(buckets_max * BUCKET_BYTES, huge_pages)?;
        Ok(Index {
            table,
            buckets: AtomicU64::new(BUCKETS_MIN),
            buckets_max,
            items: AtomicI64::new(0),
            growth: Mutex::new(Growth::default()),
        })
    }

    /// Returns the bytes of the table in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.buckets.load(Ordering::Relaxed) * BUCKET_BYTES
    }

    /// Adds to the number of items, or subtracts if negative; callers may do so in batches.
    pub(crate) fn count(&self, items: i64) {
        self.items.fetch_add(items, Ordering::Relaxed);
    }

    /// Returns the number of items, up to what workers have not yet counted.
    pub(crate) fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    /// Returns true if the table should grow to keep inserts fast.
    pub(crate) fn wants_growth(&self) -> bool {
        let slots = self.buckets.load(Ordering::Relaxed) as i64 * SLOTS as i64;
        self.items.load(Ordering::Relaxed) * LOAD_DENOMINATOR > slots * LOAD_NUMERATOR
    }

    /// Returns true if the table is empty enough to give memory back.
    pub(crate) fn wants_shrinking(&self) -> bool {
        let buckets = self.buckets.load(Ordering::Relaxed);
        let slots = buckets as i64 * SLOTS as i64;
        buckets > BUCKETS_MIN
            && self.items.load(Ordering::Relaxed) * SHRINK_DENOMINATOR < slots * SHRINK_NUMERATOR
    }

    /// Prefetches both of a key's buckets.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let (first, second) = addresses(hash, self.buckets.load(Ordering::Relaxed));
        self.table.prefetch(first * BUCKET_BYTES);
        self.table.prefetch(second * BUCKET_BYTES);
    }

    /// Returns the first location whose tag matches, unproven: good for prefetching only.
    #[inline]
    pub(crate) fn guess(&self, hash: u64) -> Option<u64> {
        let (first, second) = addresses(hash, self.buckets.load(Ordering::Relaxed));
        let buckets = self.two(first, second);
        let mask = buckets.matches(tag_of(hash));
        (mask != 0).then(|| location_of(buckets.lowest(mask).1))
    }

    /// Returns the first slot whose tag matches. It is usually the key's; if not, nothing follows
    /// from that. A hit must be proven with `is_unchanged` after the record was read.
    #[inline(always)]
    pub(crate) fn probe(&self, hash: u64) -> Option<Probe<'_>> {
        let tag = tag_of(hash);
        let (first, second) = addresses(hash, self.buckets.load(Ordering::Acquire));
        let buckets = self.two(first, second);
        // The mask only hints where to look; the proof starts here, with the version first.
        let mask = buckets.matches(tag);
        if mask == 0 {
            return None;
        }
        let line = select_unpredictable(in_first(mask), buckets.lines.0, buckets.lines.1);
        let header = line.words()[0].load(Ordering::Acquire);
        let (at, word) = buckets.lowest(mask);
        (word >> 48 == tag).then_some(Probe { found: Found { at, header, word }, line })
    }

    /// Returns true if no slot has the key's tag: a proven miss.
    #[inline(always)]
    pub(crate) fn is_absent(&self, hash: u64) -> bool {
        let n = self.buckets.load(Ordering::Acquire);
        let (first, second) = addresses(hash, n);
        let buckets = self.two(first, second);
        let headers = buckets.headers();
        fence(Ordering::Acquire);
        buckets.matches(tag_of(hash)) == 0 && self.are_unmoved(&buckets, headers, n)
    }

    /// Returns true if no slot of two buckets changed since their headers were read, nor the number
    /// of buckets.
    #[inline(always)]
    fn are_unmoved(&self, buckets: &Two<'_>, before: (u64, u64), n: u64) -> bool {
        fence(Ordering::Acquire);
        let now = buckets.headers();
        (now.0 ^ before.0) | (now.1 ^ before.1) < VERSION
            && self.buckets.load(Ordering::Relaxed) == n
    }

    /// Finds the slot whose tag matches and for whose location `look` returns a value; `None` is a
    /// proven miss. A hit must be proven with `unchanged` after the record was read.
    ///
    /// Both buckets are searched without a branch that depends on where the key is: a mispredicted
    /// one would wait for the memory that it depends on, and so would every look-up behind it.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        hash: u64,
        mut look: impl FnMut(u64) -> Option<T>,
    ) -> Option<(Found, T)> {
        let tag = tag_of(hash);
        loop {
            let n = self.buckets.load(Ordering::Acquire);
            let (first, second) = addresses(hash, n);
            let buckets = self.two(first, second);
            let headers = buckets.headers();
            fence(Ordering::Acquire);
            let mut mask = buckets.matches(tag);
            while mask != 0 {
                let (at, word) = buckets.lowest(mask);
                if word >> 48 == tag
                    && let Some(seen) = look(location_of(word))
                {
                    let header = select_unpredictable(in_first(mask), headers.0, headers.1);
                    return Some((Found { at, header, word }, seen));
                }
                mask &= mask - 1;
            }
            if self.are_unmoved(&buckets, headers, n) {
                return None;
            }
        }
    }

    #[inline(always)]
    fn two(&self, first: u64, second: u64) -> Two<'_> {
        let at = (first * BUCKET_BYTES, second * BUCKET_BYTES);
        Two { at, lines: (self.table.line(at.0), self.table.line(at.1)) }
    }

    /// Returns true if everything read since `find` belonged to the item that was found.
    #[inline]
    pub(crate) fn unchanged(&self, found: &Found) -> bool {
        fence(Ordering::Acquire);
        self.table.load_u64(found.bucket_at(), Ordering::Relaxed) ^ found.header < VERSION
    }

    /// Locks the bucket of the first slot whose tag matches; `None` if no slot does or the bucket
    /// is locked already. That is enough to replace the item that the slot names, but not to insert
    /// one.
    #[inline]
    pub(crate) fn lock_probed(&self, hash: u64) -> Option<One<'_>> {
        thread::step();
        let Probe { found, line } = self.probe(hash)?;
        if found.header & LOCK != 0 {
            return None;
        }
        // The header holds the version: if that has not changed, neither has the slot.
        let locked = line.words()[0].compare_exchange(
            found.header,
            found.header | LOCK,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        // `One` must not exist before the lock is held: dropping it unlocks.
        locked.is_ok().then(|| One { index: self, hash, found })
    }

    /// Locks both of a key's buckets.
    pub(crate) fn lock(&self, hash: u64) -> Pair<'_> {
        thread::step();
        loop {
            let n = self.buckets.load(Ordering::Acquire);
            let (first, second) = addresses(hash, n);
            self.lock_both(first, second);
            let pair = Pair { index: self, hash, first, second };
            if self.buckets.load(Ordering::Acquire) == n
                || addresses(hash, self.buckets.load(Ordering::Acquire)) == (first, second)
            {
                return pair;
            }
        }
    }

    /// Calls `look` with every item of a bucket. The bucket is locked meanwhile, so that its items
    /// stay in it and their records whole.
    pub(crate) fn visit(&self, bucket: u64, look: impl FnMut(Found)) {
        thread::step();
        self.lock_bucket(bucket);
        let at = bucket * BUCKET_BYTES;
        let line = self.table.load_line(at);
        let slots = line.iter().zip(0..).skip(1).filter(|(word, _)| !is_free(**word));
        slots
            .map(|(word, slot)| Found { at: at + slot * 8, header: line[0], word: *word })
            .for_each(look);
        self.unlock_bucket(bucket);
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> u64 {
        self.buckets.load(Ordering::Acquire)
    }

    /// Stores an item's heat in its slot. No lock is needed, since only that byte is written.
    #[inline]
    pub(crate) fn set_heat(&self, found: &Found, heat: Heat) {
        self.table.store_u8(found.at + HEAT_BYTE, heat.0, Ordering::Relaxed);
    }

    /// Locks the bucket at `at` and calls `change`. Does nothing if the bucket is locked or has
    /// changed since its header was read: readers do not wait for writers.
    pub(crate) fn try_locked(&self, at: u64, before: u64, change: impl FnOnce()) {
        let header = self.table.load_u64(at, Ordering::Relaxed);
        if header & LOCK != 0 || header ^ before >= VERSION {
            return;
        }
        let locked = self.table.compare_exchange_u64(
            at,
            header,
            header | LOCK,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if locked.is_ok() {
            change();
            self.table.store_u64(at, header, Ordering::Release);
        }
    }

    fn lock_bucket(&self, bucket: u64) {
        let at = bucket * BUCKET_BYTES;
        let mut spins = 0_u32;
        loop {
            let header = self.table.load_u64(at, Ordering::Relaxed);
            if header & LOCK == 0
                && self
                    .table
                    .compare_exchange_u64(
                        at,
                        header,
                        header | LOCK,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return;
            }
            spins += 1;
            if spins.is_multiple_of(64) {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn lock_both(&self, first: u64, second: u64) {
        self.lock_bucket(first.min(second));
        if first != second {
            self.lock_bucket(first.max(second));
        }
    }

    fn unlock_both(&self, first: u64, second: u64) {
        self.unlock_bucket(first);
        if first != second {
            self.unlock_bucket(second);
        }
    }

    fn unlock_bucket(&self, bucket: u64) {
        let at = bucket * BUCKET_BYTES;
        let header = self.table.load_u64(at, Ordering::Relaxed);
        debug_assert!(header & LOCK != 0, "bucket {bucket} was unlocked, but nobody held it");
        self.table.store_u64(at, header & !LOCK, Ordering::Release);
    }

    /// Stores a slot of a bucket that the caller has locked, then increments the bucket's version.
    fn change(&self, at: u64, word: u64) {
        let bucket_at = at & !(BUCKET_BYTES - 1);
        self.table.store_u64(at, word, Ordering::Release);
        let header = self.table.load_u64(bucket_at, Ordering::Relaxed);
        debug_assert!(header & LOCK != 0, "slot {at} was changed, but its bucket is not locked");
        self.table.store_u64(bucket_at, header.wrapping_add(VERSION), Ordering::Release);
    }

    /// A slot that was found under a lock that is still held names what it did.
    #[inline]
    fn debug_assert_names(&self, found: &Found) {
        // Not left to the compiler: it does not leave out a load of an atomic.
        if cfg!(debug_assertions) {
            let (now, then) = (self.table.load_u64(found.at, Ordering::Relaxed), found.word);
            let same = |word: u64| (word >> 48, word & LOCATION_MASK);
            assert!(same(now) == same(then), "slot {} holds {now:x}, not {then:x}", found.at);
        }
    }

    fn free_slot(&self, bucket: u64) -> Option<u64> {
        let line = self.table.load_line(bucket * BUCKET_BYTES);
        (1..=SLOTS)
            .find(|slot| is_free(line[*slot]))
            .map(|slot| bucket * BUCKET_BYTES + slot as u64 * 8)
    }

    fn used_slots(&self, bucket: u64) -> usize {
        let line = self.table.load_line(bucket * BUCKET_BYTES);
        line[1..].iter().filter(|word| !is_free(**word)).count()
    }
}

/// Both buckets of a key. A mask of slots has bit `s` for slot `s` of the first bucket and bit `8 +
/// s` for that of the second; the bits of the headers are left out.
struct Two<'a> {
    at: (u64, u64),
    lines: (&'a Line, &'a Line),
}

const SLOT_BITS: u32 = 0xFEFE;

#[inline(always)]
fn in_first(mask: u32) -> bool {
    mask & 0xFF != 0
}

impl Two<'_> {
    #[inline(always)]
    fn headers(&self) -> (u64, u64) {
        let header = |line: &Line| line.words()[0].load(Ordering::Relaxed);
        (header(self.lines.0), header(self.lines.1))
    }

    /// Returns the mask of slots with this tag.
    #[inline(always)]
    fn matches(&self, tag: u64) -> u32 {
        Line::match_tags(self.lines.0, self.lines.1, tag as u16) & SLOT_BITS
    }

    /// Returns the place of the lowest slot of a mask, and its word as it is now.
    #[inline(always)]
    fn lowest(&self, mask: u32) -> (u64, u64) {
        let slot = mask.trailing_zeros() as usize & 7;
        let bucket_at = select_unpredictable(in_first(mask), self.at.0, self.at.1);
        let line = select_unpredictable(in_first(mask), self.lines.0, self.lines.1);
        (bucket_at + slot as u64 * 8, line.words()[slot].load(Ordering::Acquire))
    }
}

/// One of a key's buckets, locked, with a slot in it.
pub(crate) struct One<'a> {
    index: &'a Index,
    hash: u64,
    found: Found,
}

impl One<'_> {
    /// Returns the slot as it was found.
    #[inline]
    pub(crate) fn found(&self) -> &Found {
        &self.found
    }

    /// Stores a new location in the slot.
    #[inline]
    pub(crate) fn replace(&self, location: u64) {
        let heat = self.found.heat().inherited();
        self.index.debug_assert_names(&self.found);
        self.index.change(self.found.at, word_of(self.hash, location, heat));
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.index.unlock_bucket(self.found.bucket_at() / BUCKET_BYTES);
    }
}

/// Both of a key's buckets, locked.
pub(crate) struct Pair<'a> {
    index: &'a Index,
    hash: u64,
    first: u64,
    second: u64,
}

impl Pair<'_> {
    /// Finds the slot whose tag matches and for whose location `look` returns a value.
    #[inline]
    pub(crate) fn find<T>(&self, mut look: impl FnMut(u64) -> Option<T>) -> Option<(Found, T)> {
        let buckets = self.index.two(self.first, self.second);
        let mut mask = buckets.matches(tag_of(self.hash));
        while mask != 0 {
            let (at, word) = buckets.lowest(mask);
            if let Some(seen) = look(location_of(word)) {
                let headers = buckets.headers();
                let header = if in_first(mask) { headers.0 } else { headers.1 };
                return Some((Found { at, header, word }, seen));
            }
            mask &= mask - 1;
        }
        None
    }

    /// Finds the slot that names a location.
    pub(crate) fn find_location(&self, location: u64) -> Option<Found> {
        self.find(|at| (at == location).then_some(())).map(|(found, ())| found)
    }

    /// Stores a new location in a slot that was found under this lock.
    pub(crate) fn replace(&self, found: &Found, location: u64, heat: Heat) {
        self.index.debug_assert_names(found);
        self.index.change(found.at, word_of(self.hash, location, heat));
    }

    /// Empties a slot that was found under this lock.
    pub(crate) fn remove(&self, found: &Found) {
        self.index.debug_assert_names(found);
        self.index.change(found.at, 0);
    }

    /// Puts a new location into a free slot; returns false if both buckets are full.
    ///
    /// The emptier of the two is taken: look-ups read both anyway, and at nine tenths of load far
    /// fewer inserts find both of them full than if the first were filled before the second.
    pub(crate) fn insert(&self, location: u64, heat: Heat) -> bool {
        let (first, second) =
            (self.index.used_slots(self.first), self.index.used_slots(self.second));
        debug_assert!(self.find_location(location).is_none(), "{location} is named twice");
        let emptier = if second < first { self.second } else { self.first };
        let Some(at) = self.index.free_slot(emptier) else { return false };
        self.index.change(at, word_of(self.hash, location, heat));
        true
    }

    /// Returns the least frequently read item of both buckets: the one to drop if displacement
    /// fails.
    pub(crate) fn coldest(&self) -> Option<Found> {
        let mut coldest: Option<Found> = None;
        for bucket in [self.first, self.second] {
            let bucket_at = bucket * BUCKET_BYTES;
            let line = self.index.table.load_line(bucket_at);
            for (slot, word) in line.iter().enumerate().skip(1).filter(|(_, word)| !is_free(**word))
            {
                let at = bucket_at + slot as u64 * 8;
                let found = Found { at, header: line[0], word: *word };
                if coldest.is_none_or(|c| found.heat().count() < c.heat().count()) {
                    coldest = Some(found);
                }
            }
        }
        coldest
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        self.index.unlock_both(self.first, self.second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_counts_reads_and_passes() {
        let read = |heat: Heat, times: usize| (0..times).fold(heat, |heat, _| heat.read(false));
        assert_eq!(Heat::NEW.read(true).count(), 0);
        assert!(Heat::NEW.read(true).is_read() && !Heat::NEW.is_read());
        assert_eq!((read(Heat::NEW, 3).count(), read(Heat::NEW, 300).count()), (3, 7));
        let hot = read(Heat::NEW, 300);
        assert_eq!((hot.settled().count(), hot.settled().passes()), (0, 0));
        assert_eq!((Heat::NEW.settled().count(), Heat::NEW.settled().passes()), (0, 1));
        let passes: Vec<(u8, u8)> = std::iter::successors(Some(hot), |heat| Some(heat.passed()))
            .map(|heat| (heat.count(), heat.passes()))
            .take(6)
            .collect();
        assert_eq!(passes, [(7, 0), (1, 0), (0, 0), (0, 1), (0, 2), (0, 3)]);
        assert!(read(Heat::BACK, 9).is_back() && !read(Heat::BACK, 9).settled().is_back());
        assert!(hot.passed().is_read() && !hot.inherited().is_read());
        assert_eq!(hot.inherited().count(), 7);
    }

    /// A slow reader stores its heat into slots that have been emptied meanwhile.
    #[test]
    fn heat_that_comes_late_takes_no_slot_and_names_no_record() {
        let index = Index::new(BUCKETS_MIN * BUCKET_BYTES, false).unwrap();
        let hash = 7;
        let all = 1..=2 * SLOTS as u64;
        let insert = |location| index.lock(hash).insert(location, Heat::NEW);
        assert!(all.clone().all(insert) && !insert(99), "both buckets are full");
        for location in all.clone() {
            let pair = index.lock(hash);
            let found = pair.find_location(location).unwrap();
            pair.remove(&found);
            index.set_heat(&found, Heat(77));
        }
        assert!(index.lock(hash).coldest().is_none());
        assert!(all.clone().all(insert) && !insert(99), "all slots can be used again");
        assert!(all.clone().all(|location| index.lock(hash).find_location(location).is_some()));
    }
}
