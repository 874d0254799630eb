//! Tests that the crash machine finds every planted bug, and nothing in correct toys.

use entresol_measure::progress::Progress;

use super::history::Trial;
use super::media::{Settings, torture};
use super::*;

const BUGS_OF_TREES: [Plant; 5] = [
    Plant::MissingFlush,
    Plant::MissingFence,
    Plant::WrongOrder,
    Plant::MissingFlushAtBorder,
    Plant::MissingLastFlush,
];

fn settings(structure: Structure, seed: u64, plant: Option<Plant>) -> Settings {
    let plan = Plan { seed, histories: Some(4), ..Plan::default() };
    Settings { plan, structures: vec![structure], plant }
}

fn run(settings: &Settings) -> Outcome {
    torture(settings, &Progress::hidden()).expect("runs")
}

#[test]
fn right_structures_pass_under_both_models() {
    for structure in Structure::ALL {
        let outcome = run(&settings(structure, 100, None));
        assert!(outcome.pass, "{structure}: {outcome}");
        assert!(outcome.images > 2_000 && outcome.points_exhaustive > 100, "{outcome}");
        let nested = outcome.images_nested;
        let recovers = matches!(structure, Structure::Tree | Structure::Files);
        assert!(nested > 0 || !recovers, "{outcome}");
    }
}

#[test]
fn every_bug_in_the_tree_and_the_log_is_found_with_every_seed() {
    for structure in [Structure::Tree, Structure::Log] {
        for plant in BUGS_OF_TREES {
            for seed in 0..10 {
                let outcome = run(&settings(structure, seed * 1000, Some(plant)));
                assert!(!outcome.pass, "{structure}, {plant}, {seed}");
            }
        }
    }
}

#[test]
fn every_bug_between_files_and_a_region_is_found_with_every_seed() {
    let of_files = [Plant::MissingFileSync, Plant::MissingDirectorySync, Plant::WrongOrder];
    for plant in of_files.into_iter().chain([Plant::MissingFlush, Plant::MissingFence]) {
        for caches_survive in [false, true] {
            for seed in 0..4 {
                let mut settings = settings(Structure::Files, seed * 1000, Some(plant));
                settings.plan.caches_survive = Some(caches_survive);
                let outcome = run(&settings);
                // With durable caches no flush is needed, but without a fence a store may still be
                // in flight.
                let harmless = caches_survive && plant == Plant::MissingFlush;
                assert_eq!(
                    outcome.failure.is_none(),
                    harmless,
                    "{plant}, {caches_survive}, {seed}"
                );
            }
        }
    }
}

#[test]
fn what_is_visible_before_it_is_durable_is_found_among_threads() {
    for plant in [Plant::MissingFlush, Plant::MissingFence, Plant::VisibleBeforeDurable] {
        for seed in 0..10 {
            let outcome = run(&settings(Structure::Cells, seed * 1000, Some(plant)));
            assert!(!outcome.pass, "{plant}, {seed}");
        }
    }
}

#[test]
fn where_caches_survive_order_is_the_only_bug_left() {
    for (plant, harmless) in [(Plant::MissingFlush, true), (Plant::WrongOrder, false)] {
        let mut settings = settings(Structure::Tree, 7, Some(plant));
        settings.plan.caches_survive = Some(true);
        let outcome = run(&settings);
        assert_eq!(outcome.failure.is_none(), harmless, "{plant}");
        assert!(!outcome.pass, "a planted bug that is not found is no success");
    }
}

#[test]
fn a_failure_comes_with_its_command_and_a_short_history() {
    let outcome = run(&settings(Structure::Tree, 5, Some(Plant::MissingLastFlush)));
    let failure = outcome.failure.as_ref().expect("found");
    assert!(failure.shortest.len() <= 3, "{:?}", failure.shortest);
    assert!(failure.command.contains("--structure tree --domain memory"), "{}", failure.command);
    let text = outcome.to_string();
    assert!(text.contains(&failure.command) && text.contains("tree.rs"), "{text}");
    let again = run(&settings(Structure::Tree, 5, Some(Plant::MissingLastFlush)));
    assert_eq!(again.failure.expect("again").what, failure.what);
}

#[test]
fn places_that_are_known_and_not_reached_are_named() {
    let mut settings = settings(Structure::Log, 1, None);
    let known = run(&settings).places.into_iter().map(|place| place.place);
    settings.plan.known_places = known.chain(["Drain nowhere.rs:1:1".to_owned()]).collect();
    assert_eq!(run(&settings).places_missing, ["Drain nowhere.rs:1:1"]);
}

#[test]
fn one_seed_is_one_run() {
    for structure in Structure::ALL {
        let trial = Trial::of(structure, 11);
        let history = trial.history(60);
        let [one, other] = [(); 2].map(|()| trial.run(&history).expect("runs"));
        assert_eq!((one.images, one.points), (other.images, other.points));
        assert_eq!(one.places, other.places);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_that_is_left_out_is_noticed() {
    use entresol_base::mutants::try_all;
    for structure in Structure::ALL {
        let trials = try_all(|| super::media::suite(structure)).expect("passes as it is");
        let survivors: Vec<_> = trials.iter().filter(|trial| trial.noticed.is_none()).collect();
        // The first length of a file is synced again with its first record.
        let needless = |site: &str| structure == Structure::Files && site.contains("disk/names.rs");
        let missed = survivors.iter().filter(|trial| !needless(&trial.site.to_string()));
        assert_eq!(missed.count(), 0, "{structure}: {survivors:#?}");
        assert!(trials.len() >= 4, "{structure}: {trials:#?}");
    }
}
