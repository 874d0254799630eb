//! Toy log: contiguous records, and a word that holds the end of the committed ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use entresol_base::checksum;
use entresol_media::Region;

use super::{Map, Plant};

const LINE_BYTES: u64 = 64;
/// Offset of the first record; the commit word at offset 0 has a line of its own.
const FIRST_RECORD: u64 = LINE_BYTES;
/// Smallest size of a record: checksum and length of four bytes each, key, value.
const RECORD_BYTES_MIN: usize = 24;
/// Largest size of a record that is written through the caches; longer ones go past them.
const CACHED_BYTES_MAX: usize = 128;

/// Toy log in a region. A removed key has the value zero.
pub(in super::super) struct Log<R> {
    region: Arc<R>,
    end: u64,
    records: BTreeMap<u64, u64>,
    plant: Option<Plant>,
}

impl<R: Region> Log<R> {
    /// Returns the range of the records.
    pub(in super::super) fn records(&self) -> std::ops::Range<u64> {
        FIRST_RECORD..self.end
    }

    fn append(&mut self, key: u64, value: u64) -> Result<(), String> {
        let record = encode(key, value);
        let after = self.end + record.len() as u64;
        if after > self.region.len() {
            return Err("the region is full".to_owned());
        }
        if self.plant == Some(Plant::WrongOrder) {
            self.commit(after);
        }
        if record.len() > CACHED_BYTES_MAX {
            self.region.write_streaming(self.end, &record);
        } else {
            self.region.write(self.end, &record);
            self.flush(self.end, record.len());
        }
        if self.plant != Some(Plant::MissingFence) {
            self.region.drain();
        }
        if self.plant != Some(Plant::WrongOrder) {
            self.commit(after);
        }
        self.end = after;
        Ok(())
    }

    fn flush(&self, at: u64, len: usize) {
        let to_border = (LINE_BYTES - at % LINE_BYTES) as usize;
        match self.plant {
            Some(Plant::MissingFlush) => {}
            Some(Plant::MissingFlushAtBorder) => self.region.flush(at, len.min(to_border)),
            _ => self.region.flush(at, len),
        }
    }

    fn commit(&self, end: u64) {
        self.region.store_u64(0, end, Release);
        if self.plant != Some(Plant::MissingLastFlush) {
            self.region.flush(0, 8);
        }
        self.region.drain();
    }
}

/// Encodes a record, whose length depends on its key.
fn encode(key: u64, value: u64) -> Vec<u8> {
    let more = (key % 5) as usize * 40;
    let mut record = vec![value as u8; RECORD_BYTES_MIN + more];
    record[4..8].copy_from_slice(&(RECORD_BYTES_MIN as u32 + more as u32).to_le_bytes());
    record[8..16].copy_from_slice(&key.to_le_bytes());
    record[16..24].copy_from_slice(&value.to_le_bytes());
    let crc = checksum::crc32c(&record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record
}

/// Decodes the record at `at` and returns its length, key and value.
fn decode<R: Region>(region: &R, at: u64, end: u64) -> Result<(u64, u64, u64), String> {
    let damaged = || format!("the record at {at} is damaged");
    let len = u64::from(region.load_u32(at + 4, Acquire));
    if len < RECORD_BYTES_MIN as u64 || len > end - at {
        return Err(damaged());
    }
    let mut record = vec![0; len as usize];
    region.read(at, &mut record);
    let word = |at: usize| record[at..at + 8].iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
    let crc = word(0) as u32;
    if !checksum::matches(crc, &record[4..]) {
        return Err(damaged());
    }
    Ok((len, word(8), word(16)))
}

impl<R: Region> Map<R> for Log<R> {
    fn open(region: Arc<R>, plant: Option<Plant>) -> Result<Log<R>, String> {
        let end = region.load_u64(0, Acquire).max(FIRST_RECORD);
        if end > region.len() || !end.is_multiple_of(8) {
            return Err(format!("records up to {end}, which is outside"));
        }
        let (mut at, mut records) = (FIRST_RECORD, BTreeMap::new());
        while at < end {
            let (len, key, value) = decode(&*region, at, end)?;
            records.insert(key, value);
            at += len;
        }
        Ok(Log { region, end, records, plant })
    }

    fn put(&mut self, key: u64, value: u64) -> Result<(), String> {
        self.append(key, value)
    }

    fn remove(&mut self, key: u64) -> Result<(), String> {
        self.append(key, 0)
    }

    fn each(&self, with: &mut dyn FnMut(u64, u64)) {
        let there = self.records.iter().filter(|(_, value)| **value != 0);
        there.for_each(|(&key, &value)| with(key, value));
    }
}
