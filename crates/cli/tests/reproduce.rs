//! `entresol reproduce` as people and scripts call it.

#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

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

/// On a busy machine a process may take seconds until it can be interrupted with a sentence.
fn wait_until_interrupts_are_caught(pid: &str) {
    let status = Path::new("/proc").join(pid).join("status");
    for _ in 0..6_000 {
        let text = fs::read_to_string(&status).expect("the process runs");
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        let caught = u64::from_str_radix(caught.trim(), 16).expect("a mask");
        // Signal 2 is the second bit.
        if caught & 2 != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("interrupts are not caught within 60 s");
}

#[test]
fn an_interrupted_run_says_in_what_and_ends_as_interrupted() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.args(["reproduce", "--seed", "3"]).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let pid = child.id().to_string();
    wait_until_interrupts_are_caught(&pid);
    // The first table begins at once behind that; this is far too short for all of them.
    std::thread::sleep(Duration::from_millis(500));
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a sentence");
    assert!(line.contains("interrupted in 00") && line.contains(" done; no results"), "{line}");
    assert_eq!(child.wait().expect("ends").code(), Some(130));
}
