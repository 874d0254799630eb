//! Tests of what went wrong for users of other stores: closing beside durable writes, quotas, callers that
//! panic, snapshots of values that expire, and what is dead while nothing is written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_base::{Clock, SystemClock};
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};
use entresol_store::{
    Attempt, Batch, CompletionOptions, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, Outcome,
    StoreError, TransactionOptions,
};

use crate::common::{Place, all, in_world, pairs};

fn options() -> KvdbOptions {
    KvdbOptions { segment_bytes: 64 << 10, generation_bytes: 256 << 10, ..KvdbOptions::default() }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// Keys whose writers were told that they are durable, and that the store was closed before.
type Told = (Vec<u64>, Vec<u64>);

/// Commits transactions in four threads while another one closes the store.
fn commit_beside_close(seed: u64) -> Told {
    let world = World::new(WorldOptions::seeded(seed));
    let within = world.clone();
    let ran = world.run(move || {
        let disk = Disk::new(&within, DiskOptions::default()).expect("a disk");
        let clock = Arc::new(within.clone());
        let store = Kvdb::create(disk.root(), options(), clock.clone()).expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let begin = |number: u64| {
            let mut transaction = store.transaction(TransactionOptions::default()).expect("open");
            transaction.put(&kvs, &key(number), b"value").expect("fits");
            (number, transaction)
        };
        let of_thread = |of: u64| (0..12).map(|number| begin(100 * of + number)).collect();
        let all: Vec<Vec<_>> = (0..4).map(of_thread).collect();
        let threads = all.into_iter().map(|transactions| {
            thread::spawn("a writer", move || {
                let told = transactions.into_iter();
                let told = told.map(|(number, it)| {
                    thread::sleep(Duration::from_micros(10));
                    (number, it.commit_durably())
                });
                told.collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        thread::sleep(Duration::from_micros(5 * seed));
        store.close().expect("durable");
        let (mut done, mut closed) = Told::default();
        for (number, told) in threads.into_iter().flat_map(|it| it.join().expect("no panic")) {
            match told {
                Ok(_) => done.push(number),
                Err(StoreError::Closed) => closed.push(number),
                Err(error) => panic!("{number}: {error}"),
            }
        }
        drop(kvs);
        let disk = disk.reopen(&within, DiskOptions::default()).expect("a disk");
        let store = Kvdb::open(disk.root(), options(), clock).expect("whole");
        let kvs = store.kvs("data").expect("there");
        let is_there = |number: &u64| kvs.get(&key(*number)).expect("readable").is_some();
        assert!(done.iter().all(is_there), "seed {seed}: one that was done is not there");
        assert!(!closed.iter().any(is_there), "seed {seed}: one that was refused is there");
        (done, closed)
    });
    ran.expect("the world comes to its end")
}

#[test]
fn a_durable_write_beside_close_is_done_or_was_not_written() {
    let told: Vec<Told> = (1..24).map(commit_beside_close).collect();
    assert!(told.iter().any(|(done, closed)| !done.is_empty() && !closed.is_empty()));
}

#[test]
fn a_quota_that_is_used_up_is_a_lack_of_room() {
    in_world(|world, disk| {
        for call in [Call::Write, Call::Allocate, Call::Create] {
            let disk_of = Disk::new(&world, DiskOptions::default()).expect("a disk");
            let clock = Arc::new(world.clone());
            let store = Kvdb::create(disk_of.root(), options(), clock).expect("a store");
            let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
            for number in 0..3000 {
                kvs.put(&key(number), &[7; 100]).expect("room");
            }
            let effect = Effect::Fail(Failure::Quota);
            let calls = Calls::of(&[call]);
            let fault = Fault { calls, nth: 1, repeat: Repeat::EverAfter, effect };
            disk_of.inject(FaultPlan { faults: vec![fault], ..FaultPlan::default() });
            let told = store.compact().expect_err("there is no room");
            assert!(told.is_no_room(), "{call:?}: {told}");
            disk_of.inject(FaultPlan::default());
            kvs.put(b"again", b"room").unwrap_or_else(|error| panic!("{call:?}: {error}"));
            store.compact().unwrap_or_else(|error| panic!("{call:?}: {error}"));
            assert_eq!(all(&kvs, false).len(), 3001);
        }
        drop(disk);
    });
}

#[test]
fn a_caller_that_panics_when_it_is_woken_leaves_no_request_pending() {
    in_world(|world, disk| {
        let clock = Arc::new(world);
        let store = Kvdb::create(disk.root(), options(), clock).expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        let completions = store.completions(CompletionOptions::default(), move || {
            assert!(counted.fetch_add(1, Relaxed) % 2 == 1, "a caller panics");
        });
        let completions = completions.expect("valid");
        for number in 0..8 {
            let mut batch = Batch::new();
            batch.put(&kvs, &key(number), b"value").expect("fits");
            let told = completions.write_durably(batch, number).expect("accepted");
            assert_eq!(told, Attempt::Pending);
            let mut done = Vec::new();
            for _ in 0..1000 {
                thread::sleep(Duration::from_millis(1));
                done.extend(completions.take());
            }
            assert!(matches!(done[..], [ref it] if matches!(it.outcome, Outcome::Written(Ok(_)))));
        }
        assert_eq!(calls.load(Relaxed), 8);
    });
}

#[test]
fn values_expire_by_the_time_of_the_snapshot() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let two = Some(Duration::from_secs(2));
    let put = |number: u64, bytes: usize| {
        kvs.put_for(&key(number), &vec![7; bytes], two).expect("room");
    };
    // Some lie in a run, some beside it in segments, some in a memtable, some in the row cache.
    (0..100).for_each(|number| put(number, [10, 1000][number as usize % 2]));
    store.compact().expect("room");
    (100..200).for_each(|number| put(number, 10));
    (0..20).for_each(|number| assert!(kvs.get(&key(number)).expect("readable").is_some()));
    let snapshot = store.snapshot().expect("open");
    let transaction = store.transaction(TransactionOptions::default()).expect("open");
    let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
    assert!(cursor.next().expect("readable").is_some());
    place.clock.advance(Duration::from_secs(10));
    store.compact().expect("room");
    for number in 0..200 {
        assert_eq!(kvs.get(&key(number)).expect("readable"), None, "{number}");
        let found = kvs.get_at(&snapshot, &key(number)).expect("readable");
        assert!(found.is_some(), "{number} has gone from a snapshot");
        let found = transaction.get(&kvs, &key(number)).expect("readable");
        assert!(found.is_some(), "{number} has gone from a transaction");
    }
    let mut shown = 1;
    while cursor.next().expect("readable").is_some() {
        shown += 1;
    }
    assert_eq!(shown, 200, "keys have gone from a cursor");
    let mut of_snapshot = kvs.cursor_at(&snapshot, CursorOptions::default()).expect("open");
    let mut shown = 0;
    while of_snapshot.next().expect("readable").is_some() {
        shown += 1;
    }
    assert_eq!(shown, 200, "keys have gone from a snapshot");
    assert_eq!(pairs(&kvs, CursorOptions::default()), []);
    cursor.update().expect("open");
    assert_eq!(cursor.next().expect("readable"), None);
}

#[test]
fn what_readers_hold_is_told_with_its_age() {
    in_world(|world, disk| {
        let store = Kvdb::create(disk.root(), options(), Arc::new(world)).expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let held = |store: &Kvdb| store.statistics().expect("open").held;
        (0..1000).for_each(|number| assert!(kvs.put(&key(number), &[7; 1000]).is_ok()));
        let snapshot = store.snapshot().expect("open");
        let cursor = kvs.cursor(CursorOptions::default()).expect("open");
        (0..1000).for_each(|number| assert!(kvs.delete(&key(number)).is_ok()));
        store.compact().expect("room");
        thread::sleep(Duration::from_secs(3));
        let now = held(&store);
        assert!(now.states > 0 && now.file_bytes > 500_000, "{now:?}");
        assert!(now.memory_bytes > 1000, "{now:?}");
        assert!((3000..10_000).contains(&now.oldest_ms), "{now:?}");
        drop(snapshot);
        assert!(held(&store).file_bytes > 500_000, "the cursor holds it as well");
        drop(cursor);
        assert_eq!((held(&store).file_bytes, held(&store).memory_bytes), (0, 0));
    });
}

/// Bytes of the files of a disk.
fn bytes_of(disk: &Disk) -> usize {
    disk.contents().values().map(Vec::len).sum()
}

#[test]
fn what_is_deleted_or_expires_while_nothing_is_written_is_given_back() {
    const KEYS: u64 = 24_000;
    for way in ["keys", "prefix", "expiry", "young"] {
        in_world(move |world, disk| {
            let options = KvdbOptions {
                generation_bytes: if way == "young" { 64 << 20 } else { 2 << 20 },
                segment_bytes: 1 << 20,
                ..KvdbOptions::default()
            };
            let store = Kvdb::create(disk.root(), options, Arc::new(world)).expect("a store");
            let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
            let time = (way == "expiry").then_some(Duration::from_secs(5));
            for number in 0..KEYS {
                kvs.put_for(&key(number), &[7; 1000], time).expect("room");
            }
            match way {
                "prefix" => assert!(kvs.delete_prefix(b"key").is_ok()),
                "expiry" => thread::sleep(Duration::from_secs(5)),
                _ => (0..KEYS).for_each(|number| assert!(kvs.delete(&key(number)).is_ok())),
            }
            thread::sleep(Duration::from_secs(10));
            let bytes = bytes_of(&disk);
            assert!(bytes < 8 << 20, "{way}: {bytes} bytes are still there");
        });
    }
}

#[test]
fn a_store_of_few_keys_is_small() {
    in_world(|world, disk| {
        let clock = Arc::new(world);
        let create = || Kvdb::create(disk.root(), KvdbOptions::default(), clock.clone());
        let store = create().expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        for number in 0..10 {
            kvs.put(&key(number), &vec![7; 100 * number as usize]).expect("room");
        }
        assert!(bytes_of(&disk) < 4 << 20, "{} bytes", bytes_of(&disk));
        thread::sleep(Duration::from_secs(20));
        assert!(bytes_of(&disk) < 4 << 20, "{} bytes, idle", bytes_of(&disk));
        store.compact().expect("room");
        assert!(bytes_of(&disk) < 4 << 20, "{} bytes, compacted", bytes_of(&disk));
        store.close().expect("durable");
        assert!(bytes_of(&disk) < 4 << 20, "{} bytes, closed", bytes_of(&disk));
        let open = || Kvdb::open(disk.root(), KvdbOptions::default(), clock.clone());
        for _ in 0..10 {
            let store = open().expect("whole");
            store.kvs("data").expect("there").put(b"more", &[1; 1000]).expect("room");
            store.close().expect("durable");
        }
        assert!(bytes_of(&disk) < 4 << 20, "{} bytes, opened often", bytes_of(&disk));
    });
}

/// Returns the first key of a walk, and deletes it.
fn pop(kvs: &Kvs, backward: bool, prefix: &[u8]) -> Option<Vec<u8>> {
    let options = CursorOptions { backward, prefix: prefix.to_vec(), ..CursorOptions::default() };
    let mut cursor = kvs.cursor(CursorOptions { limit: Some(1), ..options }).expect("open");
    let first = cursor.next().expect("readable").map(|(key, _)| key.to_vec())?;
    kvs.delete(&first).expect("room");
    Some(first)
}

#[test]
fn what_is_popped_is_first_whatever_was_popped_and_put_before() {
    for inline in [true, false] {
        let place = Place::new();
        let store = place.create();
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let mut rng = Rng::named(1, "operations");
        let mut there = BTreeSet::new();
        for step in 0..12_000_u64 {
            let number = match rng.next_u64() % 8 {
                0 => rng.next_u64() % 1000,
                1 => 500,
                _ => 1000 + step,
            };
            let prefix: &[u8] = if rng.next_u64().is_multiple_of(4) { b"key001" } else { b"" };
            match rng.next_u64() % 64 {
                0..30 => {
                    let bytes = if inline { 10 } else { 1000 };
                    kvs.put(&key(number), &vec![1; bytes]).expect("room");
                    there.insert(key(number));
                }
                30 => {
                    let prefix = &key(number)[..7];
                    kvs.delete_prefix(prefix).expect("room");
                    there.retain(|key: &Vec<u8>| !key.starts_with(prefix));
                }
                31 => {
                    let seconds = Some(Duration::from_secs(5));
                    kvs.put_for(&key(number), b"ends", seconds).expect("room");
                    place.clock.advance(Duration::from_secs(5));
                    there.remove(&key(number));
                }
                other => {
                    let backward = other % 4 == 3;
                    let mut of_prefix = there.iter().filter(|key| key.starts_with(prefix));
                    let expected =
                        if backward { of_prefix.next_back() } else { of_prefix.next() }.cloned();
                    let found = pop(&kvs, backward, prefix);
                    assert_eq!(found, expected, "step {step}, backward {backward}");
                    expected.inspect(|key| assert!(there.remove(key)));
                }
            }
            if step % 3000 == 2999 {
                store.compact().expect("room");
            }
        }
    }
}

#[test]
fn popping_costs_the_same_at_any_length() {
    const KEYS: u64 = 100_000;
    let clock = SystemClock::new();
    let begun = clock.now();
    for backward in [false, true] {
        let place = Place::new();
        let options = KvdbOptions::default();
        let store = Kvdb::create(place.directory(), options, place.clock.clone()).expect("new");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        (0..KEYS).for_each(|number| assert!(kvs.put(&key(number), b"value").is_ok()));
        for number in 0..KEYS {
            let expected = if backward { KEYS - 1 - number } else { number };
            assert_eq!(pop(&kvs, backward, b""), Some(key(expected)));
        }
        // A queue that is mostly empty.
        for number in 0..1000 {
            kvs.put(&key(KEYS + number), b"value").expect("room");
            assert_eq!(pop(&kvs, backward, b""), Some(key(KEYS + number)));
            assert_eq!(pop(&kvs, backward, b""), None);
        }
    }
    // Passing all that was deleted each time would take many minutes.
    let elapsed = clock.now().since(begun);
    assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
}

/// Producers put keys before and behind those that a consumer pops. None is missed.
#[test]
fn a_key_that_is_put_while_others_are_popped_is_popped() {
    const KEYS: u64 = 150;
    for seed in 1..40 {
        let world = World::new(WorldOptions::seeded(seed));
        let within = world.clone();
        let ran = world.run(move || {
            let disk = Disk::new(&within, DiskOptions::default()).expect("a disk");
            let clock = Arc::new(within.clone());
            let store = Kvdb::create(disk.root(), options(), clock).expect("a store");
            let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
            (0..40).for_each(|number| assert!(kvs.put(&key(number), b"value").is_ok()));
            (0..40).for_each(|_| assert!(pop(&kvs, false, b"").is_some()));
            let threads = (0..2_u64).map(|of| {
                let kvs = kvs.clone();
                let mut rng = within.rng(&format!("producer {of}"));
                thread::spawn("a producer", move || {
                    let numbers = (0..KEYS).map(|number| {
                        let number = 1000 * (rng.next_u64() % 50) + 2 * number + of;
                        kvs.put(&key(number), b"value").expect("room");
                        number
                    });
                    numbers.collect::<Vec<_>>()
                })
            });
            let threads: Vec<_> = threads.collect();
            let mut popped = BTreeSet::new();
            for _ in 0..KEYS {
                popped.extend(pop(&kvs, false, b""));
                thread::step();
            }
            let all = threads.into_iter().flat_map(|it| it.join().expect("no panic"));
            let all: BTreeSet<Vec<u8>> = all.map(key).collect();
            while let Some(first) = pop(&kvs, false, b"") {
                popped.insert(first);
            }
            assert!(popped == all, "seed {seed}: {} of {} are popped", popped.len(), all.len());
        });
        ran.expect("the world comes to its end");
    }
}

/// A store of many `Kvs` is made and compacted, one key each. The manifest is written in proportion
/// to what changes.
#[test]
fn many_kvs_cost_no_manifest_each() {
    in_world(|world, disk| {
        let clock = Arc::new(world.clone());
        let store = Kvdb::create(disk.root(), options(), clock.clone()).expect("a store");
        let name = |number: u64| format!("kvs{number:04}");
        for number in 0..1000 {
            let kvs = store.create_kvs(&name(number), KvsOptions::default()).expect("new");
            kvs.put(&key(number), b"value").expect("room");
        }
        store.compact().expect("room");
        let written = store.statistics().expect("open").media[0].written.manifest_bytes;
        assert!(written <= 4 << 20, "{written} bytes of manifests were written");
        store.close().expect("closes");
        let file = disk.root().read("MANIFEST").expect("there").len() as u64;
        assert!(written > file, "{written} bytes were counted, and the last manifest has {file}");
        let store = Kvdb::open(disk.root(), options(), clock).expect("a store");
        for number in 0..1000 {
            let kvs = store.kvs(&name(number)).expect("there");
            assert_eq!(kvs.get(&key(number)).expect("readable"), Some(b"value".to_vec()));
        }
    });
}
