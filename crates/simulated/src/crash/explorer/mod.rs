//! The explorer: at every crash point it opens media as a crash there could leave them, and checks
//! that the state that recovery finds is allowed.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Stop;
use entresol_base::rng::Rng;
use entresol_base::world::{World, WorldOptions};

use super::choices::{Budget, Choices};
use super::places::Places;
use super::{Point, PointKind, Power, RecordedRegion, RegionImage, Unsettled};

/// A subject of crash tests: its recovery, and the check of the result.
pub trait Subject: Send + Sync + 'static {
    /// Result of recovery.
    type Opened;

    /// Opens the media that a crash left.
    ///
    /// # Errors
    /// A text that tells why they cannot be opened, which is a failure unless a fault was planted.
    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String>;

    /// Checks the opened subject against the states that the history allows at the outermost crash
    /// point. No crashes are tried here.
    ///
    /// # Errors
    /// A text that tells what is not allowed.
    fn check(&self, opened: Self::Opened, crash: &Crash<'_>) -> Result<(), String>;
}

/// A crash that has just happened.
#[derive(Debug)]
pub struct Crash<'a> {
    /// Point at which the history was cut off.
    pub point: &'a Point,
    /// Media as they were left, in the order in which they were attached.
    pub images: &'a [Box<dyn Any>],
    /// Number of recoveries that were cut off before.
    pub depth: u32,
}

impl Crash<'_> {
    /// Returns the image of a medium that is a region.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn region(&self, medium: usize) -> &Arc<RecordedRegion> {
        let image = self.images.get(medium).and_then(|image| image.downcast_ref::<RegionImage>());
        match image {
            Some(image) => image.region(),
            None => panic!("medium {medium} is no region"),
        }
    }
}

/// Extent of the exploration.
#[derive(Debug, Clone, Copy)]
pub struct ExploreOptions {
    /// Seed for the selection of images.
    pub seed: u64,
    /// Maximum number of states at a point that are all tested.
    pub exhaustive_max: u32,
    /// Maximum number of tested states if there are more.
    pub images_max: u32,
    /// Crashes in recovery.
    pub nested: Nested,
}

/// Extent of crashes in recovery itself.
#[derive(Debug, Clone, Copy)]
pub struct Nested {
    /// One in this many recoveries is watched; 0 is never.
    pub one_in: u32,
    /// Maximum depth: 2 is a crash in the recovery from a crash in recovery.
    pub depth_max: u32,
    /// Number of images tested at each point of a recovery.
    pub images_max: u32,
}

impl Default for Nested {
    fn default() -> Nested {
        Nested { one_in: 8, depth_max: 2, images_max: 8 }
    }
}

impl Default for ExploreOptions {
    fn default() -> ExploreOptions {
        let nested = Nested::default();
        ExploreOptions { seed: 0, exhaustive_max: 64, images_max: 64, nested }
    }
}

/// Result of an exploration.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Points of the history that were explored.
    pub points: u64,
    /// Points of which every state was tested.
    pub points_exhaustive: u64,
    /// Images opened and checked, nested ones included.
    pub images: u64,
    /// Images of crashes in recovery.
    pub images_nested: u64,
    /// Places of the points, with counts.
    pub places: Places,
    /// An end was due before all was looked at.
    pub is_broken_off: bool,
    /// The first thing that was not allowed. Nothing is looked at after it.
    pub failure: Option<Failure>,
}

/// A state that must not be found after a crash.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Points at which the history, then recoveries from it, were cut off.
    pub points: Vec<Point>,
    /// Choices made at the last of these, for all media.
    pub choices: Vec<u16>,
    /// Number of images tested before.
    pub image: u64,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, point) in self.points.iter().enumerate() {
            let cut = if depth == 0 { "a crash at" } else { ", then one in recovery at" };
            write!(f, "{cut} {point}")?;
        }
        write!(f, ", image {}: {}", self.image, self.what)
    }
}

/// Tries crashes of one history.
pub struct Explorer(Arc<Core>);

/// A subject without its type, for which the explorer is compiled once.
trait Tried: Send + Sync {
    /// Opens the media that a crash left, calls `recovered`, and checks what was opened.
    fn test(&self, crash: &Crash<'_>, recovered: &mut dyn FnMut()) -> Result<(), String>;
}

impl<S: Subject> Tried for S {
    fn test(&self, crash: &Crash<'_>, recovered: &mut dyn FnMut()) -> Result<(), String> {
        let opened = self.recover(crash)?;
        recovered();
        self.check(opened, crash)
    }
}

struct Core {
    subject: Arc<dyn Tried>,
    options: ExploreOptions,
    stop: Stop,
    /// A power supply without a watcher.
    quiet: Power,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    report: Report,
}

impl Explorer {
    /// Makes an explorer that has seen nothing yet.
    #[must_use]
    pub fn new(subject: Arc<impl Subject>, options: ExploreOptions) -> Explorer {
        Explorer::until(subject, options, &Stop::new())
    }

    /// An explorer that looks at no further image once an end is due.
    #[must_use]
    pub fn until(subject: Arc<impl Subject>, options: ExploreOptions, stop: &Stop) -> Explorer {
        let state = State { rng: Rng::named(options.seed, "images"), report: Report::default() };
        let quiet = Power::new();
        let (stop, state) = (stop.clone(), Mutex::new(state));
        Explorer(Arc::new(Core { subject, options, stop, quiet, state }))
    }

    /// Watches every crash point of `power` from now on.
    pub fn watch(&self, power: &Power) {
        let core = self.0.clone();
        power.watch(Box::new(move |point, media| core.look_on(vec![*point], media)));
    }

    /// Tests the states at the history's end, then clears `power`.
    #[track_caller]
    #[must_use]
    pub fn finish(&self, power: &Power) -> Report {
        power.point(PointKind::End, Location::caller());
        power.clear();
        self.report()
    }

    /// Returns the result so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.0.state().report.clone()
    }

    /// Returns true once a state was found that is not allowed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.state().report.failure.is_some()
    }

    /// Returns true once no more images are explored: something was found, or an end was due. The
    /// caller may leave out the rest of the history.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Explores a point, within a world in a new world for the images: nothing of the crashed one
    /// goes on meanwhile, and a recovery that waits for ever is reported.
    fn look_on(self: &Arc<Self>, points: Vec<Point>, media: &[Arc<dyn Unsettled>]) {
        if self.is_over() {
            return;
        }
        if let Some(point) = points.last() {
            self.state().report.places.reach(point);
        }
        if World::current().is_none() {
            return self.explore(&points, media);
        }
        if points.last().is_none_or(|point| point.is_empty) {
            return;
        }
        let (core, media) = (self.clone(), media.to_vec());
        let within = points.clone();
        let world = World::new(WorldOptions::seeded(self.options.seed));
        if let Err(failure) = world.run(move || core.explore(&within, &media)) {
            self.fail(&points, &[], format!("recovery: {failure}"));
        }
    }

    fn is_over(&self) -> bool {
        let report = &mut self.state().report;
        if report.failure.is_none() {
            report.is_broken_off |= self.stop.is_due();
        }
        report.failure.is_some() || report.is_broken_off
    }

    /// Tests states in which the last of `points` may leave the media.
    fn explore(self: &Arc<Self>, points: &[Point], media: &[Arc<dyn Unsettled>]) {
        let [.., point] = points else { return };
        let mut rng = {
            let state = &mut *self.state();
            if point.is_empty {
                return;
            }
            Rng::new(state.rng.next_u64())
        };
        if let Some(what) = media.iter().find_map(|medium| medium.misuse()) {
            return self.fail(points, &[], what);
        }
        let of_media: Vec<Vec<u16>> = media.iter().map(|medium| medium.units()).collect();
        let mut choices = Choices::new(of_media.concat(), self.budget(points));
        let is_exhaustive = choices.is_exhaustive();
        if !is_exhaustive {
            choices.know(media.iter().flat_map(|medium| medium.moments()).collect());
        }
        let images = self.look(points, media, &of_media, &mut choices, &mut rng);
        let report = &mut self.state().report;
        report.places.look(point, images);
        if points.len() == 1 {
            report.points += 1;
            report.points_exhaustive += u64::from(is_exhaustive);
        }
    }

    fn budget(&self, points: &[Point]) -> Budget {
        let ExploreOptions { exhaustive_max, images_max, nested, .. } = self.options;
        let of_history = points.len() == 1;
        let images_max = if of_history { images_max } else { nested.images_max };
        let exhaustive_max = if of_history { exhaustive_max } else { nested.images_max };
        Budget { exhaustive_max: exhaustive_max.into(), images_max: images_max.into() }
    }

    /// Tests the chosen states, and returns the number of images.
    fn look(
        self: &Arc<Self>,
        points: &[Point],
        media: &[Arc<dyn Unsettled>],
        of_media: &[Vec<u16>],
        choices: &mut Choices,
        rng: &mut Rng,
    ) -> u64 {
        let mut known = HashSet::new();
        let limit = self.budget(points);
        let limit = limit.images_max.max(limit.exhaustive_max);
        while (known.len() as u64) < limit {
            if choices.may_restrict() {
                choices.restrict(&looked_at(media, of_media));
            }
            let cut = |moment, choices: &mut [u16]| {
                for (medium, range) in media.iter().zip(ranges(of_media)) {
                    medium.cut(moment, &mut choices[range]);
                }
            };
            let Some(choice) = choices.next(rng, cut) else { break };
            let mut choice = choice.to_vec();
            for (medium, range) in media.iter().zip(ranges(of_media)) {
                medium.settle(&mut choice[range]);
            }
            if known.contains(&choice) {
                continue;
            }
            let is_nested = self.is_nested(points, rng);
            if let Err(what) = self.crash(points, media, of_media, &choice, is_nested) {
                self.fail(points, &choice, what);
            }
            known.insert(choice);
            if self.is_over() {
                break;
            }
        }
        known.len() as u64
    }

    fn is_nested(&self, points: &[Point], rng: &mut Rng) -> bool {
        let Nested { one_in, depth_max, .. } = self.options.nested;
        one_in != 0 && points.len() <= depth_max as usize && rng.one_in(one_in)
    }

    /// Opens one image and checks it.
    fn crash(
        self: &Arc<Self>,
        points: &[Point],
        media: &[Arc<dyn Unsettled>],
        of_media: &[Vec<u16>],
        choice: &[u16],
        is_nested: bool,
    ) -> Result<(), String> {
        let watched = is_nested.then(|| self.watched(points));
        let power = watched.as_ref().unwrap_or(&self.quiet);
        {
            let report = &mut self.state().report;
            report.images += 1;
            report.images_nested += u64::from(points.len() > 1);
        }
        let images = media.iter().zip(ranges(of_media));
        let images = images.map(|(medium, range)| medium.image(&choice[range], power));
        let images: Vec<Box<dyn Any>> = images.collect();
        let depth = points.len() as u32 - 1;
        let crash = Crash { point: &points[0], images: &images, depth };
        let mut recovered = || {
            if let Some(power) = &watched {
                power.point(PointKind::End, Location::caller());
                power.unwatch();
            }
        };
        let test = AssertUnwindSafe(|| self.subject.test(&crash, &mut recovered));
        let outcome = catch_unwind(test);
        drop(images);
        if let Some(power) = watched {
            power.clear();
        }
        outcome.unwrap_or_else(|panic| match message(&*panic) {
            Some(message) => Err(format!("panic: {message}")),
            // Not a panic: the world stops, and unwinds its threads.
            None => resume_unwind(panic),
        })
    }

    /// Makes a power at whose points recovery is cut off.
    fn watched(self: &Arc<Self>, points: &[Point]) -> Power {
        let (power, core, before) = (Power::new(), self.clone(), points.to_vec());
        power.watch(Box::new(move |point, media| {
            core.look_on([&before[..], &[*point]].concat(), media);
        }));
        power
    }

    fn fail(&self, points: &[Point], choices: &[u16], what: String) {
        let report = &mut self.state().report;
        if report.failure.is_none() {
            let (points, choices) = (points.to_vec(), choices.to_vec());
            report.failure = Some(Failure { points, choices, image: report.images, what });
        }
    }
}

/// Returns the range of each medium's units among all units.
fn ranges(of_media: &[Vec<u16>]) -> impl Iterator<Item = std::ops::Range<usize>> {
    of_media.iter().scan(0, |begin, units| {
        let end = *begin + units.len();
        Some(std::mem::replace(begin, end)..end)
    })
}

fn looked_at(media: &[Arc<dyn Unsettled>], of_media: &[Vec<u16>]) -> Vec<bool> {
    let of_each = media.iter().zip(of_media);
    let of_each = of_each.map(|(medium, units)| match medium.looked_at() {
        Some(looked) if looked.len() == units.len() => looked,
        _ => vec![true; units.len()],
    });
    of_each.collect::<Vec<_>>().concat()
}

fn message(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}

impl fmt::Debug for Explorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explorer").field("options", &self.0.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
