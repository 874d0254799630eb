//! Squeezing: a segment is written anew without the records that newer versions supersede, and no
//! key that leads to the others is.
//!
//! The new file takes the name of the old one, on the same volume. Its table says where each record
//! lies that keys go on to look for at its old offset. What readers need is in both files, so a
//! crash may leave either; readers of earlier views go on with the old one, which has no name any
//! more. Keys in older runs may lead to records that are gone, since a newer run has these keys;
//! such runs are not read for them, and a compaction of keys leaves them out.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;
use entresol_index::Flow;
use entresol_media::{BlockFile, BlockOptions, IoBuffer};

use crate::StoreError;
use crate::names;
use crate::segment::groups::Window;
use crate::segment::record::{HEADER_BYTES, Header, Kind, Record};
use crate::segment::table::{Table, TablePlaces};
use crate::segment::{FIRST_RECORD, Segment};
use crate::types::{KvsId, RecordPlace, SegmentNumber, Sequence, Value};
use crate::upkeep::charging::{Bill, Traffic};
use crate::upkeep::context::CompactionContext;
use crate::version::files::{Files, live_segments};
use crate::version::view::View;
use crate::volumes::{Leaving, MoveCause, OpenVolume, Planned};

/// Bytes written at once.
const PIECE_BYTES: usize = 1 << 20;
/// One part of a segment in so many must come free by squeezing it.
pub(crate) const GAIN_PARTS: u64 = 8;

/// Returns the volume of a segment that may be squeezed. On persistent memory segments are mapped,
/// those of a volume that goes move anyway, and runs that cannot be read may lead to any record.
pub(crate) fn place_to_squeeze(files: &Files, number: SegmentNumber) -> Option<Arc<OpenVolume>> {
    let place = files.volumes.find(&names::of_segment(number))?;
    let may_be = place.pmem.is_none() && !place.is_retiring() && files.unreadable.is_empty();
    may_be.then_some(place)
}

/// Squeezes segments, one behind the other. The caller holds the lock of compactions.
///
/// # Errors
/// Fails if a disk fails or has no room. The segment then stays as it was.
pub(crate) fn squeeze_all(
    context: &CompactionContext<'_>,
    numbers: &[SegmentNumber],
) -> Result<bool, StoreError> {
    for number in numbers {
        context.files.failure.check()?;
        if context.background.scheduler.is_over() {
            return Ok(false);
        }
        match squeeze(context, *number) {
            Ok(true) => {}
            Ok(false) => context.background.space.spare(*number),
            // What cannot be read stays for those who repair the store.
            Err(error) if error.is_damage() => context.background.space.spare_for_good(*number),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Writes a segment anew without what is superseded in it. Returns false if that is not worthwhile,
/// or not certain.
fn squeeze(context: &CompactionContext<'_>, number: SegmentNumber) -> Result<bool, StoreError> {
    let (files, name) = (context.files, names::of_segment(number));
    let view = files.current.get();
    let (Some(segment), Some(place)) =
        (view.segments.get(&number).cloned(), place_to_squeeze(files, number))
    else {
        return Ok(false);
    };
    let Some(live) = live_records(files, &view, &segment)? else {
        context.background.space.spare_for_good(number);
        return Ok(false);
    };
    let live_bytes = live.iter().map(|record| u64::from(record.place.bytes)).sum();
    context.background.space.has_live(&view, number, live_bytes);
    drop(view);
    let Some((table, end)) = table_of(&live) else { return Ok(false) };
    let bytes = table.places(end).file_bytes;
    if bytes + segment.len() / GAIN_PARTS > segment.len() {
        return Ok(false);
    }
    // What readers hold comes free later.
    let is_held = files.current.held().segments.contains(&number);
    if files.volumes.room_to_collect(&place, 0, is_held) < bytes {
        return Ok(false);
    }
    let planned = Planned::new(&files.volumes.gauge, bytes);
    place.growing().fetch_add(bytes, Relaxed);
    let unfinished = names::on_its_way(&name);
    let written = write(files, (&place, &unfinished), &segment, (&table, end), &live);
    let done = written.and_then(|()| install(files, &segment, &place, bytes));
    // A file that cannot be removed now is removed at the next opening.
    if matches!(done, Ok(Some(_))) || place.directory.remove(&unfinished).is_ok() {
        place.growing().fetch_sub(bytes, Relaxed);
    }
    let read = segment.len();
    // The old file has no name any more, and is gone with the last view that has it.
    drop(segment);
    if let Some(old) = done? {
        old.removed(&files.volumes);
    }
    drop(planned);
    context.background.space.is_squeezed(number);
    let mut traffic = Traffic::default();
    traffic.read(place.class, read);
    traffic.wrote(place.class, bytes);
    Bill::new(files, context.background, || true).settle(&traffic);
    context.background.bytes_read.fetch_add(read, Relaxed);
    place.life.written.moved[MoveCause::Garbage as usize].fetch_add(bytes, Relaxed);
    Ok(true)
}

/// Record that stays.
struct LiveRecord {
    /// Place at which it was written.
    place: RecordPlace,
    /// Offset at which it lies.
    lies: u64,
}

/// Records of a segment, with their keys.
#[derive(Default)]
struct Records {
    all: Vec<(KvsId, Range<usize>, LiveRecord)>,
    keys: Vec<u8>,
}

impl Records {
    fn add(&mut self, place: RecordPlace, lies: u64, record: &Record<'_>) {
        if matches!(record.header.kind, Kind::Put | Kind::PutUntil) {
            let from = self.keys.len();
            self.keys.extend_from_slice(record.key);
            let record_of = LiveRecord { place, lies };
            self.all.push((record.header.kvs, from..self.keys.len(), record_of));
        }
    }

    /// Reads all records of a segment: those in its table, or those up to its end or to the first
    /// one that is damaged. Returns `None` if one in its table is.
    fn of(segment: &Segment) -> Result<Option<Records>, StoreError> {
        let mut records = Records::default();
        let Some(table) = segment.table() else {
            segment.scan(&mut |group| {
                group.iter().for_each(|(place, record)| records.add(*place, place.offset, record));
                Ok(Flow::On)
            })?;
            return Ok(Some(records));
        };
        let mut window = Window::default();
        for (offset, lies) in table.all() {
            let header = window.read(segment, lies, HEADER_BYTES as u64)?.first_chunk();
            let header = header.and_then(Header::decode);
            let len = header.and_then(|it| u32::try_from(it.bytes()).ok());
            let Some(len) = len else { return Ok(None) };
            let bytes = window.read(segment, lies, u64::from(len))?;
            let place = RecordPlace { segment: segment.number(), offset, bytes: len };
            let record = Record::decode(segment.address(offset), bytes);
            let Some(record) = record else { return Ok(None) };
            records.add(place, lies, &record);
        }
        Ok(Some(records))
    }
}

/// Returns the records of a segment that the newest versions of keys lead to, in their order;
/// `None` if something leads into the segment to what is no record. What range deletes or the time
/// have removed stays.
fn live_records(
    files: &Files,
    view: &View,
    segment: &Segment,
) -> Result<Option<Vec<LiveRecord>>, StoreError> {
    if segment.is_lost() {
        return Ok(None);
    }
    let Some(Records { mut all, keys }) = Records::of(segment)? else { return Ok(None) };
    let key_of = |key: &Range<usize>| keys.get(key.clone()).unwrap_or_default();
    // In the order of keys, runs are read page by page.
    all.sort_unstable_by(|(kvs, key, _), (other_kvs, other, _)| {
        (kvs, key_of(key)).cmp(&(other_kvs, key_of(other)))
    });
    // A table has all records. Without one, damage may hide some, and all that leads into the
    // segment is counted.
    let has_table = segment.table().is_some();
    let (mut live, mut found_bytes) = (Vec::new(), 0);
    for (kvs, key, record) in all {
        files.time.give_way();
        let mut is_newest = true;
        for run in view.runs.get(&kvs).into_iter().flat_map(|runs| runs.iter()) {
            let Some(found) = run.run.get(key_of(&key), Sequence::MAX)? else { continue };
            if found.value() == Value::Apart(record.place) {
                found_bytes += u64::from(record.place.bytes);
                if is_newest && !mutation_site!("a squeezed segment has what keys lead to") {
                    live.push(LiveRecord { place: record.place, lies: record.lies });
                }
            }
            if has_table {
                break;
            }
            is_newest = false;
        }
    }
    let leads = || live_segments(view).get(&segment.number()).copied().unwrap_or_default();
    let is_certain = has_table
        || found_bytes == leads()
        || mutation_site!("a segment is squeezed only if all that leads into it was found");
    live.sort_unstable_by_key(|record| record.place.offset);
    Ok(is_certain.then_some(live))
}

/// Returns the table of records that are written one behind the other, and the offset behind the
/// last one; `None` if an offset is too large for it.
fn table_of(live: &[LiveRecord]) -> Option<(Table, u64)> {
    let (mut table, mut end) = (Table::default(), FIRST_RECORD);
    for LiveRecord { place, .. } in live {
        if !table.push(place.offset, end) {
            return None;
        }
        end += u64::from(place.bytes);
    }
    Some((table, end))
}

/// Writes a segment with the given records, and makes it durable.
fn write(
    files: &Files,
    (place, name): (&OpenVolume, &str),
    segment: &Segment,
    (table, end): (&Table, u64),
    live: &[LiveRecord],
) -> Result<(), StoreError> {
    let TablePlaces { table: table_at, copy, file_bytes } = table.places(end);
    // An earlier attempt may have left one of another length.
    place.directory.remove(name)?;
    let create = Some(file_bytes);
    let options = BlockOptions { create, unsynced: true, ..BlockOptions::default() };
    let file = place.directory.open_block_file(name, &options)?;
    let mut pieces = Pieces { buffer: file.buffer(PIECE_BYTES), file, filled: 0, offset: 0 };
    let [lead, table] = table.encode(segment.store(), segment.number(), table_at);
    let beginning = segment.beginning_with(&lead);
    pieces.push(&beginning)?;
    if table_at < FIRST_RECORD {
        pieces.push(&table)?;
    }
    pieces.fill_up_to(FIRST_RECORD)?;
    let mut window = Window::default();
    for LiveRecord { place, lies } in live {
        files.time.give_way();
        let record = window.read(segment, *lies, u64::from(place.bytes))?;
        // There is no other copy once this one is installed.
        if Record::decode(segment.address(place.offset), record).is_none() {
            return Err(segment.damaged(*lies, "the record was whole, and is damaged now"));
        }
        pieces.push(record)?;
    }
    if table_at >= FIRST_RECORD {
        pieces.push(&table)?;
    }
    pieces.fill_up_to(copy)?;
    pieces.push(&table)?;
    pieces.push(&beginning)?;
    pieces.finish(file_bytes)?;
    if !mutation_site!("a squeezed segment is durable before it takes the name") {
        pieces.file.sync().map_err(|cause| pieces.failed("sync", cause))?;
    }
    Ok(())
}

/// File that is written front to back, in large pieces.
struct Pieces {
    file: Arc<dyn BlockFile>,
    buffer: IoBuffer,
    filled: usize,
    offset: u64,
}

impl Pieces {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.filled));
            self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == PIECE_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Writes zeros up to an offset.
    fn fill_up_to(&mut self, offset: u64) -> Result<(), StoreError> {
        let zeros = offset.saturating_sub(self.offset + self.filled as u64);
        self.push(&vec![0; zeros as usize])
    }

    /// Writes the rest of a file of so many bytes.
    fn finish(&mut self, bytes: u64) -> Result<(), StoreError> {
        let end = self.offset + self.filled as u64;
        assert_eq!(end, bytes, "bytes of a squeezed segment of which so many are written");
        if self.filled > 0 { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.buffer.set_len(self.filled);
        let written = self.file.write_at(self.offset, &self.buffer);
        written.map_err(|cause| self.failed("write", cause))?;
        self.buffer.set_len(PIECE_BYTES);
        self.offset += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    fn failed(&self, doing: &'static str, cause: std::io::Error) -> StoreError {
        let path = self.file.path().to_owned();
        StoreError::Io { doing, path, offset: self.offset, cause }
    }
}

/// Gives the new file the name of the segment, and shows it to readers. Returns the old file;
/// `None` if the segment was dropped meanwhile.
fn install(
    files: &Files,
    segment: &Arc<Segment>,
    place: &Arc<OpenVolume>,
    bytes: u64,
) -> Result<Option<Leaving>, StoreError> {
    let (number, store) = (segment.number(), segment.store());
    let name = names::of_segment(number);
    // A segment is dropped under this lock, and its file removed after that.
    let _manifest = files.manifest.lock();
    let is_there = |view: &View| {
        view.segments.get(&number).is_some_and(|of_view| Arc::ptr_eq(of_view, segment))
    };
    if !is_there(&files.current.get()) {
        return Ok(None);
    }
    place.directory.rename(&names::on_its_way(&name), &name)?;
    let squeezed = Arc::new(Segment::open_blocks(&*place.directory, store, number)?);
    let old = files.volumes.made_elsewhere(name, place, bytes);
    place.life.written.values_read.fetch_add(segment.bytes_read(), Relaxed);
    files.current.change(|view| {
        drop(Arc::make_mut(&mut view.segments).insert(number, squeezed));
    });
    Ok(old)
}
