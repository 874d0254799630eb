//! The crash machine tries itself: toy structures in a recorded region, right ones, which must
//! pass, or with a planted bug, which must be found.

use std::collections::BTreeSet;
use std::time::Duration;

use entresol_base::clock::{Clock, SystemClock};
use entresol_base::shrink::{ShrinkLimits, shrink};
use entresol_media::crash::{Nested, Report};

use super::history::{Op, Trial};
use super::outcome::{FailureFound, Outcome};
use super::{Plant, Structure};
use crate::error::BenchError;
use crate::process::thread_cpu_ns;
use crate::progress::Progress;

/// The operations of a history.
const HISTORY_LEN: usize = 200;
/// A history is run so often to make it short.
const SHRINK_RUNS_MAX: u32 = 300;

/// What is tried, and for how long.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The seed of the first history; each next one has the next.
    pub seed: u64,
    /// For so long, if given.
    pub time: Option<Duration>,
    /// So many histories, if given.
    pub histories: Option<u64>,
    /// These; empty is all, in turn.
    pub structures: Vec<Structure>,
    /// Whether caches keep their contents when the power fails; both if not given.
    pub caches_survive: Option<bool>,
    /// One recovery in so many is cut off by crashes itself; 0 is none.
    pub nested_one_in: u32,
    /// The bug to plant.
    pub plant: Option<Plant>,
    /// Places that ought to be reached.
    pub known_places: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            time: None,
            histories: None,
            structures: Vec::new(),
            caches_survive: None,
            nested_one_in: Nested::default().one_in,
            plant: None,
            known_places: BTreeSet::new(),
        }
    }
}

/// Tries histories until time is up or one fails.
///
/// # Errors
/// If nothing is to be tried, or a history cannot be run at all.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<Outcome, BenchError> {
    if settings.histories == Some(0) || settings.time.is_some_and(|time| time.is_zero()) {
        let text = "nothing is tried in no time or with no histories; give at least one";
        return Err(BenchError::Usage(text.to_owned()));
    }
    let clock = SystemClock::new();
    let (start, start_cpu) = (clock.now(), thread_cpu_ns());
    let elapsed = || clock.now().since(start);
    let (seed, planted) = (settings.seed, settings.plant.is_some());
    let mut outcome = Outcome { subject: "media", seed, planted, ..Outcome::default() };
    let mut seconds = 0;
    for number in 0..settings.histories.unwrap_or(u64::MAX) {
        if settings.time.is_some_and(|time| elapsed() >= time) {
            break;
        }
        for trial in trials(settings, number) {
            outcome.failure = try_one(&trial, &mut outcome)?;
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
    outcome.finish((elapsed().as_secs_f64(), cpu_s), &settings.known_places);
    Ok(outcome)
}

/// The ways in which one history is tried.
fn trials(settings: &Settings, number: u64) -> Vec<Trial> {
    let all = &Structure::ALL[..];
    let structures = if settings.structures.is_empty() { all } else { &settings.structures };
    let structure = structures[(number % structures.len() as u64) as usize];
    let seed = settings.seed.wrapping_add(number);
    let domains = [false, true].into_iter();
    let domains = domains.filter(|it| settings.caches_survive.is_none_or(|wanted| wanted == *it));
    let trial = |caches_survive| Trial {
        structure,
        seed,
        caches_survive,
        nested_one_in: settings.nested_one_in,
        plant: settings.plant,
    };
    domains.map(trial).collect()
}

fn try_one(trial: &Trial, outcome: &mut Outcome) -> Result<Option<FailureFound>, BenchError> {
    let history = trial.history(HISTORY_LEN);
    let report = run(trial, &history)?;
    outcome.add(&report);
    let Some(failure) = report.failure else { return Ok(None) };
    let fails = |ops: &[Op]| fails(trial, ops).is_some();
    let limits = ShrinkLimits { runs_max: SHRINK_RUNS_MAX };
    let shortest = shrink(history, fails, limits);
    let shortest_what = self::fails(trial, &shortest).unwrap_or_default();
    Ok(Some(FailureFound {
        what: failure.to_string(),
        command: command(trial),
        shortest: shortest.iter().map(Op::to_string).collect(),
        shortest_what,
    }))
}

/// The suite that mutants are tried against: histories that pass, and damage that is told.
///
/// # Errors
/// What failed.
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

fn run(trial: &Trial, history: &[Op]) -> Result<Report, BenchError> {
    trial.run(history).map_err(|what| BenchError::Failed(format!("{}: {what}", trial.structure)))
}

fn fails(trial: &Trial, history: &[Op]) -> Option<String> {
    Some(trial.run(history).ok()?.failure?.to_string())
}

fn command(trial: &Trial) -> String {
    let domain = if trial.caches_survive { "caches" } else { "memory" };
    let Trial { structure, seed, nested_one_in, plant, .. } = trial;
    let plant = plant.map(|plant| format!(" --plant {plant}")).unwrap_or_default();
    format!(
        "entresol torture media --seed {seed} --histories 1 --structure {structure} \
         --domain {domain} --nested {nested_one_in}{plant}"
    )
}
