//! What a reproduction yields: its scenario, checks and drawings, as JSON, tables and a page.

use serde::{Serialize, Serializer};

use super::Settings;
use super::check::{Check, Figure};
use crate::report::table::number;
use crate::report::{Page, Table};

/// What running an entry yields.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The scenario in sentences, with everything that the paper leaves open and was chosen here.
    pub scenario: Vec<String>,
    /// The comparisons.
    pub checks: Vec<Check>,
    /// Drawings from [`crate::report::svg`], for the page.
    pub drawings: Vec<String>,
}

impl Outcome {
    /// What an entry yields whose runs failed.
    pub(super) fn failed(what: String) -> Outcome {
        let check = Check::shape("every operation is answered rightly", "yes", what, false);
        Outcome { checks: vec![check], ..Outcome::default() }
    }

    pub(super) fn join(&mut self, mut part: Outcome) {
        for sentence in part.scenario {
            if !self.scenario.contains(&sentence) {
                self.scenario.push(sentence);
            }
        }
        self.checks.append(&mut part.checks);
        self.drawings.append(&mut part.drawings);
    }
}

/// One table or figure, run.
#[derive(Debug, Clone, Serialize)]
pub struct Reproduction {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub source: &'static str,
    /// The comparisons.
    pub checks: Vec<Check>,
    /// Whether all of them are within their tolerances, and there is one at all.
    pub pass: bool,
    /// The scenario in sentences.
    pub scenario: Vec<String>,
    #[serde(skip)]
    drawings: Vec<String>,
}

impl Reproduction {
    pub(super) fn new(name: &str, source: &'static str, outcome: Outcome) -> Reproduction {
        let Outcome { scenario, checks, drawings } = outcome;
        let pass = !checks.is_empty() && checks.iter().all(|check| check.pass);
        Reproduction { name: name.to_owned(), source, checks, pass, scenario, drawings }
    }

    fn table(&self) -> Table {
        let columns = ["        what", "paper", "ours", "unit", "ratio", "tolerance"];
        let mut table = Table::new(&format!("{}: {}", self.name, self.source), &columns);
        for check in &self.checks {
            table.row(vec![
                format!("{:<6}  {}", check.verdict(), check.what),
                check.paper.as_ref().map_or("-".to_owned(), Figure::text),
                check.ours.text(),
                check.unit.to_owned(),
                check.ratio().map_or("-".to_owned(), number),
                check.terms(),
            ]);
        }
        table
    }
}

/// Everything that was run.
#[derive(Debug, Clone)]
pub struct Reproductions {
    reproductions: Vec<Reproduction>,
    settings: Settings,
}

impl Serialize for Reproductions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            version: &'static str,
            seed: u64,
            full_scale: bool,
            reproductions: &'a [Reproduction],
            pass: bool,
        }
        let Settings { seed, full_scale } = self.settings;
        let (reproductions, pass) = (self.reproductions.as_slice(), self.pass());
        let version = env!("CARGO_PKG_VERSION");
        Form { version, seed, full_scale, reproductions, pass }.serialize(serializer)
    }
}

impl Reproductions {
    pub(super) fn new(reproductions: Vec<Reproduction>, settings: &Settings) -> Reproductions {
        Reproductions { reproductions, settings: *settings }
    }

    /// Whether every one passed.
    #[must_use]
    pub fn pass(&self) -> bool {
        self.reproductions.iter().all(|one| one.pass)
    }

    /// The names of those that did not.
    #[must_use]
    pub fn failed(&self) -> Vec<&str> {
        self.reproductions.iter().filter(|one| !one.pass).map(|one| one.name.as_str()).collect()
    }

    /// The results for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for one in &self.reproductions {
            text.push_str(&one.table().to_string());
            for sentence in &one.scenario {
                text.push_str(&format!("  {sentence}\n"));
            }
            text.push('\n');
        }
        let all = || self.reproductions.iter().flat_map(|one| &one.checks);
        let reports = all().filter(|check| check.is_report).count();
        let checks = all().count() - reports;
        let passed = self.reproductions.len() - self.failed().len();
        let some = |count: usize, what: &str| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let given = all().filter(|check| check.given.is_some()).count();
        let given = some(given, "of them restate a number that a model was given");
        let reports = some(reports, "more numbers are reported only");
        text.push_str(&format!(
            "{passed} of {} tables and figures pass, {checks} checks in all{given}{reports}; \
             virtual time unless said\n",
            self.reproductions.len(),
        ));
        text
    }

    /// The results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new("The papers' tables and figures, theirs beside ours");
        page.note(
            "Everything here ran on models of the devices, in virtual time, unless its scenario \
             says otherwise.",
        );
        for one in &self.reproductions {
            let verdict = if one.pass { "pass" } else { "FAIL" };
            page.section(&format!("{} · {verdict}", one.name));
            for drawing in &one.drawings {
                page.drawing(drawing);
            }
            page.table(&one.table());
            for sentence in &one.scenario {
                page.note(sentence);
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_the_one_that_is_documented() {
        let checks =
            vec![Check::cell("8 B", "ns", 200.0, 201.0), Check::shape("s", "a", "b", false)];
        let outcome = Outcome { checks, ..Outcome::default() };
        let one = Reproduction::new("000-table3", "paper", outcome);
        let settings = Settings { seed: 7, full_scale: true };
        let all = Reproductions::new(vec![one], &settings);
        let json = serde_json::to_value(&all).expect("json");
        assert_eq!(json["pass"], false);
        assert_eq!((&json["seed"], &json["full_scale"]), (&7.into(), &true.into()));
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
        let one = &json["reproductions"][0];
        assert_eq!(one["name"], "000-table3");
        assert_eq!(one["source"], "paper");
        let check = &one["checks"][0];
        assert_eq!(check["paper"], 200.0);
        assert_eq!(check["ours"], 201.0);
        assert_eq!(check["unit"], "ns");
        assert_eq!(check["pass"], true);
        assert_eq!(one["checks"][1]["paper"], "a");
        assert_eq!(all.failed(), ["000-table3"]);
    }

    #[test]
    fn a_reproduction_without_checks_has_not_passed() {
        assert!(!Reproduction::new("x", "y", Outcome::default()).pass);
    }
}
