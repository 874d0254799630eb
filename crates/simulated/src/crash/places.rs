//! Places in a program at which crashes were tried.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use entresol_base::Place;

use super::{Point, PointKind};

/// Counts of one place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Number of times that it was reached.
    pub reached: u64,
    /// Number of times that nothing could take effect there.
    pub empty: u64,
    /// Number of images tested there, including crashes in recovery.
    pub images: u64,
}

/// Places at which crashes were tried, with counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<(PointKind, Place), PlaceCounts>);

impl Places {
    pub(super) fn reach(&mut self, point: &Point) {
        let counts = self.0.entry((point.kind, point.place)).or_default();
        counts.reached += 1;
        counts.empty += u64::from(point.is_empty);
    }

    pub(super) fn look(&mut self, point: &Point, images: u64) {
        self.0.entry((point.kind, point.place)).or_default().images += images;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Places) {
        for (key, more) in &other.0 {
            let counts = self.0.entry(*key).or_default();
            counts.reached += more.reached;
            counts.empty += more.empty;
            counts.images += more.images;
        }
    }

    /// Returns every place: the kind of change, the place, the counts.
    pub fn iter(&self) -> impl Iterator<Item = (PointKind, Place, PlaceCounts)> {
        self.0.iter().map(|(&(kind, place), &counts)| (kind, place, counts))
    }

    /// Returns the names of the places reached, in the form for [`Places::missing`].
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.0.keys().map(|&(kind, place)| name(kind, place)).collect()
    }

    /// Returns the known places, from an earlier run or a list, that were not reached now.
    #[must_use]
    pub fn missing(&self, known: &BTreeSet<String>) -> Vec<String> {
        let reached = self.names();
        known.iter().filter(|name| !reached.contains(*name)).cloned().collect()
    }
}

fn name(kind: PointKind, place: Place) -> String {
    format!("{kind:?} {place}")
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, place, counts) in self.iter() {
            let PlaceCounts { reached, empty, images } = counts;
            writeln!(f, "{reached:>10} {empty:>8} {images:>12}  {}", name(kind, place))?;
        }
        Ok(())
    }
}
