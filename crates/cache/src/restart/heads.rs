//! Records of large values in segments that are still open: each is copied into the map, so that a
//! process that dies does not take a value of many segments along only because its short record lay
//! in a segment that had yet to fill.
//!
//! Such a segment has a room of the map until it is sealed and on its medium. A room is a sequence
//! of entries, from its beginning:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the record |
//! | 4 | its offset among the records of its segment |
//! | 4 | bytes of values elsewhere in the segment, behind it |
//! | 4 | log and time-to-live class of the segment |
//! | 4 | CRC-32C of the segment's number and sequence, the words above, and the record |
//! | length | the record |
//!
//! An entry counts if its checksum does, which is that of no entry of another life of the segment,
//! or of another segment: so nothing else says how many there are.

use std::sync::Arc;

use entresol_base::checksum::{crc32c, crc32c_append};
use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_media::Direct;

use crate::record::{self, UNIT};
use crate::restart::closing::Closing;

/// Bytes of an entry before its record.
const ENTRY_BYTES: usize = 20;
/// Part of a segment that a room takes, and the least that it takes. An open segment whose room is
/// full is sealed, so this bounds the part of the medium that nearly empty segments waste.
const ROOM_SHARE: u64 = 64;
const ROOM_BYTES_MIN: u64 = 4096;
/// Segments for each room, and the fewest and the most rooms.
const ROOMS_SHARE: u32 = 8;
const ROOMS_MIN: u32 = 8;
const ROOMS_MAX: u32 = 256;

/// Life of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) id: u32,
    pub(crate) sequence: u64,
}

/// Facts about a record in an open segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// Offset among the records of the segment.
    pub(crate) at: u32,
    /// Bytes of values elsewhere in the segment, behind the record.
    pub(crate) value_used: u32,
    /// Log and class of the segment, as one byte.
    pub(crate) kind: u8,
}

/// Outcome of an attempt to keep a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Kept in this room.
    In(u32),
    /// Refused: the segment's room is full.
    Full,
    /// Refused: all rooms are other segments'.
    NoRoom,
}

/// Segment that has a room.
#[derive(Debug, Clone, Copy)]
struct Holder {
    id: u32,
    used: u64,
}

/// Rooms of the map.
pub(crate) struct Heads {
    map: Arc<Direct>,
    start: u64,
    segment_bytes: u64,
    holders: Mutex<Vec<Option<Holder>>>,
}

/// Returns the bytes of all rooms, for so many segments of so many bytes.
pub(crate) fn bytes(segments: u32, segment_bytes: u64) -> u64 {
    u64::from(rooms(segments)) * room_bytes(segment_bytes)
}

fn rooms(segments: u32) -> u32 {
    if segments == 0 { 0 } else { (segments / ROOMS_SHARE).clamp(ROOMS_MIN, ROOMS_MAX) }
}

fn room_bytes(segment_bytes: u64) -> u64 {
    (segment_bytes / ROOM_SHARE).max(ROOM_BYTES_MIN)
}

impl Heads {
    /// Returns the rooms that begin at byte `start` of the map. Those that segments of the last
    /// process have, by their numbers, are not given to others before these are done with.
    pub(crate) fn new(
        map: &Arc<Direct>,
        start: u64,
        segments: u32,
        segment_bytes: u64,
        left: impl Iterator<Item = (u32, u32)>,
    ) -> Heads {
        let mut holders = vec![None; rooms(segments) as usize];
        for (id, room) in left {
            if let Some(holder) = holders.get_mut(room as usize) {
                *holder = Some(Holder { id, used: room_bytes(segment_bytes) });
            }
        }
        Heads { map: Arc::clone(map), start, segment_bytes, holders: Mutex::new(holders) }
    }

    fn room_at(&self, room: u32) -> u64 {
        self.start + u64::from(room) * room_bytes(self.segment_bytes)
    }

    /// Copies a record into its segment's room, which the segment gets with its first one.
    pub(crate) fn keep(&self, life: Life, head: Head, record: &[u8]) -> Kept {
        let mut holders = self.holders.lock();
        let has = |id: u32| move |it: &Option<Holder>| it.is_some_and(|it| it.id == id);
        let found = holders.iter().position(has(life.id));
        let free = || holders.iter().position(Option::is_none);
        let Some(room) = found.or_else(free) else { return Kept::NoRoom };
        let used = holders[room].map_or(0, |holder| holder.used);
        let entry = encode(life, head, record);
        let after = used + entry.len() as u64;
        if after > room_bytes(self.segment_bytes) {
            return Kept::Full;
        }
        holders[room] = Some(Holder { id: life.id, used: after });
        self.map.write(self.room_at(room as u32) + used, &entry);
        Kept::In(room as u32)
    }

    /// Takes a segment's room back.
    pub(crate) fn release(&self, id: u32, room: u32) {
        if let Some(holder) = self.holders.lock().get_mut(room as usize)
            && holder.is_some_and(|holder| holder.id == id)
        {
            *holder = None;
        }
    }

    /// Reads the records that the last process has left of an open segment, with dead ones in the
    /// place of all others; `None` if there are none.
    pub(crate) fn read(&self, life: Life, room: u32) -> Option<Closing> {
        let mut entries = vec![0; room_bytes(self.segment_bytes) as usize];
        let at = self.room_at(room);
        if at + entries.len() as u64 > self.map.len() {
            return None;
        }
        self.map.read(at, &mut entries);
        let mut closing =
            Closing { sequence: life.sequence, class: 0, value_used: 0, records: Vec::new() };
        let mut left = entries.as_slice();
        while let Some((head, record, behind)) = decode(life, left) {
            let gap = u64::from(head.at).checked_sub(closing.records.len() as u64);
            closing.records.extend(record::filler(gap?)?);
            closing.records.extend_from_slice(record);
            (closing.class, closing.value_used) = (head.kind, head.value_used);
            left = behind;
        }
        let is_any = !closing.records.is_empty();
        (is_any && closing.fits(self.segment_bytes)).then_some(closing)
    }
}

fn encode(life: Life, head: Head, record: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(ENTRY_BYTES + record.len());
    let words = [record.len() as u32, head.at, head.value_used, u32::from(head.kind)];
    words.iter().for_each(|word| entry.extend_from_slice(&word.to_le_bytes()));
    let checksum = checksum(life, &entry, record);
    entry.extend_from_slice(&checksum.to_le_bytes());
    entry.extend_from_slice(record);
    entry
}

/// Decodes the first entry of some bytes; returns it with its record and the bytes behind. `None`
/// if it is no entry of this life of the segment.
fn decode(life: Life, bytes: &[u8]) -> Option<(Head, &[u8], &[u8])> {
    let (words, rest) = bytes.split_at_checked(ENTRY_BYTES)?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| words[4 * at + i]));
    let (record, behind) = rest.split_at_checked(word(0) as usize)?;
    let is_empty = record.is_empty() || !record.len().is_multiple_of(UNIT as usize);
    let is_intact = checksum(life, &words[..ENTRY_BYTES - 4], record) == word(4)
        || mutation_site!("a record that was kept in the map is checked");
    let head = Head { at: word(1), value_used: word(2), kind: word(3) as u8 };
    (!is_empty && is_intact).then_some((head, record, behind))
}

fn checksum(life: Life, words: &[u8], record: &[u8]) -> u32 {
    let checksum = crc32c(&life.id.to_le_bytes());
    let checksum = crc32c_append(checksum, &life.sequence.to_le_bytes());
    crc32c_append(crc32c_append(checksum, words), record)
}
