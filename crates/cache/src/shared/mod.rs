//! State shared by all threads of a cache, and changes to it that need no worker: room for records,
//! sealing, eviction, flushes.

pub(crate) mod append;
mod balance;
mod evict;
mod ghost;
mod item;
mod logs;
mod seal;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use entresol_base::hash::KeyHasher;
use entresol_base::sync::Mutex;
use entresol_base::{Clock, Seconds, mutation_site};
use entresol_media::{Account, Direct};

use crate::config::plan::Plan;
use crate::config::{Config, Favour};
use crate::error::OpenError;
use crate::index::{BUCKET_BYTES, Index};
use crate::media::{LocalFiles, Medium, RestartFiles};
use crate::record::{Head, UNIT};
use crate::restart::Restart;
use crate::segment::{Queues, Quota, SharedQueues, State, Table, Writing};
use crate::shared::append::{PAGE, Shard};
use crate::shared::balance::Balance;
use crate::shared::ghost::Ghosts;
use crate::shared::logs::Young;
use crate::statistics::Counters;
use crate::values::Values;

/// Names the files of a tenant in its restart directory.
fn local_files(dir: &Path, config: &Config) -> Result<Arc<dyn RestartFiles>, OpenError> {
    let files = LocalFiles::in_directory(dir, &config.name);
    let files = files.map_err(|cause| OpenError::RestartDir {
        tenant: config.name.clone(),
        path: dir.to_owned(),
        cause,
    })?;
    Ok(Arc::new(files))
}

/// State shared by all threads of a cache.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) segment_bytes: u64,
    /// Binary logarithm of the distance between the starts of segments in the arena.
    stride_shift: u32,
    pub(crate) value_bytes_max: u64,
    /// Misses that eviction keeps few: of objects or of bytes.
    pub(crate) favour: Favour,
    pub(crate) arena: Direct,
    pub(crate) index: Index,
    pub(crate) segments: Table,
    pub(crate) queues: SharedQueues,
    pub(crate) values: Values,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    /// Shard whose open segments upkeep copies items into.
    pub(crate) upkeep: Mutex<Shard>,
    /// Keys that eviction let go.
    pub(crate) ghosts: Ghosts,
    pub(crate) balance: Balance,
    /// Segments whose reads do not count.
    pub(crate) young: Young,
    /// Segments that are left over for evictions to copy items into.
    pub(crate) spare_segments: u64,
    /// Open segments and holes, one entry a shard.
    pub(crate) writing: Box<[Writing]>,
    pub(crate) dram: Quota,
    /// Bytes of it used for the life of the cache: write buffers and metadata.
    fixed_bytes: u64,
    /// Bytes of it for the metadata of as many segments as the first quota holds.
    pub(crate) metadata_bytes: u64,
    pub(crate) medium: Quota,
    pub(crate) medium_capacity: u64,
    pub(crate) hasher: KeyHasher,
    pub(crate) next_sequence: AtomicU64,
    /// Sequence number below which all segments are flushed; 0 when none of them is left.
    flushed_below: AtomicU64,
    /// Second at which an ordered flush takes effect, or 0.
    flush_at: AtomicU32,
    /// Held while an ordered flush is carried out.
    flushing: Mutex<()>,
    pub(crate) restart: Option<Restart>,
    pub(crate) account: Arc<Account>,
    /// Counters of work on the shared state: evictions, expiry, merging.
    pub(crate) counters: Counters,
    pub(crate) worker_counters: Mutex<Vec<Arc<Counters>>>,
    pub(crate) next_worker: AtomicUsize,
    pub(crate) table_bytes_taken: AtomicU64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Set once the cache was closed; locked by upkeep and by saving.
    pub(crate) closed: Mutex<bool>,
    /// Set when writers have met the end of the quota, so that upkeep makes room ahead of them.
    pub(crate) pressed: AtomicBool,
}

impl Shared {
    /// Opens the medium and makes the state of an empty cache; the restart directory's remains wait
    /// to be restored.
    pub(crate) fn open(config: &Config, clock: Arc<dyn Clock>) -> Result<Arc<Self>, OpenError> {
        let files = match &config.restart_dir {
            Some(dir) => Some(local_files(dir, config)?),
            None => None,
        };
        let saved = files.as_deref().and_then(Restart::saved_segment_bytes);
        let plan = Plan::make(config, saved)?;
        let (values, account) = Values::open(config, &plan)?;
        Shared::with(config, &plan, values, account, files, clock)
    }

    /// Makes the state of an empty cache on a medium that the caller has opened.
    pub(crate) fn open_on(
        config: &Config,
        medium: Medium,
        files: Option<Arc<dyn RestartFiles>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, OpenError> {
        let saved = files.as_deref().and_then(Restart::saved_segment_bytes);
        let plan = Plan::make(config, saved)?;
        let (values, account) = Values::over(medium, config, &plan)?;
        Shared::with(config, &plan, values, account, files, clock)
    }

    fn with(
        config: &Config,
        plan: &Plan,
        values: Values,
        account: Arc<Account>,
        files: Option<Arc<dyn RestartFiles>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, OpenError> {
        let restart = match files {
            Some(files) => Some(Restart::open(files, config, plan, &values, clock.seconds())?),
            None => None,
        };
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let hasher = config.seed.map_or_else(KeyHasher::random, KeyHasher::seeded);
        let shard =
            |number| Mutex::new(Shard::new(number, plan.open_slots, seed, account.handle()));
        let (segments, young) = (Table::new(plan.segments_max), Young::new(plan.segments_max));
        let metadata_bytes = segments.bytes_for(plan.segments) + young.bytes();
        let shared = Arc::new(Shared {
            name: config.name.clone(),
            segment_bytes: plan.segment_bytes,
            stride_shift: plan.stride_shift,
            value_bytes_max: plan.value_bytes_max,
            favour: config.favour,
            arena: Direct::anonymous(plan.arena_bytes, plan.arena_huge_pages)?,
            index: Index::new(plan.table_bytes_max, config.huge_pages)?,
            segments,
            queues: Mutex::new(Queues::new(plan.segments_max)),
            values,
            shards: (0..plan.shards).map(shard).collect(),
            upkeep: shard(plan.shards),
            ghosts: Ghosts::new(plan.tags_bytes_max)?,
            balance: Balance::new(),
            young,
            spare_segments: plan.spare_segments,
            writing: (0..plan.shards).map(|_| Writing::default()).collect(),
            dram: Quota::new(plan.dram_bytes),
            fixed_bytes: plan.fixed_bytes + metadata_bytes,
            metadata_bytes,
            medium: Quota::new(plan.medium_bytes),
            medium_capacity: plan.medium_capacity,
            hasher,
            next_sequence: AtomicU64::new(1),
            flushed_below: AtomicU64::new(0),
            flush_at: AtomicU32::new(0),
            flushing: Mutex::new(()),
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
        shared.dram.force(shared.fixed_bytes + shared.index.bytes());
        shared.table_bytes_taken.store(shared.index.bytes(), Ordering::Relaxed);
        shared.start_writer()?;
        Ok(shared)
    }

    /// Iterates over the shards of writers and that of upkeep.
    pub(crate) fn all_shards(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter().chain(std::iter::once(&self.upkeep))
    }

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
        below != 0 && !mutation_site!("a flushed item is found by its segment's number") && {
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
            if self.index.bytes() + BUCKET_BYTES > taken {
                let taken = self.dram.take(STEP)
                    || self.evict_one(shard, now, true) && self.dram.take(STEP);
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
    pub(crate) fn shrink_index(&self, steps_max: usize) -> bool {
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
        let (high_water, in_use) = {
            let queues = self.queues.lock();
            (queues.high_water(), queues.in_use)
        };
        let mut in_logs = [0; 2];
        for id in 0..high_water {
            let segment = self.segments.get(id);
            let (state, live) = (segment.state(), segment.live_items());
            if state == State::Free {
                continue;
            }
            assert!(state == State::Sealed, "everything was sealed, but segment {id} is {state:?}");
            in_logs[segment.kind().log() as usize] += 1;
            segments += self.segment_bytes;
            records += u64::from(segment.used.load(Ordering::Relaxed)).next_multiple_of(PAGE);
            let mut found = 0;
            self.walk(id, |_, _, _| found += 1);
            assert!(found == live, "segment {id} counts {live} items and has {found}");
        }
        assert!(in_logs == in_use, "the logs have {in_logs:?} segments, {in_use:?} are counted");
        let in_dram = if elsewhere { records } else { segments };
        let table = self.table_bytes_taken.load(Ordering::Relaxed);
        let fixed = self.fixed_bytes + self.ghosts.bytes();
        let (dram, sum) = (self.dram.used(), fixed + table + in_dram);
        assert!(dram == sum, "{dram} bytes of DRAM are counted, {sum} are used");
        let taken = self.segment_quota().used();
        assert!(!elsewhere || taken == segments, "{taken} bytes are counted, {segments} are used");
    }

    pub(crate) fn flush_now(&self) {
        let below = self.next_sequence.fetch_add(1, Ordering::SeqCst);
        if let Some(restart) = &self.restart
            && !mutation_site!("a flush is in the map")
        {
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
        // The order is struck out once it was carried out: until then every thread that sees it
        // waits here, so that none serves an item meanwhile.
        let _flushing = self.flushing.lock();
        if self.flush_at.load(Ordering::SeqCst) == at {
            self.flush_now();
            let _ = self.flush_at.compare_exchange(at, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Orders a flush for a second, or cancels it if that is 0.
    pub(crate) fn resume_flush(&self, at_s: u32) {
        self.flush_at.store(at_s, Ordering::SeqCst);
    }

    /// Ends the flush once no segment from before it is left.
    pub(crate) fn finish_flush(&self) {
        let below = self.flushed_below();
        if below == 0 {
            return;
        }
        for shard in self.all_shards() {
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
