//! Writes to a store on persistent memory, and prints to standard output which writes are durable.
//! After a power cut or a kill, it checks that they are. `.ci/dax-vm` runs it in a machine that has
//! such memory.
//!
//! `dax_store write DIRECTORY` creates or opens the store, and writes for ever. It prints `stored
//! N.` once the first N writes are durable, which they are when the calls return, without a sync.
//! `dax_store check DIRECTORY STORED` fails unless the store holds the state after some write, and
//! not one before the STORED-th. It then closes the store, and opens it once more.
//!
//! Every write follows from its number. There are few keys, so most are overwritten, flushed and
//! compacted all the time. Segments and generations are small, so there are always new files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use entresol_base::SystemClock;
use entresol_media::{Directory, LocalDirectory, PmemMode, files};
use entresol_store::{
    Batch, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, StoreError, check_at,
};

const KEYS: u64 = 300;
const VALUE_BYTES_MAX: u64 = 3000;
/// Key under which every write puts its number, beside its change.
const LAST: &[u8] = b"last";
/// Number of writes between two `stored` lines.
const SAID_EVERY: u64 = 4;

type Error = Box<dyn std::error::Error>;
type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["write", directory] => write(Path::new(directory)),
        ["check", directory, stored] => match stored.parse() {
            Ok(stored) => check(Path::new(directory), stored),
            Err(_) => Err(format!("{stored} is not the number of a write").into()),
        },
        _ => Err("usage: dax_store write DIRECTORY, dax_store check DIRECTORY STORED".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{}: {error}", arguments.first().unwrap_or(&"dax_store")));
            ExitCode::FAILURE
        }
    }
}

/// Prints one line in one piece, because other processes print as well. A closed output is no
/// reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("store {line}\n").as_bytes()).and_then(|()| out.flush());
}

/// Returns options for real persistent memory. Emulated memory is refused.
fn options() -> KvdbOptions {
    KvdbOptions {
        pmem: Some(PmemMode { assume_dax: false }),
        segment_bytes: 128 << 10,
        generation_bytes: 512 << 10,
        memory_bytes: 16 << 20,
        entry_cache_bytes: 1 << 20,
        reserve_bytes: 4 << 20,
        ..KvdbOptions::default()
    }
}

/// Returns the change of the `number`-th write: a key, with its value unless it is deleted.
fn change(number: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let drawn = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let key = format!("key{:03}", drawn % KEYS).into_bytes();
    let len = 1 + (drawn >> 12) % VALUE_BYTES_MAX;
    let value = (0..len).map(|at| (number.wrapping_add(at * 7) % 251) as u8).collect();
    (key, if number.is_multiple_of(5) { None } else { Some(value) })
}

/// Returns the state after the first `last` writes.
fn after(last: u64) -> State {
    let mut state = State::new();
    for (key, value) in (1..=last).map(change) {
        match value {
            Some(value) => drop(state.insert(key, value)),
            None => drop(state.remove(&key)),
        }
    }
    if last > 0 {
        state.insert(LAST.to_vec(), last.to_le_bytes().to_vec());
    }
    state
}

/// Returns the number of the last write in the store.
fn last(kvs: &Kvs) -> Result<u64, Error> {
    let found = kvs.get(LAST)?.unwrap_or_else(|| vec![0; 8]);
    let bytes = found.try_into().map_err(|found| format!("{LAST:?} is {found:?}"))?;
    Ok(u64::from_le_bytes(bytes))
}

fn write(path: &Path) -> Result<(), Error> {
    let opened = match files::is_directory(path) {
        true => Kvdb::open_at(path, options()),
        false => Kvdb::create_at(path, options()),
    };
    let store = match opened {
        // The power was cut before the store existed.
        Err(StoreError::NoStore { .. }) => Kvdb::create_at(path, options())?,
        opened => opened?,
    };
    let kvs = match store.kvs_names().is_empty() {
        true => store.create_kvs("data", KvsOptions::default())?,
        false => store.kvs("data")?,
    };
    let last = last(&kvs)?;
    is_mapped_synchronously(&store, path)?;
    say(&format!("write: goes on behind write {last}"));
    for number in last + 1.. {
        let (key, value) = change(number);
        let mut batch = Batch::new();
        match value {
            Some(value) => batch.put(&kvs, &key, &value)?,
            None => batch.delete(&kvs, &key)?,
        };
        store.write(batch.put(&kvs, LAST, &number.to_le_bytes())?)?;
        if number.is_multiple_of(SAID_EVERY) {
            say(&format!("stored {number}."));
        }
    }
    Ok(())
}

fn check(path: &Path, stored: u64) -> Result<(), Error> {
    let store = Kvdb::open_at(path, options())?;
    is_mapped_synchronously(&store, path)?;
    let kvs = store.kvs("data")?;
    let last = last(&kvs)?;
    if last < stored {
        return Err(format!("{} of {stored} writes are lost", stored - last).into());
    }
    let expected = after(last);
    holds(&kvs, &expected)?;
    let read = store.statistics()?.log_records_read;
    store.close()?;
    let report = check_at(path, &mut |_| {})?;
    if !report.is_whole() {
        return Err(format!("damaged: {:?}", report.findings).into());
    }
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open_existing(path)?);
    let store = Kvdb::open_read_only(directory, options(), Arc::new(SystemClock::new()))?;
    holds(&store.kvs("data")?, &expected)?;
    let again = store.statistics()?.log_records_read;
    if again > read {
        return Err(format!("{read} records were read, {again} when it had been closed").into());
    }
    say(&format!(
        "check: has {last} writes, {stored} were acknowledged; {read} records of the log were \
         read, {again} after it was closed; {} files whole",
        report.files
    ));
    Ok(())
}

/// Fails unless the store holds exactly this state.
fn holds(kvs: &Kvs, expected: &State) -> Result<(), Error> {
    let mut cursor = kvs.cursor(CursorOptions::default())?;
    let mut found = State::new();
    while let Some((key, value)) = cursor.next()? {
        found.insert(key.to_vec(), value.to_vec());
    }
    for key in expected.keys().chain(found.keys()) {
        let (is, should) = (found.get(key), expected.get(key));
        if is != should || kvs.get(key)?.as_ref() != should {
            let bytes = |value: Option<&Vec<u8>>| value.map(Vec::len);
            let (key, is, should) = (key.escape_ascii(), bytes(is), bytes(should));
            return Err(
                format!("{key} has {is:?} bytes and should have {should:?}, or others").into()
            );
        }
    }
    Ok(())
}

/// Fails unless all mapped files of the store, with the log among them, are mapped with synchronous
/// faults.
fn is_mapped_synchronously(store: &Kvdb, path: &Path) -> Result<(), Error> {
    let kinds: Vec<_> = store.statistics()?.media.iter().map(|medium| medium.kind).collect();
    if kinds != [Some("pmem")] {
        return Err(format!("the log is on {kinds:?}, not on persistent memory").into());
    }
    let maps = files::read_to_string(Path::new("/proc/self/smaps"))?;
    let (mut is_ours, mut synchronous) = (false, 0);
    for line in maps.lines() {
        if line.split_once('-').is_some_and(|(start, _)| u64::from_str_radix(start, 16).is_ok()) {
            is_ours = line.contains(&format!("{}/", path.display()));
        } else if let (true, Some(flags)) = (is_ours, line.strip_prefix("VmFlags:")) {
            if !flags.split_whitespace().any(|flag| flag == "sf") {
                return Err(format!("a file is mapped without MAP_SYNC:{flags}").into());
            }
            synchronous += 1;
        }
    }
    match synchronous {
        0 => Err("no file of the store is mapped".into()),
        _ => {
            say(&format!("MAP_SYNC: all {synchronous} mapped files"));
            Ok(())
        }
    }
}
