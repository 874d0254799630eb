//! Result of a torture run.

use std::collections::BTreeSet;
use std::fmt;

use entresol_base::list::shortened;
use entresol_media::crash::{Places, Report};
use serde::Serialize;

/// Result of a torture run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Subject of the run.
    pub subject: &'static str,
    /// Seed of the first history.
    pub seed: u64,
    /// Histories run.
    pub histories: u64,
    /// Histories broken off because time was up or the user interrupted.
    pub histories_broken_off: u64,
    /// True if the user interrupted the run.
    pub interrupted: bool,
    /// Crash points examined.
    pub points: u64,
    /// Crash points at which every possible state was examined.
    pub points_exhaustive: u64,
    /// Images opened and checked, including nested ones.
    pub images: u64,
    /// Images of crashes during recovery.
    pub images_nested: u64,
    /// Subjects tried, in the order of their first history.
    pub subjects: Vec<SubjectSeen>,
    /// Subjects that were not tried because time was up.
    pub subjects_missing: Vec<String>,
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// Processor time in seconds.
    pub elapsed_cpu_s: f64,
    /// Images per second of processor time, on one core, including the histories.
    pub images_s: f64,
    /// Places in the source of the crash points.
    pub places: Vec<PlaceSeen>,
    /// Known places that were not reached.
    pub places_missing: Vec<String>,
    /// First failure.
    pub failure: Option<FailureFound>,
    /// True if nothing failed and every known place was reached; a planted bug must have been
    /// found.
    pub pass: bool,
    /// True if a bug was planted, which must be found.
    pub planted: bool,
    #[serde(skip)]
    pub(super) counts: Places,
}

/// Counts of one of several subjects that are tried in turn.
#[derive(Debug, Clone, Serialize)]
pub struct SubjectSeen {
    /// Name of the subject, with its persistence domain.
    pub name: String,
    /// Histories run.
    pub histories: u64,
    /// Images opened and checked.
    pub images: u64,
}

/// Place in the source at which crashes were tried.
#[derive(Debug, Clone, Serialize)]
pub struct PlaceSeen {
    /// Kind of operation that takes effect there, and its position.
    pub place: String,
    /// Number of times that the place was reached.
    pub reached: u64,
    /// Number of times that nothing could take effect.
    pub empty: u64,
    /// Images examined.
    pub images: u64,
}

/// Failure after a crash.
#[derive(Debug, Clone, Serialize)]
pub struct FailureFound {
    /// Description of the failure and its crash.
    pub what: String,
    /// Command that repeats the failure.
    pub command: String,
    /// Operations of the shortest history found that still fails.
    pub shortest: Vec<String>,
    /// Description of the failure of the shortest history.
    pub shortest_what: String,
}

impl Outcome {
    pub(super) fn add(&mut self, name: String, report: &Report) {
        self.histories += 1;
        self.histories_broken_off += u64::from(report.is_broken_off);
        let known = self.subjects.iter().position(|subject| subject.name == name);
        let place = known.unwrap_or_else(|| {
            self.subjects.push(SubjectSeen { name, histories: 0, images: 0 });
            self.subjects.len() - 1
        });
        self.subjects[place].histories += 1;
        self.subjects[place].images += report.images;
        self.points += report.points;
        self.points_exhaustive += report.points_exhaustive;
        self.images += report.images;
        self.images_nested += report.images_nested;
        self.counts.add(&report.places);
    }

    /// Describes the failure, with the command that repeats it, or what the run did not find or
    /// reach.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        match &self.failure {
            Some(failure) => Some(format!("a crash was not survived; again: {}", failure.command)),
            None if self.planted => Some("the planted bug was not found".to_owned()),
            None if !self.places_missing.is_empty() => {
                Some(format!("{} known places were not reached", self.places_missing.len()))
            }
            None => None,
        }
    }

    pub(super) fn finish(&mut self, elapsed: (f64, f64), known: &BTreeSet<String>) {
        (self.elapsed_s, self.elapsed_cpu_s) = elapsed;
        self.images_s = self.images as f64 / self.elapsed_cpu_s.max(1e-9);
        let places = self.counts.iter().map(|(kind, place, counts)| PlaceSeen {
            place: format!("{kind:?} {place}"),
            reached: counts.reached,
            empty: counts.empty,
            images: counts.images,
        });
        self.places = places.collect();
        self.places_missing = self.counts.missing(known);
        self.pass = self.complaint().is_none();
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} {:>14}", "histories", self.histories)?;
        if self.histories_broken_off > 0 {
            let why = if self.interrupted {
                "  broken off, interrupted"
            } else {
                "  broken off, time was up"
            };
            writeln!(f, "{why:<28} {:>14}", self.histories_broken_off)?;
        }
        writeln!(f, "{:<28} {:>14}", "crash points", self.points)?;
        writeln!(f, "{:<28} {:>14}", "  of these exhaustive", self.points_exhaustive)?;
        writeln!(f, "{:<28} {:>14}", "images", self.images)?;
        writeln!(f, "{:<28} {:>14}", "  of crashes in recovery", self.images_nested)?;
        writeln!(f, "{:<28} {:>14.0}", "images in a second of CPU", self.images_s)?;
        writeln!(f, "\n{:>10} {:>10} {:>12}  tried", "histories", "", "images")?;
        for SubjectSeen { name, histories, images } in &self.subjects {
            writeln!(f, "{histories:>10} {:>10} {images:>12}  {name}", "")?;
        }
        if !self.subjects_missing.is_empty() {
            let missing = shortened(&self.subjects_missing).join(", ");
            writeln!(f, "not tried, time was up: {missing}; give a longer --duration")?;
        }
        writeln!(f, "\n{:>10} {:>10} {:>12}  place", "reached", "empty", "images")?;
        for PlaceSeen { place, reached, empty, images } in &self.places {
            writeln!(f, "{reached:>10} {empty:>10} {images:>12}  {place}")?;
        }
        let missing = self.places_missing.iter().map(|place| format!("never reached: {place}"));
        shortened(missing).iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let Some(failure) = &self.failure else { return Ok(()) };
        writeln!(f, "\nfailed: {}", failure.what)?;
        writeln!(f, "again:  {}", failure.command)?;
        writeln!(
            f,
            "\nthe shortest history found that fails ({} operations):",
            failure.shortest.len()
        )?;
        failure.shortest.iter().try_for_each(|op| writeln!(f, "  {op}"))?;
        writeln!(f, "{}", failure.shortest_what)
    }
}
