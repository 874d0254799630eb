//! What is found after crashes, in seeded histories.

use entresol_store::trial::Trial;

#[test]
fn a_crash_leaves_a_beginning_of_what_was_written() {
    let mut images = 0;
    for seed in 0..5 {
        let trial = Trial::of(seed);
        let report = trial.run(&trial.history(30));
        let report = report.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        if let Some(failure) = &report.failure {
            panic!("seed {seed}: {failure}");
        }
        images += report.images;
    }
    assert!(images > 3000, "only {images} images were looked at");
}
