//! What is kept of a key: its versions, and where a value lies.

use entresol_base::Seconds;

/// The number of a write: of two writes the later one has the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Above all that there are.
    pub const MAX: Sequence = Sequence(u64::MAX);
}

/// The number of a `Kvs` in its `Kvdb`; never used again for another.
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
