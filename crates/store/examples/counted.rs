//! Runs one kind of operation of the store for an instrument that counts instructions:
//!
//! ```sh
//! cargo build --release --package entresol-store --example counted
//! for n in 10000 30000; do
//!     valgrind --tool=callgrind --callgrind-out-file=target/counts.out \
//!         target/release/examples/counted get $n "$(mktemp -d)/store" 2>&1 | grep Collected
//! done
//! ```
//!
//! The difference of the two counts, divided by 20,000, is the number of instructions of one
//! operation; opening the store and filling it with 20,000 keys cancel out. The operations are put,
//! get and scan, which steps a cursor.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use entresol_base::SystemClock;
use entresol_media::{LocalDirectory, files};
use entresol_store::{CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions};

const KEYS: u64 = 20_000;
const VALUE: [u8; 100] = [b'v'; 100];

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [operation, count, directory] => run(operation, count, Path::new(directory)),
        _ => Err("usage: counted put|get|scan COUNT DIRECTORY".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the example's own error message")]
fn complain(error: &dyn std::error::Error) {
    eprintln!("counted: {error}");
}

fn run(operation: &str, count: &str, path: &Path) -> Result<(), Error> {
    let count: u64 = count.parse()?;
    files::create_directories(path)?;
    let directory = Arc::new(LocalDirectory::open(path)?);
    let store = Kvdb::create(directory, KvdbOptions::default(), Arc::new(SystemClock::new()))?;
    let kvs = store.create_kvs("counted", KvsOptions::default())?;
    for number in 0..KEYS {
        kvs.put(&key(number), &VALUE)?;
    }
    match operation {
        "put" => put(&kvs, count)?,
        "get" => get(&kvs, count)?,
        "scan" => scan(&kvs, count)?,
        _ => return Err(format!("no operation {operation}: put, get and scan are").into()),
    }
    drop(kvs);
    store.close()?;
    Ok(())
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-0000-0000000";
    key[8..].copy_from_slice(&(number * 0x9e37 % KEYS).to_be_bytes());
    key
}

fn put(kvs: &Kvs, count: u64) -> Result<(), Error> {
    for number in 0..count {
        kvs.put(&key(number), &VALUE)?;
    }
    Ok(())
}

fn get(kvs: &Kvs, count: u64) -> Result<(), Error> {
    let mut value = Vec::new();
    for number in 0..count {
        if !kvs.get_into(&key(number), &mut value)? {
            return Err(format!("key {number} is missing").into());
        }
    }
    Ok(())
}

fn scan(kvs: &Kvs, count: u64) -> Result<(), Error> {
    let mut cursor = kvs.cursor(CursorOptions::default())?;
    for _ in 0..count {
        if cursor.next()?.is_none() {
            cursor.seek(&key(0));
        }
    }
    Ok(())
}
