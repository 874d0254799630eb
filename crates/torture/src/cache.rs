//! Torture of the cache: the histories of [`entresol_cache::trial`], in which its process dies and
//! the power fails, with damage to its files and a disk in trouble, until time is up.

use entresol_base::Stop;
use entresol_cache::trial::{Kind, Op, Trial};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::ModelName;
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
    /// Model of the medium of values, whose times its accesses take. Without one the seed chooses
    /// the medium, whose accesses take no time.
    pub model: Option<ModelName>,
}

/// Tries histories until time is up or one fails.
///
/// # Errors
/// Fails if there is nothing to try.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<Outcome, BenchError> {
    let seed = settings.plan.seed;
    let outcome = Outcome { subject: "cache", ..Outcome::default() };
    let trials = |number| {
        let seed = seed.wrapping_add(number);
        vec![settings.model.map_or_else(|| Trial::of(seed), |model| Trial::on(seed, model))]
    };
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
        let model = self.model.map(|model| format!(" (model:{model})")).unwrap_or_default();
        format!("the cache in {medium}{model}, {} threads", self.threads)
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
        let medium = self.model.map(|model| format!(" --medium model:{model}"));
        let medium = medium.unwrap_or_default();
        format!("entresol torture cache --seed {} --histories 1{medium}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_survives_some_histories() {
        let plan = Plan { histories: Some(20), seed: 500, ..Plan::default() };
        let settings = Settings { plan, model: None };
        let outcome = torture(&settings, &Progress::hidden()).expect("histories");
        assert!(outcome.pass, "{outcome}");
        assert!(outcome.images > 200 && outcome.subjects.len() > 3, "{outcome}");
    }

    #[test]
    fn the_cache_survives_some_histories_on_models_of_a_memory_and_a_drive() {
        for model in [ModelName::Aep, ModelName::OptaneSsd] {
            let plan = Plan { histories: Some(4), seed: 900, ..Plan::default() };
            let settings = Settings { plan, model: Some(model) };
            let outcome = torture(&settings, &Progress::hidden()).expect("histories");
            assert!(outcome.pass, "{outcome}");
            let name = format!("model:{model}");
            assert!(outcome.images > 40 && outcome.to_string().contains(&name), "{outcome}");
            let command = Trial::on(900, model).command();
            assert!(command.ends_with(&format!("--medium model:{model}")), "{command}");
        }
    }
}
