//! Crashes: the states in which a power failure may leave the media of one machine.
//!
//! Each tested medium keeps a list of its changes that are not durable yet ([`Unsettled`]) and is
//! attached to one [`Power`]. Just before something becomes durable (a drain, a sync, a rename) the
//! medium reports a crash point ([`Power::point`]); the watcher may then open all media together in
//! any of the states in which a crash at this moment could leave them.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Place;

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

/// A medium with changes that may not be durable.
///
/// Its uncertain parts are units that a crash treats independently: a cache line, a sector, a
/// directory entry. Each unit has a durable state, number 0, and later ones, of which the last is
/// the one that running programs see.
pub trait Unsettled: Send + Sync {
    /// Returns how many states each unit has besides the durable one: a line with three pending
    /// stores has three, an unsynced sector one. Units and their order stay as they are until
    /// something is written or becomes durable.
    fn units(&self) -> Vec<u16>;

    /// Moves `choices`, one for each unit, to states that are possible together (a store behind a
    /// `clflush` is not durable before the flushed line), and of equal ones to the first.
    fn settle(&self, choices: &mut [u16]) {
        let _ = choices;
    }

    /// Returns the medium as a crash with these choices would leave it, ready to be opened again;
    /// its type depends on the medium. It is attached to `power` if that is watched. Dropping it
    /// undoes all changes made to it; until then the medium itself must not be accessed.
    fn image(&self, choices: &[u16], power: &Power) -> Box<dyn Any>;

    /// Returns the times, by [`Power::tick`], of the changes that are not durable; none if unknown.
    fn moments(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Moves `choices`, one for each unit, to the state in which everything done before a moment is
    /// durable and nothing since: the result of a power cut if caches are written back in time, or
    /// keep their contents. A medium that knows no moments leaves them unchanged.
    fn cut(&self, moment: u64, choices: &mut [u16]) {
        let _ = (moment, choices);
    }

    /// Returns which units were read in the images since the last call; none if unknown.
    fn looked_at(&self) -> Option<Vec<bool>> {
        None
    }

    /// Returns the first forbidden use by the program, if there was one.
    fn misuse(&self) -> Option<String> {
        None
    }

    /// Reports that a crash point has passed, so that stores seen at it count as durable.
    fn passed(&self) {}
}

/// Kind of change that takes effect at a crash point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PointKind {
    /// A thread's flushed lines become durable.
    Drain,
    /// A file's bytes or length become durable.
    Sync,
    /// A directory's entries become durable.
    DirectorySync,
    /// A rename, an unlink, a new file: not durable, but its order matters.
    Entry,
    /// A write to a file: not durable, but other media may hold older stores.
    Write,
    /// Some stores, on media where stores are durable at once.
    Stores,
    /// Nothing: the history has ended.
    End,
}

/// A moment at which a crash is worth testing: just before a change takes effect.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Kind of change that will take effect.
    pub kind: PointKind,
    /// Place in the program.
    pub place: Place,
    /// Number of earlier points.
    pub number: u64,
    /// True if nothing takes effect, as in a drain of a thread that has flushed nothing. Such
    /// points yield no new crash states.
    pub is_empty: bool,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "point {} ({:?} at {})", self.number, self.kind, self.place)
    }
}

/// Media attached to a [`Power`].
pub type Media = Vec<Arc<dyn Unsettled>>;

/// Watcher that is called at crash points. Nothing else of the machine runs meanwhile.
pub type Watch = Box<dyn FnMut(&Point, &[Arc<dyn Unsettled>]) + Send>;

/// The power supply of one machine's media: when it fails, it fails for all of them at once.
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
    /// Makes a machine without media.
    #[must_use]
    pub fn new() -> Power {
        Power::default()
    }

    /// Attaches a medium.
    pub fn attach(&self, medium: Arc<dyn Unsettled>) {
        self.state().media.push(medium);
    }

    /// Returns the media in the order in which they were attached.
    #[must_use]
    pub fn media(&self) -> Media {
        self.state().media.clone()
    }

    /// Detaches all media and the watcher. Media refer to their power and the power to its media,
    /// so it must be cleared at the end, or both stay in memory for ever.
    pub fn clear(&self) {
        self.unwatch();
        let media = std::mem::take(&mut self.state().media);
        drop(media);
    }

    /// Returns true if there is a watcher.
    #[inline]
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.0.watched.load(Ordering::Relaxed)
    }

    /// Sets the watcher, replacing an earlier one.
    pub fn watch(&self, watch: Watch) {
        self.state().watch = Some(watch);
        self.0.watched.store(true, Ordering::Relaxed);
    }

    /// Removes the watcher.
    pub fn unwatch(&self) {
        self.0.watched.store(false, Ordering::Relaxed);
        let watch = self.state().watch.take();
        drop(watch);
    }

    /// Returns the number of crash points so far.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.0.points.load(Ordering::Relaxed)
    }

    /// Returns the next moment of the machine's own time, by which all changes of its media are
    /// ordered. The first is 1.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.0.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reports a crash point. A medium calls it just before a change takes effect, without holding
    /// a lock of its own.
    pub fn point(&self, kind: PointKind, place: Place) {
        self.pass_with(kind, place, false);
        self.media().iter().for_each(|medium| medium.passed());
    }

    /// Reports an empty crash point, at which no change takes effect.
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
    use std::panic::Location;

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
