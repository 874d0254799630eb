//! Transactions: what they see, when they conflict, and that histories of many transactions are
//! correct.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_simulated::disk::{Disk, DiskOptions};
use entresol_store::{
    Batch, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, Sequence, StoreError, Transaction,
    TransactionOptions,
};

use crate::common::{Pair, Place, all, pairs};

fn begin(store: &Kvdb) -> Transaction {
    store.transaction(TransactionOptions::default()).expect("open")
}

fn shown(transaction: &Transaction, kvs: &Kvs, options: CursorOptions) -> Vec<Pair> {
    let mut cursor = transaction.cursor(kvs, options).expect("open");
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().expect("readable") {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

fn pair(key: &str, value: &str) -> Pair {
    (key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

#[test]
fn a_transaction_sees_its_own_writes_over_what_was_when_it_began() {
    let place = Place::new();
    let store = place.create();
    let one = store.create_kvs("one", KvsOptions::default()).expect("new");
    let two = store.create_kvs("two", KvsOptions::default()).expect("new");
    for key in [b"b", b"d", b"f"] {
        one.put(key, b"old").expect("room");
    }
    let mut transaction = begin(&store);
    one.put(b"e", b"later").expect("room");
    transaction.put(&one, b"a", b"new").expect("small");
    transaction.put(&one, b"d", b"new").expect("small");
    transaction.delete(&one, b"b").expect("small");
    transaction.put(&two, b"x", b"new").expect("small");
    let seen =
        [("f", Some("old")), ("d", Some("new")), ("b", None), ("e", None), ("a", Some("new"))];
    let keys = seen.map(|(key, _)| key.as_bytes());
    let values = seen.map(|(_, value)| value.map(|value| value.as_bytes().to_vec()));
    assert_eq!(transaction.multi_get(&one, &keys).expect("readable"), values);
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(transaction.get(&one, key).expect("readable"), value);
    }
    let mut expected = vec![pair("a", "new"), pair("d", "new"), pair("f", "old")];
    assert_eq!(shown(&transaction, &one, CursorOptions::default()), expected);
    let prefix = CursorOptions { prefix: b"d".to_vec(), ..CursorOptions::default() };
    assert_eq!(shown(&transaction, &one, prefix), [pair("d", "new")]);
    let backward = CursorOptions { backward: true, ..CursorOptions::default() };
    expected.reverse();
    assert_eq!(shown(&transaction, &one, backward), expected);
    let mut cursor = transaction.cursor(&one, CursorOptions::default()).expect("open");
    transaction.put(&one, b"c", b"after the cursor").expect("small");
    cursor.seek(b"b");
    assert_eq!(cursor.next().expect("readable"), Some((&b"d"[..], &b"new"[..])));
    assert!(matches!(cursor.update(), Err(StoreError::Options { .. })));
    // Other readers see nothing before the commit.
    assert_eq!(two.get(b"x").expect("readable"), None);
    transaction.commit_durably().expect("nobody wrote these");
    let expected =
        [pair("a", "new"), pair("c", "after the cursor"), pair("d", "new"), pair("e", "later")];
    assert_eq!(all(&one, false)[..4], expected);
    assert_eq!(all(&two, false), [pair("x", "new")]);
    let before = all(&one, false);
    let mut given_up = begin(&store);
    given_up.delete(&one, b"a").expect("small");
    drop(given_up);
    assert_eq!(all(&one, false), before);
    assert_eq!(store.statistics().expect("open").debt.transactions, 0);
}

/// Begins a transaction that writes `k`, runs `other`, and returns true if the commit conflicts.
fn conflicts<T>(store: &Kvdb, kvs: &Kvs, other: impl FnOnce() -> T) -> bool {
    let mut transaction = begin(store);
    transaction.put(kvs, b"k", b"mine").expect("small");
    conflicts_after(transaction, other)
}

/// Runs `other`, and returns true if the transaction's commit then conflicts.
fn conflicts_after<T>(transaction: Transaction, other: impl FnOnce() -> T) -> bool {
    other();
    match transaction.commit() {
        Ok(_) => false,
        Err(StoreError::Conflict) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn whoever_commits_first_wins_whatever_the_other_one_does() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    assert!(!conflicts(&store, &kvs, || ()));
    assert!(!conflicts(&store, &kvs, || kvs.put(b"other", b"theirs").expect("room")));
    assert!(conflicts(&store, &kvs, || kvs.put(b"k", b"theirs").expect("room")));
    assert!(conflicts(&store, &kvs, || kvs.delete(b"k").expect("room")));
    assert!(conflicts(&store, &kvs, || kvs.delete(b"k").expect("gone already")));
    assert!(conflicts(&store, &kvs, || kvs.delete_prefix(b"k").expect("room")));
    assert!(!conflicts(&store, &kvs, || kvs.delete_prefix(b"ka").expect("room")));
    assert!(conflicts(&store, &kvs, || {
        let mut batch = Batch::new();
        batch.put(&kvs, b"k", b"theirs").expect("small");
        store.write(&batch).expect("room");
    }));
    assert!(conflicts(&store, &kvs, || {
        let mut theirs = begin(&store);
        theirs.put(&kvs, b"k", b"theirs").expect("small");
        theirs.commit().expect("first");
    }));
    assert_eq!(kvs.get(b"k").expect("readable"), Some(b"theirs".to_vec()));
}

#[test]
fn a_transaction_removes_all_keys_with_a_prefix() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for key in [b"a1", b"b1", b"b2", b"b3", b"c1"] {
        kvs.put(key, b"old").expect("room");
    }
    store.compact().expect("room");
    kvs.put(b"b4", b"young").expect("room");
    let before = all(&kvs, false);
    let mut transaction = begin(&store);
    transaction.put(&kvs, b"b0", b"put before").expect("small");
    transaction.put(&kvs, b"c2", b"not concerned").expect("small");
    let early = transaction.cursor(&kvs, CursorOptions::default()).expect("open");
    transaction.delete_prefix(&kvs, b"b").expect("small");
    transaction.put(&kvs, b"b2", b"back").expect("small");
    let expected =
        [pair("a1", "old"), pair("b2", "back"), pair("c1", "old"), pair("c2", "not concerned")];
    let values = transaction.multi_get(&kvs, &[b"b0", b"b1", b"b2", b"b3", b"b4"]);
    let back = Some(b"back".to_vec());
    assert_eq!(values.expect("readable"), [None, None, back, None, None]);
    assert_eq!(shown(&transaction, &kvs, CursorOptions::default()), expected);
    let backward = CursorOptions { backward: true, ..CursorOptions::default() };
    let reversed: Vec<Pair> = expected.iter().rev().cloned().collect();
    assert_eq!(shown(&transaction, &kvs, backward), reversed);
    let prefix = CursorOptions { prefix: b"b".to_vec(), ..CursorOptions::default() };
    assert_eq!(shown(&transaction, &kvs, prefix), [pair("b2", "back")]);
    let mut cursor = transaction.cursor(&kvs, CursorOptions::default()).expect("open");
    cursor.seek(b"b3");
    assert_eq!(cursor.next().expect("readable"), Some((&b"c1"[..], &b"old"[..])));
    // A cursor opened before still shows the contents of that time.
    let mut early = early;
    let mut seen = 0;
    while early.next().expect("readable").is_some() {
        seen += 1;
    }
    assert_eq!(seen, 8);
    assert_eq!(all(&kvs, false), before, "nobody else sees anything before the commit");
    transaction.commit_durably().expect("nobody wrote these");
    assert_eq!(all(&kvs, false), expected);
    store.compact().expect("room");
    assert_eq!(all(&kvs, false), expected);
    let mut given_up = begin(&store);
    given_up.delete_prefix(&kvs, b"c").expect("small");
    drop(given_up);
    store.close().expect("durable");
    let store = place.open();
    let kvs = store.kvs("data").expect("there");
    assert_eq!(all(&kvs, false), expected);
    let refused = begin(&store).delete_prefix(&kvs, b"").expect_err("as a plain one");
    assert!(matches!(refused, StoreError::Prefix { bytes: 0, .. }), "{refused}");
}

/// Begins a transaction that deletes the prefix `k`, runs `other`, and returns true if the commit
/// conflicts.
fn conflicts_with_prefix<T>(store: &Kvdb, kvs: &Kvs, other: impl FnOnce() -> T) -> bool {
    let mut transaction = begin(store);
    transaction.delete_prefix(kvs, b"k").expect("small");
    conflicts_after(transaction, other)
}

#[test]
fn who_removes_a_prefix_has_written_each_key_of_it() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let other = store.create_kvs("other", KvsOptions::default()).expect("new");
    let compact = || store.compact().expect("room");
    for round in 0..2 {
        let after = || {
            if round == 1 {
                compact()
            }
        };
        let check = |expected: bool, change: &dyn Fn()| {
            kvs.put(b"k1", b"old").expect("room");
            kvs.put(b"l1", b"old").expect("room");
            after();
            let change = || {
                change();
                after();
            };
            assert_eq!(conflicts_with_prefix(&store, &kvs, change), expected, "round {round}");
        };
        check(false, &|| ());
        check(true, &|| _ = kvs.put(b"k1", b"theirs").expect("room"));
        check(true, &|| _ = kvs.put(b"k2", b"theirs").expect("room"));
        check(true, &|| _ = kvs.put(b"k", b"theirs").expect("room"));
        check(true, &|| _ = kvs.delete(b"k1").expect("room"));
        check(true, &|| _ = kvs.delete(b"k3").expect("was never there"));
        check(true, &|| _ = kvs.delete_prefix(b"k1").expect("room"));
        check(true, &|| _ = kvs.delete_prefix(b"kx").expect("nothing there"));
        check(true, &|| _ = kvs.delete_prefix(b"k").expect("room"));
        check(false, &|| _ = kvs.delete_prefix(b"l").expect("room"));
        check(false, &|| _ = kvs.put(b"j", b"theirs").expect("room"));
        check(false, &|| _ = kvs.put(b"l", b"theirs").expect("room"));
        check(false, &|| _ = other.put(b"k1", b"theirs").expect("room"));
        check(true, &|| {
            let mut batch = Batch::new();
            batch.put(&other, b"k1", b"theirs").expect("small");
            batch.put(&kvs, b"k1", b"theirs").expect("small");
            store.write(&batch).expect("room");
        });
        check(true, &|| {
            let mut theirs = begin(&store);
            theirs.put(&kvs, b"k9", b"theirs").expect("small");
            theirs.commit().expect("first");
        });
        check(true, &|| {
            let mut theirs = begin(&store);
            theirs.delete_prefix(&kvs, b"k1").expect("small");
            theirs.commit().expect("first");
        });
    }
    // The same holds the other way round.
    for (prefix, expected) in [(&b"k"[..], true), (b"ka", false), (b"l", false)] {
        let removed = || {
            let mut theirs = begin(&store);
            theirs.delete_prefix(&kvs, prefix).expect("small");
            theirs.commit().expect("first");
        };
        assert_eq!(conflicts(&store, &kvs, removed), expected);
    }
}

#[test]
fn a_change_is_noticed_when_all_that_tells_of_it_was_flushed_and_compacted() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let compact = || store.compact().expect("room");
    kvs.put(b"k", b"old").expect("room");
    kvs.put(b"l", b"old").expect("room");
    compact();
    assert!(!conflicts(&store, &kvs, compact));
    assert!(conflicts(&store, &kvs, || {
        kvs.delete(b"k").expect("room");
        compact();
        kvs.put(b"l", b"more").expect("room");
        compact();
    }));
    assert!(conflicts(&store, &kvs, || {
        kvs.put(b"k", b"back").expect("room");
        kvs.delete_prefix(b"k").expect("room");
        compact();
        compact();
    }));
    assert!(conflicts(&store, &kvs, || {
        kvs.put_for(b"k", b"short", Some(Duration::from_secs(1))).expect("room");
        compact();
        place.clock.advance(Duration::from_secs(2));
        kvs.put(b"l", b"more").expect("room");
        compact();
    }));
    // Tombstones that no transaction may ask for any more are dropped.
    kvs.put(b"l", b"last").expect("room");
    compact();
    let statistics = store.statistics().expect("open");
    assert_eq!((statistics.kvs[0].versions, statistics.kvs[0].versions_deleted), (1, 0));
    assert_eq!(all(&kvs, false), [pair("l", "last")]);
}

#[test]
fn times_to_live_begin_with_the_commit() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let mut transaction = begin(&store);
    let time = Some(Duration::from_secs(10));
    transaction.put_for(&kvs, b"k", b"value", time).expect("small");
    place.clock.advance(Duration::from_secs(15));
    transaction.commit().expect("no conflict");
    place.clock.advance(Duration::from_secs(8));
    assert_eq!(kvs.get(b"k").expect("readable"), Some(b"value".to_vec()));
    place.clock.advance(Duration::from_secs(3));
    assert_eq!(kvs.get(b"k").expect("readable"), None);
}

#[test]
fn what_was_only_read_may_have_changed() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("on call", KvsOptions::default());
    assert!(matches!(kvs, Err(StoreError::KvsName { .. })));
    let kvs = store.create_kvs("on-call", KvsOptions::default()).expect("new");
    kvs.put(b"alice", b"yes").expect("room");
    kvs.put(b"bob", b"yes").expect("room");
    // Write skew: each leaves because the other one stays.
    let (mut one, mut two) = (begin(&store), begin(&store));
    assert_eq!(one.get(&kvs, b"bob").expect("readable"), Some(b"yes".to_vec()));
    assert_eq!(two.get(&kvs, b"alice").expect("readable"), Some(b"yes".to_vec()));
    one.put(&kvs, b"alice", b"no").expect("small");
    two.put(&kvs, b"bob", b"no").expect("small");
    one.commit().expect("nobody else wrote alice");
    two.commit().expect("nobody else wrote bob");
    assert_eq!(all(&kvs, false), [pair("alice", "no"), pair("bob", "no")]);
    // A transaction that writes what it has read is safe from that.
    let (mut one, mut two) = (begin(&store), begin(&store));
    for (transaction, own, read) in
        [(&mut one, b"alice".as_slice(), b"bob".as_slice()), (&mut two, b"bob", b"alice")]
    {
        let value = transaction.get(&kvs, read).expect("readable").expect("there");
        transaction.put(&kvs, read, &value).expect("small");
        transaction.put(&kvs, own, b"yes").expect("small");
    }
    one.commit().expect("first");
    assert!(matches!(two.commit(), Err(StoreError::Conflict)));
}

#[test]
fn age_memory_and_other_stores_are_limited() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let options = TransactionOptions { age_max: Duration::from_secs(10), bytes_max: 1000 };
    let mut transaction = store.transaction(options).expect("open");
    transaction.put(&kvs, b"k", &[1; 900]).expect("small");
    let error = transaction.put(&kvs, b"l", &[1; 200]).expect_err("too large together");
    assert!(matches!(error, StoreError::Group { most: 1000, .. }), "{error}");
    transaction.put(&kvs, b"k", &[1; 100]).expect("takes the place of the larger one");
    transaction.put(&kvs, b"l", &[1; 200]).expect("fits now");
    let error = transaction.delete_prefix(&kvs, &[b'm'; 700]).expect_err("too large together");
    assert!(matches!(error, StoreError::Group { most: 1000, .. }), "{error}");
    transaction.put(&kvs, b"m1", &[1; 500]).expect("fits");
    transaction.delete_prefix(&kvs, b"m").expect("takes what it removes along");
    transaction.put(&kvs, b"n", &[1; 400]).expect("fits now");
    let other = elsewhere.create();
    let stranger = other.create_kvs("data", KvsOptions::default()).expect("new");
    let error = transaction.put(&stranger, b"k", b"").expect_err("another store's");
    assert!(error.to_string().contains("belongs to another store"), "{error}");
    place.clock.advance(Duration::from_secs(11));
    assert!(matches!(transaction.get(&kvs, b"k"), Err(StoreError::Aged)));
    assert!(matches!(transaction.commit(), Err(StoreError::Aged)));
    assert_eq!(pairs(&kvs, CursorOptions::default()), []);
    let transaction = begin(&store);
    store.close().expect("durable");
    assert!(matches!(transaction.commit(), Err(StoreError::Closed)));
}

#[test]
fn no_increment_is_lost_among_threads() {
    const THREADS: u64 = 4;
    const EACH: u64 = 200;
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    kvs.put(b"sum", &0u64.to_le_bytes()).expect("room");
    let increment = || {
        let mut transaction = begin(&store);
        let value = transaction.get(&kvs, b"sum").expect("readable").expect("there");
        let sum = u64::from_le_bytes(value.try_into().expect("eight bytes")) + 1;
        transaction.put(&kvs, b"sum", &sum.to_le_bytes()).expect("small");
        match transaction.commit() {
            Ok(_) => true,
            Err(StoreError::Conflict) => false,
            Err(error) => panic!("{error}"),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut done = 0;
                while done < EACH {
                    done += u64::from(increment());
                }
            });
        }
    });
    let sum = kvs.get(b"sum").expect("readable").expect("there");
    assert_eq!(sum, (THREADS * EACH).to_le_bytes());
}

/// Index of a `Kvs`, and key in it.
type Key = (usize, u8);
type Value = Option<Vec<u8>>;

/// Reads and writes of a committed transaction.
#[derive(Debug, Clone)]
struct Done {
    at: Sequence,
    /// Sequence number of its last write; `None` if it wrote nothing.
    committed: Option<Sequence>,
    read: Vec<(Key, Value)>,
    wrote: BTreeMap<Key, Value>,
}

/// Checks that a history is one of snapshot isolation.
fn check(history: &[Done]) -> Result<(), String> {
    let mut versions: BTreeMap<Key, BTreeMap<Sequence, Value>> = BTreeMap::new();
    for done in history {
        for (key, value) in &done.wrote {
            let at = done.committed.ok_or("it wrote, and has no number")?;
            versions.entry(*key).or_default().insert(at, value.clone());
        }
    }
    let of = |key: &Key| versions.get(key).into_iter().flatten();
    for done in history {
        for (key, value) in &done.read {
            let newest = of(key).rfind(|(at, _)| **at <= done.at);
            let expected = newest.and_then(|(_, value)| value.clone());
            if *value != expected {
                return Err(format!("{key:?} should have been {expected:?}: {done:?}"));
            }
        }
        for key in done.wrote.keys() {
            let between = |at: &Sequence| *at > done.at && Some(*at) < done.committed;
            if of(key).any(|(at, _)| between(at)) {
                return Err(format!("{key:?} was changed meanwhile: {done:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn the_checker_of_histories_finds_what_is_wrong() {
    let value = |number: u8| Some(vec![number]);
    let done = |at: u64, committed: u64, read: Value, wrote: Value| Done {
        at: Sequence(at),
        committed: Some(Sequence(committed)),
        read: vec![((0, 1), read)],
        wrote: BTreeMap::from([((0, 1), wrote)]),
    };
    let good = [done(0, 1, None, value(1)), done(1, 2, value(1), None), done(2, 3, None, value(2))];
    assert_eq!(check(&good), Ok(()));
    let lost_update = [done(0, 1, None, value(1)), done(0, 2, None, value(2))];
    assert!(check(&lost_update).is_err());
    let stale = [done(0, 1, None, value(1)), done(1, 2, None, value(2))];
    assert!(check(&stale).is_err());
}

const SEEDS: u64 = 30;
/// Number of keys in each `Kvs`.
const KEYS: u8 = 4;

/// Runs threads with transactions on a few keys, with flushes and compactions, in a simulated
/// world.
fn history_of(seed: u64) -> (Vec<Done>, u64) {
    let options = WorldOptions { preemption: Preemption::OneIn(20), ..WorldOptions::seeded(seed) };
    let world = World::new(options);
    let within = world.clone();
    let ran = world.run(move || {
        let disk = Disk::new(&within, DiskOptions::default()).expect("a disk");
        let options = KvdbOptions {
            segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
            generation_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
            ..KvdbOptions::default()
        };
        let clock = Arc::new(within.clone());
        let store = Arc::new(Kvdb::create(disk.root(), options, clock).expect("a store"));
        let kvs =
            ["one", "two"].map(|name| store.create_kvs(name, KvsOptions::default()).expect("new"));
        let history = Arc::new(Mutex::new((Vec::new(), 0)));
        let threads = (0..4u8).map(|number| {
            let (store, kvs, history) = (store.clone(), kvs.clone(), history.clone());
            let mut rng = Rng::named(seed, &format!("thread {number}"));
            thread::spawn("transactions", move || {
                for round in 0..12 {
                    let done = transact(&store, &kvs, &mut rng, [number, round]);
                    let mut history = history.lock().expect("no panic");
                    match done {
                        Some(done) => history.0.push(done),
                        None => history.1 += 1,
                    }
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in 0..3 {
            store.compact().expect("room");
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let history = history.lock().expect("no panic");
        (history.0.clone(), history.1)
    });
    ran.expect("the world comes to its end")
}

/// Returns keys with two different prefixes.
fn name(key: u8) -> [u8; 2] {
    [b'a' + key / 2, key]
}

/// Runs a transaction that reads some keys and writes some. Returns `None` if it conflicts.
fn transact(store: &Kvdb, kvs: &[Kvs; 2], rng: &mut Rng, of: [u8; 2]) -> Option<Done> {
    let mut transaction = begin(store);
    let any = |rng: &mut Rng| (rng.below(2) as usize, rng.below(KEYS.into()) as u8);
    let mut read = Vec::new();
    for _ in 0..2 {
        let key = any(rng);
        read.push((key, transaction.get(&kvs[key.0], &name(key.1)).expect("readable")));
        thread::yield_now();
    }
    let mut wrote = BTreeMap::new();
    let mut seen: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = kvs
        .iter()
        .map(|kvs| shown(&transaction, kvs, CursorOptions::default()).into_iter().collect())
        .collect();
    for part in 0..rng.below(3) as u8 {
        let key = any(rng);
        let (of_kvs, own) = (&kvs[key.0], name(key.1));
        match rng.below(6) {
            0 => {
                transaction.delete(of_kvs, &own).expect("small");
                wrote.insert(key, None);
                seen[key.0].remove(&own[..]);
            }
            1 => {
                transaction.delete_prefix(of_kvs, &own[..1]).expect("small");
                let of_prefix = (0..KEYS).filter(|other| name(*other)[0] == own[0]);
                wrote.extend(of_prefix.map(|other| ((key.0, other), None)));
                seen[key.0].retain(|other, _| other[0] != own[0]);
            }
            _ => {
                let mut value = vec![7; rng.below(600) as usize];
                value.extend([of[0], of[1], part]);
                transaction.put(of_kvs, &own, &value).expect("small");
                seen[key.0].insert(own.to_vec(), value.clone());
                wrote.insert(key, Some(value));
            }
        }
    }
    for (kvs, seen) in kvs.iter().zip(seen) {
        let mut pairs: Vec<Pair> = seen.into_iter().collect();
        assert_eq!(shown(&transaction, kvs, CursorOptions::default()), pairs);
        let backward = CursorOptions { backward: true, ..CursorOptions::default() };
        pairs.reverse();
        assert_eq!(shown(&transaction, kvs, backward), pairs);
    }
    let at = transaction.sequence();
    match transaction.commit() {
        Ok(last) => {
            let committed = (!wrote.is_empty()).then_some(last);
            Some(Done { at, committed, read, wrote })
        }
        Err(StoreError::Conflict) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn histories_of_many_threads_are_those_of_snapshot_isolation() {
    let (mut committed, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let (history, conflicts) = history_of(seed);
        check(&history).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        committed += history.len();
        refused += conflicts;
    }
    assert!(committed > 800 && refused > 50, "{committed} committed, {refused} refused");
}
