//! Entries ahead of a cursor, which are taken together so that their values, where these lie apart,
//! are read together: all reads that would have to wait for a disk are begun before the first is
//! waited for, and neighbours in a file are one read.
//!
//! **When.** Not for who finds what he reads in memory, since he waits for nothing: values are read
//! one by one, until one had to be waited for or lies beside the one before. Then as many entries
//! are taken as are sure to be wanted, or if nobody has said that, a few, and twice as many each
//! time. So what is read and never shown is no more than what was shown, about.
//!
//! Nor for who finds them in the cache of entries by himself: one is looked for there now and then,
//! and if it is there, entries are taken together as well, so that the processor fetches what leads
//! to the others, and what they are, while it copies those before.
//!
//! **Errors** belong to the entry that has them, and are told when the cursor comes to it.
//! Beginning to read tells of none; a read of several values that fails is done again for each by
//! itself.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::merged::{Merged, Taken};
use crate::StoreError;
use crate::cache::block::Charge;
use crate::cache::row::RowCache;
use crate::types::{Expiry, KvsId, RecordPlace, SegmentNumber, Sequence, ValuePlace};
use crate::version::core::Core;
use crate::version::view::View;

/// So many values are read one by one at first, unless it is known how many are wanted.
const ALONE_AT_FIRST: u32 = 2;
/// Of so many values that are read one by one it is found out of the first few whether they are in
/// memory, or of one only where most are: to look takes longer than to read by a sixth.
const ALONE_AT_ONCE: u32 = 32;
const LOOKS: u32 = 8;
/// After so many that were in memory, and none that was not, most are.
const LOOKS_IN_VAIN: u32 = 64;
/// So many entries are taken ahead first, and at most.
const ENTRIES_MIN: usize = 4;
const ENTRIES_MAX: usize = 32;
/// Keys that are gone are passed over, but no more than so many for each entry that is wanted.
const STEPS_FOR_EACH: usize = 8;
/// What a window takes at most, about, and the part of a store's memory that it may be.
const BYTES_MAX: u64 = 256 << 10;
const MEMORY_PART: u64 = 256;
/// Several values are one read if it has no more bytes.
const PIECE_BYTES_MAX: u64 = 64 << 10;
/// Between two of them there are at most so many bytes that nobody wants: disks move pages.
const GAP_BYTES_MAX: u64 = 4096;
/// Entries ahead of a cursor.
#[derive(Debug, Default)]
pub(super) struct Window {
    entries: Vec<Entry>,
    /// The entry that comes next.
    next: usize,
    keys: Vec<u8>,
    /// Values, and what was read of pieces.
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Which entries have values that lie apart, and which versions.
    apart: Vec<(usize, Sequence)>,
    /// Which of them have values in pieces, in the order of these.
    order: Vec<usize>,
    /// A value that was read by itself.
    record: Vec<u8>,
    value: Value,
    /// What went wrong behind the last entry.
    failure: Option<StoreError>,
    /// There is nothing behind the last entry.
    is_over: bool,
    charge: Option<(u64, Charge)>,
    pace: Pace,
}

#[derive(Debug)]
struct Entry {
    key: Range<usize>,
    expiry: Expiry,
    value: Lies,
}

/// Where the value of an entry is.
#[derive(Debug, Clone)]
enum Lies {
    /// Among the bytes.
    Here(Range<usize>),
    /// In a record that is read when it is wanted.
    Apart(RecordPlace),
    /// In a record of a piece.
    In(RecordPlace, usize),
}

/// A part of a segment.
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
    /// It was read to here among the bytes.
    Read(usize),
    /// It cannot be read as a whole.
    Failed,
}

/// Where the value is that is shown.
#[derive(Debug)]
enum Value {
    In(Range<usize>),
    /// In what was read by itself, from here on.
    InRecord(usize),
}

impl Default for Value {
    fn default() -> Value {
        Value::In(0..0)
    }
}

/// How values were found that were read, and how many are to be read next.
#[derive(Debug, Default)]
struct Pace {
    /// Values that were read by themselves since the walk began, or entries were taken ahead.
    alone: u32,
    /// Those of them, and of those that were in the cache of entries, to which runs lead.
    flushed: u32,
    /// Whether it is worth it to take entries ahead.
    is_wanted: bool,
    /// How many were taken last.
    entries: usize,
    /// What was read last by itself, and what before that.
    last: Option<RecordPlace>,
    before: Option<RecordPlace>,
}

/// Whether those who read values had to wait for disks lately. Who looks at the same time as others
/// may not count.
#[derive(Debug, Default)]
pub(crate) struct Waits(AtomicU32);

impl Waits {
    #[inline]
    fn are_usual(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    fn note(&self, had_to_wait: bool) {
        let left = self.0.load(Relaxed);
        let next = if had_to_wait { LOOKS_IN_VAIN } else { left.saturating_sub(1) };
        if next != left {
            self.0.store(next, Relaxed);
        }
    }
}

/// What entries are taken of.
pub(super) struct Of<'a> {
    pub(super) core: &'a Core,
    pub(super) view: &'a View,
    pub(super) kvs: KvsId,
    pub(super) prefix: &'a [u8],
}

impl Of<'_> {
    /// Whether a key begins with what all do that are shown. Comparing with nothing is no small
    /// thing: it costs hundreds of cycles on processors where a masked load from nowhere has to be
    /// made good.
    #[inline]
    pub(super) fn has_prefix(&self, key: &[u8]) -> bool {
        self.prefix.is_empty() || key.starts_with(self.prefix)
    }
}

impl Window {
    /// Forgets everything: the walk begins anew.
    pub(super) fn clear(&mut self) {
        self.empty();
        self.pace = Pace::default();
    }

    fn empty(&mut self) {
        self.entries.clear();
        self.pieces.clear();
        (self.next, self.failure, self.is_over) = (0, None, false);
    }

    /// Whether what comes next is in the window.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        !self.entries.is_empty() || self.is_over || self.failure.is_some()
    }

    /// The key of the entry that was come to last, if there is one in the window.
    pub(super) fn key(&self) -> Option<&[u8]> {
        let entry = self.entries.get(self.next.checked_sub(1)?)?;
        self.keys.get(entry.key.clone())
    }

    /// The value of that entry.
    pub(super) fn value(&self) -> &[u8] {
        match &self.value {
            Value::In(range) => self.bytes.get(range.clone()),
            Value::InRecord(from) => self.record.get(*from..),
        }
        .unwrap_or_default()
    }

    /// Whether it is to be found out of the next value, which is read by itself, if a disk has to
    /// be waited for.
    #[inline]
    pub(super) fn looks(&mut self, place: RecordPlace, waits: &Waits) -> bool {
        let Pace { alone, before, last, .. } = &mut self.pace;
        let number = *alone % ALONE_AT_ONCE;
        *alone = alone.wrapping_add(1);
        *before = last.replace(place);
        number == 1 || (number < LOOKS && waits.are_usual())
    }

    /// Whether the next value that lies where a run leads is looked for in the cache of entries.
    #[inline]
    pub(super) fn looks_in_cache(&mut self) -> bool {
        let number = self.pace.flushed;
        self.pace.flushed = number.wrapping_add(1);
        self.pace.is_wanted || number.is_multiple_of(ALONE_AT_ONCE)
    }

    /// Notes that it was there.
    pub(super) fn note_cached(&mut self) {
        self.pace.alone = self.pace.alone.wrapping_add(1);
        self.pace.is_wanted = true;
    }

    /// Notes how that was found which was looked at, if it is not in memory of the store's.
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

    /// How many entries to take ahead now, if so many are wanted at most; 0: none.
    #[inline]
    pub(super) fn wanted(&mut self, limit: Option<u64>) -> usize {
        if self.pace.is_wanted { self.pace.wanted(limit) } else { 0 }
    }

    /// Takes entries, and begins to read their values.
    pub(super) fn fill(&mut self, merged: &mut Merged, of: &Of<'_>, most: usize) {
        self.empty();
        self.keys.clear();
        self.bytes.clear();
        (self.pace.entries, self.pace.alone, self.pace.flushed) = (most, 0, 0);
        let bytes_max = (of.core.options.memory_bytes / MEMORY_PART).min(BYTES_MAX);
        let mut apart_bytes = 0;
        for _ in 0..most * STEPS_FOR_EACH {
            let bytes = (self.keys.len() + self.bytes.len()) as u64 + apart_bytes;
            if self.entries.len() == most || bytes >= bytes_max {
                break;
            }
            let taken = if merged.take_simply() { Ok(Some(Taken::SIMPLE)) } else { merged.take() };
            match taken {
                Ok(Some(_)) if !of.has_prefix(merged.key()) => self.is_over = true,
                Ok(Some(taken)) => apart_bytes += self.add(merged, of, &taken, bytes_max / 2),
                Ok(None) => self.is_over = true,
                Err(error) => self.failure = Some(error),
            }
            if self.is_over || self.failure.is_some() {
                break;
            }
        }
        let are_cached = self.find_cached(of);
        self.cut();
        self.begin(of);
        self.pace.is_wanted |= are_cached;
    }

    /// Adds an entry, unless it is gone; answers the bytes of its record if that is to be read.
    fn add(&mut self, merged: &Merged, of: &Of<'_>, taken: &Taken, alone_bytes: u64) -> u64 {
        let Taken { version, is_deleted } = taken;
        if *is_deleted || version.value == ValuePlace::Gone {
            return 0;
        }
        let from = self.keys.len();
        self.keys.extend_from_slice(merged.key());
        let key = from..self.keys.len();
        let value = match version.value {
            // A segment that is not there is an error of this entry, when it is come to.
            ValuePlace::Apart(place) => match of.view.segment(place.segment) {
                Ok(segment) if segment.may_wait() => Lies::In(place, 0),
                _ => Lies::Apart(place),
            },
            _ => {
                let from = self.bytes.len();
                self.bytes.extend_from_slice(merged.value());
                Lies::Here(from..self.bytes.len())
            }
        };
        let (value, apart_bytes) = match value {
            Lies::In(place, _) if u64::from(place.bytes) > alone_bytes => (Lies::Apart(place), 0),
            Lies::In(place, _) => {
                let cache = &of.core.entries;
                cache.prefetch(&cache.name(of.kvs, merged.key()));
                self.apart.push((self.entries.len(), version.sequence));
                (value, u64::from(place.bytes))
            }
            value => (value, 0),
        };
        self.entries.push(Entry { key, expiry: version.expiry, value });
        apart_bytes
    }

    /// Takes values that are there out of the cache of entries, and puts the others into the order;
    /// answers whether half of all entries were there.
    fn find_cached(&mut self, of: &Of<'_>) -> bool {
        let Window { entries, keys, bytes, apart, order, .. } = self;
        let cache: &RowCache = &of.core.entries;
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
                entry.value = Lies::Here(from..bytes.len());
                found += 1;
            } else {
                order.push(number);
            }
        }
        found * 2 > entries.len()
    }

    /// Cuts what is to be read into pieces.
    fn cut(&mut self) {
        let Window { entries, pieces, order, .. } = self;
        let place_of = |entry: &Entry| match entry.value {
            Lies::In(place, _) => Some((place.segment, place.offset)),
            _ => None,
        };
        order.sort_unstable_by_key(|&number| entries.get(number).and_then(place_of));
        for number in order.drain(..) {
            let Some(Entry { value: Lies::In(place, piece), .. }) = entries.get_mut(number) else {
                continue;
            };
            if !pieces.last_mut().is_some_and(|last| last.take(*place)) {
                pieces.push(Piece::of(*place));
            }
            *piece = pieces.len() - 1;
        }
    }

    /// Begins to read all pieces, what is wanted first before the others. Those that are in memory
    /// are read by that.
    fn begin(&mut self, of: &Of<'_>) {
        let values: u32 = self.pieces.iter().map(|piece| piece.values).sum();
        let bytes: u64 = self.pieces.iter().map(Piece::bytes).sum();
        self.bytes.reserve_exact(bytes as usize);
        self.count(of);
        let mut begun = 0;
        for entry in &self.entries {
            let Lies::In(_, piece) = entry.value else { continue };
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

    /// Counts what it holds in the memory of the store.
    fn count(&mut self, of: &Of<'_>) {
        let bytes = (self.keys.capacity() + self.bytes.capacity()) as u64;
        if self.charge.as_ref().is_none_or(|(charged, _)| *charged < bytes) {
            self.charge = None;
            self.charge = Some((bytes, of.core.pages.charge(bytes)));
        }
    }

    /// Comes to the next entry that is to be shown; false if there is none in the window.
    ///
    /// # Errors
    /// If its value cannot be read or is damaged, or if what follows the last entry cannot be read.
    pub(super) fn go_on(&mut self, of: &Of<'_>) -> Result<bool, StoreError> {
        while let Some(entry) = self.entries.get(self.next) {
            self.next += 1;
            let Entry { key, expiry, value } = entry;
            if of.core.has_ended(*expiry) {
                continue;
            }
            let (key, value) = (key.clone(), value.clone());
            self.value = match value {
                Lies::Here(range) => Value::In(range),
                Lies::Apart(place) => self.read_alone(of, key, place)?,
                Lies::In(place, piece) => match self.read_piece(of, piece)? {
                    Some(at) => self.find_in(of, key, place, at)?,
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

    /// Whether there is nothing behind the window.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits for a piece, unless it was read; answers where the place 0 of its segment would be
    /// among the bytes, or none if it can only be read value by value.
    fn read_piece(&mut self, of: &Of<'_>, number: usize) -> Result<Option<usize>, StoreError> {
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

    /// The value in a record that was read with its piece.
    fn find_in(
        &self,
        of: &Of<'_>,
        key: Range<usize>,
        place: RecordPlace,
        zero: usize,
    ) -> Result<Value, StoreError> {
        let at = zero.wrapping_add(place.offset as usize);
        let end = at + place.bytes as usize;
        let record = self.bytes.get(at..end).unwrap_or_default();
        let key = self.keys.get(key).unwrap_or_default();
        let value = of.view.segment(place.segment)?.value_in(place, (of.kvs, key), record)?;
        Ok(Value::In(end - value.len()..end))
    }

    fn read_alone(
        &mut self,
        of: &Of<'_>,
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
        // One is no more together than by itself.
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

    /// Takes a record that lies behind it, if it is near; what lies between them is no more than
    /// what is wanted before.
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
