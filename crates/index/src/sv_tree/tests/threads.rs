//! Many threads: their answers fit some order of the operations, one at a time, and no crash takes
//! back an answer.

use std::sync::{Mutex, PoisonError};

use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_simulated::crash::{
    Crash, ExploreOptions, Explorer, Nested, Power, RecordedRegion, Recorder, RecorderOptions,
    Report, Subject,
};

use super::*;
use crate::PoolOptions;
use crate::trial::TrialKey;

/// An operation, and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    Insert(u64, bool),
    Upsert(u64, Option<u64>),
    Remove(Option<u64>),
    Get(Option<u64>),
}

impl Did {
    /// Returns the key's value afterwards, if this is the right answer, or none is known.
    fn after(self, before: Option<u64>, answered: bool) -> Option<Option<u64>> {
        let (is_right, after) = match self {
            Did::Insert(value, added) => (added == before.is_none(), before.or(Some(value))),
            Did::Upsert(value, found) => (found == before, Some(value)),
            Did::Remove(found) => (found == before, None),
            Did::Get(found) => (found == before, before),
        };
        (is_right || !answered).then_some(after)
    }
}

/// An operation on a key, from one time to another; without an end if it was not answered.
#[derive(Debug, Clone, Copy)]
struct Event {
    key: u64,
    begun: u64,
    ended: Option<u64>,
    did: Did,
}

/// Returns true if there is an order of the events of one key, each at some time between its begin
/// and its end, in which all answers are right (Wing and Gong 1993).
fn is_linearizable(events: &[Event]) -> bool {
    fn goes_on(
        events: &[Event],
        done: u64,
        value: Option<u64>,
        dead_ends: &mut std::collections::HashSet<(u64, Option<u64>)>,
    ) -> bool {
        let open = || events.iter().enumerate().filter(|(number, _)| done >> number & 1 == 0);
        let Some(limit) = open().filter_map(|(_, event)| event.ended).min() else { return true };
        if !dead_ends.insert((done, value)) {
            return false;
        }
        open().filter(|(_, event)| event.begun < limit).any(|(number, event)| {
            let after = event.did.after(value, event.ended.is_some());
            after.is_some_and(|after| goes_on(events, done | 1 << number, after, dead_ends))
        })
    }
    assert!(events.len() <= 64);
    goes_on(events, 0, None, &mut std::collections::HashSet::new())
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    time: u64,
}

#[derive(Clone, Default)]
struct SharedLog(Arc<Mutex<Log>>);

impl SharedLog {
    fn with<T>(&self, what: impl FnOnce(&mut Log) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records an operation before it begins, and its result.
    fn note(&self, key: u64, began: Did, work: impl FnOnce() -> Did) {
        let number = self.with(|log| {
            log.time += 1;
            log.events.push(Event { key, begun: log.time, ended: None, did: began });
            log.events.len() - 1
        });
        let did = work();
        self.with(|log| {
            log.time += 1;
            (log.events[number].ended, log.events[number].did) = (Some(log.time), did);
        });
    }

    /// Checks that all answers are possible together, and then these values.
    fn check(&self, keys: &[u64], mut found: impl FnMut(u64) -> Option<u64>) -> Result<(), String> {
        let (events, time) = self.with(|log| (log.events.clone(), log.time));
        for &key in keys {
            let mut events: Vec<Event> =
                events.iter().filter(|event| event.key == key).copied().collect();
            let (begun, ended) = (time + 1, Some(time + 2));
            events.push(Event { key, begun, ended, did: Did::Get(found(key)) });
            if !is_linearizable(&events) {
                return Err(format!("key {key}: no order of {events:#?}"));
            }
        }
        Ok(())
    }
}

/// One thread's part: operations on few keys, so that they meet.
fn work<I: Index<Key: TrialKey>>(
    index: &I,
    log: &SharedLog,
    thread: u64,
    seed: u64,
    options: Many,
) {
    use std::borrow::Borrow;
    let mut rng = Rng::named(seed, &format!("thread {thread}"));
    let keys = options.keys::<I::Key>();
    for step in 0..options.operations {
        let key = keys[rng.index(keys.len())];
        let nth = I::Key::nth(key);
        let value = 1 + thread + 16 * step;
        // Now and then most is removed, so that leaves go.
        match rng.below(if step / 16 % 2 == 0 { 5 } else { 25 }) {
            0 | 1 => log.note(key, Did::Insert(value, false), || {
                Did::Insert(value, index.insert(nth.borrow(), value).expect("room"))
            }),
            2 => log.note(key, Did::Upsert(value, None), || {
                Did::Upsert(value, index.upsert(nth.borrow(), value).expect("room"))
            }),
            3 => log.note(key, Did::Get(None), || {
                Did::Get(index.get(nth.borrow()).expect("no damage"))
            }),
            4 => ranged(index, log, &mut rng, &keys),
            _ => log.note(key, Did::Remove(None), || {
                Did::Remove(index.remove(nth.borrow()).expect("no damage"))
            }),
        }
    }
}

/// Fills the tree before threads begin. Shuffled, so that leaves are as full as usual.
fn load<I: Index<Key: TrialKey>>(index: &I, log: &SharedLog, options: Many) {
    use std::borrow::Borrow;
    let working = options.keys::<I::Key>();
    let mut keys: Vec<u64> = (0..options.loaded).collect();
    Rng::new(options.loaded).shuffle(&mut keys);
    for key in keys {
        let nth = I::Key::nth(key);
        let insert = || Did::Insert(1, index.insert(nth.borrow(), 1).expect("room"));
        match working.contains(&key) {
            true => log.note(key, Did::Insert(1, false), insert),
            false => drop(insert()),
        }
    }
}

/// A walk is a get of every key that it passes, at some time while it lasts.
fn ranged<I: Index<Key: TrialKey>>(index: &I, log: &SharedLog, rng: &mut Rng, keys: &[u64]) {
    let begun = log.with(|log| {
        log.time += 1;
        log.time
    });
    let direction = if rng.one_in(2) { Direction::Forward } else { Direction::Backward };
    let mut found = Vec::new();
    let ranged = index.range(Bound::Unbounded, direction, &mut |key, value| {
        found.push((key.number().expect("a key that was written"), value));
        Flow::On
    });
    ranged.expect("no damage");
    let order = |one: &(u64, u64), other: &(u64, u64)| I::Key::nth(one.0) < I::Key::nth(other.0);
    match direction {
        Direction::Forward => assert!(found.is_sorted_by(order), "{found:?}"),
        Direction::Backward => assert!(found.is_sorted_by(|a, b| order(b, a)), "{found:?}"),
    }
    let found: BTreeMap<u64, u64> = found.into_iter().collect();
    log.with(|log| {
        log.time += 1;
        let ended = Some(log.time);
        let events = keys.iter().map(|&key| {
            let did = Did::Get(found.get(&key).copied());
            Event { key, begun, ended, did }
        });
        log.events.extend(events);
    });
}

/// A crash image must fit every answer that was given before.
struct Told<K, const LINES: usize> {
    log: SharedLog,
    keys: Vec<u64>,
    of: std::marker::PhantomData<fn() -> K>,
}

type Tree<K, const LINES: usize> = SvTree<RecordedRegion, K, LINES>;

impl<K, const LINES: usize> Subject for Told<K, LINES>
where
    K: Keys<RecordedRegion, Key: TrialKey> + Clone + Default + 'static,
{
    type Opened = Tree<K, LINES>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        let pool = Pool::open(crash.region(0).clone()).map_err(|error| error.to_string())?;
        SvTree::open(&Arc::new(pool), 0, &K::default()).map_err(|error| error.to_string())
    }

    fn check(&self, opened: Self::Opened, _: &Crash<'_>) -> Result<(), String> {
        use std::borrow::Borrow;
        self.log.check(&self.keys, |key| opened.get(K::Key::nth(key).borrow()).expect("no damage"))
    }
}

/// Options of a world of threads.
#[derive(Debug, Clone, Copy)]
struct Many {
    threads: u64,
    operations: u64,
    keys: u64,
    crashes: bool,
    /// Number of keys that are there before; threads work on some of them that are neighbours.
    loaded: u64,
}

impl Many {
    /// Returns the numbers of the keys that threads work on, in the order of keys.
    fn keys<K: TrialKey + ?Sized>(self) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..self.loaded.max(self.keys)).collect();
        numbers.sort_by_key(|&number| K::nth(number));
        let first = numbers.len() - self.keys as usize;
        numbers.drain(..first / 2);
        numbers.truncate(self.keys as usize);
        numbers
    }
}

fn in_world<K, const LINES: usize>(seed: u64, options: Many) -> (Report, Statistics)
where
    K: Keys<RecordedRegion, Key: TrialKey> + Clone + Default + 'static,
{
    let preemption = Preemption::OneIn(1 + seed as u32 % 7);
    let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
    let ran = world.run(move || {
        let power = Power::new();
        let region = Recorder::region(1 << 20, RecorderOptions::default(), &power);
        let pool = PoolOptions { chunk_bytes: 4096 };
        let pool = Arc::new(Pool::create(Arc::new(region.expect("memory")), pool).expect("a pool"));
        let tree: Arc<Tree<K, LINES>> =
            Arc::new(SvTree::open(&pool, 0, &K::default()).expect("a tree"));
        let log = SharedLog::default();
        load(&*tree, &log, options);
        let keys = options.keys::<K::Key>();
        let told =
            Told::<K, LINES> { log: log.clone(), keys: keys.clone(), of: Default::default() };
        let nested = Nested { one_in: 0, ..Nested::default() };
        let explore = ExploreOptions { seed, exhaustive_max: 8, images_max: 4, nested };
        let explorer = Explorer::new(Arc::new(told), explore);
        if options.crashes {
            explorer.watch(&power);
        }
        let threads: Vec<_> = (0..options.threads)
            .map(|thread| {
                let (tree, log) = (tree.clone(), log.clone());
                entresol_base::thread::spawn("worker", move || {
                    work(&*tree, &log, thread, seed, options);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let report = explorer.finish(&power);
        use std::borrow::Borrow;
        let get = |key| tree.get(K::Key::nth(key).borrow()).expect("no damage");
        log.check(&keys, get).expect("an order");
        for key in (0..options.loaded).filter(|key| !keys.contains(key)) {
            assert_eq!(get(key), Some(1));
        }
        (report, tree.statistics().expect("no damage"))
    });
    ran.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

fn check<K, const LINES: usize>(seeds: std::ops::Range<u64>, options: Many) -> (u64, u64, u64)
where
    K: Keys<RecordedRegion, Key: TrialKey> + Clone + Default + 'static,
{
    let (mut images, mut splits, mut merges) = (0, 0, 0);
    for seed in seeds {
        let (report, found) = in_world::<K, LINES>(seed, options);
        assert!(report.failure.is_none(), "seed {seed}: {}", report.failure.expect("one"));
        images += report.images;
        splits += found.splits + found.compactions;
        merges += found.merges;
    }
    (images, splits, merges)
}

/// Leaves of two lines, so that splits and removals of leaves meet everything else.
const MANY: Many = Many { threads: 4, operations: 64, keys: 40, crashes: false, loaded: 0 };

/// Enough leaves for a guide of several levels, whose nodes split, go, and change their common
/// prefix while threads are in them.
const DEEP: Many = Many { loaded: 400, ..MANY };

#[test]
fn threads_are_told_what_fits() {
    let (_, splits, merges) = check::<Inline, 2>(0..120, MANY);
    assert!(splits > 300 && merges > 50, "{splits} {merges}");
    let (_, splits, merges) = check::<Bytes, 2>(0..60, MANY);
    assert!(splits > 150 && merges > 20, "{splits} {merges}");
}

#[test]
fn threads_are_told_what_fits_under_a_deep_guide() {
    let mut merges = 0;
    for seed in 0..20 {
        for (_, found) in [in_world::<Bytes, 2>(seed, DEEP), in_world::<Inline, 2>(seed, DEEP)] {
            assert!(found.height >= 3, "{found:?}");
            merges += found.merges;
        }
    }
    assert!(merges > 20, "{merges}");
}

#[test]
fn no_crash_takes_back_what_a_thread_was_told() {
    let many = Many { crashes: true, ..MANY };
    let (images, splits, _) = check::<Inline, 2>(1000..1020, many);
    assert!(images > 2_000 && splits > 40, "{images} {splits}");
    let (images, splits, _) = check::<Bytes, 2>(2000..2010, many);
    assert!(images > 2_000 && splits > 20, "{images} {splits}");
    let (images, ..) = check::<Bytes, 2>(3000..3004, Many { crashes: true, ..DEEP });
    assert!(images > 500, "{images}");
}

#[test]
fn the_check_itself_tells_orders_from_none() {
    let event = |begun, ended, did| Event { key: 0, begun, ended, did };
    let insert = event(1, Some(4), Did::Insert(7, true));
    let early = event(2, Some(3), Did::Get(Some(7)));
    assert!(is_linearizable(&[insert, early]));
    assert!(is_linearizable(&[event(1, None, Did::Insert(7, false)), early]));
    let lost = event(5, Some(6), Did::Get(None));
    assert!(!is_linearizable(&[insert, early, lost]));
    assert!(!is_linearizable(&[event(1, None, Did::Insert(7, false)), early, lost]));
    assert!(is_linearizable(&[event(1, None, Did::Insert(7, false)), lost]));
}

/// The machine's own threads: each has keys that only it writes, all read those of all.
#[test]
fn real_threads_find_their_own() {
    const THREADS: u64 = 4;
    let tree: SvTree<Direct> = SvTree::open(&pool(64 << 20), 0, &Inline).expect("a tree");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let tree = &tree;
            scope.spawn(move || own_keys(tree, thread, THREADS));
        }
    });
    let found = all(&tree);
    assert_eq!(tree.statistics().expect("no damage").keys, found.len() as u64);
    assert!(found.iter().all(|(key, value)| value >> 8 == key >> 8 | 1));
}

fn own_keys(tree: &SvTree<Direct>, thread: u64, threads: u64) {
    let mut rng = Rng::new(thread);
    let mut own = BTreeMap::new();
    let value = |key: u64, rng: &mut Rng| (key >> 8 | 1) << 8 | rng.below(256);
    for step in 0..60_000u64 {
        let key = (rng.below(3_000) * threads + thread) << 8;
        let (value, other) = (value(key, &mut rng), (rng.below(3_000) * threads) << 8);
        match rng.below(8) {
            0..3 => {
                let added = tree.insert(&key, value).expect("room");
                assert_eq!(added, !own.contains_key(&key));
                own.entry(key).or_insert(value);
            }
            3 => assert_eq!(tree.upsert(&key, value).expect("room"), own.insert(key, value)),
            4 => assert_eq!(tree.get(&key).expect("no damage"), own.get(&key).copied()),
            5 => {
                let found = tree.get(&other).expect("no damage");
                assert!(found.is_none_or(|value| value >> 8 == other >> 8 | 1));
            }
            // Whole ranges go, so that leaves do.
            _ if step / 5_000 % 2 == 1 => {
                let key = own.keys().next().copied().unwrap_or(key);
                assert_eq!(tree.remove(&key).expect("no damage"), own.remove(&key));
            }
            _ => assert_eq!(tree.remove(&key).expect("no damage"), own.remove(&key)),
        }
    }
}
