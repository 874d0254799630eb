//! The log's segments as a chain, of which some may lie in volumes that are missing.

use crate::types::SegmentNumber;

/// How far the chain was followed, and whether its end was seen: a segment that is sealed says
/// that another follows or may follow, whose number is the next one, or a later one where segments
/// behind the end of the log were removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    /// The number of the segment that follows if none was removed.
    next: SegmentNumber,
    /// Whether the log is known to end where it was found to.
    pub(crate) is_over: bool,
}

impl Chain {
    /// One that begins with a segment.
    pub(crate) fn from(first: SegmentNumber) -> Chain {
        Chain { next: first, is_over: false }
    }

    /// The number of the segment that follows if none was removed.
    pub(crate) fn next(&self) -> SegmentNumber {
        self.next
    }

    /// Notes that a segment was sealed.
    pub(crate) fn goes_on_behind(&mut self, segment: SegmentNumber) {
        self.next = SegmentNumber(segment.0 + 1);
    }

    /// Notes that the log was found to end in a segment. If that has none of its writes, and does
    /// not follow at once on the one before, others may stand between.
    pub(crate) fn ends_in(&mut self, segment: SegmentNumber, has_writes: bool) {
        self.is_over = has_writes || segment == self.next;
    }
}
