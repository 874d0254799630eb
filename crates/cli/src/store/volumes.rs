//! Placement of a store's data: creation of a store, its volumes, and the policies of its `Kvs`.

use std::ops::ControlFlow;
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
    Kvdb, KvdbOptions, MediaClass, MediumStatistics, Policy, Statistics, StoreError, VOLUME_LABEL,
    Volume,
};
use serde_json::{Value, json};

use super::whole::{Bar, Whole, size, written_now};
use super::{NewDirectory, look, options, told};
use crate::shell::quoted;
use crate::standard::{after, print, print_json};
use crate::written::nearest;
use crate::{Interrupted, interrupt};

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
    /// Move everything away from a volume and remove it from the store. An interrupted command can
    /// be repeated to finish; nothing new is written to the volume in the meantime.
    Retire(Retire),
    /// Add a volume with the class, bound and budget of another one, then retire that one. An
    /// interrupted command can be repeated to finish.
    Move(Move),
    /// Record the paths of volumes that were moved while the store was closed.
    Found(Found),
    /// Set how many bytes a day may be written to a volume. Compaction and moves between classes
    /// wait while the budget is used up, unless they make room; writes never do.
    Budget(Budget),
    /// List the volumes, including missing ones.
    List(Whole),
}

/// Arguments for the budget of a volume.
#[derive(Debug, Args)]
pub(super) struct Budget {
    #[command(flatten)]
    whole: Whole,
    /// The volume.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    path: PathBuf,
    /// Bytes a day, or `none`.
    #[arg(value_name = "SIZE|none", value_parser = per_day)]
    per_day: PerDay,
}

/// Bytes a day, if they are limited.
#[derive(Debug, Clone, Copy)]
struct PerDay(Option<ByteSize>);

fn per_day(text: &str) -> Result<PerDay, String> {
    if text == "none" {
        return Ok(PerDay(None));
    }
    let bytes: ByteSize = text.parse().map_err(|error: ParseSizeError| error.to_string())?;
    match bytes.0 < PER_DAY_MIN {
        true => Err("a budget of less would stop compaction: use at least 1MiB".to_owned()),
        false => Ok(PerDay(Some(bytes))),
    }
}

/// Smallest budget of bytes a day.
const PER_DAY_MIN: u64 = 1 << 20;

/// Arguments for a new volume.
#[derive(Debug, Args)]
pub(super) struct Add {
    #[command(flatten)]
    whole: Whole,
    /// Class of media of the directory: pmem, staging (a fast drive) or capacity.
    class: MediaClass,
    /// An empty directory, or a path at which one is created.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    path: PathBuf,
    /// Largest number of bytes to use there, 64MiB or more [default: what the file system has].
    #[arg(long, value_name = "SIZE", value_parser = most)]
    most: Option<ByteSize>,
}

/// Arguments for a volume that is retired.
#[derive(Debug, Args)]
pub(super) struct Retire {
    #[command(flatten)]
    whole: Whole,
    /// The volume. The store's own directory keeps the manifest and stays in the list.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    path: PathBuf,
}

/// Arguments for a volume that is replaced.
#[derive(Debug, Args)]
pub(super) struct Move {
    #[command(flatten)]
    whole: Whole,
    /// The volume. The store's own directory keeps the manifest and stays in the list.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    from: PathBuf,
    /// An empty directory, or a path at which one is created.
    #[arg(value_parser = OsStringValueParser::new().try_map(path))]
    to: PathBuf,
}

/// Arguments for volumes that have other paths now.
#[derive(Debug, Args)]
pub(super) struct Found {
    #[command(flatten)]
    whole: Whole,
    /// Present paths of all volumes that were moved.
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
    /// new-keys=CLASSES,new-values=CLASSES,old-keys=CLASSES,old-values=CLASSES, each one or
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
            "'{text}' is not a path: give the class pmem and the path alone, and write pmem: \
             before the store's directory"
        )),
        Some("") => Err("the path is empty: name a directory".to_owned()),
        Some(text) => std::path::absolute(text).map_err(|error| error.to_string()),
        None => Err("the path is not UTF-8, so the manifest cannot store it: rename the directory"
            .to_owned()),
    }
}

/// Parses a bound, which must have room for at least a few segments of the log.
pub(super) fn most(text: &str) -> Result<ByteSize, String> {
    let most: ByteSize = text.parse().map_err(|error: ParseSizeError| error.to_string())?;
    let least = 4 * KvdbOptions::default().segment_bytes;
    if most.0 < least {
        return Err(format!("too small for segments of the log: use at least {}", ByteSize(least)));
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
    tell(make(directory, *class, *most)?, *json, false, "the store was made")
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
                "{directory} is persistent memory, but --class is {class}: remove --class, or give \
                 a plain path"
            ));
        }
        (Some(_), _) => MediaClass::Pmem,
        (None, class) => class.unwrap_or(MediaClass::Capacity),
    };
    // What a signal leaves of a store would keep the next attempt out.
    let stop = interrupt::defer()?;
    let new = NewDirectory::at(&directory.path);
    let home = new_volume(class, &directory.path, most).inspect_err(|_| new.undo())?;
    let clock = Arc::new(SystemClock::new());
    let made = Kvdb::create_on(&[home], options(directory), clock);
    if stop.is_asked()
        && let Ok(store) = made
    {
        store.remove().map_err(told)?;
        new.undo();
        return Err(Interrupted("interrupted; no store was made").into());
    }
    made.map_err(|error| {
        new.undo();
        match error.is_no_room() {
            true => no_room_for_a_store(directory, most, &error),
            false => told(error),
        }
    })
}

/// Returns the error of a new store without any room, with advice.
pub(super) fn no_room_for_a_store(
    directory: &StorePlace,
    most: Option<ByteSize>,
    error: &StoreError,
) -> anyhow::Error {
    let advice = if error.is_limit_of_file_sizes() {
        "A segment of the log has 16MiB"
    } else if most.is_some_and(|most| most.0 < 4 * MOST_MIN) || !has_room_for_least(directory) {
        "A quarter of the bound is reserved for deletes and compaction, and 16MiB are a segment of \
         the log. Free some room there, or create it elsewhere"
    } else {
        "Of the room there, 64MiB are reserved for deletes and compaction, and 16MiB are a segment \
         of the log; of a bound below 256MiB only a quarter is reserved. Create it with `--most \
         64MiB`, or elsewhere"
    };
    let text = format!("{error}. No store was made in {directory}. {advice}");
    BenchError::Failed(text).into()
}

/// Returns true if a file system has room for a store of the smallest bound: for a segment of the
/// log, and for the reserve.
fn has_room_for_least(directory: &StorePlace) -> bool {
    let free = files::free_space(&nearest(&directory.path)).map(|space| space.free_bytes);
    free.is_ok_and(|free| free >= MOST_MIN / 2)
}

/// Smallest bound of a store: four segments of the log.
const MOST_MIN: u64 = 64 << 20;

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Add(arguments) => add(arguments),
        Command::Retire(arguments) => retire(arguments),
        Command::Move(arguments) => replace(arguments),
        Command::Found(arguments) => found(arguments),
        Command::Budget(arguments) => budget(arguments),
        Command::List(Whole { directory, json }) => {
            tell(look(directory)?, *json, false, "nothing was changed")
        }
    }
}

fn add(arguments: &Add) -> anyhow::Result<()> {
    let Add { whole: Whole { directory, json }, class, path, most } = arguments;
    let store = open(directory)?;
    check_apart(&store, path)?;
    add_new(&store, *class, path, *most)?;
    tell(store, *json, false, "the volume was added")
}

/// Adds a volume, whose directory is made if it does not exist.
fn add_new(
    store: &Kvdb,
    class: MediaClass,
    path: &Path,
    most: Option<ByteSize>,
) -> anyhow::Result<NewDirectory> {
    let new = NewDirectory::at(path);
    match store.add_volume(&new_volume(class, path, most)?) {
        Ok(()) => Ok(new),
        Err(error) => {
            new.undo();
            Err(told(error))
        }
    }
}

fn budget(arguments: &Budget) -> anyhow::Result<()> {
    let Budget { whole: Whole { directory, json }, path, per_day } = arguments;
    let store = open(directory)?;
    store.set_writes_per_day(path, per_day.0.map(|bytes| bytes.0)).map_err(told)?;
    tell(store, *json, false, "the budget was set")
}

fn retire(arguments: &Retire) -> anyhow::Result<()> {
    let Retire { whole: Whole { directory, json }, path } = arguments;
    let store = open(directory)?;
    let volume = store.volume_at(path).map_err(told)?;
    let (class, most) = (volume.class, volume.bytes_max);
    let_go(&store, volume).map_err(|error| match is_retiring(&store, path) {
        Some(true) => {
            let most = most.map_or(String::new(), |most| format!(" --most {}", ByteSize(most)));
            let state = format!(
                "{} takes no new data: run the command again to finish, or use it again with \
                 `entresol store volume add {} {class} {}{most}`",
                path.display(),
                quoted(directory),
                quoted(&path.display()),
            );
            with(error, &state)
        }
        _ => error,
    })?;
    tell(store, *json, true, "the volume was retired")
}

fn replace(arguments: &Move) -> anyhow::Result<()> {
    let Move { whole: Whole { directory, json }, from, to } = arguments;
    let store = open(directory)?;
    let old = store.volume_at(from).map_err(told)?;
    if store.volume_at(to).is_ok_and(|it| it.directory.id() == old.directory.id()) {
        let to = to.display();
        return Err(anyhow!("{to} is the volume itself: name another directory to move it to"));
    }
    check_apart(&store, to)?;
    // Nothing is added for a move that cannot come to its end.
    store.check_whole().map_err(told)?;
    // The directory may be a volume already, if an earlier run of the command was interrupted.
    let is_used = store.volume_at(to).is_ok_and(|it| it.class == old.class)
        && is_retiring(&store, to) == Some(false);
    let new = match is_used {
        true => None,
        false => Some(add_new(&store, old.class, to, old.bytes_max.map(ByteSize))?),
    };
    let moved = match &new {
        Some(_) => give_budget(&store, from, to).and_then(|()| let_go(&store, old)),
        None => let_go(&store, old),
    };
    moved.map_err(|error| match is_retiring(&store, from) {
        Some(true) => {
            let (from, to) = (from.display(), to.display());
            let state = format!(
                "{from} takes no new data, and {to} does: run the command again to finish, or go \
                 back with `entresol store volume move {} {} {}`",
                quoted(directory),
                quoted(&to),
                quoted(&from),
            );
            with(error, &state)
        }
        _ => with(error, &undo(&store, (directory, to), new)),
    })?;
    tell(store, *json, true, "the volume was moved")
}

/// Removes a volume that was added for a move of which nothing came. Returns the state of the store
/// in words.
fn undo(store: &Kvdb, (home, to): (&StorePlace, &Path), new: Option<NewDirectory>) -> String {
    let shown = to.display();
    let Some(new) = new else {
        return format!("{shown} was a volume already, and takes new data");
    };
    let removed = store.volume_at(to).and_then(|volume| {
        store.retire_volume(&volume.directory, &mut |_| ControlFlow::Continue(()))
    });
    match removed {
        Ok(true) if store.volume_at(to).is_err() => {
            new.undo();
            format!("Nothing was moved, and {shown} is no volume of the store")
        }
        Ok(_) => format!("Nothing was moved, and {shown} takes no new data"),
        Err(problem) => format!(
            "Nothing was moved. {shown} was added, and takes new data: remove it with `entresol \
             store volume retire {} {}`; now that failed: {problem}",
            quoted(home),
            quoted(&shown),
        ),
    }
}

/// Returns whether a volume is being retired; `None` if the store cannot tell.
fn is_retiring(store: &Kvdb, path: &Path) -> Option<bool> {
    let media = store.statistics().ok()?.media;
    media.into_iter().find(|it| Path::new(&it.path) == path).map(|it| it.is_retiring)
}

/// Adds a sentence to an error, which keeps its exit status.
fn with(error: anyhow::Error, more: &str) -> anyhow::Error {
    if error.is::<Interrupted>() {
        return error;
    }
    match error.downcast::<BenchError>() {
        Ok(error) => BenchError::Failed(format!("{error}. {more}")).into(),
        Err(error) => anyhow!("{error}. {more}"),
    }
}

/// Limits the bytes a day that may be written to a volume as those of another are.
fn give_budget(store: &Kvdb, from: &Path, to: &Path) -> anyhow::Result<()> {
    let media = store.statistics().map_err(told)?.media;
    let found = media.into_iter().find(|medium| Path::new(&medium.path) == from);
    let per_day = found.and_then(|medium| medium.life.budget).map(|budget| budget.bytes_per_day);
    store.set_writes_per_day(to, per_day).map_err(told)
}

/// Moves everything away from a volume.
fn let_go(store: &Kvdb, volume: Volume) -> anyhow::Result<()> {
    let mut bar = Bar::watched("retire")?;
    let done = store.retire_volume(&volume.directory, &mut |it| {
        bar.tell(it.bytes - it.bytes_left, it.bytes);
        bar.flow()
    });
    bar.finish();
    match done.map_err(told)? {
        true => Ok(()),
        false => {
            bar.check("interrupted; the volume takes no new data: run the command again to finish")
        }
    }
}

fn found(arguments: &Found) -> anyhow::Result<()> {
    let Found { whole: Whole { directory: home, json }, paths } = arguments;
    let volumes = paths.iter().map(|path| directory(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let is_volume = |path: &&PathBuf| files::exists(&path.join(VOLUME_LABEL));
    if let Some(other) = paths.iter().find(|path| !is_volume(path)) {
        return Err(anyhow!(
            "{} is no volume of the store: it has no label ({VOLUME_LABEL}). Give the directory \
             where the missing volume is now",
            other.display()
        ));
    }
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::open_on(directory(&home.path)?, &volumes, options(home), clock);
    let store = store.map_err(|error| match error {
        error @ StoreError::VolumeMissing { .. } => {
            anyhow!("{} is not the only missing volume: {error}", names(paths))
        }
        error => told(error),
    })?;
    // Closing writes the manifest with the new paths.
    for path in paths {
        store.volume_at(path).map_err(told)?;
    }
    tell(store, *json, false, "the new paths were recorded")
}

fn names(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// Closes a store and prints its volumes, and the bytes written to them if data were moved. `done`
/// says what a failure of the output does not undo.
fn tell(store: Kvdb, is_json: bool, has_moved: bool, done: &str) -> anyhow::Result<()> {
    let statistics = store.statistics().map_err(told)?;
    // Closing makes everything durable; the command can report a failure only here.
    store.close().map_err(told)?;
    let printed = match is_json {
        true => print_json(&json!({ "volumes": as_json(&statistics, has_moved)? })),
        false => {
            let moved = written_now(&statistics).filter(|_| has_moved);
            let moved = moved.map_or(String::new(), |table| format!("\n{table}"));
            print(format_args!("{}{moved}", table(&statistics))).map_err(Into::into)
        }
    };
    after(done, printed)
}

fn taken(medium: &MediumStatistics) -> u64 {
    medium.space.log_bytes + medium.space.run_bytes + medium.space.value_bytes
}

fn table(statistics: &Statistics) -> Table {
    let columns = ["volume", "class", "state", "used", "at most", "free", "writes a day"];
    let mut table = Table::new("Volumes", &columns);
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
            bytes(medium.life.budget.map(|budget| budget.bytes_per_day)),
        ]);
    }
    for volume in &statistics.missing {
        let (path, class, unknown) = (volume.path.clone(), volume.class, "-".to_owned());
        let state = "missing".to_owned();
        let most = bytes(volume.bytes_max);
        let class = class.to_string();
        table.row(vec![path, class, state, unknown.clone(), most, unknown.clone(), unknown]);
    }
    table
}

fn as_json(statistics: &Statistics, has_moved: bool) -> anyhow::Result<Vec<Value>> {
    let there = statistics.media.iter().enumerate().map(|(number, medium)| {
        let mut volume = json!({
            "path": medium.path,
            "class": medium.class,
            "is_home": number == 0,
            "is_retiring": medium.is_retiring,
            "bytes": taken(medium),
            "bytes_max": medium.bytes_max,
            "free_bytes": medium.space.free_bytes,
            "life": serde_json::to_value(&medium.life)?,
        });
        if has_moved {
            volume["written"] = serde_json::to_value(medium.written)?;
        }
        Ok(volume)
    });
    let missing = statistics.missing.iter().map(|volume| {
        Ok(json!({
            "path": volume.path,
            "class": volume.class,
            "is_home": false,
            "is_retiring": volume.is_retiring,
            "bytes_max": volume.bytes_max,
            "missing": volume.what,
        }))
    });
    let all: Result<Vec<Value>, serde_json::Error> = there.chain(missing).collect();
    all.context("cannot format the answer as JSON")
}

/// Adds to the error of a `Kvs` that does not exist how it is made.
fn no_kvs(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::NoKvs { ref name, .. } => {
            anyhow!("{error}; `entresol store put --create --kvs {name}` makes it with a first key")
        }
        error => told(error),
    }
}

pub(super) fn policy(arguments: &PolicyOf) -> anyhow::Result<()> {
    let PolicyOf { whole: Whole { directory, json }, policy, kvs } = arguments;
    let store = match policy {
        Some(policy) => {
            let store = open(directory)?;
            store.set_policy(kvs, *policy).map_err(no_kvs)?;
            store
        }
        None => look(directory)?,
    };
    let now = store.policy(kvs).map_err(no_kvs)?;
    store.close().map_err(told)?;
    let done = if policy.is_some() { "the policy was set" } else { "nothing was changed" };
    if *json {
        let classes = json!({
            "new_keys": now.new_keys,
            "new_values": now.new_values,
            "old_keys": now.old_keys,
            "old_values": now.old_values,
        });
        let answer = json!({ "kvs": kvs, "policy": now.to_string(), "classes": classes });
        return after(done, print_json(&answer));
    }
    let mut table = Table::new(&format!("{kvs}: {now}"), &["", "keys", "values"]);
    for (age, keys, values) in
        [("new", now.new_keys, now.new_values), ("old", now.old_keys, now.old_values)]
    {
        table.row(vec![age.to_owned(), keys.to_string(), values.to_string()]);
    }
    let mut text = table.to_string();
    if policy.is_some() {
        text += "Data elsewhere move while the store is open, or now with `entresol store";
        text += &format!(" compact {}`\n", quoted(directory));
    }
    after(done, print(text).map_err(Into::into))
}
