//! The one cache of what was read of sorted runs, or written to them: blocks that were checked, or
//! just made, under one limit of bytes for a whole `Kvdb`.
//!
//! What is kept is chosen as S3-FIFO does (J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO
//! Queues are All You Need for Cache Eviction", section 4): a block that comes for the first time
//! must be found again before it leaves a small queue, else it makes room and only its name is
//! remembered for a while. So a scan, which finds each block once, drives nothing out. Index blocks
//! and pages of filters skip the small queue and stay longer, up to half of the limit together:
//! each stands before hundreds of blocks.
//!
//! **The limit** holds for everything alive, not for what is cached alone: a block counts from
//! before it is allocated until the last reader has let go of it, with what the cache needs to
//! remember it, and so do the buffers for reading. What a block of one page lay in is kept for the
//! next, whoever reads that, and counts as well. A block in use is not driven out, since that
//! would free nothing. If everything is in use, readers are still served, for else they would wait
//! for each other: what they hold is then counted as [`BlockCacheCounts::over_bytes_most`].
//!
//! Who may touch what: a shard's queues and map belong to whoever holds its lock; no two shards are
//! locked at once, and nobody reads, writes or waits while he holds one. The list of what is kept
//! for the next blocks is locked within that of a shard or alone. How often a block was found is
//! counted without the lock for writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use entresol_base::sync::Mutex;
use entresol_media::IoBuffer;
use serde::Serialize;

use crate::cache::budget::{Borrower, Room};
use crate::scheduler::Scheduler;
use crate::types::RunNumber;

mod frame;
mod page;
mod shard;

pub(crate) use frame::Charge;
pub(crate) use page::{Page, PageId, PageKind};

use frame::{Frame, Usage, weight_of};
use shard::Shard;

/// How many locks the cache has.
const SHARDS: u64 = 16;
/// The least that a cache may have: room for what a few readers use at once.
pub(crate) const CACHE_BYTES_MIN: u64 = 256 << 10;
/// The bytes of a buffer for reading that is kept for the next read. Larger ones are not.
const BUFFER_BYTES: usize = 32 << 10;
/// A larger one has so many: allocators map that by itself, and what is not used of it takes no
/// memory. Smaller ones would leave holes among blocks.
const MAPPED_BYTES: usize = 256 << 10;
/// How many buffers are kept.
const BUFFERS_MAX: usize = 4;
/// By so much the cache becomes smaller when something is added, if it is over its limit.
const SHRINK_BYTES: u64 = 32 << 10;
/// So many slots are kept for the next blocks.
const SPARES_MAX: usize = 64;
/// Reading from front to back takes one read for so many bytes.
const PRELOAD_PIECE_BYTES: u64 = 128 << 10;
/// For fewer blocks nothing is read ahead.
const MISSES_MIN: u64 = 64;

/// A cache of blocks.
#[derive(Debug)]
pub(crate) struct BlockCache {
    shards: Box<[Shard]>,
    usage: Arc<Usage>,
    buffers: Mutex<Vec<Lease>>,
    read: AtomicU64,
    /// Blocks that were read one by one since all were cached, or it was last found that they do
    /// not fit.
    missed: AtomicU64,
    is_preload_due: AtomicBool,
    /// Who caches all at once is told here; none: nobody does.
    work: Option<Arc<Scheduler>>,
}

/// What happened to blocks of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct KindCounts {
    /// How many were found in the cache.
    pub hits: u64,
    /// How many were not.
    pub misses: u64,
    /// How many made room for others.
    pub evictions: u64,
}

/// What a cache has done so far, and how large it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockCacheCounts {
    /// Blocks with entries.
    pub data: KindCounts,
    /// Index blocks.
    pub index: KindCounts,
    /// BlockCache of filters.
    pub filter: KindCounts,
    /// The limit, as it is now.
    pub cap_bytes: u64,
    /// What is in use now, cached or not.
    pub bytes: u64,
    /// What is kept for blocks that come.
    pub spare_bytes: u64,
    /// The most that both together ever were.
    pub bytes_most: u64,
    /// By how much the limit was exceeded at most, because everything was in use.
    pub over_bytes_most: u64,
}

impl BlockCache {
    /// An empty cache that keeps to `cap_bytes`, which are at least [`CACHE_BYTES_MIN`].
    #[must_use]
    pub(crate) fn new(cap_bytes: u64) -> Arc<BlockCache> {
        let cap_bytes = cap_bytes.max(CACHE_BYTES_MIN);
        BlockCache::sharing(&Room::new(cap_bytes, cap_bytes), None)
    }

    /// One that takes of a room what others leave, and its share in any case, and tells somebody
    /// when all runs are to be cached at once.
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

    /// What the cache has done so far.
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

    /// Counts bytes that were read of a run's file.
    pub(crate) fn note_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Relaxed);
    }

    /// How many were.
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

    /// Whether all runs are to be cached, for who does it then.
    pub(crate) fn is_preload_due(&self) -> bool {
        self.is_preload_due.swap(false, Relaxed)
    }

    /// Gives slots back to the system that no block lies in, but for some for the next blocks: who
    /// lets go of a run leaves many, and has no time.
    pub(crate) fn give_spares_back(&self) {
        while self.usage.spares() > SPARES_MAX && self.usage.free_spare() {}
    }

    /// Forgets the blocks of a run that nobody reads any more. Takes time in proportion to all
    /// that is cached.
    pub(crate) fn forget(&self, run: RunNumber) {
        for shard in &self.shards {
            shard.forget(run);
        }
    }

    /// The block, if it is cached.
    #[inline]
    pub(crate) fn find(&self, id: PageId, kind: PageKind) -> Option<Arc<Page>> {
        self.shard(id).find(id, kind)
    }

    /// Whether a block is cached, for who does not want it.
    pub(crate) fn is_cached(&self, id: PageId) -> bool {
        self.shard(id).has(id)
    }

    /// Caches a block that was read and checked. If somebody else was faster, his is answered.
    pub(crate) fn insert(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Arc<Page> {
        let page = self.page(id, kind, bytes);
        let (kept, replaced) = self.shard(id).insert(page);
        drop(replaced);
        kept
    }

    /// Caches a block if nothing has to make room for it: for who goes through many, each of which
    /// is not likely to be wanted soon.
    pub(crate) fn insert_if_room(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Arc<Page> {
        self.offer(id, kind, bytes).unwrap_or_else(|| self.page(id, kind, bytes))
    }

    /// Caches a block if nothing has to make room for it; else nothing is done.
    pub(crate) fn offer(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Option<Arc<Page>> {
        let weight = weight_of(bytes);
        // Some room stays for what is in use and not cached, which would drive something out.
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

    /// A block that counts, but is not cached: for who reads it once.
    pub(crate) fn page(&self, id: PageId, kind: PageKind, bytes: &[u8]) -> Arc<Page> {
        let most = self.most();
        let frame = loop {
            if let Some(frame) = Frame::spare(&self.usage, bytes) {
                break frame;
            }
            // Where a block of the same size goes, its slot is kept then.
            if self.take_or_make_room(weight_of(bytes), most) {
                break Frame::new(&self.usage, bytes);
            }
        };
        Arc::new(Page::new(id, kind, frame))
    }

    /// Counts bytes that are held beside the cache, until what is answered is dropped.
    pub(crate) fn charge(&self, bytes: u64) -> Charge {
        let most = self.most();
        while !self.take_or_make_room(bytes, most) {}
        Charge::new(&self.usage, bytes)
    }

    /// What there may be when something is added: the limit, or what there is if that has become
    /// lower, so that nobody has to wait until all of the difference is gone.
    fn most(&self) -> u64 {
        let now = self.usage.bytes().load(Relaxed);
        self.usage.cap().max(now.saturating_sub(SHRINK_BYTES))
    }

    /// Takes bytes if they fit under the limit, or nothing more can go; otherwise something goes.
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

    /// A buffer for a read of so many bytes.
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

    /// Takes a buffer back. One that is not given back is freed.
    pub(crate) fn give_back(&self, lease: Lease) {
        if lease.buffer.capacity() != BUFFER_BYTES {
            return;
        }
        let mut buffers = self.buffers.lock();
        if buffers.len() < BUFFERS_MAX {
            buffers.push(lease);
        }
    }

    /// Lets go of one block, of the largest shard that has one to let go; false if all are in use.
    /// (Any other choice lets the shards drift apart, and the small ones forget what is wanted.)
    fn evict(&self) -> bool {
        let largest = self.shards.iter().max_by_key(|shard| shard.bytes());
        let gone = largest.and_then(Shard::evict);
        gone.or_else(|| self.shards.iter().find_map(Shard::evict)).is_some()
    }

    #[inline]
    fn shard(&self, id: PageId) -> &Shard {
        // The map within a shard goes by the hash's lowest and highest bits.
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

/// A buffer for reading, which counts.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) buffer: IoBuffer,
    _charge: Charge,
}

/// A number that several threads add to and none depends on.
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
