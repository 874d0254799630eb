//! The row cache beneath a store: it is faster, and otherwise not noticeable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::common::Place;
use entresol_store::{Batch, Kvs, KvsOptions, TransactionOptions};

const GROUPS: u64 = 4;
/// Group that is written before the readers start, and never again. It is certain to be hit,
/// however seldom the writers and the compaction get their turn.
const QUIET: u64 = 3;
/// Number of its write. Its values are so short that the smallest cache takes them.
const QUIET_NUMBER: u64 = 900;
const KEYS: u64 = 16;

/// Effect of a write with this number on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Value,
    Gone,
    RangeDelete,
}

fn to(number: u64) -> To {
    match number % 13 {
        5 => To::Gone,
        11 => To::RangeDelete,
        _ => To::Value,
    }
}

fn name(group: u64, key: u64) -> Vec<u8> {
    format!("{group}/{key}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; 8 + (number * 37 % 900) as usize];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Number of a group's last write that has begun, and of its last one that is acknowledged.
#[derive(Default)]
struct Group {
    begun: AtomicU64,
    done: AtomicU64,
}

/// Writes all keys of a group with each number in turn, as the group's only writer.
fn write(kvs: &Kvs, group: u64, numbers: &Group, is_over: &AtomicBool) {
    for number in 1.. {
        if is_over.load(SeqCst) {
            return;
        }
        numbers.begun.store(number, SeqCst);
        if to(number) == To::RangeDelete {
            kvs.delete_prefix(format!("{group}/").as_bytes()).expect("room");
        } else {
            for key in 0..KEYS {
                match to(number) {
                    To::Value => kvs.put(&name(group, key), &value(number)),
                    _ => kvs.delete(&name(group, key)),
                }
                .expect("room");
            }
        }
        numbers.done.store(number, SeqCst);
    }
}

/// Reads random keys: never a value that was overwritten before, never an older one than seen
/// before.
fn read(kvs: &Kvs, groups: &[Group], mut random: u64, is_over: &AtomicBool) -> u64 {
    let mut seen = [[0; KEYS as usize]; GROUPS as usize];
    let mut reads = 0;
    while !is_over.load(SeqCst) {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let (group, key) = ((random >> 33) % GROUPS, (random >> 50) % KEYS);
        let numbers = &groups[group as usize];
        let last = &mut seen[group as usize][key as usize];
        let least = numbers.done.load(SeqCst).max(*last);
        let found = kvs.get(&name(group, key)).expect("readable");
        let most = numbers.begun.load(SeqCst);
        reads += 1;
        match found {
            Some(found) => {
                let number = u64::from_le_bytes(*found.first_chunk().expect("a number"));
                assert_eq!(found, value(number));
                assert!((least..=most).contains(&number), "{number} of {least} to {most}");
                *last = number;
            }
            None => {
                let can_be = |number: &u64| *number == 0 || to(*number) != To::Value;
                let first = (least..=most).find(can_be);
                *last = first.unwrap_or_else(|| panic!("gone between {least} and {most}"));
            }
        }
    }
    reads
}

#[test]
fn readers_never_see_what_was_overwritten_or_removed() {
    for row_cache_bytes in [128 << 10, 32 << 20] {
        let mut place = Place::new();
        place.options.row_cache_bytes = row_cache_bytes;
        let store = place.create();
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let groups: [Group; GROUPS as usize] = Default::default();
        for key in 0..KEYS {
            kvs.put(&name(QUIET, key), &value(QUIET_NUMBER)).expect("room");
        }
        groups[QUIET as usize].begun.store(QUIET_NUMBER, SeqCst);
        groups[QUIET as usize].done.store(QUIET_NUMBER, SeqCst);
        store.compact().expect("room");
        let is_over = AtomicBool::new(false);
        let reads: u64 = std::thread::scope(|scope| {
            for (group, numbers) in (0..QUIET).zip(&groups) {
                let (kvs, is_over) = (&kvs, &is_over);
                scope.spawn(move || write(kvs, group, numbers, is_over));
            }
            let readers: Vec<_> = (1..=3)
                .map(|seed| {
                    let (kvs, groups, is_over) = (&kvs, &groups, &is_over);
                    scope.spawn(move || read(kvs, groups, seed, is_over))
                })
                .collect();
            std::thread::sleep(Duration::from_secs(2));
            is_over.store(true, SeqCst);
            readers.into_iter().map(|reader| reader.join().expect("no panic")).sum()
        });
        let entries = store.statistics().expect("open").row_cache;
        assert!(reads > 1_000 && entries.hits > 0, "{reads} reads, {entries:?}");
    }
}

#[test]
fn hot_keys_are_found_by_one_look_whatever_is_flushed() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..500_u64 {
        kvs.put(&number.to_be_bytes(), &value(number)).expect("room");
    }
    store.compact().expect("room");
    let read = |kvs: &Kvs| {
        for number in 0..500_u64 {
            assert_eq!(kvs.get(&number.to_be_bytes()).expect("readable"), Some(value(number)));
        }
    };
    (0..3).for_each(|_| read(&kvs));
    let entries = store.statistics().expect("open").row_cache;
    assert!((1490..=1500).contains(&entries.hits), "{entries:?}");
    store.close().expect("durable");
    let store = place.open();
    let kvs = store.kvs("data").expect("there");
    read(&kvs);
    let first = store.statistics().expect("open").media[0].read;
    read(&kvs);
    let again = store.statistics().expect("open").media[0].read;
    assert!(first.value_bytes > 0 && again == first, "{again:?}");
}

#[test]
fn snapshots_transactions_and_batches_see_past_it() {
    let store_of = Place::new();
    let store = store_of.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    kvs.put(b"a", b"1").expect("room");
    let old = store.snapshot().expect("open");
    assert_eq!(kvs.get(b"a").expect("readable"), Some(b"1".to_vec()));
    let transaction = store.transaction(TransactionOptions::default()).expect("open");
    kvs.put(b"a", b"2").expect("room");
    assert_eq!(kvs.get(b"a").expect("readable"), Some(b"2".to_vec()));
    assert_eq!(kvs.get_at(&old, b"a").expect("readable"), Some(b"1".to_vec()));
    assert_eq!(transaction.get(&kvs, b"a").expect("readable"), Some(b"1".to_vec()));
    drop(transaction);
    let mut batch = Batch::new();
    batch.put(&kvs, b"a", b"3").expect("fits").put(&kvs, b"b", b"3").expect("fits");
    store.write(&batch).expect("room");
    assert_eq!(kvs.get(b"a").expect("readable"), Some(b"3".to_vec()));
    let mut transaction = store.transaction(TransactionOptions::default()).expect("open");
    transaction.put(&kvs, b"a", b"4").expect("young");
    transaction.commit().expect("nobody else");
    assert_eq!(kvs.get(b"a").expect("readable"), Some(b"4".to_vec()));
    let (_, token) = kvs.get_with_token(b"a").expect("readable").expect("there");
    kvs.compare_and_set(b"a", Some(token), b"5").expect("nobody else");
    assert_eq!(kvs.get(b"a").expect("readable"), Some(b"5".to_vec()));
    let mut batch = Batch::new();
    batch.delete_prefix(&kvs, b"a").expect("fits").put(&kvs, b"ab", b"6").expect("fits");
    store.write(&batch).expect("room");
    assert_eq!(kvs.get(b"a").expect("readable"), None);
    assert_eq!(kvs.get(b"ab").expect("readable"), Some(b"6".to_vec()));
    assert_eq!(kvs.get(b"b").expect("readable"), Some(b"3".to_vec()));
    assert_eq!(kvs.get_at(&old, b"a").expect("readable"), Some(b"1".to_vec()));
}

#[test]
fn what_is_cached_ends_in_its_time() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let time = Some(Duration::from_secs(10));
    kvs.put_for(b"a", b"1", time).expect("room");
    for _ in 0..2 {
        assert_eq!(kvs.get(b"a").expect("readable"), Some(b"1".to_vec()));
    }
    kvs.put_for(b"a", b"2", time).expect("room");
    let snapshot = store.snapshot().expect("open");
    place.clock.advance(Duration::from_secs(9));
    assert_eq!(kvs.get(b"a").expect("readable"), Some(b"2".to_vec()));
    place.clock.advance(Duration::from_secs(1));
    assert_eq!(kvs.get(b"a").expect("readable"), None);
    // It had not ended when the snapshot was taken.
    assert_eq!(kvs.get_at(&snapshot, b"a").expect("readable"), Some(b"2".to_vec()));
    assert_eq!(store.statistics().expect("open").row_cache.misses, 0);
}
