//! Single items: reading the value of one, and declaring one dead.

use std::sync::atomic::Ordering;

use entresol_base::mutation_site;

use crate::record::{Head, UNIT, mark};
use crate::shared::Shared;
use crate::shared::append::Hole;
use crate::values::{ValueAt, Values};

impl Shared {
    /// Returns the head of the record at a location, perhaps torn, if its key is this one.
    #[inline(always)]
    pub(crate) fn head_of(&self, location: u64, key: &[u8]) -> Option<Head> {
        let head = self.head(location);
        let matches = head.key_len == key.len() && self.arena.equals(head.key_at(), key);
        matches.then_some(head)
    }

    /// Appends an item's value to `out`, or returns its place on the block file.
    #[inline]
    pub(crate) fn append_value(&self, location: u64, head: &Head, out: &mut Vec<u8>) -> ValueAt {
        match &self.values {
            Values::Inline => {
                if head.value_at() + head.value_len as u64 > self.arena.len() {
                    return ValueAt::Gone;
                }
                self.arena.append_to(head.value_at(), head.value_len, out);
                ValueAt::Memory
            }
            Values::Pmem(pmem) => {
                let (offset, checksum) = head.place(&self.arena);
                let at = self.medium_base_of(self.segment_of(location)) + u64::from(offset);
                if !pmem.append_to(at, head.value_len, out) {
                    return ValueAt::Gone;
                }
                ValueAt::Pmem { offset: at, checksum }
            }
            Values::File(file) => {
                let id = self.segment_of(location);
                let segment = self.segments.get(id);
                let (offset, checksum) = head.place(&self.arena);
                let sequence = segment.sequence.load(Ordering::SeqCst);
                if file.append_buffered(segment, u64::from(offset), head.value_len, out) {
                    return ValueAt::Memory;
                }
                let offset = self.medium_base_of(id) + u64::from(offset);
                ValueAt::File { offset, checksum, segment: id, sequence }
            }
        }
    }

    /// Declares a record dead under its bucket's lock, and calls `change` to update its slot. The
    /// room may be used again, unless a client could mistake the next item there for this one.
    ///
    /// The mark comes last: a thread that empties the segment skips records that bear it, and waits
    /// for the bucket's lock at any other. Once it is set, the segment may begin another life.
    pub(crate) fn retire(&self, location: u64, head: &Head, change: impl FnOnce()) -> Option<Hole> {
        let id = self.segment_of(location);
        let segment = self.segments.get(id);
        self.forget_saved(location);
        change();
        let bytes = head.record_bytes();
        let elsewhere = self.values.is_elsewhere();
        let value_bytes = if elsewhere { head.value_len as u64 } else { 0 };
        segment.remove_live(bytes + value_bytes);
        let seen =
            head.has(mark::CAS_SEEN) && !mutation_site!("a place whose token is known stays empty");
        let reusable = !elsewhere && !seen;
        let sequence = segment.sequence.load(Ordering::SeqCst);
        head.set_marks(&self.arena, mark::DEAD, 0);
        reusable.then_some(Hole { at: location * UNIT, bytes, segment: id, sequence })
    }

    /// Ensures that a restart does not restore the record at a location as it was saved.
    pub(crate) fn forget_saved(&self, location: u64) {
        if let Some(restart) = &self.restart
            && self.values.is_elsewhere()
            && !mutation_site!("a record that died is void in the map")
        {
            let id = self.segment_of(location);
            restart.forget_record(id, location * UNIT - self.base_of(id));
        }
    }
}
