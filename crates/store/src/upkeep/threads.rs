//! Background threads: syncs of the log, spare segments, flushes and compactions.

use std::time::Duration;

use crate::StoreError;
use crate::upkeep::compaction;
use crate::upkeep::flush::flush;
use crate::upkeep::scheduler::IDLE;
use crate::version::core::Core;

/// Pause of a thread that found no room before its next attempt.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// Interval between updates of a memtable image. An image lags by this time and the time of an
/// update.
const IMAGE_INTERVAL: Duration = Duration::from_millis(10);

/// Syncs the log at least as often as the options say, and keeps memtable images up to date.
pub(crate) fn keep_durable(core: &Core) {
    let Ok(log) = core.log_behind() else { return };
    let interval = match core.options.pmem {
        Some(_) => core.options.durability_interval.min(IMAGE_INTERVAL),
        None => core.options.durability_interval,
    };
    let rest = || match core.is_image_behind() {
        true => core.work.is_over(),
        false => core.work.rest(interval),
    };
    while !rest() {
        // Writers report a failure of the sync. A sync takes a while, and they go on meanwhile.
        let _ = log.sync();
        core.keep_images();
    }
    let _ = log.sync();
    core.complete_images();
}

/// Creates spare segments as soon as one was taken. A sync or a flush may take longer than writers
/// need to fill the existing ones.
pub(crate) fn keep_spares(core: &Core) {
    let Ok(log) = core.log_behind() else { return };
    let mut seen = core.work.events();
    // A store that is opened and closed at once need not wait for a spare segment.
    let mut time = core.options.durability_interval;
    loop {
        core.work.wait(seen, time);
        if core.work.is_over() {
            return;
        }
        seen = core.work.events();
        // Writers report the failure.
        time = if log.make_spares().is_ok() { IDLE } else { RETRY };
    }
}

/// Flushes closed generations, the oldest first.
pub(crate) fn keep_flushing(core: &Core) {
    while !core.work.is_over() {
        let seen = core.work.events();
        let oldest = core.current.get().closed.last().cloned();
        let Some((generation, last)) = oldest else {
            core.work.wait(seen, IDLE);
            continue;
        };
        let done = flush(core, &generation, last);
        core.look_for_full();
        match done {
            Ok(()) => core.work.tried(None),
            Err(error) if may_work_later(&error) => {
                core.work.tried(Some(core.with_descriptors(error).to_string()));
                core.work.pause(RETRY);
            }
            Err(error) => return core.failure.set(&error),
        }
    }
}

/// Compacts runs, or moves data between classes, wherever that is worthwhile.
pub(crate) fn keep_compacting(core: &Core) {
    while !core.work.is_over() {
        let seen = core.work.events();
        match compaction::compact_one(core) {
            Ok(true) => core.work.tell(),
            Ok(false) => core.work.wait(seen, IDLE),
            Err(error) if may_work_later(&error) => drop(core.work.pause(RETRY)),
            Err(error) => return core.failure.set(&error),
        }
    }
}

/// Returns true if the work failed for lack of room or of descriptors, and may succeed later.
fn may_work_later(error: &StoreError) -> bool {
    error.is_no_room() || error.is_no_descriptors()
}
