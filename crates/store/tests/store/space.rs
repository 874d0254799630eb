//! Space that comes back: a store that was filled to the last byte can be emptied, and filled
//! again.

use std::collections::BTreeSet;
use std::sync::Arc;

use entresol_base::rng::Rng;
use entresol_base::world::World;
use entresol_base::{Nanos, SystemClock};
use entresol_media::{LocalDirectory, ModelName};
use entresol_simulated::disk::{Disk, DiskOptions, FaultPlan};
use entresol_store::{Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, Snapshot, Volume};

use crate::common::{in_seeded_world, in_world};

const CAPACITY: u64 = 16 << 20;
const CYCLES: u32 = 4;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: 256 << 10,
        generation_bytes: 512 << 10,
        memory_bytes: 2 << 20,
        reserve_bytes: 768 << 10,
        ..KvdbOptions::default()
    }
}

/// A way to fill a store and to delete from it.
#[derive(Debug, Clone, Copy)]
struct Way {
    value_bytes: usize,
    /// True if keys are deleted by prefixes of a hundred keys each.
    by_prefix: bool,
    /// True if a snapshot is held while keys are deleted, and let go before the second compaction.
    with_snapshot: bool,
    /// True if the store also has a small volume of the class staging.
    with_classes: bool,
}

const PLAIN: Way =
    Way { value_bytes: 1000, by_prefix: false, with_snapshot: false, with_classes: false };

fn create(world: &World, disk: &Disk, way: Way) -> Kvdb {
    let clock = Arc::new(world.clone());
    let place = |class, disk: &Disk, bytes_max| Volume { class, directory: disk.root(), bytes_max };
    if !way.with_classes {
        return Kvdb::create(disk.root(), options(), clock).expect("a store");
    }
    let staging = Disk::new(world, DiskOptions::default()).expect("a disk");
    staging.inject(FaultPlan { capacity: Some(4 << 20), ..FaultPlan::default() });
    let volumes =
        [place(MediaClass::Staging, &staging, None), place(MediaClass::Capacity, disk, None)];
    Kvdb::create_on(&volumes, options(), clock).expect("a store")
}

fn key(number: u64) -> Vec<u8> {
    format!("{:08x}", number as u32).into_bytes()
}

/// Puts keys until there is no room. Returns the bytes put.
fn fill(kvs: &Kvs, way: Way, rng: &mut Rng, there: &mut BTreeSet<u64>) -> u64 {
    let mut bytes = 0;
    loop {
        let number = match way.by_prefix {
            true => there.last().map_or(0, |last| last + 1),
            false => rng.next_u64() >> 32,
        };
        let value = vec![number as u8; way.value_bytes];
        match kvs.put(&key(number), &value) {
            Ok(_) => drop(there.insert(number)),
            Err(error) if error.is_no_room() => return bytes,
            Err(error) => panic!("{error}"),
        }
        bytes += way.value_bytes as u64;
    }
}

/// Deletes about half of the keys. Returns the bytes deleted.
fn delete_half(kvs: &Kvs, way: Way, rng: &mut Rng, there: &mut BTreeSet<u64>) -> u64 {
    let before = there.len();
    if way.by_prefix {
        let prefixes: BTreeSet<u64> = there.iter().map(|number| number >> 8).collect();
        for prefix in prefixes.into_iter().filter(|_| rng.next_u64().is_multiple_of(2)) {
            kvs.delete_prefix(&key(prefix << 8)[..6]).expect("the reserve is there for this");
            there.retain(|number| number >> 8 != prefix);
        }
    } else {
        for number in there.clone().into_iter().filter(|_| rng.next_u64().is_multiple_of(2)) {
            kvs.delete(&key(number)).expect("the reserve is there for this");
            there.remove(&number);
        }
    }
    (before - there.len()) as u64 * way.value_bytes as u64
}

/// Fills a store and deletes half of it, again and again. What was deleted can be written again.
fn cycles(way: Way) {
    in_world(move |world, disk| {
        let store = create(&world, &disk, way);
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("a Kvs");
        disk.inject(FaultPlan { capacity: Some(CAPACITY), ..FaultPlan::default() });
        let (mut rng, mut there) = (world.rng("keys"), BTreeSet::new());
        let filled = fill(&kvs, way, &mut rng, &mut there);
        assert!(filled > CAPACITY / 4, "only {filled} bytes found room: {way:?}");
        for cycle in 0..CYCLES {
            let snapshot: Option<Snapshot> =
                way.with_snapshot.then(|| store.snapshot().expect("open"));
            let deleted = delete_half(&kvs, way, &mut rng, &mut there);
            if snapshot.is_some() {
                // It may find no room, and must leave some to what comes later.
                let _ = store.compact();
                drop(snapshot);
            }
            store.compact().unwrap_or_else(|error| panic!("cycle {cycle} of {way:?}: {error}"));
            let again = fill(&kvs, way, &mut rng, &mut there);
            assert!(
                again * 10 >= deleted * 9,
                "cycle {cycle} of {way:?}: {deleted} bytes were deleted, and {again} find room"
            );
        }
        for &number in &there {
            let value = kvs.get(&key(number)).expect("readable");
            assert_eq!(value, Some(vec![number as u8; way.value_bytes]));
        }
        store.close().expect("durable");
    });
}

#[test]
fn a_full_store_can_be_emptied_and_filled_again() {
    cycles(PLAIN);
}

#[test]
fn a_full_store_with_values_beside_their_keys_can_be_emptied() {
    cycles(Way { value_bytes: 200, ..PLAIN });
}

#[test]
fn a_full_store_with_large_values_can_be_emptied() {
    cycles(Way { value_bytes: 150_000, ..PLAIN });
}

#[test]
fn a_full_store_can_be_emptied_by_prefixes() {
    cycles(Way { by_prefix: true, ..PLAIN });
}

#[test]
fn a_full_store_can_be_emptied_once_a_snapshot_is_let_go() {
    cycles(Way { with_snapshot: true, ..PLAIN });
}

#[test]
fn a_full_store_of_two_classes_can_be_emptied() {
    cycles(Way { with_classes: true, ..PLAIN });
}

/// Returns the bytes dead in the segments of a store, and those held.
fn dead_of(store: &Kvdb) -> (u64, u64) {
    let space = store.statistics().expect("open").media[0].space;
    (space.value_dead_bytes, space.value_bytes)
}

#[test]
fn one_compaction_leaves_next_to_nothing_dead() {
    in_world(|world, disk| {
        // Of smaller segments, the header alone is a part that matters.
        let options =
            KvdbOptions { segment_bytes: 1 << 20, generation_bytes: 2 << 20, ..options() };
        let store = Kvdb::create(disk.root(), options, Arc::new(world.clone())).expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("a Kvs");
        let (mut rng, mut there) = (world.rng("keys"), BTreeSet::new());
        for number in 0..10_000 {
            kvs.put(&key(number), &[number as u8; 1000]).expect("room");
            there.insert(number);
        }
        store.compact().expect("room");
        delete_half(&kvs, PLAIN, &mut rng, &mut there);
        store.compact().expect("room");
        let (dead, held) = dead_of(&store);
        assert!(dead * 50 < held, "{dead} of {held} bytes are dead");
        // A tenth is less than what background work would collect.
        let tenth: Vec<u64> = there.iter().copied().step_by(10).collect();
        tenth.iter().for_each(|number| assert!(kvs.delete(&key(*number)).is_ok()));
        store.compact().expect("room");
        let (dead, held) = dead_of(&store);
        assert!(dead * 50 < held, "{dead} of {held} bytes are dead");
    });
}

/// Cycles with default options on the file system of temporary files, at the size of a small
/// volume.
#[test]
#[ignore = "run by .ci/slow: slow tests; it writes some 20 GiB"]
fn slow_a_full_store_on_a_real_file_system_can_be_emptied() {
    const BYTES: u64 = 2 << 30;
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = LocalDirectory::open(&scratch.path().join("store")).expect("a directory");
    let volume = Volume {
        class: MediaClass::Capacity,
        directory: Arc::new(directory),
        bytes_max: Some(BYTES),
    };
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::create_on(&[volume], KvdbOptions::default(), clock).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("a Kvs");
    let (mut rng, mut there) = (Rng::named(1, "keys"), BTreeSet::new());
    let filled = fill(&kvs, PLAIN, &mut rng, &mut there);
    println!("{} MiB at first", filled >> 20);
    for cycle in 0..10 {
        let deleted = delete_half(&kvs, PLAIN, &mut rng, &mut there);
        store.compact().unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
        let again = fill(&kvs, PLAIN, &mut rng, &mut there);
        let space = store.statistics().expect("open").media[0].space;
        let bytes = space.log_bytes + space.run_bytes + space.value_bytes;
        let [deleted_mib, again_mib, bytes_mib] = [deleted, again, bytes].map(|it| it >> 20);
        println!("cycle {cycle}: deleted {deleted_mib}, again {again_mib}, files {bytes_mib} MiB");
        assert!(again * 10 >= deleted * 9 && bytes <= BYTES, "cycle {cycle}");
    }
    store.close().expect("durable");
}

/// Keys that are overwritten, how often in all, and the bytes of all of them together.
const OVERWRITTEN: u64 = 24_000;
const OVERWRITES: u64 = 110_000;
const LIVE_BYTES: u64 = OVERWRITTEN * (8 + 1000);
/// Bytes that the store may take for each live one.
const SPACE_BOUND: f64 = 1.5;

/// Event in the midst of overwriting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Midst {
    Nothing,
    /// A snapshot is held from the beginning to the end.
    Snapshot,
    /// The store is closed and opened again.
    Opening,
}

/// Loads keys, which writers are not slowed down for, and overwrites those that `choose` draws, as
/// fast as the store takes them, on a drive that takes its time. The disk never has more than is
/// promised, counting everything on it. Returns the bytes that were put in a second.
fn overwrite(seed: u64, choose: fn(&mut Rng) -> u64, midst: Midst) -> f64 {
    in_seeded_world(seed, move |world, _| {
        let options = DiskOptions { model: Some(ModelName::NandP3700), ..DiskOptions::default() };
        let disk = Disk::new(&world, options).expect("a disk");
        let options = KvdbOptions {
            memory_bytes: 32 << 20,
            space_amplification_max: Some(SPACE_BOUND),
            ..KvdbOptions::default()
        };
        let clock = || Arc::new(world.clone());
        let mut store = Kvdb::create(disk.root(), options, clock()).expect("a store");
        let mut kvs = store.create_kvs("data", KvsOptions::default()).expect("a Kvs");
        for number in 0..OVERWRITTEN {
            kvs.put(&key(number), &[0; 1000]).expect("room");
        }
        let stalls = store.statistics().expect("open").stalls;
        assert_eq!(stalls.space.count, 0, "new keys are slowed down: {stalls:?}");
        let is_held = midst == Midst::Snapshot;
        let snapshot: Option<Snapshot> = is_held.then(|| store.snapshot().expect("open"));
        let (mut rng, began) = (world.rng("keys"), Nanos::from(world.now()));
        for number in 0..OVERWRITES {
            if number == OVERWRITES / 2 && midst == Midst::Opening {
                store.close().expect("durable");
                store = Kvdb::open(disk.root(), options, clock()).expect("whole");
                kvs = store.kvs("data").expect("there");
            }
            kvs.put(&key(choose(&mut rng)), &[number as u8; 1000]).expect("room");
            if number % 50 == 0 {
                check_space(&store, &disk, is_held, number);
            }
        }
        let took = Nanos::from(world.now()).since(began);
        let statistics = store.statistics().expect("open");
        assert!(statistics.stalls.space.longest_us < 1_000_000, "{:?}", statistics.stalls.space);
        assert!(!is_held || statistics.held.file_bytes > 0, "{:?}", statistics.held);
        drop(snapshot);
        store.close().expect("durable");
        (OVERWRITES * 1008) as f64 / took.as_secs_f64()
    })
}

/// Checks that the disk has no more than is promised, beside what a snapshot holds.
fn check_space(store: &Kvdb, disk: &Disk, is_held: bool, number: u64) {
    let most = (LIVE_BYTES as f64 * SPACE_BOUND) as u64 + (16 << 20);
    let held = if is_held { store.statistics().expect("open").held.file_bytes } else { 0 };
    let used = disk.used_bytes() - held;
    assert!(used <= most, "{number}: {used} bytes are taken, of at most {most}");
}

fn uniform(rng: &mut Rng) -> u64 {
    rng.below(OVERWRITTEN)
}

/// Draws a key by a law close to Zipf's: as many overwrites go to each power of two of the keys.
fn skewed(rng: &mut Rng) -> u64 {
    let most = 1 << rng.below(u64::from(OVERWRITTEN.ilog2()) + 1);
    rng.below(most) * 0x9E37 % OVERWRITTEN
}

/// Overwrites keys that `choose` draws, in worlds of several seeds.
fn overwrite_seeded(choose: fn(&mut Rng) -> u64, midst: Midst) {
    for seed in 1..=3 {
        let rate = overwrite(seed, choose, midst);
        assert!(rate > 5e6, "seed {seed}: writers are slowed to {rate} bytes a second");
    }
}

#[test]
fn uniform_overwrites_take_no_more_space_than_promised() {
    overwrite_seeded(uniform, Midst::Nothing);
}

#[test]
fn skewed_overwrites_take_no_more_space_than_promised() {
    overwrite_seeded(skewed, Midst::Nothing);
}

#[test]
fn overwrites_behind_an_opening_take_no_more_space_than_promised() {
    overwrite_seeded(uniform, Midst::Opening);
}

#[test]
fn a_held_snapshot_does_not_stop_writers() {
    overwrite_seeded(uniform, Midst::Snapshot);
}

/// Of two volumes of a class, one is small and has a large reserve, so that nothing may be written
/// there. It must not be taken for the one with most room.
#[test]
fn a_volume_that_is_smaller_than_its_reserve_does_not_keep_writes_from_another() {
    in_world(|world, disk| {
        let small = Disk::new(&world, DiskOptions::default()).expect("a disk");
        small.inject(FaultPlan { capacity: Some(7 << 20), ..FaultPlan::default() });
        let volume = |disk: &Disk, bytes_max| Volume {
            class: MediaClass::Capacity,
            directory: disk.root(),
            bytes_max,
        };
        let volumes = [volume(&disk, Some(8 << 20)), volume(&small, None)];
        let options = KvdbOptions { reserve_bytes: 8 << 20, ..options() };
        let store = Kvdb::create_on(&volumes, options, Arc::new(world)).expect("a store");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let value = vec![7; 64 << 10];
        let written = (0..200).take_while(|number| kvs.put(&key(*number), &value).is_ok());
        let written = written.count();
        assert!(written >= 64, "{written} values of 64 KiB found room");
        store.close().expect("durable");
    });
}
