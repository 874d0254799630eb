//! Errors of the papers, and statements of theirs that are contradicted here, from `papers.toml`.

use std::sync::OnceLock;

use entresol_measure::report::Page;
use serde::Deserialize;

use super::check::Check;
use super::outcome::Reproductions;

const TEXT: &str = include_str!("../papers.toml");
/// Number of results that are shown below a statement; a statement may name many checks.
const RESULTS_MAX: usize = 6;

/// Statements of the papers, in their order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statements {
    error: Vec<Statement>,
    contradicted: Vec<Statement>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    paper: String,
    place: String,
    /// Statement of the paper.
    says: String,
    /// Fact, or result of the runs here.
    here: String,
    /// Cause of a contradiction.
    why: Option<String>,
    /// Evidence beside the checks: arithmetic, or a command.
    shown: Option<String>,
    #[serde(default)]
    checks: Vec<Named>,
}

/// Checks of an entry whose names begin with these words.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Named {
    entry: String,
    words: String,
}

impl TryFrom<String> for Named {
    type Error = String;

    fn try_from(text: String) -> Result<Named, String> {
        let (entry, words) = text.split_once(": ").ok_or(format!("'{text}': no «entry: check»"))?;
        Ok(Named { entry: entry.to_owned(), words: words.to_owned() })
    }
}

impl Named {
    fn is(&self, entry: &str, what: &str) -> bool {
        self.entry == entry && what.starts_with(&self.words)
    }
}

impl Statements {
    /// Returns the statements that are part of the program.
    ///
    /// # Panics
    /// Panics if the file is malformed; a test detects this earlier.
    pub(super) fn built_in() -> &'static Statements {
        static BUILT_IN: OnceLock<Statements> = OnceLock::new();
        BUILT_IN.get_or_init(|| {
            toml::from_str(TEXT).unwrap_or_else(|error| panic!("papers.toml: {error}"))
        })
    }

    /// Adds those statements to a page that are about what was run.
    pub(super) fn put(&self, page: &mut Page, all: &Reproductions) {
        let lists = [
            ("Errors that were found in the papers", "In fact", &self.error),
            ("Statements of the papers that are contradicted here", "Here", &self.contradicted),
        ];
        for (heading, but, statements) in lists {
            let about: Vec<_> = statements.iter().filter(|it| it.is_about(all)).collect();
            if about.is_empty() {
                continue;
            }
            page.section(heading);
            let terms = about.into_iter().map(|it| it.in_words(but, all)).collect::<Vec<_>>();
            page.terms(&terms);
        }
    }
}

impl Statement {
    /// Returns true if one of the checks was run, or anything of the paper if there are none.
    fn is_about(&self, all: &Reproductions) -> bool {
        if self.checks.is_empty() {
            return all.iter().any(|one| one.name.starts_with(&self.paper));
        }
        self.checks.iter().any(|named| all.ran(&named.entry))
    }

    /// Returns the place, and sentences on the statement with the results that show it.
    fn in_words(&self, but: &str, all: &Reproductions) -> (String, Vec<String>) {
        let mut sentences =
            vec![format!("The paper: {}.", self.says), format!("{but}: {}.", self.here)];
        sentences.extend(self.why.as_ref().map(|why| format!("Why: {why}.")));
        sentences.extend(self.shown.as_ref().map(|shown| format!("Shown by: {shown}.")));
        let mut entries: Vec<&str> = Vec::new();
        for Named { entry, .. } in &self.checks {
            if !entries.contains(&entry.as_str()) {
                entries.push(entry);
            }
        }
        if !entries.is_empty() {
            sentences.push(format!("Shown by: entresol reproduce {}", entries.join(" ")));
        }
        sentences.extend(self.results(all));
        (format!("{}: {}", self.paper, self.place), sentences)
    }

    /// Returns the results of the checks, and the number of those that are left out.
    fn results(&self, all: &Reproductions) -> Vec<String> {
        let is_named =
            |check: &&Check| self.checks.iter().any(|named| named.is(check.entry(), &check.what));
        let checks: Vec<_> = all.iter().flat_map(|one| &one.checks).filter(is_named).collect();
        let mut results: Vec<_> = checks.iter().take(RESULTS_MAX).map(|it| result(it)).collect();
        let left_out = checks.len().saturating_sub(RESULTS_MAX);
        if left_out > 0 {
            results.push(format!("and {left_out} more checks"));
        }
        results
    }
}

fn result(check: &Check) -> String {
    let ours = format!("{} {}", check.ours.text(), check.unit);
    let paper = check.paper.as_ref().map_or(String::new(), |it| format!(", paper {}", it.text()));
    let verdict = check.verdict();
    format!("{verdict}: {}, «{}»: {}{paper}", check.entry(), check.what, ours.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::made;
    use crate::{Catalogue, Known, Settings};

    /// Returns all checks that the catalogue lists, with their entries.
    fn listed() -> impl Iterator<Item = (&'static str, &'static crate::Listed)> {
        let entries = Catalogue::built_in().entries.iter();
        entries.flat_map(|entry| entry.checks.iter().map(|check| (entry.name.as_str(), check)))
    }

    #[test]
    fn every_check_that_a_statement_names_is_in_the_catalogue() {
        let Statements { error, contradicted } = Statements::built_in();
        assert!(error.len() >= 28 && contradicted.len() >= 17);
        for statement in error.iter().chain(contradicted) {
            let Statement { place, says, here, checks, shown, .. } = statement;
            assert!(!checks.is_empty() || shown.is_some(), "{place}: nothing shows it");
            assert!([place, says, here].iter().all(|text| !text.trim().is_empty()), "{place}");
            for named in checks {
                let is_there = listed().any(|(entry, check)| named.is(entry, &check.what));
                assert!(is_there, "{place}: there is no check {named:?}");
            }
        }
        assert!(contradicted.iter().all(|it| it.why.is_some()));
        assert!(error.iter().all(|it| it.why.is_none()));
    }

    #[test]
    fn what_is_known_to_fail_contradicts_a_statement_and_no_other_statement_is_listed() {
        let contradicted = &Statements::built_in().contradicted;
        for (entry, check) in Known::built_in().measured() {
            let is_named = |it: &Statement| it.checks.iter().any(|named| named.is(entry, check));
            assert!(
                contradicted.iter().any(is_named),
                "{entry}, '{check}' is in papers.toml nowhere"
            );
        }
        // A statement goes when the last of its checks passes.
        for statement in contradicted {
            let fails = |named: &Named| {
                let mut known = Known::built_in().measured();
                let is_report = |(entry, it): (&str, &crate::Listed)| {
                    named.is(entry, &it.what) && !it.is_judged()
                };
                known.any(|(entry, what)| named.is(entry, what)) || listed().any(is_report)
            };
            assert!(statement.checks.iter().any(fails), "{} holds now", statement.place);
        }
    }

    #[test]
    fn the_page_has_the_statements_of_what_was_run_with_the_results() {
        let name = "random and sequential cost the same (the printed ratios";
        let checks = vec![Check::limit(name, "%", crate::Side::AtMost, 5.0, 1.25)];
        let all = made("000-table4", checks, Settings::default());
        let html = all.page(&[]).render();
        assert!(html.contains("1.015 and 1.013") && html.contains("entresol reproduce 000-table4"));
        assert!(html.contains(&format!("pass: 000-table4, «{name}»: 1.25 %")), "{html}");
        assert!(!html.contains("HybridIndex") && !html.contains("contradicted"), "not run");
    }
}
