//! Torture of the store: the histories of [`entresol_store::trial`] with crashes and damage, until
//! time is up. Each history runs twice, first with crashes throughout, then with damage to the
//! files of the closed store.

use entresol_base::Stop;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::crash::Report;
pub use entresol_store::trial::load::{Load, load_while};
use entresol_store::trial::{Op, Trial};

use super::drive::{Plan, Ran, Tried, drive};
use super::outcome::Outcome;

/// Operations of a history.
const LEN: usize = 40;

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
    let Plan { seed, nested_one_in, .. } = settings.plan;
    let outcome = Outcome { subject: "store", ..Outcome::default() };
    let trials = |number| {
        let trial = Trial { nested_one_in, ..Trial::of(seed.wrapping_add(number)) };
        [Harm::Crashes, Harm::Damage].map(|harm| History { trial, harm }).into()
    };
    drive(outcome, &settings.plan, trials, progress)
}

/// Harm to a store.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Crashes,
    Damage,
}

/// History with one kind of harm.
struct History {
    trial: Trial,
    harm: Harm,
}

impl Tried for History {
    type Op = Op;

    fn name(&self) -> String {
        match self.harm {
            Harm::Crashes if self.trial.troubles => {
                "the store, crashes with drives in trouble".to_owned()
            }
            Harm::Crashes => "the store, crashes".to_owned(),
            Harm::Damage => "the store, damage to its files".to_owned(),
        }
    }

    fn history(&self) -> Vec<Op> {
        self.trial.history(LEN)
    }

    /// Counts a wrong result without a power cut as a failure as well.
    fn run(&self, ops: &[Op], stop: &Stop) -> Result<Ran, BenchError> {
        let ran = match self.harm {
            Harm::Crashes => self.trial.run_until(ops, stop),
            Harm::Damage => self.trial.run_damaged_until(ops, stop),
        };
        Ok(match ran {
            Ok(report) => report.into(),
            Err(what) => Ran { report: Report::default(), wrong: Some(what) },
        })
    }

    fn command(&self) -> String {
        let Trial { seed, nested_one_in, .. } = self.trial;
        format!("entresol torture store --seed {seed} --histories 1 --nested {nested_one_in}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interrupts few recoveries, since nested crashes take most of the time.
    #[test]
    fn the_store_survives_some_histories() {
        survives(Plan { nested_one_in: 200, ..Plan::default() });
    }

    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_the_store_survives_some_histories() {
        survives(Plan::default());
    }

    fn survives(plan: Plan) {
        let plan = Plan { histories: Some(3), seed: 100, ..plan };
        let outcome = torture(&Settings { plan }, &Progress::hidden()).expect("histories");
        assert!(outcome.pass, "{outcome}");
        assert!(outcome.images > 1_000 && outcome.images_nested > 10, "{outcome}");
        assert!(outcome.places.len() > 10, "{outcome}");
    }
}
