//! The list is right after any crash, and as cheap as in the paper.

use crate::testing::{
    assert_about, check_against_map, check_edges, check_refusal, check_reopening, costs, fresh,
};
use crate::trial;

use super::*;

#[test]
fn no_crash_undoes_or_leaks_anything() {
    let report =
        trial::suite::<SkipList<_>>(0..6, &(), |_| ()).unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 1000, "{report:?}");
}

#[test]
fn it_is_a_map() {
    check_edges(&fresh::<SkipList<_>>(&()));
    check_against_map(&fresh::<SkipList<_>>(&()), 1, 20_000);
    check_reopening::<SkipList<_>>(&());
    check_refusal::<SkipList<_>>(&());
}

#[test]
fn an_insert_costs_two_lines_and_a_removal_one() {
    let costs = costs::<SkipList<_>>(20_000, &());
    // A chunk costs a line when it gets its size: 2048 nodes.
    assert_about("lines of an insert", costs.insert.lines, 2.0, 0.001);
    assert_about("fences of an insert", costs.insert.fences, 2.0, 0.001);
    assert_about("lines of an update", costs.update.lines, 1.0, 0.0);
    assert_about("lines of a removal", costs.remove.lines, 1.0, 0.0);
}

/// Copies of this structure that others published return the value of the node before.
#[test]
fn a_search_returns_the_value_of_the_key_and_not_of_the_one_before() {
    let list = fresh::<SkipList<_>>(&());
    for key in 0..1000 {
        list.insert(&(2 * key), key + 1).expect("room");
    }
    for key in 0..1000 {
        assert_eq!(list.get(&(2 * key)).expect("no damage"), Some(key + 1));
        assert_eq!(list.get(&(2 * key + 1)).expect("no damage"), None);
    }
}

#[test]
fn a_search_looks_at_a_few_nodes_only() {
    let pool = crate::testing::counted_pool(64 << 20);
    let list = SkipList::open(&pool, 0, &()).expect("a list");
    for key in 0..20_000u64 {
        list.insert(&key.wrapping_mul(0x9E37_79B9_7F4A_7C15), 1).expect("room");
    }
    let before = pool.region().observer().counts();
    for key in 0..20_000u64 {
        list.get(&key.wrapping_mul(0x9E37_79B9_7F4A_7C15)).expect("no damage");
    }
    let loads = pool.region().observer().counts().since(&before).loads as f64 / 20_000.0;
    // Two of a node's words each, one node behind a tower on average, then the value.
    assert!(loads < 7.0, "{loads}");
    // One level for each doubling, a few more or less as the dice fall.
    let height = list.statistics().expect("no damage").height;
    assert!((12..=20).contains(&height), "{height}");
}

#[test]
fn what_a_killed_process_left_is_not_relied_on_before_it_is_durable() {
    crate::testing::check_kills::<SkipList<_>>(&());
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_that_is_left_out_is_noticed() {
    use crate::testing::{UNCHANGED_ROOT, check_mutants};
    check_mutants::<SkipList<_>>(&(), &UNCHANGED_ROOT);
}
