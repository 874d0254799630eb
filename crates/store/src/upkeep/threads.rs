//! What is done behind the writers' backs: syncing, flushing, merging.

use std::time::Duration;

use crate::StoreError;
use crate::scheduler::IDLE;
use crate::upkeep::compaction;
use crate::upkeep::flush::flush;
use crate::version::core::Core;

/// How long a thread that could not make room waits before it tries again.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// An image is behind what was written by this time, and what entering it takes.
const IMAGE_INTERVAL: Duration = Duration::from_millis(10);

/// Syncs at least as often as the options say, and keeps images.
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
        // Its failure is told to those who write. A sync takes its time, in which they go on.
        let _ = log.sync();
        core.keep_images();
    }
    let _ = log.sync();
    core.complete_images();
}

/// Makes segments ahead, as soon as one was taken: a sync, or a generation that is flushed, may
/// take longer than writers take to fill those that there are.
pub(crate) fn keep_spares(core: &Core) {
    let Ok(log) = core.log_behind() else { return };
    let mut seen = core.work.events();
    // Who only opens a store and closes it again need not wait for one.
    let mut time = core.options.durability_interval;
    loop {
        core.work.wait(seen, time);
        if core.work.is_over() {
            return;
        }
        seen = core.work.events();
        // That it failed is told to those who write.
        time = if log.make_spares().is_ok() { IDLE } else { RETRY };
    }
}

/// Flushes generations, the oldest first.
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

/// Compactions runs, where that is worth it.
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

/// Whether nothing was done for want of room, or of descriptors.
fn may_work_later(error: &StoreError) -> bool {
    error.is_no_room() || error.is_no_descriptors()
}
