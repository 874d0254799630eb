//! Mutation tests of the store: each step that can be left out or done wrongly is, one at a time,
//! and the scenes and histories must notice.

use entresol_base::checksum::crc32c;
use entresol_base::mutants::{Part, Site, try_parts};

use super::super::Trial;
use super::ALL;

/// Number of histories that run if no scene has noticed the mutation.
const HISTORIES: u64 = 24;
/// Lower bound of the sites when all are tried.
const SITES_MIN: usize = 50;
/// Environment variable with a number N. One in N sites is then tried: those whose kind, name and
/// file have a hash that N divides. A site stays in its lot when lines move.
const ONE_IN: &str = "ENTRESOL_MUTANTS_ONE_IN";

fn parts() -> Vec<Part<'static>> {
    let scenes = ALL
        .into_iter()
        .map(|(name, scene)| -> Part<'static> { (name.to_owned(), Box::new(scene)) });
    let histories = (0..HISTORIES).map(|seed| -> Part<'static> {
        let history = move || {
            let trial = Trial { nested_one_in: 24, images_max: 3, ..Trial::of(seed) };
            let report = trial.run(&trial.history(24))?;
            report.failure.map_or(Ok(()), |failure| Err(failure.to_string()))
        };
        (format!("history {seed}"), Box::new(history))
    });
    scenes.chain(histories).collect()
}

#[test]
fn every_site_of_the_store_is_noticed() {
    // The mutation sites of runs have a suite of their own.
    let one_in: u32 = std::env::var(ONE_IN).map_or(1, |text| text.parse().expect("a number"));
    let is_ours = |site: &Site| {
        let file = site.place.file();
        let lot = format!("{:?} in {file}", site.kind);
        let is_in_lot = crc32c(lot.as_bytes()).is_multiple_of(one_in);
        file.contains("store/src") && !file.contains("src/run/") && is_in_lot
    };
    let trials = try_parts(is_ours, &parts()).expect("passes as it is");
    for trial in &trials {
        let noticed = trial.noticed.as_deref().and_then(|what| what.lines().next());
        println!("{}: {}", trial.site, noticed.unwrap_or("not noticed"));
    }
    let missed = trials.iter().filter(|trial| trial.noticed.is_none());
    let missed: Vec<String> = missed.map(|trial| trial.site.to_string()).collect();
    assert!(missed.is_empty(), "of {} sites not {missed:#?}", trials.len());
    assert!(trials.len() >= SITES_MIN / (2 * one_in as usize - 1), "only {} sites", trials.len());
}
