//! Edges: least and greatest keys, empty trees, repeated operations.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::*;

fn holds<S: Style>(options: &S::Options) {
    let (pool, tree) = tree::<S, Inline>(1 << 20, options);
    for key in [0, 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(tree.get(&key).expect("no damage"), None);
        assert_eq!(tree.remove(&key).expect("no damage"), None);
        assert!(tree.insert(&key, 7).expect("room"));
        assert!(!tree.insert(&key, 8).expect("room"));
        assert_eq!(tree.upsert(&key, 9).expect("room"), Some(7));
        assert_eq!(tree.get(&key).expect("no damage"), Some(9));
    }
    assert_eq!(records(&tree, Direction::Forward).len(), 4);
    for value in [0, crate::VALUE_MAX + 1, u64::MAX] {
        let error = tree.insert(&5, value).expect_err("no value").to_string();
        assert!(error.contains("use 1 to"), "{error}");
    }
    for key in [0, 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(tree.remove(&key).expect("no damage"), Some(9));
        assert_eq!(tree.remove(&key).expect("no damage"), None);
    }
    assert_eq!(records(&tree, Direction::Forward), []);
    assert_eq!(records(&tree, Direction::Backward), []);
    while pool.reclaim() > 0 {}
    let statistics = tree.statistics().expect("no damage");
    assert_eq!((statistics.keys, statistics.nodes, statistics.height), (0, 1, 1));
}

#[test]
fn all_keys_can_be_had_and_go_again() {
    holds::<Moving>(&FastFairOptions::default());
    holds::<InPlace>(&OdsOptions::default());
}

/// Against a map that is right, until thousands of keys have come and gone.
fn is_like_a_map<S: Style>(options: &S::Options) {
    let (pool, tree) = tree::<S, Inline>(16 << 20, options);
    let mut rng = Rng::new(3);
    let mut right = BTreeMap::new();
    for phase in 0..12 {
        let removes_of_8 = [1, 3, 7, 5][phase % 4];
        for _ in 0..4_000 {
            let (key, value) = (rng.below(6_000), 1 + rng.below(1000));
            match rng.below(8) {
                draw if draw < removes_of_8 => {
                    assert_eq!(tree.remove(&key).expect("no damage"), right.remove(&key));
                }
                draw if draw % 2 == 0 => {
                    let before = tree.upsert(&key, value).expect("room");
                    assert_eq!(before, right.insert(key, value));
                }
                _ => {
                    let is_new = tree.insert(&key, value).expect("room");
                    assert_eq!(is_new, !right.contains_key(&key));
                    right.entry(key).or_insert(value);
                }
            }
            let key = rng.below(6_000);
            assert_eq!(tree.get(&key).expect("no damage"), right.get(&key).copied());
        }
        let all: Vec<(u64, u64)> = right.iter().map(|(&key, &value)| (key, value)).collect();
        assert_eq!(records(&tree, Direction::Forward), all);
        assert!(records(&tree, Direction::Backward).into_iter().rev().eq(all.iter().copied()));
        let (from, mut shown) = (rng.below(6_000), Vec::new());
        let walked = tree.range(Bound::Excluded(&from), Direction::Backward, &mut |&key, _| {
            shown.push(key);
            if shown.len() == 20 { Flow::Stop } else { Flow::On }
        });
        walked.expect("no damage");
        assert!(shown.iter().eq(right.range(..from).rev().map(|(key, _)| key).take(20)));
    }
    right.keys().for_each(|key| assert!(tree.remove(key).expect("no damage").is_some()));
    while pool.reclaim() > 0 {}
    let statistics = tree.statistics().expect("no damage");
    assert!(statistics.splits > 100 && statistics.merges > 100, "{statistics:?}");
    let mut taken = 0;
    pool.taken(|_| taken += 1);
    assert_eq!(taken, statistics.nodes);
    assert!(statistics.nodes < 8, "{statistics:?}");
}

#[test]
fn long_histories_are_like_a_map() {
    for node_bytes in [128, 256, 512] {
        is_like_a_map::<Moving>(&FastFairOptions { node_bytes });
        is_like_a_map::<InPlace>(&OdsOptions { node_bytes, split_from: 0.7 });
        is_like_a_map::<InPlace>(&OdsOptions { node_bytes, split_from: 0.0 });
    }
}

/// A full node all of whose records are removed but one takes others to the right of that one.
#[test]
fn a_node_of_holes_is_filled_again() {
    let (_pool, tree) = tree::<InPlace, Inline>(1 << 20, &OdsOptions::default());
    for key in 0..13 {
        tree.insert(&(key * 10), 1).expect("room");
    }
    for key in (0..13).filter(|&key| key != 6) {
        tree.remove(&(key * 10)).expect("no damage");
    }
    for key in 61..67 {
        assert!(tree.insert(&key, 2).expect("room"));
    }
    for key in 1..7 {
        assert!(tree.insert(&key, 3).expect("room"));
    }
    let keys: Vec<u64> = records(&tree, Direction::Forward).iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [1, 2, 3, 4, 5, 6, 60, 61, 62, 63, 64, 65, 66]);
    let statistics = tree.statistics().expect("no damage");
    assert_eq!((statistics.splits, statistics.compactions), (0, 0));
}

/// 0.7 of 13 records lies between nine and ten.
#[test]
fn a_node_is_made_compact_or_split_by_what_it_has() {
    for (left, splits, compactions) in [(9, 0, 1), (10, 1, 0)] {
        let (_pool, tree) = tree::<InPlace, Inline>(1 << 20, &OdsOptions::default());
        for key in 0..13 {
            tree.insert(&key, 1).expect("room");
        }
        for key in 0..13 - left {
            tree.remove(&key).expect("no damage");
        }
        tree.insert(&13, 1).expect("room");
        let statistics = tree.statistics().expect("no damage");
        assert_eq!((statistics.splits, statistics.compactions), (splits, compactions), "{left}");
        assert_eq!(statistics.keys, left + 1);
    }
}

#[test]
fn options_that_cannot_be_had_are_refused() {
    let region = Arc::new(Direct::anonymous(1 << 20, false).expect("memory"));
    let pool = Arc::new(Pool::create(region, PoolOptions::default()).expect("a pool"));
    for node_bytes in [0, 64, 100, 576] {
        let refused = FastFair::open(&pool, 0, &FastFairOptions { node_bytes });
        let error = refused.expect_err("no size").to_string();
        assert!(error.contains("use a multiple of 64 from 128 to 512"), "{error}");
    }
    let refused = Ods::<Direct>::open(&pool, 0, &OdsOptions { node_bytes: 256, split_from: 1.5 });
    assert!(refused.expect_err("no part").to_string().contains("from 0 to 1"));
    drop(Ods::<Direct>::open(&pool, 0, &OdsOptions::default()).expect("a tree"));
    let refused = Ods::<Direct>::open(&pool, 0, &OdsOptions { node_bytes: 512, split_from: 0.7 });
    let error = refused.expect_err("another size").to_string();
    assert!(error.contains("was made with nodes of 256 bytes, not 512"), "{error}");
}

/// Contents that no tree can have written are reported, not followed.
#[test]
fn damage_is_told() {
    use std::sync::atomic::Ordering::Relaxed;
    let (pool, tree) = tree::<Moving, Inline>(1 << 20, &FastFairOptions::default());
    for key in 0..100 {
        tree.insert(&key, 1).expect("room");
    }
    let root = pool.root(0) & !63;
    let leftmost = pool.region().load_u64(root, Relaxed);
    for (at, word) in [(root, 64), (root, u64::MAX), (root, root), (leftmost + 8, leftmost)] {
        let before = pool.region().load_u64(at, Relaxed);
        pool.region().store_u64(at, word, Relaxed);
        let found = tree.get(&6).and_then(|_| tree.statistics().map(drop));
        let error = found.expect_err("damage").to_string();
        assert!(error.contains("the index is damaged at"), "{error}");
        pool.region().store_u64(at, before, Relaxed);
    }
    tree.statistics().expect("as before");
}

/// A tree of one style is a tree of the other.
#[test]
fn a_tree_can_be_opened_in_the_other_style() {
    let (pool, tree) = tree::<InPlace, Inline>(1 << 20, &OdsOptions::default());
    for key in 0..500 {
        tree.insert(&key, 1).expect("room");
    }
    for key in (0..500).filter(|key| key % 3 == 0) {
        tree.remove(&key).expect("no damage");
    }
    drop(tree);
    let reopened = Pool::open(Arc::new(copied(pool.region()))).map(Arc::new).expect("the pool");
    let other = FastFair::open(&reopened, 0, &FastFairOptions::default()).expect("the tree");
    for key in (0..500).filter(|key| key % 3 == 0) {
        assert!(other.insert(&key, 2).expect("room"));
    }
    assert_eq!(records(&other, Direction::Forward).len(), 500);
    let statistics = other.statistics().expect("no damage");
    assert_eq!(statistics.keys, 500);
}

fn copied(region: &Direct) -> Direct {
    let copy = Direct::anonymous(region.len(), false).expect("memory");
    let mut bytes = vec![0; region.len() as usize];
    region.read(0, &mut bytes);
    copy.write(0, &bytes);
    copy
}
