//! The table is right after any crash; each kind of mistake that published hash tables for
//! persistent memory made has a test of its own (those are collected by Witcher, SOSP 2021).

use std::collections::BTreeMap;
use std::ops::Bound;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::Direct;
use entresol_simulated::crash::Report;

use super::*;
use crate::testing::{
    assert_about, check_against_map, check_edges, check_refusal, check_reopening, costs,
    counted_pool, few_images, fresh, pool,
};
use crate::trial::{self, Answers, Op, TrialKey, TrialOptions};
use crate::{Direction, Flow, Index, Persistent};

/// A table whose records are sorted for every walk, so that the suites for indexes can try it.
struct Sorted<R>(HashTable<R>);

impl<R: Region> Index for Sorted<R> {
    type Key = u64;

    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        self.0.insert(*key, value)
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        self.0.upsert(*key, value)
    }

    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.0.get(*key)
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.0.remove(*key)
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let mut records = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.0.scan(from, &mut records)?;
        }
        records.sort_unstable();
        if direction == Direction::Backward {
            records.reverse();
        }
        let is_shown = |key: u64| match (from, direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(from), Direction::Forward) => key >= *from,
            (Bound::Included(from), Direction::Backward) => key <= *from,
            (Bound::Excluded(from), Direction::Forward) => key > *from,
            (Bound::Excluded(from), Direction::Backward) => key < *from,
        };
        let mut shown = records.iter().filter(|(key, _)| is_shown(*key));
        shown.find(|(key, value)| visit(key, *value) == Flow::Stop);
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        self.0.statistics()
    }
}

impl<R: Region> Persistent<R> for Sorted<R> {
    type Options = HashTableOptions;

    fn open(
        pool: &Arc<Pool<R>>,
        root: usize,
        options: &HashTableOptions,
    ) -> Result<Sorted<R>, IndexError> {
        HashTable::open(pool, root, options).map(Sorted)
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        self.0.blocks(visit)
    }
}

fn of(segment_bytes: u64) -> HashTableOptions {
    HashTableOptions { segment_bytes, seed: 5 }
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

fn check_crashes(change: fn(&mut TrialOptions)) {
    for bytes in [128, 384] {
        let report = trial::suite::<Sorted<_>>(0..3, &of(bytes), change);
        let report = report.unwrap_or_else(|what| panic!("segments of {bytes}: {what}"));
        assert!(report.images > 1000, "{report:?}");
    }
}

#[test]
fn it_is_a_map() {
    for bytes in [128, 1024, 16384] {
        check_edges(&fresh::<Sorted<_>>(&of(bytes)));
        check_against_map(&fresh::<Sorted<_>>(&of(bytes)), 1, 4_000);
    }
    check_reopening::<Sorted<_>>(&of(512));
    check_refusal::<Sorted<_>>(&of(512));
}

#[test]
fn a_change_costs_a_line_and_a_split_half_a_line_more() {
    let costs = costs::<Sorted<_>>(50_000, &HashTableOptions::default());
    assert_about("lines of an insert", costs.insert.lines, 1.0, 0.01);
    assert_about("lines of an update", costs.update.lines, 1.0, 0.0);
    assert_about("lines of a removal", costs.remove.lines, 1.0, 0.0);
    // Splits write past the caches. Public copies of CCEH: 1.43 to 1.52 lines in all.
    let pool = counted_pool(64 << 20);
    let table = HashTable::open(&pool, 0, &HashTableOptions::default()).expect("a table");
    for key in 0..100_000 {
        table.insert(key, 1).expect("room");
    }
    let counts = pool.region().observer().counts();
    let streamed = counts.bytes_streamed as f64 / 64.0 / 100_000.0;
    assert!((0.2..0.7).contains(&streamed), "{streamed}");
    let load = 16.0 * 100_000.0 / table.statistics().expect("durable").bytes as f64;
    // Segments fill up, and are split, at about the same time.
    assert!((0.35..0.8).contains(&load), "{load}");
    let before = pool.region().observer().counts();
    for key in 0..100_000 {
        assert_eq!(table.get(key).expect("durable"), Some(1));
    }
    let loads = pool.region().observer().counts().since(&before).loads as f64 / 100_000.0;
    assert!((1.0..2.0).contains(&loads), "{loads} lines looked at for a key");
}

/// Tries every state at every point, and writes on in all of them.
fn crash_everywhere(bytes: u64, ops: &[Op]) -> Report {
    let mut options = TrialOptions { written_one_in: 1, keys: 64, ..TrialOptions::seeded(0) };
    options.explore.exhaustive_max = 4096;
    options.explore.images_max = 4096;
    let report = trial::run::<Sorted<_>>(&options, &of(bytes), ops).expect("runs");
    assert!(report.failure.is_none(), "{:?}", report.failure);
    report
}

fn inserts(keys: std::ops::Range<u64>) -> Vec<Op> {
    keys.map(|key| Op::Insert { key, value: key + 1 }).collect()
}

/// Level hashing, ten times over: a token says that a slot is taken before what is in it is there.
#[test]
fn no_record_counts_before_all_of_it_is_there() {
    let mut ops = inserts(0..24);
    // Into places that others had before, which must not lend their values.
    ops.extend((0..24).map(|key| Op::Remove { key }));
    ops.extend((24..48).map(|key| Op::Insert { key, value: 1000 + key }));
    crash_everywhere(384, &ops);
}

/// Level hashing: growing is not atomic; CCEH: the depth is durable before the directory.
#[test]
fn a_split_is_done_or_not_begun_and_both_halves_take_more() {
    let report = crash_everywhere(128, &inserts(0..40));
    assert!(report.points > 50 && report.points_exhaustive == report.points, "{report:?}");
}

/// Level hashing: an update sets one token and clears another; a crash between them leaves a key
/// twice, or not at all.
#[test]
fn an_update_never_makes_a_key_appear_twice() {
    let mut ops = inserts(0..12);
    for value in 1..4 {
        ops.extend((0..12).map(|key| Op::Upsert { key, value: 100 * value + key }));
    }
    crash_everywhere(384, &ops);
}

/// Level hashing and others: what has moved stands in both places for a while.
#[test]
fn what_moved_in_a_split_does_not_come_back_when_it_is_removed() {
    let mut ops = inserts(0..24);
    ops.extend((0..24).map(|key| Op::Remove { key }));
    ops.push(Op::Reopen);
    crash_everywhere(128, &ops);
}

/// CCEH: a crash in an insert leaves a slot claimed for ever.
#[test]
fn a_crash_in_an_insert_takes_no_place_away() {
    let table = fresh::<Sorted<Direct>>(&of(384)).0;
    let places: Vec<(u64, u64)> = (0..)
        .map_while(|key| {
            let directory = table.directory.read();
            let segment = directory.find(0);
            match table.segments.find(table.region(), segment, key, |key| table.hash(key)) {
                Found::Place { at, is_blank } => {
                    // All that an insert does before its one store that counts.
                    assert!(is_blank);
                    table.region().store_u64(at, key, Relaxed);
                    Some((at, key))
                }
                _ => None,
            }
        })
        .take(1000)
        .collect();
    assert_eq!(places.len(), 1000, "no place is taken by a key without a value");
    assert_eq!(table.statistics().expect("durable").keys, 0);
}

#[test]
fn keys_that_are_all_alike_are_refused_and_not_endlessly_split_for() {
    let table = fresh::<Sorted<Direct>>(&HashTableOptions { segment_bytes: 128, seed: 0 }).0;
    // The inverse of the hash: these have 40 leading zeros.
    let alike = (1..=5).map(|hash| {
        let unshift = |mut word: u64, by: u32| {
            let whole = word;
            for _ in 0..64 / by {
                word = whole ^ word >> by;
            }
            word
        };
        let word = unshift(hash, 31).wrapping_mul(0x3196_42B2_D24D_8EC3);
        unshift(unshift(word, 27).wrapping_mul(0x96DE_1B17_3F11_9089), 30)
    });
    let mut refused = 0;
    for (key, hash) in alike.zip(1..) {
        assert_eq!(table.hash(key), hash);
        match table.insert(key, 1) {
            Ok(added) => assert!(added),
            Err(error) => {
                assert!(error.to_string().contains("another seed"), "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!((refused, table.statistics().expect("durable").keys), (1, 4));
}

#[test]
fn readers_and_writers_of_many_threads_see_whole_records() {
    for seed in 0..10 {
        let preemption = Preemption::OneIn(3);
        let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
        let ran = world.run(move || {
            let table = Arc::new(HashTable::open(&pool(1 << 20), 0, &of(128)).expect("a table"));
            let writers: Vec<_> = (0..3u64)
                .map(|number| {
                    let table = Arc::clone(&table);
                    thread::spawn("writer", move || {
                        let mut rng = Rng::new(seed * 3 + number);
                        let mut own = BTreeMap::new();
                        for _ in 0..60 {
                            let key = 3 * rng.below(12) + number;
                            if rng.one_in(3) {
                                assert_eq!(table.remove(key).expect("fine"), own.remove(&key));
                            } else {
                                let value = 100 * (1 + rng.below(50)) + key;
                                assert_eq!(
                                    table.upsert(key, value).expect("room"),
                                    own.insert(key, value)
                                );
                            }
                            assert_eq!(table.get(key).expect("durable"), own.get(&key).copied());
                            // Of others' values it is known only whose they are.
                            let other = rng.below(36);
                            assert_eq!(
                                table.get(other).expect("durable").unwrap_or(other) % 100,
                                other
                            );
                            thread::step();
                        }
                        own
                    })
                })
                .collect();
            let mut expected = BTreeMap::new();
            writers.into_iter().for_each(|it| expected.extend(it.join().expect("no panic")));
            let mut found = Vec::new();
            let mut next = Some(0);
            while let Some(from) = next {
                next = table.scan(from, &mut found).expect("durable");
            }
            found.sort_unstable();
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        });
        ran.expect("the world ends");
    }
}

#[test]
fn options_that_cannot_be_had_are_refused() {
    for bytes in [0, 64, 100, 16448] {
        let error = HashTable::open(&pool(1 << 20), 0, &of(bytes)).map(drop).expect_err("no such");
        assert!(error.to_string().contains("a multiple of 64 from 128 to 16384"), "{error}");
    }
}

#[test]
fn what_a_killed_process_left_is_not_relied_on_before_it_is_durable() {
    crate::testing::check_kills::<Sorted<_>>(&of(128));
}

/// The process that splits a segment is killed; what the next one puts into the new segment, on
/// another thread than the one that read the links, is reached by a link that is durable.
fn killed_while_a_segment_is_split() -> Result<Report, String> {
    let table = Sorted::open(&pool(1 << 20), 0, &of(128)).expect("a table");
    let mut whole = Report::default();
    for key in 0..60 {
        let splits = table.0.statistics().expect("no damage").splits;
        assert!(table.insert(&u64::nth(key), 1 + key).expect("room"));
        if table.0.statistics().expect("no damage").splits == splits {
            continue;
        }
        let insert = |key| Op::Insert { key, value: 1 + key };
        let before: Vec<Op> = (0..key).map(insert).collect();
        let after = |_| vec![insert(key), insert(key + 1), Op::Remove { key: 0 }];
        let answers = Answers::Aside;
        let report = trial::killed_in::<Sorted<_>>(&of(128), answers, &before, insert(key), after)?;
        whole.images += report.images;
    }
    Ok(whole)
}

#[test]
fn a_segment_that_is_used_is_led_to_durably() {
    let report = killed_while_a_segment_is_split().unwrap_or_else(|what| panic!("{what}"));
    assert!(report.images > 1000, "{report:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_that_is_left_out_is_noticed() {
    use crate::testing::{UNCHANGED_ROOT, check_mutants_by};
    check_mutants_by::<Sorted<_>>(&of(128), &UNCHANGED_ROOT, || {
        killed_while_a_segment_is_split().map(drop)
    });
}
