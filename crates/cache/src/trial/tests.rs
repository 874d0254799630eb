//! Short forms of the trials.

use super::{Kind, Trial};

/// Operations of a history.
const LEN: usize = 160;

fn try_seeds(seeds: std::ops::Range<u64>, kind: Kind) -> u64 {
    let mut images = 0;
    for seed in seeds {
        let trial = Trial { kind, ..Trial::of(seed) };
        match trial.run(&trial.history(LEN)) {
            Ok(report) => images += report.images,
            Err(what) => panic!("seed {seed} on {kind:?}: {what}"),
        }
    }
    images
}

#[test]
fn a_cache_in_dram_answers_as_the_model_allows() {
    assert!(try_seeds(0..20, Kind::Dram) > 200);
}

#[test]
fn a_cache_in_persistent_memory_answers_as_the_model_allows() {
    assert!(try_seeds(100..120, Kind::Pmem) > 200);
}

#[test]
fn a_cache_on_a_block_file_answers_as_the_model_allows() {
    assert!(try_seeds(200..220, Kind::File) > 200);
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..6 {
        let trial = Trial::of(seed);
        let ops = trial.history(LEN);
        let run = || trial.run(&ops).map(|report| (report.images, report.points));
        assert_eq!(run(), run(), "seed {seed}");
    }
}
