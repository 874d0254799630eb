//! A place in a run, which moves from entry to entry in both directions.

use std::sync::Arc;

use crate::entry::{Entry, Sequence};
use crate::error::StoreError;
use crate::pages::{Page, PageId, PageKind};

use super::ahead::Ahead;
use super::block::Body;
use super::reader::Run;
use super::view::Target;
use super::walker::Walker;

/// After so many blocks in a row that were not cached, a cursor reads ahead.
const BLOCKS_BEFORE_AHEAD: u32 = 2;

/// A place in a run: at an entry, or at none. It holds one block of each level of the tree, and up
/// to 128 KiB more while it goes through what is not cached. After an error it is at no entry, and
/// can seek again.
#[derive(Debug)]
pub(crate) struct Cursor {
    run: Arc<Run>,
    /// One place for each level of the tree, from the root down; empty if at no entry.
    levels: Vec<Walker>,
    ahead: Ahead,
    /// How many blocks in a row were not cached.
    uncached: u32,
    /// Whether nobody will read the run again who goes through it like this.
    is_passing: bool,
}

/// An end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl Run {
    /// A cursor that is at no entry yet.
    #[must_use]
    pub(crate) fn cursor(self: &Arc<Run>) -> Cursor {
        let (run, ahead) = (Arc::clone(self), Ahead::default());
        Cursor { run, levels: Vec::new(), ahead, uncached: 0, is_passing: false }
    }

    /// The same for who goes through all of it for the last time.
    #[must_use]
    pub(crate) fn cursor_to_merge(self: &Arc<Run>) -> Cursor {
        let mut cursor = self.cursor();
        cursor.is_passing = true;
        cursor
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.ahead.clear(&self.run.blocks());
    }
}

impl Cursor {
    /// The key of that entry.
    #[must_use]
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.levels.last().map(Walker::key)
    }

    /// The value that lies beside that key; none if there is none.
    #[must_use]
    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.levels.last()?.value()
    }

    /// The entry that the cursor is at.
    #[must_use]
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let place = self.levels.last()?;
        let item = place.item();
        let Some(Body::Value(value)) = place.body() else { return None };
        let (sequence, expiry) = (self.run.sequence(item.delta), item.expiry);
        Some(Entry { key: place.key(), sequence, expiry, value })
    }

    /// Goes to the first entry at or behind a key and a sequence, in the order of keys and
    /// descending sequences: so to the newest version of `key` that is not above `sequence`, or
    /// else to the newest one of the next key. False, and at no entry, if there is none.
    ///
    /// # Errors
    /// If the disk fails, or a block on the way is damaged.
    pub(crate) fn seek_first_at_or_after(
        &mut self,
        key: &[u8],
        sequence: Sequence,
    ) -> Result<bool, StoreError> {
        self.uncached = 0;
        self.ahead.clear(&self.run.blocks());
        self.or_nowhere(|cursor| cursor.seek(key, sequence))
    }

    /// Goes to the last entry before a key and a sequence in that order. False, and at no entry, if
    /// there is none.
    ///
    /// # Errors
    /// If the disk fails, or a block on the way is damaged.
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

    /// Goes to the first entry; false if there is none.
    ///
    /// # Errors
    /// If the disk fails, or a block on the way is damaged.
    pub(crate) fn seek_first(&mut self) -> Result<bool, StoreError> {
        self.or_nowhere(|cursor| cursor.enter(End::First))
    }

    /// Goes to the last entry; false if there is none.
    ///
    /// # Errors
    /// If the disk fails, or a block on the way is damaged.
    pub(crate) fn seek_last(&mut self) -> Result<bool, StoreError> {
        self.or_nowhere(|cursor| cursor.enter(End::Last))
    }

    /// Goes to the next entry. False, and at no entry, if there is none, or it was at none.
    ///
    /// # Errors
    /// If the disk fails, or a block on the way is damaged.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, StoreError> {
        if let Some(place) = self.levels.last_mut()
            && place.next() == Some(true)
            && let Some(Body::Value(_)) = place.body()
        {
            return Ok(true);
        }
        // The block has no more entries, or one that makes no sense, which will be met again.
        self.or_nowhere(|cursor| cursor.step(End::First))
    }

    /// Goes to the entry before. False, and at no entry, if there is none, or it was at none.
    ///
    /// # Errors
    /// If the disk fails, or a block on the way is damaged.
    pub(crate) fn prev(&mut self) -> Result<bool, StoreError> {
        self.or_nowhere(|cursor| cursor.step(End::Last))
    }

    /// Does something after which the cursor is at an entry, or else at none.
    fn or_nowhere(
        &mut self,
        go: impl FnOnce(&mut Cursor) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let gone = go(self);
        if !matches!(gone, Ok(true)) {
            self.levels.clear();
        } else if self.entry().is_none() {
            let page = self.levels.last().map_or(0, |place| place.page().id().page);
            self.levels.clear();
            return Err(self.run.blocks().senseless(page));
        }
        gone
    }

    fn seek(&mut self, key: &[u8], sequence: Sequence) -> Result<bool, StoreError> {
        let run = Arc::clone(&self.run);
        let delta = sequence.0.checked_sub(run.footer.base.0);
        let target = Target { key, delta };
        self.levels.clear();
        let Some(root) = run.root() else { return Ok(false) };
        let mut page = Arc::clone(root);
        let mut found = true;
        for level in (0..=run.footer.levels).rev() {
            if level < run.footer.levels {
                page = self.below(level, None)?;
            }
            let number = page.id().page;
            let place = Walker::seek(Arc::clone(&page), &target);
            let (place, found_here) = place.ok_or_else(|| run.blocks().senseless(number))?;
            self.levels.push(place);
            found = found_here;
            if !found && level > 0 {
                return Ok(false);
            }
        }
        // What leads to a block says up to where it may reach, not how far it does.
        if found { Ok(true) } else { self.step(End::First) }
    }

    /// The block of `level` that the lowest place leads to. Who goes from the first entry of one
    /// block to that of the next has it read ahead.
    fn below(&mut self, level: u8, end: Option<End>) -> Result<Arc<Page>, StoreError> {
        let Some(place) = self.levels.last() else {
            return Err(StoreError::Internal { what: "a cursor descends from nowhere".to_owned() });
        };
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

    /// Goes down from the lowest place to an end of the entries below it.
    fn descend(&mut self, end: End) -> Result<bool, StoreError> {
        while self.levels.len() <= usize::from(self.run.footer.levels) {
            let level = usize::from(self.run.footer.levels) - self.levels.len();
            let page = self.below(level as u8, Some(end))?;
            self.push(page, end)?;
        }
        Ok(true)
    }

    fn push(&mut self, page: Arc<Page>, end: End) -> Result<(), StoreError> {
        let number = page.id().page;
        let place = match end {
            End::First => Walker::first(page),
            End::Last => Walker::last(page),
        };
        self.levels.push(place.ok_or_else(|| self.run.blocks().senseless(number))?);
        Ok(())
    }

    /// Goes to an end of the run.
    fn enter(&mut self, end: End) -> Result<bool, StoreError> {
        self.uncached = 0;
        self.ahead.clear(&self.run.blocks());
        self.levels.clear();
        let Some(root) = self.run.root().map(Arc::clone) else { return Ok(false) };
        self.push(root, end)?;
        self.descend(end)
    }

    /// Goes to the neighbour, which is the first or the last of what lies beyond.
    fn step(&mut self, end: End) -> Result<bool, StoreError> {
        while let Some(place) = self.levels.last_mut() {
            let number = place.page().id().page;
            let moved = if end == End::First { place.next() } else { place.prev() };
            if moved.ok_or_else(|| self.run.blocks().senseless(number))? {
                return self.descend(end);
            }
            self.levels.pop();
        }
        Ok(false)
    }
}
