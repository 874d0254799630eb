//! Recovery of the log when a store is opened: its generations, and the end of their records.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_index::Flow;
use entresol_media::Directory;

use super::ahead::Ahead;
use super::behind::{self, LogEnd, LostWrites};
use super::chain::Chain;
use crate::StoreError;
use crate::cache::budget::GenerationLimits;
use crate::memtable::Generation;
use crate::memtable::image::{Owner, RecoveredImage, Watermark};
use crate::names;
use crate::segment::groups::End;
use crate::segment::record::{Draft, Record};
use crate::segment::{SEAL_BYTES, Segment};
use crate::types::{RecordPlace, SegmentNumber, Sequence};
use crate::volumes::Volumes;

/// Beginning of the part of the log that is not flushed yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogStart {
    /// Identity of the store.
    pub(crate) store: u64,
    /// The first segment.
    pub(crate) segment: SegmentNumber,
    /// The last write that is flushed.
    pub(crate) flushed: Sequence,
    /// A write that is known to be durable: the log must reach at least this far.
    pub(crate) durable: Sequence,
    /// Limits of a generation.
    pub(crate) generation: GenerationLimits,
}

/// Result of recovery.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// Closed generations and the last write of each, oldest first.
    pub(crate) generations: Vec<(Arc<Generation>, Sequence)>,
    /// The last write.
    pub(crate) last: Sequence,
    /// The last write again, if the log may continue on a volume that is missing.
    pub(crate) uncertain_behind: Option<Sequence>,
    /// Number above those of all segments that exist.
    pub(crate) next_segment: u64,
    /// Number of records that were read.
    pub(crate) records: u64,
    /// Work that remains before anything is written.
    pub(crate) rest: RecoveryRest,
}

/// Work that waits until it is known that the store can be opened. Until then nothing is removed,
/// and no byte of the log changes: the manifest may be an old one that was restored.
#[derive(Debug)]
pub(crate) struct RecoveryRest {
    /// Segments behind the log's end, which a crash has left there.
    behind: Vec<SegmentNumber>,
    /// Memtable images that are not used.
    images: Vec<String>,
    /// Ranges of segments with records that may not be durable.
    unsure: Vec<(Arc<Segment>, Range<u64>)>,
    /// End of the log, if its last segment is not sealed.
    open_end: Option<(Arc<Segment>, End)>,
    last: Sequence,
}

/// State of reading a log.
struct Reader<'a> {
    volumes: &'a Volumes,
    start: LogStart,
    generation: Arc<Generation>,
    generation_used: u64,
    closed: Vec<(Arc<Generation>, Sequence)>,
    last: Sequence,
    /// Ranges of segments with records that may not be durable.
    unsure: Vec<(Arc<Segment>, Range<u64>)>,
    /// First segment whose contents may be in the page cache only. After a failed sync, the system
    /// takes such pages for written, and another sync would not write them. `None` if the store is
    /// read only.
    unsynced: Option<SegmentNumber>,
    /// Buffer for a group that is written again.
    again: Vec<u8>,
    /// First segments of generations whose memtable images are used.
    images: Vec<SegmentNumber>,
    records: u64,
    ahead: Ahead,
}

/// A generation that was restored from its memtable image.
struct LeftBehind {
    generation: Generation,
    segments: Vec<Arc<Segment>>,
    /// Offset behind the last record that the image covers, and the record's number.
    end: u64,
    sequence: Sequence,
}

/// Result of following a log.
struct Walked<'n> {
    chain: Chain,
    /// End of the log, unless it ends with a sealed segment.
    end: Option<LogEnd>,
    /// Segment in which it ends without a seal.
    open_end: Option<(Arc<Segment>, End)>,
    /// Segments that are not part of the log.
    rest: &'n [SegmentNumber],
}

/// Reads the log. Unless the store is read only, contents that may be in the page cache only are
/// written once more, just as they were read.
///
/// # Errors
/// Fails if the disk fails, or if the log ends before a write that was durable.
pub(crate) fn recover(
    volumes: &Volumes,
    start: LogStart,
    read_only: bool,
) -> Result<Recovered, StoreError> {
    let names: BTreeSet<String> = volumes.names().into_iter().collect();
    let numbers = names.iter().filter_map(|name| names::segment_number(name));
    let numbers = numbers.filter(|number| number.is_of_log());
    let mut numbers: Vec<SegmentNumber> = numbers.collect();
    numbers.sort_unstable();
    numbers.retain(|number| *number >= start.segment);
    let mut reader = Reader::new(volumes, start);
    if !read_only {
        reader.unsynced = Some(reader.first_unsynced(&numbers));
    }
    let Walked { chain, end, open_end, rest } = reader.walk(&names, &numbers)?;
    let last = reader.last;
    volumes.refuse_other(&names::of_segment(chain.next()))?;
    let lost = match end {
        Some(end) => {
            let open = open_end.as_ref().map(|(segment, _)| &**segment);
            behind::lost((volumes, start.store), last, (&chain, end, open), rest)?
        }
        None => None,
    };
    check_last(volumes, &start, last, open_end.as_ref(), lost)?;
    let newest = match read_only {
        true => numbers.last().copied(),
        false => newest_of(volumes, &start, &numbers, rest)?,
    };
    reader.close_generation();
    let next_segment = newest.map_or(0, |newest| newest.0 + 1).max(start.segment.0);
    let Reader { closed: generations, last, records, unsure, images: used, .. } = reader;
    let is_useless =
        |name: &String| names::image_number(name).is_some_and(|it| !used.contains(&it));
    let images = names.into_iter().filter(is_useless).collect();
    let rest = RecoveryRest { behind: rest.to_vec(), images, unsure, open_end, last };
    let uncertain_behind = Some(last).filter(|_| !volumes.missing().is_empty() && !chain.is_over);
    Ok(Recovered { generations, last, uncertain_behind, next_segment, records, rest })
}

impl RecoveryRest {
    /// Returns the segments behind the log's end.
    pub(crate) fn behind(&self) -> &[SegmentNumber] {
        &self.behind
    }

    /// Removes the segments behind the log's end and unused memtable images, makes durable what was
    /// found, and seals the segment in which the log ends.
    ///
    /// # Errors
    /// Fails if a disk fails.
    pub(crate) fn settle(self, volumes: &Volumes) -> Result<(), StoreError> {
        if !mutation_site!("what lies behind the log's end is removed") {
            remove(volumes, &self.behind)?;
        }
        self.images.iter().try_for_each(|name| volumes.remove(name))?;
        // Records that a dead process had written but not synced are published from now on. On
        // persistent memory, their last cache lines may still be in the processor's caches.
        self.unsure.iter().try_for_each(|(segment, Range { start, end })| {
            segment.flush(*start, end - start);
            segment.persist(*start, end - start)
        })?;
        if let Some((segment, end)) = self.open_end
            && !mutation_site!("the segment in which the log ends is sealed")
        {
            segment.seal(end.offset, Sequence(self.last.0 + 1))?;
            segment.persist(end.offset, SEAL_BYTES)?;
        }
        Ok(())
    }
}

/// Refuses a log that ends before a durable write. The manifest or a segment behind the end may
/// prove that there was one.
fn check_last(
    volumes: &Volumes,
    start: &LogStart,
    last: Sequence,
    open_end: Option<&(Arc<Segment>, End)>,
    lost: Option<LostWrites>,
) -> Result<(), StoreError> {
    let lost_durable = lost.as_ref().map_or(0, |lost| lost.durable.0);
    let (last, durable) = (last.0, start.durable.0.max(lost_durable));
    if last >= durable || mutation_site!("a log that ends before a durable write is refused") {
        return Ok(());
    }
    if !volumes.missing().is_empty() {
        let paths = volumes.missing().iter().map(|missing| missing.state.path.as_str());
        let volumes = paths.collect::<Vec<_>>().join(", ");
        return Err(StoreError::LogMissing { volumes, last, durable });
    }
    let (path, offset, what) = match (lost, open_end) {
        (Some(LostWrites { file, offset, what, .. }), _) => {
            let path = volumes.directory_of(&file).path().join(file);
            (path, offset, format!("{what}; nothing was removed"))
        }
        (None, open_end) => {
            let what = format!("the log ends with write {last}, but write {durable} was durable");
            match open_end {
                Some((segment, end)) => (segment.path(), end.offset, what),
                None => (volumes.home().path().to_owned(), 0, what),
            }
        }
    };
    Err(StoreError::Damaged { path, offset, what })
}

/// Returns the newest segment of the log, including those behind its end.
///
/// # Errors
/// Fails if a file behind the end has a segment's name and is not a segment.
fn newest_of(
    volumes: &Volumes,
    start: &LogStart,
    numbers: &[SegmentNumber],
    rest: &[SegmentNumber],
) -> Result<Option<SegmentNumber>, StoreError> {
    let followed = numbers.len() - rest.len();
    let mut newest = numbers.get(..followed).and_then(<[_]>::last).copied();
    for &number in rest {
        let directory = volumes.directory_of(&names::of_segment(number));
        let is_ours = Segment::is_ours(&*directory, start.store, number);
        if is_ours.map_err(|error| stranger(&*directory, number, error))? {
            newest = Some(number);
        }
    }
    Ok(newest)
}

/// Describes a file behind the log's end that is not a segment of the store.
fn stranger(directory: &dyn Directory, number: SegmentNumber, error: StoreError) -> StoreError {
    let error = error.of_own_file();
    if !error.is_damage() {
        return error;
    }
    let path = directory.path().join(names::of_segment(number));
    let what = format!(
        "{}, and it lies after the end of the log: if it does not belong to the store, move it \
         elsewhere, and open the store again",
        error.reason()
    );
    StoreError::Damaged { path, offset: error.offset(), what }
}

/// Removes segments behind the log's end, so that none is ever taken for part of it. This is
/// durable before anything is written. After an earlier crash, they are found again, and the log
/// ends where it ends now.
fn remove(volumes: &Volumes, numbers: &[SegmentNumber]) -> Result<(), StoreError> {
    let names = numbers.iter().map(|number| names::of_segment(*number));
    // The log's next segment may be named on another volume, whose sync does not cover these
    // removals.
    volumes.remove_for_good(&names.collect::<Vec<_>>())
}

/// Returns the offset behind everything that was found in a segment, including its seal.
fn behind(segment: &Segment, end: End) -> u64 {
    segment.len().min(end.offset + SEAL_BYTES)
}

impl<'a> Reader<'a> {
    fn new(volumes: &'a Volumes, start: LogStart) -> Reader<'a> {
        let (bytes, first) = (start.generation.bytes, Sequence(start.flushed.0 + 1));
        Reader {
            volumes,
            start,
            generation: Arc::new(Generation::new(bytes, first)),
            generation_used: 0,
            closed: Vec::new(),
            last: start.flushed,
            unsure: Vec::new(),
            unsynced: None,
            again: Vec::new(),
            images: Vec::new(),
            records: 0,
            ahead: Ahead::default(),
        }
    }

    /// Opens a segment. Returns `None` if it was never finished.
    fn open(&self, number: SegmentNumber) -> Result<Option<Segment>, StoreError> {
        let name = names::of_segment(number);
        let directory = self.volumes.directory_of(&name);
        let pmem = self.volumes.find(&name).and_then(|place| place.pmem);
        let read_only = self.unsynced.is_none();
        let segment = Segment::open_mapped(&*directory, self.start.store, number, pmem, read_only);
        let segment = segment.map_err(StoreError::of_own_file)?;
        if let Some(segment) = &segment {
            self.volumes.has_bytes(&name, segment.len());
        }
        Ok(segment)
    }

    /// Reads one segment after the other, up to the log's end.
    fn walk<'n>(
        &mut self,
        names: &BTreeSet<String>,
        numbers: &'n [SegmentNumber],
    ) -> Result<Walked<'n>, StoreError> {
        let chain = Chain::from(self.start.segment);
        let mut walked = Walked { chain, end: None, open_end: None, rest: numbers };
        while let Some((&number, behind)) = walked.rest.split_first() {
            let has_image = names.contains(&names::of_image(number));
            let last_before = self.last;
            let left = if has_image { self.left(walked.rest) } else { None };
            let (segment, end) = match left {
                Some((left, volumes)) => {
                    walked.rest = walked.rest.get(volumes..).unwrap_or_default();
                    self.go_on_behind(left)?
                }
                None => {
                    let Some(found) = self.read(number)? else {
                        walked.chain.ends_in(number, false);
                        walked.end = Some(LogEnd::without_header(number));
                        break;
                    };
                    walked.rest = behind;
                    found
                }
            };
            if !end.is_sealed {
                walked.chain.ends_in(segment.number(), self.last > last_before);
                if let Some(error) = segment.cut_short(end) {
                    return Err(error);
                }
                walked.end = Some(LogEnd::of_records(segment.number(), end.offset));
                walked.open_end = Some((segment, end));
                break;
            }
            walked.chain.goes_on_behind(segment.number());
        }
        Ok(walked)
    }

    /// Reads a segment. Returns `None` if it was never finished.
    fn read(&mut self, number: SegmentNumber) -> Result<Option<(Arc<Segment>, End)>, StoreError> {
        let Some(segment) = self.open(number)? else { return Ok(None) };
        let segment = Arc::new(segment);
        let limits = &self.start.generation;
        let is_full =
            self.generation_used >= limits.bytes || self.generation.has_reached(limits, self.last);
        // The dead process may have had other limits, or have sorted more.
        if is_full
            && (!self.generation.is_image_ahead()
                || mutation_site!("a generation has all segments that its image leads to"))
        {
            self.close_generation();
        }
        let place = match self.generation.add_segment(segment.clone()) {
            Some(place) => place,
            None => {
                self.close_generation();
                self.generation.add_segment(segment.clone()).unwrap_or_default()
            }
        };
        self.generation_used += segment.len();
        let end = segment.scan(&mut |group| self.enter((&segment, place), group))?;
        self.ahead.finish(&self.generation)?;
        self.seal_again(&segment, end)?;
        self.unsure.push((segment.clone(), 0..behind(&segment, end)));
        Ok(Some((segment, end)))
    }

    /// Restores the generation that begins with the first of these segments from its memtable
    /// image. Returns it with the number of its segments, or `None` if there is no image that can
    /// be trusted.
    fn left(&self, numbers: &[SegmentNumber]) -> Option<(LeftBehind, usize)> {
        let store = self.start.store;
        let owner = Owner { store, segment: *numbers.first()?, first: Sequence(self.last.0 + 1) };
        let place = self.volumes.find(&names::of_image(owner.segment))?;
        let left = RecoveredImage::open(&*place.directory, owner, place.pmem?)?;
        let last = numbers.iter().position(|number| *number == left.watermark.segment)?;
        let mut segments = Vec::with_capacity(last + 1);
        for number in &numbers[..=last] {
            segments.push(Arc::new(self.open(*number).ok()??));
        }
        let Watermark { offset, sequence, .. } = left.watermark;
        let segment = segments.last()?;
        let bytes = u32::try_from(segment.header(offset).ok()?.bytes()).ok()?;
        let place = RecordPlace { segment: segment.number(), offset, bytes };
        let mut scratch = Vec::new();
        let record = segment.record(place, &mut scratch).ok()?;
        if record.header.sequence != sequence {
            return None;
        }
        let end = offset + u64::from(bytes);
        let generation = Generation::new(self.start.generation.bytes, owner.first);
        for segment in &segments {
            generation.add_segment(segment.clone())?;
        }
        generation.take(left).ok()?;
        Some((LeftBehind { generation, segments, end, sequence }, last + 1))
    }

    /// Reads the rest of a generation that was restored from its image, behind the image's
    /// watermark.
    fn go_on_behind(&mut self, left: LeftBehind) -> Result<(Arc<Segment>, End), StoreError> {
        let LeftBehind { generation, segments, end, sequence } = left;
        self.close_generation();
        self.generation = Arc::new(generation);
        self.generation_used = segments.iter().map(|segment| segment.len()).sum();
        self.images.extend(self.generation.first_segment());
        self.last = sequence;
        let place = segments.len() as u32 - 1;
        let Some(segment) = segments.last().cloned() else {
            return Err(StoreError::NoSegment { number: 0 });
        };
        let found = segment.scan_from(end, &mut |group| self.enter((&segment, place), group))?;
        self.ahead.finish(&self.generation)?;
        self.seal_again(&segment, found)?;
        // Records up to the watermark were durable before they were entered into the image.
        self.unsure.push((segment.clone(), end..behind(&segment, found)));
        Ok((segment, found))
    }

    /// Enters a group if its numbers follow those of the last one. Other records are left over from
    /// an earlier use of the space.
    fn enter(
        &mut self,
        (segment, place): (&Segment, u32),
        group: &[(RecordPlace, Record<'_>)],
    ) -> Result<Flow, StoreError> {
        let numbers = group.iter().zip(self.last.0 + 1..);
        if numbers.into_iter().any(|((_, record), number)| record.header.sequence.0 != number)
            && !mutation_site!("the log ends where its numbers do not go on")
        {
            return Ok(Flow::Stop);
        }
        for record in group {
            self.ahead.enter(&self.generation, place, record)?;
            self.last = record.1.header.sequence;
            self.records += 1;
        }
        if self.last > self.start.durable
            && self.is_unsynced(segment)
            && !mutation_site!("what may be unsynced is written again")
        {
            self.write_again(segment, group)?;
        }
        Ok(Flow::On)
    }

    /// Returns the newest segment with the mark that all before it are durable, or the first
    /// segment of the log.
    fn first_unsynced(&self, numbers: &[SegmentNumber]) -> SegmentNumber {
        let is_durable_before = |number: &&SegmentNumber| {
            let directory = self.volumes.directory_of(&names::of_segment(**number));
            let segment = Segment::open_unchecked(&*directory, self.start.store, **number);
            // An unreadable segment is taken for unmarked, and more is written again.
            segment.and_then(|segment| segment.is_durable_before()).unwrap_or(false)
        };
        numbers.iter().rev().find(is_durable_before).copied().unwrap_or(self.start.segment)
    }

    /// Returns true if the contents of a segment must be written again before a sync makes them
    /// durable. On persistent memory this is never needed, since no sync fails there.
    fn is_unsynced(&self, segment: &Segment) -> bool {
        let is_behind = self.unsynced.is_some_and(|first| segment.number() >= first);
        is_behind && !segment.is_persistent_memory()
    }

    /// Writes a group once more, just as it was read.
    fn write_again(
        &mut self,
        segment: &Segment,
        group: &[(RecordPlace, Record<'_>)],
    ) -> Result<(), StoreError> {
        let Some((first, _)) = group.first() else { return Ok(()) };
        self.again.clear();
        for (number, (place, record)) in group.iter().enumerate() {
            let Record { header, key, expiry, value } = *record;
            let draft = Draft { kind: header.kind, kvs: header.kvs, expiry, key, value };
            let (address, sequence) = (segment.address(place.offset), header.sequence);
            draft.encode(address, sequence, number + 1 < group.len(), &mut self.again);
        }
        segment.write(first.offset, &self.again)
    }

    /// Writes a seal once more, just as it was read.
    fn seal_again(&self, segment: &Segment, end: End) -> Result<(), StoreError> {
        if end.is_sealed
            && self.is_unsynced(segment)
            && !mutation_site!("a seal that may be unsynced is written again")
        {
            segment.seal(end.offset, Sequence(self.last.0 + 1))?;
        }
        Ok(())
    }

    fn close_generation(&mut self) {
        let (bytes, first) = (self.start.generation.bytes, Sequence(self.last.0 + 1));
        let next = Arc::new(Generation::new(bytes, first));
        let closed = std::mem::replace(&mut self.generation, next);
        if closed.segments().iter().next().is_some() {
            self.closed.push((closed, self.last));
        }
        self.generation_used = 0;
    }
}
