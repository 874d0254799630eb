//! Segments with values that could not be read when they were to move.
//!
//! Such a value stays where it is, for those who repair the store, and so does its segment: nothing
//! else moves out of it until the store is opened again or a caller compacts all. A whole file
//! still moves, with its damage.

use std::collections::BTreeSet;

use entresol_base::sync::Mutex;

use crate::StoreError;
use crate::names;
use crate::types::SegmentNumber;

/// Segments of which compactions and tiering move no single values.
#[derive(Debug, Default)]
pub(crate) struct DamagedSegments(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    segments: BTreeSet<SegmentNumber>,
    first: Option<StoreError>,
}

impl DamagedSegments {
    /// Adds a segment, with the damage that was found in it.
    pub(crate) fn add(&self, segment: SegmentNumber, damage: StoreError) {
        let mut found = self.0.lock();
        found.segments.insert(segment);
        found.first.get_or_insert(damage);
    }

    /// Returns true if damage was found in a segment.
    pub(crate) fn has(&self, segment: SegmentNumber) -> bool {
        self.0.lock().segments.contains(&segment)
    }

    /// Returns the names of the segments.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().segments.iter().map(|number| names::of_segment(*number)).collect()
    }

    /// Forgets all segments, which are then read again.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Found::default();
    }

    /// Takes the first damage that was found since the segments were forgotten.
    pub(crate) fn take_first(&self) -> Option<StoreError> {
        self.0.lock().first.take()
    }
}
