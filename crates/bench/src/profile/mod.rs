//! `entresol profile`: what a medium can do, as figures, as a cost table, and as advice that
//! follows from them.
//!
//! What is measured is defined once for media of a kind; a subject carries it out, a real one in
//! the system's time or a model's in virtual time. Two media can be measured in one run, sample by
//! sample in turn, so that they share what disturbs the machine.

use std::path::PathBuf;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_media::cost::{CostTable, CostTableError};
use entresol_media::{MediumSpec, files};
use serde::Serialize;
use serde_json::Value;

use crate::error::BenchError;
use crate::progress::Progress;

mod addressable;
mod advice;
mod costs;
mod figure;
mod file;
mod memory;
mod plan;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use addressable::model_costs;
pub use costs::{default_place, describe as describe_costs};
pub use figure::{Figure, Point, Quantity, Series};
pub use file::TimeSplit;
pub use memory::{MemorySubject, ROUNDS, Rate, Samples};

/// What is measured.
#[derive(Debug, Clone)]
pub struct ProfileOptions {
    /// The medium.
    pub medium: MediumSpec,
    /// Another of the same kind, measured in turns with the first.
    pub against: Option<MediumSpec>,
    /// Everything and for longer, instead of less than a minute.
    pub full: bool,
    /// The most threads; the machine's processors unless given.
    pub threads: Option<usize>,
    /// How much is read from; twice the half of it again is written to.
    pub size: Option<ByteSize>,
    /// Whether memory asks for huge pages.
    pub huge_pages: bool,
    /// Whether a file that was made stays.
    pub keep: bool,
    /// Seed of what is drawn.
    pub seed: u64,
}

/// Something to know beside the figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// A word for it.
    pub name: &'static str,
    /// What is the case.
    pub text: String,
}

/// All that was found out about one medium.
#[derive(Debug, Clone, Serialize)]
pub struct MediumProfile {
    /// The medium, as it was named.
    pub medium: String,
    /// What it is: `dram`, `emulated persistent memory`, `model in virtual time` ...
    pub kind: String,
    /// How it was measured, and what was not controlled.
    pub facts: Vec<Fact>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Where the time of one 4 KiB read goes, for each way of learning of completions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<TimeSplit>,
    /// What the figures recommend.
    pub advice: Vec<String>,
    /// The cost table, as it is saved.
    #[serde(serialize_with = "as_json")]
    pub costs: CostTable,
    /// Why the costs are wrong, if the measurement itself found that they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreliable: Option<String>,
}

impl MediumProfile {
    fn say_unreliable(&mut self, why: Option<String>) {
        self.facts.extend(why.clone().map(|text| Fact { name: "unreliable", text }));
        self.unreliable = why;
    }
}

/// The result of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// `quick` or `full`.
    pub mode: &'static str,
    /// The rounds behind each median.
    pub rounds: usize,
    /// The medium, and the other one if there are two.
    pub media: Vec<MediumProfile>,
}

fn as_json<S: serde::Serializer>(costs: &CostTable, serializer: S) -> Result<S::Ok, S::Error> {
    let value: Value = serde_json::from_str(&costs.to_json()).map_err(serde::ser::Error::custom)?;
    value.serialize(serializer)
}

/// Measures.
///
/// # Errors
/// If the arguments do not fit together, a medium cannot be had, or the system fails.
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

/// Saves the first medium's table; answers a sentence about it.
///
/// # Errors
/// If the file cannot be written, or if there is one and the costs are unreliable.
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

/// The numbers of threads from one to the most: powers of two, and the most itself.
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
