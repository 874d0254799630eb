//! Checks that the suites of all indexes with keys of eight bytes share.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(feature = "mutants")]
use entresol_base::mutants::{Site, try_those};
use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::{Direct, Observed};
use entresol_simulated::{Counters, Counts};

use entresol_simulated::crash::{Killed, Power, RecordedRegion, Recorder, RecorderOptions};

use crate::trial::{self, TrialKey, TrialOptions};
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, PoolOptions, VALUE_MAX};

pub(crate) type Counted = Observed<Counters>;

pub(crate) fn pool(bytes: u64) -> Arc<Pool<Direct>> {
    let region = Arc::new(Direct::anonymous(bytes, false).expect("memory"));
    Arc::new(Pool::create(region, PoolOptions::default()).expect("a pool"))
}

/// Opens the pool in a region again.
pub(crate) fn reopened(pool: Arc<Pool<Direct>>) -> Arc<Pool<Direct>> {
    let region = pool.region_shared();
    drop(pool);
    Arc::new(Pool::open(region).expect("the pool"))
}

pub(crate) fn counted_pool(bytes: u64) -> Arc<Pool<Counted>> {
    let region = Arc::new(Observed::new(bytes, Counters::default()).expect("memory"));
    Arc::new(Pool::create(region, PoolOptions::default()).expect("a pool"))
}

/// Makes an index at root 0 of a fresh pool.
pub(crate) fn fresh<I: Persistent<Direct>>(options: &I::Options) -> I {
    I::open(&pool(64 << 20), 0, options).expect("an index")
}

/// Collects the records of a walk, at most `most`.
pub(crate) fn walk<I: Index<Key = u64>>(
    index: &I,
    from: Bound<&u64>,
    direction: Direction,
    most: usize,
) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let walked = index.range(from, direction, &mut |&key, value| {
        found.push((key, value));
        if found.len() == most { Flow::Stop } else { Flow::On }
    });
    walked.expect("no damage");
    found
}

/// Checks special values, special keys, and absent keys.
pub(crate) fn check_edges<I: Index<Key = u64>>(index: &I) {
    let all = |direction| walk(index, Bound::Unbounded, direction, usize::MAX);
    for direction in [Direction::Forward, Direction::Backward] {
        assert_eq!(all(direction), []);
    }
    assert_eq!(index.get(&0).expect("no damage"), None);
    assert_eq!(index.remove(&u64::MAX).expect("no damage"), None);
    assert_eq!(index.statistics().expect("no damage").keys, 0);

    for (key, value) in [(u64::MAX, 7), (0, VALUE_MAX), (1, 7), (u64::MAX - 1, 1)] {
        assert!(index.insert(&key, value).expect("room"), "{key}");
        assert!(!index.insert(&key, 3).expect("room"), "{key} is there already");
        assert_eq!(index.get(&key).expect("no damage"), Some(value));
    }
    for value in [0, VALUE_MAX + 1, u64::MAX] {
        for key in [0, 5] {
            assert!(matches!(index.insert(&key, value), Err(IndexError::Value { .. })));
            assert!(matches!(index.upsert(&key, value), Err(IndexError::Value { .. })));
        }
    }
    let mut expected = vec![(0, VALUE_MAX), (1, 7), (u64::MAX - 1, 1), (u64::MAX, 7)];
    assert_eq!(all(Direction::Forward), expected);
    let beyond = Bound::Excluded(&u64::MAX);
    assert_eq!(walk(index, beyond, Direction::Forward, 9), []);
    assert_eq!(walk(index, Bound::Excluded(&0), Direction::Backward, 9), []);
    assert_eq!(walk(index, Bound::Excluded(&0), Direction::Forward, 1), [(1, 7)]);
    assert_eq!(walk(index, beyond, Direction::Backward, 1), [(u64::MAX - 1, 1)]);
    expected.reverse();
    assert_eq!(all(Direction::Backward), expected);

    assert_eq!(index.upsert(&0, 5).expect("room"), Some(VALUE_MAX));
    assert_eq!(index.upsert(&2, 5).expect("room"), None);
    assert_eq!(index.remove(&0).expect("no damage"), Some(5));
    assert_eq!(index.remove(&0).expect("no damage"), None);
    assert_eq!(index.get(&0).expect("no damage"), None);
    assert_eq!(index.statistics().expect("no damage").keys, 4);
    for key in [1, 2, u64::MAX - 1, u64::MAX] {
        assert!(index.remove(&key).expect("no damage").is_some(), "{key}");
    }
    assert_eq!(all(Direction::Forward), []);
}

/// Carries out a long seeded history and checks every answer and walk against a `BTreeMap`.
pub(crate) fn check_against_map<I: Index<Key = u64>>(index: &I, seed: u64, operations: u64) {
    let mut rng = Rng::new(seed);
    let mut map = BTreeMap::new();
    for number in 0..operations {
        // Grows, then shrinks to almost nothing, then grows again.
        let removes_of_8 = [1, 7, 2, 4][(number * 4 / operations) as usize];
        let key = rng.below(operations / 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let value = 1 + rng.below(1000);
        match rng.below(8) {
            draw if draw < removes_of_8 => {
                assert_eq!(index.remove(&key).expect("no damage"), map.remove(&key));
            }
            draw if draw % 2 == 0 => {
                assert_eq!(index.upsert(&key, value).expect("room"), map.insert(key, value));
            }
            _ => {
                let added = !map.contains_key(&key);
                map.entry(key).or_insert(value);
                assert_eq!(index.insert(&key, value).expect("room"), added);
            }
        }
        assert_eq!(index.get(&key).expect("no damage"), map.get(&key).copied());
        if rng.one_in(64) {
            check_walks(index, &map, &mut rng);
        }
    }
    assert_eq!(index.statistics().expect("no damage").keys, map.len() as u64);
    check_same(index, &map);
}

fn check_walks<I: Index<Key = u64>>(index: &I, map: &BTreeMap<u64, u64>, rng: &mut Rng) {
    let from = match map.keys().nth(rng.index(map.len().max(1))) {
        Some(&key) if rng.one_in(2) => key,
        _ => rng.next_u64(),
    };
    let record = |(&key, &value): (&u64, &u64)| (key, value);
    for from in [Bound::Included(&from), Bound::Excluded(&from)] {
        let expected: Vec<_> = map.range((from, Bound::Unbounded)).take(40).map(record).collect();
        assert_eq!(walk(index, from, Direction::Forward, 40), expected);
        let below = map.range((Bound::Unbounded, from)).rev();
        let expected: Vec<_> = below.take(40).map(record).collect();
        assert_eq!(walk(index, from, Direction::Backward, 40), expected);
    }
}

/// Checks that the index equals the map, in both directions.
pub(crate) fn check_same<I: Index<Key = u64>>(index: &I, map: &BTreeMap<u64, u64>) {
    let mut expected: Vec<_> = map.iter().map(|(&key, &value)| (key, value)).collect();
    assert_eq!(walk(index, Bound::Unbounded, Direction::Forward, usize::MAX), expected);
    expected.reverse();
    assert_eq!(walk(index, Bound::Unbounded, Direction::Backward, usize::MAX), expected);
}

/// Checks that an index is unchanged when it is opened again.
pub(crate) fn check_reopening<I: Persistent<Direct> + Index<Key = u64>>(options: &I::Options) {
    let region = Arc::new(Direct::anonymous(64 << 20, false).expect("memory"));
    drop(Pool::create(region.clone(), PoolOptions::default()).expect("a pool"));
    let mut map = BTreeMap::new();
    let mut rng = Rng::new(9);
    for round in 0..4 {
        let pool = Arc::new(Pool::open(region.clone()).expect("the pool"));
        let index = I::open(&pool, 3, options).expect("an index");
        check_same(&index, &map);
        if round % 2 == 1 {
            pool.sweep(|visit| index.blocks(visit)).expect("no damage");
        }
        for _ in 0..1500 {
            let (key, value) = (rng.below(3000), 1 + rng.below(9));
            if rng.one_in(3 - round % 2) {
                assert_eq!(index.remove(&key).expect("no damage"), map.remove(&key));
            } else {
                assert_eq!(index.upsert(&key, value).expect("room"), map.insert(key, value));
            }
        }
    }
}

/// Checks that statistics count the bytes of all blocks: nodes, records of keys, and others.
pub(crate) fn check_bytes<I>(options: &I::Options)
where
    I: Persistent<Direct> + Index<Key = [u8]>,
{
    const KEYS: u64 = 3000;
    let index = fresh::<I>(options);
    for key in 0..KEYS {
        let key = format!("{:0100}", key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert!(index.insert(key.as_bytes(), 1).expect("room"));
    }
    let found = index.statistics().expect("no damage");
    let mut blocks = 0;
    index.blocks(&mut |_| blocks += 1).expect("no damage");
    // A hundred bytes and a header, and the least and the most that lows and posts take.
    let (known, others) = (256 * found.nodes + 128 * KEYS, blocks - found.nodes - KEYS);
    assert!((known + 32 * others..=known + 1024 * others).contains(&found.bytes), "{found:?}");
    assert!(others > found.nodes / 2, "{found:?}");
}

/// Checks that opening a root of another type is an error.
pub(crate) fn check_refusal<I: Persistent<Direct>>(options: &I::Options) {
    let pool = pool(1 << 20);
    let block = pool.allocate(64).expect("room");
    pool.region().write(block, &[0x5A; 64]);
    for root in [block, 8, 1 << 40] {
        pool.set_root(5, root);
        match I::open(&pool, 5, options).map(drop) {
            Err(IndexError::Damaged { offset, .. }) => assert_eq!(offset, root),
            other => panic!("root {root}: {other:?}"),
        }
    }
}

/// Costs of operations on random keys in an index of a given size: an insert, an update, a removal
/// of the oldest keys.
pub(crate) struct Costs {
    pub(crate) insert: Cost,
    pub(crate) update: Cost,
    pub(crate) remove: Cost,
}

/// Costs of one operation.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) lines: f64,
    pub(crate) fences: f64,
}

pub(crate) fn costs<I: Persistent<Counted> + Index<Key = u64>>(
    keys: u64,
    options: &I::Options,
) -> Costs {
    let pool = counted_pool(256 << 20);
    let index = I::open(&pool, 0, options).expect("an index");
    let mut rng = Rng::new(1);
    let all: Vec<u64> = (0..2 * keys).map(|_| rng.next_u64()).collect();
    let (loaded, inserted) = all.split_at(keys as usize);
    for key in loaded {
        assert!(index.insert(key, 1).expect("room"));
    }
    let counted = |work: &mut dyn FnMut()| {
        let before = pool.region().observer().counts();
        work();
        cost(&pool.region().observer().counts().since(&before), keys)
    };
    let insert = counted(&mut || {
        inserted.iter().for_each(|key| assert!(index.insert(key, 1).expect("room")));
    });
    let update = counted(&mut || {
        inserted.iter().for_each(|key| assert!(index.upsert(key, 2).expect("room").is_some()));
    });
    let remove = counted(&mut || {
        loaded.iter().for_each(|key| assert!(index.remove(key).expect("no damage").is_some()));
    });
    Costs { insert, update, remove }
}

fn cost(counts: &Counts, operations: u64) -> Cost {
    let each = |count: u64| count as f64 / operations as f64;
    Cost { lines: each(counts.lines_flushed), fences: each(counts.drains) }
}

/// Looks at few images of each moment, and at crashes in few recoveries: for the suites that all
/// tests run with. The slow tests look at as many as [`TrialOptions::seeded`] says.
pub(crate) fn few_images(options: &mut TrialOptions) {
    let explore = &mut options.explore;
    (explore.exhaustive_max, explore.images_max, explore.nested.one_in) = (16, 16, 16);
}

/// A process is killed at every access of an operation, the next one answers, and then the power
/// fails: what was answered stands.
pub(crate) fn check_kills<I>(options: &I::Options)
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let report = trial::killed_anywhere::<I>(options).unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 1000, "{report:?}");
}

/// Returns keys of every kind that is hard for words: empty ones, prefixes of each other, zeroes,
/// long ones with a common beginning.
pub(crate) fn hard_key(rng: &mut Rng, many: u64) -> Vec<u8> {
    let number = rng.below(many);
    match number % 6 {
        0 => vec![0; (number % 23) as usize],
        1 => vec![b'x'; (number % 97) as usize],
        2 => format!("{number}").into_bytes(),
        3 => format!("the same for a long while, and then {number:07}").into_bytes(),
        4 => [&number.to_be_bytes()[..], b"\0\0", &number.to_le_bytes()].concat(),
        _ => format!("user{:04}/item{}", number / 600, number % 600).into_bytes(),
    }
}

/// Makes a pool in a region of its own; a thread that accesses it can be made to panic, and nothing
/// is flushed.
pub(crate) fn fragile_pool(bytes: u64) -> Arc<Pool<RecordedRegion>> {
    let region = Recorder::region(bytes, RecorderOptions::default(), &Power::new());
    let region = Arc::new(region.expect("memory"));
    Arc::new(Pool::create(region, PoolOptions { chunk_bytes: 4096 }).expect("a pool"))
}

/// Checks that `work` ends in the panic that the region was made for.
#[track_caller]
pub(crate) fn check_panics<T>(work: impl FnOnce() -> T) {
    let ended = catch_unwind(AssertUnwindSafe(work));
    assert!(ended.err().is_some_and(|it| it.is::<Killed>()), "it goes on");
}

/// Checks that two numbers differ by `slack` at most.
#[track_caller]
pub(crate) fn assert_about(what: &str, found: f64, expected: f64, slack: f64) {
    assert!((found - expected).abs() <= slack, "{what}: {found}, not {expected} +- {slack}");
}

/// Makes a pool whose every access is a step of the world that it is made in.
pub(crate) fn stepping_pool() -> Arc<Pool<Observed<()>>> {
    let region = Arc::new(Observed::new(1 << 20, ()).expect("memory"));
    let options = PoolOptions { chunk_bytes: 4096 };
    Arc::new(Pool::create(region, options).expect("a pool"))
}

#[track_caller]
pub(crate) fn check_no_old_value<I: Index<Key = u64> + 'static>(
    seed: u64,
    make: impl FnOnce() -> I + 'static,
) {
    no_old_value(seed, make).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
}

/// Writes ever larger values of one key in several threads that also read it in all ways, switched
/// at any step: no read may find a value older than one that a thread had seen before it began.
pub(crate) fn no_old_value<I: Index<Key = u64> + 'static>(
    seed: u64,
    make: impl FnOnce() -> I + 'static,
) -> Result<(), String> {
    let preemption = Preemption::OneIn(2);
    let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
    let ran = world.run(move || {
        let index = Arc::new(make());
        // The largest value that any thread is known to have seen.
        let seen = Arc::new(AtomicU64::new(0));
        let wrong = Arc::new(Mutex::new(None));
        let mut threads = Vec::new();
        for number in 0..2 {
            let (index, seen) = (Arc::clone(&index), Arc::clone(&seen));
            threads.push(thread::spawn("writer", move || {
                for round in 1..=12u64 {
                    let value = 2 * round + number;
                    // Of two concurrent writers the order is not known: each has its own key.
                    index.upsert(&number, value).expect("room");
                    if number == 0 {
                        seen.fetch_max(value, Relaxed);
                    }
                }
            }));
        }
        for number in 0..3 {
            let (index, seen) = (Arc::clone(&index), Arc::clone(&seen));
            let wrong = Arc::clone(&wrong);
            threads.push(thread::spawn("reader", move || {
                for round in 0..24 {
                    let known = seen.load(Relaxed);
                    let found = match (number, round % 4) {
                        (0, 3) => walk(&*index, Bound::Included(&0), Direction::Forward, 1)
                            .first()
                            .filter(|(key, _)| *key == 0)
                            .map(|(_, value)| *value),
                        _ => index.get(&0).expect("no damage"),
                    };
                    let found = found.unwrap_or(0);
                    if found < known {
                        let what = format!("{found}, older than {known}, which somebody saw");
                        *wrong.lock() = Some(what);
                    }
                    seen.fetch_max(found, Relaxed);
                }
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let last = index.get(&0).expect("no damage");
        if last != Some(24) {
            *wrong.lock() = Some(format!("{last:?} at last, older than 24"));
        }
        wrong.lock().take()
    });
    match ran.map_err(|failure| failure.to_string())? {
        None => Ok(()),
        Some(what) => Err(what),
    }
}

/// Flushes and drains that may be left out where a root block never changes: it is durable before
/// the root leads to it, so a reader that finds it need not flush it. The drain of the root's word
/// is followed by that of the opening, which looks at all that the root leads to.
#[cfg(feature = "mutants")]
pub(crate) const UNCHANGED_ROOT: [&str; 3] =
    ["Flush in root.rs", "Drain in root.rs", "Drain in root.rs"];

/// Checks that the suite misses each flush and drain of the index that is left out, except those
/// known to change nothing, given by kind and file. Those of the pool are tried in its own suite.
#[cfg(feature = "mutants")]
pub(crate) fn check_mutants<I>(options: &I::Options, known: &[&str])
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    check_mutants_by::<I>(options, known, || Ok(()));
}

/// Checks as `check_mutants` does, with an additional suite to notice them.
#[cfg(feature = "mutants")]
pub(crate) fn check_mutants_by<I>(
    options: &I::Options,
    known: &[&str],
    more: impl Fn() -> Result<(), String>,
) where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let suite = || {
        trial::suite::<I>(0..3, options, |_| ())?;
        trial::killed_anywhere::<I>(options)?;
        more()
    };
    check_sites(|file| !file.contains("src/pool"), known, suite);
}

/// Checks that a suite misses each flush and drain in the chosen files that is left out, except
/// those known to change nothing.
#[cfg(feature = "mutants")]
pub(crate) fn check_sites(
    is_chosen: impl Fn(&str) -> bool,
    known: &[&str],
    suite: impl FnMut() -> Result<(), String>,
) {
    let is_ours = |site: &Site| {
        let file = site.place.file();
        let is_code = !file.contains("src/trial/") && !file.contains("tests");
        file.contains("index/src/") && is_code && is_chosen(file)
    };
    let trials = try_those(is_ours, suite).expect("passes as it is");
    let missed = trials.iter().filter(|trial| trial.noticed.is_none()).map(|trial| {
        let file = trial.site.place.file().replace("crates/index/src/", "");
        format!("{:?} in {file}", trial.site.kind)
    });
    let sorted = |mut all: Vec<String>| {
        all.sort_unstable();
        all
    };
    let known = sorted(known.iter().map(|&it| it.into()).collect());
    assert_eq!(sorted(missed.collect()), known, "{trials:#?}");
    assert!(trials.len() >= 6, "{trials:#?}");
}
