//! A cached block and its name.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::types::RunNumber;

use super::frame::Frame;

/// Name of a block: its run, and its first page there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageId {
    pub(crate) run: RunNumber,
    pub(crate) page: u64,
}

impl PageId {
    /// Returns well-mixed bits, the same in each execution of a program.
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

/// Hasher that returns the hash a [`PageId`] has already.
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

/// Kind of a block, as far as the cache cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Entries of a run.
    Data,
    /// Places of other blocks.
    Index,
    /// Bits of a filter.
    Filter,
}

impl PageKind {
    pub(super) const ALL: [PageKind; 3] = [PageKind::Data, PageKind::Index, PageKind::Filter];

    /// Returns true if blocks of the kind stay longer than others.
    pub(super) fn is_preferred(self) -> bool {
        self != PageKind::Data
    }
}

/// Upper limit of a block's counter of lookups.
const FOUND_MAX: u8 = 3;
/// Upper limit of a preferred block's counter of lookups.
const FOUND_PREFERRED_MAX: u8 = 12;

/// A block that was read and verified.
#[derive(Debug)]
pub(crate) struct Page {
    id: PageId,
    kind: PageKind,
    /// Counter of lookups, which goes down each time that an eviction passes the block over.
    found: AtomicU8,
    frame: Frame,
}

impl Page {
    pub(super) fn new(id: PageId, kind: PageKind, frame: Frame) -> Page {
        let preferred = kind.is_preferred();
        let found = AtomicU8::new(if preferred { FOUND_MAX } else { 0 });
        if preferred {
            frame.usage().preferred.fetch_add(frame.weight(), Relaxed);
        }
        Page { id, kind, found, frame }
    }

    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    pub(super) fn kind(&self) -> PageKind {
        self.kind
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// Returns the bytes that the block counts for.
    pub(super) fn weight(&self) -> u64 {
        self.frame.weight()
    }

    /// Counts a lookup. Two that count at once may count as one.
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

    /// Notes that an eviction passed the block over.
    pub(super) fn note_passed(&self) {
        let found = self.found.load(Relaxed);
        // If there are too many preferred blocks, they go as fast as others.
        let most = if self.frame.usage().preferred_fit() { FOUND_PREFERRED_MAX } else { FOUND_MAX };
        self.found.store(found.saturating_sub(1).min(most), Relaxed);
    }

    pub(super) fn forget_found(&self) {
        self.found.store(0, Relaxed);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.kind.is_preferred() {
            self.frame.usage().preferred.fetch_sub(self.frame.weight(), Relaxed);
        }
    }
}
