//! The write-ahead log, where every write lands, in order, once.
//!
//! Who may do what:
//! 1. A writer takes the head's lock, reserves space in the newest segment and sequence numbers for
//!    its records, and releases the lock. Copying the records and entering them into the memtable
//!    need no lock.
//! 2. A write is published and acknowledged once all writes before it are complete ([`order`]).
//!    Recovery reads up to the first gap, and so finds every acknowledged write.
//! 3. On persistent memory each writer persists its records before they are complete. Where that is
//!    full and the log continues on a disk, each writer waits for a sync. On a disk otherwise,
//!    [`Log::sync`] makes all writes durable that are published when it begins, and no more: space
//!    behind them may be reserved by a writer that has not filled it yet. A caller whose writes
//!    were made durable by another caller's sync returns at once.
//! 4. A full segment ends with a seal. The name of the next segment is durable already. That
//!    segment may belong to the next generation.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_media::MappedKind;

use crate::cache::budget::{GenerationLimits, Room};
use crate::failure::Failure;
use crate::memtable::Generation;
use crate::names;
use crate::policy::Classes;
use crate::scheduler::Scheduler;
use crate::segment::groups::PAGE_BYTES;
use crate::segment::record::{Draft, HEADER_BYTES, Kind};
use crate::segment::{FIRST_RECORD, SEAL_BYTES, Segment};
use crate::types::{SegmentNumber, Sequence};
use crate::volumes::{FileKind, Leaving, OpenVolume, Volumes};
use crate::{KvdbOptions, StoreError};
use order::{Order, Position};

mod ahead;
mod behind;
mod chain;
mod order;
pub(crate) mod recover;
pub(crate) mod scan;

/// Limits of a log.
#[derive(Debug, Clone)]
pub(crate) struct LogOptions {
    /// Bytes of a segment, unless a write needs more.
    pub(crate) segment_bytes: u64,
    /// Limits at which a generation is closed.
    pub(crate) generation: GenerationLimits,
    /// Memory budget that the indexes of generations are charged to.
    pub(crate) room: Arc<Room>,
}

/// Callback that is called when a generation is closed, with the closed generation, the next one,
/// and the last write of the closed one. The head is locked meanwhile.
pub(crate) type Rotated = Box<dyn Fn(&Arc<Generation>, &Arc<Generation>, Sequence) + Send + Sync>;

/// The write-ahead log of a store.
pub(crate) struct Log {
    volumes: Arc<Volumes>,
    store: u64,
    options: LogOptions,
    /// End of the log, where writers append; `None` once the log is closed.
    head: Mutex<Option<Head>>,
    order: Order,
    durability: Durability,
    supply: SegmentSupply,
    failure: Arc<Failure>,
    work: Arc<Scheduler>,
    rotated: Rotated,
    active: ActiveGeneration,
}

/// Progress of durability.
struct Durability {
    /// Number up to which all writes survive a crash of the machine.
    durable: AtomicU64,
    /// Last write that lies on a disk although the log belongs on persistent memory.
    last_on_disk: AtomicU64,
    /// Held during a sync.
    syncing: Mutex<()>,
}

/// Supply of segments for a log.
struct SegmentSupply {
    next_segment: AtomicU64,
    /// Held while a segment is created, from taking its number until it is a spare or in use.
    /// Recovery reads segments in the order of their numbers, so they must be used in this order.
    making: Mutex<()>,
    /// Segments that were created ahead, used in their order.
    spares: Mutex<VecDeque<Segment>>,
    /// Segments that could not be created, and whose removal is not durable yet.
    removed: Mutex<Vec<Leaving>>,
    /// Number of segments that were requested since spares were last created.
    wanted: AtomicU64,
    /// Bytes of records that were written when the newest segment began.
    written: AtomicU64,
}

/// Signs of the active generation that writers leave for others.
struct ActiveGeneration {
    /// True if the active generation's index or range deletes have reached their limit.
    is_index_full: AtomicBool,
    /// Number of writes by which the memtable image of the active generation lagged when last
    /// checked.
    image_lag: AtomicU64,
}

/// Position of the next record.
struct Head {
    generation: Arc<Generation>,
    segment: Arc<Segment>,
    /// Index of the segment in its generation.
    place: u32,
    used: u64,
    generation_used: u64,
    /// Number of the first write that the generation has, or will have.
    generation_first: Sequence,
    /// Bytes of records that were written before the generation.
    written_before: u64,
    next: Sequence,
    /// Segments that are not synced to their ends, the oldest first, and the offsets up to which
    /// they are. The last one is the newest segment.
    unsynced: VecDeque<(Arc<Segment>, u64)>,
    written: Written,
    /// True if the segment was created in the reserve for deletes and compactions.
    is_of_reserve: bool,
    /// Bytes of the generation's segments that were created there.
    reserve_used: u64,
    /// True if no more writes may begin.
    is_stopped: bool,
}

/// Needs of a write.
#[derive(Debug, Clone, Copy)]
struct Claim {
    bytes: u64,
    records: u64,
    /// True if the write only deletes keys, which makes room.
    makes_room: bool,
}

/// A segment for the next records.
struct NextSegment {
    segment: Segment,
    /// True if it was created while a writer waited.
    is_late: bool,
    is_of_reserve: bool,
}

/// Totals of what was written since the log began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// Bytes that are counted at their volumes: all but those in the newest segment.
    counted: u64,
    /// Bytes of keys and values in the records.
    pub(crate) user: u64,
    /// Of these, the bytes that are counted at the home.
    user_counted: u64,
    /// Number of segments that were created while a writer waited.
    pub(crate) made_late: u64,
}

/// Space that is reserved for a write.
struct Reserved {
    generation: Arc<Generation>,
    segment: SegmentNumber,
    /// Index of the segment in its generation.
    place: u32,
    offset: u64,
    first: Sequence,
}

/// State with which a log begins.
pub(crate) struct LogBeginning {
    /// Last write that is published and durable already.
    pub(crate) last: Sequence,
    /// Number above those of all segments that exist.
    pub(crate) next_segment: u64,
    /// The first active generation, which has no segments yet.
    pub(crate) generation: Arc<Generation>,
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Number of writes between checks of the active memtables' memory and of the lag of their image.
const WRITES_BETWEEN_COUNTS: u64 = 512;
/// Most segments that are created ahead, however fast they fill up.
const SPARES_MAX: u64 = 4;
/// Bytes of a segment that are prepared for writing at once, while earlier ones are written.
const READY_BYTES: u64 = 256 << 10;
/// Most bytes of a segment in the reserve, unless a write needs more: writes that make room are
/// small.
const RESERVE_SEGMENT_BYTES_MAX: u64 = 256 << 10;
/// Bytes of the first segments, unless they are to be smaller, or a write needs more. A segment is
/// as long as half of what was written before it, so a store of few keys stays small.
const FIRST_SEGMENT_BYTES: u64 = 256 << 10;
/// Divisor of the room that is left, of which a segment in the reserve takes one part. Other
/// programs may have filled the disk, and runs and the manifest need some room.
const RESERVE_PARTS: u64 = 4;
/// Most bytes of a scratch buffer that is kept.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Writes records through a buffer, from which they are copied to the segment. Large values are
/// written from where they lie. Returns the offset behind them.
fn write_records(
    drafts: &[Draft<'_>],
    segment: &Segment,
    (mut offset, first): (u64, Sequence),
) -> Result<u64, StoreError> {
    // Taken out and put back: in a simulated world, threads share it.
    let mut scratch = SCRATCH.take();
    scratch.clear();
    for (number, draft) in drafts.iter().enumerate() {
        let address = segment.address(offset + scratch.len() as u64);
        let sequence = Sequence(first.0 + number as u64);
        let more_follow = number + 1 < drafts.len();
        if draft.value.len() < SCRATCH_BYTES_MAX {
            draft.encode(address, sequence, more_follow, &mut scratch);
            continue;
        }
        draft.encode_head(address, sequence, more_follow, &mut scratch);
        segment.write(offset, &scratch)?;
        offset += scratch.len() as u64;
        scratch.clear();
        segment.write(offset, draft.value)?;
        offset += draft.value.len() as u64;
    }
    if !scratch.is_empty() {
        segment.write(offset, &scratch)?;
        offset += scratch.len() as u64;
    }
    if scratch.capacity() <= SCRATCH_BYTES_MAX {
        SCRATCH.set(scratch);
    }
    Ok(offset)
}

/// Returns the bytes of a segment in the reserve of a volume, unless a write needs more.
fn bytes_of_reserve(place: &OpenVolume, options: &LogOptions) -> u64 {
    let part = place.room().unwrap_or(u64::MAX) / RESERVE_PARTS / PAGE_BYTES * PAGE_BYTES;
    let bytes = part.clamp(KvdbOptions::SEGMENT_BYTES_MIN, RESERVE_SEGMENT_BYTES_MAX);
    bytes.min(options.segment_bytes)
}

impl Log {
    /// Creates a log that continues in a new segment.
    ///
    /// # Errors
    /// Fails if the segment cannot be created.
    pub(crate) fn begin(
        volumes: Arc<Volumes>,
        store: u64,
        options: LogOptions,
        beginning: LogBeginning,
        failure: Arc<Failure>,
        work: Arc<Scheduler>,
        rotated: Rotated,
    ) -> Result<Log, StoreError> {
        let LogBeginning { last, next_segment, generation } = beginning;
        let number = SegmentNumber(next_segment);
        let bytes = options.segment_bytes.min(FIRST_SEGMENT_BYTES);
        let (place, bytes, is_of_reserve) = match volumes.choose_for_log(bytes) {
            Ok(place) => (place, bytes, false),
            Err(_) => {
                let place = volumes.choose_of_reserve(FileKind::Log, Classes::FASTEST, 0);
                let bytes = bytes_of_reserve(&place, &options);
                (place, bytes, true)
            }
        };
        let segment = Arc::new(make(&volumes, &place, store, number, bytes)?);
        let place = generation.add_segment(segment.clone()).unwrap_or_default();
        generation.sorted_by(&work);
        let head = Head {
            generation,
            segment: segment.clone(),
            place,
            used: FIRST_RECORD,
            generation_used: bytes,
            generation_first: Sequence(last.0 + 1),
            written_before: 0,
            next: Sequence(last.0 + 1),
            unsynced: VecDeque::from([(segment.clone(), FIRST_RECORD)]),
            written: Written::default(),
            is_of_reserve,
            reserve_used: 0,
            is_stopped: false,
        };
        volumes.gauge.log_grows(bytes);
        let position = Position { last, segment: number, end: FIRST_RECORD };
        Ok(Log {
            volumes,
            store,
            options,
            head: Mutex::new(Some(head)),
            order: Order::new(position),
            durability: Durability {
                durable: AtomicU64::new(last.0),
                last_on_disk: AtomicU64::new(0),
                syncing: Mutex::new(()),
            },
            supply: SegmentSupply {
                next_segment: AtomicU64::new(next_segment + 1),
                making: Mutex::new(()),
                spares: Mutex::default(),
                removed: Mutex::default(),
                wanted: AtomicU64::new(0),
                written: AtomicU64::new(0),
            },
            failure,
            work,
            rotated,
            active: ActiveGeneration {
                is_index_full: AtomicBool::new(false),
                image_lag: AtomicU64::new(0),
            },
        })
    }

    /// Returns true if the log continues in the reserve for deletes and compactions.
    pub(crate) fn is_of_reserve(&self) -> bool {
        self.head.lock().as_ref().is_some_and(|head| head.is_of_reserve)
    }

    /// Returns the bytes of segments on a volume that were created ahead.
    pub(crate) fn spare_bytes(&self, place: &Arc<OpenVolume>) -> u64 {
        let spares = self.supply.spares.lock();
        let is_here = |spare: &&Segment| {
            let found = self.volumes.find(&names::of_segment(spare.number()));
            found.is_some_and(|found| Arc::ptr_eq(&found, place))
        };
        spares.iter().filter(is_here).map(Segment::len).sum()
    }

    /// Returns the number of the next write to begin.
    pub(crate) fn next_write(&self) -> Sequence {
        self.head.lock().as_ref().map_or(Sequence::MAX, |head| head.next)
    }

    /// Returns the bytes of records in the active generation, and their number.
    pub(crate) fn unflushed(&self) -> (u64, u64) {
        let head = self.head.lock();
        head.as_ref().map_or((0, 0), |head| {
            let records = head.next.0 - head.generation_first.0;
            (head.written.bytes - head.written_before, records)
        })
    }

    /// Returns the totals since the log began.
    pub(crate) fn written(&self) -> Written {
        self.head.lock().as_ref().map(|head| head.written).unwrap_or_default()
    }

    /// Returns the bytes of records that were written to a volume.
    pub(crate) fn bytes_at(&self, place: &Arc<OpenVolume>) -> u64 {
        let head = self.head.lock();
        let newest = head.as_ref().filter(|head| {
            let found = self.volumes.find(&names::of_segment(head.segment.number()));
            found.is_some_and(|found| Arc::ptr_eq(&found, place))
        });
        let counted = place.life.written.log.load(Relaxed);
        counted + newest.map_or(0, |head| head.written.bytes - head.written.counted)
    }

    /// Counts the bytes of the newest segment at its volume, before another segment follows.
    fn count(&self, head: &mut Head) {
        let Head { segment, written, .. } = head;
        if let Some(place) = self.volumes.find(&names::of_segment(segment.number())) {
            place.life.written.log.fetch_add(written.bytes - written.counted, Relaxed);
        }
        self.volumes.count_user(written.user - written.user_counted);
        (written.counted, written.user_counted) = (written.bytes, written.user);
        self.supply.written.store(written.bytes, Relaxed);
    }

    /// Returns the way in which writes become durable, if they go to this volume now.
    pub(crate) fn kind_at(&self, place: &Arc<OpenVolume>) -> Option<MappedKind> {
        let segment = self.head.lock().as_ref().map(|head| head.segment.clone())?;
        let found = self.volumes.find(&names::of_segment(segment.number()))?;
        Arc::ptr_eq(&found, place).then(|| segment.kind())
    }

    /// Returns the last published write.
    pub(crate) fn published(&self) -> Sequence {
        self.order.published()
    }

    /// Returns the number up to which all writes survive a crash of the machine.
    pub(crate) fn durable(&self) -> Sequence {
        Sequence(self.durability.durable.load(Acquire))
    }

    /// Returns a number for a segment outside the log.
    pub(crate) fn take_number(&self) -> SegmentNumber {
        SegmentNumber(self.supply.next_segment.fetch_add(1, Relaxed))
    }

    /// Writes records as one group, of which all or none survive a crash. Returns the number of the
    /// last one, once the group is published. The caller holds the locks of the keys. `before_seen`
    /// is called before any reader can see the records.
    ///
    /// # Errors
    /// Fails if there is no room, in which case nothing was written, or if an earlier write failed.
    pub(crate) fn append(
        &self,
        drafts: &[Draft<'_>],
        before_seen: impl FnOnce(),
    ) -> Result<Sequence, StoreError> {
        self.failure.check()?;
        let bytes: u64 = drafts.iter().map(Draft::bytes).sum();
        let makes_room = |draft: &Draft<'_>| matches!(draft.kind, Kind::Gone | Kind::RangeDelete);
        let claim = Claim {
            bytes,
            records: drafts.len() as u64,
            makes_room: drafts.iter().all(makes_room),
        };
        let reserved = self.reserve(claim)?;
        let last = Sequence(reserved.first.0 + drafts.len() as u64 - 1);
        // After an error the space stays empty, and recovery would find nothing behind it.
        let written = self.write(drafts, &reserved, before_seen);
        let is_durable = written.inspect_err(|error| self.failure.set(error))?;
        if !is_durable && self.volumes.are_durable_at_once() {
            // This comes before the write is complete, so that every later writer knows of it.
            self.durability.last_on_disk.fetch_max(last.0, Release);
        }
        let Reserved { first, offset, segment, .. } = reserved;
        let end = offset + bytes;
        self.order.complete(first, Position { last, segment, end });
        if offset / READY_BYTES != end / READY_BYTES {
            // From here on no writer waits for this one.
            let behind = (end / READY_BYTES + 1) * READY_BYTES;
            reserved.generation.segment(reserved.place)?.expect_writes(behind, READY_BYTES);
        }
        self.order.wait(last, || self.failure.is_set());
        self.failure.check()?;
        self.keep_promise(last)?;
        let Reserved { generation, first, .. } = &reserved;
        generation.written(last)?;
        let is_time = first.0 / WRITES_BETWEEN_COUNTS != (last.0 + 1) / WRITES_BETWEEN_COUNTS;
        // A few range deletes are a lot already. They can be checked each time, since no other
        // writer runs during one.
        if is_time || drafts.iter().any(|draft| draft.kind == Kind::RangeDelete) {
            self.look_at_indexes(generation, last);
        }
        Ok(last)
    }

    fn look_at_indexes(&self, generation: &Generation, last: Sequence) {
        generation.take_room(&self.options.room);
        if generation.has_reached(&self.options.generation, last) {
            self.active.is_index_full.store(true, Relaxed);
        }
        self.note_image_lag(generation.image_lag(last));
    }

    /// Returns the number of writes by which the memtable image lagged when last checked.
    pub(crate) fn image_lag(&self) -> u64 {
        self.active.image_lag.load(Relaxed)
    }

    /// Sets the number of writes by which the memtable image lags.
    pub(crate) fn note_image_lag(&self, writes: u64) {
        self.active.image_lag.store(writes, Relaxed);
    }

    /// Writes records to their space. Returns true if that made them durable.
    fn write(
        &self,
        drafts: &[Draft<'_>],
        reserved: &Reserved,
        before_seen: impl FnOnce(),
    ) -> Result<bool, StoreError> {
        let Reserved { generation, place, offset, first, .. } = reserved;
        let segment = generation.segment(*place)?;
        // The cache lines that the memtable needs are fetched while the records are written.
        let first_hash = drafts.first().map_or(0, |draft| generation.prepare(draft));
        let end = write_records(drafts, segment, (*offset, *first))?;
        if segment.is_persistent_memory() {
            segment.persist(*offset, end - offset)?;
        }
        if !mutation_site!("what is cached of a key goes before its write is seen") {
            before_seen();
        }
        let mut at = *offset;
        for (number, draft) in drafts.iter().enumerate() {
            let hash = if number == 0 { first_hash } else { generation.prepare(draft) };
            let sequence = Sequence(first.0 + number as u64);
            generation.enter((draft, hash), sequence, *place, at)?;
            at += draft.bytes();
        }
        Ok(segment.is_persistent_memory())
    }

    fn reserve(&self, claim: Claim) -> Result<Reserved, StoreError> {
        let Claim { bytes, records, makes_room } = claim;
        let mut head = self.head.lock();
        let head = head.as_mut().filter(|head| !head.is_stopped).ok_or(StoreError::Closed)?;
        if head.is_of_reserve && !makes_room {
            self.volumes.choose_for_log(0)?;
            head.is_of_reserve = false;
        }
        let is_index_full = self.active.is_index_full.load(Relaxed)
            && self.active.is_index_full.swap(false, Relaxed)
            && head.next > head.generation_first;
        if is_index_full || head.used + bytes + SEAL_BYTES > head.segment.len() {
            self.next(head, claim, is_index_full)?;
        }
        let Head { generation, segment, place, used, next, written, .. } = head;
        let (offset, first) = (*used, *next);
        debug_assert!(
            offset + bytes + SEAL_BYTES <= segment.len(),
            "{bytes} bytes and a seal go to {offset} of segment {}, which has {}",
            segment.number().0,
            segment.len(),
        );
        *used += bytes;
        written.bytes += bytes;
        written.user += bytes - records * HEADER_BYTES as u64;
        *next = Sequence(first.0 + records);
        let (generation, segment) = (generation.clone(), segment.number());
        Ok(Reserved { generation, segment, place: *place, offset, first })
    }

    /// Continues in the next segment, with room for the claimed write. It belongs to the next
    /// generation if this one is full.
    fn next(&self, head: &mut Head, claim: Claim, is_full: bool) -> Result<(), StoreError> {
        let needed = FIRST_RECORD + claim.bytes + SEAL_BYTES;
        let NextSegment { segment, is_late, is_of_reserve } =
            self.segment_of(needed, claim.makes_room)?;
        head.is_of_reserve = is_of_reserve;
        head.written.made_late += u64::from(is_late);
        let segment = Arc::new(segment);
        head.reserve_used += if is_of_reserve { segment.len() } else { 0 };
        // A flush gives the reserve back that deletes have taken.
        let is_reserve_full = head.reserve_used >= self.volumes.reserve_bytes() / RESERVE_PARTS;
        let is_full = is_full
            || head.generation_used >= self.options.generation.bytes
            || head.generation_used >= self.volumes.gauge.generation_bytes()
            || is_of_reserve && is_reserve_full;
        let place = if is_full { None } else { head.generation.add_segment(segment.clone()) };
        self.seal(head)?;
        self.count(head);
        match place {
            Some(place) => {
                head.place = place;
                head.segment = segment;
                head.generation_used += head.segment.len();
                head.begin();
            }
            None => self.rotate(head, segment),
        }
        Ok(())
    }

    fn rotate(&self, head: &mut Head, segment: Arc<Segment>) {
        let generation = head.generation.next(self.options.generation.bytes, head.next);
        let generation = Arc::new(generation);
        head.place = generation.add_segment(segment.clone()).unwrap_or_default();
        head.segment = segment;
        head.generation_used = head.segment.len();
        head.reserve_used = 0;
        head.generation_first = head.next;
        head.written_before = head.written.bytes;
        head.begin();
        let closed = std::mem::replace(&mut head.generation, generation);
        (self.rotated)(&closed, &head.generation, Sequence(head.next.0 - 1));
    }

    fn seal(&self, head: &Head) -> Result<(), StoreError> {
        if mutation_site!("a segment is sealed before the next is written to") {
            return Ok(());
        }
        head.segment.seal(head.used, head.next)?;
        // Records in the next segment may become durable before the next sync.
        if self.volumes.are_durable_at_once() {
            let done = head.segment.persist(head.used, SEAL_BYTES);
            // On a disk, such a failure may have lost any record of the segment. A later sync would
            // not tell.
            if !mutation_site!("a seal that is not durable is the last word") {
                done.as_ref().err().iter().for_each(|error| self.failure.set(error));
            }
            done?;
        }
        Ok(())
    }

    /// Returns the bytes of the next segment, unless a write needs more.
    fn segment_bytes(&self) -> u64 {
        let half = self.supply.written.load(Relaxed) / 2 / PAGE_BYTES * PAGE_BYTES;
        // Space for it is taken at once, and so should be little beside what may be taken.
        let most = self.volumes.gauge.segment_bytes() / PAGE_BYTES * PAGE_BYTES;
        half.max(FIRST_SEGMENT_BYTES).min(most).min(self.options.segment_bytes)
    }

    /// Returns a segment with at least so many bytes, whose name is durable.
    fn segment_of(&self, bytes: u64, makes_room: bool) -> Result<NextSegment, StoreError> {
        self.supply.wanted.fetch_add(1, Relaxed);
        let taken = self.take_or_make(bytes, makes_room);
        if let Ok(next) = &taken {
            self.volumes.gauge.log_grows(next.segment.len());
        }
        // The background thread creates another one.
        self.work.tell();
        taken
    }

    fn take_or_make(&self, bytes: u64, makes_room: bool) -> Result<NextSegment, StoreError> {
        let spare = || self.supply.spares.lock().pop_front_if(|spare| spare.len() >= bytes);
        let found = |segment| NextSegment { segment, is_late: false, is_of_reserve: false };
        if let Some(segment) = spare() {
            return Ok(found(segment));
        }
        let _held = self.supply.making.lock();
        if let Some(segment) = spare() {
            return Ok(found(segment));
        }
        self.remove_spares()?;
        let (place, bytes, is_of_reserve) = match self.place_for(bytes) {
            Ok((place, bytes)) => (place, bytes, false),
            Err(_) if makes_room => {
                let place = self.volumes.choose_of_reserve(FileKind::Log, Classes::FASTEST, bytes);
                let bytes = bytes.max(bytes_of_reserve(&place, &self.options));
                (place, bytes, true)
            }
            Err(error) => return Err(error),
        };
        Ok(NextSegment { segment: self.make_segment(&place, bytes)?, is_late: true, is_of_reserve })
    }

    /// Chooses the volume and the length of a segment with at least so many bytes. Where a whole
    /// one finds no room, a smaller one may: otherwise the room for up to a whole segment could not
    /// be used.
    fn place_for(&self, bytes: u64) -> Result<(Arc<OpenVolume>, u64), StoreError> {
        let least = bytes.max(self.options.segment_bytes.min(FIRST_SEGMENT_BYTES));
        let mut wanted = bytes.max(self.segment_bytes());
        loop {
            match self.volumes.choose_for_log(wanted) {
                Ok(place) => return Ok((place, wanted)),
                Err(error) if wanted == least => return Err(error),
                Err(_) => wanted = (wanted / 2 / PAGE_BYTES * PAGE_BYTES).max(least),
            }
        }
    }

    /// Creates a segment. The caller holds `making`.
    fn make_segment(&self, place: &Arc<OpenVolume>, bytes: u64) -> Result<Segment, StoreError> {
        // Removals on the same volume become durable when the new name is synced. The others are
        // synced here.
        let removed = std::mem::take(&mut *self.supply.removed.lock());
        let mut elsewhere = removed.iter().filter(|it| !Arc::ptr_eq(&it.place, place));
        let settled = elsewhere.try_for_each(|it| it.place.sync_names());
        settled.inspect_err(|error| self.failure.set(error))?;
        let number = self.take_number();
        let made = make(&self.volumes, place, self.store, number, bytes);
        if let Err(error) = &made {
            // The file may exist in spite of the error, and recovery finds nothing that is written
            // behind an empty segment.
            let aside = self.volumes.set_aside(place, &names::of_segment(number));
            if aside.is_err() || place.has_failed_to_sync_names() {
                self.failure.set(error);
            }
            let mut all = self.supply.removed.lock();
            all.extend(removed);
            all.push(aside.unwrap_or_else(|_| Leaving::nothing(place)));
        } else {
            // Files that cannot be removed now are removed when the store is next opened.
            removed.iter().for_each(|leaving| drop(leaving.remove(&self.volumes)));
        }
        made
    }

    /// Removes all spares before a segment with a greater number is created: recovery finds nothing
    /// that is written behind an empty segment. The caller holds `making`.
    fn remove_spares(&self) -> Result<(), StoreError> {
        let spares = std::mem::take(&mut *self.supply.spares.lock());
        let names = spares.iter().map(|spare| names::of_segment(spare.number()));
        // The next segment may be named on another volume, whose sync does not cover these
        // removals.
        let removed = self.volumes.remove_for_good(&names.collect::<Vec<_>>());
        removed.inspect_err(|error| self.failure.set(error))
    }

    /// Creates spares: one, plus as many as were requested since the last call. Returns true if
    /// it has created some.
    ///
    /// # Errors
    /// Fails if there is no room but the reserve.
    pub(crate) fn make_spares(&self) -> Result<bool, StoreError> {
        let wanted = (self.supply.wanted.swap(0, Relaxed) + 1).min(SPARES_MAX);
        let mut is_any_new = false;
        for number in 0..wanted {
            let _held = self.supply.making.lock();
            if self.supply.spares.lock().len() as u64 >= wanted {
                break;
            }
            let bytes = self.segment_bytes();
            if number > 0 && (number + 1) * bytes > self.volumes.gauge.spare_bytes() {
                break;
            }
            // The first spare takes any room that there is, the others only where there is plenty.
            let room = if number == 0 { bytes } else { SPARES_MAX * bytes };
            let place = self.volumes.choose_for_log(room)?;
            let segment = self.make_segment(&place, bytes)?;
            self.supply.spares.lock().push_back(segment);
            is_any_new = true;
        }
        Ok(is_any_new)
    }

    /// Removes the spares, and continues elsewhere if the newest segment lies on `place`, a volume
    /// that takes no new data.
    ///
    /// # Errors
    /// Fails if there is no room, or if the disk fails.
    pub(crate) fn leave(&self, place: &Arc<OpenVolume>) -> Result<(), StoreError> {
        {
            let _held = self.supply.making.lock();
            self.remove_spares()?;
        }
        self.failure.check()?;
        let mut head = self.head.lock();
        let head = head.as_mut().ok_or(StoreError::Closed)?;
        let now = self.volumes.find(&names::of_segment(head.segment.number()));
        match now.is_some_and(|now| Arc::ptr_eq(&now, place)) {
            true => self.close(head),
            false => Ok(()),
        }
    }

    /// Closes the active generation unless it is empty. Returns the last write in a closed
    /// generation.
    ///
    /// # Errors
    /// Fails if there is no room.
    pub(crate) fn close_generation(&self) -> Result<Sequence, StoreError> {
        self.failure.check()?;
        let mut head = self.head.lock();
        let head = head.as_mut().ok_or(StoreError::Closed)?;
        let last = Sequence(head.next.0 - 1);
        if head.next == head.generation_first {
            return Ok(last);
        }
        self.close(head)?;
        Ok(last)
    }

    /// Closes the active generation even if it is empty.
    fn close(&self, head: &mut Head) -> Result<(), StoreError> {
        let NextSegment { segment, is_of_reserve, .. } = self.segment_of(0, true)?;
        let segment = Arc::new(segment);
        head.is_of_reserve = is_of_reserve;
        self.seal(head)?;
        self.count(head);
        self.rotate(head, segment);
        Ok(())
    }

    /// Makes all writes durable that are published now. Returns the number up to which all are
    /// durable.
    ///
    /// # Errors
    /// Fails if the disk fails. Only writes that were durable before are safe then, and the store
    /// takes no more writes.
    pub(crate) fn sync(&self) -> Result<Sequence, StoreError> {
        self.failure.check()?;
        let mut wanted = self.published();
        if mutation_site!("a sync reaches up to the last write that counts") {
            wanted = Sequence(wanted.0.saturating_sub(1));
        }
        let _held = self.durability.syncing.lock();
        let durable = Sequence(self.durability.durable.load(Acquire));
        if durable >= wanted {
            return Ok(durable);
        }
        let position = self.order.position();
        let done = self.sync_to(position);
        if let Err(error) = &done
            && !mutation_site!("nothing is written after a sync that failed")
        {
            self.failure.set(error);
        }
        done?;
        let durable = if mutation_site!("what came while a sync went on is not called durable") {
            self.published()
        } else {
            position.last
        };
        let before = self.durability.durable.swap(durable.0, Release);
        assert!(
            before <= durable.0,
            "a sync made writes durable up to {}, and they were up to {before}",
            durable.0,
        );
        Ok(durable)
    }

    /// Keeps the promise of persistent memory while the log continues on a disk because that memory
    /// is full. It waits until the writes on the disk are durable, up to `last`. A writer whose
    /// writes were made durable by another one's sync returns at once.
    fn keep_promise(&self, last: Sequence) -> Result<(), StoreError> {
        let on_disk = Sequence(self.durability.last_on_disk.load(Acquire)).min(last);
        while self.durable() < on_disk {
            self.sync()?;
        }
        Ok(())
    }

    /// Lets no more writes begin, and waits for those that are under way.
    pub(crate) fn stop(&self) {
        let last = self.head.lock().as_mut().map(|head| {
            head.is_stopped = true;
            Sequence(head.next.0 - 1)
        });
        if let Some(last) = last {
            self.order.wait(last, || self.failure.is_set());
        }
    }

    /// Ends the log and closes its files. Nothing is written after that.
    pub(crate) fn end(&self) {
        *self.head.lock() = None;
        let _held = self.supply.making.lock();
        // Spares that cannot be removed now are removed when the store is next opened.
        let _ = self.remove_spares();
    }

    /// Lets go of flushed segments, so that their files take no more room once they are removed or
    /// squeezed. What they had is durable, and recovery begins behind them.
    pub(crate) fn forget(&self, flushed: &[SegmentNumber]) {
        let _held = self.durability.syncing.lock();
        if let Some(head) = self.head.lock().as_mut() {
            head.unsynced.retain(|(segment, _)| !flushed.contains(&segment.number()));
        }
    }

    /// Syncs all segments up to a position, older ones first: recovery keeps what it finds up to
    /// the first gap, and each segment says that those before it are durable. Bytes behind the
    /// position may still be written to, and are left to the next sync.
    fn sync_to(&self, position: Position) -> Result<(), StoreError> {
        loop {
            let (segment, from) = match self.head.lock().as_ref().map(|head| head.unsynced.front())
            {
                Some(Some((segment, from))) => (segment.clone(), *from),
                _ => return Ok(()),
            };
            let is_last = segment.number() == position.segment;
            let to = if is_last { position.end } else { segment.len() };
            if to > from {
                let begin = match from {
                    FIRST_RECORD => {
                        segment.mark_durable_before()?;
                        0
                    }
                    _ => from,
                };
                segment.persist(begin, to - begin)?;
                // A full segment is known to be durable by the mark of the next one.
                if is_last
                    && !segment.is_persistent_memory()
                    && !mutation_site!("a sync marks how far the log is durable")
                {
                    segment.mark_durable_up_to(to)?;
                }
            }
            if let Some(head) = self.head.lock().as_mut() {
                head.synced(to, is_last);
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Creates a segment with a durable name.
fn make(
    volumes: &Volumes,
    place: &Arc<OpenVolume>,
    store: u64,
    number: SegmentNumber,
    bytes: u64,
) -> Result<Segment, StoreError> {
    // It counts first: after an error, the file may be there all the same.
    volumes.made(names::of_segment(number), place, bytes);
    let segment = Segment::create(&*place.directory, store, number, bytes, place.pmem)?;
    volumes.made(names::of_segment(number), place, segment.len());
    place.sync_names()?;
    segment.expect_writes(FIRST_RECORD, 2 * READY_BYTES - FIRST_RECORD);
    Ok(segment)
}

impl Head {
    /// Begins to fill the newest segment.
    fn begin(&mut self) {
        let (number, before) = (self.segment.number(), self.unsynced.back());
        assert!(
            before.is_none_or(|(before, _)| before.number() < number),
            "the log goes on in segment {}, after {before:?}: it would be read before that",
            number.0,
        );
        self.used = FIRST_RECORD;
        self.unsynced.push_back((self.segment.clone(), FIRST_RECORD));
    }

    /// Notes how far the oldest unsynced segment is synced.
    fn synced(&mut self, to: u64, is_last: bool) {
        match (self.unsynced.front_mut(), is_last) {
            (Some((segment, synced)), true) => {
                assert!(
                    *synced <= to && to <= segment.len(),
                    "segment {} of {} bytes is synced up to {to}, and was up to {synced}",
                    segment.number().0,
                    segment.len(),
                );
                *synced = to;
            }
            _ => drop(self.unsynced.pop_front()),
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("published", &self.published()).finish_non_exhaustive()
    }
}
