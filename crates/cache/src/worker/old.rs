//! Old items that a write depends on.

use std::sync::atomic::Ordering;

use crate::index::Found;
use crate::ops::{ItemMeta, PendingRead};
use crate::record::{Head, mark};
use crate::shared::items::Refusal;
use crate::shared::records::Records;
use crate::shared::space::Seen;
use crate::worker::pin::Pin;

/// An item as it was read for an operation that depends on it.
pub(super) struct OldItem {
    pub(super) found: Found,
    pub(super) marks: u32,
    pub(super) meta: ItemMeta,
    pub(super) cas: u64,
    pub(super) head: Head,
    /// The value, if it lies in pieces.
    pub(super) pin: Option<Pin>,
    /// Sequence of the segment that its record is in, if the record's place is not used again as
    /// long as that has not changed.
    pub(super) fixed: Option<u64>,
}

/// Part of an old item that is wanted besides its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Nothing,
    Value,
    /// The value, if it is short enough to be a number.
    Number,
}

/// Result of reading an old item.
pub(super) enum Old {
    Absent,
    /// A number was wanted, but the value is too long to be one. Holds the item's token.
    TooLong(u64),
    Present(OldItem),
    Pending(PendingRead),
}

impl OldItem {
    /// Checks the condition of a write that depends on this item; `NotStored` means «read it
    /// again».
    pub(super) fn is_unchanged(&self, seen: &Seen, records: &Records) -> Result<(), Refusal> {
        const RELEVANT: u32 = 0xFF << 24 & !mark::CAS_SEEN;
        match seen {
            Seen::Live(found, head)
                if self.is_same(found, head, records)
                    && head.marks & RELEVANT == self.marks & RELEVANT
                    && head.expiry(&records.arena) == self.meta.expiry =>
            {
                Ok(())
            }
            _ => Err(Refusal::NotStored),
        }
    }

    /// Returns true if it is one and the same item, with the same value.
    #[inline]
    fn is_same(&self, found: &Found, head: &Head, records: &Records) -> bool {
        let location = found.location();
        if let Some(pin) = &self.pin {
            return records.leader_of_item(head) == Some(pin.leader())
                && records.cas_of(location, head) == self.cas;
        }
        let has_stayed = |sequence| {
            location == self.found.location()
                && records.segment_at(location).sequence.load(Ordering::SeqCst) == sequence
        };
        found.is_still(&self.found) || self.fixed.is_some_and(has_stayed)
    }
}
