//! Scenes in which a sync fails. The system may then take the covered data for written although the
//! disk does not have it. Only data that is written again is certain.

use std::sync::Arc;

use entresol_base::world::{Preemption, World};
use entresol_media::PmemMode;
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};

use super::crashed::is_kept;
use super::damaged::{killed, names_of};
use super::{Pairs, Told, all, create, failing, in_world, key, open, require, text};
use crate::names;
use crate::segment::Segment;
use crate::segment::record::HEADER_BYTES;
use crate::{Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, StoreError, Volume, check};

/// Number of random power cuts tried at each point.
const CUTS: u32 = 8;

/// After a failed sync, nothing is acknowledged.
pub(super) fn last_word() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        kvs.put(b"key", b"value").map_err(text)?;
        disk.inject(failing(&[Call::Sync], 1, Repeat::Once));
        require(store.sync().is_err(), "a sync that failed says that all is well")?;
        let after = kvs.put(b"key", b"after");
        require(after.is_err(), "a write is acknowledged after a sync that failed")?;
        require(store.sync().is_err(), "a sync is acknowledged after one that failed")?;
        let made = store.create_kvs("two", KvsOptions::default());
        require(made.is_err(), "a manifest is saved after a sync that failed")?;
        require(kvs.get(b"key").is_ok(), "what is there can be read no more")
    })
}

/// The manifest finds room for nothing of an edit, or for a part of it, and then for no whole one
/// either. The last one stays in force, writes go on, and so does the manifest once there is room.
pub(super) fn no_room() -> Told {
    in_world(Preemption::Never, |world, _| {
        for room in [0, 1, 8, 40, 100] {
            let disk = Disk::new(world, DiskOptions::default()).map_err(text)?;
            let failed = |what: String| format!("with room for {room} bytes: {what}");
            goes_on_without_room(world, &disk, room).map_err(failed)?;
        }
        let disk = Disk::new(world, DiskOptions::default()).map_err(text)?;
        let (store, kvs) = create(world, &disk)?;
        let (calls, effect) = (Calls::of(&[Call::Sync]), Effect::Fail(Failure::NoSpace));
        disk.inject(FaultPlan::one(Fault { calls, nth: 1, repeat: Repeat::Once, effect }));
        let told = store.create_kvs("two", KvsOptions::default()).err();
        let is_last = matches!(told, Some(StoreError::Failed { .. }));
        require(is_last, format!("a sync that failed for lack of room may be repeated: {told:?}"))?;
        let made = store.create_kvs("two", KvsOptions::default());
        require(made.is_err(), "a manifest is saved after a sync that failed")?;
        require(kvs.put(b"key", b"after").is_err(), "a write follows a sync that failed")
    })
}

fn goes_on_without_room(world: &World, disk: &Disk, room: u64) -> Told {
    let (store, kvs) = create(world, disk)?;
    kvs.put(b"key", b"value").map_err(text)?;
    let capacity = Some(disk.used_bytes() + room);
    disk.inject(FaultPlan { capacity, ..FaultPlan::default() });
    for round in 0..3 {
        let told = store.create_kvs("two", KvsOptions::default()).err();
        let is_told = told.as_ref().is_some_and(StoreError::is_no_room);
        require(is_told, format!("round {round}: {told:?}"))?;
        kvs.put(b"key", &[round; 10]).map_err(text)?;
        store.sync().map_err(text)?;
        let left = killed(world, disk)?;
        require(names_of(world, &left)? == ["one"], "what was refused is there")?;
        let report = check(&killed(world, disk)?.root(), &mut |_| {}).map_err(text)?;
        require(report.is_whole(), format!("{:?}", report.findings))?;
    }
    disk.inject(FaultPlan::default());
    for name in ["two", "three"] {
        store.create_kvs(name, KvsOptions::default()).map_err(text)?;
    }
    let names = names_of(world, &killed(world, disk)?)?;
    require(names == ["one", "two", "three"], format!("there are {names:?}"))?;
    store.close().map_err(text)?;
    let (_store, kvs) = open(world, disk)?;
    let found = kvs.get(b"key").map_err(text)?;
    require(found == Some(vec![2; 10]), format!("{found:?} was found"))
}

/// A failed sync of names may have lost any name that was new, such as those of runs that other
/// threads are writing. A later sync must not tell them that these are durable.
pub(super) fn last_word_on_names() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        kvs.put(b"key", b"value").map_err(text)?;
        let place = store.core().files.volumes.all().remove(0);
        disk.inject(failing(&[Call::DirectorySync], 1, Repeat::Once));
        let log = store.core().log().map_err(text)?;
        require(log.make_spares().is_err(), "a segment is made whose name is not durable")?;
        require(place.sync_names().is_err(), "names are durable after a sync that failed")?;
        let after = kvs.put(b"key", b"after");
        require(after.is_err(), "a write is acknowledged where no segment can be made")
    })
}

/// The log of a store on persistent memory goes on on a disk, where a seal is synced as well. Any
/// sync that fails there may have lost what lies before it.
pub(super) fn last_word_anywhere() -> Told {
    in_world(Preemption::Never, |world, _| {
        for nth in 1.. {
            let failed = |what: String| format!("the {nth}. sync fails: {what}");
            if !refuses_after_a_sync(world, nth).map_err(failed)? {
                return require(nth > 10, format!("there are but {nth} syncs"));
            }
        }
        Ok(())
    })
}

/// Returns false if there were fewer syncs.
fn refuses_after_a_sync(world: &World, nth: u64) -> Result<bool, String> {
    let disk = || Disk::new(world, DiskOptions::default()).map_err(text);
    let (pmem, capacity) = (disk()?, disk()?);
    let place = |class, disk: &Disk, bytes_max| Volume { class, directory: disk.root(), bytes_max };
    // The persistent memory has no room for a segment.
    let volumes =
        [place(MediaClass::Pmem, &pmem, Some(4096)), place(MediaClass::Capacity, &capacity, None)];
    let mode = Some(PmemMode { assume_dax: true });
    let options = KvdbOptions { pmem: mode, ..super::options() };
    let store = Kvdb::create_on(&volumes, options, Arc::new(world.clone())).map_err(text)?;
    let kvs = store.create_kvs("one", KvsOptions::default()).map_err(text)?;
    capacity.inject(failing(&[Call::Sync], nth, Repeat::Once));
    for number in 0..24 {
        let done = kvs.put(&key(number), &[1; 3000]);
        if capacity.struck_count() == 0 {
            done.map_err(text)?;
        } else if let Err(error) = done {
            // A segment that cannot be made holds nothing yet, and another one may be made.
            if !matches!(error, StoreError::Io { doing: "sync", offset: 1.., .. }) {
                return Ok(true);
            }
            // Not only the file refuses: a manifest would go to another one.
            let made = store.create_kvs("two", KvsOptions::default());
            require(made.is_err(), "a manifest is saved after a sync that failed")?;
            let after = kvs.put(&key(99), b"after");
            require(after.is_err(), "a write is acknowledged after a sync that failed")?;
            return Ok(true);
        }
    }
    Ok(capacity.struck_count() > 0)
}

/// A sync fails, and the process ends. The next one on the same machine finds everything written,
/// though the disk may lack what that sync covered. Once it has opened the store, a power cut must
/// not undo anything it has found.
pub(super) fn left_to_the_next() -> Told {
    in_world(Preemption::Never, |world, _| {
        for nth in 1.. {
            let disk = Disk::new(world, DiskOptions::default()).map_err(text)?;
            let failed = |what: String| format!("the {nth}. sync fails: {what}");
            if !left_by_a_sync(world, &disk, nth).map_err(failed)? {
                return require(nth > 20, format!("there are but {nth} syncs"));
            }
        }
        Ok(())
    })
}

/// Returns false if there were fewer syncs.
fn left_by_a_sync(world: &World, disk: &Disk, nth: u64) -> Result<bool, String> {
    let (store, kvs) = create(world, disk)?;
    disk.inject(failing(&[Call::Sync, Call::DirectorySync], nth, Repeat::Once));
    let mut done = Pairs::new();
    let told = script(&store, &kvs, &mut done);
    let closed = store.close();
    let was_struck = disk.struck_count() > 0;
    require(was_struck || told.is_ok() && closed.is_ok(), format!("{told:?}, {closed:?}"))?;
    disk.inject(FaultPlan::default());
    let (store, kvs) = open(world, disk)?;
    let found = all(&kvs)?;
    let is_there = |pair: &(Vec<u8>, Vec<u8>)| found.contains(pair);
    // A refused write may have been written.
    require(done.iter().all(is_there), "the next process misses what was acknowledged")?;
    is_left_by_any_cut(world, disk, &found)?;
    kvs.put(&key(99), b"of the next process").map_err(text)?;
    store.sync().map_err(text)?;
    is_left_by_any_cut(world, disk, &all(&kvs)?)?;
    store.close().map_err(text)?;
    Ok(was_struck)
}

/// Writes more than a segment has room for, with and without syncs, and with flushes. Collects the
/// acknowledged writes in `done`.
fn script(store: &Kvdb, kvs: &Kvs, done: &mut Pairs) -> Result<(), StoreError> {
    let mut put = |round: u8, number: u32, bytes: usize| {
        let pair = (key(number), vec![round; bytes]);
        kvs.put(&pair.0, &pair.1)?;
        done.retain(|(before, _)| *before != pair.0);
        done.push(pair);
        Ok::<(), StoreError>(())
    };
    for number in 0..12 {
        put(1, number, 200 * number as usize)?;
    }
    store.sync()?;
    store.compact()?;
    for number in 0..20 {
        // Each record ends with a page, so the next page holds nothing but a seal.
        put(2, number, 4096 - HEADER_BYTES - key(number).len())?;
    }
    store.sync()?;
    put(3, 0, 5)?;
    store.sync()?;
    store.compact()?;
    put(4, 30, 100)?;
    store.sync()
}

/// Checks that every power cut leaves all of this, whatever it takes of the data that is not
/// durable.
fn is_left_by_any_cut(world: &World, disk: &Disk, expected: &Pairs) -> Told {
    is_kept(world, disk, expected)?;
    let mut rng = world.rng("cuts");
    for _ in 0..CUTS {
        let (_store, kvs) = open(world, &disk.random_image(&mut rng))?;
        require(all(&kvs)? == *expected, "a power cut undoes what was found")?;
    }
    Ok(())
}

/// An opening stops writing again at a segment which says that all before it are durable. The
/// newest segment says so once it is synced for the first time.
pub(super) fn durable_before() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        for number in 0..20 {
            kvs.put(&key(number), &[1; 2500]).map_err(text)?;
        }
        let identity = store.core().files.manifest.lock().store;
        let say_so = |left: Disk| -> Result<Vec<bool>, String> {
            let home = left.root();
            let names = home.list().map_err(text)?.into_iter().map(|entry| entry.name);
            let numbers = names.filter_map(|name| names::segment_number(&name));
            let say_so = numbers
                .map(|it| Segment::open_unchecked(&*home, identity, it)?.is_durable_before());
            say_so.collect::<Result<_, StoreError>>().map_err(text)
        };
        let before = say_so(disk.image(&disk.units()))?;
        require(before.len() > 3, "there are few segments")?;
        require(!before.contains(&true), "one says that others are durable that are not")?;
        store.sync().map_err(text)?;
        // The mark is durable with the first records.
        for left in [disk.image(&disk.units()), disk.image(&vec![0; disk.units().len()])] {
            let after = say_so(left)?.into_iter().filter(|it| *it).count();
            require(after > 3, format!("of {} segments {after} say so", before.len()))?;
        }
        Ok(())
    })
}
