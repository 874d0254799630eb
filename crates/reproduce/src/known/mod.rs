//! Known failures, listed in `expected-failures.toml`, and their limits.
//!
//! A listed check may fail exactly as listed, or less. A run fails if a listed check passes, if
//! another check fails, or if a figure moves farther from the paper's. The figures are those of one
//! seed at the usual scale, to four digits; virtual time reproduces them in every run, and there is
//! no slack.

use std::path::Path;
use std::sync::OnceLock;

use entresol_measure::BenchError;
use entresol_media::files;
use serde::Deserialize;

use super::catalogue::Catalogue;
use super::check::{Check, Figure, NOT_MEASURED};
use super::{Reproductions, everything};

const TEXT: &str = include_str!("../../expected-failures.toml");
/// Seed of the listed figures.
const SEED: u64 = 1;

/// Checks that are known to fail.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    #[serde(default)]
    failure: Vec<Failure>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    entry: String,
    check: String,
    ours: Ours,
    reason: String,
    /// Name of the test that shows the cause.
    proof: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Ours {
    Number(f64),
    Text(String),
}

/// Comparison of a run with the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Differences that fail the run.
    pub problems: Vec<String>,
    /// Figures closer to the paper's than listed; the list may be updated.
    pub notes: Vec<String>,
}

impl Known {
    /// Returns the list that is part of the program.
    ///
    /// # Panics
    /// Panics if the list is malformed; a test detects this earlier.
    #[must_use]
    pub fn built_in() -> &'static Known {
        static BUILT_IN: OnceLock<Known> = OnceLock::new();
        BUILT_IN.get_or_init(|| {
            Known::parse(TEXT)
                .and_then(Known::in_catalogue)
                .unwrap_or_else(|error| panic!("expected-failures.toml: {error}"))
        })
    }

    /// Reads a list from a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or holds no valid list.
    pub fn read(path: &Path) -> Result<Known, BenchError> {
        let wrong = |error: String| BenchError::Usage(format!("{}: {error}", path.display()));
        let text = files::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Known::parse(&text).and_then(Known::in_catalogue).map_err(wrong)
    }

    /// Parses a list.
    ///
    /// # Errors
    /// Fails if the text is no valid list, with the position and the reason.
    pub fn parse(text: &str) -> Result<Known, String> {
        let known: Known = toml::from_str(text).map_err(|error| error.to_string())?;
        for (number, failure) in known.failure.iter().enumerate() {
            let Failure { entry, check, reason, proof, .. } = failure;
            if !everything().any(|it| it.full_name() == *entry) {
                return Err(format!("there is no entry {entry}"));
            }
            if reason.trim().is_empty() {
                return Err(format!("{entry}, '{check}': no reason"));
            }
            let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
            if proof.as_ref().is_some_and(|it| it.is_empty() || !it.chars().all(is_word)) {
                return Err(format!("{entry}, '{check}': a proof is the name of a test"));
            }
            let is_same = |it: &&Failure| it.entry == *entry && it.check == *check;
            if known.failure[..number].iter().any(|it| is_same(&it)) {
                return Err(format!("{entry}, '{check}': twice"));
            }
        }
        Ok(known)
    }

    /// Refuses a list with a check that the catalogue does not judge. A run that could not end is
    /// such a check: it never counts as known.
    fn in_catalogue(self) -> Result<Known, String> {
        let is_judged = |failure: &Failure| {
            let entry = Catalogue::built_in().entry(&failure.entry);
            let mut checks = entry.into_iter().flat_map(|it| &it.checks);
            checks.any(|it| it.what == failure.check && it.is_judged())
        };
        match self.failure.iter().find(|failure| !is_judged(failure)) {
            None => Ok(self),
            Some(Failure { entry, check, .. }) => {
                Err(format!("{entry}: the catalogue judges no check '{check}'"))
            }
        }
    }

    /// Returns the entry and the name of each listed check that the machine of the list measured.
    #[cfg(test)]
    pub(super) fn measured(&self) -> impl Iterator<Item = (&str, &str)> {
        let measured = self.failure.iter().filter(|it| !it.was_not_measured());
        measured.map(|it| (it.entry.as_str(), it.check.as_str()))
    }

    /// Adds the reason to each failure that is known, and the command that shows it if there is
    /// one.
    pub fn mark(&self, all: &mut Reproductions) {
        for check in all.checks_mut() {
            if let Some(failure) = self.of(check).filter(|_| check.fails()) {
                check.set_known(&failure.reason, failure.proof.as_deref().map(command));
            }
        }
    }

    fn of(&self, check: &Check) -> Option<&Failure> {
        self.failure.iter().find(|it| it.is_of(check))
    }

    /// Compares the failures of a run with the list.
    ///
    /// # Errors
    /// Fails if the run had another seed or another scale than the list.
    pub fn judge(&self, results: &Reproductions) -> Result<Judgement, BenchError> {
        let settings = results.settings();
        if settings.seed != SEED || settings.full_scale {
            let text = format!(
                "known failures are those of seed {SEED} at the usual scale: leave out \
                 --accept-known, or --seed and --full-scale"
            );
            return Err(BenchError::Usage(text));
        }
        let mut judgement = Judgement::default();
        for one in results.iter() {
            let differences = one.differences.iter();
            let problem = |it: &String| format!("{}: not as in the catalogue: {it}", one.name);
            judgement.problems.extend(differences.map(problem));
        }
        let checks = || results.iter().flat_map(|one| &one.checks);
        for check in checks().filter(|check| check.fails()) {
            if self.of(check).is_none() {
                let named = format!("{}, '{}'", check.entry(), check.what);
                judgement.problems.push(format!("{named}: fails, and is not on the list"));
            }
        }
        for failure in &self.failure {
            let was_run = results.ran(&failure.entry);
            match checks().find(|check| failure.is_of(check)) {
                Some(check) => failure.judge(check, &mut judgement),
                None if was_run => judgement.problems.push(format!(
                    "{}: is on the list, and there is no such check",
                    failure.named()
                )),
                None => {}
            }
        }
        Ok(judgement)
    }
}

impl Failure {
    fn is_of(&self, check: &Check) -> bool {
        check.entry() == self.entry && check.what == self.check
    }

    fn named(&self) -> String {
        format!("{}, '{}'", self.entry, self.check)
    }

    /// Returns true if the machine of the list could not measure this. Another one may.
    fn was_not_measured(&self) -> bool {
        matches!(&self.ours, Ours::Text(listed) if listed.starts_with(NOT_MEASURED))
    }

    fn judge(&self, check: &Check, judgement: &mut Judgement) {
        let named = self.named();
        if !check.fails() && self.was_not_measured() {
            let note = "passes here; it could not be measured where the list was made";
            judgement.notes.push(format!("{named}: {note}"));
            return;
        }
        if !check.fails() {
            judgement.problems.push(format!("{named}: now passes: take it off the list"));
            return;
        }
        let paper = check.paper.as_ref().and_then(Figure::number);
        let beyond = |ours: f64| check.tolerance().beyond(paper, ours);
        match (&self.ours, &check.ours) {
            (Ours::Number(listed), Figure::Number(ours)) => {
                let (ours, listed) = (four_digits(*ours), four_digits(*listed));
                // A check judged in words has no distance; only the listed figure is accepted.
                let is_farther = match (beyond(ours), beyond(listed)) {
                    (Some(now), Some(then)) => now > then,
                    _ => ours != listed,
                };
                if is_farther {
                    judgement.problems.push(format!(
                        "{named}: is {ours} and was {listed}: farther from what is asked for"
                    ));
                } else if ours != listed {
                    judgement.notes.push(format!(
                        "{named}: is {ours} and was {listed}: closer, bring the list up to date"
                    ));
                }
            }
            (Ours::Text(listed), Figure::Text(ours)) if listed == ours => {}
            (Ours::Text(_) | Ours::Number(_), ours) => judgement.problems.push(format!(
                "{named}: is «{}», and was not: look whether it is worse, and list it",
                ours.text()
            )),
        }
    }
}

/// Returns the command that runs a test of this crate and shows its figures.
fn command(test: &str) -> String {
    format!("cargo test --release -p entresol-reproduce -- --include-ignored --nocapture {test}")
}

/// Rounds a number to four digits.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests;
