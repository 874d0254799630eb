//! The recorder: an observer that tracks which stores to a region are durable, on x86.
//!
//! The model: an aligned word of eight bytes is durable whole or not at all, and a longer store is
//! several words in no order. Of a line's stores, by all threads, some first ones are durable;
//! lines are independent of each other. A flush covers the stores of the line up to that moment,
//! and takes effect once the same thread drains (or executes a locked instruction, which a
//! sequentially consistent store is as well). A `clflush` also keeps the thread's later stores
//! behind it. Stores past the caches arrive word by word, in no order, until the thread drains.
//! With [`Domain::Caches`] visible stores are durable: the word of a locked instruction at its end,
//! and only stores past the caches wait for a drain.
//!
//! Where the processor promises more than [`Region`](entresol_media::Region) does (fences within a
//! streaming copy, a `clflush` whose end other threads have seen), less is assumed.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Place;
use entresol_media::observe::{FenceKind, LINE_BYTES, Observed, Observer, Step, StoreKind};
use entresol_media::region::{Direct, FlushKind, RegionError};

use super::cuts::{Cuts, Entry};
use super::faults::{Looked, Poison};
use super::image::RegionImage;
use super::journal::Journal;
use super::lines::{Atom, Lines};
use super::streams::Streams;
use super::{PointKind, Power, Unsettled};

/// Number of units above which the lines read by recovery are noted.
pub(super) const UNITS_UNWATCHED_MAX: usize = 16;

/// Parts of the machine that keep their contents when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Domain {
    /// The memory and its controller's queue (ADR).
    #[default]
    Memory,
    /// The caches as well (eADR, CXL with a global flush). A crash point is taken at every so many
    /// words stored.
    Caches {
        /// Words per crash point: at least one, at most 65,535.
        every: u16,
    },
}

/// Options of a [`Recorder`]'s machine.
#[derive(Debug, Clone, Copy)]
pub struct RecorderOptions {
    /// Parts that keep their contents.
    pub domain: Domain,
    /// Instruction by which lines are flushed.
    pub flush: FlushKind,
    /// True if an atomic read-modify-write is also a fence of its thread, as on x86. Set it to
    /// false to test a program that must rely on drains alone.
    pub locked_fences: bool,
}

impl Default for RecorderOptions {
    fn default() -> RecorderOptions {
        RecorderOptions { domain: Domain::Memory, flush: FlushKind::Clwb, locked_fences: true }
    }
}

/// A use of persistent memory that is forbidden regardless of its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misuse {
    /// Place in the program.
    pub place: Place,
    /// Line in which ordinary and streaming stores met without a drain in between.
    pub offset: u64,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misuse { place, offset } = self;
        write!(f, "{place}: ordinary and streaming stores to the line at {offset} without a drain")
    }
}

/// Payload with which a thread unwinds that [`Recorder::kill_after`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Killed;

/// An observer that tracks which stores to its region are durable.
#[derive(Clone)]
pub struct Recorder(Arc<Core>);

/// A region under a recorder, on which crash suites run and from which they recover.
pub type RecordedRegion = Observed<Recorder>;

pub(super) struct Core {
    pub(super) bytes: Arc<Direct>,
    pub(super) options: RecorderOptions,
    pub(super) power: Power,
    /// True if loads matter.
    pub(super) loads: AtomicBool,
    /// Record of the lines loaded here.
    pub(super) looks: Option<Arc<Looked>>,
    /// Record of the lines loaded from images of this region.
    pub(super) looked: Arc<Looked>,
    pub(super) state: Mutex<State>,
    pub(super) pool: Pool,
    /// Accesses left until a thread is ended, including the last; 0 is never.
    pub(super) kill_after: AtomicU64,
    /// True if loads count among them.
    pub(super) kill_counts_loads: AtomicBool,
}

/// Buffers that are reused from image to image.
pub(super) type Pool = Arc<Mutex<Vec<Scratch>>>;

#[derive(Default)]
pub(super) struct Scratch {
    pub(super) journal: Journal,
    pub(super) pending: Pending,
}

/// Changes that are not durable.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) lines: Lines,
    pub(super) streams: Streams,
    pub(super) cuts: Cuts,
}

pub(super) struct State {
    /// Memory of an image; absent once the image is dropped.
    pub(super) scratch: Option<Scratch>,
    /// True on images, whose changes are undone.
    pub(super) undoes: bool,
    /// True if durability is tracked.
    pub(super) records: bool,
    pub(super) poison: Poison,
    misuses: Vec<Misuse>,
}

impl Recorder {
    /// Makes a region of `len` durable zero bytes, attached to `power`.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn region(
        len: u64,
        options: RecorderOptions,
        power: &Power,
    ) -> Result<RecordedRegion, RegionError> {
        let bytes = Arc::new(Direct::anonymous(len, false)?);
        Ok(Recorder::over(bytes, options, power))
    }

    /// Makes a region over existing bytes, which are durable.
    #[must_use]
    pub fn over(bytes: Arc<Direct>, options: RecorderOptions, power: &Power) -> RecordedRegion {
        let mut scratch = Scratch::default();
        scratch.pending.reset(bytes.len());
        let recorder = Recorder(Arc::new(Core {
            power: power.clone(),
            options,
            loads: AtomicBool::new(options.domain != Domain::Memory),
            looks: None,
            looked: Arc::default(),
            state: Mutex::new(State::new(scratch)),
            pool: Pool::default(),
            kill_after: AtomicU64::new(0),
            kill_counts_loads: AtomicBool::new(true),
            bytes: bytes.clone(),
        }));
        power.attach(recorder.0.clone());
        Observed::over(bytes, options.flush, recorder)
    }

    pub(super) fn of(core: Arc<Core>) -> Recorder {
        Recorder(core)
    }

    /// Returns the forbidden uses by the program so far.
    #[must_use]
    pub fn misuses(&self) -> Vec<Misuse> {
        self.0.state().misuses.clone()
    }

    /// Ends the thread that makes access number `accesses` + 1, just before it: the thread unwinds
    /// with [`Killed`]. That leaves the state of a killed process: its successor sees all its
    /// stores, of which not all are durable. [`u64::MAX`] is never.
    pub fn kill_after(&self, accesses: u64) {
        self.0.kill_counts_loads.store(true, Ordering::Relaxed);
        self.0.kill_after.store(accesses.wrapping_add(1), Ordering::Relaxed);
    }

    /// Ends a thread as [`Recorder::kill_after`] does, but counts stores, flushes and drains only:
    /// each number leaves another state, while loads change nothing.
    pub fn kill_after_changes(&self, changes: u64) {
        self.0.kill_counts_loads.store(false, Ordering::Relaxed);
        self.0.kill_after.store(changes.wrapping_add(1), Ordering::Relaxed);
    }

    /// Makes loads of the 256 bytes around `offset` fault until all of them have been written.
    pub fn poison(&self, offset: u64) {
        self.0.state().poison.add(offset);
        self.0.loads.store(true, Ordering::Relaxed);
    }

    /// Returns the beginnings of the ranges of 256 bytes that cannot be loaded, as a kernel reports
    /// them.
    #[must_use]
    pub fn poisoned(&self) -> Vec<u64> {
        self.0.state().poison.ranges()
    }

    /// Flips a bit at rest, bypassing all pending stores.
    pub fn flip(&self, offset: u64, bit: u8) {
        let (word, shift) = (offset / 8, offset % 8 * 8 + u64::from(bit % 8));
        let (line, bits) = (offset / LINE_BYTES, 1 << shift);
        let mut state = self.0.state();
        state.change(&self.0.bytes, line);
        self.0.bytes.fetch_xor_u64(word * 8, bits);
        let State { scratch: Some(scratch), records: true, .. } = &mut *state else { return };
        scratch.pending.lines.flip(line, (word % 8) as u8, bits);
        scratch.pending.streams.flip(word, bits);
        scratch.pending.cuts.flip(word, bits);
    }
}

impl Pending {
    pub(super) fn reset(&mut self, region_bytes: u64) {
        self.lines.reset(region_bytes);
        self.streams.reset();
        self.cuts.reset();
    }

    /// Returns true if a store that heals poison of this word is pending.
    fn heals(&self, word: u64) -> bool {
        let Pending { lines, streams, cuts } = self;
        lines.healer(word).is_some()
            || streams.healer(word).is_some()
            || cuts.healer(word).is_some()
    }

    /// Returns true if such a store is pending, and is missing in a state.
    pub(super) fn has_lost(&self, word: u64, choices: &[u16]) -> bool {
        let Pending { lines, streams, cuts } = self;
        if let Some(unit) = lines.healer(word) {
            return !lines.is_healed(unit, word, choices[unit]);
        }
        let (of_words, of_cuts) = choices[lines.len()..].split_at(streams.len());
        if let Some(unit) = streams.healer(word) {
            return of_words[unit] == 0;
        }
        let count = cuts.healer(word);
        count.is_some_and(|count| of_cuts.iter().any(|&choice| usize::from(choice) < count))
    }
}

impl State {
    fn new(scratch: Scratch) -> State {
        State {
            scratch: Some(scratch),
            undoes: false,
            records: true,
            poison: Poison::default(),
            misuses: Vec::new(),
        }
    }

    pub(super) fn of_image(scratch: Scratch, records: bool, poison: Poison) -> State {
        State { undoes: true, records, poison, ..State::new(scratch) }
    }

    /// Notes that a line will be changed.
    fn change(&mut self, bytes: &Direct, line: u64) {
        let scratch = self.scratch.as_mut();
        assert!(scratch.is_some(), "a store to an image that is gone");
        if let (true, Some(scratch)) = (self.undoes, scratch) {
            scratch.journal.note(bytes, line);
        }
    }

    /// Notes the part of a store that lies in one line.
    fn store(&mut self, core: &Core, at: u64, bytes: &[u8], kind: StoreKind, place: Place) {
        let (line, thread) = (at / LINE_BYTES, thread_now());
        self.change(&core.bytes, line);
        let whole = at.div_ceil(8)..(at + bytes.len() as u64) / 8;
        let State { scratch: Some(scratch), poison, records, .. } = self else { return };
        if !poison.is_empty() {
            poison.written(whole.clone(), |word| *records && scratch.pending.heals(word));
        }
        if !*records {
            return;
        }
        let heals =
            |number: u64| !poison.is_empty() && whole.contains(&number) && poison.awaits(number);
        let by = (thread, core.power.tick());
        let Pending { lines, streams, cuts } = &mut scratch.pending;
        let mixed = match kind {
            StoreKind::Cached => streams.touches(line),
            StoreKind::Streaming => lines.is_dirty(line),
        };
        if mixed {
            self.misuses.push(Misuse { place, offset: line * LINE_BYTES });
        }
        let words = merged_words(&core.bytes, at, bytes);
        match (kind, core.options.domain) {
            (StoreKind::Streaming, _) => words.for_each(|(number, before, after)| {
                streams.store(number, (before, after), heals(number), by);
            }),
            (StoreKind::Cached, Domain::Memory) => {
                let mut atoms = [Atom { word: 0, value: 0, heals: false }; 8];
                let changed =
                    words.filter(|&(number, before, after)| before != after || heals(number));
                let count = changed.zip(&mut atoms).fold(0, |count, ((number, _, value), atom)| {
                    *atom = Atom { word: (number % 8) as u8, value, heals: heals(number) };
                    count + 1
                });
                lines.store(&core.bytes, line, &atoms[..count], by);
            }
            (StoreKind::Cached, Domain::Caches { .. }) => words
                .filter(|&(number, before, after)| before != after || heals(number))
                .for_each(|(number, before, _)| {
                    let ((thread, sequence), heals) = (by, heals(number));
                    cuts.store(Entry { thread, sequence, number, before, heals });
                }),
        }
    }
}

/// Returns the words touched by `bytes` at `at`, inside of one line: number, old and new value.
fn merged_words<'a>(
    region: &'a Direct,
    at: u64,
    bytes: &'a [u8],
) -> impl Iterator<Item = (u64, u64, u64)> + 'a {
    let end = at + bytes.len() as u64;
    (at / 8..end.div_ceil(8)).map(move |number| {
        let before = region.load_u64(number * 8, Ordering::Relaxed);
        let mut word = before.to_le_bytes();
        let (first, last) = (at.max(number * 8), end.min(number * 8 + 8));
        word[(first - number * 8) as usize..(last - number * 8) as usize]
            .copy_from_slice(&bytes[(first - at) as usize..(last - at) as usize]);
        (number, before, u64::from_le_bytes(word))
    })
}

/// Splits `bytes` at `offset` at the ends of lines.
fn by_line(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let head = ((offset.wrapping_neg() % LINE_BYTES) as usize).min(bytes.len());
    let (head, rest) = bytes.split_at(head);
    let after = offset + head.len() as u64;
    let lines = rest.chunks(LINE_BYTES as usize).enumerate();
    let lines = lines.map(move |(index, line)| (after + index as u64 * LINE_BYTES, line));
    std::iter::once((offset, head)).filter(|(_, head)| !head.is_empty()).chain(lines)
}

impl Core {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes another thread's stores visible that this one loads, and so durable if caches survive.
    fn see(&self, offset: u64, len: usize, place: Place) {
        let seen = {
            let state = self.state();
            let State { scratch: Some(scratch), records: true, .. } = &*state else { return };
            scratch.pending.cuts.seen(offset, len, thread_now())
        };
        if seen > 0 {
            self.power.point(PointKind::Stores, place);
            self.forget(seen);
        }
    }

    /// Drops the first `count` stores, which are visible.
    fn forget(&self, count: usize) {
        if let Some(scratch) = &mut self.state().scratch {
            scratch.pending.cuts.forget(count);
        }
    }

    /// Returns true if enough was stored for a crash point, on a machine whose caches survive.
    fn is_full(&self) -> bool {
        let Domain::Caches { every } = self.options.domain else { return false };
        let state = self.state();
        let cuts = state.scratch.as_ref().map_or(0, |scratch| scratch.pending.cuts.len());
        // A store has up to eight words.
        cuts + 8 > usize::from(every.max(8))
    }
}

impl Observer for Recorder {
    #[inline]
    fn wait(&self, step: &Step) {
        let left = &self.0.kill_after;
        if left.load(Ordering::Relaxed) == 0 {
            return;
        }
        let counts_loads = self.0.kill_counts_loads.load(Ordering::Relaxed);
        let counts = counts_loads || !matches!(step, Step::Load { .. });
        if counts && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::panic::resume_unwind(Box::new(Killed));
        }
    }

    #[inline]
    fn load(&self, offset: u64, len: usize, place: Place) {
        let core = &*self.0;
        if len == 0 || !core.loads.load(Ordering::Relaxed) {
            return;
        }
        if let Some(looks) = &core.looks {
            looks.note(offset, len);
        }
        // The lock must be free again by the time of a fault.
        let poison = core.state().poison.clone();
        poison.check(offset, len);
        if core.options.domain != Domain::Memory {
            core.see(offset, len, place);
        }
    }

    fn store(&self, offset: u64, bytes: &[u8], kind: StoreKind, place: Place) {
        let core = &*self.0;
        for (at, bytes) in by_line(offset, bytes) {
            if core.options.domain != Domain::Memory && core.is_full() {
                core.power.point(PointKind::Stores, place);
                core.forget(usize::MAX);
            }
            core.state().store(core, at, bytes, kind, place);
        }
    }

    fn flush(&self, offset: u64, len: usize, kind: FlushKind, _place: Place) {
        let mut state = self.0.state();
        let State { scratch: Some(scratch), records: true, .. } = &mut *state else { return };
        if self.0.options.domain != Domain::Memory {
            return;
        }
        let by = (thread_now(), self.0.power.tick());
        for line in offset / LINE_BYTES..(offset + len as u64).div_ceil(LINE_BYTES) {
            let ordered = kind == FlushKind::Clflush;
            scratch.pending.lines.flush(line, by, ordered);
        }
    }

    fn fence(&self, kind: FenceKind, place: Place) {
        let core = &*self.0;
        if kind == FenceKind::Copy || kind == FenceKind::Locked && !core.options.locked_fences {
            return;
        }
        let thread = thread_now();
        let effect = {
            let state = core.state();
            let State { scratch: Some(scratch), records: true, .. } = &*state else { return };
            let Pending { lines, streams, cuts } = &scratch.pending;
            // Stores before a locked instruction and its own are settled together at its end.
            let visible = kind != FenceKind::Locked && cuts.has_stored(thread);
            lines.has_flushed(thread) || streams.has_stored(thread) || visible
        };
        match (effect, kind) {
            (true, _) => core.power.point(PointKind::Drain, place),
            (false, FenceKind::Drain) => core.power.pass(PointKind::Drain, place),
            (false, FenceKind::Copy | FenceKind::Locked) => {}
        }
        if effect && let Some(scratch) = &mut core.state().scratch {
            scratch.pending.lines.fence(thread);
            scratch.pending.streams.fence(thread);
            scratch.pending.cuts.fence(thread);
        }
    }

    fn locked(&self, place: Place) {
        let core = &*self.0;
        if core.options.domain == Domain::Memory || !core.options.locked_fences {
            return;
        }
        let has_stored = {
            let state = core.state();
            let State { scratch: Some(scratch), records: true, .. } = &*state else { return };
            scratch.pending.cuts.has_stored(thread_now())
        };
        if has_stored {
            core.power.point(PointKind::Stores, place);
            if let Some(scratch) = &mut core.state().scratch {
                scratch.pending.cuts.fence(thread_now());
            }
        }
    }
}

impl Unsettled for Core {
    fn units(&self) -> Vec<u16> {
        let state = self.state();
        let mut units = Vec::new();
        if let Some(scratch) = &state.scratch {
            let Pending { lines, streams, cuts } = &scratch.pending;
            lines.units(&mut units);
            streams.units(&mut units);
            units.extend((cuts.len() > 0).then_some(cuts.len() as u16));
        }
        units
    }

    fn settle(&self, choices: &mut [u16]) {
        let state = self.state();
        let Some(scratch) = &state.scratch else { return };
        let Pending { lines, streams, .. } = &scratch.pending;
        let (of_lines, rest) = choices.split_at_mut(lines.len());
        lines.settle(of_lines);
        streams.settle(&mut rest[..streams.len()]);
    }

    fn image(&self, choices: &[u16], power: &Power) -> Box<dyn Any> {
        Box::new(RegionImage::new(self, choices, power))
    }

    fn moments(&self) -> Vec<u64> {
        let state = self.state();
        let Some(scratch) = &state.scratch else { return Vec::new() };
        let Pending { lines, streams, cuts } = &scratch.pending;
        lines.moments().chain(streams.moments()).chain(cuts.moments()).collect()
    }

    fn cut(&self, moment: u64, choices: &mut [u16]) {
        let state = self.state();
        let Some(scratch) = &state.scratch else { return };
        let Pending { lines, streams, cuts } = &scratch.pending;
        let (of_lines, rest) = choices.split_at_mut(lines.len());
        let (of_words, of_cuts) = rest.split_at_mut(streams.len());
        lines.cut(moment, of_lines);
        streams.cut(moment, of_words);
        of_cuts.fill(cuts.before(moment));
    }

    fn looked_at(&self) -> Option<Vec<bool>> {
        let state = self.state();
        let Pending { lines, streams, cuts } = &state.scratch.as_ref()?.pending;
        let looked = &self.looked;
        let of_lines = (0..lines.len()).map(|unit| looked.has(lines.number(unit)));
        let of_words = (0..streams.len()).map(|unit| looked.has(streams.number(unit) / 8));
        let of_cuts = (cuts.len() > 0).then_some(true);
        let seen = of_lines.chain(of_words).chain(of_cuts).collect();
        looked.forget().then_some(seen)
    }

    fn misuse(&self) -> Option<String> {
        self.state().misuses.first().map(Misuse::to_string)
    }

    fn passed(&self) {
        if let Some(scratch) = &mut self.state().scratch {
            scratch.pending.cuts.fence(thread_now());
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.0.units().len();
        f.debug_struct("Recorder").field("options", &self.0.options).field("units", &units).finish()
    }
}

/// Returns the current thread.
pub(super) fn thread_now() -> u32 {
    #[cfg(test)]
    if let Some(thread) = tests::THREAD.get() {
        return thread;
    }
    entresol_base::thread::current_id().0
}

#[cfg(test)]
mod tests;
