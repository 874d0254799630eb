//! Stores with many threads, and with a process that is killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Place, all};
use entresol_media::PmemMode;
use entresol_store::{Kvdb, KvdbOptions, KvsOptions};

const THREADS: u64 = 4;

#[test]
fn closing_waits_for_writes_that_are_under_way() {
    let value = vec![7; 64 << 20];
    for round in 0..4 {
        let place = Place::new();
        let store = place.create();
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let writer = std::thread::spawn({
            let (kvs, value) = (kvs.clone(), value.clone());
            move || kvs.put(b"large", &value).is_ok()
        });
        std::thread::sleep(Duration::from_millis(10 * round));
        store.close().expect("durable");
        // Nothing that happens after the close may change the outcome.
        let store = place.open();
        let found = store.kvs("data").expect("there").get(b"large").expect("readable");
        let is_there = found.is_some_and(|found| found == value);
        assert_eq!(writer.join().expect("no panic"), is_there, "{round}");
    }
}

#[test]
fn threads_find_what_they_wrote_while_all_is_flushed_and_compacted() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let key = |thread: u64, number: u64| format!("{thread}-{:04}", number % 500).into_bytes();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let kvs = &kvs;
            scope.spawn(move || {
                for number in 0..3000u64 {
                    let value = vec![thread as u8; (number % 400) as usize];
                    kvs.put(&key(thread, number), &value).expect("room");
                    assert_eq!(kvs.get(&key(thread, number)).expect("readable"), Some(value));
                }
            });
        }
        scope.spawn(|| (0..5).for_each(|_| store.compact().expect("room")));
    });
    let found = all(&kvs, false);
    assert_eq!(found.len(), 500 * THREADS as usize);
    store.close().expect("durable");
    let store = place.open();
    assert!(all(&store.kvs("data").expect("there"), false) == found);
}

const CHILD: &str = "ENTRESOL_STORE_TEST_CHILD";
/// Environment variable that is set if the child's store lies on emulated persistent memory.
const CHILD_ON_PMEM: &str = "ENTRESOL_STORE_TEST_CHILD_ON_PMEM";

/// Runs in a child process, which the tests below start. Writes, and prints the acknowledged
/// writes.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let pmem = std::env::var(CHILD_ON_PMEM).is_ok().then_some(PmemMode { assume_dax: true });
    let options = KvdbOptions {
        segment_bytes: 64 << 10,
        generation_bytes: 256 << 10,
        pmem,
        ..KvdbOptions::default()
    };
    let store = match Path::new(&path).join("MANIFEST").exists() {
        true => Kvdb::open_at(Path::new(&path), options).expect("the store"),
        false => Kvdb::create_at(Path::new(&path), options).expect("a store"),
    };
    let kvs = match store.kvs("data") {
        Ok(kvs) => kvs,
        Err(_) => store.create_kvs("data", KvsOptions::default()).expect("new"),
    };
    let first = all(&kvs, false).len() as u64;
    let mut out = std::io::stdout();
    for number in first.. {
        let value = vec![number as u8; (number % 1500) as usize];
        kvs.put(&number.to_be_bytes(), &value).expect("room");
        writeln!(out, "ACK {number}").expect("somebody listens");
    }
}

#[test]
fn a_process_that_is_killed_loses_nothing_that_it_acknowledged() {
    kill(None);
}

/// A killed process on emulated persistent memory. Half of the openings treat the store as on a
/// disk.
#[test]
fn on_persistent_memory_a_process_that_is_killed_loses_nothing() {
    kill(Some(PmemMode { assume_dax: true }));
}

#[expect(clippy::expect_used, reason = "a test says what it expects")]
fn kill(pmem: Option<PmemMode>) {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    let mut acknowledged = 0;
    for round in 0..10u64 {
        let mut child = Command::new(std::env::current_exe().expect("this test"));
        if pmem.is_some() {
            child.env(CHILD_ON_PMEM, "");
        }
        let mut child = child
            .args(["--exact", "threads::child_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let numbers = lines.map_while(Result::ok).filter_map(|line| {
            line.strip_prefix("ACK ").and_then(|number| number.parse::<u64>().ok())
        });
        // The child is killed after a number of lines. Lines that it had written to the pipe by
        // then count too.
        let mut since = 0;
        for number in numbers {
            acknowledged = acknowledged.max(number + 1);
            since += 1;
            if since == 100 + round * 173 {
                child.kill().expect("still there");
            }
        }
        child.wait().expect("was killed");
        let pmem = pmem.filter(|_| round % 2 == 0);
        let options = KvdbOptions { pmem, ..KvdbOptions::default() };
        let store = Kvdb::open_at(&path, options).expect("the store");
        let kind = store.statistics().expect("open").media[0].kind.expect("not only read");
        assert_eq!(kind.ends_with("pmem"), pmem.is_some(), "{kind}");
        let found: BTreeMap<Vec<u8>, Vec<u8>> =
            all(&store.kvs("data").expect("there"), false).into_iter().collect();
        assert!(found.len() as u64 >= acknowledged, "{} of {acknowledged}", found.len());
        for number in 0..acknowledged {
            let value = vec![number as u8; (number % 1500) as usize];
            assert_eq!(found.get(&number.to_be_bytes()[..]), Some(&value), "{number}");
        }
    }
    assert!(acknowledged > 1000, "only {acknowledged} writes");
}
