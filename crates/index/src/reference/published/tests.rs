//! Effects of crashes on the trees as they were published, one test for each fault, and the absence
//! of these faults in the shipped trees after equal histories.

use std::collections::BTreeMap;
use std::sync::Mutex as StdMutex;

use entresol_simulated::crash::{
    Crash, ExploreOptions, Explorer, Nested, Power, RecordedRegion, Recorder, RecorderOptions,
    Subject,
};

use super::*;
use crate::trial::{self, Op, TrialOptions};
use crate::{FastFair, FastFairOptions, Ods, OdsOptions, PoolOptions};

fn insert(key: u64) -> Op {
    Op::Insert { key, value: 1000 + key }
}

fn remove(key: u64) -> Op {
    Op::Remove { key }
}

fn act(records: &mut BTreeMap<u64, u64>, op: Op) {
    match op {
        Op::Insert { key, value } => drop(records.entry(key).or_insert(value)),
        Op::Upsert { key, value } => drop(records.insert(key, value)),
        Op::Remove { key } => drop(records.remove(&key)),
        Op::Reopen | Op::Kill { .. } => {}
    }
}

/// Valid contents after a crash: those before the last operation, or those after it.
struct Tried<I: Persistent<RecordedRegion>> {
    right: StdMutex<[Vec<(u64, u64)>; 2]>,
    options: I::Options,
}

impl<I> Subject for Tried<I>
where
    I: Persistent<RecordedRegion, Key = u64> + 'static,
    I::Options: 'static,
{
    type Opened = I;

    fn recover(&self, crash: &Crash<'_>) -> Result<I, String> {
        let text = |error: IndexError| error.to_string();
        let pool = Arc::new(Pool::open(crash.region(0).clone()).map_err(text)?);
        I::open(&pool, 0, &self.options).map_err(text)
    }

    fn check(&self, index: I, _crash: &Crash<'_>) -> Result<(), String> {
        let mut found = Vec::new();
        let walked = index.range(Bound::Unbounded, Direction::Forward, &mut |&key, value| {
            found.push((key, value));
            Flow::On
        });
        walked.map_err(|error| error.to_string())?;
        let right = self.right.lock().map_err(|error| error.to_string())?;
        if right.contains(&found) {
            return Ok(());
        }
        if !found.is_sorted_by_key(|record| record.0)
            || found.windows(2).any(|two| two[0] == two[1])
        {
            return Err(format!("out of order: {found:?}"));
        }
        let is_new = |record: &&(u64, u64)| right.iter().all(|right| !right.contains(record));
        match found.iter().find(is_new) {
            Some((key, value)) => Err(format!("{key} has {value} again")),
            None => Err(format!("records are lost: {found:?} of {right:?}")),
        }
    }
}

/// Carries `before` out without crashes, then tries all crashes of `ops`; returns the failure.
fn wrong<I>(options: &I::Options, before: &[Op], ops: &[Op]) -> Option<String>
where
    I: Persistent<RecordedRegion, Key = u64> + 'static,
    I::Options: 'static,
{
    let power = Power::new();
    let region = Recorder::region(256 << 10, RecorderOptions::default(), &power);
    let region = Arc::new(region.expect("memory"));
    let pool = PoolOptions { chunk_bytes: 4096 };
    let pool = Arc::new(Pool::create(region, pool).expect("a pool"));
    let index = I::open(&pool, 0, options).expect("an index");
    let right = StdMutex::default();
    let tried = Arc::new(Tried::<I> { right, options: options.clone() });
    let nested = Nested { one_in: 0, ..Nested::default() };
    let all = ExploreOptions { seed: 1, exhaustive_max: 2048, images_max: 2048, nested };
    let explorer = Explorer::new(tried.clone(), all);
    let mut records = BTreeMap::new();
    for (number, &op) in before.iter().chain(ops).enumerate() {
        if number == before.len() {
            explorer.watch(&power);
        }
        let was = records.clone();
        act(&mut records, op);
        let right = [&was, &records].map(|it| it.iter().map(|(&k, &v)| (k, v)).collect());
        *tried.right.lock().expect("alive") = right;
        let done = match op {
            Op::Insert { key, value } => index.insert(&key, value).map(drop),
            Op::Upsert { key, value } => index.upsert(&key, value).map(drop),
            Op::Remove { key } => index.remove(&key).map(drop),
            Op::Reopen | Op::Kill { .. } => Ok(()),
        };
        done.expect("room");
        let right = [Vec::new(), records.iter().map(|(&k, &v)| (k, v)).collect()];
        *tried.right.lock().expect("alive") = right;
    }
    explorer.finish(&power).failure.map(|failure| failure.what)
}

#[track_caller]
fn fails_as_published<I>(published: &str, before: &[Op], ops: &[Op])
where
    I: Persistent<RecordedRegion, Key = u64, Options = ()> + 'static,
{
    let found = wrong::<I>(&(), before, ops).expect("the published tree fails");
    assert!(found.contains(published), "{found}");
    let ours = wrong::<FastFair<RecordedRegion>>(&FastFairOptions::default(), before, ops);
    assert_eq!(ours, None);
    let ours = wrong::<Ods<RecordedRegion>>(&OdsOptions::default(), before, ops);
    assert_eq!(ours, None);
}

type PlainFair = PublishedFastFair<RecordedRegion>;
type PlainOds = PublishedOds<RecordedRegion>;

fn inserts(keys: impl IntoIterator<Item = u64>) -> Vec<Op> {
    keys.into_iter().map(insert).collect()
}

/// Lines are flushed when their first slot is written, before the others are.
#[test]
fn fast_fair_acknowledges_a_removal_that_is_not_durable() {
    fails_as_published::<PlainFair>("5 has 1005 again", &inserts(2..8), &[remove(5)]);
}

/// The value that hides the first record of a leaf is the zero that ends the records.
#[test]
fn fast_fair_loses_a_leaf_while_its_first_record_goes() {
    fails_as_published::<PlainFair>("records are lost: []", &inserts(2..15), &[remove(2)]);
}

/// The zero behind the records moves into a line that is never flushed: behind it there still is
/// what a split left.
#[test]
fn fast_fair_shows_again_what_a_split_moved() {
    let before = inserts((2..16).map(|key| key * 10));
    fails_as_published::<PlainFair>("out of order", &before, &inserts([21, 22, 23, 24, 25]));
}

#[test]
fn fast_fair_loses_keys_with_equal_values() {
    let ops = [2, 3].map(|key| Op::Insert { key, value: 7 });
    fails_as_published::<PlainFair>("records are lost", &[], &ops);
}

/// Between the link to the new node and the zero in the old one, records are in both.
#[test]
fn fast_fair_does_not_finish_a_split() {
    fails_as_published::<PlainFair>("out of order", &inserts(2..15), &inserts([15]));
}

/// Records are in both leaves until the link passes the right one by.
#[test]
fn fast_fair_merges_in_steps() {
    let leaves = inserts((1..14).map(|key| key * 2).chain([3]));
    // The last record of the seven in the right leaf: the one removal that is flushed.
    let before = [leaves, vec![remove(26)]].concat();
    fails_as_published::<PlainFair>("out of order", &before, &[remove(24)]);
}

/// A hole that has the value of a record counts again when that record is removed.
#[test]
fn ods_shows_a_hole_again_when_its_left_neighbour_goes() {
    let before = [inserts(2..8), vec![remove(5)]].concat();
    fails_as_published::<PlainOds>("5 has 1004 again", &before, &[remove(4)]);
}

/// The second of two holes has the value of a record that is no longer its neighbour.
#[test]
fn ods_shows_the_second_of_two_holes_when_the_first_is_filled() {
    let before = [inserts((2..8).map(|key| key * 10)), vec![remove(40), remove(50)]].concat();
    fails_as_published::<PlainOds>("50 has 1030 again", &before, &inserts([41]));
}

/// The first record was removed by a copy of the link, which is another after a split.
#[test]
fn ods_shows_the_first_hole_again_after_a_split() {
    let leaves = inserts((1..15).map(|key| key * 10));
    let split = inserts(21..29);
    let before = [leaves, vec![remove(10)], split].concat();
    fails_as_published::<PlainOds>("10 has", &before, &inserts([200]));
}

/// Without a next leaf the copy of the link is a zero, which ends the records.
#[test]
fn ods_loses_a_leaf_whose_first_record_goes() {
    fails_as_published::<PlainOds>("records are lost", &inserts(2..8), &[remove(2)]);
}

/// Without crashes, and with values of their own, they answer as they should.
#[test]
fn they_are_right_while_nothing_crashes() {
    for seed in 0..6 {
        let mut options = TrialOptions::seeded(seed);
        options.explore.images_max = 0;
        options.explore.exhaustive_max = 0;
        let number = |(number, op): (u64, Op)| match op {
            Op::Insert { key, .. } => Op::Insert { key, value: number + 1 },
            Op::Upsert { key, .. } => Op::Upsert { key, value: number + 1 },
            op => op,
        };
        let mut ops = trial::history(&options);
        ops.retain(|op| !matches!(op, Op::Reopen | Op::Kill { .. }));
        let ops: Vec<Op> = (0..).zip(ops).map(number).collect();
        for ran in [
            trial::run::<PlainFair>(&options, &(), &ops),
            trial::run::<PlainOds>(&options, &(), &ops),
        ] {
            assert!(ran.expect("right answers").failure.is_none());
        }
    }
}
