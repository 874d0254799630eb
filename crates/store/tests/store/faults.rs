//! Faults of disks: failed calls, lack of room, and flipped bits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::clock::Picos;
use entresol_base::thread;
use entresol_base::world::World;
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat, fail_every_call,
};
use entresol_store::{
    Batch, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, Policy, StoreError,
    Volume,
};

use crate::common::{AGING, in_world};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 2 * KvdbOptions::SEGMENT_BYTES_MIN,
        memory_bytes: 2 << 20,
        reserve_bytes: 1536 << 10,
        ..KvdbOptions::default()
    }
}

fn create(world: &World, disk: &Disk) -> Kvdb {
    let clock = Arc::new(world.clone());
    let store = Kvdb::create(disk.root(), options(), clock).expect("a store");
    let options = KvsOptions { inline_bytes: 100, ..KvsOptions::default() };
    store.create_kvs("data", options).expect("a Kvs");
    store
}

fn open(world: &World, disk: &Disk) -> Result<Kvdb, StoreError> {
    Kvdb::open(disk.root(), options(), Arc::new(world.clone()))
}

fn contents(kvs: &Kvs) -> Result<State, StoreError> {
    let mut cursor = kvs.cursor(CursorOptions::default())?;
    let mut all = State::new();
    while let Some((key, value)) = cursor.next()? {
        all.insert(key.to_vec(), value.to_vec());
    }
    Ok(all)
}

fn key(number: usize) -> Vec<u8> {
    format!("key{number:02}").into_bytes()
}

/// Carries out twenty operations of every kind. Collects the acknowledged states in `done`.
fn script(store: &Kvdb, done: &mut Vec<State>) -> Result<(), StoreError> {
    let kvs = store.kvs("data")?;
    let mut state = State::new();
    let mut put = |number: usize, bytes: usize, done: &mut Vec<State>| {
        let value = vec![number as u8; bytes];
        kvs.put(&key(number), &value)?;
        state.insert(key(number), value);
        done.push(state.clone());
        Ok::<(), StoreError>(())
    };
    for number in 0..8 {
        put(number, [10, 3000, 300][number % 3], done)?;
    }
    store.sync()?;
    put(8, 9000, done)?;
    store.compact()?;
    for number in 6..12 {
        put(number, 2000, done)?;
    }
    kvs.delete(&key(1))?;
    state.remove(&key(1));
    done.push(state.clone());
    let mut batch = Batch::new();
    batch.put(&kvs, &key(20), b"twenty")?.delete(&kvs, &key(2))?;
    store.write(&batch)?;
    state.insert(key(20), b"twenty".to_vec());
    state.remove(&key(2));
    done.push(state.clone());
    kvs.delete_prefix(b"key1")?;
    state.retain(|key, _| !key.starts_with(b"key1"));
    done.push(state);
    store.compact()?;
    store.sync()
}

#[test]
fn a_call_that_fails_loses_nothing_and_is_told() {
    let attempts = in_world(|world, _| {
        let attempt = |plan: FaultPlan| {
            let disk = Disk::new(&world, DiskOptions::default()).expect("a disk");
            let store = create(&world, &disk);
            disk.inject(plan);
            let mut done = vec![State::new()];
            let told = script(&store, &mut done).and_then(|()| store.close());
            let struck = disk.struck_count();
            let disk = disk.reopen(&world, DiskOptions::default()).expect("a disk");
            let store = open(&world, &disk).map_err(|error| format!("not opened: {error}"))?;
            let found = store.kvs("data").and_then(|kvs| contents(&kvs));
            let found = found.map_err(|error| format!("not read: {error}"))?;
            let last = done.last().expect("at least the first");
            if told.is_ok() && found != *last {
                return Err("all was acknowledged, and something else is there".to_owned());
            }
            // The write that failed may be there: the one after the last acknowledged one.
            let kept = done.contains(&found);
            if !kept && !is_next(last, &found) {
                return Err(format!("told {told:?}, but it is no state that there was"));
            }
            let lost = *last != found && !is_next(last, &found);
            if lost {
                return Err(format!("told {told:?}, and acknowledged writes are lost"));
            }
            Ok(struck)
        };
        fail_every_call(Calls::ALL, Effect::Fail(Failure::Io), attempt)
    });
    assert!(attempts.expect("nothing is lost") > 60);
}

#[test]
fn a_call_that_finds_no_room_is_told_and_writes_go_on() {
    const CALLS: Calls = Calls::of(&[Call::Write, Call::Create, Call::Allocate, Call::Rename]);
    let attempts = in_world(|world, _| {
        let attempt = |mut plan: FaultPlan| {
            let disk = Disk::new(&world, DiskOptions::default()).expect("a disk");
            let store = create(&world, &disk);
            plan.faults.iter_mut().for_each(|fault| fault.calls = CALLS);
            disk.inject(plan);
            let mut done = vec![State::new()];
            let told = script(&store, &mut done);
            let struck = disk.struck_count();
            disk.inject(FaultPlan::default());
            if let Err(error) = &told
                && !error.is_no_room()
            {
                return Err(format!("the script ended with {error}"));
            }
            let told = &told;
            let failed = |what| move |error: StoreError| format!("{what}: {error}, after {told:?}");
            let kvs = store.kvs("data").map_err(failed("not there"))?;
            let before = contents(&kvs).map_err(failed("not read"))?;
            kvs.put(b"more", b"room").map_err(failed("not put"))?;
            store.compact().map_err(failed("not compacted"))?;
            store.close().map_err(failed("not closed"))?;
            let disk = disk.reopen(&world, DiskOptions::default()).expect("a disk");
            let store = open(&world, &disk).map_err(failed("not opened"))?;
            let mut found = store.kvs("data").and_then(|kvs| contents(&kvs)).expect("readable");
            if found.remove(b"more".as_slice()).is_none() || found != before {
                return Err("something else is there than before".to_owned());
            }
            Ok(struck)
        };
        fail_every_call(CALLS, Effect::Fail(Failure::NoSpace), attempt)
    });
    assert!(attempts.expect("nothing is lost") > 20);
}

/// Returns true if one more of the script's writes leads from one state to the other.
fn is_next(last: &State, found: &State) -> bool {
    let keys = last.keys().chain(found.keys());
    let odd: std::collections::BTreeSet<_> =
        keys.filter(|key| last.get(*key) != found.get(*key)).collect();
    let of_batch = odd.iter().all(|odd| **odd == key(2) || **odd == key(20));
    let of_prefix = odd.iter().all(|key| key.starts_with(b"key1") && !found.contains_key(*key));
    odd.len() <= 1 || of_batch || of_prefix
}

#[test]
fn a_segment_that_could_not_be_made_hides_nothing_that_is_written_later() {
    in_world(|world, _| {
        for call in [Call::Create, Call::Allocate, Call::DirectorySync] {
            let disk = Disk::new(&world, DiskOptions::default()).expect("a disk");
            let store = create(&world, &disk);
            let kvs = store.kvs("data").expect("there");
            let (calls, effect) = (Calls::of(&[call]), Effect::Fail(Failure::Io));
            let fault = Fault { calls, nth: 1, repeat: Repeat::Once, effect };
            disk.inject(FaultPlan { faults: vec![fault], ..FaultPlan::default() });
            let mut state = State::new();
            for number in 0..12 {
                let value = vec![number as u8; 3000];
                // The lack of a segment is reported once, or from then on.
                if kvs.put(&key(number), &value).is_ok() {
                    state.insert(key(number), value);
                }
            }
            assert!(disk.struck_count() > 0, "{call:?}");
            drop(store);
            let disk = disk.reopen(&world, DiskOptions::default()).expect("a disk");
            let store = open(&world, &disk).expect("whole");
            let found = contents(&store.kvs("data").expect("there")).expect("readable");
            for (key, value) in &state {
                assert!(found.get(key) == Some(value), "{call:?}: {} keys", found.len());
            }
        }
    });
}

#[test]
fn a_full_disk_refuses_writes_keeps_reading_and_recovers() {
    in_world(|world, disk| {
        let store = create(&world, &disk);
        let kvs = store.kvs("data").expect("there");
        disk.inject(FaultPlan { capacity: Some(6 << 20), ..FaultPlan::default() });
        let mut written = 0;
        let told = loop {
            match kvs.put(&key(written), &vec![written as u8; 3000]) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 5000, "the disk is never full");
        };
        assert!(told.is_no_room(), "{told}");
        assert!(written > 300, "only {written} writes found room");
        let state = contents(&kvs).expect("readable");
        assert_eq!(state.get(&key(written - 1)), Some(&vec![(written - 1) as u8; 3000]));
        disk.inject(FaultPlan::default());
        kvs.put(b"again", b"room").expect("there is room again");
        store.close().expect("durable");
        let store = open(&world, &disk).expect("whole");
        let found = contents(&store.kvs("data").expect("there")).expect("readable");
        assert_eq!(found.len(), state.len() + 1, "{told}");
    });
}

#[test]
fn on_a_full_disk_keys_can_be_removed_and_that_makes_room() {
    in_world(|world, disk| {
        let store = create(&world, &disk);
        let kvs = store.kvs("data").expect("there");
        disk.inject(FaultPlan { capacity: Some(6 << 20), ..FaultPlan::default() });
        let fill = |first: usize| {
            let mut number = first;
            loop {
                match kvs.put(&key(number), &vec![number as u8; 3000]) {
                    Ok(_) => number += 1,
                    Err(error) => return (number, error),
                }
            }
        };
        let (written, told) = fill(0);
        assert!(written > 300, "only {written} writes found room");
        let told = told.to_string();
        assert!(told.contains("1536KiB are reserved for deletes and compaction"), "{told}");
        // The deletes take more than is left of a segment.
        for number in 10..written {
            kvs.delete(&key(number)).unwrap_or_else(|error| panic!("{number}: {error}"));
        }
        store.compact().expect("the reserve is there for this");
        let (again, _) = fill(written);
        assert!(again > written + 300, "only {} writes found room", again - written);
        store.close().expect("durable");
        let store = open(&world, &disk).expect("whole");
        let found = contents(&store.kvs("data").expect("there")).expect("readable");
        let expected: State = (0..10)
            .chain(written..again)
            .map(|number| (key(number), vec![number as u8; 3000]))
            .collect();
        assert!(found == expected, "{} keys, expected {}", found.len(), expected.len());
    });
}

/// Each opening takes a segment, and short-lived processes flush nothing. They must not use up the
/// reserve for work that frees room.
#[test]
fn openings_on_a_full_disk_leave_the_reserve_to_those_that_make_room() {
    in_world(|world, disk| {
        let options = KvdbOptions {
            segment_bytes: 256 << 10,
            generation_bytes: 1 << 20,
            reserve_bytes: 2 << 20,
            ..options()
        };
        let open = || Kvdb::open(disk.root(), options, Arc::new(world.clone()));
        create(&world, &disk).close().expect("durable");
        let store = open().expect("opens");
        let kvs = store.kvs("data").expect("there");
        disk.inject(FaultPlan { capacity: Some(8 << 20), ..FaultPlan::default() });
        let mut written = 0;
        while kvs.put(&key(written), &[written as u8; 3000]).is_ok() {
            written += 1;
        }
        drop((store, kvs));
        for round in 0..40 {
            let store = open().unwrap_or_else(|error| panic!("{round}: {error}"));
            let kvs = store.kvs("data").expect("there");
            let refused = kvs.put(b"more", &[1; 3000]).expect_err("no room");
            assert!(refused.to_string().contains("are reserved for deletes"), "{round}: {refused}");
            // Every other process deletes a key.
            if round % 2 == 0 {
                kvs.delete(&key(round)).unwrap_or_else(|error| panic!("{round}: {error}"));
            }
            store.close().expect("durable");
        }
        let store = open().expect("opens");
        let kvs = store.kvs("data").expect("there");
        for number in 0..written {
            kvs.delete(&key(number)).expect("the reserve is there for this");
        }
        store.compact().expect("the reserve is there for this");
        kvs.put(b"more", &[1; 3000]).expect("room was made");
    });
}

/// Other files have filled the disk, and left less of the reserve than a segment takes.
#[test]
fn with_a_part_of_the_reserve_keys_can_be_removed() {
    in_world(|world, disk| {
        let options =
            KvdbOptions { segment_bytes: 4 << 20, generation_bytes: 4 << 20, ..options() };
        let open = || Kvdb::open(disk.root(), options, Arc::new(world.clone()));
        create(&world, &disk).close().expect("durable");
        let store = open().expect("opens");
        let kvs = store.kvs("data").expect("there");
        for number in 0..1000 {
            kvs.put(&key(number), &[number as u8; 3000]).expect("room");
        }
        store.close().expect("durable");
        const BYTES: u64 = 100 << 20;
        disk.inject(FaultPlan { capacity: Some(BYTES), ..FaultPlan::default() });
        let used = BYTES - disk.root().free_bytes().expect("is known");
        disk.inject(FaultPlan { capacity: Some(used + (2 << 20)), ..FaultPlan::default() });
        let kvs = |store: &Kvdb| store.kvs("data").expect("there");
        for number in 0..5 {
            let store = open().unwrap_or_else(|error| panic!("{number}: {error}"));
            kvs(&store).delete(&key(number)).unwrap_or_else(|error| panic!("{number}: {error}"));
            store.close().expect("durable");
        }
        let store = open().expect("opens");
        kvs(&store).delete_prefix(b"key").expect("that is small");
        store.compact().expect("nothing is left to be written");
        kvs(&store).put(b"more", &[1; 3000]).expect("room was made");
    });
}

/// Drives of two classes. The home is on the first.
struct Drives {
    staging: Disk,
    capacity: Disk,
}

impl Drives {
    fn new(world: &World) -> Drives {
        let disk = || Disk::new(world, DiskOptions::default()).expect("a disk");
        Drives { staging: disk(), capacity: disk() }
    }

    fn create(&self, world: &World, staging_bytes: u64, policy: &str) -> Kvdb {
        let place =
            |class, disk: &Disk, bytes_max| Volume { class, directory: disk.root(), bytes_max };
        let volumes = [
            place(MediaClass::Staging, &self.staging, Some(staging_bytes)),
            place(MediaClass::Capacity, &self.capacity, None),
        ];
        let options = KvdbOptions { reserve_bytes: 64 << 10, ..options() };
        let store = Kvdb::create_on(&volumes, options, Arc::new(world.clone())).expect("a store");
        let policy = policy.parse().expect("a policy");
        let options = KvsOptions { inline_bytes: 100, policy, ..KvsOptions::default() };
        store.create_kvs("data", options).expect("a Kvs");
        store
    }

    /// Opens the store after a failure of the machine. The drives work again.
    fn reopen(&self, world: &World) -> Result<Kvdb, StoreError> {
        let again =
            |disk: &Disk| disk.reopen(world, DiskOptions::default()).expect("a disk").root();
        let (home, capacity) = (again(&self.staging), again(&self.capacity));
        Kvdb::open_on(home, &[capacity], options(), Arc::new(world.clone()))
    }
}

#[test]
fn a_call_to_the_slower_class_that_fails_loses_nothing_and_is_told() {
    let attempts = in_world(|world, _| {
        let attempt = |plan: FaultPlan| {
            let drives = Drives::new(&world);
            let store = drives.create(&world, 1 << 20, AGING);
            drives.capacity.inject(plan);
            let mut done = vec![State::new()];
            let told = script(&store, &mut done).and_then(|()| store.close());
            let struck = drives.capacity.struck_count();
            let store = drives.reopen(&world).map_err(|error| format!("not opened: {error}"))?;
            let found = store.kvs("data").and_then(|kvs| contents(&kvs));
            let found = found.map_err(|error| format!("not read: {error}"))?;
            let last = done.last().expect("at least the first");
            let is_kept = found == *last || told.is_err() && is_next(last, &found);
            is_kept.then_some(struck).ok_or(format!("told {told:?}, and something else is there"))
        };
        fail_every_call(Calls::ALL, Effect::Fail(Failure::Io), attempt)
    });
    assert!(attempts.expect("loses nothing") > 20, "the slower class was hardly used");
}

#[test]
fn writers_do_not_wait_for_a_slower_class_that_hardly_moves() {
    in_world(|world, _| {
        let drives = Drives::new(&world);
        let store = drives.create(&world, 8 << 20, AGING);
        let kvs = store.kvs("data").expect("there");
        let slow = Effect::Slow(Picos::from_millis(200));
        let fault = Fault { calls: Calls::ALL, nth: 1, repeat: Repeat::EverAfter, effect: slow };
        drives.capacity.inject(FaultPlan::one(fault));
        let mut longest = Picos(0);
        for number in 0..2000 {
            let begun = world.now();
            kvs.put(&key(number), &[7; 1000]).expect("is put");
            longest = longest.max(Picos(world.now().0 - begun.0));
            thread::sleep(Duration::from_millis(1));
        }
        let stalls = store.statistics().expect("open").stalls;
        assert!(longest < Picos::from_millis(50), "somebody waited for {longest:?}: {stalls:?}");
        assert!(drives.capacity.struck_count() > 4, "the slower class was hardly used");
        store.close().expect("closes");
        let store = drives.reopen(&world).expect("opens");
        assert_eq!(contents(&store.kvs("data").expect("there")).expect("whole").len(), 2000);
    });
}

#[test]
fn a_kvs_that_wants_one_class_only_is_refused_when_that_is_full_and_others_go_on() {
    in_world(|world, _| {
        let store = Drives::new(&world).create(&world, 1 << 20, "staging-only");
        let strict = store.kvs("data").expect("there");
        let other = store.create_kvs("other", KvsOptions::default()).expect("is made");
        let refused = (0..4000).find_map(|number| strict.put(&key(number), &[7; 1000]).err());
        let refused = refused.expect("there is no room for all");
        assert!(refused.is_no_room(), "{refused}");
        let text = refused.to_string();
        for part in ["everything on staging,", "/disk has", "choose a policy"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        other.put(b"key", b"value").expect("has room elsewhere");
        let before = contents(&strict).expect("is read");
        assert!(before.len() > 300, "{}", before.len());
        // Deletes, or another policy, free room again.
        for key in before.keys() {
            strict.delete(key).expect("makes room");
        }
        store.compact().expect("compacts");
        strict.put(&key(1), &[8; 1000]).expect("has room again");
        let refused = (0..4000).find(|number| strict.put(&key(*number), &[9; 1000]).is_err());
        let refused = refused.expect("there is no room for all");
        store.set_policy("data", Policy::default()).expect("is set");
        strict.put(&key(refused), &[9; 1000]).expect("goes on elsewhere");
        assert_eq!(contents(&strict).expect("is read").len(), refused + 1);
    });
}
