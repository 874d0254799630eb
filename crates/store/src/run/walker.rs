//! A place in a block: the entry there with its whole key, and the way to its neighbours.

use std::sync::Arc;

use crate::pages::Page;

use super::block::{Body, RESTART_ENTRIES};
use super::view::{Block, Item, Target};

/// A place in a block. Where an answer is none, the block's bytes make no sense.
#[derive(Debug)]
pub(super) struct Walker {
    page: Arc<Page>,
    /// Where the block's entries end, and how many there are.
    end: usize,
    entries: u32,
    number: u32,
    item: Item,
    key: Vec<u8>,
}

impl Walker {
    /// At the first entry of a block.
    pub(super) fn first(page: Arc<Page>) -> Option<Walker> {
        Walker::at(page, |_| Some(0))
    }

    /// At the last entry.
    pub(super) fn last(page: Arc<Page>) -> Option<Walker> {
        Walker::at(page, |block| block.entries.checked_sub(1))
    }

    /// At the first entry that is not before the target, or at the last one, and whether there is
    /// one.
    pub(super) fn seek(page: Arc<Page>, target: &Target<'_>) -> Option<(Walker, bool)> {
        let mut found = true;
        let walker = Walker::at(page, |block| {
            let spot = block.seek(target)?;
            found = spot.found.is_some();
            Some(spot.number.min(block.entries.checked_sub(1)?))
        })?;
        Some((walker, found))
    }

    fn at(page: Arc<Page>, number: impl FnOnce(&Block<'_>) -> Option<u32>) -> Option<Walker> {
        let block = Block::of(page.bytes())?;
        let number = number(&block)?;
        let mut key = Vec::new();
        let item = load(&block, number, &mut key)?;
        let (end, entries) = (block.bytes.len(), block.entries);
        Some(Walker { page, end, entries, number, item, key })
    }

    /// Goes to the next entry; false if there is none.
    #[inline]
    pub(super) fn next(&mut self) -> Option<bool> {
        if self.number + 1 >= self.entries {
            return Some(false);
        }
        let bytes = self.page.bytes().get(..self.end)?;
        let item = Item::read(bytes, self.item.next)?;
        extend(&mut self.key, &item, bytes)?;
        self.item = item;
        self.number += 1;
        Some(true)
    }

    /// Goes to the entry before; false if there is none.
    pub(super) fn prev(&mut self) -> Option<bool> {
        let Some(number) = self.number.checked_sub(1) else { return Some(false) };
        let block = Block::of(self.page.bytes())?;
        self.item = load(&block, number, &mut self.key)?;
        self.number = number;
        Some(true)
    }

    pub(super) fn page(&self) -> &Arc<Page> {
        &self.page
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn item(&self) -> &Item {
        &self.item
    }

    /// The value that lies beside the key; none if there is none.
    #[inline]
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.item.inline_of(self.page.bytes())
    }

    pub(super) fn body(&self) -> Option<Body<'_>> {
        self.item.body_of(self.page.bytes())
    }
}

/// Reads the entry of this number, and puts its key together.
fn load(block: &Block<'_>, number: u32, key: &mut Vec<u8>) -> Option<Item> {
    let restart = number / RESTART_ENTRIES;
    key.clear();
    let mut item = Item::read(block.bytes, block.start(restart)?)?;
    extend(key, &item, block.bytes)?;
    for _ in restart * RESTART_ENTRIES..number {
        item = Item::read(block.bytes, item.next)?;
        extend(key, &item, block.bytes)?;
    }
    Some(item)
}

#[inline]
fn extend(key: &mut Vec<u8>, item: &Item, bytes: &[u8]) -> Option<()> {
    if item.shared > key.len() {
        return None;
    }
    key.truncate(item.shared);
    key.extend_from_slice(item.suffix_of(bytes)?);
    Some(())
}
