//! The pool: persistent blocks in a region, which a crash never leaks.
//!
//! What is durable of it says how the region is divided, and little else: a header, eight roots,
//! and for every chunk the size of the blocks in it. Which blocks are taken is known in DRAM only.
//! So a block costs no flush to take or to give back (a chunk costs one when it gets its size), and
//! after a crash there is nothing to repair: what the indexes reach is taken, all else is free.
//! Who opens a pool that was used before goes on at once in chunks that nobody has used; the
//! others are free for use again once a sweep has asked the indexes what they reach.
//!
//! Blocks that readers without locks may still look at are retired, and free when nobody who was
//! reading then still does (epoch-based reclamation, Fraser 2004).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use entresol_base::ByteSize;
use entresol_base::sync::Mutex;
use entresol_base::thread::{self, JoinHandle};
use entresol_media::Region;

mod classes;
mod layout;
mod marks;
mod readers;
mod space;

pub use readers::Guard;

use crate::{IndexError, Persistent};
use classes::Classes;
use layout::Layout;
use marks::Marks;
use readers::Readers;
use space::Space;

/// The first eight bytes of a pool, and so of its file.
pub const MAGIC: [u8; 8] = *b"ENTRPOOL";

/// How many roots a pool has.
pub const ROOTS: usize = 8;

/// As many blocks are retired before it is tried to free some.
const RETIRED_MANY: usize = 64;

/// How a pool is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// The bytes in which blocks of one size lie together: a power of two from 4 KiB to 1 GiB.
    pub chunk_bytes: u64,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions { chunk_bytes: 64 << 10 }
    }
}

/// Persistent blocks in a region. See the head of the module.
#[derive(Debug)]
pub struct Pool<R> {
    region: Arc<R>,
    layout: Layout,
    classes: Classes,
    openings: u32,
    space: Mutex<Space>,
    is_swept: AtomicBool,
    /// Held by the one who sweeps.
    sweeping: Mutex<()>,
    readers: Readers,
    /// Locked before `space`.
    retired: Mutex<Vec<Retired>>,
}

/// A block that nobody finds any more, and when it was so.
#[derive(Debug, Clone, Copy)]
struct Retired {
    epoch: u64,
    offset: u64,
}

/// What a sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Blocks that the indexes reach.
    pub reached: u64,
    /// Blocks that they do not, in chunks that have others.
    pub free: u64,
    /// Chunks in which nothing is reached.
    pub free_chunks: u64,
}

impl<R: Region> Pool<R> {
    /// Makes a pool of the whole region, whatever was there.
    ///
    /// # Errors
    /// If the options cannot be had in a region of this size.
    pub fn create(region: Arc<R>, options: PoolOptions) -> Result<Pool<R>, IndexError> {
        Layout::format(&*region, options)?;
        Pool::open(region)
    }

    /// Opens the pool that the region holds.
    ///
    /// # Errors
    /// If it holds none, or one that cannot be read.
    pub fn open(region: Arc<R>) -> Result<Pool<R>, IndexError> {
        let layout = Layout::read(&*region)?;
        // A process that was killed leaves words that are seen, but not durable. What follows until
        // the opening is counted durably only reads.
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

    /// Opens the pool that the region holds, or makes one if it holds nothing.
    ///
    /// # Errors
    /// If it holds something else, or the options cannot be had.
    pub fn open_or_create(region: Arc<R>, options: PoolOptions) -> Result<Pool<R>, IndexError> {
        if Layout::is_absent(&*region) { Pool::create(region, options) } else { Pool::open(region) }
    }

    /// The region it lies in.
    #[inline]
    #[must_use]
    pub fn region(&self) -> &R {
        &self.region
    }

    /// The same, to be opened again.
    #[cfg(test)]
    pub(crate) fn region_shared(&self) -> Arc<R> {
        Arc::clone(&self.region)
    }

    /// How often it was opened, at least 1: what bears another number was written before.
    #[inline]
    #[must_use]
    pub fn openings(&self) -> u32 {
        self.openings
    }

    /// What one of the [`ROOTS`] says; 0 until it is set.
    ///
    /// # Panics
    /// If there is no such root.
    #[must_use]
    pub fn root(&self, root: usize) -> u64 {
        self.region.load_u64(layout::root_at(root), Acquire)
    }

    /// Sets a root, durably and in one piece.
    ///
    /// # Panics
    /// If there is no such root.
    #[track_caller]
    pub fn set_root(&self, root: usize, value: u64) {
        let at = layout::root_at(root);
        self.region.store_u64(at, value, Release);
        self.region.persist(at, 8);
    }

    /// Takes a block of at least `bytes`, a multiple of 64 if they are. Its contents are
    /// anything. Nothing of this is durable: a block that nobody reaches after a crash is free.
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

    /// The bytes of the block that holds so many.
    pub(crate) fn block_bytes(&self, bytes: u64) -> u64 {
        match self.classes.holding(bytes).and_then(|class| self.classes.bytes(class)) {
            Some(block) => block,
            None => bytes.next_multiple_of(self.layout.chunk_bytes),
        }
    }

    /// Gives a block back that nobody else can be looking at. What led to it must be gone durably.
    ///
    /// # Panics
    /// If it is not a block that is taken.
    #[track_caller]
    pub fn free(&self, offset: u64) {
        self.space.lock().give(&*self.region, &self.layout, &self.classes, offset);
    }

    /// Gives a block back once nobody looks at it who might. What led to it must be gone durably.
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

    /// Frees retired blocks that nobody looks at any more; says how many are left.
    pub fn reclaim(&self) -> usize {
        let oldest = self.readers.advance();
        let mut retired = self.retired.lock();
        // Freed before the lock is given back, so that a sweep sees each block here or free.
        retired.extract_if(.., |it| it.epoch < oldest).for_each(|it| self.free(it.offset));
        retired.len()
    }

    /// Keeps every block that is retired from now on as it is, until the guard is dropped. Whoever
    /// follows links without holding the locks that protect them needs one.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.readers.pin()
    }

    /// Waits until everybody who has a guard now has given it back: nobody looks any more at what
    /// nothing led to before. The caller has no guard.
    pub fn wait_for_readers(&self) {
        let now = self.readers.epoch();
        while self.readers.advance() <= now {
            thread::yield_now();
        }
    }

    /// Whether a block of `bytes` can lie at `offset`: a multiple of 64, after the header and
    /// before the end.
    ///
    /// # Errors
    /// If it cannot; whoever wrote that offset is damaged.
    #[inline]
    pub fn check(&self, offset: u64, bytes: u64) -> Result<u64, IndexError> {
        let Layout { begin, end, .. } = self.layout;
        if offset.is_multiple_of(64) && offset >= begin && offset <= end - bytes.min(end) {
            return Ok(offset);
        }
        Err(IndexError::damaged(offset, format!("no block of {bytes} bytes can lie here")))
    }

    /// Whether every free block is known.
    #[must_use]
    pub fn is_swept(&self) -> bool {
        self.is_swept.load(Acquire)
    }

    /// Finds out which blocks are free in the chunks that were in use when the pool was opened.
    /// `reach` must show all that the pool's indexes reach, while they go on being used. Later
    /// calls do nothing. The caller has no guard of the pool: those that there are when `reach` has
    /// ended are waited for.
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
        // What was unlinked before it could be shown has been retired once those who were at it
        // have given their guards back; what was unlinked later has been shown.
        self.wait_for_readers();
        let retired = self.retired.lock();
        retired.iter().try_for_each(|it| mark(&mut marks, it.offset))?;
        let swept = self.space.lock().sweep(&*self.region, &self.layout, marks);
        drop(retired);
        self.is_swept.store(true, Release);
        Ok(swept)
    }

    /// Shows every block that is taken.
    pub fn taken(&self, mut visit: impl FnMut(u64)) {
        self.space.lock().taken(&self.layout, &self.classes, &mut visit);
    }

    /// The bytes in chunks that nobody uses.
    #[must_use]
    pub fn free_chunk_bytes(&self) -> u64 {
        self.space.lock().free_chunks() * self.layout.chunk_bytes
    }
}

/// Sweeps a pool that holds this index only, behind its users' backs.
pub fn sweep_behind<R, I>(
    pool: &Arc<Pool<R>>,
    index: &Arc<I>,
) -> JoinHandle<Result<Swept, IndexError>>
where
    R: Region + 'static,
    I: Persistent<R> + 'static,
{
    let (pool, index) = (Arc::clone(pool), Arc::clone(index));
    thread::spawn("sweep", move || pool.sweep(|visit| index.blocks(visit)))
}

#[cfg(test)]
mod tests;
