//! Threads and locks behave the same inside a world and outside: each body runs both ways.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex, RwLock, Woken};
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_base::{Picos, thread};

/// Runs the body with the system's threads, and in worlds of many seeds.
fn check(body: fn()) {
    body();
    for seed in 0..200 {
        for preemption in [Preemption::Never, Preemption::OneIn(1), Preemption::OneIn(4)] {
            let options = WorldOptions { preemption, ..WorldOptions::seeded(seed) };
            if let Err(failure) = World::new(options).run(body) {
                panic!("seed {seed}, {preemption:?}: {failure}");
            }
        }
    }
}

fn spawn_all<T: Send + 'static>(
    count: u64,
    work: impl Fn(u64) -> T + Clone + Send + 'static,
) -> Vec<thread::JoinHandle<T>> {
    let start = |number| {
        let work = work.clone();
        thread::spawn(&format!("thread {number}"), move || work(number))
    };
    (0..count).map(start).collect()
}

fn join_all<T>(handles: Vec<thread::JoinHandle<T>>) -> Vec<T> {
    handles.into_iter().map(|handle| handle.join().expect("a thread ends")).collect()
}

#[test]
fn a_mutex_is_held_by_one_at_a_time() {
    check(|| {
        let sum = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&sum);
        join_all(spawn_all(4, move |number| {
            for _ in 0..5 {
                let mut guard = theirs.lock();
                let before = *guard;
                thread::yield_now();
                assert!(theirs.try_lock().is_none());
                *guard = before + number;
            }
        }));
        assert_eq!(*sum.lock(), 30);
        assert!(sum.try_lock().is_some());
    });
}

#[test]
fn a_bounded_queue_hands_everything_over_in_order() {
    check(|| {
        let queue = Arc::new((Mutex::new(std::collections::VecDeque::new()), Condvar::new()));
        let theirs = Arc::clone(&queue);
        let consumer = thread::spawn("consumer", move || {
            let mut got = Vec::new();
            while got.len() < 20 {
                let mut items = theirs.0.lock();
                theirs.1.wait_while(&mut items, |items| items.is_empty());
                got.extend(items.drain(..));
                theirs.1.notify_all();
            }
            got
        });
        for number in 0..20 {
            let mut items = queue.0.lock();
            queue.1.wait_while(&mut items, |items| items.len() == 2);
            items.push_back(number);
            queue.1.notify_all();
        }
        assert!(consumer.join().unwrap().into_iter().eq(0..20));
    });
}

#[test]
fn one_notification_wakes_one_waiter() {
    check(|| {
        let shared = Arc::new((Mutex::new(0_u64), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let waiters = spawn_all(3, move |_| {
            let mut tickets = theirs.0.lock();
            while *tickets == 0 {
                theirs.1.wait(&mut tickets);
            }
            *tickets -= 1;
        });
        for _ in 0..3 {
            *shared.0.lock() += 1;
            shared.1.notify_one();
        }
        join_all(waiters);
        assert_eq!(*shared.0.lock(), 0);
    });
}

#[test]
fn a_wait_with_a_limit_ends() {
    check(|| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let mut guard = shared.0.lock();
        let woken = shared.1.wait_timeout(&mut guard, Duration::from_millis(1));
        assert_eq!(woken, Woken::TimedOut);
        let notifier = thread::spawn("notifier", move || {
            let _guard = theirs.0.lock();
            theirs.1.notify_one();
        });
        let woken = shared.1.wait_timeout(&mut guard, Duration::from_secs(600));
        assert_eq!(woken, Woken::Notified);
        let theirs = Arc::clone(&shared);
        let refused = thread::spawn("refused", move || theirs.0.try_lock().is_none());
        assert!(refused.join().unwrap());
        drop(guard);
        notifier.join().unwrap();
        assert!(shared.0.try_lock().is_some());
    });
}

#[test]
fn a_lock_has_many_readers_or_one_writer() {
    check(|| {
        let pair = Arc::new(RwLock::new((0, 0)));
        let theirs = Arc::clone(&pair);
        join_all(spawn_all(5, move |number| {
            for _ in 0..5 {
                if number < 2 {
                    let mut pair = theirs.write();
                    pair.0 += 1;
                    thread::yield_now();
                    assert!(theirs.try_read().is_none());
                    pair.1 += 1;
                } else {
                    let pair = theirs.read();
                    thread::yield_now();
                    assert_eq!(pair.0, pair.1);
                    assert!(theirs.try_write().is_none());
                }
            }
        }));
        let first = pair.read();
        assert_eq!(*first, (10, 10));
        assert!(pair.try_read().is_some());
        drop(first);
        assert!(pair.try_write().is_some());
    });
}

#[test]
fn readers_queue_behind_a_writer_that_waits() {
    check(|| {
        let lock = Arc::new(RwLock::new(0));
        let (writers, readers) = (Arc::clone(&lock), Arc::clone(&lock));
        let first = lock.read();
        let writer = thread::spawn("writer", move || *writers.write() += 1);
        while lock.try_read().is_some() {
            thread::yield_now();
        }
        let reader = thread::spawn("reader", move || *readers.read());
        thread::yield_now();
        assert!(*first == 0 && lock.try_write().is_none() && lock.try_read().is_none());
        drop(first);
        let seen = reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(lock.try_read().as_deref(), Some(&1));
        // Outside, nothing tells when the reader waits: it may come while the lock changes hands.
        assert!(seen == 1 || World::current().is_none());
    });
}

#[test]
fn a_token_is_never_lost() {
    check(|| {
        let turn = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&turn);
        let main = thread::current();
        let other = thread::spawn("other", move || {
            for round in 0..10 {
                while theirs.load(SeqCst) != 2 * round + 1 {
                    thread::park();
                }
                theirs.store(2 * round + 2, SeqCst);
                main.unpark();
            }
        });
        for round in 0..10 {
            turn.store(2 * round + 1, SeqCst);
            other.thread().unpark();
            while turn.load(SeqCst) != 2 * round + 2 {
                thread::park();
            }
        }
        other.join().unwrap();
        thread::current().unpark();
        thread::park();
        thread::park_timeout(Duration::from_millis(1));
    });
}

#[test]
fn threads_have_numbers_and_ends() {
    check(|| {
        let mut ids = join_all(spawn_all(4, |_| thread::current_id()));
        ids.push(thread::current_id());
        ids.sort();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        let handle = thread::spawn("ends", || 1);
        while !handle.is_finished() {
            thread::yield_now();
        }
        assert_eq!(handle.join().unwrap(), 1);
        let handle = thread::spawn("asks", || thread::current().is_current());
        assert!(thread::current().is_current() && !handle.thread().is_current());
        assert!(handle.join().unwrap());
        drop(thread::try_spawn("detached", || thread::sleep(Duration::from_micros(1))));
    });
}

#[test]
fn handles_can_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<World>();
    check::<Mutex<std::cell::Cell<u8>>>();
    check::<RwLock<u8>>();
    check::<Condvar>();
    check::<thread::Thread>();
    check::<thread::JoinHandle<u8>>();
}

/// A thread that has the lock whenever it is awake, until another has had it.
fn hogged(take: fn(&RwLock<u32>, &Mutex<u32>), want: fn(&RwLock<u32>, &Mutex<u32>)) {
    for preemption in [Preemption::Never, Preemption::OneIn(4)] {
        let time_max = Some(Picos::from_secs(1));
        let world = World::new(WorldOptions { preemption, time_max, ..WorldOptions::seeded(3) });
        let ran = world.run(move || {
            let locks = Arc::new((RwLock::new(0), Mutex::new(0), AtomicBool::new(false)));
            let ours = locks.clone();
            let hog = thread::spawn("hog", move || {
                while !ours.2.load(Relaxed) {
                    take(&ours.0, &ours.1);
                }
            });
            let ours = locks.clone();
            let others = spawn_all(3, move |_| {
                thread::sleep(Duration::from_micros(1));
                want(&ours.0, &ours.1);
            });
            join_all(others);
            locks.2.store(true, Relaxed);
            hog.join().expect("ends");
        });
        ran.unwrap_or_else(|failure| panic!("{preemption:?}: {failure}"));
    }
}

#[test]
fn nobody_is_kept_out_of_a_lock_by_one_who_takes_it_again_at_once() {
    const LONG: Duration = Duration::from_micros(100);
    let lock = |_: &RwLock<u32>, mutex: &Mutex<u32>| {
        let _guard = mutex.lock();
        thread::sleep(LONG);
    };
    let try_lock = |_: &RwLock<u32>, mutex: &Mutex<u32>| {
        let _guard = mutex.try_lock();
        thread::sleep(LONG);
    };
    let write = |lock: &RwLock<u32>, _: &Mutex<u32>| {
        let _guard = lock.write();
        thread::sleep(LONG);
    };
    let try_write = |lock: &RwLock<u32>, _: &Mutex<u32>| {
        let _guard = lock.try_write();
        thread::sleep(LONG);
    };
    let read = |lock: &RwLock<u32>, _: &Mutex<u32>| {
        let _guard = lock.read();
        thread::sleep(LONG);
    };
    let wait = |_: &RwLock<u32>, mutex: &Mutex<u32>| {
        Condvar::new().wait_timeout(&mut mutex.lock(), LONG);
    };
    hogged(lock, lock);
    hogged(try_lock, lock);
    hogged(lock, wait);
    hogged(write, write);
    hogged(write, read);
    hogged(try_write, read);
    hogged(read, write);
}
