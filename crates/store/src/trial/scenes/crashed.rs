//! Scenes with crashes: at every moment the disk is opened in all states, or many, that a power cut
//! may leave.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use entresol_base::world::{Preemption, World};
use entresol_media::MapOptions;
use entresol_simulated::crash::{Crash, ExploreOptions, Explorer, Nested, Power, Subject};
use entresol_simulated::disk::{Disk, DiskOptions, SectorSize};

use super::super::{Arrangement, Change, NAMES, Op, To, Trial, options};
use super::{Pairs, Told, all, create, in_world, key, left_by, open, require, text};
use crate::{Kvdb, KvsOptions, StoreError};

/// Number of states opened at each moment.
const IMAGES_MAX: u32 = 48;

/// A process dies and leaves writes that are not synced. The next one finds them. Once it has
/// synced, a power cut must undo neither them nor its own writes.
pub(super) fn left_by_the_dead() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (_store, kvs) = create(world, disk)?;
        for number in 0..40 {
            kvs.put(&key(number), &vec![number as u8; 20 * number as usize]).map_err(text)?;
        }
        let expected = all(&kvs)?;
        let left = left_by_a_death(disk)?;
        require(disk.contents() == left.contents(), "the dead process has left something else")?;
        let (store, kvs) = open(world, &left)?;
        require(all(&kvs)? == expected, "the next process finds something else")?;
        store.sync().map_err(text)?;
        is_kept(world, &left, &expected)?;
        kvs.put(&key(99), b"of the next process").map_err(text)?;
        store.sync().map_err(text)?;
        is_kept(world, &left, &all(&kvs)?)
    })
}

/// Returns the disk as a process that dies now leaves it: all writes to its segments, and of
/// everything else what is durable.
pub(super) fn left_by_a_death(disk: &Disk) -> Result<Disk, String> {
    let left = disk.image(&vec![0; disk.units().len()]);
    let seen = disk.contents();
    for (name, bytes) in seen.iter().filter(|(name, _)| name.ends_with(".segment")) {
        // A segment that is being created has no writes that count.
        if left.root().find(name).map_err(text)?.is_some() {
            let file = left.root().map_file(name, &MapOptions::default()).map_err(text)?;
            file.write(0, bytes);
        }
    }
    Ok(left)
}

/// Checks that a power cut which leaves exactly the durable data leaves all of this.
pub(super) fn is_kept(world: &World, disk: &Disk, expected: &Pairs) -> Told {
    let cut = disk.image(&vec![0; disk.units().len()]);
    let (_store, kvs) = open(world, &cut)?;
    require(all(&kvs)? == *expected, "a power cut undoes what was synced")
}

/// Values that a compaction has moved out of mostly dead segments survive a power cut.
pub(super) fn moved_values() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        for round in 1..4_u8 {
            for number in 0..12 {
                if round == 1 || number % 4 > 0 {
                    kvs.put(&key(number), &[round; 3000]).map_err(text)?;
                }
            }
            store.compact().map_err(text)?;
        }
        let moved = store.statistics().map_err(text)?.media[0].written.collected_bytes;
        require(moved > 0, "nothing was moved")?;
        store.sync().map_err(text)?;
        is_kept(world, disk, &all(&kvs)?)
    })
}

/// `Kvs` are made and dropped, and a power cut is tried at each step, on sectors of each size. What
/// has returned is kept.
pub(super) fn edited() -> Told {
    let sectors = [SectorSize::Small, SectorSize::Large, SectorSize::Line];
    sectors.into_iter().try_for_each(|sector| {
        in_world(Preemption::Never, move |world, _| edited_on(world, sector))
    })
}

fn edited_on(world: &World, sector: SectorSize) -> Told {
    let power = Power::new();
    let options = DiskOptions { sector, power: power.clone(), ..DiskOptions::default() };
    let disk = Disk::new(world, options).map_err(text)?;
    let clock = Arc::new(world.clone());
    let store = Kvdb::create(disk.root(), super::options_on(&disk), clock).map_err(text)?;
    let edited = Arc::new(Edited::default());
    let explorer = Explorer::new(edited.clone(), ExploreOptions::default());
    explorer.watch(&power);
    for number in 0..8 {
        edited.begun.fetch_add(1, Relaxed);
        // Their lines are of different length, and lie in one sector or in several.
        let options = KvsOptions::default();
        match number % 4 {
            3 => store.drop_kvs(&name_of(number - 2)).map_err(text)?,
            _ => store.create_kvs(&name_of(number), options).map(drop).map_err(text)?,
        }
        edited.done.fetch_add(1, Relaxed);
    }
    let report = explorer.finish(&power);
    require(report.images > 50, format!("only {} images", report.images))?;
    report.failure.map_or(Ok(()), |failure| Err(failure.to_string()))
}

fn name_of(number: usize) -> String {
    "name".repeat(1 + 2 * number)
}

/// Number of changes of a store's `Kvs` that were begun, and that were done.
#[derive(Default)]
struct Edited {
    begun: AtomicUsize,
    done: AtomicUsize,
}

impl Edited {
    /// Returns the names of all `Kvs` after the first changes.
    fn names_after(changes: usize) -> Vec<String> {
        let is_made = |number: &usize| number % 4 != 3;
        let is_dropped = |number: &usize| number % 4 == 1 && number + 2 < changes;
        let numbers = (0..changes).filter(|number| is_made(number) && !is_dropped(number));
        numbers.map(name_of).collect()
    }
}

impl Subject for Edited {
    type Opened = Vec<String>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Vec<String>, String> {
        let (world, disk) = left_by(crash)?;
        let store = Kvdb::open(disk.root(), super::options_on(disk), Arc::new(world));
        Ok(store.map_err(text)?.kvs_names())
    }

    fn check(&self, names: Vec<String>, _crash: &Crash<'_>) -> Told {
        let possible = [&self.done, &self.begun].map(|it| Edited::names_after(it.load(Relaxed)));
        require(possible.contains(&names), format!("there are {names:?}"))
    }
}

/// Writes, with the store closed and opened again between them.
pub(super) fn reopened() -> Told {
    reopened_in(trial())
}

pub(super) fn reopened_in(trial: Trial) -> Told {
    let write = |number: u8| put(0, number, number, 40 * usize::from(number));
    crashes(
        Trial { nested_one_in: 8, ..trial },
        &[
            write(1),
            Op::Reopen,
            write(2),
            Op::Sync,
            write(3),
            Op::Sleep(40),
            Op::Reopen,
            write(4),
            Op::Sync,
        ],
    )
}

/// Writes more than a segment, and than a generation, has room for, also in batches.
pub(super) fn segments() -> Told {
    segments_in(trial())
}

pub(super) fn segments_in(trial: Trial) -> Told {
    let group = (0..3).map(|number| change(1, number, 7, 4000)).collect();
    let mut ops: Vec<Op> = (0..5).map(|number| put(0, number, number, 5000)).collect();
    ops.extend([Op::Sync, Op::Write(group), put(0, 1, 8, 9000), Op::Sync]);
    ops.extend((0..5).flat_map(|number| [put(0, number, 10 + number, 9000), Op::Sync]));
    crashes(Trial { images_max: 12, ..trial }, &ops)
}

/// Flushes values beside their keys and in segments.
pub(super) fn flushed() -> Told {
    crashes(
        trial(),
        &[
            put(0, 1, 1, 50),
            put(0, 2, 1, 900),
            put(1, 3, 1, 10),
            Op::Sync,
            Op::Compact,
            gone(0, 2, To::Gone),
            put(1, 1, 2, 2000),
            Op::Sync,
            Op::Compact,
            put(0, 4, 3, 20),
            Op::Sync,
            // The values that the runs will refer to are not synced.
            put(0, 5, 4, 3000),
            put(1, 2, 4, 3000),
            Op::Compact,
        ],
    )
}

/// More range deletes than one run can hold: a flush writes several runs, and a compaction takes
/// them all.
pub(super) fn flushed_in_several() -> Told {
    let removed = |numbers: Range<u8>| {
        let change = |number| Change { to: To::RangeDelete, ..change(0, number, 0, 0) };
        Op::Write(numbers.map(change).collect())
    };
    let all = Op::Write((0..20).map(|number| change(0, number, 1, 60)).collect());
    let ops = [
        all,
        Op::Compact,
        removed(0..10),
        // This put falls into the next generation.
        put(0, 3, 2, 50),
        Op::Sleep(101),
        Op::Reopen,
        removed(10..18),
        put(0, 12, 3, 50),
        Op::Sleep(101),
        put(0, 13, 4, 50),
        Op::Sync,
    ];
    let (report, met) = trial().run_and_count(&ops)?;
    report.failure.map_or(Ok(()), |failure| Err(failure.to_string()))?;
    require(met.times("a crash leaves several runs of one flush") > 0, "nothing was divided")?;
    require(met.times("runs of one flush are compacted") > 0, "what was divided was not compacted")
}

/// Compactions over keys that are overwritten, deleted, and deleted by prefix.
pub(super) fn merged() -> Told {
    let write = |round: u8| (0..4).map(move |number| put(0, number, round, 60));
    let mut ops: Vec<Op> = write(1).chain([put(0, 11, 1, 10), Op::Compact]).collect();
    ops.extend([gone(0, 1, To::Gone), gone(0, 11, To::RangeDelete), Op::Sync, Op::Compact]);
    ops.extend(write(2).chain([Op::Sync, Op::Compact, put(0, 5, 3, 5), Op::Sync]));
    crashes(trial(), &ops)
}

/// Values move out of mostly dead segments, which are removed.
pub(super) fn moved() -> Told {
    moved_in(trial())
}

pub(super) fn moved_in(trial: Trial) -> Told {
    let write = |round: u8, numbers: std::ops::Range<u8>| {
        numbers.map(move |number| put(0, number, round, 1000))
    };
    let mut ops: Vec<Op> = write(1, 0..4).chain([Op::Sync, Op::Compact]).collect();
    ops.extend(write(2, 1..4).chain([Op::Sync, Op::Compact, put(0, 5, 3, 700), Op::Sync]));
    crashes(trial, &ops)
}

/// Whole files move to another volume, as a new policy demands.
pub(super) fn shifted() -> Told {
    let policy =
        |name: &str| name.parse().map(|policy| Op::Arrange(Arrangement::Policy(0, policy)));
    // The values fill their segments.
    let mut ops: Vec<Op> = (0..8).map(|number| put(0, number, 1, 2950)).collect();
    ops.extend([Op::Sync, Op::Compact, policy("capacity-only")?, Op::Compact]);
    ops.extend([put(0, 1, 2, 100), Op::Sync, policy("staging-only")?, Op::Compact]);
    crashes(Trial { classes: true, nested_one_in: 16, ..trial() }, &ops)
}

/// Values of segments with dead values move to another volume than their keys.
pub(super) fn moved_apart() -> Told {
    let policy =
        |name: &str| name.parse().map(|policy| Op::Arrange(Arrangement::Policy(0, policy)));
    let aging = "new-keys=staging,new-values=staging,old-keys=staging,old-values=capacity";
    let mut ops = vec![policy(aging)?];
    ops.extend((0..3).map(|number| put(0, number, 1, 1000)));
    ops.extend([Op::Sync, Op::Compact, put(0, 1, 2, 100), Op::Sync]);
    crashes(Trial { classes: true, ..trial() }, &ops)
}

/// Three threads write at once, and are preempted anywhere.
pub(super) fn several() -> Told {
    several_in(Trial { images_max: 2, ..trial() })
}

pub(super) fn several_in(trial: Trial) -> Told {
    for seed in [5, 10, 16, 17] {
        let trial = Trial { seed, writers: 3, ..trial };
        crashes(trial, &trial.history(40))?;
    }
    Ok(())
}

/// Returns a trial with one thread that is never preempted.
pub(super) fn trial() -> Trial {
    let pmem = false;
    let images_max = IMAGES_MAX;
    Trial {
        seed: 0,
        writers: 1,
        nested_one_in: 0,
        images_max,
        pmem,
        classes: false,
        troubles: false,
        many_prefixes: false,
        squeezes: false,
    }
}

fn crashes(trial: Trial, ops: &[Op]) -> Told {
    trial.run(ops)?.failure.map_or(Ok(()), |failure| Err(failure.to_string()))
}

fn change(kvs: usize, number: u8, filled_with: u8, bytes: usize) -> Change {
    let key = super::super::key(super::super::FIRST_WRITER, number.into());
    Change { kvs, key, to: To::Value(vec![filled_with; bytes]) }
}

fn put(kvs: usize, number: u8, filled_with: u8, bytes: usize) -> Op {
    Op::Write(vec![change(kvs, number, filled_with, bytes)])
}

/// Returns a delete of a key, or of all keys with its prefix.
fn gone(kvs: usize, number: u8, to: To) -> Op {
    let mut change = Change { to, ..change(kvs, number, 0, 0) };
    if change.to == To::RangeDelete {
        change.key.pop();
    }
    Op::Write(vec![change])
}

/// Checkpoint that a crash may interrupt.
struct Copied {
    expected: Pairs,
    /// True if the checkpoint was reported as finished.
    is_made: AtomicBool,
}

impl Subject for Copied {
    type Opened = bool;

    fn recover(&self, crash: &Crash<'_>) -> Result<bool, String> {
        let (world, disk) = left_by(crash)?;
        let store = match Kvdb::open(disk.root(), options(), Arc::new(world)) {
            Ok(store) => store,
            Err(StoreError::NoStore { .. } | StoreError::Unfinished { .. }) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        let found = all(&store.kvs(NAMES[0]).map_err(text)?)?;
        require(found == self.expected, "the copy has something else").map(|()| true)
    }

    fn check(&self, is_store: bool, _crash: &Crash<'_>) -> Told {
        let may_lack = !self.is_made.load(Relaxed);
        require(is_store || may_lack, "a copy that was said to be made is none")
    }
}

/// A crash during a checkpoint leaves no store or a complete one; after it, a complete one.
pub(super) fn checkpoint() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        for number in 0..8 {
            kvs.put(&key(number), &vec![3; number as usize * 100]).map_err(text)?;
        }
        let copied = Copied { expected: all(&kvs)?, is_made: AtomicBool::new(false) };
        let copied = Arc::new(copied);
        let power = Power::new();
        let to = DiskOptions { power: power.clone(), ..DiskOptions::default() };
        let to = Disk::new(world, to).map_err(text)?;
        let nested = Nested { one_in: 0, ..Nested::default() };
        let explore = ExploreOptions { nested, ..ExploreOptions::default() };
        let explorer = Explorer::new(copied.clone(), explore);
        explorer.watch(&power);
        let made = store.checkpoint(&to.root(), &mut |_| ControlFlow::Continue(()));
        copied.is_made.store(true, Relaxed);
        made.map_err(text)?;
        let report = explorer.finish(&power);
        require(report.images > 50, format!("only {} images", report.images))?;
        report.failure.map_or(Ok(()), |failure| Err(failure.to_string()))
    })
}
