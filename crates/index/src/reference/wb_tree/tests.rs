//! The tree is right after any crash, and as cheap as documented.

use crate::testing::{
    assert_about, check_against_map, check_edges, check_refusal, check_reopening, costs,
    few_images, fresh, pool, walk,
};
use crate::trial;

use super::*;

fn of(node_entries: usize) -> WbTreeOptions {
    WbTreeOptions { node_entries }
}

#[test]
fn no_crash_undoes_or_leaks_anything() {
    check_crashes(few_images);
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_no_crash_undoes_or_leaks_anything() {
    check_crashes(|_| ());
}

fn check_crashes(change: fn(&mut trial::TrialOptions)) {
    for entries in [2, 4] {
        let report = trial::suite::<WbTree<_>>(0..3, &of(entries), change);
        let report = report.unwrap_or_else(|what| panic!("nodes of {entries}: {what}"));
        assert!(report.images > 1000, "{report:?}");
    }
}

#[test]
fn no_crash_undoes_or_leaks_anything_in_nodes_of_the_papers_size() {
    let report = trial::suite::<WbTree<_>>(2..3, &of(28), |options| {
        few_images(options);
        options.operations = 320;
    });
    let report = report.unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 1000, "{report:?}");
}

#[test]
fn it_is_a_map() {
    for entries in [2, 3, 28] {
        check_edges(&fresh::<WbTree<_>>(&of(entries)));
        check_against_map(&fresh::<WbTree<_>>(&of(entries)), 1, 20_000);
    }
    check_reopening::<WbTree<_>>(&of(8));
    check_refusal::<WbTree<_>>(&of(8));
}

#[test]
fn an_insert_costs_between_four_and_five_lines_and_a_removal_three() {
    let costs = costs::<WbTree<_>>(50_000, &of(28));
    // Four, and 13 for a split, one for every 19 of them or so. Public copies, whose slot array is
    // in another line than the bitmap, or has 63 entries: 6.19 and 5.10.
    assert_about("lines of an insert", costs.insert.lines, 4.7, 0.1);
    assert_about("fences of an insert", costs.insert.fences, 3.3, 0.1);
    assert_about("lines of an update", costs.update.lines, 1.0, 0.0);
    assert_about("lines of a removal", costs.remove.lines, 3.0, 0.01);
}

/// Public copies clear the bit of the rank, not of the place: another record goes, and the place
/// of the one that was removed is never free again.
#[test]
fn a_removal_clears_the_bit_of_the_place_and_not_of_the_rank() {
    let pool = pool(8 << 20);
    let tree = WbTree::open(&pool, 0, &of(28)).expect("a tree");
    // Key 27 is in place 0, key 0 in the last one.
    for key in (0..28).rev() {
        tree.insert(&key, 100 + key).expect("room");
    }
    for key in (0..28).step_by(2) {
        assert_eq!(tree.remove(&key).expect("no damage"), Some(100 + key));
        let root = *tree.root.read();
        // Whatever the slot array says: the bitmap alone decides after a crash.
        let region = pool.region();
        let bitmap = region.load_u64(root, Relaxed);
        region.store_u64(root, bitmap & !1, Relaxed);
        let left: Vec<u64> = (0..28).filter(|it| it % 2 == 1 || *it > key).collect();
        let found = walk(&tree, Bound::Unbounded, Direction::Forward, 99);
        assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), left);
    }
    for key in 100..114 {
        tree.insert(&key, 1).expect("room");
    }
    let statistics = tree.statistics().expect("no damage");
    assert_eq!((statistics.nodes, statistics.splits, statistics.keys), (1, 0, 28));
}

#[test]
fn a_node_has_the_bytes_that_were_asked_for() {
    for bytes in (128..=512).step_by(64) {
        let tree = fresh::<WbTree<_>>(&WbTreeOptions::of_bytes(bytes).expect("a size"));
        assert_eq!(Node::bytes(tree.most), bytes);
        check_against_map(&tree, 1, 2_000);
    }
    for bytes in [0, 64, 130, 576, u64::MAX] {
        let error = WbTreeOptions::of_bytes(bytes).expect_err("no size").to_string();
        assert!(error.contains("use a multiple of 64 from 128 to 512"), "{error}");
    }
}

#[test]
fn nodes_that_become_empty_are_given_back_up_to_the_root() {
    for keys in [0..2000u64, 0..7] {
        let tree = fresh::<WbTree<_>>(&of(3));
        for key in keys.clone() {
            tree.insert(&key, 1).expect("room");
        }
        let full = tree.statistics().expect("no damage");
        assert!(full.height > 1 && full.nodes > keys.end / 3, "{full:?}");
        // From the middle outwards, so that nodes lose children on both sides.
        let middle = keys.end / 2;
        for key in (0..=middle).rev().chain(middle + 1..keys.end) {
            assert_eq!(tree.remove(&key).expect("no damage"), Some(1), "{key}");
        }
        let empty = tree.statistics().expect("no damage");
        assert_eq!((empty.nodes, empty.height, empty.keys), (1, 1, 0));
    }
}

#[test]
fn a_damaged_node_is_reported_and_not_followed() {
    let pool = pool(8 << 20);
    let tree = WbTree::open(&pool, 0, &of(4)).expect("a tree");
    for key in 0..100 {
        tree.insert(&key, 1).expect("room");
    }
    let root = *tree.root.read();
    pool.region().store_u64(root + 40, root, Relaxed);
    let error = tree.get(&0).expect_err("a cycle").to_string();
    assert!(error.contains("below one of level"), "{error}");
    pool.region().store_u64(root + 40, 8, Relaxed);
    assert!(matches!(tree.get(&0), Err(IndexError::Damaged { offset: 8, .. })));
    pool.region().store_u64(root, u64::MAX, Relaxed);
    let error = tree.get(&99).expect_err("no bitmap").to_string();
    assert!(error.contains("cannot be a node"), "{error}");
}

#[test]
fn what_a_killed_process_left_is_not_relied_on_before_it_is_durable() {
    crate::testing::check_kills::<WbTree<_>>(&of(3));
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_that_is_left_out_is_noticed() {
    // The paper's flush of the slot array, whose line is flushed again with the bitmap: within a
    // line stores keep their order. It stays, so that counts compare with the paper's.
    crate::testing::check_mutants::<WbTree<_>>(&of(3), &["Flush in reference/wb_tree/node.rs"]);
}
