//! Memory of cached blocks, and the count of bytes that are alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_media::{IoBuffer, SlotPool};

use crate::cache::budget::Room;
use crate::run::PAGE_BYTES;

/// Bytes that remembering a block takes beside its contents: its entry in the map, in a queue, and
/// later its name among the evicted ones.
const OVERHEAD_BYTES: u64 = 256;

/// Returns the bytes that a block of so many bytes counts for.
pub(super) fn weight_of(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + OVERHEAD_BYTES
}

/// Bytes that are alive.
#[derive(Debug)]
pub(super) struct Usage {
    room: Arc<Room>,
    pub(super) most: AtomicU64,
    /// Most bytes by which the limit was ever exceeded.
    pub(super) over_most: AtomicU64,
    /// Bytes of preferred blocks.
    pub(super) preferred: AtomicU64,
    /// Memory of blocks of one page. Spare slots go on counting, since they are for the next
    /// blocks. `None` if the system has no address space; such blocks then lie in ordinary memory.
    slots: Option<Arc<SlotPool>>,
}

impl Usage {
    /// Creates a count of blocks that take memory of a budget.
    pub(super) fn new(room: &Arc<Room>) -> Usage {
        let zero = || AtomicU64::new(0);
        let slots = u32::try_from(room.bytes() / PAGE_BYTES as u64).unwrap_or(u32::MAX);
        let slots = SlotPool::new(slots, PAGE_BYTES).ok();
        let room = Arc::clone(room);
        Usage { room, most: zero(), over_most: zero(), preferred: zero(), slots }
    }

    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    /// Returns the current limit.
    pub(super) fn cap(&self) -> u64 {
        self.room.pages_cap()
    }

    pub(super) fn bytes(&self) -> &AtomicU64 {
        self.room.pages()
    }

    /// Counts bytes if the sum is at most `most`. Returns false if it is not.
    pub(super) fn take(&self, bytes: u64, most: u64) -> bool {
        let more = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= most);
        let taken = self.bytes().fetch_update(Relaxed, Relaxed, more);
        if let Ok(before) = taken {
            self.most.fetch_max(before + bytes, Relaxed);
            self.room.settle();
        }
        taken.is_ok()
    }

    pub(super) fn take_anyway(&self, bytes: u64) {
        let before = self.bytes().fetch_add(bytes, Relaxed);
        self.most.fetch_max(before + bytes, Relaxed);
        self.over_most.fetch_max((before + bytes).saturating_sub(self.cap()), Relaxed);
        self.room.settle();
    }

    pub(super) fn preferred_fit(&self) -> bool {
        self.preferred.load(Relaxed) <= self.cap() / 2
    }

    /// Returns the number of spare slots.
    pub(super) fn spares(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.kept())
    }

    /// Returns the bytes that spare slots count for.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.spares() as u64 * (PAGE_BYTES as u64 + OVERHEAD_BYTES)
    }

    /// Returns the bytes that are not spare.
    pub(super) fn in_use(&self) -> u64 {
        self.bytes().load(Relaxed).saturating_sub(self.spare_bytes())
    }

    /// Gives a spare slot back to the system. Returns false if there is none.
    pub(super) fn free_spare(&self) -> bool {
        let is_free = self.slots.as_ref().is_some_and(|slots| slots.give_back());
        if is_free {
            self.bytes().fetch_sub(PAGE_BYTES as u64 + OVERHEAD_BYTES, Relaxed);
        }
        is_free
    }
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    usage: Arc<Usage>,
    bytes: u64,
}

impl Charge {
    /// Creates a charge for bytes that were counted already.
    pub(super) fn new(usage: &Arc<Usage>, bytes: u64) -> Charge {
        Charge { usage: Arc::clone(usage), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.usage.bytes().fetch_sub(self.bytes, Relaxed);
        debug_assert!(self.bytes <= before, "{} bytes of {before} go", self.bytes);
    }
}

/// The bytes of a block. When a block of one page is dropped, its slot is kept for the next one.
#[derive(Debug)]
pub(super) struct Frame {
    bytes: Bytes,
    charge: Charge,
}

#[derive(Debug)]
enum Bytes {
    /// Bytes of one page.
    Slot(IoBuffer),
    /// Bytes of several pages, or of a page for which there is no slot.
    Apart(Box<[u8]>),
    /// The frame is being dropped.
    Gone,
}

impl Frame {
    /// Creates a frame with these bytes, which were counted already.
    pub(super) fn new(usage: &Arc<Usage>, bytes: &[u8]) -> Frame {
        let slots = usage.slots.as_ref().filter(|_| bytes.len() == PAGE_BYTES);
        let slot = slots.and_then(|slots| slots.bare_buffer(PAGE_BYTES));
        Frame::of(usage, slot, bytes)
    }

    /// Creates a frame with these bytes in a spare slot, if there is one.
    pub(super) fn spare(usage: &Arc<Usage>, bytes: &[u8]) -> Option<Frame> {
        let slots = usage.slots.as_ref().filter(|_| bytes.len() == PAGE_BYTES)?;
        let slot = slots.kept_buffer(PAGE_BYTES)?;
        Some(Frame::of(usage, Some(slot), bytes))
    }

    fn of(usage: &Arc<Usage>, slot: Option<IoBuffer>, bytes: &[u8]) -> Frame {
        let charge = Charge::new(usage, weight_of(bytes));
        let bytes = match slot {
            Some(mut slot) => {
                slot.copy_from_slice(bytes);
                Bytes::Slot(slot)
            }
            None => Bytes::Apart(bytes.into()),
        };
        Frame { bytes, charge }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Slot(slot) => slot,
            Bytes::Apart(bytes) => bytes,
            Bytes::Gone => &[],
        }
    }

    /// Returns the bytes that the frame counts for.
    pub(super) fn weight(&self) -> u64 {
        self.charge.bytes
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.charge.usage
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Bytes::Slot(slot) = std::mem::replace(&mut self.bytes, Bytes::Gone) {
            // The slot becomes a spare, and goes on counting. Above the limit, one of the spares is
            // freed instead.
            drop(slot);
            self.charge.bytes = 0;
            let usage = &self.charge.usage;
            if usage.bytes().load(Relaxed) > usage.cap() {
                usage.free_spare();
            }
        }
    }
}
