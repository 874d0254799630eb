//! Memtable images: a copy of a generation's table in a file on persistent memory, for recovery.
//!
//! While a store is open, lookups use the [`table`](super::table) in DRAM. A background thread
//! enters the published records into the image as well, in their order. From time to time, and once
//! more when the store is closed, a **watermark** says up to which record all entries are durable.
//! After a crash the image is read as it stands. Only the records behind the watermark are read
//! again, into a table that lookups ask first.
//!
//! This is correct whatever part of the image behind the watermark is durable. Its slots lead to
//! published records, which the log keeps. A key that was written only before the watermark has its
//! newest record in the image. A key that was written later is in the table as well.
//!
//! ```text
//!      0  8 B   "ENTRIMAG"
//!      8  u32   CRC-32C over the 36 bytes behind this word
//!     12  u32   format version, 2
//!     16  u64   the store's identity
//!     24  u64   the number of the generation's first segment
//!     32  u64   the sequence of its first write
//!     40  u64   number of lines that hashes choose from
//!   2048        two watermarks, 64 bytes each, written in turn:
//!               u32 CRC-32C over the 28 bytes behind it, u32 zero, u64 number of earlier
//!               watermarks, u64 segment, u64 offset and u64 sequence of a record
//!   2176        written when the store is closed: u32 CRC-32C over the 28 bytes behind it, u32
//!               zero, u64 sequence of the last watermark, u64 number of lines in use, u32 CRC-32C
//!               over the bits and these lines, u32 zero
//!   4096        a bit for each number that a Kvs can have, set if it has records
//!  12288        lines of 64 bytes: line 0 begins the list of range deletes, the lines behind it
//!               are chosen by hashes, all others continue a full one
//! ```
//!
//! A line has seven slots and the number of the line that continues it; see
//! [`table`](super::table). A slot has the lower twenty bits of the key's hash and the place of a
//! record: the index of its segment in the generation (12 bits), and its offset (32 bits).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::checksum;
use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_media::{Directory, MapOptions, MappedFile, PmemMode};

use super::{Position, Segments};
use crate::StoreError;
use crate::bytes::{u32_at, u64_at};
use crate::names;
use crate::run::format::filter;
use crate::segment::record::{HEADER_BYTES, Kind};
use crate::types::{KvsId, SegmentNumber, Sequence};

const MAGIC: [u8; 8] = *b"ENTRIMAG";
const VERSION: u32 = 2;
const HEADER_AT: u64 = 8;
const HEADER_LEN: usize = 40;
const WATERMARKS_AT: u64 = 2048;
const WATERMARK_LEN: usize = 40;
const SEAL_AT: u64 = WATERMARKS_AT + 2 * LINE_BYTES;
const SEAL_LEN: usize = 32;
/// Bytes that are read at once for a checksum.
const PIECE_BYTES: u64 = 64 << 10;
const KVS_AT: u64 = 4096;
const LINES_AT: u64 = 12288;
const LINE_BYTES: u64 = 64;
/// Index of the word that links a line to the next.
pub(super) const LINK: usize = 7;
/// Line that begins the list of range deletes.
const PREFIXES: u64 = 0;
/// Bytes of segments for each line, as in the table in DRAM.
const SEGMENT_BYTES_A_LINE: u64 = 800;
pub(super) const TAG_SHIFT: u32 = 44;
pub(super) const PLACE: u64 = (1 << TAG_SHIFT) - 1;
/// Records that are looked at before the first of them is entered. Meanwhile the processor fetches
/// the lines that they go to, hardly one of which is in its caches.
const RECORDS_AHEAD: usize = 16;
/// Identity of the generation that an image belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Identity of the store.
    pub(crate) store: u64,
    /// First segment of the generation.
    pub(crate) segment: SegmentNumber,
    /// First write of the generation.
    pub(crate) first: Sequence,
}

/// The last record that is durably entered in an image, as are all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watermark {
    pub(crate) segment: SegmentNumber,
    pub(crate) offset: u64,
    pub(crate) sequence: Sequence,
}

/// An image that is being built. A single thread enters all records, since a drain covers only what
/// the thread itself has written.
#[derive(Debug)]
pub(crate) struct NewImage {
    lines: Lines,
    state: Mutex<State>,
    /// Last record that is entered, for writers, which do not take the lock. `u64::MAX` once the
    /// image is given up, so that no writer waits for it.
    reached: AtomicU64,
}

/// A record that is entered next.
#[derive(Debug, Default)]
struct Coming {
    word: u64,
    key: Vec<u8>,
    hash: u64,
}

#[derive(Debug)]
struct State {
    /// Position behind the records that are entered.
    at: Position,
    /// Number of the first line that is not in use.
    end: u64,
    /// Bits of the `Kvs` that have records.
    kvs: Vec<u64>,
    watermarks: u64,
    /// True if no line is left. Nothing is entered any more then.
    is_full: bool,
    coming: [Coming; RECORDS_AHEAD],
}

/// An image that an earlier process has left, which no longer changes.
#[derive(Debug)]
pub(crate) struct RecoveredImage {
    pub(super) lines: Lines,
    pub(crate) watermark: Watermark,
    /// Statement of a process that closed the store, if one did.
    seal: Option<Seal>,
}

/// Statement about an image whose store was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seal {
    /// Last write that is entered.
    sequence: Sequence,
    /// Number of lines in use.
    end: u64,
    /// Checksum of the bits and of these lines.
    crc: u32,
}

/// Lines of an image.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) file: Arc<dyn MappedFile>,
    /// Identity of the store, which seeds the hash. Clients that choose keys do not know it.
    store: u64,
    /// Number of lines that hashes choose from.
    pub(super) buckets: u64,
    /// Number of lines that there is room for.
    count: u64,
}

impl Lines {
    fn of(file: Arc<dyn MappedFile>, store: u64, buckets: u64) -> Lines {
        let count = (file.len() - LINES_AT) / LINE_BYTES;
        Lines { file, store, buckets, count }
    }

    /// Returns the hash of a key. It is fixed by the format of images, whereas the hash of tables
    /// in DRAM may change with the next version.
    pub(super) fn hash(&self, kvs: KvsId, key: &[u8]) -> u64 {
        filter::hash(key, self.store.wrapping_add(kvs.0.into()))
    }

    pub(super) fn bucket(&self, hash: u64) -> u64 {
        1 + ((u128::from(hash) * u128::from(self.buckets)) >> 64) as u64
    }

    fn prefetch(&self, hash: u64) {
        self.file.prefetch(LINES_AT + self.bucket(hash) * LINE_BYTES);
    }

    pub(super) fn get(&self, line: u64) -> [u64; 8] {
        let mut bytes = [0; LINE_BYTES as usize];
        self.file.read(LINES_AT + line * LINE_BYTES, &mut bytes);
        let words = bytes.as_chunks::<8>().0;
        std::array::from_fn(|word| words.get(word).map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Returns the line that continues a line, if there is one. It must be a later line.
    pub(super) fn next(&self, line: u64, words: &[u64; 8]) -> Result<Option<u64>, StoreError> {
        match words[LINK] {
            0 => Ok(None),
            next if next > line && next > self.buckets && next < self.count => Ok(Some(next)),
            next => {
                let (path, offset) = (self.file.path().to_owned(), LINES_AT + line * LINE_BYTES);
                let what = format!("line {line} leads to line {next}");
                Err(StoreError::Damaged { path, offset, what })
            }
        }
    }

    /// Returns the checksum of the bits and of the lines before `end`.
    fn checksum(&self, end: u64) -> u32 {
        let (mut at, end) = (KVS_AT, LINES_AT + end * LINE_BYTES);
        let (mut crc, mut piece) = (0, vec![0; PIECE_BYTES as usize]);
        while at < end {
            let piece = &mut piece[..PIECE_BYTES.min(end - at) as usize];
            self.file.read(at, piece);
            crc = checksum::crc32c_append(crc, piece);
            at += piece.len() as u64;
        }
        crc
    }

    fn set(&self, line: u64, word: usize, value: u64) {
        let offset = LINES_AT + line * LINE_BYTES + 8 * word as u64;
        self.file.write(offset, &value.to_le_bytes());
    }

    /// Returns the place of the record with this hash for which `is_its` returns true.
    fn find(
        &self,
        hash: u64,
        mut is_its: impl FnMut(u64) -> Result<bool, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let mut line = self.bucket(hash);
        loop {
            let words = self.get(line);
            for &slot in &words[..LINK] {
                if slot == 0 {
                    return Ok(None);
                }
                if slot >> TAG_SHIFT == tag(hash) && is_its(slot & PLACE)? {
                    return Ok(Some(slot & PLACE));
                }
            }
            match self.next(line, &words)? {
                Some(next) => line = next,
                None => return Ok(None),
            }
        }
    }

    /// Puts a slot in the place of the first one for which `is_its` returns true, or at the end of
    /// the chain that begins with line `first`. Returns false if there is no room.
    fn enter(
        &self,
        first: u64,
        slot: u64,
        end: &mut u64,
        mut is_its: impl FnMut(u64) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let mut line = first;
        loop {
            let words = self.get(line);
            for (word, &there) in words[..LINK].iter().enumerate() {
                if there == 0 || is_its(there)? {
                    self.set(line, word, slot);
                    return Ok(true);
                }
            }
            match self.next(line, &words)? {
                Some(next) => line = next,
                None if *end >= self.count => return Ok(false),
                None => {
                    self.set(*end, 0, slot);
                    self.set(line, LINK, *end);
                    *end += 1;
                    return Ok(true);
                }
            }
        }
    }
}

impl NewImage {
    /// Creates the image of a generation with so many bytes of segments.
    ///
    /// # Errors
    /// Fails if there is no room, or no persistent memory.
    pub(crate) fn create(
        directory: &Arc<dyn Directory>,
        owner: Owner,
        generation_bytes: u64,
        pmem: PmemMode,
    ) -> Result<NewImage, StoreError> {
        let buckets = (generation_bytes / SEGMENT_BYTES_A_LINE).max(1);
        let bytes = LINES_AT + (1 + buckets + buckets / 2 + 64) * LINE_BYTES;
        let options = MapOptions {
            create: Some(bytes),
            magic: Some(MAGIC),
            pmem: Some(pmem),
            read_only: false,
        };
        let name = names::of_image(owner.segment);
        // A file of this name is left over: its slots may lead to other records by now.
        directory.remove(&name)?;
        let file = directory.map_file(&name, &options)?;
        // The header becomes durable with the first entries, before any watermark. The name may
        // become durable later: after a crash without an image, recovery just reads more of the
        // log.
        file.write(HEADER_AT, &header(owner, buckets));
        let state = State {
            at: Position::first(owner.first),
            end: 1 + buckets,
            kvs: vec![0; super::KVS_WORDS],
            watermarks: 0,
            is_full: false,
            coming: Default::default(),
        };
        let lines = Lines::of(file, owner.store, buckets);
        let reached = AtomicU64::new(owner.first.0 - 1);
        Ok(NewImage { lines, state: Mutex::new(state), reached })
    }

    /// Returns the bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.file.len()
    }

    /// Returns the number of writes by which it lags behind `last`, or 0 once it is given up.
    pub(crate) fn lag(&self, last: Sequence) -> u64 {
        last.0.saturating_sub(self.reached.load(Relaxed))
    }

    /// Returns the last record that is entered.
    pub(crate) fn entered(&self) -> Sequence {
        Sequence(self.state.lock().at.next.0 - 1)
    }

    /// Enters at most `most` records up to `last`, which is published. Returns true if there are
    /// more.
    ///
    /// # Errors
    /// Fails if a record or the image is damaged.
    pub(crate) fn enter(
        &self,
        segments: &Segments,
        last: Sequence,
        most: usize,
    ) -> Result<bool, StoreError> {
        let state = &mut *self.state.lock();
        let mut coming = std::mem::take(&mut state.coming);
        let done = self.enter_all(state, &mut coming, (segments, last, most));
        state.coming = coming;
        let is_given_up = state.is_full || done.is_err();
        let reached = if is_given_up { u64::MAX } else { state.at.next.0 - 1 };
        self.reached.store(reached, Relaxed);
        done
    }

    fn enter_all(
        &self,
        state: &mut State,
        coming: &mut [Coming],
        (segments, last, most): (&Segments, Sequence, usize),
    ) -> Result<bool, StoreError> {
        let (mut entered, mut newest) = (0, None);
        while !state.is_full && entered < most {
            let ahead = coming.len().min(most - entered);
            let count = self.look_ahead(state.at, &mut coming[..ahead], segments, last)?;
            for record in &coming[..count] {
                let Some(watermark) = self.enter_one(state, segments, record, last)? else { break };
                newest = Some(watermark);
                entered += 1;
            }
            if count < ahead {
                break;
            }
        }
        if let Some(newest) = newest {
            self.mark(state, newest)?;
        }
        Ok(entered == most)
    }

    /// Reads the next records from a position on, and prefetches the lines that they go to. Returns
    /// the number of records.
    fn look_ahead(
        &self,
        mut at: Position,
        coming: &mut [Coming],
        segments: &Segments,
        last: Sequence,
    ) -> Result<usize, StoreError> {
        for (number, record) in coming.iter_mut().enumerate() {
            let Some((word, segment, header)) = segments.next(&mut at, last)? else {
                return Ok(number);
            };
            record.word = word;
            record.key.clear();
            let begin = (word & u64::from(u32::MAX)) + HEADER_BYTES as u64;
            segment.read(begin, header.key_bytes as usize, &mut record.key)?;
            record.hash = self.lines.hash(header.kvs, &record.key);
            self.lines.prefetch(record.hash);
        }
        Ok(coming.len())
    }

    /// Enters the next record, which was looked at before. Returns `None` if there is no room.
    fn enter_one(
        &self,
        state: &mut State,
        segments: &Segments,
        record: &Coming,
        last: Sequence,
    ) -> Result<Option<Watermark>, StoreError> {
        let mut at = state.at;
        let Some((word, segment, header)) = segments.next(&mut at, last)? else { return Ok(None) };
        self.note(state, header.kvs);
        let done = match header.kind {
            Kind::RangeDelete => self.lines.enter(PREFIXES, word, &mut state.end, |_| Ok(false)),
            _ => self.enter_key(state, segments, header.kvs, record),
        };
        state.is_full = !done?;
        if state.is_full {
            return Ok(None);
        }
        state.at = at;
        let offset = word & u64::from(u32::MAX);
        Ok(Some(Watermark { segment: segment.number(), offset, sequence: header.sequence }))
    }

    fn enter_key(
        &self,
        state: &mut State,
        segments: &Segments,
        kvs: KvsId,
        record: &Coming,
    ) -> Result<bool, StoreError> {
        let Coming { word, ref key, hash } = *record;
        let slot = tag(hash) << TAG_SHIFT | word;
        self.lines.enter(self.lines.bucket(hash), slot, &mut state.end, |there| {
            Ok(there >> TAG_SHIFT == tag(hash) && segments.is_of(there & PLACE, kvs, key)?)
        })
    }

    fn note(&self, state: &mut State, kvs: KvsId) {
        let (number, bit) = (kvs.0 as usize / 64, 1 << (kvs.0 % 64));
        if let Some(word) = state.kvs.get_mut(number)
            && *word & bit == 0
        {
            *word |= bit;
            self.lines.file.write(KVS_AT + 8 * number as u64, &word.to_le_bytes());
        }
    }

    /// Writes a watermark once all records up to it are durably entered. The watermark itself need
    /// not be durable: an earlier one is correct as well.
    fn mark(&self, state: &mut State, to: Watermark) -> Result<(), StoreError> {
        let file = &*self.lines.file;
        file.persist(LINES_AT, 0).map_err(|cause| self.failed(cause))?;
        file.write(
            WATERMARKS_AT + LINE_BYTES * (state.watermarks % 2),
            &to.encode(state.watermarks),
        );
        state.watermarks += 1;
        Ok(())
    }

    /// Makes the last watermark durable, with a checksum of all entries. Nothing is entered
    /// afterwards.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let state = self.state.lock();
        let (sequence, end) = (Sequence(state.at.next.0 - 1), state.end);
        let seal = Seal { sequence, end, crc: self.lines.checksum(end) };
        self.lines.file.write(SEAL_AT, &seal.encode());
        self.lines.file.persist(WATERMARKS_AT, 0).map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: std::io::Error) -> StoreError {
        let path = self.lines.file.path().to_owned();
        StoreError::Io { doing: "sync", path, offset: WATERMARKS_AT, cause }
    }
}

impl RecoveredImage {
    /// Opens the image that an earlier process has left of a generation. Returns `None` if there is
    /// none with a valid watermark, or the store was closed and the image has changed since.
    pub(crate) fn open(
        directory: &dyn Directory,
        owner: Owner,
        pmem: PmemMode,
    ) -> Option<RecoveredImage> {
        let (image, found) = RecoveredImage::find_any(directory, owner.segment, Some(pmem))?;
        let is_whole = !image.is_changed()
            || mutation_site!("an image that has changed since the store was closed is not used");
        (found == owner && is_whole).then_some(image)
    }

    /// Opens the image that begins with a segment, whatever it holds. Also returns the generation
    /// that it is of. Returns `None` if there is none with a valid watermark.
    pub(crate) fn find_any(
        directory: &dyn Directory,
        segment: SegmentNumber,
        pmem: Option<PmemMode>,
    ) -> Option<(RecoveredImage, Owner)> {
        let name = names::of_image(segment);
        let options = MapOptions { create: None, magic: Some(MAGIC), pmem, read_only: true };
        let file = directory.map_file(&name, &options).ok()?;
        let mut head = [0; HEADER_LEN];
        file.read(HEADER_AT, &mut head);
        let (store, buckets) = (u64_at(&head, 8)?, u64_at(&head, 32)?);
        let owner = Owner { store, segment, first: Sequence(u64_at(&head, 24)?) };
        let room = file.len().checked_sub(LINES_AT)? / LINE_BYTES;
        if buckets == 0 || buckets >= room || head != header(owner, buckets) {
            return None;
        }
        let watermark = (0..2).filter_map(|number| {
            let mut bytes = [0; WATERMARK_LEN];
            file.read(WATERMARKS_AT + LINE_BYTES * number, &mut bytes);
            Watermark::decode(&bytes)
        });
        let (_, watermark) = watermark.max_by_key(|(number, _)| *number)?;
        let mut bytes = [0; SEAL_LEN];
        file.read(SEAL_AT, &mut bytes);
        let seal = Seal::decode(&bytes).filter(|seal| seal.end <= room);
        Some((
            RecoveredImage { lines: Lines::of(file, owner.store, buckets), watermark, seal },
            owner,
        ))
    }

    /// Returns true if a process has closed the store, and the image is no longer what it was then.
    pub(crate) fn is_changed(&self) -> bool {
        self.seal.is_some_and(|Seal { sequence, end, crc }| {
            sequence != self.watermark.sequence || self.lines.checksum(end) != crc
        })
    }

    /// Returns the place of a key's newest record in the image.
    ///
    /// # Errors
    /// Fails if a record or the image is damaged.
    pub(crate) fn find(
        &self,
        (kvs, key): (KvsId, &[u8]),
        segments: &Segments,
    ) -> Result<Option<u64>, StoreError> {
        let hash = self.lines.hash(kvs, key);
        self.lines.find(hash, |place| {
            let is_of = segments.is_of(place, kvs, key)?;
            // A put is verified with its value. Anything else decides by itself: a tombstone, an
            // expiry, and another key with such a hash, unless that is this one, damaged.
            if !is_of || segments.header(place)?.2.kind != Kind::Put {
                segments.verify(place)?;
            }
            Ok(is_of)
        })
    }

    /// Returns the number of segments, from the generation's first on, that the slots lead to:
    /// behind the watermark they may lead further than to its segment.
    pub(crate) fn segments_reached(&self) -> usize {
        let lines = (0..self.lines.count).map(|line| self.lines.get(line));
        let places = lines.filter_map(|words| words[..LINK].iter().map(|slot| slot & PLACE).max());
        places.max().map_or(0, |place| (place >> 32) as usize + 1)
    }

    /// Returns the bits of the `Kvs` that have records in the image.
    pub(crate) fn kvs(&self) -> Vec<u64> {
        let mut bytes = vec![0; 8 * super::KVS_WORDS];
        self.lines.file.read(KVS_AT, &mut bytes);
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// Returns the places of the records of range deletes, in their order.
    ///
    /// # Errors
    /// Fails if the image is damaged.
    pub(crate) fn prefixes(&self) -> Result<Vec<u64>, StoreError> {
        let (mut volumes, mut line) = (Vec::new(), Some(PREFIXES));
        while let Some(number) = line {
            let words = self.lines.get(number);
            volumes.extend(words[..LINK].iter().copied().filter(|&place| place != 0));
            line = self.lines.next(number, &words)?;
        }
        Ok(volumes)
    }
}

impl Watermark {
    fn encode(self, number: u64) -> [u8; WATERMARK_LEN] {
        let mut bytes = [0; WATERMARK_LEN];
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.offset.to_le_bytes());
        bytes[32..].copy_from_slice(&self.sequence.0.to_le_bytes());
        let crc = checksum::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; WATERMARK_LEN]) -> Option<(u64, Watermark)> {
        if !checksum::matches(u32_at(bytes, 0)?, &bytes[4..]) {
            return None;
        }
        let watermark = Watermark {
            segment: SegmentNumber(u64_at(bytes, 16)?),
            offset: u64_at(bytes, 24)?,
            sequence: Sequence(u64_at(bytes, 32)?),
        };
        Some((u64_at(bytes, 8)?, watermark))
    }
}

impl Seal {
    fn encode(self) -> [u8; SEAL_LEN] {
        let mut bytes = [0; SEAL_LEN];
        bytes[8..16].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.end.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.crc.to_le_bytes());
        let crc = checksum::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SEAL_LEN]) -> Option<Seal> {
        if !checksum::matches(u32_at(bytes, 0)?, &bytes[4..]) {
            return None;
        }
        let (sequence, end) = (Sequence(u64_at(bytes, 8)?), u64_at(bytes, 16)?);
        Some(Seal { sequence, end, crc: u32_at(bytes, 24)? })
    }
}

fn header(Owner { store, segment, first }: Owner, buckets: u64) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    let words = [store, segment.0, first.0, buckets];
    for (at, word) in bytes[8..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *at = word.to_le_bytes();
    }
    let crc = checksum::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(super) fn tag(hash: u64) -> u64 {
    hash & 0xF_FFFF
}

#[cfg(test)]
mod tests {
    use entresol_media::LocalDirectory;

    use super::*;

    const OWNER: Owner = Owner { store: 7, segment: SegmentNumber(3), first: Sequence(10) };
    const PMEM: PmemMode = PmemMode { assume_dax: true };

    fn directory(scratch: &tempfile::TempDir) -> Arc<dyn Directory> {
        Arc::new(LocalDirectory::open(scratch.path()).expect("a directory"))
    }

    #[test]
    fn keys_are_found_also_where_lines_go_on_until_there_is_no_room() {
        let scratch = tempfile::tempdir().expect("a directory");
        let making = NewImage::create(&directory(&scratch), OWNER, 80_000, PMEM).expect("room");
        let (lines, end) = (&making.lines, &mut making.state.lock().end);
        let hash = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Each word has the key, and how often it was entered.
        let enter = |key: u64, times: u64, end: &mut u64| {
            let slot = tag(hash(key)) << TAG_SHIFT | key << 8 | times;
            let is_its = |there: u64| Ok((there & PLACE) >> 8 == key);
            lines.enter(lines.bucket(hash(key)), slot, end, is_its).expect("whole")
        };
        let find = |key: u64| lines.find(hash(key), |place| Ok(place >> 8 == key)).expect("whole");
        let mut keys = 0;
        while enter(keys + 1, 1, end) {
            keys += 1;
            assert!(keys < 10_000, "there is always room");
        }
        assert!(keys > 700, "{keys} in a hundred lines and more");
        for key in 1..=keys {
            assert_eq!(find(key), Some(key << 8 | 1));
            assert!(enter(key, 2, end), "there is room in its own place");
            assert_eq!(find(key), Some(key << 8 | 2));
        }
        assert_eq!((find(keys + 1), find(1 << 30)), (None, None));
        assert_eq!(*end, lines.count, "all lines are in use");
    }

    #[test]
    fn what_is_no_image_of_the_generation_is_none() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = directory(&scratch);
        let open = |owner: Owner| RecoveredImage::open(&*directory, owner, PMEM);
        let making = NewImage::create(&directory, OWNER, 80_000, PMEM).expect("room");
        let file = making.lines.file.clone();
        drop(making);
        let watermark = |offset: u64| {
            let sequence = Sequence(11);
            Watermark { segment: SegmentNumber(3), offset, sequence }
        };
        // The watermarks are written in turn, and the last one is torn.
        file.write(WATERMARKS_AT, &watermark(1).encode(0));
        file.write(WATERMARKS_AT + LINE_BYTES, &watermark(2).encode(1));
        file.write(WATERMARKS_AT, &watermark(3).encode(2)[..20]);
        // A line that leads back must not be followed forever.
        (0..7).for_each(|word| file.write(LINES_AT + 8 * word, &1_u64.to_le_bytes()));
        file.write(LINES_AT + 56, &0_u64.to_le_bytes());
        drop(file);
        let left = open(OWNER).expect("an image");
        assert_eq!(left.watermark, watermark(2), "the last one that is whole");
        assert_eq!(left.prefixes().expect("whole").len(), 7);
        drop(left);
        for link in [1_u64, 101, 1 << 40] {
            let file = directory.map_file(&names::of_image(OWNER.segment), &MapOptions::default());
            file.expect("is mapped").write(LINES_AT + 56, &link.to_le_bytes());
            let told = open(OWNER).expect("an image").prefixes().map(|_| ());
            // Line 101 is the first one behind those that hashes choose from, and so a valid link.
            assert_eq!(told.is_err(), link != 101, "{told:?}");
        }
        assert!(open(Owner { store: 8, ..OWNER }).is_none());
        assert!(open(Owner { first: Sequence(11), ..OWNER }).is_none());
        assert!(open(Owner { segment: SegmentNumber(4), ..OWNER }).is_none());
    }
}
