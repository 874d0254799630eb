//! The chain of the log's segments, some of which may lie on volumes that are missing.

use crate::types::SegmentNumber;

/// Progress along the chain of segments. A sealed segment says that another one may follow. That
/// one has the next number, or a later one where segments behind the end of the log were removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    /// Number of the segment that follows if none was removed.
    next: SegmentNumber,
    /// True if the log is known to end where it was found to.
    pub(crate) is_over: bool,
}

impl Chain {
    /// Creates a chain that begins with a segment.
    pub(crate) fn from(first: SegmentNumber) -> Chain {
        Chain { next: first, is_over: false }
    }

    /// Returns the number of the segment that follows if none was removed.
    pub(crate) fn next(&self) -> SegmentNumber {
        self.next
    }

    /// Notes that a segment was sealed.
    pub(crate) fn goes_on_behind(&mut self, segment: SegmentNumber) {
        self.next = SegmentNumber(segment.0 + 1);
    }

    /// Notes that the log was found to end in a segment. If the segment has none of the log's
    /// writes, and is not the next one, others may be missing in between.
    pub(crate) fn ends_in(&mut self, segment: SegmentNumber, has_writes: bool) {
        self.is_over = has_writes || segment == self.next;
    }
}
