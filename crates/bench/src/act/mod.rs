//! Aerospike's certification tool (ACT): small reads in an open loop beside the large reads and
//! writes of a log-structured store, on a raw medium, on a model, or in our store.
//!
//! It is written anew from the tool's documents and the paper (Platform storage performance with
//! 3D XPoint, section V-B). Other than in the tool, arrivals are random, and a response time counts
//! from when its read was due.

mod file;
mod load;
mod local;
pub mod model;
mod result;
pub mod store;

use std::path::{Path, PathBuf};
use std::time::Duration;

use entresol_base::{ByteSize, Picos};
use entresol_measure::BenchError;
use entresol_measure::process::bytes_read;
use entresol_measure::progress::Progress;
use entresol_media::model::{BlockModel, ModelName};
use entresol_media::{MediumSpec, files, machine};

use crate::raw_file::RawFile;
use file::OnFile;
pub use load::{
    Definition, Found, INTERVALS, Interval, LARGE_BYTES, LATE_MAX, Limits, Load, Ran, search,
};
use local::Local;
use model::OnModel;
pub use result::{ActResult, Best, IntervalResult, RunResult};
use store::StoreLoad;

/// Small reads of an interval on a model.
pub const READS_OF_INTERVAL: u64 = 60_000;
/// Hardware threads of the host of a model: the paper's Core i7-4770.
pub const PROCESSORS_OF_MODEL: usize = 8;
/// Share of small reads beyond which a run that fails has failed by the generator.
const LATE_PART_MAX: f64 = 0.01;
/// Puts for each record before the load, so that garbage collection has begun.
const PUTS_BEFORE: f64 = 1.5;
/// Rest of a store between two runs.
const REST: Picos = Picos::from_secs(2);
/// Length of an interval on this machine.
const INTERVAL: Duration = Duration::from_secs(10);

/// Medium or store under the load.
#[derive(Debug, Clone)]
pub enum ActSubject {
    /// Raw medium: a file, or a model of a drive.
    Medium(MediumSpec),
    /// Store of ours in a new directory.
    Store(PathBuf),
}

/// Options of a search.
#[derive(Debug, Clone)]
pub struct ActOptions {
    /// Medium or store.
    pub subject: ActSubject,
    /// Version of the tool.
    pub definition: Definition,
    /// Length of an interval; by default 10 s, and on a model that of a number of reads.
    pub interval: Option<Duration>,
    /// Bytes of a file.
    pub size: ByteSize,
    /// Records of a store.
    pub records: u64,
    /// Largest multiple to try.
    pub multiple_max: u32,
    /// True if a file or store that was made is kept.
    pub keep: bool,
    /// Seed of arrivals and places.
    pub seed: u64,
}

fn usage<T>(what: String) -> Result<T, BenchError> {
    Err(BenchError::Usage(what))
}

impl ActOptions {
    fn check(&self) -> Result<(), BenchError> {
        if self.multiple_max == 0 || self.records == 0 {
            return usage("give at least one multiple and one record".to_owned());
        }
        if self.interval.is_some_and(|time| time < Duration::from_millis(100)) {
            return usage("an interval takes at least 100ms".to_owned());
        }
        Ok(())
    }

    fn here(&self) -> (Load, Interval) {
        let load = self.definition.load(machine::processors());
        (load, Interval::Time(self.interval.unwrap_or(INTERVAL)))
    }
}

/// Finds the largest multiples of the load that keep the tool's limits, and the tightened ones.
///
/// # Errors
/// If the options do not fit together, or the medium or the store fails.
pub fn run_act(options: &ActOptions, progress: &Progress) -> Result<ActResult, BenchError> {
    options.check()?;
    match &options.subject {
        ActSubject::Medium(MediumSpec::Model(model)) => on_model(options, *model, progress),
        ActSubject::Medium(MediumSpec::File { path, model }) => {
            progress.say("ACT: filling the file");
            let raw = RawFile::open(path, *model, options.size, options.keep, progress.stop())?;
            on_file(options, raw, progress)
        }
        ActSubject::Medium(medium) => {
            usage(format!("--medium {medium}: use file:PATH, file:PATH,model=NAME or model:NAME"))
        }
        ActSubject::Store(directory) if files::exists(directory) => usage(format!(
            "{} exists already: give a directory that does not exist",
            directory.display()
        )),
        ActSubject::Store(directory) => {
            let result = on_store(options, directory, progress);
            if !options.keep && files::exists(directory) {
                let error = |source| BenchError::File { path: directory.clone(), source };
                files::remove_tree(directory).map_err(error)?;
            }
            result
        }
    }
}

/// Searches; fails if it was ended before the first run had a result.
fn searched(
    options: &ActOptions,
    progress: &Progress,
    mut run: impl FnMut(u32) -> Result<Option<Ran>, BenchError>,
) -> Result<Found, BenchError> {
    let found = search(&Limits::ALL, options.multiple_max, |multiple| {
        if progress.is_stopped() {
            return Ok(None);
        }
        progress.say(&format!("ACT: {multiple} times the load"));
        let ran = run(multiple);
        progress.advance(1);
        ran
    })?;
    match found.runs.is_empty() {
        true => Err(BenchError::Interrupted { has_results: false }),
        false => Ok(found),
    }
}

fn on_model(
    options: &ActOptions,
    model: ModelName,
    progress: &Progress,
) -> Result<ActResult, BenchError> {
    if BlockModel::of(model).is_none() {
        return usage(format!("model:{model} is no model of a drive in this version"));
    }
    let load = options.definition.load(PROCESSORS_OF_MODEL);
    let interval = options.interval.map_or(Interval::Reads(READS_OF_INTERVAL), Interval::Time);
    let on = OnModel { model, load, interval, seed: options.seed };
    let found = searched(options, progress, |multiple| Ok(on.run(multiple, progress.stop())))?;
    let facts = vec![
        on.choices(),
        "a model of a drive behind a host answered, in virtual time: the same on any machine"
            .to_owned(),
    ];
    let subject = (format!("model:{model}"), "model in virtual time".to_owned());
    Ok(ActResult::new(subject, options.definition, load, false, &found, facts))
}

fn on_file(
    options: &ActOptions,
    raw: RawFile,
    progress: &Progress,
) -> Result<ActResult, BenchError> {
    let (load, interval) = options.here();
    let on = OnFile { raw, load, interval, seed: options.seed };
    let found = searched(options, progress, |multiple| on.run(multiple, progress.stop()))?;
    let mut facts = vec![
        on.raw.describe(),
        format!(
            "small reads of {}; a write is complete when the drive has it, without a flush",
            ByteSize(on.small_bytes())
        ),
        intervals(options),
    ];
    facts.extend(on.raw.file.remarks().iter().cloned());
    let subject = (on.raw.file.path().display().to_string(), on.raw.kind());
    Ok(ActResult::new(subject, options.definition, load, false, &found, facts))
}

fn on_store(
    options: &ActOptions,
    directory: &Path,
    progress: &Progress,
) -> Result<ActResult, BenchError> {
    let (load, interval) = options.here();
    let ActOptions { records, seed, .. } = *options;
    let puts_before = (records as f64 * PUTS_BEFORE) as u64;
    let numbers = StoreLoad { load, records, puts_before, interval, rest: REST, seed };
    progress.say("ACT: filling the store");
    let local = Local::fill(directory, numbers, progress.stop())?;
    let before = bytes_read()?;
    let found = searched(options, progress, |multiple| local.run(multiple));
    let after = bytes_read()?;
    local.close()?;
    let found = found?;
    let runs = found.runs.values().flat_map(|ran| &ran.intervals);
    let gets: u64 = runs.map(|times| times.count()).sum();
    let facts = vec![
        format!(
            "{records} records of {} B and {puts_before} puts before; of each get {:.0} B came \
             from a drive, and the rest from the system's cache",
            load.record_bytes,
            (after - before) as f64 / gets.max(1) as f64,
        ),
        intervals(options),
    ];
    let subject = (directory.display().to_string(), "store".to_owned());
    Ok(ActResult::new(subject, options.definition, load, true, &found, facts))
}

fn intervals(options: &ActOptions) -> String {
    let (_, interval) = options.here();
    format!(
        "{INTERVALS} intervals of {} s are judged, where the tool judges 24 hours or more",
        interval.length(1.0).as_secs_f64()
    )
}

#[cfg(test)]
mod tests;
