//! Short forms of the trials.

use super::{Command, Kind, Op, Trial, Ttl, kept};

/// Operations of a history.
const LEN: usize = 200;
/// Histories that try the mutation sites.
#[cfg(feature = "mutants")]
const MUTANT_SEEDS: u64 = 700;

/// An item in the place of one whose token is known.
#[cfg(feature = "mutants")]
const TOKEN: [Op; 3] = {
    let set = Op::Command(0, Command::Set(3, 16, Ttl::Never, true));
    [set, Op::Command(0, Command::Delete(3, false)), set]
};

/// A touch of an item in a segment that is sealed and survives the process.
#[cfg(feature = "mutants")]
const TOUCH: [Op; 9] = {
    let how = super::End::Kill(u16::MAX);
    [
        Op::Command(0, Command::Set(1, 1_000, Ttl::Seconds(40), false)),
        Op::Command(0, Command::Set(4, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(5, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(6, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(7, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Touch(1, Ttl::Seconds(3))),
        Op::Sleep(10),
        Op::End { how, damage: false, back: false },
        Op::Command(0, Command::Get(1, false)),
    ]
};

/// Items that die after their segment was saved, and damage to the map of what is void.
#[cfg(feature = "mutants")]
const VOID: [Op; 13] = {
    let how = super::End::Kill(u16::MAX);
    [
        Op::Command(0, Command::Set(1, 1_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(2, 1_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(3, 1_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(4, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(5, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(6, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Set(7, 20_000, Ttl::Never, false)),
        Op::Command(0, Command::Delete(1, false)),
        Op::Command(0, Command::Delete(2, false)),
        Op::Command(0, Command::Delete(3, false)),
        Op::End { how, damage: true, back: false },
        Op::Command(0, Command::Get(1, false)),
        Op::Command(0, Command::Get(2, false)),
    ]
};

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

/// They were lost with the segment of their records, which few of them never fill.
#[test]
fn large_values_survive_the_death_of_the_process() {
    for kind in [Kind::Pmem, Kind::File] {
        let mut found = 0;
        for seed in 0..10 {
            let trial = Trial { kind, threads: 1, ..Trial::of(seed) };
            match kept::run(&trial, 40) {
                Ok(more) => found += more,
                Err(what) => panic!("seed {seed} on {kind:?}: {what}"),
            }
        }
        assert!(found > 1_000, "only {found} large values were looked for on {kind:?}");
    }
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

/// An order whose time has come was forgotten when another replaced it.
#[test]
fn a_flush_that_is_due_is_not_replaced_by_a_later_one() {
    let kind = Kind::Dram;
    let trial = Trial { kind, threads: 1, ..Trial::of(0) };
    let set = Command::Set(20, 100, Ttl::Never, false);
    let later = |delay| Op::Command(0, Command::Flush(delay));
    let read = Op::Command(0, Command::Get(20, false));
    let ops = [later(3), Op::Command(0, set), Op::Sleep(10), later(7), read];
    assert_eq!(trial.run(&ops).err(), None);
}

/// Leaves out each named step in turn: the histories must notice.
#[cfg(feature = "mutants")]
#[test]
fn every_site_is_noticed() {
    use entresol_base::mutants::{Part, Site, SiteKind, try_parts};
    let is_ours = |site: &Site| {
        matches!(site.kind, SiteKind::Step(_)) && site.place.file().contains("cache/src")
    };
    let part = |seed| -> Part<'_> {
        let trial = Trial::of(seed);
        let run = move || trial.run(&trial.history(LEN)).map(drop);
        (format!("seed {seed}"), Box::new(run))
    };
    let directed: [(&str, Kind, &[Op], u64); 3] = [
        ("a token", Kind::Dram, &TOKEN, 1),
        ("a touch", Kind::Pmem, &TOUCH, 1),
        // The seed decides which byte is damaged.
        ("a damaged map", Kind::Pmem, &VOID, 20),
    ];
    let directed = directed.into_iter().flat_map(|(name, kind, ops, seeds)| {
        (0..seeds).map(move |seed| -> Part<'_> {
            let trial = Trial { kind, threads: 1, ..Trial::of(seed) };
            (format!("{name}, seed {seed}"), Box::new(move || trial.run(ops).map(drop)))
        })
    });
    let kept = [Kind::Pmem, Kind::File].into_iter().map(|kind| -> Part<'_> {
        let trial = Trial { kind, threads: 1, ..Trial::of(1) };
        (format!("large values on {kind:?}"), Box::new(move || kept::run(&trial, 40).map(drop)))
    });
    let directed = directed.chain(kept);
    let parts: Vec<Part<'_>> = directed.chain((0..MUTANT_SEEDS).map(part)).collect();
    let trials = try_parts(is_ours, &parts).expect("passes as it is");
    for trial in &trials {
        println!("{}: {}", trial.site, trial.noticed.as_deref().unwrap_or("not noticed"));
    }
    let missed = trials.iter().filter(|trial| trial.noticed.is_none());
    let missed: Vec<String> = missed.map(|trial| trial.site.to_string()).collect();
    assert!(missed.is_empty(), "of {} sites not {missed:#?}", trials.len());
    assert!(trials.len() >= 10, "only {} sites", trials.len());
}
