//! Tests of the list of known failures.

use super::*;
use crate::check::RUN_FAILED;
use crate::tests::made;
use crate::{Catalogue, Settings, Side};

const LIST: &str = r#"
    [[failure]]
    entry = "000-table3"
    check = "a limit"
    ours = 1.877
    reason = "so it is"
    proof = "slow_it_is_so"
    [[failure]]
    entry = "000-table3"
    check = "a statement"
    ours = "1 2 2"
    reason = "so it is"
"#;

fn limit(ours: f64) -> Check {
    Check::limit("a limit", "", Side::AtLeast, 2.0, ours)
}

fn statement(ours: &str, pass: bool) -> Check {
    Check::shape("a statement", "rises", ours, pass)
}

/// Returns problems and notes. The problems about the catalogue, which lacks these checks, are left
/// out.
fn judged(checks: Vec<Check>) -> (Vec<String>, Vec<String>) {
    let all = made("000-table3", checks, Settings::default());
    let judgement = Known::parse(LIST).expect("a list").judge(&all).expect("the usual scale");
    let (catalogue, problems): (Vec<_>, Vec<_>) =
        judgement.problems.into_iter().partition(|it| it.contains("not as in the catalogue"));
    assert!(!catalogue.is_empty(), "what is not as in the catalogue is a problem as well");
    (problems, judgement.notes)
}

fn only(found: &[String], part: &str) {
    assert!(matches!(found, [one] if one.contains(part)), "{found:?}");
}

#[test]
fn what_fails_as_it_did_is_accepted() {
    let (problems, notes) = judged(vec![limit(1.8772), statement("1 2 2", false)]);
    assert!(problems.is_empty() && notes.is_empty(), "{problems:?} {notes:?}");
}

#[test]
fn what_passes_has_to_come_off_the_list() {
    let (problems, _) = judged(vec![limit(2.1), statement("1 2 2", false)]);
    only(&problems, "now passes: take it off the list");
}

#[test]
fn what_the_lists_machine_could_not_measure_may_pass_on_another() {
    let list = r#"
        [[failure]]
        entry = "000-table3"
        check = "a statement"
        ours = "not measured: no polling"
        reason = "so it is"
    "#;
    let known = Known::parse(list).expect("a list");
    let judged = |check: Check| {
        let all = made("000-table3", vec![check], Settings::default());
        let judgement = known.judge(&all).expect("the usual scale");
        let mut problems = judgement.problems;
        problems.retain(|it| !it.contains("not as in the catalogue"));
        (problems, judgement.notes)
    };
    assert_eq!(judged(statement("not measured: no polling", false)), (vec![], vec![]));
    let (problems, notes) = judged(statement("rises", true));
    assert!(problems.is_empty(), "{problems:?}");
    only(&notes, "could not be measured where the list was made");
    let (problems, _) = judged(statement("falls", false));
    only(&problems, "look whether it is worse");
}

#[test]
fn what_moves_away_is_a_problem_and_what_comes_closer_is_not() {
    let (problems, _) = judged(vec![limit(1.8760), statement("1 2 2", false)]);
    only(&problems, "farther");
    let (problems, notes) = judged(vec![limit(1.9), statement("1 2 2", false)]);
    assert!(problems.is_empty());
    only(&notes, "closer");
    let (problems, _) = judged(vec![limit(f64::NAN), statement("1 2 2", false)]);
    only(&problems, "farther");
}

#[test]
fn a_statement_that_fails_otherwise_is_looked_at() {
    let (problems, _) = judged(vec![limit(1.877), statement("1 2 1", false)]);
    only(&problems, "look whether it is worse");
}

#[test]
fn what_fails_beside_the_list_is_a_problem() {
    let other = Check::at_most("another", "", 1.0, 2.0);
    let (problems, _) = judged(vec![limit(1.877), statement("1 2 2", false), other]);
    only(&problems, "not on the list");
}

#[test]
fn what_is_listed_and_not_there_is_a_problem_if_its_entry_was_run() {
    let (problems, _) = judged(vec![limit(1.877)]);
    only(&problems, "there is no such check");
    let all = made("000-table4", Vec::new(), Settings::default());
    let judgement = Known::parse(LIST).expect("a list").judge(&all).expect("the usual scale");
    assert!(judgement.problems.iter().all(|it| it.contains("catalogue")), "{judgement:?}");
}

#[test]
fn figures_are_those_of_one_seed() {
    for settings in [
        Settings { seed: 2, ..Settings::default() },
        Settings { full_scale: true, ..Settings::default() },
    ] {
        let all = made("000-table3", vec![limit(1.877)], settings);
        let error = Known::parse(LIST).expect("a list").judge(&all).expect_err("other figures");
        assert!(error.is_usage(), "{error}");
    }
}

#[test]
fn known_failures_are_printed_as_failed_with_their_reason() {
    let mut all = made("000-table3", vec![limit(1.877)], Settings::default());
    Known::parse(LIST).expect("a list").mark(&mut all);
    assert!(!all.pass());
    let text = all.text();
    assert!(
        text.contains("FAIL as known: a limit: so it is. Proof: cargo test")
            && text.contains(" --nocapture slow_it_is_so\n")
            && text.contains("1 of these as known"),
        "{text}"
    );
    let html = all.page(&[]).render();
    assert!(html.contains("so it is. Proof: cargo test --release"), "{html}");
    let json = serde_json::to_value(&all).expect("json");
    let check = &json["reproductions"][0]["checks"][0];
    assert_eq!((&check["pass"], &check["known"]), (&false.into(), &"so it is".into()));
    let proof = check["proof"].as_str().expect("a command");
    assert!(proof.starts_with("cargo test ") && proof.ends_with(" slow_it_is_so"), "{proof}");
}

#[test]
fn the_list_names_checks_of_the_catalogue_that_are_judged() {
    for Failure { entry, check, ours, .. } in &Known::built_in().failure {
        let listed = Catalogue::built_in().entry(entry).expect("an entry");
        let found = listed.checks.iter().find(|it| it.what == *check);
        let found = found.unwrap_or_else(|| panic!("{entry}: no check '{check}'"));
        assert!(found.missing.is_none() && found.reason.is_none(), "{entry}, '{check}'");
        let paper = found.paper.as_ref().and_then(Figure::number);
        if let Ours::Number(ours) = ours {
            let beyond = found.tolerance.beyond(paper, *ours);
            assert_ne!(beyond, Some(0.0), "{entry}, '{check}': {ours} would pass");
        }
    }
}

#[test]
fn a_check_that_the_catalogue_does_not_judge_is_never_known() {
    let list = |check: &str| Known {
        failure: vec![Failure {
            entry: "000-table3".to_owned(),
            check: check.to_owned(),
            ours: Ours::Number(1.0),
            reason: "so it is".to_owned(),
            proof: None,
        }],
    };
    for check in ["a limit", RUN_FAILED] {
        let error = list(check).in_catalogue().expect_err("no check of the catalogue");
        assert_eq!(error, format!("000-table3: the catalogue judges no check '{check}'"));
    }
    let listed = &Catalogue::built_in().entry("000-table3").expect("an entry").checks[0];
    list(&listed.what).in_catalogue().expect("a check of the catalogue");
}

#[test]
fn mistakes_in_the_list_are_named() {
    let row = |entry: &str, reason: &str| {
        format!("[[failure]]\nentry = '{entry}'\ncheck = 'a'\nours = 1.0\nreason = '{reason}'\n")
    };
    let twice = [row("000-table3", "b"), row("000-table3", "b")].concat();
    let proof = |test: &str| format!("{}proof = '{test}'\n", row("000-table3", "b"));
    let cases = [
        (proof("it is so"), "name of a test"),
        (proof(""), "name of a test"),
        (row("000-table33", "b"), "no entry"),
        (row("000-table3", " "), "no reason"),
        (twice, "twice"),
    ];
    for (text, part) in cases {
        let error = Known::parse(&text).expect_err("a mistake");
        assert!(error.contains(part), "{error}");
    }
}

/// Returns the tests of this program, with `--ignored` only those.
fn tests(arguments: &[&str]) -> Vec<String> {
    let program = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(program);
    let output = command.args(["--list", "--format", "terse"]).args(arguments).output();
    let listed = String::from_utf8(output.expect("a list").stdout).expect("names");
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

/// Refuses a proof unless one test has this name, which begins with `slow_` if it is ignored, and
/// only then: `.ci/slow` runs the ignored tests of such names.
fn is_test(proof: &str, all: &[String], ignored: &[String]) -> Result<(), String> {
    let found: Vec<&String> =
        all.iter().filter(|it| it.rsplit("::").next() == Some(proof)).collect();
    let [one] = found.as_slice() else {
        return Err(format!("{} tests are named {proof}", found.len()));
    };
    match (ignored.contains(one), proof.starts_with("slow_")) {
        (true, true) | (false, false) => Ok(()),
        (true, false) => Err(format!("{proof} is ignored, and .ci/slow does not run it")),
        (false, true) => Err(format!("{proof} is slow, and is not ignored")),
    }
}

#[test]
fn each_proof_is_a_test_of_this_crate() {
    let (all, ignored) = (tests(&[]), tests(&["--ignored"]));
    for Failure { entry, check, proof, .. } in &Known::built_in().failure {
        let proof = proof.as_deref().ok_or_else(|| "no proof".to_owned());
        let is_shown = proof.and_then(|proof| is_test(proof, &all, &ignored));
        is_shown.unwrap_or_else(|it| panic!("{entry}, '{check}': {it}"));
    }
    let this = "each_proof_is_a_test_of_this_crate";
    is_test(this, &all, &ignored).expect("a test");
    let wrong = is_test(&this[1..], &all, &ignored).expect_err("a typo");
    assert!(wrong.starts_with("0 tests"), "{wrong}");
    is_test(this, &all, &all).expect_err("ignored, and not slow");
}
