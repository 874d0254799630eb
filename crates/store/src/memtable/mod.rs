//! Memtables: generations of segments, and the indexes that find their records.
//!
//! A generation has a [`table`] from keys to their newest records and, for cursors, a tree for each
//! `Kvs` ([`ordered`]). It only grows, and is dropped as a whole once it is flushed. On persistent
//! memory the table has an [`image`], for recovery after a crash.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, OnceLock};

use entresol_base::sync::RwLock;
use entresol_index::{Direction, Flow};

use crate::StoreError;
use crate::bytes::u32_at;
use crate::cache::budget;
use crate::cache::budget::{GenerationLimits, Room, RoomShare};
use crate::cache::row::NameHasher;
use crate::memtable::range_deletes::Prefixes;
use crate::run::PREFIXES_GONE_BYTES_MAX;
use crate::scheduler::Scheduler;
use crate::segment::record::{Draft, HEADER_BYTES, Header, Kind};
use crate::segment::{FIRST_RECORD, Segment};
use crate::types::{Expiry, KvsId, RecordPlace, Sequence};
use ordered::Ordered;
pub(crate) use ordered::Sorted;
use table::Table;

mod chunk;
pub(crate) mod image;
mod image_check;
pub(crate) mod key;
mod merge;
mod ordered;
pub(crate) mod own;
mod pmem;
pub(crate) mod range_deletes;
pub(crate) mod sorted;
mod table;

/// Most segments of a generation.
pub(crate) const SEGMENTS_MAX: usize = 1 << 12;

/// Bytes of address space for an index, for each byte of the generation's segments. A record has at
/// least 24 bytes. A slot and its share of the leaf, the guide and the records of lows take less
/// than four times that.
const INDEX_RESERVE: u64 = 4;
const INDEX_RESERVE_MIN: u64 = 64 << 20;
/// Fewest bytes of address space for a table: a group of writes of any size must fit.
const TABLE_RESERVE_MIN: u64 = 1 << 30;
/// Bytes of records for which a table is sized if it holds only those behind a memtable image's
/// watermark.
const BYTES_BEHIND_AN_IMAGE: u64 = 32 << 20;
/// Bytes of range deletes at which a generation is closed. They fit in one run, unless a large
/// group comes on top.
const PREFIXES_BYTES_MAX: u64 = PREFIXES_GONE_BYTES_MAX as u64 / 2;
/// Number of words with a bit for each number that a `Kvs` can have.
const KVS_WORDS: usize = (1 << 16) / 64;

/// Segments of a generation, by their index in it.
#[derive(Debug)]
pub(crate) struct Segments(Box<[OnceLock<Arc<Segment>>]>);

/// A position between two records, where one begins or will begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    segment: usize,
    offset: u64,
    /// Number of the record that begins there.
    next: Sequence,
}

/// The memtables of all `Kvs` that are closed and flushed together.
#[derive(Debug)]
pub(crate) struct Generation {
    segments: Arc<Segments>,
    hasher: NameHasher,
    /// Created when the first key is entered.
    table: OnceLock<Table>,
    /// Memtable image that is written for recovery after a crash.
    image: OnceLock<image::NewImage>,
    /// Memtable image that a crash has left, which lookups ask if the table has no record.
    left: OnceLock<image::RecoveredImage>,
    /// True once the records that it leads to were verified.
    is_verified: AtomicBool,
    ordered: Ordered,
    prefixes: RwLock<BTreeMap<KvsId, Arc<Prefixes>>>,
    has_prefixes: AtomicBool,
    /// Number of the range deletes of all `Kvs`, and their bytes.
    prefixes_count: AtomicU64,
    prefixes_bytes: AtomicU64,
    /// A bit for each `Kvs` that has records.
    kvs: Box<[AtomicU64]>,
    first: Sequence,
    bytes: u64,
    /// Share of the memory budget that the indexes take.
    taken: OnceLock<RoomShare>,
}

/// Version that a lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundRecord {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
    /// Location of the record, or `None` for a tombstone.
    pub(crate) value: Option<RecordPlace>,
}

impl Position {
    fn first(next: Sequence) -> Position {
        Position { segment: 0, offset: FIRST_RECORD, next }
    }
}

impl Segments {
    fn new() -> Segments {
        Segments((0..SEGMENTS_MAX).map(|_| OnceLock::new()).collect())
    }

    /// Iterates over the segments.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.0.iter().map_while(OnceLock::get)
    }

    /// Returns true if there is the segment that a word of an index leads to.
    fn has(&self, word: u64) -> bool {
        self.0.get((word >> 32) as usize).is_some_and(|segment| segment.get().is_some())
    }

    /// Returns the segment and the offset in it that a word of an index leads to.
    #[inline]
    fn at(&self, word: u64) -> Result<(&Segment, u64), StoreError> {
        let segment = self.0.get((word >> 32) as usize).and_then(OnceLock::get);
        match segment {
            Some(segment) => Ok((segment, word & u64::from(u32::MAX))),
            None => Err(StoreError::NoSegment { number: word >> 32 }),
        }
    }

    #[inline]
    fn header(&self, word: u64) -> Result<(&Segment, u64, Header), StoreError> {
        let (segment, offset) = self.at(word)?;
        Ok((segment, offset, segment.header(offset)?))
    }

    /// Lets the processor fetch the record that a word leads to.
    #[inline]
    fn prefetch(&self, word: u64) {
        if let Ok((segment, offset)) = self.at(word) {
            segment.prefetch(offset);
        }
    }

    #[inline]
    fn is_of(&self, place: u64, kvs: KvsId, key: &[u8]) -> Result<bool, StoreError> {
        let (segment, offset, header) = self.header(place)?;
        Ok(header.kvs == kvs && segment.has_key(offset, &header, key)?)
    }

    /// Verifies the checksum of the record that a word leads to.
    #[cold]
    fn verify(&self, word: u64) -> Result<(), StoreError> {
        let (segment, offset, header) = self.header(word)?;
        let place = RecordPlace { segment: segment.number(), offset, bytes: header.bytes() as u32 };
        segment.record(place, &mut Vec::new()).map(drop)
    }

    /// Returns the next record's word, segment and header, and moves the position behind it.
    /// Returns `None` if its number is above `last`, which is published.
    fn next(
        &self,
        at: &mut Position,
        last: Sequence,
    ) -> Result<Option<(u64, &Segment, Header)>, StoreError> {
        while at.next <= last {
            let Some(segment) = self.0.get(at.segment).and_then(OnceLock::get) else { break };
            let header = segment.header(at.offset)?;
            if header.kind == Kind::Seal {
                (at.segment, at.offset) = (at.segment + 1, FIRST_RECORD);
                continue;
            }
            if header.sequence != at.next {
                return Err(segment.damaged(at.offset, "the log's numbers do not go on here"));
            }
            let word = (at.segment as u64) << 32 | at.offset;
            at.offset += header.bytes();
            at.next = Sequence(at.next.0 + 1);
            return Ok(Some((word, segment, header)));
        }
        Ok(None)
    }
}

impl Generation {
    /// Creates a generation without segments, for about so many bytes of them. Its first write will
    /// be `first`.
    pub(crate) fn new(bytes: u64, first: Sequence) -> Generation {
        let segments = Arc::new(Segments::new());
        let reserve_bytes = (bytes * INDEX_RESERVE).max(INDEX_RESERVE_MIN);
        Generation {
            hasher: NameHasher::new(),
            table: OnceLock::new(),
            image: OnceLock::new(),
            left: OnceLock::new(),
            is_verified: AtomicBool::new(false),
            ordered: Ordered::new(segments.clone(), first, reserve_bytes),
            segments,
            prefixes: RwLock::default(),
            has_prefixes: AtomicBool::new(false),
            prefixes_count: AtomicU64::new(0),
            prefixes_bytes: AtomicU64::new(0),
            kvs: (0..KVS_WORDS).map(|_| AtomicU64::new(0)).collect(),
            first,
            bytes,
            taken: OnceLock::new(),
        }
    }

    /// Creates the generation that follows this one.
    pub(crate) fn next(&self, bytes: u64, first: Sequence) -> Generation {
        let next = Generation::new(bytes, first);
        next.ordered.follow(&self.ordered);
        next
    }

    /// Returns the segments.
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Returns the bytes of the segments.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Returns a segment by its index.
    ///
    /// # Errors
    /// Fails if there is no such segment.
    #[inline]
    pub(crate) fn segment(&self, place: u32) -> Result<&Segment, StoreError> {
        Ok(self.segments.at(u64::from(place) << 32)?.0)
    }

    /// Adds a segment as the last one. Returns its index, or `None` if there are too many. The
    /// caller makes sure that one thread at a time does this.
    pub(crate) fn add_segment(&self, segment: Arc<Segment>) -> Option<u32> {
        let place = self.segments.0.iter().position(|slot| slot.get().is_none())?;
        let before = place.checked_sub(1).and_then(|before| self.segments.0[before].get());
        assert!(
            before.is_none_or(|before| before.number() < segment.number()),
            "a memtable gets segment {} behind {}",
            segment.number().0,
            before.map_or(0, |before| before.number().0),
        );
        self.segments.0[place].set(segment).ok().map(|()| place as u32)
    }

    /// Returns the `Kvs` that have records here.
    pub(crate) fn kvs(&self) -> Vec<KvsId> {
        let words = self.kvs.iter().map(|word| word.load(Acquire)).enumerate();
        let bits = words.flat_map(|(number, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| KvsId(number as u32 * 64 + bit))
        });
        bits.collect()
    }

    /// Returns the bytes of the indexes.
    pub(crate) fn index_bytes(&self) -> u64 {
        let table = self.table.get().map_or(0, Table::bytes);
        table + self.ordered.tree_bytes() + self.ordered.chunk_bytes()
    }

    /// Sets the scheduler of the background thread that sorts the records, here and in the
    /// generations that follow.
    pub(crate) fn sorted_by(&self, scheduler: &Arc<Scheduler>) {
        self.ordered.sorted_by(scheduler);
    }

    /// Sorts some of the records up to `last`, which is published: all of them in the end if
    /// `is_closed`, and otherwise all but a few. With `merges`, which takes memory for a moment,
    /// cursors over a memtable that was walked become faster; that ends if `goes_on` returns false,
    /// which is called now and then.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn sort(
        &self,
        (last, is_closed): (Sequence, bool),
        merges: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Sorted, StoreError> {
        self.ordered.sort((last, is_closed), merges, goes_on)
    }

    /// Returns the number of records that walks have sorted or entered themselves, which a
    /// background thread and writers should do.
    #[cfg(test)]
    pub(crate) fn by_walks(&self) -> u64 {
        self.ordered.by_walks()
    }

    /// Charges the indexes to the memory budget.
    pub(crate) fn take_room(&self, room: &Arc<Room>) {
        self.taken.get_or_init(|| RoomShare::of_memtables(room)).set(self.index_bytes());
    }

    /// Returns the bytes that sorting the records up to `last` takes which are not sorted yet.
    pub(crate) fn sorting_bytes(&self, last: Sequence) -> u64 {
        let first = Sequence(self.ordered.last_sorted().0 + 1);
        budget::sorting_bytes(first, last)
    }

    /// Returns true if the generation should be closed, with `last` as its last write.
    pub(crate) fn has_reached(&self, limits: &GenerationLimits, last: Sequence) -> bool {
        limits.are_reached(self.index_bytes() + self.sorting_bytes(last))
            || self.prefixes_count.load(Relaxed) >= limits.prefixes
            || self.prefixes_bytes.load(Relaxed) >= PREFIXES_BYTES_MAX
    }

    fn table(&self) -> Result<&Table, StoreError> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let reserve = (self.bytes * INDEX_RESERVE).max(TABLE_RESERVE_MIN);
        let bytes = match self.left.get() {
            // The image has most records, and each line that is touched costs a page.
            Some(_) => self.bytes.min(BYTES_BEHIND_AN_IMAGE),
            None => self.bytes,
        };
        let table = Table::new(bytes, reserve)?;
        // If two threads race, both use the table of the first.
        Ok(self.table.get_or_init(|| table))
    }

    /// Returns the hash of a draft's key, and prefetches the line that the draft is entered in
    /// soon.
    #[inline]
    pub(crate) fn prepare(&self, draft: &Draft<'_>) -> u64 {
        let hash = self.hasher.hash(draft.kvs, draft.key);
        if let Some(table) = self.table.get() {
            table.prefetch(hash);
        }
        hash
    }

    /// Enters the record at `offset` of the segment with the index `segment`, by the hash of its
    /// key. The caller holds the lock of the key, or is the only thread.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub(crate) fn enter(
        &self,
        (draft, hash): (&Draft<'_>, u64),
        sequence: Sequence,
        segment: u32,
        offset: u64,
    ) -> Result<(), StoreError> {
        debug_assert!(
            sequence >= self.first,
            "write {} goes to the memtable that begins with {}",
            sequence.0,
            self.first.0,
        );
        self.note(draft.kvs);
        if draft.kind == Kind::RangeDelete {
            self.add_prefix(draft.kvs, draft.key, sequence);
            return Ok(());
        }
        let place = u64::from(segment) << 32 | offset;
        let is_its = |place| self.segments.is_of(place, draft.kvs, draft.key);
        self.table()?.enter(hash, place, is_its)
    }

    fn note(&self, kvs: KvsId) {
        let (number, bit) = (kvs.0 as usize / 64, 1 << (kvs.0 % 64));
        if let Some(word) = self.kvs.get(number)
            && word.load(Relaxed) & bit == 0
        {
            word.fetch_or(bit, Release);
        }
    }

    /// Lets a writer wake the thread that sorts, or enter records into the trees, once its own are
    /// published.
    ///
    /// # Errors
    /// Fails if a record is damaged, or if there is no memory.
    #[inline]
    pub(crate) fn written(&self, last: Sequence) -> Result<(), StoreError> {
        self.ordered.written(last)
    }

    fn add_prefix(&self, kvs: KvsId, prefix: &[u8], sequence: Sequence) {
        let prefixes = self.prefixes.write().entry(kvs).or_default().clone();
        self.has_prefixes.store(true, Release);
        prefixes.add(prefix.to_vec(), sequence);
        self.prefixes_count.fetch_add(1, Relaxed);
        self.prefixes_bytes.fetch_add(prefix.len() as u64, Relaxed);
    }

    /// Returns the range deletes of a `Kvs`.
    pub(crate) fn prefixes(&self, kvs: KvsId) -> Option<Arc<Prefixes>> {
        if !self.has_prefixes.load(Acquire) {
            return None;
        }
        self.prefixes.read().get(&kvs).cloned()
    }

    /// Returns the newest version of a key up to the sequence number `at`.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn find(
        &self,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
    ) -> Result<Option<FoundRecord>, StoreError> {
        let Some(word) = self.newest(kvs, key)? else { return Ok(None) };
        let newest = self.found(word)?.0;
        if newest.sequence <= at {
            return Ok(Some(newest));
        }
        Ok(self.find_older(kvs, key, at)?.map(|(found, _)| found))
    }

    /// Returns the place of a key's newest record.
    #[inline]
    fn newest(&self, kvs: KvsId, key: &[u8]) -> Result<Option<u64>, StoreError> {
        if let Some(table) = self.table.get() {
            let hash = self.hasher.hash(kvs, key);
            let found = table.find(hash, |place| self.segments.is_of(place, kvs, key))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        match self.left.get() {
            Some(left) => left.find((kvs, key), &self.segments),
            None => Ok(None),
        }
    }

    /// Returns the newest version of a key up to `at`, and the word of its record. It is used where
    /// the table leads to a newer version.
    #[cold]
    pub(crate) fn find_older(
        &self,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
    ) -> Result<Option<(FoundRecord, u64)>, StoreError> {
        let (from, mut first) = (Bound::Included((key, at)), None);
        self.words(kvs, at, from, Direction::Forward, &mut |word| {
            first = Some(word);
            Flow::Stop
        })?;
        let Some(word) = first else { return Ok(None) };
        let mut found_key = Vec::new();
        let found = self.record(word, &mut found_key)?;
        Ok((found_key == key).then_some((found, word)))
    }

    /// Lets the processor fetch the record that a word leads to.
    #[inline]
    pub(crate) fn prefetch(&self, word: u64) {
        self.segments.prefetch(word);
    }

    /// Returns the version that a word leads to, and puts its key in `key`.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub(crate) fn record(&self, word: u64, key: &mut Vec<u8>) -> Result<FoundRecord, StoreError> {
        let (found, segment, header) = self.found(word)?;
        key.clear();
        let at = u64::from(word as u32) + HEADER_BYTES as u64;
        segment.read(at, header.key_bytes as usize, key)?;
        Ok(found)
    }

    /// Returns the version that a word leads to, and the segment and header of its record.
    fn found(&self, word: u64) -> Result<(FoundRecord, &Segment, Header), StoreError> {
        let (segment, _, header) = self.segments.header(word)?;
        Ok((self.found_with(word, &header)?, segment, header))
    }

    /// Returns the version that a word leads to, whose record has this header.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    #[inline]
    pub(crate) fn found_with(&self, word: u64, header: &Header) -> Result<FoundRecord, StoreError> {
        let (segment, offset) = self.segments.at(word)?;
        let mut expiry = Expiry::NEVER;
        if header.kind == Kind::PutUntil {
            let mut bytes = Vec::with_capacity(4);
            let at = offset + HEADER_BYTES as u64 + u64::from(header.key_bytes);
            segment.read(at, 4, &mut bytes)?;
            expiry = Expiry(u32_at(&bytes, 0).unwrap_or_default());
        }
        let bytes = header.bytes() as u32;
        let place = RecordPlace { segment: segment.number(), offset, bytes };
        let value = (header.kind != Kind::Gone).then_some(place);
        Ok(FoundRecord { sequence: header.sequence, expiry, value })
    }

    /// Passes the words of versions to `visit`, from (key, sequence number) on or downwards from
    /// before it, until `visit` stops the walk. It passes all versions that were published at `at`,
    /// and maybe later ones.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn words(
        &self,
        kvs: KvsId,
        at: Sequence,
        from: Bound<(&[u8], Sequence)>,
        direction: Direction,
        visit: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<(), StoreError> {
        // A record with a damaged key would be passed in another place, and show an older version.
        if self.left.get().is_some() && !self.is_verified.load(Relaxed) {
            self.check_unread()?;
            self.is_verified.store(true, Relaxed);
        }
        self.ordered.walk((kvs, at), from, direction, visit)
    }
}

#[cfg(test)]
mod order_tests;
