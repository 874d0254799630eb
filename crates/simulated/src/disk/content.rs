//! The durable bytes of a file, by sector: unwritten sectors take no memory, and an image shares
//! all sectors with its disk.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of one sector; all sectors of a disk have the same size.
pub(super) type Sector = Arc<[u8]>;

/// Sectors by number. Missing ones read as zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    /// Shared with images; changed in place while there are none.
    base: Arc<BTreeMap<u64, Sector>>,
    /// Changes since it was shared; none stands for zeroes.
    over: BTreeMap<u64, Option<Sector>>,
}

impl Content {
    pub(super) fn get(&self, number: u64) -> Option<&Sector> {
        match self.over.get(&number) {
            Some(sector) => sector.as_ref(),
            None => self.base.get(&number),
        }
    }

    pub(super) fn set(&mut self, number: u64, sector: Option<Sector>) {
        let Some(base) = Arc::get_mut(&mut self.base) else {
            self.over.insert(number, sector);
            return;
        };
        for (number, sector) in std::mem::take(&mut self.over) {
            put(base, number, sector);
        }
        put(base, number, sector);
    }

    /// Returns the numbers of the non-zero sectors from `first` up to, but without, `end`.
    pub(super) fn numbers(&self, first: u64, end: u64) -> Vec<u64> {
        if first >= end {
            return Vec::new();
        }
        let mut numbers: Vec<u64> = self
            .base
            .range(first..end)
            .map(|(&number, _)| number)
            .filter(|number| !self.over.contains_key(number))
            .collect();
        let over = self.over.range(first..end);
        numbers.extend(over.filter(|(_, sector)| sector.is_some()).map(|(&number, _)| number));
        numbers.sort_unstable();
        numbers
    }

    /// Drops the sectors from `first` on.
    pub(super) fn truncate(&mut self, first: u64) {
        for number in self.numbers(first, u64::MAX) {
            self.set(number, None);
        }
    }

    #[cfg(test)]
    pub(super) fn shares_with(&self, other: &Content) -> bool {
        Arc::ptr_eq(&self.base, &other.base) && self.over.len() + other.over.len() <= 1
    }

    /// Returns the number of non-zero sectors, in time proportional to it.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers(0, u64::MAX).len()
    }
}

fn put(base: &mut BTreeMap<u64, Sector>, number: u64, sector: Option<Sector>) {
    match sector {
        Some(sector) => base.insert(number, sector),
        None => base.remove(&number),
    };
}
