//! Preload of a run: all of it is cached before readers ask for it, in the order of its file.

use std::sync::Arc;

use crate::cache::block::{Page, PageId, PageKind};
use crate::error::StoreError;

use super::ahead::Ahead;
use super::reader::Run;
use super::walker::{End, Position};

impl Run {
    /// Reads the pages of filters and the blocks that are not cached, as long as they fit without
    /// an eviction, and while `go_on` returns true. `go_on` gets the bytes that were read so far.
    /// Returns true if everything is cached.
    ///
    /// # Errors
    /// Fails if the disk fails, or if a block is damaged.
    pub(crate) fn preload(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<bool, StoreError> {
        let mut load = Preload { run: self, ahead: Ahead::default(), go_on };
        let done = load.filters().and_then(|all| match self.root() {
            Some(root) if all => load.below(root, self.footer.levels),
            _ => Ok(all),
        });
        load.ahead.clear(&self.blocks());
        done
    }
}

struct Preload<'a> {
    run: &'a Run,
    ahead: Ahead,
    go_on: &'a mut dyn FnMut(u64) -> bool,
}

impl Preload<'_> {
    fn filters(&mut self) -> Result<bool, StoreError> {
        let run = self.run;
        for group in &run.groups {
            for page in (group.page..).take(group.pages as usize) {
                let id = PageId { run: run.footer.number, page };
                if !run.pages.is_cached(id) {
                    let bytes = self.ahead.filter(&run.blocks(), page)?;
                    if run.pages.offer(id, PageKind::Filter, bytes).is_none() {
                        return Ok(false);
                    }
                }
            }
            if !(self.go_on)(self.ahead.bytes_read()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Caches all blocks below a block of this level.
    fn below(&mut self, page: &Arc<Page>, level: u8) -> Result<bool, StoreError> {
        let Some(level) = level.checked_sub(1) else { return Ok(true) };
        let run = self.run;
        let senseless = || run.blocks().senseless(page.id().page);
        let mut place = Position::at_end(Arc::clone(page), End::First).ok_or_else(senseless)?;
        loop {
            let child = run.child_place(place.page(), place.item())?;
            let id = PageId { run: run.footer.number, page: child.page };
            if level > 0 {
                let index = run.child(place.page(), place.item(), level)?;
                if !self.below(&index, level)? {
                    return Ok(false);
                }
            } else if !run.pages.is_cached(id) {
                let bytes = self.ahead.block(&run.blocks(), child, level)?;
                if run.pages.offer(id, PageKind::Data, bytes).is_none() {
                    return Ok(false);
                }
            }
            if !place.step(End::First).ok_or_else(senseless)? {
                return Ok((self.go_on)(self.ahead.bytes_read()));
            }
        }
    }
}
