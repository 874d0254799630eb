//! Stops of a world, in every way: all stacks unwind, nothing hangs, and the process goes on.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex, RwLock};
use entresol_base::world::{Preemption, World, WorldFailure, WorldOptions};
use entresol_base::{Picos, thread};

fn world() -> World {
    World::new(WorldOptions { preemption: Preemption::OneIn(2), ..WorldOptions::seeded(5) })
}

fn current() -> World {
    World::current().expect("called within a world")
}

/// Runs something when it goes out of scope.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A counter, and something that counts when it is dropped.
fn counted(count: &Arc<AtomicU64>) -> Finally<impl FnMut() + Send + 'static> {
    let count = Arc::clone(count);
    Finally(move || {
        count.fetch_add(1, Relaxed);
    })
}

#[test]
fn a_crash_unwinds_every_thread_wherever_it_is() {
    let dropped = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&dropped);
    let world = world();
    let failure = world.run(move || {
        let locks = Arc::new((Mutex::new(()), RwLock::new(()), Condvar::new()));
        let start = |name: &str, work: fn(&(Mutex<()>, RwLock<()>, Condvar))| {
            let (locks, on_stack) = (Arc::clone(&locks), counted(&count));
            thread::spawn(name, move || {
                let _on_stack = on_stack;
                work(&locks);
            })
        };
        start("sleeps", |_| thread::sleep(Duration::from_secs(9)));
        start("is parked", |_| current().park("a completion"));
        start("waits for a condition", |locks| locks.2.wait(&mut locks.0.lock()));
        let _held = (locks.0.lock(), locks.1.write());
        start("waits for a mutex", |locks| drop(locks.0.lock()));
        start("waits to read", |locks| drop(locks.1.read()));
        start("waits to write", |locks| drop(locks.1.write()));
        start("polls", |_| {
            loop {
                current().step();
                current().spend(Picos(10));
            }
        });
        let joined = start("is joined", |_| thread::park());
        thread::spawn("joins", move || joined.join().expect("it never ends"));
        thread::sleep(Duration::from_nanos(1));
        start("never starts", |_| unreachable!("it is cancelled before"));
        current().crash();
    });
    assert_eq!(failure, Err::<(), _>(WorldFailure::Crashed));
    assert_eq!(dropped.load(Relaxed), 9);
    assert!(world.crashed());
    assert_eq!(world.now(), Picos::from_nanos(1));
    assert_eq!(world.run(|| ()), Err(WorldFailure::Crashed));
}

#[test]
fn destructors_may_lock_sleep_notify_and_join_while_they_unwind() {
    let steps = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&steps);
    let failure = world().run(move || {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let worker = thread::spawn("worker", move || {
            let mut state = theirs.0.lock();
            let _finally = Finally(|| thread::sleep(Duration::from_nanos(3)));
            while *state == 0 {
                theirs.1.wait(&mut state);
            }
        });
        let mut worker = Some(worker);
        let _finally = Finally(move || {
            *shared.0.lock() += 1;
            shared.1.notify_all();
            counter.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_secs(1));
            thread::yield_now();
            current().step();
            assert!(worker.take().expect("once").join().is_err());
            counter.fetch_add(1, Relaxed);
        });
        thread::sleep(Duration::from_nanos(1));
        current().crash();
    });
    assert_eq!(failure, Err::<(), _>(WorldFailure::Crashed));
    assert_eq!(steps.load(Relaxed), 2);
}

#[test]
fn a_writer_that_is_cancelled_lets_destructors_read() {
    let read = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&read);
    let failure = world().run(move || {
        let lock = Arc::new(RwLock::new(1));
        let theirs = Arc::clone(&lock);
        let _held = lock.read();
        let _finally = Finally(|| {
            count.fetch_add(*lock.read(), Relaxed);
            thread::sleep(Duration::from_secs(300 * 86_400));
            count.fetch_add(1, Relaxed);
        });
        thread::spawn("writer", move || *theirs.write() += 1);
        thread::sleep(Duration::from_nanos(1));
        current().crash();
    });
    assert_eq!(failure, Err::<(), _>(WorldFailure::Crashed));
    assert_eq!(read.load(Relaxed), 2);
}

#[test]
fn a_guard_is_whole_while_a_cancelled_wait_unwinds() {
    let seen = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&seen);
    let failure = world().run(move || {
        let shared = Arc::new((Mutex::new(20), Condvar::new()));
        for _ in 0..2 {
            let (shared, sum) = (Arc::clone(&shared), Arc::clone(&sum));
            thread::spawn("waits", move || {
                let guard = std::cell::RefCell::new(shared.0.lock());
                let _finally = Finally(|| {
                    **guard.borrow_mut() += 1;
                    sum.fetch_add(**guard.borrow(), Relaxed);
                });
                // The borrow is over before the destructor above runs.
                shared.1.wait(&mut guard.borrow_mut());
            });
        }
        thread::sleep(Duration::from_nanos(1));
        let _locked = shared.0.lock();
        current().crash();
    });
    assert_eq!(failure, Err::<(), _>(WorldFailure::Crashed));
    assert_eq!(seen.load(Relaxed), 21 + 22);
}

#[test]
fn destructors_that_wait_for_each_other_are_given_up() {
    let failure = world().run(|| {
        let locks = Arc::new((Mutex::new(()), Mutex::new(())));
        let theirs = Arc::clone(&locks);
        thread::spawn("other", move || {
            let _held = theirs.1.lock();
            let _finally = Finally(|| drop(theirs.0.lock()));
            thread::park();
        });
        let _held = locks.0.lock();
        let _finally = Finally(|| drop(locks.1.lock()));
        thread::sleep(Duration::from_nanos(1));
        current().crash();
    });
    assert_eq!(failure, Err::<(), _>(WorldFailure::Crashed));
    // Two stacks stand still for ever; the next world of this thread is none the worse.
    assert_eq!(world().run(|| thread::spawn("next", || 3).join().unwrap()), Ok(3));
    let crash = || {
        thread::spawn("next", thread::park);
        thread::yield_now();
        current().crash()
    };
    assert_eq!(world().run(crash), Err::<(), _>(WorldFailure::Crashed));
}

#[test]
fn code_that_catches_everything_cannot_keep_a_world_alive() {
    let failure = world().run(|| {
        thread::spawn("stubborn", || {
            loop {
                let _ = catch_unwind(|| thread::sleep(Duration::from_nanos(1)));
            }
        });
        thread::sleep(Duration::from_nanos(10));
        current().crash();
    });
    assert_eq!(failure, Err::<(), _>(WorldFailure::Crashed));
}

#[test]
fn a_panic_that_is_caught_does_not_stop_the_world() {
    let value = world().run(|| {
        let caught = catch_unwind(|| {
            let _finally = Finally(|| thread::sleep(Duration::from_nanos(5)));
            panic!("caught");
        });
        assert!(caught.is_err());
        thread::spawn("goes on", || thread::sleep(Duration::from_nanos(1))).join().unwrap();
        current().now()
    });
    assert_eq!(value, Ok(Picos::from_nanos(6)));
}

#[test]
fn a_crash_in_the_destructors_of_a_panic_stops_the_world() {
    let failure = world().run(|| {
        thread::spawn("parked", thread::park);
        let _finally = Finally(|| current().crash());
        panic!("and what is unwinding then is given up");
    });
    assert_eq!(failure, Err::<(), _>(WorldFailure::Crashed));
}

#[test]
fn worlds_nest() {
    let outer = world();
    let value = outer.run(|| {
        let sleeper = thread::spawn("sleeper", || {
            thread::sleep(Duration::from_nanos(7));
            current().now()
        });
        let outer = current();
        let lock = Arc::new(Mutex::new(1));
        let held = lock.lock();

        let theirs = Arc::clone(&lock);
        let inner = World::new(WorldOptions::seeded(1));
        let failure = inner.run(move || {
            thread::spawn("inner", move || drop(theirs.lock()));
            outer.step();
            thread::sleep(Duration::from_secs(1));
        });
        let Err(WorldFailure::Deadlock { report }) = failure else { panic!("no deadlock") };
        assert!(report.contains("\"inner\" waits for a mutex that no thread here holds"));
        drop(held);

        for seed in 0..50 {
            let theirs = Arc::clone(&lock);
            let crash = move || {
                *theirs.lock() += 1;
                thread::spawn("inner", thread::park);
                thread::yield_now();
                current().crash()
            };
            let inner = World::new(WorldOptions::seeded(seed));
            assert_eq!(inner.run(crash), Err::<(), _>(WorldFailure::Crashed));
        }
        let outer = current();
        let foreign = World::new(WorldOptions::default()).run(move || outer.spend(Picos(1)));
        assert!(matches!(foreign, Err(WorldFailure::Panic { .. })));
        assert_eq!(current().now(), Picos::ZERO);
        (*lock.lock(), sleeper.join().unwrap())
    });
    assert_eq!(value, Ok((51, Picos::from_nanos(7))));
    assert!(World::current().is_none());
}

#[test]
fn a_world_runs_once_at_a_time_and_again_later() {
    let world = world();
    let again = world.clone();
    let nested = world.run(move || catch_unwind(AssertUnwindSafe(|| again.run(|| ()))).is_err());
    assert_eq!(nested, Ok(true));
    assert_eq!(world.run(|| current().spend(Picos(4))), Ok(()));
    assert_eq!(world.run(|| current().spend(Picos(4))), Ok(()));
    assert_eq!(world.now(), Picos(8));
}

const DEEP: &str = "ENTRESOL_TEST_DEEP";

/// Never returns for large depths, and touches every frame on the way back.
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == 0 { frame[0] } else { recurse(depth - 1) + frame[63] }
}

#[test]
fn a_stack_overflow_is_reported_and_corrupts_nothing() {
    if std::env::var_os(DEEP).is_some() {
        let options = WorldOptions { stack_bytes: 64 << 10, ..WorldOptions::default() };
        let failure = World::new(options).run(|| {
            let beside = thread::spawn("beside", || {
                let bytes = std::hint::black_box([7_u8; 2_000]);
                let intact = Finally(move || {
                    assert!(std::hint::black_box(bytes).iter().all(|byte| *byte == 7));
                    println!("intact");
                });
                thread::park();
                drop(intact);
            });
            thread::sleep(Duration::from_nanos(1));
            thread::spawn("deep", || recurse(std::hint::black_box(1 << 40)));
            beside.join().unwrap();
        });
        println!("{}", failure.expect_err("it overflowed"));
        return;
    }
    let test = "a_stack_overflow_is_reported_and_corrupts_nothing";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(DEEP, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{:?}: {said}", child.status);
    let expected = "simulated thread \"deep\" has overflowed its stack of 65536 bytes";
    assert!(said.contains(expected) && said.contains("intact"), "{said}");
}
