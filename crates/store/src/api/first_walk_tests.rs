//! Tests of the first cursor over a memtable: most records are sorted before it comes.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_simulated::disk::{Disk, DiskOptions};

use crate::{CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions};

/// Most records that stay unsorted while a store is idle, and bytes of a sorted one.
const UNSORTED_MAX: u64 = 1 << 14;
const SORTED_BYTES: u64 = 7;

fn number_key(number: u64) -> [u8; 16] {
    let mut key = *b"number--00000000";
    key[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

fn put(kvs: &Kvs, numbers: std::ops::Range<u64>) {
    for number in numbers {
        kvs.put(&number_key(number), &[7; 28]).expect("room");
    }
}

fn walk(kvs: &Kvs) {
    let options = CursorOptions { limit: Some(1), ..CursorOptions::default() };
    let mut cursor = kvs.cursor(options).expect("open");
    assert!(cursor.next().expect("readable").is_some());
}

/// Returns the records that walks had to sort or enter.
fn by_walks(store: &Kvdb) -> u64 {
    let view = store.core().files.current.get();
    view.generations().map(|generation| generation.by_walks()).sum()
}

/// Waits until the background thread has sorted all but the records for which it is not woken.
fn wait_until_sorted(store: &Kvdb) {
    for _ in 0..3000 {
        let view = store.core().files.current.get();
        let unsorted = view.young.sorting_bytes(store.core().published()) / SORTED_BYTES;
        if view.closed.is_empty() && unsorted <= UNSORTED_MAX {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nobody sorts");
}

#[test]
fn the_first_walk_after_a_million_puts_finds_them_sorted() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    let store = Kvdb::create_at(&path, KvdbOptions::default()).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    put(&kvs, 0..1_000_000);
    wait_until_sorted(&store);
    walk(&kvs);
    let first = by_walks(&store);
    assert!(first <= UNSORTED_MAX, "the first walk had to sort {first} records");
    put(&kvs, 1_000_000..1_010_000);
    walk(&kvs);
    let second = by_walks(&store) - first;
    assert!(second <= 1024, "a later walk had to enter {second} records");
    store.close().expect("durable");
}

/// The log of a store that was just opened is sorted before a spare segment is due.
#[test]
fn the_first_walk_after_reopening_finds_the_log_sorted() {
    let world = World::new(WorldOptions::seeded(1));
    let within = world.clone();
    let ran = world.run(move || {
        let disk = Disk::new(&within, DiskOptions::default()).expect("a disk");
        let clock = Arc::new(within.clone());
        let options = || KvdbOptions {
            durability_interval: Duration::from_secs(60),
            ..KvdbOptions::default()
        };
        let store = Kvdb::create(disk.root(), options(), clock.clone()).expect("a store");
        put(&store.create_kvs("data", KvsOptions::default()).expect("new"), 0..100_000);
        store.close().expect("durable");
        let store = Kvdb::open(disk.root(), options(), clock).expect("whole");
        thread::sleep(Duration::from_secs(1));
        walk(&store.kvs("data").expect("there"));
        let first = by_walks(&store);
        store.close().expect("durable");
        first
    });
    let first = ran.expect("the world comes to its end");
    assert!(first <= UNSORTED_MAX, "the first walk had to sort {first} records");
}

/// All threads get their turns in a simulated world, so the background thread keeps up.
#[test]
fn the_first_walk_beside_a_writer_finds_nearly_all_sorted() {
    for seed in 0..3 {
        let world = World::new(WorldOptions::seeded(seed));
        let within = world.clone();
        let ran = world.run(move || {
            let disk = Disk::new(&within, DiskOptions::default()).expect("a disk");
            let options = KvdbOptions { segment_bytes: 1 << 20, ..KvdbOptions::default() };

            let clock = Arc::new(within.clone());
            let store = Kvdb::create(disk.root(), options, clock).expect("a store");
            let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
            put(&kvs, 0..120_000);
            let writer = thread::spawn("a writer", {
                let kvs = kvs.clone();
                move || put(&kvs, 120_000..140_000)
            });
            for _ in 0..20 {
                thread::yield_now();
            }
            walk(&kvs);
            let first = by_walks(&store);
            writer.join().expect("no panic");
            walk(&kvs);
            store.close().expect("durable");
            first
        });
        let first = ran.expect("the world comes to its end");
        assert!(
            first <= 2 * UNSORTED_MAX,
            "seed {seed}: the first walk had to sort {first} records"
        );
    }
}
