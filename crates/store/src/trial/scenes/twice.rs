//! Scenes with two volumes, in which a crash leaves files of the same name on both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::{Preemption, World};
use entresol_media::crash::{Crash, ExploreOptions, Explorer, Nested, Power, Subject};
use entresol_media::disk::{Call, Disk, DiskOptions, FaultPlan, Repeat};
use entresol_media::{BlockOptions, Directory};

use super::super::arrange::{self, FASTEST_BYTES};
use super::super::drives::Drives;
use super::{Pairs, Told, all, failing, in_world, key, left_by, on_disk, require, text};
use crate::types::{RunNumber, SegmentNumber};
use crate::version::manifest::Manifest;
use crate::wal::segment;
use crate::wal::segment::Segment;
use crate::{Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, StoreError, Volume, run};

fn create(world: &World, disk: &Disk) -> Result<(Kvdb, Kvs), StoreError> {
    let clock = Arc::new(world.clone());
    let store =
        Kvdb::create_on(&arrange::volumes(&Drives::one(disk))?, arrange::options(disk), clock)?;
    let kvs = store.create_kvs("data", KvsOptions::default())?;
    Ok((store, kvs))
}

fn open(world: &World, disk: &Disk) -> Result<(Kvdb, Kvs), StoreError> {
    let clock = Arc::new(world.clone());
    let store = Kvdb::open(arrange::home(disk)?, arrange::options(disk), clock)?;
    let kvs = store.kvs("data")?;
    Ok((store, kvs))
}

/// Copies a file. The copy's name is not durable.
fn copy(from: (&dyn Directory, &str), to: (&dyn Directory, &str)) -> Told {
    let from = from.0.open_block_file(from.1, &BlockOptions::default()).map_err(text)?;
    let create = BlockOptions { create: Some(from.len()), ..BlockOptions::default() };
    let file = to.0.open_block_file(to.1, &create).map_err(text)?;
    let mut bytes = from.buffer(from.len() as usize);
    from.read_at(0, &mut bytes).map_err(text)?;
    file.write_at(0, &bytes).map_err(text)?;
    file.sync().map_err(text)
}

/// Returns the contents after a power cut that undoes everything not durable.
fn left_by_a_cut(world: &World, disk: &Disk) -> Result<Pairs, String> {
    let cut = disk.image(&vec![0; disk.units().len()]);
    let (_store, kvs) = open(world, &cut).map_err(text)?;
    all(&kvs)
}

/// A process dies after it has given a moved file its name, which is not durable. The next process
/// finds the file twice. Once it has removed one of the two, a power cut must not take the other.
pub(super) fn found_twice() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let expected = left_twice(world, disk)?;
        let (store, kvs) = open(world, disk).map_err(text)?;
        require(all(&kvs)? == expected, "the next process finds something else")?;
        kvs.put(&key(99), b"of the next process").map_err(text)?;
        store.sync().map_err(text)?;
        require(left_by_a_cut(world, disk)? == all(&kvs)?, "a power cut takes both")
    })?;
    // A sync of the names had failed before the process died.
    in_world(Preemption::Never, |world, disk| {
        let expected = left_twice(world, disk)?;
        disk.inject(failing(&[Call::DirectorySync], 1, Repeat::Once));
        let capacity = disk.root().subdirectory("capacity").map_err(text)?;
        require(capacity.sync().is_err(), "it does not fail")?;
        let (_store, _kvs) = open(world, disk).map_err(text)?;
        require(left_by_a_cut(world, disk)? == expected, "a power cut takes both")
    })?;
    // The power fails when one of the two directories is durable.
    in_world(Preemption::Never, |world, disk| {
        let expected = left_twice(world, disk)?;
        // The sync of the manifest comes first.
        disk.inject(failing(&[Call::DirectorySync], 3, Repeat::EverAfter));
        require(open(world, disk).is_err(), "an opening does not say that a sync has failed")?;
        require(left_by_a_cut(world, disk)? == expected, "a power cut at an opening takes both")
    })
}

/// Creates a store with two files that lie on both volumes, by names of which one is durable.
/// Returns its contents.
fn left_twice(world: &World, disk: &Disk) -> Result<Pairs, String> {
    let (store, kvs) = create(world, disk).map_err(text)?;
    for number in 0..12 {
        kvs.put(&key(number), &vec![number as u8; 3000]).map_err(text)?;
    }
    store.compact().map_err(text)?;
    let expected = all(&kvs)?;
    store.close().map_err(text)?;
    let home = arrange::home(disk).map_err(text)?;
    let capacity = disk.root().subdirectory("capacity").map_err(text)?;
    let flushed = home.list().map_err(text)?.into_iter().filter(|it| it.name.contains("segment"));
    for entry in flushed.take(2) {
        copy((&*home, &entry.name), (&*capacity, &entry.name))?;
    }
    Ok(expected)
}

/// A segment without writes is removed, and the log continues on the other volume. A power cut must
/// not bring the segment back, because the log would end there.
pub(super) fn log_goes_on_elsewhere() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk).map_err(text)?;
        kvs.put(&key(1), b"in the first place").map_err(text)?;
        store.sync().map_err(text)?;
        thread::sleep(Duration::from_millis(200));
        kvs.put(&key(2), &vec![2; FASTEST_BYTES as usize + 1]).map_err(text)?;
        store.sync().map_err(text)?;
        require(left_by_a_cut(world, disk)? == all(&kvs)?, "a power cut undoes what was synced")
    })
}

/// A segment without writes is removed, and the sync that should make this durable fails. The next
/// process may give its number again, and a power cut must not bring it back then.
pub(super) fn removed_unsurely() -> Told {
    [2, 3].into_iter().try_for_each(|nth| {
        in_world(Preemption::Never, move |world, disk| {
            let (store, kvs) = create(world, disk).map_err(text)?;
            kvs.put(&key(1), b"of the first process").map_err(text)?;
            store.close().map_err(text)?;
            add_empty_segments(disk, &["capacity"])?;
            // The segment was durable.
            let disk = &disk.image(&disk.units());
            // The sync of the manifest comes first.
            disk.inject(failing(&[Call::DirectorySync], nth, Repeat::EverAfter));
            require(open(world, disk).is_err(), "an opening does not say that a sync has failed")?;
            disk.inject(FaultPlan::default());
            let (store, kvs) = open(world, disk).map_err(text)?;
            kvs.put(&key(2), b"of the next process").map_err(text)?;
            store.sync().map_err(text)?;
            let is_kept = left_by_a_cut(world, disk)? == all(&kvs)?;
            require(is_kept, "a power cut brings back what was removed")
        })
    })
}

/// Creates a store of three volumes, with empty segments behind the end of its log, alternating on
/// the first two.
fn left_behind(world: &World, disk: &Disk) -> Told {
    let (store, kvs) = create(world, disk).map_err(text)?;
    let directory = disk.root().subdirectory("third").map_err(text)?;
    disk.root().sync().map_err(text)?;
    let third = Volume { class: MediaClass::Capacity, directory, bytes_max: None };
    store.add_volume(&third).map_err(text)?;
    kvs.put(&key(1), b"of the first process").map_err(text)?;
    store.close().map_err(text)?;
    add_empty_segments(disk, &["capacity", "home", "capacity"])
}

/// Creates segments behind the end of a closed store's log, in the given directories.
fn add_empty_segments(disk: &Disk, directories: &[&str]) -> Told {
    let home = arrange::home(disk).map_err(text)?;
    let manifest = Manifest::load(&*home).map_err(text)?.ok_or("there is no manifest")?;
    let names = home.list().map_err(text)?.into_iter().map(|entry| entry.name);
    let last = names.filter_map(|name| segment::number_of(&name)).max();
    let last = last.ok_or("there is no segment")?.0;
    for (next, directory) in (last + 1..).map(SegmentNumber).zip(directories) {
        let directory = disk.root().subdirectory(directory).map_err(text)?;
        let bytes = KvdbOptions::SEGMENT_BYTES_MIN;
        drop(Segment::create(&*directory, manifest.store, next, bytes, None).map_err(text)?);
    }
    Ok(())
}

/// A process dies after some of the segments behind the end of the log have got other names. A sync
/// of the next process fails. The third process may give their numbers again, and a power cut must
/// bring none of them back.
pub(super) fn removed_in_part() -> Told {
    for (rename, sync) in (1..=3).flat_map(|rename| (1..=6).map(move |sync| (rename, sync))) {
        in_world(Preemption::Never, move |world, disk| {
            left_behind(world, disk)?;
            // All of that was durable.
            let disk = &disk.image(&disk.units());
            disk.inject(failing(&[Call::Rename], rename, Repeat::EverAfter));
            require(open(world, disk).is_err(), "a rename fails without a word")?;
            disk.inject(failing(&[Call::DirectorySync], sync, Repeat::EverAfter));
            drop(open(world, disk));
            disk.inject(FaultPlan::default());
            let (store, kvs) = open(world, disk).map_err(text)?;
            kvs.put(&key(2), b"of the third process").map_err(text)?;
            store.sync().map_err(text)?;
            let is_kept = left_by_a_cut(world, disk)? == all(&kvs)?;
            require(is_kept, "a power cut brings back what was removed")
        })
        .map_err(|what| format!("rename {rename}, sync {sync}: {what}"))?;
    }
    Ok(())
}

/// A crash has left a segment behind the end of the log on two volumes. Both copies are removed.
pub(super) fn removed_from_two() -> Told {
    in_world(Preemption::Never, |world, disk| {
        left_behind(world, disk)?;
        let [capacity, third] = ["capacity", "third"].map(|name| disk.root().subdirectory(name));
        let (capacity, third) = (capacity.map_err(text)?, third.map_err(text)?);
        let names = capacity.list().map_err(text)?.into_iter().map(|entry| entry.name);
        for name in names.filter(|name| segment::number_of(name).is_some()) {
            copy((&*capacity, &name), (&*third, &name))?;
        }
        // All of that was durable.
        let disk = &disk.image(&disk.units());
        let (store, kvs) = open(world, disk).map_err(text)?;
        kvs.put(&key(2), b"of the next process").map_err(text)?;
        store.sync().map_err(text)?;
        let is_kept = left_by_a_cut(world, disk)? == all(&kvs)?;
        require(is_kept, "a power cut brings back what was removed")
    })
}

/// Counts of acknowledged and of synced writes while segments are removed.
#[derive(Default)]
struct Acknowledged {
    written: AtomicU32,
    synced: AtomicU32,
}

impl Subject for Acknowledged {
    type Opened = Pairs;

    fn recover(&self, crash: &Crash<'_>) -> Result<Pairs, String> {
        let (world, disk) = left_by(crash)?;
        let (store, kvs) = open(&world, disk).map_err(text)?;
        let found = all(&kvs)?;
        // The store takes writes, which another crash may interrupt.
        kvs.put(&key(100), b"of the one behind a crash").map_err(text)?;
        store.sync().map_err(text)?;
        drop(store);
        let (_store, kvs) = open(&world, disk).map_err(text)?;
        require(all(&kvs)?.len() >= found.len(), "less is found the second time").map(|()| found)
    }

    fn check(&self, found: Pairs, _crash: &Crash<'_>) -> Told {
        let found = found.into_iter().filter(|(it, _)| *it != key(100)).count() as u32;
        let (least, most) = (self.synced.load(Relaxed), self.written.load(Relaxed));
        require((least..=most).contains(&found), format!("{found} keys, not {least} to {most}"))
    }
}

/// Crashes come at any moment while segments behind the end of the log are removed, while the log
/// continues behind them, and while spare segments give way to a larger one. Some of the recoveries
/// are interrupted by another crash.
pub(super) fn removed_for_good() -> Told {
    let power = Power::new();
    let options = DiskOptions { power: power.clone(), ..DiskOptions::default() };
    on_disk(Preemption::Never, options, move |world, disk| {
        left_behind(world, disk)?;
        let said = Arc::new(Acknowledged::default());
        said.written.store(1, Relaxed);
        said.synced.store(1, Relaxed);
        let nested = Nested { one_in: 64, depth_max: 1, ..Nested::default() };
        let explore = ExploreOptions { nested, images_max: 8, ..ExploreOptions::default() };
        let explorer = Explorer::new(said.clone(), explore);
        explorer.watch(&power);
        let (store, kvs) = open(world, disk).map_err(text)?;
        for number in 2..5 {
            said.written.store(number, Relaxed);
            let bytes = if number == 3 { 40_000 } else { 100 };
            kvs.put(&key(number), &vec![number as u8; bytes]).map_err(text)?;
            thread::sleep(Duration::from_millis(20));
            store.sync().map_err(text)?;
            said.synced.store(number, Relaxed);
        }
        let report = explorer.finish(&power);
        require(report.images > 100, format!("only {} images", report.images))?;
        report.failure.map_or(Ok(()), |failure| Err(failure.to_string()))
    })
}

/// A segment has got its name on one volume when a sync of it fails, and the log continues on the
/// other. No power cut may bring the name back, because the log behind it would not be found.
pub(super) fn made_elsewhere() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk).map_err(text)?;
        kvs.put(&key(1), b"in the first place").map_err(text)?;
        store.sync().map_err(text)?;
        thread::sleep(Duration::from_millis(200));
        // The first sync gives the segment its length, and comes before its name.
        disk.inject(failing(&[Call::Sync], 2, Repeat::Once));
        let too_large_for_the_first = vec![2; FASTEST_BYTES as usize + 1];
        let put = kvs.put(&key(2), &too_large_for_the_first);
        require(put.is_err(), "a sync fails without a word")?;
        for number in 2..12 {
            kvs.put(&key(number), &[3; 2000]).map_err(text)?;
        }
        store.sync().map_err(text)?;
        let expected = all(&kvs)?;
        let count = disk.units().len();
        (0..count).try_for_each(|kept| {
            let mut units = vec![0; count];
            units[kept] = 1;
            let (_store, kvs) = open(world, &disk.image(&units)).map_err(text)?;
            require(all(&kvs)? == expected, "a power cut undoes what was synced")
        })
    })
}

/// A process dies after it has written runs that no manifest names. The next one removes them, and
/// gives their numbers to runs on other volumes. A power cut must not bring the old ones back.
pub(super) fn numbers_given_again() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk).map_err(text)?;
        kvs.put(&key(1), b"of the dead").map_err(text)?;
        store.compact().map_err(text)?;
        store.close().map_err(text)?;
        let home = arrange::home(disk).map_err(text)?;
        let capacity = disk.root().subdirectory("capacity").map_err(text)?;
        let names = home.list().map_err(text)?.into_iter().map(|entry| entry.name);
        let last = names.filter_map(|name| run::number_of(&name)).max().ok_or("there is no run")?;
        for more in 1..4 {
            let stray = run::file_name(RunNumber(last.0 + more));
            copy((&*home, &run::file_name(last)), (&*capacity, &stray))?;
        }
        // All of that was durable.
        let disk = &disk.image(&disk.units());
        let (store, kvs) = open(world, disk).map_err(text)?;
        kvs.put(&key(2), b"of the next process").map_err(text)?;
        store.compact().map_err(text)?;
        store.sync().map_err(text)?;
        let is_kept = left_by_a_cut(world, disk)? == all(&kvs)?;
        require(is_kept, "a power cut brings back what was removed")
    })
}
