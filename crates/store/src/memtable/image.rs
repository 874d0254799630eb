//! Images: the table of a generation once more, in a file on persistent memory, for whoever opens
//! the store again.
//!
//! While a store is open its own [`table`](super::table) answers, in DRAM. Behind the writers'
//! backs the records that count are entered into the image as well, in their order; from time to
//! time, when what was entered is durable, a **watermark** says up to where; once more when the
//! store is closed. After a crash the image is read as it stands, and only the records behind the
//! watermark are read again, into a table that is asked first.
//!
//! That is right whatever of the image is durable behind the watermark. What it leads to are
//! records that counted, which the log keeps. A key that was written before the watermark only has
//! its newest record in the image. One that was written since is in the table as well.
//!
//! ```text
//!      0  8 B   "ENTRIMAG"
//!      8  u32   CRC-32C over the 36 bytes behind this word
//!     12  u32   format version, 1
//!     16  u64   the store's identity
//!     24  u64   the number of the generation's first segment
//!     32  u64   the sequence of its first write
//!     40  u64   lines that hashes choose from
//!   2048        two watermarks, 64 bytes each, written in turn:
//!               u32 CRC-32C over the 28 bytes behind it, u32 zero, u64 how many were written
//!               before, u64 segment, u64 offset and u64 sequence of a record
//!   4096        a bit for each number that a Kvs can have, set where it has records
//!  12288        lines of 64 bytes: line 0 begins the list of prefixes that are gone, the lines
//!               behind it are chosen by hashes, all others go on where one is full
//! ```
//!
//! A line has seven slots and the number of the line that goes on; see [`table`](super::table). A
//! slot has the lower twenty bits of the key's hash and the place of a record: which of the
//! generation's segments (12 bits), and its offset (32 bits).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::checksum;
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
const VERSION: u32 = 1;
const HEADER_AT: u64 = 8;
const HEADER_LEN: usize = 40;
const WATERMARKS_AT: u64 = 2048;
const WATERMARK_LEN: usize = 40;
const KVS_AT: u64 = 4096;
const LINES_AT: u64 = 12288;
const LINE_BYTES: u64 = 64;
/// Which word of a line leads to the next.
const LINK: usize = 7;
/// The list of prefixes begins in this line.
const PREFIXES: u64 = 0;
/// As in the table in DRAM.
const SEGMENT_BYTES_A_LINE: u64 = 800;
const TAG_SHIFT: u32 = 44;
const PLACE: u64 = (1 << TAG_SHIFT) - 1;
/// So many records are looked at before the first of them is entered: the lines that they go to, of
/// which hardly one is in the processor's caches, are fetched meanwhile.
const RECORDS_AHEAD: usize = 16;
/// What an image's name begins with.

/// Whose image it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The store's identity.
    pub(crate) store: u64,
    /// The generation's first segment.
    pub(crate) segment: SegmentNumber,
    /// Its first write.
    pub(crate) first: Sequence,
}

/// The last record that is surely in an image, with all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watermark {
    pub(crate) segment: SegmentNumber,
    pub(crate) offset: u64,
    pub(crate) sequence: Sequence,
}

/// An image that is being made. It is always the same thread that enters records: a drain is for
/// what the thread itself has written.
#[derive(Debug)]
pub(crate) struct Making {
    lines: Lines,
    state: Mutex<State>,
    /// The last record that is entered, for who does not wait for the state; the greatest number
    /// there is once nobody is to wait for more.
    reached: AtomicU64,
}

/// A record that is going to be entered.
#[derive(Debug, Default)]
struct Coming {
    word: u64,
    key: Vec<u8>,
    hash: u64,
}

#[derive(Debug)]
struct State {
    /// Behind what was entered.
    at: Position,
    /// Behind all lines that are in use.
    end: u64,
    /// Bits of the `Kvs` that have records.
    kvs: Vec<u64>,
    watermarks: u64,
    /// No line was left: nothing is entered any more.
    is_full: bool,
    coming: [Coming; RECORDS_AHEAD],
}

/// An image that a crash has left; nobody changes it any more.
#[derive(Debug)]
pub(crate) struct Left {
    lines: Lines,
    pub(crate) watermark: Watermark,
}

/// The lines of an image.
#[derive(Debug)]
struct Lines {
    file: Arc<dyn MappedFile>,
    /// The store's identity, which nobody who picks keys knows.
    store: u64,
    /// Lines that hashes choose from.
    buckets: u64,
    /// All that there is room for.
    count: u64,
}

impl Lines {
    fn of(file: Arc<dyn MappedFile>, store: u64, buckets: u64) -> Lines {
        let count = (file.len() - LINES_AT) / LINE_BYTES;
        Lines { file, store, buckets, count }
    }

    /// The hash of a key; that of the tables in DRAM may be another one in the next version.
    fn hash(&self, kvs: KvsId, key: &[u8]) -> u64 {
        filter::hash(key, self.store.wrapping_add(kvs.0.into()))
    }

    fn bucket(&self, hash: u64) -> u64 {
        1 + ((u128::from(hash) * u128::from(self.buckets)) >> 64) as u64
    }

    fn prefetch(&self, hash: u64) {
        self.file.prefetch(LINES_AT + self.bucket(hash) * LINE_BYTES);
    }

    fn get(&self, line: u64) -> [u64; 8] {
        let mut bytes = [0; LINE_BYTES as usize];
        self.file.read(LINES_AT + line * LINE_BYTES, &mut bytes);
        let words = bytes.as_chunks::<8>().0;
        std::array::from_fn(|word| words.get(word).map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// The line that goes on, if there is one: always a later one than all before it.
    fn next(&self, line: u64, words: &[u64; 8]) -> Result<Option<u64>, StoreError> {
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

    fn set(&self, line: u64, word: usize, value: u64) {
        let offset = LINES_AT + line * LINE_BYTES + 8 * word as u64;
        self.file.write(offset, &value.to_le_bytes());
    }

    /// The place of the record that is entered with a hash, the one of which `is_its` says so.
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

    /// Puts a slot in the place of the first one that `is_its`, or at the end of the lines that
    /// begin with one; false if there is no room.
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

impl Making {
    /// Makes the image of a generation of so many bytes.
    ///
    /// # Errors
    /// If there is no room, or no persistent memory.
    pub(crate) fn create(
        directory: &Arc<dyn Directory>,
        owner: Owner,
        generation_bytes: u64,
        pmem: PmemMode,
    ) -> Result<Making, StoreError> {
        let buckets = (generation_bytes / SEGMENT_BYTES_A_LINE).max(1);
        let bytes = LINES_AT + (1 + buckets + buckets / 2 + 64) * LINE_BYTES;
        let options = MapOptions {
            create: Some(bytes),
            magic: Some(MAGIC),
            pmem: Some(pmem),
            read_only: false,
        };
        let name = names::of_image(owner.segment);
        // What is there is none of ours: what it leads to may be something else by now.
        directory.remove(&name)?;
        let file = directory.map_file(&name, &options)?;
        // It is durable with what is entered, before any watermark. The name may become so later:
        // without an image a crash leaves more to be read, that is all.
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
        Ok(Making { lines, state: Mutex::new(state), reached })
    }

    /// By how many writes it is behind one of them; none once it is given up.
    pub(crate) fn lag(&self, last: Sequence) -> u64 {
        last.0.saturating_sub(self.reached.load(Relaxed))
    }

    /// The last record that is entered.
    pub(crate) fn entered(&self) -> Sequence {
        Sequence(self.state.lock().at.next.0 - 1)
    }

    /// Enters records up to one, which counts, as many as `most`; says whether there are more.
    ///
    /// # Errors
    /// If a record or the image is damaged.
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

    /// Notes which records come from a place on, and fetches what entering them takes; answers how
    /// many there are.
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

    /// Enters the next record, which was looked at; none if there is no room.
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

    /// Says that all up to a record is entered, once that is durable itself. That it is said need
    /// not be: an earlier watermark is right as well.
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

    /// Makes durable what was said last.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        self.lines.file.persist(WATERMARKS_AT, 0).map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: std::io::Error) -> StoreError {
        let path = self.lines.file.path().to_owned();
        StoreError::Io { doing: "sync", path, offset: WATERMARKS_AT, cause }
    }
}

impl Left {
    /// Opens the image that a crash has left of a generation; none if there is none that says
    /// anything.
    pub(crate) fn open(directory: &dyn Directory, owner: Owner, pmem: PmemMode) -> Option<Left> {
        let name = names::of_image(owner.segment);
        let options =
            MapOptions { create: None, magic: Some(MAGIC), pmem: Some(pmem), read_only: true };
        let file = directory.map_file(&name, &options).ok()?;
        let mut head = [0; HEADER_LEN];
        file.read(HEADER_AT, &mut head);
        let buckets = u64_at(&head, 32)?;
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
        Some(Left { lines: Lines::of(file, owner.store, buckets), watermark })
    }

    /// The place of the newest record of a key that is entered.
    ///
    /// # Errors
    /// If a record or the image is damaged.
    pub(crate) fn find(
        &self,
        (kvs, key): (KvsId, &[u8]),
        segments: &Segments,
    ) -> Result<Option<u64>, StoreError> {
        let hash = self.lines.hash(kvs, key);
        self.lines.find(hash, |place| segments.is_of(place, kvs, key))
    }

    /// The `Kvs` that have records in it.
    pub(crate) fn kvs(&self) -> Vec<u64> {
        let mut bytes = vec![0; 8 * super::KVS_WORDS];
        self.lines.file.read(KVS_AT, &mut bytes);
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// The volumes of the records by which prefixes went, in their order.
    ///
    /// # Errors
    /// If the image is damaged.
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

fn tag(hash: u64) -> u64 {
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
        let making = Making::create(&directory(&scratch), OWNER, 80_000, PMEM).expect("room");
        let (lines, end) = (&making.lines, &mut making.state.lock().end);
        let hash = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Each word is the key and how often it was entered.
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
        let open = |owner: Owner| Left::open(&*directory, owner, PMEM);
        let making = Making::create(&directory, OWNER, 80_000, PMEM).expect("room");
        let file = making.lines.file.clone();
        drop(making);
        let watermark = |offset: u64| {
            let sequence = Sequence(11);
            Watermark { segment: SegmentNumber(3), offset, sequence }
        };
        // Each in its turn; the last one is torn.
        file.write(WATERMARKS_AT, &watermark(1).encode(0));
        file.write(WATERMARKS_AT + LINE_BYTES, &watermark(2).encode(1));
        file.write(WATERMARKS_AT, &watermark(3).encode(2)[..20]);
        // A line that leads back, which must not be followed for ever.
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
            // The first line behind those that hashes choose from is one.
            assert_eq!(told.is_err(), link != 101, "{told:?}");
        }
        assert!(open(Owner { store: 8, ..OWNER }).is_none());
        assert!(open(Owner { first: Sequence(11), ..OWNER }).is_none());
        assert!(open(Owner { segment: SegmentNumber(4), ..OWNER }).is_none());
    }
}
