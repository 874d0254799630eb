//! The cache as a whole: state shared by its threads, opening, statistics, maintenance, closing.
//! Operations on single items are in `Worker`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use entresol_base::hash::KeyHasher;
use entresol_base::{ByteSize, Clock, Seconds};
use entresol_media::{Account, BlockFile, Direct, MediumKind};
use parking_lot::Mutex;

use crate::config::plan::Plan;
use crate::config::{Config, Eviction};
use crate::error::{CloseError, OpenError, ResizeError};
use crate::index::Index;
use crate::record::{Head, UNIT};
use crate::restart::Restart;
use crate::segment::append::{PAGE, Shard};
use crate::segment::{Queues, Quota, SharedQueues, State, Table, Writing};
use crate::statistics::{Counters, Statistics};
use crate::values::Values;
use crate::worker::Worker;

/// State shared by all threads of a cache.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) segment_bytes: u64,
    /// Binary logarithm of the distance between the starts of segments in the arena.
    stride_shift: u32,
    pub(crate) value_bytes_max: u64,
    pub(crate) eviction: Eviction,
    pub(crate) arena: Direct,
    pub(crate) index: Index,
    pub(crate) segments: Table,
    pub(crate) queues: SharedQueues,
    pub(crate) values: Values,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    /// Open segments and holes, one entry a shard.
    pub(crate) writing: Box<[Writing]>,
    pub(crate) dram: Quota,
    /// Bytes of it used for the life of the cache: write buffers.
    fixed_bytes: u64,
    medium: Quota,
    medium_capacity: u64,
    pub(crate) hasher: KeyHasher,
    pub(crate) next_sequence: AtomicU64,
    /// Sequence number below which all segments are flushed; 0 when none of them is left.
    flushed_below: AtomicU64,
    /// Second at which an ordered flush takes effect, or 0.
    flush_at: AtomicU32,
    pub(crate) restart: Option<Restart>,
    pub(crate) account: Arc<Account>,
    /// Counters of work on the shared state: evictions, expiry, merging.
    pub(crate) counters: Counters,
    pub(crate) worker_counters: Mutex<Vec<Arc<Counters>>>,
    next_worker: AtomicUsize,
    pub(crate) table_bytes_taken: AtomicU64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Set once the cache was closed; locked by upkeep and by saving.
    pub(crate) closed: Mutex<bool>,
    /// Set when writers have met the end of the quota, so that upkeep makes room ahead of them.
    pub(crate) pressed: AtomicBool,
}

impl Shared {
    /// Returns the offset in the arena at which a segment's records start.
    #[inline]
    pub(crate) fn base_of(&self, segment: u32) -> u64 {
        u64::from(segment) << self.stride_shift
    }

    /// Returns the offset on the medium at which a segment's values start.
    #[inline]
    pub(crate) fn medium_base_of(&self, segment: u32) -> u64 {
        self.values.data_start() + u64::from(segment) * self.segment_bytes
    }

    /// Returns the segment that holds a location.
    #[inline]
    pub(crate) fn segment_of(&self, location: u64) -> u32 {
        ((location * UNIT) >> self.stride_shift) as u32
    }

    /// Reads the head of the record at a location.
    #[inline]
    pub(crate) fn head(&self, location: u64) -> Head {
        Head::load(&self.arena, location * UNIT, self.values.is_elsewhere())
    }

    /// Returns the token of the record at a location: an explicit one, or the one that its place
    /// implies.
    pub(crate) fn cas_of(&self, location: u64, head: &Head) -> u64 {
        head.explicit_cas(&self.arena).unwrap_or_else(|| {
            let segment = self.segment_of(location);
            let sequence = self.segments.get(segment).sequence.load(Ordering::SeqCst);
            self.implied_cas(sequence, location)
        })
    }

    /// Returns the token that a place implies; a segment's later lives give greater ones.
    pub(crate) fn implied_cas(&self, sequence: u64, location: u64) -> u64 {
        let offset = (location * UNIT) & ((1 << self.stride_shift) - 1);
        (sequence << 22) | (offset / UNIT)
    }

    /// Prefetches the record at a location, if there is one.
    pub(crate) fn fetch(&self, location: u64) {
        self.arena.prefetch(location.wrapping_mul(UNIT));
    }

    /// Hashes the key of the record at a location.
    pub(crate) fn rehash(&self, location: u64) -> u64 {
        let head = self.head(location);
        let mut key = [0_u8; 255];
        let key = &mut key[..head.key_len.min(255)];
        self.arena.read(head.key_at(), key);
        self.hasher.hash(key)
    }

    /// Returns the sequence number below which segments are flushed.
    #[inline]
    pub(crate) fn flushed_below(&self) -> u64 {
        self.flushed_below.load(Ordering::Acquire)
    }

    /// Returns true if the item at a location was flushed.
    #[inline]
    pub(crate) fn is_flushed(&self, location: u64) -> bool {
        let below = self.flushed_below();
        below != 0 && {
            let segment = self.segments.get(self.segment_of(location));
            segment.sequence.load(Ordering::SeqCst) < below
        }
    }

    /// Returns the quota that segments are taken from.
    pub(crate) fn segment_quota(&self) -> &Quota {
        if self.values.is_elsewhere() { &self.medium } else { &self.dram }
    }

    /// Grows the table while it is too full and DRAM is left or can be freed.
    pub(crate) fn grow_index(&self, shard: &mut Shard, now: Seconds) {
        const STEP: u64 = 4096;
        while self.index.wants_growth() {
            let taken = self.table_bytes_taken.load(Ordering::Relaxed);
            if self.index.bytes() + crate::index::BUCKET_BYTES > taken {
                let taken =
                    self.dram.take(STEP) || self.evict_one(shard, now) && self.dram.take(STEP);
                if !taken {
                    return;
                }
                self.table_bytes_taken.fetch_add(STEP, Ordering::Relaxed);
            }
            if !self.index.grow(&|at| self.fetch(at), &|at| self.rehash(at)) {
                return;
            }
        }
    }

    /// Gives back memory of the table that a shrunken cache no longer needs.
    fn shrink_index(&self, steps_max: usize) -> bool {
        const STEP: u64 = 4096;
        let mut shrunk = false;
        for _ in 0..steps_max {
            if !self.index.wants_shrinking() || !self.index.shrink() {
                break;
            }
            shrunk = true;
        }
        if shrunk {
            self.index.trim();
            let needed = self.index.bytes().next_multiple_of(STEP);
            let taken = self.table_bytes_taken.load(Ordering::Relaxed);
            if taken > needed {
                self.table_bytes_taken.fetch_sub(taken - needed, Ordering::Relaxed);
                self.dram.give_back(taken - needed);
            }
        }
        shrunk
    }

    /// Asserts, while no writer runs, that quotas count what segments and the table take up, and
    /// that a segment counts what is in it.
    pub(crate) fn debug_assert_adds_up(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let elsewhere = self.values.is_elsewhere();
        let (mut segments, mut records) = (0, 0);
        let high_water = self.queues.lock().high_water();
        for id in 0..high_water {
            let segment = self.segments.get(id);
            let (state, live) = (segment.state(), segment.live_items());
            if state == State::Free {
                continue;
            }
            assert!(state == State::Sealed, "everything was sealed, but segment {id} is {state:?}");
            segments += self.segment_bytes;
            records += u64::from(segment.used.load(Ordering::Relaxed)).next_multiple_of(PAGE);
            let mut found = 0;
            self.walk(id, |_, _, _| found += 1);
            assert!(found == live, "segment {id} counts {live} items and has {found}");
        }
        let in_dram = if elsewhere { records } else { segments };
        let table = self.table_bytes_taken.load(Ordering::Relaxed);
        let (dram, sum) = (self.dram.used(), self.fixed_bytes + table + in_dram);
        assert!(dram == sum, "{dram} bytes of DRAM are counted, {sum} are used");
        let taken = self.segment_quota().used();
        assert!(!elsewhere || taken == segments, "{taken} bytes are counted, {segments} are used");
    }

    fn flush_now(&self) {
        let below = self.next_sequence.fetch_add(1, Ordering::SeqCst);
        if let Some(restart) = &self.restart {
            restart.record_flush(below);
        }
        self.flushed_below.store(below, Ordering::SeqCst);
    }

    /// Carries out an ordered flush whose time has come.
    #[inline]
    pub(crate) fn check_flush(&self, now: Seconds) {
        let at = self.flush_at.load(Ordering::Relaxed);
        if at != 0 && at <= now.0 {
            self.flush_due(at);
        }
    }

    #[cold]
    fn flush_due(&self, at: u32) {
        if self.flush_at.compare_exchange(at, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.flush_now();
        }
    }

    /// Orders a flush for a second, or cancels it if that is 0.
    pub(crate) fn resume_flush(&self, at_s: u32) {
        self.flush_at.store(at_s, Ordering::SeqCst);
    }

    /// Ends the flush once no segment from before it is left.
    fn finish_flush(&self) {
        let below = self.flushed_below();
        if below == 0 {
            return;
        }
        for shard in &self.shards {
            shard.lock().seal_flushed(self);
        }
        let left = (0..self.queues.lock().high_water()).any(|id| {
            let segment = self.segments.get(id);
            segment.state() != State::Free && segment.sequence.load(Ordering::SeqCst) < below
        });
        if !left {
            let _ =
                self.flushed_below.compare_exchange(below, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// A segment cache: one tenant's items, within its quotas, on its medium.
///
/// ```
/// use std::sync::Arc;
/// use entresol_base::{ByteSize, Clock, SystemClock};
/// use entresol_cache::{Cache, Config, GetOptions, Lookup, Store};
///
/// let clock = Arc::new(SystemClock::new());
/// let cache = Cache::open(Config::dram(ByteSize::mib(32)), clock.clone())?;
/// let mut worker = cache.worker();
/// let (key, now) = (b"greeting", clock.seconds());
/// let hash = worker.hash(key);
/// worker.store(key, hash, now, &Store::set(b"hello"), None);
///
/// let mut out = Vec::new();
/// let found = worker.get(key, hash, now, &GetOptions::default(), &mut out, |_, _| ());
/// assert!(matches!(found, Lookup::Hit(_)));
/// assert_eq!(out, b"hello");
/// # Ok::<(), entresol_cache::OpenError>(())
/// ```
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
}

impl Cache {
    /// Checks that a cache can have these sizes, without opening anything.
    ///
    /// # Errors
    /// When a quota is too small for its segments or larger than the machine or the medium, or a
    /// value larger than a segment.
    pub fn check(config: &Config) -> Result<(), OpenError> {
        Plan::make(config).map(drop)
    }

    /// Opens a cache with the items that its restart directory holds, or an empty one.
    ///
    /// # Errors
    /// When the configuration cannot be met: the medium is missing or too small, a quota too small
    /// for its segments, a value larger than a segment. A failed call leaves nothing half made.
    pub fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Arc<Cache>, OpenError> {
        let plan = Plan::make(&config)?;
        let (values, account) = Values::open(&config, &plan)?;
        let restart = match &config.restart_dir {
            Some(dir) => Some(Restart::open(dir, &config, &plan, &values, clock.seconds())?),
            None => None,
        };
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let hasher = config.seed.map_or_else(KeyHasher::random, KeyHasher::seeded);
        let shards = (0..plan.shards)
            .map(|i| Mutex::new(Shard::new(i, plan.open_slots, seed, account.handle())))
            .collect();
        let shared = Arc::new(Shared {
            name: config.name.clone(),
            segment_bytes: plan.segment_bytes,
            stride_shift: plan.stride_shift,
            value_bytes_max: config.value_bytes_max.0,
            eviction: config.eviction,
            arena: Direct::anonymous(plan.arena_bytes, plan.arena_huge_pages)?,
            index: Index::new(plan.table_bytes_max, config.huge_pages)?,
            segments: Table::new(plan.segments_max),
            queues: Mutex::new(Queues::new(plan.segments_max)),
            values,
            shards,
            writing: (0..plan.shards).map(|_| Writing::default()).collect(),
            dram: Quota::new(plan.dram_bytes),
            fixed_bytes: plan.fixed_bytes,
            medium: Quota::new(plan.medium_bytes),
            medium_capacity: plan.medium_capacity,
            hasher,
            next_sequence: AtomicU64::new(1),
            flushed_below: AtomicU64::new(0),
            flush_at: AtomicU32::new(0),
            restart,
            account,
            counters: Counters::default(),
            worker_counters: Mutex::new(Vec::new()),
            next_worker: AtomicUsize::new(0),
            table_bytes_taken: AtomicU64::new(0),
            clock,
            closed: Mutex::new(false),
            pressed: AtomicBool::new(false),
        });
        shared.dram.force(plan.fixed_bytes + shared.index.bytes());
        shared.table_bytes_taken.store(shared.index.bytes(), Ordering::Relaxed);
        shared.values.start(&shared)?;
        let cache = Arc::new(Cache { shared });
        cache.restore()?;
        Ok(cache)
    }

    /// Returns a handle for one thread.
    #[must_use]
    pub fn worker(self: &Arc<Self>) -> Worker {
        let number = self.shared.next_worker.fetch_add(1, Ordering::Relaxed);
        let counters = Arc::new(Counters::default());
        self.shared.worker_counters.lock().push(Arc::clone(&counters));
        let shard = number % self.shared.shards.len();
        Worker::new(Arc::clone(&self.shared), shard, counters)
    }

    /// Returns the tenant's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the account that every access to the medium is charged to.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        &self.shared.account
    }

    /// Returns the kind of medium that values lie on.
    #[must_use]
    pub fn medium_kind(&self) -> MediumKind {
        self.shared.values.kind()
    }

    /// Returns the block file on which pending reads are carried out, if values lie on one.
    #[must_use]
    pub fn file(&self) -> Option<Arc<dyn BlockFile>> {
        match &self.shared.values {
            Values::File(file) => Some(Arc::clone(&file.file)),
            Values::Inline | Values::Pmem(_) => None,
        }
    }

    /// Returns the cache's contents in figures, and its counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::gather(&self.shared)
    }

    /// Sets every counter of events back to zero; figures of the contents stay.
    pub fn reset_statistics(&self) {
        self.shared.counters.reset();
        for counters in self.shared.worker_counters.lock().iter() {
            counters.reset();
        }
    }

    /// Drops every item stored until now, or until `delay_s` seconds from now, in constant time.
    pub fn flush_all(&self, now: Seconds, delay_s: u32) {
        if delay_s == 0 {
            self.shared.flush_now();
        } else {
            let at_s = now.0.saturating_add(delay_s).max(1);
            if let Some(restart) = &self.shared.restart {
                restart.record_flush_at(at_s);
            }
            self.shared.resume_flush(at_s);
        }
    }

    /// Changes the quotas while the cache is in use. A smaller quota takes effect by eviction in
    /// `maintain`.
    ///
    /// # Errors
    /// When a quota is too small for the cache's segments or larger than the machine or the medium.
    pub fn resize(&self, dram: ByteSize, medium: ByteSize) -> Result<(), ResizeError> {
        let shared = &self.shared;
        Plan::check_resize(
            shared.segment_bytes,
            &shared.values,
            dram,
            medium,
            shared.medium_capacity,
        )?;
        shared.values.provide(medium.0)?;
        shared.dram.set_limit(dram.0);
        if shared.values.is_elsewhere() {
            shared.medium.set_limit(medium.0);
        }
        Ok(())
    }

    /// Does what need not be done on a request's path: frees expired and flushed segments, makes
    /// room ahead of the writers, brings a lowered quota into effect. Returns whether there is
    /// more to do at once; call it every few milliseconds, from any thread. A closed cache has no
    /// upkeep.
    pub fn maintain(&self, now: Seconds) -> bool {
        let shared = &self.shared;
        // A segment that goes while it is saved would be saved as something else.
        let Some(closed) = shared.closed.try_lock().filter(|closed| !**closed) else {
            return false;
        };
        shared.check_flush(now);
        if let Some(restart) = &shared.restart {
            restart.note_time(now);
        }
        for shard in &shared.shards {
            if let Some(mut shard) = shard.try_lock() {
                shard.seal_expired(shared, now);
            }
        }
        let mut more = shared.free_expired(now);
        more |= shared.make_room_ahead(now);
        shared.finish_flush();
        more |= shared.shrink_index(4096);
        drop(closed);
        more
    }

    /// Closes the cache: finishes writes and, with a restart directory, saves everything in it.
    /// Workers must not be used afterwards.
    ///
    /// # Errors
    /// When the state could not be saved; the next start will then be without it.
    pub fn close(&self) -> Result<(), CloseError> {
        self.save()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.shared.values.stop();
    }
}
