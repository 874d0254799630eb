//! `entresol store`: access to a store in a directory, from the shell.

mod volumes;
mod whole;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use entresol_base::{ByteSize, Clock, SystemClock, duration};
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{Directory, FileError, LocalDirectory, files};
use entresol_store::{
    Batch, Cursor, CursorOptions, KEY_BYTES_MAX, Kvdb, KvdbOptions, Kvs, KvsOptions, Policy,
    StoreError, VALUE_BYTES_MAX,
};
use serde::Serialize;
use serde_json::json;

use crate::form::Form;
use crate::standard::{Out, OutputError, after, input, judged, print, print_json, put_bytes, tell};
use crate::written::check_file;
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
    /// Print the value of a key; exit status 1 if the key does not exist.
    Get(Get),
    /// Delete keys.
    Del(Del),
    /// Print keys and values in the order of the keys, separated by a tab.
    Scan(Scan),
    /// Print the size of a store and its contents.
    Stats(Whole),
    /// Read everything and list what is damaged; status 1 if something is, 3 if nothing is, but
    /// volumes are missing.
    Check(Whole),
    /// Copy everything that can be read of a damaged store into a new one; status 1 if something
    /// cannot.
    Salvage(Copy),
    /// Copy a store as it is, with any damage, to another directory; the copy is a complete store.
    Checkpoint(Copy),
    /// Compact the store, after which it takes no more space than it must.
    Compact(Whole),
    /// Add, retire, move and list the directories that hold the data.
    #[command(subcommand)]
    Volume(volumes::Command),
    /// Show or set the classes of media for the data of a Kvs.
    Policy(volumes::PolicyOf),
}

/// Arguments that name an ordered map of a store, and the form of keys and values.
#[derive(Debug, Args)]
struct Place {
    /// Directory of the store; pmem:PATH is persistent memory, pmem:PATH,assume-dax lets an
    /// ordinary file system stand in for it.
    #[arg(value_parser = OsStringValueParser::new().try_map(place))]
    directory: StorePlace,
    /// The Kvs, an ordered map of the store.
    #[arg(long, value_name = "NAME", default_value = "default")]
    kvs: String,
    /// Form in which keys and values are typed and printed.
    #[arg(long, value_name = "FORM", default_value = "text")]
    encoding: Form,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Put {
    #[command(flatten)]
    place: Place,
    /// The key.
    #[arg(value_parser = OsStringValueParser::new().try_map(typed_text))]
    key: String,
    /// The value, unless --file is given.
    #[arg(
        required_unless_present = "file",
        value_parser = OsStringValueParser::new().try_map(typed_text)
    )]
    value: Option<String>,
    /// Read the value from this file, byte for byte; - is standard input.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "value",
        value_parser = OsStringValueParser::new().try_map(some_path)
    )]
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
    /// The key.
    #[arg(value_parser = OsStringValueParser::new().try_map(typed_text))]
    key: String,
    /// Write the value to this file, byte for byte; - is standard output.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "json",
        value_parser = OsStringValueParser::new().try_map(some_path)
    )]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Del {
    #[command(flatten)]
    place: Place,
    /// Keys to delete.
    #[arg(required = true, value_parser = OsStringValueParser::new().try_map(typed_text))]
    keys: Vec<String>,
    /// Take the keys for prefixes, and delete every key that begins with one.
    #[arg(long)]
    prefixes: bool,
}

#[derive(Debug, Args)]
struct Scan {
    #[command(flatten)]
    place: Place,
    /// Print only keys with this prefix.
    #[arg(
        long,
        value_name = "PREFIX",
        value_parser = OsStringValueParser::new().try_map(typed_text)
    )]
    prefix: Option<String>,
    /// Begin at this key, in the direction of the scan.
    #[arg(
        long,
        value_name = "KEY",
        value_parser = OsStringValueParser::new().try_map(typed_text)
    )]
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
        Command::Volume(command) => volumes::run(command),
        Command::Policy(arguments) => volumes::policy(arguments),
    }
}

/// Converts an error into one with an exit status: 2 if the caller's request was wrong, otherwise
/// 1.
fn told(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::NoStore { .. }
        | StoreError::Unfinished { .. }
        | StoreError::Held { .. }
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
            "{error}. If it was moved, run `entresol store volume found DIRECTORY PATH`; get, \
             scan, stats and check read the other volumes"
        ),
        // Those of an open store have the remedy already.
        error if error.is_no_descriptors() && !matches!(error, StoreError::Descriptors { .. }) => {
            let advice = "raise the limit of open files (`ulimit -n`)";
            BenchError::Failed(format!("{error}: {advice}")).into()
        }
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
    // Times of expiry have 32 bits of seconds since 1970.
    let seconds_max = u32::MAX - SystemClock::new().seconds().0;
    let most = || {
        format!(
            "{text} is too long: values expire by the year 2106, so use at most {}h, or leave \
             --ttl out for a value that does not expire",
            seconds_max / 3600
        )
    };
    match duration::parse(text) {
        Ok(Duration::ZERO) => {
            Err("a time to live cannot be 0: leave --ttl out for a value that does not expire"
                .to_owned())
        }
        Ok(time) if time > Duration::from_secs(seconds_max.into()) => Err(most()),
        Ok(time) => Ok(time),
        Err(_) if is_duration_of_any_length(text) => Err(most()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns true if a text is a whole number with a unit of time, however large the number is.
fn is_duration_of_any_length(text: &str) -> bool {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = &text[digits..];
    digits > 0 && duration::parse(&format!("1{unit}")).is_ok()
}

/// Parses the place of a store.
fn place(text: OsString) -> Result<StorePlace, String> {
    let place = StorePlace::parse(text).map_err(|error| error.to_string())?;
    match place.path.as_os_str().is_empty() {
        true => Err("the path is empty: name a directory".to_owned()),
        false => Ok(place),
    }
}

/// Parses a path, which must not be empty.
fn some_path(text: OsString) -> Result<PathBuf, String> {
    match text.is_empty() {
        true => Err("the path is empty".to_owned()),
        false => Ok(text.into()),
    }
}

/// Parses a key or a value, which must be UTF-8 to be decoded.
fn typed_text(text: OsString) -> Result<String, String> {
    text.into_string().map_err(|_| {
        "it is not UTF-8: type its bytes with --encoding hex or --encoding base64".to_owned()
    })
}

fn typed(form: Form, what: &str, text: &str) -> anyhow::Result<Vec<u8>> {
    form.read(text).map_err(|problem| anyhow!("the {what} '{text}': {problem}"))
}

fn shown(form: Form, what: &str, bytes: &[u8]) -> anyhow::Result<String> {
    form.show(bytes).map_err(|problem| anyhow!("the {what}: {problem}"))
}

impl Place {
    fn key(&self, text: &str) -> anyhow::Result<Vec<u8>> {
        typed(self.encoding, "key", text)
    }

    /// Decodes a key that is to be written or read, and so must be one that a store can have.
    fn whole_key(&self, text: &str) -> anyhow::Result<Vec<u8>> {
        let key = self.key(text)?;
        match key.len() {
            1..=KEY_BYTES_MAX => Ok(key),
            bytes => Err(told(StoreError::Key { bytes, most: KEY_BYTES_MAX })),
        }
    }

    /// Opens the store for writing.
    fn open(&self) -> anyhow::Result<Kvdb> {
        Kvdb::open_at(&self.directory.path, options(&self.directory)).map_err(told)
    }

    fn open_or_create(&self, most: Option<ByteSize>) -> anyhow::Result<Opened> {
        let made = NewDirectory::at(&self.directory.path);
        let open = || Kvdb::open_at(&self.directory.path, options(&self.directory));
        let mut opened = open();
        if opened.is_err() && is_empty(&self.directory.path) {
            match volumes::make(&self.directory, None, most) {
                Ok(store) => return Ok(Opened { store, made: Some(made) }),
                Err(error) => {
                    // Another process may have made it meanwhile.
                    opened = open();
                    if opened.is_err() {
                        return Err(error);
                    }
                }
            }
        }
        match opened {
            Ok(_) if most.is_some() => {
                Err(anyhow!("{} exists already: --most is only for a new store", self.directory))
            }
            opened => Ok(Opened { store: opened.map_err(told)?, made: None }),
        }
    }

    fn kvs_of(&self, store: &Kvdb) -> anyhow::Result<Kvs> {
        store.kvs(&self.kvs).map_err(told)
    }

    fn kvs_or_new(&self, store: &Kvdb, policy: Option<Policy>) -> anyhow::Result<Kvs> {
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
                "the Kvs '{}' of {} exists already, with the policy {now}: leave --policy out, or \
                 change the policy with `entresol store policy`",
                self.kvs,
                self.directory,
            )),
            _ => Ok(kvs),
        }
    }

    /// Opens the store for reading.
    fn look(&self) -> anyhow::Result<(Kvdb, Kvs)> {
        let store = look(&self.directory)?;
        let kvs = self.kvs_of(&store)?;
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
        tell(&format!(
            "part of the log may be on a missing volume: writes after number {} are not shown, if \
             there are any",
            last.0
        ));
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
    let key_bytes = place.whole_key(key)?;
    let value = match (value, file) {
        (Some(text), _) => typed(place.encoding, "value", text)?,
        (None, Some(path)) => content(path)?,
        (None, None) => Vec::new(),
    };
    if !create && !files::exists(&place.directory.path) {
        let directory = place.directory.path.display();
        return Err(anyhow!("{directory} does not exist: use --create to create a store there"));
    }
    let opened = match create {
        true => place.open_or_create(*most)?,
        false => Opened { store: place.open()?, made: None },
    };
    let put = |store: &Kvdb| {
        let kvs = match *create {
            true => place.kvs_or_new(store, *policy)?,
            false => store.kvs(&place.kvs).map_err(|error| match error {
                StoreError::NoKvs { .. } => anyhow!("{error}; --create makes it"),
                other => told(other),
            })?,
        };
        kvs.put_for(&key_bytes, &value, *ttl).map_err(|error| match &opened.made {
            Some(_) if error.is_no_room() => {
                volumes::no_room_for_a_store(&place.directory, *most, &error)
            }
            _ => told(error),
        })
    };
    let sequence = match put(&opened.store) {
        Ok(sequence) => sequence,
        Err(error) => {
            opened.undo();
            return Err(error);
        }
    };
    // Closing makes the write durable; the command can report a failure only here.
    opened.store.close().map_err(told)?;
    if place.json {
        let answer = json!({ "key": key, "value_bytes": value.len(), "sequence": sequence.0 });
        return after("the value was put durably", print_json(&answer));
    }
    Ok(())
}

/// Store that was opened, or made by this command.
struct Opened {
    store: Kvdb,
    made: Option<NewDirectory>,
}

impl Opened {
    /// Removes the store if this command made it, which has come to nothing.
    fn undo(self) {
        let Opened { store, made } = self;
        if let Some(made) = made {
            // The error that led here tells why.
            let _ = store.remove();
            made.undo();
        }
    }
}

/// Directory that a command makes unless it exists.
struct NewDirectory {
    path: PathBuf,
    existed: bool,
}

impl NewDirectory {
    /// Notes whether there is something at the path.
    fn at(path: &Path) -> NewDirectory {
        NewDirectory { path: path.to_owned(), existed: files::exists(path) }
    }

    /// Removes the directory if it was made since, and is empty.
    fn undo(&self) {
        if !self.existed {
            // Otherwise it has something that is not the command's.
            let _ = files::remove_directory(&self.path);
        }
    }
}

/// Converts an error of a file that the user named into one with an exit status: 2 if there is no
/// such file, or it is of no use, otherwise 1.
fn of_a_file(path: &Path, error: io::Error) -> anyhow::Error {
    use io::ErrorKind::{
        InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        // The path is a pipe, such as that of `/dev/stdout`, whose reader is gone.
        io::ErrorKind::BrokenPipe => OutputError::from(error).into(),
        NotFound | NotADirectory | IsADirectory | PermissionDenied | ReadOnlyFilesystem
        | InvalidFilename => anyhow!(text),
        _ => BenchError::Failed(text).into(),
    }
}

/// Reads a value from a file or from standard input, up to the largest one allowed.
fn content(path: &Path) -> anyhow::Result<Vec<u8>> {
    let named = || path.display().to_string();
    let failed = |error| of_a_file(path, error);
    let mut from: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(input()?),
        // It would be opened by this name, also if it is closed.
        Some("/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0") => {
            input()?;
            files::open_reader(path).map_err(failed)?
        }
        _ => files::open_reader(path).map_err(failed)?,
    };
    // Standard input has a length as well, if it is a file.
    let named_file = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    let expected = files::len(named_file).unwrap_or(0).min(VALUE_BYTES_MAX as u64);
    // A buffer that grows by doubling takes up to twice as much. One byte more shows the end.
    let mut bytes = Vec::new();
    let _ = bytes.try_reserve_exact(expected as usize + 1);
    from.by_ref().take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(anyhow!("{}: a value has at most {}", named(), ByteSize(1 << 30)));
    }
    Ok(bytes)
}

/// A key's value as JSON.
#[derive(Debug, Serialize)]
struct Got<'a> {
    key: &'a str,
    value: String,
    sequence: u64,
}

fn get(arguments: &Get) -> anyhow::Result<()> {
    let Get { place, key, file } = arguments;
    let key_bytes = place.whole_key(key)?;
    // It might have the name of a file of the store.
    file.as_deref().map_or(Ok(()), check_file)?;
    let (store, kvs) = place.look()?;
    let Some((value, sequence)) = kvs.get_with_token(&key_bytes).map_err(told)? else {
        let (name, directory) = (&place.kvs, place.directory.path.display());
        let text = format!("no key '{key}' in the Kvs {name} of {directory}");
        return Err(BenchError::Failed(text).into());
    };
    store.close().map_err(told)?;
    if let Some(path) = file {
        return match path.to_str() {
            Some("-") => Ok(put_bytes(&value)?),
            _ => files::write_atomically(path, &value).map_err(|error| of_a_file(path, error)),
        };
    }
    let value = shown(place.encoding, "value", &value)?;
    if place.json {
        return print_json(&Got { key, value, sequence: sequence.0 });
    }
    Ok(print(value + "\n")?)
}

fn del(arguments: &Del) -> anyhow::Result<()> {
    let Del { place, keys, prefixes } = arguments;
    let bytes = keys.iter().map(|key| place.key(key)).collect::<anyhow::Result<Vec<_>>>()?;
    let store = place.open()?;
    let kvs = place.kvs_of(&store)?;
    if *prefixes && bytes.iter().any(Vec::is_empty) {
        return Err(anyhow!(
            "an empty prefix: prefixes have 1 to {KEY_BYTES_MAX} bytes; to delete all keys, give \
             every first letter that keys have, or remove the store's directory and make it anew"
        ));
    }
    // All of them or none.
    let mut batch = Batch::new();
    for key in &bytes {
        let added =
            if *prefixes { batch.delete_prefix(&kvs, key) } else { batch.delete(&kvs, key) };
        added.map_err(told)?;
    }
    store.write(&batch).map_err(told)?;
    store.close().map_err(told)?;
    if place.json {
        let what = if *prefixes { "prefixes" } else { "keys" };
        return after("the keys were deleted durably", print_json(&json!({ what: keys })));
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
    let mut out = Out::default();
    let listed = list(arguments, &mut cursor, &mut out);
    // What was read before a failure is shown.
    judged(out.flush().map_err(Into::into), listed)?;
    drop(cursor);
    store.close().map_err(told)
}

/// Prints what a cursor finds, each pair as soon as it is read.
fn list(arguments: &Scan, cursor: &mut Cursor, out: &mut Out) -> anyhow::Result<()> {
    let Scan { place: Place { encoding, json, .. }, limit, keys_only, .. } = arguments;
    let mut count = 0;
    let mut has_more = false;
    while let Some((key, value)) = cursor.next().map_err(told)? {
        has_more = count == *limit;
        if has_more {
            break;
        }
        let key = shown(*encoding, "key", key)?;
        let value = (!keys_only).then(|| shown(*encoding, "value", value)).transpose()?;
        match (*json, value) {
            (true, value) => {
                let pair = value.map_or_else(
                    || json!({ "key": key }),
                    |value| json!({ "key": key, "value": value }),
                );
                let before = if count == 0 { "{\n  \"pairs\": [" } else { "," };
                out.put(format_args!("{before}\n    {pair}"))?;
            }
            (false, Some(value)) => out.put(format_args!("{key}\t{value}\n"))?,
            (false, None) => out.put(format_args!("{key}\n"))?,
        }
        count += 1;
    }
    if *json {
        let before = if count == 0 { "{\n  \"pairs\": [" } else { "\n  " };
        out.put(format_args!("{before}],\n  \"has_more\": {has_more}\n}}\n"))?;
    } else if has_more {
        out.flush()?;
        tell(&format!("there are more keys than the {limit} of --limit"));
    }
    Ok(())
}
