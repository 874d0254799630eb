//! Comparison of one number or statement of a paper with ours, at a stated tolerance.

use entresol_measure::report::table::number;
use serde::{Serialize, Serializer};

use super::tolerance::{CELL_NEAR, Grace, Side, Tolerance};

/// Least share of a table's cells that must be within 10%.
const CELLS_NEAR_SHARE: f64 = 0.9;

/// Check of an entry whose run failed.
pub(super) const RUN_FAILED: &str = "every operation is answered rightly";

/// First words of a result that could not be measured.
pub(super) const NOT_MEASURED: &str = "not measured";

/// Number, or a statement where the paper prints none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// Number in the unit of the check.
    Number(f64),
    /// Statement in words.
    Text(String),
}

impl Figure {
    /// Returns the figure as a table shows it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Figure::Number(value) => number(*value),
            Figure::Text(text) => text.clone(),
        }
    }

    /// Returns the number, or `None` for a statement.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Figure::Number(value) => Some(*value),
            Figure::Text(_) => None,
        }
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Figure {
        Figure::Number(value)
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Figure {
        Figure::Text(text.to_owned())
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Figure {
        Figure::Text(text)
    }
}

/// Algorithm whose result is compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Algorithm that this library ships, or a model of a device.
    #[default]
    Ours,
    /// Algorithm of the paper: its own, or one that it compares with.
    Published,
}

impl Subject {
    fn is_ours(&self) -> bool {
        *self == Subject::Ours
    }
}

/// One comparison. Its tolerance alone decides whether a number passes; the entry judges a
/// statement in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// Name of the check within its entry; independent of the result.
    pub what: String,
    /// Figure that the paper prints, or `None` for a check of this project's own.
    pub paper: Option<Figure>,
    /// Result of this run.
    pub ours: Figure,
    /// Unit of both figures; empty for statements.
    pub unit: &'static str,
    #[serde(serialize_with = "in_words")]
    tolerance: Tolerance,
    /// Number of a model that was set to the paper's. Such a check compares the paper with itself
    /// and is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<&'static str>,
    #[serde(skip_serializing_if = "Subject::is_ours")]
    subject: Subject,
    /// Further results, for readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// True for a number that is only reported.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    report: bool,
    /// Reason why the number is only reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Verdict, or `None` for a number that is only reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<bool>,
    /// Reason of a known failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<String>,
    /// Command that shows the reason of a known failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<String>,
    /// Full name of the entry that the check belongs to.
    #[serde(skip)]
    entry: String,
}

fn in_words<S: Serializer>(tolerance: &Tolerance, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(tolerance)
}

impl Check {
    /// Creates a check of one cell of a table of numbers: within 25%. [`cells`] adds the check that
    /// nine in ten cells are within 10%.
    #[must_use]
    pub fn cell(what: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Check {
        Check::judged(what, unit, Some(paper), ours, Tolerance::Cell)
    }

    /// Creates a check of a number that the paper's text rounds: within `percent` per cent.
    #[must_use]
    pub fn about(
        what: impl Into<String>,
        unit: &'static str,
        paper: f64,
        ours: f64,
        percent: u32,
    ) -> Check {
        Check::judged(what, unit, Some(paper), ours, Tolerance::About(percent.into()))
    }

    /// Creates a check of a count for which lower is better: at most `percent` per cent above the
    /// paper's.
    #[must_use]
    pub fn count_or_fewer(what: impl Into<String>, paper: f64, ours: f64, percent: u32) -> Check {
        Check::judged(what, "", Some(paper), ours, Tolerance::OrFewer(percent.into()))
    }

    /// Creates a check of a number that must lie in a range.
    #[must_use]
    pub fn within(
        what: impl Into<String>,
        unit: &'static str,
        range: std::ops::RangeInclusive<f64>,
        ours: f64,
    ) -> Check {
        let tolerance = Tolerance::Within(*range.start(), *range.end());
        Check::judged(what, unit, None, ours, tolerance)
    }

    /// Creates a check for an «at most» of the paper: ours is not above it, with 5% grace.
    #[must_use]
    pub fn at_most(what: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Check {
        let tolerance = Tolerance::Bound(Side::AtMost, paper, Grace::Some);
        Check::judged(what, unit, Some(paper), ours, tolerance)
    }

    /// Creates a check for an «at least» of the paper: ours is not below it, with 5% grace.
    #[must_use]
    pub fn at_least(what: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Check {
        let tolerance = Tolerance::Bound(Side::AtLeast, paper, Grace::Some);
        Check::judged(what, unit, Some(paper), ours, tolerance)
    }

    /// Creates a check of a number against a limit, without grace.
    #[must_use]
    pub fn limit(
        what: impl Into<String>,
        unit: &'static str,
        side: Side,
        limit: f64,
        ours: f64,
    ) -> Check {
        Check::judged(what, unit, None, ours, Tolerance::Bound(side, limit, Grace::None))
    }

    /// Creates a check of a statement in the text, either an inequality or the shape of a row. It
    /// is exact; `ours` states in numbers what was found.
    #[must_use]
    pub fn shape(
        what: impl Into<String>,
        paper: impl Into<Figure>,
        ours: impl Into<Figure>,
        pass: bool,
    ) -> Check {
        let (paper, ours) = (Some(paper.into()), ours.into());
        Check::made(what.into(), "", (paper, ours), Tolerance::Shape(None), Some(pass))
    }

    /// Creates a check that only reports a number beside the paper's, with the reason.
    #[must_use]
    pub fn report(
        what: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        ours: impl Into<Figure>,
        reason: &str,
    ) -> Check {
        let figures = (paper.map(Figure::Number), ours.into());
        let made = Check::made(what.into(), unit, figures, Tolerance::Report, None);
        Check { report: true, reason: Some(reason.to_owned()), ..made }
    }

    fn judged(
        what: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        ours: f64,
        tolerance: Tolerance,
    ) -> Check {
        let pass = tolerance.allows(paper, ours);
        let figures = (paper.map(Figure::Number), Figure::Number(ours));
        Check::made(what.into(), unit, figures, tolerance, pass)
    }

    fn made(
        what: String,
        unit: &'static str,
        (paper, ours): (Option<Figure>, Figure),
        tolerance: Tolerance,
        pass: Option<bool>,
    ) -> Check {
        let (given, subject, report, reason) = (None, Subject::Ours, false, None);
        let (note, known, proof, entry) = (None, None, None, String::new());
        Check {
            what,
            paper,
            ours,
            unit,
            tolerance,
            given,
            subject,
            note,
            report,
            reason,
            pass,
            known,
            proof,
            entry,
        }
    }

    /// Names the slack that the comparison of a statement allows.
    #[must_use]
    pub fn with_slack(mut self, slack: &str) -> Check {
        if let Tolerance::Shape(of) = &mut self.tolerance {
            *of = Some(slack.to_owned());
        }
        self
    }

    /// Sets the figure that the paper prints if it differs from the limit, or beside a report.
    #[must_use]
    pub fn beside(mut self, paper: impl Into<Figure>) -> Check {
        // Bounds and ranges have a limit of their own, and reports none; others keep their figure.
        let has_own = matches!(self.tolerance, Tolerance::Bound(..) | Tolerance::Within(..));
        if has_own || self.report {
            self.paper = Some(paper.into());
        }
        self
    }

    /// Marks the result as that of one of the paper's algorithms.
    #[must_use]
    pub fn published(mut self) -> Check {
        self.subject = Subject::Published;
        self
    }

    /// Records that the check restates a number that the model was given.
    #[must_use]
    pub fn given(mut self, number: &'static str) -> Check {
        self.given = Some(number);
        self
    }

    /// Replaces the result by the reason why there is none. A judged check then fails: what was not
    /// measured has not passed.
    #[must_use]
    pub fn not_measured(mut self, why: &str) -> Check {
        self.ours = Figure::Text(format!("{NOT_MEASURED}: {why}"));
        self.pass = self.pass.map(|_| false);
        self
    }

    /// Adds a note with further results; an empty note is none.
    #[must_use]
    pub fn noting(mut self, note: impl Into<String>) -> Check {
        self.note = Some(note.into()).filter(|note: &String| !note.is_empty());
        self
    }

    /// Returns the tolerance in words, with the reason if the check is no result.
    #[must_use]
    pub fn terms(&self) -> String {
        match (self.given, &self.reason) {
            (Some(number), _) => format!("{}; given, no result: {number}", self.tolerance),
            (None, Some(reason)) => format!("{}: {reason}", self.tolerance),
            (None, None) => self.tolerance.to_string(),
        }
    }

    /// Returns the permitted difference from the paper.
    #[must_use]
    pub fn tolerance(&self) -> &Tolerance {
        &self.tolerance
    }

    /// Returns the algorithm whose result is compared.
    #[must_use]
    pub fn subject(&self) -> Subject {
        self.subject
    }

    /// Returns the number of a model that was set to the paper's, if there is one.
    #[must_use]
    pub fn given_number(&self) -> Option<&'static str> {
        self.given
    }

    /// Returns the reason why the number is only reported, if it is.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the note with further results.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns true for a number that is only reported.
    #[must_use]
    pub fn is_report(&self) -> bool {
        self.report
    }

    /// Returns whether the result is within its tolerance, or `None` if it is only reported.
    #[must_use]
    pub fn pass(&self) -> Option<bool> {
        self.pass
    }

    /// Returns true if the check is judged and does not pass.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.pass == Some(false)
    }

    /// Returns the reason of a known failure.
    #[must_use]
    pub fn known(&self) -> Option<&str> {
        self.known.as_deref()
    }

    /// Returns the command that shows the reason of a known failure.
    #[must_use]
    pub fn proof(&self) -> Option<&str> {
        self.proof.as_deref()
    }

    /// Returns the full name of the entry that the check belongs to.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.entry
    }

    pub(super) fn set_entry(&mut self, entry: &str) {
        entry.clone_into(&mut self.entry);
    }

    pub(super) fn set_known(&mut self, reason: &str, proof: Option<String>) {
        self.known = Some(reason.to_owned());
        self.proof = proof;
    }

    /// Returns the verdict in one word of at most six letters.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.pass {
            None => "report",
            Some(true) => "pass",
            Some(false) => "FAIL",
        }
    }

    fn is_near(&self) -> bool {
        self.ratio().is_some_and(|ratio| (ratio - 1.0).abs() <= CELL_NEAR)
    }

    /// Returns ours divided by the paper's figure if both are numbers.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let paper = self.paper.as_ref().and_then(Figure::number).filter(|paper| *paper != 0.0)?;
        self.ours.number().map(|ours| ours / paper)
    }
}

/// Returns the cells of one table, followed by the check that nine in ten of them are within 10%.
#[must_use]
pub fn cells(mut cells: Vec<Check>) -> Vec<Check> {
    cells.push(share_near("share of the cells within 10%", &cells));
    cells
}

/// Creates the check that nine in ten of `cells` are within 10%; its note names the others.
pub(super) fn share_near(what: &str, cells: &[Check]) -> Check {
    let share = cells.iter().filter(|check| check.is_near()).count() as f64;
    let share = share / cells.len().max(1) as f64;
    let check = Check::limit(what, "", Side::AtLeast, CELLS_NEAR_SHARE, share);
    match far(cells).join("; ") {
        none if none.is_empty() => check,
        others => check.noting(format!("the others: {others}")),
    }
}

/// Returns the names of the cells that are not within 10%.
pub(super) fn far(cells: &[Check]) -> Vec<&str> {
    cells.iter().filter(|check| !check.is_near()).map(|check| check.what.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_was_given_says_so_wherever_it_is_printed() {
        let check = Check::about("peak", "GB/s", 7.0, 7.0, 15).given("the model's read_bytes_s");
        assert_eq!(check.terms(), "about 15%; given, no result: the model's read_bytes_s");
        let json = serde_json::to_value(&check).expect("json");
        assert_eq!(json["given"], "the model's read_bytes_s");
        let measured = Check::about("x", "ns", 1.0, 1.0, 15);
        assert!(serde_json::to_value(&measured).expect("json").get("given").is_none());
    }

    #[test]
    fn a_report_has_no_verdict_whatever_its_words_are() {
        let report = Check::report("x", "ns", Some(1.0), 9.0, "no number in the text");
        assert!(report.pass().is_none() && report.verdict() == "report" && !report.fails());
        let json = serde_json::to_value(&report).expect("json");
        assert_eq!((&json["report"], &json["tolerance"]), (&true.into(), &"report".into()));
        assert_eq!(json["reason"], "no number in the text");
        assert!(json.get("pass").is_none());
        let check = Check::shape("x", "y", "z", true).with_slack("report");
        assert_eq!(check.verdict(), "pass");
        assert!(serde_json::to_value(&check).expect("json").get("report").is_none());
    }

    #[test]
    fn what_was_not_measured_fails_unless_it_is_only_reported() {
        let check = Check::limit("x", "", Side::Below, 1.0, 0.5).not_measured("no drive");
        assert!(check.fails() && check.terms() == "below 1");
        assert_eq!(check.ours, Figure::Text("not measured: no drive".to_owned()));
        let report = Check::report("x", "us", None, 1.0, "why").not_measured("no drive");
        assert_eq!((report.pass(), report.verdict()), (None, "report"));
    }

    #[test]
    fn slack_is_for_statements_and_what_is_beside_for_limits() {
        let bound = Check::at_most("x", "", 1.0, 1.2).with_slack("a lot").beside(4.0);
        assert!(bound.fails() && bound.terms() == "at most 1, 5% grace");
        assert_eq!(bound.paper, Some(Figure::Number(4.0)));
        let about = Check::about("x", "", 1.0, 1.2, 5).beside(1.2);
        assert_eq!(about.paper, Some(Figure::Number(1.0)));
    }

    #[test]
    fn one_cell_in_ten_may_be_farther() {
        let table = |far: usize| {
            let cell = |i| Check::cell("x", "ns", 100.0, if i < far { 120.0 } else { 105.0 });
            cells((0..10).map(cell).collect())
        };
        assert!(!table(1).iter().any(Check::fails));
        assert!(table(2).iter().any(Check::fails));
    }
}
