//! Layout of leaves: a line with the bitmap and the fingerprints, then the link and the lowest key,
//! then the records.

use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_media::Region;

use crate::mix::mix;

/// Most records of a leaf: their fingerprints fill the first line together with the bitmap.
pub(super) const SLOTS_MAX: usize = 56;
const BITMAP: u64 = 0;
const FINGERPRINTS: u64 = 8;
const NEXT: u64 = 64;
const LOW: u64 = 72;
/// Offset of the records, none of which crosses a line.
const RECORDS: u64 = 80;
const RECORD_BYTES: u64 = 16;

/// Layout of a tree's leaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaves {
    slots: usize,
}

/// First line of a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) at: u64,
    pub(super) bitmap: u64,
    fingerprints: [u8; SLOTS_MAX],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub(super) key: u64,
    pub(super) value: u64,
}

/// Returns the highest bits of a hash; the tables of this crate use others.
fn fingerprint(key: u64) -> u8 {
    (mix(key) >> 56) as u8
}

fn slots(bitmap: u64) -> impl Iterator<Item = usize> {
    (0..SLOTS_MAX).filter(move |slot| bitmap >> slot & 1 == 1)
}

impl Leaf {
    pub(super) fn free_slot(&self, leaves: &Leaves) -> Option<usize> {
        Some(self.bitmap.trailing_ones() as usize).filter(|&slot| slot < leaves.slots)
    }

    /// Returns the records with this fingerprint, as a bitmap.
    fn candidates(&self, fingerprint: u8) -> u64 {
        let equal = self.fingerprints.iter().enumerate();
        self.bitmap & equal.fold(0, |all, (slot, &it)| all | u64::from(it == fingerprint) << slot)
    }
}

impl Leaves {
    pub(super) fn new(slots: usize) -> Result<Leaves, String> {
        match slots {
            2..=SLOTS_MAX => Ok(Leaves { slots }),
            _ => Err(format!("leaves of {slots} records are not supported: use 2 to {SLOTS_MAX}")),
        }
    }

    /// Returns the slots in a leaf of this size.
    pub(super) fn slots_in(bytes: u64) -> usize {
        SLOTS_MAX.min((bytes.saturating_sub(RECORDS) / RECORD_BYTES) as usize)
    }

    /// Returns the bytes of a leaf, whole lines.
    pub(super) fn bytes(&self) -> u64 {
        (RECORDS + RECORD_BYTES * self.slots as u64).next_multiple_of(64)
    }

    /// Returns the bitmap of a full leaf.
    pub(super) fn full(&self) -> u64 {
        (1 << self.slots) - 1
    }

    pub(super) fn load<R: Region>(&self, region: &R, at: u64) -> Leaf {
        let words = region.load_line(at);
        let mut fingerprints = [0; SLOTS_MAX];
        for (bytes, word) in fingerprints.chunks_exact_mut(8).zip(&words[1..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Leaf { at, bitmap: words[0], fingerprints }
    }

    pub(super) fn next<R: Region>(&self, region: &R, at: u64) -> u64 {
        region.load_u64(at + NEXT, Relaxed)
    }

    pub(super) fn low<R: Region>(&self, region: &R, at: u64) -> u64 {
        region.load_u64(at + LOW, Relaxed)
    }

    fn record_at(at: u64, slot: usize) -> u64 {
        at + RECORDS + RECORD_BYTES * slot as u64
    }

    fn record<R: Region>(region: &R, at: u64, slot: usize) -> Record {
        let at = Leaves::record_at(at, slot);
        Record { key: region.load_u64(at, Relaxed), value: region.load_u64(at + 8, Relaxed) }
    }

    /// Returns the slot of a key, and its value.
    pub(super) fn find<R: Region>(
        &self,
        region: &R,
        leaf: &Leaf,
        key: u64,
    ) -> Option<(usize, u64)> {
        slots(leaf.candidates(fingerprint(key)))
            .map(|slot| (slot, Leaves::record(region, leaf.at, slot)))
            .find(|(_, record)| record.key == key)
            .map(|(slot, record)| (slot, record.value))
    }

    pub(super) fn sorted<R: Region>(&self, region: &R, leaf: &Leaf) -> Vec<Record> {
        let all = slots(leaf.bitmap).map(|slot| Leaves::record(region, leaf.at, slot));
        let mut records: Vec<Record> = all.collect();
        records.sort_unstable();
        records
    }

    /// Returns the records whose keys are below this one, as a bitmap.
    pub(super) fn below<R: Region>(&self, region: &R, leaf: &Leaf, key: u64) -> u64 {
        let below = |&slot: &usize| Leaves::record(region, leaf.at, slot).key < key;
        slots(leaf.bitmap).filter(below).fold(0, |all, slot| all | 1 << slot)
    }

    /// Puts a record into a free slot, durably: first the record, then its bit.
    pub(super) fn put<R: Region>(&self, region: &R, leaf: &Leaf, slot: usize, record: Record) {
        let at = Leaves::record_at(leaf.at, slot);
        region.store_u64(at, record.key, Relaxed);
        region.store_u64(at + 8, record.value, Relaxed);
        region.flush(at, RECORD_BYTES as usize);
        let at = leaf.at + FINGERPRINTS + slot as u64;
        region.store_u8(at, fingerprint(record.key), Relaxed);
        region.flush(at, 1);
        region.drain();
        self.set_bitmap(region, leaf.at, leaf.bitmap | 1 << slot);
    }

    /// Stores the bitmap, durably.
    pub(super) fn set_bitmap<R: Region>(&self, region: &R, at: u64, bitmap: u64) {
        region.store_u64(at + BITMAP, bitmap, Release);
        region.persist(at + BITMAP, 8);
    }

    /// Links a leaf to the next one, durably.
    pub(super) fn link<R: Region>(&self, region: &R, at: u64, next: u64) {
        region.store_u64(at + NEXT, next, Release);
        region.persist(at + NEXT, 8);
    }

    /// Gives the record in a slot another value, durably.
    pub(super) fn set_value<R: Region>(&self, region: &R, at: u64, slot: usize, value: u64) {
        let at = Leaves::record_at(at, slot) + 8;
        region.store_u64(at, value, Release);
        region.persist(at, 8);
    }

    /// Writes the used lines of a leaf that no link leads to, durably.
    pub(super) fn write<R: Region>(&self, region: &R, at: u64, next: u64, records: &[Record]) {
        let mut bytes = Vec::with_capacity(self.bytes() as usize);
        bytes.extend(((1u64 << records.len()) - 1).to_le_bytes());
        bytes.extend(records.iter().map(|record| fingerprint(record.key)));
        bytes.resize(NEXT as usize, 0);
        bytes.extend(next.to_le_bytes());
        bytes.extend(records.first().map_or(0, |record| record.key).to_le_bytes());
        for record in records {
            bytes.extend(record.key.to_le_bytes());
            bytes.extend(record.value.to_le_bytes());
        }
        region.write(at, &bytes);
        region.persist(at, bytes.len());
    }
}
