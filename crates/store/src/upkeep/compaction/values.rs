//! Writer of values that a flush or a compaction moves into segments of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::StoreError;
use crate::names;
use crate::policy::Classes;
use crate::segment::record::{Draft, Record};
use crate::segment::{FIRST_RECORD, Segment};
use crate::types::{KvsId, RecordPlace, SegmentNumber};
use crate::upkeep::charging::Traffic;
use crate::upkeep::context::CompactionContext;
use crate::upkeep::tiering::ValueMove;
use crate::version::view::View;
use crate::volumes::{MoveCause, OpenVolume};

/// Bytes of a segment for more records than were expected.
const MORE_BYTES: u64 = 64 << 10;

/// Writer of moved records.
pub(crate) struct ValueWriter<'a> {
    context: CompactionContext<'a>,
    kvs: KvsId,
    /// Bytes of records that are still expected.
    left: u64,
    segments: Vec<Arc<Segment>>,
    /// Segments with room, one for each choice of classes. Hot values have segments of their own.
    open: Vec<OpenSegment>,
    /// Volumes of all segments, by number.
    volumes: BTreeMap<u32, Arc<OpenVolume>>,
    /// Segments of hot values.
    hot: Vec<SegmentNumber>,
    traffic: Traffic,
    read: Vec<u8>,
    written: Vec<u8>,
}

struct OpenSegment {
    to: Classes,
    is_hot: bool,
    place: Arc<OpenVolume>,
    segment: Arc<Segment>,
    used: u64,
}

impl<'a> ValueWriter<'a> {
    /// Creates a writer for about so many bytes of records.
    pub(crate) fn new(context: CompactionContext<'a>, kvs: KvsId, bytes: u64) -> ValueWriter<'a> {
        ValueWriter {
            context,
            kvs,
            left: bytes,
            segments: Vec::new(),
            open: Vec::new(),
            volumes: BTreeMap::new(),
            hot: Vec::new(),
            traffic: Traffic::default(),
            read: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Copies a record of a view to the destination of its move. Returns the new position: the old
    /// one if the record cannot be read, which then stays for those who repair the store.
    pub(crate) fn copy(
        &mut self,
        view: &View,
        place: RecordPlace,
        ValueMove { to, cause, .. }: ValueMove,
    ) -> Result<RecordPlace, StoreError> {
        let mut read = std::mem::take(&mut self.read);
        let record = match view.segment(place.segment)?.record(place, &mut read) {
            Err(error) if !error.is_of_surroundings() => {
                self.context.background.damaged_segments.add(place.segment, error);
                return Ok(place);
            }
            record => record?,
        };
        let Record { header, key, expiry, value } = record;
        let draft = Draft { kind: header.kind, kvs: self.kvs, expiry, key, value };
        let bytes = draft.bytes();
        let at = self.with_room(to, cause == MoveCause::Hot, bytes)?;
        let open = &mut self.open[at];
        let (segment, offset) = (&open.segment, open.used);
        self.written.clear();
        draft.encode(segment.address(offset), header.sequence, false, &mut self.written);
        assert!(
            bytes == u64::from(place.bytes) && offset + bytes <= segment.len(),
            "a record of {} bytes takes {bytes} at {offset} of segment {}, which has {}",
            place.bytes,
            segment.number().0,
            segment.len(),
        );
        segment.write(offset, &self.written)?;
        open.used += bytes;
        self.left = self.left.saturating_sub(bytes);
        open.place.life.written.moved[cause as usize].fetch_add(bytes, Relaxed);
        let to = RecordPlace { segment: segment.number(), offset, bytes: place.bytes };
        debug_assert!(
            segment.record(to, &mut Vec::new()).is_ok_and(|it| (it.key, it.value) == (key, value)),
            "{place:?} is another record at {to:?}",
        );
        self.traffic.wrote(open.place.class, bytes);
        if let Some(class) = self.context.files.class_of(place.segment) {
            self.traffic.read(class, bytes);
        }
        self.read = read;
        Ok(to)
    }

    /// Returns the index of an open segment that has room for a record.
    fn with_room(&mut self, to: Classes, is_hot: bool, bytes: u64) -> Result<usize, StoreError> {
        let found = self.open.iter().position(|open| open.to == to && open.is_hot == is_hot);
        if let Some(at) = found
            && self.open[at].segment.len() - self.open[at].used >= bytes
        {
            return Ok(at);
        }
        // Unused room of the segment would count as dead, and cause a compaction of its own.
        let left = if self.left > 0 { self.left } else { MORE_BYTES };
        let len = (FIRST_RECORD + left).min(self.context.options.segment_bytes);
        let len = len.max(FIRST_RECORD + bytes).next_multiple_of(4096);
        let (place, segment) = self.context.files.make_value_segment(to, len)?;
        let segment = Arc::new(segment);
        self.segments.push(segment.clone());
        self.volumes.insert(place.number, place.clone());
        if is_hot {
            self.hot.push(segment.number());
        }
        let open = OpenSegment { to, is_hot, place, segment, used: FIRST_RECORD };
        match found {
            Some(at) => {
                self.open[at] = open;
                Ok(at)
            }
            None => {
                self.open.push(open);
                Ok(self.open.len() - 1)
            }
        }
    }

    /// Returns the bytes of the segments so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Returns the traffic so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Makes the segments durable, names included, and returns them.
    pub(crate) fn finish(mut self) -> Result<Vec<Arc<Segment>>, StoreError> {
        self.segments.iter().try_for_each(|segment| segment.persist(0, segment.len()))?;
        // Only these volumes are synced: others may be slow.
        self.volumes.values().try_for_each(|place| place.sync_names())?;
        self.hot.drain(..).for_each(|number| self.context.background.read_frequency.keep(number));
        Ok(std::mem::take(&mut self.segments))
    }
}

impl Drop for ValueWriter<'_> {
    fn drop(&mut self) {
        for segment in self.segments.drain(..) {
            // No manifest names the segment. If it cannot be removed, the next opening removes it.
            let _ = self.context.files.volumes.remove(&names::of_segment(segment.number()));
        }
    }
}
