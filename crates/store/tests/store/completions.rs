//! The interface for event loops: immediate answers from memory, and completions for the rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::World;
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};
use entresol_store::{
    Attempt, Batch, Completion, CompletionOptions, Completions, Kvdb, KvdbOptions, Kvs, KvsOptions,
    Outcome, StoreError,
};

use crate::common::in_world;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: 64 << 10,
        generation_bytes: 256 << 10,
        row_cache_bytes: 0,
        ..KvdbOptions::default()
    }
}

fn create(world: &World, disk: &Disk) -> (Kvdb, Kvs) {
    let store = Kvdb::create(disk.root(), options(), Arc::new(world.clone())).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    (store, kvs)
}

fn one(kvs: &Kvs, key: u32, value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(kvs, &key.to_be_bytes(), value).expect("fits");
    batch
}

fn wait(completions: &Completions, many: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < many {
        thread::sleep(Duration::from_micros(50));
        done.extend(completions.take());
    }
    done
}

fn value(completion: Completion) -> Option<Vec<u8>> {
    match completion.outcome {
        Outcome::Value(value) => value.expect("readable"),
        Outcome::Written(_) => panic!("{} is no read", completion.token),
    }
}

#[test]
fn what_is_in_memory_is_ready_and_what_is_on_a_disk_is_told_once_it_was_read() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        for key in 0..200_u32 {
            kvs.put(&key.to_be_bytes(), &[key as u8; 1000]).expect("room");
        }
        store.compact().expect("room");
        kvs.put(&1000_u32.to_be_bytes(), b"young").expect("room");
        kvs.delete(&7_u32.to_be_bytes()).expect("room");
        let woken = Arc::new(AtomicU64::new(0));
        let wakes = Arc::clone(&woken);
        let wake = move || {
            wakes.fetch_add(1, Ordering::Relaxed);
        };
        let completions = store.completions(CompletionOptions::default(), wake).expect("open");
        let get = |key: u32| completions.get(&kvs, &key.to_be_bytes(), key.into()).expect("open");
        assert_eq!(get(1000), Attempt::Ready(Some(b"young".to_vec())));
        assert_eq!(get(7), Attempt::Ready(None));
        assert_eq!(woken.load(Ordering::Relaxed), 0);
        let pending: Vec<u32> = (0..200).filter(|key| *key != 7).chain([5000]).collect();
        for key in &pending {
            assert_eq!(get(*key), Attempt::Pending, "{key}");
        }
        let done = wait(&completions, pending.len());
        assert!(woken.load(Ordering::Relaxed) > 0);
        let found: BTreeMap<u64, _> = done.into_iter().map(|it| (it.token, value(it))).collect();
        for key in pending {
            let expected = (key < 200).then(|| vec![key as u8; 1000]);
            assert_eq!(found[&u64::from(key)], expected, "{key}");
        }
        assert_eq!(completions.pending(), 0);
    });
}

#[test]
fn writes_count_in_the_order_in_which_they_were_given_and_share_syncs() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        let completions = store.completions(CompletionOptions::default(), || ()).expect("open");
        let first = completions.write(one(&kvs, 1, b"first"), 0).expect("open");
        assert!(matches!(first, Attempt::Ready(_)), "{first:?}");
        let syncs = store.statistics().expect("open").stalls.sync.count;
        for token in 0..100 {
            let batch = one(&kvs, 1, &u64::to_be_bytes(token));
            // A write that need not be durable does not overtake writes that must be.
            let written = match token % 2 {
                0 => completions.write_durably(batch, token),
                _ => completions.write(batch, token),
            };
            assert_eq!(written.expect("open"), Attempt::Pending, "{token}");
        }
        let done = wait(&completions, 100);
        let numbers: Vec<_> = done
            .iter()
            .map(|it| match &it.outcome {
                Outcome::Written(Ok(number)) => (it.token, *number),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(numbers.iter().map(|it| it.0).eq(0..100), "{numbers:?}");
        assert!(numbers.windows(2).all(|two| two[0].1 < two[1].1), "{numbers:?}");
        let newest = kvs.get(&1_u32.to_be_bytes()).expect("readable");
        assert_eq!(newest, Some(u64::to_be_bytes(99).to_vec()));
        let syncs = store.statistics().expect("open").stalls.sync.count - syncs;
        assert!((1..20).contains(&syncs), "{syncs} syncs for 50 durable writes");
    });
}

#[test]
fn a_durable_write_is_there_after_a_power_cut() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        store.sync().expect("a disk");
        let completions = store.completions(CompletionOptions::default(), || ()).expect("open");
        completions.write_durably(one(&kvs, 1, b"durable"), 0).expect("open");
        wait(&completions, 1);
        let mut rng = entresol_base::rng::Rng::named(3, "images");
        for _ in 0..20 {
            let image = disk.random_image(&mut rng);
            let store =
                Kvdb::open(image.root(), options(), Arc::new(world.clone())).expect("whole");
            let kvs = store.kvs("data").expect("there");
            let found = kvs.get(&1_u32.to_be_bytes()).expect("readable");
            assert_eq!(found.as_deref(), Some(&b"durable"[..]));
        }
    });
}

#[test]
fn a_sync_that_fails_is_told_to_whoever_waited_for_it() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        let completions = store.completions(CompletionOptions::default(), || ()).expect("open");
        disk.inject(FaultPlan::one(Fault {
            calls: Calls::of(&[Call::Sync]),
            nth: 1,
            repeat: Repeat::EverAfter,
            effect: Effect::Fail(Failure::Io),
        }));
        for token in 0..3 {
            completions.write_durably(one(&kvs, 1, b"lost"), token).expect("open");
        }
        for completion in wait(&completions, 3) {
            let failed = matches!(completion.outcome, Outcome::Written(Err(_)));
            assert!(failed, "{completion:?}");
        }
        drop(completions);
        drop(store);
    });
}

#[test]
fn no_more_is_pending_than_was_agreed_and_nothing_is_lost() {
    in_world(|world, disk| {
        let (store, kvs) = create(&world, &disk);
        for key in 0..50_u32 {
            kvs.put(&key.to_be_bytes(), &[1; 1000]).expect("room");
        }
        store.compact().expect("room");
        let options =
            CompletionOptions { readers: 2, pending_max: 10, ..CompletionOptions::default() };
        let completions = store.completions(options, || ()).expect("open");
        let (mut asked, mut refused, mut done) = (0, 0, Vec::new());
        while asked < 50 {
            match completions.get(&kvs, &u32::to_be_bytes(asked), asked.into()) {
                Ok(attempt) => {
                    assert_eq!(attempt, Attempt::Pending);
                    asked += 1;
                }
                Err(StoreError::TooMuchPending { pending: 10, .. }) => {
                    refused += 1;
                    thread::sleep(Duration::from_micros(100));
                    done.extend(completions.take());
                }
                Err(error) => panic!("{error}"),
            }
        }
        done.extend(wait(&completions, 50 - done.len()));
        assert!(refused > 0 && done.into_iter().all(|it| value(it).is_some()));
        // A batch larger than the bound on pending bytes is accepted if nothing else is pending.
        let options = CompletionOptions { pending_bytes_max: 100, ..options };
        let completions = store.completions(options, || ()).expect("open");
        completions.write_durably(one(&kvs, 1, &[2; 1000]), 0).expect("alone");
        let second = completions.write_durably(one(&kvs, 1, &[3; 1000]), 1);
        assert!(matches!(second, Err(StoreError::TooMuchPending { .. })), "{second:?}");
        wait(&completions, 1);
        let other = Kvdb::create(
            Disk::new(&world, DiskOptions::default()).expect("a disk").root(),
            self::options(),
            Arc::new(world.clone()),
        )
        .expect("a store");
        let foreign = other.create_kvs("data", KvsOptions::default()).expect("new");
        let refused = completions.get(&foreign, b"key", 0).expect_err("another store's");
        assert!(refused.to_string().contains("another store"), "{refused}");
    });
}

#[test]
fn closing_and_dropping_in_the_midst_of_it_answers_or_forgets_and_never_hangs() {
    for seed in 0..20 {
        let scratch = tempfile::tempdir().expect("a directory");
        let store = Kvdb::create_at(&scratch.path().join("store"), options()).expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let completions = store.completions(CompletionOptions::default(), || ()).expect("open");
        for token in 0..100 {
            completions.write_durably(one(&kvs, token as u32, b"value"), token).expect("open");
        }
        if seed % 2 == 0 {
            store.close().expect("durable");
            let done = wait(&completions, 100);
            assert!(done.iter().all(|it| match &it.outcome {
                Outcome::Written(result) => matches!(result, Ok(_) | Err(StoreError::Closed)),
                Outcome::Value(_) => false,
            }));
            let refused = completions.get(&kvs, b"key", 0);
            assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
        } else {
            drop(completions);
            store.close().expect("durable");
        }
    }
}
