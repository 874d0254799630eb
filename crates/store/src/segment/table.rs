//! The table of a segment whose dead records were left out: where each record lay, and where it
//! lies now. Whatever refers to a record goes on to name the old offset, which its checksum covers.
//!
//! ```text
//! 32  u64  offset of the table: 48 if it fits before the first record, else behind the last
//! 40  u64  number of its entries
//!
//! in the table, for each record in the order of their offsets:
//!  0  u32  offset at which the record was written
//!  4  u32  offset at which it lies
//!
//! behind them
//!  0  u32  CRC-32C over the store's identity, the segment's number, both words, and the table
//! ```
//!
//! The file ends with a copy of the table, in other pages, and a copy of its first 48 bytes.
//! Without a table all records would be lost, so the loss of a page must not hit both.

use entresol_base::checksum;

use super::FIRST_RECORD;
use crate::bytes::{u32_at, u64_at};
use crate::types::{PAGE_BYTES, SegmentNumber};

/// Offset of the words that lead to the table.
pub(super) const LEAD_AT: u64 = 32;
/// Bytes of these words.
pub(super) const LEAD_BYTES: usize = 16;
/// First bytes of a segment that lead to the table, which are also its last ones.
pub(crate) const BEGINNING_BYTES: u64 = LEAD_AT + LEAD_BYTES as u64;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 8;
/// Bytes of the checksum.
const CRC_BYTES: usize = 4;

/// Offsets of records, old and new, in their order.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<(u32, u32)>);

/// Offsets of a table and its copy, and the length of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TablePlaces {
    pub(crate) table: u64,
    pub(crate) copy: u64,
    pub(crate) file_bytes: u64,
}

/// Place of a table in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lead {
    pub(super) offset: u64,
    count: u64,
}

impl Lead {
    /// Reads the words that lead to a table.
    pub(super) fn decode(bytes: &[u8]) -> Option<Lead> {
        Some(Lead { offset: u64_at(bytes, 0)?, count: u64_at(bytes, 8)? })
    }

    /// Returns the bytes of the table and its checksum, if they lie in a file of so many bytes.
    pub(super) fn bytes(self, file_bytes: u64) -> Option<usize> {
        let bytes = self.count.checked_mul(ENTRY_BYTES as u64)?.checked_add(CRC_BYTES as u64)?;
        let end = self.offset.checked_add(bytes)?;
        let is_inside = self.offset >= BEGINNING_BYTES && end <= file_bytes;
        usize::try_from(bytes).ok().filter(|_| is_inside)
    }
}

impl Table {
    /// Adds a record behind those before. Returns false if an offset is too large for a table.
    pub(crate) fn push(&mut self, old: u64, new: u64) -> bool {
        let (Ok(old), Ok(new)) = (u32::try_from(old), u32::try_from(new)) else { return false };
        assert!(
            self.0.last().is_none_or(|(before, lies)| *before < old && *lies < new) && new <= old,
            "a record of {old} comes to {new}, behind {:?}",
            self.0.last(),
        );
        self.0.push((old, new));
        true
    }

    /// Returns the offset at which a record lies that was written at `old`, if it was kept.
    pub(crate) fn find(&self, old: u64) -> Option<u64> {
        let old = u32::try_from(old).ok()?;
        let found = self.0.binary_search_by_key(&old, |(old, _)| *old).ok()?;
        self.0.get(found).map(|(_, new)| u64::from(*new))
    }

    /// Returns the offsets of all records, old and new.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(old, new)| (u64::from(*old), u64::from(*new)))
    }

    /// Returns where the table and its copy lie in a file whose records end at an offset.
    pub(crate) fn places(&self, records_end: u64) -> TablePlaces {
        let page = PAGE_BYTES as u64;
        let bytes = (self.0.len() * ENTRY_BYTES + CRC_BYTES) as u64;
        let (table, behind) = match BEGINNING_BYTES + bytes <= FIRST_RECORD {
            true => (BEGINNING_BYTES, records_end),
            false => (records_end, (records_end + bytes).next_multiple_of(page)),
        };
        let file_bytes = (behind + bytes + BEGINNING_BYTES).next_multiple_of(page);
        TablePlaces { table, copy: file_bytes - BEGINNING_BYTES - bytes, file_bytes }
    }

    /// Returns the words that lead to the table at an offset, and the table.
    pub(crate) fn encode(&self, store: u64, segment: SegmentNumber, offset: u64) -> [Vec<u8>; 2] {
        let lead = [offset, self.0.len() as u64].map(u64::to_le_bytes).concat();
        let mut table = Vec::with_capacity(self.0.len() * ENTRY_BYTES + CRC_BYTES);
        for (old, new) in &self.0 {
            table.extend_from_slice(&old.to_le_bytes());
            table.extend_from_slice(&new.to_le_bytes());
        }
        let crc = crc_of(store, segment, &lead, &table);
        table.extend_from_slice(&crc.to_le_bytes());
        [lead, table]
    }

    /// Reads a table and its checksum. Returns `None` if they are damaged.
    pub(super) fn decode(
        store: u64,
        segment: SegmentNumber,
        lead: &[u8],
        bytes: &[u8],
    ) -> Option<Table> {
        let (entries, crc) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
        if crc_of(store, segment, lead, entries) != u32_at(crc, 0)? {
            return None;
        }
        let entry = |bytes: &[u8]| Some((u32_at(bytes, 0)?, u32_at(bytes, 4)?));
        entries.chunks_exact(ENTRY_BYTES).map(entry).collect::<Option<Vec<_>>>().map(Table)
    }
}

fn crc_of(store: u64, segment: SegmentNumber, lead: &[u8], entries: &[u8]) -> u32 {
    let address = [store, segment.0].map(u64::to_le_bytes);
    let crc = checksum::crc32c_append(checksum::crc32c(address.as_flattened()), lead);
    checksum::crc32c_append(crc, entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_leads_to_what_was_kept_and_damage_of_any_bit_is_told() {
        let (store, segment) = (7, SegmentNumber(3));
        let mut table = Table::default();
        for (old, new) in [(4096, 4096), (5000, 4200), (1 << 30, 6000)] {
            assert!(table.push(old, new));
        }
        assert!(!table.push(1 << 32, 9000), "that offset is too large");
        let [lead, bytes] = table.encode(store, segment, 8192);
        let place = Lead::decode(&lead).expect("whole");
        assert_eq!(place.bytes(1 << 20), Some(bytes.len()));
        let copy = 12288 - 48 - bytes.len() as u64;
        assert_eq!(table.places(8192), TablePlaces { table: 48, copy, file_bytes: 12288 });
        let mut large = Table::default();
        (0..506).for_each(|number| assert!(large.push(4096 + 100 * number, 4096 + 50 * number)));
        let copy = 12288 + 8192 - 48 - (506 * 8 + 4);
        let places = TablePlaces { table: 8192, copy, file_bytes: 20480 };
        assert_eq!(large.places(8192), places, "the copy is in pages of its own");
        assert_eq!(place.bytes(8192 + bytes.len() as u64 - 1), None, "the file is shorter");
        let read = Table::decode(store, segment, &lead, &bytes).expect("whole");
        assert_eq!(read.find(5000), Some(4200));
        assert_eq!(read.find(1 << 30), Some(6000));
        assert_eq!([4097, 4200, 6000, 1 << 32].map(|old| read.find(old)), [None; 4]);
        assert_eq!(read.all().count(), 3);
        let is_read =
            |lead: &[u8], bytes: &[u8]| Table::decode(store, segment, lead, bytes).is_some();
        for bit in 0..8 * (lead.len() + bytes.len()) {
            let mut all = [&lead[..], &bytes].concat();
            all[bit / 8] ^= 1 << (bit % 8);
            let (lead, bytes) = all.split_at(lead.len());
            assert!(!is_read(lead, bytes), "bit {bit}");
        }
        assert!(!is_read(&lead, &[]));
        assert!(Table::decode(8, segment, &lead, &bytes).is_none(), "of another store");
    }
}
