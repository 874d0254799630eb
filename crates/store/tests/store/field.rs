//! Tests of what went wrong for users of other stores: closing beside durable writes, quotas, callers that
//! panic, snapshots of values that expire, and what is dead while nothing is written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};
use entresol_store::{
    Attempt, Batch, CompletionOptions, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, Outcome,
    StoreError, TransactionOptions,
};
use rustix::time::{ClockId, clock_gettime};

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
fn what_is_dead_while_nothing_is_written_is_given_back() {
    const KEYS: u64 = 24_000;
    for way in ["keys", "prefix", "expiry", "young", "overwritten", "overwritten later"] {
        in_world(move |world, disk| {
            let options = KvdbOptions {
                generation_bytes: if way == "young" { 64 << 20 } else { 2 << 20 },
                segment_bytes: 1 << 20,
                ..KvdbOptions::default()
            };
            let clock = Arc::new(world);
            let create = || Kvdb::create(disk.root(), options, clock.clone());
            let mut store = create().expect("a store");
            let mut kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
            let time = (way == "expiry").then_some(Duration::from_secs(5));
            for number in 0..KEYS {
                kvs.put_for(&key(number), &[7; 1000], time).expect("room");
            }
            match way {
                "prefix" => assert!(kvs.delete_prefix(b"key").is_ok()),
                "expiry" => thread::sleep(Duration::from_secs(5)),
                "overwritten" | "overwritten later" => {
                    thread::sleep(Duration::from_secs(10));
                    if way == "overwritten later" {
                        store.close().expect("durable");
                        store = Kvdb::open(disk.root(), options, clock).expect("whole");
                        kvs = store.kvs("data").expect("there");
                    }
                    (0..KEYS).for_each(|number| assert!(kvs.put(&key(number), b"v").is_ok()));
                }
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

/// One cursor walks to where all is dead, and is then set to where something lives.
#[test]
fn a_cursor_that_met_dead_keys_only_shows_what_lives_elsewhere() {
    for (backward, by_prefix, count) in [
        (false, false, 20),
        (false, true, 1000),
        (true, false, 1000),
        (true, true, 20),
        (false, false, 1),
    ] {
        let place = Place::new();
        let store = place.create();
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let (lives, dead): (&[u8], _) = if backward { (b"z", b'b') } else { (b"a", b'q') };
        let dead = |number: u64| [vec![dead], key(number)].concat();
        kvs.put(lives, b"value").expect("room");
        (0..count).for_each(|number| assert!(kvs.put(&dead(number), b"value").is_ok()));
        match by_prefix {
            true => assert!(kvs.delete_prefix(&dead(0)[..1]).is_ok()),
            false => (0..count).for_each(|number| assert!(kvs.delete(&dead(number)).is_ok())),
        }
        let mut cursor = None;
        for round in 0..6 {
            let options = CursorOptions { backward, ..CursorOptions::default() };
            let new = || kvs.cursor(options.clone()).expect("open");
            let cursor = cursor.get_or_insert_with(new);
            match round % 2 {
                0 => *cursor = new(),
                _ => cursor.update().expect("open"),
            }
            for _ in 0..2 {
                cursor.seek(&dead(if backward { count } else { 0 }));
                assert_eq!(cursor.next().expect("readable"), None, "{count}, round {round}");
                assert_eq!(cursor.next().expect("readable"), None, "{count}, round {round}");
                cursor.seek(lives);
                let shown = cursor.next().expect("readable");
                assert_eq!(shown, Some((lives, &b"value"[..])), "{count}, round {round}");
            }
        }
    }
}

/// Model of a walk: the keys from one on, or from an end, in the direction of the walk.
fn walk_of<'a>(
    there: &'a BTreeSet<Vec<u8>>,
    backward: bool,
    from: Option<&'a [u8]>,
) -> Box<dyn Iterator<Item = &'a Vec<u8>> + 'a> {
    match backward {
        false => Box::new(there.iter().filter(move |it| from.is_none_or(|from| it[..] >= *from))),
        true => {
            Box::new(there.iter().rev().filter(move |it| from.is_none_or(|from| it[..] <= *from)))
        }
    }
}

/// Cursors of all kinds are set here and there among keys of which most are dead.
#[test]
fn walks_among_dead_keys_are_those_of_a_model() {
    for seed in 1..25 {
        let place = Place::new();
        let store = place.create();
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let mut rng = Rng::new(seed);
        let mut there = BTreeSet::new();
        // Large values lie in records, and are read ahead.
        let value = vec![7; if seed % 2 == 0 { 5 } else { 1000 }];
        for step in 0..400_u64 {
            let first = rng.below(600);
            match rng.below(8) {
                0 => {
                    kvs.delete_prefix(&key(first)[..8]).expect("room");
                    there.retain(|it: &Vec<u8>| !it.starts_with(&key(first)[..8]));
                }
                1 | 2 => (first..first + rng.below(80)).for_each(|number| {
                    kvs.delete(&key(number)).expect("room");
                    there.remove(&key(number));
                }),
                3 => (first..first + rng.below(60)).for_each(|number| {
                    kvs.put(&key(number), &value).expect("room");
                    there.insert(key(number));
                }),
                // Rarely: writers wait for a sync once the time has gone on.
                4 if rng.one_in(16) => {
                    for number in first..first + rng.below(60) {
                        let time = Some(Duration::from_secs(5));
                        kvs.put_for(&key(number), &value, time).expect("room");
                        there.remove(&key(number));
                    }
                    place.clock.advance(Duration::from_secs(5));
                }
                _ => {
                    kvs.put(&key(first), &value).expect("room");
                    there.insert(key(first));
                }
            }
            let snapshot = store.snapshot().expect("open");
            let mut transaction = store.transaction(TransactionOptions::default()).expect("open");
            let backward = rng.one_in(2);
            let prefix = if rng.one_in(3) { key(rng.below(600))[..7].to_vec() } else { Vec::new() };
            let options = CursorOptions { backward, prefix, ..CursorOptions::default() };
            let mut seen = there.clone();
            seen.retain(|it| it.starts_with(&options.prefix));
            let mut cursor = match rng.below(4) {
                0 => kvs.cursor(options),
                1 => kvs.cursor_at(&snapshot, options),
                own => {
                    if own == 2 {
                        let number = rng.below(600);
                        match rng.below(3) {
                            0 => {
                                transaction.put(&kvs, &key(number), b"own").expect("small");
                                if key(number).starts_with(&options.prefix) {
                                    seen.insert(key(number));
                                }
                            }
                            1 => {
                                transaction.delete(&kvs, &key(number)).expect("small");
                                seen.remove(&key(number));
                            }
                            _ => {
                                let prefix = &key(number)[..8];
                                transaction.delete_prefix(&kvs, prefix).expect("small");
                                seen.retain(|it| !it.starts_with(prefix));
                            }
                        }
                    }
                    transaction.cursor(&kvs, options)
                }
            }
            .expect("open");
            for _ in 0..1 + rng.below(4) {
                let from = (!rng.one_in(4)).then(|| key(rng.below(600)));
                match &from {
                    Some(from) => cursor.seek(from),
                    None if backward => cursor.seek(b"z"),
                    None => cursor.seek(b""),
                }
                let mut expected = walk_of(&seen, backward, from.as_deref());
                for _ in 0..if rng.one_in(3) { 200 } else { 1 + rng.below(3) } {
                    let shown = cursor.next().expect("readable").map(|(key, _)| key.to_vec());
                    assert_eq!(shown.as_ref(), expected.next(), "seed {seed}, step {step}");
                }
            }
            drop(transaction);
            if step % 100 == 99 {
                store.compact().expect("room");
            }
        }
    }
}

/// Ways to pop the first key of a queue.
const WAYS: [&str; 7] =
    ["front", "back", "both ends", "two queues", "behind another key", "snapshot", "transaction"];

/// Pops a key in one of several ways, `number` keys after the first one.
fn pop_in_a_way((store, kvs): (&Kvdb, &Kvs), way: &str, number: u64) -> Option<Vec<u8>> {
    let first = |cursor: Result<entresol_store::Cursor, StoreError>| {
        let mut cursor = cursor.expect("open");
        cursor.next().expect("readable").map(|(key, _)| key.to_vec())
    };
    let options = || CursorOptions { limit: Some(1), ..CursorOptions::default() };
    match way {
        "front" => pop(kvs, false, b""),
        "back" => pop(kvs, true, b""),
        "both ends" => pop(kvs, number % 2 == 1, b""),
        "two queues" => pop(kvs, false, if number.is_multiple_of(2) { b"key00" } else { b"key01" }),
        "behind another key" => {
            let options = CursorOptions { limit: Some(2), ..CursorOptions::default() };
            let mut cursor = kvs.cursor(options).expect("open");
            assert_eq!(cursor.next().expect("readable"), Some((&b"a"[..], &b"stays"[..])));
            let second = cursor.next().expect("readable").map(|(key, _)| key.to_vec())?;
            kvs.delete(&second).expect("room");
            Some(second)
        }
        "snapshot" => {
            let key = first(kvs.cursor_at(&store.snapshot().expect("open"), options()))?;
            kvs.delete(&key).expect("room");
            Some(key)
        }
        _ => {
            let mut transaction = store.transaction(TransactionOptions::default()).expect("open");
            let key = first(transaction.cursor(kvs, options()))?;
            transaction.delete(kvs, &key).expect("small");
            transaction.commit().expect("no conflict");
            Some(key)
        }
    }
}

/// Returns the processor time of this thread, to which other work adds nothing.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn popping_costs_the_same_at_any_length_and_in_any_way() {
    let begun = processor_time();
    for way in WAYS {
        let keys = if ["front", "back"].contains(&way) { 100_000 } else { 20_000 };
        let place = Place::new();
        let options = KvdbOptions::default();
        let store = Kvdb::create(place.directory(), options, place.clock.clone()).expect("new");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        (0..keys).for_each(|number| assert!(kvs.put(&key(number), b"value").is_ok()));
        if way == "behind another key" {
            kvs.put(b"a", b"stays").expect("room");
        }
        for number in 0..keys {
            let expected = match way {
                "back" => keys - 1 - number,
                "both ends" if number % 2 == 1 => keys - 1 - number / 2,
                "both ends" => number / 2,
                "two queues" => number / 2 + 10_000 * (number % 2),
                _ => number,
            };
            assert_eq!(pop_in_a_way((&store, &kvs), way, number), Some(key(expected)), "{way}");
        }
        // A queue that is mostly empty.
        for number in keys..keys + 1000 {
            let number = if way == "two queues" { number % 2 * 10_000 } else { number };
            kvs.put(&key(number), b"value").expect("room");
            let popped = |number| pop_in_a_way((&store, &kvs), way, number);
            assert_eq!(popped(number / 10_000 % 2), Some(key(number)), "{way}");
            assert_eq!(popped(number / 10_000 % 2), None, "{way}");
        }
    }
    // Passing all that was deleted each time would take many minutes of this thread.
    let took = processor_time() - begun;
    assert!(took < Duration::from_secs(60), "{took:?}");
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
