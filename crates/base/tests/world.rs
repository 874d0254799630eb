//! A world of simulated threads: one seed is one run, and whatever stops it is reported.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex, RwLock, Woken};
use entresol_base::world::{Limit, Preemption, World, WorldFailure, WorldOptions};
use entresol_base::{Clock, Nanos, Picos, Seconds, thread};

fn world(seed: u64) -> World {
    World::new(WorldOptions { preemption: Preemption::OneIn(3), ..WorldOptions::seeded(seed) })
}

fn current() -> World {
    World::current().expect("called within a world")
}

/// Threads that count, sleep and lock; returns who did what and when.
fn busy_history() -> Vec<(u32, u32, u64)> {
    let history = Arc::new(Mutex::new(Vec::new()));
    let handles: Vec<_> = (0..8)
        .map(|number: u32| {
            let history = Arc::clone(&history);
            thread::spawn(&format!("worker {number}"), move || {
                let mut rng = current().rng(&format!("worker {number}"));
                for round in 0..20 {
                    current().step();
                    history.lock().push((number, round, current().now().0));
                    if rng.one_in(2) {
                        current().spend(rng.poisson_gap(Picos::from_nanos(100)));
                    } else {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().expect("a worker ends");
    }
    history.lock().split_off(0)
}

#[test]
fn the_same_seed_gives_the_same_run_on_every_machine() {
    let runs: Vec<_> = (0..10)
        .map(|_| {
            let world = world(42);
            let history = world.run(busy_history).expect("the run ends");
            (history, world.fingerprint(), world.now(), world.steps())
        })
        .collect();
    assert!(runs.windows(2).all(|pair| pair[0] == pair[1]));
    let (_, fingerprint, now, steps) = &runs[0];
    assert_eq!((*fingerprint, now.0, *steps), (13_380_565_868_409_060_448, 2_078_240, 808));
}

#[test]
fn different_seeds_give_different_interleavings() {
    let mut prints: Vec<_> = (0..50)
        .map(|seed| {
            let world = world(seed);
            world.run(busy_history).expect("the run ends");
            world.fingerprint()
        })
        .collect();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), 50);
}

/// Two threads add one each, reading and writing apart.
fn lost_update() -> u64 {
    let sum = Arc::new(AtomicU64::new(0));
    let add = |name: &str| {
        let sum = Arc::clone(&sum);
        thread::spawn(name, move || {
            let read = sum.load(Relaxed);
            current().step();
            sum.store(read + 1, Relaxed);
        })
    };
    let handles = [add("first"), add("second")];
    handles.into_iter().for_each(|handle| handle.join().expect("it ends"));
    sum.load(Relaxed)
}

#[test]
fn preemption_finds_a_lost_update() {
    let sums: Vec<_> = (0..100).map(|seed| world(seed).run(lost_update).unwrap()).collect();
    assert!(sums.contains(&1) && sums.contains(&2), "{sums:?}");
    let polite = |seed| World::new(WorldOptions::seeded(seed)).run(lost_update).unwrap();
    assert!((0..100).all(|seed| polite(seed) == 2));
}

#[test]
fn a_lost_wake_up_is_reported_with_its_place() {
    let line_of_wait = line!() + 7;
    let failure = world(1).run(|| {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = Arc::clone(&pair);
        let waiter = thread::spawn("waiter", move || {
            let mut ready = shared.0.lock();
            while !*ready {
                shared.1.wait(&mut ready);
            }
        });
        thread::sleep(Duration::from_nanos(5));
        *pair.0.lock() = true; // without a notification
        waiter.join()
    });
    let Err(WorldFailure::Deadlock { report }) = failure else { panic!("no deadlock") };
    assert!(report.contains("thread 0 \"main\" waits for the end of thread 1"), "{report}");
    assert!(report.contains("thread 1 \"waiter\" waits to be notified, since"), "{report}");
    assert!(report.contains(&format!("tests/world.rs:{line_of_wait}:")), "{report}");
    assert!(report.contains("at 5 ns of virtual time"), "{report}");
}

fn embrace() -> u64 {
    let locks = Arc::new((Mutex::new(1), Mutex::new(2)));
    let shared = Arc::clone(&locks);
    let other = thread::spawn("other", move || {
        let second = shared.1.lock();
        let first = shared.0.lock();
        *first + *second
    });
    let first = locks.0.lock();
    let second = locks.1.lock();
    let sum = *first + *second;
    drop((first, second));
    other.join().expect("it ends") + sum
}

#[test]
fn a_deadly_embrace_is_reported_with_who_holds_what() {
    let runs: Vec<_> = (0..100).map(|seed| world(seed).run(embrace)).collect();
    assert!(runs.contains(&Ok(6)));
    let report = runs.into_iter().find_map(|run| match run {
        Err(WorldFailure::Deadlock { report }) => Some(report),
        _ => None,
    });
    let report = report.expect("one seed of a hundred finds it");
    for part in [
        "thread 0 \"main\" waits for a mutex held by thread 1 \"other\" since",
        "thread 1 \"other\" waits for a mutex held by thread 0 \"main\" since",
        "    holds a mutex since",
        "seed ",
    ] {
        assert!(report.contains(part), "{report}");
    }
}

#[test]
fn reading_twice_while_a_writer_waits_is_a_deadlock() {
    for seed in 0..50 {
        for preemption in [Preemption::Never, Preemption::OneIn(1), Preemption::OneIn(4)] {
            let options = WorldOptions { preemption, ..WorldOptions::seeded(seed) };
            let failure = World::new(options).run(|| {
                let lock = Arc::new(RwLock::new(0));
                let theirs = Arc::clone(&lock);
                let first = lock.read();
                let writer = thread::spawn("writer", move || *theirs.write() += 1);
                while lock.try_read().is_some() {
                    thread::yield_now();
                }
                let sum = *first + *lock.read();
                drop(first);
                writer.join().expect("it ends");
                sum
            });
            let Err(WorldFailure::Deadlock { report }) = failure else { panic!("{failure:?}") };
            for part in [
                "\"main\" waits for a lock, to read, held by thread 0 \"main\" since",
                ", behind thread 1 \"writer\", which waits to write, since",
                "\"writer\" waits for a lock, to write, held by thread 0 \"main\" since",
            ] {
                assert!(report.contains(part), "{report}");
            }
        }
    }
}

#[test]
fn readers_that_overlap_do_not_keep_a_writer_out() {
    for seed in 0..50 {
        let time_max = Some(Picos::from_nanos(100));
        let world = World::new(WorldOptions { time_max, ..WorldOptions::seeded(seed) });
        let written = world.run(|| {
            let written = Arc::new(RwLock::new([false; 2]));
            for start in [0, 1] {
                let read = Arc::clone(&written);
                thread::spawn("reader", move || {
                    thread::sleep(Duration::from_nanos(start));
                    loop {
                        let guard = read.read();
                        thread::sleep(Duration::from_nanos(2));
                        if *guard == [true; 2] {
                            break;
                        }
                    }
                });
            }
            thread::sleep(Duration::from_nanos(5));
            let theirs = Arc::clone(&written);
            let other = thread::spawn("writer", move || theirs.write()[1] = true);
            written.write()[0] = true;
            other.join().expect("it ends");
            *written.read()
        });
        assert_eq!(written, Ok([true; 2]), "seed {seed}");
    }
}

#[test]
fn time_passes_only_while_all_wait_and_then_at_once() {
    let world = World::new(WorldOptions::default());
    let woken = world.run(|| {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let sleeper = |nanos: u64| {
            let woken = Arc::clone(&woken);
            thread::spawn(&format!("sleeper {nanos}"), move || {
                thread::sleep(Duration::from_nanos(nanos));
                woken.lock().push((nanos, current().now()));
            })
        };
        let handles = [sleeper(3_600_000_000_000), sleeper(20), sleeper(10)];
        handles.into_iter().for_each(|handle| handle.join().expect("it ends"));
        Arc::try_unwrap(woken).expect("all others are gone").into_inner()
    });
    let hour = 3_600_000_000_000;
    let expected = [10, 20, hour].map(|nanos| (nanos, Picos::from_nanos(nanos)));
    assert_eq!(woken.unwrap(), expected);
    assert_eq!(Clock::now(&world), Nanos(hour));
    assert_eq!(Clock::seconds(&world), Seconds(1_700_003_600));
}

#[test]
fn simultaneous_wake_ups_come_in_an_order_drawn_by_the_seed() {
    let order = |seed| {
        World::new(WorldOptions::seeded(seed)).run(|| {
            let order = Arc::new(Mutex::new(String::new()));
            let handles: Vec<_> = (0..3)
                .map(|number| {
                    let order = Arc::clone(&order);
                    thread::spawn("sleeper", move || {
                        thread::sleep(Duration::from_nanos(1));
                        *order.lock() += &format!("{number}");
                    })
                })
                .collect();
            handles.into_iter().for_each(|handle| handle.join().expect("it ends"));
            std::mem::take(&mut *order.lock())
        })
    };
    let mut orders: Vec<_> = (0..100).map(|seed| order(seed).unwrap()).collect();
    orders.sort();
    orders.dedup();
    assert_eq!(orders, ["012", "021", "102", "120", "201", "210"]);
}

#[test]
fn a_thousand_threads_have_room() {
    let options = WorldOptions { stack_bytes: 32 << 10, ..WorldOptions::seeded(3) };
    let sum = World::new(options).run(|| {
        let start = |number: u64| {
            thread::spawn("one of many", move || {
                let local = std::hint::black_box([number; 1_000]);
                thread::sleep(Duration::from_nanos(local[0] % 7));
                local[999]
            })
        };
        let handles: Vec<_> = (0..1_000).map(start).collect();
        handles.into_iter().map(|handle| handle.join().expect("it ends")).sum::<u64>()
    });
    assert_eq!(sum, Ok(499_500));
}

#[test]
fn who_sleeps_for_ever_is_part_of_a_deadlock() {
    let failure = world(1).run(|| thread::sleep(Duration::MAX));
    let Err(WorldFailure::Deadlock { report }) = failure else { panic!("no deadlock") };
    assert!(report.contains("\"main\" sleeps, since"), "{report}");
}

#[test]
fn what_comes_after_the_end_of_time_is_not_a_deadlock() {
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let world = world(1);
    let failure = world.run(move || {
        thread::spawn("in time", move || thread::sleep(days(200)));
        let pair = Arc::new((Mutex::new(()), Condvar::new()));
        let theirs = Arc::clone(&pair);
        thread::spawn("notifier", move || {
            thread::sleep(days(100));
            theirs.1.notify_one();
        });
        let woken = pair.1.wait_timeout(&mut pair.0.lock(), days(300));
        assert_eq!(woken, Woken::Notified);
        thread::sleep(days(300));
    });
    let Err(WorldFailure::Limit { limit, report }) = failure else { panic!("{failure:?}") };
    assert_eq!(limit, Limit::EndOfTime);
    assert!(report.contains("\"main\" sleeps, since"), "{report}");
    assert!(report.contains(", until a time after the end of virtual time"), "{report}");
    assert_eq!(world.now(), Picos::from_secs(200 * 86_400));

    let world = World::new(WorldOptions { steps_max: Some(1_000), ..WorldOptions::default() });
    let failure = world.run(move || {
        let sleeper = thread::spawn("sleeper", move || thread::sleep(days(300)));
        while !sleeper.is_finished() {
            thread::yield_now();
        }
    });
    let Err(WorldFailure::Limit { limit, .. }) = failure else { panic!("{failure:?}") };
    assert_eq!(limit, Limit::EndOfTime);
}

#[test]
fn a_panic_is_reported_with_thread_and_message() {
    let failure = world(1).run(|| {
        let number = 7;
        let unlucky = thread::spawn("unlucky", move || assert!(number == 8, "number {number}"));
        thread::spawn("innocent", || thread::sleep(Duration::from_secs(1)));
        let _ = unlucky.join();
        unreachable!("a panic stops the world");
    });
    let expected = WorldFailure::Panic { thread: "unlucky".into(), message: "number 7".into() };
    assert_eq!(failure, Err::<(), _>(expected));
}

#[test]
fn time_passes_while_all_poll_who_could_go_on() {
    for preemption in [Preemption::Never, Preemption::OneIn(3)] {
        let world = World::new(WorldOptions {
            preemption,
            steps_max: Some(100_000),
            ..WorldOptions::seeded(3)
        });
        let ran = world.run(move || {
            let is_set = Arc::new(AtomicBool::new(false));
            let polls = |_| {
                let is_set = Arc::clone(&is_set);
                thread::spawn("polls", move || {
                    while !is_set.load(Relaxed) {
                        thread::yield_now();
                    }
                })
            };
            let polling: Vec<_> = (0..3).map(polls).collect();
            thread::sleep(Duration::from_millis(5));
            is_set.store(true, Relaxed);
            polling.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        ran.expect("it ends");
        assert_eq!(world.now(), Picos::from_millis(5));
    }
}

#[test]
fn limits_end_a_livelock() {
    let options = WorldOptions { steps_max: Some(10_000), ..WorldOptions::seeded(1) };
    let failure = World::new(options).run(|| {
        loop {
            thread::yield_now();
        }
    });
    let Err::<(), _>(WorldFailure::Limit { limit, report }) = failure else { panic!("no limit") };
    assert_eq!(limit, Limit::Steps(10_000));
    assert!(report.contains("\"main\" can go on from"), "{report}");

    let time_max = Picos::from_secs(1);
    let world = World::new(WorldOptions { time_max: Some(time_max), ..WorldOptions::default() });
    let failure = world.run(|| {
        loop {
            thread::sleep(Duration::from_millis(7));
        }
    });
    let Err::<(), _>(WorldFailure::Limit { limit, .. }) = failure else { panic!("no limit") };
    assert_eq!(limit, Limit::Time(time_max));
    assert_eq!(world.now(), Picos::from_millis(994));
}
