//! `entresol torture`: seeded histories with crashes, until time is up or something fails.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use entresol_bench::BenchError;
use entresol_bench::index::IndexName;
use entresol_bench::progress::Progress;
use entresol_bench::torture::media::{Settings, torture};
use entresol_bench::torture::{Outcome, Plant, Structure, index};
use entresol_media::files;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// The crash machine tries itself, on toy structures in an emulated region and simulated files.
    Media(Media),
    /// Indexes, under crashes at every drain, also in recovery.
    Index(Index),
}

/// What keeps its contents when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Domain {
    /// The memory (ADR).
    Memory,
    /// The processor's caches as well (eADR).
    Caches,
}

#[derive(Debug, Args)]
struct Media {
    /// Seed of the first history; each next one has the next.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Try for so long; 10 if neither this nor --histories is given.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Try so many histories.
    #[arg(long, value_name = "N")]
    histories: Option<u64>,
    /// Only this structure: tree, log, cells or files; may be given more than once.
    #[arg(long, value_name = "NAME")]
    structure: Vec<Structure>,
    /// Only under this model; otherwise under both.
    #[arg(long)]
    domain: Option<Domain>,
    /// Cut off one recovery in so many by crashes as well, and recoveries from these; 0 is none.
    #[arg(long, value_name = "N", default_value_t = 8)]
    nested: u32,
    /// Plant a bug, which must be found: missing-flush, missing-fence, wrong-order,
    /// missing-flush-at-border, missing-last-flush, visible-before-durable, missing-file-sync or
    /// missing-directory-sync.
    #[arg(long, value_name = "BUG")]
    plant: Option<Plant>,
    /// Name the places of this file that were not reached: the JSON of an earlier run, or a place
    /// a line.
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Index {
    /// Seed of the first history of each index; the next ones have the next.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Try for so long; 10 if neither this nor --histories is given.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Try so many histories, the indexes in turn.
    #[arg(long, value_name = "N")]
    histories: Option<u64>,
    /// Only this index; may be given more than once.
    #[arg(long, value_name = "NAME")]
    index: Vec<IndexName>,
    /// Only under this model; otherwise under both.
    #[arg(long)]
    domain: Option<Domain>,
    /// Cut off one recovery in so many by crashes as well, and recoveries from these; 0 is none.
    #[arg(long, value_name = "N", default_value_t = 8)]
    nested: u32,
    /// Name the places of this file that were not reached: the JSON of an earlier run, or a place
    /// a line.
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

const SECONDS: u64 = 10;

/// How long to try if nothing says so.
fn seconds(seconds: Option<u64>, histories: Option<u64>) -> Option<u64> {
    if histories.is_none() { seconds.or(Some(SECONDS)) } else { seconds }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.subject {
        Subject::Media(media) => run_media(media),
        Subject::Index(index) => run_index(index),
    }
}

fn run_media(arguments: &Media) -> anyhow::Result<()> {
    let seconds = seconds(arguments.seconds, arguments.histories);
    let settings = Settings {
        seed: arguments.seed,
        time: seconds.map(Duration::from_secs),
        histories: arguments.histories,
        structures: arguments.structure.clone(),
        caches_survive: arguments.domain.map(|domain| domain == Domain::Caches),
        nested_one_in: arguments.nested,
        plant: arguments.plant,
        known_places: arguments.known.as_deref().map(known_places).transpose()?.unwrap_or_default(),
    };
    let progress = Progress::counter("torture media", seconds);
    let outcome = torture(&settings, &progress);
    progress.finish();
    put(&outcome?, arguments.json)
}

fn run_index(arguments: &Index) -> anyhow::Result<()> {
    let seconds = seconds(arguments.seconds, arguments.histories);
    let settings = index::Settings {
        seed: arguments.seed,
        time: seconds.map(Duration::from_secs),
        histories: arguments.histories,
        indexes: match arguments.index.as_slice() {
            [] => IndexName::PERSISTENT.to_vec(),
            given => given.to_vec(),
        },
        caches_survive: arguments.domain.map(|domain| domain == Domain::Caches),
        nested_one_in: arguments.nested,
        known_places: arguments.known.as_deref().map(known_places).transpose()?.unwrap_or_default(),
    };
    let progress = Progress::counter("torture index", seconds);
    let outcome = index::torture(&settings, &progress);
    progress.finish();
    put(&outcome?, arguments.json)
}

/// Prints what came of it; fails if it did.
fn put(outcome: &Outcome, as_json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let json = serde_json::to_string_pretty(outcome).context("the outcome as JSON")?;
        writeln!(out, "{json}").context("standard output")?;
    } else {
        write!(out, "{outcome}").context("standard output")?;
    }
    match outcome.complaint() {
        None => Ok(()),
        Some(complaint) => Err(BenchError::Failed(complaint).into()),
    }
}

fn known_places(path: &Path) -> anyhow::Result<BTreeSet<String>> {
    let name = || path.display().to_string();
    let text = files::read_to_string(path).with_context(name)?;
    if !text.starts_with('{') {
        return Ok(text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect());
    }
    let run: serde_json::Value = serde_json::from_str(&text).with_context(name)?;
    let places = run["places"].as_array().into_iter().flatten();
    Ok(places.filter_map(|place| place["place"].as_str()).map(str::to_owned).collect())
}
