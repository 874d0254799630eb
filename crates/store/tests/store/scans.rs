//! Reads of many values that lie apart from their keys: by cursors, and by multi-gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Picos;
use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_media::ModelName;
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};
use entresol_store::{
    Cursor, CursorOptions, KEY_BYTES_MAX, Kvdb, KvdbOptions, Kvs, KvsOptions, StoreError,
    TransactionOptions,
};

use crate::common::{Pair, pairs};

const KEYS: u64 = 2000;
const VALUE_BYTES: usize = 1000;
/// Bytes of a record beside its value.
const RECORD_BYTES_MORE: u64 = 64;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: 256 << 10,
        generation_bytes: 512 << 10,
        memory_bytes: 32 << 20,
        row_cache_bytes: 0,
        ..KvdbOptions::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    Rng::new(number).fill(&mut value);
    value
}

/// Returns the options of [`options`], with a row cache.
fn with_cache() -> KvdbOptions {
    KvdbOptions { row_cache_bytes: 4 << 20, ..options() }
}

fn open(world: &World, disk: &Disk, options: KvdbOptions) -> (Kvdb, Kvs) {
    let store = Kvdb::open(disk.root(), options, Arc::new(world.clone())).expect("opens");
    let kvs = store.kvs("data").expect("is there");
    (store, kvs)
}

/// Creates a store of `KEYS` keys, whose values are flushed where they were put, and opens it
/// again. Values are read in blocks from the drive. If the keys are put in random order, neighbours
/// lie scattered.
fn made(world: &World, disk: &Disk, is_in_order: bool) -> (Kvdb, Kvs) {
    made_of(world, disk, options(), (KEYS, is_in_order))
}

fn made_of(
    world: &World,
    disk: &Disk,
    options: KvdbOptions,
    (keys, is_in_order): (u64, bool),
) -> (Kvdb, Kvs) {
    let clock = Arc::new(world.clone());
    let store = Kvdb::create(disk.root(), options, clock).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("a Kvs");
    let mut numbers: Vec<u64> = (0..keys).collect();
    if !is_in_order {
        Rng::new(1).shuffle(&mut numbers);
    }
    for number in numbers {
        kvs.put(&key(number), &value(number, VALUE_BYTES)).expect("room");
    }
    store.compact().expect("merges");
    store.close().expect("closes");
    drop(kvs);
    let (store, kvs) = open(world, disk, options);
    // This brings the key blocks into memory. The tests look at values only.
    let keys_only = CursorOptions { keys_only: true, ..CursorOptions::default() };
    assert_eq!(pairs(&kvs, keys_only).len(), keys as usize);
    (store, kvs)
}

fn on_a_drive<T: 'static>(run: impl FnOnce(World, Disk) -> T + 'static) -> T {
    let world = World::new(WorldOptions::seeded(1));
    let within = world.clone();
    let ran = world.run(move || {
        let options = DiskOptions { model: Some(ModelName::NandP3700), ..DiskOptions::default() };
        let disk = Disk::new(&within, options).expect("a disk");
        run(within, disk)
    });
    ran.expect("the world comes to its end")
}

fn read_bytes(store: &Kvdb) -> u64 {
    let media = store.statistics().expect("open").media;
    media.iter().map(|medium| medium.read.value_bytes).sum()
}

/// Reads `count` entries from a key on, up or down, and checks them.
fn show(cursor: &mut Cursor, from: u64, count: u64, backward: bool) {
    cursor.seek(&key(from));
    for step in 0..count {
        let number = if backward { from - step } else { from + step };
        let shown = cursor.next().expect("readable");
        assert!(shown == Some((&key(number), &value(number, VALUE_BYTES))), "{number}");
    }
}

/// Returns the virtual time that an operation takes, and the bytes it reads for each byte wanted.
fn cost(world: &World, store: &Kvdb, wanted: u64, run: impl FnOnce()) -> (Picos, f64) {
    let (begun, read) = (world.now(), read_bytes(store));
    run();
    let read = (read_bytes(store) - read) as f64 / (wanted * VALUE_BYTES as u64) as f64;
    (Picos(world.now().0 - begun.0), read)
}

#[test]
fn values_ahead_are_read_together_and_few_that_are_not_wanted() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made(&world, &disk, false);
        for count in [1, 2, 3, 7, 20, 50, 100, 300] {
            for backward in [false, true] {
                let from = |round: u64| 300 + (count * 37 + round * 131) % 1400;
                let each = |run: &mut dyn FnMut(u64)| {
                    cost(&world, &store, 10 * count, || (0..10).for_each(|round| run(from(round))))
                };
                let (alone, _) = each(&mut |from| {
                    for step in 0..count {
                        let number = if backward { from - step } else { from + step };
                        kvs.get(&key(number)).expect("readable").expect("is there");
                    }
                });
                let scan = |limit| {
                    let options = CursorOptions { backward, limit, ..CursorOptions::default() };
                    let mut cursor = kvs.cursor(options).expect("open");
                    each(&mut |from| show(&mut cursor, from, count, backward))
                };
                let ((free, free_read), (limited, limited_read)) = (scan(None), scan(Some(count)));
                let told = format!(
                    "{count}, {backward}: {} {} {} us, {free_read} {limited_read}",
                    alone.0 / 1_000_000,
                    free.0 / 1_000_000,
                    limited.0 / 1_000_000
                );
                assert!(free_read < 2.4 && limited_read < 1.2, "{told}");
                assert!(free.0 <= alone.0 * 11 / 10 && limited.0 <= alone.0 * 11 / 10, "{told}");
                if count >= 50 {
                    assert!(free.0 * 3 < alone.0 && limited.0 * 5 < alone.0, "{told}");
                }
            }
        }
    });
}

#[test]
fn nothing_is_read_behind_a_prefix_or_of_values_that_are_not_asked_for() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made(&world, &disk, false);
        // The prefix has ten keys.
        let prefix = CursorOptions { prefix: b"key00123".to_vec(), ..CursorOptions::default() };
        let (_, read) = cost(&world, &store, 10, || {
            assert_eq!(pairs(&kvs, prefix).len(), 10);
        });
        assert!(read <= (VALUE_BYTES as u64 + RECORD_BYTES_MORE) as f64 * 1.2 / 1000.0, "{read}");
        let keys = CursorOptions { keys_only: true, ..CursorOptions::default() };
        let (_, read) = cost(&world, &store, KEYS, || {
            assert_eq!(pairs(&kvs, keys).len(), KEYS as usize);
        });
        assert!(read == 0.0, "{read}");
    });
}

#[test]
fn neighbours_in_the_log_are_read_as_one() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made(&world, &disk, true);
        disk.inject(FaultPlan::default());
        let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
        let (_, read) = cost(&world, &store, KEYS, || show(&mut cursor, 0, KEYS, false));
        assert!(read < 1.1, "{read}");
        // The background threads also write now and then.
        let calls = disk.calls();
        assert!(calls < KEYS / 8, "{calls} calls for {KEYS} values");
    });
}

/// Flips a bit in the value of a key.
fn damage(disk: &Disk, number: u64) {
    let bytes = value(number, VALUE_BYTES);
    for (path, content) in disk.contents() {
        if let Some(at) = content.windows(VALUE_BYTES).position(|window| window == bytes) {
            return disk.flip(&path, at as u64 + 5, 2).expect("is there");
        }
    }
    panic!("the value of {number} is nowhere");
}

/// Scans everything. Returns the keys before which there was an error, with its kind.
fn errors(kvs: &Kvs, backward: bool) -> Vec<(u64, bool)> {
    let options = CursorOptions { backward, ..CursorOptions::default() };
    let mut cursor = kvs.cursor(options).expect("open");
    let mut errors = Vec::new();
    let mut step = 0;
    loop {
        let number = if backward { KEYS.wrapping_sub(1 + step) } else { step };
        match cursor.next() {
            Ok(Some((found, bytes))) => {
                assert!(found == key(number) && bytes == value(number, VALUE_BYTES), "{number}");
            }
            Ok(None) => break,
            Err(StoreError::Damaged { .. }) => errors.push((number, true)),
            Err(StoreError::Io { .. }) => errors.push((number, false)),
            Err(error) => panic!("{error}"),
        }
        step += 1;
    }
    assert_eq!(step, KEYS, "each key was shown, or said what is wrong with it");
    errors
}

#[test]
fn damage_ahead_is_told_at_its_key_and_nowhere_else() {
    for is_in_order in [false, true] {
        on_a_drive(move |world, disk| {
            let (store, kvs) = made(&world, &disk, is_in_order);
            drop((store, kvs));
            [0, 40, 41, 1500, KEYS - 1].into_iter().for_each(|number| damage(&disk, number));
            let (_store, kvs) = open(&world, &disk, options());
            let expected = [0, 40, 41, 1500, KEYS - 1].map(|number| (number, true));
            assert_eq!(errors(&kvs, false), expected);
            let reversed: Vec<_> = expected.into_iter().rev().collect();
            assert_eq!(errors(&kvs, true), reversed);
        });
    }
}

#[test]
fn a_read_that_fails_is_told_at_its_key_and_nowhere_else() {
    for is_in_order in [false, true] {
        on_a_drive(move |world, disk| {
            let (_store, kvs) = made(&world, &disk, is_in_order);
            let mut told = 0;
            for nth in (1..60).chain([200, 1000]) {
                let (calls, effect) = (Calls::of(&[Call::Read]), Effect::Fail(Failure::Io));
                let faults = vec![Fault { calls, nth, repeat: Repeat::Once, effect }];
                disk.inject(FaultPlan { faults, ..FaultPlan::default() });
                let errors = errors(&kvs, nth % 2 == 0);
                assert!(errors.len() <= 1 && errors.iter().all(|it| !it.1), "{nth}: {errors:?}");
                told += errors.len();
            }
            // Values that were to be read with others are read again one by one.
            let few = if is_in_order { 1..20 } else { 30..62 };
            assert!(few.contains(&told), "{told} were told");
        });
    }
}

#[test]
fn what_moves_or_goes_while_it_is_read_ahead_is_shown_as_it_was() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made(&world, &disk, false);
        let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
        show(&mut cursor, 100, 40, false);
        for number in 0..KEYS {
            if number % 7 == 0 {
                kvs.put(&key(number), b"new").expect("room");
            } else {
                kvs.delete(&key(number)).expect("room");
            }
        }
        store.compact().expect("merges");
        for number in 140..900 {
            let shown = cursor.next().expect("readable");
            assert!(shown == Some((&key(number), &value(number, VALUE_BYTES))), "{number}");
        }
        // After the update the cursor shows the current contents.
        cursor.update().expect("open");
        assert_eq!(cursor.next().expect("readable"), Some((&key(903)[..], &b"new"[..])));
    });
}

#[test]
fn what_is_updated_in_the_middle_goes_on_behind_what_was_shown() {
    on_a_drive(|world, disk| {
        let (_store, kvs) = made(&world, &disk, false);
        for shown in 1..40 {
            let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
            show(&mut cursor, 500, shown, false);
            cursor.update().expect("open");
            let next = cursor.next().expect("readable").expect("is there");
            assert_eq!(next.0, key(500 + shown), "after {shown}");
        }
    });
}

#[test]
fn what_ends_while_it_is_ahead_is_shown_until_the_cursor_is_updated() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made(&world, &disk, false);
        let day = Duration::from_secs(86_400);
        for number in 530..540 {
            kvs.put_for(&key(number), &value(number, VALUE_BYTES), Some(day)).expect("room");
        }
        store.compact().expect("merges");
        let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
        show(&mut cursor, 500, 20, false);
        thread::sleep(day + Duration::from_secs(1));
        for number in 520..560 {
            let shown = cursor.next().expect("readable").expect("is there");
            assert_eq!(shown.0, key(number));
        }
        cursor.seek(&key(520));
        cursor.update().expect("open");
        for number in (520..530).chain(540..600) {
            let shown = cursor.next().expect("readable").expect("is there");
            assert_eq!(shown.0, key(number));
        }
    });
}

#[test]
fn values_in_the_row_cache_are_not_read() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made_of(&world, &disk, with_cache(), (KEYS, false));
        (0..KEYS).for_each(|number| drop(kvs.get(&key(number)).expect("readable")));
        let scan = |backward, limit| {
            let mut cursor =
                kvs.cursor(CursorOptions { backward, limit, ..CursorOptions::default() });
            let cursor = cursor.as_mut().expect("open");
            cost(&world, &store, 80, || show(cursor, 1000, 80, backward))
        };
        for backward in [false, true] {
            for limit in [None, Some(80)] {
                let (time, read) = scan(backward, limit);
                assert!(read == 0.0 && time == Picos(0), "{read} {time:?}");
            }
        }
    });
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the expected pairs of a scan.
fn expected(model: &Model, from: Option<&[u8]>, options: &CursorOptions) -> Vec<Pair> {
    let CursorOptions { backward, prefix, limit, .. } = options;
    let is_wanted = |key: &[u8]| {
        let is_behind = from.is_none_or(|from| if *backward { key <= from } else { key >= from });
        is_behind && key.starts_with(prefix)
    };
    let mut all: Vec<Pair> = model
        .iter()
        .filter(|(key, _)| is_wanted(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if *backward {
        all.reverse();
    }
    all.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
    all
}

/// Values beside keys and in segments, flushed and not, and of a transaction; scans of any kind.
#[test]
fn walks_show_what_a_map_has() {
    [options(), with_cache()].into_iter().for_each(show_what_a_map_has);
}

fn show_what_a_map_has(options: KvdbOptions) {
    on_a_drive(move |world, disk| {
        let (store, kvs) = made_of(&world, &disk, options, (KEYS, false));
        let mut model: Model =
            (0..KEYS).map(|number| (key(number), value(number, VALUE_BYTES))).collect();
        let mut rng = Rng::new(7);
        for round in 0..6 {
            for _ in 0..150 {
                let key = key(rng.below(KEYS));
                if rng.one_in(4) {
                    kvs.delete(&key).expect("room");
                    model.remove(&key);
                } else {
                    let bytes = [20, 300, 3000, 40_000, 150_000][rng.below(5) as usize];
                    let value = value(rng.below(1 << 40), bytes);
                    kvs.put(&key, &value).expect("room");
                    model.insert(key, value);
                }
            }
            if round % 2 == 0 {
                store.compact().expect("merges");
            }
            let mut transaction = store.transaction(TransactionOptions::default()).expect("begins");
            let mut own = model.clone();
            for _ in 0..100 {
                let key = key(rng.below(KEYS));
                transaction.put(&kvs, &key, b"own").expect("room");
                own.insert(key, b"own".to_vec());
            }
            for _ in 0..20 {
                let prefix = match rng.below(3) {
                    0 => b"key001".to_vec(),
                    1 => b"key0012".to_vec(),
                    _ => Vec::new(),
                };
                let limit = rng.one_in(2).then(|| rng.below(80));
                let (backward, keys_only) = (rng.one_in(2), false);
                let options = CursorOptions { backward, prefix, keys_only, limit };
                let is_own = rng.one_in(2);
                let mut cursor = match is_own {
                    true => transaction.cursor(&kvs, options.clone()).expect("open"),
                    false => kvs.cursor(options.clone()).expect("open"),
                };
                for _ in 0..2 {
                    let from = rng.below(KEYS);
                    if rng.one_in(2) {
                        // The reads fill the row cache with the values that it admits.
                        (from..from + 40).for_each(|at| drop(kvs.get(&key(at)).expect("readable")));
                    }
                    let from = key(from);
                    cursor.seek(&from);
                    let mut shown = Vec::new();
                    while let Some((key, value)) = cursor.next().expect("readable") {
                        shown.push((key.to_vec(), value.to_vec()));
                    }
                    let model = if is_own { &own } else { &model };
                    assert!(shown == expected(model, Some(&from), &options), "{options:?}");
                    assert!(cursor.next().expect("at the end").is_none());
                }
            }
        }
    });
}

#[test]
fn values_of_many_keys_are_read_together() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made(&world, &disk, false);
        for count in [2, 5, 32, 33, 200] {
            let key_of = |step: u64| (count * 37 + step * 7) % (KEYS + 20);
            let named: Vec<Vec<u8>> = (0..count).map(|step| key(key_of(step))).collect();
            let (alone, read_alone) = cost(&world, &store, count, || {
                for key in &named {
                    kvs.get(key).expect("readable");
                }
            });
            let (together, read) = cost(&world, &store, count, || {
                let named: Vec<&[u8]> = named.iter().map(Vec::as_slice).collect();
                let values = kvs.multi_get(&named).expect("readable");
                assert_eq!(values.len(), named.len());
                for (step, found) in (0..count).zip(values) {
                    let number = key_of(step);
                    let expected = (number < KEYS).then(|| value(number, VALUE_BYTES));
                    assert!(found == expected, "{number}");
                }
            });
            let told = format!("{count}: {alone} alone, {together} together");
            assert!((read - read_alone).abs() < 0.01, "{read} and {read_alone} bytes");
            let times = if count >= 32 { 4 } else { 1 };
            assert!(together.0 * times < alone.0, "{told}");
        }
    });
}

#[test]
fn a_value_among_many_that_cannot_be_read_is_told() {
    on_a_drive(|world, disk| {
        let (store, kvs) = made(&world, &disk, false);
        drop((store, kvs));
        damage(&disk, 40);
        let (_store, kvs) = open(&world, &disk, options());
        let names: Vec<_> = (30..50).map(key).collect();
        let mut names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let error = kvs.multi_get(&names).expect_err("one is damaged");
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        names.remove(10);
        assert!(kvs.multi_get(&names).expect("readable").iter().all(Option::is_some));
        let (calls, effect) = (Calls::of(&[Call::Read]), Effect::Fail(Failure::Io));
        let faults = vec![Fault { calls, nth: 7, repeat: Repeat::Once, effect }];
        disk.inject(FaultPlan { faults, ..FaultPlan::default() });
        let error = kvs.multi_get(&names).expect_err("one cannot be read");
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
        assert!(kvs.multi_get(&names).expect("readable").iter().all(Option::is_some));
    });
}

#[test]
fn values_that_a_merge_moves_are_read_together() {
    const MANY: u64 = 10 * KEYS;
    on_a_drive(|world, disk| {
        let (store, kvs) = made_of(&world, &disk, options(), (MANY, false));
        let left = || (0..MANY).step_by(10);
        let (alone, _) = cost(&world, &store, KEYS, || {
            left().for_each(|it| drop(kvs.get(&key(it)).expect("readable").expect("is there")));
        });
        for number in (0..MANY).filter(|number| number % 10 > 0) {
            kvs.delete(&key(number)).expect("room");
        }
        let moved = |store: &Kvdb| {
            let media = store.statistics().expect("open").media;
            media.iter().map(|medium| medium.written.collected_bytes).sum::<u64>()
        };
        let before = moved(&store);
        let (merging, _) = cost(&world, &store, KEYS, || store.compact().expect("room"));
        let moved = moved(&store) - before;
        assert!(moved >= KEYS * VALUE_BYTES as u64, "{moved} bytes were moved");
        assert!(merging.0 * 3 < alone.0, "{merging} to compact, {alone} to read all one by one");
        assert!(
            left().all(|it| kvs.get(&key(it)).expect("readable") == Some(value(it, VALUE_BYTES)))
        );
    });
}

#[test]
fn the_longest_keys_are_walked_over_whatever_is_in_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Kvdb::create_at(&directory.path().join("store"), KvdbOptions::default());
    let store = store.expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("a Kvs");
    let zeros = |last| [vec![0; KEY_BYTES_MAX - 1], vec![last]].concat();
    let mut keys: Vec<Vec<u8>> = (0..40).map(zeros).collect();
    keys.extend([1, 255].map(|byte| vec![byte; KEY_BYTES_MAX]));
    for key in keys.iter().rev() {
        kvs.put(key, b"value").expect("room");
    }
    for state in ["in the memtable", "flushed"] {
        for backward in [false, true] {
            let found = pairs(&kvs, CursorOptions { backward, ..CursorOptions::default() });
            let mut found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
            if backward {
                found.reverse();
            }
            assert!(found == keys, "{state}, backward: {backward}, {} keys", found.len());
        }
        let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
        // A sought key may be longer than any key.
        for (sought, expected) in [(keys[7].clone(), 7), (vec![0; 1 << 20], 1), (zeros(40), 40)] {
            cursor.seek(&sought);
            let shown = cursor.next().expect("readable").map(|(key, _)| key.to_vec());
            assert!(shown.as_ref() == keys.get(expected), "{state}, {expected}");
        }
        store.compact().expect("merges");
    }
}
