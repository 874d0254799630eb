//! Images of what was written last (see [`young::image`](crate::memtable::image)), kept behind the
//! writers' backs. Where that fails, opening the store takes longer, and that is all: it is
//! counted, told in the statistics, and tried again after a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::Mutex;
use entresol_base::{ByteSize, Nanos};
use serde::Serialize;

use crate::StoreError;
use crate::memtable::{Generation, image};
use crate::types::Sequence;
use crate::version::core::Core;
use crate::version::view::View;
use crate::volumes::Held;
use crate::wal::Log;
use crate::wal::segment;

/// After a failure it is tried again after so long, and after twice as long each time that fails.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// But not after longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// An image may be behind by so many writes, which are read in some milliseconds.
const LAG_FREE: u64 = 24_576;
/// For each so many more a writer waits longer, so that the thread that keeps the image, which is
/// one among all that write, gets its time.
const LAG_STEP: u64 = 8192;
const DELAY_NS: u64 = 4000;

/// How well what was written last can be found without reading it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemtableImageStatistics {
    /// Writes that are neither flushed nor in an image: whoever opened the store now would read
    /// them.
    pub writes_missing: u64,
    /// How often an image could not be begun, or gone on with.
    pub failures: u64,
    /// Why the last time, unless it has succeeded since.
    pub failure: Option<String>,
}

/// How the keeping of images goes. One thread keeps them.
#[derive(Debug, Default)]
pub(crate) struct ImageWriter {
    keeping: Mutex<Keeping>,
    /// Whether they are left alone for a while, so that nobody is to wait for them.
    is_paused: AtomicBool,
}

#[derive(Debug, Default)]
struct Keeping {
    failures: u64,
    failure: Option<String>,
    /// How long it is left alone after the last failure; zero if there was none.
    pause: Duration,
    /// Until then it is.
    until: Nanos,
}

impl ImageWriter {
    fn is_due(&self, now: Nanos) -> bool {
        self.keeping.lock().until <= now
    }

    /// Says how an attempt has ended.
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
}

impl Core {
    /// Makes images of generations on persistent memory, as far as what they have counts.
    pub(crate) fn keep_images(&self) {
        let now = self.clock.now();
        if self.options.pmem.is_some() && self.images.is_due(now) {
            self.images.tried(&self.try_to_keep_images(), now);
        }
    }

    /// Enters all that counts into the images that there are, so that whoever opens the store next
    /// has nothing to read. None is begun: what has none is soon read.
    pub(crate) fn complete_images(&self) {
        if self.options.pmem.is_none() {
            return;
        }
        let durable = self.durable();
        let each = |generation: &Generation| generation.complete_image(durable);
        let done = each_of(&self.current.get(), &each);
        self.images.tried(&done, self.clock.now());
    }

    /// What images may have: a generation may go on in a segment that is no persistent memory.
    fn durable(&self) -> Sequence {
        self.log.as_ref().map_or(Sequence(0), Log::durable)
    }

    fn try_to_keep_images(&self) -> Result<(), StoreError> {
        let (view, durable) = (self.current.get(), self.durable());
        let begun = match view.young.has_records(durable) && !view.young.has_image() {
            true => self.begin_image(&view.young),
            false => Ok(()),
        };
        let go_on = || !self.work.is_over();
        let kept = each_of(&view, &|generation| generation.keep_image(durable, &go_on));
        if let Some(log) = &self.log {
            log.note_image_lag(view.young.image_lag(log.published()));
        }
        kept.and(begun)
    }

    /// Whether an image is so far behind what was written that it is gone on with at once.
    pub(crate) fn is_image_behind(&self) -> bool {
        self.image_lag() > LAG_FREE / 2 && self.failure.check().is_ok()
    }

    /// How long a writer waits for each write, since the image is behind.
    pub(crate) fn image_delay(&self) -> Duration {
        let too_many = self.image_lag().saturating_sub(LAG_FREE);
        Duration::from_nanos(too_many * DELAY_NS / LAG_STEP)
    }

    fn image_lag(&self) -> u64 {
        match self.images.is_paused.load(Relaxed) {
            true => 0,
            false => self.log.as_ref().map_or(0, Log::image_lag),
        }
    }

    fn begin_image(&self, generation: &Arc<Generation>) -> Result<(), StoreError> {
        let Some(first) = generation.first_segment() else { return Ok(()) };
        let Some(place) = self.volumes.find(&segment::file_name(first)) else { return Ok(()) };
        let Some(pmem) = place.pmem else { return Ok(()) };
        self.check_room_for_an_image(&place)?;
        let store = self.manifest.lock().store;
        let made = generation.make_image(&place.directory, (store, first), pmem)?;
        self.volumes.made(image::file_name(first), &place, 0);
        // Whoever flushes the generation removes its image, if it has one by then.
        let manifest = self.manifest.lock();
        if first.0 >= manifest.log.first_segment {
            generation.set_image(made);
            return Ok(());
        }
        drop(made);
        self.remove(&[image::file_name(first)])
    }

    /// Refuses to take the room that is kept for what makes room.
    fn check_room_for_an_image(&self, place: &Held) -> Result<(), StoreError> {
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

    /// What is known of images, if the store is opened on persistent memory.
    pub(crate) fn image_statistics(&self) -> Option<MemtableImageStatistics> {
        self.options.pmem?;
        let (view, published) = (self.current.get(), self.published());
        let missing = |generation: &Generation, last: Sequence| generation.writes_missing(last);
        let closed = view.closed.iter().map(|(closed, last)| missing(closed, *last));
        let writes_missing = missing(&view.young, published) + closed.sum::<u64>();
        let keeping = self.images.keeping.lock();
        let (failures, failure) = (keeping.failures, keeping.failure.clone());
        Some(MemtableImageStatistics { writes_missing, failures, failure })
    }
}

/// Does something with each generation; one that fails keeps no other from it.
fn each_of(
    view: &View,
    what: &dyn Fn(&Generation) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    view.generations().map(|generation| what(generation)).fold(Ok(()), Result::and)
}
