//! `entresol bench act`: finds the largest multiple of the load of Aerospike's certification tool
//! that a medium or a store keeps up with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args};
use entresol_base::{ByteSize, duration};
use entresol_bench::act::{ActOptions, ActSubject, Definition, run_act};
use entresol_measure::progress::Progress;
use entresol_media::{MediumSpec, files};

use crate::interrupt;
use crate::output::Output;
use crate::written::check_file;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("subject").required(true))]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
    /// Raw medium: file:PATH, file:PATH,model=NAME, or model:NAME in virtual time. A file that
    /// another program made is refused.
    #[arg(long, value_name = "MEDIUM", group = "subject")]
    medium: Option<MediumSpec>,
    /// New directory for a store, which takes gets and puts instead of raw requests.
    #[arg(long, value_name = "PATH", group = "subject")]
    directory: Option<PathBuf>,
    /// Baseline: that of the paper of 2017, or that of the current tool, with twice its reads and
    /// writes.
    #[arg(long, value_name = "paper|current", default_value_t = Definition::Paper)]
    definition: Definition,
    /// Length of each of the two intervals that are judged [default: 10s; on a model, the time of
    /// 60,000 small reads].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    interval: Option<Duration>,
    /// Size of the file.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", conflicts_with = "directory")]
    size: ByteSize,
    /// Records of the store.
    #[arg(long, value_name = "N", default_value_t = 200_000, conflicts_with = "medium")]
    records: u64,
    /// Largest multiple to try.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    largest: u32,
    /// Keep the file or the store that was made.
    #[arg(long)]
    keep: bool,
    /// Seed of arrivals and places.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    fn subject(&self) -> anyhow::Result<ActSubject> {
        match (&self.medium, &self.directory) {
            (Some(medium), _) => Ok(ActSubject::Medium(medium.clone())),
            (None, Some(directory)) => Ok(ActSubject::Store(directory.clone())),
            (None, None) => anyhow::bail!("give --medium or --directory"),
        }
    }
}

/// Returns the file or the directory that is measured.
fn path_of(subject: &ActSubject) -> Option<&Path> {
    match subject {
        ActSubject::Medium(MediumSpec::File { path, .. }) => Some(path),
        ActSubject::Medium(_) => None,
        ActSubject::Store(directory) => Some(directory),
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = ActOptions {
        subject: arguments.subject()?,
        definition: arguments.definition,
        interval: arguments.interval,
        size: arguments.size,
        records: arguments.records,
        multiple_max: arguments.largest,
        keep: arguments.keep,
        seed: arguments.seed,
    };
    let path = path_of(&options.subject);
    path.map_or(Ok(()), check_file)?;
    arguments.output.check("bench-act", path.as_slice())?;
    if let Some(made) = path.filter(|path| !options.keep && !files::exists(path)) {
        interrupt::leaves(format!("left: {}, which may be removed", made.display()));
    }
    let progress = Progress::counter("ACT", None);
    let result = interrupt::measured(&progress, |progress| run_act(&options, progress))?;
    arguments.output.put(("bench-act", &progress), &result, &result.tables(), || result.page())
}
