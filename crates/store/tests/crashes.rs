//! What is found after crashes and damage, in seeded histories.

use entresol_store::trial::Trial;

/// Tries histories until so many images were looked at.
fn look_at(images_wanted: u64, how: impl Fn(Trial) -> Trial) {
    let mut images = 0;
    for seed in 0.. {
        let trial = how(Trial::of(seed));
        let report = trial.run(&trial.history(30));
        let report = report.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        if let Some(failure) = &report.failure {
            panic!("seed {seed}: {failure}");
        }
        images += report.images;
        if images >= images_wanted {
            return;
        }
    }
}

#[test]
fn a_crash_leaves_a_beginning_of_what_was_written() {
    look_at(8_000, |trial| Trial { pmem: false, classes: false, ..trial });
}

/// Segments are persistent memory, of which a crash leaves any words of what is not drained; runs
/// and manifests are files on it: one instant yields one image of all of them.
#[test]
fn on_persistent_memory_a_crash_leaves_all_that_was_acknowledged() {
    look_at(6_000, |trial| Trial { pmem: true, classes: false, ..trial });
}

/// Several places, the fast ones soon full: what is there sinks and returns, policies change, and
/// places come and go meanwhile.
#[test]
fn with_several_classes_a_crash_leaves_a_beginning_of_what_was_written() {
    look_at(6_000, |trial| Trial { pmem: false, classes: true, ..trial });
}

/// The same with persistent memory, staging and capacity.
#[test]
fn with_three_classes_a_crash_leaves_all_that_was_acknowledged() {
    look_at(6_000, |trial| Trial { pmem: true, classes: true, ..trial });
}

/// Carries out histories, closes the store, and damages what they leave.
fn damage(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let trial = Trial::of(seed);
        let report = trial.run_damaged(&trial.history(30));
        let report = report.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert!(report.images > 10);
    }
}

#[test]
fn damage_is_told_or_harmless_confined_named_and_the_rest_is_saved() {
    damage(0..40);
}

/// The same for long: about three minutes of a processor.
#[test]
#[ignore = "takes minutes; .ci/run does it"]
fn a_hundred_thousand_crashes_leave_a_beginning_of_what_was_written() {
    look_at(100_000, |trial| trial);
}
