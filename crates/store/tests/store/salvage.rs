//! Salvages that do not come to their end, and stores whose creation fails.

use std::ops::ControlFlow;
use std::sync::Arc;

use entresol_base::rng::Rng;
use entresol_base::world::World;
use entresol_simulated::crash::Power;
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, FaultPlan, fail_every_call,
};
use entresol_store::{
    Kvdb, KvdbOptions, KvsOptions, SalvageProgress, SalvageReport, StoreError, check, salvage,
};

use crate::common::{all, in_world};

const KEYS: u32 = 400;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 2 * KvdbOptions::SEGMENT_BYTES_MIN,
        ..KvdbOptions::default()
    }
}

/// Makes a store with keys in a run and in the log, and closes it.
fn fill(world: &World, disk: &Disk) {
    let store = Kvdb::create(disk.root(), options(), Arc::new(world.clone())).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..KEYS {
        kvs.put(&number.to_be_bytes(), &vec![3; number as usize]).expect("room");
        if number == KEYS / 2 {
            store.compact().expect("room");
        }
    }
    store.close().expect("durable");
}

fn salvaged(
    world: &World,
    from: &Disk,
    to: &Disk,
    mut progress: impl FnMut(SalvageProgress) -> ControlFlow<()>,
) -> Result<Option<SalvageReport>, StoreError> {
    salvage(&from.root(), to.root(), options(), Arc::new(world.clone()), &mut progress)
}

/// Checks that a copy has everything, or is no store.
fn is_whole(world: &World, copy: &Disk) -> Result<bool, String> {
    let opened = Kvdb::open_read_only(copy.root(), options(), Arc::new(world.clone()));
    let store = match opened {
        Ok(store) => store,
        Err(StoreError::NoStore { .. } | StoreError::Unfinished { .. }) => {
            let checked = check(&copy.root(), &mut |_| {});
            return if checked.is_err() { Ok(false) } else { Err("checked".to_owned()) };
        }
        Err(error) => return Err(error.to_string()),
    };
    let found = all(&store.kvs("data").map_err(|error| error.to_string())?, false);
    match found.len() == KEYS as usize {
        true => Ok(true),
        false => Err(format!("{} keys", found.len())),
    }
}

#[test]
fn a_salvage_that_its_caller_ends_leaves_nothing() {
    in_world(|world, disk| {
        fill(&world, &disk);
        let mut looks = 0;
        for ends_at in 0.. {
            let to = Disk::new(&world, DiskOptions::default()).expect("a disk");
            looks = 0;
            let report = salvaged(&world, &disk, &to, |_| {
                looks += 1;
                if looks > ends_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if report.expect("no disk fails").is_some() {
                assert!(is_whole(&world, &to).expect("a store"));
                break;
            }
            assert_eq!(to.root().list().expect("readable"), []);
        }
        assert!(looks > 6, "{looks}");
    });
}

#[test]
fn a_crash_amid_a_salvage_leaves_no_store_and_the_same_command_goes_on() {
    in_world(|world, disk| {
        fill(&world, &disk);
        let power = Power::new();
        let options = DiskOptions { power: power.clone(), ..DiskOptions::default() };
        let to = Disk::new(&world, options).expect("a disk");
        let mut rng = Rng::named(5, "images");
        let mut images = Vec::new();
        let made = salvaged(&world, &disk, &to, |_| {
            for _ in 0..10 {
                let image = to.random_image(&mut rng);
                assert_eq!(is_whole(&world, &image), Ok(false));
                images.push(image);
            }
            ControlFlow::Continue(())
        });
        assert!(made.expect("room").is_some());
        assert_eq!(is_whole(&world, &to), Ok(true));
        assert!(images.len() > 60, "{}", images.len());
        for image in images.iter().step_by(9) {
            let again = salvaged(&world, &disk, image, |_| ControlFlow::Continue(()));
            assert!(again.expect("it replaces what a crash left").is_some());
            assert_eq!(is_whole(&world, image), Ok(true));
        }
        // Another's file is no remains.
        let root = to.root();
        root.remove("MANIFEST").expect("there");
        let mark = b"The files here are an incomplete copy of a store. Make the copy again, or \
            remove this directory.\n";
        root.replace("UNFINISHED", mark).expect("room");
        let checked = check(&to.root(), &mut |_| {});
        assert!(matches!(checked, Err(StoreError::Unfinished { .. })), "{checked:?}");
        for (mark, letter) in [(&mark[..], Some("letter")), (b"", None)] {
            root.replace("UNFINISHED", mark).expect("room");
            if let Some(letter) = letter {
                root.replace(letter, b"").expect("room");
            }
            let before = root.list().expect("readable");
            let refused = salvaged(&world, &disk, &to, |_| ControlFlow::Continue(()));
            assert!(matches!(refused, Err(StoreError::Exists { .. })), "{refused:?}");
            assert_eq!(root.list().expect("readable"), before, "nothing was removed");
            root.remove("letter").expect("removable");
        }
    });
}

#[test]
fn a_salvage_whose_disk_fails_leaves_no_store_or_all_of_it() {
    let ran = in_world(|world, disk| {
        fill(&world, &disk);
        fail_every_call(Calls::ALL, Effect::Fail(Failure::Io), |plan| {
            let to = Disk::new(&world, DiskOptions::default()).expect("a disk");
            to.inject(plan);
            let told = salvaged(&world, &disk, &to, |_| ControlFlow::Continue(()));
            let struck = to.struck_count();
            let to = to.reopen(&world, DiskOptions::default()).expect("a disk");
            let is_there = is_whole(&world, &to)?;
            if told.is_ok() && !is_there {
                return Err("it was said to be made".to_owned());
            }
            Ok(struck)
        })
    });
    assert!(ran.expect("all or nothing") > 20);
}

/// Checks that a lack of descriptors is told, if calls met it, and that nothing is found otherwise.
/// Some calls can be done without: what they would have told is read again, or told elsewhere.
fn is_told<T>(
    (struck, may_do_without): (u64, bool),
    done: Result<T, StoreError>,
    finds: usize,
) -> Result<(), String> {
    match done {
        Err(error) if struck > 0 && error.to_string().contains("raise the limit of open files") => {
            assert!(error.is_no_descriptors() && !error.is_no_room());
            Ok(())
        }
        Ok(_) if finds == 0 && (struck == 0 || may_do_without) => Ok(()),
        Ok(_) => Err(format!("{struck} calls failed, and there are {finds} findings")),
        Err(error) => Err(error.to_string()),
    }
}

/// Fails each call of these kinds for lack of a descriptor: in checks, and in the source and the
/// copy of salvages.
fn lack_descriptors(calls: Calls, may_do_without: bool) -> (u64, u64, u64) {
    in_world(move |world, disk| {
        fill(&world, &disk);
        let fail = Effect::Fail(Failure::Descriptors);
        let in_checks = fail_every_call(calls, fail, |plan| {
            disk.inject(plan);
            let checked = check(&disk.root(), &mut |_| {});
            let struck = disk.struck_count();
            let finds = checked.as_ref().map_or(0, |report| report.findings.len());
            is_told((struck, may_do_without), checked, finds).map(|()| struck)
        });
        let [in_sources, in_copies] = [true, false].map(|is_of_source| {
            fail_every_call(calls, fail, |plan| {
                let to = Disk::new(&world, DiskOptions::default()).expect("a disk");
                disk.inject(FaultPlan::default());
                let struck_one = if is_of_source { &disk } else { &to };
                struck_one.inject(plan);
                let made = salvaged(&world, &disk, &to, |_| ControlFlow::Continue(()));
                let struck = struck_one.struck_count();
                struck_one.inject(FaultPlan::default());
                let is_made = made.is_ok();
                if is_whole(&world, &to)? != is_made {
                    return Err(format!("made: {is_made}, and the copy says the contrary"));
                }
                if is_of_source && !is_made && !to.root().list().expect("readable").is_empty() {
                    return Err("something is left".to_owned());
                }
                let report = made.as_ref().ok().and_then(Option::as_ref);
                let finds = report.map_or(0, |report| report.findings.len());
                // The threads of the copy try again what fails once.
                let may_do_without = may_do_without || !is_of_source;
                is_told((struck, may_do_without), made, finds).map(|()| struck)
            })
        });
        let tried = |ran: Result<u64, _>| ran.expect("a lack of descriptors is no damage");
        (tried(in_checks), tried(in_sources), tried(in_copies))
    })
}

#[test]
fn files_that_cannot_be_opened_for_lack_of_descriptors_are_not_damaged() {
    let (checks, sources, copies) = lack_descriptors(Calls::of(&[Call::Look]), false);
    assert!(checks > 20 && sources > 20 && copies > 5, "{checks}, {sources}, {copies}");
}

/// Networks and lacks of memory fail so.
#[test]
fn files_that_cannot_be_read_for_what_surrounds_them_are_not_damaged() {
    let (checks, sources, _) = lack_descriptors(Calls::of(&[Call::Read]), true);
    assert!(checks > 20 && sources > 20, "{checks}, {sources}");
}

#[test]
fn a_store_whose_creation_fails_leaves_nothing() {
    let ran = in_world(|world, _| {
        fail_every_call(Calls::ALL, Effect::Fail(Failure::Io), |plan| {
            let disk = Disk::new(&world, DiskOptions::default()).expect("a disk");
            disk.inject(plan);
            let made = Kvdb::create(disk.root(), options(), Arc::new(world.clone()));
            let (struck, is_made) = (disk.struck_count(), made.is_ok());
            drop(made);
            disk.inject(FaultPlan::default());
            let left = disk.root().list().expect("readable");
            // A disk that fails for good lets nothing be removed.
            if !is_made && struck == 1 && !left.is_empty() {
                return Err(format!("{left:?}"));
            }
            Ok(struck)
        })
    });
    assert!(ran.expect("nothing is left") > 5);
}

#[test]
fn a_store_is_removed_by_its_handle() {
    in_world(|world, disk| {
        fill(&world, &disk);
        let store = Kvdb::open(disk.root(), options(), Arc::new(world.clone())).expect("a store");
        store.remove().expect("the disk works");
        assert_eq!(disk.root().list().expect("readable"), []);
    });
}
