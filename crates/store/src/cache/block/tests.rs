//! Tests of the block cache by itself: what stays, what is evicted, and that the limit holds.

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};

use super::*;
use crate::cache::budget::Taken;

const BLOCK: [u8; 4096] = [7; 4096];

fn id(run: u64, page: u64) -> PageId {
    PageId { run: RunNumber(run), page }
}

/// Looks a block up as a reader does. Returns true if it was cached.
fn read(pages: &BlockCache, id: PageId, kind: PageKind) -> bool {
    let found = pages.find(id, kind).is_some();
    if !found {
        drop(pages.insert(id, kind, &BLOCK));
    }
    found
}

#[test]
fn a_scan_drives_out_nothing_that_was_wanted_twice() {
    let pages = BlockCache::new(4 << 20);
    let hot = || (0..500).map(|page| id(1, page));
    for _ in 0..4 {
        hot().for_each(|id| _ = read(&pages, id, PageKind::Data));
    }
    for page in 0..100_000 {
        read(&pages, id(2, page), PageKind::Data);
    }
    let kept = hot().filter(|id| pages.find(*id, PageKind::Data).is_some()).count();
    assert!(kept > 490, "{kept} of 500 are left");
}

#[test]
fn what_is_walked_over_is_cached_as_long_as_nothing_goes_for_it() {
    let pages = BlockCache::new(1 << 20);
    read(&pages, id(1, 0), PageKind::Data);
    for page in 0..1_000 {
        drop(pages.insert_if_room(id(2, page), PageKind::Data, &BLOCK));
    }
    let there = (0..1_000).filter(|&page| pages.find(id(2, page), PageKind::Data).is_some());
    let (there, counts) = (there.count(), pages.counts());
    assert!((200..=256).contains(&there), "{there} blocks in a mebibyte");
    assert!(pages.find(id(1, 0), PageKind::Data).is_some());
    assert!(counts.bytes <= counts.cap_bytes && counts.data.evictions == 0, "{counts:?}");
}

#[test]
fn what_is_wanted_again_soon_after_it_left_stays() {
    let pages = BlockCache::new(1 << 20);
    let blocks = || (0..230).map(|page| id(1, page));
    for _ in 0..6 {
        blocks().for_each(|id| _ = read(&pages, id, PageKind::Data));
    }
    let kept = blocks().filter(|id| pages.find(*id, PageKind::Data).is_some()).count();
    assert!(kept > 180, "{kept} of 230 are cached, in room for 240");
}

#[test]
fn index_blocks_stay_where_entries_go_but_not_without_bound() {
    let pages = BlockCache::new(4 << 20);
    for page in 0..200 {
        read(&pages, id(1, page), PageKind::Index);
    }
    let mut rng = Rng::new(3);
    for _ in 0..40_000 {
        read(&pages, id(2, rng.below(5000)), PageKind::Data);
        read(&pages, id(1, rng.below(200)), PageKind::Index);
    }
    let index = pages.counts().index;
    assert!(index.misses < 400, "{index:?}");
    // More of them than may be preferred do not keep data blocks out.
    for _ in 0..200_000 {
        read(&pages, id(3, rng.below(100_000)), PageKind::Filter);
        read(&pages, id(2, rng.below(100)), PageKind::Data);
    }
    let before = pages.counts().data;
    for _ in 0..1000 {
        read(&pages, id(2, rng.below(100)), PageKind::Data);
    }
    let misses = pages.counts().data.misses - before.misses;
    assert!(misses < 100, "{misses} of 1000");
}

#[test]
fn a_run_is_forgotten_and_others_are_not() {
    let pages = BlockCache::new(4 << 20);
    for page in 0..100 {
        read(&pages, id(1, page), PageKind::Data);
        read(&pages, id(2, page), PageKind::Index);
    }
    let held = pages.find(id(1, 5), PageKind::Data).expect("is cached");
    let before = pages.counts().bytes;
    pages.forget(RunNumber(1));
    assert_eq!(before - pages.counts().bytes, 99 * weight_of(&BLOCK));
    assert_eq!(held.bytes(), BLOCK, "who reads it can go on");
    drop(held);
    assert_eq!(before - pages.counts().bytes, 100 * weight_of(&BLOCK));
    assert!((0..100).all(|page| pages.find(id(1, page), PageKind::Data).is_none()));
    assert!((0..100).all(|page| pages.find(id(2, page), PageKind::Index).is_some()));
    // Their slots are there for other blocks, and are freed when their memory is needed.
    let most = pages.counts().bytes_most;
    assert!((0..100).all(|page| pages.offer(id(3, page), PageKind::Data, &BLOCK).is_some()));
    assert_eq!(pages.counts().bytes_most, most);
    pages.forget(RunNumber(3));
    let counts = pages.counts();
    drop(pages.charge(counts.cap_bytes - counts.bytes));
    let counts = pages.counts();
    assert!(counts.over_bytes_most == 0 && counts.index.evictions == 0, "{counts:?}");
}

#[test]
fn what_others_need_is_given_back_and_taken_again() {
    let room = Room::new(4 << 20, 1 << 20);
    let pages = BlockCache::sharing(&room, None);
    let young = Taken::of_memtables(&room);
    let read_all = || (0..900).for_each(|page| _ = read(&pages, id(1, page), PageKind::Data));
    read_all();
    assert!(pages.counts().bytes > 3 << 20, "more than the share");
    young.set(2 << 20);
    let counts = pages.counts();
    assert!(counts.bytes + counts.spare_bytes <= 2 << 20, "{counts:?}");
    // Their slots take no more memory.
    assert_eq!(counts.spare_bytes, 0);
    young.set(4 << 20);
    let least = pages.counts().bytes;
    assert!(((1 << 20) - 8192..=1 << 20).contains(&least), "{least} of the share are left");
    young.set(0);
    read_all();
    assert!(pages.counts().bytes > 3 << 20);
}

#[test]
fn a_limit_that_has_become_lower_is_reached_little_by_little() {
    let room = Room::new(8 << 20, 1 << 20);
    let pages = BlockCache::sharing(&room, None);
    (0..1800).for_each(|page| _ = read(&pages, id(1, page), PageKind::Data));
    let before = pages.counts();
    assert!(before.bytes > 7 << 20 && before.bytes <= before.cap_bytes, "{before:?}");
    room.set_runs(1 << 30);
    read(&pages, id(2, 0), PageKind::Data);
    let after = pages.counts();
    assert!(after.cap_bytes == 1 << 20 && after.bytes > before.bytes - (64 << 10), "{after:?}");
    (1..250).for_each(|page| _ = read(&pages, id(2, page), PageKind::Data));
    let counts = pages.counts();
    assert!(counts.bytes + counts.spare_bytes <= 1 << 20, "{counts:?}");
}

#[test]
fn what_is_in_use_counts_and_is_not_driven_out() {
    let pages = BlockCache::new(CACHE_BYTES_MIN);
    let mut held: Vec<Arc<Page>> =
        (0..40).map(|page| pages.insert(id(1, page), PageKind::Data, &BLOCK)).collect();
    for page in 0..1000 {
        read(&pages, id(2, page), PageKind::Data);
    }
    assert!((0..40).all(|page| pages.find(id(1, page), PageKind::Data).is_some()));
    let counts = pages.counts();
    assert!(counts.over_bytes_most == 0 && counts.bytes_most <= CACHE_BYTES_MIN, "{counts:?}");
    // With more in use than the limit, all readers are served, and the excess is reported.
    held.extend((100..200).map(|page| pages.insert(id(1, page), PageKind::Data, &BLOCK)));
    assert!(pages.counts().over_bytes_most > 0);
    assert!(pages.counts().bytes > CACHE_BYTES_MIN);
    drop(held);
    read(&pages, id(3, 0), PageKind::Data);
    assert!(pages.counts().bytes <= CACHE_BYTES_MIN, "and back below at the next read");
}

#[test]
fn the_limit_holds_for_many_threads() {
    let pages = BlockCache::new(1 << 20);
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let pages = Arc::clone(&pages);
            thread::spawn("reader", move || churn(&pages, seed, 20_000))
        })
        .collect();
    for thread in threads {
        thread.join().expect("does not panic");
    }
    let counts = pages.counts();
    assert!(counts.bytes_most <= 1 << 20 && counts.over_bytes_most == 0, "{counts:?}");
    assert!(counts.data.hits > 0 && counts.data.evictions > 0, "{counts:?}");
    for run in 0..4 {
        pages.forget(RunNumber(run));
    }
    pages.buffers.lock().clear();
    assert_eq!(pages.counts().bytes, 0, "nothing is left");
}

/// Finds and inserts blocks, and holds some of them for a while.
fn churn(pages: &BlockCache, seed: u64, rounds: u64) {
    let mut rng = Rng::new(seed);
    let mut held = Vec::new();
    for round in 0..rounds {
        let id = id(rng.below(4), rng.below(400));
        let kind = if id.page < 40 { PageKind::Index } else { PageKind::Data };
        let page = pages.find(id, kind).unwrap_or_else(|| pages.insert(id, kind, &BLOCK));
        assert_eq!(page.id(), id);
        held.push(page);
        if held.len() > 5 {
            held.swap_remove(rng.below(5) as usize);
        }
        if round % 64 == 0 {
            let lease = pages.buffer([4096, 8192, 100_000][rng.below(3) as usize]);
            pages.give_back(lease);
        }
        if round % 5000 == 4999 {
            pages.forget(RunNumber(rng.below(4)));
        }
    }
}

#[test]
fn in_a_world_everything_repeats() {
    let run = |seed| {
        let world = World::new(WorldOptions::seeded(seed));
        let pages = BlockCache::new(CACHE_BYTES_MIN);
        let of_world = Arc::clone(&pages);
        let outcome = world.run(move || {
            let threads: Vec<_> = (0..3)
                .map(|seed| {
                    let pages = Arc::clone(&of_world);
                    thread::spawn("reader", move || churn(&pages, seed, 500))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
        });
        outcome.expect("ends");
        pages.counts()
    };
    let counts = run(5);
    assert_eq!(counts, run(5));
    assert_ne!(counts, run(6));
    assert!(counts.over_bytes_most == 0, "{counts:?}");
}
