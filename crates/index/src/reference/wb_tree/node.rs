//! Layout of nodes: a line with the bitmap, the slot array, the leftmost child and the level; then
//! the entries.

use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_media::Region;

use super::log::Changes;

/// Most entries of a node: with the line before them they take 512 bytes.
pub(super) const ENTRIES_MAX: usize = 28;
/// Offset of the bitmap. Bit 0 is set if the slot array is valid, the others for valid entries.
const BITMAP: u64 = 0;
const VALID: u64 = 1;
/// Offset of the slot array: first byte the number of entries, then their slots in the order of
/// keys.
const SLOTS: u64 = 8;
const SLOT_WORDS: usize = 4;
const LEFTMOST: u64 = 40;
const LEVEL: u64 = 48;
const ENTRIES: u64 = 64;
const ENTRY_BYTES: u64 = 16;

/// A record of a leaf, or a child and the least key below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) value: u64,
}

/// Slots of entries in the order of their keys.
#[derive(Debug, Clone, Copy)]
struct Slots {
    places: [u8; ENTRIES_MAX],
    len: usize,
}

impl std::ops::Deref for Slots {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.places[..self.len]
    }
}

impl Slots {
    fn new(places: impl IntoIterator<Item = u8>) -> Slots {
        let mut slots = Slots { places: [0; ENTRIES_MAX], len: 0 };
        for place in places {
            slots.insert(slots.len, place);
        }
        slots
    }

    fn insert(&mut self, rank: usize, place: u8) {
        self.places.copy_within(rank..self.len, rank + 1);
        self.places[rank] = place;
        self.len += 1;
    }

    fn remove(&mut self, rank: usize) -> u8 {
        let place = self.places[rank];
        self.places.copy_within(rank + 1..self.len, rank);
        self.len -= 1;
        place
    }

    fn words(&self) -> [u64; SLOT_WORDS] {
        let mut bytes = [0; 8 * SLOT_WORDS];
        bytes[0] = self.len as u8;
        bytes[1..=self.len].copy_from_slice(self);
        let mut words = [0; SLOT_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }
}

/// First line of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) at: u64,
    bitmap: u64,
    slots: Slots,
    pub(super) leftmost: u64,
    pub(super) level: u64,
}

impl Node {
    /// Loads a node. If its slot array is invalid, which a crash may leave, the order of the
    /// entries is found from their keys. `None` if it cannot be a node of `most` entries.
    pub(super) fn load<R: Region>(region: &R, at: u64, most: usize) -> Option<Node> {
        let words = region.load_line(at);
        let (bitmap, leftmost, level) = (words[0], words[5], words[6]);
        let mut node = Node { at, bitmap, slots: Slots::new([]), leftmost, level };
        if bitmap >> 1 >> most != 0 {
            return None;
        }
        if bitmap & VALID == 0 {
            let mut found: Vec<(u64, u8)> = (0..most as u8)
                .filter(|slot| bitmap >> (slot + 1) & 1 == 1)
                .map(|slot| (node.entry_at(region, slot).key, slot))
                .collect();
            found.sort_unstable();
            node.slots = Slots::new(found.into_iter().map(|(_, slot)| slot));
            return Some(node);
        }
        let mut bytes = [0; 8 * SLOT_WORDS];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&words[1..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let places = bytes.get(1..=usize::from(bytes[0]))?;
        node.slots = Slots::new(places.get(..most.min(places.len()))?.iter().copied());
        let stand = |all: u64, &slot: &u8| all | 1 << (slot + 1).min(63);
        let is_whole = node.slots.iter().fold(VALID, stand) == bitmap;
        (is_whole && node.slots.len() == bitmap.count_ones() as usize - 1).then_some(node)
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn entry_at<R: Region>(&self, region: &R, slot: u8) -> Entry {
        let at = self.place(slot);
        Entry { key: region.load_u64(at, Relaxed), value: region.load_u64(at + 8, Relaxed) }
    }

    fn place(&self, slot: u8) -> u64 {
        self.at + ENTRIES + ENTRY_BYTES * u64::from(slot)
    }

    /// Returns the entry of this rank in the order of keys.
    pub(super) fn entry<R: Region>(&self, region: &R, rank: usize) -> Entry {
        self.entry_at(region, self.slots[rank])
    }

    pub(super) fn entries<R: Region>(&self, region: &R) -> Vec<Entry> {
        self.slots.iter().map(|&slot| self.entry_at(region, slot)).collect()
    }

    /// Returns the number of keys below this one, and true if the next is this one.
    pub(super) fn rank<R: Region>(&self, region: &R, key: u64) -> (usize, bool) {
        let load = |slot: &u8| region.load_u64(self.place(*slot), Relaxed);
        match self.slots.binary_search_by_key(&key, load) {
            Ok(rank) => (rank, true),
            Err(rank) => (rank, false),
        }
    }

    /// Returns the child that covers a key, and the number of entries that are not after the key.
    pub(super) fn child<R: Region>(&self, region: &R, key: u64) -> (u64, usize) {
        let (rank, is_there) = self.rank(region, key);
        let not_after = rank + usize::from(is_there);
        let child = match not_after {
            0 => self.leftmost,
            entries => self.entry(region, entries - 1).value,
        };
        (child, not_after)
    }

    fn free_slot(&self) -> u8 {
        (self.bitmap | VALID).trailing_ones() as u8 - 1
    }

    fn put_bitmap<R: Region>(&self, region: &R, bitmap: u64) {
        region.store_u64(self.at + BITMAP, bitmap, Release);
        region.persist(self.at + BITMAP, 8);
    }

    /// Changes the slot array, which is invalid meanwhile, and then sets the bitmap in one store.
    fn replace<R: Region>(&self, region: &R, slots: &Slots, bitmap: u64, before: impl FnOnce()) {
        if self.bitmap & VALID != 0 {
            self.put_bitmap(region, self.bitmap & !VALID);
        }
        before();
        for (number, word) in (0..).zip(slots.words()) {
            region.store_u64(self.at + SLOTS + 8 * number, word, Relaxed);
        }
        region.persist(self.at + SLOTS, 8 * SLOT_WORDS);
        self.put_bitmap(region, bitmap | VALID);
    }

    /// Adds an entry of this rank; there is room.
    pub(super) fn insert<R: Region>(&self, region: &R, rank: usize, entry: Entry) {
        let slot = self.free_slot();
        let mut slots = self.slots;
        slots.insert(rank, slot);
        self.replace(region, &slots, self.bitmap | 1 << (slot + 1), || {
            let at = self.place(slot);
            region.store_u64(at, entry.key, Relaxed);
            region.store_u64(at + 8, entry.value, Relaxed);
            region.flush(at, ENTRY_BYTES as usize);
        });
    }

    /// Removes the entry of this rank. The bit that is cleared is its slot's, not its rank's.
    pub(super) fn remove<R: Region>(&self, region: &R, rank: usize) {
        let mut slots = self.slots;
        let slot = slots.remove(rank);
        self.replace(region, &slots, self.bitmap & !(1 << (slot + 1)), || ());
    }

    /// Gives the entry of this rank another value.
    pub(super) fn set_value<R: Region>(&self, region: &R, rank: usize, value: u64) {
        let at = self.place(self.slots[rank]) + 8;
        region.store_u64(at, value, Release);
        region.persist(at, 8);
    }

    fn change(&self, slots: &Slots, bitmap: u64, changes: &mut Changes) {
        changes.set(self.at + BITMAP, bitmap | VALID);
        for (number, word) in (0..).zip(slots.words()) {
            changes.set(self.at + SLOTS + 8 * number, word);
        }
    }

    /// Adds an entry as [`Node::insert`] does, together with other changes.
    pub(super) fn change_insert(&self, rank: usize, entry: Entry, changes: &mut Changes) {
        let slot = self.free_slot();
        let mut slots = self.slots;
        slots.insert(rank, slot);
        self.change(&slots, self.bitmap | 1 << (slot + 1), changes);
        changes.set(self.place(slot), entry.key);
        changes.set(self.place(slot) + 8, entry.value);
    }

    /// Drops all but the first `len` entries.
    pub(super) fn change_truncate(&self, len: usize, changes: &mut Changes) {
        let slots = Slots::new(self.slots[..len].iter().copied());
        self.change(&slots, slots.iter().fold(0, |all, slot| all | 1 << (slot + 1)), changes);
    }

    /// Removes the child that stands behind `not_after` entries; another one is left.
    pub(super) fn change_remove_child<R: Region>(
        &self,
        region: &R,
        not_after: usize,
        changes: &mut Changes,
    ) {
        let mut slots = self.slots;
        let slot = slots.remove(not_after.saturating_sub(1));
        self.change(&slots, self.bitmap & !(1 << (slot + 1)), changes);
        if not_after == 0 {
            changes.set(self.at + LEFTMOST, self.entry_at(region, slot).value);
        }
    }

    /// Writes a node that no link leads to, and flushes it.
    pub(super) fn write<R: Region>(
        region: &R,
        at: u64,
        level: u64,
        leftmost: u64,
        entries: &[Entry],
    ) {
        let mut words = [0; 8];
        words[0] = (1 << (entries.len() + 1)) - 1;
        let slots = Slots::new(0..entries.len() as u8);
        words[1..=SLOT_WORDS].copy_from_slice(&slots.words());
        (words[5], words[6]) = (leftmost, level);
        let mut bytes = words.map(u64::to_le_bytes).as_flattened().to_vec();
        for entry in entries {
            bytes.extend(entry.key.to_le_bytes());
            bytes.extend(entry.value.to_le_bytes());
        }
        region.write(at, &bytes);
        region.flush(at, bytes.len());
    }

    /// Returns the entries in a node of this size.
    pub(super) fn entries_in(bytes: u64) -> usize {
        (bytes.saturating_sub(ENTRIES) / ENTRY_BYTES) as usize
    }

    /// Returns the bytes of a node with this many entries, whole lines.
    pub(super) fn bytes(entries: usize) -> u64 {
        (ENTRIES + ENTRY_BYTES * entries as u64).next_multiple_of(64)
    }
}

const _: () = assert!(ENTRIES as usize + ENTRIES_MAX * ENTRY_BYTES as usize == 512);
const _: () = assert!(ENTRIES_MAX < 8 * SLOT_WORDS);
const _: () = assert!(LEFTMOST == 40 && LEVEL == 48 && SLOTS as usize + 8 * SLOT_WORDS == 40);
