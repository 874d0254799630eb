//! The tree is right after any crash, and as cheap as in the paper.

use crate::testing::{
    assert_about, check_against_map, check_edges, check_refusal, check_reopening, costs,
    counted_pool, few_images, fresh, pool, walk,
};
use crate::trial;

use super::*;

fn of(leaf_records: usize) -> FpTreeOptions {
    FpTreeOptions { leaf_records }
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
    for records in [2, 5] {
        let report = trial::suite::<FpTree<_>>(0..3, &of(records), change);
        let report = report.unwrap_or_else(|what| panic!("leaves of {records}: {what}"));
        assert!(report.images > 1000, "{report:?}");
    }
}

#[test]
fn no_crash_undoes_or_leaks_anything_in_leaves_of_the_papers_size() {
    let report = trial::suite::<FpTree<_>>(2..3, &of(56), |options| options.operations = 320);
    let report = report.unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 1000, "{report:?}");
}

#[test]
fn it_is_a_map() {
    for records in [2, 8, 56] {
        check_edges(&fresh::<FpTree<_>>(&of(records)));
        check_against_map(&fresh::<FpTree<_>>(&of(records)), 1, 20_000);
    }
    check_reopening::<FpTree<_>>(&of(14));
    check_refusal::<FpTree<_>>(&of(14));
}

#[test]
fn an_insert_costs_about_four_lines_and_a_removal_one() {
    let costs = costs::<FpTree<_>>(50_000, &FpTreeOptions::default());
    // Record, fingerprint, bitmap; and of a split for every 38 of them or so 12 lines: only what
    // moves is written. Public copies write the whole leaf, which makes 3.74 and 3.99.
    assert_about("lines of an insert", costs.insert.lines, 3.35, 0.1);
    assert_about("fences of an insert", costs.insert.fences, 2.1, 0.05);
    assert_about("lines of an update", costs.update.lines, 1.0, 0.0);
    assert_about("lines of a removal", costs.remove.lines, 1.0, 0.0);
}

#[test]
fn a_search_looks_at_about_one_record() {
    let pool = counted_pool(64 << 20);
    let tree = FpTree::open(&pool, 0, &FpTreeOptions::default()).expect("a tree");
    for key in 0..20_000u64 {
        tree.insert(&key, 1).expect("room");
    }
    let before = pool.region().observer().counts();
    for key in 0..20_000u64 {
        assert_eq!(tree.get(&key).expect("no damage"), Some(1));
    }
    let counts = pool.region().observer().counts().since(&before);
    // The first line, then both words of the records whose fingerprints are equal.
    let looked = (counts.loads as f64 / 20_000.0 - 1.0) / 2.0;
    assert!((1.0..1.1).contains(&looked), "{looked}");
}

#[test]
fn leaves_that_become_empty_are_given_back() {
    let tree = fresh::<FpTree<_>>(&of(4));
    for key in 0..1000 {
        tree.insert(&key, 1).expect("room");
    }
    let full = tree.statistics().expect("no damage");
    assert!(full.nodes > 300 && full.splits == full.nodes - 1, "{full:?}");
    for key in 0..1000 {
        tree.remove(&key).expect("no damage");
    }
    let empty = tree.statistics().expect("no damage");
    assert_eq!((empty.nodes, empty.merges), (1, full.nodes - 1));
}

#[test]
fn a_tree_that_is_there_stays_as_it_was_made() {
    let pool = pool(8 << 20);
    let tree = FpTree::open(&pool, 0, &of(4)).expect("a tree");
    for key in 0..100 {
        tree.insert(&key, key + 1).expect("room");
    }
    drop(tree);
    let tree = FpTree::open(&pool, 0, &of(56)).expect("the tree");
    assert_eq!(walk(&tree, Bound::Unbounded, Direction::Forward, 999).len(), 100);
    for leaf_records in [0, 1, 57] {
        let error = FpTree::open(&pool, 1, &of(leaf_records)).map(drop).expect_err("no such");
        assert!(error.to_string().contains("use 2 to 56"), "{error}");
    }
}

#[test]
fn a_leaf_has_the_bytes_that_were_asked_for() {
    for bytes in (128..=1024).step_by(128) {
        let tree = fresh::<FpTree<_>>(&FpTreeOptions::of_bytes(bytes).expect("a size"));
        assert_eq!(tree.leaves.bytes(), bytes);
        check_against_map(&tree, 1, 2_000);
    }
    for bytes in [0, 64, 130, 1088, u64::MAX] {
        let error = FpTreeOptions::of_bytes(bytes).expect_err("no size").to_string();
        assert!(error.contains("use a multiple of 64 from 128 to 1024"), "{error}");
    }
}

#[test]
fn what_a_killed_process_left_is_not_relied_on_before_it_is_durable() {
    crate::testing::check_kills::<FpTree<_>>(&of(3));
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_that_is_left_out_is_noticed() {
    // The paper's flush of the fingerprint, whose line is flushed again with the bitmap: within a
    // line stores keep their order. It stays, so that counts compare with the paper's.
    use crate::testing::{UNCHANGED_ROOT, check_mutants};
    check_mutants::<FpTree<_>>(
        &of(3),
        &[&UNCHANGED_ROOT[..], &["Flush in reference/fp_tree/leaf.rs"]].concat(),
    );
}
