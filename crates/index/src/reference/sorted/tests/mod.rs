//! Both styles of trees: crashes, edges, flushed lines.

use entresol_base::rng::Rng;
use entresol_media::{Direct, Observed};
use entresol_simulated::crash::RecordedRegion;

use super::*;
use crate::keys::{Bytes, Inline, Keys};
use crate::reference::fast_fair::Moving;
use crate::reference::ods::InPlace;
use crate::testing::{check_kills, few_images};
use crate::trial::{TrialOptions, suite};
use crate::{
    Direction, FastFair, FastFairOptions, Flow, Index, Ods, OdsOptions, Persistent, PoolOptions,
};

mod counts;
mod edges;
mod lengths;
mod threads;

/// Keys by numbers, in the same order.
trait Numbered: Ord + ToOwned {
    fn of(number: u64) -> Self::Owned;
    fn number(&self) -> u64;
}

impl Numbered for u64 {
    fn of(number: u64) -> u64 {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

/// Some differ in their first word, some in a later one, and some in their length only.
impl Numbered for [u8] {
    fn of(number: u64) -> Vec<u8> {
        let length = if number % 3 == 2 { 24 } else { number % 3 };
        [
            format!("{:03}/all alike/{:05}", number / 500, number / 3).into_bytes(),
            vec![0; length as usize],
        ]
        .concat()
    }

    fn number(&self) -> u64 {
        let zeroes = self.iter().rev().take_while(|&&byte| byte == 0).count() as u64;
        let text = std::str::from_utf8(&self[14..self.len() - zeroes as usize]).expect("text");
        text.parse::<u64>().expect("a number") * 3 + zeroes.min(2)
    }
}

/// A tree in a pool of its own.
fn tree<S, K>(region_bytes: u64, options: &S::Options) -> (Arc<Pool<Direct>>, Tree<Direct, S, K>)
where
    S: Style,
    K: Keys<Direct> + Default,
{
    let region = Arc::new(Direct::anonymous(region_bytes, false).expect("memory"));
    let pool = Arc::new(Pool::create(region, PoolOptions::default()).expect("a pool"));
    let tree = Tree::open(&pool, 0, options).expect("a tree");
    (pool, tree)
}

fn records<R, S, K>(tree: &Tree<R, S, K>, direction: Direction) -> Vec<(u64, u64)>
where
    R: Region,
    S: Style,
    K: Keys<R, Key: Numbered> + Default,
{
    let mut found = Vec::new();
    let walked = tree.range(std::ops::Bound::Unbounded, direction, &mut |key, value| {
        found.push((key.number(), value));
        Flow::On
    });
    walked.expect("no damage");
    found
}

fn survives<I>(seeds: std::ops::Range<u64>, options: &I::Options, images: u64)
where
    I: Persistent<RecordedRegion, Key: crate::trial::TrialKey> + 'static,
    I::Options: 'static,
{
    survives_by::<I>(seeds, options, images, few_images);
}

fn survives_by<I>(
    seeds: std::ops::Range<u64>,
    options: &I::Options,
    images: u64,
    change: fn(&mut TrialOptions),
) where
    I: Persistent<RecordedRegion, Key: crate::trial::TrialKey> + 'static,
    I::Options: 'static,
{
    let report = suite::<I>(seeds, options, change).expect("all of them");
    assert!(report.images > images && report.images_nested > 0, "{report:?}");
}

#[test]
fn histories_of_fast_fair_survive_crashes() {
    survives::<FastFair<RecordedRegion>>(0..6, &FastFairOptions::default(), 5_000);
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_histories_survive_crashes() {
    let all = |_: &mut TrialOptions| {};
    survives_by::<FastFair<RecordedRegion>>(0..6, &FastFairOptions::default(), 10_000, all);
    survives_by::<Ods<RecordedRegion>>(0..6, &OdsOptions::default(), 10_000, all);
    survives_by::<FastFair<RecordedRegion>>(
        9..12,
        &FastFairOptions { node_bytes: 128 },
        5_000,
        all,
    );
    let options = OdsOptions { node_bytes: 128, split_from: 0.7 };
    survives_by::<Ods<RecordedRegion>>(9..12, &options, 5_000, all);
    let options = OdsOptions { node_bytes: 256, split_from: 1.0 };
    survives_by::<Ods<RecordedRegion>>(15..18, &options, 5_000, all);
}

#[test]
fn histories_of_ods_survive_crashes() {
    survives::<Ods<RecordedRegion>>(0..6, &OdsOptions::default(), 5_000);
}

#[test]
fn what_a_killed_process_left_is_not_relied_on_before_it_is_durable() {
    check_kills::<FastFair<RecordedRegion>>(&FastFairOptions { node_bytes: 128 });
    check_kills::<Ods<RecordedRegion>>(&OdsOptions { node_bytes: 128, split_from: 0.7 });
    check_kills::<Ods<RecordedRegion, Bytes>>(&OdsOptions { node_bytes: 128, split_from: 0.7 });
}

/// Five records in a node: many levels, and many nodes that are split, merged and empty.
#[test]
fn histories_of_small_nodes_survive_crashes() {
    survives::<FastFair<RecordedRegion>>(9..12, &FastFairOptions { node_bytes: 128 }, 2_500);
    let options = OdsOptions { node_bytes: 128, split_from: 0.7 };
    survives::<Ods<RecordedRegion>>(9..12, &options, 2_500);
}

/// A node is made compact whenever it has a hole.
#[test]
fn histories_of_compactions_survive_crashes() {
    let options = OdsOptions { node_bytes: 256, split_from: 1.0 };
    survives::<Ods<RecordedRegion>>(15..18, &options, 2_500);
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_of_fast_fair_that_is_left_out_is_noticed() {
    crate::testing::check_mutants::<FastFair<_>>(&FastFairOptions { node_bytes: 128 }, &[]);
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_of_ods_that_is_left_out_is_noticed() {
    let options = OdsOptions { node_bytes: 128, split_from: 0.7 };
    crate::testing::check_mutants::<Ods<_>>(&options, &[]);
    crate::testing::check_mutants::<Ods<_, Bytes>>(&options, &[]);
}
