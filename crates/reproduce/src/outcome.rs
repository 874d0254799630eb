//! Results of reproductions: scenario, checks and drawings, as JSON and tables.

use entresol_measure::report::Table;
use entresol_measure::report::table::number;
use serde::{Serialize, Serializer};

use super::catalogue::Catalogue;
use super::check::{Check, Figure, RUN_FAILED};
use super::{Entry, Settings};

/// Result of running an entry.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Scenario in sentences, with every choice that the paper leaves open.
    pub scenario: Vec<String>,
    /// Comparisons with the paper.
    pub checks: Vec<Check>,
    /// Drawings from [`entresol_measure::report::svg`] for the page.
    pub drawings: Vec<String>,
}

impl Outcome {
    /// Creates the result of an entry whose run failed.
    pub(super) fn failed(what: String) -> Outcome {
        let check = Check::shape(RUN_FAILED, "yes", what, false);
        Outcome { checks: vec![check], ..Outcome::default() }
    }

    fn join(&mut self, mut part: Outcome) {
        for sentence in part.scenario {
            if !self.scenario.contains(&sentence) {
                self.scenario.push(sentence);
            }
        }
        self.checks.append(&mut part.checks);
        self.drawings.append(&mut part.drawings);
    }
}

/// Result of one table or figure.
#[derive(Debug, Clone, Serialize)]
pub struct Reproduction {
    /// Name of the table or figure, or of one part.
    pub name: String,
    /// Source: the paper's short title and the table or figure.
    pub source: &'static str,
    /// Comparisons with the paper.
    pub checks: Vec<Check>,
    /// True if at least one check is judged, none fails, and the checks are those of the catalogue.
    pub pass: bool,
    /// Differences from the catalogue, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Scenario in sentences.
    pub scenario: Vec<String>,
    /// Full names of the entries.
    #[serde(skip)]
    parts: Vec<String>,
    #[serde(skip)]
    pub(super) drawings: Vec<String>,
}

impl Reproduction {
    /// Joins the results of the parts of one table or figure and compares them with the catalogue.
    pub(super) fn new(name: &str, ran: Vec<(&Entry, Outcome)>, catalogue: &Catalogue) -> Self {
        let source = ran.first().map_or("", |(part, _)| part.source);
        let (mut whole, mut parts, mut differences) = (Outcome::default(), vec![], vec![]);
        for (part, mut outcome) in ran {
            let name = part.full_name();
            outcome.checks.iter_mut().for_each(|check| check.set_entry(&name));
            differences.extend(catalogue.differences(&name, &outcome.checks));
            parts.push(name);
            whole.join(outcome);
        }
        let Outcome { scenario, checks, drawings } = whole;
        let is_judged = checks.iter().any(|check| !check.is_report());
        let pass = is_judged && differences.is_empty() && !checks.iter().any(Check::fails);
        let name = name.to_owned();
        Reproduction { name, source, checks, pass, differences, scenario, parts, drawings }
    }

    pub(super) fn table(&self) -> Table {
        let columns = ["        what", "paper", "ours", "unit", "ratio", "tolerance"];
        let mut table = Table::new(&format!("{}: {}", self.name, self.source), &columns);
        for check in &self.checks {
            let note = check.note().map_or(String::new(), |note| format!("; {note}"));
            table.row(vec![
                format!("{:<6}  {}{note}", check.verdict(), check.what),
                check.paper.as_ref().map_or("-".to_owned(), Figure::text),
                check.ours.text(),
                check.unit.to_owned(),
                check.ratio().map_or("-".to_owned(), number),
                check.terms(),
            ]);
        }
        table
    }

    /// Returns the sentences below the table: known failures and differences from the catalogue.
    pub(super) fn remarks(&self) -> Vec<String> {
        let known = |check: &Check| {
            let reason = check.known().filter(|_| check.fails())?;
            let proof = check.proof().map_or(String::new(), |it| format!(". Proof: {it}"));
            Some(format!("FAIL as known: {}: {reason}{proof}", check.what))
        };
        let differs = |what: &String| format!("FAIL, not as in the catalogue: {what}");
        let known = self.checks.iter().filter_map(known);
        known.chain(self.differences.iter().map(differs)).collect()
    }
}

/// Results of everything that was run.
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
        let Settings { seed, full_scale, .. } = self.settings;
        let (reproductions, pass) = (self.reproductions.as_slice(), self.pass());
        let version = env!("CARGO_PKG_VERSION");
        Form { version, seed, full_scale, reproductions, pass }.serialize(serializer)
    }
}

impl Reproductions {
    pub(super) fn new(reproductions: Vec<Reproduction>, settings: &Settings) -> Reproductions {
        Reproductions { reproductions, settings: *settings }
    }

    /// Iterates over the results.
    pub fn iter(&self) -> impl Iterator<Item = &Reproduction> {
        self.reproductions.iter()
    }

    #[cfg(test)]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Reproduction> {
        self.reproductions.iter_mut()
    }

    /// Returns true if the entry of this full name was run.
    #[must_use]
    pub fn ran(&self, entry: &str) -> bool {
        self.reproductions.iter().any(|one| one.parts.iter().any(|part| part == entry))
    }

    /// Returns the settings of all entries.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn checks_mut(&mut self) -> impl Iterator<Item = &mut Check> {
        self.reproductions.iter_mut().flat_map(|one| &mut one.checks)
    }

    /// Returns true if every reproduction passed.
    #[must_use]
    pub fn pass(&self) -> bool {
        self.reproductions.iter().all(|one| one.pass)
    }

    /// Returns the names of the reproductions that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&str> {
        self.reproductions.iter().filter(|one| !one.pass).map(|one| one.name.as_str()).collect()
    }

    /// Formats the results for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for one in &self.reproductions {
            text.push_str(&one.table().to_string());
            for sentence in one.remarks().iter().chain(&one.scenario) {
                text.push_str(&format!("  {sentence}\n"));
            }
            text.push('\n');
        }
        text.push_str(&self.summary());
        text
    }

    /// Formats the counts of results and the list of missing checks.
    pub(super) fn summary(&self) -> String {
        let all = || self.reproductions.iter().flat_map(|one| &one.checks);
        let reports = all().filter(|check| check.is_report()).count();
        let checks = all().count() - reports;
        let failed = all().filter(|check| check.fails()).count();
        let known = all().filter(|check| check.known().is_some()).count();
        let passed = self.reproductions.len() - self.failed().len();
        let some = |count: usize, what: &str| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let given = all().filter(|check| check.given_number().is_some()).count();
        let given = some(given, "of them restate a number that a model was given");
        let reports = some(reports, "more numbers are reported only");
        let failed = some(failed, &format!("of them fail, {known} of these as known"));
        let mut text = format!(
            "{passed} of {} tables and figures pass, {checks} checks in all{failed}{given}\
             {reports}; virtual time unless said\n",
            self.reproductions.len(),
        );
        for (entry, check, reason) in Catalogue::built_in().missing() {
            if self.ran(entry) {
                text.push_str(&format!("missing: {entry}, {check}: {reason}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{everything, tests::made};

    #[test]
    fn the_json_is_the_one_that_is_documented() {
        let checks = vec![
            Check::cell("8 B", "ns", 200.0, 201.0),
            Check::shape("s", "a", "b", false),
            Check::report("r", "us", Some(4.0), 5.0, "a reason"),
        ];
        let settings = Settings { seed: 7, full_scale: true, ..Settings::default() };
        let all = made("000-table3", checks, settings);
        let json = serde_json::to_value(&all).expect("json");
        assert_eq!(json["pass"], false);
        assert_eq!((&json["seed"], &json["full_scale"]), (&7.into(), &true.into()));
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
        let one = &json["reproductions"][0];
        assert_eq!(one["name"], "000-table3");
        assert!(one["source"].as_str().is_some_and(|source| source.ends_with("table 3")));
        let check = &one["checks"][0];
        assert_eq!(check["paper"], 200.0);
        assert_eq!(check["ours"], 201.0);
        assert_eq!(check["unit"], "ns");
        assert_eq!(check["pass"], true);
        assert_eq!(check["tolerance"], "cell");
        assert_eq!(one["checks"][1]["paper"], "a");
        let report = &one["checks"][2];
        assert_eq!((&report["report"], &report["reason"]), (&true.into(), &"a reason".into()));
        assert!(report.get("pass").is_none());
        assert_eq!(all.failed(), ["000-table3"]);
        assert!(all.ran("000-table3") && !all.ran("000-table4"));
    }

    #[test]
    fn a_reproduction_without_a_check_has_not_passed() {
        let entry = everything().next().expect("an entry");
        let report = Check::report("x", "", None, 1.0, "why");
        for checks in [vec![], vec![report]] {
            let outcome = Outcome { checks, ..Outcome::default() };
            let nothing = Catalogue { entries: Vec::new() };
            assert!(!Reproduction::new("x", vec![(entry, outcome)], &nothing).pass);
        }
    }

    #[test]
    fn what_is_reported_is_nowhere_said_to_pass() {
        let reports = vec![Check::report("r", "us", Some(4.0), 5.0, "a reason")];
        let all = made("000-table3", reports, Settings::default());
        assert!(!all.pass());
        let text = all.text();
        let line = text.lines().find(|line| line.contains("a reason")).expect("its line");
        assert!(line.contains("report") && !line.contains("pass"), "{line}");
    }
}
