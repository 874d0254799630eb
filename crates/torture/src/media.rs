//! Self-test of the crash machine on toy structures in a recorded region. Correct toys must pass,
//! and a planted bug must be found.

use entresol_base::Stop;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;

use super::drive::{Plan, Ran, Tried, domain, drive};
use super::history::{Op, Trial};
use super::outcome::Outcome;
use super::{Plant, Structure};

/// Operations of a history.
const HISTORY_LEN: usize = 200;

/// Settings of a run.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Time and histories.
    pub plan: Plan,
    /// Structures to try in turn; all of them if empty.
    pub structures: Vec<Structure>,
    /// Bug to plant.
    pub plant: Option<Plant>,
}

/// Tries histories until time is up or one fails.
///
/// # Errors
/// Fails if there is nothing to try or a history cannot be run at all.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<Outcome, BenchError> {
    let planted = settings.plant.is_some();
    let outcome = Outcome { subject: "media", planted, ..Outcome::default() };
    drive(outcome, &settings.plan, |number| trials(settings, number), progress)
}

/// Returns the trials of one history, one for each persistence domain.
fn trials(settings: &Settings, number: u64) -> Vec<Trial> {
    let Settings { plan, structures, plant } = settings;
    let structures = if structures.is_empty() { &Structure::ALL[..] } else { structures };
    let trial = |caches_survive| Trial {
        structure: structures[(number % structures.len() as u64) as usize],
        seed: plan.seed.wrapping_add(number),
        caches_survive,
        nested_one_in: plan.nested_one_in,
        plant: *plant,
    };
    plan.domains().map(trial).collect()
}

impl Tried for Trial {
    type Op = Op;

    fn name(&self) -> String {
        format!("{}, {}", self.structure, domain(self.caches_survive))
    }

    fn history(&self) -> Vec<Op> {
        Trial::history(self, HISTORY_LEN)
    }

    fn run(&self, ops: &[Op], stop: &Stop) -> Result<Ran, BenchError> {
        let report = Trial::run_until(self, ops, stop);
        let report = report.map_err(|what| format!("{}: {what}", self.structure));
        Ok(report.map_err(BenchError::Failed)?.into())
    }

    fn command(&self) -> String {
        let domain = domain(self.caches_survive);
        let Trial { structure, seed, nested_one_in, plant, .. } = self;
        let plant = plant.map(|plant| format!(" --plant {plant}")).unwrap_or_default();
        format!(
            "entresol torture media --seed {seed} --histories 1 --structure {structure} \
             --domain {domain} --nested {nested_one_in}{plant}"
        )
    }
}

/// Runs the suite for mutants: histories that pass, and damage that is detected.
///
/// # Errors
/// Returns the failure in words.
pub fn suite(structure: Structure) -> Result<(), String> {
    for seed in 0..4 {
        let trial = Trial::of(structure, seed);
        let report = trial.run(&trial.history(HISTORY_LEN))?;
        if let Some(failure) = report.failure {
            return Err(failure.to_string());
        }
    }
    Ok(())
}
