//! Read-ahead of a compaction: versions it has taken but not written yet. Values that move lie
//! scattered in the order of keys, so several are read at once.

use std::ops::Range;

use crate::types::{Expiry, RecordPlace, Sequence, Value};
use crate::upkeep::tiering::ValueMove;
use crate::version::view::View;

/// Versions taken, and bytes of their moving values, before the compaction waits for the first
/// value.
const ENTRIES_MAX: usize = 32;
const MOVED_BYTES_MAX: u64 = 256 << 10;

/// Versions in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    entries: Vec<TakenEntry>,
    /// Keys, and values that lie beside them.
    bytes: Vec<u8>,
    moved_bytes: u64,
    /// Buffer for values that turn out to be in memory. They are read again later.
    read: Vec<u8>,
}

/// Version that is to be written.
#[derive(Debug)]
struct TakenEntry {
    key: Range<usize>,
    sequence: Sequence,
    expiry: Expiry,
    value: DuePlace,
}

/// Position of a version's value.
#[derive(Debug)]
enum DuePlace {
    Gone,
    /// Range of the bytes of [`Ahead`].
    Here(Range<usize>),
    /// Record, which stays or moves.
    Apart(RecordPlace, Option<ValueMove>),
}

/// Version that is to be written now.
pub(super) struct Due<'a> {
    pub(super) key: &'a [u8],
    pub(super) sequence: Sequence,
    pub(super) expiry: Expiry,
    pub(super) value: Value<'a>,
    /// Move of the value, if it lies in a record and moves.
    pub(super) to: Option<ValueMove>,
}

impl Ahead {
    /// Returns true if the versions taken are to be written now.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.moved_bytes >= MOVED_BYTES_MAX
    }

    /// Adds a version, and begins to read its value if that moves.
    pub(super) fn add(&mut self, view: &View, due: &Due<'_>) {
        let Due { key, sequence, expiry, value, to } = due;
        let key = self.keep(key);
        let value = match value {
            Value::Gone => DuePlace::Gone,
            Value::Inline(value) => DuePlace::Here(self.keep(value)),
            Value::Apart(place) => {
                if to.is_some() {
                    self.begin(view, *place);
                }
                DuePlace::Apart(*place, *to)
            }
        };
        self.entries.push(TakenEntry { key, sequence: *sequence, expiry: *expiry, value });
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len()
    }

    fn begin(&mut self, view: &View, place: RecordPlace) {
        let bytes = u64::from(place.bytes);
        self.moved_bytes += bytes;
        // The read that waits for the value reports failures. A large value is a read of its own.
        if bytes < MOVED_BYTES_MAX
            && let Ok(segment) = view.segment(place.segment)
            && segment.may_wait()
            && let Ok(offset) = segment.locate(place.offset)
        {
            self.read.clear();
            segment.begin_read(offset, place.bytes as usize, &mut self.read);
        }
    }

    /// Returns all versions in order.
    pub(super) fn due(&self) -> impl Iterator<Item = Due<'_>> {
        let bytes = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        self.entries.iter().map(move |TakenEntry { key, sequence, expiry, value }| {
            let (value, to) = match value {
                DuePlace::Gone => (Value::Gone, None),
                DuePlace::Here(value) => (Value::Inline(bytes(value)), None),
                DuePlace::Apart(place, to) => (Value::Apart(*place), *to),
            };
            Due { key: bytes(key), sequence: *sequence, expiry: *expiry, value, to }
        })
    }

    /// Forgets all versions.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.moved_bytes = 0;
    }
}
