//! Places for new records: each shard's open segments, one for a group of time-to-live classes,
//! and, in DRAM, the holes that overwritten records have left.
//!
//! A shard is locked from the reservation of a place until its record is published or given up, so
//! an open segment never holds a record that another thread could take for dead.

use std::sync::atomic::Ordering;

use entresol_base::Seconds;
use entresol_media::{Access, AccountHandle};

use crate::record::{NewRecord, UNIT, mark};
use crate::segment::{CLASSES, NEVER, State, class_of};
use crate::shared::Shared;
use crate::values::Values;

/// Granularity in which the DRAM of records whose values lie elsewhere is counted.
pub(crate) const PAGE: u64 = 4096;
/// Number of hole sizes that are remembered, and of holes of one size.
const HOLE_SIZES: usize = 64;
const HOLES_OF_A_SIZE: usize = 8;
/// Maximum of evictions for one new segment before the store is refused.
const EVICTIONS_MAX: usize = 16;

/// A segment that a shard appends to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) id: u32,
    sequence: u64,
    record_used: u64,
    value_used: u64,
}

/// A place for one record, not yet published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) sequence: u64,
    /// Offset in the arena.
    pub(crate) at: u64,
    /// Offset in the segment of a value that lies elsewhere.
    pub(crate) value_offset: u32,
    record_bytes: u64,
    value_bytes: u64,
    slot: Option<usize>,
}

impl Open {
    /// Returns the place of the next record, if the segment has room for it.
    pub(crate) fn next_place(
        &self,
        cache: &Shared,
        record_bytes: u64,
        value_bytes: u64,
    ) -> Option<Place> {
        let fits = cache.fits(self.record_used + record_bytes, self.value_used + value_bytes);
        fits.then(|| Place {
            segment: self.id,
            sequence: self.sequence,
            at: cache.base_of(self.id) + self.record_used,
            value_offset: self.value_used as u32,
            record_bytes,
            value_bytes,
            slot: None,
        })
    }

    /// Makes a published record's place permanent.
    pub(crate) fn advance(&mut self, cache: &Shared, place: &Place) {
        let segment = cache.segments.get(self.id);
        debug_assert!(
            (place.segment, place.sequence) == (self.id, self.sequence)
                && place.at == cache.base_of(self.id) + self.record_used
                && u64::from(place.value_offset) == self.value_used,
            "{place:?} is not the end of {self:?}"
        );
        segment.add_live(place.record_bytes + place.value_bytes);
        self.record_used += place.record_bytes;
        self.value_used += place.value_bytes;
        segment.used.store(self.record_used as u32, Ordering::Release);
        segment.value_used.store(self.value_used as u32, Ordering::Release);
    }

    /// Returns the bytes of records in it.
    pub(crate) fn record_used(&self) -> u64 {
        self.record_used
    }
}

impl Place {
    /// Returns true if an earlier record left this place.
    pub(crate) fn is_hole(&self) -> bool {
        self.slot.is_none()
    }

    /// Returns the location by which a slot names the place.
    pub(crate) fn location(&self) -> u64 {
        self.at / UNIT
    }
}

/// Reasons why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    Busy,
    NoMemory,
}

/// Room of a record that was overwritten or deleted, for another of equal size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hole {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) segment: u32,
    pub(crate) sequence: u64,
}

/// Holes by size. The table is small and forgets holes that do not fit, since merging recovers
/// their room.
#[derive(Debug, Default)]
struct Holes {
    by_size: Vec<Vec<Hole>>,
}

impl Holes {
    fn row(bytes: u64) -> usize {
        (bytes / UNIT) as usize % HOLE_SIZES
    }

    fn push(&mut self, hole: Hole) {
        if self.by_size.is_empty() {
            self.by_size = vec![Vec::new(); HOLE_SIZES];
        }
        let row = &mut self.by_size[Holes::row(hole.bytes)];
        if row.len() == HOLES_OF_A_SIZE {
            row.swap_remove(0);
        }
        row.push(hole);
    }

    fn pop(&mut self, bytes: u64) -> Option<Hole> {
        let row = self.by_size.get_mut(Holes::row(bytes))?;
        let at = row.iter().rposition(|hole| hole.bytes == bytes)?;
        Some(row.swap_remove(at))
    }
}

/// Open segments and holes that one thread, or a group of threads, writes to.
pub(crate) struct Shard {
    number: usize,
    open: Vec<Option<Open>>,
    holes: Holes,
    pub(crate) random: fastrand::Rng,
    /// Account charged for the shard's writes and for the evictions that it has to make.
    pub(crate) account: AccountHandle,
}

impl Shard {
    pub(crate) fn new(number: usize, slots: usize, seed: u64, account: AccountHandle) -> Self {
        Shard {
            number,
            open: vec![None; slots],
            holes: Holes::default(),
            random: fastrand::Rng::with_seed(seed ^ number as u64),
            account,
        }
    }

    /// Returns the open segment for a class. With fewer segments than classes neighbours share one,
    /// but items that never expire stay apart as long as there are two.
    fn slot_of(&self, class: u8) -> usize {
        match (usize::from(class), self.open.len()) {
            (0, _) | (_, 1) => 0,
            (class, slots) => 1 + (class - 1) * (slots - 1) / (CLASSES - 1),
        }
    }

    /// Finds a place for a record; the caller must commit it or give it up.
    pub(crate) fn reserve(
        &mut self,
        cache: &Shared,
        record: &NewRecord<'_>,
        now: Seconds,
    ) -> Result<Place, NoPlace> {
        let elsewhere = cache.values.is_elsewhere();
        let record_bytes = record.record_bytes(elsewhere);
        let value_bytes = if elsewhere { record.value_len as u64 } else { 0 };
        let class = class_of(record.expiry.map(|expiry| expiry.0.saturating_sub(now.0)));
        if class == 0
            && !elsewhere
            && let Some(place) = self.reserve_hole(cache, record_bytes)
        {
            return Ok(place);
        }
        let slot = self.slot_of(class);
        let open = self.open_with_room(cache, slot, class, record_bytes, value_bytes, now)?;
        cache.segments.get(open.id).extend_deadline(record.expiry);
        let place = open.next_place(cache, record_bytes, value_bytes).ok_or(NoPlace::NoMemory)?;
        Ok(Place { slot: Some(slot), ..place })
    }

    fn reserve_hole(&mut self, cache: &Shared, bytes: u64) -> Option<Place> {
        let hole = self.holes.pop(bytes)?;
        let segment = cache.segments.get(hole.segment);
        let writing = &cache.writing[self.number];
        writing.begin(hole.segment);
        let usable = segment.takes_writes(hole.sequence)
            && hole.sequence >= cache.flushed_below()
            && segment.deadline.load(Ordering::Relaxed) == NEVER;
        if !usable {
            writing.end();
            return None;
        }
        // Counted before it is published: a locked instruction waits for nothing here, but behind
        // the look at the old record it would wait for that.
        segment.add_live(bytes);
        Some(Place {
            segment: hole.segment,
            sequence: hole.sequence,
            at: hole.at,
            value_offset: 0,
            record_bytes: bytes,
            value_bytes: 0,
            slot: None,
        })
    }

    fn open_with_room(
        &mut self,
        cache: &Shared,
        slot: usize,
        class: u8,
        record_bytes: u64,
        value_bytes: u64,
        now: Seconds,
    ) -> Result<Open, NoPlace> {
        if let Some(open) = self.open[slot] {
            let fits = cache.fits(open.record_used + record_bytes, open.value_used + value_bytes);
            if fits && open.sequence >= cache.flushed_below() {
                cache.take_pages(self, open.record_used, record_bytes, now)?;
                return Ok(open);
            }
            self.open[slot] = None;
            cache.seal(open.id);
        }
        if !cache.fits(record_bytes, value_bytes) {
            return Err(NoPlace::NoMemory);
        }
        let open = cache.open_segment(self, class, now)?;
        self.open[slot] = Some(open);
        cache.take_pages(self, 0, record_bytes, now)?;
        Ok(open)
    }

    /// Makes a published record's place permanent.
    pub(crate) fn commit(&mut self, cache: &Shared, place: &Place) {
        debug_assert!(
            place.slot.is_none_or(|slot| self.open[slot].is_some()),
            "the segment of {place:?} was sealed before its record was published"
        );
        match place.slot.and_then(|slot| self.open[slot].as_mut()) {
            Some(open) => open.advance(cache, place),
            None => cache.writing[self.number].end(),
        }
    }

    /// Gives up the place of an unpublished record.
    pub(crate) fn give_up(&mut self, cache: &Shared, place: &Place) {
        if place.slot.is_none() {
            let head = cache.head(place.location());
            head.set_marks(&cache.arena, mark::DEAD, 0);
            cache.segments.get(place.segment).remove_live(place.record_bytes);
            cache.writing[self.number].end();
            self.holes.push(Hole {
                at: place.at,
                bytes: place.record_bytes,
                segment: place.segment,
                sequence: place.sequence,
            });
        } else if cache.values.is_elsewhere() {
            // The next record takes them again.
            let used = place.at - cache.base_of(place.segment);
            cache.dram.give_back(pages_between(used, place.record_bytes) * PAGE);
        }
    }

    /// Remembers the room that a dead record has left.
    pub(crate) fn remember(&mut self, hole: Hole) {
        self.holes.push(hole);
    }

    /// Seals every open segment.
    pub(crate) fn seal_all(&mut self, cache: &Shared) {
        for open in self.open.iter_mut().filter_map(Option::take) {
            cache.seal(open.id);
        }
    }

    /// Seals the open segments that a flush has emptied.
    pub(crate) fn seal_flushed(&mut self, cache: &Shared) {
        let below = cache.flushed_below();
        for open in &mut self.open {
            if open.is_some_and(|open| open.sequence < below)
                && let Some(open) = open.take()
            {
                cache.seal(open.id);
            }
        }
    }

    /// Seals the open segments whose items have all expired, so that they can be freed.
    pub(crate) fn seal_expired(&mut self, cache: &Shared, now: Seconds) {
        for open in &mut self.open {
            let expired = open.is_some_and(|open| {
                let segment = cache.segments.get(open.id);
                open.record_used > 0 && segment.is_expired(now)
            });
            if expired && let Some(open) = open.take() {
                cache.seal(open.id);
            }
        }
    }
}

/// Pages that more bytes of records need behind those that are used.
pub(crate) fn pages_between(used: u64, more: u64) -> u64 {
    (used + more).div_ceil(PAGE) - used.div_ceil(PAGE)
}

impl Shared {
    /// Returns true if a segment can hold this many bytes of records and of values elsewhere.
    fn fits(&self, record_bytes: u64, value_bytes: u64) -> bool {
        match &self.values {
            Values::Inline => record_bytes <= self.segment_bytes,
            Values::Pmem(_) | Values::File(_) => {
                // A sealed segment's records and closing block lie behind its values.
                let closing = if self.restart.is_some() { PAGE + record_bytes } else { 0 };
                record_bytes <= self.segment_bytes && value_bytes + closing <= self.segment_bytes
            }
        }
    }

    /// Takes the pages of DRAM for more bytes of records, if values lie elsewhere.
    fn take_pages(
        &self,
        shard: &mut Shard,
        used: u64,
        more: u64,
        now: Seconds,
    ) -> Result<(), NoPlace> {
        if !self.values.is_elsewhere() {
            return Ok(());
        }
        let pages = pages_between(used, more);
        if pages == 0 {
            return Ok(());
        }
        for _ in 0..EVICTIONS_MAX {
            if self.dram.take(pages * PAGE) {
                return Ok(());
            }
            if !self.evict_one(shard, now) {
                break;
            }
        }
        Err(NoPlace::NoMemory)
    }

    /// Opens a segment, making room if the quota is used up.
    pub(crate) fn open_segment(
        &self,
        shard: &mut Shard,
        class: u8,
        now: Seconds,
    ) -> Result<Open, NoPlace> {
        for _ in 0..EVICTIONS_MAX {
            // One segment is left over as the target of merges.
            if self.segment_quota().left() >= 2 * self.segment_bytes
                && let Some(open) = self.try_open_segment(class)?
            {
                return Ok(open);
            }
            self.pressed.store(true, Ordering::Relaxed);
            if !self.evict_one(shard, now) {
                break;
            }
        }
        // Nothing can be evicted, so nothing can be merged either.
        if let Some(open) = self.try_open_segment(class)? {
            return Ok(open);
        }
        // Segments that are being written to a block file will be sealed soon, and can then be
        // evicted.
        Err(if self.values.is_writing() { NoPlace::Busy } else { NoPlace::NoMemory })
    }

    /// Opens a segment if the quota has one left.
    pub(crate) fn try_open_segment(&self, class: u8) -> Result<Option<Open>, NoPlace> {
        let quota = self.segment_quota();
        if !quota.take(self.segment_bytes) {
            return Ok(None);
        }
        let Some(id) = self.queues.lock().take_free() else {
            quota.give_back(self.segment_bytes);
            return Ok(None);
        };
        let segment = self.segments.get(id);
        if let Values::File(file) = &self.values {
            let Some(buffer) = file.take_buffer() else {
                self.queues.lock().give_back(id);
                quota.give_back(self.segment_bytes);
                return Err(NoPlace::Busy);
            };
            let before = segment.buffer.swap(buffer + 1, Ordering::AcqRel);
            assert!(before == 0, "segment {id} was free, but had write buffer {}", before - 1);
        }
        if let Some(restart) = &self.restart {
            restart.forget_segment(id);
        }
        let sequence = self.next_sequence.fetch_add(1, Ordering::SeqCst);
        segment.start(sequence, class);
        segment.go_on(&[State::Free], State::Open);
        Ok(Some(Open { id, sequence, record_used: 0, value_used: 0 }))
    }

    /// Writes a value, in one or two parts, to its place.
    pub(crate) fn write_value(
        &self,
        place: &Place,
        inline_at: u64,
        parts: [&[u8]; 2],
        account: &mut AccountHandle,
    ) {
        let [first, second] = parts;
        match &self.values {
            Values::Inline => {
                self.arena.write(inline_at, first);
                if !second.is_empty() {
                    self.arena.write(inline_at + first.len() as u64, second);
                }
                account.charge(Access::Write, place.record_bytes as usize);
            }
            Values::Pmem(pmem) => {
                let at = self.medium_base_of(place.segment) + u64::from(place.value_offset);
                pmem.write(at, first);
                if !second.is_empty() {
                    pmem.write(at + first.len() as u64, second);
                }
                pmem.drain();
                account.charge_units(Access::Write, at, first.len() + second.len());
            }
            Values::File(file) => {
                let segment = self.segments.get(place.segment);
                let offset = u64::from(place.value_offset);
                file.write_buffered(segment, offset, first);
                if !second.is_empty() {
                    file.write_buffered(segment, offset + first.len() as u64, second);
                }
                // The segment will be written once it is full. Its writers pay as they fill it, so
                // that a limit holds up these writers and not, much later, another one.
                account.charge_part(Access::Write, first.len() + second.len(), file.piece());
            }
        }
    }
}
