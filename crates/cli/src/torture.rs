//! `entresol torture`: runs seeded histories with crashes until time is up or one fails.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use entresol_base::duration;
use entresol_measure::index::IndexName;
use entresol_measure::progress::Progress;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{ModelName, files};
use entresol_torture::{Outcome, Plan, Plant, Structure, index, media, processes, store};
use serde::Serialize;

use crate::interrupt;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Test the crash machine itself, on toy structures in an emulated region and simulated files.
    Media(Media),
    /// Try indexes under crashes at every drain, also during recovery.
    Index(Index),
    /// Try the store on a simulated disk under power cuts, deaths of its process, and damage to its
    /// files; with --processes, kill real processes on a real directory; with --waits, measure how
    /// long operations wait under a full load.
    Store(Store),
    /// Run a process that is to be killed.
    #[command(hide = true)]
    StoreChild(StoreChild),
}

/// Parts of the machine that keep their contents at a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Domain {
    /// The memory (ADR).
    Memory,
    /// The processor's caches as well (eADR).
    Caches,
}

#[derive(Debug, Args)]
struct Store {
    #[command(flatten)]
    histories: Histories,
    /// Run real processes that write, and kill them.
    #[arg(long, conflicts_with_all = ["histories", "nested", "known"])]
    processes: bool,
    /// Number of processes to kill.
    #[arg(long, value_name = "N", requires = "processes")]
    kills: Option<u64>,
    /// Directory of the processes, to be made; it is removed if nothing is wrong. pmem:PATH is
    /// persistent memory, pmem:PATH,assume-dax lets an ordinary file system stand in for it
    /// [default: a new one in the current directory].
    #[arg(long, value_name = "PATH", requires = "processes",
        value_parser = OsStringValueParser::new().try_map(StorePlace::parse))]
    directory: Option<StorePlace>,
    /// Put a load at full rate on a simulated drive for --duration of virtual time instead, and
    /// report the longest waits with their causes. A wait of more than 100 ms fails.
    #[arg(long, conflicts_with_all = ["processes", "histories", "nested", "known"])]
    waits: bool,
    /// Model of that drive.
    #[arg(long, value_name = "MODEL", requires = "waits", default_value = "nvme-9300")]
    model: ModelName,
}

#[derive(Debug, Args)]
struct StoreChild {
    #[arg(value_parser = OsStringValueParser::new().try_map(StorePlace::parse))]
    place: StorePlace,
    seed: u64,
    round: u64,
}

/// Persistence domain, for subjects in memory.
#[derive(Debug, Args)]
struct Domains {
    /// Model of persistence [default: both].
    #[arg(long)]
    domain: Option<Domain>,
}

impl Domains {
    fn caches_survive(&self) -> Option<bool> {
        self.domain.map(|domain| domain == Domain::Caches)
    }
}

#[derive(Debug, Args)]
struct Media {
    #[command(flatten)]
    histories: Histories,
    #[command(flatten)]
    domains: Domains,
    /// Structure to try: tree, log, cells or files; may be given more than once [default: all].
    #[arg(long, value_name = "NAME")]
    structure: Vec<Structure>,
    /// Plant a bug, which must be found: missing-flush, missing-fence, wrong-order,
    /// missing-flush-at-border, missing-last-flush, visible-before-durable, missing-file-sync or
    /// missing-directory-sync.
    #[arg(long, value_name = "BUG")]
    plant: Option<Plant>,
}

#[derive(Debug, Args)]
struct Index {
    #[command(flatten)]
    histories: Histories,
    #[command(flatten)]
    domains: Domains,
    /// Index to try; may be given more than once [default: all]. Each runs a history of each seed,
    /// under both models.
    #[arg(long, value_name = "NAME")]
    index: Vec<IndexName>,
}

/// Flags of every subject.
#[derive(Debug, Args)]
struct Histories {
    /// Seed of the first history; each further history has the next seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Time limit, at which the current history is broken off [default: 10s, unless a number is
    /// given].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// Number of histories.
    #[arg(long, value_name = "N")]
    histories: Option<u64>,
    /// Interrupt one recovery in this many by crashes as well, and the recoveries from these; 0
    /// means none.
    #[arg(long, value_name = "N", default_value_t = 8)]
    nested: u32,
    /// List the places of this file that were not reached: the JSON of an earlier run, or one place
    /// per line.
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Default time for histories if neither a time nor a number is given.
const DURATION: Duration = Duration::from_secs(10);

impl Histories {
    fn time(&self) -> Option<Duration> {
        if self.histories.is_none() { self.duration.or(Some(DURATION)) } else { self.duration }
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        Ok(Plan {
            seed: self.seed,
            time: self.time(),
            histories: self.histories,
            caches_survive: None,
            nested_one_in: self.nested,
            known_places: self.known.as_deref().map(known_places).transpose()?.unwrap_or_default(),
        })
    }

    /// Runs the histories and prints the outcome; fails if a history failed.
    fn carry_out(
        &self,
        name: &str,
        torture: impl FnOnce(Plan, &Progress) -> Result<Outcome, BenchError>,
    ) -> anyhow::Result<()> {
        let plan = self.plan()?;
        let progress = match (self.histories, self.time()) {
            (None, Some(time)) => Progress::timed(name, time),
            (histories, _) => Progress::counter(name, histories),
        };
        interrupt::watch(&progress)?;
        let outcome = torture(plan, &progress);
        progress.finish();
        let outcome = outcome?;
        put(&outcome, self.json, outcome.complaint(), outcome.interrupted)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.subject {
        Subject::Media(media) => media.histories.carry_out("torture media", |plan, progress| {
            let structures = media.structure.clone();
            let plan = Plan { caches_survive: media.domains.caches_survive(), ..plan };
            let settings = media::Settings { plan, structures, plant: media.plant };
            media::torture(&settings, progress)
        }),
        Subject::Index(given) => given.histories.carry_out("torture index", |plan, progress| {
            let plan = Plan { caches_survive: given.domains.caches_survive(), ..plan };
            let mut settings = index::Settings { plan, ..index::Settings::default() };
            if !given.index.is_empty() {
                settings.indexes.clone_from(&given.index);
            }
            index::torture(&settings, progress)
        }),
        Subject::Store(given) if given.processes => kill_processes(given),
        Subject::Store(given) if given.waits => see_waits(given),
        Subject::Store(given) => given.histories.carry_out("torture store", |plan, progress| {
            store::torture(&store::Settings { plan }, progress)
        }),
        Subject::StoreChild(StoreChild { place, seed, round }) => {
            Ok(processes::child(place, *seed, *round, &mut std::io::stdout())?)
        }
    }
}

/// Longest wait of an operation that passes.
const WAIT_MS_MAX: f64 = 100.0;

/// Runs a full load on a store in virtual time and prints its waits.
fn see_waits(given: &Store) -> anyhow::Result<()> {
    let Histories { seed, duration, json, .. } = given.histories;
    let time = duration.unwrap_or(DURATION);
    let progress = Progress::new(time.as_millis() as u64, "torture store, waits");
    interrupt::watch(&progress)?;
    let shown = progress.clone();
    let go_on = move |passed: Duration| {
        shown.reach(passed.as_millis() as u64);
        if shown.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let outcome = store::load_while(store::Load::of(seed, given.model, time), go_on);
    progress.finish();
    let outcome = outcome.map_err(BenchError::Failed)?;
    let longest = outcome.longest_ms();
    let complaint = (longest > WAIT_MS_MAX)
        .then(|| format!("an operation waited {longest:.1} ms, {WAIT_MS_MAX} ms are the most"));
    put(&outcome, json, complaint, progress.stop().is_asked())
}

/// Runs processes of this program that write to a store, and kills them.
fn kill_processes(given: &Store) -> anyhow::Result<()> {
    let Histories { seed, duration, json, .. } = given.histories;
    let beside = || PathBuf::from(format!("entresol-torture-{}", std::process::id()));
    let place = given.directory.clone();
    let place = place.unwrap_or_else(|| StorePlace { path: beside(), pmem: None });
    if files::exists(&place.path) {
        let text = format!("{place} is there already: name a directory to be made");
        return Err(BenchError::Usage(text).into());
    }
    let time = if given.kills.is_none() { duration.or(Some(DURATION)) } else { duration };
    let settings = processes::Settings { seed, time, kills: given.kills, place: place.clone() };
    let program = std::env::current_exe().context("this program's own file")?;
    let spawn = |round: u64| {
        let mut command = Command::new(&program);
        command.args(["torture", "store-child"]).arg(place.argument());
        processes::piped(command.args([seed.to_string(), round.to_string()])).spawn()
    };
    let progress = match (given.kills, time) {
        (None, Some(time)) => Progress::timed("torture store, kills", time),
        (kills, _) => Progress::counter("torture store, kills", kills),
    };
    interrupt::watch(&progress)?;
    let outcome = processes::torture(&settings, &spawn, &progress);
    progress.finish();
    let outcome = outcome?;
    if outcome.pass {
        files::remove_tree(&place.path).with_context(|| place.to_string())?;
    }
    let complaint = (!outcome.pass).then(|| {
        let kills = outcome.kills;
        format!(
            "a killed process has lost something; again, if the kernel lets the same run: entresol \
             torture store --processes --seed {seed} --kills {kills}; the store is in {place}"
        )
    });
    put(&outcome, json, complaint, outcome.interrupted)
}

/// Prints the outcome and fails if it contains a failure.
fn put(
    outcome: &(impl Serialize + Display),
    as_json: bool,
    complaint: Option<String>,
    is_interrupted: bool,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let json = serde_json::to_string_pretty(outcome).context("the outcome as JSON")?;
        writeln!(out, "{json}").context("standard output")?;
    } else {
        write!(out, "{outcome}").context("standard output")?;
    }
    match complaint {
        None if is_interrupted => Err(BenchError::Interrupted { has_results: true }.into()),
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
    let Some(places) = run["places"].as_array() else {
        let text = format!("{} is no JSON of a torture run: it has no \"places\"", name());
        return Err(BenchError::Usage(text).into());
    };
    let places = places.iter();
    Ok(places.filter_map(|place| place["place"].as_str()).map(str::to_owned).collect())
}
