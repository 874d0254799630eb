//! State that survives a restart: a map file that is changed through a shared mapping, and so
//! outlives the process however it dies, and a snapshot that a clean stop writes.
//!
//! For every segment on the medium the map has an entry that says if its saved form is valid, and a
//! bit for each of its records that is void. A record's bit is set before the delete, overwrite,
//! touch or eviction behind it is answered; a segment's entry is cleared before the segment is
//! rewritten and set once it is sealed and written. The records of large values in a segment that
//! is still open are copied into the map ([`heads`]), and its entry says so. So after `kill -9` all
//! sealed segments and all large values are restored, without any item that had been dropped.
//!
//! The map is not synced: after a crash of the machine (another boot, and no clean stop) nothing is
//! restored, since the last changes of the map may be lost.
//!
//! | bytes of the map | contents |
//! |---|---|
//! | 4096 | header, see `at` |
//! | 8 a segment | the sequence number under which its saved form is valid, or 0; see below |
//! | 8 a segment | number of its bits that are set: if they do not add up, it is not restored |
//! | `segment_bytes` / 128 a segment | a bit for every 16 bytes: the record there is void |
//! | `segment_bytes` / 64 a room, at least 4096 | records of large values in an open segment |
//!
//! The entry of an open segment with a room has bit 63 set, and the room's number in bits 42 to 62.

pub(crate) mod closing;
pub(crate) mod heads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use entresol_base::checksum::crc32c;
use entresol_base::sync::Mutex;
use entresol_base::{Seconds, mutation_site, thread};
use entresol_media::Direct;

use crate::config::Config;
use crate::config::plan::Plan;
use crate::error::OpenError;
use crate::label::{FORMAT, Label};
use crate::media::RestartFiles;
use crate::restart::closing::Closing;
use crate::restart::heads::{Head, Heads, Kept, Life};
use crate::segment::SEQUENCE_MAX;
use crate::values::Values;

const MAGIC: [u8; 8] = *b"ENTMAP01";
/// Distinguishes the two checked numbers of the header from each other.
const TIME_CHECK: u32 = 0x7131_6D65;
const ORDER_CHECK: u32 = 0x666C_7573;
const HEADER_BYTES: u64 = 4096;
/// Length of the shortest record whose value lies elsewhere, so that each record has a bit of its
/// own.
const BIT_BYTES: u64 = 16;
/// Mark of a segment's entry: it is open, and what is saved of it is in the room whose number
/// stands above its sequence number.
const OPEN: u64 = 1 << 63;

/// Offsets of the header's fields.
mod at {
    pub(super) const FORMAT: u64 = 8;
    pub(super) const STATE: u64 = 12;
    pub(super) const LIFE: u64 = 16;
    pub(super) const SEGMENT_BYTES: u64 = 24;
    pub(super) const MEDIUM: u64 = 32;
    pub(super) const FLUSHED_BELOW: u64 = 40;
    pub(super) const SNAPSHOT_CHECKSUM: u64 = 52;
    pub(super) const BOOT: u64 = 56;
    /// Complement of `FLUSHED_BELOW`, which reveals damage to either. A process that dies between
    /// the two stores has not answered the flush, and leaves a cache that starts empty.
    pub(super) const FLUSHED_CHECK: u64 = 64;
    pub(super) const MAP_BYTES: u64 = 72;
    pub(super) const SEGMENTS: u64 = 80;
    /// Second at which the cache last knew the time, and in the upper half its check.
    pub(super) const LAST_SEEN: u64 = 88;
    /// Second of an ordered flush, or 0, and in the upper half its check.
    pub(super) const FLUSH_AT: u64 = 96;
    /// Sequence number from which the process numbered segments and tokens, and its complement.
    pub(super) const FIRST_SEQUENCE: u64 = 104;
    pub(super) const FIRST_CHECK: u64 = 112;
}

/// State of the map: there is nothing to restore.
const EMPTY: u32 = 0;
/// State of the map: a process is using the cache, or was killed while it did.
const RUNNING: u32 = 1;
/// State of the map: the last process ended cleanly and left a snapshot.
const CLEAN: u32 = 2;

/// Remains of the last process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing that can be used.
    Nothing,
    /// Sealed segments on the medium.
    Sealed,
    /// A snapshot.
    Snapshot,
}

/// The map, and its contents at the start.
pub(crate) struct Restart {
    map: Arc<Direct>,
    pub(crate) files: Arc<dyn RestartFiles>,
    segment_bytes: u64,
    segments: u32,
    /// Remains of the last process.
    pub(crate) left: Left,
    /// True if the map still knows which records of the segments on the medium are void. It does
    /// not if the quota was changed, since its layout changes with it: then items that a snapshot
    /// restores are not restored again after a kill.
    pub(crate) keeps_saved: bool,
    /// True if the wall clock ran backwards: then no item that expires is restored, since its
    /// remaining time is unknown.
    pub(crate) clock_ran_back: bool,
    heads: Heads,
    restored_items: AtomicU64,
    /// Saved segments that were not restored.
    lost_segments: AtomicU64,
    /// Reasons for which something that was saved is not used.
    remarks: Mutex<Vec<String>>,
}

impl Restart {
    pub(crate) fn open(
        files: Arc<dyn RestartFiles>,
        config: &Config,
        plan: &Plan,
        values: &Values,
        now: Seconds,
    ) -> Result<Self, OpenError> {
        let segments =
            if values.is_elsewhere() { (plan.medium_bytes / plan.segment_bytes) as u32 } else { 0 };
        let bits = plan.segment_bytes / BIT_BYTES / 8;
        let rooms_at = HEADER_BYTES + u64::from(segments) * (16 + bits);
        let rooms = heads::bytes(segments, plan.segment_bytes);
        let (map, found_bytes) = files.map(rooms_at + rooms, MAGIC)?;
        let left = (0..segments).filter_map(|id| Some((id, room_of(entry(&map, id))?)));
        let heads = Heads::new(&map, rooms_at, segments, plan.segment_bytes, left);
        let mut restart = Restart {
            map,
            files,
            segment_bytes: plan.segment_bytes,
            segments,
            left: Left::Nothing,
            keeps_saved: true,
            clock_ran_back: false,
            heads,
            restored_items: AtomicU64::new(0),
            lost_segments: AtomicU64::new(0),
            remarks: Mutex::default(),
        };
        let medium = crc32c(config.medium.to_string().as_bytes());
        restart.left = restart.find_left(medium, values, found_bytes);
        restart.keeps_saved = restart.load(at::SEGMENTS) == restart.segments;
        if restart.left == Left::Snapshot && !restart.keeps_saved {
            restart.map.zero(HEADER_BYTES, restart.map.len() - HEADER_BYTES);
        }
        restart.clock_ran_back = restart.load(at::LAST_SEEN) > now.0
            && !mutation_site!("a clock that ran back is noticed");
        if let (Left::Nothing, Some(reason)) =
            (restart.left, restart.reason_for_nothing(medium, values))
        {
            restart.remark(format!("nothing of the last run is restored: {reason}"));
        }
        if restart.clock_ran_back && restart.left != Left::Nothing {
            let reason = "the wall clock ran back, so no item that expires is restored";
            restart.remark(reason.to_owned());
        }
        if restart.left == Left::Nothing {
            restart.start_anew(medium, values).map_err(|cause| OpenError::RestartDir {
                tenant: config.name.clone(),
                path: restart.files.path().to_owned(),
                cause,
            })?;
        }
        Ok(restart)
    }

    /// Returns the bytes of a segment of the cache that a restart directory holds, if it holds one.
    pub(crate) fn saved_segment_bytes(files: &dyn RestartFiles) -> Option<u64> {
        let mut header = [0; at::SEGMENT_BYTES as usize + 8];
        files.read_map(&mut header).ok()?;
        let (_, bytes) = header.split_last_chunk()?;
        header.starts_with(&MAGIC).then(|| u64::from_le_bytes(*bytes))
    }

    fn load(&self, at: u64) -> u32 {
        self.map.load_u32(at, Ordering::SeqCst)
    }

    fn store(&self, at: u64, value: u32) {
        self.map.store_u32(at, value, Ordering::SeqCst);
    }

    /// Stores a number together with its check, in one word: a process that dies leaves the old
    /// pair or the new one.
    fn store_checked(&self, at: u64, value: u32, salt: u32) {
        let word = u64::from(value) | u64::from(check_of(value, salt)) << 32;
        self.map.store_u64(at, word, Ordering::SeqCst);
    }

    /// Returns true if a number and its check belong together.
    fn is_intact(&self, at: u64, salt: u32) -> bool {
        self.load(at + 4) == check_of(self.load(at), salt)
    }

    fn find_left(&self, medium: u32, values: &Values, found_bytes: u64) -> Left {
        let (flushed, _) = self.flushes();
        let check = self.map.load_u64(at::FLUSHED_CHECK, Ordering::SeqCst);
        let life = self.map.load_u64(at::LIFE, Ordering::SeqCst);
        let ours = self.load(at::FORMAT) == FORMAT
            && self.map.load_u64(at::SEGMENT_BYTES, Ordering::SeqCst) == self.segment_bytes
            && self.load(at::MEDIUM) == medium
            && self.map.load_u64(at::MAP_BYTES, Ordering::SeqCst) == found_bytes
            && check == !flushed
            && flushed < SEQUENCE_MAX
            && self.is_intact(at::LAST_SEEN, TIME_CHECK)
            && self.is_intact(at::FLUSH_AT, ORDER_CHECK)
            && values.label().is_none_or(|label| label == Label { format: FORMAT, life });
        match self.load(at::STATE) {
            CLEAN if ours && self.files.has_snapshot() => Left::Snapshot,
            RUNNING
                if ours
                    && values.is_elsewhere()
                    && self.load(at::SEGMENTS) == self.segments
                    && (self.load(at::BOOT) == self.files.boot()
                        || mutation_site!("segments of another boot are not restored")) =>
            {
                Left::Sealed
            }
            _ => Left::Nothing,
        }
    }

    /// Reason for which the remains of the last process are not used; none if there are none.
    fn reason_for_nothing(&self, medium: u32, values: &Values) -> Option<String> {
        let state = self.load(at::STATE);
        let (flushed, _) = self.flushes();
        let check = self.map.load_u64(at::FLUSHED_CHECK, Ordering::SeqCst);
        let reason = match state {
            EMPTY => return None,
            CLEAN | RUNNING if self.load(at::FORMAT) != FORMAT => {
                let format = self.load(at::FORMAT);
                return Some(format!("it has format {format}, and this version writes {FORMAT}"));
            }
            CLEAN | RUNNING if self.load(at::MEDIUM) != medium => "the medium is another one",
            CLEAN | RUNNING
                if self.map.load_u64(at::SEGMENT_BYTES, Ordering::SeqCst) != self.segment_bytes =>
            {
                "segments have another size"
            }
            CLEAN | RUNNING if check != !flushed || flushed >= SEQUENCE_MAX => {
                "the map of what is void is damaged"
            }
            CLEAN if !self.files.has_snapshot() => "the snapshot is missing",
            RUNNING if !values.is_elsewhere() => {
                "the last process did not stop in order, and DRAM does not outlive it"
            }
            RUNNING if self.load(at::BOOT) != self.files.boot() => {
                "the machine was started anew before the last process had stopped in order"
            }
            RUNNING if self.load(at::SEGMENTS) != self.segments => {
                "the quota has changed, and the last process did not stop in order"
            }
            CLEAN | RUNNING => "the map or the medium is not the one that was left",
            _ => "the map is damaged",
        };
        Some(reason.to_owned())
    }

    /// Notes why something that was saved is not used.
    pub(crate) fn remark(&self, reason: String) {
        self.remarks.lock().push(reason);
    }

    /// Returns why something that was saved is not used.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.remarks.lock().clone()
    }

    /// Counts saved segments that were not restored.
    pub(crate) fn lose_segments(&self, segments: u64) {
        self.lost_segments.fetch_add(segments, Ordering::Relaxed);
    }

    /// Returns the number of saved segments that were not restored.
    pub(crate) fn lost_segments(&self) -> u64 {
        self.lost_segments.load(Ordering::Relaxed)
    }

    /// Voids all that was saved.
    fn start_anew(&self, medium: u32, values: &Values) -> std::io::Result<()> {
        self.store(at::STATE, EMPTY);
        let life = self.files.new_life();
        values.write_label(&Label { format: FORMAT, life })?;
        self.map.zero(HEADER_BYTES, self.map.len() - HEADER_BYTES);
        self.map.store_u64(at::LIFE, life, Ordering::SeqCst);
        self.map.store_u64(at::SEGMENT_BYTES, self.segment_bytes, Ordering::SeqCst);
        self.map.store_u64(at::FLUSHED_BELOW, 0, Ordering::SeqCst);
        self.map.store_u64(at::FLUSHED_CHECK, !0, Ordering::SeqCst);
        self.map.store_u64(at::MAP_BYTES, self.map.len(), Ordering::SeqCst);
        self.store_checked(at::FLUSH_AT, 0, ORDER_CHECK);
        self.store_checked(at::LAST_SEEN, 0, TIME_CHECK);
        self.store(at::MEDIUM, medium);
        self.store(at::FORMAT, FORMAT);
        Ok(())
    }

    /// Returns the sequence number from which the last process numbered segments and tokens; 0 if
    /// that is not known.
    pub(crate) fn first_sequence(&self) -> u64 {
        let first = self.map.load_u64(at::FIRST_SEQUENCE, Ordering::SeqCst);
        let check = self.map.load_u64(at::FIRST_CHECK, Ordering::SeqCst);
        if check == !first { first } else { 0 }
    }

    /// Records that the cache is in use, with segments numbered from `first_sequence` on: from now
    /// on the snapshot is void.
    pub(crate) fn begin(&self, now: Seconds, first_sequence: u64) -> std::io::Result<()> {
        self.store_checked(at::LAST_SEEN, now.0, TIME_CHECK);
        self.map.store_u64(at::FIRST_SEQUENCE, first_sequence, Ordering::SeqCst);
        self.map.store_u64(at::FIRST_CHECK, !first_sequence, Ordering::SeqCst);
        self.store(at::BOOT, self.files.boot());
        self.store(at::SEGMENTS, self.segments);
        self.map.store_u64(at::MAP_BYTES, self.map.len(), Ordering::SeqCst);
        self.store(at::STATE, RUNNING);
        self.map.persist(0, HEADER_BYTES as usize);
        self.files.remove_snapshot()
    }

    /// Records that the snapshot whose index has this checksum is complete.
    pub(crate) fn end(&self, snapshot_checksum: u32, now: Seconds) {
        self.store_checked(at::LAST_SEEN, now.0, TIME_CHECK);
        self.store(at::SNAPSHOT_CHECKSUM, snapshot_checksum);
        self.store(at::STATE, CLEAN);
        self.map.persist(0, HEADER_BYTES as usize);
    }

    /// Returns the checksum of the valid snapshot.
    pub(crate) fn snapshot_checksum(&self) -> u32 {
        self.load(at::SNAPSHOT_CHECKSUM)
    }

    fn entry(&self, id: u32) -> u64 {
        entry(&self.map, id)
    }

    /// Changes a segment's entry, which gives its room back.
    fn set_entry(&self, id: u32, entry: u64) {
        let before = self.entry(id);
        self.map.store_u64(entry_at(id), entry, Ordering::SeqCst);
        if let Some(room) = room_of(before) {
            self.heads.release(id, room);
        }
    }

    /// Returns the bytes of a segment's bits.
    fn bits_bytes(&self) -> u64 {
        self.segment_bytes / BIT_BYTES / 8
    }

    fn bits_at(&self, id: u32) -> u64 {
        HEADER_BYTES + u64::from(self.segments) * 16 + u64::from(id) * self.bits_bytes()
    }

    fn count_at(&self, id: u32) -> u64 {
        HEADER_BYTES + u64::from(self.segments) * 8 + u64::from(id) * 8
    }

    /// Returns true if the number of set bits equals the count of bits ever set. A process that
    /// died between setting a bit and counting it leaves them unequal, and so does most damage.
    pub(crate) fn adds_up(&self, id: u32) -> bool {
        let (from, bytes) = (self.bits_at(id), self.bits_bytes());
        let set: u64 = (from..from + bytes)
            .step_by(8)
            .map(|at| u64::from(self.map.load_u64(at, Ordering::SeqCst).count_ones()))
            .sum();
        set == self.map.load_u64(self.count_at(id), Ordering::SeqCst)
            || mutation_site!("void records are counted")
    }

    /// Returns the number of segments in the map.
    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    /// Returns the sequence number under which a segment's saved form is valid, if it is.
    pub(crate) fn saved_sequence(&self, id: u32) -> Option<u64> {
        let entry = self.entry(id);
        let sequence = if room_of(entry).is_some() { entry % SEQUENCE_MAX } else { entry };
        (sequence != 0).then_some(sequence)
    }

    /// Returns true if a segment was open when its process died, and has a room.
    pub(crate) fn is_open(&self, id: u32) -> bool {
        room_of(self.entry(id)).is_some()
    }

    /// Returns what was kept of a segment that was open when its process died.
    pub(crate) fn kept_heads(&self, id: u32, sequence: u64) -> Option<Closing> {
        self.heads.read(Life { id, sequence }, room_of(self.entry(id))?)
    }

    /// Keeps the record of a large value in an open segment. Returns false if the map has no more
    /// room for that segment.
    pub(crate) fn keep_head(&self, life: Life, head: Head, record: &[u8]) -> bool {
        thread::step();
        if life.id >= self.segments {
            return true;
        }
        let kept = self.heads.keep(life, head, record);
        if let Kept::In(room) = kept {
            thread::step();
            let entry = OPEN | u64::from(room) << SEQUENCE_MAX.trailing_zeros() | life.sequence;
            self.map.store_u64(entry_at(life.id), entry, Ordering::SeqCst);
        }
        kept != Kept::Full
    }

    /// Voids a segment's saved form, and clears the bits of its records.
    pub(crate) fn forget_segment(&self, id: u32) {
        thread::step();
        if id < self.segments {
            self.set_entry(id, 0);
            thread::step();
            self.map.zero(self.bits_at(id), self.bits_bytes());
            self.map.store_u64(self.count_at(id), 0, Ordering::SeqCst);
        }
    }

    /// Makes a segment's saved form valid.
    pub(crate) fn keep_segment(&self, id: u32, sequence: u64) {
        thread::step();
        assert!(sequence != 0, "segment {id} is to be kept as one that is not");
        if id < self.segments {
            self.set_entry(id, sequence);
        }
    }

    fn bit(&self, id: u32, record_at: u64) -> (u64, u64) {
        let bit = record_at / BIT_BYTES;
        (self.bits_at(id) + bit / 64 * 8, 1 << (bit % 64))
    }

    /// Voids the record that starts at this byte of a segment's records.
    pub(crate) fn forget_record(&self, id: u32, record_at: u64) {
        thread::step();
        if id < self.segments {
            let (word, bit) = self.bit(id, record_at);
            let before = self.map.fetch_or_u64(word, bit, Ordering::SeqCst);
            if before & bit == 0 {
                thread::step();
                self.map.fetch_add_u64(self.count_at(id), 1, Ordering::SeqCst);
            }
        }
    }

    /// Returns true if the record that starts at this byte of a segment's records is void.
    pub(crate) fn is_forgotten(&self, id: u32, record_at: u64) -> bool {
        let (word, bit) = self.bit(id, record_at);
        self.map.load_u64(word, Ordering::SeqCst) & bit != 0
    }

    /// Records a flush: segments with a lower sequence number are void.
    pub(crate) fn record_flush(&self, below: u64) {
        thread::step();
        self.map.store_u64(at::FLUSHED_BELOW, below, Ordering::SeqCst);
        thread::step();
        self.map.store_u64(at::FLUSHED_CHECK, !below, Ordering::SeqCst);
        self.store_checked(at::FLUSH_AT, 0, ORDER_CHECK);
    }

    /// Records a flush that is ordered for later.
    pub(crate) fn record_flush_at(&self, at_s: u32) {
        thread::step();
        self.store_checked(at::FLUSH_AT, at_s, ORDER_CHECK);
    }

    /// Returns the flush that was carried out, and the one ordered for later.
    pub(crate) fn flushes(&self) -> (u64, u32) {
        (self.map.load_u64(at::FLUSHED_BELOW, Ordering::SeqCst), self.load(at::FLUSH_AT))
    }

    /// Records the time, so that a clock that runs backwards is detected.
    pub(crate) fn note_time(&self, now: Seconds) {
        if self.load(at::LAST_SEEN) < now.0 {
            self.store_checked(at::LAST_SEEN, now.0, TIME_CHECK);
        }
    }

    /// Returns the number of items restored at the start.
    pub(crate) fn restored_items(&self) -> u64 {
        self.restored_items.load(Ordering::Relaxed)
    }

    pub(crate) fn set_restored_items(&self, items: u64) {
        self.restored_items.store(items, Ordering::Relaxed);
    }
}

fn entry_at(id: u32) -> u64 {
    HEADER_BYTES + u64::from(id) * 8
}

/// Returns a segment's entry.
fn entry(map: &Direct, id: u32) -> u64 {
    map.load_u64(entry_at(id), Ordering::SeqCst)
}

/// Returns the room that an entry names, if it is that of an open segment.
fn room_of(entry: u64) -> Option<u32> {
    (entry & OPEN != 0).then_some(((entry & !OPEN) / SEQUENCE_MAX) as u32)
}

/// Returns the check of a number in the header.
fn check_of(value: u32, salt: u32) -> u32 {
    crc32c(&value.to_le_bytes()) ^ salt
}
