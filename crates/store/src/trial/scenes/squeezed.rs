//! Scenes in which segments are squeezed: what is superseded is left out of them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::world::{Preemption, World};
use entresol_simulated::crash::{Crash, ExploreOptions, Explorer, Nested, Power, Subject};
use entresol_simulated::disk::{Disk, DiskOptions};

use super::space::explain;
use super::{Pairs, Told, all, create, in_world, key, left_by, open, options, require, text};
use crate::bytes::u64_at;
use crate::manifest::Manifest;
use crate::names;
use crate::segment::FIRST_RECORD;
use crate::trial::carry_out::squeeze;
use crate::{Kvdb, Kvs, check, salvage};

/// Number of keys.
const KEYS: u32 = 60;

/// Overwrites some keys, from the `round`th on, and flushes them.
fn overwrite(store: &Kvdb, kvs: &Kvs, round: u8, step: usize) -> Told {
    for number in (u32::from(round)..KEYS).step_by(step) {
        let bytes = 120 + 20 * (number as usize % 20);
        kvs.put(&key(number), &vec![round; bytes]).map_err(text)?;
    }
    store.core().flush_all(&mut || true).map(drop).map_err(text)
}

/// Squeezes segments once, twice and three times, and compacts what is left. Whatever a power cut
/// at the last time leaves has all keys, and `check` finds nothing.
pub(super) fn crashes() -> Told {
    let images = (1..4).map(crashes_at).sum::<Result<u64, String>>()?;
    require(images > 20, format!("only {images} images"))
}

/// Cuts the power while segments are squeezed for the `last`th time; returns the number of images.
fn crashes_at(last: u8) -> Result<u64, String> {
    let images = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&images);
    in_world(Preemption::Never, move |world, _| {
        let power = Power::new();
        let options = DiskOptions { power: power.clone(), ..DiskOptions::default() };
        let disk = Disk::new(world, options).map_err(text)?;
        let (store, kvs) = create(world, &disk)?;
        overwrite(&store, &kvs, 0, 1)?;
        for round in 1..last {
            overwrite(&store, &kvs, round, 2)?;
            squeeze(&store).map_err(text)?;
        }
        overwrite(&store, &kvs, last, 2)?;
        store.sync().map_err(text)?;
        let kept = Arc::new(Kept(all(&kvs)?));
        // Histories interrupt recoveries.
        let nested = Nested { one_in: 0, ..Nested::default() };
        let explore =
            ExploreOptions { exhaustive_max: 8, images_max: 8, nested, ..Default::default() };
        let explorer = Explorer::new(kept, explore);
        explorer.watch(&power);
        let squeezed = squeeze(&store).map_err(text)?.all;
        if last == 3 {
            store.compact().map_err(text)?;
        }
        let report = explorer.finish(&power);
        require(squeezed > 0, "no segment was squeezed")?;
        counted.store(report.images, Relaxed);
        report.failure.map_or(Ok(()), |failure| Err(failure.to_string()))
    })?;
    Ok(images.load(Relaxed))
}

/// All pairs, which do not change.
struct Kept(Pairs);

impl Subject for Kept {
    type Opened = Pairs;

    fn recover(&self, crash: &Crash<'_>) -> Result<Pairs, String> {
        let (world, disk) = left_by(crash)?;
        let report = check(&disk.root(), &mut |_| {}).map_err(text)?;
        require(report.is_whole(), format!("{:?}", report.findings))?;
        let (store, kvs) = open(&world, disk)?;
        squeeze(&store).map_err(text)?;
        all(&kvs)
    }

    fn check(&self, found: Pairs, _crash: &Crash<'_>) -> Told {
        require(found == self.0, "something else is there after a crash")
    }
}

/// Values in squeezed segments are read as before: by keys and cursors, by those who held a
/// snapshot, after an opening, in a checkpoint and in what is salvaged. The statistics have their
/// bytes.
pub(super) fn read() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        overwrite(&store, &kvs, 0, 1)?;
        let (snapshot, before) = (store.snapshot().map_err(text)?, all(&kvs)?);
        overwrite(&store, &kvs, 1, 2)?;
        let expected = all(&kvs)?;
        let bytes = || -> Result<u64, String> {
            Ok(store.statistics().map_err(text)?.media[0].space.value_bytes)
        };
        let unsqueezed = bytes()?;
        require(squeeze(&store).map_err(text)?.all > 1, "nothing was squeezed")?;
        require(bytes()? < unsqueezed, "squeezing makes no room")?;
        explain(&store, &[disk])?;
        require(all(&kvs)? == expected, "a cursor shows something else")?;
        for (key, value) in &before {
            let found = kvs.get_at(&snapshot, key).map_err(text)?;
            require(found.as_ref() == Some(value), "a snapshot shows something else")?;
        }
        drop(snapshot);
        for (key, value) in &expected {
            let found = kvs.get(key).map_err(text)?;
            require(found.as_ref() == Some(value), "a get returns something else")?;
        }
        let copy = Disk::new(world, DiskOptions::default()).map_err(text)?.root();
        store.checkpoint(&copy, &mut |_| ControlFlow::Continue(())).map_err(text)?;
        store.close().map_err(text)?;
        let found_in = |store: Kvdb| all(&store.kvs("one").map_err(text)?);
        let copied = Kvdb::open(copy, options(), Arc::new(world.clone())).map_err(text)?;
        require(found_in(copied)? == expected, "a checkpoint has something else")?;
        is_salvaged(world, disk, &expected)?;
        let (store, kvs) = open(world, disk)?;
        require(all(&kvs)? == expected, "an opening finds something else")?;
        store.compact().map_err(text)?;
        require(all(&kvs)? == expected, "a compaction loses something")?;
        store.close().map_err(text)
    })
}

/// Checks what is salvaged of a closed store, and that `check` finds what is missing from a segment
/// once no newer run supersedes it.
fn is_salvaged(world: &World, disk: &Disk, expected: &Pairs) -> Told {
    let target = Disk::new(world, DiskOptions::default()).map_err(text)?;
    let clock = Arc::new(world.clone());
    let go_on = &mut |_| ControlFlow::Continue(());
    let report = salvage(&disk.root(), target.root(), options(), clock, go_on).map_err(text)?;
    let lost = report.iter().flat_map(|report| &report.kvs).map(|kvs| kvs.values_lost);
    require(lost.sum::<u64>() == 0, "values are lost that newer ones supersede")?;
    let (_store, kvs) = open(world, &target)?;
    require(all(&kvs)? == *expected, "something else is salvaged")?;
    let is_whole = |disk: &Disk| -> Result<bool, String> {
        Ok(check(&disk.root(), &mut |_| {}).map_err(text)?.is_whole())
    };
    require(is_whole(disk)?, "what is superseded is taken for damage")?;
    let left = disk.reopen(world, DiskOptions::default()).map_err(text)?;
    let manifest = Manifest::load(&*left.root()).map_err(text)?;
    let mut manifest = manifest.ok_or("there is no manifest")?;
    let [newer, _] = manifest.kvs[0].runs[..] else { return Err("not two runs".to_owned()) };
    manifest.kvs[0].runs.retain(|run| *run != newer);
    manifest.save(&*left.root()).map_err(text)?;
    require(!is_whole(&left)?, "check misses what is not there")
}

/// A segment in which damage hides what follows is left alone, so that nothing else is lost. Damage
/// of what leads to the records of a squeezed one loses nothing at all, unless it hits both copies.
pub(super) fn damaged() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        overwrite(&store, &kvs, 0, 1)?;
        overwrite(&store, &kvs, 1, 2)?;
        let expected = all(&kvs)?;
        let first = store.core().files.current.get().segments.keys().next().copied();
        let name = names::of_segment(first.ok_or("there is no segment")?);
        // The length of the first key.
        disk.flip(&name, FIRST_RECORD + 8, 5).map_err(text)?;
        require(squeeze(&store).map_err(text)?.all > 0, "nothing was squeezed")?;
        let lost = (0..KEYS).filter(|number| kvs.get(&key(*number)).is_err()).count();
        require(lost <= 1, format!("{lost} values are lost with one that is damaged"))?;
        disk.flip(&name, FIRST_RECORD + 8, 5).map_err(text)?;
        squeeze(&store).map_err(text)?;
        require(all(&kvs)? == expected, "something else is there without the damage")?;
        store.close().map_err(text)?;
        let bytes = disk.contents().remove(&name).ok_or("the segment is gone")?;
        let table = u64_at(&bytes, 32).ok_or("it ends before its table")?;
        let end = bytes.len() as u64;
        let firsts = [0, 9, 13, 33, 41, table];
        let seconds = [end - 48, end - 39, end - 35, end - 15, end - 7, end - 49];
        for places in firsts.iter().chain(&seconds).map(|place| vec![*place]) {
            let found = with_damage(world, disk, &name, &places)?;
            require(found == Ok(expected.clone()), format!("{places:?} loses {found:?}"))?;
        }
        for (first, second) in firsts.into_iter().zip(seconds).skip(3) {
            let found = with_damage(world, disk, &name, &[first, second])?;
            require(found.is_err(), "what is where is found without a table")?;
        }
        Ok(())
    })
}

/// Reads a store in which some bytes of a segment are damaged, which `check` must tell.
fn with_damage(
    world: &World,
    disk: &Disk,
    name: &str,
    places: &[u64],
) -> Result<Result<Pairs, String>, String> {
    let disk = disk.reopen(world, DiskOptions::default()).map_err(text)?;
    places.iter().try_for_each(|place| disk.flip(name, *place, 3)).map_err(text)?;
    let report = check(&disk.root(), &mut |_| {}).map_err(text)?;
    let is_told = report.findings.iter().any(|finding| finding.file == name);
    require(is_told, format!("check does not tell of damage at {places:?}"))?;
    let (_store, kvs) = open(world, &disk)?;
    Ok(all(&kvs))
}
