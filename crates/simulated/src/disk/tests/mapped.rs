//! Mapped files after crashes and failed syncs.

use std::sync::mpsc;

use entresol_base::world::Preemption;
use entresol_media::mapped::{MapOptions, MappedFile};

use super::*;
use crate::crash::Point;

fn map_options(blocks: usize) -> MapOptions {
    MapOptions { create: Some((blocks * BLOCK) as u64), ..MapOptions::default() }
}

/// Makes a durable mapped file `a` of this many blocks of ones.
fn settled(disk: &Disk, blocks: usize) -> Arc<dyn MappedFile> {
    let root = disk.root();
    let file = root.map_file("a", &map_options(blocks)).expect("makes");
    file.write(0, &vec![1; blocks * BLOCK]);
    file.persist(0, file.len()).expect("persists");
    root.sync().expect("syncs");
    assert!(disk.units().is_empty(), "all is durable");
    file
}

fn put(file: &Arc<dyn MappedFile>, block: usize, with: u8) {
    // One word, so that it cannot be torn.
    file.write((block * BLOCK) as u64, &[with; 8]);
}

fn fail_sync(disk: &Disk, failure: Failure, forget: bool) {
    let effect = Effect::Fail(failure);
    let fault = Fault { calls: Calls::of(&[Call::Sync]), nth: 1, repeat: Repeat::Once, effect };
    disk.inject(FaultPlan { forget_on_failed_sync: forget, ..FaultPlan::one(fault) });
}

#[test]
fn unsynced_sectors_are_kept_or_lost_each_for_itself() {
    let disk = disk();
    let file = settled(&disk, 3);
    put(&file, 0, 2);
    put(&file, 1, 2);
    let expected = states([&[1, 1, 1], &[1, 2, 1], &[2, 1, 1], &[2, 2, 1]]);
    assert_eq!(crashed_blocks(&disk), expected);
    file.persist(0, 1).expect("persists");
    assert_eq!(crashed_blocks(&disk), states([&[2, 1, 1], &[2, 2, 1]]), "its range and no other");
    put(&file, 0, 3);
    put(&file, 0, 4);
    file.persist(BLOCK as u64, 1).expect("persists");
    assert_eq!(crashed_blocks(&disk), states([&[2, 2, 1], &[3, 2, 1], &[4, 2, 1]]));
    file.persist(0, file.len()).expect("persists");
    assert_eq!(crashed_blocks(&disk), states([&[4, 2, 1]]));
    assert!(disk.units().is_empty());
}

#[test]
fn records_of_one_sector_are_kept_up_to_any_word_of_any_of_them() {
    let disk = disk();
    let file = settled(&disk, 1);
    file.write(4, &[2; 100]);
    file.write(104, &[3; 60]);
    let found: BTreeSet<Vec<u8>> =
        crashed(&disk).into_iter().map(|contents| contents["a"][..170].to_vec()).collect();
    let whole = [vec![1; 4], vec![2; 100], vec![3; 60], vec![1; 6]].concat();
    let first = [vec![1; 4], vec![2; 100], vec![1; 66]].concat();
    assert!(found.is_superset(&BTreeSet::from([vec![1; 170], first, whole.clone()])));
    assert_eq!(found.len(), 5, "each torn once besides");
    for bytes in &found {
        // Where it changes within a write, a word begins.
        let torn =
            (1..170).filter(|&at| bytes[at] != bytes[at - 1] && ![4, 104, 164].contains(&at));
        assert!(torn.clone().all(|at| at % 8 == 0) && torn.count() <= 1, "{bytes:?}");
    }
    assert!(file.equals(0, &whole));
}

#[test]
fn every_cut_between_words_is_tried_some_time() {
    let disk = disk_of(SectorSize::Small);
    let file = settled(&disk, 1);
    let mut seen = BTreeSet::new();
    for round in 2..120 {
        let before = if round == 2 { 1 } else { round - 1 };
        file.write(16, &[round; 24]);
        for contents in crashed(&disk) {
            let words: Vec<u8> = contents["a"][16..40].chunks(8).map(|word| word[0]).collect();
            assert!(words.iter().all(|&word| word == before || word == round), "{words:?}");
            seen.insert(words.iter().map(|&word| word == round).collect::<Vec<_>>());
        }
        file.persist(16, 24).expect("persists");
    }
    assert_eq!(seen.len(), 6, "none, all, one or two at either end: {seen:?}");
}

#[test]
fn a_reader_sees_the_first_part_of_a_write_before_the_second() {
    let seen = (0..40).any(|seed| {
        let preemption = Preemption::OneIn(3);
        let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
        let disk = Disk::new(&world, DiskOptions::default()).expect("no model");
        let (tell, told) = mpsc::channel();
        let ran = world.run(move || {
            let file = settled(&disk, 1);
            let writer = Arc::clone(&file);
            let writing = thread::spawn("writer", move || writer.write(0, &[2; 100]));
            for _ in 0..8 {
                let mut bytes = [0; 100];
                file.read(0, &mut bytes);
                tell.send(bytes).expect("alive");
            }
            writing.join().expect("ends");
            assert!(file.equals(0, &[2; 100]));
        });
        ran.expect("runs");
        told.iter().any(|bytes: [u8; 100]| bytes.contains(&1) && bytes.contains(&2))
    });
    assert!(seen);
}

#[test]
fn what_a_failed_sync_covered_is_there_or_not_and_no_later_one_succeeds() {
    let disk = disk();
    let file = settled(&disk, 2);
    fail_sync(&disk, Failure::Io, false);
    put(&file, 0, 2);
    put(&file, 1, 2);
    file.persist(0, 1).expect_err("fails");
    assert!(file.equals(0, &[2]), "reading back proves nothing");
    let any = states([&[1, 1], &[1, 2], &[2, 1], &[2, 2]]);
    let error = file.persist(0, file.len()).expect_err("failed before");
    assert!(error.to_string().contains("an earlier sync"), "{error}");
    assert_eq!(crashed_blocks(&disk), any);
    drop(file);
    let file = disk.root().open_block_file("a", &options(BLOCK as u64)).expect("opens");
    file.sync().expect("pretends");
    assert_eq!(crashed_blocks(&disk), states([&[1, 2], &[2, 2]]), "the failed range is lost");
    write(&file, 0, 1, 3);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[3, 2]]), "what is written anew is durable");
}

#[test]
fn where_a_failed_sync_forgets_the_disk_has_what_programs_read() {
    let disk = disk();
    let file = settled(&disk, 2);
    fail_sync(&disk, Failure::Io, true);
    put(&file, 0, 2);
    put(&file, 1, 2);
    file.persist(0, 1).expect_err("fails");
    assert!(file.equals(0, &[1]) && file.equals(BLOCK as u64, &[2]));
    assert_eq!(crashed_blocks(&disk), states([&[1, 1], &[1, 2]]));
}

#[test]
fn a_sync_is_a_crash_point_and_a_write_is_none() {
    let power = Power::new();
    let options = DiskOptions { power: power.clone(), ..DiskOptions::default() };
    let disk = Disk::new(&world(), options).expect("no model");
    let file = settled(&disk, 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (saw, looking) = (Arc::clone(&seen), disk.clone());
    power.watch(Box::new(move |point: &Point, _| {
        let states = crashed_blocks(&looking).len();
        saw.lock().expect("alive").push((point.kind, point.place.line(), states));
    }));
    put(&file, 0, 2);
    let line = line!() + 1;
    file.persist(0, 8).expect("persists");
    file.persist(0, 0).expect("does nothing");
    power.unwatch();
    assert_eq!(*seen.lock().expect("alive"), [(PointKind::Sync, line, 2)]);
    power.clear();
}

#[test]
fn the_death_of_the_process_loses_nothing() {
    let disk = disk();
    let file = settled(&disk, 2);
    file.write(10, &[5; 5000]);
    // The process dies, the machine goes on: no process has the file open any more.
    let after = disk.reopen(&world(), DiskOptions::default()).expect("no model");
    let found = after.root().map_file("a", &MapOptions::default()).expect("maps");
    assert!(found.equals(10, &[5; 5000]) && found.equals(5010, &[1; 100]));
    drop(file);
    let file = disk.root().map_file("a", &MapOptions::default()).expect("maps");
    assert!(file.equals(10, &[5; 5000]));
    assert!(crashed(&disk).len() > 2, "and nothing of it is durable");
}

#[test]
fn a_sync_takes_the_drives_time_for_what_is_new_in_its_range() {
    let time = |new_blocks: usize, range_blocks: usize| {
        let world = World::new(WorldOptions::seeded(1));
        let model = Some(ModelName::Nvme9300);
        let disk = Disk::new(&world, DiskOptions { model, ..DiskOptions::default() });
        let (disk, inner) = (disk.expect("a drive"), world.clone());
        let (tell, told) = mpsc::channel();
        let ran = world.run(move || {
            let file = settled(&disk, 256);
            file.write(0, &vec![2; new_blocks * BLOCK]);
            let before = inner.now();
            file.persist(0, (range_blocks * BLOCK) as u64).expect("persists");
            tell.send(inner.now().0 - before.0).expect("alive");
        });
        ran.expect("runs");
        told.recv().expect("said")
    };
    assert_eq!(time(0, 256), 0, "nothing is new");
    let (one, many) = (time(1, 256), time(256, 256));
    assert!(one > 0 && many > one, "{one} {many}");
    assert_eq!(time(256, 1), one, "the range's alone");
}

#[test]
fn a_machine_that_has_crashed_changes_nothing_any_more() {
    let world = world();
    let disk = Disk::new(&world, DiskOptions::default()).expect("no model");
    let file = settled(&disk, 1);
    let (inner, mapped) = (world.clone(), Arc::clone(&file));
    let ran = world.run(move || {
        mapped.write(0, &[2; 8]);
        inner.crash();
    });
    assert!(matches!(ran, Err(WorldFailure::Crashed)), "{ran:?}");
    file.write(0, &[3; 8]);
    file.persist(0, 8).expect_err("is down");
    assert!(file.equals(0, &[2; 8]));
}
