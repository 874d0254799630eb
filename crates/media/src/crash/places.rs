//! The places in a program at which crashes were tried.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Place, Point, PointKind};

/// How often a place was reached, and how many images were looked at there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// How often it was reached.
    pub reached: u64,
    /// How often nothing could take effect there.
    pub empty: u64,
    /// The images looked at there, those of crashes in recovery included.
    pub images: u64,
}

/// The places at which crashes were tried, with counts.
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

    /// Adds what another run counted.
    pub fn add(&mut self, other: &Places) {
        for (key, more) in &other.0 {
            let counts = self.0.entry(*key).or_default();
            counts.reached += more.reached;
            counts.empty += more.empty;
            counts.images += more.images;
        }
    }

    /// Every place: what takes effect there, where it is, the counts.
    pub fn iter(&self) -> impl Iterator<Item = (PointKind, Place, PlaceCounts)> {
        self.0.iter().map(|(&(kind, place), &counts)| (kind, place, counts))
    }

    /// The names of places that were reached, as [`Places::missing`] takes them.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.0.keys().map(|&(kind, place)| name(kind, place)).collect()
    }

    /// Places that are known, from an earlier run or a list, and were not reached now.
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
