//! The cache as a whole: opening, statistics, maintenance, closing. Operations on single items are
//! in `Worker`.

mod restore;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use entresol_base::{ByteSize, Clock, Seconds, mutation_site};
use entresol_media::{Account, BlockFile};

use crate::config::Config;
use crate::config::plan::Plan;
use crate::error::{CloseError, OpenError, ResizeError};
use crate::media::{RestartFiles, Share};
use crate::segment::{Log, State};
use crate::shared::Shared;
use crate::statistics::{Counters, Events, Statistics};
use crate::values::Values;
use crate::worker::Worker;

/// Items beyond a limit of keys that one step of upkeep drops.
const DROPPED_BY_UPKEEP: u64 = 1024;

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
        Plan::make(config, None).map(drop)
    }

    /// Returns the bytes of address space that a cache reserves for its records and tables; it uses
    /// no more memory than its quota.
    ///
    /// # Errors
    /// As [`Cache::check`].
    pub fn address_space(config: &Config) -> Result<u64, OpenError> {
        let plan = Plan::make(config, None)?;
        Ok(plan.arena_bytes + plan.table_bytes_max + plan.tags_bytes_max)
    }

    /// Opens a cache with the items that its restart directory holds, or an empty one.
    ///
    /// # Errors
    /// When the configuration cannot be met: the medium is missing or too small, a quota too small
    /// for its segments, a value larger than a segment. A failed call leaves nothing half made.
    pub fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Arc<Cache>, OpenError> {
        Cache::restored(Shared::open(&config, clock)?)
    }

    /// Opens a cache like [`Cache::open`], on media and restart files that the caller has opened:
    /// those of a simulated world, for example. `config.medium` names the medium in reports; the
    /// share's quota and segments count instead of the configuration's, and `restart` instead of
    /// its restart directory.
    ///
    /// # Errors
    /// As [`Cache::open`]. There must be one share, of the kind that the configuration names.
    pub fn open_on(
        config: Config,
        shares: Vec<Share>,
        restart: Option<Arc<dyn RestartFiles>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Cache>, OpenError> {
        let Ok([share]) = <[Share; 1]>::try_from(shares) else {
            return Err(OpenError::Shares { tenant: config.name });
        };
        let Share { medium, bytes, segment_bytes } = share;
        let config = Config { medium_bytes: bytes, segment_bytes, restart_dir: None, ..config };
        Cache::restored(Shared::open_on(&config, medium, restart, clock)?)
    }

    fn restored(shared: Arc<Shared>) -> Result<Arc<Cache>, OpenError> {
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
        Worker::new(Arc::clone(&self.shared), number, counters)
    }

    /// Returns the tenant's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the bytes of the largest value that is accepted. A key of more than 40 bytes leaves
    /// it less room if no limit was given.
    #[must_use]
    pub fn value_limit(&self) -> ByteSize {
        ByteSize(self.shared.records().value_bytes_max)
    }

    /// Returns the account that every access to the medium is charged to.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        &self.shared.account
    }

    /// Returns the block file on which pending reads are carried out, if values lie on one.
    #[must_use]
    pub fn file(&self) -> Option<Arc<dyn BlockFile>> {
        match &self.shared.records().values {
            Values::File(file) => Some(Arc::clone(&file.file)),
            Values::Inline | Values::Pmem(_) => None,
        }
    }

    /// Returns the cache's contents in figures, and its counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        gather(&self.shared)
    }

    /// Returns why something that was saved before the start is not used.
    #[must_use]
    pub fn restore_remarks(&self) -> Vec<String> {
        self.shared.space().restart.as_ref().map_or_else(Vec::new, |restart| restart.remarks())
    }

    /// Sets every counter of events back to zero; figures of the contents stay.
    pub fn reset_statistics(&self) {
        self.shared.items.counters.reset();
        for counters in self.shared.worker_counters.lock().iter() {
            counters.reset();
        }
    }

    /// Drops every item stored until now, or until `delay_s` seconds from now, in constant time.
    pub fn flush_all(&self, now: Seconds, delay_s: u32) {
        // An earlier order whose time has come must not be replaced before it was carried out.
        self.shared.space().check_flush(now);
        if delay_s == 0 {
            // The last order counts: one for later would empty the cache once more.
            self.shared.space().flushes.order(0);
            self.shared.space().flushes.flush_now(self.shared.space().restart.as_ref());
        } else {
            let at_s = now.0.saturating_add(delay_s).max(1);
            if let Some(restart) = &self.shared.space().restart
                && !mutation_site!("an ordered flush is in the map")
            {
                restart.record_flush_at(at_s);
            }
            self.shared.space().flushes.order(at_s);
        }
    }

    /// Changes the quotas while the cache is in use. A smaller quota takes effect by eviction in
    /// `maintain`.
    ///
    /// # Errors
    /// When a quota is too small for the cache's segments or larger than the machine or the medium.
    pub fn resize(&self, dram: ByteSize, medium: ByteSize) -> Result<(), ResizeError> {
        let shared = &self.shared;
        shared.space().budget.check_resize(dram, medium)?;
        shared.records().values.provide(medium.0)?;
        shared.space().budget.resize(dram, medium);
        Ok(())
    }

    /// Sets the number of keys beyond which a new one makes another go; none is any number. Keys
    /// beyond a lower limit go in `maintain`.
    pub fn limit_keys(&self, keys: Option<u64>) {
        self.shared.items.key_limit.set(keys);
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
        shared.space().check_flush(now);
        if let Some(restart) = &shared.space().restart {
            restart.note_time(now);
        }
        shared.writers.seal_expired(shared.space(), now);
        let mut more = shared.items.free_expired(now);
        more |= shared.items.make_room_ahead(&shared.writers, now);
        more |= shared.items.key_limit.keep(&shared.items, DROPPED_BY_UPKEEP, None, now, |_| ());
        shared.writers.finish_flush(shared.space());
        more |= shared.items.shrink_index(4096);
        drop(closed);
        more
    }

    /// Checks, while no thread uses the cache, that no segment has leaked.
    ///
    /// # Errors
    /// Returns a text that tells what does not add up.
    #[cfg(any(test, feature = "trial"))]
    pub(crate) fn check_pieces(&self) -> Result<(), String> {
        self.shared.items.check_pieces()
    }

    /// Closes the cache: finishes writes and, with a restart directory, saves everything in it.
    /// Workers must not be used afterwards, and no value may be arriving.
    ///
    /// # Errors
    /// When the state could not be saved; the next start will then be without it.
    pub fn close(&self) -> Result<(), CloseError> {
        self.save()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.shared.records().values.stop();
    }
}

/// Counts a cache's contents and adds up its events.
fn gather(shared: &Shared) -> Statistics {
    let space = shared.space();
    let mut events = Events::default();
    events.add(&shared.items.counters);
    for counters in shared.worker_counters.lock().iter() {
        events.add(counters);
    }
    let high_water = space.logs.queues.lock().high_water();
    let flushed_below = space.flushes.below();
    let (mut items, mut item_bytes) = (0, 0);
    let (mut segments, mut segments_open, mut segments_writing) = (0, 0, 0);
    let mut segments_small = 0;
    for id in 0..high_water {
        let segment = space.records.segments.get(id);
        let state = segment.state();
        if state == State::Free {
            continue;
        }
        segments += 1;
        let is_piece = matches!(state, State::Piece | State::Leader);
        let is_small = !is_piece && segment.kind().log() == Log::Small;
        segments_small += u64::from(is_small);
        segments_open += u64::from(state == State::Open);
        segments_writing += u64::from(state == State::Writing);
        if segment.sequence.load(Ordering::SeqCst) >= flushed_below {
            items += segment.live_items().saturating_sub(segment.reserved());
            item_bytes += segment.live_bytes();
        }
    }
    let metadata_bytes = space.records.segments.bytes() + space.logs.young.bytes();
    let (dram_limit_bytes, dram_used_bytes) = space.budget.dram(metadata_bytes);
    let (medium_limit_bytes, medium_used_bytes) = space.budget.medium();
    Statistics {
        items,
        keys_max: shared.items.key_limit.get().unwrap_or(0),
        item_bytes,
        dram_limit_bytes,
        dram_used_bytes,
        index_bytes: shared.items.index.bytes(),
        metadata_bytes,
        tag_bytes: space.logs.ghosts.bytes(),
        medium_limit_bytes,
        medium_used_bytes,
        segment_bytes: space.records.segment_bytes,
        segments,
        segments_small,
        segments_open,
        segments_writing,
        medium: space.records.values.kind().name(),
        access: space.records.values.access(),
        lost_segments: space.restart.as_ref().map_or(0, |restart| restart.lost_segments()),
        restored_items: space.restart.as_ref().map_or(0, |restart| restart.restored_items()),
        device_ns: shared.account.used_ns(),
        events,
    }
}
