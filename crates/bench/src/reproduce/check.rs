//! One comparison of the paper's number or statement with ours, at a tolerance that it names.

use serde::Serialize;

use crate::report::table::number;

/// Grace on bounds: the right side, or this much beyond.
const BOUND_GRACE: f64 = 0.05;
/// A cell of a table is near when it is within this.
const CELL_NEAR: f64 = 0.10;
/// No cell may be farther away than this.
const CELL_FAR: f64 = 0.25;
/// The share of a table's cells that must be near.
const CELLS_NEAR_SHARE: f64 = 0.9;

/// A number, or a statement where the paper prints none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// A number in the check's unit.
    Number(f64),
    /// A statement in words.
    Text(String),
}

impl Figure {
    /// As it stands in a table.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Figure::Number(value) => number(*value),
            Figure::Text(text) => text.clone(),
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

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// What the paper prints; none if it is a check of our own.
    pub paper: Option<Figure>,
    /// What came out here.
    pub ours: Figure,
    /// The unit of both, empty for statements.
    pub unit: &'static str,
    /// How far ours may be off.
    pub tolerance: String,
    /// The number of a model that the paper's was put into: such a check compares the paper with
    /// itself and is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<&'static str>,
    /// Whether it is a number beside the paper's that never fails: `tolerance` has the reason.
    #[serde(rename = "report", skip_serializing_if = "std::ops::Not::not")]
    pub is_report: bool,
    /// Whether it is within.
    pub pass: bool,
}

impl Check {
    /// One cell of a table of numbers: within 25%; [`cells`] adds that nine in ten are within 10%.
    #[must_use]
    pub fn cell(what: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Check {
        let tolerance = "10%, one cell in ten 25%".to_owned();
        Check::number(what, unit, paper, ours, tolerance, (ours / paper - 1.0).abs() <= CELL_FAR)
    }

    /// A number that the paper's text rounds: within so many per cent.
    #[must_use]
    pub fn about(
        what: impl Into<String>,
        unit: &'static str,
        paper: f64,
        ours: f64,
        percent: u32,
    ) -> Check {
        let pass = (ours / paper - 1.0).abs() <= f64::from(percent) / 100.0;
        Check::number(what, unit, paper, ours, format!("{percent}%"), pass)
    }

    /// A count of ours that is better when it is lower: at most so many per cent above.
    #[must_use]
    pub fn count_or_fewer(what: impl Into<String>, paper: f64, ours: f64, percent: u32) -> Check {
        let pass = ours <= paper * (1.0 + f64::from(percent) / 100.0);
        Check::number(what, "", paper, ours, format!("{percent}%, or fewer"), pass)
    }

    /// A number that must lie in a range that the text gives.
    #[must_use]
    pub fn within(
        what: impl Into<String>,
        unit: &'static str,
        range: std::ops::RangeInclusive<f64>,
        ours: f64,
    ) -> Check {
        let words = format!("{} to {}", number(*range.start()), number(*range.end()));
        Check {
            what: what.into(),
            paper: Some(Figure::Text(words.clone())),
            ours: ours.into(),
            unit,
            tolerance: words,
            given: None,
            is_report: false,
            pass: range.contains(&ours),
        }
    }

    /// «At most»: ours is not above the paper's, with 5% grace.
    #[must_use]
    pub fn at_most(what: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Check {
        let pass = ours <= paper * (1.0 + BOUND_GRACE);
        Check::number(what, unit, paper, ours, "at most, 5% grace".to_owned(), pass)
    }

    /// «At least»: ours is not below the paper's, with 5% grace.
    #[must_use]
    pub fn at_least(what: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Check {
        let pass = ours >= paper * (1.0 - BOUND_GRACE);
        Check::number(what, unit, paper, ours, "at least, 5% grace".to_owned(), pass)
    }

    /// A statement of the text: an inequality or the shape of a row, exact. `ours` says in numbers
    /// what was found.
    #[must_use]
    pub fn shape(
        what: impl Into<String>,
        paper: impl Into<Figure>,
        ours: impl Into<Figure>,
        pass: bool,
    ) -> Check {
        Check {
            what: what.into(),
            paper: Some(paper.into()),
            ours: ours.into(),
            unit: "",
            tolerance: "exact".to_owned(),
            given: None,
            is_report: false,
            pass,
        }
    }

    /// The same check, saying what slack its comparison allows beyond the statement.
    #[must_use]
    pub fn with_slack(mut self, slack: &str) -> Check {
        slack.clone_into(&mut self.tolerance);
        self
    }

    /// The same check, saying that it restates a number that the model was given.
    #[must_use]
    pub fn given(mut self, number: &'static str) -> Check {
        self.given = Some(number);
        self
    }

    /// The tolerance, and whether the check is a result at all.
    #[must_use]
    pub fn terms(&self) -> String {
        match self.given {
            Some(number) => format!("{}; given, no result: {number}", self.tolerance),
            None => self.tolerance.clone(),
        }
    }

    /// How it came out, in a word of four letters or more.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.pass {
            _ if self.is_report => "report",
            true => "pass",
            false => "FAIL",
        }
    }

    /// A number beside the paper's that never fails, and why it does not.
    #[must_use]
    pub fn report(
        what: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        ours: f64,
        reason: &str,
    ) -> Check {
        Check {
            what: what.into(),
            paper: paper.map(Figure::Number),
            ours: ours.into(),
            unit,
            tolerance: format!("reported only: {reason}"),
            given: None,
            is_report: true,
            pass: true,
        }
    }

    fn number(
        what: impl Into<String>,
        unit: &'static str,
        paper: f64,
        ours: f64,
        tolerance: String,
        pass: bool,
    ) -> Check {
        let (paper, ours) = (Some(Figure::Number(paper)), Figure::Number(ours));
        let (what, given, is_report) = (what.into(), None, false);
        Check { what, paper, ours, unit, tolerance, given, is_report, pass }
    }

    fn is_near(&self) -> bool {
        self.ratio().is_some_and(|ratio| (ratio - 1.0).abs() <= CELL_NEAR)
    }

    /// Ours as a share of the paper's, where both are numbers.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match (&self.paper, &self.ours) {
            (Some(Figure::Number(paper)), Figure::Number(ours)) if *paper != 0.0 => {
                Some(ours / paper)
            }
            _ => None,
        }
    }
}

/// The cells of one table, and behind them the check that nine in ten are within 10%.
#[must_use]
pub fn cells(mut cells: Vec<Check>) -> Vec<Check> {
    cells.push(share_near("share of the cells within 10%", &cells));
    cells
}

/// The check that nine in ten of these are within 10%; it names the others.
pub(super) fn share_near(what: &str, cells: &[Check]) -> Check {
    let share = cells.iter().filter(|check| check.is_near()).count() as f64;
    let share = share / cells.len().max(1) as f64;
    let others = far(cells).join("; ");
    let others = if others.is_empty() { others } else { format!("; the others: {others}") };
    Check {
        what: format!("{what}{others}"),
        paper: None,
        ours: share.into(),
        unit: "",
        tolerance: format!("at least {CELLS_NEAR_SHARE}"),
        given: None,
        is_report: false,
        pass: share >= CELLS_NEAR_SHARE,
    }
}

/// The cells that are not within 10%, by name.
pub(super) fn far(cells: &[Check]) -> Vec<&str> {
    cells.iter().filter(|check| !check.is_near()).map(|check| check.what.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_kept_at_their_edges() {
        assert!(Check::cell("x", "ns", 100.0, 125.0).pass);
        assert!(!Check::cell("x", "ns", 100.0, 126.0).pass);
        assert!(Check::about("x", "ns", 100.0, 85.1, 15).pass);
        assert!(!Check::about("x", "ns", 100.0, 84.0, 15).pass);
        assert!(Check::at_most("x", "ns", 100.0, 104.9).pass);
        assert!(!Check::at_most("x", "ns", 100.0, 105.1).pass);
        assert!(Check::at_least("x", "ns", 100.0, 95.1).pass);
        assert!(!Check::at_least("x", "ns", 100.0, 94.9).pass);
        assert!(!Check::within("x", "ns", 1.0..=2.0, f64::NAN).pass);
        assert!(!Check::cell("x", "ns", 100.0, f64::NAN).pass);
    }

    #[test]
    fn what_a_model_was_given_says_so_wherever_it_is_printed() {
        let check = Check::about("peak", "GB/s", 7.0, 7.0, 15).given("the model's read_bytes_s");
        assert_eq!(check.terms(), "15%; given, no result: the model's read_bytes_s");
        let json = serde_json::to_value(&check).expect("json");
        assert_eq!(json["given"], "the model's read_bytes_s");
        let measured = Check::about("x", "ns", 1.0, 1.0, 15);
        assert_eq!(measured.terms(), "15%");
        assert!(serde_json::to_value(&measured).expect("json").get("given").is_none());
    }

    #[test]
    fn a_report_is_one_whatever_its_words_are() {
        let report = Check::report("x", "ns", Some(1.0), 9.0, "no number in the text");
        assert!(report.pass && report.verdict() == "report");
        assert_eq!(serde_json::to_value(&report).expect("json")["report"], true);
        let check = Check::shape("x", "y", "z", true).with_slack("reported only: in words");
        assert_eq!(check.verdict(), "pass");
        assert!(serde_json::to_value(&check).expect("json").get("report").is_none());
    }

    #[test]
    fn one_cell_in_ten_may_be_farther() {
        let table = |far: usize| {
            let cell = |i| Check::cell("x", "ns", 100.0, if i < far { 120.0 } else { 105.0 });
            cells((0..10).map(cell).collect())
        };
        assert!(table(1).iter().all(|check| check.pass));
        assert!(!table(2).iter().all(|check| check.pass));
    }
}
