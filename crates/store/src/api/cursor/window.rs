//! Read-ahead of a cursor. Entries are taken together so that their values, where these lie in
//! records, are read together: all reads that would wait for a disk begin before the first is
//! waited for, and neighbours in a file are one read.
//!
//! **When.** A reader that finds all values in memory waits for nothing and needs no window. Values
//! are therefore read one by one until one had to be waited for, or lies beside the one before.
//! Then as many entries are taken as the cursor's limit is sure to need or, without a limit, a few,
//! and twice as many each time. The values that are read and never shown are thus about as many as
//! those shown, at most.
//!
//! A window also helps a reader that finds values in the row cache. One value is looked for there
//! now and then. If it is there, entries are taken together as well, so that the processor fetches
//! the index and the entries of later keys while it copies earlier values.
//!
//! **Errors** belong to the entry that has them, and are returned when the cursor comes to it.
//! Beginning a read returns none; a read of several values that fails is repeated for each value by
//! itself.

use std::ops::Range;

use entresol_base::Seconds;

use crate::StoreError;
use crate::cache::block::Charge;
use crate::cache::row::RowCache;
use crate::engine::Core;
use crate::engine::dead_keys::PASSED_MIN;
use crate::engine::read::Waits;
use crate::types::{Expiry, KvsId, RecordPlace, SegmentNumber, Sequence, ValuePlace};
use crate::version::merged::{Merged, TakenVersion};
use crate::version::view::View;

/// Values that are read one by one at first, unless the cursor has a limit.
const ALONE_AT_FIRST: u32 = 2;
/// Period of checks among values that are read one by one. Of each period, the first `LOOKS` reads
/// check if the value is in memory, or a single one where most values are: a read with the check
/// takes a sixth longer.
const ALONE_AT_ONCE: u32 = 32;
const LOOKS: u32 = 8;
/// Entries that are taken ahead the first time, and the most that are taken at any time.
const ENTRIES_MIN: usize = 4;
const ENTRIES_MAX: usize = 32;
/// Most keys to step over per wanted entry. Deleted keys are skipped, but not without bound.
const STEPS_FOR_EACH: usize = 8;
/// Approximate bytes that a window takes at most, and the part of a store's memory that it may be.
const BYTES_MAX: u64 = 256 << 10;
const MEMORY_PART: u64 = 256;
/// Most bytes of one read for several values.
const PIECE_BYTES_MAX: u64 = 64 << 10;
/// Most unwanted bytes between two values of one read. Disks transfer whole pages anyway.
const GAP_BYTES_MAX: u64 = 4096;
/// Entries ahead of a cursor.
#[derive(Debug, Default)]
pub(super) struct Window {
    entries: Vec<Entry>,
    /// Index of the next entry.
    next: usize,
    keys: Vec<u8>,
    /// Values, and the contents of pieces that were read.
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Entries whose values lie in records, and the numbers of their versions.
    apart: Vec<(usize, Sequence)>,
    /// Entries whose values lie in pieces, in the order of the pieces.
    order: Vec<usize>,
    /// Record of a value that was read by itself.
    record: Vec<u8>,
    value: Value,
    /// Error that occurred behind the last entry.
    failure: Option<StoreError>,
    /// True if the walk ends behind the last entry.
    is_over: bool,
    charge: Option<(u64, Charge)>,
    pace: Pace,
}

#[derive(Debug)]
struct Entry {
    key: Range<usize>,
    expiry: Expiry,
    value: EntryPlace,
}

/// Location of an entry's value.
#[derive(Debug, Clone)]
enum EntryPlace {
    /// Range of `bytes`.
    Here(Range<usize>),
    /// Record that is read when its entry is shown.
    Apart(RecordPlace),
    /// Record that lies at this offset of its file, in the piece with this index.
    In(RecordPlace, u64, usize),
}

/// A part of a segment that is read at once.
#[derive(Debug)]
struct Piece {
    segment: SegmentNumber,
    offset: u64,
    end: u64,
    values: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Begun,
    /// The piece was read, and begins at this index of `bytes`.
    Read(usize),
    /// The piece cannot be read as a whole.
    Failed,
}

/// Location of the current value.
#[derive(Debug)]
enum Value {
    In(Range<usize>),
    /// Bytes of `record` from this index on.
    InRecord(usize),
}

impl Default for Value {
    fn default() -> Value {
        Value::In(0..0)
    }
}

/// History of the reads of values, which decides how many entries are taken next.
#[derive(Debug, Default)]
struct Pace {
    /// Values that were read by themselves since the walk began or a window was last filled.
    alone: u32,
    /// Values from runs that came up one by one in that time, whether read or found in the row
    /// cache.
    flushed: u32,
    /// True if it pays to take entries ahead.
    is_wanted: bool,
    /// Number of entries that were taken last.
    entries: usize,
    /// The last value that was read by itself, and the one before it.
    last: Option<RecordPlace>,
    before: Option<RecordPlace>,
}

/// Sources and settings from which a window takes entries.
pub(super) struct WindowSource<'a> {
    pub(super) core: &'a Core,
    pub(super) view: &'a View,
    pub(super) seconds: Seconds,
    pub(super) kvs: KvsId,
    pub(super) prefix: &'a [u8],
}

impl WindowSource<'_> {
    /// Returns true if a key has the cursor's prefix. The empty prefix is an extra case because
    /// comparing with it is expensive: it costs hundreds of cycles on processors that must recover
    /// from a masked load at an unmapped address.
    #[inline]
    pub(super) fn has_prefix(&self, key: &[u8]) -> bool {
        self.prefix.is_empty() || key.starts_with(self.prefix)
    }
}

impl Window {
    /// Forgets everything, for a walk that begins anew.
    pub(super) fn clear(&mut self) {
        self.empty();
        self.pace = Pace::default();
    }

    fn empty(&mut self) {
        self.entries.clear();
        self.pieces.clear();
        (self.next, self.failure, self.is_over) = (0, None, false);
    }

    /// Returns true if the next key comes from the window.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        !self.entries.is_empty() || self.is_over || self.failure.is_some()
    }

    /// Returns the key of the current entry, if there is one in the window.
    pub(super) fn key(&self) -> Option<&[u8]> {
        let entry = self.entries.get(self.next.checked_sub(1)?)?;
        self.keys.get(entry.key.clone())
    }

    /// Returns the value of the current entry.
    pub(super) fn value(&self) -> &[u8] {
        match &self.value {
            Value::In(range) => self.bytes.get(range.clone()),
            Value::InRecord(from) => self.record.get(*from..),
        }
        .unwrap_or_default()
    }

    /// Notes that the next value is read by itself. Returns true if that read should check if it
    /// waits for a disk.
    #[inline]
    pub(super) fn looks(&mut self, place: RecordPlace, waits: &Waits) -> bool {
        let Pace { alone, before, last, .. } = &mut self.pace;
        let number = *alone % ALONE_AT_ONCE;
        *alone = alone.wrapping_add(1);
        *before = last.replace(place);
        number == 1 || (number < LOOKS && waits.are_usual())
    }

    /// Returns true if the next value from a run should be looked for in the row cache.
    #[inline]
    pub(super) fn looks_in_cache(&mut self) -> bool {
        let number = self.pace.flushed;
        self.pace.flushed = number.wrapping_add(1);
        self.pace.is_wanted || number.is_multiple_of(ALONE_AT_ONCE)
    }

    /// Notes that the value was in the row cache.
    pub(super) fn note_cached(&mut self) {
        self.pace.alone = self.pace.alone.wrapping_add(1);
        self.pace.is_wanted = true;
    }

    /// Notes the result of a checked read, of a value in a segment whose reads may wait for a disk.
    pub(super) fn note(&mut self, had_to_wait: bool, waits: &Waits) {
        waits.note(had_to_wait);
        let Pace { before, last, .. } = self.pace;
        let are_neighbours = last.zip(before).is_some_and(|(last, before)| {
            let end_of = |place: RecordPlace| place.offset + u64::from(place.bytes);
            let is_near = last.offset == end_of(before) || end_of(last) == before.offset;
            is_near && last.segment == before.segment
        });
        self.pace.is_wanted |= had_to_wait || are_neighbours;
    }

    /// Returns the number of entries to take ahead now, at most `limit`; 0 for none.
    #[inline]
    pub(super) fn wanted(&mut self, limit: Option<u64>) -> usize {
        if self.pace.is_wanted { self.pace.wanted(limit) } else { 0 }
    }

    /// Takes entries, and begins to read their values. Ends once many dead keys in a row were
    /// passed, of which there are `dead` before. Returns the number of those that it ends behind.
    pub(super) fn fill(
        &mut self,
        merged: &mut Merged,
        of: &WindowSource<'_>,
        (most, mut dead): (usize, u64),
    ) -> u64 {
        self.empty();
        self.keys.clear();
        self.bytes.clear();
        (self.pace.entries, self.pace.alone, self.pace.flushed) = (most, 0, 0);
        let bytes_max = (of.core.options.memory_bytes / MEMORY_PART).min(BYTES_MAX);
        let mut apart_bytes = 0;
        for _ in 0..most * STEPS_FOR_EACH {
            let bytes = (self.keys.len() + self.bytes.len()) as u64 + apart_bytes;
            if self.entries.len() == most || bytes >= bytes_max || dead >= PASSED_MIN {
                break;
            }
            let before = self.entries.len();
            let taken =
                if merged.take_simply() { Ok(Some(TakenVersion::SIMPLE)) } else { merged.take() };
            match taken {
                Ok(Some(_)) if !of.has_prefix(merged.key()) => self.is_over = true,
                Ok(Some(taken)) => apart_bytes += self.add(merged, of, &taken, bytes_max / 2),
                Ok(None) => self.is_over = true,
                Err(error) => self.failure = Some(error),
            }
            if self.is_over || self.failure.is_some() {
                break;
            }
            dead = if self.entries.len() > before { 0 } else { dead + 1 };
        }
        let are_cached = self.find_cached(of);
        self.cut();
        self.begin(of);
        self.pace.is_wanted |= are_cached;
        dead
    }

    /// Adds an entry unless its key is deleted. Returns the bytes of its record if that is to be
    /// read.
    fn add(
        &mut self,
        merged: &Merged,
        of: &WindowSource<'_>,
        taken: &TakenVersion,
        alone_bytes: u64,
    ) -> u64 {
        let TakenVersion { version, is_deleted } = taken;
        if *is_deleted || version.value == ValuePlace::Gone {
            return 0;
        }
        let from = self.keys.len();
        self.keys.extend_from_slice(merged.key());
        let key = from..self.keys.len();
        let value = match version.value {
            // A missing segment is an error of this entry, and returned when the cursor comes to
            // it.
            ValuePlace::Apart(place) => {
                let segment = of.view.segment(place.segment).ok();
                let waiting = segment.filter(|segment| segment.may_wait());
                match waiting.and_then(|segment| segment.find(place.offset)) {
                    Some(lies) => EntryPlace::In(place, lies, 0),
                    None => EntryPlace::Apart(place),
                }
            }
            _ => {
                let from = self.bytes.len();
                self.bytes.extend_from_slice(merged.value());
                EntryPlace::Here(from..self.bytes.len())
            }
        };
        let (value, apart_bytes) = match value {
            EntryPlace::In(place, ..) if u64::from(place.bytes) > alone_bytes => {
                (EntryPlace::Apart(place), 0)
            }
            EntryPlace::In(place, ..) => {
                let cache = &of.core.caches.entries;
                cache.prefetch(&cache.name(of.kvs, merged.key()));
                self.apart.push((self.entries.len(), version.sequence));
                (value, u64::from(place.bytes))
            }
            value => (value, 0),
        };
        self.entries.push(Entry { key, expiry: version.expiry, value });
        apart_bytes
    }

    /// Takes values from the row cache, and puts the other entries into `order`. Returns true if
    /// more than half of all entries were cached.
    fn find_cached(&mut self, of: &WindowSource<'_>) -> bool {
        let Window { entries, keys, bytes, apart, order, .. } = self;
        let cache: &RowCache = &of.core.caches.entries;
        let name =
            |entry: &Entry| cache.name(of.kvs, keys.get(entry.key.clone()).unwrap_or_default());
        for (number, _) in apart.iter() {
            entries.get(*number).map(name).iter().for_each(|name| cache.prefetch_entry(name));
        }
        let mut found = 0;
        for (number, version) in apart.drain(..) {
            let Some(entry) = entries.get_mut(number) else { continue };
            let from = bytes.len();
            if cache.peek(&name(entry), version, bytes) {
                entry.value = EntryPlace::Here(from..bytes.len());
                found += 1;
            } else {
                order.push(number);
            }
        }
        found * 2 > entries.len()
    }

    /// Groups the records that are to be read into pieces.
    fn cut(&mut self) {
        let Window { entries, pieces, order, .. } = self;
        let place_of = |entry: &Entry| match entry.value {
            EntryPlace::In(place, lies, _) => Some((place.segment, lies)),
            _ => None,
        };
        order.sort_unstable_by_key(|&number| entries.get(number).and_then(place_of));
        for number in order.drain(..) {
            let Some(Entry { value: EntryPlace::In(place, lies, piece), .. }) =
                entries.get_mut(number)
            else {
                continue;
            };
            let place = RecordPlace { offset: *lies, ..*place };
            if !pieces.last_mut().is_some_and(|last| last.take(place)) {
                pieces.push(Piece::of(place));
            }
            *piece = pieces.len() - 1;
        }
    }

    /// Begins to read all pieces, in the order in which they are shown. Pieces that are in memory
    /// are read by that.
    fn begin(&mut self, of: &WindowSource<'_>) {
        let values: u32 = self.pieces.iter().map(|piece| piece.values).sum();
        let bytes: u64 = self.pieces.iter().map(Piece::bytes).sum();
        self.bytes.reserve_exact(bytes as usize);
        self.count(of);
        let mut begun = 0;
        for entry in &self.entries {
            let EntryPlace::In(_, _, piece) = entry.value else { continue };
            let Some(piece) = self.pieces.get_mut(piece) else { continue };
            let segment = of.view.segment(piece.segment);
            let (State::New, Ok(segment)) = (piece.state, segment) else { continue };
            let at = self.bytes.len();
            piece.state =
                match segment.try_read(piece.offset, piece.bytes() as usize, &mut self.bytes) {
                    true => State::Read(at),
                    false => State::Begun,
                };
            begun += u32::from(piece.state == State::Begun);
        }
        let are_neighbours = values > 0 && self.pieces.len() * 2 <= values as usize;
        self.pace.is_wanted = begun > 0 || are_neighbours;
    }

    /// Charges the window's buffers to the store's memory budget.
    fn count(&mut self, of: &WindowSource<'_>) {
        let bytes = (self.keys.capacity() + self.bytes.capacity()) as u64;
        if self.charge.as_ref().is_none_or(|(charged, _)| *charged < bytes) {
            self.charge = None;
            self.charge = Some((bytes, of.core.files.pages.charge(bytes)));
        }
    }

    /// Advances to the next entry to show. Returns false if there is none in the window.
    ///
    /// # Errors
    /// Fails if the value of the entry cannot be read or is damaged, or if what follows the last
    /// entry cannot be read.
    pub(super) fn go_on(&mut self, of: &WindowSource<'_>) -> Result<bool, StoreError> {
        while let Some(entry) = self.entries.get(self.next) {
            self.next += 1;
            let Entry { key, expiry, value } = entry;
            if of.core.files.time.has_ended_at(*expiry, Some(of.seconds)) {
                continue;
            }
            let (key, value) = (key.clone(), value.clone());
            self.value = match value {
                EntryPlace::Here(range) => Value::In(range),
                EntryPlace::Apart(place) => self.read_alone(of, key, place)?,
                EntryPlace::In(place, lies, piece) => match self.read_piece(of, piece)? {
                    Some(zero) => self.find_in(of, key, place, zero.wrapping_add(lies as usize))?,
                    None => self.read_alone(of, key, place)?,
                },
            };
            return Ok(true);
        }
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if !self.is_over {
            self.empty();
        }
        Ok(false)
    }

    /// Returns true if nothing follows the window.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits for a piece that was not read yet. Returns the index in `bytes` that offset 0 of its
    /// segment would have, or `None` if the piece can only be read value by value.
    fn read_piece(
        &mut self,
        of: &WindowSource<'_>,
        number: usize,
    ) -> Result<Option<usize>, StoreError> {
        let Some(piece) = self.pieces.get_mut(number) else { return Ok(None) };
        if matches!(piece.state, State::New | State::Begun) {
            let (at, len) = (self.bytes.len(), piece.bytes() as usize);
            let segment = of.view.segment(piece.segment)?;
            piece.state = match segment.read_begun(piece.offset, len, &mut self.bytes) {
                Ok(()) => State::Read(at),
                Err(error) if piece.values == 1 => return Err(error),
                Err(_) => State::Failed,
            };
        }
        Ok(match piece.state {
            State::Read(at) => Some(at.wrapping_sub(piece.offset as usize)),
            _ => None,
        })
    }

    /// Finds the value in a record that was read with its piece.
    fn find_in(
        &self,
        of: &WindowSource<'_>,
        key: Range<usize>,
        place: RecordPlace,
        at: usize,
    ) -> Result<Value, StoreError> {
        let end = at + place.bytes as usize;
        let record = self.bytes.get(at..end).unwrap_or_default();
        let key = self.keys.get(key).unwrap_or_default();
        let value = of.view.segment(place.segment)?.value_in(place, (of.kvs, key), record)?;
        Ok(Value::In(end - value.len()..end))
    }

    fn read_alone(
        &mut self,
        of: &WindowSource<'_>,
        key: Range<usize>,
        place: RecordPlace,
    ) -> Result<Value, StoreError> {
        let key = self.keys.get(key).unwrap_or_default();
        self.record.clear();
        let segment = of.view.segment(place.segment)?;
        let value_bytes = segment.append_value_of(place, (of.kvs, key), &mut self.record)?;
        Ok(Value::InRecord(self.record.len() - value_bytes))
    }
}

impl Pace {
    fn wanted(&self, limit: Option<u64>) -> usize {
        let wanted = match limit {
            Some(limit) => usize::try_from(limit).unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX),
            None if self.entries == 0 && self.alone < ALONE_AT_FIRST => 0,
            None => (2 * self.entries).clamp(ENTRIES_MIN, ENTRIES_MAX),
        };
        // A single entry gains nothing from a window.
        if wanted > 1 { wanted } else { 0 }
    }
}

impl Piece {
    fn of(place: RecordPlace) -> Piece {
        let RecordPlace { segment, offset, bytes } = place;
        let end = offset.saturating_add(u64::from(bytes));
        Piece { segment, offset, end, values: 1, state: State::New }
    }

    fn bytes(&self) -> u64 {
        self.end - self.offset
    }

    /// Extends the piece by a record that lies behind it, if that is near. The gap is no larger
    /// than the piece, so at most half of what is read is unwanted.
    fn take(&mut self, place: RecordPlace) -> bool {
        let next = Piece::of(place);
        let gap_max = GAP_BYTES_MAX.min(self.bytes());
        let is_near = next.segment == self.segment
            && next.offset >= self.end
            && next.offset - self.end <= gap_max
            && next.end - self.offset <= PIECE_BYTES_MAX;
        if is_near {
            (self.end, self.values) = (next.end, self.values + 1);
        }
        is_near
    }
}
