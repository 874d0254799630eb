//! Runs several entries at a time. Each has simulated worlds of its own; the results are therefore
//! the same as in sequence.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_measure::process::on_threads;
use entresol_measure::progress::Progress;

use super::catalogue::Catalogue;
use super::outcome::{Outcome, Reproduction, Reproductions};
use super::{Entry, Settings, hse, xpoint_platform};

/// Real time that an entry took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Took {
    /// Full name of the entry.
    pub entry: String,
    /// Time from the beginning to the end of the entry. The first of several entries that share a
    /// run bears its time.
    pub time: Duration,
}

/// Position of an entry among the chosen ones.
#[derive(Debug, Clone, Copy)]
struct Place {
    chosen: usize,
    part: usize,
}

/// Entries that one thread runs, one after the other.
struct Unit {
    entries: Vec<(Place, &'static Entry)>,
    seconds: u32,
}

type Chosen = [(String, Vec<&'static Entry>)];

/// Groups the chosen entries into units; entries that show sides of one run share a unit.
fn units(chosen: &Chosen) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, (_, parts)) in chosen.iter().enumerate() {
        for (part, entry) in parts.iter().enumerate() {
            let listed = Catalogue::built_in().entry(&entry.full_name());
            let seconds = listed.map_or(0, |listed| listed.seconds);
            let place = (Place { chosen: number, part }, *entry);
            let run = [hse::SHARED_RUN, xpoint_platform::SHARED_RUN]
                .into_iter()
                .find(|names| names.contains(&entry.name))
                .and_then(|names| names.first());
            let known = run.and_then(|run| shared.get(run)).and_then(|&at| units.get_mut(at));
            if let Some(unit) = known {
                unit.entries.push(place);
                unit.seconds = unit.seconds.max(seconds);
                continue;
            }
            run.map(|run| shared.insert(run, units.len()));
            units.push(Unit { entries: vec![place], seconds });
        }
    }
    // The longest unit begins first.
    units.sort_by_key(|unit| std::cmp::Reverse(unit.seconds));
    units
}

/// Runs the chosen entries, `jobs` at a time. The results come in the order of the choice and do
/// not depend on `jobs`. The real time of each entry is returned beside them.
#[must_use]
pub fn reproduce(
    chosen: &Chosen,
    settings: &Settings,
    progress: &Progress,
    jobs: NonZeroUsize,
) -> (Reproductions, Vec<Took>) {
    let (units, next) = (units(chosen), AtomicUsize::new(0));
    let ran: Mutex<Vec<(Place, Outcome, Duration)>> = Mutex::new(Vec::new());
    let clock = SystemClock::new();
    let work = |_| {
        while let Some(unit) = units.get(next.fetch_add(1, Relaxed)) {
            for (place, entry) in &unit.entries {
                progress.say(&entry.full_name());
                let begun = clock.now();
                let outcome = (entry.run)(settings);
                let took = clock.now().since(begun);
                ran.lock().unwrap_or_else(PoisonError::into_inner).push((*place, outcome, took));
                progress.advance(1);
            }
        }
    };
    on_threads(0..jobs.get().min(units.len()), work);
    let mut ran = ran.into_inner().unwrap_or_else(PoisonError::into_inner);
    ran.sort_by_key(|(place, ..)| (place.chosen, place.part));
    let (mut took, mut ran) = (Vec::new(), ran.into_iter().peekable());
    let mut results = Vec::new();
    for (number, (name, parts)) in chosen.iter().enumerate() {
        let mut of_parts = Vec::new();
        while let Some((place, outcome, time)) = ran.next_if(|(place, ..)| place.chosen == number) {
            let entry = parts[place.part];
            took.push(Took { entry: entry.full_name(), time });
            of_parts.push((entry, outcome));
        }
        results.push(Reproduction::new(name, of_parts, Catalogue::built_in()));
    }
    (Reproductions::new(results, settings), took)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select;

    fn chosen(names: &[&str]) -> Vec<(String, Vec<&'static Entry>)> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        select(&names).expect("names")
    }

    #[test]
    fn what_comes_out_is_the_same_however_many_run_together() {
        let names = ["000-table3", "004-fig6", "004-fig7", "000-table4", "000-fig8"];
        let chosen = chosen(&names);
        let run = |jobs| {
            let jobs = NonZeroUsize::new(jobs).expect("jobs");
            let progress = Progress::hidden();
            let (results, took) = reproduce(&chosen, &Settings::default(), &progress, jobs);
            let took: Vec<String> = took.into_iter().map(|it| it.entry).collect();
            (serde_json::to_string(&results).expect("json"), took)
        };
        let one = run(1);
        assert_eq!(one.1, names);
        assert!([2, 3, 16].into_iter().all(|jobs| run(jobs) == one));
    }

    #[test]
    fn entries_that_share_a_run_are_one_unit() {
        let units = units(&chosen(&["001", "004", "000-table3"]));
        let of = |name: &str| {
            let has = |unit: &&Unit| unit.entries.iter().any(|(_, entry)| entry.name == name);
            units.iter().find(has).map_or(0, |unit| unit.entries.len())
        };
        assert_eq!((of("001-fig1"), of("001-table5")), (4, 4));
        assert_eq!((of("004-fig10"), of("004-fig8"), of("000-table3")), (2, 1, 1));
        assert!(units.is_sorted_by(|a, b| a.seconds >= b.seconds));
    }
}
