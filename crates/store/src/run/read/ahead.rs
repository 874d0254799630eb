//! Read-ahead for walks through a run's file from front to back, in pieces that grow with the
//! length of the walk. The pieces are cached only where that evicts nothing, since they are not
//! likely to be needed again soon.

use crate::cache::block::Lease;
use crate::error::StoreError;

use super::reader::Blocks;
use crate::run::format::block::{Child, PAGE_BYTES};

/// Pages of the first piece, and the most of any piece. A walk of a hundred small entries ends
/// within the first, for which a buffer is kept.
const AHEAD_PAGES_MIN: u64 = (32 << 10) / PAGE_BYTES as u64;
const AHEAD_PAGES_MAX: u64 = (128 << 10) / PAGE_BYTES as u64;

/// Read-ahead of a walk.
#[derive(Debug, Default)]
pub(in crate::run) struct Ahead {
    piece: Option<Piece>,
    /// Number of pages of the last piece, and of all pieces.
    pages: u64,
    pages_read: u64,
}

#[derive(Debug)]
struct Piece {
    first: u64,
    pages: u64,
    lease: Lease,
}

impl Ahead {
    /// Returns the verified bytes of a block of this level.
    pub(in crate::run) fn block(
        &mut self,
        blocks: &Blocks<'_>,
        child: Child,
        level: u8,
    ) -> Result<&[u8], StoreError> {
        let bytes = self.pages(blocks, child)?;
        blocks.check(child, level, bytes)?;
        Ok(bytes)
    }

    /// Returns the verified bytes of a page of a filter.
    pub(in crate::run) fn filter(
        &mut self,
        blocks: &Blocks<'_>,
        page: u64,
    ) -> Result<&[u8], StoreError> {
        let bytes = self.pages(blocks, Child { page, pages: 1 })?;
        blocks.check_filter(page, bytes)?;
        Ok(bytes)
    }

    /// Returns the number of bytes that were read.
    pub(in crate::run) fn bytes_read(&self) -> u64 {
        self.pages_read * PAGE_BYTES as u64
    }

    fn pages(&mut self, blocks: &Blocks<'_>, child: Child) -> Result<&[u8], StoreError> {
        blocks.check_range(child)?;
        let needed = u64::from(child.pages);
        let has_it = |piece: &Piece| {
            child.page >= piece.first && child.page + needed <= piece.first + piece.pages
        };
        if !self.piece.as_ref().is_some_and(has_it) {
            // The old piece is freed first, so that there are never two.
            self.let_go(blocks);
            self.pages = (2 * self.pages).clamp(AHEAD_PAGES_MIN, AHEAD_PAGES_MAX);
            let pages = self.pages.max(needed).min(blocks.end - child.page);
            let lease = blocks.read(child.page, pages)?;
            self.pages_read += pages;
            self.piece = Some(Piece { first: child.page, pages, lease });
        }
        let bytes = self.piece.as_ref().and_then(|piece| {
            let start = (child.page - piece.first) as usize * PAGE_BYTES;
            piece.lease.buffer.get(start..start + child.pages as usize * PAGE_BYTES)
        });
        bytes.ok_or_else(|| blocks.senseless(child.page))
    }

    /// Gives the piece back, and begins with short pieces again.
    pub(in crate::run) fn clear(&mut self, blocks: &Blocks<'_>) {
        self.let_go(blocks);
        self.pages = 0;
    }

    fn let_go(&mut self, blocks: &Blocks<'_>) {
        if let Some(piece) = self.piece.take() {
            blocks.pages.give_back(piece.lease);
        }
    }
}
