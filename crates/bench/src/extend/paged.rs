//! Data in mapped files, which the system pages.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::sync::Mutex;
use entresol_measure::BenchError;
use entresol_media::region::{Direct, RegionOptions};
use fastrand::Rng;

use super::items::{Hand, Items, Table};

/// Bytes of a linked item's header: its count of references, and the numbers of the items that were
/// used after it and before it.
const HEADER_BYTES: u64 = 24;
const COUNT_AT: u64 = 0;
const NEWER_AT: u64 = 8;
const OLDER_AT: u64 = 16;

pub(super) struct PagedTable {
    region: Direct,
    items: Items,
    /// Item that was used last; its lock guards the links of all.
    newest: Mutex<u64>,
}

impl PagedTable {
    /// Writes a file of all items, which are linked in a random order.
    pub(super) fn make(path: &Path, items: Items, seed: u64) -> Result<(), BenchError> {
        let create = Some(items.count * stride(items));
        let region = open(path, &RegionOptions { create, ..RegionOptions::default() })?;
        // Links are written with their item, since a file beyond the memory is read again for each.
        let links = if items.is_linked { ring(items.count, seed) } else { Vec::new() };
        let mut bytes = Vec::new();
        for item in 0..items.count {
            bytes.clear();
            if let Some((newer, older)) = links.get(item as usize) {
                bytes.extend([0, *newer, *older].into_iter().flat_map(u64::to_le_bytes));
            }
            items.append(item, &mut bytes);
            region.write(item * stride(items), &bytes);
        }
        Ok(())
    }

    /// Maps a file that was written.
    pub(super) fn open(
        path: &Path,
        items: Items,
        in_no_order: bool,
    ) -> Result<PagedTable, BenchError> {
        let region = open(path, &RegionOptions::default())?;
        if in_no_order {
            region.expect_reads_in_no_order(0, region.len() as usize);
        }
        Ok(PagedTable { region, items, newest: Mutex::new(0) })
    }

    fn link(&self, item: u64, at: u64) -> u64 {
        self.region.load_u64(item * stride(self.items) + at, Relaxed)
    }

    fn set_link(&self, item: u64, at: u64, to: u64) {
        self.region.store_u64(item * stride(self.items) + at, to, Relaxed);
    }

    /// Moves an item to the newest end of the list.
    fn use_now(&self, item: u64) {
        let mut newest = self.newest.lock();
        let second = *newest;
        if second == item {
            return;
        }
        let (newer, older) = (self.link(item, NEWER_AT), self.link(item, OLDER_AT));
        self.set_link(newer, OLDER_AT, older);
        self.set_link(older, NEWER_AT, newer);
        let oldest = self.link(second, NEWER_AT);
        self.set_link(item, NEWER_AT, oldest);
        self.set_link(item, OLDER_AT, second);
        self.set_link(second, NEWER_AT, item);
        self.set_link(oldest, OLDER_AT, item);
        *newest = item;
    }
}

/// Returns the items that were used after and before each, in a random order closed to a ring.
fn ring(count: u64, seed: u64) -> Vec<(u64, u64)> {
    let mut order: Vec<u64> = (0..count).collect();
    Rng::with_seed(seed).shuffle(&mut order);
    let mut links = vec![(0, 0); order.len()];
    let mut newer = order.last().copied().unwrap_or(0);
    for item in order {
        links[item as usize].0 = newer;
        links[newer as usize].1 = item;
        newer = item;
    }
    links
}

fn header(items: Items) -> u64 {
    if items.is_linked { HEADER_BYTES } else { 0 }
}

fn stride(items: Items) -> u64 {
    header(items) + items.bytes as u64
}

fn open(path: &Path, options: &RegionOptions) -> Result<Direct, BenchError> {
    Direct::open(path, options).map_err(|error| BenchError::Usage(error.to_string()))
}

impl Table for PagedTable {
    fn hand(&self) -> Box<dyn Hand + '_> {
        Box::new(self)
    }
}

impl Hand for &PagedTable {
    fn get(&mut self, item: u64, out: &mut Vec<u8>) -> Result<(), BenchError> {
        let at = item * stride(self.items);
        out.clear();
        if self.items.is_linked {
            self.region.fetch_add_u64(at + COUNT_AT, 1, Relaxed);
            self.use_now(item);
        }
        self.region.append_to(at + header(self.items), self.items.bytes, out);
        self.items.check(item, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_stays_a_ring_and_every_item_is_the_one_that_was_written() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("values");
        let items = Items { kind: 0, count: 7, bytes: 4096, is_linked: true };
        PagedTable::make(&path, items, 1).expect("a file");
        let table = PagedTable::open(&path, items, true).expect("mapped");
        let (mut hand, mut out) = (table.hand(), Vec::new());
        for item in [3, 3, 0, 6, 1, 3] {
            hand.get(item, &mut out).expect("the item");
            let (mut at, mut seen) = (item, Vec::new());
            for _ in 0..7 {
                let older = table.link(at, OLDER_AT);
                assert_eq!(table.link(older, NEWER_AT), at);
                seen.push(at);
                at = older;
            }
            assert_eq!((at, *table.newest.lock()), (item, item));
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
        }
        table.region.store_u64(2 * stride(items) + HEADER_BYTES, 1, Relaxed);
        assert!(hand.get(2, &mut out).is_err(), "a wrong value is noticed");
    }
}
