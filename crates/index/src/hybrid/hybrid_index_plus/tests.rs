//! Points and ranges are right at once, before the table in DRAM is whole as well as after.

use std::collections::BTreeMap;

use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::Direct;

use crate::testing::{
    Counted, assert_about, check_against_map, check_edges, check_no_old_value, check_refusal,
    check_reopening, check_same, costs, counted_pool, fresh, stepping_pool,
};
use crate::{FpTree, FpTreeOptions, SkipList, trial};

use super::*;

fn telling(telling: Telling) -> HybridPlusOptions<()> {
    HybridPlusOptions { tree: (), telling }
}

#[test]
fn no_crash_undoes_or_leaks_anything() {
    for when in [Telling::AtOnce, Telling::Later] {
        let tree = FpTreeOptions { leaf_records: 4 };
        let options = HybridPlusOptions { tree, telling: when };
        let report = trial::suite::<HybridIndexPlus<FpTree<_>>>(0..3, &options, |options| {
            options.in_world = true;
        });
        let report = report.unwrap_or_else(|what| panic!("{when:?}: {what}"));
        assert!(report.images > 1000, "{report:?}");
    }
}

#[test]
fn it_is_a_map() {
    for when in [Telling::AtOnce, Telling::Later, Telling::ByLoad] {
        check_edges(&fresh::<HybridIndexPlus<SkipList<_>>>(&telling(when)));
        check_against_map(&fresh::<HybridIndexPlus<SkipList<_>>>(&telling(when)), 1, 20_000);
        check_reopening::<HybridIndexPlus<SkipList<_>>>(&telling(when));
        check_refusal::<HybridIndexPlus<SkipList<_>>>(&telling(when));
    }
}

#[test]
fn a_write_costs_what_the_tree_costs() {
    let costs = costs::<HybridIndexPlus<SkipList<Counted>>>(20_000, &telling(Telling::AtOnce));
    assert_about("lines of an insert", costs.insert.lines, 2.0, 0.001);
    assert_about("lines of an update", costs.update.lines, 1.0, 0.0);
    assert_about("lines of a removal", costs.remove.lines, 1.0, 0.0);
}

#[test]
fn points_are_read_from_dram_alone_whether_the_table_is_told_at_once_or_later() {
    for when in [Telling::AtOnce, Telling::Later] {
        let pool = counted_pool(64 << 20);
        let index = HybridIndexPlus::<SkipList<_>>::open(&pool, 0, &telling(when)).expect("one");
        while !index.is_rebuilt() {
            thread::yield_now();
        }
        for key in 0..5000 {
            index.insert(&key, key + 1).expect("room");
        }
        let before = pool.region().observer().counts();
        for key in 0..6000 {
            let expected = (key < 5000).then_some(key + 1);
            assert_eq!(index.get(&key).expect("no damage"), expected);
        }
        assert_eq!(pool.region().observer().counts(), before, "{when:?}");
    }
}

#[test]
fn nobody_sees_an_older_value_after_a_newer_one() {
    for seed in 0..30 {
        let when = [Telling::AtOnce, Telling::Later][seed as usize % 2];
        check_no_old_value(seed, move || {
            HybridIndexPlus::<SkipList<_>>::open(&stepping_pool(), 0, &telling(when)).expect("one")
        });
    }
}

/// Reads, writes and removals at every step of the rebuilding.
#[test]
fn it_serves_while_the_table_is_built() {
    let mut before_rebuilt = 0;
    for seed in 0..20 {
        let preemption = Preemption::OneIn(3);
        let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
        let when = [Telling::AtOnce, Telling::Later][seed as usize % 2];
        let ran = world.run(move || {
            let pool = stepping_pool();
            let open = || HybridIndexPlus::<SkipList<_>>::open(&pool, 0, &telling(when));
            let index = open().expect("an index");
            let mut map = BTreeMap::new();
            for key in 0..3000 {
                index.upsert(&key, key + 1).expect("room");
                map.insert(key, key + 1);
            }
            drop(index);
            let index = open().expect("an index");
            let mut early = 0;
            for key in (0..4500).step_by(45) {
                early += u32::from(!index.is_rebuilt());
                for key in [key, key + 1, key + 2] {
                    assert_eq!(index.get(&key).expect("no damage"), map.get(&key).copied());
                }
                index.upsert(&key, 1000 + key).expect("room");
                map.insert(key, 1000 + key);
                assert_eq!(index.remove(&(key + 1)).expect("fine"), map.remove(&(key + 1)));
                let mut first = None;
                let ranged = index.range(Bound::Included(&key), Direction::Forward, &mut |k, v| {
                    first = Some((*k, v));
                    Flow::Stop
                });
                ranged.expect("no damage");
                assert_eq!(first, Some((key, 1000 + key)));
            }
            while !index.is_rebuilt() {
                thread::yield_now();
            }
            for key in 0..4510 {
                assert_eq!(index.get(&key).expect("no damage"), map.get(&key).copied(), "{key}");
            }
            check_same(&index, &map);
            early
        });
        before_rebuilt += ran.expect("the world ends");
    }
    assert!(before_rebuilt > 200, "{before_rebuilt}");
}

#[test]
fn the_table_is_told_later_while_writes_press_and_at_once_while_reads_do() {
    let index = fresh::<HybridIndexPlus<SkipList<Direct>>>(&telling(Telling::ByLoad));
    let mut changes = 0;
    let mut was_later = index.is_told_later();
    let mut load = |writes_of_10: u64, from: u64| {
        for number in 0..30_000 {
            let key = (from + number) % 3000;
            if number % 10 < writes_of_10 {
                index.upsert(&key, from + number + 1).expect("room");
            } else {
                index.get(&key).expect("no damage");
            }
            changes += u32::from(was_later != index.is_told_later());
            was_later = index.is_told_later();
        }
        // Whatever it was told, and when: no answer is old. Few are asked for, lest they count.
        for key in (0..3000).step_by(30) {
            let mut in_tree = None;
            let ranged =
                index.tree().range(Bound::Included(&key), Direction::Forward, &mut |&it, value| {
                    in_tree = (it == key).then_some(value);
                    Flow::Stop
                });
            ranged.expect("no damage");
            assert_eq!(index.get(&key).expect("no damage"), in_tree);
        }
        (changes, was_later)
    };
    assert_eq!(load(1, 0), (0, false));
    assert_eq!(load(9, 30_000), (1, true));
    assert_eq!(load(5, 60_000), (1, true));
    assert_eq!(load(1, 90_000), (2, false));
    assert_eq!(load(5, 120_000), (2, false));
}
