//! A position in a block: the entry there with its whole key, and the way to its neighbours.

use std::sync::Arc;

use crate::cache::block::Page;

use crate::run::format::block::{Body, RESTART_ENTRIES};
use crate::run::format::bytes::head_of;
use crate::run::format::view::{Block, Item, Target};

/// A position in a block, with the key. Methods return `None` if the block's bytes are impossible.
#[derive(Debug)]
pub(in crate::run) struct Walker {
    place: Position,
    key: Key,
}

/// A position in a block, without the key. It serves for index blocks, which lead to other blocks.
#[derive(Debug)]
pub(in crate::run) struct Position {
    page: Arc<Page>,
    /// End of the block's entries, and their number.
    end: usize,
    entries: u32,
    number: u32,
    item: Item,
}

/// A key that is assembled from entries.
#[derive(Debug, Default)]
pub(in crate::run) struct Key {
    /// The key, and room for a piece behind it, so that most are copied as one.
    bytes: Vec<u8>,
    len: usize,
}

/// Number of bytes in which most unshared parts of keys fit.
const PIECE_BYTES: usize = 16;

/// An end of a block, and the direction of steps that arrive there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum End {
    /// The first entry of a block, for steps forward.
    First,
    /// The last entry of a block, for steps backward.
    Last,
}

impl Position {
    /// Creates a position at an end of a block.
    pub(in crate::run) fn at_end(page: Arc<Page>, end: End) -> Option<Position> {
        let block = Block::of(page.bytes())?;
        let number = match end {
            End::First => 0,
            End::Last => block.entries.checked_sub(1)?,
        };
        let item = load(&block, number, |_, _| Some(()))?;
        let (end, entries) = (block.bytes.len(), block.entries);
        Some(Position { page, end, entries, number, item })
    }

    /// Creates a position at the first entry that is not before the target, or `Some(None)` if all
    /// are before it.
    pub(in crate::run) fn seek(page: Arc<Page>, target: &Target<'_>) -> Option<Option<Position>> {
        let block = Block::of(page.bytes())?;
        let spot = block.seek(target)?;
        let (end, entries, number) = (block.bytes.len(), block.entries, spot.number);
        Some(spot.found.map(|(item, _)| Position { page, end, entries, number, item }))
    }

    /// Moves to a neighbour. Returns false if there is none.
    pub(in crate::run) fn step(&mut self, end: End) -> Option<bool> {
        match (end, self.number.checked_sub(1)) {
            (End::First, _) => self.next(|_, _| Some(())),
            (End::Last, Some(number)) => self.go_back_to(number, |_, _| Some(())).map(|()| true),
            (End::Last, None) => Some(false),
        }
    }

    /// Moves to the next entry. Returns false if there is none.
    #[inline]
    fn next(&mut self, take: impl FnOnce(&Item, &[u8]) -> Option<()>) -> Option<bool> {
        if self.number + 1 >= self.entries {
            return Some(false);
        }
        let bytes = self.page.bytes().get(..self.end)?;
        let item = Item::read(bytes, self.item.next())?;
        take(&item, bytes)?;
        self.item = item;
        self.number += 1;
        Some(true)
    }

    /// Moves to the entry with a number, and passes the entries that its key is assembled from to
    /// `take`.
    fn go_back_to(
        &mut self,
        number: u32,
        take: impl FnMut(&Item, &[u8]) -> Option<()>,
    ) -> Option<()> {
        let block = Block::of(self.page.bytes())?;
        self.item = load(&block, number, take)?;
        self.number = number;
        Some(())
    }

    pub(in crate::run) fn page(&self) -> &Arc<Page> {
        &self.page
    }

    pub(in crate::run) fn item(&self) -> &Item {
        &self.item
    }
}

impl Walker {
    /// Creates a position at the first entry of a block.
    pub(in crate::run) fn first(page: Arc<Page>) -> Option<Walker> {
        Walker::at_end(page, End::First, Key::default())
    }

    /// Creates a position at the last entry of a block.
    pub(in crate::run) fn last(page: Arc<Page>) -> Option<Walker> {
        Walker::at_end(page, End::Last, Key::default())
    }

    /// Creates a position at an end of a block. It uses the buffer of an earlier key.
    pub(in crate::run) fn at_end(page: Arc<Page>, end: End, key: Key) -> Option<Walker> {
        Walker::at(Position::at_end(page, end)?, key)
    }

    /// Creates a position at the first entry that is not before the target, or `Some(None)` if all
    /// are before it.
    pub(in crate::run) fn seek(
        page: Arc<Page>,
        target: &Target<'_>,
        key: Key,
    ) -> Option<Option<Walker>> {
        match Position::seek(page, target)? {
            Some(place) => Walker::at(place, key).map(Some),
            None => Some(None),
        }
    }

    fn at(place: Position, mut key: Key) -> Option<Walker> {
        let block = Block::of(place.page.bytes())?;
        key.len = 0;
        load(&block, place.number, |item, bytes| key.extend(item, bytes))?;
        Some(Walker { place, key })
    }

    /// Moves to the next entry. Returns false if there is none.
    #[inline]
    pub(in crate::run) fn next(&mut self) -> Option<bool> {
        let Walker { place, key } = self;
        place.next(|item, bytes| key.extend(item, bytes))
    }

    /// Moves to the previous entry. Returns false if there is none.
    pub(in crate::run) fn prev(&mut self) -> Option<bool> {
        let Walker { place, key } = self;
        let Some(number) = place.number.checked_sub(1) else { return Some(false) };
        key.len = 0;
        place.go_back_to(number, |item, bytes| key.extend(item, bytes)).map(|()| true)
    }

    pub(in crate::run) fn page(&self) -> &Arc<Page> {
        &self.place.page
    }

    #[inline]
    pub(in crate::run) fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// Returns the first eight bytes of the key as [`head_of`] computes them.
    #[inline]
    pub(in crate::run) fn head(&self) -> u64 {
        head_of(self.key.as_slice())
    }

    /// Returns the buffer of the key, for another position.
    pub(in crate::run) fn into_key(self) -> Key {
        self.key
    }

    #[inline]
    pub(in crate::run) fn item(&self) -> &Item {
        &self.place.item
    }

    /// Returns the value beside the key, if there is one.
    #[inline]
    pub(in crate::run) fn value(&self) -> Option<&[u8]> {
        self.place.item.inline_of(self.place.page.bytes())
    }

    #[inline]
    pub(in crate::run) fn body(&self) -> Option<Body<'_>> {
        self.place.item.body_of(self.place.page.bytes())
    }
}

impl Key {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Turns the key into that of the next entry.
    #[inline]
    fn extend(&mut self, item: &Item, bytes: &[u8]) -> Option<()> {
        let shared = item.shared();
        if shared > self.len {
            return None;
        }
        let piece = item.short_suffix_of::<PIECE_BYTES>(bytes);
        let room = self.bytes.get_mut(shared..).and_then(|room| room.first_chunk_mut());
        match (piece, room) {
            (Some((piece, len)), Some(room)) => {
                *room = *piece;
                self.len = shared + len;
                Some(())
            }
            _ => self.extend_slowly(shared, item.suffix_of(bytes)?),
        }
    }

    #[inline(never)]
    fn extend_slowly(&mut self, shared: usize, suffix: &[u8]) -> Option<()> {
        self.bytes.truncate(shared);
        self.bytes.reserve(suffix.len() + 2 * PIECE_BYTES);
        self.bytes.extend_from_slice(suffix);
        self.len = self.bytes.len();
        self.bytes.resize(self.len + PIECE_BYTES, 0);
        Some(())
    }
}

/// Reads the entry with this number, and passes it to `take` after the entries that its key is
/// assembled from.
fn load(
    block: &Block<'_>,
    number: u32,
    mut take: impl FnMut(&Item, &[u8]) -> Option<()>,
) -> Option<Item> {
    let restart = number / RESTART_ENTRIES;
    let mut item = block.restart_item(restart)?;
    take(&item, block.bytes)?;
    for _ in restart * RESTART_ENTRIES..number {
        item = Item::read(block.bytes, item.next())?;
        take(&item, block.bytes)?;
    }
    Some(item)
}
