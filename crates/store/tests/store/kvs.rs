//! Operations on a `Kvs` in every state of its data: in memtables, flushed, and opened again.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::checksum;
use entresol_simulated::disk::Disk;
use entresol_store::{
    Batch, CursorOptions, Kvdb, KvdbOptions, KvsOptions, Matches, StoreError, TransactionOptions,
};

use crate::common::{Place, all, in_world, pairs};

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

#[test]
fn what_was_put_is_there_until_it_is_overwritten_or_removed() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    assert_eq!(kvs.get(b"a").expect("readable"), None);
    kvs.put(b"a", b"1").expect("room");
    kvs.put(b"b", b"").expect("room");
    kvs.put(b"a", b"2").expect("room");
    kvs.delete(b"c").expect("room");
    assert_eq!(kvs.get(b"a").expect("readable"), Some(b"2".to_vec()));
    assert_eq!(kvs.get(b"b").expect("readable"), Some(vec![]));
    kvs.delete(b"a").expect("room");
    assert_eq!(kvs.get(b"a").expect("readable"), None);
    assert_eq!(all(&kvs, false), [(b"b".to_vec(), vec![])]);
    store.close().expect("durable");
    assert!(matches!(kvs.get(b"b"), Err(StoreError::Closed)));
    let store = place.open();
    let kvs = store.kvs("data").expect("there");
    assert_eq!(all(&kvs, false), [(b"b".to_vec(), vec![])]);
    assert!(matches!(store.kvs("date"), Err(StoreError::NoKvs { .. })));
}

#[test]
fn cursors_of_snapshots_see_the_newest_of_many_versions_both_ways() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let (mut model, mut snapshots) = (std::collections::BTreeMap::new(), Vec::new());
    for round in 0..40_u32 {
        for number in 0..24 {
            let key = key(number);
            // Some keys have one version, others have one in each round.
            match (number % 3, (number + round) % 5) {
                (0, _) if round > 0 => continue,
                (_, 0) => {
                    kvs.delete(&key).expect("room");
                    model.remove(&key);
                }
                _ => {
                    let value = format!("{round}/{number}").into_bytes();
                    kvs.put(&key, &value).expect("room");
                    model.insert(key, value);
                }
            }
        }
        snapshots.push((store.snapshot().expect("open"), model.clone()));
    }
    let options = |backward| CursorOptions { backward, ..CursorOptions::default() };
    for (snapshot, model) in &snapshots {
        for (backward, from) in (0..25).flat_map(|from| [(false, from), (true, from)]) {
            let mut cursor = kvs.cursor_at(snapshot, options(backward)).expect("open");
            cursor.seek(&key(from));
            let mut expected: Vec<_> = match backward {
                false => model.range(key(from)..).collect(),
                true => model.range(..=key(from)).rev().collect(),
            };
            expected.reverse();
            while let Some(shown) = cursor.next().expect("readable") {
                let (key, value) = expected.pop().expect("no more than there are");
                assert_eq!(shown, (key.as_slice(), value.as_slice()), "{backward} {from}");
            }
            assert!(expected.is_empty(), "{backward} {from}");
        }
    }
}

#[test]
fn what_was_written_is_there_when_the_store_is_opened_again_and_again() {
    let place = Place::new();
    let mut expected = std::collections::BTreeMap::new();
    let store = place.create();
    store.create_kvs("data", KvsOptions::default()).expect("new");
    drop(store);
    for round in 0..4u32 {
        let store = place.open();
        let kvs = store.kvs("data").expect("there");
        for number in 0..1000 {
            let key = key(number * 7919 % 1500);
            let value = vec![round as u8; (number % 700) as usize];
            kvs.put(&key, &value).expect("room");
            expected.insert(key, value);
            if number % 5 == 0 {
                let gone = self::key(number);
                kvs.delete(&gone).expect("room");
                expected.remove(&gone);
            }
        }
        if round == 2 {
            store.compact().expect("room");
        }
        let forward: Vec<_> = expected.clone().into_iter().collect();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        assert!(all(&kvs, false) == forward, "round {round}");
        assert!(all(&kvs, true) == backward, "round {round}");
        for (key, value) in &expected {
            assert_eq!(kvs.get(key).expect("readable").as_ref(), Some(value), "round {round}");
        }
    }
}

#[test]
fn a_batch_counts_as_a_whole_and_over_several_kvs() {
    let place = Place::new();
    let store = place.create();
    let one = store.create_kvs("one", KvsOptions::default()).expect("new");
    let two = store.create_kvs("two", KvsOptions::default()).expect("new");
    one.put(b"gone", b"x").expect("room");
    let mut batch = Batch::new();
    batch.put(&one, b"a", b"1").expect("small");
    batch.put(&two, b"a", b"2").expect("small");
    batch.delete(&one, b"gone").expect("small");
    batch.put(&one, b"a", b"3").expect("small");
    let before = store.snapshot().expect("open");
    store.write(&batch).expect("room");
    assert_eq!(all(&one, false), [(b"a".to_vec(), b"3".to_vec())]);
    assert_eq!(all(&two, false), [(b"a".to_vec(), b"2".to_vec())]);
    assert_eq!(one.get_at(&before, b"gone").expect("readable"), Some(b"x".to_vec()));
    assert_eq!(two.get_at(&before, b"a").expect("readable"), None);
}

#[test]
fn a_prefix_goes_as_a_whole_and_what_comes_later_stays() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..20 {
        kvs.put(&key(number), b"x").expect("room");
    }
    kvs.delete_prefix(b"key0001").expect("room");
    kvs.put(&key(13), b"again").expect("room");
    let options = CursorOptions { prefix: b"key0001".to_vec(), ..CursorOptions::default() };
    let check = |kvs: &entresol_store::Kvs| {
        assert_eq!(all(kvs, false).len(), 11);
        assert_eq!(kvs.get(&key(12)).expect("readable"), None);
        assert_eq!(pairs(kvs, options.clone()), [(key(13), b"again".to_vec())]);
        let matches = kvs.probe_prefix(b"key0001").expect("readable");
        assert_eq!(matches, Matches::One(key(13), b"again".to_vec()));
        let matches = kvs.probe_prefix(b"key0000").expect("readable");
        assert_eq!(matches, Matches::Many(key(0), b"x".to_vec()));
        assert_eq!(kvs.probe_prefix(b"kez").expect("readable"), Matches::None);
    };
    check(&kvs);
    store.compact().expect("room");
    check(&kvs);
    drop(store);
    check(&place.open().kvs("data").expect("there"));
}

#[test]
fn a_kvs_that_was_dropped_refuses_whatever_it_is_asked_for() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    kvs.put(b"a", b"1").expect("room");
    let mut batch = Batch::new();
    batch.put(&kvs, b"b", b"2").expect("small");
    store.drop_kvs("data").expect("there");
    let dropped = |error: StoreError| {
        assert!(matches!(error, StoreError::KvsDropped { .. }), "{error}");
        assert!(error.to_string().contains("dropped: create it again"), "{error}");
    };
    dropped(kvs.put(b"a", b"1").expect_err("dropped"));
    dropped(kvs.delete(b"a").expect_err("dropped"));
    dropped(kvs.get(b"a").expect_err("dropped"));
    dropped(kvs.cursor(CursorOptions::default()).expect_err("dropped"));
    dropped(store.write(&batch).expect_err("dropped"));
    dropped(batch.delete(&kvs, b"c").expect_err("dropped"));
    let again = store.create_kvs("data", KvsOptions::default()).expect("the name is free");
    again.put(b"b", b"3").expect("room");
    assert_eq!(all(&again, false), [(b"b".to_vec(), b"3".to_vec())]);
    dropped(kvs.put(b"a", b"1").expect_err("dropped"));
    store.close().expect("durable");
    let store = place.open();
    let data = store.kvs("data").expect("there");
    assert_eq!(all(&data, false), [(b"b".to_vec(), b"3".to_vec())]);
}

#[test]
fn time_ends_keys_and_never_brings_them_back() {
    let place = Place::new();
    let store = place.create();
    let day = Some(Duration::from_secs(86_400));
    let options = KvsOptions { time_to_live: day, ..KvsOptions::default() };
    let kvs = store.create_kvs("data", options).expect("new");
    kvs.put(b"default", b"x").expect("room");
    kvs.put_for(b"short", b"x", Some(Duration::from_secs(10))).expect("room");
    place.clock.advance(Duration::from_secs(11));
    assert_eq!(all(&kvs, false), [(b"default".to_vec(), b"x".to_vec())]);
    assert_eq!(kvs.get(b"short").expect("readable"), None);
    drop(store);
    // The clock was set back.
    let mut earlier = place;
    earlier.clock = Place::new().clock;
    let store = earlier.open();
    let kvs = store.kvs("data").expect("there");
    assert_eq!(kvs.get(b"short").expect("readable"), None);
    earlier.clock.advance(Duration::from_secs(86_500));
    assert_eq!(kvs.get(b"default").expect("readable"), None);
}

#[test]
fn a_value_is_set_only_if_nobody_else_has_set_it() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let first = kvs.compare_and_set(b"k", None, b"1").expect("free");
    assert!(matches!(kvs.compare_and_set(b"k", None, b"2"), Err(StoreError::Conflict)));
    kvs.compare_and_set(b"k", Some(first), b"2").expect("unchanged");
    assert!(matches!(kvs.compare_and_set(b"k", Some(first), b"3"), Err(StoreError::Conflict)));
    let (value, token) = kvs.get_with_token(b"k").expect("readable").expect("there");
    assert_eq!(value, b"2");
    kvs.compare_and_set(b"k", Some(token), b"3").expect("unchanged");
}

#[test]
fn a_snapshot_stays_as_it_was_while_all_is_flushed_and_compacted() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..500 {
        kvs.put(&key(number), &[1; 300]).expect("room");
    }
    let snapshot = store.snapshot().expect("open");
    let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
    for round in 2..6 {
        for number in (0..500).step_by(2) {
            kvs.put(&key(number), &[round; 300]).expect("room");
        }
        kvs.delete(&key(1)).expect("room");
        store.compact().expect("room");
    }
    let keys: Vec<_> = (0..500).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = kvs.multi_get_at(&snapshot, &keys).expect("readable");
    assert!(values.iter().all(|value| value.as_deref() == Some(&[1; 300])));
    let now = kvs.multi_get(&keys).expect("readable");
    let expected = |number| (number != 1).then_some(if number % 2 == 0 { 5 } else { 1 });
    let expected = (0..500).map(|number| expected(number).map(|round| vec![round; 300]));
    assert_eq!(now, expected.collect::<Vec<_>>());
    for number in 0..500 {
        let value = kvs.get_at(&snapshot, &key(number)).expect("readable");
        assert_eq!(value, Some(vec![1; 300]), "{number}");
        let shown = cursor.next().expect("readable").expect("more");
        assert_eq!(shown, (&key(number)[..], &[1; 300][..]));
    }
    assert_eq!(cursor.next().expect("readable"), None);
    cursor.update().expect("open");
    cursor.seek(&key(0));
    assert_eq!(cursor.next().expect("readable"), Some((&key(0)[..], &[5; 300][..])));
    assert_eq!(cursor.next().expect("readable"), Some((&key(2)[..], &[5; 300][..])));
}

#[test]
fn what_belongs_to_another_store_is_refused() {
    let volumes = [Place::new(), Place::new()];
    let stores = volumes.each_ref().map(Place::create);
    let kvs = stores.each_ref().map(|store| store.create_kvs("data", KvsOptions::default()));
    let [one, two] = kvs.map(|kvs| kvs.expect("new"));
    one.put(b"key", b"of the first").expect("room");
    let is_refused = |error| matches!(error, Err(StoreError::OtherStore { .. }));
    let mut batch = Batch::new();
    batch.put(&one, b"key", b"new").expect("small");
    assert!(is_refused(stores[1].write(&batch).map(drop)));
    assert!(is_refused(batch.delete(&two, b"key").map(drop)));
    let snapshot = stores[0].snapshot().expect("open");
    assert!(is_refused(two.get_at(&snapshot, b"key").map(drop)));
    assert!(is_refused(two.cursor_at(&snapshot, CursorOptions::default()).map(drop)));
    assert_eq!(two.get(b"key").expect("readable"), None);
    stores[0].write(&batch).expect("room");
    assert_eq!(one.get(b"key").expect("readable"), Some(b"new".to_vec()));
}

#[test]
fn times_of_a_batch_begin_when_it_is_written() {
    let place = Place::new();
    let store = place.create();
    let minute = Some(Duration::from_secs(60));
    let options = KvsOptions { time_to_live: minute, ..KvsOptions::default() };
    let kvs = store.create_kvs("data", options).expect("new");
    let mut batch = Batch::new();
    batch.put_for(&kvs, b"a", b"1", minute).expect("small");
    batch.put(&kvs, b"b", b"2").expect("small");
    for _ in 0..2 {
        place.clock.advance(Duration::from_secs(61));
        assert_eq!(all(&kvs, false), []);
        store.write(&batch).expect("room");
        assert_eq!(all(&kvs, false).len(), 2);
    }
}

/// Makes a store believe that it has given numbers to `all` `Kvs`.
fn has_given_numbers(disk: &Disk, all: u64) {
    let manifest = disk.root().read("MANIFEST").expect("there");
    let line = manifest.split(|byte| *byte == b'\n').next().expect("a line");
    let mut object: serde_json::Value = serde_json::from_slice(line).expect("an object");
    object["next_kvs"] = (all + 1).into();
    let object = object.to_string();
    let text = format!("{object}\ncrc32c {:08x}\n", checksum::crc32c(object.as_bytes()));
    disk.root().replace("MANIFEST", text.as_bytes()).expect("room");
}

/// After 65,535 `Kvs`, numbers of dropped ones are used again once nothing of these is left.
#[test]
fn kvs_can_be_made_for_as_long_as_the_store_lives() {
    in_world(|world, disk| {
        let clock = Arc::new(world.clone());
        let options = KvdbOptions { memory_bytes: 2 << 20, ..KvdbOptions::default() };
        let store = Kvdb::create(disk.root(), options, clock.clone()).expect("made");
        for name in ["kept", "dropped"] {
            let kvs = store.create_kvs(name, KvsOptions::default()).expect("new");
            kvs.put(b"key", name.as_bytes()).expect("room");
        }
        store.drop_kvs("dropped").expect("there");
        store.close().expect("closes");
        has_given_numbers(&disk, 65_534);
        let open = || Kvdb::open(disk.root(), options, clock.clone()).expect("a store");
        let mut store = open();
        // The first `Kvs` gets the last new number. The second one gets a used number, but not the
        // one that the log still has a write of.
        for name in ["one", "two"] {
            let kvs = store.create_kvs(name, KvsOptions::default()).expect("numbers are left");
            assert_eq!(kvs.get(b"key").expect("readable"), None, "{name}");
            kvs.put(b"key", name.as_bytes()).expect("room");
        }
        store.compact().expect("room");
        for _ in 0..2 {
            store.close().expect("closes");
            store = open();
            for name in ["kept", "one", "two"] {
                let kvs = store.kvs(name).expect("there");
                assert_eq!(kvs.get(b"key").expect("readable").as_deref(), Some(name.as_bytes()));
            }
        }
    });
}

#[test]
fn an_empty_prefix_is_refused_with_what_to_do() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let error = kvs.delete_prefix(b"").expect_err("is none").to_string();
    assert!(error.contains("prefix of 0 bytes") && error.contains("drop the Kvs"), "{error}");
}

#[test]
fn times_to_live_are_rounded_up_to_seconds() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let is_there = |key: &[u8]| kvs.get(key).expect("readable").is_some();
    kvs.put_for(b"one and a half", b"v", Some(Duration::from_millis(1500))).expect("room");
    kvs.put_for(b"nothing", b"v", Some(Duration::ZERO)).expect("room");
    place.clock.advance(Duration::from_millis(999));
    assert!(is_there(b"nothing"));
    place.clock.advance(Duration::from_millis(1));
    assert!(is_there(b"one and a half") && !is_there(b"nothing"));
    place.clock.advance(Duration::from_secs(1));
    assert!(!is_there(b"one and a half"));
}

#[test]
fn a_write_to_a_dropped_kvs_names_it_in_a_batch_and_in_a_transaction() {
    let place = Place::new();
    let store = place.create();
    let cities = store.create_kvs("cities", KvsOptions::default()).expect("new");
    let mut batch = Batch::new();
    batch.put(&cities, b"key", b"value").expect("valid");
    let mut transaction = store.transaction(TransactionOptions::default()).expect("open");
    transaction.put(&cities, b"key", b"value").expect("valid");
    store.drop_kvs("cities").expect("there");
    let of_batch = store.write(&batch).expect_err("it was dropped").to_string();
    let of_transaction = transaction.commit().expect_err("it was dropped").to_string();
    for told in [of_batch, of_transaction] {
        assert!(told.contains("Kvs 'cities' was dropped"), "{told}");
    }
}

#[test]
fn what_is_left_of_a_closed_store_is_named_by_the_next_opening() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    kvs.put(b"key", b"value").expect("room");
    store.compact().expect("room");
    let snapshot = store.snapshot().expect("open");
    drop(kvs);
    store.close().expect("durable");
    let opened = Kvdb::open(place.directory(), place.options, place.clock.clone());
    let told = opened.expect_err("the snapshot holds its files");
    assert!(matches!(told, StoreError::Held { .. }), "{told:?}");
    assert!(told.to_string().contains("snapshot, cursor or transaction"), "{told}");
    drop(snapshot);
    assert!(place.open().kvs("data").expect("there").get(b"key").expect("readable").is_some());
}
