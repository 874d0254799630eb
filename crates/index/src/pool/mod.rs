//! The pool: persistent blocks in a region, which a crash never leaks.
//!
//! The durable part says how the region is divided, and little else: a header, eight roots, and for
//! every chunk the size of the blocks in it. DRAM alone knows which blocks are taken. So taking or
//! freeing a block costs no flush (a chunk costs one when it gets its size), and after a crash
//! there is nothing to repair: blocks that an index reaches are taken, all others are free. A pool
//! that was used before allocates at once from unused chunks; the other chunks are used again once
//! a sweep has asked the indexes for the blocks that they reach.
//!
//! Blocks that lock-free readers may still look at are retired. They are freed when all readers of
//! that time have finished (epoch-based reclamation, Fraser 2004).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use entresol_base::ByteSize;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_media::Region;

mod classes;
mod layout;
mod marks;
mod readers;
mod space;

pub use readers::Guard;

use crate::IndexError;
use classes::Classes;
use layout::Layout;
use marks::Marks;
use readers::Readers;
use space::Space;

/// First eight bytes of a pool, and so of its file.
pub const MAGIC: [u8; 8] = *b"ENTRPOOL";

/// Number of roots of a pool.
pub const ROOTS: usize = 8;

/// Number of retired blocks from which on the pool tries to free some.
const RETIRED_MANY: usize = 64;

/// Options of a new pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Bytes of a chunk, in which blocks of one size lie together: a power of two from 4 KiB to 1
    /// GiB.
    pub chunk_bytes: u64,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions { chunk_bytes: 64 << 10 }
    }
}

/// Persistent blocks in a region; see the head of the module.
#[derive(Debug)]
pub struct Pool<R> {
    region: Arc<R>,
    layout: Layout,
    classes: Classes,
    openings: u32,
    space: Mutex<Space>,
    is_swept: AtomicBool,
    /// Held during a sweep.
    sweeping: Mutex<()>,
    readers: Readers,
    /// Locked before `space`.
    retired: Mutex<Vec<Retired>>,
}

/// A block that no reader can find any more, and the epoch in which that became so.
#[derive(Debug, Clone, Copy)]
struct Retired {
    epoch: u64,
    offset: u64,
}

/// Result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Blocks that the indexes reach.
    pub reached: u64,
    /// Unreached blocks in chunks that have reached ones.
    pub free: u64,
    /// Chunks in which no block is reached.
    pub free_chunks: u64,
}

impl<R: Region> Pool<R> {
    /// Makes a pool of the whole region and discards its contents.
    ///
    /// # Errors
    /// If the options are impossible in a region of this size.
    pub fn create(region: Arc<R>, options: PoolOptions) -> Result<Pool<R>, IndexError> {
        Layout::format(&*region, options)?;
        Pool::open(region)
    }

    /// Opens the pool that the region holds.
    ///
    /// # Errors
    /// If the region holds none, or one that cannot be read.
    pub fn open(region: Arc<R>) -> Result<Pool<R>, IndexError> {
        let layout = Layout::read(&*region)?;
        // A killed process leaves words that are visible, but not durable. From here until the
        // opening is counted durably, the pool is only read.
        region.flush(0, layout.header_bytes());
        let classes = Classes::of(layout.chunk_bytes);
        let space = Space::read(&*region, &layout, &classes)?;
        let openings = layout::count_opening(&*region);
        Ok(Pool {
            layout,
            classes,
            openings,
            is_swept: AtomicBool::new(!space.has_unswept()),
            sweeping: Mutex::new(()),
            space: Mutex::new(space),
            readers: Readers::new(),
            retired: Mutex::default(),
            region,
        })
    }

    /// Opens the pool that the region holds, or makes one if the region is empty.
    ///
    /// # Errors
    /// If the region holds anything else, or the options are impossible.
    pub fn open_or_create(region: Arc<R>, options: PoolOptions) -> Result<Pool<R>, IndexError> {
        if Layout::is_absent(&*region) { Pool::create(region, options) } else { Pool::open(region) }
    }

    /// Returns the region that the pool lies in.
    #[inline]
    #[must_use]
    pub fn region(&self) -> &R {
        &self.region
    }

    /// Returns the region for another opening.
    #[cfg(test)]
    pub(crate) fn region_shared(&self) -> Arc<R> {
        Arc::clone(&self.region)
    }

    /// Returns the number of openings so far, at least 1: a word marked with another number is
    /// older than this opening.
    #[inline]
    #[must_use]
    pub fn openings(&self) -> u32 {
        self.openings
    }

    /// Returns the word of one of the [`ROOTS`]; 0 until it is set.
    ///
    /// # Panics
    /// If there is no such root.
    #[must_use]
    pub fn root(&self, root: usize) -> u64 {
        self.region.load_u64(layout::root_at(root), Acquire)
    }

    /// Sets a root, durably and atomically.
    ///
    /// # Panics
    /// If there is no such root.
    #[track_caller]
    pub fn set_root(&self, root: usize, value: u64) {
        let at = layout::root_at(root);
        self.region.store_u64(at, value, Release);
        self.region.persist(at, 8);
    }

    /// Takes a block of at least `bytes`, aligned to 64 if `bytes` is a multiple of 64, with
    /// undefined contents. None of this is durable: a block that no index reaches after a crash is
    /// free.
    ///
    /// # Errors
    /// If there is no room.
    pub fn allocate(&self, bytes: u64) -> Result<u64, IndexError> {
        let take = || self.space.lock().take(&*self.region, &self.layout, &self.classes, bytes);
        let found = take().or_else(|| {
            self.reclaim();
            take()
        });
        found.ok_or_else(|| IndexError::Full {
            pool: ByteSize(self.region.len()),
            bytes: ByteSize(bytes),
            sweeping: match self.is_swept() {
                true => "",
                false => " while a sweep that may find room has not ended",
            },
        })
    }

    /// Returns the bytes of the block that is taken for an allocation of `bytes`.
    pub(crate) fn block_bytes(&self, bytes: u64) -> u64 {
        match self.classes.holding(bytes).and_then(|class| self.classes.bytes(class)) {
            Some(block) => block,
            None => bytes.next_multiple_of(self.layout.chunk_bytes),
        }
    }

    /// Frees a block that no other thread can be looking at. The link to it must be durably gone.
    ///
    /// # Panics
    /// If the offset is not that of a taken block.
    #[track_caller]
    pub fn free(&self, offset: u64) {
        self.space.lock().give(&*self.region, &self.layout, &self.classes, offset);
    }

    /// Frees a block as soon as no reader can be looking at it. The link to it must be durably
    /// gone.
    pub fn retire(&self, offset: u64) {
        let mut retired = self.retired.lock();
        debug_assert!(
            retired.iter().all(|it| it.offset != offset),
            "the block at {offset} is retired for the second time",
        );
        retired.push(Retired { epoch: self.readers.epoch(), offset });
        let many = retired.len().is_multiple_of(RETIRED_MANY);
        drop(retired);
        if many {
            self.reclaim();
        }
    }

    /// Frees retired blocks that no reader looks at any more; returns the number of those left.
    pub fn reclaim(&self) -> usize {
        let oldest = self.readers.advance();
        let mut retired = self.retired.lock();
        // Freed before the lock is released, so that a sweep sees each block here or free.
        retired.extract_if(.., |it| it.epoch < oldest).for_each(|it| self.free(it.offset));
        retired.len()
    }

    /// Keeps every block that is retired from now on unchanged until the guard is dropped. A thread
    /// that follows links without holding their locks needs one.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.readers.pin()
    }

    /// Waits until every guard that exists now is dropped: then no reader looks at a block that was
    /// unlinked before the call. The caller must hold no guard.
    pub fn wait_for_readers(&self) {
        let now = self.readers.epoch();
        while self.readers.advance() <= now {
            thread::yield_now();
        }
    }

    /// Checks that a block of `bytes` can lie at `offset`: at a multiple of 64, after the header
    /// and before the end.
    ///
    /// # Errors
    /// If it cannot; then the word that holds the offset is damaged.
    #[inline]
    pub fn check(&self, offset: u64, bytes: u64) -> Result<u64, IndexError> {
        let Layout { begin, end, .. } = self.layout;
        if offset.is_multiple_of(64) && offset >= begin && offset <= end - bytes.min(end) {
            return Ok(offset);
        }
        Err(IndexError::damaged(offset, format!("no block of {bytes} bytes can lie here")))
    }

    /// Returns true if every free block is known.
    #[must_use]
    pub fn is_swept(&self) -> bool {
        self.is_swept.load(Acquire)
    }

    /// Finds the free blocks in the chunks that were in use when the pool was opened. `reach` must
    /// pass all blocks that the pool's indexes reach, while the indexes stay in use. Later calls do
    /// nothing. The caller must hold no guard of the pool: all guards that exist when `reach`
    /// returns are waited for.
    ///
    /// # Errors
    /// If an index is damaged, or reaches blocks where the pool has none; then nothing is freed.
    pub fn sweep(
        &self,
        reach: impl FnOnce(&mut dyn FnMut(u64)) -> Result<(), IndexError>,
    ) -> Result<Swept, IndexError> {
        let _held = self.sweeping.lock();
        if self.is_swept() {
            return Ok(Swept::default());
        }
        let mut marks = self.space.lock().marks(&self.classes);
        let mark = |marks: &mut Marks, offset| match marks.mark(&self.layout, offset) {
            Ok(false) => self.space.lock().check_taken(&self.layout, &self.classes, offset),
            marked => marked.map(drop),
        };
        let mut damage = Ok(());
        reach(&mut |offset| {
            if damage.is_ok() {
                damage = mark(&mut marks, offset);
            }
        })?;
        damage?;
        // A block that was unlinked before `reach` could pass it has been retired once the threads
        // that unlinked it have dropped their guards; one that was unlinked later has been passed.
        self.wait_for_readers();
        let retired = self.retired.lock();
        retired.iter().try_for_each(|it| mark(&mut marks, it.offset))?;
        let swept = self.space.lock().sweep(&*self.region, &self.layout, marks);
        drop(retired);
        self.is_swept.store(true, Release);
        Ok(swept)
    }

    /// Passes every taken block to `visit`.
    pub fn taken(&self, mut visit: impl FnMut(u64)) {
        self.space.lock().taken(&self.layout, &self.classes, &mut visit);
    }

    /// Returns the bytes of unused chunks.
    #[must_use]
    pub fn free_chunk_bytes(&self) -> u64 {
        self.space.lock().free_chunks() * self.layout.chunk_bytes
    }
}

#[cfg(test)]
mod tests;
