//! Many range deletes: more than one run can hold.

use std::sync::Arc;

use crate::common::{all, in_world};
use entresol_base::rng::Rng;
use entresol_base::world::World;
use entresol_media::disk::{Disk, DiskOptions};
use entresol_store::{Batch, Kvdb, KvdbOptions, Kvs, KvsOptions, StoreError, TransactionOptions};

/// More range deletes than one run can hold.
const PREFIXES: u32 = 17_000;
/// Distance between prefixes that have a key.
const STEP: usize = 1_000;

fn options() -> KvdbOptions {
    KvdbOptions { segment_bytes: 1 << 20, generation_bytes: 64 << 20, ..KvdbOptions::default() }
}

fn create(world: &World, disk: &Disk) -> (Kvdb, Kvs) {
    let clock = Arc::new(world.clone());
    let store = Kvdb::create(disk.root(), options(), clock).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    (store, kvs)
}

fn open(world: &World, disk: &Disk) -> (Kvdb, Kvs) {
    let store = Kvdb::open(disk.root(), options(), Arc::new(world.clone())).expect("opens");
    let kvs = store.kvs("data").expect("there");
    (store, kvs)
}

/// Returns the disk as a killed process of the store leaves it now.
fn killed(world: &World, disk: &Disk) -> Disk {
    disk.reopen(world, DiskOptions::default()).expect("a disk")
}

fn prefix(number: u32) -> Vec<u8> {
    format!("{number:05}/").into_bytes()
}

fn key(number: u32) -> Vec<u8> {
    [prefix(number), b"key".to_vec()].concat()
}

/// Puts keys that are going to be deleted, and one that stays.
fn put(kvs: &Kvs) {
    for number in (0..PREFIXES).step_by(STEP) {
        kvs.put(&key(number), b"old").expect("room");
    }
    kvs.put(b"stays", b"1").expect("room");
}

/// Deletes the prefixes one by one.
fn remove(kvs: &Kvs) {
    for number in 0..PREFIXES {
        kvs.delete_prefix(&prefix(number)).expect("room");
    }
}

fn batch(kvs: &Kvs) -> Batch {
    let mut batch = Batch::new();
    for number in 0..PREFIXES {
        batch.delete_prefix(kvs, &prefix(number)).expect("short");
    }
    batch
}

/// Checks by reads and by a scan that no deleted key is there.
fn check(kvs: &Kvs) {
    for number in (0..PREFIXES).step_by(STEP) {
        assert_eq!(kvs.get(&key(number)).expect("readable"), None, "{number}");
    }
    assert_eq!(all(kvs, false), [(b"stays".to_vec(), b"1".to_vec())]);
}

/// Checks a store as it is, compacted, written to, and opened again.
fn check_on(world: &World, disk: &Disk, (store, kvs): (Kvdb, Kvs)) {
    check(&kvs);
    store.compact().expect("room");
    check(&kvs);
    assert_eq!(store.statistics().expect("open").kvs[0].runs, 1, "all is merged");
    kvs.put(&key(STEP as u32), b"again").expect("still written to");
    store.compact().expect("room");
    kvs.delete_prefix(&prefix(STEP as u32)).expect("still written to");
    store.close().expect("durable");
    check(&open(world, disk).1);
}

#[test]
fn prefixes_that_go_one_by_one() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        put(&kvs);
        store.compact().expect("room");
        remove(&kvs);
        check(&kvs);
        let killed = killed(&world, &disk);
        check_on(&world, &killed, open(&world, &killed));
        check_on(&world, &disk, (store, kvs));
    });
}

#[test]
fn prefixes_that_go_in_one_batch() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        put(&kvs);
        store.compact().expect("room");
        store.write(&batch(&kvs)).expect("room");
        check(&kvs);
        // Recovery reads all of them from one segment, where no limit divides them.
        let killed = killed(&world, &disk);
        check_on(&world, &killed, open(&world, &killed));
        store.sync().expect("durable");
        let mut rng = Rng::named(1, "images");
        for _ in 0..3 {
            let image = disk.random_image(&mut rng);
            check_on(&world, &image, open(&world, &image));
        }
        check_on(&world, &disk, (store, kvs));
    });
}

#[test]
fn prefixes_that_go_in_one_transaction() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        put(&kvs);
        let mut transaction = store.transaction(TransactionOptions::default()).expect("open");
        for number in 0..PREFIXES {
            transaction.delete_prefix(&kvs, &prefix(number)).expect("small");
        }
        transaction.commit().expect("nobody else");
        check_on(&world, &disk, (store, kvs));
    });
}

#[test]
fn prefixes_that_are_long_or_the_same() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        put(&kvs);
        let long = |number: u8| [vec![number + 1; 60_000], b"!".to_vec()].concat();
        for number in 0..60 {
            kvs.put(&long(number), b"old").expect("room");
        }
        let mut batch = batch(&kvs);
        for number in 0..60 {
            batch.delete_prefix(&kvs, &long(number)[..60_000]).expect("no longer than a key");
        }
        for _ in 0..PREFIXES {
            batch.delete_prefix(&kvs, b"the same").expect("short");
        }
        store.write(&batch).expect("room");
        let killed = killed(&world, &disk);
        check_on(&world, &killed, open(&world, &killed));
        check_on(&world, &disk, (store, kvs));
    });
}

/// Many runs, no four of which can become one that holds their range deletes. As long as a
/// transaction may ask for these, the compaction waits.
#[test]
fn prefixes_that_a_transaction_may_ask_for_wait() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        put(&kvs);
        store.compact().expect("room");
        let begin = || store.transaction(TransactionOptions::default()).expect("open");
        let (mut early, mut other) = (begin(), begin());
        early.put(&kvs, &key(1), b"late").expect("small");
        other.put(&kvs, b"other", b"").expect("small");
        for _ in 0..4 {
            store.write(&batch(&kvs)).expect("room");
            store.compact().expect("no failure");
            check(&kvs);
        }
        let runs = store.statistics().expect("open").kvs[0].runs;
        assert!(runs > 8, "{runs} runs: nothing could be merged");
        store.sync().expect("nothing has failed");
        let killed = killed(&world, &disk);
        let report = entresol_store::check(&killed.root(), &mut |_| ()).expect("a store");
        assert_eq!(report.findings, [], "runs with nothing but prefixes are as others");
        check_on(&world, &killed, open(&world, &killed));
        assert!(matches!(early.commit(), Err(StoreError::Conflict)), "it was removed since");
        drop(other);
        check_on(&world, &disk, (store, kvs));
    });
}

/// A run may hold more range deletes than the options of a later opening allow.
#[test]
fn prefixes_that_a_run_says_and_another_could_not() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        put(&kvs);
        store.compact().expect("room");
        let mut early = store.transaction(TransactionOptions::default()).expect("open");
        early.put(&kvs, b"other", b"").expect("small");
        let few = PREFIXES / 100;
        for number in (0..few).chain((0..PREFIXES).step_by(STEP)) {
            kvs.delete_prefix(&prefix(number)).expect("room");
        }
        store.compact().expect("room");
        assert_eq!(store.statistics().expect("open").kvs[0].runs, 1, "all is merged");
        drop(early);
        store.close().expect("durable");
        let options = KvdbOptions { prefixes_per_run_max: 7, ..options() };
        let store = Kvdb::open(disk.root(), options, Arc::new(world.clone())).expect("opens");
        let kvs = store.kvs("data").expect("there");
        check(&kvs);
        let mut batch = Batch::new();
        for number in few..2 * few {
            batch.delete_prefix(&kvs, &prefix(number)).expect("short");
        }
        store.write(&batch).expect("room");
        check_on(&world, &disk, (store, kvs));
    });
}

#[test]
fn a_run_that_could_say_no_prefix_or_too_many_is_refused() {
    in_world(|world, disk| {
        for prefixes_per_run_max in [0, 16_385] {
            let options = KvdbOptions { prefixes_per_run_max, ..options() };
            let refused = Kvdb::create(disk.root(), options, Arc::new(world.clone()));
            assert!(matches!(refused.map(drop), Err(StoreError::Options { .. })));
        }
    });
}

/// Generations are closed before they have too many range deletes, and runs are compacted on the
/// way.
#[test]
fn prefixes_that_go_again_and_again() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        for _ in 0..5 {
            put(&kvs);
            remove(&kvs);
            kvs.put(b"stays", b"1").expect("room");
            check(&kvs);
        }
        store.sync().expect("nothing has failed");
        let killed = killed(&world, &disk);
        check_on(&world, &killed, open(&world, &killed));
        check_on(&world, &disk, (store, kvs));
    });
}
