//! A scan through a run's file page by page, without the tree that leads to its blocks. It reads
//! what it can of a damaged run.

use std::sync::Arc;

use entresol_media::{BlockFile, BlockOptions, Directory};

use crate::cache::block::{BlockCache, Page, PageId, PageKind};
use crate::error::StoreError;
use crate::types::{Entry, KvsId, Mark, RunNumber, Sequence};
use crate::version::manifest::RunState;

use super::reader::{BLOCK_PAGES_MAX, Blocks};
use super::walker::Walker;
use crate::run::file_name;
use crate::run::format::block::{Address, BlockKind, Body, PAGE_BYTES, is_sealed};
use crate::run::format::ends::{Footer, check_header, mark_behind};
use crate::run::format::view::{Block, Nature};

/// Message about blocks that are undamaged one by one, but do not belong together.
const MIXED: &str = "its blocks are of several runs with this number, of another store or of a \
                     copy";

/// A part of a run's file, in the order of the file.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// An entry.
    Entry(Entry<'a>),
    /// The prefix of a range delete.
    RangeDelete(&'a [u8]),
    /// Damaged pages, and a description of the damage.
    Damaged { offset: u64, bytes: u64, what: String },
}

/// Result of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Number of entries by the last page, or `None` if that cannot be read.
    pub(crate) said: Option<u64>,
    /// Number of entries that were passed on.
    pub(crate) shown: u64,
    /// Greatest sequence number of an entry that was passed on.
    pub(crate) greatest: Sequence,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Mark of all pages before the last one, by the last page.
    mark: Mark,
}

type Visit<'a> = dyn FnMut(Piece<'_>) -> Result<(), StoreError> + 'a;

/// Passes the contents of a run's file to `visit`, as far as they can be read.
///
/// # Errors
/// Fails if there is no such file, if it belongs to another run, or if `visit` fails.
pub(crate) fn scan(
    directory: &Arc<dyn Directory>,
    state: RunState,
    pages: &Arc<BlockCache>,
    visit: &mut Visit<'_>,
) -> Result<Scanned, StoreError> {
    let number = state.number();
    let file = open_file(directory, number)?;
    let end = (file.len() / PAGE_BYTES as u64).saturating_sub(1);
    let blocks = Blocks { file: &file, pages, run: number, end };
    let seen = Scanned { bytes: file.len(), ..Scanned::default() };
    let (base, mark) = (Sequence(0), Mark::NONE);
    let mut scan = Scan { blocks, base, visit, bad: None, is_damaged: false, mark, seen };
    scan.ends(state.mark)?;
    let mut page = 1;
    while page < end {
        page += scan.block(page)?;
    }
    scan.tell_bad()?;
    scan.compare()?;
    Ok(scan.seen)
}

fn open_file(
    directory: &Arc<dyn Directory>,
    number: RunNumber,
) -> Result<Arc<dyn BlockFile>, StoreError> {
    let options = BlockOptions { read_only: true, ..BlockOptions::default() };
    Ok(directory.open_block_file(&file_name(number), &options)?)
}

struct Scan<'a, 'v> {
    blocks: Blocks<'a>,
    /// Base of the sequence numbers.
    base: Sequence,
    visit: &'a mut Visit<'v>,
    /// Damaged pages in a row that are not reported yet: the first, their number, and the damage.
    bad: Option<(u64, u64, String)>,
    is_damaged: bool,
    /// Mark of the pages so far.
    mark: Mark,
    seen: Scanned,
}

impl Scan<'_, '_> {
    /// Reads the first and the last page.
    fn ends(&mut self, mark: Mark) -> Result<(), StoreError> {
        let last = self.blocks.end;
        let header = self.blocks.read(0, 1).and_then(|lease| {
            let checked = check_header(&lease.buffer, self.blocks.run);
            self.mark = mark_behind(self.mark, &lease.buffer);
            self.blocks.pages.give_back(lease);
            checked.map_err(|error| self.blocks.end_error(0, error))
        });
        if let Err(error) = header {
            self.bad(0, &error)?;
        }
        let footer = self.blocks.read(last, 1).and_then(|lease| {
            let address = Address { run: self.blocks.run, page: last };
            let footer = Footer::decode(&lease.buffer, address);
            self.blocks.pages.give_back(lease);
            footer.map_err(|error| self.blocks.end_error(last, error))
        });
        match footer {
            Ok(footer) => {
                self.blocks.check_mark(mark, &footer)?;
                self.base = footer.base;
                self.seen.said = Some(footer.entries);
                self.seen.mark = footer.mark;
                Ok(())
            }
            Err(error) => {
                self.bad(last, &error)?;
                self.tell_bad()
            }
        }
    }

    /// Passes the contents of the block at a page on. Returns its number of pages.
    fn block(&mut self, page: u64) -> Result<u64, StoreError> {
        match self.read(page) {
            Ok(block) => {
                self.tell_bad()?;
                let nature = Nature::of(block.bytes());
                let (kind, pages) = nature.map_or((0, 1), |nature| (nature.kind, nature.pages));
                let is_shown = kind == BlockKind::Data as u8 || kind == BlockKind::Gone as u8;
                if is_shown && !self.entries(block)? {
                    let error = self.blocks.senseless(page);
                    self.bad(page, &error)?;
                }
                Ok(u64::from(pages))
            }
            Err(error) => {
                self.bad(page, &error)?;
                Ok(1)
            }
        }
    }

    fn read(&mut self, page: u64) -> Result<Arc<Page>, StoreError> {
        let head = self.blocks.read(page, 1)?;
        let pages = Nature::of(&head.buffer).map_or(0, |nature| u64::from(nature.pages));
        let fits = (1..=BLOCK_PAGES_MAX).contains(&pages) && page + pages <= self.blocks.end;
        self.blocks.pages.give_back(head);
        if !fits {
            return Err(self.blocks.damaged(page, "no block begins here, or it is damaged"));
        }
        let lease = self.blocks.read(page, pages)?;
        if !is_sealed(Address { run: self.blocks.run, page }, &lease.buffer) {
            return Err(self.blocks.damaged(page, "the checksum of a block is wrong"));
        }
        self.mark = mark_behind(self.mark, &lease.buffer);
        let id = PageId { run: self.blocks.run, page };
        let block = self.blocks.pages.page(id, PageKind::Data, &lease.buffer);
        self.blocks.pages.give_back(lease);
        Ok(block)
    }

    /// Passes the entries of a block on. Returns false if they are impossible.
    fn entries(&mut self, block: Arc<Page>) -> Result<bool, StoreError> {
        let is_data = Nature::of(block.bytes()).is_some_and(|it| it.is(BlockKind::Data, 0));
        if Block::of(block.bytes()).is_none() {
            return Ok(false);
        }
        let Some(mut walker) = Walker::first(block) else { return Ok(false) };
        loop {
            let Some(Body::Value(value)) = walker.body() else { return Ok(false) };
            let sequence = Sequence(self.base.0.saturating_add(walker.item().delta));
            if is_data {
                let (key, expiry) = (walker.key(), walker.item().expiry);
                (self.visit)(Piece::Entry(Entry { key, sequence, expiry, value }))?;
                self.seen.shown += 1;
            } else {
                (self.visit)(Piece::RangeDelete(walker.key()))?;
            }
            self.seen.greatest = self.seen.greatest.max(sequence);
            match walker.next() {
                Some(true) => {}
                Some(false) => return Ok(true),
                None => return Ok(false),
            }
        }
    }

    /// Notes a damaged page.
    fn bad(&mut self, page: u64, error: &StoreError) -> Result<(), StoreError> {
        self.is_damaged = true;
        if let Some((first, pages, _)) = &mut self.bad
            && *first + *pages == page
        {
            *pages += 1;
            return Ok(());
        }
        self.tell_bad()?;
        self.bad = Some((page, 1, error.reason()));
        Ok(())
    }

    /// Reports a run whose pages are all undamaged, but are not those that its last page was
    /// written for.
    fn compare(&mut self) -> Result<(), StoreError> {
        if self.is_damaged || self.seen.mark.may_be(self.mark) {
            return Ok(());
        }
        let error = self.blocks.damaged(self.blocks.end, MIXED);
        self.bad(self.blocks.end, &error)?;
        self.tell_bad()
    }

    fn tell_bad(&mut self) -> Result<(), StoreError> {
        let Some((page, pages, what)) = self.bad.take() else { return Ok(()) };
        let (offset, bytes) = (page * PAGE_BYTES as u64, pages * PAGE_BYTES as u64);
        (self.visit)(Piece::Damaged { offset, bytes, what })
    }
}

/// Identity of a run, by its own pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `Kvs` that it belongs to.
    pub(crate) kvs: KvsId,
    /// Greatest sequence number of an entry, or 0 if the last page cannot be read.
    pub(crate) greatest: Sequence,
}

/// Returns the identity of a run by whichever of its ends can be read.
///
/// # Errors
/// Fails if there is no such file, or if neither end can be read.
pub(crate) fn identify(
    directory: &Arc<dyn Directory>,
    number: RunNumber,
    pages: &Arc<BlockCache>,
) -> Result<Identity, StoreError> {
    let file = open_file(directory, number)?;
    let end = (file.len() / PAGE_BYTES as u64).saturating_sub(1);
    let blocks = Blocks { file: &file, pages, run: number, end };
    let lease = blocks.read(end, 1)?;
    let footer = Footer::decode(&lease.buffer, Address { run: number, page: end });
    pages.give_back(lease);
    if let Ok(Footer { kvs, greatest, .. }) = footer {
        return Ok(Identity { kvs, greatest });
    }
    let lease = blocks.read(0, 1)?;
    let header = check_header(&lease.buffer, number);
    pages.give_back(lease);
    let kvs = header.map_err(|error| blocks.end_error(0, error))?;
    Ok(Identity { kvs, greatest: Sequence(0) })
}
