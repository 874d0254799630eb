//! An open run: lookups of single keys, and its blocks, which are verified when they are read and
//! then cached.

use std::fmt;
use std::sync::Arc;

use entresol_media::{BlockFile, BlockOptions, Directory, IoBuffer};

use crate::cache::block::{BlockCache, Charge, Lease, Page, PageId, PageKind};
use crate::error::StoreError;
use crate::types::{Expiry, Mark, RunNumber, SegmentNumber, Sequence, Value};

use super::walker::Walker;
use crate::run::format::block::{Address, BlockKind, Body, Child, PAGE_BYTES, is_sealed};
use crate::run::format::bytes::{u32_at, u64_at};
use crate::run::format::ends::{EndError, FORMAT_VERSION, Footer, ListPlace, MAGIC, check_header};
use crate::run::format::filter;
use crate::run::format::filter::Probe;
use crate::run::format::view::{Block, Item, Nature, Target};
use crate::run::{
    INLINE_BYTES_MAX, KEY_BYTES_MAX, LEVELS_MAX, RangeDelete, RunSummary, SegmentBytes, file_name,
};

/// Most pages of a block: room for one entry beside a block that is nearly full.
pub(in crate::run) const BLOCK_PAGES_MAX: u64 =
    ((INLINE_BYTES_MAX + KEY_BYTES_MAX + 9 * crate::run::BLOCK_BYTES_MAX) / PAGE_BYTES) as u64;
/// Most pages of a list, which is read as a whole.
const LIST_PAGES_MAX: u64 = (64 << 20) / PAGE_BYTES as u64;

/// Message about an undamaged run that is not the one in the manifest.
const ANOTHER: &str =
    "it is a run of another store, or of a copy of this one, with the same number";

/// An open run. In memory it holds the root of its tree, a short key for each 262,144 keys, the
/// range deletes, and the live bytes of each segment. Everything else is read as needed.
pub(crate) struct Run {
    file: Arc<dyn BlockFile>,
    pub(in crate::run) pages: Arc<BlockCache>,
    pub(in crate::run) footer: Footer,
    root: Option<Arc<Page>>,
    pub(in crate::run) groups: Vec<FilterGroup>,
    prefixes: Vec<RangeDelete>,
    summary: RunSummary,
    _charge: Charge,
}

/// Location of the filter of a group of keys.
#[derive(Debug)]
pub(in crate::run) struct FilterGroup {
    /// A key at or below the first one of the group, and above all keys before.
    pub(in crate::run) first: Box<[u8]>,
    pub(in crate::run) keys: u64,
    pub(in crate::run) page: u64,
    pub(in crate::run) pages: u32,
}

impl FilterGroup {
    /// Encodes the location for the run's list.
    pub(in crate::run) fn place(&self) -> [u8; 12] {
        let mut place = [0; 12];
        place[..8].copy_from_slice(&self.page.to_le_bytes());
        place[8..].copy_from_slice(&self.pages.to_le_bytes());
        place
    }
}

/// Parts of a run that readers hold, beside the root of its tree.
pub(in crate::run) struct Held {
    pub(in crate::run) footer: Footer,
    pub(in crate::run) groups: Vec<FilterGroup>,
    pub(in crate::run) prefixes: Vec<RangeDelete>,
    pub(in crate::run) live: Vec<SegmentBytes>,
    pub(in crate::run) last_key: Box<[u8]>,
}

/// Version that a lookup found.
#[derive(Debug)]
pub(crate) struct Found {
    page: Arc<Page>,
    item: Item,
    sequence: Sequence,
}

impl Found {
    /// Returns the number of the write that made the version.
    #[must_use]
    pub(crate) fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Returns the time at which the version expires.
    #[must_use]
    pub(crate) fn expiry(&self) -> Expiry {
        self.item.expiry
    }

    /// Returns the value.
    #[must_use]
    pub(crate) fn value(&self) -> Value<'_> {
        match self.item.body_of(self.page.bytes()) {
            Some(Body::Value(value)) => value,
            // The lookup has verified that there is a value.
            _ => Value::Gone,
        }
    }
}

impl Run {
    /// Opens a finished run.
    ///
    /// # Errors
    /// Fails if there is no such file, if it is incomplete or has another format, or if it is
    /// damaged where it is read: at both ends, at the root of the tree, or in the lists.
    pub(crate) fn open(
        directory: &Arc<dyn Directory>,
        number: RunNumber,
        pages: &Arc<BlockCache>,
    ) -> Result<Arc<Run>, StoreError> {
        let options =
            BlockOptions { magic: Some(MAGIC), read_only: true, ..BlockOptions::default() };
        let file = directory.open_block_file(&file_name(number), &options)?;
        let reader = Blocks { file: &file, pages, run: number, end: u64::MAX };
        let footer = reader.footer()?;
        let reader = Blocks { end: footer.pages - 1, ..reader };
        let root = reader.root(&footer)?;
        let groups = reader.groups(footer.groups)?;
        let prefixes = reader.prefixes(&footer)?;
        let live = reader.live(footer.live)?;
        let last_key = match &root {
            Some(root) => {
                let last = Walker::last(Arc::clone(root));
                last.ok_or_else(|| reader.senseless(footer.root.page))?.key().into()
            }
            None => Box::default(),
        };
        if footer.entries > 0 && groups.is_empty() {
            return Err(reader.damaged(footer.groups.page, "the keys have no groups"));
        }
        Ok(Run::with(file, pages, root, Held { footer, groups, prefixes, live, last_key }))
    }

    /// Opens a run that was just written, with the root of its tree.
    pub(in crate::run) fn written(
        file: Arc<dyn BlockFile>,
        pages: &Arc<BlockCache>,
        root: Option<&[u8]>,
        held: Held,
    ) -> Arc<Run> {
        let Footer { number, root: Child { page, .. }, levels, .. } = held.footer;
        let (id, kind) = (PageId { run: number, page }, page_kind(levels));
        // The root may have been cached when it was written.
        let root =
            root.map(|it| pages.find(id, kind).unwrap_or_else(|| pages.insert(id, kind, it)));
        Run::with(file, pages, root, held)
    }

    fn with(
        file: Arc<dyn BlockFile>,
        pages: &Arc<BlockCache>,
        root: Option<Arc<Page>>,
        Held { footer, groups, prefixes, live, last_key }: Held,
    ) -> Arc<Run> {
        let first_key = groups.first().map(|group| group.first.clone()).unwrap_or_default();
        let summary = RunSummary::new(&footer, first_key, last_key, live);
        let held = held_bytes(&groups, &prefixes, &summary);
        let (charge, pages) = (pages.charge(held), Arc::clone(pages));
        Arc::new(Run { file, pages, footer, root, groups, prefixes, summary, _charge: charge })
    }

    /// Returns the facts that are known without reading the entries.
    #[must_use]
    pub(crate) fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// Checks that this is the run with a mark.
    ///
    /// # Errors
    /// Fails if it is another run of the same number.
    pub(crate) fn check_mark(&self, mark: Mark) -> Result<(), StoreError> {
        self.blocks().check_mark(mark, &self.footer)
    }

    /// Returns the range deletes, in the order of the prefixes; the latest first under one prefix.
    #[must_use]
    pub(crate) fn range_deletes(&self) -> &[RangeDelete] {
        &self.prefixes
    }

    /// Returns the newest version of a key up to `most`, without regard to range deletes.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block on the way is damaged.
    pub(crate) fn get(&self, key: &[u8], most: Sequence) -> Result<Option<Found>, StoreError> {
        let Some(root) = &self.root else { return Ok(None) };
        let Some(delta) = most.0.checked_sub(self.footer.base.0) else { return Ok(None) };
        if key > &self.summary.last_key[..] || !self.may_have(key)? {
            return Ok(None);
        }
        let target = Target { key, delta: Some(delta) };
        let mut page = Arc::clone(root);
        for level in (0..self.footer.levels).rev() {
            let Some((item, _)) = self.search(&page, &target)? else { return Ok(None) };
            page = self.child(&page, &item, level)?;
        }
        match self.search(&page, &target)? {
            Some((item, true)) => {
                let Some(Body::Value(_)) = item.body_of(page.bytes()) else {
                    return Err(self.blocks().senseless(page.id().page));
                };
                let sequence = self.sequence(item.delta);
                Ok(Some(Found { page, item, sequence }))
            }
            _ => Ok(None),
        }
    }

    /// Reads bytes of the file as they are.
    pub(crate) fn read_raw(&self, offset: u64, buffer: &mut IoBuffer) -> Result<(), StoreError> {
        let page = offset / PAGE_BYTES as u64;
        match self.file.read_at(offset, buffer) {
            Ok(read) if read == buffer.len() => Ok(()),
            Ok(_) => Err(self.blocks().damaged(page, "the file became shorter")),
            Err(cause) => {
                let path = self.file.path().to_owned();
                Err(StoreError::Io { doing: "read", path, offset, cause })
            }
        }
    }

    /// Returns false if the filter excludes the key.
    fn may_have(&self, key: &[u8]) -> Result<bool, StoreError> {
        let number = self.groups.partition_point(|group| *group.first <= *key);
        let Some(group) = number.checked_sub(1).and_then(|number| self.groups.get(number)) else {
            return Ok(false);
        };
        if group.pages == 0 || self.footer.probes == 0 {
            return Ok(true);
        }
        let hash = filter::hash(key, self.footer.seed);
        let probe = Probe::new(hash, group.pages, self.footer.probes);
        let id = PageId { run: self.footer.number, page: group.page + u64::from(probe.page) };
        let page = match self.pages.find(id, PageKind::Filter) {
            Some(page) => page,
            None => self.blocks().load_filter(id)?,
        };
        Ok(probe.may_be_in(page.bytes()))
    }

    /// Returns the first entry of a block that is not before the target, and true if it has the
    /// target's key.
    #[inline]
    fn search(
        &self,
        page: &Arc<Page>,
        target: &Target<'_>,
    ) -> Result<Option<(Item, bool)>, StoreError> {
        let spot = Block::of(page.bytes()).and_then(|block| block.seek(target));
        let senseless = || self.blocks().senseless(page.id().page);
        spot.map(|spot| spot.found).ok_or_else(senseless)
    }

    /// Returns the block of `level` that an entry of an index block leads to.
    pub(in crate::run) fn child(
        &self,
        page: &Arc<Page>,
        item: &Item,
        level: u8,
    ) -> Result<Arc<Page>, StoreError> {
        let child = self.child_place(page, item)?;
        match self.cached(child, level) {
            Some(page) => Ok(page),
            None => self.blocks().load(child, level),
        }
    }

    pub(in crate::run) fn child_place(
        &self,
        page: &Arc<Page>,
        item: &Item,
    ) -> Result<Child, StoreError> {
        match item.body_of(page.bytes()) {
            Some(Body::Child(child)) => Ok(child),
            _ => Err(self.blocks().senseless(page.id().page)),
        }
    }

    pub(in crate::run) fn cached(&self, child: Child, level: u8) -> Option<Arc<Page>> {
        let id = PageId { run: self.footer.number, page: child.page };
        self.pages.find(id, page_kind(level))
    }

    pub(in crate::run) fn root(&self) -> Option<&Arc<Page>> {
        self.root.as_ref()
    }

    pub(in crate::run) fn blocks(&self) -> Blocks<'_> {
        let Footer { number, pages, .. } = self.footer;
        Blocks { file: &self.file, pages: &self.pages, run: number, end: pages - 1 }
    }

    /// Returns the sequence number of an entry.
    #[inline]
    pub(in crate::run) fn sequence(&self, delta: u64) -> Sequence {
        Sequence(self.footer.base.0.saturating_add(delta))
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.root = None;
        self.pages.forget(self.footer.number);
    }
}

fn page_kind(level: u8) -> PageKind {
    if level == 0 { PageKind::Data } else { PageKind::Index }
}

/// Returns about as many bytes as a run holds in memory beside its root.
fn held_bytes(groups: &[FilterGroup], prefixes: &[RangeDelete], summary: &RunSummary) -> u64 {
    let groups: usize = groups.iter().map(|group| group.first.len() + 64).sum();
    let prefixes: usize = prefixes.iter().map(|gone| gone.prefix.len() + 48).sum();
    let keys = summary.first_key.len() + summary.last_key.len();
    (size_of::<Run>() + groups + prefixes + keys + summary.live.len() * 16) as u64
}

/// Blocks of a run's file.
#[derive(Clone, Copy)]
pub(in crate::run) struct Blocks<'a> {
    pub(in crate::run) file: &'a Arc<dyn BlockFile>,
    pub(in crate::run) pages: &'a Arc<BlockCache>,
    pub(in crate::run) run: RunNumber,
    /// Page behind the last block.
    pub(in crate::run) end: u64,
}

impl Blocks<'_> {
    /// Reads and verifies both ends.
    fn footer(&self) -> Result<Footer, StoreError> {
        let file_pages = self.file.len() / PAGE_BYTES as u64;
        if file_pages < 2 {
            return Err(self.damaged(0, "the file is too short to be a run"));
        }
        let last = file_pages - 1;
        let first_page = self.read(0, 1)?;
        let header = check_header(&first_page.buffer, self.run);
        self.pages.give_back(first_page);
        let kvs = header.map_err(|error| self.end_error(0, error))?;
        let last_page = self.read(last, 1)?;
        let address = Address { run: self.run, page: last };
        let footer = Footer::decode(&last_page.buffer, address);
        self.pages.give_back(last_page);
        let footer = footer.map_err(|error| self.end_error(last, error))?;
        if footer.kvs != kvs || footer.levels > LEVELS_MAX {
            return Err(self.damaged(last, "its first and its last page contradict each other"));
        }
        Ok(footer)
    }

    /// Checks that a run with this last page is the one with a mark.
    pub(in crate::run) fn check_mark(&self, mark: Mark, footer: &Footer) -> Result<(), StoreError> {
        match mark.may_be(footer.mark) {
            true => Ok(()),
            false => Err(self.damaged(footer.pages - 1, ANOTHER)),
        }
    }

    fn root(&self, footer: &Footer) -> Result<Option<Arc<Page>>, StoreError> {
        if footer.root.pages == 0 {
            Ok(None)
        } else {
            self.load(footer.root, footer.levels).map(Some)
        }
    }

    /// Reads, verifies and caches a block.
    pub(in crate::run) fn load(&self, child: Child, level: u8) -> Result<Arc<Page>, StoreError> {
        self.check_range(child)?;
        self.pages.note_missed();
        let lease = self.read(child.page, u64::from(child.pages))?;
        self.check(child, level, &lease.buffer)?;
        let id = PageId { run: self.run, page: child.page };
        let page = self.pages.insert(id, page_kind(level), &lease.buffer);
        self.pages.give_back(lease);
        Ok(page)
    }

    /// Refuses a location where no block can be.
    pub(in crate::run) fn check_range(&self, child: Child) -> Result<(), StoreError> {
        let pages = u64::from(child.pages);
        let end = child.page.saturating_add(pages);
        if pages == 0 || pages > BLOCK_PAGES_MAX || child.page == 0 || end > self.end {
            return Err(self.damaged(child.page, "a block's position is impossible"));
        }
        Ok(())
    }

    /// Verifies a block of a level.
    pub(in crate::run) fn check(
        &self,
        child: Child,
        level: u8,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        if !is_sealed(Address { run: self.run, page: child.page }, bytes) {
            return Err(self.damaged(child.page, "the checksum of a block is wrong"));
        }
        let kind = if level == 0 { BlockKind::Data } else { BlockKind::Index };
        let is_it = Nature::of(bytes).is_some_and(|nature| nature.is(kind, level));
        if !is_it || Block::of(bytes).is_none() {
            return Err(self.senseless(child.page));
        }
        Ok(())
    }

    /// Reads and verifies a page of a filter.
    pub(in crate::run) fn read_filter(&self, page: u64) -> Result<Lease, StoreError> {
        self.check_range(Child { page, pages: 1 })?;
        let lease = self.read(page, 1)?;
        self.check_filter(page, &lease.buffer)?;
        Ok(lease)
    }

    /// Verifies a page of a filter.
    pub(in crate::run) fn check_filter(&self, page: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if !is_sealed(Address { run: self.run, page }, bytes) {
            return Err(self.damaged(page, "the checksum of a page of the filter is wrong"));
        }
        match Nature::of(bytes).is_some_and(|nature| nature.is(BlockKind::Filter, 0)) {
            true => Ok(()),
            false => Err(self.senseless(page)),
        }
    }

    fn load_filter(&self, id: PageId) -> Result<Arc<Page>, StoreError> {
        self.pages.note_missed();
        let lease = self.read_filter(id.page)?;
        let page = self.pages.insert(id, PageKind::Filter, &lease.buffer);
        self.pages.give_back(lease);
        Ok(page)
    }

    /// Reads pages without verifying them.
    pub(in crate::run) fn read(&self, page: u64, pages: u64) -> Result<Lease, StoreError> {
        let offset = page.saturating_mul(PAGE_BYTES as u64);
        let bytes = pages as usize * PAGE_BYTES;
        let mut lease = self.pages.buffer(bytes);
        let read = self.file.read_at(offset, &mut lease.buffer);
        self.pages.note_read(bytes as u64);
        match read {
            Ok(read) if read == bytes => Ok(lease),
            Ok(_) => Err(self.damaged(page, "the file ends in the middle of a block")),
            Err(cause) => {
                let path = self.file.path().to_owned();
                Err(StoreError::Io { doing: "read", path, offset, cause })
            }
        }
    }

    fn groups(&self, place: ListPlace) -> Result<Vec<FilterGroup>, StoreError> {
        let mut groups: Vec<FilterGroup> = Vec::new();
        self.list(place, BlockKind::Groups, |walker| {
            let Some(Body::Value(Value::Inline(at))) = walker.body() else { return None };
            let (page, pages) = (u64_at(at, 0)?, u32_at(at, 8)?);
            let is_next = groups.last().is_none_or(|last| *last.first < *walker.key());
            let first = walker.key().into();
            groups.push(FilterGroup { first, keys: walker.item().delta, page, pages });
            is_next.then_some(())
        })?;
        Ok(groups)
    }

    fn prefixes(&self, footer: &Footer) -> Result<Vec<RangeDelete>, StoreError> {
        let mut prefixes: Vec<RangeDelete> = Vec::new();
        self.list(footer.prefixes, BlockKind::Gone, |walker| {
            let sequence = Sequence(footer.base.0.checked_add(walker.item().delta)?);
            let gone = RangeDelete { prefix: walker.key().into(), sequence };
            let is_next = prefixes.last().is_none_or(|last| *last < gone);
            prefixes.push(gone);
            is_next.then_some(())
        })?;
        Ok(prefixes)
    }

    fn live(&self, place: ListPlace) -> Result<Vec<SegmentBytes>, StoreError> {
        let mut live: Vec<SegmentBytes> = Vec::new();
        self.list(place, BlockKind::Live, |walker| {
            let segment = SegmentNumber(u64::from_be_bytes(walker.key().try_into().ok()?));
            let is_next = live.last().is_none_or(|last| last.segment < segment);
            live.push(SegmentBytes { segment, bytes: walker.item().delta });
            is_next.then_some(())
        })?;
        Ok(live)
    }

    /// Reads the blocks of a list, and passes each entry to `take`, which returns `None` for an
    /// impossible one.
    fn list(
        &self,
        place: ListPlace,
        kind: BlockKind,
        mut take: impl FnMut(&Walker) -> Option<()>,
    ) -> Result<(), StoreError> {
        let end = place.page.saturating_add(place.pages);
        if place.pages > LIST_PAGES_MAX || end > self.end {
            return Err(self.damaged(place.page, "a list's position is impossible"));
        }
        let mut page = place.page;
        while page < end {
            let head = self.read(page, 1)?;
            let pages = Nature::of(&head.buffer).map_or(0, |nature| nature.pages);
            self.pages.give_back(head);
            let child = Child { page, pages };
            self.check_range(child)?;
            let lease = self.read(page, u64::from(pages))?;
            if !is_sealed(Address { run: self.run, page }, &lease.buffer) {
                return Err(self.damaged(page, "the checksum of a list is wrong"));
            }
            if !Nature::of(&lease.buffer).is_some_and(|nature| nature.is(kind, 0)) {
                return Err(self.senseless(page));
            }
            let id = PageId { run: self.run, page };
            let block = self.pages.page(id, PageKind::Data, &lease.buffer);
            self.pages.give_back(lease);
            take_all(block, &mut take).ok_or_else(|| self.senseless(page))?;
            page += u64::from(pages);
        }
        Ok(())
    }

    #[cold]
    pub(in crate::run) fn damaged(&self, page: u64, what: &str) -> StoreError {
        let offset = page.saturating_mul(PAGE_BYTES as u64);
        let path = self.file.path().to_owned();
        StoreError::Damaged { path, offset, what: what.to_owned() }
    }

    /// Returns an error for a block with a valid checksum and impossible contents.
    #[cold]
    pub(in crate::run) fn senseless(&self, page: u64) -> StoreError {
        self.damaged(page, "a block is not of the expected kind")
    }

    pub(in crate::run) fn end_error(&self, page: u64, error: EndError) -> StoreError {
        match error {
            EndError::Damaged(what) => self.damaged(page, what),
            EndError::Version(found) => {
                let path = self.file.path().to_owned();
                StoreError::Version { path, found, known: FORMAT_VERSION }
            }
        }
    }
}

fn take_all(block: Arc<Page>, take: &mut impl FnMut(&Walker) -> Option<()>) -> Option<()> {
    let mut walker = Walker::first(block)?;
    loop {
        take(&walker)?;
        if !walker.next()? {
            return Some(());
        }
    }
}
