//! Blocks are taken once, given back once, and after any crash reached or free.

use std::collections::BTreeSet;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::Direct;
use entresol_simulated::crash::{
    Crash, ExploreOptions, Explorer, Power, RecordedRegion, Recorder, RecorderOptions, Subject,
};

use super::*;
use crate::{Index, Persistent, SkipList};

const CHUNK: u64 = 4096;

fn region(bytes: u64) -> Arc<Direct> {
    Arc::new(Direct::anonymous(bytes, false).expect("memory"))
}

fn pool(bytes: u64) -> Pool<Direct> {
    Pool::create(region(bytes), PoolOptions { chunk_bytes: CHUNK }).expect("a pool")
}

fn taken<R: Region>(pool: &Pool<R>) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    pool.taken(|offset| assert!(found.insert(offset)));
    found
}

#[test]
fn blocks_do_not_overlap_and_all_room_comes_back() {
    let pool = pool(1 << 20);
    let empty = pool.free_chunk_bytes();
    let mut rng = Rng::new(1);
    let mut held: Vec<(u64, u64)> = Vec::new();
    for _ in 0..20_000 {
        if rng.one_in(2) && !held.is_empty() {
            let (offset, _) = held.swap_remove(rng.index(held.len()));
            pool.free(offset);
        } else {
            let bytes = if rng.one_in(50) { rng.range(1..20_000) } else { rng.range(1..600) };
            if let Ok(offset) = pool.allocate(bytes) {
                assert!(bytes % 64 != 0 || offset % 64 == 0);
                held.push((offset, bytes));
            }
        }
    }
    assert_eq!(taken(&pool), held.iter().map(|(offset, _)| *offset).collect());
    held.sort_unstable();
    for pair in held.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
    }
    held.iter().for_each(|(offset, _)| pool.free(*offset));
    assert_eq!(pool.free_chunk_bytes(), empty);
}

#[test]
fn what_is_not_reached_after_reopening_is_free_and_nothing_else() {
    let region = region(1 << 20);
    let options = PoolOptions { chunk_bytes: CHUNK };
    let pool = Pool::create(region.clone(), options).expect("a pool");
    let empty = pool.free_chunk_bytes();
    let mut rng = Rng::new(2);
    let blocks: Vec<u64> = (0..500)
        .map(|number| if number % 50 == 0 { 3 * CHUNK } else { rng.range(1..900) })
        .map(|bytes| pool.allocate(bytes).expect("room"))
        .collect();
    let reached: BTreeSet<u64> = blocks.iter().copied().filter(|_| rng.one_in(3)).collect();
    drop(pool);

    let pool = Pool::open(region).expect("the pool");
    assert_eq!(pool.openings(), 2);
    assert!(!pool.is_swept());
    let given = *reached.first().expect("one");
    let early = pool.allocate(100).expect("room in unused chunks");
    assert!(!blocks.contains(&early));
    pool.free(given);
    let swept = pool.sweep(|visit| {
        reached.iter().for_each(|&offset| visit(offset));
        Ok(())
    });
    assert_eq!(swept.expect("no damage").reached, reached.len() as u64 - 1);
    let mut left = reached.clone();
    left.remove(&given);
    left.insert(early);
    assert_eq!(taken(&pool), left);
    left.iter().for_each(|&offset| pool.free(offset));
    assert_eq!(pool.free_chunk_bytes(), empty);
}

#[test]
fn a_full_pool_says_so_and_whether_a_sweep_may_help() {
    let region = region(1 << 20);
    let options = PoolOptions { chunk_bytes: CHUNK };
    let pool = Pool::create(region.clone(), options).expect("a pool");
    while pool.allocate(256).is_ok() {}
    let error = pool.allocate(256).expect_err("full").to_string();
    assert!(error.contains("the pool of 1MiB is full") && !error.contains("sweep"), "{error}");
    drop(pool);
    let pool = Pool::open(region).expect("the pool");
    let error = pool.allocate(256).expect_err("full").to_string();
    assert!(error.contains("while a sweep that may find room"), "{error}");
    pool.sweep(|_| Ok(())).expect("no damage");
    pool.allocate(256).expect("room");
}

#[test]
fn a_block_is_retired_as_long_as_somebody_may_look_at_it() {
    let pool = pool(1 << 20);
    let block = pool.allocate(256).expect("room");
    let guard = pool.pin();
    pool.retire(block);
    assert_eq!(pool.reclaim(), 1);
    assert!(taken(&pool).contains(&block));
    drop(guard);
    assert_eq!(pool.reclaim(), 0);
    assert!(taken(&pool).is_empty());
}

#[test]
fn what_is_retired_before_a_sweep_ends_is_freed_once_and_not_before() {
    let region = region(1 << 20);
    let pool = Pool::create(region.clone(), PoolOptions { chunk_bytes: CHUNK }).expect("a pool");
    let blocks: Vec<u64> = (0..8).map(|_| pool.allocate(256).expect("room")).collect();
    drop(pool);
    let pool = Pool::open(region).expect("the pool");
    // Unlinked before the walk, which so does not show it, and while it goes on.
    pool.retire(blocks[0]);
    let swept = pool.sweep(|visit| {
        pool.retire(blocks[1]);
        blocks[2..].iter().for_each(|&block| visit(block));
        Ok(())
    });
    swept.expect("no damage");
    let guard = pool.pin();
    let next: Vec<u64> = (0..4).map(|_| pool.allocate(256).expect("room")).collect();
    assert!(next.iter().all(|block| !blocks.contains(block)), "{next:?} {blocks:?}");
    drop(guard);
    assert_eq!(pool.reclaim(), 0);
    let left: BTreeSet<u64> = blocks[2..].iter().chain(&next).copied().collect();
    assert_eq!(taken(&pool), left);
    // Nothing is left to sweep.
    pool.sweep(|_| Ok(())).expect("no damage");
    assert_eq!(taken(&pool), left);
}

#[test]
fn an_index_answers_and_grows_while_its_pool_is_swept_behind_its_back() {
    for seed in 0..8 {
        let preemption = Preemption::OneIn(3);
        let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
        let ran = world.run(|| {
            let region = region(1 << 20);
            let options = PoolOptions { chunk_bytes: CHUNK };
            let pool = Arc::new(Pool::create(region.clone(), options).expect("a pool"));
            let list = SkipList::open(&pool, 0, &()).expect("a list");
            for key in 0..200 {
                list.insert(&key, key + 1).expect("room");
                pool.allocate(256).expect("room, which nothing leads to");
            }
            drop((list, pool));
            let pool = Arc::new(Pool::open(region).expect("the pool"));
            let list = Arc::new(SkipList::open(&pool, 0, &()).expect("the list"));
            let swept = Arc::clone(&list);
            let swept_pool = Arc::clone(&pool);
            let sweep =
                thread::spawn("sweep", move || swept_pool.sweep(move |visit| swept.blocks(visit)));
            for key in 0..200 {
                assert_eq!(list.get(&key).expect("no damage"), Some(key + 1));
                assert!(list.insert(&(key + 1000), 1).expect("room"));
                assert_eq!(list.remove(&(key + 1000)).expect("no damage"), Some(1));
            }
            let swept = sweep.join().expect("no panic").expect("no damage");
            assert!(swept.reached > 0);
            let mut reached = BTreeSet::new();
            list.blocks(&mut |offset| reached.extend([offset])).expect("no damage");
            assert_eq!(taken(&pool), reached);
        });
        ran.expect("the world ends");
    }
}

#[test]
fn a_full_pool_frees_what_was_retired() {
    let pool = pool(64 << 10);
    let first = pool.allocate(256).expect("room");
    while pool.allocate(256).is_ok() {}
    pool.retire(first);
    assert_eq!(pool.allocate(256).ok(), Some(first));
}

#[test]
fn a_link_to_where_no_block_begins_is_damage() {
    let region = region(1 << 20);
    let pool = Pool::create(region.clone(), PoolOptions { chunk_bytes: CHUNK }).expect("a pool");
    let block = pool.allocate(256).expect("room");
    drop(pool);
    let pool = Pool::open(region).expect("the pool");
    let swept = pool.sweep(|visit| {
        visit(block + 64);
        Ok(())
    });
    let error = swept.expect_err("no block").to_string();
    assert!(error.contains("damaged at"), "{error}");
    assert!(pool.check(block, 256).is_ok());
    for offset in [0, 64, block + 8, (1 << 20) - 64, u64::MAX - 63] {
        assert!(pool.check(offset, 256).is_err(), "{offset}");
    }
}

#[test]
#[should_panic(expected = "no block that is taken begins")]
fn a_block_is_given_back_once() {
    let pool = pool(1 << 20);
    let (block, _) = (pool.allocate(256).expect("room"), pool.allocate(256).expect("room"));
    pool.free(block);
    pool.free(block);
}

#[test]
fn regions_without_a_pool_are_told_apart() {
    let blank = Pool::open(region(1 << 20)).expect_err("nothing");
    assert!(blank.to_string().contains("holds no pool"), "{blank}");
    let other = region(1 << 20);
    other.write(0, &[7; 64]);
    let error = Pool::open(other).expect_err("something else");
    assert!(error.to_string().contains("than a pool; give another"), "{error}");
    let small = Pool::create(region(4096), PoolOptions::default()).expect_err("too small");
    assert!(small.to_string().contains("use smaller chunks"), "{small}");
    let odd = Pool::create(region(1 << 20), PoolOptions { chunk_bytes: 5000 }).expect_err("odd");
    assert!(odd.to_string().contains("power of two"), "{odd}");
    check_damage();
}

/// Sets the chunks' size to one that does not match the checksum.
fn check_damage() {
    let damaged = region(1 << 20);
    Pool::create(damaged.clone(), PoolOptions { chunk_bytes: CHUNK }).expect("a pool");
    damaged.store_u64(16, 8192, std::sync::atomic::Ordering::Relaxed);
    let error = Pool::open(damaged).expect_err("damage");
    assert!(error.to_string().contains("header is damaged"), "{error}");
}

/// A table that lost the word of a chunk in use. Its blocks are reached, so it cannot be free.
#[test]
fn a_block_in_a_chunk_that_says_it_is_unused_is_damage_and_nothing_is_freed() {
    let region = region(1 << 20);
    let pool = Pool::create(region.clone(), PoolOptions { chunk_bytes: CHUNK }).expect("a pool");
    let blocks: Vec<u64> = (0..40).map(|_| pool.allocate(256).expect("room")).collect();
    let run = pool.allocate(3 * CHUNK).expect("room");
    drop(pool);
    let lost = blocks[20];
    let word = 128 + 64 + 8 * (lost / CHUNK);
    assert_ne!(region.load_u64(word, std::sync::atomic::Ordering::Relaxed), 0);
    region.store_u64(word, 0, std::sync::atomic::Ordering::Relaxed);

    let pool = Pool::open(region).expect("the pool");
    let unused = pool.free_chunk_bytes();
    for reached in [lost, run + CHUNK, 0, 1 << 40] {
        let error = pool.sweep(|visit| {
            visit(blocks[0]);
            visit(reached);
            Ok(())
        });
        match error.expect_err("nothing is there") {
            IndexError::Damaged { offset, what } => {
                assert_eq!(offset, reached);
                assert!(what.contains("the pool's table says of chunk"), "{what}");
            }
            other => panic!("{other}"),
        }
        assert!(!pool.is_swept());
    }
    // Nothing was freed, and the chunk that is used after all is never given out.
    assert_eq!(pool.free_chunk_bytes(), unused - CHUNK);
    let mut next = Vec::new();
    while let Ok(block) = pool.allocate(256) {
        next.push(block);
    }
    assert!(next.iter().all(|block| block / CHUNK != lost / CHUNK && !blocks.contains(block)));
    // A block that was taken since is reached as it should be.
    pool.free(next[0]);
    let error = pool.sweep(|visit| {
        visit(next[1]);
        visit(next[0]);
        Ok(())
    });
    assert!(error.expect_err("given back").to_string().contains(&next[0].to_string()));
}

#[test]
fn who_waits_for_readers_comes_after_all_who_were_there() {
    let preemption = Preemption::OneIn(2);
    for seed in 0..8 {
        let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
        let ran = world.run(|| {
            let pool = Arc::new(pool(1 << 20));
            let is_reading = Arc::new(AtomicBool::new(true));
            let (theirs, reading) = (Arc::clone(&pool), Arc::clone(&is_reading));
            let guard = pool.pin();
            let waiting = thread::spawn("waits", move || {
                theirs.wait_for_readers();
                assert!(!reading.load(Acquire));
            });
            (0..20).for_each(|_| thread::yield_now());
            is_reading.store(false, Release);
            drop(guard);
            waiting.join().expect("no panic");
        });
        ran.expect("the world ends");
    }
}

/// A pool made over another: after a crash there is one of them, or none, and nothing of the other.
struct Either {
    /// Root 3 and the free bytes, in the old pool and in the new one.
    right: [(u64, u64); 2],
}

impl Subject for Either {
    type Opened = Option<Pool<RecordedRegion>>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        match Pool::open(crash.region(0).clone()) {
            Ok(pool) => Ok(Some(pool)),
            Err(IndexError::NoPool { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&self, opened: Self::Opened, _: &Crash<'_>) -> Result<(), String> {
        let Some(pool) = opened else { return Ok(()) };
        let found = (pool.root(3), pool.free_chunk_bytes());
        if self.right.contains(&found) { Ok(()) } else { Err(format!("a pool of {found:?}")) }
    }
}

fn made_over_another() -> Result<u64, String> {
    let power = Power::new();
    let region = Recorder::region(1 << 20, RecorderOptions::default(), &power);
    let region = Arc::new(region.expect("memory"));
    let options = PoolOptions { chunk_bytes: CHUNK };
    let create = || Pool::create(region.clone(), options).expect("a pool");
    let old = create();
    let all = (0, old.free_chunk_bytes());
    // Words of the table on many lines.
    let blocks: Vec<u64> = (0..400).map(|_| old.allocate(512).expect("room")).collect();
    old.set_root(3, blocks[9]);
    let right = [(blocks[9], old.free_chunk_bytes()), all];
    drop(old);
    let explorer = Explorer::new(Arc::new(Either { right }), ExploreOptions::default());
    explorer.watch(&power);
    drop(create());
    let report = explorer.finish(&power);
    report.failure.map_or(Ok(report.images), |failure| Err(failure.to_string()))
}

#[test]
fn a_pool_that_is_made_over_another_has_nothing_of_it() {
    let images = made_over_another().unwrap_or_else(|what| panic!("{what}"));
    assert!(images > 50, "{images}");
}

/// A root that leads, after a crash, to a chunk that the table knows.
struct Rooted;

impl Subject for Rooted {
    type Opened = Pool<RecordedRegion>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        Pool::open(crash.region(0).clone()).map_err(|error| error.to_string())
    }

    fn check(&self, pool: Self::Opened, _: &Crash<'_>) -> Result<(), String> {
        let reach = |visit: &mut dyn FnMut(u64)| {
            [pool.root(0)].into_iter().filter(|&it| it != 0).for_each(visit);
            Ok(())
        };
        pool.sweep(reach).map(drop).map_err(|error| error.to_string())
    }
}

/// Takes the first block of a chunk in one thread and the next one in another, and uses only that
/// one.
fn shared_by_threads() -> Result<u64, String> {
    let power = Power::new();
    let region = Recorder::region(1 << 20, RecorderOptions::default(), &power);
    let options = PoolOptions { chunk_bytes: CHUNK };
    let pool = Pool::create(Arc::new(region.expect("memory")), options).expect("a pool");
    let pool = Arc::new(pool);
    // A pool of which no chunk is in use is not swept.
    pool.allocate(1024).expect("room");
    let explorer = Explorer::new(Arc::new(Rooted), ExploreOptions::default());
    explorer.watch(&power);
    pool.allocate(256).expect("room");
    let theirs = Arc::clone(&pool);
    let used = thread::spawn("uses", move || {
        let block = theirs.allocate(256).expect("room");
        theirs.region().persist(block, 256);
        theirs.set_root(0, block);
        theirs.set_root(1, 1);
    });
    used.join().map_err(|_| "a panic".to_owned())?;
    let report = explorer.finish(&power);
    report.failure.map_or(Ok(report.images), |failure| Err(failure.to_string()))
}

#[test]
fn a_chunk_is_known_durably_before_another_thread_uses_it() {
    let images = shared_by_threads().unwrap_or_else(|what| panic!("{what}"));
    assert!(images > 2, "{images}");
}

/// The drain behind a chunk's word is the one that only other threads need.
#[cfg(feature = "mutants")]
#[test]
fn a_chunk_that_is_known_too_late_is_noticed() {
    use entresol_base::mutants::{SiteKind, try_those};
    let of_chunks = |site: &entresol_base::mutants::Site| {
        site.kind == SiteKind::Drain && site.place.file().contains("pool/layout")
    };
    let trials = try_those(of_chunks, || shared_by_threads().map(drop)).expect("as it is");
    let noticed = trials.iter().filter_map(|trial| trial.noticed.as_ref());
    let of_table = noticed.filter(|what| what.contains("the pool's table says"));
    assert_eq!(of_table.count(), 1, "{trials:#?}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_that_is_left_out_is_noticed() {
    use crate::trial::{killed_anywhere, suite};
    use crate::{Ods, OdsOptions};
    let options = OdsOptions { node_bytes: 128, split_from: 0.7 };
    crate::testing::check_sites(
        |file| file.contains("src/pool"),
        &[],
        || {
            check_damage();
            made_over_another()?;
            shared_by_threads()?;
            suite::<Ods<_>>(0..3, &options, |_| ())?;
            killed_anywhere::<Ods<_>>(&options)?;
            crate::trial::tests::blocks_of_all_sizes()
        },
    );
}
