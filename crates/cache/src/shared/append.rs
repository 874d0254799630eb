//! Places for new records: each shard's open segments, in each log one for a group of time-to-live
//! classes, and, in DRAM, the holes that overwritten records have left.
//!
//! A shard is locked from the reservation of a place until its record is published or given up, so
//! an open segment never holds a record that another thread could take for dead. The place of a
//! value that is still to arrive is reserved without the lock, and its record is dead meanwhile.

use std::sync::atomic::Ordering;

use entresol_base::Seconds;
use entresol_media::AccountHandle;

use crate::index::Heat;
use crate::record::{NewRecord, UNIT, mark, write_skipped};
use crate::segment::{CLASSES, Kind, Log, NEVER, class_of};
use crate::shared::budget::PAGE;
use crate::shared::evict::How;
use crate::shared::items::Items;
use crate::shared::space::Space;
use crate::values::Values;

/// Number of hole sizes that are remembered, and of holes of one size.
const HOLE_SIZES: usize = 64;
const HOLES_OF_A_SIZE: usize = 8;
/// Bytes that are left out before a value that would lie badly.
const SKIPPED_BYTES: u64 = 32;
/// A segment with less than one part in this many left is sealed when a record does not fit.
const ALMOST_FULL: u64 = 16;
/// Maximum of evictions for pages of DRAM, or for a segment beyond those that keep every item that
/// was read, before the store is refused.
pub(crate) const EVICTIONS_MAX: usize = 16;

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
    pub(crate) record_bytes: u64,
    value_bytes: u64,
    /// Position of its open segment; none for a hole.
    pub(crate) slot: Option<usize>,
    /// Heat of the item, if it is a new one.
    pub(crate) heat: Heat,
}

/// Returns true if some processors would receive a value at a quarter of their speed, since its
/// bytes lie up to 31 bytes further in their pages than where the kernel has them: behind the bytes
/// of its request that it follows, the first of which begins a page if nothing else is under way.
fn lies_badly(value_at: u64, follows: usize) -> bool {
    let ahead = value_at.wrapping_sub(follows as u64) % PAGE;
    (1..SKIPPED_BYTES).contains(&ahead)
}

/// A place for a record that comes later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceAhead {
    pub(crate) place: Place,
    /// Offset of the value: in the arena, or in its segment if values lie elsewhere.
    pub(crate) value_at: u64,
}

impl Open {
    /// Returns a segment that was just opened.
    pub(crate) fn new(id: u32, sequence: u64) -> Self {
        Open { id, sequence, record_used: 0, value_used: 0 }
    }

    /// Returns the place of the next record, if the segment has room for it.
    pub(crate) fn next_place(
        &self,
        space: &Space,
        record_bytes: u64,
        value_bytes: u64,
    ) -> Option<Place> {
        let fits = space.fits(self.record_used + record_bytes, self.value_used + value_bytes);
        fits.then(|| Place {
            segment: self.id,
            sequence: self.sequence,
            at: space.records.base_of(self.id) + self.record_used,
            value_offset: self.value_used as u32,
            record_bytes,
            value_bytes,
            slot: None,
            heat: Heat::NEW,
        })
    }

    /// Makes a published record's place permanent.
    pub(crate) fn advance(&mut self, space: &Space, place: &Place) {
        let segment = space.records.segments.get(self.id);
        debug_assert!(
            (place.segment, place.sequence) == (self.id, self.sequence)
                && place.at == space.records.base_of(self.id) + self.record_used
                && u64::from(place.value_offset) == self.value_used,
            "{place:?} is not the end of {self:?}"
        );
        segment.add_live(place.bytes());
        self.record_used += place.record_bytes;
        self.value_used += place.value_bytes;
        segment.used.store(self.record_used as u32, Ordering::Release);
        segment.value_used.store(self.value_used as u32, Ordering::Release);
    }

    /// Leaves out some bytes, and returns the place of the next record behind them, if the segment
    /// has room for it.
    fn skip(&mut self, space: &Space, (record_bytes, value_bytes): (u64, u64)) -> Option<Place> {
        let records = &space.records;
        let (mut open, at) = (*self, records.base_of(self.id) + self.record_used);
        if records.values.is_elsewhere() {
            open.value_used += SKIPPED_BYTES;
        } else {
            open.record_used += SKIPPED_BYTES;
        }
        let place = open.next_place(space, record_bytes, value_bytes)?;
        *self = open;
        if !records.values.is_elsewhere() {
            write_skipped(&records.arena, at, SKIPPED_BYTES);
        }
        Some(place)
    }

    /// Returns the bytes of records and of values elsewhere in it.
    fn used(&self) -> u64 {
        self.record_used + self.value_used
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

    /// Returns the bytes of the record and of its value.
    pub(crate) fn bytes(&self) -> u64 {
        self.record_bytes + self.value_bytes
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
    /// The record fits into no segment.
    TooLarge,
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
    /// Open segments: first those of the small log, then as many of the main one. Each place may
    /// have two, so that a record which does not fit into one need not seal it.
    pub(crate) open: Vec<Option<Open>>,
    holes: Holes,
    pub(crate) random: fastrand::Rng,
    /// Hash of the key of an item that an eviction must not let go, since a store depends on it.
    pub(crate) keep: Option<u64>,
    /// Account charged for the shard's writes and for the evictions that it has to make.
    pub(crate) account: AccountHandle,
}

impl Shard {
    pub(crate) fn new(number: usize, slots: usize, seed: u64, account: AccountHandle) -> Self {
        Shard {
            number,
            open: vec![None; 2 * 2 * slots],
            holes: Holes::default(),
            random: fastrand::Rng::with_seed(seed ^ number as u64),
            keep: None,
            account,
        }
    }

    /// Returns the positions of the open segments for a kind. With fewer places than classes
    /// neighbours share one, but items that never expire stay apart as long as there are two.
    pub(crate) fn slots_of(&self, kind: Kind) -> [usize; 2] {
        let slots = self.open.len() / 4;
        let first = kind.log() as usize * slots;
        let slot = match (usize::from(kind.class()), slots) {
            (0, _) | (_, 1) => first,
            (class, slots) => first + 1 + (class - 1) * (slots - 1) / (CLASSES - 1),
        };
        [2 * slot, 2 * slot + 1]
    }

    /// Returns the position of the first of two open segments that has room.
    fn slot_with_room(
        &self,
        space: &Space,
        slots: [usize; 2],
        record_bytes: u64,
        value_bytes: u64,
    ) -> Option<usize> {
        slots.into_iter().find(|slot| {
            self.open[*slot].is_some_and(|open| {
                open.sequence >= space.flushes.below()
                    && space.fits(open.record_used + record_bytes, open.value_used + value_bytes)
            })
        })
    }

    /// Returns one of two positions at which a segment may be opened; seals the fuller segment if
    /// there is none, and those that are flushed or almost full.
    pub(crate) fn vacate(&mut self, space: &Space, slots: [usize; 2]) -> usize {
        for slot in slots {
            if let Some(open) = self.open[slot]
                && (open.sequence < space.flushes.below()
                    || open.used() >= space.records.segment_bytes / ALMOST_FULL * (ALMOST_FULL - 1))
            {
                self.open[slot] = None;
                space.seal(open.id);
            }
        }
        // Write buffers of a block file are few.
        let second = !matches!(space.records.values, Values::File(_));
        let free = slots.into_iter().filter(|slot| *slot == slots[0] || second);
        if let Some(slot) = free.into_iter().find(|slot| self.open[*slot].is_none()) {
            return slot;
        }
        let used = |slot: usize| self.open[slot].map_or(0, |open| open.used());
        let slot = if used(slots[1]) > used(slots[0]) { slots[1] } else { slots[0] };
        if let Some(open) = self.open[slot].take() {
            space.seal(open.id);
        }
        slot
    }

    /// Finds a place for a record of the key with this hash; the caller must commit it or give it
    /// up.
    pub(crate) fn reserve(
        &mut self,
        items: &Items,
        record: &NewRecord<'_>,
        hash: u64,
        now: Seconds,
    ) -> Result<Place, NoPlace> {
        let space = &items.space;
        let elsewhere = space.records.values.is_elsewhere();
        let record_bytes = record.whole_record_bytes(elsewhere);
        let value_bytes = if elsewhere { record.value_len as u64 } else { 0 };
        let class = class_of(record.expiry.map(|expiry| expiry.0.saturating_sub(now.0)));
        if class == 0
            && !elsewhere
            && let Some(place) = self.reserve_hole(space, record_bytes)
        {
            return Ok(place);
        }
        if !space.fits(record_bytes, value_bytes) {
            return Err(NoPlace::TooLarge);
        }
        let bytes = record_bytes + value_bytes;
        self.reserve_at_end(items, record, (record_bytes, value_bytes), (bytes, class), hash, now)
    }

    /// Finds a place for the record of a value that has so many bytes in pieces, and a rest of so
    /// many; it is as for `reserve`, but no hole.
    #[cold]
    pub(crate) fn reserve_for_pieces(
        &mut self,
        items: &Items,
        record: &NewRecord<'_>,
        (piece_bytes, rest): (u64, u64),
        hash: u64,
        now: Seconds,
    ) -> Result<Place, NoPlace> {
        let records = &items.space.records;
        let record_bytes = record.record_bytes(records.values.is_elsewhere());
        let value_bytes = if records.keeps_rests() { 0 } else { rest };
        if !items.space.fits(record_bytes, value_bytes) {
            return Err(NoPlace::TooLarge);
        }
        let class = class_of(record.expiry.map(|expiry| expiry.0.saturating_sub(now.0)));
        let bytes = record_bytes + value_bytes + piece_bytes;
        self.reserve_at_end(items, record, (record_bytes, value_bytes), (bytes, class), hash, now)
    }

    /// Takes a place at the end of an open segment for the record of a value that is still to
    /// arrive, as a hole that counts as an item: the record is dead until it is published. The
    /// value follows so many bytes of its request.
    #[cold]
    pub(crate) fn reserve_ahead(
        &mut self,
        items: &Items,
        record: &NewRecord<'_>,
        follows: usize,
        hash: u64,
        now: Seconds,
    ) -> Result<PlaceAhead, NoPlace> {
        let (space, records) = (&items.space, &items.space.records);
        let elsewhere = records.values.is_elsewhere();
        let record_bytes = record.whole_record_bytes(elsewhere);
        let value_bytes = if elsewhere { record.value_len as u64 } else { 0 };
        if !space.fits(record_bytes, value_bytes) {
            return Err(NoPlace::TooLarge);
        }
        let class = class_of(record.expiry.map(|expiry| expiry.0.saturating_sub(now.0)));
        let (bytes, total) = ((record_bytes, value_bytes), record_bytes + value_bytes);
        let mut place = self.reserve_at_end(items, record, bytes, (total, class), hash, now)?;
        let value_at = |place: &Place| match elsewhere {
            true => place.value_offset.into(),
            false => place.at + record.head_bytes(false) as u64,
        };
        if lies_badly(value_at(&place), follows)
            && let Some(open) = place.slot.and_then(|slot| self.open[slot].as_mut())
            && let Some(further) = open.skip(space, bytes)
        {
            place = Place { slot: place.slot, heat: place.heat, ..further };
        }
        let dead = NewRecord { marks: record.marks | mark::DEAD, ..*record };
        let value_place = elsewhere.then_some((place.value_offset, 0));
        dead.write(&records.arena, place.at, value_place);
        records.segments.get(place.segment).reserve();
        self.commit(space, &place);
        Ok(PlaceAhead { place: Place { slot: None, ..place }, value_at: value_at(&place) })
    }

    /// Begins to publish the record of a reserved place, which `commit` ends.
    pub(crate) fn begin_publishing(&self, space: &Space, place: &Place) {
        space.writing[self.number].begin(place.segment);
    }

    /// Leaves a reserved place whose record was not published.
    pub(crate) fn leave(&self, space: &Space, place: &Place) {
        let records = &space.records;
        records.head(place.location()).set_marks(&records.arena, mark::DEAD, 0);
        space.writing[self.number].end();
    }

    /// Finds a place behind the last record of an open segment, for an item of so many bytes.
    #[inline(always)]
    fn reserve_at_end(
        &mut self,
        items: &Items,
        record: &NewRecord<'_>,
        (record_bytes, value_bytes): (u64, u64),
        (bytes, class): (u64, u8),
        hash: u64,
        now: Seconds,
    ) -> Result<Place, NoPlace> {
        let space = &items.space;
        let (log, heat) = space.logs.log_of_new(hash, bytes, &mut self.random);
        let kind = Kind::new(log, class);
        let found = self.open_with_room(items, kind, record_bytes, value_bytes, now);
        let (slot, open) = found.inspect_err(|_| {
            // The key is as it was before this attempt.
            if log == Log::Main {
                space.logs.ghosts.put(hash, Log::Small);
            }
        })?;
        space.records.segments.get(open.id).extend_deadline(record.expiry);
        let place = open.next_place(space, record_bytes, value_bytes).ok_or(NoPlace::NoMemory)?;
        Ok(Place { slot: Some(slot), heat, ..place })
    }

    fn reserve_hole(&mut self, space: &Space, bytes: u64) -> Option<Place> {
        let hole = self.holes.pop(bytes)?;
        let segment = space.records.segments.get(hole.segment);
        let writing = &space.writing[self.number];
        writing.begin(hole.segment);
        let usable = segment.takes_writes(hole.sequence)
            && hole.sequence >= space.flushes.below()
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
            heat: Heat::NEW,
        })
    }

    /// Returns an open segment with room for a record, and its position. Evictions copy items into
    /// the shard's open segments, so after each of them the segments are looked at anew.
    fn open_with_room(
        &mut self,
        items: &Items,
        kind: Kind,
        record_bytes: u64,
        value_bytes: u64,
        now: Seconds,
    ) -> Result<(usize, Open), NoPlace> {
        let space = &items.space;
        let slots = self.slots_of(kind);
        for attempt in 0..EVICTIONS_MAX {
            if let Some(slot) = self.slot_with_room(space, slots, record_bytes, value_bytes)
                && let Some(open) = self.open[slot]
            {
                if space.budget.take_pages(open.record_used, record_bytes) {
                    return Ok((slot, open));
                }
                space.budget.press();
                let how = How::for_records(attempt >= EVICTIONS_MAX / 2);
                if !items.evict_one(self, now, how) {
                    break;
                }
                continue;
            }
            self.vacate(space, slots);
            items.make_room(self, now);
            // The evictions may have opened one.
            if self.slot_with_room(space, slots, record_bytes, value_bytes).is_none() {
                let slot = self.vacate(space, slots);
                let open = space.try_open_segment(kind, false)?;
                // Segments that are being written to a block file will be sealed soon, and can then
                // be evicted.
                let busy = space.records.values.is_writing();
                let none = if busy { NoPlace::Busy } else { NoPlace::NoMemory };
                self.open[slot] = Some(open.ok_or(none)?);
            }
        }
        Err(NoPlace::NoMemory)
    }

    /// Makes a published record's place permanent.
    #[inline]
    pub(crate) fn commit(&mut self, space: &Space, place: &Place) {
        debug_assert!(
            place.slot.is_none_or(|slot| self.open[slot].is_some()),
            "the segment of {place:?} was sealed before its record was published"
        );
        match place.slot.and_then(|slot| self.open[slot].as_mut()) {
            Some(open) => open.advance(space, place),
            None => space.writing[self.number].end(),
        }
    }

    /// Makes the record of a value in pieces, which was published at the end of the open segment in
    /// this position, known to a restart. If there is no room for that, the segment is sealed.
    pub(crate) fn keep_head(&mut self, space: &Space, slot: Option<usize>, location: u64) {
        if !space.keep_head(location)
            && let Some(open) = slot.and_then(|slot| self.open[slot].take())
        {
            space.seal(open.id);
        }
    }

    /// Gives up the place of an unpublished record.
    pub(crate) fn give_up(&mut self, space: &Space, place: &Place) {
        if place.slot.is_none() {
            let head = space.records.head(place.location());
            head.set_marks(&space.records.arena, mark::DEAD, 0);
            let segment = space.records.segments.get(place.segment);
            space.vacancy.remove_live(segment, place.record_bytes);
            space.writing[self.number].end();
            self.holes.push(Hole {
                at: place.at,
                bytes: place.record_bytes,
                segment: place.segment,
                sequence: place.sequence,
            });
        } else if space.records.values.is_elsewhere() {
            // The next record takes them again.
            let used = place.at - space.records.base_of(place.segment);
            space.budget.give_back_pages(used, place.record_bytes);
        }
    }

    /// Remembers the room that a dead record has left.
    pub(crate) fn remember(&mut self, hole: Hole) {
        self.holes.push(hole);
    }

    /// Seals every open segment.
    pub(crate) fn seal_all(&mut self, space: &Space) {
        for open in self.open.iter_mut().filter_map(Option::take) {
            space.seal(open.id);
        }
    }

    /// Seals the open segments that a flush has emptied.
    pub(crate) fn seal_flushed(&mut self, space: &Space) {
        let below = space.flushes.below();
        for open in &mut self.open {
            if open.is_some_and(|open| open.sequence < below)
                && let Some(open) = open.take()
            {
                space.seal(open.id);
            }
        }
    }

    /// Seals the open segments whose items have all expired, so that they can be freed.
    pub(crate) fn seal_expired(&mut self, space: &Space, now: Seconds) {
        for open in &mut self.open {
            let expired = open.is_some_and(|open| {
                let segment = space.records.segments.get(open.id);
                open.record_used > 0 && segment.is_expired(now)
            });
            if expired && let Some(open) = open.take() {
                space.seal(open.id);
            }
        }
    }
}
