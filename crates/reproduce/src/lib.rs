//! Reproductions of the papers' tables and figures on models in virtual time, theirs beside ours.
//!
//! An [`Entry`] is one table or figure; each paper has a folder. An entry runs a scenario and
//! yields [`Check`]s, each with its tolerance. Virtual time makes the numbers of a seed equal on
//! every machine. The exceptions are the cost of a mechanism (`002-fig5a`) and the parts of figures
//! that end in `-here`: they are measured on the machine at hand, and only on request. The papers'
//! numbers deliberately do not appear in any model; they stand in the checks, for comparison.
//! `catalogue.toml` lists every check with its tolerance and the paper's number, and
//! `expected-failures.toml` the known failures; `papers.toml` lists the papers' own errors and the
//! statements that are contradicted here.
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
mod page;
mod parallel;
mod pm_index_design;
mod statements;
mod tolerance;
mod xpoint_platform;

pub use catalogue::{Catalogue, Listed, ListedEntry};
pub use check::{Check, Figure, Subject, cells};
pub use known::{Judgement, Known};
pub use outcome::{Outcome, Reproduction, Reproductions};
pub use parallel::{Took, reproduce};
pub use tolerance::{Grace, Side, Tolerance};

use entresol_measure::BenchError;

/// Settings that every entry receives.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seed of all random draws.
    pub seed: u64,
    /// Uses as many keys as the scenarios are designed for. Otherwise the scenarios are scaled down
    /// to a run of about a minute.
    pub full_scale: bool,
    /// Runs this program with arguments in a process of its own and returns what it prints, for
    /// entries that need one. Without it such entries are not measured.
    pub apart: Option<Apart>,
}

/// Runs a program with arguments in a process of its own.
pub type Apart = fn(&[&str]) -> Result<String, String>;

impl Default for Settings {
    fn default() -> Self {
        Settings { seed: 1, full_scale: false, apart: None }
    }
}

/// Table or figure of a paper, or a part of one.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Paper and table or figure: `000-table3`.
    pub name: &'static str,
    /// Part of the table or figure that has a scenario of its own: `a`, or `-here` for what is
    /// measured on the machine at hand; otherwise empty.
    pub part: &'static str,
    /// Source: the paper's short title and the table or figure.
    pub source: &'static str,
    /// Short description for the list.
    pub about: &'static str,
    /// Runs the scenario.
    pub run: fn(&Settings) -> Outcome,
}

impl Entry {
    /// Returns the name that selects this entry alone: `002-fig1a`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}{}", self.name, self.part)
    }
}

/// Returns every entry in virtual time, in the order of the papers.
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

/// Returns the entries measured in real time: no two runs are equal, and other load disturbs them.
pub fn measured() -> impl Iterator<Item = &'static Entry> {
    nyxcache::MEASURED.iter().chain(xpoint_platform::MEASURED)
}

/// Returns all entries, those in real time first.
pub fn everything() -> impl Iterator<Item = &'static Entry> {
    measured().chain(entries())
}

/// Returns the entries that `names` select, grouped by the name under which their checks are
/// printed. A name without a part selects all parts, and a paper's number (`000`) selects all of
/// its entries in virtual time. No names at all select every entry in virtual time.
///
/// # Errors
/// Fails if a name is unknown; the error suggests the nearest one.
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

    /// Builds the result of an entry with these checks.
    pub(crate) fn made(name: &str, checks: Vec<Check>, settings: Settings) -> Reproductions {
        let entry = everything().find(|entry| entry.full_name() == name).expect("an entry");
        let outcome = Outcome { checks, ..Outcome::default() };
        let one = Reproduction::new(name, vec![(entry, outcome)], Catalogue::built_in());
        Reproductions::new(vec![one], &settings)
    }

    /// Runs an entry and asserts that its checks are those of the catalogue and fail only as
    /// listed.
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
