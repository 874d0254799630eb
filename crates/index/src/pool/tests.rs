//! Blocks are taken once, given back once, and after any crash reached or free.

use std::collections::BTreeSet;

use entresol_base::rng::Rng;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::Direct;

use super::*;
use crate::{Index, SkipList};

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
            let sweep = sweep_behind(&pool, &list);
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
    assert!(error.to_string().contains("no pool; give another"), "{error}");
    let small = Pool::create(region(4096), PoolOptions::default()).expect_err("too small");
    assert!(small.to_string().contains("use smaller chunks"), "{small}");
    let odd = Pool::create(region(1 << 20), PoolOptions { chunk_bytes: 5000 }).expect_err("odd");
    assert!(odd.to_string().contains("power of two"), "{odd}");
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
    // Nothing came back, and the chunk that is used after all is not given to anybody.
    assert_eq!(pool.free_chunk_bytes(), unused - CHUNK);
    let mut next = Vec::new();
    while let Ok(block) = pool.allocate(256) {
        next.push(block);
    }
    assert!(next.iter().all(|block| block / CHUNK != lost / CHUNK && !blocks.contains(block)));
    // What was taken since is reached as it should be.
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
