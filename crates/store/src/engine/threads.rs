//! Background threads: syncs of the log, spare segments, flushes and compactions.

use std::cell::Cell;
use std::time::Duration;

use crate::StoreError;
use crate::engine::Core;
use crate::engine::idle::IdleWatch;
use crate::memtable::Sorted;
use crate::scheduler::IDLE;
use crate::upkeep::compaction;
use crate::upkeep::flush::flush;
use crate::upkeep::preload;
use crate::wal::Log;

/// Pause of a thread that found no room before its next attempt.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// Most time between attempts of compaction that find no room.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Interval between updates of a memtable image. An image lags by this time and the time of an
/// update.
const IMAGE_INTERVAL: Duration = Duration::from_millis(10);

/// Syncs the log at least as often as the options say, and keeps memtable images up to date.
pub(crate) fn keep_durable(core: &Core) {
    let Ok(images) = core.image_context() else { return };
    let log = images.log;
    let interval = match core.options.pmem {
        Some(_) => core.options.durability_interval.min(IMAGE_INTERVAL),
        None => core.options.durability_interval,
    };
    let deadline = &core.writes.deadline;
    let rest = |took| match images.is_image_behind() {
        true => core.background.scheduler.is_over(),
        false => core.background.scheduler.rest(deadline.rest(interval, took)),
    };
    let mut watch = IdleWatch::default();
    let mut took = Duration::ZERO;
    while !rest(took) {
        took = sync_on_time(core, log);
        images.keep_images();
        watch.look(core, log);
    }
    let _ = log.sync();
    images.complete_images();
}

/// Syncs the log within its deadline. A sync takes a while, and writers go on meanwhile until it is
/// late. Returns the time that it took.
fn sync_on_time(core: &Core, log: &Log) -> Duration {
    let (deadline, begun) = (&core.writes.deadline, core.files.time.instant());
    if log.durable() == log.published() {
        if deadline.all_durable(begun) {
            core.background.scheduler.tell();
        }
        return Duration::ZERO;
    }
    deadline.begin();
    // Writers report a failure.
    let done = log.sync();
    let ended = core.files.time.instant();
    if done.is_ok() && deadline.end(begun, ended) {
        core.background.scheduler.tell();
    }
    ended.since(begun)
}

/// Records that are merged before the thread looks whether there is other work.
const CALLS_A_LOOK: u32 = 256;

/// Creates spare segments as soon as one was taken, and sorts what was written since. A sync or a
/// flush may take longer than writers need to fill the existing segments.
pub(crate) fn keep_prepared(core: &Core) {
    let Ok(log) = core.log_behind() else { return };
    let scheduler = &core.background.scheduler;
    let mut seen = scheduler.events();
    // The log of a store that was opened may have many records.
    sort_memtables(core, log, seen);
    // A store that is opened and closed at once need not wait for a spare segment.
    let mut time = core.options.durability_interval;
    let mut is_first = true;
    loop {
        scheduler.wait_to_prepare(seen, time);
        if scheduler.is_over() {
            return;
        }
        let now = scheduler.events();
        if now != seen || is_first || time == RETRY {
            (seen, is_first) = (now, false);
            // Writers report the failure.
            time = if make_spares(core, log) { IDLE } else { RETRY };
        }
        sort_memtables(core, log, seen);
    }
}

/// Creates spare segments, and tells those who must know of the room that they take. Returns false
/// if that failed.
fn make_spares(core: &Core, log: &Log) -> bool {
    let made = log.make_spares();
    if let Ok(true) = made {
        core.background.scheduler.tell();
    }
    made.is_ok()
}

/// Sorts the records of the memtables until none is left, or until there was an event after `seen`.
fn sort_memtables(core: &Core, log: &Log, seen: u64) {
    let scheduler = &core.background.scheduler;
    // Merging all chunks of a memtable takes memory, of which one that does not wait leaves some.
    let waiting_max = core.options.generations_waiting_max as usize;
    let (calls, looked) = (Cell::new(0), Cell::new(seen));
    // A merge of many records takes longer than writers need to fill the spare segments.
    let goes_on = || {
        core.files.time.give_way();
        calls.set((calls.get() + 1) % CALLS_A_LOOK);
        if calls.get() > 0 {
            return true;
        }
        let now = scheduler.events();
        if looked.replace(now) != now {
            make_spares(core, log);
        }
        !scheduler.is_over()
    };
    let mut is_done = false;
    while !is_done && !scheduler.is_over() && scheduler.events() == seen {
        let view = core.files.current.get();
        let merges = view.closed.len() < waiting_max;
        let closed = view.closed.iter().map(|(generation, last)| (generation, (*last, true)));
        let mut all = closed.chain([(&view.young, (log.published(), false))]);
        // A flush reports what is damaged.
        is_done = all.all(|(generation, last)| {
            !matches!(generation.sort(last, merges, &goes_on), Ok(Sorted::Some))
        });
    }
}

/// Flushes closed generations, the oldest first.
pub(crate) fn keep_flushing(core: &Core) {
    let Ok(context) = core.flush_context() else { return };
    while !core.background.scheduler.is_over() {
        let seen = core.background.scheduler.events();
        let oldest = core.files.current.get().closed.last().cloned();
        let Some((generation, last)) = oldest else {
            core.background.scheduler.wait(seen, IDLE);
            continue;
        };
        let done = flush(&context, &generation, last);
        core.look_for_full();
        match done {
            Ok(()) => core.background.scheduler.tried(None),
            Err(error) if may_work_later(&error) => {
                let lacked = core.files.with_descriptors(error).into();
                core.background.scheduler.tried(Some(lacked));
                core.background.scheduler.pause(RETRY);
            }
            Err(error) => return core.files.failure.set(&error),
        }
    }
}

/// Compacts runs, or moves data between classes, wherever that is worthwhile.
pub(crate) fn keep_compacting(core: &Core) {
    let context = core.compaction_context();
    let mut retry = RETRY;
    while !core.background.scheduler.is_over() {
        let seen = core.background.scheduler.events();
        match compaction::compact_one(&context) {
            Ok(true) => core.background.scheduler.tell(),
            Ok(false) => core.background.scheduler.wait(seen, IDLE),
            Err(error) if may_work_later(&error) => {
                // Each attempt may write much before it finds no room.
                core.background.scheduler.pause(retry);
                retry = (2 * retry).min(RETRY_MAX);
                continue;
            }
            Err(error) => return core.files.failure.set(&error),
        }
        retry = RETRY;
    }
}

/// Returns true if the work failed for lack of room or of descriptors, and may succeed later.
fn may_work_later(error: &StoreError) -> bool {
    error.is_no_room() || error.is_no_descriptors()
}

/// Preloads runs into the block cache while all of them fit.
pub(crate) fn keep_preloading(core: &Core) {
    preload::keep_preloading(&core.files, &core.background, &core.caches.room);
}
