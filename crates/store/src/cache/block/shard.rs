//! A part of the block cache under one lock: its blocks, and their order of eviction.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::sync::RwLock;

use crate::types::RunNumber;

use super::page::{Mixed, Page, PageId, PageKind};
use super::{Count, KindCounts};

/// References to a block that is cached and not in use: the map's and a queue's.
const HOLDERS: usize = 2;
/// Times that a block must be found in the small queue to stay.
const FOUND_TO_STAY: u8 = 2;

type Map = HashMap<PageId, Arc<Page>, BuildHasherDefault<Mixed>>;

/// A part of the cache.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    queues: RwLock<Queues>,
    /// Bytes of all its blocks, for finding the largest shard without locks.
    bytes: AtomicU64,
    hits: [Count; PageKind::ALL.len()],
    misses: [Count; PageKind::ALL.len()],
    evictions: [Count; PageKind::ALL.len()],
}

/// Blocks of a shard. Each is in the map and in one of the two queues.
#[derive(Debug, Default)]
struct Queues {
    map: Map,
    /// New blocks, in the order in which they came.
    small: Queue,
    /// Blocks that stay.
    main: Queue,
    left: Left,
}

impl Shard {
    pub(super) fn new() -> Shard {
        let (hits, misses, evictions) = Default::default();
        Shard { queues: RwLock::default(), bytes: AtomicU64::new(0), hits, misses, evictions }
    }

    pub(super) fn counts(&self, kind: PageKind) -> KindCounts {
        let at = kind as usize;
        let [hits, misses, evictions] =
            [&self.hits, &self.misses, &self.evictions].map(|counts| counts[at].get());
        KindCounts { hits, misses, evictions }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    #[inline]
    pub(super) fn find(&self, id: PageId, kind: PageKind) -> Option<Arc<Page>> {
        let found = self.queues.read().map.get(&id).cloned();
        match &found {
            Some(page) => {
                page.note_found();
                self.hits[kind as usize].add_one();
            }
            None => self.misses[kind as usize].add_one(),
        }
        found
    }

    /// Returns true if a block is here. It does not count as a lookup.
    pub(super) fn has(&self, id: PageId) -> bool {
        self.queues.read().map.contains_key(&id)
    }

    /// Adds a block, unless there is one of this name. That one is then returned, with the new one
    /// beside it, for the caller to drop outside the lock.
    pub(super) fn insert(&self, page: Arc<Page>) -> (Arc<Page>, Option<Arc<Page>>) {
        let mut queues = self.queues.write();
        if let Some(other) = queues.map.get(&page.id()) {
            return (Arc::clone(other), Some(page));
        }
        queues.insert(&page);
        self.bytes.store(queues.bytes(), Relaxed);
        (page, None)
    }

    /// Evicts a block. Returns `None` if all are in use.
    pub(super) fn evict(&self) -> Option<Arc<Page>> {
        let mut queues = self.queues.write();
        let gone = queues.evict();
        self.bytes.store(queues.bytes(), Relaxed);
        // The block is dropped outside the lock.
        drop(queues);
        if let Some(page) = &gone {
            self.evictions[page.kind() as usize].add_one();
        }
        gone
    }

    pub(super) fn forget(&self, run: RunNumber) {
        let mut queues = self.queues.write();
        queues.map.retain(|id, _| id.run != run);
        queues.small.forget(run);
        queues.main.forget(run);
        queues.check();
        self.bytes.store(queues.bytes(), Relaxed);
    }
}

impl Queues {
    fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    fn insert(&mut self, page: &Arc<Page>) {
        self.map.insert(page.id(), Arc::clone(page));
        let stays = self.left.remove(page.id()) || page.kind().is_preferred();
        let queue = if stays { &mut self.main } else { &mut self.small };
        queue.push(Arc::clone(page));
        self.check();
    }

    /// Asserts that each block is in the map and in one queue.
    fn check(&self) {
        let queued = self.small.pages.len() + self.main.pages.len();
        let mapped = self.map.len();
        debug_assert_eq!(queued, mapped, "so many blocks are in queues, and in the map");
    }

    /// Removes a block. It terminates: each step removes a block, moves one out of the small queue,
    /// lowers a block's counter of lookups, or meets a block in use. As many of the latter in a row
    /// as there are blocks mean that all are in use.
    fn evict(&mut self) -> Option<Arc<Page>> {
        let mut in_use = 0;
        while in_use < self.map.len() {
            let small_first = self.small.bytes * 9 > self.main.bytes;
            let from_small = (small_first && !self.small.is_empty()) || self.main.is_empty();
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let page = queue.pop()?;
            if Arc::strong_count(&page) > HOLDERS {
                in_use += 1;
                // This holds for the small queue too: a block that is being read is needed.
                self.main.push(page);
                continue;
            }
            if from_small && page.times_found() >= FOUND_TO_STAY {
                page.forget_found();
                self.main.push(page);
            } else if !from_small && page.times_found() > 0 {
                page.note_passed();
                self.main.push(page);
                in_use = 0;
            } else {
                let known = self.map.remove(&page.id());
                debug_assert!(
                    known.is_some_and(|known| Arc::ptr_eq(&known, &page)),
                    "{:?} goes, and the map has another block of the name",
                    page.id(),
                );
                self.check();
                if from_small {
                    self.left.push(page.id(), self.map.len());
                }
                return Some(page);
            }
        }
        None
    }
}

/// Blocks in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    pages: VecDeque<Arc<Page>>,
    bytes: u64,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    fn push(&mut self, page: Arc<Page>) {
        self.bytes += page.weight();
        self.pages.push_back(page);
    }

    fn pop(&mut self) -> Option<Arc<Page>> {
        let page = self.pages.pop_front()?;
        self.bytes -= page.weight();
        Some(page)
    }

    fn forget(&mut self, run: RunNumber) {
        self.pages.retain(|page| page.id().run != run);
        self.bytes = self.pages.iter().map(|page| page.weight()).sum();
    }
}

/// Hashed names of blocks that left the small queue without having been found, as many as there are
/// blocks.
#[derive(Debug, Default)]
struct Left {
    order: VecDeque<u64>,
    names: HashSet<u64, BuildHasherDefault<Mixed>>,
}

impl Left {
    fn push(&mut self, id: PageId, most: usize) {
        let name = PageId::hash(id);
        if self.names.insert(name) {
            self.order.push_back(name);
        }
        while self.order.len() > most.max(1) {
            if let Some(oldest) = self.order.pop_front() {
                self.names.remove(&oldest);
            }
        }
    }

    fn remove(&mut self, id: PageId) -> bool {
        // Its place in the order stays until it has become the oldest.
        self.names.remove(&PageId::hash(id))
    }
}
