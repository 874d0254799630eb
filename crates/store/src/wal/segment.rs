//! Segments: files of records, one behind the other.
//!
//! ```text
//!  0  8 B  "ENTRSEGM"
//!  8  u32  CRC-32C over the 20 bytes behind this word
//! 12  u32  format version, 1
//! 16  u64  the store's identity
//! 24  u64  the segment's number
//! 32  u64  that all segments before it are durable: the CRC-32C, and in front of it 1
//! 4096     the first record
//! ```
//!
//! A segment that is written to is mapped; one that is full is read in blocks, unless it is mapped
//! still. Its records end with a seal, or with the first bytes that are no record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use entresol_base::checksum;
use entresol_media::{
    BlockFile, BlockOptions, Directory, FileError, MapOptions, MappedFile, MappedKind, PmemMode,
};

use super::groups::{End, Window};
use super::record::{Address, Draft, HEADER_BYTES, Header, Record};
use crate::StoreError;
use crate::run::format::bytes::{u32_at, u64_at};
use crate::types::{KvsId, RecordPlace, SegmentNumber, Sequence};

/// The first bytes of a segment.
pub(crate) const MAGIC: [u8; 8] = *b"ENTRSEGM";
/// Where records begin.
pub(crate) const FIRST_RECORD: u64 = 4096;
/// What a seal takes, which every segment has room for.
pub(crate) const SEAL_BYTES: u64 = HEADER_BYTES as u64;
/// What a segment's name ends with.
pub(crate) const SUFFIX: &str = ".segment";

const VERSION: u32 = 1;
/// The bytes of the header behind the magic number.
const HEAD_BYTES: usize = 24;
/// Where it says that all before it is durable.
const MARK_AT: u64 = (MAGIC.len() + HEAD_BYTES) as u64;

/// A segment of records.
#[derive(Debug)]
pub(crate) struct Segment {
    number: SegmentNumber,
    store: u64,
    bytes: Bytes,
    /// Nothing is written to it any more: it is read by requests though it is mapped.
    is_flushed: AtomicBool,
    /// Bytes that were read by requests.
    read: AtomicU64,
}

/// What a header says.
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

/// The name of a segment's file.
pub(crate) fn file_name(number: SegmentNumber) -> String {
    format!("{:012}{SUFFIX}", number.0)
}

/// The segment whose file has a name.
pub(crate) fn number_of(name: &str) -> Option<SegmentNumber> {
    let number = name.strip_suffix(SUFFIX)?.parse().ok().map(SegmentNumber)?;
    // What is called almost so is somebody else's.
    (file_name(number) == name).then_some(number)
}

impl Segment {
    fn of(number: SegmentNumber, store: u64, bytes: Bytes) -> Segment {
        Segment {
            number,
            store,
            bytes,
            is_flushed: AtomicBool::new(false),
            read: AtomicU64::new(0),
        }
    }

    /// Makes a segment of so many bytes. Its name is durable after the directory's sync only.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn create(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
        bytes: u64,
        pmem: Option<PmemMode>,
    ) -> Result<Segment, StoreError> {
        let (create, magic) = (Some(bytes), Some(MAGIC));
        let options = MapOptions { create, magic, pmem, read_only: false };
        let file = directory.map_file(&file_name(number), &options)?;
        let mut head = [0; HEAD_BYTES];
        head[4..8].copy_from_slice(&VERSION.to_le_bytes());
        head[8..16].copy_from_slice(&store.to_le_bytes());
        head[16..24].copy_from_slice(&number.0.to_le_bytes());
        let crc = checksum::crc32c(&head[4..]);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        file.write(MAGIC.len() as u64, &head);
        let segment = Segment::of(number, store, Bytes::Mapped(file));
        segment.persist(0, FIRST_RECORD)?;
        Ok(segment)
    }

    /// Opens a segment to be read and, unless it is only read, sealed; none if it has no header
    /// that is right: a crash came while it was made, and nothing in it was ever durable.
    ///
    /// # Errors
    /// If it cannot be read, or is another's.
    pub(crate) fn open_mapped(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
        pmem: Option<PmemMode>,
        read_only: bool,
    ) -> Result<Option<Segment>, StoreError> {
        let options = MapOptions { create: None, magic: Some(MAGIC), pmem, read_only };
        let file = directory.map_file(&file_name(number), &options)?;
        let segment = Segment::of(number, store, Bytes::Mapped(file));
        match segment.head()? {
            Some(head) => segment.checked(head).map(Some),
            None => Ok(None),
        }
    }

    /// Opens a segment whatever its header says: its records prove themselves.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be read.
    pub(crate) fn open_unchecked(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
    ) -> Result<Segment, StoreError> {
        let options = MapOptions { read_only: true, ..MapOptions::default() };
        let file = directory.map_file(&file_name(number), &options)?;
        Ok(Segment::of(number, store, Bytes::Mapped(file)))
    }

    /// Opens a segment that is full. A header that is damaged does not matter: records prove
    /// themselves; see [`Segment::header_error`].
    ///
    /// # Errors
    /// If it cannot be read, or is another's.
    pub(crate) fn open_blocks(
        directory: &dyn Directory,
        store: u64,
        number: SegmentNumber,
    ) -> Result<Segment, StoreError> {
        // The system's cache has what was written last, and is not the store's memory.
        let options = BlockOptions { cached: true, read_only: true, ..BlockOptions::default() };
        let file = directory.open_block_file(&file_name(number), &options)?;
        let segment = Segment::of(number, store, Bytes::Blocks(file));
        match segment.head()? {
            Some(head) => segment.checked(head),
            None => Ok(segment),
        }
    }

    /// What is wrong with the header, if anything is.
    pub(crate) fn header_error(&self) -> Option<StoreError> {
        let mut magic = Vec::with_capacity(MAGIC.len());
        match self.read_by_call(0, MAGIC.len(), &mut magic).and_then(|()| self.head()) {
            Ok(_) if magic != MAGIC => Some(self.damaged(0, "it does not begin as a segment does")),
            Ok(Some(_)) => None,
            Ok(None) => Some(self.damaged(8, "the header's checksum is wrong")),
            Err(error) => Some(error),
        }
    }

    /// The identity of the store that a segment says it belongs to.
    pub(crate) fn store_of(directory: &dyn Directory, number: SegmentNumber) -> Option<u64> {
        let segment = Segment::open_unchecked(directory, 0, number).ok()?;
        let head = segment.head().ok()??;
        (head.number == number.0).then_some(head.store)
    }

    /// Whether a file behind the end of the log is a segment of the store, and not what a crash has
    /// left of one.
    ///
    /// # Errors
    /// If it cannot be read, or is another's.
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

    /// Says in it that all segments before it are durable. Whoever reads that has it from the disk,
    /// or from a process that had synced them: it is true however it got there.
    ///
    /// # Errors
    /// If nothing can be written to it any more.
    pub(crate) fn mark_durable_before(&self) -> Result<(), StoreError> {
        self.write(MARK_AT, &self.mark().to_le_bytes())
    }

    /// Whether it says that all segments before it are durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn is_durable_before(&self) -> Result<bool, StoreError> {
        let mut bytes = Vec::with_capacity(8);
        self.read_by_call(MARK_AT, 8, &mut bytes)?;
        Ok(u64_at(&bytes, 0) == Some(self.mark()))
    }

    /// The number of the write that it begins with, or of the next one if it has none; none if
    /// there is no record that is whole.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn first_write(&self) -> Result<Option<Sequence>, StoreError> {
        let mut window = Window::default();
        let record = window.record(self, FIRST_RECORD)?;
        Ok(record.map(|record| record.header.sequence))
    }

    /// One word, which is never torn.
    fn mark(&self) -> u64 {
        let address = [self.store, self.number.0].map(u64::to_le_bytes);
        1 << 32 | u64::from(checksum::crc32c(address.as_flattened()))
    }

    /// The header, if its checksum is right.
    fn head(&self) -> Result<Option<Head>, StoreError> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        self.read_by_call(MAGIC.len() as u64, HEAD_BYTES, &mut bytes)?;
        let parts = (u32_at(&bytes, 0), u32_at(&bytes, 4), u64_at(&bytes, 8), u64_at(&bytes, 16));
        let (Some(crc), Some(version), Some(store), Some(number)) = parts else { return Ok(None) };
        if !checksum::matches(crc, &bytes[4..]) {
            return Ok(None);
        }
        Ok(Some(Head { version, store, number }))
    }

    /// That the file is shorter than it was made, if it is: whoever writes leaves room for a seal.
    pub(crate) fn cut_short(&self, end: End) -> Option<StoreError> {
        let is_short = !end.is_sealed && end.offset + SEAL_BYTES > self.len();
        is_short.then(|| self.damaged(self.len(), "the file is truncated: it ends without a seal"))
    }

    /// Refuses a header that is another's.
    fn checked(self, head: Head) -> Result<Segment, StoreError> {
        let Head { version: found, store, number } = head;
        if found != VERSION {
            return Err(StoreError::Version { path: self.path(), found, known: VERSION });
        }
        if store != self.store {
            return Err(self.damaged(16, "it belongs to another store"));
        }
        if number != self.number.0 {
            return Err(self.damaged(24, format!("it is segment {number} by its header")));
        }
        Ok(self)
    }

    /// Its number.
    pub(crate) fn number(&self) -> SegmentNumber {
        self.number
    }

    /// Says that nothing is written to it any more. Many such segments are read here and there:
    /// mapped, each would be read far ahead of what is wanted, and fill the memory with that.
    pub(crate) fn mark_flushed(&self) {
        if let Bytes::Mapped(file) = &self.bytes {
            file.expect_reads_only();
            let was_frozen = self.is_flushed.swap(true, Relaxed);
            assert!(!was_frozen, "segment {} is flushed for the second time", self.number.0);
        }
    }

    /// Says that it is going to be flushed, which reads all of it.
    pub(crate) fn expect_reads(&self) {
        if let Bytes::Mapped(file) = &self.bytes {
            file.expect_reads();
        }
    }

    /// Its bytes, header included.
    pub(crate) fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped(file) => file.len(),
            Bytes::Blocks(file) => file.len(),
        }
    }

    /// Whether its bytes are mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }

    /// Bytes that were read of it by requests.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        match &self.bytes {
            Bytes::Mapped(file) => file.path().to_owned(),
            Bytes::Blocks(file) => file.path().to_owned(),
        }
    }

    /// The address of what lies at an offset.
    pub(crate) fn address(&self, offset: u64) -> Address {
        Address { store: self.store, segment: self.number, offset }
    }

    /// Writes bytes; readers of the place must not come before it is done.
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

    /// Ends its records at an offset; `next` is the write that goes to the next segment.
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

    /// Says that a range is going to be written soon; what is behind the end is ignored.
    pub(crate) fn expect_writes(&self, offset: u64, len: u64) {
        if let Bytes::Mapped(file) = &self.bytes
            && offset < file.len()
        {
            file.expect_writes(offset, len.min(file.len() - offset));
        }
    }

    /// Begins to make a range durable, whoever wrote it, so that this thread's next persist does:
    /// needed on persistent memory only, where a persist is for what the thread itself wrote.
    #[track_caller]
    pub(crate) fn flush(&self, offset: u64, len: u64) {
        if let Bytes::Mapped(file) = &self.bytes {
            file.flush(offset, len);
        }
    }

    /// Makes a range durable; on persistent memory what this thread has written or flushed.
    ///
    /// # Errors
    /// If the disk fails: nothing written to the segment since the last success is sure then.
    #[track_caller]
    pub(crate) fn persist(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let Bytes::Mapped(file) = &self.bytes else { return Ok(()) };
        let path = || file.path().to_owned();
        let done = file.persist(offset, len);
        done.map_err(|cause| StoreError::Io { doing: "sync", path: path(), offset, cause })
    }

    /// How what is written to it becomes durable.
    pub(crate) fn kind(&self) -> MappedKind {
        match &self.bytes {
            Bytes::Mapped(file) => file.kind(),
            Bytes::Blocks(_) => MappedKind::File,
        }
    }

    /// Whether a write is durable as soon as the thread that wrote it has persisted it.
    pub(crate) fn is_persistent_memory(&self) -> bool {
        self.kind().is_pmem()
    }

    /// Asks the processor to fetch the beginning of a record, if it is mapped.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        if let Bytes::Mapped(file) = &self.bytes {
            // Of most that are looked at this is all: header, key and a small value.
            (0..3).for_each(|line| file.prefetch(offset + 64 * line));
        }
    }

    /// Appends `len` bytes at `offset` to `out`.
    ///
    /// # Errors
    /// If the disk fails, or the segment is shorter.
    pub(crate) fn read(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.count_read(len);
        self.read_begun(offset, len, out)
    }

    /// Counts what is read of it, but for what is looked up where it was just written.
    fn count_read(&self, len: usize) {
        if !matches!(self.bytes, Bytes::Mapped(_)) || self.is_flushed.load(Relaxed) {
            self.read.fetch_add(len as u64, Relaxed);
        }
    }

    /// The same after [`Segment::try_read`] has said that one has to wait.
    ///
    /// # Errors
    /// As [`read`](Segment::read).
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

    /// Appends `len` bytes at `offset` to `out` by a call of the system, but on persistent memory:
    /// what another process wrote may lie where the disk fails, and who came upon that through a
    /// mapping would be killed.
    ///
    /// # Errors
    /// If the disk fails, or the segment is shorter.
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

    /// Whether who reads it may have to wait for a disk.
    pub(crate) fn may_wait(&self) -> bool {
        match &self.bytes {
            Bytes::Mapped(file) => self.is_flushed.load(Relaxed) && !file.kind().is_pmem(),
            Bytes::Blocks(_) => true,
        }
    }

    /// Appends `len` bytes at `offset` to `out` if nobody has to wait for that, and says whether it
    /// is so; otherwise the disk begins to read them, and
    /// [`read_begun`](Segment::read_begun) waits less.
    pub(crate) fn try_read(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.count_read(len);
        self.begin_read(offset, len, out)
    }

    /// The same for who reads it again in any case, which is what counts as read.
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

    /// The record at a place; what is appended to `scratch` is what it borrows from.
    ///
    /// # Errors
    /// If the disk fails, or there is no such record.
    pub(crate) fn record<'a>(
        &self,
        place: RecordPlace,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Record<'a>, StoreError> {
        scratch.clear();
        self.append_record(place, scratch)
    }

    /// Appends the record at a place to `out`, and answers it.
    ///
    /// # Errors
    /// If the disk fails, or there is no such record.
    pub(crate) fn append_record<'a>(
        &self,
        place: RecordPlace,
        out: &'a mut Vec<u8>,
    ) -> Result<Record<'a>, StoreError> {
        let before = out.len();
        self.read(place.offset, place.bytes as usize, out)?;
        self.record_in(place, out.get(before..).unwrap_or_default())
    }

    /// The record at a place, whose bytes were read.
    fn record_in<'a>(&self, place: RecordPlace, bytes: &'a [u8]) -> Result<Record<'a>, StoreError> {
        let record = Record::decode(self.address(place.offset), bytes);
        record.ok_or_else(|| self.damaged(place.offset, "there is no record, or it is damaged"))
    }

    /// The value of a key in the record at a place, whose bytes were read.
    ///
    /// # Errors
    /// If the record is damaged or another key's.
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

    /// Appends the record of a key at a place to `out`, which ends with the value then, of so many
    /// bytes as are answered; nothing after an error.
    ///
    /// # Errors
    /// If the disk fails, or the record is damaged or another key's.
    pub(crate) fn append_value_of(
        &self,
        place: RecordPlace,
        name: (KvsId, &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<usize, StoreError> {
        let before = out.len();
        let read = self.read(place.offset, place.bytes as usize, out);
        self.value_bytes_of(place, name, (read, before), out)
    }

    /// The same after [`Segment::try_read`] was asked for the record, and has appended it or not.
    ///
    /// # Errors
    /// As [`append_value_of`](Segment::append_value_of).
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
            false => (out.len(), self.read_begun(place.offset, bytes, out)),
        };
        self.value_bytes_of(place, name, (read, before), out)
    }

    /// The bytes of the value that a record ends with which was read to the end of `out`.
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

    /// The header of the record at an offset.
    ///
    /// # Errors
    /// If there is none.
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

    /// Whether the record at an offset, whose header this is, has a key.
    ///
    /// # Errors
    /// If the disk fails, or the segment is shorter.
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

    /// Damage at an offset.
    pub(crate) fn damaged(&self, offset: u64, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path(), offset, what: what.into() }
    }

    fn failed(&self, doing: &'static str, offset: u64, cause: std::io::Error) -> StoreError {
        StoreError::Io { doing, path: self.path(), offset, cause }
    }
}
