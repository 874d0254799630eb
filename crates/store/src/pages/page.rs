//! A cached block, its name, and the bytes that it counts for.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::entry::RunNumber;

/// Which block: of which run, at which of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageId {
    pub(crate) run: RunNumber,
    pub(crate) page: u64,
}

impl PageId {
    /// Well-mixed bits, the same in every run of a program.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        let mixed = self.run.0.wrapping_mul(0xD1B5_4A32_D192_ED03) ^ self.page;
        let product = u128::from(mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (mixed >> 31))
            * 0xA24B_AED4_963E_E407;
        (product >> 64) as u64 ^ product as u64
    }
}

impl Hash for PageId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(PageId::hash(*self));
    }
}

/// Hands on the hash that a [`PageId`] has already.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// What is in a block, as far as the cache cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Entries.
    Data,
    /// Where other blocks are.
    Index,
    /// Bits of a filter.
    Filter,
}

impl PageKind {
    pub(super) const ALL: [PageKind; 3] = [PageKind::Data, PageKind::Index, PageKind::Filter];

    /// Whether blocks of the kind are to stay longer than others.
    pub(super) fn is_preferred(self) -> bool {
        self != PageKind::Data
    }
}

/// How often a block must be found to count as found most.
const FOUND_MAX: u8 = 3;
/// The same of a block that is to stay longer.
const FOUND_PREFERRED_MAX: u8 = 12;

/// A block that was read and checked.
#[derive(Debug)]
pub(crate) struct Page {
    id: PageId,
    kind: PageKind,
    /// How often it was found since it was looked at last as one that might go.
    found: AtomicU8,
    bytes: Box<[u8]>,
    charge: Charge,
}

impl Page {
    pub(super) fn new(id: PageId, kind: PageKind, bytes: Box<[u8]>, charge: Charge) -> Page {
        let preferred = kind.is_preferred();
        let found = AtomicU8::new(if preferred { FOUND_MAX } else { 0 });
        if preferred {
            charge.usage.preferred.fetch_add(charge.bytes, Relaxed);
        }
        Page { id, kind, found, bytes, charge }
    }

    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    pub(super) fn kind(&self) -> PageKind {
        self.kind
    }

    /// Its bytes, which count no more.
    pub(super) fn into_bytes(mut self) -> Box<[u8]> {
        std::mem::take(&mut self.bytes)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it counts for.
    pub(super) fn weight(&self) -> u64 {
        self.charge.bytes
    }

    /// Notes that it was found once more. Two who do so at once may count as one.
    #[inline]
    pub(super) fn note_found(&self) {
        let most = if self.kind.is_preferred() { FOUND_PREFERRED_MAX } else { FOUND_MAX };
        let found = self.found.load(Relaxed);
        if found < most {
            self.found.store(found + 1, Relaxed);
        }
    }

    pub(super) fn times_found(&self) -> u8 {
        self.found.load(Relaxed)
    }

    /// Notes that it was passed over once.
    pub(super) fn note_passed(&self) {
        let found = self.found.load(Relaxed);
        // Above their share, blocks that are to stay longer go as fast as others.
        let most = if self.charge.usage.preferred_fit() { FOUND_PREFERRED_MAX } else { FOUND_MAX };
        self.found.store(found.saturating_sub(1).min(most), Relaxed);
    }

    pub(super) fn forget_found(&self) {
        self.found.store(0, Relaxed);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.kind.is_preferred() {
            self.charge.usage.preferred.fetch_sub(self.charge.bytes, Relaxed);
        }
    }
}

/// How many bytes are alive.
#[derive(Debug)]
pub(super) struct Usage {
    pub(super) cap: u64,
    pub(super) bytes: AtomicU64,
    pub(super) most: AtomicU64,
    /// Those of blocks that are to stay longer.
    preferred: AtomicU64,
}

impl Usage {
    pub(super) fn new(cap: u64) -> Usage {
        let zero = || AtomicU64::new(0);
        Usage { cap, bytes: zero(), most: zero(), preferred: zero() }
    }

    /// Counts bytes if they fit under the limit.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let more = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= self.cap);
        let taken = self.bytes.fetch_update(Relaxed, Relaxed, more);
        if let Ok(before) = taken {
            self.most.fetch_max(before + bytes, Relaxed);
        }
        taken.is_ok()
    }

    pub(super) fn take_anyway(&self, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        self.most.fetch_max(before + bytes, Relaxed);
    }

    fn preferred_fit(&self) -> bool {
        self.preferred.load(Relaxed) <= self.cap / 2
    }
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    usage: Arc<Usage>,
    bytes: u64,
}

impl Charge {
    pub(super) fn new(usage: &Arc<Usage>, bytes: u64) -> Charge {
        Charge { usage: Arc::clone(usage), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.usage.bytes.fetch_sub(self.bytes, Relaxed);
    }
}
