//! The quotas of DRAM and of the medium, and what they are used for: segments, pages of records,
//! the index's table, ghost tags, and what is used for the life of the cache.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use entresol_base::ByteSize;

use crate::config::plan::Plan;
use crate::error::ResizeError;
use crate::segment::Quota;

/// Granularity in which the DRAM of records whose values lie elsewhere is counted.
pub(crate) const PAGE: u64 = 4096;
/// Granularity in which the DRAM of the index's table is counted.
const TABLE_STEP: u64 = 4096;
/// Segments that upkeep keeps free ahead of writers that have met the end of the quota.
const AHEAD_SEGMENTS: u64 = 2;
/// Part of the DRAM quota that is free when writers are not pressed.
const DRAM_SHARE: u64 = 64;

/// Quotas and their use.
pub(crate) struct Budget {
    dram: Quota,
    medium: Quota,
    medium_capacity: u64,
    /// True if values lie elsewhere than in their records, so that segments use the medium.
    elsewhere: bool,
    segment_bytes: u64,
    /// Segments that are left over for evictions to copy items into.
    spare_segments: u64,
    /// Bytes of DRAM used for the life of the cache: write buffers and metadata.
    fixed_bytes: u64,
    /// Bytes of it for the metadata of as many segments as the first quota holds.
    metadata_bytes: u64,
    /// Bytes of DRAM that are taken for the index's table.
    table_bytes: AtomicU64,
    /// Set when writers have met the end of the quota, so that upkeep makes room ahead of them.
    pressed: AtomicBool,
}

/// Need for room ahead of the writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    None,
    /// Writers will soon meet the end of the quota.
    Ahead,
    /// More is used than a quota, which was lowered, allows.
    Over,
}

impl Budget {
    /// Makes the budget of a cache that holds nothing but this much metadata and table.
    pub(crate) fn new(plan: &Plan, elsewhere: bool, metadata_bytes: u64, table_bytes: u64) -> Self {
        let budget = Budget {
            dram: Quota::new(plan.dram_bytes),
            medium: Quota::new(plan.medium_bytes),
            medium_capacity: plan.medium_capacity,
            elsewhere,
            segment_bytes: plan.segment_bytes,
            spare_segments: plan.spare_segments,
            fixed_bytes: plan.fixed_bytes + metadata_bytes,
            metadata_bytes,
            table_bytes: AtomicU64::new(table_bytes),
            pressed: AtomicBool::new(false),
        };
        budget.dram.force(budget.fixed_bytes + table_bytes);
        budget
    }

    /// Changes the quotas.
    pub(crate) fn resize(&self, dram: ByteSize, medium: ByteSize) {
        self.dram.set_limit(dram.0);
        if self.elsewhere {
            self.medium.set_limit(medium.0);
        }
    }

    /// Checks that the quotas may be changed to these.
    pub(crate) fn check_resize(&self, dram: ByteSize, medium: ByteSize) -> Result<(), ResizeError> {
        Plan::check_resize(self.segment_bytes, self.elsewhere, dram, medium, self.medium_capacity)
    }

    /// Returns the quota that segments are taken from.
    pub(crate) fn of_segments(&self) -> &Quota {
        if self.elsewhere { &self.medium } else { &self.dram }
    }

    /// Takes a segment if one is left, or in any case if the cache may be `over` its quota.
    pub(crate) fn take_segment(&self, over: bool) -> bool {
        let quota = self.of_segments();
        if quota.take(self.segment_bytes) {
            return true;
        }
        if over {
            quota.force(self.segment_bytes);
        }
        over
    }

    pub(crate) fn give_back_segment(&self) {
        self.of_segments().give_back(self.segment_bytes);
    }

    /// Returns true if a segment is left, beside those that evictions copy items into.
    pub(crate) fn has_segment(&self) -> bool {
        self.of_segments().left() >= (1 + self.spare_segments) * self.segment_bytes
    }

    /// Returns the number of segments that the quota holds.
    pub(crate) fn segments(&self) -> u64 {
        self.of_segments().limit() / self.segment_bytes
    }

    /// Returns the number of segments for items that the quota holds beside what it is used for
    /// otherwise; `used` of them are in use.
    pub(crate) fn segments_beside(&self, used: u64) -> u64 {
        let quota = self.of_segments();
        let others = quota.used().saturating_sub(used * self.segment_bytes);
        let segments = quota.limit().saturating_sub(others) / self.segment_bytes;
        segments.saturating_sub(self.spare_segments)
    }

    /// Takes the pages of DRAM for more bytes of records, if values lie elsewhere.
    pub(crate) fn take_pages(&self, used: u64, more: u64) -> bool {
        !self.elsewhere || self.dram.take(pages_between(used, more) * PAGE)
    }

    /// Takes the pages of DRAM for more bytes of records, even if they are not left.
    pub(crate) fn force_pages(&self, used: u64, more: u64) {
        self.dram.force(pages_between(used, more) * PAGE);
    }

    /// Gives back the pages of DRAM for bytes of records behind those that are used.
    pub(crate) fn give_back_pages(&self, used: u64, more: u64) {
        self.dram.give_back(pages_between(used, more) * PAGE);
    }

    /// Takes another step of the index's table.
    pub(crate) fn take_table(&self) -> bool {
        let taken = self.dram.take(TABLE_STEP);
        if taken {
            self.table_bytes.fetch_add(TABLE_STEP, Ordering::Relaxed);
        }
        taken
    }

    /// Returns the bytes that are taken for the index's table.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.table_bytes.load(Ordering::Relaxed)
    }

    /// Gives back what the index's table, now of this many bytes, does not need any more.
    pub(crate) fn trim_table(&self, bytes: u64) {
        let needed = bytes.next_multiple_of(TABLE_STEP);
        let taken = self.table_bytes();
        if taken > needed {
            self.table_bytes.fetch_sub(taken - needed, Ordering::Relaxed);
            self.dram.give_back(taken - needed);
        }
    }

    /// Takes the bytes of a table of ghost tags in the place of another one's.
    pub(crate) fn change_tags(&self, before: u64, bytes: u64) {
        self.dram.force(bytes);
        self.dram.give_back(before);
    }

    /// Returns true if no DRAM is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.dram.left() == 0
    }

    /// Notes that a writer has met the end of the quota.
    pub(crate) fn press(&self) {
        self.pressed.store(true, Ordering::Relaxed);
    }

    /// Returns true if writers have met the end of the quota.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Judges if room must be made ahead of the writers, and notes when they are not pressed any
    /// more.
    pub(crate) fn need(&self) -> Need {
        let quota = self.of_segments();
        if quota.used() > quota.limit() || self.dram.used() > self.dram.limit() {
            return Need::Over;
        }
        let ahead = AHEAD_SEGMENTS * self.segment_bytes;
        if quota.left() < ahead && self.is_pressed() {
            return Need::Ahead;
        }
        let dram_left = !self.elsewhere || self.dram.left() > self.dram.limit() / DRAM_SHARE;
        if quota.left() > 2 * ahead && dram_left {
            self.pressed.store(false, Ordering::Relaxed);
        }
        Need::None
    }

    /// Returns true if more DRAM is used than allowed, but no more of the medium of values that lie
    /// elsewhere.
    pub(crate) fn lacks_records(&self) -> bool {
        let medium = self.of_segments();
        self.elsewhere && self.dram.used() > self.dram.limit() && medium.used() <= medium.limit()
    }

    /// Returns the limit of DRAM, and what is used of it with these bytes of metadata.
    pub(crate) fn dram(&self, metadata_bytes: u64) -> (u64, u64) {
        // A quota that was raised has more than the metadata that were counted at the start.
        let more = metadata_bytes.saturating_sub(self.metadata_bytes);
        (self.dram.limit(), self.dram.used() + more)
    }

    /// Returns the limit and the use of a medium other than DRAM.
    pub(crate) fn medium(&self) -> (u64, u64) {
        if self.elsewhere { (self.medium.limit(), self.medium.used()) } else { (0, 0) }
    }

    /// Asserts that what is counted is what segments, pages of records and tags use.
    pub(crate) fn assert_adds_up(&self, segments: u64, records: u64, tags: u64) {
        let in_dram = if self.elsewhere { records } else { segments };
        let (dram, sum) =
            (self.dram.used(), self.fixed_bytes + tags + self.table_bytes() + in_dram);
        assert!(dram == sum, "{dram} bytes of DRAM are counted, {sum} are used");
        let taken = self.of_segments().used();
        let adds_up = !self.elsewhere || taken == segments;
        assert!(adds_up, "{taken} bytes are counted, {segments} are used");
    }
}

/// Pages that more bytes of records need behind those that are used.
fn pages_between(used: u64, more: u64) -> u64 {
    (used + more).div_ceil(PAGE) - used.div_ceil(PAGE)
}
