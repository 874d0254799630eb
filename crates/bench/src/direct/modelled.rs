//! Measurement of a cache on a model of a device, in virtual time: the same seed gives the same
//! figures on any machine.

use entresol_base::clock::Picos;
use entresol_base::world::World;
use entresol_measure::BenchError;
use entresol_measure::index::{CPU_PER_OPERATION, in_world};
use entresol_measure::popularity::{KeyChooser, Popularity, THETA_DEFAULT};
use entresol_measure::progress::Progress;
use entresol_measure::report::svg::{Bar, bars};
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};
use entresol_measure::statistics::Spread;
use entresol_measure::values::KeyMaker;
use entresol_media::ModelName;
use entresol_media::model::memory::MediumCounts;
use fastrand::Rng;
use serde::Serialize;

use super::lab::{CacheLab, Hand, LabOptions};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct ModelledOptions {
    /// Model of the medium.
    pub model: ModelName,
    /// Number of objects.
    pub count: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations of a loop, all threads together.
    pub operations: u32,
    /// Number of rounds, each with a seed of its own.
    pub rounds: usize,
    /// Number of threads of the loops on several threads.
    pub threads: usize,
    /// Seed of keys and orders.
    pub seed: u64,
}

/// Kinds of loops.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Gets(Popularity),
    Sets,
    Mixed,
}

const KINDS: [Kind; 4] = [
    Kind::Gets(Popularity::Uniform),
    Kind::Gets(Popularity::Zipf { theta: THETA_DEFAULT }),
    Kind::Sets,
    Kind::Mixed,
];

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Kind::Gets(Popularity::Uniform) => "get, uniform",
            Kind::Gets(_) => "get, Zipf 0.99",
            Kind::Sets => "set, overwriting",
            Kind::Mixed => "half gets, half sets",
        }
    }

    fn popularity(self) -> Popularity {
        match self {
            Kind::Gets(popularity) => popularity,
            Kind::Sets | Kind::Mixed => Popularity::Uniform,
        }
    }

    fn is_get(self, step: u32) -> bool {
        match self {
            Kind::Gets(_) => true,
            Kind::Sets => false,
            Kind::Mixed => step.is_multiple_of(2),
        }
    }
}

/// Result of one loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelledLoop {
    /// Name of the loop.
    pub workload: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// Virtual time of one operation.
    pub ns: Spread,
    /// Median of the operations' times.
    pub p50_ns: f64,
    /// 99th percentile of the operations' times.
    pub p99_ns: f64,
    /// Operations of all threads in a virtual second.
    pub operations_s: Spread,
    /// Share of the gets that found their item; `None` without gets.
    pub hit_ratio: Option<f64>,
    /// Units that the medium read for an operation, upkeep included; `None` for a drive.
    pub units_read: Option<f64>,
    /// Units that the medium wrote for an operation; `None` for a drive.
    pub units_written: Option<f64>,
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelledResult {
    /// Name of the model, as a medium.
    pub medium: String,
    /// True: all times are virtual.
    pub virtual_time: bool,
    /// Number of objects.
    pub objects: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Results of the loops.
    pub loops: Vec<ModelledLoop>,
}

/// One round of one loop.
#[derive(Debug, Clone, Copy)]
struct Round {
    ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    operations_s: f64,
    gets: u64,
    hits: u64,
    units: Option<MediumCounts>,
}

/// Returns the numbers of threads that loops run on.
fn thread_counts(options: &ModelledOptions) -> Vec<usize> {
    if options.threads == 1 { vec![1] } else { vec![1, options.threads] }
}

/// Returns the number of steps that [`run_modelled`] reports.
#[must_use]
pub fn modelled_steps(options: &ModelledOptions) -> u64 {
    (options.rounds * thread_counts(options).len() * KINDS.len()) as u64
}

/// Runs all loops, or as many rounds as fit until an end is requested.
///
/// # Errors
/// Fails if an end is requested before the first round is done, the cache cannot be opened, or a
/// store is refused.
pub fn run_modelled(
    options: &ModelledOptions,
    progress: &Progress,
) -> Result<ModelledResult, BenchError> {
    if options.count == 0 || options.operations == 0 || options.rounds == 0 || options.threads == 0
    {
        let what = "--keys, --operations, --rounds and --threads must be at least 1";
        return Err(BenchError::Usage(what.to_owned()));
    }
    let mut loops: Vec<(Kind, usize, Vec<Round>)> = Vec::new();
    for threads in thread_counts(options) {
        loops.extend(KINDS.map(|kind| (kind, threads, Vec::new())));
    }
    for round in 0..options.rounds as u64 {
        let (options, progress) = (options.clone(), progress.clone());
        let seed = options.seed.wrapping_add(round);
        let found = in_world(seed, move |world| one_round(world, &options, seed, &progress))?;
        // A round that was broken off is left out.
        if found.len() < loops.len() {
            break;
        }
        for ((.., rounds), found) in loops.iter_mut().zip(found) {
            rounds.push(found);
        }
    }
    let rounds = loops.first().map_or(0, |(.., rounds)| rounds.len());
    if rounds == 0 {
        return Err(BenchError::Interrupted { has_results: false });
    }
    Ok(ModelledResult {
        medium: format!("model:{}", options.model),
        virtual_time: true,
        objects: options.count,
        key_bytes: options.key_bytes,
        value_bytes: options.value_bytes,
        rounds,
        loops: loops
            .iter()
            .map(|(kind, threads, rounds)| summary(*kind, *threads, rounds, options.operations))
            .collect(),
    })
}

fn summary(kind: Kind, threads: usize, rounds: &[Round], operations: u32) -> ModelledLoop {
    let of = |what: fn(&Round) -> f64| Spread::of(&rounds.iter().map(what).collect::<Vec<_>>());
    let sum = |what: fn(&Round) -> u64| rounds.iter().map(what).sum::<u64>() as f64;
    let units = |what: fn(&MediumCounts) -> u64| {
        let all: Option<u64> = rounds.iter().map(|round| round.units.as_ref().map(what)).sum();
        all.map(|units| units as f64 / f64::from(operations) / rounds.len() as f64)
    };
    let gets = sum(|round| round.gets);
    ModelledLoop {
        workload: kind.label(),
        threads,
        ns: of(|round| round.ns),
        p50_ns: of(|round| round.p50_ns).median,
        p99_ns: of(|round| round.p99_ns).median,
        operations_s: of(|round| round.operations_s),
        hit_ratio: (gets > 0.0).then(|| sum(|round| round.hits) / gets),
        units_read: units(|counts| counts.units_read + counts.units_read_to_write),
        units_written: units(|counts| counts.units_written),
    }
}

/// Fills a cache and runs the loops, until an end is requested.
fn one_round(
    world: &World,
    options: &ModelledOptions,
    seed: u64,
    progress: &Progress,
) -> Result<Vec<Round>, BenchError> {
    let keys = KeyMaker::new(options.key_bytes, u64::from(options.count)).ok_or_else(|| {
        let problem = format!("keys of {} bytes: too short or too long", options.key_bytes);
        BenchError::Usage(problem)
    })?;
    progress.say("filling");
    let sizes = (options.key_bytes, options.value_bytes);
    let room = LabOptions::with_room(options.model, options.count.into(), sizes);
    let lab = CacheLab::new(world, &LabOptions { workers: options.threads, seed, ..room })?;
    let value = vec![b'v'; options.value_bytes];
    let (mut filler, mut key) = (lab.hand(), Vec::new());
    for number in 0..options.count {
        key.clear();
        keys.append(number.into(), &mut key);
        if !filler.set(&key, &value) {
            return Err(BenchError::Cache("a set of the filling failed".to_owned()));
        }
    }
    let mut rounds = Vec::new();
    for threads in thread_counts(options) {
        for kind in KINDS {
            if progress.is_stopped() {
                return Ok(rounds);
            }
            progress.say(kind.label());
            rounds.push(measure(&lab, kind, threads, (options, &keys), seed)?);
            progress.advance(1);
        }
    }
    Ok(rounds)
}

/// Operations of one thread.
#[derive(Default)]
struct Done {
    times: Vec<u64>,
    gets: u64,
    hits: u64,
}

fn measure(
    lab: &CacheLab,
    kind: Kind,
    threads: usize,
    (options, keys): (&ModelledOptions, &KeyMaker),
    seed: u64,
) -> Result<Round, BenchError> {
    let before = lab.units();
    let (share, value_bytes) = (options.operations / threads as u32, options.value_bytes);
    let (keys, count) = (keys.clone(), u64::from(options.count));
    let work = move |number: usize, mut hand: Hand| -> Result<Done, BenchError> {
        let chooser = KeyChooser::new(kind.popularity(), count);
        let mut rng = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let (mut done, mut key) = (Done::default(), Vec::new());
        let value = vec![b'w'; value_bytes];
        for step in 0..share.max(1) {
            key.clear();
            keys.append(chooser.next(&mut rng), &mut key);
            let began = hand.world().now();
            if kind.is_get(step) {
                done.gets += 1;
                done.hits += u64::from(hand.get(&key)?);
            } else if !hand.set(&key, &value) {
                return Err(BenchError::Cache("a set failed".to_owned()));
            }
            done.times.push(hand.world().now().0 - began.0);
        }
        Ok(done)
    };
    let (found, passed) = lab.run((0..threads).map(|_| lab.hand()).collect(), work)?;
    let mut all = Done::default();
    for found in found {
        let found = found?;
        all.times.extend(found.times);
        all.gets += found.gets;
        all.hits += found.hits;
    }
    let units = lab.units().zip(before).map(|(after, before)| after.since(before));
    Ok(round(all, passed, units))
}

fn round(mut done: Done, passed: Picos, units: Option<MediumCounts>) -> Round {
    done.times.sort_unstable();
    let count = done.times.len();
    let share_ns = |share: f64| {
        let at = (count.saturating_sub(1) as f64 * share) as usize;
        done.times.get(at).map_or(0.0, |&time| time as f64 / 1e3)
    };
    Round {
        ns: done.times.iter().sum::<u64>() as f64 / count.max(1) as f64 / 1e3,
        p50_ns: share_ns(0.5),
        p99_ns: share_ns(0.99),
        operations_s: count as f64 / passed.as_secs_f64().max(1e-12),
        gets: done.gets,
        hits: done.hits,
        units,
    }
}

impl ModelledResult {
    fn title(&self) -> String {
        format!(
            "{} objects of {} + {} B on {}, virtual time with {} ns of processor an operation, \
             median (lowest to highest) of {}",
            grouped(self.objects.into()),
            self.key_bytes,
            self.value_bytes,
            self.medium,
            CPU_PER_OPERATION.0 / 1000,
            self.rounds
        )
    }

    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let columns = [
            "ns per operation",
            "threads",
            "virtual ns",
            "p50",
            "p99",
            "operations/s",
            "hits",
            "units read",
            "units written",
        ];
        let mut table = Table::new(&self.title(), &columns);
        let or_dash = |found: Option<f64>| found.map_or("-".to_owned(), |it| format!("{it:.3}"));
        for found in &self.loops {
            table.row(vec![
                found.workload.to_owned(),
                found.threads.to_string(),
                found.ns.to_string(),
                number(found.p50_ns),
                number(found.p99_ns),
                grouped(found.operations_s.median),
                or_dash(found.hit_ratio),
                or_dash(found.units_read),
                or_dash(found.units_written),
            ]);
        }
        vec![table]
    }

    /// Renders the results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("entresol bench cache: on a model");
        page.note(&self.title());
        let bar = |found: &ModelledLoop| Bar {
            label: format!("{}, {} threads", found.workload, found.threads),
            value: found.ns.median,
            series: 0,
        };
        let times: Vec<Bar> = self.loops.iter().map(bar).collect();
        page.drawing(&bars("Virtual time of one operation, median", "ns", &times));
        self.tables().iter().for_each(|table| page.table(table));
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(model: ModelName) -> ModelledOptions {
        ModelledOptions {
            model,
            count: 20_000,
            key_bytes: 16,
            value_bytes: 200,
            operations: 4_000,
            rounds: 1,
            threads: 2,
            seed: 1,
        }
    }

    #[test]
    fn a_model_of_memory_and_one_of_a_drive_give_the_same_figures_twice() {
        for model in [ModelName::Aep, ModelName::OptaneSsd] {
            let run = || run_modelled(&options(model), &Progress::hidden()).expect("a result");
            let found = run();
            assert_eq!(found, run());
            assert_eq!(found.loops.len(), 2 * KINDS.len());
            let gets = &found.loops[0];
            assert_eq!(gets.hit_ratio, Some(1.0));
            assert_eq!(gets.units_read.is_some(), model.is_memory());
            // A read of the medium alone takes longer than the processor's part.
            assert!(gets.p50_ns > 250.0, "{gets:?}");
            assert!(found.tables()[0].to_string().contains("virtual time"));
        }
    }

    #[test]
    fn a_model_that_holds_no_values_is_refused_with_those_that_do() {
        let error = run_modelled(&options(ModelName::Dram), &Progress::hidden());
        let error = error.expect_err("refused");
        let text = error.to_string();
        assert!(error.is_usage() && text.contains("model:aep2, model:optane-ssd"), "{text}");
    }
}
