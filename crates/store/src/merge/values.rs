//! Values that are moved, into segments of their own.

use std::sync::Arc;

use crate::StoreError;
use crate::entry::{KvsId, RecordPlace};
use crate::inner::Inner;
use crate::log::record::{Draft, Record};
use crate::log::segment::{self, FIRST_RECORD, Segment};
use crate::view::View;

/// Writes records that stood elsewhere.
pub(super) struct ValueWriter<'a> {
    inner: &'a Inner,
    kvs: KvsId,
    segments: Vec<Arc<Segment>>,
    used: u64,
    copied: u64,
    read: Vec<u8>,
    written: Vec<u8>,
}

impl<'a> ValueWriter<'a> {
    pub(super) fn new(inner: &'a Inner, kvs: KvsId) -> ValueWriter<'a> {
        let (read, written) = (Vec::new(), Vec::new());
        ValueWriter { inner, kvs, segments: Vec::new(), used: 0, copied: 0, read, written }
    }

    /// Writes the record that lies at a place in a view once more; answers where.
    pub(super) fn copy(
        &mut self,
        view: &View,
        place: RecordPlace,
    ) -> Result<RecordPlace, StoreError> {
        let record = view.segment(place.segment)?.record(place, &mut self.read)?;
        let Record { header, key, expiry, value } = record;
        let draft = Draft { kind: header.kind, kvs: self.kvs, expiry, key, value };
        let bytes = draft.bytes();
        let room = self.segments.last().map_or(0, |segment| segment.len() - self.used);
        if bytes > room {
            let needed = (FIRST_RECORD + bytes).next_multiple_of(4096);
            let len = needed.max(self.inner.options.segment_bytes);
            self.segments.push(Arc::new(self.inner.make_value_segment(len)?));
            self.used = FIRST_RECORD;
        }
        let Some(segment) = self.segments.last() else {
            return Err(StoreError::NoSegment { number: place.segment.0 });
        };
        let offset = self.used;
        self.written.clear();
        draft.encode(segment.address(offset), header.sequence, false, &mut self.written);
        segment.write(offset, &self.written)?;
        self.used += bytes;
        self.copied += bytes;
        Ok(RecordPlace { segment: segment.number(), offset, bytes: place.bytes })
    }

    /// The bytes of all records that were copied.
    pub(super) fn bytes(&self) -> u64 {
        self.copied
    }

    /// Makes what was written durable.
    pub(super) fn finish(mut self) -> Result<Vec<Arc<Segment>>, StoreError> {
        self.segments.iter().try_for_each(|segment| segment.persist(0, segment.len()))?;
        Ok(std::mem::take(&mut self.segments))
    }
}

impl Drop for ValueWriter<'_> {
    fn drop(&mut self) {
        for segment in self.segments.drain(..) {
            // Nobody knows of it; where it cannot be removed, the next opening does it.
            let _ = self.inner.directory.remove(&segment::file_name(segment.number()));
        }
    }
}
