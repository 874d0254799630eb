//! Torture of the cache: the histories of [`entresol_cache::trial`], in which its process dies and
//! the power fails, with damage to its files and a disk in trouble, until time is up.

use entresol_base::Stop;
use entresol_cache::trial::{Kind, Op, Trial};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_simulated::crash::Report;

use super::drive::{Plan, Ran, Tried, drive};
use super::outcome::Outcome;

/// Operations of a history.
const LEN: usize = 200;

/// Settings of a run.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Time and histories.
    pub plan: Plan,
}

/// Tries histories until time is up or one fails.
///
/// # Errors
/// Fails if there is nothing to try.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<Outcome, BenchError> {
    let seed = settings.plan.seed;
    let outcome = Outcome { subject: "cache", ..Outcome::default() };
    let trials = |number| vec![Trial::of(seed.wrapping_add(number))];
    drive(outcome, &settings.plan, trials, progress)
}

impl Tried for Trial {
    type Op = Op;

    fn name(&self) -> String {
        let medium = match self.kind {
            Kind::Dram => "DRAM",
            Kind::Pmem => "persistent memory",
            Kind::File => "a block file",
        };
        format!("the cache in {medium}, {} threads", self.threads)
    }

    fn history(&self) -> Vec<Op> {
        Trial::history(self, LEN)
    }

    fn run(&self, ops: &[Op], stop: &Stop) -> Result<Ran, BenchError> {
        Ok(match self.run_until(ops, stop) {
            Ok(report) => report.into(),
            Err(what) => Ran { report: Report::default(), wrong: Some(what) },
        })
    }

    fn command(&self) -> String {
        format!("entresol torture cache --seed {} --histories 1", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_survives_some_histories() {
        let plan = Plan { histories: Some(20), seed: 500, ..Plan::default() };
        let outcome = torture(&Settings { plan }, &Progress::hidden()).expect("histories");
        assert!(outcome.pass, "{outcome}");
        assert!(outcome.images > 200 && outcome.subjects.len() > 3, "{outcome}");
    }
}
