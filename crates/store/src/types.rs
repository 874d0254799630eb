//! Identifiers, times and positions of keys, versions and values.

use entresol_base::Seconds;

/// Bytes of a page. Every block of a run is whole pages.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Number of a write. Of two writes, the later one has the greater number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Number above that of every write.
    pub const MAX: Sequence = Sequence(u64::MAX);
}

/// Number of a `Kvs` in its `Kvdb`. A number is reused only after all numbers have been used, and
/// only once nothing is left of the `Kvs` that had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvsId(pub u32);

/// Number of a segment in its `Kvdb`, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// First number of segments outside the log. Their values were copied from other segments.
    pub const FIRST_OF_VALUES: SegmentNumber = SegmentNumber(1 << 62);

    /// Returns true if the segment is part of the log, which writes land in.
    #[must_use]
    pub fn is_of_log(self) -> bool {
        self < Self::FIRST_OF_VALUES
    }
}

/// Number of a sorted run in its `Kvdb`, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNumber(pub u64);

/// Identity of a run's contents, computed from all that is in the run. It tells a run from runs of
/// the same number in other stores, and in a copy of this store that has changed independently.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Mark(pub(crate) u64);

impl Mark {
    /// Mark of runs that were written before there were marks.
    pub(crate) const NONE: Mark = Mark(0);

    /// Returns true if a run with the mark `found` may be the run of this mark.
    pub(crate) fn may_be(self, found: Mark) -> bool {
        self == Mark::NONE || self == found
    }
}

/// Time at which a version expires, in seconds since 1970; 0 means never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// Time of a version that never expires.
    pub const NEVER: Expiry = Expiry(0);

    /// Returns true if the version has expired at the time `now`.
    #[must_use]
    pub fn is_over(self, now: Seconds) -> bool {
        self != Expiry::NEVER && self.0 <= now.0
    }
}

/// Location of a value's record in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordPlace {
    /// Segment that holds the record.
    pub segment: SegmentNumber,
    /// Offset in the segment at which the record begins.
    pub offset: u64,
    /// Length of the record in bytes, header and key included.
    pub bytes: u32,
}

/// State that a version gives its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Location of the record that holds the value.
    Apart(RecordPlace),
    /// A tombstone: the key is deleted.
    Gone,
}

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Number of the write that made the version.
    pub sequence: Sequence,
    /// Time at which the version expires.
    pub expiry: Expiry,
    /// State of the key.
    pub value: Value<'a>,
}

/// Version of a key. A value that lay beside its key was appended to the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
    pub(crate) value: ValuePlace,
}

/// Position of a version's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValuePlace {
    /// Beside the key, or in the reader's buffer.
    Here,
    /// Record of a segment.
    Apart(RecordPlace),
    /// Nowhere: the version is a tombstone.
    Gone,
}

impl ValuePlace {
    /// Returns the position of a value in a run, for a caller that has the run at hand.
    pub(crate) fn at(value: Value<'_>) -> ValuePlace {
        match value {
            Value::Inline(_) => ValuePlace::Here,
            Value::Apart(place) => ValuePlace::Apart(place),
            Value::Gone => ValuePlace::Gone,
        }
    }

    /// Returns the position of a value in a run. A value beside its key is appended to `out`.
    pub(crate) fn of(value: Value<'_>, out: &mut Vec<u8>) -> ValuePlace {
        if let Value::Inline(value) = value {
            out.extend_from_slice(value);
        }
        ValuePlace::at(value)
    }
}
