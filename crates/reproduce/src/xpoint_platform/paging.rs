//! Memory that the system pages to a drive, and a cache of linked items in it, as memcached's.
//!
//! A missing page is read alone, without others ahead. A page that was written goes back to the
//! drive when it is evicted; no request waits for that, but it occupies a processor.

use std::collections::HashMap;
use std::sync::Arc;

use entresol_base::Picos;
use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::world::World;
use entresol_media::cost::Access;
use entresol_media::model::BlockModel;

use crate::clients::Processors;
use entresol_measure::host::Host;

const PAGE_BYTES: u64 = 4096;
/// Code of the system for a page fault beside the read (004, section III-B).
const FAULT_CODE: Picos = Picos::from_micros(5);

/// Page in memory.
#[derive(Debug, Clone, Copy)]
struct Slot {
    page: u64,
    is_touched: bool,
    is_dirty: bool,
}

/// Pages in memory; evicts by the clock algorithm.
#[derive(Debug)]
struct Pages {
    slots: Vec<Slot>,
    slots_max: usize,
    places: HashMap<u64, usize>,
    hand: usize,
}

impl Pages {
    /// Notes an access, and returns true if the page is in memory.
    fn touch(&mut self, page: u64, writes: bool) -> bool {
        let Some(&place) = self.places.get(&page) else { return false };
        let slot = &mut self.slots[place];
        slot.is_touched = true;
        slot.is_dirty |= writes;
        true
    }

    /// Adds a page and returns the dirty page that it evicts, if it does.
    fn add(&mut self, page: u64, writes: bool) -> Option<u64> {
        if self.touch(page, writes) {
            return None;
        }
        let slot = Slot { page, is_touched: false, is_dirty: writes };
        if self.slots.len() < self.slots_max {
            self.places.insert(page, self.slots.len());
            self.slots.push(slot);
            return None;
        }
        while std::mem::take(&mut self.slots[self.hand].is_touched) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        let evicted = std::mem::replace(&mut self.slots[self.hand], slot);
        self.places.remove(&evicted.page);
        self.places.insert(page, self.hand);
        self.hand = (self.hand + 1) % self.slots.len();
        evicted.is_dirty.then_some(evicted.page)
    }
}

/// Counts of a pager since it began to take time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PagerCounts {
    pub(super) faults: u64,
    pub(super) written_back: u64,
    /// Time of all faults.
    pub(super) fault_time: Picos,
}

struct PagerState {
    pages: Pages,
    drive: BlockModel,
    counts: PagerCounts,
    is_timed: bool,
}

/// Memory of an application that is larger than the machine's: the system reads missing pages.
pub(super) struct Pager {
    world: World,
    processors: Arc<Processors>,
    state: Mutex<PagerState>,
}

impl Pager {
    /// Creates memory with `bytes_max` bytes of pages, none of which is in it; accesses take no
    /// time yet.
    pub(super) fn new(
        world: &World,
        processors: &Arc<Processors>,
        drive: BlockModel,
        bytes_max: u64,
    ) -> Pager {
        let slots_max = (bytes_max / PAGE_BYTES).max(1) as usize;
        let pages = Pages { slots: Vec::new(), slots_max, places: HashMap::new(), hand: 0 };
        let counts = PagerCounts::default();
        let state = PagerState { pages, drive, counts, is_timed: false };
        let (world, processors) = (world.clone(), Arc::clone(processors));
        Pager { world, processors, state: Mutex::new(state) }
    }

    /// Lets accesses take time from now on.
    pub(super) fn set_timed(&self) {
        self.state.lock().is_timed = true;
    }

    pub(super) fn counts(&self) -> PagerCounts {
        self.state.lock().counts
    }

    /// Reads or writes bytes.
    pub(super) fn touch(&self, offset: u64, bytes: u64, writes: bool) {
        for page in offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES) {
            let is_timed = {
                let state = &mut *self.state.lock();
                if state.pages.touch(page, writes) {
                    continue;
                }
                state.is_timed
            };
            if is_timed {
                self.fault(page, writes);
            } else {
                self.state.lock().pages.add(page, writes);
            }
        }
    }

    /// Reads a missing page. The page that makes room for it is written back behind the read.
    fn fault(&self, page: u64, writes: bool) {
        let begun = self.world.now();
        self.processors.spend(FAULT_CODE.after(Host::NVME.submit));
        let (done, evicted) = {
            let state = &mut *self.state.lock();
            let now = self.world.now();
            let at = |page| page * PAGE_BYTES;
            let done = state.drive.submit(now, Access::Read, at(page), PAGE_BYTES as u32);
            let evicted = state.pages.add(page, writes);
            if let Some(evicted) = evicted {
                state.drive.submit(now, Access::Write, at(evicted), PAGE_BYTES as u32);
                state.counts.written_back += 1;
            }
            (done, evicted)
        };
        if evicted.is_some() {
            self.processors.occupy(Host::NVME.time());
        }
        self.world.wait_until(done);
        self.processors.spend(Host::NVME.complete);
        let mut state = self.state.lock();
        state.counts.faults += 1;
        state.counts.fault_time = state.counts.fault_time.after(self.world.now().since(begun));
    }
}

/// Writes of a get to the memory of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GetWrites {
    /// The item's count of references, and its place in the list by last use.
    CountAndList,
    /// The count of references only.
    Count,
    /// Nothing.
    Nothing,
}

/// Bytes of an item's header with its key, which memcached keeps in front of the value.
const HEADER_BYTES: u64 = 76;
/// Bytes of a value.
pub(super) const VALUE_BYTES: u64 = 4096;
/// Bytes that memcached allots to such an item, and the number of them in a page of its slabs.
const CHUNK_BYTES: u64 = 4544;
const SLAB_BYTES: u64 = 1 << 20;
const ITEMS_OF_SLAB: u64 = SLAB_BYTES / CHUNK_BYTES;
const POINTER_BYTES: u64 = 8;

/// Neighbours of an item in the list by last use: the one used after it, and the one before.
#[derive(Debug, Clone, Copy)]
struct Neighbours {
    newer: u32,
    older: u32,
}

/// Items of memcached's layout: chunks in slabs, buckets that lead to chains of items, and a list
/// by last use through the items themselves.
pub(super) struct LinkedItems {
    pager: Pager,
    writes: GetWrites,
    buckets: Vec<Vec<u32>>,
    bucket_of: Vec<u32>,
    list: Mutex<List>,
}

/// List of all items by last use, closed to a ring.
struct List {
    neighbours: Vec<Neighbours>,
    newest: u32,
}

impl List {
    /// Creates a list in a random order.
    fn shuffled(count: u32, rng: &mut Rng) -> List {
        let mut order: Vec<u32> = (0..count).collect();
        rng.shuffle(&mut order);
        let mut neighbours = vec![Neighbours { newer: 0, older: 0 }; count as usize];
        let mut newer = order.last().copied().unwrap_or(0);
        for &item in &order {
            neighbours[item as usize].newer = newer;
            neighbours[newer as usize].older = item;
            newer = item;
        }
        List { neighbours, newest: order.first().copied().unwrap_or(0) }
    }

    /// Moves an item to the newest end. Returns the items that this changes beside it.
    fn move_to_newest(&mut self, item: u32) -> Option<[u32; 3]> {
        let second = self.newest;
        if second == item {
            return None;
        }
        let all = &mut self.neighbours;
        let Neighbours { newer, older } = all[item as usize];
        all[newer as usize].older = older;
        all[older as usize].newer = newer;
        let oldest = all[second as usize].newer;
        all[item as usize] = Neighbours { newer: oldest, older: second };
        all[second as usize].newer = item;
        all[oldest as usize].older = item;
        self.newest = item;
        Some([newer, older, second])
    }
}

impl LinkedItems {
    /// Returns the bytes of `count` items and their buckets.
    pub(super) fn bytes(count: u32) -> u64 {
        Self::buckets_at(count) + u64::from(count) * POINTER_BYTES
    }

    fn buckets_at(count: u32) -> u64 {
        u64::from(count).div_ceil(ITEMS_OF_SLAB) * SLAB_BYTES
    }

    /// Creates items that were used in a random order, one to a bucket on average.
    pub(super) fn new(pager: Pager, count: u32, writes: GetWrites, rng: &mut Rng) -> LinkedItems {
        let bucket_of: Vec<u32> = (0..count).map(|_| rng.below(u64::from(count)) as u32).collect();
        let mut buckets = vec![Vec::new(); count as usize];
        for (item, &bucket) in (0..count).zip(&bucket_of) {
            // A new item is the first of its chain.
            buckets[bucket as usize].insert(0, item);
        }
        let list = Mutex::new(List::shuffled(count, rng));
        LinkedItems { pager, writes, buckets, bucket_of, list }
    }

    pub(super) fn pager(&self) -> &Pager {
        &self.pager
    }

    /// Gets a value.
    pub(super) fn get(&self, item: u32) {
        let bucket = self.bucket_of[item as usize];
        let buckets_at = Self::buckets_at(self.bucket_of.len() as u32);
        self.pager.touch(buckets_at + u64::from(bucket) * POINTER_BYTES, POINTER_BYTES, false);
        for &other in self.buckets[bucket as usize].iter().take_while(|other| **other != item) {
            self.touch_header(other, false);
        }
        self.touch_header(item, self.writes != GetWrites::Nothing);
        if self.writes == GetWrites::CountAndList {
            let others = self.list.lock().move_to_newest(item);
            for other in others.into_iter().flatten() {
                self.touch_header(other, true);
            }
        }
        self.pager.touch(offset_of(item) + HEADER_BYTES, VALUE_BYTES, false);
    }

    fn touch_header(&self, item: u32, writes: bool) {
        self.pager.touch(offset_of(item), HEADER_BYTES, writes);
    }
}

/// Returns the offset of an item's chunk.
fn offset_of(item: u32) -> u64 {
    let (slab, within) = (u64::from(item) / ITEMS_OF_SLAB, u64::from(item) % ITEMS_OF_SLAB);
    slab * SLAB_BYTES + within * CHUNK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evicted_page_is_written_back_only_if_it_was_written() {
        let (slots, places) = (Vec::new(), HashMap::new());
        let mut pages = Pages { slots, slots_max: 3, places, hand: 0 };
        assert_eq!([pages.add(0, false), pages.add(1, true), pages.add(2, true)], [None; 3]);
        assert!(pages.touch(2, false) && !pages.touch(3, false));
        assert_eq!([pages.add(3, false), pages.add(4, false)], [None, Some(1)]);
        // Page 2 was touched and stays for a round; page 3 goes, which is clean.
        assert_eq!(pages.add(5, false), None);
        assert!(pages.touch(2, false) && !pages.touch(3, false) && pages.touch(5, false));
    }

    #[test]
    fn the_list_stays_a_ring_of_all_items_with_the_moved_one_first() {
        let mut list = List::shuffled(7, &mut Rng::new(1));
        for item in [3, 3, 0, 6, 1, 3] {
            let is_first = list.newest == item;
            assert_eq!(list.move_to_newest(item).is_none(), is_first);
            assert_eq!(list.newest, item);
            let (mut at, mut seen) = (item, Vec::new());
            for _ in 0..7 {
                let older = list.neighbours[at as usize].older;
                assert_eq!(list.neighbours[older as usize].newer, at);
                seen.push(at);
                at = older;
            }
            assert_eq!(at, item);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn items_do_not_overlap_nor_cross_slabs() {
        for item in 0..1000 {
            let (start, end) = (offset_of(item), offset_of(item) + CHUNK_BYTES);
            assert!(end <= offset_of(item + 1) && start / SLAB_BYTES == (end - 1) / SLAB_BYTES);
        }
        const { assert!(HEADER_BYTES + VALUE_BYTES <= CHUNK_BYTES) };
        assert!(offset_of(999) + CHUNK_BYTES <= LinkedItems::bytes(1000) - 8000);
    }
}
