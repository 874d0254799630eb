//! Removal of segments that no run needs any more.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;

use crate::StoreError;
use crate::names;
use crate::types::SegmentNumber;
use crate::upkeep::read_frequency::ReadFrequency;
use crate::version::files::{Files, live_segments};

/// Removes flushed segments that no run refers to.
///
/// # Errors
/// Fails if a disk fails.
pub(crate) fn drop_dead_segments(
    files: &Files,
    read_frequency: &ReadFrequency,
) -> Result<(), StoreError> {
    if !files.unreadable.is_empty() {
        // The unreadable runs may refer to any segment.
        return Ok(());
    }
    let mut manifest = files.manifest.lock();
    let live = live_segments(&files.current.get());
    let is_dead = |number: u64| !live.contains_key(&SegmentNumber(number));
    let (dead, kept): (Vec<u64>, Vec<u64>) =
        manifest.segments.iter().copied().partition(|&number| is_dead(number));
    if dead.is_empty() {
        return Ok(());
    }
    let mut next = manifest.clone();
    next.segments = kept;
    let dead_files: Vec<String> =
        dead.iter().map(|number| names::of_segment(SegmentNumber(*number))).collect();
    if mutation_site!("dead segments are removed once the manifest does not name them") {
        files.remove(&dead_files)?;
    }
    files.save(&mut manifest, next)?;
    files.current.change(|view| {
        debug_assert!(
            dead.iter().all(|&it| !live_segments(view).contains_key(&SegmentNumber(it))),
            "a run refers to a dead segment"
        );
        let segments = Arc::make_mut(&mut view.segments);
        for number in &dead {
            if let Some(segment) = segments.remove(&SegmentNumber(*number)) {
                let name = names::of_segment(segment.number());
                if let Some(place) = files.volumes.find(&name) {
                    place.life.written.values_read.fetch_add(segment.bytes_read(), Relaxed);
                }
            }
        }
    });
    // The lock is released first: a slow disk must not hold up other users of the manifest.
    drop(manifest);
    read_frequency.removed(dead.into_iter().map(SegmentNumber));
    files.remove(&dead_files)
}
