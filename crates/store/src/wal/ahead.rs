//! Enters the records of a log that recovery reads into a generation, a few records late. Meanwhile
//! the processor fetches the cache lines of the hash table that they go to, hardly one of which is
//! in its cache.

use std::collections::VecDeque;

use super::record::{Draft, Kind, Record};
use crate::StoreError;
use crate::memtable::Generation;
use crate::types::{Expiry, KvsId, RecordPlace, Sequence};

/// Number of records that wait.
const RECORDS: usize = 16;

/// Records that are not entered yet, in their order.
#[derive(Debug, Default)]
pub(super) struct Ahead(VecDeque<Waiting>);

#[derive(Debug)]
struct Waiting {
    kind: Kind,
    kvs: KvsId,
    key: Vec<u8>,
    hash: u64,
    sequence: Sequence,
    segment: u32,
    offset: u64,
}

impl Ahead {
    /// Queues a record, and enters the oldest one of a full queue into the generation.
    ///
    /// # Errors
    /// Fails if an earlier record cannot be entered.
    pub(super) fn enter(
        &mut self,
        generation: &Generation,
        segment: u32,
        (place, record): &(RecordPlace, Record<'_>),
    ) -> Result<(), StoreError> {
        let mut key = match self.0.len() {
            0..RECORDS => Vec::new(),
            _ => self.enter_oldest(generation)?,
        };
        key.clear();
        key.extend_from_slice(record.key);
        let Record { header, expiry, .. } = *record;
        let draft = Draft { kind: header.kind, kvs: header.kvs, expiry, key: &key, value: &[] };
        let hash = generation.prepare(&draft);
        self.0.push_back(Waiting {
            kind: header.kind,
            kvs: header.kvs,
            key,
            hash,
            sequence: header.sequence,
            segment,
            offset: place.offset,
        });
        Ok(())
    }

    /// Enters all records that wait.
    ///
    /// # Errors
    /// Fails if one of them cannot be entered.
    pub(super) fn finish(&mut self, generation: &Generation) -> Result<(), StoreError> {
        while !self.0.is_empty() {
            self.enter_oldest(generation)?;
        }
        Ok(())
    }

    /// Enters the oldest record. Returns the buffer of its key for another use.
    fn enter_oldest(&mut self, generation: &Generation) -> Result<Vec<u8>, StoreError> {
        let Some(waiting) = self.0.pop_front() else { return Ok(Vec::new()) };
        let Waiting { kind, kvs, key, hash, sequence, segment, offset } = waiting;
        // The memtable needs the location of the value, not its bytes.
        let draft = Draft { kind, kvs, expiry: Expiry::NEVER, key: &key, value: &[] };
        generation.enter((&draft, hash), sequence, segment, offset)?;
        Ok(key)
    }
}
