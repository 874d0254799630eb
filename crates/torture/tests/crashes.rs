//! Contents of stores after crashes and damage, in seeded histories.

use entresol_store::trial::{Met, Trial};

/// Runs histories until `images_wanted` crash images were checked. Returns the counts of rare
/// events.
fn look_at(images_wanted: u64, how: impl Fn(Trial) -> Trial) -> Met {
    let (mut images, mut all) = (0, Met::default());
    for seed in 0.. {
        let trial = how(Trial::of(seed));
        let ran = trial.run_and_count(&trial.history(30));
        let (report, met) = ran.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        all.add(&met);
        if let Some(failure) = &report.failure {
            panic!("seed {seed}: {failure}");
        }
        images += report.images;
        if images >= images_wanted {
            return all;
        }
    }
    all
}

#[test]
fn a_crash_leaves_a_beginning_of_what_was_written() {
    look_at(4_000, |trial| Trial { pmem: false, classes: false, ..trial });
}

/// Segments lie on persistent memory, where a crash leaves any words of data that are not drained.
/// Runs and manifests are files on it. One instant yields one image of all of them.
#[test]
fn on_persistent_memory_a_crash_leaves_all_that_was_acknowledged() {
    look_at(3_000, |trial| Trial { pmem: true, classes: false, ..trial });
}

/// Several volumes, the fast ones soon full: data is demoted and promoted, policies change, and
/// volumes come and go meanwhile.
#[test]
fn with_several_classes_a_crash_leaves_a_beginning_of_what_was_written() {
    look_at(3_000, |trial| Trial { pmem: false, classes: true, troubles: false, ..trial });
}

/// Classes of a store with persistent memory: pmem, staging and capacity.
#[test]
fn with_three_classes_a_crash_leaves_all_that_was_acknowledged() {
    look_at(3_000, |trial| Trial { pmem: true, classes: true, troubles: false, ..trial });
}

/// Events that many range deletes must lead to.
const PREFIXES: [&str; 3] = [
    "a flush writes several runs",
    "runs of one flush are compacted",
    "a crash leaves several runs of one flush",
];

/// The memtable has more range deletes than one run can hold: a flush writes several runs, and a
/// compaction has to take them all.
#[test]
fn with_many_prefixes_removed_a_crash_leaves_a_beginning_of_what_was_written() {
    let met = look_at(3_000, |trial| Trial { classes: false, many_prefixes: true, ..trial });
    expect_all(&met, &PREFIXES);
}

/// Events that squeezing must lead to.
const SQUEEZED: [&str; 3] =
    ["a segment is squeezed", "a segment is squeezed again", "a crash leaves a squeezed segment"];

/// Segments are squeezed again and again, in place of every fifth write, on one volume or several.
/// Each history draws other segments, so there are few images of each.
#[test]
fn with_segments_squeezed_a_crash_leaves_a_beginning_of_what_was_written() {
    let met = met_in(0..30, |trial| {
        let trial = Trial { pmem: false, troubles: false, squeezes: true, ..trial };
        Trial { images_max: 2, many_prefixes: false, nested_one_in: 0, ..trial }
    });
    expect_all(&met, &SQUEEZED);
}

/// Events that drives in trouble must lead to.
const TROUBLE: [&str; 19] = [
    "slow",
    "every call fails",
    "writes fail",
    "syncs fail",
    "reads fail",
    "over",
    "a call was struck",
    "a write is refused",
    "a sync is refused",
    "a compaction fails",
    "a store writes nothing any more",
    "a process dies with a drive in trouble",
    "power is cut with a drive in trouble",
    "a store is opened with a drive in trouble",
    "an opening fails with a drive in trouble",
    "a store that has failed is opened by the next process",
    "a store that has failed is opened after a power cut",
    "an opening is refused for a missing drive",
    "a key is read without a drive",
];

/// Runs a history for each seed, with few images of each, because trouble is drawn anew in each.
/// One in `nested_one_in` recoveries is itself interrupted by crashes; their images are by far the
/// most.
fn in_trouble(seeds: std::ops::Range<u64>, pmem: bool, nested_one_in: u32) {
    let met = met_in(seeds, |trial| {
        let trial = Trial { pmem, classes: true, troubles: true, ..trial };
        Trial { images_max: 2, many_prefixes: false, nested_one_in, ..trial }
    });
    expect_all(&met, &TROUBLE);
}

/// Runs a history for each seed. Returns the counts of rare events.
fn met_in(seeds: std::ops::Range<u64>, how: impl Fn(Trial) -> Trial) -> Met {
    let mut all = Met::default();
    for seed in seeds {
        let trial = how(Trial::of(seed));
        let ran = trial.run_and_count(&trial.history(40));
        let (report, met) = ran.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        if let Some(failure) = &report.failure {
            panic!("seed {seed}: {failure}");
        }
        all.add(&met);
    }
    all
}

fn expect_all(met: &Met, all: &[&str]) {
    for what in all {
        assert!(met.times(what) > 0, "{what} was not met:\n{met}");
    }
}

/// Each class is a drive of its own. One drive is slow, or fails for a while or for ever, or is
/// missing when the store is opened.
#[test]
fn with_a_drive_in_trouble_a_crash_leaves_a_beginning_of_what_was_written() {
    in_trouble(0..40, false, 0);
}

/// Three drives: persistent memory, staging and capacity.
#[test]
fn with_three_drives_and_one_in_trouble_a_crash_leaves_all_that_was_acknowledged() {
    in_trouble(0..40, true, 0);
}

/// Runs histories, closes their stores, and damages the files.
fn damage(seeds: std::ops::Range<u64>, how: impl Fn(Trial) -> Trial) {
    for seed in seeds {
        let trial = how(Trial::of(seed));
        let report = trial.run_damaged(&trial.history(30));
        let report = report.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert!(report.images > 10);
    }
}

#[test]
fn damage_is_told_or_harmless_confined_named_and_the_rest_is_saved() {
    damage(0..40, |trial| trial);
}

#[test]
fn damage_of_squeezed_segments_is_told_or_harmless_and_the_rest_is_saved() {
    damage(0..12, |trial| Trial { squeezes: true, ..trial });
}

/// Crashes also interrupt many of the recoveries. The test takes some ten minutes of a processor.
#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_with_a_drive_in_trouble_recoveries_can_be_cut_off() {
    in_trouble(0..60, false, 16);
}

/// Three drives, as above, with crashes in many of the recoveries.
#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_with_three_drives_and_one_in_trouble_recoveries_can_be_cut_off() {
    in_trouble(0..60, true, 16);
}

/// All kinds of histories, for about three minutes of a processor.
#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_a_hundred_thousand_crashes_leave_a_beginning_of_what_was_written() {
    let met = look_at(100_000, |trial| trial);
    // Few of these histories have trouble or many range deletes. The tests above expect the other
    // events.
    expect_all(&met, &["power is cut with a drive in trouble", "a store writes nothing any more"]);
    expect_all(&met, &["a crash leaves several runs of one flush"]);
}
