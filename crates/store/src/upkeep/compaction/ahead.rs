//! Entries that a merge has taken and not written yet: of values that move, which lie anywhere in
//! the order of keys, several are read at once.

use std::ops::Range;

use crate::types::{Expiry, RecordPlace, Sequence, Value};
use crate::upkeep::tiering::Move;
use crate::version::view::View;

/// So many entries are taken before the first value is waited for, and so many bytes of values.
const ENTRIES_MAX: usize = 32;
const MOVED_BYTES_MAX: u64 = 256 << 10;

/// Entries in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    entries: Vec<Next>,
    /// Keys, and values beside them.
    bytes: Vec<u8>,
    moved_bytes: u64,
    /// What is read by beginning to read, if it is in memory: it is read again.
    read: Vec<u8>,
}

/// An entry that is going to be written.
#[derive(Debug)]
struct Next {
    key: Range<usize>,
    sequence: Sequence,
    expiry: Expiry,
    value: Lies,
}

/// Where a value is.
#[derive(Debug)]
enum Lies {
    Gone,
    /// Among the bytes.
    Here(Range<usize>),
    /// In a record, which stays or moves.
    Apart(RecordPlace, Option<Move>),
}

/// An entry that is to be written now.
pub(super) struct Due<'a> {
    pub(super) key: &'a [u8],
    pub(super) sequence: Sequence,
    pub(super) expiry: Expiry,
    pub(super) value: Value<'a>,
    /// Where the value, which lies apart, is to move.
    pub(super) to: Option<Move>,
}

impl Ahead {
    /// Whether what was taken is to be written.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.moved_bytes >= MOVED_BYTES_MAX
    }

    /// Adds an entry, and begins to read its value if that is to move.
    pub(super) fn add(&mut self, view: &View, due: &Due<'_>) {
        let Due { key, sequence, expiry, value, to } = due;
        let key = self.keep(key);
        let value = match value {
            Value::Gone => Lies::Gone,
            Value::Inline(value) => Lies::Here(self.keep(value)),
            Value::Apart(place) => {
                if to.is_some() {
                    self.begin(view, *place);
                }
                Lies::Apart(*place, *to)
            }
        };
        self.entries.push(Next { key, sequence: *sequence, expiry: *expiry, value });
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len()
    }

    fn begin(&mut self, view: &View, place: RecordPlace) {
        let bytes = u64::from(place.bytes);
        self.moved_bytes += bytes;
        // Whatever fails is told by who reads it in the end. A large one is a read of its own.
        if bytes < MOVED_BYTES_MAX
            && let Ok(segment) = view.segment(place.segment)
            && segment.may_wait()
        {
            self.read.clear();
            segment.begin_read(place.offset, place.bytes as usize, &mut self.read);
        }
    }

    /// All entries, in their order.
    pub(super) fn due(&self) -> impl Iterator<Item = Due<'_>> {
        let bytes = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        self.entries.iter().map(move |Next { key, sequence, expiry, value }| {
            let (value, to) = match value {
                Lies::Gone => (Value::Gone, None),
                Lies::Here(value) => (Value::Inline(bytes(value)), None),
                Lies::Apart(place, to) => (Value::Apart(*place), *to),
            };
            Due { key: bytes(key), sequence: *sequence, expiry: *expiry, value, to }
        })
    }

    /// Forgets all entries.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.moved_bytes = 0;
    }
}
