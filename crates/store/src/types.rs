//! What is kept of a key: its versions, and where a value lies.

use entresol_base::Seconds;

/// Every block of a run is whole pages of so many bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The number of a write: of two writes the later one has the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Above all that there are.
    pub const MAX: Sequence = Sequence(u64::MAX);
}

/// The number of a `Kvs` in its `Kvdb`; used again for another only when all numbers were used, and
/// nothing is left of the one that had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvsId(pub u32);

/// The number of a segment in its `Kvdb`; never used again for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// From here on segments are no part of the log: their values come from others.
    pub const FIRST_OF_VALUES: SegmentNumber = SegmentNumber(1 << 62);

    /// Whether writes land in it.
    #[must_use]
    pub fn is_of_log(self) -> bool {
        self < Self::FIRST_OF_VALUES
    }
}

/// The number of a sorted run in its `Kvdb`; never used again for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNumber(pub u64);

/// What tells a run from others of its number: those of other stores, and of a copy of its store
/// that went on by itself. It follows from all that is in the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Mark(pub(crate) u64);

impl Mark {
    /// That of runs from before there were marks.
    pub(crate) const NONE: Mark = Mark(0);

    /// Whether a run that bears `found` may be the one with this mark.
    pub(crate) fn may_be(self, found: Mark) -> bool {
        self == Mark::NONE || self == found
    }
}

/// When a version ends, in seconds since 1970; 0 is never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// Not at all.
    pub const NEVER: Expiry = Expiry(0);

    /// Whether a version has ended at a time.
    #[must_use]
    pub fn is_over(self, now: Seconds) -> bool {
        self != Expiry::NEVER && self.0 <= now.0
    }
}

/// Where the record of a value lies in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordPlace {
    /// In which segment.
    pub segment: SegmentNumber,
    /// Where in it the record begins.
    pub offset: u64,
    /// The record's bytes, header and key included.
    pub bytes: u32,
}

/// What a version of a key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The key has this value.
    Inline(&'a [u8]),
    /// The key has the value of this record.
    Apart(RecordPlace),
    /// The key is gone.
    Gone,
}

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Which write it was.
    pub sequence: Sequence,
    /// When it ends.
    pub expiry: Expiry,
    /// What it says.
    pub value: Value<'a>,
}

/// A version that was found. Its value, if it lies beside its key, was appended to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
    pub(crate) value: ValuePlace,
}

/// Where the value of a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValuePlace {
    /// In the buffer, or beside its key.
    Here,
    /// In a record.
    Apart(RecordPlace),
    /// Nowhere: the key is gone.
    Gone,
}

impl ValuePlace {
    /// Where a value is that a run has said, if who asks knows the run.
    pub(crate) fn at(value: Value<'_>) -> ValuePlace {
        match value {
            Value::Inline(_) => ValuePlace::Here,
            Value::Apart(place) => ValuePlace::Apart(place),
            Value::Gone => ValuePlace::Gone,
        }
    }

    /// Where a value is that a run has said; one beside its key is appended to `out`.
    pub(crate) fn of(value: Value<'_>, out: &mut Vec<u8>) -> ValuePlace {
        if let Value::Inline(value) = value {
            out.extend_from_slice(value);
        }
        ValuePlace::at(value)
    }
}
