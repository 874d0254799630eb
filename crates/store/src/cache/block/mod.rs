//! The block cache: verified or just written blocks of sorted runs, under one limit of bytes for a
//! whole `Kvdb`.
//!
//! Eviction follows S3-FIFO (J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO Queues are All
//! You Need for Cache Eviction", section 4). A new block must be found again before it leaves a
//! small queue, or it is evicted, and only its name is remembered for a while. A scan, which finds
//! each block once, therefore evicts nothing of value. Index blocks and pages of filters skip the
//! small queue and stay longer, up to half of the limit together: each of them leads to hundreds of
//! blocks.
//!
//! **The limit** holds for everything alive, not only for what is cached. A block counts from
//! before it is allocated until its last reader has dropped it, along with what the cache needs to
//! remember it. Read buffers count as well, and so do slots of one page that are kept for the next
//! block. A block in use is not evicted, since that would free nothing. If everything is in use,
//! readers are still served, or they would wait for each other. The excess is reported as
//! [`BlockCacheCounts::over_bytes_most`].
//!
//! Who may touch what: a shard's queues and map belong to the thread that holds its lock. No two
//! shards are locked at once, and no thread reads, writes or waits while it holds such a lock. The
//! list of spare slots is locked within the lock of a shard, or alone. The counter of how often a
//! block was found is changed without the write lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use entresol_base::sync::Mutex;
use entresol_media::IoBuffer;
use serde::Serialize;

use crate::cache::budget::{Borrower, Room};
use crate::types::RunNumber;
use crate::upkeep::scheduler::Scheduler;

mod frame;
mod page;
mod shard;

pub(crate) use frame::Charge;
pub(crate) use page::{Page, PageId, PageKind};

use frame::{Frame, Usage, weight_of};
use shard::Shard;

/// Number of locks of the cache.
const SHARDS: u64 = 16;
/// Fewest bytes of a cache: room for what a few readers use at once.
pub(crate) const CACHE_BYTES_MIN: u64 = 256 << 10;
/// Bytes of a read buffer that is kept for the next read. Larger ones are not kept.
const BUFFER_BYTES: usize = 32 << 10;
/// Fewest bytes of a larger buffer. The allocator maps buffers of this size separately, and their
/// unused part takes no memory. Smaller ones would leave holes between blocks.
const MAPPED_BYTES: usize = 256 << 10;
/// Most buffers that are kept.
const BUFFERS_MAX: usize = 4;
/// Bytes by which the cache shrinks whenever a block is added while it is over its limit.
const SHRINK_BYTES: u64 = 32 << 10;
/// Most spare slots that are kept for the next blocks.
const SPARES_MAX: usize = 64;
/// Bytes of one read in a preload from front to back.
const PRELOAD_PIECE_BYTES: u64 = 128 << 10;
/// Fewest missed blocks for which a preload begins.
const MISSES_MIN: u64 = 64;

/// The block cache of a store.
#[derive(Debug)]
pub(crate) struct BlockCache {
    shards: Box<[Shard]>,
    usage: Arc<Usage>,
    buffers: Mutex<Vec<Lease>>,
    read: AtomicU64,
    /// Blocks that readers read one by one since the last decision about a preload.
    missed: AtomicU64,
    is_preload_due: AtomicBool,
    /// Scheduler to tell when a preload is due; `None` if there are no preloads.
    work: Option<Arc<Scheduler>>,
}

/// Counters of one kind of blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct KindCounts {
    /// Number of lookups that found the block.
    pub hits: u64,
    /// Number of lookups that did not.
    pub misses: u64,
    /// Number of blocks that were evicted.
    pub evictions: u64,
}

/// Counters of the block cache, and its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockCacheCounts {
    /// Blocks with entries.
    pub data: KindCounts,
    /// Index blocks.
    pub index: KindCounts,
    /// Pages of filters.
    pub filter: KindCounts,
    /// Current limit in bytes.
    pub cap_bytes: u64,
    /// Bytes in use now, cached or not.
    pub bytes: u64,
    /// Bytes of spare slots.
    pub spare_bytes: u64,
    /// Most bytes in use and spare at any time.
    pub bytes_most: u64,
    /// Most bytes by which the limit was exceeded because everything was in use.
    pub over_bytes_most: u64,
}

impl BlockCache {
    /// Creates an empty cache of `cap_bytes`, but at least [`CACHE_BYTES_MIN`].
    #[must_use]
    pub(crate) fn new(cap_bytes: u64) -> Arc<BlockCache> {
        let cap_bytes = cap_bytes.max(CACHE_BYTES_MIN);
        BlockCache::sharing(&Room::new(cap_bytes, cap_bytes), None)
    }

    /// Creates an empty cache that takes what others leave of a budget, and its share in any case.
    /// It tells the scheduler when a preload is due.
    pub(crate) fn sharing(room: &Arc<Room>, work: Option<Arc<Scheduler>>) -> Arc<BlockCache> {
        let usage = Arc::new(Usage::new(room));
        let shards = (0..SHARDS).map(|_| Shard::new()).collect();
        let pages = Arc::new(BlockCache {
            shards,
            usage,
            buffers: Mutex::default(),
            read: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            is_preload_due: AtomicBool::new(false),
            work,
        });
        let of_pages = Arc::downgrade(&pages);
        room.is_of(of_pages);
        pages
    }

    /// Returns the counters.
    #[must_use]
    pub(crate) fn counts(&self) -> BlockCacheCounts {
        let [data, index, filter] = PageKind::ALL.map(|kind| {
            self.shards.iter().fold(KindCounts::default(), |sum, shard| {
                let shard = shard.counts(kind);
                KindCounts {
                    hits: sum.hits + shard.hits,
                    misses: sum.misses + shard.misses,
                    evictions: sum.evictions + shard.evictions,
                }
            })
        });
        let usage = &self.usage;
        let cap_bytes = usage.cap();
        let bytes_most = usage.most.load(Relaxed);
        let over_bytes_most = usage.over_most.load(Relaxed);
        let spare_bytes = usage.spare_bytes();
        let bytes = usage.bytes().load(Relaxed).saturating_sub(spare_bytes);
        BlockCacheCounts {
            data,
            index,
            filter,
            cap_bytes,
            bytes,
            spare_bytes,
            bytes_most,
            over_bytes_most,
        }
    }

    /// Counts bytes that were read from files of runs.
    pub(crate) fn note_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Relaxed);
    }

    /// Returns the bytes that were read from files of runs.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Counts a block that its reader waits for.
    pub(crate) fn note_missed(&self) {
        let missed = self.missed.fetch_add(1, Relaxed) + 1;
        let room = self.usage.room();
        if missed < MISSES_MIN || missed < room.pages_wanted() / PRELOAD_PIECE_BYTES {
            return;
        }
        self.missed.store(0, Relaxed);
        let Some(work) = self.work.as_ref().filter(|_| room.do_runs_fit()) else { return };
        self.is_preload_due.store(true, Relaxed);
        work.tell();
    }

    /// Returns true once if a preload is due.
    pub(crate) fn is_preload_due(&self) -> bool {
        self.is_preload_due.swap(false, Relaxed)
    }

    /// Gives spare slots back to the system, except for some for the next blocks. Dropping a run
    /// leaves many, and the thread that does it should not spend time on them.
    pub(crate) fn give_spares_back(&self) {
        while self.usage.spares() > SPARES_MAX && self.usage.free_spare() {}
    }

    /// Forgets the blocks of a run without readers, in time proportional to all that is cached.
    pub(crate) fn forget(&self, run: RunNumber) {
        for shard in &self.shards {
            shard.forget(run);
        }
    }

    /// Returns a block if it is cached.
    #[inline]
    pub(crate) fn find(&self, id: PageId, kind: PageKind) -> Option<Arc<Page>> {
        self.shard(id).find(id, kind)
    }

    /// Returns true if a block is cached. It does not count as a lookup.
    pub(crate) fn is_cached(&self, id: PageId) -> bool {
        self.shard(id).has(id)
    }

    /// Caches a block that was read and verified. If another reader was faster, its block is
    /// returned.
    pub(crate) fn insert(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Arc<Page> {
        let page = self.page(id, kind, bytes);
        let (kept, replaced) = self.shard(id).insert(page);
        drop(replaced);
        kept
    }

    /// Caches a block if it fits without an eviction. It is for walks over many blocks, each of
    /// which is not likely to be needed soon.
    pub(crate) fn insert_if_room(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Arc<Page> {
        self.offer(id, kind, bytes).unwrap_or_else(|| self.page(id, kind, bytes))
    }

    /// Caches a block if it fits without an eviction, and otherwise does nothing.
    pub(crate) fn offer(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Option<Arc<Page>> {
        let weight = weight_of(bytes);
        // Some room stays for blocks that are in use but not cached, which would cause evictions.
        let cap = self.usage.cap();
        if self.usage.in_use() + weight > cap / 16 * 15 {
            return None;
        }
        let made = || self.usage.take(weight, cap).then(|| Frame::new(&self.usage, bytes));
        let frame = Frame::spare(&self.usage, bytes).or_else(made)?;
        let (kept, replaced) = self.shard(id).insert(Arc::new(Page::new(id, kind, frame)));
        drop(replaced);
        Some(kept)
    }

    /// Creates a block that counts, but is not cached, for a single use.
    pub(crate) fn page(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Arc<Page> {
        let most = self.most();
        let frame = loop {
            if let Some(frame) = Frame::spare(&self.usage, bytes) {
                break frame;
            }
            // Evicting a block of the same size leaves a spare slot.
            if self.take_or_make_room(weight_of(bytes), most) {
                break Frame::new(&self.usage, bytes);
            }
        };
        Arc::new(Page::new(id, kind, frame))
    }

    /// Counts bytes that are held beside the cache, until the charge is dropped.
    pub(crate) fn charge(&self, bytes: u64) -> Charge {
        let most = self.most();
        while !self.take_or_make_room(bytes, most) {}
        Charge::new(&self.usage, bytes)
    }

    /// Returns the most bytes there may be after an addition. If the limit has dropped, it follows
    /// in small steps, so that no reader waits until the whole difference is evicted.
    fn most(&self) -> u64 {
        let now = self.usage.bytes().load(Relaxed);
        self.usage.cap().max(now.saturating_sub(SHRINK_BYTES))
    }

    /// Takes bytes if they fit under the limit, or if nothing more can be evicted. Otherwise evicts
    /// a block and returns false.
    fn take_or_make_room(&self, bytes: u64, most: u64) -> bool {
        if self.usage.take(bytes, most) {
            return true;
        }
        let has_deleted = self.usage.free_spare() || self.evict();
        if !has_deleted {
            self.usage.take_anyway(bytes);
        }
        !has_deleted
    }

    /// Returns a buffer for a read of so many bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> Lease {
        if bytes <= BUFFER_BYTES
            && let Some(mut lease) = self.buffers.lock().pop()
        {
            lease.buffer.set_len(bytes);
            return lease;
        }
        let charge = self.charge(bytes.max(BUFFER_BYTES) as u64);
        let rounded = if bytes > BUFFER_BYTES { bytes.max(MAPPED_BYTES) } else { BUFFER_BYTES };
        let mut buffer = IoBuffer::new(rounded);
        buffer.set_len(bytes);
        Lease { buffer, _charge: charge }
    }

    /// Takes a buffer back. A buffer that is dropped instead is freed.
    pub(crate) fn give_back(&self, lease: Lease) {
        if lease.buffer.capacity() != BUFFER_BYTES {
            return;
        }
        let mut buffers = self.buffers.lock();
        if buffers.len() < BUFFERS_MAX {
            buffers.push(lease);
        }
    }

    /// Evicts a block of the largest shard that has one to evict. Returns false if all are in use.
    /// (With any other choice the shards drift apart, and the small ones evict what is needed.)
    fn evict(&self) -> bool {
        let largest = self.shards.iter().max_by_key(|shard| shard.bytes());
        let gone = largest.and_then(Shard::evict);
        gone.or_else(|| self.shards.iter().find_map(Shard::evict)).is_some()
    }

    #[inline]
    fn shard(&self, id: PageId) -> &Shard {
        // The map in a shard uses the lowest and highest bits of the hash.
        &self.shards[(id.hash() >> 40) as usize % self.shards.len()]
    }
}

impl Borrower for BlockCache {
    fn give_back(&self, bytes: u64) {
        let now = || self.usage.bytes().load(Relaxed);
        let most = now().saturating_sub(bytes);
        while now() > most && (self.usage.free_spare() || self.evict()) {}
    }
}

/// A read buffer, which counts.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) buffer: IoBuffer,
    _charge: Charge,
}

/// A counter of several threads that no decision depends on.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    #[inline]
    fn add_one(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
