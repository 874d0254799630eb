//! Scenes: short histories for situations that seeded histories rarely reach. Each reports what is
//! wrong. The cheap scenes come first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_base::{Clock, Nanos, Picos, Seconds};
use entresol_simulated::crash::Crash;
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};

use super::{options, options_on};
use crate::engine::statistics;
use crate::{
    Batch, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, Sequence, StoreError,
    TransactionOptions, check,
};

mod budget;
mod crashed;
mod damaged;
mod failed;
#[cfg(feature = "mutants")]
mod mutants;
mod pmem;
mod read_frequency;
mod space;
mod squeezed;
mod together;
mod twice;

/// Steps after which a scene is taken to wait for ever.
const STEPS_MAX: u64 = 5_000_000;

type Scene = fn() -> Told;

/// All scenes, by name.
pub(crate) const ALL: [(&str, Scene); 65] = [
    ("what is read is what was written last", reads_follow_writes),
    ("what is put while all is flushed is not missed", together::put_while_flushed),
    ("no write is kept waiting for a sync for longer than promised", late_syncs),
    ("a drive's budget of writes is kept over days", budget::kept_over_days),
    ("what was squeezed is read as before", squeezed::read),
    ("a segment with damage is not squeezed", squeezed::damaged),
    ("crashes while segments are squeezed", squeezed::crashes),
    ("a failed sync is the last word", failed::last_word),
    ("a lack of room for the manifest ends nothing", failed::no_room),
    ("a failed sync of names is the last word", failed::last_word_on_names),
    ("a failed sync is the last word wherever it is met", failed::last_word_anywhere),
    ("what a failed sync left is made durable", failed::left_to_the_next),
    ("a segment says that those before it are durable", failed::durable_before),
    ("what a killed process left is made durable", crashed::left_by_the_dead),
    ("time that is set back brings nothing back", time_set_back),
    ("one wrong time does not spoil later ones", one_wrong_time),
    ("a key that is put among deleted ones is shown", put_among_deleted),
    ("a conflict is found behind compactions", conflicts_behind_compactions),
    ("what compaction has moved is durable", crashed::moved_values),
    ("a file that is found twice stays", twice::found_twice),
    ("a segment that was removed does not come back", twice::log_goes_on_elsewhere),
    ("a file that was removed does not come back", twice::numbers_given_again),
    ("nor if nobody knows whether it was", twice::removed_unsurely),
    ("nor if others were to be removed with it", twice::removed_in_part),
    ("nor if it lies on two volumes", twice::removed_from_two),
    ("nor if it could not be made", twice::made_elsewhere),
    ("crashes while segments are removed for good", twice::removed_for_good),
    ("saved read frequencies are believed if they are right", read_frequency::kept),
    ("damage is told", damage),
    ("a store is kept within its bound of space", space::kept_within_its_bound),
    ("what a store's files take is told", space::explained),
    ("what cannot be removed yet is told", space::explained_in_trouble),
    ("a batch is seen whole", together::batches_seen_whole),
    ("a snapshot has all up to its number", together::snapshots),
    ("what is acknowledged has nothing before it that is not", together::acknowledged_in_order),
    ("what another has synced is durable", together::syncs),
    ("of writers of one key each knows what he overwrites", together::writers_of_one_key),
    ("who removes a prefix removes no key that he has not seen", together::prefix_removers),
    ("a prefix is not removed with what is put meanwhile", together::prefixes_and_puts),
    ("deleted keys stay deleted in compactions of some runs", partial_compactions),
    ("damage of what was synced is told", damaged::synced_tail),
    ("damage of what was closed is told", damaged::closed_tail),
    ("damage of edits of the manifest is told", damaged::edits),
    ("a torn edit of the manifest has no effect", damaged::torn_edit),
    ("crashes while the manifest is edited", crashed::edited),
    ("a checkpoint is whole or none", crashed::checkpoint),
    ("crashes behind an opening", crashed::reopened),
    ("crashes while the log goes from segment to segment", crashed::segments),
    ("crashes of a flush", crashed::flushed),
    ("crashes of a flush that writes several runs", crashed::flushed_in_several),
    ("crashes of a compaction", crashed::merged),
    ("crashes of a compaction that moves values", crashed::moved),
    ("crashes while values go elsewhere than keys", crashed::moved_apart),
    ("crashes while files move whole", crashed::shifted),
    ("crashes where several write", crashed::several),
    ("on persistent memory: what a killed process left is made durable", pmem::left_by_the_dead),
    ("on persistent memory: an image is as good as the log", pmem::image_of_the_dead),
    ("on persistent memory: a store that was closed is not read", pmem::image_of_the_closed),
    ("on persistent memory: an image may be ahead of its watermark", pmem::image_ahead),
    ("on persistent memory: damage behind an image is told", pmem::damage_behind_an_image),
    ("on persistent memory: an image that changes after closing is not used", pmem::changed_image),
    ("on persistent memory: crashes behind an opening", pmem::reopened),
    ("on persistent memory: crashes from segment to segment", pmem::segments),
    ("on persistent memory: crashes of a compaction that moves values", pmem::moved),
    ("on persistent memory: crashes where several write", pmem::several),
];

type Told = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn require(holds: bool, what: impl Into<String>) -> Told {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Returns a plan by which calls of some kinds fail from the `nth` on, or only that one.
fn failing(calls: &[Call], nth: u64, repeat: Repeat) -> FaultPlan {
    let calls = Calls::of(calls);
    FaultPlan::one(Fault { calls, nth, repeat, effect: Effect::Fail(Failure::Io) })
}

/// Returns the world of a check after a crash, and the only disk that the crash has left.
fn left_by<'a>(crash: &Crash<'a>) -> Result<(World, &'a Disk), String> {
    let disk = crash.images.first().and_then(|image| image.downcast_ref::<Disk>());
    let world = World::current().ok_or("there is no world")?;
    Ok((world, disk.ok_or("the medium is no disk")?))
}

/// Runs a scene in a world with an empty disk.
fn in_world(preemption: Preemption, scene: impl FnOnce(&World, &Disk) -> Told + 'static) -> Told {
    on_disk(preemption, DiskOptions::default(), scene)
}

/// Runs a scene in a world with an empty disk of the given options.
fn on_disk(
    preemption: Preemption,
    disk: DiskOptions,
    scene: impl FnOnce(&World, &Disk) -> Told + 'static,
) -> Told {
    let world = World::new(WorldOptions {
        preemption,
        steps_max: Some(STEPS_MAX),
        ..WorldOptions::seeded(1)
    });
    let within = world.clone();
    let ran = world.run(move || {
        let disk = Disk::new(&within, disk).map_err(text)?;
        scene(&within, &disk)
    });
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
}

/// Syncs take ten times as long as a write may wait for one. Whenever a write is acknowledged, all
/// that are older than the bound are durable.
fn late_syncs() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let interval = Duration::from_millis(100);
        let options = KvdbOptions { durability_interval: interval, ..options_on(disk) };
        let store = Kvdb::create(disk.root(), options, Arc::new(world.clone())).map_err(text)?;
        let kvs = store.create_kvs("one", KvsOptions::default()).map_err(text)?;
        let calls = Calls::of(&[Call::Sync]);
        let effect = Effect::Slow(Picos::from_secs(2));
        disk.inject(FaultPlan::one(Fault { calls, nth: 1, repeat: Repeat::EverAfter, effect }));
        let log = store.core().log().map_err(text)?;
        let mut acknowledged = VecDeque::new();
        for number in 0..200_u32 {
            kvs.put(&number.to_be_bytes(), b"value").map_err(text)?;
            let now = Clock::now(world);
            acknowledged.push_back((log.published(), now));
            let durable = log.durable();
            while acknowledged.front().is_some_and(|(write, _)| *write <= durable) {
                acknowledged.pop_front();
            }
            let age = acknowledged.front().map_or(Duration::ZERO, |(_, at)| now.since(*at));
            require(age <= 2 * interval, format!("a write is not durable after {age:?}"))?;
            thread::sleep(Duration::from_millis(10));
        }
        let stalls = statistics::stalls(store.core());
        let waits = stalls.late_sync.count > 0 && stalls.sync_lateness.longest_us > 1_000_000;
        require(waits, format!("the waits are not counted: {stalls:?}"))
    })
}

fn create(world: &World, disk: &Disk) -> Result<(Kvdb, Kvs), String> {
    let store = Kvdb::create(disk.root(), options_on(disk), Arc::new(world.clone()));
    let store = store.map_err(text)?;
    let options = KvsOptions { inline_bytes: 100, ..KvsOptions::default() };
    let kvs = store.create_kvs("one", options).map_err(text)?;
    Ok((store, kvs))
}

fn open(world: &World, disk: &Disk) -> Result<(Kvdb, Kvs), String> {
    let store = Kvdb::open(disk.root(), options_on(disk), Arc::new(world.clone()));
    let store = store.map_err(text)?;
    let kvs = store.kvs("one").map_err(text)?;
    Ok((store, kvs))
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn all(kvs: &Kvs) -> Result<Pairs, String> {
    let mut cursor = kvs.cursor(CursorOptions::default()).map_err(text)?;
    let mut pairs = Pairs::new();
    while let Some((key, value)) = cursor.next().map_err(text)? {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    for (key, value) in &pairs {
        require(
            kvs.get(key).map_err(text)?.as_ref() == Some(value),
            format!("{} is found otherwise than it is shown", key.escape_ascii()),
        )?;
    }
    Ok(pairs)
}

fn flush(store: &Kvdb) -> Told {
    store.core().flush_all(&mut || true).map(drop).map_err(text)
}

fn runs(store: &Kvdb) -> Result<u64, String> {
    Ok(store.statistics().map_err(text)?.kvs[0].runs)
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

/// Reads between writes, which fill the caches, never return older values than the last write.
fn reads_follow_writes() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let key = b"key";
        let is_there = |value: Option<&[u8]>| -> Told {
            for _ in 0..3 {
                let found = kvs.get(key).map_err(text)?;
                require(found.as_deref() == value, format!("{found:?} is found, not {value:?}"))?;
            }
            Ok(())
        };
        for round in 0..4_u8 {
            kvs.put(key, &[round; 10]).map_err(text)?;
            is_there(Some(&[round; 10]))?;
            let mut batch = Batch::new();
            batch.put(&kvs, key, &[round; 20]).map_err(text)?;
            store.write(&batch).map_err(text)?;
            is_there(Some(&[round; 20]))?;
            let begun = store.transaction(TransactionOptions::default());
            let mut transaction = begun.map_err(text)?;
            transaction.put(&kvs, key, &[round; 3000]).map_err(text)?;
            transaction.commit().map_err(text)?;
            is_there(Some(&[round; 3000]))?;
            kvs.delete_prefix(b"ke").map_err(text)?;
            is_there(None)?;
            kvs.put(key, &[round; 30]).map_err(text)?;
            is_there(Some(&[round; 30]))?;
            kvs.delete(key).map_err(text)?;
            is_there(None)?;
            flush(&store)?;
            is_there(None)?;
        }
        Ok(())
    })
}

/// Four small runs over a large one are compacted in the background. Their deletes must still hide
/// the keys of the large run, and expiring keys must expire.
fn partial_compactions() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        for number in 0..4000 {
            kvs.put(&key(number), &[number as u8; 90]).map_err(text)?;
        }
        store.compact().map_err(text)?;
        kvs.delete(&key(1)).map_err(text)?;
        flush(&store)?;
        kvs.delete_prefix(b"key02").map_err(text)?;
        flush(&store)?;
        let ten = Some(Duration::from_secs(10));
        kvs.put_for(&key(2), b"for a while", ten).map_err(text)?;
        let token = kvs.put(&key(3), b"for ever").map_err(text)?;
        flush(&store)?;
        require(runs(&store)? == 4, "four runs are not compacted into a large one")?;
        kvs.put(&key(4), &[4; 3000]).map_err(text)?;
        flush(&store)?;
        for _ in 0..1000 {
            thread::sleep(Duration::from_millis(1));
        }
        require(runs(&store)? == 2, format!("{} runs, of which four are alike", runs(&store)?))?;
        let is_as_written = |kvs: &Kvs, ended: bool| -> Told {
            let found = all(kvs)?;
            let has = |number: u32| found.iter().any(|(found, _)| *found == key(number));
            require(!has(1), "a key that was deleted is back")?;
            require(!has(200) && !has(299), "keys whose prefix was deleted are back")?;
            require(has(2) != ended, "a key did not end, or too early")?;
            let gone = 1 + 100 + usize::from(ended);
            require(found.len() == 4000 - gone, format!("{} keys are there", found.len()))?;
            let three = kvs.get_with_token(&key(3)).map_err(text)?;
            let expected = Some((b"for ever".to_vec(), token));
            require(three == expected, "a version has another number than its write")
        };
        is_as_written(&kvs, false)?;
        thread::sleep(Duration::from_secs(11));
        is_as_written(&kvs, true)?;
        store.compact().map_err(text)?;
        is_as_written(&kvs, true)?;
        store.close().map_err(text)?;
        let (store, kvs) = open(world, disk)?;
        is_as_written(&kvs, true)?;
        store.close().map_err(text)?;
        let report = check(&disk.root(), &mut |_| {}).map_err(text)?;
        require(report.is_whole() && report.remarks.is_empty(), format!("{report:?}"))
    })
}

/// Tombstones are kept as long as a transaction may have to notice them.
fn conflicts_behind_compactions() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let is_found = |change: &dyn Fn() -> Result<Sequence, StoreError>| -> Told {
            kvs.put(b"key", b"before").map_err(text)?;
            kvs.put(b"other", b"value").map_err(text)?;
            let begin = || store.transaction(TransactionOptions::default()).map_err(text);
            let (mut late, mut later) = (begin()?, begin()?);
            change().map_err(text)?;
            store.compact().map_err(text)?;
            late.put(&kvs, b"key", b"late").map_err(text)?;
            let told = late.commit();
            require(matches!(told, Err(StoreError::Conflict)), format!("{told:?}"))?;
            later.delete_prefix(&kvs, b"k").map_err(text)?;
            let told = later.commit();
            require(matches!(told, Err(StoreError::Conflict)), format!("{told:?}"))
        };
        is_found(&|| kvs.put(b"key", b"by another"))?;
        is_found(&|| kvs.delete(b"key"))?;
        is_found(&|| kvs.delete_prefix(b"ke"))
    })
}

/// Walks pass ranges of deleted keys without looking at each. A key that is put there is shown.
fn put_among_deleted() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (_store, kvs) = create(world, disk)?;
        for backward in [false, true] {
            let first = || -> Result<Option<Vec<u8>>, String> {
                let options = CursorOptions { backward, ..CursorOptions::default() };
                let mut cursor = kvs.cursor(options).map_err(text)?;
                Ok(cursor.next().map_err(text)?.map(|(key, _)| key.to_vec()))
            };
            for number in 0..100 {
                kvs.put(&key(number), b"value").map_err(text)?;
                kvs.delete(&key(number)).map_err(text)?;
            }
            for _ in 0..3 {
                require(first()?.is_none(), "a key that was deleted is shown")?;
            }
            for number in [50, 20, 70, 99, 0] {
                kvs.put(&key(number), b"value").map_err(text)?;
                require(first()? == Some(key(number)), "a key that was put is not shown")?;
                kvs.delete(&key(number)).map_err(text)?;
                require(first()?.is_none(), "a key that was deleted is shown")?;
            }
        }
        Ok(())
    })
}

/// Clock that is set by hand.
#[derive(Debug)]
struct SetClock(World, AtomicU32);

impl Clock for SetClock {
    fn now(&self) -> Nanos {
        Clock::now(&self.0)
    }

    fn seconds(&self) -> Seconds {
        Seconds(self.1.load(Relaxed))
    }
}

/// Expired keys stay expired, whatever the clock says, even after another opening.
fn time_set_back() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let clock = Arc::new(SetClock(world.clone(), AtomicU32::new(1000)));
        let store = Kvdb::create(disk.root(), options(), clock.clone()).map_err(text)?;
        let kvs = store.create_kvs("one", KvsOptions::default()).map_err(text)?;
        kvs.put_for(b"key", b"value", Some(Duration::from_secs(10))).map_err(text)?;
        let is_there = |kvs: &Kvs| kvs.get(b"key").map(|value| value.is_some()).map_err(text);
        require(is_there(&kvs)?, "it is not there")?;
        clock.1.store(1010, Relaxed);
        require(!is_there(&kvs)?, "it has not ended")?;
        clock.1.store(1005, Relaxed);
        require(!is_there(&kvs)?, "it is back")?;
        store.close().map_err(text)?;
        let store = Kvdb::open(disk.root(), options(), clock.clone()).map_err(text)?;
        let kvs = store.kvs("one").map_err(text)?;
        require(!is_there(&kvs)?, "it is back after an opening")?;
        kvs.put_for(b"key", b"value", Some(Duration::from_secs(10))).map_err(text)?;
        flush(&store)?;
        require(is_there(&kvs)?, "it vanished when it was flushed")?;
        clock.1.store(1020, Relaxed);
        require(!is_there(&kvs)?, "it has not ended in a run")
    })
}

/// The clock is wrong once, by whatever and at whatever moment. Values that are written later
/// expire all the same, even if the store is closed meanwhile.
fn one_wrong_time() -> Told {
    const NOW: u32 = 1_000_000;
    for wrong in [0, 1, NOW - 10, NOW + 10, 2 * NOW, u32::MAX - 5, u32::MAX] {
        for moment in 0..4 {
            let told = in_world(Preemption::Never, move |world, disk| {
                wrong_once(world, disk, (NOW, wrong), moment)
            });
            told.map_err(|what| format!("the clock says {wrong} at moment {moment}: {what}"))?;
        }
    }
    Ok(())
}

fn wrong_once(world: &World, disk: &Disk, (now, wrong): (u32, u32), moment: u32) -> Told {
    let clock = Arc::new(SetClock(world.clone(), AtomicU32::new(now)));
    let mut second = now;
    // Both clocks advance, but one of them is wrong once.
    let mut pass = |seconds: u32, here: u32| {
        thread::sleep(Duration::from_secs(seconds.into()));
        second += seconds;
        clock.1.store(if here == moment { wrong } else { second }, Relaxed);
    };
    let open = || Kvdb::open(disk.root(), options(), clock.clone()).map_err(text);
    let ten = Some(Duration::from_secs(10));
    let store = Kvdb::create(disk.root(), options(), clock.clone()).map_err(text)?;
    let kvs = store.create_kvs("one", KvsOptions::default()).map_err(text)?;
    pass(1, 0);
    kvs.put_for(b"before", b"value", ten).map_err(text)?;
    pass(1, 1);
    store.close().map_err(text)?;
    pass(1, 2);
    let store = open()?;
    store.kvs("one").map_err(text)?.get(b"before").map_err(text)?;
    pass(1, 3);
    store.kvs("one").map_err(text)?.get(b"before").map_err(text)?;
    pass(1, 4);
    let kvs = store.kvs("one").map_err(text)?;
    kvs.put_for(b"later", b"value", ten).map_err(text)?;
    let is_there = |kvs: &Kvs| kvs.get(b"later").map(|value| value.is_some()).map_err(text);
    pass(8, 4);
    require(is_there(&kvs)?, "a later value ends too early")?;
    let ahead = store.statistics().map_err(text)?.seconds_ahead;
    // At moment 1 nothing reads the clock that would make it the store's time.
    let is_ahead = wrong > now + 5 && wrong < u32::MAX - (1 << 28) && moment != 1;
    let is_told = (ahead > 0) == is_ahead || moment == 1;
    require(is_told, format!("the time is said to be {ahead} s ahead"))?;
    store.close().map_err(text)?;
    // It ends while the store is closed.
    pass(4, 4);
    let store = open()?;
    require(!is_there(&store.kvs("one").map_err(text)?)?, "a later value does not end")?;
    let kvs = store.kvs("one").map_err(text)?;
    kvs.put_for(b"later", b"value", ten).map_err(text)?;
    require(is_there(&kvs)?, "a later value ends at once")?;
    pass(11, 4);
    require(!is_there(&kvs)?, "a later value does not end while the store is open")
}

/// Flips bits in all files of a closed store, one at a time: each is reported or harmless.
fn damage() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        for number in 0..30 {
            let bytes = [10, 300][number as usize % 2];
            kvs.put(&key(number), &vec![number as u8 + 1; bytes]).map_err(text)?;
        }
        store.compact().map_err(text)?;
        kvs.delete(&key(5)).map_err(text)?;
        kvs.put(b"newest", &[99; 150]).map_err(text)?;
        let expected = all(&kvs)?;
        store.close().map_err(text)?;
        for (name, bytes) in disk.contents() {
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let step = if name == "MANIFEST" { 1 } else { 23 };
            for at in (0..used as u64).step_by(step).filter(|at| bytes[*at as usize] != 0) {
                let bit = (at % 5) as u8;
                disk.flip(&name, at, bit).map_err(text)?;
                is_told_or_harmless(world, disk, &expected)
                    .map_err(|what| format!("bit {bit} of byte {at} of {name}: {what}"))?;
                disk.flip(&name, at, bit).map_err(text)?;
            }
        }
        Ok(())
    })
}

fn is_told_or_harmless(world: &World, disk: &Disk, expected: &Pairs) -> Told {
    let clock = Arc::new(world.clone());
    let Ok(store) = Kvdb::open_read_only(disk.root(), options(), clock) else { return Ok(()) };
    let kvs = match store.kvs("one") {
        Ok(kvs) => kvs,
        Err(StoreError::NoKvs { .. }) => return Err("a Kvs vanished without an error".to_owned()),
        Err(_) => return Ok(()),
    };
    for (key, value) in expected {
        let right = !matches!(kvs.get(key), Ok(found) if found.as_ref() != Some(value));
        require(right, format!("{} is answered otherwise", key.escape_ascii()))?;
    }
    let Ok(mut cursor) = kvs.cursor(CursorOptions::default()) else { return Ok(()) };
    let mut left = expected.iter();
    loop {
        match (cursor.next(), left.next()) {
            (Err(_), _) | (Ok(None), None) => return Ok(()),
            (Ok(Some((key, value))), Some((of, was))) if key == of && value == was => {}
            _ => return Err("it is shown otherwise than it was written".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_ends_well() {
        end_well(0);
    }

    /// The other half of the scenes, in a test of its own for the second processor.
    #[test]
    fn every_other_scene_ends_well() {
        end_well(1);
    }

    /// Runs every second scene, from `first` on.
    fn end_well(first: usize) {
        for (name, scene) in ALL.into_iter().skip(first).step_by(2) {
            scene().unwrap_or_else(|what| panic!("{name}: {what}"));
        }
    }
}
