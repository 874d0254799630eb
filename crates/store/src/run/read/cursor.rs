//! A cursor over a run, which moves from entry to entry in both directions.

use std::sync::Arc;

use crate::cache::block::{Page, PageId, PageKind};
use crate::error::StoreError;
use crate::types::{Entry, Expiry, Sequence, ValuePlace, Version};

use super::ahead::Ahead;
use super::reader::Run;
use super::walker::{End, Key, Position, Walker};
use crate::run::format::block::Body;
use crate::run::format::view::Target;

/// Number of uncached blocks in a row after which a cursor reads ahead.
const BLOCKS_BEFORE_AHEAD: u32 = 2;

/// A position in a run: at an entry, or at none. It holds one block of each level of the tree, and
/// up to 128 KiB more while it walks through blocks that are not cached. After an error it is at no
/// entry, and can seek again.
#[derive(Debug)]
pub(crate) struct Cursor {
    run: Arc<Run>,
    /// Positions in the index blocks, from the root down.
    above: Vec<Position>,
    /// Position among the entries; `None` if at no entry.
    place: Option<Walker>,
    ahead: Ahead,
    /// Number of blocks in a row that were not cached.
    uncached: u32,
    /// True if the run has no more readers after this walk.
    is_passing: bool,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A value that lies beside its key, and never expires.
    Simple,
    /// Any other version of its key.
    Other,
    /// Bytes that are no entry of a run.
    None,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.ahead.clear(&self.run.blocks());
    }
}

impl Cursor {
    /// Creates a cursor of a run that is at no entry yet.
    pub(super) fn new(run: Arc<Run>, is_passing: bool) -> Cursor {
        let ahead = Ahead::default();
        Cursor { run, above: Vec::new(), place: None, ahead, uncached: 0, is_passing }
    }

    /// Returns the key of the current entry.
    #[must_use]
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.place.as_ref().map(Walker::key)
    }

    /// Returns the first eight bytes of the current key as [`head_of`](crate::bytes::head_of)
    /// computes them.
    #[must_use]
    #[inline]
    pub(crate) fn head(&self) -> Option<u64> {
        self.place.as_ref().map(Walker::head)
    }

    /// Returns the value beside the current key, if there is one.
    #[must_use]
    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.place.as_ref()?.value()
    }

    /// Returns the current entry.
    #[must_use]
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let place = self.place.as_ref()?;
        let item = place.item();
        let Some(Body::Value(value)) = place.body() else { return None };
        let (sequence, expiry) = (self.run.sequence(item.delta), item.expiry);
        Some(Entry { key: place.key(), sequence, expiry, value })
    }

    /// Returns the version of the current entry.
    #[must_use]
    #[inline]
    pub(crate) fn version(&self) -> Option<Version> {
        let place = self.place.as_ref()?;
        let item = place.item();
        let value = match item.is_inline() {
            true => ValuePlace::Here,
            false => match place.body()? {
                Body::Value(value) => ValuePlace::at(value),
                Body::Child(_) => return None,
            },
        };
        Some(Version { sequence: self.run.sequence(item.delta), expiry: item.expiry, value })
    }

    /// Moves to the first entry at or behind a key and a sequence number, in the order of keys and
    /// descending sequence numbers. This is the newest version of `key` up to `sequence`, or else
    /// the newest version of the next key. Returns false, and is at no entry, if there is none.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block on the way is damaged.
    pub(crate) fn seek_first_at_or_after(
        &mut self,
        key: &[u8],
        sequence: Sequence,
    ) -> Result<bool, StoreError> {
        self.uncached = 0;
        self.ahead.clear(&self.run.blocks());
        self.or_nowhere(|cursor| cursor.seek(key, sequence))
    }

    /// Moves to the last entry before a key and a sequence number in that order. Returns false, and
    /// is at no entry, if there is none.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block on the way is damaged.
    pub(crate) fn seek_last_before(
        &mut self,
        key: &[u8],
        sequence: Sequence,
    ) -> Result<bool, StoreError> {
        self.uncached = 0;
        self.ahead.clear(&self.run.blocks());
        self.or_nowhere(|cursor| {
            if cursor.seek(key, sequence)? {
                cursor.step(End::Last)
            } else {
                cursor.enter(End::Last)
            }
        })
    }

    /// Moves to the first entry. Returns false if there is none.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block on the way is damaged.
    pub(crate) fn seek_first(&mut self) -> Result<bool, StoreError> {
        self.or_nowhere(|cursor| cursor.enter(End::First))
    }

    /// Moves to the last entry. Returns false if there is none.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block on the way is damaged.
    pub(crate) fn seek_last(&mut self) -> Result<bool, StoreError> {
        self.or_nowhere(|cursor| cursor.enter(End::Last))
    }

    /// Moves to the next entry. Returns false, and is at no entry, if there is none or if it was at
    /// none.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block on the way is damaged.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, StoreError> {
        match self.next_in_block() {
            Some(EntryKind::Simple | EntryKind::Other) => Ok(true),
            Some(EntryKind::None) => self.or_nowhere(|_| Ok(true)),
            // The block has no more entries, or a damaged one, which the step meets again.
            None => self.or_nowhere(|cursor| cursor.step(End::First)),
        }
    }

    /// Moves to the next entry if it lies in the same block, and returns its kind. Otherwise the
    /// cursor stays where it is.
    #[inline]
    pub(crate) fn next_in_block(&mut self) -> Option<EntryKind> {
        let place = self.place.as_mut()?;
        if place.next() != Some(true) {
            return None;
        }
        let item = place.item();
        Some(match item.is_inline() && item.expiry == Expiry::NEVER {
            true => EntryKind::Simple,
            false if item.is_value() => EntryKind::Other,
            false => EntryKind::None,
        })
    }

    /// Moves to the previous entry. Returns false, and is at no entry, if there is none or if it
    /// was at none.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block on the way is damaged.
    pub(crate) fn prev(&mut self) -> Result<bool, StoreError> {
        self.or_nowhere(|cursor| cursor.step(End::Last))
    }

    /// Moves the cursor with `go`, which leaves it at a valid entry, or at none.
    fn or_nowhere(
        &mut self,
        go: impl FnOnce(&mut Cursor) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let gone = go(self);
        if !matches!(gone, Ok(true)) {
            self.place = None;
        } else if self.entry().is_none() {
            let page = self.place.take().map_or(0, |place| place.page().id().page);
            return Err(self.run.blocks().senseless(page));
        }
        gone
    }

    fn seek(&mut self, key: &[u8], sequence: Sequence) -> Result<bool, StoreError> {
        let delta = sequence.0.checked_sub(self.run.footer.base.0);
        let target = Target { key, delta };
        let buffer = self.leave();
        let Some(root) = self.run.root() else { return Ok(false) };
        let mut page = Arc::clone(root);
        for level in (0..self.run.footer.levels).rev() {
            let number = page.id().page;
            let place = Position::seek(page, &target);
            let Some(place) = place.ok_or_else(|| self.run.blocks().senseless(number))? else {
                return Ok(false);
            };
            page = self.below(&place, level, None)?;
            self.above.push(place);
        }
        let number = page.id().page;
        let place = Walker::seek(page, &target, buffer);
        self.place = place.ok_or_else(|| self.run.blocks().senseless(number))?;
        // An index gives a bound for a block's entries, which the last entry need not reach.
        if self.place.is_some() { Ok(true) } else { self.step_above(End::First) }
    }

    /// Leaves the current positions. Returns the buffer of the key for another use.
    fn leave(&mut self) -> Key {
        self.above.clear();
        self.place.take().map(Walker::into_key).unwrap_or_default()
    }

    /// Returns the block of `level` that an index position leads to. A walk from the first entry of
    /// one block to that of the next reads ahead.
    fn below(
        &mut self,
        place: &Position,
        level: u8,
        end: Option<End>,
    ) -> Result<Arc<Page>, StoreError> {
        let child = self.run.child_place(place.page(), place.item())?;
        if let Some(page) = self.run.cached(child, level) {
            self.uncached = 0;
            return Ok(page);
        }
        if level > 0 || self.uncached < BLOCKS_BEFORE_AHEAD || end != Some(End::First) {
            self.uncached += u32::from(level == 0);
            return self.run.blocks().load(child, level);
        }
        let id = PageId { run: self.run.footer.number, page: child.page };
        let bytes = self.ahead.block(&self.run.blocks(), child, level)?;
        Ok(match self.is_passing {
            true => self.run.pages.page(id, PageKind::Data, bytes),
            false => self.run.pages.insert_if_room(id, PageKind::Data, bytes),
        })
    }

    /// Descends from the lowest index position to an end of the entries below it.
    fn descend(&mut self, end: End) -> Result<bool, StoreError> {
        let levels = usize::from(self.run.footer.levels);
        loop {
            let Some(place) = self.above.pop() else {
                let what = "a cursor descends from nowhere".to_owned();
                return Err(StoreError::Internal { what });
            };
            let level = (levels - self.above.len() - 1) as u8;
            let page = self.below(&place, level, Some(end))?;
            self.above.push(place);
            if level == 0 {
                return self.enter_block(page, end);
            }
            self.push(page, end)?;
        }
    }

    fn push(&mut self, page: Arc<Page>, end: End) -> Result<(), StoreError> {
        let number = page.id().page;
        let place = Position::at_end(page, end);
        self.above.push(place.ok_or_else(|| self.run.blocks().senseless(number))?);
        Ok(())
    }

    fn enter_block(&mut self, page: Arc<Page>, end: End) -> Result<bool, StoreError> {
        let number = page.id().page;
        let key = self.place.take().map(Walker::into_key).unwrap_or_default();
        let place = Walker::at_end(page, end, key);
        self.place = Some(place.ok_or_else(|| self.run.blocks().senseless(number))?);
        Ok(true)
    }

    /// Moves to an end of the run.
    fn enter(&mut self, end: End) -> Result<bool, StoreError> {
        self.uncached = 0;
        self.ahead.clear(&self.run.blocks());
        self.above.clear();
        let Some(root) = self.run.root().map(Arc::clone) else { return Ok(false) };
        if self.run.footer.levels == 0 {
            return self.enter_block(root, end);
        }
        self.push(root, end)?;
        self.descend(end)
    }

    /// Moves to a neighbour, which is the first or the last of the entries beyond.
    fn step(&mut self, end: End) -> Result<bool, StoreError> {
        let Some(place) = &mut self.place else { return Ok(false) };
        let number = place.page().id().page;
        let moved = if end == End::First { place.next() } else { place.prev() };
        if moved.ok_or_else(|| self.run.blocks().senseless(number))? {
            return Ok(true);
        }
        self.step_above(end)
    }

    /// Moves from the end of a block to the neighbour in the next block.
    fn step_above(&mut self, end: End) -> Result<bool, StoreError> {
        while let Some(place) = self.above.last_mut() {
            let number = place.page().id().page;
            if place.step(end).ok_or_else(|| self.run.blocks().senseless(number))? {
                return self.descend(end);
            }
            self.above.pop();
        }
        Ok(false)
    }
}
