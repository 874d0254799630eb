//! Short forms of the trials.

use super::{Command, Kind, Op, Trial, Ttl};

/// Operations of a history.
const LEN: usize = 160;
/// Histories that try the mutation sites.
#[cfg(feature = "mutants")]
const MUTANT_SEEDS: u64 = 300;

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
    let parts: Vec<Part<'_>> = (0..MUTANT_SEEDS).map(part).collect();
    let trials = try_parts(is_ours, &parts).expect("passes as it is");
    for trial in &trials {
        println!("{}: {}", trial.site, trial.noticed.as_deref().unwrap_or("not noticed"));
    }
    let missed = trials.iter().filter(|trial| trial.noticed.is_none());
    let missed: Vec<String> = missed.map(|trial| trial.site.to_string()).collect();
    assert!(missed.is_empty(), "of {} sites not {missed:#?}", trials.len());
    assert!(trials.len() >= 10, "only {} sites", trials.len());
}

#[test]
#[ignore = "by hand"]
fn by_hand() {
    let var = |name: &str| std::env::var(name).ok();
    let seeds: Vec<u64> = var("SEEDS").unwrap().split('-').map(|n| n.parse().unwrap()).collect();
    let kinds = [Kind::Dram, Kind::Pmem, Kind::File];
    let kinds: Vec<Kind> = match var("KIND") {
        Some(number) => vec![kinds[number.parse::<usize>().unwrap()]],
        None => kinds.to_vec(),
    };
    let begin = std::time::Instant::now();
    let (mut images, mut bad) = (0, 0);
    for seed in seeds[0]..seeds[1] {
        for kind in &kinds {
            let trial = Trial { kind: *kind, ..Trial::of(seed) };
            let ops = trial.history(LEN);
            match trial.run(&ops) {
                Ok(report) => images += report.images,
                Err(what) => {
                    eprintln!("{seed} {kind:?} {}: {what}", trial.threads);
                    bad += 1;
                    if var("SHRINK").is_some() {
                        let limits = entresol_base::shrink::ShrinkLimits { runs_max: 600 };
                        let fails = |ops: &[super::Op]| trial.run(ops).is_err();
                        let short = entresol_base::shrink::shrink(ops, fails, limits);
                        for op in &short {
                            eprintln!("  {op}");
                        }
                        eprintln!("  {:?}", trial.run(&short).err());
                    }
                    if bad >= 4 {
                        return;
                    }
                }
            }
        }
    }
    eprintln!("{images} images in {:?}", begin.elapsed());
}
