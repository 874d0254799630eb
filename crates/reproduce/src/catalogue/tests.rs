//! Tests of the catalogue: its structure, and that every deviation of a check is detected.

use super::*;
use crate::{Outcome, Settings, Side, everything};

fn run(name: &str) -> Outcome {
    let entry = everything().find(|entry| entry.full_name() == name).expect("an entry");
    (entry.run)(&Settings::default())
}

#[test]
fn every_entry_is_listed_and_every_listed_one_is_there() {
    let listed = Catalogue::built_in();
    for entry in everything() {
        let found = listed.entry(&entry.full_name());
        let found = found.unwrap_or_else(|| panic!("{} is not listed", entry.full_name()));
        assert!(found.checks.iter().any(Listed::is_judged), "{} judges nothing", found.name);
    }
    for entry in &listed.entries {
        let is_there = everything().any(|it| it.full_name() == entry.name);
        assert!(is_there, "{} is listed and not there", entry.name);
        assert!(!entry.checks.is_empty(), "{}", entry.name);
        for check in &entry.checks {
            let named = format!("{}, '{}'", entry.name, check.what);
            let needs = matches!(
                check.tolerance,
                Tolerance::Cell | Tolerance::About(_) | Tolerance::OrFewer(_)
            );
            let is_number = matches!(check.paper, Some(Figure::Number(_)) | None);
            assert!(
                !needs || is_number && check.paper.is_some() || check.missing.is_some(),
                "{named}"
            );
            let reasons = [&check.reason, &check.missing, &check.given];
            assert!(reasons.into_iter().flatten().all(|it| !it.trim().is_empty()), "{named}");
        }
    }
}

/// Checks of the papers that do not exist yet. A line leaves this list when its check is built, and
/// none comes to it.
const MISSING: &[(&str, &str)] = &[];
/// Checks that are reports: the paper prints no number, or leaves open what to measure.
const REPORTS: usize = 177;

#[test]
fn no_check_more_is_missing_or_a_report() {
    let listed = Catalogue::built_in();
    let missing: Vec<_> = listed.missing().map(|(name, of, _)| (name, of)).collect();
    assert_eq!(missing, MISSING);
    assert!(listed.missing().all(|(_, _, why)| !why.is_empty()));
    let checks = listed.entries.iter().flat_map(|entry| &entry.checks);
    assert_eq!(checks.filter(|it| it.tolerance == Tolerance::Report).count(), REPORTS);
}

/// Returns a changed copy of a check.
fn with(check: &Check, change: impl Fn(&mut Check)) -> Check {
    let mut changed = check.clone();
    change(&mut changed);
    changed
}

#[test]
fn a_bent_check_is_seen() {
    let listed = Catalogue::built_in();
    // The entries cover every kind: cells, ranges, limits, «about», statements, given numbers,
    // reports.
    for name in ["000-table3", "000-table7", "000-fig8", "000-fig11", "004-fig4", "004-fig6"] {
        let whole = run(name).checks;
        assert_eq!(listed.differences(name, &whole), [""; 0], "{name}");
        for at in 0..whole.len() {
            let bent = |bend: &dyn Fn(&Check) -> Option<Check>| {
                let mut checks = whole.clone();
                match bend(&checks[at]) {
                    Some(check) => checks[at] = check,
                    None => drop(checks.remove(at)),
                }
                let what = &whole[at].what;
                let seen = listed.differences(name, &checks);
                assert!(seen.iter().any(|it| it.contains(what.as_str())), "{name}, '{what}'");
            };
            let (what, unit) = (whole[at].what.clone(), whole[at].unit);
            let ours = whole[at].ours.number().unwrap_or(1.0);
            // The check vanishes or has another name.
            bent(&|_| None);
            bent(&|check| Some(with(check, |it| it.what.push_str(", roughly"))));
            // The check becomes a report, or a report with another reason.
            bent(&|_| Some(Check::report(&what, unit, None, ours, "it is hard")));
            // The tolerance is widened.
            bent(&|_| Some(Check::about(&what, unit, 1.0, ours, 90)));
            bent(&|_| Some(Check::within(&what, unit, 0.0..=1e12, ours)));
            bent(&|_| Some(Check::limit(&what, unit, Side::AtMost, 1e12, ours)));
            bent(&|_| Some(Check::shape(&what, "anything", "something", true)));
            bent(&|_| Some(Check::shape(&what, "anything", "x", true).with_slack("a lot")));
            // The paper's number, the unit, the subject or the given number differs.
            bent(&|check| Some(with(check, |it| it.paper = Some((ours + 0.5).into()))));
            bent(&|check| Some(with(check, |it| it.unit = "furlongs")));
            bent(&|check| Some(check.clone().published()));
            bent(&|check| Some(check.clone().given("the answer")));
            // The check occurs twice.
            let mut twice = whole.clone();
            twice.push(whole[at].clone());
            assert!(!listed.differences(name, &twice).is_empty());
        }
        let mut more = whole.clone();
        more.push(Check::shape("one more", "a", "b", true));
        assert_eq!(listed.differences(name, &more), ["'one more' is not listed"]);
    }
}

#[test]
fn a_difference_fails_an_entry_whose_checks_all_pass() {
    let mut checks = run("004-fig6").checks;
    let made = |checks| {
        let all = crate::tests::made("004-fig6", checks, Settings::default());
        (all.pass(), all.text())
    };
    assert!(made(checks.clone()).0);
    checks.pop();
    let (pass, text) = made(checks);
    assert!(!pass && text.contains("not as in the catalogue") && text.contains("has vanished"));
}

#[test]
fn an_entry_that_is_not_listed_differs() {
    let checks = run("004-fig6").checks;
    assert_eq!(Catalogue::built_in().differences("004-fig66", &checks).len(), 1);
}

#[test]
fn rows_stand_for_several_checks() {
    let text = r#"
        [lists]
        sizes = ["8 B", "16 B"]
        [[entry]]
        name = "x"
        check = [
          { what = "{}, random", each = "sizes", paper = [1.0, 2.5], tolerance = "cell" },
          { what = "y", tolerance = "report", reason = "why" },
        ]
    "#;
    let parsed = Catalogue::parse(text).expect("a catalogue");
    let checks = &parsed.entries[0].checks;
    let names: Vec<&str> = checks.iter().map(|check| check.what.as_str()).collect();
    assert_eq!(names, ["8 B, random", "16 B, random", "y"]);
    assert_eq!(checks[1].paper, Some(Figure::Number(2.5)));
}

#[test]
fn mistakes_in_the_file_are_named() {
    for (row, part) in [
        (r#"{ what = "{}", tolerance = "cell" }"#, "{}"),
        (r#"{ what = "a", each = ["b"], tolerance = "cell" }"#, "{}"),
        (r#"{ what = "{}", each = "none", tolerance = "cell" }"#, "no list none"),
        (r#"{ what = "{}", each = ["a"], paper = [1.0, 2.0], tolerance = "cell" }"#, "as many"),
        (r#"{ what = "a", tolerance = "roughly" }"#, "no tolerance"),
        (r#"{ what = "a", tolerance = "report" }"#, "has a reason"),
        (r#"{ what = "a", tolerance = "exact", reason = "b" }"#, "has a reason"),
        (r#"{ what = "a", tolerance = "exact" }, { what = "a", tolerance = "cell" }"#, "twice"),
        (r#"{ what = "a", tolerance = "exact", papre = 1.0 }"#, "papre"),
    ] {
        let text = format!("[[entry]]\nname = \"x\"\ncheck = [{row}]\n");
        let error = Catalogue::parse(&text).expect_err("a mistake");
        assert!(error.contains(part), "{row}: {error}");
    }
}
