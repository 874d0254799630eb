//! A page cache for mapped files, with one limit for all disks of a machine.
//!
//! It evicts by the clock algorithm: a page goes that was not accessed since the hand passed it,
//! and is clean. A missing page is read from its drive, alone: there is no read-ahead, as after
//! `MADV_RANDOM`. Writers do not wait when nearly all pages are dirty, as on a real system; the
//! oldest page is evicted then.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Picos;

use super::tree::NodeId;

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Memory for the pages of mapped files; clones share it.
#[derive(Debug, Clone)]
pub struct PageCache(Arc<Mutex<State>>);

/// Identity of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PageName {
    pub(super) disk: u32,
    pub(super) node: NodeId,
    pub(super) page: u64,
}

#[derive(Debug)]
struct Slot {
    name: PageName,
    is_touched: bool,
    /// True if it was written and its file was not synced since.
    is_new: bool,
    /// Time at which the drive has read it.
    ready: Picos,
}

#[derive(Debug)]
struct State {
    disks: u32,
    pages_max: usize,
    slots: Vec<Option<Slot>>,
    places: HashMap<PageName, usize>,
    /// Empty slots.
    free: Vec<usize>,
    hand: usize,
}

impl PageCache {
    /// Makes a cache of this size, with room for at least one page.
    #[must_use]
    pub fn new(bytes: u64) -> PageCache {
        let pages_max = usize::try_from(bytes / PAGE_BYTES).unwrap_or(usize::MAX).max(1);
        let (slots, places, free) = (Vec::new(), HashMap::new(), Vec::new());
        let state = State { disks: 0, pages_max, slots, places, free, hand: 0 };
        PageCache(Arc::new(Mutex::new(state)))
    }

    /// Allocates a number for a disk whose files are mapped.
    pub(super) fn take_disk(&self) -> u32 {
        let mut state = self.state();
        state.disks += 1;
        state.disks
    }

    /// Returns the time at which a cached page is or will be in memory. Returns none for a missing
    /// page, after making room for it.
    pub(super) fn touch(&self, name: PageName) -> Option<Picos> {
        let state = &mut *self.state();
        if let Some(&place) = state.places.get(&name) {
            let slot = state.slots[place].as_mut();
            return slot.map(|slot| {
                slot.is_touched = true;
                slot.ready
            });
        }
        let place = state.take_place();
        let slot = Slot { name, is_touched: false, is_new: false, ready: Picos(0) };
        state.slots[place] = Some(slot);
        state.places.insert(name, place);
        state.debug_assert_adds_up();
        None
    }

    /// Notes that a page was written.
    pub(super) fn write(&self, name: PageName) {
        self.touch(name);
        self.note(name, |slot| slot.is_new = true);
    }

    /// Notes that pages of a file are clean.
    pub(super) fn written_back(&self, disk: u32, node: NodeId, pages: Range<u64>) {
        for page in pages {
            self.note(PageName { disk, node, page }, |slot| slot.is_new = false);
        }
    }

    /// Sets the time at which the drive will have read a page.
    pub(super) fn expect(&self, name: PageName, ready: Picos) {
        self.note(name, |slot| slot.ready = ready);
    }

    fn note(&self, name: PageName, change: impl FnOnce(&mut Slot)) {
        let State { slots, places, .. } = &mut *self.state();
        if let Some(slot) = places.get(&name).and_then(|&place| slots[place].as_mut()) {
            change(slot);
        }
    }

    /// Evicts all pages of a file.
    pub(super) fn forget(&self, disk: u32, node: NodeId) {
        let mut state = self.state();
        let State { slots, places, free, .. } = &mut *state;
        for (at, slot) in slots.iter_mut().enumerate() {
            if let Some(Slot { name, .. }) = slot
                && (name.disk, name.node) == (disk, node)
            {
                places.remove(name);
                *slot = None;
                free.push(at);
            }
        }
        state.debug_assert_adds_up();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Never held while a simulated thread waits.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Each slot has one page, which leads to it, or is free.
    fn debug_assert_adds_up(&self) {
        let (pages, free, slots) = (self.places.len(), self.free.len(), self.slots.len());
        debug_assert!(pages + free == slots, "{pages} pages and {free} free of {slots} slots");
        debug_assert!(slots <= self.pages_max, "{slots} slots, {} allowed", self.pages_max);
    }

    /// Takes a slot for the next page.
    fn take_place(&mut self) -> usize {
        if let Some(place) = self.free.pop() {
            return place;
        }
        if self.slots.len() < self.pages_max {
            self.slots.push(None);
            return self.slots.len() - 1;
        }
        // After two rounds every page left is dirty: the oldest is evicted, to which the hand has
        // returned.
        let mut steps = 2 * self.slots.len() + 1;
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            steps = steps.saturating_sub(1);
            match &mut self.slots[place] {
                Some(slot) if slot.is_touched => slot.is_touched = false,
                Some(slot) if slot.is_new && steps > 0 => {}
                Some(slot) => {
                    self.places.remove(&slot.name);
                    return place;
                }
                None => return place,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(node: NodeId, page: u64) -> PageName {
        PageName { disk: 1, node, page }
    }

    #[test]
    fn what_is_touched_again_stays_and_the_limit_is_kept() {
        let cache = PageCache::new(4 * PAGE_BYTES);
        assert!((0..4).all(|page| cache.touch(name(1, page)).is_none()));
        assert!(cache.touch(name(1, 0)).is_some());
        assert!((4..7).all(|page| cache.touch(name(1, page)).is_none()));
        assert!(cache.touch(name(1, 0)).is_some(), "it was touched twice");
        assert!(cache.touch(name(1, 1)).is_none(), "it was not");
        assert_eq!(cache.state().places.len(), 4);
    }

    #[test]
    fn what_is_new_stays_until_it_was_written_back_or_nothing_else_is_left() {
        let cache = PageCache::new(4 * PAGE_BYTES);
        (0..2).for_each(|page| cache.write(name(1, page)));
        assert!((2..20).all(|page| cache.touch(name(1, page)).is_none()));
        assert!((0..2).all(|page| cache.touch(name(1, page)).is_some()), "they are new");
        cache.written_back(1, 1, 0..1);
        assert!((20..40).all(|page| cache.touch(name(1, page)).is_none()));
        assert!(cache.touch(name(1, 0)).is_none() && cache.touch(name(1, 1)).is_some());
        (40..44).for_each(|page| cache.write(name(1, page)));
        assert!(cache.touch(name(1, 50)).is_none(), "there is room for who needs it");
        assert_eq!(cache.state().places.len(), 4);
    }

    #[test]
    fn a_file_that_goes_leaves_its_room() {
        let cache = PageCache::new(4 * PAGE_BYTES);
        for page in 0..2 {
            cache.touch(name(1, page));
            cache.touch(name(2, page));
        }
        cache.forget(1, 1);
        assert!(cache.touch(name(1, 0)).is_none() && cache.touch(name(1, 1)).is_none());
        assert!(cache.touch(name(2, 0)).is_some() && cache.touch(name(2, 1)).is_some());
    }
}
