//! Points are right at once, ranges when the tree is, and nothing is lost in between.

use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::Direct;

use crate::testing::{
    assert_about, check_against_map, check_edges, check_no_old_value, check_refusal,
    check_reopening, costs, fragile_pool, fresh, pool, stepping_pool, walk,
};
use crate::trial;

use super::*;

/// Small segments, and a queue that is full all the time.
fn small() -> HybridOptions {
    let table = HashTableOptions { segment_bytes: 128, seed: 3 };
    HybridOptions { table, queue_entries: 2 }
}

#[test]
fn no_crash_undoes_or_leaks_anything() {
    let report = trial::suite::<HybridIndex<_>>(0..3, &small(), |options| options.in_world = true);
    let report = report.unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 1000, "{report:?}");
}

#[test]
fn it_is_a_map() {
    for options in [small(), HybridOptions::default()] {
        check_edges(&fresh::<HybridIndex<_>>(&options));
        check_against_map(&fresh::<HybridIndex<_>>(&options), 1, 8_000);
        check_reopening::<HybridIndex<_>>(&options);
        check_refusal::<HybridIndex<_>>(&options);
    }
}

#[test]
fn a_write_costs_what_the_table_costs() {
    let costs = costs::<HybridIndex<_>>(20_000, &HybridOptions::default());
    assert_about("lines of an insert", costs.insert.lines, 1.0, 0.01);
    assert_about("lines of an update", costs.update.lines, 1.0, 0.0);
    assert_about("lines of a removal", costs.remove.lines, 1.0, 0.0);
}

#[test]
fn nobody_sees_an_older_value_after_a_newer_one() {
    for seed in 0..30 {
        check_no_old_value(seed, || {
            HybridIndex::open(&stepping_pool(), 0, &small()).expect("an index")
        });
    }
}

/// Opened again with records in it, in the middle of writes.
#[test]
fn writes_while_the_tree_is_built_win_over_what_was_there() {
    for seed in 0..20 {
        let preemption = Preemption::OneIn(4);
        let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
        let ran = world.run(|| {
            let pool = stepping_pool();
            let index = HybridIndex::open(&pool, 0, &small()).expect("an index");
            let mut map = BTreeMap::new();
            for key in 0..60 {
                index.upsert(&key, key + 1).expect("room");
                map.insert(key, key + 1);
            }
            drop(index);
            let index = HybridIndex::open(&pool, 0, &small()).expect("an index");
            for key in (0..90).step_by(3) {
                assert_eq!(index.get(&key).expect("no damage"), map.get(&key).copied());
                index.upsert(&key, 1000 + key).expect("room");
                map.insert(key, 1000 + key);
                assert_eq!(index.remove(&(key + 1)).expect("fine"), map.remove(&(key + 1)));
            }
            crate::testing::check_same(&index, &map);
        });
        ran.expect("the world ends");
    }
}

#[test]
fn writers_wait_when_the_tree_lags_too_far_behind() {
    let index = fresh::<HybridIndex<Direct>>(&HybridOptions::default());
    for key in 0..20_000 {
        index.insert(&key, 1).expect("room");
        // What a queue of 4096 changes takes, as it grows by doubling.
        assert!(index.shared.queue.bytes() <= 4096 * 24);
    }
    assert_eq!(walk(&index, Bound::Unbounded, Direction::Forward, 99_999).len(), 20_000);
    let statistics = index.statistics().expect("no damage");
    assert!(statistics.volatile_bytes > 20_000 * 16, "{statistics:?}");
    drop(pool(1 << 20));
}

/// The thread that builds the tree panics while another waits for the tree, or before.
#[test]
fn nobody_waits_for_a_tree_whose_thread_has_panicked() {
    for accesses in [0, 3, 12] {
        let pool = fragile_pool(1 << 20);
        let table = HashTable::open(&pool, 0, &small().table).expect("a table");
        (0..60).for_each(|key| assert!(table.insert(key, key + 1).expect("room")));
        let shared = Arc::new(Shared {
            table,
            tree: RwLock::default(),
            queue: Queue::new(2),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            building: Mutex::new(Building::Begun),
            built: Condvar::new(),
        });
        pool.region().observer().kill_after(accesses);
        let theirs = Arc::clone(&shared);
        let _background = Background::start(THREAD, move || theirs.work());
        let index = HybridIndex { shared, _background };
        let ranged = index.range(Bound::Unbounded, Direction::Forward, &mut |_, _| Flow::On);
        assert!(matches!(ranged, Err(IndexError::Stopped { thread }) if thread == THREAD));
        // Points need no tree.
        assert_eq!(index.get(&7).expect("no damage"), Some(8));
        (100..120).for_each(|key| assert!(index.insert(&key, 1).expect("room")));
        assert_eq!(index.get(&119).expect("no damage"), Some(1));
    }
}
