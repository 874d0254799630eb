//! How soon a store answers that lies on persistent memory, after its process was killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_media::PmemMode;
use entresol_store::{Kvdb, KvdbOptions, KvsOptions};

const CHILD: &str = "ENTRESOL_STORE_OPENING_CHILD";
const KEYS: u64 = 10_000_000;
const VALUE: [u8; 100] = [7; 100];

/// All keys fit into one generation, of which nothing is frozen.
fn options() -> KvdbOptions {
    KvdbOptions {
        pmem: Some(PmemMode { assume_dax: true }),
        segment_bytes: 64 << 20,
        generation_bytes: 4 << 30,
        memory_bytes: 12 << 30,
        ..KvdbOptions::default()
    }
}

/// Keys that are not in order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Is run by the test below in a process of its own.
#[test]
fn child_writes_and_waits_to_be_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let store = Kvdb::create_at(Path::new(&path), options()).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..KEYS {
        kvs.put(&key(number), &VALUE).expect("room");
    }
    let mut out = std::io::stdout();
    writeln!(out, "WRITTEN").expect("somebody listens");
    std::thread::sleep(Duration::from_secs(3600));
}

/// On what stands in for persistent memory. It prints after what time the first key was found; a
/// file system that must be asked for the space of files that are there takes most of it.
#[test]
#[ignore = "takes a minute and 2 GiB of space; run it alone, as docs/measuring.md says"]
fn of_ten_million_keys_that_are_not_frozen_only_the_last_are_read_to_open_a_store() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "child_writes_and_waits_to_be_killed", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let written = lines.map_while(Result::ok).any(|line| line.contains("WRITTEN"));
    child.kill().expect("still there");
    child.wait().expect("was killed");
    assert!(written, "the child has ended by itself");
    let clock = SystemClock::new();
    let begun = clock.now();
    let store = Kvdb::open_at(&path, options()).expect("the store");
    let kvs = store.kvs("data").expect("there");
    let first = kvs.get(&key(KEYS / 3)).expect("readable");
    let took = clock.now().since(begun);
    let read = store.statistics().expect("open").log_records_read;
    println!("first answer after {took:?}; {read} records were read");
    assert_eq!(first.as_deref(), Some(&VALUE[..]));
    for number in (0..KEYS).step_by(997).chain(KEYS - 1000..KEYS) {
        assert_eq!(kvs.get(&key(number)).expect("readable").as_deref(), Some(&VALUE[..]));
    }
    assert_eq!(kvs.get(&key(KEYS)).expect("readable"), None);
    assert!(read > 0 && read < KEYS / 20, "{read} records were read");
}
