//! Histories on a tree, compared with a map.

use std::borrow::Borrow;
use std::fmt::Debug;

use super::*;
use crate::keys::{Outside, Records};
use crate::testing::hard_key;

fn check<K, O, const LINES: usize>(seed: u64, operations: u64, mut key: impl FnMut(&mut Rng) -> O)
where
    K: Keys<Direct, Key: ToOwned<Owned = O>> + Clone + Default,
    O: Borrow<K::Key> + Ord + Clone + Debug,
{
    let mut pool = pool(64 << 20);
    let mut tree: SvTree<Direct, K, LINES> = SvTree::open(&pool, 0, &K::default()).expect("a tree");
    let mut model: BTreeMap<O, u64> = BTreeMap::new();
    let mut rng = Rng::new(seed);
    for step in 0..operations {
        let (key, value) = (key(&mut rng), 1 + rng.below(1 << 40));
        // It grows, shrinks almost to nothing, and grows again.
        let removes_of_8 = if step / (operations / 8) % 3 == 2 { 7 } else { 2 };
        match rng.below(8) {
            draw if draw < removes_of_8 => {
                let victim = model.range::<O, _>(&key..).next().map(|(found, _)| found.clone());
                let key = victim.unwrap_or(key);
                let found = tree.remove(key.borrow()).expect("no damage");
                assert_eq!(found, model.remove::<O>(&key), "{key:?}");
            }
            draw if draw % 2 == 0 => {
                let found = tree.upsert(key.borrow(), value).expect("room");
                assert_eq!(found, model.insert(key, value));
            }
            _ => {
                let added = tree.insert(key.borrow(), value).expect("room");
                assert_eq!(added, !model.contains_key::<O>(&key));
                model.entry(key).or_insert(value);
            }
        }
        if step % (operations / 10) == operations / 20 {
            drop(tree);
            pool = testing::reopened(pool);
            tree = SvTree::open(&pool, 0, &K::default()).expect("the tree");
            if rng.one_in(2) {
                pool.sweep(|visit| tree.blocks(visit)).expect("no damage");
            }
        }
    }
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(all(&tree), expected);
    for _ in 0..300 {
        let probe = key(&mut rng);
        assert_eq!(tree.get(probe.borrow()).expect("no damage"), model.get::<O>(&probe).copied());
        ranges(&tree, &model, &probe);
    }
    let found = tree.statistics().expect("no damage");
    assert_eq!(found.keys, model.len() as u64);
    for key in model.keys() {
        assert!(tree.remove(key.borrow()).expect("no damage").is_some(), "{key:?}");
    }
    let found = tree.statistics().expect("no damage");
    assert_eq!((found.keys, found.nodes), (0, 1), "every leaf but the first is given back");
}

/// Some records around a key, up and down, with and without it.
fn ranges<K, O, const LINES: usize>(
    tree: &SvTree<Direct, K, LINES>,
    model: &BTreeMap<O, u64>,
    probe: &O,
) where
    K: Keys<Direct, Key: ToOwned<Owned = O>>,
    O: Borrow<K::Key> + Ord + Clone + Debug,
{
    let found = |from, direction| {
        let mut found = Vec::new();
        let ranged = tree.range(from, direction, &mut |key, value| {
            found.push((key.to_owned(), value));
            if found.len() < 20 { Flow::On } else { Flow::Stop }
        });
        ranged.expect("no damage");
        found
    };
    let owned = |(key, value): (&O, &u64)| (key.clone(), *value);
    for (own, from) in [
        (Bound::Included(probe.borrow()), Bound::Included(probe)),
        (Bound::Excluded(probe.borrow()), Bound::Excluded(probe)),
    ] {
        let up: Vec<_> =
            model.range::<O, _>((from, Bound::Unbounded)).take(20).map(owned).collect();
        assert_eq!(found(own, Direction::Forward), up);
        let down: Vec<_> =
            model.range::<O, _>((Bound::Unbounded, from)).rev().take(20).map(owned).collect();
        assert_eq!(found(own, Direction::Backward), down);
    }
}

#[test]
fn a_tree_of_words_is_a_map() {
    check::<Inline, _, 4>(1, 60_000, |rng| rng.below(8_000) * 7);
    check::<Inline, _, 2>(2, 30_000, Rng::next_u64);
    check::<Inline, _, 16>(3, 60_000, |rng| rng.below(20_000));
}

#[test]
fn a_tree_of_bytes_is_a_map() {
    check::<Bytes, _, 4>(4, 60_000, |rng| hard_key(rng, 12_000));
    check::<Bytes, _, 2>(5, 30_000, |rng| hard_key(rng, 2_000));
    check::<Bytes, _, 8>(6, 40_000, |rng| hard_key(rng, 12_000));
}

#[test]
fn keys_in_order_fill_leaves() {
    let tree: SvTree<Direct> = SvTree::open(&pool(8 << 20), 0, &Inline).expect("a tree");
    for key in 0..15_000u64 {
        assert!(tree.insert(&key, key + 1).expect("room"));
    }
    let found = tree.statistics().expect("no damage");
    assert!(found.nodes <= 1001, "{found:?}");
    assert_eq!(all(&tree).len(), 15_000);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let pool = pool(8 << 20);
    let tree: SvTree<Direct> = SvTree::open(&pool, 0, &Inline).expect("a tree");
    for value in [0, crate::VALUE_MAX + 1, u64::MAX] {
        assert!(matches!(tree.insert(&1, value), Err(IndexError::Value { .. })));
    }
    let keyed: SvTree<Direct, Bytes> = SvTree::open(&pool, 1, &Bytes).expect("a tree");
    let longest = vec![7; crate::keys::KEY_BYTES_MAX];
    assert!(keyed.insert(&longest, 5).expect("it fits"));
    assert_eq!(keyed.get(&longest).expect("no damage"), Some(5));
    let too_long = vec![7; crate::keys::KEY_BYTES_MAX + 1];
    assert!(matches!(keyed.insert(&too_long, 5), Err(IndexError::KeyTooLong { .. })));
    let other = SvTree::<Direct, Bytes>::open(&pool, 0, &Bytes).expect_err("another kind");
    assert!(matches!(other, IndexError::OtherIndex { root: 0, .. }), "{other}");
}

#[test]
fn it_is_an_index_like_the_others() {
    testing::check_edges(&testing::fresh::<SvTree<Direct>>(&Inline));
    testing::check_against_map(&testing::fresh::<SvTree<Direct>>(&Inline), 1, 20_000);
    testing::check_reopening::<SvTree<Direct>>(&Inline);
    testing::check_refusal::<SvTree<Direct>>(&Inline);
    testing::check_refusal::<SvTree<Direct, Bytes>>(&Bytes);
}

/// Records in a list outside of the index, which is given their numbers, from 1.
#[derive(Clone, Default)]
struct List(Arc<std::sync::Mutex<Vec<Vec<u8>>>>);

impl List {
    fn add(&self, key: &[u8]) -> u64 {
        let mut records = self.0.lock().expect("alive");
        records.push(key.to_vec());
        records.len() as u64
    }
}

impl Records for List {
    fn key(&self, record: u64, out: &mut Vec<u8>) -> Result<(), IndexError> {
        out.extend_from_slice(&self.0.lock().expect("alive")[record as usize - 1]);
        Ok(())
    }

    fn compare(&self, record: u64, key: &[u8]) -> Result<std::cmp::Ordering, IndexError> {
        Ok(self.0.lock().expect("alive")[record as usize - 1].as_slice().cmp(key))
    }
}

#[test]
fn records_outside_are_found_and_left_alone() {
    let (pool, list, mut rng) = (pool(8 << 20), List::default(), Rng::new(7));
    let open = || {
        SvTree::<Direct, Outside<List>>::open_with(&pool, 0, Outside(list.clone())).expect("a tree")
    };
    let (mut tree, mut model) = (open(), BTreeMap::new());
    for step in 0..6_000 {
        let key = hard_key(&mut rng, 9_000);
        model.entry(key).or_insert_with_key(|key| {
            let record = list.add(key);
            assert!(tree.insert(key, record).expect("room"));
            record
        });
        if step == 3_000 {
            drop(tree);
            tree = open();
        }
    }
    assert_eq!(all(&tree), model.clone().into_iter().collect::<Vec<_>>());
    for (key, record) in &model {
        assert_eq!(tree.get(key).expect("no damage"), Some(*record));
    }
    assert!(tree.statistics().expect("no damage").splits > 100);
}
