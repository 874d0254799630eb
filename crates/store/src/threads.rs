//! What is done behind the writers' backs: syncing, freezing, merging.

use std::time::Duration;

use crate::StoreError;
use crate::freeze::freeze;
use crate::inner::Inner;
use crate::merge;
use crate::work::IDLE;

/// How long a thread that could not make room waits before it tries again.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// An image is behind what was written by this time, and what entering it takes.
const IMAGE_INTERVAL: Duration = Duration::from_millis(10);

/// Syncs at least as often as the options say, and keeps images.
pub(crate) fn keep_durable(inner: &Inner) {
    let Ok(log) = inner.log_behind() else { return };
    let interval = match inner.options.pmem {
        Some(_) => inner.options.durability_interval.min(IMAGE_INTERVAL),
        None => inner.options.durability_interval,
    };
    let rest = || match inner.is_image_behind() {
        true => inner.work.is_over(),
        false => inner.work.rest(interval),
    };
    while !rest() {
        // Its failure is told to those who write. A sync takes its time, in which they go on.
        let _ = log.sync();
        inner.keep_images();
    }
    let _ = log.sync();
    inner.complete_images();
}

/// Makes segments ahead, as soon as one was taken: a sync, or a generation that is frozen, may take
/// longer than writers take to fill those that there are.
pub(crate) fn keep_spares(inner: &Inner) {
    let Ok(log) = inner.log_behind() else { return };
    let mut seen = inner.work.events();
    // Who only opens a store and closes it again need not wait for one.
    let mut time = inner.options.durability_interval;
    loop {
        inner.work.wait(seen, time);
        if inner.work.is_over() {
            return;
        }
        seen = inner.work.events();
        // That it failed is told to those who write.
        time = if log.make_spares().is_ok() { IDLE } else { RETRY };
    }
}

/// Freezes generations, the oldest first.
pub(crate) fn keep_freezing(inner: &Inner) {
    while !inner.work.is_over() {
        let seen = inner.work.events();
        let oldest = inner.current.get().closed.last().cloned();
        let Some((generation, last)) = oldest else {
            inner.work.wait(seen, IDLE);
            continue;
        };
        let done = freeze(inner, &generation, last);
        inner.look_for_full();
        match done {
            Ok(()) => inner.work.tried(None),
            Err(error) if may_work_later(&error) => {
                inner.work.tried(Some(inner.with_descriptors(error).to_string()));
                inner.work.pause(RETRY);
            }
            Err(error) => return inner.failure.set(&error),
        }
    }
}

/// Merges runs, where that is worth it.
pub(crate) fn keep_merging(inner: &Inner) {
    while !inner.work.is_over() {
        let seen = inner.work.events();
        match merge::merge_one(inner) {
            Ok(true) => inner.work.tell(),
            Ok(false) => inner.work.wait(seen, IDLE),
            Err(error) if may_work_later(&error) => drop(inner.work.pause(RETRY)),
            Err(error) => return inner.failure.set(&error),
        }
    }
}

/// Whether nothing was done for want of room, or of descriptors.
fn may_work_later(error: &StoreError) -> bool {
    error.is_no_room() || error.is_no_descriptors()
}
