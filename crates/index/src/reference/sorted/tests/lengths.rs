//! Keys of any length: histories compared with a map, and crashes, which take nothing back.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::*;
use crate::IndexError;
use crate::keys::KEY_BYTES_MAX;
use crate::testing;

type Long = Ods<Direct, Bytes>;

fn all(tree: &Long, from: Bound<&[u8]>, direction: Direction, most: usize) -> Vec<(Vec<u8>, u64)> {
    let mut found = Vec::new();
    let walked = tree.range(from, direction, &mut |key, value| {
        found.push((key.to_owned(), value));
        if found.len() < most { Flow::On } else { Flow::Stop }
    });
    walked.expect("no damage");
    found
}

/// Some records around a key, up and down, with and without it.
fn check_ranges(tree: &Long, model: &BTreeMap<Vec<u8>, u64>, probe: &[u8]) {
    let owned = |(key, value): (&Vec<u8>, &u64)| (key.clone(), *value);
    for from in [Bound::Included(probe), Bound::Excluded(probe), Bound::Unbounded] {
        let up = model.range::<[u8], _>((from, Bound::Unbounded)).take(20).map(owned);
        assert_eq!(all(tree, from, Direction::Forward, 20), up.collect::<Vec<_>>());
        let down = model.range::<[u8], _>((Bound::Unbounded, from)).rev().take(20).map(owned);
        assert_eq!(all(tree, from, Direction::Backward, 20), down.collect::<Vec<_>>());
    }
}

/// Grows a tree, shrinks it almost to nothing, and grows it again, reopening it all the while.
fn is_like_a_map(seed: u64, options: &OdsOptions, many: u64, operations: u64) {
    let mut pool = testing::pool(64 << 20);
    let mut tree = Long::open(&pool, 0, options).expect("a tree");
    let (mut model, mut rng) = (BTreeMap::new(), Rng::new(seed));
    for step in 0..operations {
        let (key, value) = (testing::hard_key(&mut rng, many), 1 + rng.below(1 << 40));
        let removes_of_8 = if step / (operations / 8) % 3 == 2 { 7 } else { 2 };
        match rng.below(8) {
            draw if draw < removes_of_8 => {
                let victim = model.range(key.clone()..).next().map(|(key, _): (&Vec<u8>, _)| key);
                let key = victim.cloned().unwrap_or(key);
                assert_eq!(tree.remove(&key).expect("no damage"), model.remove(&key), "{key:?}");
            }
            draw if draw % 2 == 0 => {
                let before = tree.upsert(&key, value).expect("room");
                assert_eq!(before, model.insert(key, value));
            }
            _ => {
                let added = tree.insert(&key, value).expect("room");
                assert_eq!(added, !model.contains_key(&key));
                model.entry(key).or_insert(value);
            }
        }
        let probe = testing::hard_key(&mut rng, many);
        assert_eq!(tree.get(&probe).expect("no damage"), model.get(&probe).copied());
        if step % 64 == 0 {
            check_ranges(&tree, &model, &probe);
        }
        if step % (operations / 10) == operations / 20 {
            drop(tree);
            pool = testing::reopened(pool);
            tree = Long::open(&pool, 0, options).expect("the tree");
            if rng.one_in(2) {
                pool.sweep(|visit| tree.blocks(visit)).expect("no damage");
            }
        }
    }
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(all(&tree, Bound::Unbounded, Direction::Forward, usize::MAX), expected);
    for key in model.keys() {
        assert!(tree.remove(key).expect("no damage").is_some(), "{key:?}");
    }
    drop(tree);
    let pool = testing::reopened(pool);
    let tree = Long::open(&pool, 0, options).expect("the tree");
    pool.sweep(|visit| tree.blocks(visit)).expect("no damage");
    while pool.reclaim() > 0 {}
    let (mut taken, mut reached) = (0, 0);
    pool.taken(|_| taken += 1);
    tree.blocks(&mut |_| reached += 1).expect("no damage");
    let found = tree.statistics().expect("no damage");
    assert_eq!((found.keys, taken), (0, reached));
    assert!(found.nodes < 8, "{found:?}");
}

#[test]
fn long_histories_are_like_a_map() {
    for (seed, node_bytes) in [(1, 128), (2, 256), (3, 512)] {
        let options = OdsOptions { node_bytes, split_from: 0.7 };
        is_like_a_map(seed, &options, 12_000, 30_000);
        is_like_a_map(seed, &OdsOptions { node_bytes, split_from: 0.0 }, 1_000, 10_000);
    }
}

#[test]
fn histories_survive_crashes() {
    survive_crashes(2_500, few_images);
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_histories_survive_crashes() {
    survive_crashes(5_000, |_| ());
}

fn survive_crashes(images: u64, change: fn(&mut TrialOptions)) {
    let more = |options: &mut TrialOptions| {
        options.region_bytes = 1 << 20;
        change(options);
    };
    for (seeds, options) in [
        (0..4, OdsOptions::default()),
        (6..12, OdsOptions { node_bytes: 128, split_from: 0.7 }),
        (15..17, OdsOptions { node_bytes: 128, split_from: 1.0 }),
    ] {
        let report = suite::<Ods<RecordedRegion, Bytes>>(seeds, &options, more);
        let report = report.expect("all of them");
        assert!(report.images > images && report.images_nested > 0, "{report:?}");
    }
}

/// Words tell keys apart that begin alike: a search reads its own record, and few others.
#[test]
fn words_leave_out_what_keys_have_in_common() {
    let pool = testing::counted_pool(64 << 20);
    let tree = Ods::<_, Bytes>::open(&pool, 0, &OdsOptions::default()).expect("a tree");
    let mut rng = Rng::new(7);
    let name = |number: u64| format!("a long beginning that all keys have/{number:012}");
    let numbers: Vec<u64> = (0..20_000).map(|_| rng.below(1 << 36)).collect();
    for &number in &numbers {
        assert_eq!(tree.upsert(name(number).as_bytes(), 1).ok().map(|_| ()), Some(()));
    }
    let before = pool.region().observer().counts();
    for &number in &numbers {
        assert_eq!(tree.get(name(number).as_bytes()).expect("no damage"), Some(1));
    }
    let loads = pool.region().observer().counts().since(&before).loads as f64 / 20_000.0;
    // At each of five levels the node's words, its low, and now and then a record: 89.
    assert!(loads < 95.0, "{loads} loads a look-up");
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let pool = testing::pool(8 << 20);
    let tree = Long::open(&pool, 0, &OdsOptions::default()).expect("a tree");
    let longest = vec![7; KEY_BYTES_MAX];
    assert!(tree.insert(&longest, 5).expect("it fits"));
    assert_eq!(tree.get(&longest).expect("no damage"), Some(5));
    let too_long = vec![7; KEY_BYTES_MAX + 1];
    assert!(matches!(tree.insert(&too_long, 5), Err(IndexError::KeyTooLong { .. })));
    for value in [0, crate::VALUE_MAX + 1] {
        assert!(matches!(tree.upsert(b"key", value), Err(IndexError::Value { .. })));
    }
    drop(tree);
    let error = Ods::<Direct>::open(&pool, 0, &OdsOptions::default()).expect_err("other keys");
    let said = "leads to an ods or fast-fair tree with keys of any length, but an ods or fast-fair \
                tree with keys of eight bytes was asked for: open it by its own type";
    assert!(error.to_string().contains(said), "{error}");
    drop(Ods::<Direct>::open(&pool, 1, &OdsOptions::default()).expect("a tree"));
    let error = Long::open(&pool, 1, &OdsOptions::default()).expect_err("other keys");
    assert!(error.to_string().contains("tree with keys of eight bytes, but"), "{error}");
}

/// A full pool refuses what it has no room for, and leaks nothing by that.
#[test]
fn a_full_pool_says_so_and_keeps_what_it_has() {
    let pool = testing::pool(1 << 20);
    let tree = Long::open(&pool, 0, &OdsOptions::default()).expect("a tree");
    let name = |number: u64| format!("{number:040}").into_bytes();
    let full = (0u64..).find(|&number| tree.insert(&name(number), 1 + number).is_err());
    let full = full.expect("full");
    assert!(full > 1000, "{full}");
    for number in full..full + 20 {
        assert!(matches!(tree.insert(&name(number), 1), Err(IndexError::Full { .. })));
    }
    for number in 0..full {
        assert_eq!(tree.get(&name(number)).expect("no damage"), Some(1 + number));
    }
    while pool.reclaim() > 0 {}
    let (mut taken, mut reached) = (Vec::new(), Vec::new());
    pool.taken(|at| taken.push(at));
    tree.blocks(&mut |at| reached.push(at)).expect("no damage");
    taken.sort_unstable();
    reached.sort_unstable();
    assert_eq!(taken, reached);
}

/// Slots that lead to no record, nodes that lead in a ring: said, not followed.
#[test]
fn damage_is_told() {
    use std::sync::atomic::Ordering::Relaxed;
    let pool = testing::pool(4 << 20);
    let tree = Long::open(&pool, 0, &OdsOptions::default()).expect("a tree");
    for number in 0..300u64 {
        tree.insert(format!("{number:020}").as_bytes(), 1).expect("room");
    }
    let root = pool.root(0) & !63;
    let leftmost = pool.region().load_u64(root, Relaxed);
    for (at, word) in [(root, 64), (root, root), (leftmost + 8, leftmost)] {
        let before = pool.region().load_u64(at, Relaxed);
        pool.region().store_u64(at, word, Relaxed);
        let found = tree.statistics().map(drop);
        let found = found.and_then(|()| tree.blocks(&mut |_| ()));
        let found = found.and_then(|()| tree.get(format!("{:020}", 250).as_bytes()).map(drop));
        let said = found.expect_err("damage").to_string();
        assert!(said.contains("the index is damaged at"), "{said}");
        pool.region().store_u64(at, before, Relaxed);
    }
    tree.statistics().expect("as before");
}

#[test]
fn records_are_counted_among_the_bytes() {
    testing::check_bytes::<Long>(&OdsOptions::default());
}
