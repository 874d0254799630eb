//! `entresol store`: access to a store in a directory, from the shell.

mod volumes;
mod whole;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use entresol_base::{ByteSize, SystemClock, duration};
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{Directory, FileError, LocalDirectory, files};
use entresol_store::{
    CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, Policy, StoreError, VALUE_BYTES_MAX,
};
use serde_json::{Value, json};

use crate::form::Form;
use whole::{Copy, Whole};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an empty store.
    Create(volumes::Create),
    /// Set the value of a key.
    Put(Put),
    /// Print the value of a key; status 1 if there is none.
    Get(Get),
    /// Delete keys.
    Del(Del),
    /// Print keys and values in the order of the keys, separated by a tab.
    Scan(Scan),
    /// Print the size of a store and its contents.
    Stats(Whole),
    /// Read everything and list what is damaged; status 1 if something is, 3 if nothing is, but
    /// places are missing.
    Check(Whole),
    /// Copy everything that can be read of a damaged store into a new one; status 1 if something
    /// cannot.
    Salvage(Copy),
    /// Copy a store into another directory, where it opens by itself.
    Checkpoint(Copy),
    /// Compact the store, after which it takes no more space than it must.
    Compact(Whole),
    /// Add, retire, move and list the directories that hold the data.
    #[command(subcommand)]
    Place(volumes::Command),
    /// Show or set the classes of media for the data of a Kvs.
    Policy(volumes::PolicyOf),
}

/// Arguments that name an ordered map of a store, and the form of keys and values.
#[derive(Debug, Args)]
struct Place {
    /// Directory of the store; pmem:PATH is persistent memory, pmem:PATH,assume-dax lets an
    /// ordinary file system stand in for it.
    #[arg(value_parser = OsStringValueParser::new().try_map(StorePlace::parse))]
    directory: StorePlace,
    /// The Kvs, an ordered map of the store.
    #[arg(long, value_name = "NAME", default_value = "default")]
    kvs: String,
    /// Form in which keys and values are typed and printed.
    #[arg(long, value_name = "FORM", default_value = "text")]
    form: Form,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Put {
    #[command(flatten)]
    place: Place,
    key: String,
    /// The value, unless --file is given.
    #[arg(required_unless_present = "file")]
    value: Option<String>,
    /// Read the value from this file, byte for byte; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Time to live, rounded up to whole seconds; the value may expire up to a second earlier.
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    ttl: Option<Duration>,
    /// Make the store and the Kvs if they do not exist.
    #[arg(long)]
    create: bool,
    /// Policy of the Kvs if it is made: the classes of media for its data, as in `store policy`
    /// [default: fastest].
    #[arg(long, value_name = "POLICY", requires = "create")]
    policy: Option<Policy>,
    /// Largest number of bytes that the store uses if it is made, 64MiB or more [default: what the
    /// file system has].
    #[arg(long, value_name = "SIZE", value_parser = volumes::most, requires = "create")]
    most: Option<ByteSize>,
}

#[derive(Debug, Args)]
struct Get {
    #[command(flatten)]
    place: Place,
    key: String,
    /// Write the value to this file, byte for byte; - is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Del {
    #[command(flatten)]
    place: Place,
    #[arg(required = true)]
    keys: Vec<String>,
    /// Delete all keys with these prefixes.
    #[arg(long)]
    prefix: bool,
}

#[derive(Debug, Args)]
struct Scan {
    #[command(flatten)]
    place: Place,
    /// Print only keys with this prefix.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Begin at this key, in the direction of the scan.
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Largest number of keys.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Scan from the last key to the first.
    #[arg(long)]
    reverse: bool,
    /// Print keys only.
    #[arg(long)]
    keys_only: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Create(arguments) => volumes::create(arguments),
        Command::Put(arguments) => put(arguments),
        Command::Get(arguments) => get(arguments),
        Command::Del(arguments) => del(arguments),
        Command::Scan(arguments) => scan(arguments),
        Command::Stats(arguments) => whole::stats(arguments),
        Command::Check(arguments) => whole::check(arguments),
        Command::Salvage(arguments) => whole::salvage(arguments),
        Command::Checkpoint(arguments) => whole::checkpoint(arguments),
        Command::Compact(arguments) => whole::compact(arguments),
        Command::Place(command) => volumes::run(command),
        Command::Policy(arguments) => volumes::policy(arguments),
    }
}

/// Converts an error into one with an exit status: 2 if the caller's request was wrong, otherwise
/// 1.
fn told(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::NoStore { .. }
        | StoreError::NoKvs { .. }
        | StoreError::KvsName { .. }
        | StoreError::Exists { .. }
        | StoreError::Key { .. }
        | StoreError::Prefix { .. }
        | StoreError::Value { .. }
        | StoreError::Nested { .. }
        | StoreError::Policy { .. }
        | StoreError::VolumeOfAnother { .. } => anyhow!(error),
        StoreError::File(ref file) if is_callers(file) => anyhow!(error),
        // Data on a missing volume are not damaged.
        StoreError::VolumeMissing { .. } => anyhow!(
            "{error}: `entresol store place found DIRECTORY PATH` remembers where it is; get, \
             scan, stats and check read what is there"
        ),
        error => BenchError::Failed(error.to_string()).into(),
    }
}

/// Returns true if a path does not exist or names an unusable file. All other errors are due to the
/// disk or the store.
fn is_callers(error: &FileError) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    match error {
        FileError::Io { cause, .. } => {
            [NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem].contains(&cause.kind())
        }
        FileError::NoDirectory { .. }
        | FileError::WrongType { .. }
        | FileError::Name { .. }
        | FileError::NotDax { .. }
        | FileError::Locked { .. } => true,
        _ => false,
    }
}

/// Parses a time to live, rounded up to whole seconds.
fn time_to_live(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(Duration::ZERO) => {
            Err("0 is no time to live: leave --ttl out for a value that stays".to_owned())
        }
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

fn typed(form: Form, what: &str, text: &str) -> anyhow::Result<Vec<u8>> {
    form.read(text).map_err(|problem| anyhow!("the {what} '{text}': {problem}"))
}

fn shown(form: Form, what: &str, bytes: &[u8]) -> anyhow::Result<String> {
    form.show(bytes).map_err(|problem| anyhow!("the {what}: {problem}"))
}

fn print(value: &Value) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(value).context("the answer as JSON")?;
    writeln!(io::stdout(), "{json}").context("standard output")
}

impl Place {
    fn key(&self, text: &str) -> anyhow::Result<Vec<u8>> {
        typed(self.form, "key", text)
    }

    /// Opens the store for writing.
    fn open(&self) -> anyhow::Result<(Kvdb, Kvs)> {
        let store = Kvdb::open_at(&self.directory.path, options(&self.directory)).map_err(told)?;
        let kvs = store.kvs(&self.kvs).map_err(told)?;
        Ok((store, kvs))
    }

    fn open_or_create(
        &self,
        policy: Option<Policy>,
        most: Option<ByteSize>,
    ) -> anyhow::Result<(Kvdb, Kvs)> {
        let store = match Kvdb::open_at(&self.directory.path, options(&self.directory)) {
            Err(_) if is_empty(&self.directory.path) => volumes::make(&self.directory, None, most)?,
            Ok(_) if most.is_some() => {
                return Err(anyhow!("{} is there: leave --most out", self.directory));
            }
            opened => opened.map_err(told)?,
        };
        let kvs = match store.kvs(&self.kvs) {
            Err(StoreError::NoKvs { .. }) => {
                let policy = policy.unwrap_or_default();
                store.create_kvs(&self.kvs, KvsOptions { policy, ..KvsOptions::default() })
            }
            opened => opened,
        };
        let kvs = kvs.map_err(told)?;
        let now = store.policy(&self.kvs).map_err(told)?;
        match policy {
            Some(wanted) if wanted != now => Err(anyhow!(
                "the Kvs '{}' of {} is there with the policy {now}: leave --policy out, or change \
                 it with `entresol store policy`",
                self.kvs,
                self.directory,
            )),
            _ => Ok((store, kvs)),
        }
    }

    /// Opens the store for reading.
    fn look(&self) -> anyhow::Result<(Kvdb, Kvs)> {
        let store = look(&self.directory)?;
        let kvs = store.kvs(&self.kvs).map_err(told)?;
        Ok((store, kvs))
    }
}

/// Returns the options of a store there, if nothing else is asked for.
fn options(place: &StorePlace) -> KvdbOptions {
    KvdbOptions { pmem: place.pmem, ..KvdbOptions::default() }
}

/// Opens a store for reading.
fn look(place: &StorePlace) -> anyhow::Result<Kvdb> {
    let directory = LocalDirectory::open_existing(&place.path);
    let directory: Arc<dyn Directory> = Arc::new(directory.map_err(|it| told(it.into()))?);
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::open_read_only(directory, options(place), clock).map_err(told)?;
    if let Some(last) = store.uncertain_behind() {
        writeln!(
            io::stderr(),
            "entresol: the log may go on in a place that is missing: writes behind the {}th, if \
             there are any, are not shown",
            last.0
        )
        .context("standard error")?;
    }
    Ok(store)
}

/// Returns true if a path does not exist or is an empty directory.
fn is_empty(path: &Path) -> bool {
    let entries = |directory: LocalDirectory| directory.list().is_ok_and(|all| all.is_empty());
    !files::exists(path) || LocalDirectory::open_existing(path).is_ok_and(entries)
}

fn put(arguments: &Put) -> anyhow::Result<()> {
    let Put { place, key, value, file, ttl, create, policy, most } = arguments;
    let key_bytes = place.key(key)?;
    let value = match (value, file) {
        (Some(text), _) => typed(place.form, "value", text)?,
        (None, Some(path)) => content(path)?,
        (None, None) => Vec::new(),
    };
    if !create && !files::exists(&place.directory.path) {
        let directory = place.directory.path.display();
        return Err(anyhow!("{directory} does not exist; --create makes a store there"));
    }
    let (store, kvs) = match create {
        true => place.open_or_create(*policy, *most)?,
        false => place.open()?,
    };
    let sequence = kvs.put_for(&key_bytes, &value, *ttl).map_err(|error| match error {
        error if error.is_no_room() && *create && is_new(&kvs) => {
            volumes::no_room_for_a_store(&place.directory, &error)
        }
        error => told(error),
    })?;
    // Closing makes the write durable; the command can report a failure only here.
    store.close().map_err(told)?;
    if place.json {
        print(&json!({ "key": key, "value_bytes": value.len(), "sequence": sequence.0 }))?;
    }
    Ok(())
}

/// Returns true if nothing was ever written to a `Kvs`.
fn is_new(kvs: &Kvs) -> bool {
    let options = CursorOptions { keys_only: true, limit: Some(1), ..CursorOptions::default() };
    kvs.cursor(options).is_ok_and(|mut cursor| matches!(cursor.next(), Ok(None)))
}

/// Reads a value from a file or from standard input, up to the largest one allowed.
fn content(path: &Path) -> anyhow::Result<Vec<u8>> {
    let named = || path.display().to_string();
    let mut from: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => files::open_reader(path).with_context(named)?,
    };
    let mut bytes = Vec::new();
    from.by_ref().take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).with_context(named)?;
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(anyhow!("{}: a value has at most {}", named(), ByteSize(1 << 30)));
    }
    Ok(bytes)
}

fn get(arguments: &Get) -> anyhow::Result<()> {
    let Get { place, key, file } = arguments;
    let key_bytes = place.key(key)?;
    let (store, kvs) = place.look()?;
    let Some((value, sequence)) = kvs.get_with_token(&key_bytes).map_err(told)? else {
        let (name, directory) = (&place.kvs, place.directory.path.display());
        let text = format!("no key '{key}' in the Kvs {name} of {directory}");
        return Err(BenchError::Failed(text).into());
    };
    store.close().map_err(told)?;
    if let Some(path) = file {
        return match path.to_str() {
            Some("-") => io::stdout().write_all(&value).context("standard output"),
            _ => files::write_atomically(path, &value).with_context(|| path.display().to_string()),
        };
    }
    let value = shown(place.form, "value", &value)?;
    if place.json {
        return print(&json!({ "key": key, "value": value, "sequence": sequence.0 }));
    }
    writeln!(io::stdout(), "{value}").context("standard output")
}

fn del(arguments: &Del) -> anyhow::Result<()> {
    let Del { place, keys, prefix } = arguments;
    let bytes = keys.iter().map(|key| place.key(key)).collect::<anyhow::Result<Vec<_>>>()?;
    let (store, kvs) = place.open()?;
    for key in &bytes {
        let done = if *prefix { kvs.delete_prefix(key) } else { kvs.delete(key) };
        done.map_err(told)?;
    }
    store.close().map_err(told)?;
    if place.json {
        let what = if *prefix { "prefixes" } else { "keys" };
        print(&json!({ what: keys }))?;
    }
    Ok(())
}

fn scan(arguments: &Scan) -> anyhow::Result<()> {
    let Scan { place, prefix, from, limit, reverse, keys_only } = arguments;
    let prefix = prefix.as_deref().map(|prefix| place.key(prefix)).transpose()?;
    let from = from.as_deref().map(|from| place.key(from)).transpose()?;
    let (store, kvs) = place.look()?;
    let options = CursorOptions {
        backward: *reverse,
        prefix: prefix.unwrap_or_default(),
        keys_only: *keys_only,
        // One more key shows whether there are further ones.
        limit: Some(limit.saturating_add(1) as u64),
    };
    let mut cursor = kvs.cursor(options).map_err(told)?;
    if let Some(from) = from {
        cursor.seek(&from);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut pairs = Vec::new();
    let mut count = 0;
    let mut has_more = false;
    while let Some((key, value)) = cursor.next().map_err(told)? {
        if count == *limit {
            has_more = true;
            break;
        }
        count += 1;
        let key = shown(place.form, "key", key)?;
        let value = (!keys_only).then(|| shown(place.form, "value", value)).transpose()?;
        match (place.json, value) {
            (true, Some(value)) => pairs.push(json!({ "key": key, "value": value })),
            (true, None) => pairs.push(json!({ "key": key })),
            (false, Some(value)) => writeln!(out, "{key}\t{value}").context("standard output")?,
            (false, None) => writeln!(out, "{key}").context("standard output")?,
        }
    }
    out.flush().context("standard output")?;
    drop(out);
    drop(cursor);
    store.close().map_err(told)?;
    if place.json {
        return print(&json!({ "pairs": pairs, "has_more": has_more }));
    }
    if has_more {
        writeln!(io::stderr(), "entresol: there are more; --limit shows {limit}")?;
    }
    Ok(())
}
