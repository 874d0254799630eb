//! Placement of a store's data: creation of a store, its volumes, and the policies of its `Kvs`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use entresol_base::size::ParseSizeError;
use entresol_base::{ByteSize, SystemClock};
use entresol_measure::report::Table;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{Directory, LocalDirectory, files};
use entresol_store::{
    Kvdb, KvdbOptions, MediaClass, MediumStatistics, Policy, Statistics, StoreError, Volume,
};
use serde_json::{Value, json};

use super::whole::{Bar, Whole, out, size, written};
use super::{look, options, print, told};

/// Arguments for a new store.
#[derive(Debug, Args)]
pub(super) struct Create {
    #[command(flatten)]
    whole: Whole,
    /// Class of media of the directory: pmem, staging (a fast drive) or capacity [default:
    /// capacity; pmem for pmem:PATH].
    #[arg(long, value_name = "CLASS")]
    class: Option<MediaClass>,
    /// Largest number of bytes to use there, 64MiB or more [default: what the file system has].
    #[arg(long, value_name = "SIZE", value_parser = most)]
    most: Option<ByteSize>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Add an empty directory, on which data written from now on may lie.
    Add(Add),
    /// Move everything away from a place and remove it from the store. An interrupted command can
    /// be repeated to finish; nothing new is written to the place in the meantime.
    Retire(Retire),
    /// Add a place with the class and bound of another one, then retire that one. An interrupted
    /// command can be repeated to finish.
    Move(Move),
    /// Record the paths of places that were moved while the store was closed.
    Found(Found),
    /// List the places, including missing ones.
    List(Whole),
}

/// Arguments for a new place.
#[derive(Debug, Args)]
pub(super) struct Add {
    #[command(flatten)]
    whole: Whole,
    /// Class of media of the directory: pmem, staging (a fast drive) or capacity.
    class: MediaClass,
    /// A directory to be made, or an empty one.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    path: PathBuf,
    /// Largest number of bytes to use there, 64MiB or more [default: what the file system has].
    #[arg(long, value_name = "SIZE", value_parser = most)]
    most: Option<ByteSize>,
}

/// Arguments for a place that is retired.
#[derive(Debug, Args)]
pub(super) struct Retire {
    #[command(flatten)]
    whole: Whole,
    /// The place. The store's own directory keeps the manifest and stays in the list.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    path: PathBuf,
}

/// Arguments for a place that is replaced.
#[derive(Debug, Args)]
pub(super) struct Move {
    #[command(flatten)]
    whole: Whole,
    /// The place. The store's own directory keeps the manifest and stays in the list.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    from: PathBuf,
    /// A directory to be made, or an empty one.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    to: PathBuf,
}

/// Arguments for places that have other paths now.
#[derive(Debug, Args)]
pub(super) struct Found {
    #[command(flatten)]
    whole: Whole,
    /// Present paths of all places that were moved.
    #[arg(required = true, value_parser = OsStringValueParser::new().try_map(path))]
    paths: Vec<PathBuf>,
}

/// Arguments for the policy of a `Kvs`.
#[derive(Debug, Args)]
pub(super) struct PolicyOf {
    #[command(flatten)]
    whole: Whole,
    /// New policy: fastest, staging-then-capacity, staging-max-capacity, staging-min-capacity,
    /// pmem-max-capacity, capacity-only, staging-only or pmem-only; or
    /// young-keys=CLASSES,young-values=CLASSES,aged-keys=CLASSES,aged-values=CLASSES, each one or
    /// several classes separated by slashes, the preferred one first. Without it, the policy is
    /// shown.
    policy: Option<Policy>,
    /// The Kvs, an ordered map of the store.
    #[arg(long, value_name = "NAME", default_value = "default")]
    kvs: String,
}

/// Parses the path of a volume, which the manifest must be able to name from any directory.
fn path(text: std::ffi::OsString) -> Result<PathBuf, String> {
    match text.to_str() {
        Some(text) if text.starts_with("pmem:") => Err(format!(
            "'{text}' is no path: name the class pmem and the path alone, and write pmem: before \
             the store's directory"
        )),
        Some("") => Err("it is empty: name a directory".to_owned()),
        Some(text) => std::path::absolute(text).map_err(|error| error.to_string()),
        None => Err("it is no text, and the manifest is: give it another name".to_owned()),
    }
}

/// Parses a bound, which must have room for at least a few segments of the log.
pub(super) fn most(text: &str) -> Result<ByteSize, String> {
    let most: ByteSize = text.parse().map_err(|error: ParseSizeError| error.to_string())?;
    let least = 4 * KvdbOptions::default().segment_bytes;
    if most.0 < least {
        return Err(format!(
            "segments of the log would not fit: take at least {}",
            ByteSize(least)
        ));
    }
    Ok(most)
}

fn directory(path: &Path) -> anyhow::Result<Arc<dyn Directory>> {
    let directory = LocalDirectory::open_existing(path).map_err(|it| told(it.into()))?;
    Ok(Arc::new(directory))
}

fn new_volume(class: MediaClass, path: &Path, most: Option<ByteSize>) -> anyhow::Result<Volume> {
    let directory = LocalDirectory::open(path).map_err(|it| told(it.into()))?;
    Ok(Volume { class, directory: Arc::new(directory), bytes_max: most.map(|most| most.0) })
}

/// Refuses a directory within another volume of the store.
fn check_apart(store: &Kvdb, path: &Path) -> anyhow::Result<()> {
    for Volume { directory, .. } in store.volumes() {
        let (path, store) = (path.to_owned(), directory.path().to_owned());
        // The volume itself may be added again.
        let is_itself = files::is_within(&store, &path).unwrap_or_default();
        if !is_itself && files::is_within(&path, &store).unwrap_or_default() {
            return Err(told(StoreError::Nested { path, store }));
        }
    }
    Ok(())
}

fn open(place: &StorePlace) -> anyhow::Result<Kvdb> {
    Kvdb::open_at(&place.path, options(place)).map_err(told)
}

pub(super) fn create(arguments: &Create) -> anyhow::Result<()> {
    let Create { whole: Whole { directory, json }, class, most } = arguments;
    tell(make(directory, *class, *most)?, *json, false)
}

/// Creates a store.
pub(super) fn make(
    directory: &StorePlace,
    class: Option<MediaClass>,
    most: Option<ByteSize>,
) -> anyhow::Result<Kvdb> {
    let class = match (directory.pmem, class) {
        (Some(_), Some(class)) if class != MediaClass::Pmem => {
            return Err(anyhow!(
                "{directory} is persistent memory, and --class says {class}: leave it out, or name \
                 a plain path"
            ));
        }
        (Some(_), _) => MediaClass::Pmem,
        (None, class) => class.unwrap_or(MediaClass::Capacity),
    };
    let place = new_volume(class, &directory.path, most)?;
    let clock = Arc::new(SystemClock::new());
    let made = Kvdb::create_on(&[place], options(directory), clock);
    made.map_err(|error| match error.is_no_room() {
        true => no_room_for_a_store(directory, &error),
        false => told(error),
    })
}

/// Returns the error of a new store without any room, with advice.
pub(super) fn no_room_for_a_store(directory: &StorePlace, error: &StoreError) -> anyhow::Error {
    let text = format!(
        "{error}. {directory} was made and has nothing in it. Of the room there, 64MiB are kept \
         for deleting and merging, and 16MiB are a segment of the log; of a bound below \
         256MiB only a quarter is kept. Remove {directory} and make it with `--most 64MiB`, \
         or elsewhere"
    );
    BenchError::Failed(text).into()
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Add(arguments) => add(arguments),
        Command::Retire(arguments) => retire(arguments),
        Command::Move(arguments) => replace(arguments),
        Command::Found(arguments) => found(arguments),
        Command::List(Whole { directory, json }) => tell(look(directory)?, *json, false),
    }
}

fn add(arguments: &Add) -> anyhow::Result<()> {
    let Add { whole: Whole { directory, json }, class, path, most } = arguments;
    let store = open(directory)?;
    check_apart(&store, path)?;
    store.add_volume(&new_volume(*class, path, *most)?).map_err(told)?;
    tell(store, *json, false)
}

fn retire(arguments: &Retire) -> anyhow::Result<()> {
    let Retire { whole: Whole { directory, json }, path } = arguments;
    let store = open(directory)?;
    let_go(&store, store.volume_at(path).map_err(told)?)?;
    tell(store, *json, true)
}

fn replace(arguments: &Move) -> anyhow::Result<()> {
    let Move { whole: Whole { directory, json }, from, to } = arguments;
    let store = open(directory)?;
    let old = store.volume_at(from).map_err(told)?;
    check_apart(&store, to)?;
    // The directory may be a volume already, if an earlier run of the command was interrupted.
    if !store.volume_at(to).is_ok_and(|place| place.class == old.class) {
        let new = new_volume(old.class, to, old.bytes_max.map(ByteSize))?;
        store.add_volume(&new).map_err(told)?;
    }
    let_go(&store, old)?;
    tell(store, *json, true)
}

/// Moves everything away from a volume.
fn let_go(store: &Kvdb, place: Volume) -> anyhow::Result<()> {
    let mut bar = Bar::watched("retire")?;
    let done = store.retire_volume(&place.directory, &mut |it| {
        bar.tell(it.bytes - it.bytes_left, it.bytes);
        bar.flow()
    });
    bar.finish();
    match done.map_err(told)? {
        true => Ok(()),
        false => bar.check("interrupted; nothing new is put there, and the same command goes on"),
    }
}

fn found(arguments: &Found) -> anyhow::Result<()> {
    let Found { whole: Whole { directory: home, json }, paths } = arguments;
    let volumes = paths.iter().map(|path| directory(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::open_on(directory(&home.path)?, &volumes, options(home), clock);
    let store = store.map_err(|error| match error {
        error @ StoreError::VolumeMissing { .. } => {
            anyhow!("{} is not all that is missing: {error}", names(paths))
        }
        error => told(error),
    })?;
    // Closing writes the manifest with the new paths.
    for path in paths {
        store.volume_at(path).map_err(told)?;
    }
    tell(store, *json, false)
}

fn names(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// Closes a store and prints its volumes, and the bytes written to them if data were moved.
fn tell(store: Kvdb, is_json: bool, has_moved: bool) -> anyhow::Result<()> {
    let statistics = store.statistics().map_err(told)?;
    // Closing makes everything durable; the command can report a failure only here.
    store.close().map_err(told)?;
    if is_json {
        return print(&json!({ "places": as_json(&statistics, has_moved)? }));
    }
    let table = table(&statistics);
    write!(out(), "{table}").context("standard output")?;
    match written(&statistics).filter(|_| has_moved) {
        Some(table) => write!(out(), "\n{table}").context("standard output"),
        None => Ok(()),
    }
}

fn taken(medium: &MediumStatistics) -> u64 {
    medium.space.log_bytes + medium.space.run_bytes + medium.space.value_bytes
}

fn table(statistics: &Statistics) -> Table {
    let columns = ["place", "class", "state", "taken", "at most", "free"];
    let mut table = Table::new("Places", &columns);
    let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), size);
    for (number, medium) in statistics.media.iter().enumerate() {
        let state = match (number == 0, medium.is_retiring) {
            (true, true) => "home, retiring",
            (true, false) => "home",
            (false, true) => "retiring",
            (false, false) => "in use",
        };
        table.row(vec![
            medium.path.clone(),
            medium.class.to_string(),
            state.to_owned(),
            size(taken(medium)),
            bytes(medium.bytes_max),
            bytes(medium.space.free_bytes),
        ]);
    }
    for place in &statistics.missing {
        let (path, class, unknown) = (place.path.clone(), place.class, "-".to_owned());
        let state = "missing".to_owned();
        let most = bytes(place.bytes_max);
        table.row(vec![path, class.to_string(), state, unknown.clone(), most, unknown]);
    }
    table
}

fn as_json(statistics: &Statistics, has_moved: bool) -> anyhow::Result<Vec<Value>> {
    let there = statistics.media.iter().enumerate().map(|(number, medium)| {
        let mut place = json!({
            "path": medium.path,
            "class": medium.class,
            "is_home": number == 0,
            "is_retiring": medium.is_retiring,
            "bytes": taken(medium),
            "bytes_max": medium.bytes_max,
            "free_bytes": medium.space.free_bytes,
        });
        if has_moved {
            place["written"] = serde_json::to_value(medium.written)?;
        }
        Ok(place)
    });
    let missing = statistics.missing.iter().map(|place| {
        Ok(json!({
            "path": place.path,
            "class": place.class,
            "is_home": false,
            "is_retiring": place.is_retiring,
            "bytes_max": place.bytes_max,
            "missing": place.what,
        }))
    });
    let all: Result<Vec<Value>, serde_json::Error> = there.chain(missing).collect();
    all.context("the answer as JSON")
}

pub(super) fn policy(arguments: &PolicyOf) -> anyhow::Result<()> {
    let PolicyOf { whole: Whole { directory, json }, policy, kvs } = arguments;
    let store = match policy {
        Some(policy) => {
            let store = open(directory)?;
            store.set_policy(kvs, *policy).map_err(told)?;
            store
        }
        None => look(directory)?,
    };
    let now = store.policy(kvs).map_err(told)?;
    store.close().map_err(told)?;
    if *json {
        let mut answer = json!({ "kvs": kvs, "policy": now.to_string() });
        answer["classes"] = serde_json::to_value(now).context("the answer as JSON")?;
        return print(&answer);
    }
    let mut table = Table::new(&format!("{kvs}: {now}"), &["", "keys", "values"]);
    for (age, keys, values) in
        [("young", now.young_keys, now.young_values), ("aged", now.aged_keys, now.aged_values)]
    {
        table.row(vec![age.to_owned(), keys.to_string(), values.to_string()]);
    }
    write!(out(), "{table}").context("standard output")?;
    if policy.is_some() {
        let text = "What lies elsewhere moves while the store is open, or now with `entresol store";
        writeln!(out(), "{text} compact {directory}`").context("standard output")?;
    }
    Ok(())
}
