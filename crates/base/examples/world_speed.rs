//! Measures the speed of simulated worlds on this machine: `cargo run --release -p entresol-base
//! --example world_speed [WHICH]`.
//!
//! Prints nanoseconds of processor time, the best of several tries; other load on the machine
//! disturbs them little.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures and prints")]

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use entresol_base::sync::Mutex;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_base::{Picos, thread};

const TRIES: u32 = 7;

/// Prints the best time of one of `count` operations.
fn measure(what: &str, count: u32, mut run: impl FnMut()) {
    if std::env::args().nth(1).is_some_and(|only| !what.contains(&only)) {
        return;
    }
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let (begun, begun_ns) = (Instant::now(), busy_ns());
        run();
        let busy = busy_ns().zip(begun_ns).map(|(now, begun)| now - begun);
        let spent = busy.unwrap_or_else(|| begun.elapsed().as_nanos() as f64);
        best = best.min(spent / f64::from(count));
    }
    println!("{what:44} {best:9.1} ns {:8.2} M/s", 1e3 / best);
}

/// Processor time of this thread, as far as the kernel tells.
fn busy_ns() -> Option<f64> {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    said.split_whitespace().next()?.parse().ok()
}

fn world(preemption: Preemption) -> World {
    World::new(WorldOptions { preemption, ..WorldOptions::seeded(1) })
}

/// Runs threads that together wait `count` times, each for random times.
fn waits(threads: u32, count: u32) {
    let world = world(Preemption::Never);
    let ran = world.run(move || {
        let start = |number: u32| {
            thread::spawn("waits", move || {
                let Some(world) = World::current() else { return };
                let mut rng = world.rng(&number.to_string());
                for _ in 0..count / threads {
                    world.spend(Picos(rng.range(1..1_000_000)));
                }
            })
        };
        (0..threads).for_each(|number| drop(start(number)));
    });
    assert!(ran.is_ok());
}

/// Runs one thread that repeats `work`.
fn alone(preemption: Preemption, count: u32, work: impl Fn(&World) + 'static) {
    let ran = world(preemption).run(move || {
        let Some(world) = World::current() else { return };
        (0..count).for_each(|_| work(&world));
    });
    assert!(ran.is_ok());
}

fn lock_often(mutex: &Mutex<u64>, count: u32) {
    for _ in 0..count {
        *mutex.lock() += 1;
    }
}

fn main() {
    for threads in [1, 2, 16, 100, 300, 3_000] {
        let what = format!("a wait, {threads} threads");
        measure(&what, 1_200_000, || waits(threads, 1_200_000));
    }
    let never = Preemption::Never;
    measure("a step", 10_000_000, || alone(never, 10_000_000, World::step));
    let often = Preemption::OneIn(100);
    measure("a step, 1 in 100 preempted", 10_000_000, || alone(often, 10_000_000, World::step));
    measure("a lock, inside", 1_000_000, || {
        let mutex = Arc::new(Mutex::new(0));
        alone(never, 1, move |_| lock_often(&mutex, 1_000_000));
    });
    measure("a lock, outside", 10_000_000, || lock_often(&Mutex::new(0), 10_000_000));
    measure("a lock of the standard library", 10_000_000, || {
        let mutex = std::sync::Mutex::new(0_u64);
        for _ in 0..10_000_000 {
            *mutex.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        assert_eq!(mutex.into_inner().unwrap_or_default(), 10_000_000);
    });
    measure("a world", 100_000, || (0..100_000).for_each(|_| alone(never, 0, |_| ())));
    measure("a world with two more threads", 100_000, || {
        for _ in 0..100_000 {
            waits(2, 2);
        }
    });
}
