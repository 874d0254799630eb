//! Entering the records of a log that is read, each a few behind the one that is looked at: the
//! lines of the table that they go to, of which hardly one is in the processor's cache, are fetched
//! meanwhile.

use std::collections::VecDeque;

use crate::StoreError;
use crate::memtable::Generation;
use crate::segment::record::{Draft, Kind, Record};
use crate::types::{Expiry, KvsId, RecordPlace, Sequence};

/// So many records wait.
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
    /// Enters a record into a generation, in its turn.
    ///
    /// # Errors
    /// If an earlier one cannot be entered.
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

    /// Enters all that wait.
    ///
    /// # Errors
    /// If one cannot be entered.
    pub(super) fn finish(&mut self, generation: &Generation) -> Result<(), StoreError> {
        while !self.0.is_empty() {
            self.enter_oldest(generation)?;
        }
        Ok(())
    }

    /// Answers what its key was kept in.
    fn enter_oldest(&mut self, generation: &Generation) -> Result<Vec<u8>, StoreError> {
        let Some(waiting) = self.0.pop_front() else { return Ok(Vec::new()) };
        let Waiting { kind, kvs, key, hash, sequence, segment, offset } = waiting;
        // Of the value nothing is entered but where it is.
        let draft = Draft { kind, kvs, expiry: Expiry::NEVER, key: &key, value: &[] };
        generation.enter((&draft, hash), sequence, segment, offset)?;
        Ok(key)
    }
}
