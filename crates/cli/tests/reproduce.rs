//! Tests of `entresol reproduce` as users and scripts call it.

#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]
#![expect(clippy::disallowed_methods, reason = "the system is asked about a process")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use support::interrupt_at_work;

mod support;

fn reproduce(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.arg("reproduce").args(arguments).output().expect("runs")
}

#[test]
fn the_list_is_json_where_json_is_asked_for() {
    let listed = reproduce(&["--list", "--json"]);
    assert!(listed.status.success());
    let json: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let entries = json["entries"].as_array().expect("entries");
    let named = |name: &str| entries.iter().any(|entry| entry["name"] == name);
    assert!(named("000-table3") && named("002-fig1a") && !named("002-fig1"), "{json}");
    assert!(entries.iter().all(|entry| entry["source"].is_string() && entry["about"].is_string()));
}

#[test]
fn a_name_that_is_none_is_refused_whether_listed_or_run() {
    for more in [&[][..], &["--list"], &["--list", "--json"]] {
        let refused = reproduce(&[&["000-tabel3"], more].concat());
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains("did you mean 000-table3?"), "{text}");
        assert!(refused.stdout.is_empty());
    }
    let one = reproduce(&["--list", "000-table3"]);
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(text.contains("000-table3") && !text.contains("000-table4"), "{text}");
}

#[test]
fn what_is_missing_is_listed_with_its_reason() {
    let listed = reproduce(&["--list", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let missing = json["missing"].as_array().expect("missing");
    assert!(missing.iter().all(|it| it["reason"].as_str().is_some_and(|it| !it.is_empty())));
    let text = String::from_utf8_lossy(&reproduce(&["--list"]).stdout).into_owned();
    assert_eq!(text.matches("missing: ").count(), missing.len(), "{text}");
}

#[test]
fn known_failures_fail_unless_they_are_accepted_and_only_they_are() {
    // One check of this table is known to fail.
    let one = reproduce(&["000-table7"]);
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert_eq!(one.status.code(), Some(1), "{text}");
    assert!(text.contains("FAIL as known: "), "{text}");
    let accepted = reproduce(&["000-table7", "--accept-known", "--jobs", "2", "--json"]);
    let errors = String::from_utf8_lossy(&accepted.stderr).into_owned();
    assert!(accepted.status.success(), "{errors}");
    let json: serde_json::Value = serde_json::from_slice(&accepted.stdout).expect("JSON");
    let checks = json["reproductions"][0]["checks"].as_array().expect("checks");
    assert_eq!(checks.iter().filter(|check| check["pass"] == false).count(), 1);
    assert!(checks.iter().all(|check| check["pass"] == true || check["known"].is_string()));
    // An empty list accepts nothing, and another seed is refused.
    let folder = tempfile::tempdir().expect("a directory");
    let empty = folder.path().join("none.toml");
    std::fs::write(&empty, "").expect("a file");
    let empty = empty.to_str().expect("a name");
    let refused = reproduce(&["000-table7", "--accept-known", "--expected", empty]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("not on the list"), "{errors}");
    let refused = reproduce(&["000-table7", "--accept-known", "--seed", "2"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn an_interrupted_run_says_in_what_and_ends_as_interrupted() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.args(["reproduce", "--seed", "3"]).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    // The first table has begun by then; all of them take minutes of the processor's time.
    interrupt_at_work(&child);
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a sentence");
    assert!(line.contains("interrupted in 00") && line.contains(" done; no results"), "{line}");
    assert_eq!(child.wait().expect("ends").code(), Some(130));
}

#[test]
fn results_name_the_commit_that_the_program_was_built_from() {
    let folder = tempfile::tempdir().expect("a directory");
    let folder = folder.path().to_str().expect("a name");
    let ran = reproduce(&["000-table3", "--json", "--report", folder]);
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let commit = json["commit"].as_str().expect("a commit");
    let name = commit.trim_end_matches(" with changes");
    let is_hash = name.len() >= 12 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_hash || name == "unknown", "{commit}");
    let page = std::fs::read_to_string(format!("{folder}/reproduce.html")).expect("a page");
    assert!(page.contains(&format!(", commit {commit}, on ")), "{page}");
}
