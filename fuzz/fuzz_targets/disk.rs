//! A store of which a file was overwritten, cut off or made longer. Checking it, salvaging it and
//! opening it never panic; no key has a value that was never put; and a store that a check calls
//! whole holds all that was written, and nothing else.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::LazyLock;

use entresol_store::{
    CursorOptions, Kvdb, KvdbOptions, KvsOptions, StoreError, check_at, salvage_at,
};
use libfuzzer_sys::fuzz_target;

const KVS: &str = "fuzzed";
const KEYS: u32 = 40;
/// Values of a key: the last is in force.
const ROUNDS: u32 = 3;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Files of a closed store by their names.
static FILES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| files().expect("a store"));

fuzz_target!(|input: &[u8]| {
    let &[file, high, low, change, ref patch @ ..] = input else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    fs::create_dir(&path).expect("a directory");
    for (number, (name, bytes)) in FILES.iter().enumerate() {
        let mut bytes = bytes.clone();
        if number == usize::from(file) % FILES.len() {
            damage(&mut bytes, usize::from(high) << 8 | usize::from(low), change, patch);
        }
        fs::write(path.join(name), bytes).expect("room for a file");
    }
    let is_whole = check_at(&path, &mut |_| {}).is_ok_and(|report| report.is_whole());
    let salvaged = scratch.path().join("salvaged");
    let salvaged = salvage_at(&path, &salvaged, options(), &mut |_| ControlFlow::Continue(()));
    let found = contents(&path);
    if is_whole {
        salvaged.expect("what is whole can be salvaged");
        assert_eq!(found.expect("what is whole can be opened"), written(ROUNDS - 1));
    }
});

/// Changes bytes as a drive might that loses or mixes up what was written.
fn damage(bytes: &mut Vec<u8>, at: usize, change: u8, patch: &[u8]) {
    let at = at % (bytes.len() + 1);
    match change % 4 {
        0 => bytes.truncate(at),
        1 => bytes.extend_from_slice(patch),
        2 => bytes.iter_mut().skip(at).zip(patch).for_each(|(byte, patch)| *byte ^= patch),
        _ => bytes.iter_mut().skip(at).zip(patch).for_each(|(byte, patch)| *byte = *patch),
    }
}

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 4 * KvdbOptions::SEGMENT_BYTES_MIN,
        memory_bytes: 4 << 20,
        ..KvdbOptions::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Returns a value; some lie beside their key, others in segments.
fn value(key: u32, round: u32) -> Vec<u8> {
    format!("{key} in round {round} ").into_bytes().repeat(1 + key as usize % 20)
}

/// Returns what has been put after a round.
fn written(round: u32) -> Contents {
    (0..KEYS).map(|number| (key(number), value(number, round))).collect()
}

fn files() -> Result<Vec<(String, Vec<u8>)>, Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let path = scratch.path().join("store");
    let store = Kvdb::create_at(&path, options())?;
    let kvs = store.create_kvs(KVS, KvsOptions { inline_bytes: 64, ..KvsOptions::default() })?;
    for round in 0..ROUNDS {
        for (key, value) in written(round) {
            kvs.put(&key, &value)?;
        }
        // The last round stays in the log.
        if round + 1 < ROUNDS {
            store.compact()?;
        }
    }
    drop(kvs);
    store.close()?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        files.push((entry.file_name().into_string().expect("a name"), fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}

/// Opens the store and reads all of it; each value must have been put at some time.
fn contents(path: &Path) -> Result<Contents, StoreError> {
    let store = Kvdb::open_at(path, options())?;
    let kvs = store.kvs(KVS)?;
    let mut found = Contents::new();
    let mut cursor = kvs.cursor(CursorOptions::default())?;
    while let Some((key, value)) = cursor.next()? {
        found.insert(key.to_vec(), value.to_vec());
    }
    for (key, value) in &found {
        let is_put = (0..ROUNDS).any(|round| written(round).get(key) == Some(value));
        assert!(is_put, "{key:?} has {value:?}");
    }
    Ok(found)
}
