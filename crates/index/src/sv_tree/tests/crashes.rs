//! Crashes, by the harness that all indexes are tried by.

use entresol_simulated::crash::RecordedRegion;

use super::*;
use crate::testing::few_images;
use crate::trial::{self, Answers, Op, TrialKey, TrialOptions};

#[test]
fn every_crash_leaves_what_was_acknowledged() {
    let report = trial::suite::<SvTree<RecordedRegion>>(0..3, &Inline, few_images);
    let report = report.expect("no crash loses anything");
    assert!(report.images > 2_500 && report.images_nested > 500, "{report:?}");
}

#[test]
fn every_crash_leaves_keys_of_any_length() {
    let report = trial::suite::<SvTree<RecordedRegion, Bytes>>(0..3, &Bytes, few_and_room);
    let report = report.expect("no crash loses anything");
    assert!(report.images > 2_500 && report.images_nested > 500, "{report:?}");
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_every_crash_leaves_what_was_acknowledged() {
    let report = trial::suite::<SvTree<RecordedRegion>>(0..6, &Inline, |_| {});
    let report = report.expect("no crash loses anything");
    assert!(report.images > 5_000 && report.images_nested > 2_000, "{report:?}");
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_every_crash_leaves_keys_of_any_length() {
    let report = trial::suite::<SvTree<RecordedRegion, Bytes>>(0..6, &Bytes, room);
    let report = report.expect("no crash loses anything");
    assert!(report.images > 10_000 && report.images_nested > 2_000, "{report:?}");
}

#[test]
fn what_a_killed_process_left_is_not_relied_on_before_it_is_durable() {
    testing::check_kills::<SvTree<RecordedRegion, Inline, 2>>(&Inline);
    testing::check_kills::<SvTree<RecordedRegion, Bytes, 2>>(&Bytes);
}

#[test]
fn leaves_of_two_lines_survive_as_well() {
    trial::suite::<SvTree<RecordedRegion, Inline, 2>>(0..3, &Inline, few_images).expect("2 lines");
}

#[test]
fn leaves_of_two_lines_survive_with_keys_of_any_length() {
    trial::suite::<SvTree<RecordedRegion, Bytes, 2>>(0..3, &Bytes, few_and_room).expect("2 lines");
}

#[test]
fn leaves_of_eight_lines_survive_as_well() {
    trial::suite::<SvTree<RecordedRegion, Inline, 8>>(0..3, &Inline, few_images).expect("8 lines");
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_leaves_of_other_sizes_survive_as_well() {
    trial::suite::<SvTree<RecordedRegion, Inline, 2>>(0..6, &Inline, |_| {}).expect("2 lines");
    trial::suite::<SvTree<RecordedRegion, Bytes, 2>>(0..3, &Bytes, room).expect("2 lines");
    trial::suite::<SvTree<RecordedRegion, Inline, 8>>(0..3, &Inline, |_| {}).expect("8 lines");
}

/// Records take more room.
fn room(options: &mut TrialOptions) {
    options.region_bytes = 1 << 20;
}

fn few_and_room(options: &mut TrialOptions) {
    few_images(options);
    room(options);
}

/// Keys in disorder, so that splits leave dead slots; then whole leaves are emptied between others,
/// their range is used again, and in the end nothing is left.
fn hollowing(seed: u64, keys: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut shuffled = |keys: std::ops::Range<u64>| {
        let mut keys: Vec<u64> = keys.collect();
        rng.shuffle(&mut keys);
        keys
    };
    let value = |key| 1 + key;
    let mut ops: Vec<Op> = Vec::new();
    let insert = |key| Op::Insert { key, value: value(key) };
    ops.extend(shuffled(0..keys).into_iter().map(insert));
    let inner = keys / 5..keys * 4 / 5;
    ops.extend(shuffled(inner.clone()).into_iter().map(|key| Op::Remove { key }));
    ops.extend(shuffled(inner).into_iter().map(|key| Op::Upsert { key, value: 7 + key }));
    ops.push(Op::Reopen);
    ops.extend(shuffled(0..keys).into_iter().map(|key| Op::Remove { key }));
    ops
}

fn check_hollowing<K, const LINES: usize>(
    seed: u64,
    keys: u64,
    change: fn(&mut TrialOptions),
) -> Statistics
where
    K: Keys<RecordedRegion, Key: TrialKey> + Keys<Direct> + Clone + Default + 'static,
    <K as Keys<Direct>>::Key: TrialKey,
{
    let mut options = TrialOptions { keys, ..TrialOptions::seeded(seed) };
    change(&mut options);
    let ops = hollowing(seed, keys);
    let report = trial::run::<SvTree<RecordedRegion, K, LINES>>(&options, &K::default(), &ops);
    let report = report.expect("right answers");
    assert!(report.failure.is_none(), "seed {seed}: {}", report.failure.expect("one"));
    let tree = SvTree::<Direct, K, LINES>::open(&pool(1 << 20), 0, &K::default()).expect("a tree");
    for op in ops {
        use std::borrow::Borrow;
        let nth = <K as Keys<Direct>>::Key::nth;
        match op {
            Op::Insert { key, value } => drop(tree.insert(nth(key).borrow(), value)),
            Op::Upsert { key, value } => drop(tree.upsert(nth(key).borrow(), value)),
            Op::Remove { key } => drop(tree.remove(nth(key).borrow())),
            Op::Reopen | Op::Kill { .. } => {}
        }
    }
    tree.statistics().expect("no damage")
}

/// Crashes in one recovery of 16.
fn room_and_few_nested(options: &mut TrialOptions) {
    room(options);
    options.explore.nested.one_in = 16;
}

#[test]
fn leaves_that_are_emptied_and_used_again_survive() {
    check_hollowings(few_and_room);
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_leaves_that_are_emptied_and_used_again_survive() {
    check_hollowings(room_and_few_nested);
}

/// The change is in the history, whichever it is: splits, leaves unlinked, leaves replaced.
fn check_hollowings(change: fn(&mut TrialOptions)) {
    for seed in 0..2 {
        let found = check_hollowing::<Inline, 4>(seed, 80, change);
        assert!(found.splits > 8 && found.merges > 8, "{found:?}");
        let found = check_hollowing::<Inline, 2>(seed, 60, change);
        assert!(found.splits > 16 && found.merges > 16, "{found:?}");
        let found = check_hollowing::<Bytes, 4>(seed, 80, change);
        assert!(found.compactions > 1 && found.merges > 4, "{found:?}");
    }
}

/// Kills the process that removes a named leaf; the next one removes it on another thread than the
/// one that read the names.
fn killed_while_a_name_goes() -> Result<entresol_simulated::crash::Report, String> {
    let insert = |key| Op::Insert { key, value: 1 + key };
    let remove = |key| Op::Remove { key };
    let keys = 2..300;
    let tree = SvTree::<Direct, Inline, 2>::open(&pool(1 << 20), 0, &Inline).expect("a tree");
    keys.clone().for_each(|key| assert!(tree.insert(&u64::nth(key), 1).expect("room")));
    let named = tree.posts.len();
    let last = keys.clone().find(|&key| {
        tree.remove(&u64::nth(key)).expect("no damage");
        tree.posts.len() < named
    });
    let last = last.expect("a leaf with a name");
    let before: Vec<Op> = keys.clone().map(insert).chain((keys.start..last).map(remove)).collect();
    trial::killed_in::<SvTree<RecordedRegion, Inline, 2>>(
        &Inline,
        Answers::Aside,
        &before,
        remove(last),
        |_| vec![insert(last), remove(last), insert(last), remove(last + 1)],
    )
}

#[test]
fn a_leaf_whose_name_is_half_gone_goes_whole() {
    let report = killed_while_a_name_goes().unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 100, "{report:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_that_is_left_out_is_noticed() {
    // The anchor is durable before the root leads to it, and changes when posts grow only. Then the
    // drain of opening, which loads posts and drains behind that. Names that are lost are found by
    // links: so a name need not be durable, nor what leads to a block of them.
    let known = [
        "Flush in root.rs",
        "Drain in root.rs",
        "Drain in root.rs",
        "Flush in sv_tree/posts.rs",
        "Flush in sv_tree/posts.rs",
    ];
    crate::testing::check_mutants_by::<SvTree<_, Inline, 2>>(&Inline, &known, || {
        check_hollowing::<Inline, 2>(0, 60, room_and_few_nested);
        killed_while_a_name_goes()?;
        posts::in_used_memory().map(drop)
    });
}
