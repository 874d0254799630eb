//! Tables and rings of all stripes.
//!
//! ```text
//! entry    0  u64  bytes of the key (16 bits), number of the Kvs (16), bytes of the value (32)
//!          8  u64  sequence
//!         16  u64  the key's hash
//!         24  u32  number of range deletes before it was read
//!         28  u32  expiry
//!         32       the key, the value
//! ```
//!
//! Entries begin at multiples of eight bytes. A key has at least one byte, so a first word of 0
//! means that the rest of a part of the ring, up to its end, is unused.
//!
//! A ring has two parts. The first is the stripe's own. The second follows it, and is borrowed from
//! the [`Room`]. It grows when the ring would have to begin again from its start, and is cut from
//! its end when the memory is wanted back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, fence};

use entresol_media::Direct;

use super::slot::{PLACES, Slot};
use super::{Cached, Name};
use crate::StoreError;
use crate::cache::budget::Room;
use crate::types::{Expiry, KvsId, Sequence};

/// Bytes before a key.
pub(super) const HEAD_BYTES: usize = 32;
const UNIT: u64 = 8;
const LINE_BYTES: u64 = 64;
/// Bytes of a ring's first part for each line of eight slots. With entries of less than 56 bytes,
/// slots run out before bytes do.
const RING_BYTES_A_LINE: u64 = 448;
/// Bytes of both parts for which there is at least one line. Entries are larger where a second part
/// is needed.
const BORROWED_BYTES_A_LINE: u64 = 1024;
/// Cache lines of an entry that are prefetched. The processor itself prefetches the later ones.
const LINES_AHEAD: u64 = 4;
/// Bytes from which on the first parts lie in huge pages.
const HUGE_PAGES_FROM: u64 = 64 << 20;
/// Divisor of a ring's first part, of which an entry takes at most one share.
const ENTRY_SHARE: u64 = 4;
/// Most entries that stay when one is put in. Together they have no more units than the largest
/// entry. This bounds the time, and the room that is needed.
const STAY_MAX: usize = 4;
/// Fewest and most bytes that a ring borrows at once.
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 4096..=64 << 10;
/// Limit of a ring's second part, as a multiple of the memory to borrow for each ring.
const SECOND_PARTS: u64 = 2;

/// Memory of all stripes.
#[derive(Debug)]
pub(super) struct Stripes {
    /// Tables and first parts of rings.
    region: Direct,
    stripe_bytes: u64,
    lines: u64,
    ring_bytes: u64,
    /// Second parts of rings.
    seconds: Direct,
    second_bytes: u64,
    chunk_bytes: u64,
    room: Arc<Room>,
}

/// Use of a stripe's ring, in units of eight bytes.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    head: u32,
    tail: u32,
    /// End of the round that the tail is in, while the head is in the next one.
    tail_end: Option<u32>,
    /// Length of the second part.
    borrowed: u32,
    /// Number that changes whenever a place gets other bytes.
    version: u32,
    /// True if an entry had to make room since the ring last grew.
    is_full: bool,
    /// Number of entries that were not admitted.
    refused: u64,
    bytes: Vec<u8>,
    staying: Vec<u8>,
}

/// Header of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kvs: KvsId,
    pub(super) sequence: Sequence,
    pub(super) expiry: Expiry,
    pub(super) epoch: u32,
    hash: u64,
}

/// The first word of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    kvs: u16,
    key: u16,
    value: u32,
}

impl Sizes {
    fn word(self) -> u64 {
        u64::from(self.key) | u64::from(self.kvs) << 16 | u64::from(self.value) << 32
    }

    #[inline]
    fn of(word: u64) -> Sizes {
        Sizes { key: word as u16, kvs: (word >> 16) as u16, value: (word >> 32) as u32 }
    }

    fn units(self) -> u32 {
        let bytes = HEAD_BYTES as u64 + u64::from(self.key) + u64::from(self.value);
        bytes.div_ceil(UNIT) as u32
    }
}

impl Ring {
    /// Returns true if the ring has no entries.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail && self.tail_end.is_none()
    }

    /// Returns the free units before the head meets the tail, in a ring of so many units.
    fn free(&self, units: u32) -> u32 {
        match self.tail_end {
            Some(_) => self.tail - self.head,
            None => units - self.head + self.tail,
        }
    }
}

impl Header {
    pub(super) fn new(name: &Name<'_>, cached: Cached, epoch: u32) -> Header {
        let Cached { sequence, expiry } = cached;
        Header { kvs: name.kvs, sequence, expiry, epoch, hash: name.hash }
    }
}

impl Stripes {
    pub(super) fn new(count: u64, bytes: u64, room: &Arc<Room>) -> Result<Stripes, StoreError> {
        let stripe_bytes = bytes / count / LINE_BYTES * LINE_BYTES;
        let lines = stripe_bytes / (LINE_BYTES + RING_BYTES_A_LINE);
        let all_bytes = stripe_bytes + room.bytes() / count;
        // The first part keeps at least three quarters.
        let lines_of_all = (all_bytes / BORROWED_BYTES_A_LINE).min(stripe_bytes / LINE_BYTES / 4);
        let lines = lines.max(lines_of_all).max(1);
        // Small pages are too many for the processor's TLB. A small cache would leave much of a
        // huge page unused.
        let is_large = bytes >= HUGE_PAGES_FROM;
        let region = Direct::anonymous(count * stripe_bytes, is_large)?;
        let units_max = u64::from(PLACES) * UNIT / 2;
        let ring_bytes = (stripe_bytes - lines * LINE_BYTES).min(units_max);
        let chunk_bytes = (ring_bytes / 4).clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
        let chunk_bytes = chunk_bytes / CHUNK_BYTES.start() * CHUNK_BYTES.start();
        let second_bytes = (room.bytes() / count * SECOND_PARTS).min(units_max);
        let second_bytes = second_bytes / chunk_bytes * chunk_bytes;
        let seconds = Direct::anonymous(count * second_bytes, false)?;
        let room = Arc::clone(room);
        Ok(Stripes {
            region,
            stripe_bytes,
            lines,
            ring_bytes,
            seconds,
            second_bytes,
            chunk_bytes,
            room,
        })
    }

    /// Returns the bytes of its own, without what is borrowed.
    pub(super) fn bytes(&self) -> u64 {
        self.region.len()
    }

    /// Returns the budget that it borrows from.
    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    fn entry_bytes_max(&self) -> u64 {
        self.ring_bytes / ENTRY_SHARE
    }

    /// Returns the units of a ring's first part.
    #[inline]
    fn first(&self) -> u32 {
        (self.ring_bytes / UNIT) as u32
    }

    /// Returns the units of both parts.
    fn end(&self, ring: &Ring) -> u32 {
        self.first() + ring.borrowed
    }

    /// Returns the region and the offset of a place in a ring.
    #[inline]
    fn at(&self, stripe: usize, place: u32) -> (&Direct, u64) {
        match place.checked_sub(self.first()) {
            None => (&self.region, self.ring_at(stripe) + u64::from(place) * UNIT),
            Some(place) => {
                (&self.seconds, stripe as u64 * self.second_bytes + u64::from(place) * UNIT)
            }
        }
    }

    fn word(&self, stripe: usize, place: u32) -> u64 {
        let (region, at) = self.at(stripe, place);
        region.load_u64(at, Relaxed)
    }

    fn hash_at(&self, stripe: usize, place: u32) -> u64 {
        let (region, at) = self.at(stripe, place);
        region.load_u64(at + 16, Relaxed)
    }

    /// Returns the slots that an entry of a key may be in.
    #[inline]
    pub(super) fn slots(&self, stripe: usize, hash: u64) -> &[AtomicU64; 8] {
        self.region.line(self.line_at(stripe, hash)).words()
    }

    /// Lets the processor fetch the slots of a key.
    #[inline]
    pub(super) fn prefetch(&self, stripe: usize, hash: u64) {
        self.region.prefetch(self.line_at(stripe, hash));
    }

    /// Lets the processor fetch the beginning of an entry that may belong to a key.
    #[inline]
    pub(super) fn prefetch_entry(&self, stripe: usize, hash: u64) {
        let slots = self.slots(stripe, hash).iter().map(|word| Slot(word.load(Relaxed)));
        for slot in slots.filter(|slot| slot.is_entry_of(hash)) {
            let (region, at) = self.at(stripe, slot.place());
            (0..LINES_AHEAD).for_each(|line| region.prefetch(at + line * LINE_BYTES));
        }
    }

    #[inline]
    fn line_at(&self, stripe: usize, hash: u64) -> u64 {
        let line = ((hash & ((1 << 40) - 1)) * self.lines) >> 40;
        stripe as u64 * self.stripe_bytes + line * LINE_BYTES
    }

    #[inline]
    fn ring_at(&self, stripe: usize) -> u64 {
        stripe as u64 * self.stripe_bytes + self.lines * LINE_BYTES
    }

    /// Appends the value of the entry at a slot to `out` if the entry belongs to the key, and
    /// returns its header. The result is valid only if the slot is unchanged afterwards.
    #[inline]
    pub(super) fn read(
        &self,
        stripe: usize,
        slot: Slot,
        name: &Name<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Header> {
        let offset = u64::from(slot.place()) * UNIT;
        let rest = match slot.place() < self.first() {
            true => self.ring_bytes - offset,
            false => (self.ring_bytes + self.second_bytes).saturating_sub(offset),
        };
        if rest < HEAD_BYTES as u64 {
            return None;
        }
        let (region, at) = self.at(stripe, slot.place());
        let word = |number: u64| region.load_u64(at + number * UNIT, Relaxed);
        let sizes = Sizes::of(word(0));
        let value_at = HEAD_BYTES as u64 + u64::from(sizes.key);
        let is_its = u32::from(sizes.kvs) == name.kvs.0
            && usize::from(sizes.key) == name.key.len()
            && word(2) == name.hash
            && value_at + u64::from(sizes.value) <= rest
            && region.equals(at + HEAD_BYTES as u64, name.key);
        if !is_its {
            return None;
        }
        region.append_to(at + value_at, sizes.value as usize, out);
        let ends = word(3);
        Some(Header {
            kvs: name.kvs,
            sequence: Sequence(word(1)),
            expiry: Expiry((ends >> 32) as u32),
            epoch: ends as u32,
            hash: name.hash,
        })
    }

    /// Removes the entry that may belong to a key. Returns its slot, if there was one.
    #[inline]
    pub(super) fn remove(&self, stripe: usize, hash: u64) -> Option<Slot> {
        let mut emptied = None;
        for word in self.slots(stripe, hash) {
            let slot = Slot(word.load(Relaxed));
            if slot.is_entry_of(hash) {
                word.store(0, Relaxed);
                emptied = Some(slot);
            }
        }
        emptied
    }

    /// Returns true if a key without an entry is admitted. Otherwise its name is left in a slot.
    pub(super) fn is_let_in(&self, stripe: usize, ring: &mut Ring, hash: u64) -> bool {
        if !ring.is_full {
            return true;
        }
        let (slots, name) = (self.slots(stripe, hash), Slot::name(hash));
        if let Some(word) = slots.iter().find(|word| word.load(Relaxed) == name.0) {
            word.store(0, Relaxed);
            return true;
        }
        ring.refused = ring.refused.wrapping_add(1);
        let is_free = |word: &&AtomicU64| word.load(Relaxed) == 0;
        let free = slots.iter().find(is_free).or_else(|| {
            // Names are overwritten in turn, so that each stays for a while.
            let first = ring.refused as usize;
            let mut names = (0..slots.len()).map(|number| &slots[(first + number) % slots.len()]);
            names.find(|word| !Slot(word.load(Relaxed)).is_entry())
        });
        match free {
            Some(word) => {
                word.store(name.0, Relaxed);
                false
            }
            // There is no room for names, so chance admits some.
            None => ring.refused.is_multiple_of(8),
        }
    }

    /// Puts an entry in. It replaces the entry of its key, which may also be the one of a slot that
    /// was emptied since the stripe was locked.
    pub(super) fn put(
        &self,
        (stripe, ring): (usize, &mut Ring),
        emptied: Option<Slot>,
        header: &Header,
        (key, value): (&[u8], &[u8]),
    ) {
        let emptied = self.remove(stripe, header.hash).or(emptied);
        let (Ok(kvs), Ok(key_bytes)) = (u16::try_from(header.kvs.0), u16::try_from(key.len()))
        else {
            return;
        };
        let bytes = (HEAD_BYTES + key.len() + value.len()) as u64;
        if bytes > self.entry_bytes_max() {
            return;
        }
        let sizes = Sizes { kvs, key: key_bytes, value: value.len() as u32 };
        let mut entry = std::mem::take(&mut ring.bytes);
        entry.clear();
        entry.extend_from_slice(&sizes.word().to_le_bytes());
        entry.extend_from_slice(&header.sequence.0.to_le_bytes());
        entry.extend_from_slice(&header.hash.to_le_bytes());
        entry.extend_from_slice(&header.epoch.to_le_bytes());
        entry.extend_from_slice(&header.expiry.0.to_le_bytes());
        entry.extend_from_slice(key);
        entry.extend_from_slice(value);
        match emptied.filter(|slot| self.is_place_of(stripe, *slot, header.hash, sizes)) {
            Some(slot) => self.write(stripe, ring, slot.place(), &entry, slot.was_found()),
            None => {
                self.make_room(stripe, ring, sizes.units());
                let mut staying = std::mem::take(&mut ring.staying);
                let mut rest = staying.as_slice();
                while let Some((one, more)) = split_entry(rest) {
                    self.append(stripe, ring, one);
                    rest = more;
                }
                staying.clear();
                ring.staying = staying;
                self.append(stripe, ring, &entry);
            }
        }
        ring.bytes = entry;
    }

    /// Returns true if the entry at a slot belongs to a key, and takes as much room as it needs
    /// now.
    fn is_place_of(&self, stripe: usize, slot: Slot, hash: u64, sizes: Sizes) -> bool {
        let before = Sizes::of(self.word(stripe, slot.place()));
        let is_its = before.kvs == sizes.kvs && before.key == sizes.key;
        is_its && before.units() == sizes.units() && self.hash_at(stripe, slot.place()) == hash
    }

    /// Returns true if an entry of so many bytes fits without an eviction. If it does not, room is
    /// not looked for again until the ring grows.
    #[inline]
    pub(super) fn has_room(&self, ring: &mut Ring, bytes: usize) -> bool {
        !ring.is_full && self.find_room(ring, bytes)
    }

    fn find_room(&self, ring: &mut Ring, bytes: usize) -> bool {
        let bytes = (HEAD_BYTES + bytes) as u64;
        if bytes > self.entry_bytes_max() {
            return false;
        }
        let needed = 3 * bytes.div_ceil(UNIT) as u32;
        while ring.free(self.end(ring)) < needed {
            if ring.tail_end.is_some() || !self.borrow(ring, needed) {
                ring.is_full = true;
                return false;
            }
        }
        true
    }

    /// Removes the oldest entries until there is room for those that stay, and for one more.
    fn make_room(&self, stripe: usize, ring: &mut Ring, units: u32) {
        let (mut stay, mut largest) = (0, units);
        loop {
            let staying = (ring.staying.len() as u64 / UNIT) as u32;
            // At the end of each part, room may be left that is too short for an entry.
            let needed = staying + units + 2 * largest;
            if ring.free(self.end(ring)) >= needed {
                return;
            }
            if ring.tail_end.is_none() && self.borrow(ring, needed) {
                continue;
            }
            ring.is_full = true;
            let Some((at, taken)) = self.take_oldest(stripe, ring) else { return };
            let Some(slot) = self.slot_of(stripe, at) else { continue };
            let was_found = Slot(slot.swap(0, Relaxed)).was_found();
            if was_found && stay < STAY_MAX && staying + taken <= self.first() / ENTRY_SHARE as u32
            {
                stay += 1;
                largest = largest.max(taken);
                let (region, at) = self.at(stripe, at);
                region.append_to(at, taken as usize * UNIT as usize, &mut ring.staying);
            }
        }
    }

    /// Returns the slot that leads to the entry at a place, unless the entry is obsolete.
    fn slot_of(&self, stripe: usize, place: u32) -> Option<&AtomicU64> {
        let hash = self.hash_at(stripe, place);
        let is_its = |slot: Slot| slot.is_entry_of(hash) && slot.place() == place;
        self.slots(stripe, hash).iter().find(|slot| is_its(Slot(slot.load(Relaxed))))
    }

    /// Borrows memory, which extends the ring's second part by at least so many units.
    fn borrow(&self, ring: &mut Ring, units: u32) -> bool {
        let bytes = (u64::from(units) * UNIT).next_multiple_of(self.chunk_bytes);
        let has_place = u64::from(ring.borrowed) * UNIT + bytes <= self.second_bytes;
        let is_borrowed = has_place && self.room.borrow(bytes);
        if is_borrowed {
            ring.borrowed += (bytes / UNIT) as u32;
            ring.is_full = false;
        }
        is_borrowed
    }

    /// Gives back borrowed memory of a ring with the entries in it, so many bytes or a little more,
    /// or all that there are. Returns the number of bytes.
    pub(super) fn give_back(&self, stripe: usize, ring: &mut Ring, bytes: u64) -> u64 {
        let wanted = bytes.max(1).next_multiple_of(self.chunk_bytes);
        let bytes = wanted.min(u64::from(ring.borrowed) * UNIT);
        if bytes == 0 {
            return 0;
        }
        let end = self.end(ring) - (bytes / UNIT) as u32;
        if let Some(tail_end) = ring.tail_end {
            let cut = self.cut(stripe, (ring.tail, tail_end), end).min(end);
            ring.tail_end = Some(cut).filter(|cut| *cut > ring.tail);
            if ring.tail_end.is_none() {
                ring.tail = 0;
            }
        }
        if ring.tail_end.is_none() {
            ring.head = self.cut(stripe, (ring.tail, ring.head), end);
            if ring.head > end {
                (ring.head, ring.tail) = (0, 0);
            }
        }
        ring.borrowed -= (bytes / UNIT) as u32;
        assert!(
            ring.head.max(ring.tail).max(ring.tail_end.unwrap_or(0)) <= end,
            "{ring:?} goes beyond {end}, where it was cut off",
        );
        // Slots that led there were emptied before.
        fence(Release);
        let (_, at) = self.at(stripe, end);
        self.seconds.discard(at, bytes);
        self.room.give_back(bytes);
        bytes
    }

    /// Empties the slots of all entries between two places, from the first one that goes beyond
    /// `end`. Returns the place where that one begins, or `to` if there is none.
    fn cut(&self, stripe: usize, (from, to): (u32, u32), end: u32) -> u32 {
        let (mut at, mut cut) = (from, None);
        while let Some((place, units)) = self.entry_from(stripe, at, to) {
            at = place + units;
            if at > end {
                cut = cut.or(Some(place));
                if let Some(slot) = self.slot_of(stripe, place) {
                    slot.store(0, Relaxed);
                }
            }
        }
        cut.unwrap_or(to)
    }

    /// Returns the place and the units of the first entry between two places of one round.
    fn entry_from(&self, stripe: usize, from: u32, to: u32) -> Option<(u32, u32)> {
        let mut at = from;
        while at < to {
            let word = self.word(stripe, at);
            if word != 0 {
                return Some((at, Sizes::of(word).units()));
            }
            if at >= self.first() {
                break;
            }
            at = self.first();
        }
        None
    }

    /// Removes the oldest entry from the ring, and returns its place and units.
    fn take_oldest(&self, stripe: usize, ring: &mut Ring) -> Option<(u32, u32)> {
        loop {
            let end = ring.tail_end.unwrap_or(ring.head);
            let oldest = self.entry_from(stripe, ring.tail, end);
            if let Some((at, units)) = oldest {
                ring.tail = at + units;
                return oldest;
            }
            if ring.tail_end.take().is_none() {
                ring.tail = ring.head;
                return None;
            }
            ring.tail = 0;
        }
    }

    /// Appends an entry for which there is room.
    fn append(&self, stripe: usize, ring: &mut Ring, entry: &[u8]) {
        let units = entry.len().div_ceil(UNIT as usize) as u32;
        loop {
            let is_in_first = ring.head < self.first();
            let part_end = if is_in_first { self.first() } else { self.end(ring) };
            if units <= part_end - ring.head {
                break;
            }
            if ring.head < part_end {
                // Slots that led here were emptied before the bytes change.
                fence(Release);
                let (region, at) = self.at(stripe, ring.head);
                region.store_u64(at, 0, Relaxed);
            }
            if is_in_first && ring.borrowed > 0 {
                ring.head = self.first();
            } else {
                ring.tail_end = Some(part_end);
                ring.head = 0;
            }
        }
        debug_assert!(
            units < ring.free(self.end(ring)),
            "an entry of {units} units goes to {ring:?}, which ends at {}",
            self.end(ring),
        );
        let at = ring.head;
        ring.head += units;
        self.write(stripe, ring, at, entry, false);
    }

    /// Writes an entry to a place that no slot leads to.
    fn write(&self, stripe: usize, ring: &mut Ring, place: u32, entry: &[u8], was_found: bool) {
        // Slots that led here were emptied before the bytes change.
        fence(Release);
        let (region, at) = self.at(stripe, place);
        region.write(at, entry);
        let Some(hash) = entry.get(16..).and_then(|rest| rest.first_chunk()) else { return };
        let hash = u64::from_le_bytes(*hash);
        ring.version = ring.version.wrapping_add(1);
        let slot = Slot::of(hash, place, ring.version);
        let slot = if was_found { slot.found() } else { slot };
        self.slot_for(stripe, ring, hash).store(slot.0, Release);
    }

    /// Returns a slot for another entry: a free one, else one with a name, else one whose entry was
    /// not found again, else any.
    fn slot_for(&self, stripe: usize, ring: &Ring, hash: u64) -> &AtomicU64 {
        let slots = self.slots(stripe, hash);
        let free = slots.iter().find(|word| word.load(Relaxed) == 0);
        let free = free.or_else(|| slots.iter().find(|word| !Slot(word.load(Relaxed)).is_entry()));
        let free = free.or_else(|| slots.iter().find(|word| !Slot(word.load(Relaxed)).was_found()));
        free.unwrap_or(&slots[ring.head as usize % slots.len()])
    }
}

/// Splits the first entry, up to the end of its last unit, from several.
fn split_entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    bytes.split_at_checked(Sizes::of(word).units() as usize * UNIT as usize)
}
