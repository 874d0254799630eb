//! Segments: files of records, one behind the other.
//!
//! ```text
//!  0  8 B  "ENTRSEGM"
//!  8  u32  CRC-32C over the 20 bytes behind this word
//! 12  u32  format version: 1, or 2 with a table of where its records lie (`table`)
//! 16  u64  the store's identity
//! 24  u64  the segment's number
//! 32  u64  mark that all segments before it are durable: 2^32 + CRC-32C of identity and number
//! 40  u64  mark of the offset before which all is durable: 2^32 times the offset + CRC-32C of
//!          identity, number and offset
//! 4096     the first record
//! ```
//!
//! A segment that is written to is mapped. A full one is read in blocks, unless it is still mapped.
//! Its records end with a seal, or with the first bytes that are not a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use entresol_base::{checksum, mutation_site};
use entresol_media::{
    BlockFile, BlockOptions, Directory, FileError, MapOptions, MappedFile, MappedKind, PmemMode,
};

use crate::StoreError;
use crate::bytes::{u32_at, u64_at};
use crate::names;
use crate::types::{KvsId, RecordPlace, SegmentNumber, Sequence};
use groups::{End, Window};
use record::{Address, Draft, HEADER_BYTES, Header, Record};
use table::{BEGINNING_BYTES, LEAD_AT, LEAD_BYTES, Lead, Table};

pub(crate) mod groups;
pub(crate) mod record;
pub(crate) mod table;

/// First bytes of a segment.
pub(crate) const MAGIC: [u8; 8] = *b"ENTRSEGM";
/// Offset of the first record.
pub(crate) const FIRST_RECORD: u64 = 4096;
/// Bytes of a seal, for which every segment has room.
pub(crate) const SEAL_BYTES: u64 = HEADER_BYTES as u64;

const VERSION: u32 = 1;
/// Format version of a segment with a table.
const VERSION_OF_TABLES: u32 = 2;
/// Bytes of the header behind the magic number.
const HEAD_BYTES: usize = 24;
/// Offset of the mark that all segments before it are durable.
const MARK_AT: u64 = (MAGIC.len() + HEAD_BYTES) as u64;

/// Offset of the mark of the offset before which all is durable.
const REACHED_AT: u64 = MARK_AT + 8;

/// A segment of records.
#[derive(Debug)]
pub(crate) struct Segment {
    number: SegmentNumber,
    store: u64,
    /// Address of its beginning.
    beginning: Address,
    bytes: Bytes,
    /// True if no more is written to it. It is then read by [`Segment::read_by_call`] even though
    /// it is mapped.
    is_flushed: AtomicBool,
    /// Bytes that were read once no more was written to it.
    read: AtomicU64,
    layout: Layout,
}

/// Places at which the records of a segment lie.
#[derive(Debug)]
enum Layout {
    /// Offsets at which they were written.
    AsWritten,
    /// Offsets by a table, since records were left out.
    Squeezed(Table),
    /// Offsets by a table that is damaged, as its copy is. No record can be read.
    Lost,
}

/// Table of a segment, which is there twice.
#[derive(Debug, Clone, Copy)]
enum TableCopy {
    First,
    Second,
}

/// Contents of a header.
struct Head {
    version: u32,
    store: u64,
    number: u64,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Arc<dyn MappedFile>),
    Blocks(Arc<dyn BlockFile>),
}

impl Segment {
    fn of(number: SegmentNumber, store: u64, bytes: Bytes) -> Segment {
        Segment {
            number,
            store,
            beginning: Address::of_segment(store, number),
            bytes,
            is_flushed: AtomicBool::new(false),
            read: AtomicU64::new(0),
            layout: Layout::AsWritten,
        }
    }

    /// Creates a segment of so many bytes. Its name becomes durable with a sync of the directory.
    ///
    /// # Errors
    /// Fails if there is no room.
    pub(crate) fn create(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
        bytes: u64,
        pmem: Option<PmemMode>,
    ) -> Result<Segment, StoreError> {
        let (create, magic) = (Some(bytes), Some(MAGIC));
        let options = MapOptions { create, magic, pmem, read_only: false };
        let file = directory.map_file(&names::of_segment(number), &options)?;
        file.write(MAGIC.len() as u64, &head_of(VERSION, store, number));
        let segment = Segment::of(number, store, Bytes::Mapped(file));
        segment.persist(0, FIRST_RECORD)?;
        Ok(segment)
    }

    /// Opens a segment to be read and, unless `read_only`, sealed. Returns `None` if it has no
    /// valid header: a crash came while it was created, and nothing in it was ever durable.
    ///
    /// # Errors
    /// Fails if it cannot be read, or belongs to another store.
    pub(crate) fn open_mapped(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
        pmem: Option<PmemMode>,
        read_only: bool,
    ) -> Result<Option<Segment>, StoreError> {
        let options = MapOptions { create: None, magic: Some(MAGIC), pmem, read_only };
        let file = directory.map_file(&names::of_segment(number), &options)?;
        let segment = Segment::of(number, store, Bytes::Mapped(file));
        match segment.head()? {
            Some(head) => segment.checked(head).map(Some),
            None => Ok(None),
        }
    }

    /// Opens a segment without verifying its header. Its records are verified one by one.
    ///
    /// # Errors
    /// Fails if there is no such file, or if it cannot be read.
    pub(crate) fn open_unchecked(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
    ) -> Result<Segment, StoreError> {
        let options = MapOptions { read_only: true, ..MapOptions::default() };
        let file = directory.map_file(&names::of_segment(number), &options)?;
        Ok(Segment::of(number, store, Bytes::Mapped(file)))
    }

    /// Opens a full segment. A damaged header does not matter here, since records are verified one
    /// by one; see [`Segment::header_error`].
    ///
    /// # Errors
    /// Fails if it cannot be read, or belongs to another store.
    pub(crate) fn open_blocks(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
    ) -> Result<Segment, StoreError> {
        // The page cache holds what was written last, and does not count as memory of the store.
        let options = BlockOptions { cached: true, read_only: true, ..BlockOptions::default() };
        let file = directory.open_block_file(&names::of_segment(number), &options)?;
        let segment = Segment::of(number, store, Bytes::Blocks(file));
        match segment.head()? {
            Some(head) => segment.checked(head),
            None if segment.has_beginning_at_end() => segment.laid_out(),
            None => Ok(segment),
        }
    }

    /// Returns the first bytes of a segment that is squeezed, of which its last ones are a copy.
    /// The words lead to its table.
    pub(crate) fn beginning_with(&self, lead: &[u8]) -> Vec<u8> {
        let head = head_of(VERSION_OF_TABLES, self.store, self.number);
        [&MAGIC[..], &head, lead].concat()
    }

    /// Returns the damage of the header, if there is any.
    pub(crate) fn header_error(&self) -> Option<StoreError> {
        let mut magic = Vec::with_capacity(MAGIC.len());
        match self.read_by_call(0, MAGIC.len(), &mut magic).and_then(|()| self.head()) {
            Ok(_) if magic != MAGIC => Some(self.damaged(0, "it does not begin as a segment does")),
            Ok(Some(_)) => self.table_error(),
            Ok(None) => Some(self.damaged(8, "the header's checksum is wrong")),
            Err(error) => Some(error),
        }
    }

    /// Returns the damage of a table or its copy, if there is any.
    fn table_error(&self) -> Option<StoreError> {
        if matches!(self.layout, Layout::AsWritten) {
            return None;
        }
        if !self.is_table(TableCopy::First) {
            return Some(self.damaged(LEAD_AT, "its table of records is damaged"));
        }
        let is_copy = self.is_table(TableCopy::Second) && self.has_beginning_at_end();
        (!is_copy).then(|| self.damaged(self.copy_at(), "the copy of its table is damaged"))
    }

    fn is_table(&self, copy: TableCopy) -> bool {
        matches!(self.read_table(copy), Ok(Some(_)))
    }

    /// Returns true if no record can be read, since nothing says where they lie.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.layout, Layout::Lost)
    }

    /// Returns the identity of the store that a segment's header names.
    pub(crate) fn store_of(directory: &dyn Directory, number: SegmentNumber) -> Option<u64> {
        let segment = Segment::open_unchecked(directory, 0, number).ok()?;
        let head = segment.head().ok()??;
        (head.number == number.0).then_some(head.store)
    }

    /// Returns true if a file behind the end of the log is a segment of the store, and false if it
    /// is the remains of a segment that a crash left unfinished.
    ///
    /// # Errors
    /// Fails if it cannot be read, or belongs to another store.
    pub(crate) fn is_ours(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
    ) -> Result<bool, StoreError> {
        match Segment::open_mapped(directory, store, number, None, true) {
            Ok(segment) => Ok(segment.is_some()),
            Err(StoreError::File(FileError::TooSmall { found: 0, .. })) => Ok(false),
            Err(error @ StoreError::File(FileError::Foreign { .. })) => {
                let mut bytes = Vec::with_capacity(MAGIC.len());
                let segment = Segment::open_unchecked(directory, store, number);
                let read = segment.and_then(|it| it.read_by_call(0, MAGIC.len(), &mut bytes));
                match read.is_ok() && bytes.iter().all(|&byte| byte == 0) {
                    true => Ok(false),
                    false => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Marks that all segments before this one are durable. A reader gets the mark from the disk,
    /// or from a process that had synced those segments, so it is true either way.
    ///
    /// # Errors
    /// Fails if the segment cannot be written to any more.
    pub(crate) fn mark_durable_before(&self) -> Result<(), StoreError> {
        self.write(MARK_AT, &self.mark().to_le_bytes())
    }

    /// Returns true if it has the mark that all segments before it are durable.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn is_durable_before(&self) -> Result<bool, StoreError> {
        let mut bytes = Vec::with_capacity(8);
        self.read_by_call(MARK_AT, 8, &mut bytes)?;
        Ok(u64_at(&bytes, 0) == Some(self.mark()))
    }

    /// Marks that everything before an offset is durable. The mark itself need not be: it tells
    /// damage that another process finds from the end of a log that was being written, and without
    /// it less damage is told.
    ///
    /// # Errors
    /// Fails if the segment cannot be written to any more.
    pub(crate) fn mark_durable_up_to(&self, offset: u64) -> Result<(), StoreError> {
        self.write(REACHED_AT, &self.reached_mark(offset).to_le_bytes())
    }

    /// Returns the offset before which everything was durable, as far as a mark says; 0 if there is
    /// none.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn durable_up_to(&self) -> Result<u64, StoreError> {
        let mut bytes = Vec::with_capacity(8);
        self.read_by_call(REACHED_AT, 8, &mut bytes)?;
        let mark = u64_at(&bytes, 0).unwrap_or_default();
        let offset = mark >> 32;
        Ok(if mark == self.reached_mark(offset) { offset } else { 0 })
    }

    /// Returns the mark of an offset, a single word.
    fn reached_mark(&self, offset: u64) -> u64 {
        let bytes = [self.store, self.number.0, offset].map(u64::to_le_bytes);
        offset << 32 | u64::from(checksum::crc32c(bytes.as_flattened()))
    }

    /// Returns the number of its first write, or of the next write if it has only a seal. Returns
    /// `None` if there is no whole record.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn first_write(&self) -> Result<Option<Sequence>, StoreError> {
        let mut window = Window::default();
        let record = window.record(self, FIRST_RECORD)?;
        Ok(record.map(|record| record.header.sequence))
    }

    /// Returns the mark, which is a single word and therefore never torn.
    fn mark(&self) -> u64 {
        let address = [self.store, self.number.0].map(u64::to_le_bytes);
        1 << 32 | u64::from(checksum::crc32c(address.as_flattened()))
    }

    /// Returns the header if its checksum is valid.
    fn head(&self) -> Result<Option<Head>, StoreError> {
        self.head_at(0)
    }

    /// Returns the header in the beginning of a segment, or in its copy, that lies at an offset.
    fn head_at(&self, beginning: u64) -> Result<Option<Head>, StoreError> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        self.read_by_call(beginning + MAGIC.len() as u64, HEAD_BYTES, &mut bytes)?;
        let parts = (u32_at(&bytes, 0), u32_at(&bytes, 4), u64_at(&bytes, 8), u64_at(&bytes, 16));
        let (Some(crc), Some(version), Some(store), Some(number)) = parts else { return Ok(None) };
        if !checksum::matches(crc, &bytes[4..]) {
            return Ok(None);
        }
        Ok(Some(Head { version, store, number }))
    }

    /// Returns an error if the file is shorter than it was created. Writers always leave room for a
    /// seal, so a segment without that room was cut.
    pub(crate) fn cut_short(&self, end: End) -> Option<StoreError> {
        let is_short = !end.is_sealed && end.offset + SEAL_BYTES > self.len();
        is_short.then(|| self.damaged(self.len(), "the file is truncated: it ends without a seal"))
    }

    /// Refuses a header of another store, segment or format version, and reads the table if there
    /// is one.
    fn checked(self, head: Head) -> Result<Segment, StoreError> {
        let Head { version: found, store, number } = head;
        if found != VERSION && found != VERSION_OF_TABLES {
            let known = VERSION_OF_TABLES;
            return Err(StoreError::Version { path: self.path(), found, known });
        }
        if store != self.store {
            return Err(self.damaged(16, "it belongs to another store"));
        }
        if number != self.number.0 {
            return Err(self.damaged(24, format!("it is segment {number} by its header")));
        }
        if found == VERSION_OF_TABLES { self.laid_out() } else { Ok(self) }
    }

    /// Reads the table, or its copy if it is damaged.
    fn laid_out(mut self) -> Result<Segment, StoreError> {
        let whole = |read: &Result<Option<Table>, StoreError>| matches!(read, Ok(Some(_)));
        let mut read = self.read_table(TableCopy::First);
        if !whole(&read) && !mutation_site!("a damaged table is read from its copy") {
            let second = self.read_table(TableCopy::Second);
            read = if whole(&second) { second } else { read.and(second) };
        }
        self.layout = read?.map_or(Layout::Lost, Layout::Squeezed);
        Ok(self)
    }

    /// Reads the table or its copy. Returns `None` if that is damaged.
    fn read_table(&self, copy: TableCopy) -> Result<Option<Table>, StoreError> {
        match self.try_table(copy) {
            Err(error) if error.is_damage() => Ok(None),
            read => read,
        }
    }

    fn try_table(&self, copy: TableCopy) -> Result<Option<Table>, StoreError> {
        let beginning = match copy {
            TableCopy::First => 0,
            TableCopy::Second => self.copy_at(),
        };
        let (mut words, mut bytes) = (Vec::with_capacity(LEAD_BYTES), Vec::new());
        self.read_by_call(beginning + LEAD_AT, LEAD_BYTES, &mut words)?;
        let place = Lead::decode(&words).and_then(|lead| {
            let len = lead.bytes(self.len())?;
            let offset = match copy {
                TableCopy::First => lead.offset,
                TableCopy::Second => beginning.checked_sub(len as u64)?,
            };
            Some((offset, len))
        });
        let Some((offset, len)) = place else { return Ok(None) };
        self.read_by_call(offset, len, &mut bytes)?;
        Ok(Table::decode(self.store, self.number, &words, &bytes))
    }

    /// Returns the offset of the copy of the beginning of a segment that is squeezed.
    fn copy_at(&self) -> u64 {
        self.len().saturating_sub(BEGINNING_BYTES)
    }

    /// Returns true if the segment ends with a copy of its beginning, as one does that is squeezed.
    fn has_beginning_at_end(&self) -> bool {
        let mut magic = Vec::with_capacity(MAGIC.len());
        let read = self.read_by_call(self.copy_at(), MAGIC.len(), &mut magic);
        let is_own = |head: Head| {
            let Head { version, store, number } = head;
            version == VERSION_OF_TABLES && store == self.store && number == self.number.0
        };
        let head = read.and_then(|()| self.head_at(self.copy_at()));
        head.is_ok_and(|head| magic == MAGIC && head.is_some_and(is_own))
    }

    /// Returns the table of where its records lie, if that is not where they were written.
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.layout {
            Layout::Squeezed(table) => Some(table),
            Layout::AsWritten | Layout::Lost => None,
        }
    }

    /// Returns the offset at which a record lies that was written at an offset.
    ///
    /// # Errors
    /// Fails if the record was left out, since a newer version of its key had superseded it, or if
    /// the table is damaged, and its copy as well.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> Result<u64, StoreError> {
        self.find(offset).ok_or_else(|| self.left_out(offset))
    }

    /// Returns the offset at which a record lies that was written at an offset, if it is there.
    #[inline]
    pub(crate) fn find(&self, offset: u64) -> Option<u64> {
        match &self.layout {
            Layout::AsWritten => Some(offset),
            Layout::Squeezed(table) => table.find(offset),
            Layout::Lost => None,
        }
    }

    /// Returns true if a record was left out, since a newer version of its key had superseded it.
    pub(crate) fn has_left_out(&self, place: RecordPlace) -> bool {
        self.table().is_some_and(|table| table.find(place.offset).is_none())
    }

    #[cold]
    fn left_out(&self, offset: u64) -> StoreError {
        let what = match self.is_lost() {
            true => "nothing says where the record lies: the table of records is damaged",
            false => "the record was superseded, and is not there any more",
        };
        self.damaged(offset, what)
    }

    /// Returns the number of the segment.
    pub(crate) fn number(&self) -> SegmentNumber {
        self.number
    }

    /// Notes that no more is written to it. Such segments are many, and are read at random. Through
    /// a mapping, each read would fetch far more than is wanted, and fill the memory with it.
    pub(crate) fn mark_flushed(&self) {
        if let Bytes::Mapped(file) = &self.bytes {
            file.expect_reads_only();
            let was_flushed = self.is_flushed.swap(true, Relaxed);
            assert!(!was_flushed, "segment {} is flushed for the second time", self.number.0);
        }
    }

    /// Prepares for a flush, which reads all of the segment.
    pub(crate) fn expect_reads(&self) {
        if let Bytes::Mapped(file) = &self.bytes {
            file.expect_reads();
        }
    }

    /// Returns the length in bytes, header included.
    pub(crate) fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped(file) => file.len(),
            Bytes::Blocks(file) => file.len(),
        }
    }

    /// Returns true if the segment is mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }

    /// Returns the bytes that were read once no more was written to the segment.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        match &self.bytes {
            Bytes::Mapped(file) => file.path().to_owned(),
            Bytes::Blocks(file) => file.path().to_owned(),
        }
    }

    /// Returns the identity of its store.
    pub(crate) fn store(&self) -> u64 {
        self.store
    }

    /// Returns the address of a record at an offset.
    pub(crate) fn address(&self, offset: u64) -> Address {
        self.beginning.at(offset)
    }

    /// Writes bytes. Readers must not read the range before this returns.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match &self.bytes {
            Bytes::Mapped(file) => {
                debug_assert!(
                    !self.is_flushed.load(Relaxed),
                    "segment {} is flushed, and is written to at {offset}",
                    self.number.0,
                );
                file.write(offset, bytes);
                Ok(())
            }
            Bytes::Blocks(_) => Err(self.damaged(offset, "it is full, but was written to")),
        }
    }

    /// Seals the segment at an offset. `next` is the number of the first write in the next segment.
    pub(crate) fn seal(&self, offset: u64, next: Sequence) -> Result<(), StoreError> {
        assert!(
            FIRST_RECORD <= offset && offset + SEAL_BYTES <= self.len(),
            "segment {} of {} bytes is sealed at {offset}",
            self.number.0,
            self.len(),
        );
        let mut seal = Vec::with_capacity(SEAL_BYTES as usize);
        Draft::seal().encode(self.address(offset), next, false, &mut seal);
        self.write(offset, &seal)
    }

    /// Prepares a range that is written soon. The part of it behind the end is ignored.
    pub(crate) fn expect_writes(&self, offset: u64, len: u64) {
        if let Bytes::Mapped(file) = &self.bytes
            && offset < file.len()
        {
            file.expect_writes(offset, len.min(file.len() - offset));
        }
    }

    /// Begins to make a range durable that any thread may have written, so that the next persist of
    /// this thread completes it. It is only needed on persistent memory, where a persist covers
    /// what the thread itself wrote.
    #[track_caller]
    pub(crate) fn flush(&self, offset: u64, len: u64) {
        if let Bytes::Mapped(file) = &self.bytes {
            file.flush(offset, len);
        }
    }

    /// Makes a range durable; on persistent memory, only what this thread has written or flushed.
    ///
    /// # Errors
    /// Fails if the disk fails. Nothing that was written to the segment since the last success is
    /// safe then.
    #[track_caller]
    pub(crate) fn persist(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let Bytes::Mapped(file) = &self.bytes else { return Ok(()) };
        let path = || file.path().to_owned();
        let done = file.persist(offset, len);
        done.map_err(|cause| StoreError::Io { doing: "sync", path: path(), offset, cause })
    }

    /// Returns the way in which writes to it become durable.
    pub(crate) fn kind(&self) -> MappedKind {
        match &self.bytes {
            Bytes::Mapped(file) => file.kind(),
            Bytes::Blocks(_) => MappedKind::File,
        }
    }

    /// Returns true if a write is durable once the writing thread has persisted it.
    pub(crate) fn is_persistent_memory(&self) -> bool {
        self.kind().is_pmem()
    }

    /// Lets the processor fetch the beginning of a record, if the segment is mapped.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        if let Bytes::Mapped(file) = &self.bytes {
            // Three lines are enough for most records: header, key and a small value.
            (0..3).for_each(|line| file.prefetch(offset + 64 * line));
        }
    }

    /// Appends `len` bytes at `offset` to `out`.
    ///
    /// # Errors
    /// Fails if the disk fails, or if the segment is shorter.
    pub(crate) fn read(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.count_read(len);
        self.read_begun(offset, len, out)
    }

    /// Counts the bytes of a read, unless the segment is still written to.
    fn count_read(&self, len: usize) {
        if !matches!(self.bytes, Bytes::Mapped(_)) || self.is_flushed.load(Relaxed) {
            self.read.fetch_add(len as u64, Relaxed);
        }
    }

    /// Appends `len` bytes at `offset` to `out`, after [`Segment::try_read`] returned false.
    ///
    /// # Errors
    /// Fails as [`read`](Segment::read) does.
    pub(crate) fn read_begun(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if !self.has(offset, len) {
            return Err(self.damaged(offset, format!("{len} bytes lie beyond its end")));
        }
        match &self.bytes {
            Bytes::Mapped(file) if !self.is_flushed.load(Relaxed) => {
                file.append_to(offset, len, out);
                Ok(())
            }
            _ => self.read_by_call(offset, len, out),
        }
    }

    /// Appends `len` bytes at `offset` to `out` by a system call, except on persistent memory. Data
    /// that another process wrote may lie where the disk fails, and reading them through a mapping
    /// would kill this process.
    ///
    /// # Errors
    /// Fails if the disk fails, or if the segment is shorter.
    pub(crate) fn read_by_call(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if !self.has(offset, len) {
            return Err(self.damaged(offset, format!("{len} bytes lie beyond its end")));
        }
        let before = out.len();
        let read = match &self.bytes {
            Bytes::Mapped(file) => file.read_out(offset, len, out).map(|()| len),
            Bytes::Blocks(file) => file.read_out(offset, len, out),
        };
        let read = read.map_err(|cause| self.failed("read", offset, cause))?;
        if read < len {
            out.truncate(before);
            return Err(self.damaged(offset, format!("it ends after {read} bytes")));
        }
        Ok(())
    }

    fn has(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len())
    }

    /// Returns true if reads may have to wait for a disk.
    pub(crate) fn may_wait(&self) -> bool {
        match &self.bytes {
            Bytes::Mapped(file) => self.is_flushed.load(Relaxed) && !file.kind().is_pmem(),
            Bytes::Blocks(_) => true,
        }
    }

    /// Appends `len` bytes at `offset` to `out` if that needs no wait, and returns true then.
    /// Otherwise the disk begins to read them, and [`read_begun`](Segment::read_begun) waits less.
    pub(crate) fn try_read(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.count_read(len);
        self.begin_read(offset, len, out)
    }

    /// Tries to read a record as [`try_read`](Segment::try_read) does.
    pub(crate) fn try_record(&self, place: RecordPlace, out: &mut Vec<u8>) -> bool {
        let offset = self.find(place.offset);
        offset.is_some_and(|offset| self.try_read(offset, place.bytes as usize, out))
    }

    /// Tries to read as [`try_read`](Segment::try_read) does, but does not count the bytes. It is
    /// for callers that read them again in any case, which counts them.
    pub(crate) fn begin_read(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        if !self.has(offset, len) {
            return false;
        }
        match &self.bytes {
            Bytes::Mapped(file) if self.is_flushed.load(Relaxed) => {
                file.try_read_out(offset, len, out)
            }
            Bytes::Mapped(file) => {
                file.append_to(offset, len, out);
                true
            }
            Bytes::Blocks(file) => file.try_read_out(offset, len, out),
        }
    }

    /// Returns the record at a place. The record borrows from `scratch`.
    ///
    /// # Errors
    /// Fails if the disk fails, or if there is no such record.
    pub(crate) fn record<'a>(
        &self,
        place: RecordPlace,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Record<'a>, StoreError> {
        scratch.clear();
        self.append_record(place, scratch)
    }

    /// Appends the record at a place to `out`, and returns it.
    ///
    /// # Errors
    /// Fails if the disk fails, or if there is no such record.
    pub(crate) fn append_record<'a>(
        &self,
        place: RecordPlace,
        out: &'a mut Vec<u8>,
    ) -> Result<Record<'a>, StoreError> {
        let before = out.len();
        self.read(self.locate(place.offset)?, place.bytes as usize, out)?;
        self.record_in(place, out.get(before..).unwrap_or_default())
    }

    /// Verifies the record at a place, whose bytes were read.
    fn record_in<'a>(&self, place: RecordPlace, bytes: &'a [u8]) -> Result<Record<'a>, StoreError> {
        let record = Record::decode(self.address(place.offset), bytes);
        record.ok_or_else(|| self.damaged(place.offset, "there is no record, or it is damaged"))
    }

    /// Returns the value of a key in the record at a place, whose bytes were read.
    ///
    /// # Errors
    /// Fails if the record is damaged or belongs to another key.
    pub(crate) fn value_in<'a>(
        &self,
        place: RecordPlace,
        (kvs, key): (KvsId, &[u8]),
        bytes: &'a [u8],
    ) -> Result<&'a [u8], StoreError> {
        let record = self.record_in(place, bytes)?;
        if record.header.kvs == kvs && record.key == key {
            return Ok(record.value);
        }
        Err(self.damaged(place.offset, "the record is not that of the key that points to it"))
    }

    /// Appends the record of a key at a place to `out`, which then ends with the value. Returns the
    /// length of the value. After an error, `out` is unchanged.
    ///
    /// # Errors
    /// Fails if the disk fails, or if the record is damaged or belongs to another key.
    pub(crate) fn append_value_of(
        &self,
        place: RecordPlace,
        name: (KvsId, &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<usize, StoreError> {
        let before = out.len();
        let read = match self.find(place.offset) {
            Some(offset) => self.read(offset, place.bytes as usize, out),
            None => Err(self.left_out(place.offset)),
        };
        self.value_bytes_of(place, name, (read, before), out)
    }

    /// Appends the record of a key to `out` unless [`Segment::try_read`] has appended it already.
    /// Returns the length of the value, which `out` ends with.
    ///
    /// # Errors
    /// Fails as [`append_value_of`](Segment::append_value_of) does.
    pub(crate) fn append_value_begun(
        &self,
        place: RecordPlace,
        name: (KvsId, &[u8]),
        is_read: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, StoreError> {
        let bytes = place.bytes as usize;
        let (before, read) = match is_read {
            true => (out.len() - bytes, Ok(())),
            false => {
                let before = out.len();
                let read = match self.find(place.offset) {
                    Some(offset) => self.read_begun(offset, bytes, out),
                    None => Err(self.left_out(place.offset)),
                };
                (before, read)
            }
        };
        self.value_bytes_of(place, name, (read, before), out)
    }

    /// Returns the length of the value of a record that was read to the end of `out`.
    fn value_bytes_of(
        &self,
        place: RecordPlace,
        name: (KvsId, &[u8]),
        (read, before): (Result<(), StoreError>, usize),
        out: &mut Vec<u8>,
    ) -> Result<usize, StoreError> {
        let value_bytes = read.and_then(|()| {
            let bytes = out.get(before..).unwrap_or_default();
            self.value_in(place, name, bytes).map(<[u8]>::len)
        });
        if value_bytes.is_err() {
            out.truncate(before);
        }
        value_bytes
    }

    /// Returns the header of the record at an offset.
    ///
    /// # Errors
    /// Fails if there is none.
    pub(crate) fn header(&self, offset: u64) -> Result<Header, StoreError> {
        let mut bytes = [0; HEADER_BYTES];
        if offset + HEADER_BYTES as u64 > self.len() {
            return Err(self.damaged(offset, "a record would begin beyond its end"));
        }
        match &self.bytes {
            Bytes::Mapped(file) => file.read(offset, &mut bytes),
            Bytes::Blocks(_) => {
                let mut found = Vec::new();
                self.read(offset, HEADER_BYTES, &mut found)?;
                bytes.copy_from_slice(&found);
            }
        }
        Header::decode(&bytes).ok_or_else(|| self.damaged(offset, "there is no record"))
    }

    /// Returns true if the record at an offset, which has this header, belongs to a key.
    ///
    /// # Errors
    /// Fails if the disk fails, or if the segment is shorter.
    #[inline]
    pub(crate) fn has_key(
        &self,
        offset: u64,
        header: &Header,
        key: &[u8],
    ) -> Result<bool, StoreError> {
        if header.key_bytes as usize != key.len() {
            return Ok(false);
        }
        let begin = offset + HEADER_BYTES as u64;
        match &self.bytes {
            Bytes::Mapped(file) if begin + key.len() as u64 <= file.len() => {
                Ok(file.equals(begin, key))
            }
            _ => {
                let mut found = Vec::with_capacity(key.len());
                self.read(begin, key.len(), &mut found)?;
                Ok(found == key)
            }
        }
    }

    /// Returns an error for damage at an offset.
    pub(crate) fn damaged(&self, offset: u64, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path(), offset, what: what.into() }
    }

    fn failed(&self, doing: &'static str, offset: u64, cause: std::io::Error) -> StoreError {
        StoreError::Io { doing, path: self.path(), offset, cause }
    }
}

/// Returns the header behind the magic number.
fn head_of(version: u32, store: u64, number: SegmentNumber) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[4..8].copy_from_slice(&version.to_le_bytes());
    head[8..16].copy_from_slice(&store.to_le_bytes());
    head[16..24].copy_from_slice(&number.0.to_le_bytes());
    let crc = checksum::crc32c(&head[4..]);
    head[..4].copy_from_slice(&crc.to_le_bytes());
    head
}
