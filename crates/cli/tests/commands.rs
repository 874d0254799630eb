//! Tests of all commands as users call them: help, renamed flags, and Ctrl-C.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![expect(clippy::disallowed_methods, reason = "the system is asked about a process")]

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use support::interrupt_at_work;

mod support;

fn entresol(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_entresol")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_help_ends_with_an_example_and_the_exit_status() {
    for command in ["", "serve", "top", "config check", "bench cache", "store volume add"] {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let help = entresol(&arguments);
        let said = text(&help.stdout);
        assert!(help.status.success() && said.contains("\nExample"), "{command}: {said}");
        let status = said.trim_end().rsplit("\n\n").next().unwrap();
        assert!(status.starts_with("Exit status: 0 "), "{command}: {said}");
    }
}

#[test]
fn a_renamed_flag_is_told_and_an_unknown_one_is_refused() {
    let renamed = entresol(&["torture", "store", "--seconds", "3"]);
    let said = text(&renamed.stderr);
    assert_eq!(renamed.status.code(), Some(2), "{said}");
    assert_eq!(said, "entresol: --seconds was renamed to --duration: write --duration 3s\n");
    let unknown = entresol(&["torture", "store", "--second", "3"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("unexpected argument '--second'"));
}

#[test]
fn data_beyond_the_memory_are_measured_under_a_limit_or_the_command_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("files");
    let sizes = ["--memory", "16MiB", "--size", "64MiB", "--rounds", "1", "--duration", "50ms"];
    let mut arguments = vec!["bench", "extend", "--json", "--directory", place.to_str().unwrap()];
    arguments.extend(sizes);
    let ran = entresol(&arguments);
    let said = text(&ran.stderr);
    assert!(!entresol_media::files::exists(&place), "{said}");
    if !ran.status.success() {
        // A group is made by root only, and not in every container.
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot be limited") && said.contains("systemd-run"), "{said}");
        return;
    }
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap();
    assert!(number("limit_bytes") <= number("cache_dram_bytes") + (16 << 20), "{json}");
    let ways = json["ways"].as_array().unwrap();
    assert!(ways.len() == 3 && ways.iter().all(|it| it["gets_s"]["median"].as_f64() > Some(0.0)));
}

#[test]
fn of_like_problems_of_a_configuration_ten_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    let tenant = |number: u32| {
        format!(
            "[[tenant]]\nname = \"t{number}\"\nlisten = \"127.0.0.1:{}\"\nmedum = 1\n",
            number + 1
        )
    };
    let tenants: String = (0..500).map(tenant).collect();
    let written = tenants + "[limits]\nouput = 1\n";
    entresol_media::files::write_atomically(&file, written.as_bytes()).unwrap();
    let path = file.to_str().unwrap();
    let said = text(&entresol(&["config", "check", path]).stderr);
    assert_eq!(said.lines().count(), 12, "{said}");
    assert!(said.contains("entresol: and 490 more\n"), "{said}");
    assert!(said.contains("did you mean 'output'?"), "{said}");
    let checked = entresol(&["config", "check", path, "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(2));
    assert_eq!(all["problems"].as_array().map(Vec::len), Some(501));
}

fn spawn(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn an_interrupted_torture_shows_what_it_tried() {
    let child = spawn(&["torture", "store", "--duration", "10m"]);
    interrupt_at_work(&child);
    let ended = child.wait_with_output().unwrap();
    let (out, said) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(130), "{out}{said}");
    assert!(out.contains("cut short, interrupted"), "{out}");
    assert!(said.contains("interrupted in ") && said.contains("the results are partial"), "{said}");
}

#[test]
fn torture_ends_in_time_though_a_history_takes_longer() {
    let clock = SystemClock::new();
    let start = clock.now();
    let ended = entresol(&["torture", "store", "--duration", "1.5s"]);
    let (out, took) = (text(&ended.stdout), clock.now().since(start));
    assert!(ended.status.success(), "{out}");
    assert!(out.contains("cut short, time was up"), "{out}");
    // A whole history takes minutes. The allowance is for a busy machine.
    assert!(took < Duration::from_secs(60), "{took:?}");
}
