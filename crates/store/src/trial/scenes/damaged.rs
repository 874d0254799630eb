//! Scenes of damage in the log and the manifest of a store whose process was killed.

use std::sync::Arc;

use entresol_base::world::{Preemption, World};
use entresol_simulated::disk::{Disk, DiskOptions, SectorSize};

use super::super::options;
use super::{Told, all, create, in_world, key, on_disk, open, require, text};
use crate::names::MANIFEST;
use crate::{Kvdb, KvsOptions, check};

/// Returns the disk as a process that is killed leaves it: with everything that it wrote.
pub(super) fn killed(world: &World, disk: &Disk) -> Result<Disk, String> {
    disk.reopen(world, DiskOptions::default()).map_err(text)
}

/// Offset of a byte in the value of one of the writes of a new store, each of a key of 7 bytes and
/// a value of 30.
fn middle_of_write(number: u32) -> u64 {
    4096 + u64::from(number) * (24 + 7 + 30) + 40
}

/// A bit has flipped in a write that a sync had made durable. No older state is answered, and
/// `check` reports it.
pub(super) fn synced_tail() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        for number in 0..4 {
            kvs.put(&key(number), &[7; 30]).map_err(text)?;
        }
        store.sync().map_err(text)?;
        let expected = all(&kvs)?;
        let segment = disk.contents().into_keys().find(|name| name.ends_with(".segment"));
        let segment = segment.ok_or("there is no segment")?;
        for number in 0..4 {
            let left = killed(world, disk)?;
            left.flip(&segment, middle_of_write(number), 3).map_err(text)?;
            let clock = Arc::new(world.clone());
            let opened = Kvdb::open_read_only(left.root(), options(), clock);
            require(opened.is_err(), format!("damage of write {number} is not told"))?;
            let report = check(&left.root(), &mut |_| {}).map_err(text)?;
            require(!report.is_whole(), format!("check misses damage of write {number}"))?;
        }
        let left = killed(world, disk)?;
        let clock = Arc::new(world.clone());
        let store = Kvdb::open_read_only(left.root(), options(), clock).map_err(text)?;
        let found = all(&store.kvs("one").map_err(text)?)?;
        require(found == expected, "what was synced is not there")
    })
}

/// A bit has flipped in a write of a store that was closed, and a power cut has taken what was not
/// synced since. The manifest alone says then that the write was durable.
pub(super) fn closed_tail() -> Told {
    for sector in [SectorSize::default(), SectorSize::Line] {
        let disk = DiskOptions { sector, ..DiskOptions::default() };
        on_disk(Preemption::Never, disk, |world, disk| {
            let (store, kvs) = create(world, disk)?;
            for number in 0..4 {
                kvs.put(&key(number), &[7; 30]).map_err(text)?;
            }
            store.close().map_err(text)?;
            let left = || disk.image(&vec![0; disk.units().len()]);
            let segment = disk.contents().into_keys().find(|name| name.ends_with(".segment"));
            let segment = segment.ok_or("there is no segment")?;
            for number in 0..4 {
                let left = left();
                left.flip(&segment, middle_of_write(number), 3).map_err(text)?;
                let clock = Arc::new(world.clone());
                let opened = Kvdb::open_read_only(left.root(), options(), clock);
                require(opened.is_err(), format!("damage of write {number} is not told"))?;
            }
            let found = all(&open(world, &left())?.1)?.len();
            require(found == 4, format!("{found} of 4 writes are there without damage"))
        })?;
    }
    Ok(())
}

/// Names of all `Kvs`, or an error.
pub(super) fn names_of(world: &World, disk: &Disk) -> Result<Vec<String>, String> {
    let store = Kvdb::open_read_only(disk.root(), options(), Arc::new(world.clone()));
    Ok(store.map_err(text)?.kvs_names())
}

/// A bit has flipped in a manifest with edits, all of which had been acknowledged. None of them is
/// taken for one that a crash has torn, and `check` reports the damage.
pub(super) fn edits() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, _) = create(world, disk)?;
        for name in ["two", "three", "four"] {
            store.create_kvs(name, KvsOptions::default()).map_err(text)?;
        }
        let expected = store.kvs_names();
        let bytes = disk.root().read(MANIFEST).map_err(text)?;
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        require(lines == 2 + 4, format!("the manifest has {lines} lines"))?;
        for at in 0..bytes.len() as u64 {
            let left = killed(world, disk)?;
            left.flip(MANIFEST, at, (at % 8) as u8).map_err(text)?;
            require(names_of(world, &left).is_err(), format!("damage of byte {at} is not told"))?;
            if at % 16 == 0 {
                let report = check(&left.root(), &mut |_| {}).map_err(text)?;
                require(!report.is_whole(), format!("check misses damage of byte {at}"))?;
            }
        }
        require(names_of(world, &killed(world, disk)?)? == expected, "they are not there")
    })
}

/// The last edit of a manifest is torn: its end is missing, or words of it are. The ones before it
/// count. Of a store that was closed, nothing can be missing without a word.
pub(super) fn torn_edit() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, _) = create(world, disk)?;
        store.create_kvs("two", KvsOptions::default()).map_err(text)?;
        let begin = disk.root().read(MANIFEST).map_err(text)?.len();
        store.create_kvs("three", KvsOptions::default()).map_err(text)?;
        let bytes = disk.root().read(MANIFEST).map_err(text)?;
        let is_dropped = |torn: &[u8]| {
            let left = killed(world, disk)?;
            left.root().replace(MANIFEST, torn).map_err(text)?;
            require(names_of(world, &left)? == ["one", "two"], "a torn edit has an effect")?;
            let report = check(&left.root(), &mut |_| {}).map_err(text)?;
            require(report.is_whole(), format!("{:?}", report.findings))?;
            let (store, _) = open(world, &left)?;
            store.create_kvs("four", KvsOptions::default()).map_err(text)?;
            let names = names_of(world, &killed(world, &left)?)?;
            require(names == ["one", "two", "four"], format!("there are {names:?}"))
        };
        for end in (begin..bytes.len()).step_by(9).chain([bytes.len() - 1]) {
            is_dropped(&bytes[..end]).map_err(|what| format!("it ends at {end}: {what}"))?;
        }
        let last = bytes.len().div_ceil(8) - 1;
        for word in (begin / 8..last).step_by(5).chain([last]) {
            let mut torn = bytes.clone();
            torn[(word * 8).max(begin)..(word * 8 + 8).min(bytes.len())].fill(0);
            is_dropped(&torn).map_err(|what| format!("word {word} is missing: {what}"))?;
        }
        store.close().map_err(text)?;
        let bytes = disk.root().read(MANIFEST).map_err(text)?;
        for end in 0..bytes.len() {
            disk.root().replace(MANIFEST, &bytes[..end]).map_err(text)?;
            let opened = names_of(world, disk);
            require(opened.is_err(), format!("a closed manifest ends at {end}, untold"))?;
        }
        Ok(())
    })
}
