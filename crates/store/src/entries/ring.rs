//! The tables and rings of all stripes, in one piece of memory.
//!
//! ```text
//! entry    0  u64  bytes of the key (16 bits), number of the Kvs (16), bytes of the value (32)
//!          8  u64  sequence
//!         16  u64  the key's hash
//!         24  u32  prefixes that had been removed
//!         28  u32  when it ends
//!         32       the key, the value
//! ```
//!
//! Entries begin at multiples of eight bytes. A key has at least one byte, so that a first word of
//! 0 says that the rest of the ring, up to its end, is not used.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, fence};

use entresol_media::Direct;

use super::slot::Slot;
use super::{Cached, Name};
use crate::StoreError;
use crate::entry::{Expiry, KvsId, Sequence};

/// What lies before a key.
pub(super) const HEAD_BYTES: usize = 32;
const UNIT: u64 = 8;
const LINE_BYTES: u64 = 64;
/// So many bytes of a ring have a line of eight slots: with entries of less than 56 bytes slots run
/// out before bytes do.
const RING_BYTES_A_LINE: u64 = 448;
/// From so many bytes on a cache lies in huge pages.
const HUGE_PAGES_FROM: u64 = 64 << 20;
/// An entry takes at most this part of a ring.
const ENTRY_SHARE: u64 = 8;
/// So many entries stay at most when one is put in: it bounds how long that takes.
const STAY_MAX: usize = 4;

/// The memory of all stripes.
#[derive(Debug)]
pub(super) struct Stripes {
    region: Direct,
    stripe_bytes: u64,
    lines: u64,
    ring_bytes: u64,
}

/// How far a stripe's ring is used, in units of eight bytes.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    head: u32,
    tail: u32,
    used: u32,
    round: u16,
    /// Whether something had to make room once.
    is_full: bool,
    /// Grows with each that was not let in.
    refused: u64,
    bytes: Vec<u8>,
    staying: Vec<u8>,
}

/// What stands before an entry.
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
    /// Whether nothing is there.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }
}

impl Header {
    pub(super) fn new(name: &Name<'_>, cached: Cached, epoch: u32) -> Header {
        let Cached { sequence, expiry } = cached;
        Header { kvs: name.kvs, sequence, expiry, epoch, hash: name.hash }
    }
}

impl Stripes {
    pub(super) fn new(count: u64, bytes: u64) -> Result<Stripes, StoreError> {
        let stripe_bytes = bytes / count / LINE_BYTES * LINE_BYTES;
        let lines = (stripe_bytes / (LINE_BYTES + RING_BYTES_A_LINE)).max(1);
        // Small pages outgrow what the processor knows of them; a small cache would leave much of
        // a huge one unused.
        let is_large = bytes >= HUGE_PAGES_FROM;
        let region = Direct::anonymous(count * stripe_bytes, is_large)?;
        let ring_bytes = (stripe_bytes - lines * LINE_BYTES).min(u64::from(u32::MAX / 2) * UNIT);
        Ok(Stripes { region, stripe_bytes, lines, ring_bytes })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.region.len()
    }

    fn units(&self) -> u32 {
        (self.ring_bytes / UNIT) as u32
    }

    /// The slots in which a key's may be.
    #[inline]
    pub(super) fn slots(&self, stripe: usize, hash: u64) -> &[AtomicU64; 8] {
        self.region.line(self.line_at(stripe, hash)).words()
    }

    /// Asks the processor to fetch them.
    #[inline]
    pub(super) fn prefetch(&self, stripe: usize, hash: u64) {
        self.region.prefetch(self.line_at(stripe, hash));
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

    /// The entry of a key at a place, whose value is appended to `out`; none if it is another's.
    /// Whatever it answers counts only if the slot is the same afterwards.
    #[inline]
    pub(super) fn read(
        &self,
        stripe: usize,
        slot: Slot,
        name: &Name<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Header> {
        let offset = u64::from(slot.place()) * UNIT;
        if offset + HEAD_BYTES as u64 > self.ring_bytes {
            return None;
        }
        let at = self.ring_at(stripe) + offset;
        let word = |number: u64| self.region.load_u64(at + number * UNIT, Relaxed);
        let sizes = Sizes::of(word(0));
        let value_at = HEAD_BYTES as u64 + u64::from(sizes.key);
        let is_its = u32::from(sizes.kvs) == name.kvs.0
            && usize::from(sizes.key) == name.key.len()
            && word(2) == name.hash
            && offset + value_at + u64::from(sizes.value) <= self.ring_bytes
            && self.region.equals(at + HEAD_BYTES as u64, name.key);
        if !is_its {
            return None;
        }
        self.region.append_to(at + value_at, sizes.value as usize, out);
        let ends = word(3);
        Some(Header {
            kvs: name.kvs,
            sequence: Sequence(word(1)),
            expiry: Expiry((ends >> 32) as u32),
            epoch: ends as u32,
            hash: name.hash,
        })
    }

    /// Removes what may be a key's; says whether there was anything.
    #[inline]
    pub(super) fn remove(&self, stripe: usize, hash: u64) -> bool {
        let mut any = false;
        for word in self.slots(stripe, hash) {
            if Slot(word.load(Relaxed)).is_entry_of(hash) {
                word.store(0, Relaxed);
                any = true;
            }
        }
        any
    }

    /// Whether a key that is not there is let in. If not, its name is left there.
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
            // One after the other of the names, so that each stays for a while.
            let first = ring.refused as usize;
            let mut names = (0..slots.len()).map(|number| &slots[(first + number) % slots.len()]);
            names.find(|word| !Slot(word.load(Relaxed)).is_entry())
        });
        match free {
            Some(word) => {
                word.store(name.0, Relaxed);
                false
            }
            // There is no room for names: chance lets some in.
            None => ring.refused.is_multiple_of(8),
        }
    }

    /// Puts an entry in, in the place of what there is of its key.
    pub(super) fn put(
        &self,
        stripe: usize,
        ring: &mut Ring,
        header: &Header,
        (key, value): (&[u8], &[u8]),
    ) {
        self.remove(stripe, header.hash);
        let (Ok(kvs), Ok(key_bytes)) = (u16::try_from(header.kvs.0), u16::try_from(key.len()))
        else {
            return;
        };
        let bytes = (HEAD_BYTES + key.len() + value.len()) as u64;
        if bytes > self.ring_bytes / ENTRY_SHARE {
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
        ring.bytes = entry;
    }

    /// Takes out the oldest entries until there is room for those that stay, and for one more.
    fn make_room(&self, stripe: usize, ring: &mut Ring, units: u32) {
        // Behind each an entry may not fit before the end.
        let largest = (self.ring_bytes / ENTRY_SHARE / UNIT) as u32 + 1;
        let mut stay = 0;
        loop {
            let staying = (ring.staying.len() as u64 / UNIT) as u32;
            if ring.used + staying + units + largest <= self.units() {
                return;
            }
            ring.is_full = true;
            let Some((at, taken)) = self.take_oldest(stripe, ring) else { return };
            let word = self.region.load_u64(self.ring_at(stripe) + at * UNIT + 16, Relaxed);
            let slots = self.slots(stripe, word);
            let is_its = |slot: Slot| slot.is_entry_of(word) && u64::from(slot.place()) == at;
            let Some(slot) = slots.iter().find(|slot| is_its(Slot(slot.load(Relaxed)))) else {
                continue;
            };
            let was_found = Slot(slot.swap(0, Relaxed)).was_found();
            if was_found && stay < STAY_MAX {
                stay += 1;
                let len = u64::from(taken) * UNIT;
                let from = self.ring_at(stripe) + at * UNIT;
                self.region.append_to(from, len as usize, &mut ring.staying);
            }
        }
    }

    /// Takes the oldest entry out of the ring: where it lies, and its units.
    fn take_oldest(&self, stripe: usize, ring: &mut Ring) -> Option<(u64, u32)> {
        while ring.used > 0 {
            let at = u64::from(ring.tail);
            let word = match ring.tail < self.units() {
                true => self.region.load_u64(self.ring_at(stripe) + at * UNIT, Relaxed),
                false => 0,
            };
            if word == 0 {
                ring.used -= self.units() - ring.tail;
                ring.tail = 0;
                continue;
            }
            let units = Sizes::of(word).units();
            ring.tail += units;
            ring.used -= units;
            return Some((at, units));
        }
        None
    }

    /// Appends an entry for which there is room.
    fn append(&self, stripe: usize, ring: &mut Ring, entry: &[u8]) {
        let units = entry.len().div_ceil(UNIT as usize) as u32;
        let ring_at = self.ring_at(stripe);
        // Slots that led here were emptied before the bytes become others.
        fence(Release);
        let rest = self.units() - ring.head;
        if units > rest {
            if rest > 0 {
                self.region.store_u64(ring_at + u64::from(ring.head) * UNIT, 0, Relaxed);
            }
            ring.used += rest;
            ring.head = 0;
            ring.round = ring.round.wrapping_add(1);
        }
        let at = ring_at + u64::from(ring.head) * UNIT;
        self.region.write(at, entry);
        let Some(hash) = entry.get(16..).and_then(|rest| rest.first_chunk()) else { return };
        let hash = u64::from_le_bytes(*hash);
        let slot = Slot::of(hash, ring.head, ring.round);
        ring.head += units;
        ring.used += units;
        self.slot_for(stripe, ring, hash).store(slot.0, Release);
    }

    /// A slot for another entry: one that is free, or has a name only, or in the end any.
    fn slot_for(&self, stripe: usize, ring: &Ring, hash: u64) -> &AtomicU64 {
        let slots = self.slots(stripe, hash);
        let free = slots.iter().find(|word| word.load(Relaxed) == 0);
        let free = free.or_else(|| slots.iter().find(|word| !Slot(word.load(Relaxed)).is_entry()));
        let free = free.or_else(|| slots.iter().find(|word| !Slot(word.load(Relaxed)).was_found()));
        free.unwrap_or(&slots[ring.head as usize % slots.len()])
    }
}

/// The first of several entries, to their units' ends, and the others.
fn split_entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    bytes.split_at_checked(Sizes::of(word).units() as usize * UNIT as usize)
}
