//! Values that leave the faster class when room is needed there, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::World;
use entresol_simulated::disk::{Disk, DiskOptions};
use entresol_store::{Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, MediumStatistics, Volume};

use crate::common::in_world;

const KIB: u64 = 1 << 10;
const STAGING_BYTES: u64 = 8 << 20;
const RESERVE_BYTES: u64 = 64 * KIB;
const SEGMENT_BYTES: u64 = 64 * KIB;
const VALUE_BYTES: usize = 1000;
/// Templates that let old values lie on capacity.
const POLICIES: [&str; 2] = ["staging-max-capacity", "staging-min-capacity"];

/// Creates a store with a staging volume with a quota and a capacity volume, and a `Kvs` in it.
fn create(world: &World, policy: &str) -> (Kvdb, Kvs) {
    let volume = |class, bytes_max| {
        let disk = Disk::new(world, DiskOptions::default()).expect("a disk");
        Volume { class, directory: disk.root(), bytes_max }
    };
    let volumes =
        [volume(MediaClass::Staging, Some(STAGING_BYTES)), volume(MediaClass::Capacity, None)];
    let options = KvdbOptions {
        segment_bytes: SEGMENT_BYTES,
        generation_bytes: 2 * SEGMENT_BYTES,
        memory_bytes: 4 << 20,
        row_cache_bytes: 0,
        reserve_bytes: RESERVE_BYTES,
        ..KvdbOptions::default()
    };
    let store = Kvdb::create_on(&volumes, options, Arc::new(world.clone())).expect("is made");
    let options = KvsOptions { policy: policy.parse().expect("a policy"), ..KvsOptions::default() };
    let kvs = store.create_kvs("data", options).expect("is made");
    (store, kvs)
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

fn put(kvs: &Kvs, numbers: std::ops::Range<u32>, round: u8) {
    for number in numbers {
        kvs.put(&key(number), &[round; VALUE_BYTES]).expect("is put");
    }
}

fn expect(kvs: &Kvs, numbers: std::ops::Range<u32>, round: u8) {
    for number in numbers {
        let found = kvs.get(&key(number)).expect("is read");
        assert!(found == Some(vec![round; VALUE_BYTES]), "key {number}");
    }
}

fn of_class(store: &Kvdb, class: MediaClass) -> MediumStatistics {
    let media = store.statistics().expect("open").media;
    media.into_iter().find(|medium| medium.class == class).expect("has the class")
}

/// Lets background work go on for a while.
fn settle(world: &World) {
    let begun = world.now();
    thread::sleep(Duration::from_secs(2));
    assert!(world.now() > begun, "time is virtual");
}

/// Returns the free share of staging, without the reserve.
fn free_share(store: &Kvdb) -> f64 {
    let free = of_class(store, MediaClass::Staging).space.free_bytes.expect("it has a quota");
    free.saturating_sub(RESERVE_BYTES) as f64 / (STAGING_BYTES - RESERVE_BYTES) as f64
}

#[test]
fn values_stay_on_staging_while_it_has_room() {
    for policy in POLICIES {
        in_world(move |world, _| {
            let (store, kvs) = create(&world, policy);
            put(&kvs, 0..3_000, 1);
            store.compact().expect("compacts");
            settle(&world);
            let capacity = of_class(&store, MediaClass::Capacity);
            assert_eq!(capacity.written.sum(), 0, "{policy}: {:?}", capacity.written);
            // What is collected of mostly dead segments stays as well.
            put(&kvs, 500..3_000, 2);
            store.compact().expect("compacts");
            settle(&world);
            let capacity = of_class(&store, MediaClass::Capacity);
            assert_eq!(capacity.written.sum(), 0, "{policy}: {:?}", capacity.written);
            expect(&kvs, 0..500, 1);
            expect(&kvs, 500..3_000, 2);
            assert_eq!(of_class(&store, MediaClass::Capacity).read.value_bytes, 0);
        });
    }
}

#[test]
fn the_oldest_values_leave_staging_above_the_mark_until_the_lower_one() {
    for policy in POLICIES {
        in_world(move |world, _| {
            let (store, kvs) = create(&world, policy);
            let demoted = || of_class(&store, MediaClass::Capacity).written.demoted_bytes;
            let (mut next, mut before) = (0, 1.0);
            while demoted() == 0 {
                before = free_share(&store);
                put(&kvs, next..next + 50, 1);
                next += 50;
                settle(&world);
            }
            let step = (4 * SEGMENT_BYTES) as f64 / STAGING_BYTES as f64;
            assert!((0.2..0.2 + step).contains(&before), "{policy}: {before} was free");
            let after = free_share(&store);
            assert!((0.3..0.3 + step).contains(&after), "{policy}: {after} is free");
            let capacity = of_class(&store, MediaClass::Capacity);
            assert_eq!(capacity.written.sum(), demoted(), "{policy}: {:?}", capacity.written);
            // The oldest are below, the others are not, and nothing comes back.
            let from_capacity = |numbers: std::ops::Range<u32>| {
                let read = || of_class(&store, MediaClass::Capacity).read.value_bytes;
                let before = read();
                expect(&kvs, numbers, 1);
                read() - before
            };
            let gone = (demoted() / (VALUE_BYTES as u64 + 100)) as u32;
            assert!(from_capacity(0..gone / 2) >= u64::from(gone / 2) * VALUE_BYTES as u64);
            assert_eq!(from_capacity(gone * 2..next), 0, "{policy}");
            let before = demoted();
            store.compact().expect("compacts");
            settle(&world);
            let staging = of_class(&store, MediaClass::Staging);
            assert_eq!((demoted(), staging.written.promoted_bytes), (before, 0), "{policy}");
        });
    }
}

#[test]
fn no_write_is_refused_for_lack_of_room_on_staging() {
    for policy in POLICIES {
        in_world(move |world, _| {
            let (store, kvs) = create(&world, policy);
            put(&kvs, 0..20_000, 1);
            store.compact().expect("compacts");
            settle(&world);
            assert!(free_share(&store) >= 0.2, "{policy}: {} is free", free_share(&store));
            let capacity = of_class(&store, MediaClass::Capacity).space;
            assert!(capacity.value_live_bytes > 10_000 * VALUE_BYTES as u64, "{capacity:?}");
            expect(&kvs, 0..20_000, 1);
        });
    }
}
