//! Every planned fault strikes where it should, and is counted.

use super::*;

/// Makes a disk with one file of eight blocks, on which one fault strikes the first call of this
/// kind.
fn struck(call: Call, effect: Effect) -> (Disk, Arc<dyn BlockFile>) {
    let disk = disk();
    let file = settled_file(&disk, "a", 8);
    for block in 0..8 {
        write(&file, block, 1, 10 + block as u8);
    }
    file.sync().expect("syncs");
    let calls = Calls::of(&[call]);
    disk.inject(FaultPlan::one(Fault { calls, nth: 1, repeat: Repeat::Once, effect }));
    (disk, file)
}

const ALL: [u8; 8] = [10, 11, 12, 13, 14, 15, 16, 17];

#[test]
fn a_call_that_fails_does_nothing_and_the_next_one_works() {
    for failure in [Failure::Io, Failure::NoSpace, Failure::Transient] {
        let (disk, file) = struck(Call::Write, Effect::Fail(failure));
        let error = file.write_at(0, &buffer(BLOCK, 2)).expect_err("fails");
        assert_eq!(error.kind(), failure.error().kind());
        assert_eq!(read(&file), ALL);
        file.write_at(0, &buffer(BLOCK, 2)).expect("works");
        let (_disk, file) = struck(Call::Read, Effect::Fail(failure));
        file.read_at(0, &mut buffer(BLOCK, 0)).expect_err("fails");
        assert_eq!(read(&file), ALL);
        assert_eq!((disk.struck_count(), disk.calls()), (1, 3));
        let text = disk.struck()[0].to_string();
        assert!(text.starts_with("call 1 (Write of /disk/a)"), "{text}");
    }
}

/// Fails the first sync from now on.
fn fail_sync(disk: &Disk, call: Call, forget: bool) {
    let effect = Effect::Fail(Failure::Io);
    let fault = Fault { calls: Calls::of(&[call]), nth: 1, repeat: Repeat::Once, effect };
    disk.inject(FaultPlan { forget_on_failed_sync: forget, ..FaultPlan::one(fault) });
}

#[test]
fn what_a_failed_sync_covered_is_there_or_not_and_no_later_sync_decides_that() {
    let disk = disk();
    let file = settled_file(&disk, "a", 3);
    fail_sync(&disk, Call::Sync, false);
    write(&file, 0, 2, 2);
    file.sync().expect_err("fails");
    write(&file, 2, 1, 3);
    let any = states([&[1, 1, 3], &[1, 2, 3], &[2, 1, 3], &[2, 2, 3]]);
    for _ in 0..2 {
        file.sync().expect("pretends");
        assert_eq!(read(&file), [2, 2, 3], "reading back proves nothing");
        assert_eq!(crashed_blocks(&disk), any, "but what was written since is durable");
    }
    write(&file, 0, 1, 4);
    let again = states([&[4, 1, 3], &[4, 2, 3]]);
    assert!(crashed_blocks(&disk).is_superset(&any), "not synced yet");
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), again, "what is written anew is durable");
    write(&file, 1, 1, 2);
    file.sync().expect("syncs");
    assert_eq!(crashed_blocks(&disk), states([&[4, 2, 3]]));
    assert!(disk.units().is_empty());
}

#[test]
fn where_a_failed_sync_forgets_the_disk_has_what_programs_read() {
    let disk = disk();
    let file = settled_file(&disk, "a", 2);
    fail_sync(&disk, Call::Sync, true);
    write(&file, 0, 2, 2);
    file.sync().expect_err("fails");
    file.sync().expect("pretends");
    assert_eq!(read(&file), [1, 1]);
    assert_eq!(crashed_blocks(&disk), states([&[1, 1]]));
}

#[test]
fn after_a_failed_sync_of_a_directory_its_names_are_the_old_or_the_new_ones_for_good() {
    let disk = disk();
    settled_file(&disk, "a", 1);
    settled_file(&disk, "c", 1);
    let root = disk.root();
    let found = || -> BTreeSet<String> {
        let names = |contents: Contents| contents.into_keys().collect::<Vec<_>>().join(" ");
        crashed(&disk).into_iter().map(names).collect()
    };
    let of = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|&n| n.into()).collect() };
    fail_sync(&disk, Call::DirectorySync, false);
    root.rename("a", "b").expect("renames");
    root.sync().expect_err("fails");
    for _ in 0..2 {
        root.sync().expect("pretends");
        assert!(root.find("b").expect("looks").is_some());
        assert_eq!(found(), of(&["a c", "b c"]));
    }
    root.rename("c", "d").expect("renames");
    root.sync().expect("syncs");
    assert_eq!(found(), of(&["a d", "b d"]), "other names are durable");
    root.rename("d", "a").expect("renames");
    root.sync().expect("syncs");
    assert_eq!(found(), of(&["a", "a b"]), "that the old one is replaced is sure, no more");
    root.rename("b", "e").expect("renames");
    root.sync().expect("syncs");
    assert_eq!(found(), of(&["a e"]), "of both names it is known now");
    assert!(disk.units().is_empty());
}

#[test]
fn transfers_stop_half_way_at_a_sector() {
    let (_disk, file) = struck(Call::Write, Effect::Short);
    let error = file.write_at(0, &buffer(8 * BLOCK, 2)).expect_err("stops");
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    let found = read(&file);
    let written = found.iter().take_while(|&&byte| byte == 2).count();
    assert!(written < 8 && found[written..] == ALL[written..], "{found:?}");
    let (_disk, file) = struck(Call::Read, Effect::Short);
    let read = file.read_at(0, &mut IoBuffer::new(8 * BLOCK)).expect("is short");
    assert!(read < 8 * BLOCK && read % BLOCK == 0);
}

#[test]
fn half_of_a_small_file_or_of_the_magic_is_an_error() {
    let magic = Some(*b"entresol");
    let disk = disk();
    let root = disk.root();
    root.replace("small", &[7; 3 * BLOCK]).expect("writes");
    let options = BlockOptions { magic, ..options(BLOCK as u64) };
    drop(root.open_block_file("ours", &options).expect("makes"));
    let (calls, effect) = (Calls::of(&[Call::Read]), Effect::Short);
    let short = FaultPlan::one(Fault { calls, nth: 1, repeat: Repeat::Once, effect });
    disk.inject(short.clone());
    let error = root.read("small").expect_err("is short");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("cannot read /disk/small: "), "{error}");
    assert_eq!(root.read("small").expect("reads"), [7; 3 * BLOCK]);
    disk.inject(short);
    let error = root.open_block_file("ours", &options).expect_err("is short");
    assert!(matches!(error, FileError::Io { doing: "read", .. }), "{error}");
    root.open_block_file("ours", &options).expect("is ours");
    root.replace("tiny", b"ent").expect("writes");
    let error = root.open_block_file("tiny", &options).expect_err("no file of ours is so short");
    assert!(matches!(error, FileError::Foreign { .. }), "{error}");
}

#[test]
fn a_lost_sector_keeps_its_old_content_and_nobody_says_so() {
    let (disk, file) = struck(Call::Write, Effect::LoseSector);
    write(&file, 0, 8, 2);
    file.sync().expect("syncs");
    let found = read(&file);
    let stale: Vec<usize> = (0..8).filter(|&block| found[block] != 2).collect();
    assert_eq!(stale.len(), 1);
    assert_eq!(found[stale[0]], ALL[stale[0]]);
    assert_eq!(crashed_blocks(&disk).len(), 1);
}

#[test]
fn a_misdirected_write_harms_another_place_and_a_misdirected_read_nothing() {
    for seed in 0..20 {
        let (disk, file) = struck(Call::Write, Effect::Misdirect);
        let mut faults = disk.0.core.state().faults.plan.clone();
        faults.seed = seed;
        disk.inject(faults);
        write(&file, 3, 1, 2);
        let found = read(&file);
        let harmed: Vec<usize> = (0..8).filter(|&block| found[block] != ALL[block]).collect();
        assert_eq!(harmed.len(), 1);
        assert!(harmed[0] != 3 && found[harmed[0]] == 2);
    }
    let (_disk, file) = struck(Call::Read, Effect::Misdirect);
    let mut block = IoBuffer::new(BLOCK);
    file.read_at(3 * BLOCK as u64, &mut block).expect("reads");
    assert!(block[0] != 13 && ALL.contains(&block[0]));
    assert_eq!(read(&file), ALL);
}

#[test]
fn a_flipped_bit_stays_flipped() {
    for call in [Call::Read, Call::Write] {
        let (disk, file) = struck(call, Effect::Flip);
        if call == Call::Write {
            write(&file, 2, 1, 12);
        }
        let mut first = IoBuffer::new(8 * BLOCK);
        file.read_at(0, &mut first).expect("reads");
        let expected = (0..8 * BLOCK).map(|at| ALL[at / BLOCK]);
        let wrong: Vec<u32> = first
            .iter()
            .zip(expected)
            .map(|(&found, expected)| (found ^ expected).count_ones())
            .filter(|&bits| bits > 0)
            .collect();
        assert_eq!(wrong, [1], "{call:?}");
        file.sync().expect("syncs");
        let image = disk.image(&[]).contents();
        assert!(image["a"][..] == first[..], "also on the disk");
    }
}

#[test]
fn bits_are_flipped_where_one_says() {
    let disk = disk();
    disk.root().replace("small", b"abc").expect("writes");
    disk.flip("small", 1, 0).expect("is there");
    assert_eq!(disk.root().read("small").expect("reads"), b"acc");
    disk.flip("small", 3, 0).expect_err("is shorter");
    disk.flip("none", 0, 0).expect_err("is not there");
}

#[test]
fn a_full_disk_takes_what_fits_and_removal_makes_room() {
    let disk = disk();
    let root = disk.root();
    let file = settled_file(&disk, "a", 4);
    let capacity = Some(5 * BLOCK as u64);
    disk.inject(FaultPlan { capacity, ..FaultPlan::default() });
    let full = |result: Result<(), FileError>| {
        let error = result.expect_err("full");
        assert!(matches!(error, FileError::NoSpace { .. }), "{error}");
    };
    full(root.open_block_file("b", &options(2 * BLOCK as u64)).map(drop));
    full(file.set_len(6 * BLOCK as u64));
    full(root.replace("c", &[0; 2 * BLOCK]));
    assert_eq!(disk.used_bytes(), 4 * BLOCK as u64, "refusals leave nothing");
    assert_eq!(disk.contents().len(), 1);
    file.discard(0, 4 * BLOCK as u64).expect("discards");
    let other = root.open_block_file("b", &options(3 * BLOCK as u64)).expect("has room now");
    let error = file.write_at(0, &buffer(3 * BLOCK, 2)).expect_err("two fit");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(read(&file), [2, 2, 0, 0]);
    full(file.allocate(0, 4 * BLOCK as u64));
    root.remove("b").expect("removes");
    full(file.allocate(0, 4 * BLOCK as u64));
    drop(other);
    file.allocate(0, 4 * BLOCK as u64).expect("nobody has the other open any more");
    assert_eq!(root.free_bytes().expect("says"), BLOCK as u64);
}

#[test]
fn slow_calls_take_virtual_time() {
    let world = world();
    let ours = world.clone();
    let ran = world.run(move || {
        let disk = Disk::new(&ours, DiskOptions::default()).expect("no model");
        let file = settled_file(&disk, "a", 1);
        let effect = Effect::Slow(Picos::from_secs(10));
        let fault = Fault { calls: Calls::ALL, nth: 1, repeat: Repeat::EverAfter, effect };
        disk.inject(FaultPlan::one(fault));
        write(&file, 0, 1, 2);
        assert_eq!(ours.now(), Picos::from_secs(10));
        file.sync().expect("syncs");
        disk.root().list().expect("lists");
        assert_eq!(ours.now(), Picos::from_secs(30));
        let mut queue = file.clone().queue(1).expect("queue");
        let request =
            IoRequest { access: Access::Read, offset: 0, buffer: buffer(BLOCK, 0), token: 1 };
        queue.submit(request).expect("room");
        queue.wait(Some(Duration::from_secs(4))).expect("waits");
        let mut done = Vec::new();
        queue.reap(&mut done);
        assert!(done.is_empty() && ours.now() == Picos::from_secs(34));
        queue.wait(None).expect("waits");
        queue.reap(&mut done);
        assert!(done.len() == 1 && ours.now() == Picos::from_secs(40));
        file.set_len(2 * BLOCK as u64).expect("grows");
        assert_eq!(ours.now(), Picos::from_secs(50));
        file.allocate(0, BLOCK as u64).expect("has room");
        assert_eq!(ours.now(), Picos::from_secs(60));
    });
    ran.expect("runs");
}

#[test]
fn every_call_of_an_operation_is_failed_in_turn() {
    let attempt = |plan: FaultPlan| -> Result<u64, String> {
        let disk = disk();
        let root = disk.root();
        root.replace("a", b"old").map_err(|error| error.to_string())?;
        disk.inject(plan);
        let result = root.replace("a", b"new");
        let struck = disk.struck_count();
        if result.is_ok() != (struck == 0) {
            return Err(format!("{struck} faults, yet {result:?}"));
        }
        disk.inject(FaultPlan::default());
        for contents in crashed(&disk) {
            let wrong = |bytes: &[u8]| bytes != b"old" && bytes != b"new";
            if wrong(&contents["a"]) || (result.is_ok() && contents["a"] != b"new") {
                return Err(format!("found {contents:?}"));
            }
        }
        let names = root.list().map_err(|error| error.to_string())?;
        if names.len() == 1 { Ok(struck) } else { Err(format!("left {names:?}")) }
    };
    let attempts = fail_every_call(Calls::ALL, Effect::Fail(Failure::Io), attempt);
    // Create, write, sync, rename, sync of the directory: once each, then from each on.
    assert_eq!(attempts.expect("holds"), 10);
    let attempts = fail_every_call(Calls::of(&[Call::Write]), Effect::Short, attempt);
    assert_eq!(attempts.expect("holds"), 2);
}

#[test]
fn a_countdown_names_the_fault_that_led_to_an_error() {
    let error = fail_every_call(Calls::ALL, Effect::Short, |plan| {
        if plan.faults[0].nth == 3 { Err("wrong") } else { Ok(1) }
    });
    let error = error.expect_err("found").to_string();
    assert!(error.contains("nth: 3") && error.ends_with(": wrong"), "{error}");
    let endless = fail_every_call(Calls::ALL, Effect::Short, |_| Ok::<u64, String>(1));
    assert!(matches!(endless, Err(CountdownError::Endless)));
}

#[test]
fn opening_and_growing_undo_themselves_at_every_call() {
    let magic = Some(*b"entresol");
    let attempt = |plan: FaultPlan| -> Result<u64, String> {
        let disk = disk();
        let root = disk.root();
        let small = BlockOptions { magic, ..options(BLOCK as u64) };
        drop(root.open_block_file("a", &small).map_err(|error| error.to_string())?);
        let before = disk.contents();
        disk.inject(plan);
        let large = BlockOptions { magic, ..options(3 * BLOCK as u64) };
        let grown = root.open_block_file("a", &large).map(drop);
        let made = root.open_block_file("b", &large).map(drop);
        let contents = disk.contents();
        match (contents["a"].len() / BLOCK, grown.is_ok()) {
            (1, false) | (3, true) => {}
            (blocks, _) => return Err(format!("{blocks} blocks after {grown:?}")),
        }
        if contents.contains_key("b") != made.is_ok() || contents["a"][..8] != before["a"][..8] {
            return Err(format!("{made:?} left {:?}", contents.keys()));
        }
        Ok(disk.struck_count())
    };
    for failure in [Failure::Io, Failure::NoSpace, Failure::Transient] {
        let attempts = fail_every_call(Calls::ALL, Effect::Fail(failure), attempt);
        assert!(attempts.expect("holds") >= 16);
    }
}

#[test]
fn chance_depends_on_the_seed_alone() {
    let run = |seed: u64| {
        let disk = disk();
        let file = settled_file(&disk, "a", 8);
        let odds = Odds {
            fail: OneIn(20),
            transient: OneIn(20),
            short: OneIn(10),
            flip: OneIn(10),
            lose_sector: OneIn(10),
            misdirect: OneIn(10),
            ..Odds::default()
        };
        disk.inject(FaultPlan { seed, odds, ..FaultPlan::default() });
        for round in 0..200 {
            let _ = file.write_at((round % 8) * BLOCK as u64, &buffer(BLOCK, round as u8));
            let _ = file.read_at(0, &mut IoBuffer::new(8 * BLOCK));
            if round % 16 == 0 {
                let _ = file.sync();
            }
        }
        (disk.struck(), disk.contents())
    };
    let (struck, contents) = run(3);
    assert_eq!(run(3), (struck.clone(), contents.clone()));
    assert_ne!(run(4).0, struck);
    let kinds: BTreeSet<u8> = struck
        .iter()
        .map(|struck| match struck.effect {
            Effect::Fail(Failure::Transient) => 0,
            Effect::Fail(_) => 1,
            Effect::Short => 2,
            Effect::Flip => 3,
            Effect::LoseSector => 4,
            Effect::Misdirect => 5,
            Effect::Slow(_) => 6,
        })
        .collect();
    assert_eq!(kinds, (0..6).collect());
}
