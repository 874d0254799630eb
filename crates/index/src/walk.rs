//! Walking a range in batches, so that no lock is held while records are passed on.

use std::ops::Bound;

use crate::{Direction, Flow, IndexError};

/// Passes records on batch by batch. `fill` appends the next ones in this direction, beginning with
/// the key that it is given, as many as it likes, and none at the end.
pub(crate) fn in_batches(
    from: Bound<&u64>,
    direction: Direction,
    visit: &mut dyn FnMut(&u64, u64) -> Flow,
    mut fill: impl FnMut(u64, &mut Vec<(u64, u64)>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let mut batch = Vec::new();
    let mut next = first(from, direction);
    while let Some(from) = next {
        fill(from, &mut batch)?;
        let Some(&(last, _)) = batch.last() else { break };
        for (key, value) in batch.drain(..) {
            if visit(&key, value) == Flow::Stop {
                return Ok(());
            }
        }
        next = first(Bound::Excluded(&last), direction);
    }
    Ok(())
}

/// Returns the first key that a walk may pass on.
pub(crate) fn first(from: Bound<&u64>, direction: Direction) -> Option<u64> {
    match (from, direction) {
        (Bound::Included(&key), _) => Some(key),
        (Bound::Excluded(key), Direction::Forward) => key.checked_add(1),
        (Bound::Excluded(key), Direction::Backward) => key.checked_sub(1),
        (Bound::Unbounded, Direction::Forward) => Some(0),
        (Bound::Unbounded, Direction::Backward) => Some(u64::MAX),
    }
}
