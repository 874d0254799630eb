//! Stores whose runs fit into memory: once readers have waited for some blocks, the others are read
//! together, and readers no longer wait.

use std::path::Path;
use std::thread;
use std::time::Duration;

use entresol_store::{BlockCacheCounts, Kvdb, KvdbOptions, Kvs, KvsOptions};

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 80;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Memory that a cached block of 4096 bytes takes.
const CACHED_BLOCK_BYTES: u64 = 4352;

/// Returns options without a row cache, which would answer instead of the block cache.
fn options(memory_bytes: u64) -> KvdbOptions {
    KvdbOptions { memory_bytes, row_cache_bytes: 0, ..KvdbOptions::default() }
}

/// Creates a store with one run, and closes it.
fn fill(path: &Path) {
    let store = Kvdb::create_at(path, options(32 << 20)).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    (0..KEYS).for_each(|number| _ = kvs.put(&key(number), &[7; VALUE_BYTES]).expect("room"));
    store.compact().expect("room");
    store.close().expect("closes");
}

fn read(kvs: &Kvs, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let value = kvs.get(&key(number)).expect("readable");
        assert_eq!(value.as_deref(), Some(&[7; VALUE_BYTES][..]), "key {number}");
    }
}

fn cache(store: &Kvdb) -> BlockCacheCounts {
    store.statistics().expect("open").block_cache
}

fn run_bytes(store: &Kvdb) -> u64 {
    store.statistics().expect("open").kvs.iter().map(|kvs| kvs.run_bytes).sum()
}

#[test]
fn where_all_runs_fit_they_are_cached_before_all_is_asked_for() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    fill(&path);
    let store = Kvdb::open_at(&path, options(32 << 20)).expect("opens");
    let kvs = store.kvs("data").expect("there");
    let blocks = run_bytes(&store) / 4096;
    assert!(blocks > 2000, "{blocks} blocks are more than are read one by one");
    // Keys are not in order, so most of these lie in blocks of their own.
    read(&kvs, 0..200);
    let first = cache(&store);
    assert!(first.data.misses < blocks / 8, "{first:?}");
    // A cached block takes more than its bytes: with fewer, readers overtake the read-ahead.
    let is_all_there = || cache(&store).bytes > blocks * CACHED_BLOCK_BYTES / 100 * 99;
    // If the condition never holds, the test runs into its time limit.
    while !is_all_there() {
        thread::sleep(Duration::from_millis(1));
    }
    let before = cache(&store);
    read(&kvs, 0..KEYS);
    let after = cache(&store);
    assert!(after.data.misses <= before.data.misses + blocks / 50, "{before:?} {after:?}");
    assert_eq!(after.over_bytes_most, 0, "{after:?}");
}

#[test]
fn where_runs_do_not_fit_only_what_is_asked_for_is_read() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    fill(&path);
    let store = Kvdb::open_at(&path, options(8 << 20)).expect("opens");
    let kvs = store.kvs("data").expect("there");
    let opening = store.statistics().expect("open").media[0].read.run_bytes;
    read(&kvs, 0..2000);
    let (cache, read) = (cache(&store), store.statistics().expect("open").media[0].read.run_bytes);
    let missed = cache.data.misses + cache.index.misses + cache.filter.misses;
    assert!(missed > 1000, "{cache:?}");
    assert_eq!(read - opening, missed * 4096, "{cache:?}");
}
