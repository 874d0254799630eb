//! Damage: contents that no tree can have written are an error, and no search runs for ever.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::PoolOptions;
use crate::sv_tree::leaf::Leaf;

/// A region with a tree of some hundred keys, and the tree's leaves in order.
fn made<K>(keys: &[<K::Key as ToOwned>::Owned]) -> (Arc<Direct>, Vec<u64>)
where
    K: Keys<Direct> + Clone + Default,
{
    use std::borrow::Borrow;
    let region = Arc::new(Direct::anonymous(8 << 20, false).expect("memory"));
    let pool = Pool::create(region.clone(), PoolOptions::default()).map(Arc::new).expect("a pool");
    let tree: SvTree<Direct, K> = SvTree::open(&pool, 0, &K::default()).expect("a tree");
    keys.iter().for_each(|key| assert!(tree.insert(key.borrow(), 1).expect("room")));
    let mut leaves = vec![tree.leaves.head()];
    while let next @ 1.. = Leaf::<4>::load(&*region, leaves[leaves.len() - 1]).link().next() {
        leaves.push(next);
    }
    assert!(leaves.len() > 12, "{}", leaves.len());
    (region, leaves)
}

/// The link of a leaf is changed. Whatever is done, some of it ends in an error that names a leaf,
/// and all of it ends.
fn check<K>(keys: &[<K::Key as ToOwned>::Owned], damage: impl Fn(&[u64]) -> (u64, u64))
where
    K: Keys<Direct> + Clone + Default,
{
    use std::borrow::Borrow;
    let tree = || {
        let (region, leaves) = made::<K>(keys);
        let (at, link) = damage(&leaves);
        region.store_u64(at, link, Relaxed);
        let pool = Pool::open(region).map(Arc::new).expect("the pool");
        let tree: SvTree<Direct, K> = SvTree::open(&pool, 0, &K::default()).expect("a tree");
        (tree, leaves)
    };
    let is_named = |found: IndexError, leaves: &[u64]| match found {
        IndexError::Damaged { offset, .. } => assert!(leaves.contains(&offset), "{offset}"),
        other => panic!("{other}"),
    };
    // Each of them on a tree that has found out nothing yet.
    for direction in [Direction::Forward, Direction::Backward] {
        let (tree, leaves) = tree();
        let ranged = tree.range(Bound::Unbounded, direction, &mut |_, _| Flow::On);
        match (ranged, direction) {
            (Err(found), _) => is_named(found, &leaves),
            // Down, leaves are found one by one, and what is before the damage by its own post.
            (Ok(()), Direction::Backward) => {}
            (Ok(()), Direction::Forward) => panic!("a ring has an end"),
        }
    }
    let (walked, leaves) = tree();
    is_named(walked.blocks(&mut |_| ()).expect_err("a ring"), &leaves);
    is_named(walked.statistics().expect_err("a ring"), &leaves);
    let (read, leaves) = tree();
    let found = keys.iter().filter_map(|key| read.get(key.borrow()).err());
    assert!(found.map(|error| is_named(error, &leaves)).count() > 0, "nobody noticed");
    let (written, leaves) = tree();
    let found = keys.iter().filter_map(|key| written.upsert(key.borrow(), 2).err());
    assert!(found.map(|error| is_named(error, &leaves)).count() > 0, "nobody noticed");
    let (emptied, _) = tree();
    keys.iter().for_each(|key| drop(emptied.remove(key.borrow())));
}

/// Links a leaf to itself, to one before it, to the first one, and to one that was freed.
fn check_all<K>(keys: &[<K::Key as ToOwned>::Owned])
where
    K: Keys<Direct> + Clone + Default,
{
    check::<K>(keys, |leaves| (leaves[9], leaves[9]));
    check::<K>(keys, |leaves| (leaves[9], leaves[7]));
    check::<K>(keys, |leaves| (leaves[9], leaves[0]));
    check::<K>(keys, |leaves| (leaves[9], 1));
}

#[test]
fn links_in_a_ring_are_damage_and_not_followed_for_ever() {
    let mut keys: Vec<u64> = (0..200).map(|key| key * 5).collect();
    Rng::new(1).shuffle(&mut keys);
    check_all::<Inline>(&keys);
    let mut keys: Vec<Vec<u8>> =
        (0..200).map(|key| format!("these begin alike {key:05}").into_bytes()).collect();
    Rng::new(2).shuffle(&mut keys);
    check_all::<Bytes>(&keys);
}
