//! Statistics of a store, and compactions that report progress.

use std::ops::ControlFlow;

use crate::common::{Place, all};
use entresol_store::{CompactProgress, KvsOptions};

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

#[test]
fn bytes_are_counted_by_their_causes() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let small = store.create_kvs("small", KvsOptions::default()).expect("new");
    let mut user = 0;
    for number in 0..1000 {
        kvs.put(&key(number), &[7; 1000]).expect("room");
        small.put(&key(number), &[7; 10]).expect("room");
        user += 8 + 1000 + 8 + 10;
    }
    let written = store.statistics().expect("open").media[0].written;
    assert_eq!((written.user_bytes, written.log_bytes), (user, user + 2000 * 24));
    assert!(store.statistics().expect("open").memory.memtable_index_bytes > 0);
    store.compact().expect("room");
    let after = store.statistics().expect("open");
    let medium = &after.media[0];
    assert_eq!(medium.written.log_bytes, written.log_bytes);
    assert!(medium.written.flush_bytes >= 2 * 4096, "{medium:?}");
    assert!(medium.written.manifest_bytes > 100, "{medium:?}");
    // The generations of this test are tiny, so there is much to compact.
    assert!((1.1..2.0).contains(&medium.written.per_user_byte()), "{medium:?}");
    assert_eq!(medium.space.value_live_bytes, 1000 * (24 + 8 + 1000));
    assert!(medium.space.value_dead_bytes < medium.space.value_bytes / 3, "{medium:?}");
    assert!(medium.space.free_bytes.is_some_and(|bytes| bytes > 0));
    let [of_data, of_small] = &after.kvs[..] else { panic!("{:?}", after.kvs) };
    assert_eq!((of_data.name.as_str(), of_data.versions), ("data", 1000));
    assert_eq!((of_small.versions, of_small.inline_bytes), (1000, 10_000));
    assert_eq!((of_small.value_bytes, of_small.versions_deleted), (0, 0));
    assert_eq!(after.debt.generations_waiting + after.debt.runs_beyond_one, 0);
    store.close().expect("durable");
    // Reads of values in reopened segments are requests to the medium.
    let store = place.open();
    all(&store.kvs("data").expect("there"), false);
    let read = store.statistics().expect("open").media[0].read;
    assert!(read.value_bytes >= 1000 * 1032 && read.run_bytes >= 8192, "{read:?}");
}

#[test]
fn dead_values_are_told_and_given_back() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for round in 0..3 {
        for number in 0..500 {
            kvs.put(&key(number), &[round; 1000]).expect("room");
        }
    }
    store.compact().expect("room");
    let statistics = store.statistics().expect("open");
    let space = statistics.media[0].space;
    assert!(space.value_bytes < 500 * 1032 * 3 / 2, "{space:?}");
    let written = statistics.media[0].written;
    assert!(written.sum() > written.log_bytes && written.compaction_bytes > 0, "{written:?}");
    assert!(statistics.media[0].read.compaction_bytes > 0);
}

#[test]
fn a_callback_of_a_compaction_cannot_wait_for_it() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..2000 {
        kvs.put(&key(number), &[1; 100]).expect("room");
    }
    let home = store.volumes().remove(0).directory;
    let (mut refused, mut others) = (0, 0);
    let is_done = store.compact_with(&mut |progress| {
        if progress.bytes_done == 0 {
            return ControlFlow::Continue(());
        }
        let retired = store.retire_volume(&home, &mut |_| ControlFlow::Continue(()));
        for result in [store.compact(), retired.map(drop)] {
            let told = result.expect_err("it would wait for ever").to_string();
            assert!(told.contains("end the compaction first"), "{told}");
            refused += 1;
        }
        kvs.put(b"of the callback", b"").expect("room");
        // Another thread just waits for its turn.
        if others == 0 {
            others += 1;
            std::thread::scope(|scope| {
                let other = scope.spawn(|| store.kvs_names());
                assert_eq!(other.join().expect("no panic").len(), 1);
            });
        }
        ControlFlow::Continue(())
    });
    assert!(is_done.expect("room") && refused > 0, "{refused}");
    store.compact().expect("the callback is over");
}

#[test]
fn a_compaction_tells_how_far_it_is_and_can_be_broken_off() {
    let place = Place::new();
    let store = place.create();
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let fill = || {
        for number in 0..2000 {
            kvs.put(&key(number), &[1; 100]).expect("room");
        }
    };
    fill();
    store.compact().expect("room");
    fill();
    let mut told: Vec<CompactProgress> = Vec::new();
    let broken_off = store.compact_with(&mut |progress| {
        told.push(progress);
        if progress.bytes_done > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let before = all(&kvs, false);
    assert!(!broken_off.expect("room"), "{told:?}");
    told.clear();
    // The same keys are put again, so there is something to compact.
    fill();
    let is_done = store.compact_with(&mut |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    });
    assert!(is_done.expect("room"));
    let last = told.last().expect("something was told");
    assert!(last.bytes > 0 && last.bytes_done == last.bytes, "{told:?}");
    assert!(told.iter().any(|it| it.bytes_done > 0 && it.bytes_done < it.bytes), "{told:?}");
    assert!(told.windows(2).all(|two| two[0].bytes_done <= two[1].bytes_done), "{told:?}");
    assert!(all(&kvs, false) == before);
    assert_eq!(store.statistics().expect("open").debt.runs_beyond_one, 0);
}
