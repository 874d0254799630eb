//! Measurement of a medium for `entresol profile`: figures, a cost table, and advice that follows
//! from them.
//!
//! A measurement is defined once for media of a kind. A subject carries it out: a real one in the
//! system's time, a model in virtual time. Two media can be measured in one run, alternating sample
//! by sample; disturbances of the machine then affect both.

use std::path::PathBuf;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::cost::{CostTable, CostTableError};
use entresol_media::{MediumSpec, files};
use serde::Serialize;
use serde_json::Value;

mod addressable;
mod advice;
mod costs;
mod figure;
pub(crate) mod file;
mod memory;
mod plan;
mod report;
#[cfg(test)]
mod tests;

pub use addressable::model_costs;
pub use costs::{default_place, describe as describe_costs};
pub use figure::{Figure, Point, Quantity, Series};
pub use file::{SplitRound, TimeSplit, split_rounds};
pub use memory::{MemorySubject, ROUNDS, Rate, Samples};

/// Options of a profile.
#[derive(Debug, Clone)]
pub struct ProfileOptions {
    /// Medium to measure.
    pub medium: MediumSpec,
    /// Second medium of the same kind, measured alternately with the first.
    pub against: Option<MediumSpec>,
    /// Measures everything, with longer samples, instead of less than a minute.
    pub full: bool,
    /// Largest number of threads; by default the machine's processors.
    pub threads: Option<usize>,
    /// Bytes to read from; half as many again are written to.
    pub size: Option<ByteSize>,
    /// True if memory requests huge pages.
    pub huge_pages: bool,
    /// True if a file created for the measurement is kept.
    pub keep: bool,
    /// Seed of random draws.
    pub seed: u64,
}

/// Fact about a measurement, in addition to the figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// Short name of the fact.
    pub name: &'static str,
    /// Text of the fact.
    pub text: String,
}

/// Results of one medium.
#[derive(Debug, Clone, Serialize)]
pub struct MediumProfile {
    /// Medium as the user named it.
    pub medium: String,
    /// Kind of the medium: `dram`, `emulated persistent memory`, `model in virtual time` ...
    pub kind: String,
    /// Facts about the measurement, and influences that were not controlled.
    pub facts: Vec<Fact>,
    /// Figures of the medium.
    pub figures: Vec<Figure>,
    /// Breakdown of the time of one 4 KiB read, for each kind of completion.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<TimeSplit>,
    /// Recommendations that follow from the figures.
    pub advice: Vec<String>,
    /// Cost table as it is saved.
    #[serde(serialize_with = "as_json")]
    pub costs: CostTable,
    /// Reason why the costs are wrong, if the measurement itself detected that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreliable: Option<String>,
}

impl MediumProfile {
    fn say_unreliable(&mut self, why: Option<String>) {
        self.facts.extend(why.clone().map(|text| Fact { name: "unreliable", text }));
        self.unreliable = why;
    }
}

/// Result of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// Mode of the run: `quick` or `full`.
    pub mode: &'static str,
    /// Number of rounds behind each median.
    pub rounds: usize,
    /// Results of the first medium, and of the second if there is one.
    pub media: Vec<MediumProfile>,
}

fn as_json<S: serde::Serializer>(costs: &CostTable, serializer: S) -> Result<S::Ok, S::Error> {
    let value: Value = serde_json::from_str(&costs.to_json()).map_err(serde::ser::Error::custom)?;
    value.serialize(serializer)
}

/// Measures a medium, or two of them.
///
/// # Errors
/// Fails if the options do not fit together, a medium is not available, or the system fails.
pub fn profile(options: &ProfileOptions, progress: &Progress) -> Result<Profile, BenchError> {
    let media: Vec<&MediumSpec> =
        std::iter::once(&options.medium).chain(&options.against).collect();
    let is_memory = |medium: &MediumSpec| match medium {
        MediumSpec::Dram | MediumSpec::Pmem { .. } => true,
        MediumSpec::Model(name) => name.is_memory(),
        _ => false,
    };
    if media.iter().any(|medium| is_memory(medium) != is_memory(media[0])) {
        let text = "a byte-addressable medium can only be compared with another such, and a file \
                    or drive with another such";
        return Err(BenchError::Usage(text.to_owned()));
    }
    let media = match is_memory(media[0]) {
        true => addressable::profile(options, &media, progress)?,
        false => file::profile(options, &media, progress)?,
    };
    let rounds = match media.iter().all(|medium| medium.kind.contains("virtual time")) {
        true => 1,
        false => ROUNDS,
    };
    let mode = if options.full { "full" } else { "quick" };
    Ok(Profile { mode, rounds, media })
}

/// Saves the cost table of the first medium and returns a sentence that describes it.
///
/// # Errors
/// Fails if the file cannot be written. An existing table is not replaced by an unreliable one.
pub fn save_costs(profile: &Profile, path: &std::path::Path) -> Result<String, BenchError> {
    let MediumProfile { costs, unreliable, .. } = &profile.media[0];
    if let Some(why) = unreliable.as_ref().filter(|_| files::exists(path)) {
        return Err(BenchError::Failed(format!(
            "the cost table in {} was not replaced, since the new one is unreliable ({why}): \
             measure again on an idle machine, or save it elsewhere with --save",
            path.display()
        )));
    }
    let folder = path.parent().filter(|folder| *folder != std::path::Path::new(""));
    if let Some(folder) = folder {
        let source = |source| BenchError::File { path: folder.into(), source };
        files::create_directories(folder).map_err(source)?;
    }
    costs.save(path).map_err(|error| saving_failed(path.into(), &error))?;
    Ok(costs::describe(costs, path))
}

fn saving_failed(path: PathBuf, error: &CostTableError) -> BenchError {
    BenchError::Format { path, problem: error.to_string() }
}

/// Returns the numbers of threads to measure: powers of two below `most`, and `most` itself.
fn thread_counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |&n| Some(n * 2)).take_while(|&n| n < most).collect();
    counts.push(most.max(1));
    counts
}

fn today() -> String {
    SystemClock::new().seconds().date()
}

fn sample_time(full: bool) -> Duration {
    Duration::from_millis(if full { 40 } else { 8 })
}
