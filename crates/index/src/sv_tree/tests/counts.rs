//! Costs of changes on the medium, and of the first answer.

use std::sync::Arc;

use entresol_media::observe::Observed;
use entresol_simulated::{Counters, Counts};

use super::*;
use crate::PoolOptions;

type Counted = Observed<Arc<Counters>>;

fn counted(bytes: u64) -> Arc<Counted> {
    Arc::new(Observed::new(bytes, Arc::new(Counters::default())).expect("memory"))
}

/// 50,000 keys, then 50,000 that are counted, then the first 50,000 removed.
#[test]
fn an_insert_is_hardly_more_than_a_line_and_a_removal_no_more() {
    const MANY: usize = 50_000;
    for seed in 0..3 {
        let region = counted(64 << 20);
        let pool = Pool::create(region.clone(), PoolOptions::default()).map(Arc::new);
        let tree: SvTree<Counted> =
            SvTree::open(&pool.expect("a pool"), 0, &Inline).expect("a tree");
        let mut rng = Rng::new(seed);
        let keys: Vec<u64> = (0..2 * MANY).map(|_| rng.next_u64()).collect();
        let spent = |keys: &[u64], each: &dyn Fn(u64)| -> (f64, f64) {
            let before: Counts = region.observer().counts();
            keys.iter().for_each(|&key| each(key));
            let after = region.observer().counts();
            let each = |count: u64| count as f64 / keys.len() as f64;
            (each(after.lines_flushed - before.lines_flushed), each(after.drains - before.drains))
        };
        let insert = |key| assert!(tree.insert(&key, 1).expect("room"));
        spent(&keys[..MANY], &insert);
        let (lines, drains) = spent(&keys[MANY..], &insert);
        assert!(lines <= 1.6 && drains <= 1.4, "{lines} lines and {drains} drains an insert");
        let remove = |key| assert!(tree.remove(&key).expect("no damage").is_some());
        let (removed, _) = spent(&keys[..MANY], &remove);
        // A line each, and a few for each leaf that was emptied.
        let unlinked = tree.statistics().expect("no damage").merges as f64 / MANY as f64;
        assert!(unlinked < 0.001, "{unlinked} leaves unlinked by a removal");
        assert!(removed <= 1.0 + 6.0 * unlinked, "{removed} lines a removal");
    }
}

/// After opening, the first answer reads the posts and the leaves between two of them.
#[test]
fn the_first_answer_needs_a_small_part_of_the_tree() {
    const MANY: u64 = 100_000;
    let region = counted(64 << 20);
    let pool = Arc::new(Pool::create(region.clone(), PoolOptions::default()).expect("a pool"));
    let tree: SvTree<Counted> = SvTree::open(&pool, 0, &Inline).expect("a tree");
    let mut rng = Rng::new(9);
    let keys: Vec<u64> = (0..MANY).map(|_| rng.next_u64()).collect();
    keys.iter().for_each(|key| assert!(tree.insert(key, *key >> 2 | 1).expect("room")));
    let nodes = tree.statistics().expect("no damage").nodes;
    drop((tree, pool));
    let pool = Arc::new(Pool::open(region.clone()).expect("the pool"));
    let before = region.observer().counts();
    let tree: SvTree<Counted> = SvTree::open(&pool, 0, &Inline).expect("the tree");
    let opened = region.observer().counts();
    assert_eq!(tree.get(&keys[0]).expect("no damage"), Some(keys[0] >> 2 | 1));
    let answered = region.observer().counts();
    let read = opened.bytes_loaded - before.bytes_loaded;
    assert!(read < nodes * 256 / 100, "{read} bytes to open {nodes} leaves");
    let loads = answered.loads - opened.loads;
    assert!(loads < 300, "{loads} loads for the first answer");
    // The thread that walked over leaves has added them.
    tree.get(&keys[0]).expect("no damage");
    let again = region.observer().counts().loads - answered.loads;
    assert!(again <= 6, "{again} loads for the second answer");
}

#[test]
fn records_are_counted_among_the_bytes() {
    crate::testing::check_bytes::<SvTree<Direct, Bytes>>(&Bytes);
}
