//! What cached blocks lie in, and how many bytes are alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::sync::Mutex;

use crate::memory::Room;
use crate::run::PAGE_BYTES;

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
    pub(super) cap: u64,
    room: Arc<Room>,
    pub(super) most: AtomicU64,
    /// Those of blocks that are to stay longer.
    pub(super) preferred: AtomicU64,
    /// Frames of a page that hold no block now. They count as they did, since an allocator would
    /// keep them for the thread that had allocated them, while the others ask for more.
    spares: Mutex<Vec<Box<[u8]>>>,
}

impl Usage {
    pub(super) fn new(cap: u64, room: &Arc<Room>) -> Usage {
        let zero = || AtomicU64::new(0);
        let (room, spares) = (Arc::clone(room), Mutex::default());
        Usage { cap, room, most: zero(), preferred: zero(), spares }
    }

    pub(super) fn bytes(&self) -> &AtomicU64 {
        self.room.pages()
    }

    /// Counts bytes if they fit under the limit.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let more = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= self.cap);
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
        self.room.settle();
    }

    pub(super) fn preferred_fit(&self) -> bool {
        self.preferred.load(Relaxed) <= self.cap / 2
    }

    /// Those of spare frames.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.spares.lock().len() as u64 * (PAGE_BYTES as u64 + OVERHEAD_BYTES)
    }

    /// The others.
    pub(super) fn in_use(&self) -> u64 {
        self.bytes().load(Relaxed).saturating_sub(self.spare_bytes())
    }

    /// Frees a spare frame; answers whether there was one.
    pub(super) fn free_spare(&self) -> bool {
        let spare = self.spares.lock().pop();
        if let Some(frame) = &spare {
            self.bytes().fetch_sub(weight_of(frame), Relaxed);
        }
        spare.is_some()
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
        self.usage.bytes().fetch_sub(self.bytes, Relaxed);
    }
}

/// The bytes of a block. When it is dropped, one of a page is kept for the next block.
#[derive(Debug)]
pub(super) struct Frame {
    bytes: Box<[u8]>,
    charge: Charge,
}

impl Frame {
    /// With these bytes, for which what they count was taken.
    pub(super) fn new(usage: &Arc<Usage>, bytes: &[u8]) -> Frame {
        Frame { bytes: bytes.into(), charge: Charge::new(usage, weight_of(bytes)) }
    }

    /// With these bytes, in a frame that was kept, if there is one for them.
    pub(super) fn spare(usage: &Arc<Usage>, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() != PAGE_BYTES {
            return None;
        }
        let mut spare = usage.spares.lock().pop()?;
        spare.copy_from_slice(bytes);
        Some(Frame { bytes: spare, charge: Charge::new(usage, weight_of(bytes)) })
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
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
        let usage = &self.charge.usage;
        if self.bytes.len() == PAGE_BYTES && usage.bytes().load(Relaxed) <= usage.cap {
            usage.spares.lock().push(std::mem::take(&mut self.bytes));
            self.charge.bytes = 0;
        }
    }
}
