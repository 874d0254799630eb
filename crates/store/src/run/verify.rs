//! Verification of a run, which reads all of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::block::{Page, PageId, PageKind};
use crate::error::StoreError;
use crate::types::{Entry, Expiry, Sequence, Value};

use super::{RunSummary, SegmentBytes};
use crate::run::format::block::{Body, Child};
use crate::run::format::filter;
use crate::run::format::filter::Probe;
use crate::run::format::view::Target;
use crate::run::read::ahead::Ahead;
use crate::run::read::reader::{FilterGroup, Run};
use crate::run::read::walker::Walker;

/// Progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes that were read and verified.
    pub bytes_done: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Run {
    /// Reads the whole file past the cache. Verifies the checksum of every block, the order of all
    /// entries, that the tree leads to each entry and the filter knows each key, that every page of
    /// the file is in use, and that the counts are correct. `progress` is called after each block.
    ///
    /// # Errors
    /// Fails with the first damage found, or if the disk fails.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<(), StoreError> {
        let mut check = Check {
            run: self,
            progress,
            ahead: Ahead::default(),
            pages: self.pages_beside_blocks(),
            last: None,
            below: None,
            seen: Seen::default(),
            group: 0,
            hashes: Vec::new(),
        };
        if let Some(root) = self.root() {
            check.pages += u64::from(self.footer.root.pages);
            check.block(Arc::clone(root), self.footer.levels)?;
        }
        check.finish_group()?;
        check.finish()
    }

    /// Returns the number of pages of both ends and of the lists, which were verified when the run
    /// was opened.
    fn pages_beside_blocks(&self) -> u64 {
        let lists = [self.footer.groups, self.footer.prefixes, self.footer.live];
        2 + lists.iter().map(|list| list.pages).sum::<u64>()
    }
}

/// State of a verification.
struct Check<'a> {
    run: &'a Run,
    progress: &'a mut dyn FnMut(Progress),
    ahead: Ahead,
    /// Number of pages that were verified.
    pages: u64,
    /// The last entry.
    last: Option<(Vec<u8>, u64)>,
    /// Bound that all further entries must be behind: the end of the last block, by the tree.
    below: Option<(Vec<u8>, u64)>,
    seen: Seen,
    /// Group of the current keys, and their hashes.
    group: usize,
    hashes: Vec<u64>,
}

/// Totals of the entries.
#[derive(Default)]
struct Seen {
    entries: u64,
    keys: u64,
    gone: u64,
    expiring: u64,
    inline_bytes: u64,
    least: Option<Sequence>,
    greatest: Option<Sequence>,
    live: BTreeMap<u64, u64>,
}

impl Seen {
    fn sequence(&mut self, sequence: Sequence) {
        self.least = Some(self.least.map_or(sequence, |least| least.min(sequence)));
        self.greatest = Some(self.greatest.map_or(sequence, |most| most.max(sequence)));
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.expiring += u64::from(entry.expiry != Expiry::default());
        self.sequence(entry.sequence);
        match entry.value {
            Value::Inline(value) => self.inline_bytes += value.len() as u64,
            Value::Apart(place) => {
                *self.live.entry(place.segment.0).or_default() += u64::from(place.bytes);
            }
            Value::Gone => self.gone += 1,
        }
    }

    fn is(&self, summary: &RunSummary) -> bool {
        let live: Vec<SegmentBytes> = self.live.iter().map(SegmentBytes::of).collect();
        let RunSummary { entries, keys, gone, expiring, inline_bytes, .. } = *summary;
        let counts = (self.entries, self.keys, self.gone, self.expiring, self.inline_bytes);
        let (least, greatest) = (self.least.unwrap_or_default(), self.greatest.unwrap_or_default());
        counts == (entries, keys, gone, expiring, inline_bytes)
            && (least, greatest) == (summary.sequence_least, summary.sequence_greatest)
            && live == summary.live
    }
}

impl Check<'_> {
    /// Verifies a block of a level and all blocks below it.
    fn block(&mut self, page: Arc<Page>, level: u8) -> Result<(), StoreError> {
        let number = page.id().page;
        let senseless = || self.run.blocks().senseless(number);
        let mut place = Walker::first(page).ok_or_else(senseless)?;
        loop {
            match level.checked_sub(1) {
                Some(below) => self.child(&place, below)?,
                None => self.entry(&place)?,
            }
            if !place.next().ok_or_else(|| self.run.blocks().senseless(number))? {
                break;
            }
        }
        let bytes_done = self.pages * crate::run::format::block::PAGE_BYTES as u64;
        (self.progress)(Progress { bytes_done, bytes: self.run.summary().file_bytes });
        Ok(())
    }

    /// Verifies the block that an entry of an index block leads to.
    fn child(&mut self, place: &Walker, level: u8) -> Result<(), StoreError> {
        let child = self.run.child_place(place.page(), place.item())?;
        let page = self.read(child, level)?;
        self.pages += u64::from(child.pages);
        self.block(page, level)?;
        let up_to = Target { key: place.key(), delta: Some(place.item().delta) };
        if !self.last.as_ref().is_some_and(|(key, delta)| is_up_to(key, *delta, &up_to)) {
            return Err(self.run.blocks().damaged(child.page, "a block reaches beyond its end"));
        }
        self.below = Some((place.key().to_vec(), place.item().delta));
        Ok(())
    }

    fn read(&mut self, child: Child, level: u8) -> Result<Arc<Page>, StoreError> {
        let blocks = self.run.blocks();
        let id = PageId { run: self.run.footer.number, page: child.page };
        if level == 0 {
            let bytes = self.ahead.block(&blocks, child, level)?;
            return Ok(self.run.pages.page(id, PageKind::Data, bytes));
        }
        blocks.check_range(child)?;
        let lease = blocks.read(child.page, u64::from(child.pages))?;
        blocks.check(child, level, &lease.buffer)?;
        let page = self.run.pages.page(id, PageKind::Index, &lease.buffer);
        self.run.pages.give_back(lease);
        Ok(page)
    }

    fn entry(&mut self, place: &Walker) -> Result<(), StoreError> {
        let page = place.page().id().page;
        let damaged = |what| self.run.blocks().damaged(page, what);
        let Some(Body::Value(value)) = place.body() else {
            return Err(damaged("an entry has no value"));
        };
        let (key, item) = (place.key(), place.item());
        let here = Target { key, delta: Some(item.delta) };
        let is_behind = |before: &Option<(Vec<u8>, u64)>| {
            before.as_ref().is_none_or(|(key, delta)| is_before(key, *delta, &here))
        };
        if !is_behind(&self.last) || !is_behind(&self.below) {
            return Err(damaged("entries are not in order"));
        }
        let is_new = self.last.as_ref().is_none_or(|(last, _)| last != key);
        let (sequence, expiry) = (self.run.sequence(item.delta), item.expiry);
        self.seen.entry(&Entry { key, sequence, expiry, value });
        if self.last.is_none() && *key != *self.run.summary().first_key {
            return Err(damaged("the first key differs from that in the filter's list"));
        }
        if is_new {
            self.seen.keys += 1;
            while self.next_group().is_some_and(|next| *next.first <= *key) {
                self.finish_group()?;
                self.group += 1;
            }
            self.hashes.push(filter::hash(key, self.run.footer.seed));
        }
        match &mut self.last {
            Some((last, delta)) => {
                last.clear();
                last.extend_from_slice(key);
                *delta = item.delta;
            }
            None => self.last = Some((key.to_vec(), item.delta)),
        }
        Ok(())
    }

    fn next_group(&self) -> Option<&FilterGroup> {
        self.run.groups.get(self.group + 1)
    }

    /// Verifies that the filter of a group knows all keys of the group.
    fn finish_group(&mut self) -> Result<(), StoreError> {
        let Some(group) = self.run.groups.get(self.group) else { return Ok(()) };
        let blocks = self.run.blocks();
        if group.keys != self.hashes.len() as u64 {
            return Err(blocks.damaged(group.page, "a filter is for another number of keys"));
        }
        let probe = |hash| Probe::new(hash, group.pages, self.run.footer.probes);
        self.hashes.sort_unstable();
        let mut hashes = self.hashes.iter().copied().peekable();
        for page in 0..group.pages {
            let bytes = blocks.read_filter(group.page.saturating_add(u64::from(page)))?;
            // The top bits of a key's hash choose its page, so the hashes come page by page.
            while let Some(hash) = hashes.next_if(|hash| probe(*hash).page == page) {
                if !probe(hash).may_be_in(&bytes.buffer) {
                    return Err(blocks.damaged(group.page, "a filter lacks a key"));
                }
            }
            self.run.pages.give_back(bytes);
        }
        self.pages += u64::from(group.pages);
        self.hashes.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), StoreError> {
        let summary = self.run.summary();
        for gone in self.run.range_deletes() {
            self.seen.sequence(gone.sequence);
        }
        let blocks = self.run.blocks();
        let ends_right = self.last.as_ref().is_none_or(|(key, _)| **key == *summary.last_key);
        if !self.seen.is(summary) || !ends_right {
            return Err(blocks.damaged(
                blocks.end,
                "the counts on its last page are not those of its \
                                            entries",
            ));
        }
        if self.pages != self.run.footer.pages {
            return Err(blocks.damaged(blocks.end, "it has pages that nothing points to"));
        }
        Ok(())
    }
}

/// Returns true if a position in the order of keys and descending sequence numbers is before
/// another.
fn is_before(key: &[u8], delta: u64, than: &Target<'_>) -> bool {
    key.cmp(than.key).then(than.delta.cmp(&Some(delta))).is_lt()
}

/// Returns true if a position is not behind another.
fn is_up_to(key: &[u8], delta: u64, than: &Target<'_>) -> bool {
    key.cmp(than.key).then(than.delta.cmp(&Some(delta))).is_le()
}
