//! How any subject is tried: history after history until time is up or one fails, which is then
//! made short.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use entresol_base::clock::{Clock, SystemClock};
use entresol_base::shrink::{ShrinkLimits, shrink};
use entresol_media::crash::Report;

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

    /// The history.
    fn history(&self) -> Vec<Self::Op>;

    /// Does these operations and tries crashes all the way.
    ///
    /// # Errors
    /// What is wrong without any crash.
    fn run(&self, ops: &[Self::Op]) -> Result<Report, String>;

    /// The command that tries it again.
    fn command(&self) -> String;

    /// What went wrong; none if nothing did.
    fn fails(&self, ops: &[Self::Op]) -> Option<String> {
        match self.run(ops) {
            Ok(report) => Some(report.failure?.to_string()),
            Err(what) => Some(what),
        }
    }
}

/// For how long, and what is expected.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) subject: &'static str,
    pub(super) seed: u64,
    pub(super) planted: bool,
    pub(super) time: Option<Duration>,
    pub(super) histories: Option<u64>,
    pub(super) known_places: BTreeSet<String>,
}

/// Tries what `trials` says for each history number in turn.
pub(super) fn drive<T: Tried>(
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
    let Plan { subject, seed, planted, .. } = *plan;
    let mut outcome = Outcome { subject, seed, planted, ..Outcome::default() };
    let mut seconds = 0;
    for number in 0..plan.histories.unwrap_or(u64::MAX) {
        if plan.time.is_some_and(|time| elapsed() >= time) {
            break;
        }
        for trial in trials(number) {
            outcome.failure = try_one(&trial, &mut outcome);
            if outcome.failure.is_some() {
                break;
            }
        }
        let now = elapsed().as_secs();
        progress.advance(now - std::mem::replace(&mut seconds, now));
        progress.say(&format!("{} images", outcome.images));
        if outcome.failure.is_some() {
            break;
        }
    }
    let cpu_s = (thread_cpu_ns() - start_cpu) as f64 / 1e9;
    outcome.finish((elapsed().as_secs_f64(), cpu_s), &plan.known_places);
    Ok(outcome)
}

fn try_one<T: Tried>(trial: &T, outcome: &mut Outcome) -> Option<FailureFound> {
    let history = trial.history();
    let what = match trial.run(&history) {
        Ok(report) => {
            outcome.add(&report);
            report.failure?.to_string()
        }
        Err(what) => what,
    };
    let limits = ShrinkLimits { runs_max: SHRINK_RUNS_MAX };
    let shortest = shrink(history, |ops: &[T::Op]| trial.fails(ops).is_some(), limits);
    let shortest_what = trial.fails(&shortest).unwrap_or_default();
    let shortest = shortest.iter().map(T::Op::to_string).collect();
    Some(FailureFound { what, command: trial.command(), shortest, shortest_what })
}
