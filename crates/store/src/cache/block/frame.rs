//! What cached blocks lie in, and how many bytes are alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_media::{IoBuffer, SlotPool};

use crate::cache::budget::Room;
use crate::types::PAGE_BYTES;

/// What remembering a block takes beside its bytes: its entry in the map, in a queue, and later
/// its name among those that left.
const OVERHEAD_BYTES: u64 = 256;

/// What a block with so many bytes counts for.
pub(super) fn weight_of(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + OVERHEAD_BYTES
}

/// How many bytes are alive.
#[derive(Debug)]
pub(super) struct Usage {
    room: Arc<Room>,
    pub(super) most: AtomicU64,
    /// By how much the limit was exceeded at most.
    pub(super) over_most: AtomicU64,
    /// Those of blocks that are to stay longer.
    pub(super) preferred: AtomicU64,
    /// What blocks of a page lie in. Kept slots count as they did: they are for the next blocks.
    /// None if the system has no address space: then they lie where all else does.
    slots: Option<Arc<SlotPool>>,
}

impl Usage {
    /// Of pages that take of such a room.
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

    /// The limit, as it is now.
    pub(super) fn cap(&self) -> u64 {
        self.room.pages_cap()
    }

    pub(super) fn bytes(&self) -> &AtomicU64 {
        self.room.pages()
    }

    /// Counts bytes if they are not more than `most` with what there is.
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

    /// How many slots are kept.
    pub(super) fn spares(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.kept())
    }

    /// What they count for.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.spares() as u64 * (PAGE_BYTES as u64 + OVERHEAD_BYTES)
    }

    /// The others.
    pub(super) fn in_use(&self) -> u64 {
        self.bytes().load(Relaxed).saturating_sub(self.spare_bytes())
    }

    /// Gives back a slot that is kept; answers whether there was one.
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
    /// Of bytes that were taken.
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

/// The bytes of a block. When it is dropped, the slot of one of a page is kept for the next block.
#[derive(Debug)]
pub(super) struct Frame {
    bytes: Bytes,
    charge: Charge,
}

#[derive(Debug)]
enum Bytes {
    /// A page's.
    Slot(IoBuffer),
    /// Of several pages, or those for which there is no slot.
    Apart(Box<[u8]>),
    /// None any more.
    Gone,
}

impl Frame {
    /// With these bytes, for which what they count was taken.
    pub(super) fn new(usage: &Arc<Usage>, bytes: &[u8]) -> Frame {
        let slots = usage.slots.as_ref().filter(|_| bytes.len() == PAGE_BYTES);
        let slot = slots.and_then(|slots| slots.bare_buffer(PAGE_BYTES));
        Frame::of(usage, slot, bytes)
    }

    /// With these bytes, in a slot that was kept, if there is one for them.
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

    /// What it counts for.
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
            // The slot is kept, and goes on counting, or one of those that are.
            drop(slot);
            self.charge.bytes = 0;
            let usage = &self.charge.usage;
            if usage.bytes().load(Relaxed) > usage.cap() {
                usage.free_spare();
            }
        }
    }
}
