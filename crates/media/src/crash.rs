//! Crashes: in which states the media of one machine may be found after its power failed.
//!
//! Every medium that is tried keeps its own list of what is not durable yet ([`Unsettled`]) and
//! hangs on one [`Power`]. Just before something becomes durable (a drain, a sync, a rename) the
//! medium says so ([`Power::point`]); whoever watches may then take, of all media together, any of
//! the states in which a crash at this moment could leave them.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod choices;
mod cuts;
mod explorer;
mod faults;
mod image;
mod journal;
mod lines;
mod places;
mod recorder;
mod streams;

pub use explorer::{Crash, ExploreOptions, Explorer, Failure, Nested, Report, Subject};
pub use image::RegionImage;
pub use places::{PlaceCounts, Places};
pub use recorder::{Domain, Killed, Misuse, RecordedRegion, Recorder, RecorderOptions};

/// A place in the source code.
pub type Place = &'static Location<'static>;

/// A medium, parts of whose newest bytes may not have reached durability.
///
/// Its uncertain parts are units that a crash treats independently: a cache line, a sector, a
/// directory entry. Each unit has a durable state, number 0, and later ones, of which the last is
/// what running programs see.
pub trait Unsettled: Send + Sync {
    /// How many states each unit has beside the durable one: a line with three pending stores has
    /// three, an unsynced sector one. Units and their order stay the same until something is
    /// written or becomes durable.
    fn units(&self) -> Vec<u16>;

    /// Moves `choices`, one for each unit, to states that can be had together (a store behind a
    /// `clflush` is not durable before what was flushed), and to the first of those that look the
    /// same.
    fn settle(&self, choices: &mut [u16]) {
        let _ = choices;
    }

    /// The medium as a crash with these choices would leave it, ready to be opened again; what it
    /// is, those who know the medium know. It hangs on `power` if that is watched. Dropping it
    /// takes back everything that was done to it; until then nobody touches the medium itself.
    fn image(&self, choices: &[u16], power: &Power) -> Box<dyn Any>;

    /// When what is not durable was done to it, by [`Power::tick`]; none if it does not know.
    fn moments(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Moves `choices`, one for each unit, to the state in which everything that was done before a
    /// moment is durable and nothing since: what a cut of the power leaves if all caches are
    /// written back in time, or keep their contents. Who knows no moments leaves them.
    fn cut(&self, moment: u64, choices: &mut [u16]) {
        let _ = (moment, choices);
    }

    /// Which units were looked at in the images since the last call; none if it is not known.
    fn looked_at(&self) -> Option<Vec<bool>> {
        None
    }

    /// What a program did to it that it must never do, if it did.
    fn misuse(&self) -> Option<String> {
        None
    }

    /// A crash point has passed: what could be seen of it has been.
    fn passed(&self) {}
}

/// What is about to become durable at a crash point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PointKind {
    /// What a thread has flushed.
    Drain,
    /// A file's bytes or length.
    Sync,
    /// A directory's entries.
    DirectorySync,
    /// A rename, an unlink, a file made: not durable, but its order matters.
    Entry,
    /// A write to a file: not durable, but other media may hold stores that are older.
    Write,
    /// Some stores, where stores are durable at once.
    Stores,
    /// Nothing: the history is over.
    End,
}

/// A moment at which a crash is worth trying: just before something takes effect.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// What is about to take effect.
    pub kind: PointKind,
    /// Where in the program.
    pub place: Place,
    /// How many points came before it.
    pub number: u64,
    /// Whether nothing takes effect there: a drain of a thread that has flushed nothing. Who only
    /// looks for crash states need not look here.
    pub is_empty: bool,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "point {} ({:?} at {})", self.number, self.kind, self.place)
    }
}

/// The media that hang on a [`Power`].
pub type Media = Vec<Arc<dyn Unsettled>>;

/// Who looks on at crash points. Nothing else of the machine runs meanwhile.
pub type Watch = Box<dyn FnMut(&Point, &[Arc<dyn Unsettled>]) + Send>;

/// What the media of one machine hang on: when it fails, it fails for all of them at once.
#[derive(Clone, Default)]
pub struct Power(Arc<Shared>);

#[derive(Default)]
struct Shared {
    watched: AtomicBool,
    points: AtomicU64,
    ticks: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    media: Media,
    watch: Option<Watch>,
}

impl Power {
    /// A machine without media.
    #[must_use]
    pub fn new() -> Power {
        Power::default()
    }

    /// Hangs a medium on it.
    pub fn attach(&self, medium: Arc<dyn Unsettled>) {
        self.state().media.push(medium);
    }

    /// The media in the order in which they were attached.
    #[must_use]
    pub fn media(&self) -> Media {
        self.state().media.clone()
    }

    /// Takes all media off it, and lets nobody look on any more. Media know their power and powers
    /// their media: what is over must be cleared, or both stay in memory for ever.
    pub fn clear(&self) {
        self.unwatch();
        let media = std::mem::take(&mut self.state().media);
        drop(media);
    }

    /// Whether anybody looks on.
    #[inline]
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.0.watched.load(Ordering::Relaxed)
    }

    /// Lets `watch` look on from now on, in the place of whoever did.
    pub fn watch(&self, watch: Watch) {
        self.state().watch = Some(watch);
        self.0.watched.store(true, Ordering::Relaxed);
    }

    /// Lets nobody look on any more.
    pub fn unwatch(&self) {
        self.0.watched.store(false, Ordering::Relaxed);
        let watch = self.state().watch.take();
        drop(watch);
    }

    /// How many crash points there were.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.0.points.load(Ordering::Relaxed)
    }

    /// The next moment of the machine's own time, in which everything that is done to its media has
    /// its place. The first is 1.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.0.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Said by a medium just before something takes effect there, with no lock of its own held.
    pub fn point(&self, kind: PointKind, place: Place) {
        self.pass_with(kind, place, false);
        self.media().iter().for_each(|medium| medium.passed());
    }

    /// Said by a medium where a point would be, if anything took effect.
    pub fn pass(&self, kind: PointKind, place: Place) {
        self.pass_with(kind, place, true);
    }

    fn pass_with(&self, kind: PointKind, place: Place, is_empty: bool) {
        let number = self.0.points.fetch_add(1, Ordering::Relaxed);
        if !self.is_watched() {
            return;
        }
        let watch = self.state().watch.take();
        if let Some(mut watch) = watch {
            watch(&Point { kind, place, number, is_empty }, &self.media());
            let mut state = self.state();
            if self.is_watched() && state.watch.is_none() {
                state.watch = Some(watch);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let media = self.media().len();
        f.debug_struct("Power").field("media", &media).field("points", &self.points()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Coin;

    impl Unsettled for Coin {
        fn units(&self) -> Vec<u16> {
            vec![1]
        }

        fn image(&self, choices: &[u16], _power: &Power) -> Box<dyn Any> {
            Box::new(choices[0])
        }
    }

    #[test]
    fn a_point_is_seen_with_all_media_while_somebody_watches() {
        let power = Power::new();
        power.attach(Arc::new(Coin));
        power.attach(Arc::new(Coin));
        power.point(PointKind::Sync, Location::caller());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let saw = seen.clone();
        power.watch(Box::new(move |point, media| {
            let image = media[1].image(&[1], &Power::new());
            let state = image.downcast_ref::<u16>().copied();
            saw.lock().expect("alive").push((point.number, media.len(), state));
        }));
        power.point(PointKind::Sync, Location::caller());
        power.point(PointKind::End, Location::caller());
        power.unwatch();
        power.point(PointKind::End, Location::caller());
        assert_eq!(*seen.lock().expect("alive"), [(1, 2, Some(1)), (2, 2, Some(1))]);
        assert_eq!(power.points(), 4);
        power.clear();
        assert!(power.media().is_empty());
    }
}
