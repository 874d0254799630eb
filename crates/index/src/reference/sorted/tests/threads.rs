//! Threads: each answer was true at one time, and durable before.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::{Mutex as StdMutex, MutexGuard, PoisonError};

use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_simulated::crash::{
    Crash, ExploreOptions, Explorer, Nested, Power, Recorder, RecorderOptions, Subject,
};

use super::*;

const KEYS: u64 = 40;

/// All states of a key, in order, since it has one writer. It must not be found in a state before
/// the last that was acknowledged or returned to a reader.
struct Key {
    states: Vec<Option<u64>>,
    least: usize,
}

impl Key {
    /// The first of the states from `least` on that is this one.
    fn find(&self, least: usize, state: Option<u64>) -> Option<usize> {
        (least..self.states.len()).find(|&number| self.states[number] == state)
    }
}

/// Knowledge of all threads about all keys.
struct Known(StdMutex<Vec<Key>>);

impl Known {
    fn new() -> Known {
        let key = || Key { states: vec![None], least: 0 };
        Known(StdMutex::new((0..KEYS).map(|_| key()).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn least(&self) -> Vec<usize> {
        self.lock().iter().map(|key| key.least).collect()
    }

    /// Checks a state returned to a reader that began when `least` was known.
    fn shown(&self, number: u64, least: usize, state: Option<u64>) {
        let key = &mut self.lock()[number as usize];
        let found = key.find(least, state);
        assert!(found.is_some(), "key {number} shows {state:?}; from {least} on {:?}", key.states);
        key.least = key.least.max(found.unwrap_or(0));
    }
}

struct Threads<S: Style, K> {
    known: Known,
    options: S::Options,
    keys: PhantomData<K>,
}

impl<S, K> Subject for Threads<S, K>
where
    S: Style,
    K: Keys<RecordedRegion, Key: Numbered> + Default + 'static,
{
    type Opened = (Arc<Pool<RecordedRegion>>, Tree<RecordedRegion, S, K>);

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        let text = |error: IndexError| error.to_string();
        let pool = Arc::new(Pool::open(crash.region(0).clone()).map_err(text)?);
        let tree = Tree::open(&pool, 0, &self.options).map_err(text)?;
        Ok((pool, tree))
    }

    fn check(&self, (pool, tree): Self::Opened, _crash: &Crash<'_>) -> Result<(), String> {
        let mut found = vec![None; KEYS as usize];
        for (key, value) in records(&tree, Direction::Forward) {
            found[key as usize] = Some(value);
        }
        for ((number, key), &found) in (0..).zip(self.known.lock().iter()).zip(&found) {
            if key.find(key.least, found).is_none() {
                let (states, least) = (&key.states, key.least);
                return Err(format!("key {number} has {found:?}; from {least} on {states:?}"));
            }
            let got = tree.get(K::Key::of(number).borrow()).map_err(|error| error.to_string())?;
            if got != found {
                return Err(format!("key {number} has {found:?}, and {got:?} by itself"));
            }
        }
        pool.sweep(|visit| tree.blocks(visit)).map(drop).map_err(|error| error.to_string())
    }
}

/// Writes its own keys.
fn write<R, S, K>(tree: &Tree<R, S, K>, known: &Known, mut rng: Rng, mine: u64)
where
    R: Region,
    S: Style,
    K: Keys<R, Key: Numbered> + Default,
{
    for step in 0..90 {
        let number = rng.below(KEYS / 2) * 2 + mine;
        let is_removed = rng.below(8) < [2, 6, 3][step as usize / 30];
        let (least, before) = {
            let key = &mut known.lock()[number as usize];
            let before = key.states.last().copied().flatten();
            let after = (!is_removed).then_some(key.states.len() as u64);
            key.states.push(after);
            (key.states.len() - 1, before)
        };
        let own = K::Key::of(number);
        let answer = match is_removed {
            true => tree.remove(own.borrow()),
            false => tree.upsert(own.borrow(), least as u64),
        };
        assert_eq!(answer.expect("room"), before, "key {number}");
        known.lock()[number as usize].least = least;
    }
}

fn read<R, S, K>(tree: &Tree<R, S, K>, known: &Known, mut rng: Rng)
where
    R: Region,
    S: Style,
    K: Keys<R, Key: Numbered> + Default,
{
    for _ in 0..60 {
        let least = known.least();
        if rng.one_in(8) {
            let direction = [Direction::Forward, Direction::Backward][rng.index(2)];
            let mut states = vec![None; KEYS as usize];
            let all = records(tree, direction);
            for &(key, value) in &all {
                assert!(states[key as usize].replace(value).is_none(), "{key} twice");
            }
            let is_sorted = match direction {
                Direction::Forward => all.is_sorted(),
                Direction::Backward => all.iter().rev().is_sorted(),
            };
            assert!(is_sorted, "{all:?}");
            for (number, state) in (0..).zip(states) {
                known.shown(number, least[number as usize], state);
            }
        } else {
            let number = rng.below(KEYS);
            let got = tree.get(K::Key::of(number).borrow()).expect("no damage");
            known.shown(number, least[number as usize], got);
        }
    }
}

/// Two writers and a reader in a world that takes turns at random; crashes all the while.
fn shows_what_is_durable<S, K>(seed: u64, options: &S::Options)
where
    S: Style,
    K: Keys<RecordedRegion, Key: Numbered> + Default + 'static,
{
    let preemption = Preemption::OneIn(4);
    // Endless waits are reported before minutes have passed.
    let steps_max = Some(20_000_000);
    let world = World::new(WorldOptions { preemption, steps_max, ..WorldOptions::seeded(seed) });
    let options = options.clone();
    let ran = world.run(move || {
        let power = Power::new();
        let region = Recorder::region(256 << 10, RecorderOptions::default(), &power);
        let region = Arc::new(region.expect("memory"));
        let pool = PoolOptions { chunk_bytes: 4096 };
        let pool = Arc::new(Pool::create(region, pool).expect("a pool"));
        let tree = Arc::new(Tree::<_, S, K>::open(&pool, 0, &options).expect("a tree"));
        let (known, keys) = (Known::new(), PhantomData);
        let threads = Arc::new(Threads::<S, K> { known, options, keys });
        let nested = Nested { one_in: 64, depth_max: 1, images_max: 2 };
        let few = ExploreOptions { seed, exhaustive_max: 6, images_max: 6, nested };
        let explorer = Explorer::new(threads.clone(), few);
        explorer.watch(&power);
        let begun = (0..3).map(|number| {
            let (tree, threads) = (tree.clone(), threads.clone());
            let rng = Rng::named(seed, &format!("thread {number}"));
            thread::spawn("one of three", move || match number {
                2 => read(&tree, &threads.known, rng),
                mine => write(&tree, &threads.known, rng, mine),
            })
        });
        let begun: Vec<_> = begun.collect();
        begun.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let report = explorer.finish(&power);
        assert!(report.failure.is_none(), "seed {seed}: {}", report.failure.expect("one"));
        assert!(report.images > 500, "{report:?}");
        let statistics = tree.statistics().expect("no damage");
        assert!(statistics.splits > 3 && statistics.merges > 0, "{statistics:?}");
    });
    ran.expect("the world ends");
}

#[test]
fn what_fast_fair_shows_is_durable() {
    for seed in 0..8 {
        shows_what_is_durable::<Moving, Inline>(seed, &FastFairOptions { node_bytes: 128 });
    }
}

#[test]
fn what_ods_shows_is_durable() {
    for seed in 0..8 {
        let options = OdsOptions { node_bytes: 128, split_from: 0.7 };
        shows_what_is_durable::<InPlace, Inline>(seed, &options);
        shows_what_is_durable::<InPlace, Bytes>(seed, &options);
    }
}

/// An operation on a key, when it began and ended, and what it answered.
#[derive(Debug, Clone, Copy)]
struct Call {
    began: u64,
    ended: u64,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Inserted(u64, bool),
    Upserted(u64, Option<u64>),
    Removed(Option<u64>),
    Got(Option<u64>),
}

impl What {
    /// Returns the state after it, if it is possible in this one.
    fn after(self, state: Option<u64>) -> Option<Option<u64>> {
        match self {
            What::Inserted(value, true) => state.is_none().then_some(Some(value)),
            What::Inserted(_, false) => state.is_some().then_some(state),
            What::Upserted(value, before) => (before == state).then_some(Some(value)),
            What::Removed(before) => (before == state).then_some(None),
            What::Got(got) => (got == state).then_some(state),
        }
    }
}

/// Returns true if the calls can be put in an order that keeps each call that ended before another
/// began ahead of it.
fn is_linear(calls: &mut Vec<Call>, state: Option<u64>) -> bool {
    let Some(first_end) = calls.iter().map(|call| call.ended).min() else { return true };
    for number in 0..calls.len() {
        let call = calls[number];
        if call.began > first_end {
            continue;
        }
        if let Some(after) = call.what.after(state) {
            calls.swap_remove(number);
            if is_linear(calls, after) {
                return true;
            }
            calls.push(call);
            let last = calls.len() - 1;
            calls.swap(number, last);
        }
    }
    false
}

/// Four threads that change the same few keys, between others that split and empty nodes.
fn is_linearizable<S, K>(seed: u64, options: &S::Options)
where
    S: Style,
    K: Keys<Observed<()>, Key: Numbered> + Default + 'static,
{
    let preemption = Preemption::OneIn(3);
    // Endless waits are reported before minutes have passed.
    let steps_max = Some(20_000_000);
    let world = World::new(WorldOptions { preemption, steps_max, ..WorldOptions::seeded(seed) });
    let options = options.clone();
    let ran = world.run(move || {
        let region = Arc::new(Observed::new(256 << 10, ()).expect("memory"));
        let pool = PoolOptions { chunk_bytes: 4096 };
        let pool = Arc::new(Pool::create(region, pool).expect("a pool"));
        let tree = Arc::new(Tree::<_, S, K>::open(&pool, 0, &options).expect("a tree"));
        let clock = Arc::new(AtomicU64::new(0));
        let calls: Arc<StdMutex<Vec<Vec<Call>>>> = Arc::new(StdMutex::new(vec![vec![]; 30]));
        let begun = (0..4u64).map(|number| {
            let (tree, clock, calls) = (tree.clone(), clock.clone(), calls.clone());
            let mut rng = Rng::named(seed, &format!("thread {number}"));
            thread::spawn("one of four", move || {
                let tick = || clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                for step in 0..120 {
                    let (key, value) = (rng.below(30), number * 1000 + step + 1);
                    let removes = [1, 5, 3][step as usize / 40];
                    let (began, own) = (tick(), K::Key::of(key));
                    let own = own.borrow();
                    let what = match rng.below(8) {
                        draw if draw < removes => What::Removed(tree.remove(own).expect("room")),
                        5 => What::Got(tree.get(own).expect("no damage")),
                        6 => What::Upserted(value, tree.upsert(own, value).expect("room")),
                        _ => What::Inserted(value, tree.insert(own, value).expect("room")),
                    };
                    let call = Call { began, ended: tick(), what };
                    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
                    calls[key as usize].push(call);
                }
            })
        });
        let begun: Vec<_> = begun.collect();
        begun.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, calls) in calls.iter_mut().enumerate() {
            let got = What::Got(tree.get(K::Key::of(key as u64).borrow()).expect("no damage"));
            calls.push(Call { began: u64::MAX, ended: u64::MAX, what: got });
            let told = calls.clone();
            assert!(is_linear(calls, None), "seed {seed}, key {key}: {told:?}");
        }
        while pool.reclaim() > 0 {}
        let (mut taken, mut reached) = (Vec::new(), Vec::new());
        pool.taken(|offset| taken.push(offset));
        tree.blocks(&mut |offset| reached.push(offset)).expect("no damage");
        reached.sort_unstable();
        taken.sort_unstable();
        assert_eq!(taken, reached);
    });
    ran.expect("the world ends");
}

#[test]
fn what_threads_do_has_an_order() {
    for seed in 0..150 {
        is_linearizable::<Moving, Inline>(seed, &FastFairOptions { node_bytes: 128 });
        let options = OdsOptions { node_bytes: 128, split_from: 0.7 };
        is_linearizable::<InPlace, Inline>(seed, &options);
        is_linearizable::<InPlace, Bytes>(seed, &options);
    }
}

#[test]
fn a_history_without_an_order_is_told() {
    let call = |began, ended, what| Call { began, ended, what };
    let stale = [call(0, 1, What::Inserted(5, true)), call(2, 3, What::Got(None))];
    assert!(!is_linear(&mut stale.to_vec(), None));
    let overlapping = [call(0, 3, What::Inserted(5, true)), call(1, 2, What::Got(None))];
    assert!(is_linear(&mut overlapping.to_vec(), None));
}

/// Runs threads of the system, each with keys of its own between those of the others.
fn stands_real_threads<S, K>(options: &S::Options)
where
    S: Style,
    K: Keys<Direct, Key: Numbered> + Default,
{
    const THREADS: u64 = 4;
    let (pool, tree) = tree::<S, K>(16 << 20, options);
    let tree = &tree;
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let mut rng = Rng::new(number);
                let mut right = std::collections::BTreeMap::new();
                for step in 0..60_000u64 {
                    let key = rng.below(3_000) * THREADS + number;
                    let own = K::Key::of(key);
                    if rng.below(8) < [2, 6, 4][step as usize / 20_000] {
                        assert_eq!(tree.remove(own.borrow()).expect("room"), right.remove(&key));
                    } else {
                        let before = tree.upsert(own.borrow(), step + 1).expect("room");
                        assert_eq!(before, right.insert(key, step + 1));
                    }
                    let key = rng.below(3_000) * THREADS + number;
                    let found = tree.get(K::Key::of(key).borrow()).expect("no damage");
                    assert_eq!(found, right.get(&key).copied());
                    if step % 5_000 == 0 {
                        let all = records(tree, Direction::Forward);
                        let mine = all.iter().filter(|(key, _)| key % THREADS == number);
                        assert!(mine.copied().eq(right.iter().map(|(&key, &value)| (key, value))));
                    }
                }
            });
        }
    });
    while pool.reclaim() > 0 {}
    let (mut taken, mut reached) = (0, 0);
    pool.taken(|_| taken += 1);
    tree.blocks(&mut |_| reached += 1).expect("no damage");
    assert_eq!(taken, reached);
}

#[test]
fn threads_of_the_system_find_what_they_wrote() {
    stands_real_threads::<Moving, Inline>(&FastFairOptions::default());
    stands_real_threads::<InPlace, Inline>(&OdsOptions::default());
    stands_real_threads::<InPlace, Bytes>(&OdsOptions::default());
    stands_real_threads::<Moving, Inline>(&FastFairOptions { node_bytes: 128 });
}
