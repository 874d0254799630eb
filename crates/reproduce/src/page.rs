//! Page of results: an overview of all tables and figures, the papers' errors and what is
//! contradicted here, then each entry with its drawings, its checks and the command that runs it
//! again.

use entresol_measure::report::svg::{self, Pair};
use entresol_measure::report::{Page, Table};

use crate::check::{Check, Figure, NOT_MEASURED};
use crate::outcome::{Reproduction, Reproductions};
use crate::statements::Statements;
use crate::{Entry, measured};

/// Number of pairs up to which they are not folded away.
const PAIRS_SHOWN_MAX: usize = 12;

impl Reproduction {
    /// Returns the verdict on all checks: `FAIL as known` if none fails beside the known ones, and
    /// `given` if every check that is judged restates a number that a model was given.
    fn verdict(&self) -> &'static str {
        let is_known = |check: &Check| !check.fails() || check.known().is_some();
        let judged = || self.checks.iter().filter(|check| !check.is_report());
        let is_given = judged().all(|check| check.given_number().is_some());
        match self.pass {
            false if judged().next().is_none() => "FAIL: nothing judged",
            false if self.differences.is_empty() && judged().all(is_known) => "FAIL as known",
            false => "FAIL",
            true if is_given => "given",
            true => "pass",
        }
    }

    /// Returns the check that decides: the first that fails, else the first that compares a result
    /// with a number of the paper, else the first that is judged.
    fn deciding(&self) -> Option<&Check> {
        let judged = || self.checks.iter().filter(|check| !check.is_report());
        let compares = |check: &&Check| check.paper.is_some() && check.given_number().is_none();
        let failing = judged().find(|check| check.fails());
        failing.or_else(|| judged().find(compares)).or_else(|| judged().next())
    }

    /// Adds the drawings to a page: the entry's own, then all numbers that the paper prints beside
    /// ours. Where there is none, the reason stands there.
    fn draw(&self, page: &mut Page) {
        self.drawings.iter().for_each(|drawing| page.drawing(drawing));
        let pairs: Vec<Pair> = self.checks.iter().filter_map(pair).collect();
        let drawing = || svg::pairs("The paper's numbers, and ours by their ratio to them", &pairs);
        match pairs.len() {
            0 if self.drawings.is_empty() => page.note(&self.why_nothing_is_drawn()),
            0 => {}
            1..=PAIRS_SHOWN_MAX => page.drawing(&drawing()),
            many => {
                page.folded_drawing(&format!("{many} numbers of the paper, and ours"), &drawing())
            }
        }
    }

    fn why_nothing_is_drawn(&self) -> String {
        let texts = self.checks.iter().map(|check| check.ours.text());
        let mut not_measured = texts.filter(|text| text.starts_with(NOT_MEASURED));
        let why = || "the paper prints no number for it, and ours are statements".to_owned();
        not_measured.next().unwrap_or_else(|| format!("No drawing: {}.", why()))
    }

    fn overview(&self) -> Vec<String> {
        let count = |is: fn(&Check) -> bool| self.checks.iter().filter(|it| is(it)).count();
        let is_given = |it: &Check| it.given_number().is_some();
        let deciding = self.deciding();
        let paper = deciding.and_then(|check| check.paper.as_ref());
        let with_unit = |check: &Check| format!("{} {}", check.ours.text(), check.unit);
        vec![
            self.name.clone(),
            self.verdict().to_owned(),
            deciding.map_or(String::new(), |check| check.what.clone()),
            paper.map_or("-".to_owned(), Figure::text),
            deciding.map_or(String::new(), |check| with_unit(check).trim_end().to_owned()),
            count(|it| it.pass() == Some(true)).to_string(),
            count(Check::fails).to_string(),
            count(is_given).to_string(),
            count(Check::is_report).to_string(),
        ]
    }
}

impl Reproductions {
    /// Renders the results as a page with drawings. `about` are sentences on the run: version,
    /// machine, date.
    #[must_use]
    pub fn page(&self, about: &[String]) -> Page {
        let mut page = Page::new("The papers' tables and figures, theirs beside ours");
        page.note(
            "Everything here ran on models of the devices, in virtual time, unless its scenario \
             says otherwise.",
        );
        about.iter().for_each(|sentence| page.note(sentence));
        page.note(self.summary().trim_end());
        let columns = [
            "table or figure",
            "verdict",
            "first check that fails, or that compares",
            "paper",
            "ours",
            "passed",
            "failed",
            "of both given",
            "reports",
        ];
        let mut overview = Table::new("All tables and figures", &columns);
        self.iter().for_each(|one| overview.row(one.overview()));
        page.table(&overview);
        let apart = measured().filter(|entry| !self.ran(&entry.full_name()));
        let apart: Vec<String> = apart.map(Entry::full_name).collect();
        if !apart.is_empty() {
            let what = "Not run, since they are measured in real time and only if they are named";
            page.note(&format!("{what}: {}.", apart.join(", ")));
        }
        Statements::built_in().put(&mut page, self);
        for one in self.iter() {
            page.section(&format!("{} · {}", one.name, one.verdict()));
            page.note(&self.command(&one.name));
            one.draw(&mut page);
            page.table(&one.table());
            for sentence in one.remarks().iter().chain(&one.scenario) {
                page.note(sentence);
            }
        }
        page
    }

    /// Returns the command that runs an entry again.
    fn command(&self, name: &str) -> String {
        let full = if self.settings().full_scale { " --full-scale" } else { "" };
        format!("entresol reproduce {name} --seed {}{full}", self.settings().seed)
    }
}

/// Returns the two numbers of a check, or `None` if the paper or we have none.
fn pair(check: &Check) -> Option<Pair> {
    let paper = check.paper.as_ref().and_then(Figure::number).filter(|paper| *paper > 0.0)?;
    let given = check.given_number().map_or("", |_| " (given to the model)");
    Some(Pair {
        label: format!("{}{given}", check.what),
        ours: check.ours.number().filter(|ours| *ours > 0.0)?,
        paper,
        unit: check.unit,
        fails: check.fails(),
    })
}

#[cfg(test)]
mod tests {
    use crate::tests::made;
    use crate::{Check, Settings};

    #[test]
    fn the_overview_says_what_failed_first_and_each_entry_its_command() {
        let checks = vec![
            Check::cell("8 B", "ns", 200.0, 201.0).given("the model"),
            Check::cell("16 B", "ns", 200.0, 203.0),
            Check::about("32 B", "ns", 300.0, 900.0, 10),
            Check::report("r", "us", Some(4.0), 5.0, "a reason"),
        ];
        let all = made("000-table3", checks, Settings { seed: 7, ..Settings::default() });
        let html = all.page(&["on a machine".to_owned()]).render();
        let overview = "<td>000-table3</td><td class=\"fails\">FAIL</td><td>32 B</td>\
                        <td>300</td><td>900 ns</td><td>2</td><td>1</td><td>1</td><td>1</td>";
        assert!(html.contains(overview), "{html}");
        assert!(html.contains("entresol reproduce 000-table3 --seed 7") && html.contains("on a m"));
    }

    #[test]
    fn numbers_of_the_paper_are_drawn_beside_ours_or_the_reason_stands_there() {
        let html = |name: &str, checks| made(name, checks, Settings::default()).page(&[]).render();
        let about = |what: &str| Check::about(what, "us", 4.0, 5.0, 10);
        let drawn = html("000-table3", vec![about("a"), Check::report("r", "", None, 1.0, "why")]);
        assert_eq!(drawn.matches("<figure>").count(), 1);
        assert!(drawn.contains(">5.00 (paper 4.00) us<") && !drawn.contains("<summary>"));
        let many: Vec<Check> = (0..13).map(|number| about(&number.to_string())).collect();
        assert!(html("000-table3", many).contains("<summary>13 numbers of the paper, and ours<"));
        let none = Check::report("r", "us", None, 1.0, "why").not_measured("no drive");
        assert!(html("004-fig4", vec![none]).contains("<p class=\"note\">not measured: no drive<"));
    }

    #[test]
    fn what_only_restates_a_model_is_given_and_what_compares_comes_first() {
        let given = |what: &str| Check::cell(what, "ns", 200.0, 201.0).given("the model");
        let verdict = |checks| {
            let mut all = made("000-table3", checks, Settings::default());
            all.iter_mut().for_each(|one| {
                one.differences.clear();
                one.pass = true;
            });
            let row = all.iter().next().expect("a result").overview();
            (row[1].clone(), row[2].clone())
        };
        let pair = |first: &str, second: &str| (first.to_owned(), second.to_owned());
        assert_eq!(verdict(vec![given("a"), given("b")]), pair("given", "a"));
        let compared = Check::about("b", "ns", 300.0, 301.0, 10);
        assert_eq!(verdict(vec![given("a"), compared]), pair("pass", "b"));
    }
}
