//! Writer of memtable images (see [`memtable::image`](crate::memtable::image)), which runs in the
//! background. If it fails, opening the store takes longer, and nothing worse happens. Failures are
//! counted, shown in the statistics, and followed by another attempt after a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::Mutex;
use entresol_base::{ByteSize, Nanos};
use serde::Serialize;

use crate::StoreError;
use crate::memtable::Generation;
use crate::names;
use crate::types::Sequence;
use crate::upkeep::context::ImageContext;
use crate::version::view::View;
use crate::volumes::OpenVolume;
use crate::wal::Log;

/// Pause after a failure. It doubles with each further failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Upper bound of the pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Number of writes that a memtable image may lack without delaying writers. Recovery reads these
/// in a few milliseconds.
const LAG_FREE: u64 = 24_576;
/// Number of further writes that raise a writer's delay by `DELAY_NS`. The delay gives the only
/// thread that writes images its share of time beside many writers.
const LAG_STEP: u64 = 8192;
const DELAY_NS: u64 = 4000;

/// State of the memtable images: the writes that recovery finds without reading them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemtableImageStatistics {
    /// Writes that are neither flushed nor in a memtable image. An opening of the store now would
    /// read them.
    pub writes_missing: u64,
    /// Failed attempts to begin or continue a memtable image.
    pub failures: u64,
    /// Reason of the last failure, unless an attempt has succeeded since.
    pub failure: Option<String>,
}

/// State of the one thread that writes memtable images.
#[derive(Debug, Default)]
pub(crate) struct ImageWriter {
    keeping: Mutex<Keeping>,
    /// True during a pause after a failure: writers need not wait for images then.
    is_paused: AtomicBool,
}

#[derive(Debug, Default)]
struct Keeping {
    failures: u64,
    failure: Option<String>,
    /// Pause after the last failure; zero if there was none.
    pause: Duration,
    /// Time at which the pause ends.
    until: Nanos,
}

impl ImageWriter {
    fn is_due(&self, now: Nanos) -> bool {
        self.keeping.lock().until <= now
    }

    /// Records the outcome of an attempt.
    fn tried(&self, done: &Result<(), StoreError>, now: Nanos) {
        let keeping = &mut *self.keeping.lock();
        self.is_paused.store(done.is_err(), Relaxed);
        match done {
            Ok(()) => {
                let failures = keeping.failures;
                *keeping = Keeping { failures, ..Keeping::default() };
            }
            Err(error) => {
                keeping.failures += 1;
                keeping.failure = Some(error.to_string());
                keeping.pause = (keeping.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                keeping.until = now.after(keeping.pause);
            }
        }
    }

    /// Returns the delay of a writer for each write, because the memtable image lags.
    pub(crate) fn delay(&self, log: Option<&Log>) -> Duration {
        let too_many = self.lag(log).saturating_sub(LAG_FREE);
        Duration::from_nanos(too_many * DELAY_NS / LAG_STEP)
    }

    fn lag(&self, log: Option<&Log>) -> u64 {
        match self.is_paused.load(Relaxed) {
            true => 0,
            false => log.map_or(0, Log::image_lag),
        }
    }

    /// Returns statistics of the memtable images, for a view whose last write is `published`.
    pub(crate) fn statistics(&self, view: &View, published: Sequence) -> MemtableImageStatistics {
        let missing = |generation: &Generation, last: Sequence| generation.writes_missing(last);
        let closed = view.closed.iter().map(|(closed, last)| missing(closed, *last));
        let writes_missing = missing(&view.young, published) + closed.sum::<u64>();
        let keeping = self.keeping.lock();
        let (failures, failure) = (keeping.failures, keeping.failure.clone());
        MemtableImageStatistics { writes_missing, failures, failure }
    }
}

impl ImageContext<'_> {
    /// Brings the memtable images up to the durable writes, unless a pause is on.
    pub(crate) fn keep_images(&self) {
        let now = self.files.time.instant();
        if self.options.pmem.is_some() && self.background.images.is_due(now) {
            self.background.images.tried(&self.try_to_keep_images(), now);
        }
    }

    /// Enters all durable writes into the existing memtable images, so the next opening has nothing
    /// to read. A generation without an image gets none now: it is soon read.
    pub(crate) fn complete_images(&self) {
        if self.options.pmem.is_none() {
            return;
        }
        let durable = self.durable();
        let each = |generation: &Generation| generation.complete_image(durable);
        let done = each_of(&self.files.current.get(), &each);
        self.background.images.tried(&done, self.files.time.instant());
    }

    /// Returns the last write that memtable images may contain. Published writes are not enough,
    /// because a generation may continue in a segment that is not on persistent memory.
    fn durable(&self) -> Sequence {
        self.log.durable()
    }

    fn try_to_keep_images(&self) -> Result<(), StoreError> {
        let (view, durable) = (self.files.current.get(), self.durable());
        let begun = match view.young.has_records(durable) && !view.young.has_image() {
            true => self.begin_image(&view.young),
            false => Ok(()),
        };
        let go_on = || !self.background.scheduler.is_over();
        let kept = each_of(&view, &|generation| generation.keep_image(durable, &go_on));
        self.log.note_image_lag(view.young.image_lag(self.log.published()));
        kept.and(begun)
    }

    /// Returns true if the memtable image lags so far that the thread continues at once.
    pub(crate) fn is_image_behind(&self) -> bool {
        self.background.images.lag(Some(self.log)) > LAG_FREE / 2
            && self.files.failure.check().is_ok()
    }

    fn begin_image(&self, generation: &Arc<Generation>) -> Result<(), StoreError> {
        let Some(first) = generation.first_segment() else { return Ok(()) };
        let Some(place) = self.files.volumes.find(&names::of_segment(first)) else { return Ok(()) };
        let Some(pmem) = place.pmem else { return Ok(()) };
        self.check_room_for_an_image(&place)?;
        let store = self.files.manifest.lock().store;
        let made = generation.make_image(&place.directory, (store, first), pmem)?;
        self.files.volumes.made(names::of_image(first), &place, made.bytes());
        // The flush of the generation removes its image if it finds one. After that flush, this
        // thread does.
        let manifest = self.files.manifest.lock();
        if first.0 >= manifest.log.first_segment {
            generation.set_image(made);
            return Ok(());
        }
        drop(made);
        self.files.remove(&[names::of_image(first)])
    }

    /// Refuses to take the room that is reserved for work that frees room.
    fn check_room_for_an_image(&self, place: &OpenVolume) -> Result<(), StoreError> {
        let needed = self.options.reserve_bytes + self.options.generation_bytes / 4;
        let free = place.room().unwrap_or(u64::MAX);
        if free > needed {
            return Ok(());
        }
        let (free, needed) = (ByteSize(free), ByteSize(needed));
        Err(StoreError::NoRoom {
            what: format!("a memtable image needs {needed}, but {free} are left"),
        })
    }
}

/// Calls `what` for every generation, even after one of them fails.
fn each_of(
    view: &View,
    what: &dyn Fn(&Generation) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    view.generations().map(|generation| what(generation)).fold(Ok(()), Result::and)
}
