//! Scenes of a store's space: its bound, and what the statistics say of it.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::world::{Preemption, World};
use entresol_base::{Nanos, thread};
use entresol_media::ModelName;
use entresol_simulated::disk::{Call, Disk, DiskOptions, FaultPlan, Repeat};

use super::{Told, create, failing, in_world, key, on_disk, open, options, require, text};
use crate::types::PAGE_BYTES;
use crate::{Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, Volume};

const KEYS: u64 = 6000;
const VALUE_BYTES: usize = 4000;
const OVERWRITES: u64 = 16_000;
const BOUND: f64 = 1.5;
/// Bytes of values that must be overwritten in a second at least.
const RATE_MIN: f64 = 5e6;

/// Keys are put as fast as without a bound, and then overwritten at random. A drive that takes its
/// time never has more files than the bound allows, and writers are slowed for that, but not much.
pub(super) fn kept_within_its_bound() -> Told {
    let disk = DiskOptions { model: Some(ModelName::NandP3700), ..DiskOptions::default() };
    on_disk(Preemption::Never, disk, |world, disk| {
        let options = KvdbOptions {
            memory_bytes: 32 << 20,
            space_amplification_max: Some(BOUND),
            ..KvdbOptions::default()
        };
        let store = Kvdb::create(disk.root(), options, Arc::new(world.clone())).map_err(text)?;
        let kvs = store.create_kvs("one", KvsOptions::default()).map_err(text)?;
        let put = |number: u64, byte: u8| kvs.put(&number.to_be_bytes(), &[byte; VALUE_BYTES]);
        for number in 0..KEYS {
            put(number, 0).map_err(text)?;
        }
        let stalls = store.statistics().map_err(text)?.stalls;
        require(stalls.space.count == 0, format!("new keys are slowed down: {stalls:?}"))?;
        let live = KEYS * (8 + VALUE_BYTES as u64);
        let most = (live as f64 * BOUND) as u64 + (16 << 20);
        let (mut rng, began) = (Rng::new(1), Nanos::from(world.now()));
        for number in 0..OVERWRITES {
            put(rng.below(KEYS), number as u8).map_err(text)?;
            let used = disk.used_bytes();
            require(used <= most, format!("{used} bytes are taken, of at most {most}"))?;
        }
        let took = Nanos::from(world.now()).since(began).as_secs_f64();
        let rate = OVERWRITES as f64 * VALUE_BYTES as f64 / took;
        require(rate > RATE_MIN, format!("writers are slowed to {rate} bytes a second"))?;
        let stalls = store.statistics().map_err(text)?.stalls;
        require(stalls.space.count > 0, format!("no writer is slowed down: {stalls:?}"))?;
        store.close().map_err(text)
    })
}

/// After each step of overwrites, flushes and compactions, with a snapshot in their midst and an
/// opening behind them, the statistics have the bytes of each file. Files without a name are those
/// that the snapshot holds.
pub(super) fn explained() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (mut store, mut kvs) = create(world, disk)?;
        let mut snapshot = None;
        for round in 0..8 {
            overwrite(&kvs, round).map_err(text)?;
            explain(&store, &[disk]).map_err(|what| format!("round {round}, put: {what}"))?;
            match round {
                2 => snapshot = Some(store.snapshot().map_err(text)?),
                6 => snapshot = None,
                _ => {}
            }
            match round % 2 {
                0 => drop(store.core().flush_all(&mut || true).map_err(text)?),
                _ => store.compact().map_err(text)?,
            }
            explain(&store, &[disk]).map_err(|what| format!("round {round}: {what}"))?;
            let held = store.statistics().map_err(text)?.held.file_bytes;
            require((held > 0) == (3..6).contains(&round), format!("round {round}: {held} held"))?;
        }
        drop(snapshot);
        drop(kvs);
        store.close().map_err(text)?;
        (store, kvs) = open(world, disk)?;
        explain(&store, &[disk]).map_err(|what| format!("opened: {what}"))?;
        overwrite(&kvs, 9).map_err(text)?;
        explain(&store, &[disk]).map_err(|what| format!("put again: {what}"))
    })
}

/// A file that cannot be removed, and a segment that could not be made and waits for a sync to be
/// removed, are told as such.
pub(super) fn explained_in_trouble() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        disk.inject(failing(&[Call::Remove], 1, Repeat::EverAfter));
        for round in 0..3 {
            _ = overwrite(&kvs, round).and_then(|()| store.compact());
        }
        explain(&store, &[disk]).map_err(|what| format!("nothing can be removed: {what}"))?;
        let removed = store.statistics().map_err(text)?.media[0].space.removed_bytes;
        require(removed > 0, "a file that cannot be removed is not told")?;
        let mut waited = 0;
        for nth in 1..6 {
            waited += u64::from(waits_for_a_sync(world, nth)?);
        }
        require(waited > 0, "no segment waits for a sync to be removed")
    })
}

/// Lets syncs on the first of two volumes fail from the `nth` on, and then no more. Returns true if
/// a file waits to be removed.
fn waits_for_a_sync(world: &World, nth: u64) -> Result<bool, String> {
    let disk = || Disk::new(world, DiskOptions::default()).map_err(text);
    let disks = [disk()?, disk()?];
    let place = |class, disk: &Disk| Volume { class, directory: disk.root(), bytes_max: None };
    let classes = [MediaClass::Staging, MediaClass::Capacity];
    let volumes: Vec<Volume> =
        classes.into_iter().zip(&disks).map(|(class, disk)| place(class, disk)).collect();
    let store = Kvdb::create_on(&volumes, options(), Arc::new(world.clone())).map_err(text)?;
    let kvs = store.create_kvs("one", KvsOptions::default()).map_err(text)?;
    disks[0].inject(failing(&[Call::Sync], nth, Repeat::EverAfter));
    let told = (0..3).try_for_each(|round| overwrite(&kvs, round));
    let failed = |what| format!("sync {nth} fails, {told:?}: {what}");
    let [one, two] = &disks;
    explain(&store, &[one, two]).map_err(failed)?;
    let removed = |store: &Kvdb| -> Result<u64, String> {
        Ok(store.statistics().map_err(text)?.media[0].space.removed_bytes)
    };
    let waits = removed(&store)? > 0;
    // The next spare segment syncs the names.
    disks[0].inject(FaultPlan::default());
    explain(&store, &[one, two]).map_err(failed)?;
    require(removed(&store)? == 0, failed("it still waits".to_owned()))?;
    Ok(waits)
}

fn overwrite(kvs: &Kvs, round: u8) -> Result<(), crate::StoreError> {
    (0..150).try_for_each(|number| kvs.put(&key(number), &[round; 2000]).map(drop))
}

/// Waits until nothing is under way, and compares what the statistics say with the files.
pub(super) fn explain(store: &Kvdb, disks: &[&Disk]) -> Told {
    thread::sleep(Duration::from_secs(1));
    let statistics = store.statistics().map_err(text)?;
    let mut beside = statistics.held.file_bytes;
    for (medium, disk) in statistics.media.iter().zip(disks) {
        let files = disk.contents().into_iter().filter(|(_, bytes)| !bytes.is_empty());
        let files: Vec<(String, u64)> = files
            .map(|(name, bytes)| (name, (bytes.len() as u64).next_multiple_of(PAGE_BYTES as u64)))
            .collect();
        let taken: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        let space = medium.space;
        let told = space.log_bytes + space.run_bytes + space.value_bytes + space.spare_bytes;
        let told = told + space.removed_bytes + space.other_bytes;
        require(taken == told, format!("{taken} bytes: {files:?}, but {told} told: {space:?}"))?;
        let nameless = disk.used_bytes().saturating_sub(told);
        require(nameless <= beside, format!("{nameless} bytes have no name, {beside} are held"))?;
        beside -= nameless;
    }
    Ok(())
}
