//! What is found after crashes, in seeded histories.

use entresol_store::trial::Trial;

/// Tries histories until so many images were looked at.
fn look_at(images_wanted: u64) {
    let mut images = 0;
    for seed in 0.. {
        let trial = Trial::of(seed);
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
    look_at(8_000);
}

/// The same for long: about three minutes of a processor.
#[test]
#[ignore = "takes minutes; .ci/run does it"]
fn a_hundred_thousand_crashes_leave_a_beginning_of_what_was_written() {
    look_at(100_000);
}
