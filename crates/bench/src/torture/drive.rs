//! How any subject is tried: history after history until time is up or one fails, which is then
//! made short.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use entresol_base::Stop;
use entresol_base::clock::{Clock, SystemClock};
use entresol_base::shrink::{ShrinkLimits, shrink};
use entresol_media::crash::{Nested, Report};

use super::outcome::{FailureFound, Outcome};
use crate::error::BenchError;
use crate::process::thread_cpu_ns;
use crate::progress::Progress;

/// A history is run so often to make it short.
const SHRINK_RUNS_MAX: u32 = 300;

/// One history and how it is tried.
pub(super) trait Tried {
    /// What a history consists of.
    type Op: Clone + fmt::Display;

    /// What is tried, under which model.
    fn name(&self) -> String;

    /// The history.
    fn history(&self) -> Vec<Self::Op>;

    /// Does these operations and tries crashes all the way, or until an end is due.
    ///
    /// # Errors
    /// If they cannot be done at all.
    fn run(&self, ops: &[Self::Op], stop: &Stop) -> Result<Ran, BenchError>;

    /// The command that tries it again.
    fn command(&self) -> String;
}

/// What came of a history.
pub(super) struct Ran {
    /// What was looked at.
    pub(super) report: Report,
    /// What is wrong, if anything is.
    pub(super) wrong: Option<String>,
}

impl From<Report> for Ran {
    fn from(report: Report) -> Ran {
        let wrong = report.failure.as_ref().map(ToString::to_string);
        Ran { report, wrong }
    }
}

/// Which histories, for how long, and what ought to be seen.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of the first history; each next one has the next.
    pub seed: u64,
    /// For so long, if given.
    pub time: Option<Duration>,
    /// So many histories, if given.
    pub histories: Option<u64>,
    /// Whether caches keep their contents when the power fails; both if not given.
    pub caches_survive: Option<bool>,
    /// One recovery in so many is cut off by crashes itself; 0 is none.
    pub nested_one_in: u32,
    /// Volumes that ought to be reached.
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
    /// Whether caches survive, in each of the ways in which a history is tried.
    pub(super) fn domains(&self) -> impl Iterator<Item = bool> {
        let wanted = self.caches_survive;
        [false, true].into_iter().filter(move |it| wanted.is_none_or(|wanted| wanted == *it))
    }
}

/// What keeps its contents when the power fails, as the command line has it.
pub(super) fn domain(caches_survive: bool) -> &'static str {
    if caches_survive { "caches" } else { "memory" }
}

/// Tries what `trials` says for each history number in turn, and adds what comes of it to what is
/// known of the run from the outset. When time is up, or the caller has asked for an end, the
/// history under way is broken off at its next image.
pub(super) fn drive<T: Tried>(
    mut outcome: Outcome,
    plan: &Plan,
    trials: impl Fn(u64) -> Vec<T>,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    if plan.histories == Some(0) || plan.time.is_some_and(|time| time.is_zero()) {
        let text = "--duration and --histories are 0, so nothing would be tested; give at least \
                    one";
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

/// Tries one history. One that fails is made shorter as long as there is time: a run that is broken
/// off shows nothing, so what it tried is not taken for the shortest.
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
