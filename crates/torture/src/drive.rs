//! Driver of all subjects: it tries histories until time is up or one fails, and shortens the
//! failing history.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use entresol_base::Stop;
use entresol_base::clock::{Clock, SystemClock};
use entresol_base::shrink::{ShrinkLimits, shrink};
use entresol_measure::BenchError;
use entresol_measure::process::thread_cpu_ns;
use entresol_measure::progress::Progress;
use entresol_media::crash::{Nested, Report};

use super::outcome::{FailureFound, Outcome};

/// Largest number of runs to shorten a history.
const SHRINK_RUNS_MAX: u32 = 300;

/// History of a subject, and the way to try it.
pub(super) trait Tried {
    /// Operation of a history.
    type Op: Clone + fmt::Display;

    /// Returns the name of the subject, with the model of the media.
    fn name(&self) -> String;

    /// Returns the operations of the history.
    fn history(&self) -> Vec<Self::Op>;

    /// Runs the operations and tries crashes throughout, or until `stop` is due.
    ///
    /// # Errors
    /// Fails if the operations cannot be run at all.
    fn run(&self, ops: &[Self::Op], stop: &Stop) -> Result<Ran, BenchError>;

    /// Returns the command that tries the history again.
    fn command(&self) -> String;
}

/// Result of a history.
pub(super) struct Ran {
    /// Counts of the crashes that were tried.
    pub(super) report: Report,
    /// Description of the failure, if there is one.
    pub(super) wrong: Option<String>,
}

impl From<Report> for Ran {
    fn from(report: Report) -> Ran {
        let wrong = report.failure.as_ref().map(ToString::to_string);
        Ran { report, wrong }
    }
}

/// Selection of histories, the time for them, and the places that they should reach.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of the first history; each further history has the next seed.
    pub seed: u64,
    /// Time limit, if there is one.
    pub time: Option<Duration>,
    /// Number of histories, if it is limited.
    pub histories: Option<u64>,
    /// True if caches keep their contents at a power cut, false if not; both are tried if not
    /// given.
    pub caches_survive: Option<bool>,
    /// One recovery in this many is itself interrupted by crashes; 0 means none.
    pub nested_one_in: u32,
    /// Places in the source that crashes should reach.
    pub known_places: BTreeSet<String>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            seed: 1,
            time: None,
            histories: None,
            caches_survive: None,
            nested_one_in: Nested::default().one_in,
            known_places: BTreeSet::new(),
        }
    }
}

impl Plan {
    /// Returns the values of `caches_survive` under which each history is tried.
    pub(super) fn domains(&self) -> impl Iterator<Item = bool> {
        let wanted = self.caches_survive;
        [false, true].into_iter().filter(move |it| wanted.is_none_or(|wanted| wanted == *it))
    }
}

/// Names the persistence domain as the command line does: what keeps its contents at a power cut.
pub(super) fn domain(caches_survive: bool) -> &'static str {
    if caches_survive { "caches" } else { "memory" }
}

/// Tries the histories that `trials` returns for each number in turn and adds their results to
/// `outcome`. When time is up, or the caller asks for an end, the current history is broken off at
/// its next image.
pub(super) fn drive<T: Tried>(
    mut outcome: Outcome,
    plan: &Plan,
    trials: impl Fn(u64) -> Vec<T>,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    if plan.histories == Some(0) || plan.time.is_some_and(|time| time.is_zero()) {
        let text = "nothing is tried in no time or with no histories; give at least one";
        return Err(BenchError::Usage(text.to_owned()));
    }
    let clock = SystemClock::new();
    let (start, start_cpu) = (clock.now(), thread_cpu_ns());
    let elapsed = || clock.now().since(start);
    let stop = plan.time.map_or_else(|| progress.stop().clone(), |it| progress.stop().after(it));
    outcome.seed = plan.seed;
    'histories: for number in 0..plan.histories.unwrap_or(u64::MAX) {
        for trial in trials(number) {
            if stop.is_due() {
                break 'histories;
            }
            outcome.failure = try_one(&trial, &mut outcome, &stop)?;
            progress.say(&format!("{} images", outcome.images));
            if outcome.failure.is_some() {
                break 'histories;
            }
        }
        progress.advance(1);
    }
    outcome.interrupted = stop.is_asked();
    let cpu_s = (thread_cpu_ns() - start_cpu) as f64 / 1e9;
    outcome.finish((elapsed().as_secs_f64(), cpu_s), &plan.known_places);
    Ok(outcome)
}

/// Tries one history and shortens it if it fails, for as long as there is time. A run that is
/// broken off proves nothing; its operations are not taken for a shorter failure.
fn try_one<T: Tried>(
    trial: &T,
    outcome: &mut Outcome,
    stop: &Stop,
) -> Result<Option<FailureFound>, BenchError> {
    let history = trial.history();
    let Ran { report, wrong } = trial.run(&history, stop)?;
    outcome.add(trial.name(), &report);
    let Some(what) = wrong else { return Ok(None) };
    let mut shortest_what = what.clone();
    let mut fails = |ops: &[T::Op]| {
        if stop.is_due() {
            return false;
        }
        let wrong = trial.run(ops, stop).ok().and_then(|ran| ran.wrong);
        wrong.map(|what| shortest_what = what).is_some()
    };
    let limits = ShrinkLimits { runs_max: SHRINK_RUNS_MAX };
    let shortest = shrink(history, &mut fails, limits);
    let shortest = shortest.iter().map(T::Op::to_string).collect();
    Ok(Some(FailureFound { what, command: trial.command(), shortest, shortest_what }))
}
