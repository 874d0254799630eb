//! Checkpoints of stores that take writes meanwhile.

use std::ops::ControlFlow;
use std::sync::Arc;

use entresol_base::rng::Rng;
use entresol_base::world::World;
use entresol_simulated::crash::Power;
use entresol_simulated::disk::{Calls, Disk, DiskOptions, Effect, Failure, fail_every_call};
use entresol_store::{Kvdb, KvdbOptions, KvsOptions, StoreError, check};

use crate::common::{Place, all, in_world};

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

#[test]
fn a_checkpoint_has_what_was_written_before_it_and_opens_by_itself() {
    let (place, copy) = (Place::new(), Place::new());
    let store = place.create();
    let one = store.create_kvs("one", KvsOptions::default()).expect("new");
    let two = store.create_kvs("two", KvsOptions::default()).expect("new");
    for number in 0..1000 {
        one.put(&key(number), &vec![1; number as usize]).expect("room");
        two.put(&key(number), b"2").expect("room");
    }
    one.delete(&key(5)).expect("room");
    let (of_one, of_two) = (all(&one, false), all(&two, false));
    let mut told = Vec::new();
    let made = store.checkpoint(&copy.directory(), &mut |progress| {
        told.push(progress);
        // Writes and compactions go on during the checkpoint.
        one.put(&key(told.len() as u32), b"later").expect("room");
        if told.len() == 4 {
            store.compact().expect("room");
        }
        ControlFlow::Continue(())
    });
    let made = made.expect("room").expect("was not broken off");
    let last = told.last().expect("something was told");
    assert!(made.bytes > 400_000 && made.bytes == last.bytes && last.bytes_done == last.bytes);
    assert!(store.sync().is_ok() && one.get(&key(1)).expect("readable").is_some());
    drop(store);
    let report = check(&copy.directory(), &mut |_| {}).expect("a store");
    assert!(report.is_whole() && report.remarks.is_empty(), "{report:?}");
    let copied = copy.open();
    let one = copied.kvs("one").expect("there");
    // Writes during the flush may be in the copy.
    let found = all(&one, false);
    let is_it = |(found, was): (&crate::common::Pair, &crate::common::Pair)| {
        found == was || found.0 == was.0 && found.1 == b"later"
    };
    let expected: Vec<_> = of_one.iter().filter(|(it, _)| *it != key(1)).collect();
    let found: Vec<_> = found.iter().filter(|(it, _)| *it != key(1)).collect();
    assert_eq!(found.len(), expected.len());
    assert!(found.into_iter().zip(expected).all(is_it));
    assert!(all(&copied.kvs("two").expect("there"), false) == of_two);
    // The copy takes writes like any other store.
    one.put(b"more", b"data").expect("room");
    copied.compact().expect("room");
    copied.close().expect("durable");
    assert_eq!(
        copy.open().kvs("one").expect("there").get(b"more").expect("readable").as_deref(),
        Some(&b"data"[..])
    );
}

#[test]
fn a_directory_with_something_in_it_is_refused_and_a_broken_off_copy_leaves_nothing() {
    let (place, copy) = (Place::new(), Place::new());
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    kvs.put(b"key", &[1; 1000]).expect("room");
    let own = store.checkpoint(&place.directory(), &mut |_| ControlFlow::Continue(()));
    assert!(own.is_err(), "{own:?}");
    let broken_off = store.checkpoint(&copy.directory(), &mut |progress| {
        if progress.bytes_done > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(broken_off.expect("room"), None);
    assert_eq!(copy.directory().list().expect("readable"), []);
    drop(copy.create());
    let taken = store.checkpoint(&copy.directory(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
}

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 2 * KvdbOptions::SEGMENT_BYTES_MIN,
        ..KvdbOptions::default()
    }
}

fn filled(world: &World, disk: &Disk) -> Kvdb {
    let store = Kvdb::create(disk.root(), options(), Arc::new(world.clone())).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..30 {
        kvs.put(&key(number), &vec![3; number as usize * 30]).expect("room");
    }
    store
}

/// Checks that a copy has everything, or is no store.
fn check_copy(world: &World, copy: &Disk) -> Result<bool, String> {
    let store = match Kvdb::open(copy.root(), options(), Arc::new(world.clone())) {
        Ok(store) => store,
        Err(StoreError::NoStore { .. } | StoreError::Unfinished { .. }) => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    let found = all(&store.kvs("data").map_err(|error| error.to_string())?, false);
    let is_right = |(number, (it, value)): (u32, &crate::common::Pair)| {
        *it == key(number) && *value == vec![3; number as usize * 30]
    };
    match found.len() == 30 && (0..).zip(&found).all(is_right) {
        true => Ok(true),
        false => Err("the copy has something else".to_owned()),
    }
}

#[test]
fn a_crash_in_the_midst_leaves_no_store_or_all_of_it() {
    in_world(|world, from| {
        let store = filled(&world, &from);
        let power = Power::new();
        let options = DiskOptions { power: power.clone(), ..DiskOptions::default() };
        let to = Disk::new(&world, options).expect("a disk");
        let mut rng = Rng::named(5, "images");
        let (mut whole, mut none, mut images) = (0, 0, Vec::new());
        let mut look = |to: &Disk| {
            for _ in 0..20 {
                let image = to.random_image(&mut rng);
                let is_whole = check_copy(&world, &image).expect("all or nothing");
                *if is_whole { &mut whole } else { &mut none } += 1;
                images.push(image);
            }
        };
        let made = store.checkpoint(&to.root(), &mut |_| {
            look(&to);
            ControlFlow::Continue(())
        });
        assert!(made.expect("room").is_some());
        look(&to);
        assert!(whole == 20 && none >= 40, "{whole} whole, {none} none");
        // The same copy can be made again over what a crash left.
        for image in images.iter().take(none).step_by(7) {
            let made = store.checkpoint(&image.root(), &mut |_| ControlFlow::Continue(()));
            assert!(made.expect("it can be made again").is_some());
            assert!(check_copy(&world, image).expect("whole"));
        }
    });
}

#[test]
fn a_call_that_fails_leaves_no_store_or_all_of_it() {
    let ran = in_world(|world, from| {
        let store = filled(&world, &from);
        fail_every_call(Calls::ALL, Effect::Fail(Failure::Io), |plan| {
            let to = Disk::new(&world, DiskOptions::default()).expect("a disk");
            to.inject(plan);
            let told = store.checkpoint(&to.root(), &mut |_| ControlFlow::Continue(()));
            let struck = to.struck_count();
            let to = to.reopen(&world, DiskOptions::default()).expect("a disk");
            let is_there = check_copy(&world, &to)?;
            if told.is_ok() && !is_there {
                return Err("it was said to be made".to_owned());
            }
            Ok(struck)
        })
    });
    assert!(ran.expect("all or nothing") > 8);
}
