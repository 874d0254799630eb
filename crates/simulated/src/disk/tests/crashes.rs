//! A crash may leave exactly these disks.

use std::sync::Mutex;

use super::*;
use crate::crash::Point;

#[test]
fn unsynced_sectors_are_kept_or_lost_each_for_itself() {
    let disk = disk();
    let file = settled_file(&disk, "a", 3);
    write(&file, 0, 2, 2);
    assert_eq!(disk.units(), [1, 1]);
    let expected = states([&[1, 1, 1], &[1, 2, 1], &[2, 1, 1], &[2, 2, 1]]);
    assert_eq!(crashed_blocks(&disk), expected);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[2, 2, 1]]));
}

#[test]
fn a_block_is_torn_where_sectors_are_smaller() {
    let disk = disk_of(SectorSize::Small);
    let file = settled_file(&disk, "a", 1);
    write(&file, 0, 1, 2);
    let found = crashed(&disk);
    assert_eq!(found.len(), 256, "any subset of eight sectors");
    assert!(found.iter().all(|contents| {
        contents["a"].chunks(512).all(|sector| sector == [1; 512] || sector == [2; 512])
    }));
}

#[test]
fn writes_of_one_sector_are_kept_up_to_any_of_them() {
    let disk = disk();
    let file = settled_file(&disk, "a", 1);
    for with in [2, 3, 1, 4] {
        write(&file, 0, 1, with);
    }
    assert_eq!(disk.units(), [4]);
    assert_eq!(crashed_blocks(&disk), states([&[1], &[2], &[3], &[4]]));
    assert_eq!(choices(&disk).len(), 4, "the third looks like none");
}

#[test]
fn length_and_bytes_are_separate() {
    let disk = disk();
    let file = settled_file(&disk, "a", 1);
    file.set_len(2 * BLOCK as u64).expect("grows");
    write(&file, 1, 1, 2);
    assert_eq!(crashed_blocks(&disk), states([&[1], &[1, 0], &[1, 2]]));
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[1, 2]]));
}

#[test]
fn what_was_cut_off_does_not_come_back_behind_a_new_end() {
    let disk = disk();
    let file = settled_file(&disk, "a", 3);
    file.set_len(BLOCK as u64).expect("shrinks");
    file.set_len(3 * BLOCK as u64).expect("grows");
    write(&file, 2, 1, 3);
    assert_eq!(read(&file), [1, 0, 3]);
    // Not [1, 1, 3]: the old second block is gone as soon as the new third can be seen.
    let expected = states([&[1, 1, 1], &[1], &[1, 0, 0], &[1, 0, 3]]);
    assert_eq!(crashed_blocks(&disk), expected);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[1, 0, 3]]));
}

#[test]
fn discarded_bytes_are_zero_or_as_they_were() {
    let disk = disk();
    let file = settled_file(&disk, "a", 2);
    let used = disk.used_bytes();
    file.discard(BLOCK as u64, BLOCK as u64).expect("discards");
    assert_eq!(disk.used_bytes(), used - BLOCK as u64);
    assert_eq!(crashed_blocks(&disk), states([&[1, 0], &[1, 1]]));
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[1, 0]]));
    file.allocate(BLOCK as u64, BLOCK as u64).expect("has room");
    assert_eq!(disk.used_bytes(), used);
}

#[test]
fn names_are_durable_after_the_directorys_sync_only() {
    let disk = disk();
    let root = disk.root();
    let file = root.open_block_file("a", &options(BLOCK as u64)).expect("makes");
    write(&file, 0, 1, 5);
    file.sync().expect("syncs");
    let mut expected = states([&[5]]);
    expected.insert(Vec::new());
    assert_eq!(crashed_blocks(&disk), expected, "the bytes are durable, that there is a file not");
    root.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[5]]));
    root.remove("a").expect("removes");
    drop(file);
    assert_eq!(crashed_blocks(&disk), expected);
    root.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), BTreeSet::from([Vec::new()]));
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn a_new_file_has_its_first_bytes_before_it_has_its_name() {
    let magic = Some(*b"entresol");
    let disk = disk();
    let options = BlockOptions { magic, ..options(BLOCK as u64) };
    drop(disk.root().open_block_file("a", &options).expect("makes"));
    for contents in crashed(&disk) {
        assert!(contents.is_empty() || contents["a"].starts_with(b"entresol"));
    }
}

#[test]
fn an_unsynced_new_file_has_its_length_and_bytes_once_it_is_synced() {
    let disk = disk();
    let root = disk.root();
    let options = BlockOptions { unsynced: true, ..options(BLOCK as u64) };
    let file = root.open_block_file("a", &options).expect("makes");
    let lengths = || -> BTreeSet<Option<usize>> {
        crashed(&disk).iter().map(|contents| contents.get("a").map(Vec::len)).collect()
    };
    root.sync().expect("syncs");
    assert_eq!(lengths(), BTreeSet::from([Some(0), Some(BLOCK)]), "only the name is durable");
    write(&file, 0, 1, 5);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[5]]));
}

#[test]
fn a_rename_is_there_or_not_and_others_do_not_wait_for_it() {
    let disk = disk();
    let root = disk.root();
    settled_file(&disk, "a", 1);
    let new = root.open_block_file("new", &options(BLOCK as u64)).expect("makes");
    write(&new, 0, 1, 2);
    root.sync().expect("syncs");
    root.rename("new", "a").expect("renames");
    root.subdirectory("d").expect("makes");
    let found = crashed(&disk);
    let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>().join(" ");
    let seen: BTreeSet<String> = found.iter().map(names).collect();
    let expected = ["a", "a d/", "a new", "a d/ new"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(expected));
    let unsynced = found.iter().filter(|contents| !contents.contains_key("new"));
    let first: BTreeSet<u8> = unsynced.map(|contents| contents["a"][0]).collect();
    assert_eq!(first, BTreeSet::from([0, 2]), "the new file's own bytes were not synced");
}

#[test]
fn a_replacement_is_whole_and_durable_when_it_returns() {
    let power = Power::new();
    let options = DiskOptions { power: power.clone(), ..DiskOptions::default() };
    let disk = Disk::new(&world(), options).expect("no model");
    let root = disk.root();
    root.replace("a", &[1; 5000]).expect("writes");
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let (watched, found) = (disk.clone(), Arc::clone(&seen));
    power.watch(Box::new(move |point: &Point, _| {
        for contents in crashed(&watched) {
            let a = contents["a"].clone();
            assert!(a == [1; 5000] || a == [2; 6000], "{point}: torn");
            found.lock().expect("alive").insert((point.kind, a[0]));
        }
    }));
    root.replace("a", &[2; 6000]).expect("writes");
    power.unwatch();
    let last = (PointKind::DirectorySync, 2);
    assert!(seen.lock().expect("alive").contains(&last), "a crash in it may find the new one");
    let found: Vec<u8> = crashed(&disk).into_iter().map(|contents| contents["a"][0]).collect();
    assert_eq!(found, [2], "and a crash behind it finds no other");
    assert!(disk.units().is_empty());
}

#[test]
fn crash_points_are_told_with_the_callers_place() {
    let power = Power::new();
    let options = DiskOptions { power: power.clone(), ..DiskOptions::default() };
    let disk = Disk::new(&world(), options).expect("no model");
    let file = settled_file(&disk, "a", 1);
    let root = disk.root();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = Arc::clone(&seen);
    power.watch(Box::new(move |point, media| {
        let units = media[0].units().len();
        let ours = point.place.file().ends_with("disk/tests/crashes.rs");
        saw.lock().expect("alive").push((point.kind, units, ours.then(|| point.place.line())));
    }));
    let first = line!() + 1;
    write(&file, 0, 1, 2);
    file.sync().expect("syncs");
    root.rename("a", "b").expect("renames");
    root.sync().expect("syncs");
    power.unwatch();
    let seen = seen.lock().expect("alive").clone();
    let expected = [
        (PointKind::Write, 0, None),
        (PointKind::Sync, 1, Some(first + 1)),
        (PointKind::Entry, 0, Some(first + 2)),
        (PointKind::DirectorySync, 1, Some(first + 3)),
    ];
    assert_eq!(seen, expected, "each before it takes effect");
}

#[test]
fn recovery_on_an_image_leaves_the_disk_alone_and_can_crash_itself() {
    let disk = disk();
    let file = settled_file(&disk, "a", 2);
    write(&file, 0, 2, 2);
    let before = disk.contents();
    let image = disk.image(&[1, 0]);
    let root = image.root();
    let again = root.open_block_file("a", &BlockOptions::default()).expect("is not open there");
    assert_eq!(read(&again), [2, 1]);
    write(&again, 1, 1, 3);
    assert_eq!(crashed_blocks(&image), states([&[2, 1], &[2, 3]]));
    again.sync().expect("syncs");
    root.replace("b", b"x").expect("writes");
    assert_eq!(disk.contents(), before);
    drop((again, root, image));
    assert_eq!(disk.units(), [1, 1]);
}

#[test]
fn recovery_in_a_world_of_its_own_leaves_no_trace_in_the_history() {
    let steps = |look: bool| {
        let world = world();
        let disk = Disk::new(&world, DiskOptions::default()).expect("no model");
        let outer = world.clone();
        let ran = world.run(move || {
            let file = settled_file(&disk, "a", 2);
            write(&file, 0, 2, 2);
            if look {
                let image = disk.image(&[1, 0]);
                let recovery = World::new(WorldOptions::seeded(9));
                let counter = recovery.clone();
                let recovered = recovery.run(move || {
                    let options = BlockOptions::default();
                    let file = image.root().open_block_file("a", &options).expect("opens");
                    assert_eq!(read(&file), [2, 1]);
                });
                recovered.expect("ends");
                assert!(counter.steps() > 0, "recovery is a history of its own world");
            }
            outer.steps()
        });
        ran.expect("ends")
    };
    assert_eq!(steps(true), steps(false));
}

#[test]
fn images_share_what_was_not_written() {
    let disk = disk();
    let file = settled_file(&disk, "a", 1000);
    write(&file, 500, 1, 2);
    file.set_len(1 << 40).expect("space costs nothing here");
    let state = disk.0.core.state();
    let node = state.tree.walk("a").expect("is there");
    let image = state.tree.image(&[1, 1]);
    let (old, new) = (state.tree.file(node).expect("file"), image.file(node).expect("file"));
    assert_eq!((old.sectors(), new.sectors()), (1000, 1000));
    assert!(new.is_quiet() && !old.is_quiet());
    assert!(old.shares_with(new));
}

#[test]
fn a_machine_that_crashed_does_nothing_more_and_starts_anew_from_an_image() {
    let world = world();
    let disk = Disk::new(&world, DiskOptions::default()).expect("no model");
    let (ours, inner) = (disk.clone(), world.clone());
    let result = world.run(move || {
        let file = settled_file(&ours, "a", 2);
        write(&file, 0, 2, 2);
        let _lock = ours.root().lock().expect("locks");
        inner.crash();
    });
    assert!(matches!(result, Err(WorldFailure::Crashed)));
    let error = disk.root().sync().expect_err("nothing runs any more").to_string();
    assert!(error.contains("has crashed"), "{error}");
    let next = World::new(WorldOptions::seeded(8));
    let mut rng = next.rng("crash");
    let found: BTreeSet<Vec<u8>> = (0..100)
        .map(|_| {
            let image = disk.random_image(&mut rng);
            let image = image.reopen(&next, DiskOptions::default()).expect("same sectors");
            image.root().lock().expect("is free again");
            read(&image.root().open_block_file("a", &BlockOptions::default()).expect("opens"))
        })
        .collect();
    assert_eq!(found.len(), 4);
}

#[test]
fn a_sync_does_not_cover_what_is_in_flight() {
    let world = world();
    let options = DiskOptions { model: Some(ModelName::NandP3700), ..DiskOptions::default() };
    let disk = Disk::new(&world, options).expect("a drive");
    let ran = world.run(move || {
        let file = settled_file(&disk, "a", 2);
        let mut queue = file.clone().queue(2).expect("queue");
        let request =
            IoRequest { access: Access::Write, offset: 0, buffer: buffer(BLOCK, 2), token: 1 };
        queue.submit(request).expect("room");
        queue.kick().expect("starts");
        // It is in flight for the whole of this sync.
        file.sync().expect("syncs");
        assert_eq!(disk.units(), [1]);
        queue.wait(None).expect("waits");
        queue.reap(&mut Vec::new());
        file.sync().expect("syncs");
        assert!(disk.units().is_empty());
    });
    ran.expect("runs");
}

fn submit(queue: &mut Box<dyn IoQueue>, with: u8) {
    let (access, buffer) = (Access::Write, buffer(BLOCK, with));
    queue.submit(IoRequest { access, offset: 0, buffer, token: 1 }).expect("room");
    queue.kick().expect("starts");
}

#[test]
fn a_write_is_complete_when_the_program_was_told() {
    // No model: the write takes no time, but its completion has not been reaped yet.
    let disk = disk();
    let file = settled_file(&disk, "a", 2);
    let mut queue = file.clone().queue(2).expect("queue");
    submit(&mut queue, 2);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[1, 1], &[2, 1]]), "it was in flight");
    queue.reap(&mut Vec::new());
    assert_eq!(crashed_blocks(&disk), states([&[1, 1], &[2, 1]]), "and was not synced since");
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[2, 1]]));
    submit(&mut queue, 3);
    drop(queue);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[3, 1]]), "a queue that goes waits");
}

#[test]
fn of_writes_in_flight_together_either_may_be_the_last() {
    let disk = disk();
    let file = settled_file(&disk, "a", 1);
    let [mut one, mut other] = [2, 2].map(|depth| file.clone().queue(depth).expect("queue"));
    submit(&mut one, 2);
    submit(&mut other, 3);
    assert_eq!(crashed_blocks(&disk), states([&[1], &[2], &[3]]));
    other.reap(&mut Vec::new());
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[2], &[3]]), "the other may still come");
    assert_eq!(read(&file), [3]);
    one.reap(&mut Vec::new());
    for _ in 0..2 {
        file.sync().expect("syncs");
        assert_eq!(crashed_blocks(&disk), states([&[2], &[3]]), "or have come before or behind");
    }
    submit(&mut one, 4);
    write(&file, 0, 1, 5);
    one.reap(&mut Vec::new());
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[4], &[5]]), "both came after those");
    write(&file, 0, 1, 6);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[6]]));
    assert!(disk.units().is_empty());
}

#[test]
fn cuts_in_the_order_of_the_program_are_states() {
    let disk = disk();
    let file = settled_file(&disk, "a", 2);
    write(&file, 0, 1, 2);
    file.set_len(3 * BLOCK as u64).expect("grows");
    write(&file, 0, 1, 3);
    disk.root().rename("a", "b").expect("renames");
    write(&file, 2, 1, 4);
    let core = &disk.0.core;
    let mut moments = core.moments();
    moments.sort_unstable();
    let cut = |moment: u64| {
        let mut choices = disk.units();
        core.cut(moment, &mut choices);
        let contents = disk.image(&choices).contents();
        let (name, bytes) = contents.first_key_value().expect("a file");
        let blocks: Vec<u8> = bytes.chunks(BLOCK).map(|block| block[0]).collect();
        format!("{name}{blocks:?}")
    };
    let found: Vec<String> = moments.into_iter().chain([u64::MAX]).map(cut).collect();
    let expected = ["a[1, 1]", "a[2, 1]", "a[2, 1, 0]", "a[3, 1, 0]", "b[3, 1, 0]", "b[3, 1, 4]"];
    assert_eq!(found, expected);
}

#[test]
fn what_is_not_found_makes_no_difference() {
    let disk = disk();
    let root = disk.root();
    let old = settled_file(&disk, "a", 2);
    write(&old, 0, 2, 3);
    let new = root.open_block_file("b", &options(2 * BLOCK as u64)).expect("makes");
    new.sync().expect("syncs");
    root.sync().expect("syncs");
    write(&new, 0, 2, 5);
    root.rename("b", "a").expect("renames");
    drop((old, new));
    assert_eq!(disk.units().len(), 5);
    // With the rename four states of the new file; without it four of each.
    assert_eq!(choices(&disk).len(), 4 + 16);
    assert_eq!(crashed(&disk).len(), 4 + 16);
    root.sync().expect("syncs");
    assert_eq!(disk.units().len(), 2, "the old one cannot come back");
}

/// Random histories: both extremes are right, and no two settled choices look alike.
#[test]
fn random_histories_have_their_extremes_and_no_doubles() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let disk = disk();
        let root = disk.root();
        let mut file = settled_file(&disk, "a", 3);
        let mut durable = disk.contents();
        for _ in 0..rng.range(1..12) {
            let blocks = (file.len() / BLOCK as u64) as usize;
            match rng.below(10) {
                0..5 => write(&file, rng.index(blocks), 1, rng.range(2..5) as u8),
                5 => file.set_len((1 + rng.below(4)) * BLOCK as u64).expect("has room"),
                6 => file.discard(0, BLOCK as u64).expect("discards"),
                // Once only: of names that go to and fro some doubles are left.
                7 => drop(root.rename("a", "b")),
                _ => {
                    file.sync().expect("syncs");
                    root.sync().expect("syncs");
                    durable = disk.contents();
                }
            }
            let name = if root.find("a").expect("looks").is_some() { "a" } else { "b" };
            drop(file);
            file = root.open_block_file(name, &BlockOptions::default()).expect("opens");
        }
        let settled = choices(&disk);
        let images: BTreeSet<Contents> =
            settled.iter().map(|choice| disk.image(choice).contents()).collect();
        assert_eq!(images.len(), settled.len(), "seed {seed}: doubles");
        assert!(images.contains(&durable), "seed {seed}: all lost");
        assert!(images.contains(&disk.contents()), "seed {seed}: nothing lost");
        let stopped = disk.0.core.state().tree.settled().contents();
        assert_eq!(stopped, disk.contents());
    }
}
