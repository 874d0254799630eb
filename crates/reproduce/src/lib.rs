//! The papers' tables and figures, run again on models in virtual time: theirs beside ours.
//!
//! An [`Entry`] is one table or figure; each paper has its folder. An entry runs a scenario and
//! yields [`Check`]s, each with the tolerance that it names. Everything runs in virtual time, so
//! the same seed gives the same numbers on any machine, but for what a mechanism costs the
//! processor (`002-fig5a`), which is measured on the machine at hand, and only when it is asked
//! for. Deliberately absent: the papers' numbers as answers. They stand in the checks, to compare
//! with, and nowhere in a model. Every check is listed in `catalogue.toml`, with its tolerance and
//! the paper's number, and those that are known to fail in `expected-failures.toml`.
#![forbid(unsafe_code)]

mod catalogue;
mod check;
mod clients;
mod hse;
mod known;
mod memory;
mod nyxcache;
mod ods_tree;
mod outcome;
mod parallel;
mod pm_index_design;
mod tolerance;
mod xpoint_platform;

pub use catalogue::{Catalogue, Listed, ListedEntry};
pub use check::{Check, Figure, Subject, cells};
pub use known::{Judgement, Known};
pub use outcome::{Outcome, Reproduction, Reproductions};
pub use parallel::{Took, reproduce};
pub use tolerance::{Grace, Side, Tolerance};

use entresol_measure::BenchError;

/// What every entry is given.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// As many keys as the scenarios are made for, where fewer are taken otherwise so that a run
    /// takes a minute.
    pub full_scale: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { seed: 1, full_scale: false }
    }
}

/// One table or figure of a paper, or a part of one.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The paper and the table or figure: `000-table3`.
    pub name: &'static str,
    /// Which part of it, if its parts need scenarios of their own: `a`, else empty.
    pub part: &'static str,
    /// Where it stands: the paper's short title and the table or figure.
    pub source: &'static str,
    /// What it shows, in a few words, for the list.
    pub about: &'static str,
    /// Runs the scenario.
    pub run: fn(&Settings) -> Outcome,
}

impl Entry {
    /// The name by which this entry alone is run: `002-fig1a`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}{}", self.name, self.part)
    }
}

/// Every entry in virtual time, in the order of the papers.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    [
        pm_index_design::ENTRIES,
        hse::ENTRIES,
        nyxcache::ENTRIES,
        ods_tree::ENTRIES,
        xpoint_platform::ENTRIES,
    ]
    .into_iter()
    .flatten()
}

/// What is measured in real time: no two runs are the same, and neighbours disturb them.
pub fn measured() -> impl Iterator<Item = &'static Entry> {
    nyxcache::MEASURED.iter()
}

/// All of them.
pub fn everything() -> impl Iterator<Item = &'static Entry> {
    measured().chain(entries())
}

/// The entries that are meant by `names`, grouped by the name under which their checks are
/// printed: a bare name brings all parts. No names at all bring everything in virtual time, the
/// number of a paper (`000`) all of that which is the paper's.
///
/// # Errors
/// If a name is none, with the nearest one.
pub fn select(names: &[String]) -> Result<Vec<(String, Vec<&'static Entry>)>, BenchError> {
    let mut chosen: Vec<(String, Vec<&'static Entry>)> = Vec::new();
    let mut choose = |name: String, entry: &'static Entry| match chosen
        .iter_mut()
        .find(|(known, _)| *known == name)
    {
        Some((_, parts)) if parts.iter().any(|part| part.part == entry.part) => {}
        Some((_, parts)) => parts.push(entry),
        None => chosen.push((name, vec![entry])),
    };
    if names.is_empty() {
        entries().for_each(|entry| choose(entry.name.to_owned(), entry));
    }
    for name in names {
        let mut found = false;
        for entry in everything() {
            let paper = entry.name.split('-').next().unwrap_or_default();
            let is_measured = || measured().any(|it| std::ptr::eq(it, entry));
            if entry.name == name || paper == name && !is_measured() {
                choose(entry.name.to_owned(), entry);
                found = true;
            } else if entry.full_name() == *name {
                choose(entry.full_name(), entry);
                found = true;
            }
        }
        if !found {
            return Err(unknown(name));
        }
    }
    Ok(chosen)
}

fn unknown(name: &str) -> BenchError {
    let listed = Catalogue::built_in().entry(name);
    if let Some(reason) = listed.and_then(|entry| entry.missing.as_ref()) {
        return BenchError::Usage(format!("there is no reproduction '{name}' yet: {reason}"));
    }
    let names: Vec<String> = everything().map(Entry::full_name).collect();
    let hint = match entresol_base::suggest::nearest(name, names.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "`entresol reproduce --list` names them all".to_owned(),
    };
    BenchError::Usage(format!("there is no reproduction '{name}': {hint}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What an entry would have yielded with these checks.
    pub(crate) fn made(name: &str, checks: Vec<Check>, settings: Settings) -> Reproductions {
        let entry = everything().find(|entry| entry.full_name() == name).expect("an entry");
        let outcome = Outcome { checks, ..Outcome::default() };
        let one = Reproduction::new(name, vec![(entry, outcome)], Catalogue::built_in());
        Reproductions::new(vec![one], &settings)
    }

    /// Runs an entry: its checks are those of the catalogue, and fail as they are known to.
    pub(crate) fn holds(name: &str) {
        let entry = everything().find(|entry| entry.full_name() == name).expect("an entry");
        let settings = Settings::default();
        let checks = (entry.run)(&settings).checks;
        let all = made(name, checks, settings);
        let judgement = Known::built_in().judge(&all).expect("the usual scale");
        assert!(judgement.problems.is_empty(), "{:#?}", judgement.problems);
    }

    #[test]
    fn names_are_unique_and_well_formed() {
        let mut names: Vec<String> = everything().map(Entry::full_name).collect();
        let count = names.len();
        for name in &names {
            assert!(name.starts_with("00") && name.as_bytes()[3] == b'-', "{name}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_a_hint() {
        let error = select(&["no such thing at all".to_owned()]).expect_err("unknown");
        assert!(error.is_usage() && error.to_string().contains("--list"), "{error}");
    }
}
