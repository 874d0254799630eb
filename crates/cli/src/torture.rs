//! `entresol torture`: runs seeded histories with crashes until time is up or one fails.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use entresol_base::{ByteSize, duration};
use entresol_bench::direct::lab::known_models;
use entresol_measure::index::IndexName;
use entresol_measure::progress::Progress;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{MediumSpec, ModelName, files};
use entresol_store::KvdbOptions;
use entresol_torture::processes::Harm;
use entresol_torture::{
    Outcome, Plan, Plant, Structure, cache, connections, fill, flips, index, media, processes,
    store,
};
use serde::Serialize;

use crate::interrupt;
use crate::standard::{judged, print, print_json};

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
    /// Try the cache in a simulated world: all commands from several threads, restarts after clean
    /// stops, deaths of its process and power cuts, damage to its files, and a disk in trouble.
    Cache(Cache),
    /// Fill a store on a real file system until there is no room, delete a half, and fill it again,
    /// cycle by cycle. What was deleted must find room again.
    Fill(Fill),
    /// Flip single bits in every kind of a store's files, closed and killed, on simulated disks and
    /// persistent memory: each must be harmless or reported by check, and salvage must copy what
    /// readers still find.
    Flips(Flips),
    /// Let clients that are reset, stuck, half closed or silent loose on a real server, take its
    /// descriptors away, and send it SIGHUP and SIGTERM. Healthy clients must get right answers,
    /// and nothing may panic or leak.
    Connections(Connections),
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
    #[command(flatten)]
    crashes: Crashes,
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
    /// Let system calls for the store's files fail as well: opens, writes, syncs, allocations,
    /// renames, links and removals, with EIO, ENOSPC or EDQUOT, once or from then on.
    #[arg(long, requires = "processes", conflicts_with = "shutdown")]
    faults: bool,
    /// Lay the store on an ext4 file system of its own, in a file of the directory, and shut it
    /// down under each process, as a crash of the machine would. Needs root and a loop device.
    #[arg(long, requires = "processes")]
    shutdown: bool,
    /// Put a load at full rate on a simulated drive for --duration of virtual time instead, and
    /// report the longest waits with their causes. A wait of more than 100 ms fails.
    #[arg(long, conflicts_with_all = ["processes", "histories", "nested", "known"])]
    waits: bool,
    /// Model of that drive.
    #[arg(long, value_name = "MODEL", requires = "waits", default_value = "nvme-9300")]
    model: ModelName,
}

#[derive(Debug, Args)]
struct Cache {
    #[command(flatten)]
    histories: Histories,
    /// Medium of the values: model:NAME, whose times the accesses take [default: the seed chooses
    /// DRAM, persistent memory or a file, whose accesses take no time].
    #[arg(long, value_name = "MEDIUM", value_parser = model_of_values)]
    medium: Option<ModelName>,
}

/// Parses the model of a medium on which a cache's values can lie.
fn model_of_values(text: &str) -> Result<ModelName, String> {
    match text.parse::<MediumSpec>().map_err(|error| error.to_string())? {
        MediumSpec::Model(model) if model != ModelName::Dram => Ok(model),
        _ => Err(format!("use one of {}", known_models())),
    }
}

#[derive(Debug, Args)]
struct Fill {
    /// Directory of the store, to be made; it is removed if nothing is wrong. pmem:PATH is
    /// persistent memory, pmem:PATH,assume-dax lets an ordinary file system stand in for it.
    #[arg(long, value_name = "PATH",
        value_parser = OsStringValueParser::new().try_map(StorePlace::parse))]
    directory: StorePlace,
    /// Quota of the store. A smaller file system is full before.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    size: ByteSize,
    /// Number of times that a half is deleted.
    #[arg(long, value_name = "N", default_value_t = 10)]
    cycles: u32,
    /// Seed that decides which keys are deleted.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Flips {
    /// Seed of the bits that are flipped.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Bits to flip in each of five states of a store.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    flips: u64,
    /// Time limit.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Connections {
    /// Seed of what clients do.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Time of the run. From 5m on, the response times of healthy clients are judged as well.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    duration: Duration,
    /// Connections that troublesome clients make in that time [default: 33 a second].
    #[arg(long, value_name = "N")]
    connections: Option<u64>,
    /// Directory of the server's files, to be made; it is removed if nothing is wrong [default: a
    /// new one in the current directory].
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StoreChild {
    /// Directory of the store.
    #[arg(value_parser = OsStringValueParser::new().try_map(StorePlace::parse))]
    place: StorePlace,
    /// Seed of the writes.
    seed: u64,
    /// Number of the process, from 0.
    round: u64,
    /// Harm that comes to it.
    harm: Harm,
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
    crashes: Crashes,
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
    crashes: Crashes,
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
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Flags of the subjects whose crashes are explored one by one.
#[derive(Debug, Args)]
struct Crashes {
    /// Interrupt one recovery in this many by crashes as well, and the recoveries from these; 0
    /// means none.
    #[arg(long, value_name = "N", default_value_t = 8)]
    nested: u32,
    /// List the places of this file that were not reached: the JSON of an earlier run, or one place
    /// per line.
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
}

impl Crashes {
    fn plan(&self, plan: Plan) -> anyhow::Result<Plan> {
        let known_places = self.known.as_deref().map(known_places).transpose()?;
        let known_places = known_places.unwrap_or_default();
        Ok(Plan { nested_one_in: self.nested, known_places, ..plan })
    }
}

/// Default time for histories if neither a time nor a number is given.
const DURATION: Duration = Duration::from_secs(10);

impl Histories {
    fn time(&self) -> Option<Duration> {
        if self.histories.is_none() { self.duration.or(Some(DURATION)) } else { self.duration }
    }

    fn plan(&self) -> Plan {
        Plan { seed: self.seed, time: self.time(), histories: self.histories, ..Plan::default() }
    }

    /// Runs the histories and prints the outcome; fails if a history failed.
    fn carry_out(
        &self,
        name: &str,
        crashes: Option<&Crashes>,
        torture: impl FnOnce(Plan, &Progress) -> Result<Outcome, BenchError>,
    ) -> anyhow::Result<()> {
        let plan = self.plan();
        let plan = match crashes {
            Some(crashes) => crashes.plan(plan)?,
            None => plan,
        };
        let progress = match (self.histories, self.time()) {
            (None, Some(time)) => Progress::timed(name, time),
            (histories, _) => Progress::counter(name, histories),
        };
        interrupt::watch(&progress)?;
        let outcome = torture(plan, &progress);
        progress.finish();
        let mut outcome = outcome?;
        let complaint = outcome.complaint();
        let is_tried = outcome.images + outcome.histories > 0 || outcome.interrupted;
        outcome.pass &= is_tried;
        let complaint = complaint.or_else(|| (!is_tried).then(too_short));
        put(&outcome, self.json, complaint, outcome.interrupted)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.subject {
        Subject::Media(media) => {
            media.histories.carry_out("torture media", Some(&media.crashes), |plan, progress| {
                let structures = media.structure.clone();
                let plan = Plan { caches_survive: media.domains.caches_survive(), ..plan };
                let settings = media::Settings { plan, structures, plant: media.plant };
                media::torture(&settings, progress)
            })
        }
        Subject::Index(given) => {
            given.histories.carry_out("torture index", Some(&given.crashes), |plan, progress| {
                let plan = Plan { caches_survive: given.domains.caches_survive(), ..plan };
                let mut settings = index::Settings { plan, ..index::Settings::default() };
                if !given.index.is_empty() {
                    settings.indexes.clone_from(&given.index);
                }
                index::torture(&settings, progress)
            })
        }
        Subject::Store(given) if given.processes => kill_processes(given),
        Subject::Store(given) if given.waits => see_waits(given),
        Subject::Store(given) => {
            given.histories.carry_out("torture store", Some(&given.crashes), |plan, progress| {
                store::torture(&store::Settings { plan }, progress)
            })
        }
        Subject::Cache(given) => {
            given.histories.carry_out("torture cache", None, |plan, progress| {
                cache::torture(&cache::Settings { plan, model: given.medium }, progress)
            })
        }
        Subject::Fill(given) => fill_up(given),
        Subject::Flips(given) => flip(given),
        Subject::Connections(given) => trouble(given),
        Subject::StoreChild(StoreChild { place, seed, round, harm }) => {
            Ok(processes::child(place, *seed, *round, *harm, &mut std::io::stdout())?)
        }
    }
}

/// Flips bits of stores and prints the outcome.
fn flip(given: &Flips) -> anyhow::Result<()> {
    let Flips { seed, flips: count, duration: time, json } = *given;
    if count == 0 || time.is_some_and(|time| time.is_zero()) {
        return Err(nothing("--flips or --duration is 0"));
    }
    let progress = Progress::new(count.saturating_mul(5), "torture flips");
    interrupt::watch(&progress)?;
    let outcome = flips::torture(&flips::Settings { seed, flips: count, time }, &progress);
    progress.finish();
    let mut outcome = outcome?;
    let is_tried = !outcome.states.is_empty() || outcome.failure.is_some() || outcome.interrupted;
    outcome.pass &= is_tried;
    let failure = outcome.failure.as_ref().map(|_| {
        format!("a flipped bit was not told: entresol torture flips --seed {seed} --flips {count}")
    });
    let complaint = failure.or_else(|| (!is_tried).then(too_short));
    put(&outcome, json, complaint, outcome.interrupted)
}

/// Longest wait of an operation that passes.
const WAIT_MS_MAX: f64 = 100.0;

/// Runs a full load on a store in virtual time and prints its waits.
fn see_waits(given: &Store) -> anyhow::Result<()> {
    let Histories { seed, duration, json, .. } = given.histories;
    let time = duration.unwrap_or(DURATION);
    if time.is_zero() {
        return Err(nothing("--duration is 0"));
    }
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
    let complaint = (longest > WAIT_MS_MAX).then(|| {
        format!("an operation waited {longest:.1} ms, more than the {WAIT_MS_MAX} ms allowed")
    });
    let is_tried = outcome.kinds.iter().all(|it| it.count > 0) || progress.stop().is_asked();
    let complaint = complaint.or_else(|| (!is_tried).then(too_short));
    put(&outcome, json, complaint, progress.stop().is_asked())
}

/// Runs processes of this program that write to a store, and kills them.
fn kill_processes(given: &Store) -> anyhow::Result<()> {
    let Histories { seed, duration, json, .. } = given.histories;
    let beside = || PathBuf::from(format!("entresol-torture-{}", std::process::id()));
    let place = given.directory.clone();
    let place = place.unwrap_or_else(|| StorePlace { path: beside(), pmem: None });
    if files::exists(&place.path) {
        let text = format!("{place} exists already: give a directory that does not exist");
        return Err(BenchError::Usage(text).into());
    }
    let time = if given.kills.is_none() { duration.or(Some(DURATION)) } else { duration };
    if given.kills == Some(0) || time.is_some_and(|time| time.is_zero()) {
        return Err(nothing("--kills or --duration is 0"));
    }
    let harm = match given {
        Store { faults: true, .. } => Harm::Faults,
        Store { shutdown: true, .. } => Harm::Shutdown,
        _ => Harm::Kill,
    };
    if harm == Harm::Shutdown && place.pmem.is_some() {
        let text = "--shutdown makes a file system of its own, which has no persistent memory";
        return Err(BenchError::Usage(text.to_owned()).into());
    }
    let kills = given.kills;
    let settings = processes::Settings { seed, time, kills, place: place.clone(), harm };
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let spawn = |store: &StorePlace, round: u64| {
        let mut command = Command::new(&program);
        command.args(["torture", "store-child"]).arg(store.argument());
        command.args([seed.to_string(), round.to_string(), harm.name().to_owned()]);
        processes::piped(&mut command).spawn()
    };
    let progress = match (given.kills, time) {
        (None, Some(time)) => Progress::timed("torture store, kills", time),
        (kills, _) => Progress::counter("torture store, kills", kills),
    };
    let first = match harm {
        Harm::Shutdown => "unmounted and then ",
        Harm::Kill | Harm::Faults => "",
    };
    interrupt::leaves(format!("left: {place}, which may be {first}removed"));
    interrupt::watch(&progress)?;
    let outcome = processes::torture(&settings, &spawn, &progress);
    progress.finish();
    let mut outcome = outcome?;
    let is_tried = outcome.kills > 0 || outcome.interrupted;
    if outcome.pass {
        files::remove_tree(&place.path).with_context(|| place.to_string())?;
    }
    let complaint = (!outcome.pass).then(|| {
        let kills = outcome.kills;
        let harm = match harm {
            Harm::Kill => String::new(),
            other => format!(" --{}", other.name()),
        };
        format!(
            "a killed process lost data; the store is in {place}. To try the same again, as far as \
             the kernel's scheduling allows: entresol torture store --processes{harm} --seed \
             {seed} --kills {kills}"
        )
    });
    outcome.pass &= is_tried;
    let complaint = complaint.or_else(|| (!is_tried).then(too_short));
    put(&outcome, json, complaint, outcome.interrupted)
}

/// Connections that troublesome clients make in a second.
const CONNECTIONS_S: f64 = 33.4;

/// Lets clients and signals loose on servers of this program.
fn trouble(given: &Connections) -> anyhow::Result<()> {
    let Connections { seed, duration: time, json, .. } = *given;
    let folder = given.directory.clone();
    let folder =
        folder.unwrap_or_else(|| PathBuf::from(format!("entresol-torture-{}", std::process::id())));
    let name = folder.display().to_string();
    if files::exists(&folder) {
        let text = format!("{name} exists already: give a directory that does not exist");
        return Err(BenchError::Usage(text).into());
    }
    if time.is_zero() || given.connections == Some(0) {
        return Err(nothing("--duration or --connections is 0"));
    }
    let connections =
        given.connections.unwrap_or((time.as_secs_f64() * CONNECTIONS_S).ceil() as u64);
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let spawn = |folder: &Path, ports: &Path| {
        let mut command = Command::new(&program);
        command.args(["serve", "--config"]).arg(folder.join(connections::CONFIGURATION));
        let server = connections::piped(command.arg("--port-file").arg(ports)).spawn();
        server.inspect(interrupt::ends_with_us)
    };
    let settings = connections::Settings { seed, time, connections, folder: folder.clone() };
    let progress = Progress::timed("torture connections", time);
    interrupt::leaves(format!("left: {name}, which may be removed"));
    interrupt::watch(&progress)?;
    let outcome = connections::torture(&settings, &spawn, &progress);
    progress.finish();
    let outcome = outcome?;
    if outcome.pass {
        files::remove_tree(&folder).with_context(|| name.clone())?;
    }
    let complaint = (!outcome.pass).then(|| {
        format!(
            "a server in trouble did wrong; its files are in {name}. To try the same again, as far \
             as the kernel's scheduling allows: entresol torture connections --seed {seed} \
             --duration {}s --connections {connections}",
            time.as_secs_f64()
        )
    });
    put(&outcome, json, complaint, outcome.interrupted)
}

/// Fills a store, deletes a half, and fills it again.
fn fill_up(given: &Fill) -> anyhow::Result<()> {
    let Fill { directory: place, size, cycles, seed, json } = given;
    if files::exists(&place.path) {
        let text = format!("{place} exists already: give a directory that does not exist");
        return Err(BenchError::Usage(text).into());
    }
    let least = ByteSize(4 * KvdbOptions::default().segment_bytes);
    if size.0 < least.0 {
        let text = format!("--size {size} has no room for a store: give at least {least}");
        return Err(BenchError::Usage(text).into());
    }
    if *cycles == 0 {
        let text = "--cycles 0 would try nothing: give at least 1".to_owned();
        return Err(BenchError::Usage(text).into());
    }
    let progress = Progress::counter("torture fill", Some(u64::from(*cycles)));
    interrupt::watch(&progress)?;
    let (bytes, cycles) = (size.0, *cycles);
    let settings = fill::Settings { seed: *seed, place: place.clone(), bytes, cycles };
    let outcome = fill::torture(&settings, &progress);
    progress.finish();
    let mut outcome = outcome?;
    let is_tried = outcome.filled_bytes > 0 || !outcome.pass || outcome.interrupted;
    if outcome.pass {
        files::remove_tree(&place.path).with_context(|| place.to_string())?;
    }
    let complaint = (!outcome.pass).then(|| {
        format!("what was deleted did not come back, or data were lost; the store is in {place}")
    });
    outcome.pass &= is_tried;
    let complaint = complaint.or_else(|| {
        let text = "nothing was tried, since not one value found room: give more with --size";
        (!is_tried).then(|| text.to_owned())
    });
    put(&outcome, *json, complaint, outcome.interrupted)
}

/// Returns the error of a request to try nothing.
fn nothing(what: &str) -> anyhow::Error {
    let text = format!("{what}, so nothing would be tried: give at least one");
    BenchError::Usage(text).into()
}

/// Returns the complaint about a run that ended before anything was tried.
fn too_short() -> String {
    "nothing was tried before time was up: give more with --duration".to_owned()
}

/// Prints the outcome and fails if it contains a failure.
fn put(
    outcome: &(impl Serialize + Display),
    as_json: bool,
    complaint: Option<String>,
    is_interrupted: bool,
) -> anyhow::Result<()> {
    let printed = match as_json {
        true => print_json(outcome),
        false => print(outcome).map_err(Into::into),
    };
    let verdict = match complaint {
        None if is_interrupted => Err(BenchError::Interrupted { has_results: true }.into()),
        None => Ok(()),
        Some(complaint) => Err(BenchError::Failed(complaint).into()),
    };
    judged(printed, verdict)
}

fn known_places(path: &Path) -> anyhow::Result<BTreeSet<String>> {
    let name = || path.display().to_string();
    let text = files::read_to_string(path).with_context(name)?;
    if !text.starts_with('{') {
        return Ok(text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect());
    }
    let run: serde_json::Value = serde_json::from_str(&text).with_context(name)?;
    let Some(places) = run["places"].as_array() else {
        let text = format!("{} is not the JSON of a torture run: it has no \"places\"", name());
        return Err(BenchError::Usage(text).into());
    };
    let places = places.iter();
    Ok(places.filter_map(|place| place["place"].as_str()).map(str::to_owned).collect())
}
