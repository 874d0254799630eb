//! A hash table from keys to their newest records: lines of slots, filled once and never moved.
//!
//! A line has seven slots, and the number of the line that continues it once it is full. A slot has
//! twenty bits of the key's hash and the place of a record, five and a half bytes. The record
//! itself has the key.
//!
//! A writer that enters a key holds its lock (see [`crate::cache::row`]), and keys of different
//! locks have different lines, so no two threads write to a line at once. Readers take no lock: a
//! slot is stored once its record is written, and only ever changes to a later record of the same
//! key.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use entresol_media::Direct;

use crate::StoreError;
use crate::cache::row::{STRIPES, stripe_of};

const LINE_BYTES: u64 = 64;
/// Index of the word that links a line to the next.
const LINK: usize = 7;
/// Bytes of segments for each line. With records of 140 bytes most lines are nearly full, and few
/// continue elsewhere.
const SEGMENT_BYTES_A_LINE: u64 = 800;
/// Bytes from which on a table lies in huge pages. Its lines are touched at random. Of small pages,
/// hardly one's address is in the processor's TLB. Finding it, in a virtual machine, took four
/// fifths of the time of entering records into half a gigabyte.
const HUGE_PAGES_FROM_BYTES: u64 = 2 << 20;
const TAG_SHIFT: u32 = 44;
const PLACE: u64 = (1 << TAG_SHIFT) - 1;

/// Hash table with a fixed number of lines, and lines that continue the full ones.
#[derive(Debug)]
pub(super) struct Table {
    region: Direct,
    /// Number of lines that hashes choose from, for the keys of each lock.
    lines_a_stripe: u64,
    /// Number of lines in use.
    end: AtomicU64,
}

impl Table {
    /// Creates a table for about so many bytes of segments, with so many bytes of address space.
    pub(super) fn new(segment_bytes: u64, reserve_bytes: u64) -> Result<Table, StoreError> {
        let lines = segment_bytes / SEGMENT_BYTES_A_LINE;
        let lines_a_stripe = lines.div_ceil(STRIPES as u64).max(1);
        let first = lines_a_stripe * STRIPES as u64;
        let bytes = first * LINE_BYTES;
        let region =
            Direct::anonymous(reserve_bytes.max(2 * bytes), bytes >= HUGE_PAGES_FROM_BYTES)?;
        Ok(Table { region, lines_a_stripe, end: AtomicU64::new(first) })
    }

    /// Returns the bytes of the lines in use.
    pub(super) fn bytes(&self) -> u64 {
        self.end.load(Relaxed) * LINE_BYTES
    }

    #[inline]
    fn line(&self, number: u64) -> &[AtomicU64; 8] {
        self.region.line(number * LINE_BYTES).words()
    }

    #[inline]
    fn first(&self, hash: u64) -> u64 {
        let within = ((hash & ((1 << 36) - 1)) * self.lines_a_stripe) >> 36;
        stripe_of(hash) as u64 * self.lines_a_stripe + within
    }

    /// Lets the processor fetch the line of a key.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.region.prefetch(self.first(hash) * LINE_BYTES);
    }

    /// Returns the place of a key's newest record, for which `is_its` returns true.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u64,
        mut is_its: impl FnMut(u64) -> Result<bool, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let mut line = self.line(self.first(hash));
        loop {
            for word in &line[..LINK] {
                let slot = word.load(Acquire);
                if slot == 0 {
                    return Ok(None);
                }
                if slot >> TAG_SHIFT == tag(hash) && is_its(slot & PLACE)? {
                    return Ok(Some(slot & PLACE));
                }
            }
            match line[LINK].load(Acquire) {
                0 => return Ok(None),
                next => line = self.line(next),
            }
        }
    }

    /// Enters a record. It replaces the key's earlier record, for which `is_its` returns true, if
    /// there is one.
    #[inline]
    pub(super) fn enter(
        &self,
        hash: u64,
        place: u64,
        mut is_its: impl FnMut(u64) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        debug_assert!(place != 0 && place <= PLACE, "{place:#x}");
        let new = tag(hash) << TAG_SHIFT | place;
        let mut line = self.line(self.first(hash));
        loop {
            for word in &line[..LINK] {
                let slot = word.load(Relaxed);
                let is_free = slot == 0;
                if is_free || slot >> TAG_SHIFT == tag(hash) && is_its(slot & PLACE)? {
                    let before = slot & PLACE;
                    debug_assert!(before < place, "{before:#x} is newer than {place:#x}");
                    word.store(new, Release);
                    return Ok(());
                }
            }
            match line[LINK].load(Relaxed) {
                0 => {
                    let next = self.take_line()?;
                    self.line(next)[0].store(new, Relaxed);
                    line[LINK].store(next, Release);
                    return Ok(());
                }
                next => line = self.line(next),
            }
        }
    }

    fn take_line(&self) -> Result<u64, StoreError> {
        let line = self.end.fetch_add(1, Relaxed);
        if (line + 1) * LINE_BYTES > self.region.len() {
            let what = "the memtable's index has no room".to_owned();
            return Err(StoreError::Internal { what });
        }
        Ok(line)
    }
}

#[inline]
fn tag(hash: u64) -> u64 {
    hash >> 36 & 0xF_FFFF
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use entresol_base::hash::KeyHasher;

    use super::*;

    #[test]
    fn each_key_leads_to_its_last_record() {
        // With so few lines, most are continued.
        let table = Table::new(0, 1 << 20).expect("address space");
        let hasher = KeyHasher::seeded(7);
        let mut records: Vec<u64> = vec![u64::MAX];
        let mut newest = HashMap::new();
        for number in 0..20_000_u64 {
            let key = number * 7919 % 6000;
            records.push(key);
            let place = records.len() as u64 - 1;
            let is_its = |place: u64| Ok(records[place as usize] == key);
            table.enter(hasher.hash(&key.to_be_bytes()), place, is_its).expect("room");
            newest.insert(key, place);
        }
        for key in 0..7000 {
            let is_its = |place: u64| Ok(records[place as usize] == key);
            let found = table.find(hasher.hash(&key.to_be_bytes()), is_its).expect("no damage");
            assert_eq!(found, newest.get(&key).copied());
        }
        assert!(table.bytes() > STRIPES as u64 * LINE_BYTES);
        let mut filled = Ok(());
        for number in 0..200_000_u64 {
            let hash = hasher.hash(&(1 << 40 | number).to_be_bytes());
            filled = filled.and_then(|()| table.enter(hash, 1, |_| Ok(false)));
        }
        assert!(filled.is_err(), "a mebibyte has no room for 200,000 keys");
    }
}
