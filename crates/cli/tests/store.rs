//! Tests of `entresol store`, `bench ycsb` and `torture store` as users and scripts call them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn entresol(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_entresol")).args(arguments).output().unwrap()
}

/// Runs `entresol store COMMAND DIRECTORY MORE...`.
fn store(command: &str, directory: &Path, more: &[&str]) -> Output {
    let directory = directory.to_str().unwrap();
    entresol(&[&["store", command, directory], more].concat())
}

/// Returns the output of a successful command.
#[track_caller]
fn done(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the error message of a command that ended with this status.
#[track_caller]
fn failed(output: &Output, status: i32) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(output.stdout.is_empty() && error.starts_with("entresol: "), "{error}");
    error
}

#[track_caller]
fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&done(output)).unwrap()
}

#[test]
fn a_store_can_lie_on_persistent_memory_or_on_what_stands_in_for_it() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    let emulated = format!("pmem:{},assume-dax", place.display());
    let store = |command: &str, directory: &str, more: &[&str]| {
        entresol(&[&["store", command, directory], more].concat())
    };
    done(&store("put", &emulated, &["--create", "ada", "1815"]));
    assert_eq!(done(&store("get", &emulated, &["ada"])), "1815\n");
    done(&store("put", place.to_str().unwrap(), &["grace", "1906"]));
    assert_eq!(done(&store("scan", &emulated, &["--keys-only"])), "ada\ngrace\n");
    done(&store("check", &emulated, &[]));
    let images =
        |directory: &str| json(&store("stats", directory, &["--json"]))["memtable_images"].clone();
    assert_eq!(images(&emulated)["failures"].as_u64(), Some(0));
    assert!(done(&store("stats", &emulated, &[])).contains("Memtable images"));
    assert!(images(place.to_str().unwrap()).is_null());
    let wrong = store("get", &format!("pmem:{},assume", place.display()), &["ada"]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && said.contains("assume-dax"), "{said}");
}

#[test]
fn what_was_put_is_there_for_the_next_command() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "ada", "1815"]));
    done(&store("put", &place, &["grace", "1906"]));
    let put = json(&store("put", &place, &["--json", "alan", "1912"]));
    assert_eq!((put["key"].as_str(), put["value_bytes"].as_u64()), (Some("alan"), Some(4)));
    assert_eq!(done(&store("get", &place, &["ada"])), "1815\n");
    let got = json(&store("get", &place, &["--json", "grace"]));
    assert_eq!((&got["value"], got["sequence"].is_u64()), (&"1906".into(), true));
    assert_eq!(done(&store("scan", &place, &[])), "ada\t1815\nalan\t1912\ngrace\t1906\n");
    assert_eq!(done(&store("scan", &place, &["--reverse", "--keys-only"])), "grace\nalan\nada\n");
    assert_eq!(done(&store("scan", &place, &["--prefix", "a", "--from", "ae"])), "alan\t1912\n");
    let some = json(&store("scan", &place, &["--json", "--limit", "2"]));
    assert_eq!((some["pairs"][1]["key"].as_str(), &some["has_more"]), (Some("alan"), &true.into()));
    done(&store("del", &place, &["ada", "nobody"]));
    let gone = failed(&store("get", &place, &["ada"]), 1);
    assert!(gone.contains("'ada'") && gone.contains("default"), "{gone}");
    let empty = failed(&store("del", &place, &["alan", "", "grace"]), 2);
    assert!(empty.contains("1 to"), "{empty}");
    assert_eq!(done(&store("scan", &place, &["--keys-only"])), "alan\ngrace\n");
    done(&store("del", &place, &["--prefixes", "al"]));
    assert_eq!(done(&store("scan", &place, &["--keys-only"])), "grace\n");
    let compacted = json(&store("compact", &place, &["--json"]));
    assert!(compacted["bytes_after"].as_u64().is_some_and(|bytes| bytes > 0));
    assert_eq!(done(&store("get", &place, &["grace"])), "1906\n");
}

#[test]
fn bytes_that_are_no_text_come_and_go_in_other_forms() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "--encoding", "hex", "00ff", "fe00"]));
    assert_eq!(done(&store("get", &place, &["--encoding", "base64", "AP8="])), "/gA=\n");
    let refused = failed(&store("scan", &place, &[]), 2);
    assert!(refused.contains("not UTF-8") && refused.contains("--encoding"), "{refused}");
    let refused = failed(&store("get", &place, &["--encoding", "hex", "0x"]), 2);
    assert!(refused.contains("character 1"), "{refused}");
    // The value comes from a file, goes to a file, and comes from standard input.
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at * 7) as u8).collect();
    std::fs::File::create_new(&from).unwrap().write_all(&bytes).unwrap();
    done(&store("put", &place, &["file", "--file", from.to_str().unwrap()]));
    done(&store("get", &place, &["file", "--file", to.to_str().unwrap()]));
    assert!(std::fs::read_to_string(&to).is_err(), "it is no text");
    assert_eq!(store("get", &place, &["file", "--file", "-"]).stdout, bytes);
    let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
        .args(["store", "put", place.to_str().unwrap(), "piped", "--file", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through a pipe").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(done(&store("get", &place, &["piped"])), "through a pipe\n");
}

#[test]
fn a_store_is_looked_at_checked_and_copied() {
    let scratch = tempfile::tempdir().unwrap();
    let (place, copy) = (scratch.path().join("data"), scratch.path().join("copy"));
    done(&store("put", &place, &["--create", "ada", "1815"]));
    done(&store("put", &place, &["grace", "1906"]));
    let checked = json(&store("check", &place, &["--json"]));
    assert_eq!(checked["findings"].as_array().map(Vec::len), Some(0));
    // Writes of an earlier opening may have been flushed since.
    let versions = ["log_records", "versions"].map(|it| checked[it].as_u64().unwrap());
    assert_eq!(versions.iter().sum::<u64>(), 2);
    done(&store("checkpoint", &place, &[copy.to_str().unwrap()]));
    assert_eq!(done(&store("get", &copy, &["ada"])), "1815\n");
    let stats = json(&store("stats", &copy, &["--json"]));
    assert_eq!(
        (&stats["kvs"][0]["name"], stats["kvs"][0]["versions"].as_u64()),
        (&"default".into(), Some(2))
    );
    assert!(done(&store("stats", &copy, &[])).contains("\n  default "));
    failed(&store("checkpoint", &place, &[copy.to_str().unwrap()]), 2);
    // One bit flips in the middle of the copy's only run.
    let runs = std::fs::read_dir(&copy).unwrap().flatten().map(|entry| entry.path());
    let run = runs.into_iter().find(|path| path.to_str().unwrap().contains("run-")).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&run).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4096 + 20).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 4096 + 20).unwrap();
    let found = store("check", &copy, &[]);
    let (text, error) =
        (String::from_utf8_lossy(&found.stdout), String::from_utf8_lossy(&found.stderr));
    assert_eq!(found.status.code(), Some(1), "{error}");
    assert!(text.contains("damaged: run-") && error.contains("store salvage"), "{text}{error}");
    let new = scratch.path().join("new");
    let salvaged = store("salvage", &copy, &[new.to_str().unwrap()]);
    assert_eq!(salvaged.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&salvaged.stdout).contains("default: "));
    done(&store("check", &new, &[]));
    // Everything is copied of an undamaged store.
    let all = scratch.path().join("all");
    done(&store("salvage", &place, &[all.to_str().unwrap()]));
    assert_eq!(done(&store("scan", &all, &[])), "ada\t1815\ngrace\t1906\n");
}

#[test]
fn mistakes_are_named_with_the_place_and_a_way_out() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    let none = failed(&store("put", &place, &["key", "value"]), 2);
    assert!(none.contains("data"), "{none}");
    assert!(!place.exists(), "nothing was made");
    done(&store("put", &place, &["--create", "key", "value"]));
    let none = failed(&store("get", &place, &["--kvs", "defualt", "key"]), 2);
    assert!(none.contains("'defualt'") && none.contains("default"), "{none}");
    let empty = failed(&store("put", &place, &["", "value"]), 2);
    assert!(empty.contains("1 to"), "{empty}");
    let empty = failed(&store("del", &place, &["--prefixes", ""]), 2);
    assert!(empty.contains("drop the Kvs"), "{empty}");
    let none = store("put", &place, &["--ttl", "0", "key", "value"]);
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(none.status.code() == Some(2) && said.contains("leave --ttl out"), "{said}");
    let other = scratch.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::File::create_new(other.join("letter")).unwrap();
    failed(&store("put", &other, &["--create", "key", "value"]), 2);
    let strangers: Vec<_> = std::fs::read_dir(&other).unwrap().collect();
    assert!(strangers.iter().flatten().any(|entry| entry.file_name() == "letter"));
}

/// Runs `entresol store volume COMMAND HOME MORE...`.
fn volume(command: &str, home: &Path, more: &[&str]) -> Output {
    let home = home.to_str().unwrap();
    entresol(&[&["store", "volume", command, home], more].concat())
}

/// Returns the paths of the volumes, each with the value of a JSON key.
fn of_volumes(output: &Output, key: &str) -> Vec<(String, serde_json::Value)> {
    let answer = json(output);
    let volumes = answer["volumes"].as_array().unwrap().iter();
    let of = |volume: &serde_json::Value| {
        (volume["path"].as_str().unwrap().to_owned(), volume[key].clone())
    };
    volumes.map(of).collect()
}

fn json_null() -> serde_json::Value {
    serde_json::Value::Null
}

fn json_list() -> serde_json::Value {
    serde_json::Value::Array(Vec::new())
}

#[test]
fn volumes_are_added_moved_found_and_retired() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    let home = path("home");
    let made = store("create", &home, &["--class", "staging", "--most", "1GiB", "--json"]);
    assert_eq!(of_volumes(&made, "class"), [(text("home"), "staging".into())]);
    failed(&store("create", &home, &[]), 2);
    let added = volume("add", &home, &["capacity", &text("one"), "--most", "2GiB", "--json"]);
    assert_eq!(of_volumes(&added, "bytes_max")[1], (text("one"), (2_u64 << 30).into()));
    done(&store("put", &home, &["--create", "--policy", "capacity-only", "ada", "1815"]));
    done(&store("compact", &home, &[]));
    let budget = volume("budget", &home, &[&text("one"), "10GiB", "--json"]);
    let per_day =
        |volumes: &Output| of_volumes(volumes, "life")[1].1["budget"]["bytes_per_day"].clone();
    assert_eq!(per_day(&budget), 10_u64 << 30);
    let none = failed(&volume("budget", &home, &[&text("nowhere"), "1GiB"]), 2);
    assert!(none.contains("nowhere is no volume of the store"), "{none}");
    let wrong = volume("budget", &home, &[&text("one"), "0"]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && said.contains("use at least 1MiB"), "{said}");
    let moved = volume("move", &home, &[&text("one"), &text("two"), "--json"]);
    assert_eq!(of_volumes(&moved, "bytes_max")[1], (text("two"), (2_u64 << 30).into()));
    assert_eq!(per_day(&moved), 10_u64 << 30);
    let stats = done(&store("stats", &home, &[]));
    assert!(stats.contains("Bytes written since each volume was added"), "{stats}");
    let lives = stats.split("Life of the drives").nth(1).unwrap_or_default();
    let life = lives.lines().find(|line| line.contains(&text("two"))).unwrap_or_default();
    // The budget, and all of it is left.
    assert_eq!(life.matches("10GiB").count(), 2, "{stats}");
    assert_eq!(per_day(&volume("budget", &home, &[&text("two"), "none", "--json"])), json_null());
    assert_eq!(std::fs::read_dir(path("one")).unwrap().count(), 0, "nothing is left there");
    // The volume is moved while the store is closed.
    std::fs::rename(path("two"), path("three")).unwrap();
    let missing = failed(&store("put", &home, &["grace", "1906"]), 2);
    assert!(missing.contains(&text("two")) && missing.contains("volume found"), "{missing}");
    assert!(of_volumes(&volume("list", &home, &["--json"]), "missing")[1].1.is_string());
    assert!(done(&volume("list", &home, &[])).contains("missing"));
    assert!(done(&store("stats", &home, &[])).contains("capacity, missing"));
    let checked = store("check", &home, &[]);
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(told.contains(&format!("missing: the capacity volume {}", text("two"))), "{told}");
    assert!(told.contains("not checked: runs: 1, of the Kvs default"), "{told}");
    assert!(!told.contains("damaged"), "{told}");
    let error = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.code() == Some(3) && error.contains("volume found"), "{error}");
    let checked = store("check", &home, &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(report["missing"][0]["path"], text("two"));
    assert_eq!((&report["unchecked"]["runs"], &report["findings"]), (&1.into(), &json_list()));
    assert_eq!(checked.status.code(), Some(3));
    let found = volume("found", &home, &[&text("three"), "--json"]);
    assert_eq!(of_volumes(&found, "class")[1], (text("three"), "capacity".into()));
    assert_eq!(done(&store("get", &home, &["ada"])), "1815\n");
    done(&volume("retire", &home, &[&text("home")]));
    assert!(done(&volume("list", &home, &[])).contains("retiring"));
    let again = volume("add", &home, &["staging", &text("home"), "--most", "3GiB", "--json"]);
    assert_eq!(of_volumes(&again, "bytes_max")[0], (text("home"), (3_u64 << 30).into()));
    let table = done(&volume("retire", &home, &[&text("three")]));
    assert!(!table.contains(&text("three")) && table.contains("home"), "{table}");
    assert_eq!(done(&store("get", &home, &["ada"])), "1815\n");
    done(&store("check", &home, &[]));
}

#[test]
fn volumes_are_remembered_by_whole_paths() {
    let scratch = tempfile::tempdir().unwrap();
    let in_scratch = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
        command.args(arguments).current_dir(scratch.path()).output().unwrap()
    };
    done(&in_scratch(&["store", "create", "home"]));
    done(&in_scratch(&["store", "volume", "add", "home", "staging", "./fast/"]));
    let home = scratch.path().join("home");
    let volumes = of_volumes(&volume("list", &home, &["--json"]), "class");
    assert!(Path::new(&volumes[1].0) == scratch.path().join("fast"), "{volumes:?}");
    done(&in_scratch(&["store", "volume", "retire", "home", "fast"]));
    assert_eq!(of_volumes(&volume("list", &home, &["--json"]), "class").len(), 1);
}

#[test]
fn policies_are_shown_and_set() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("home");
    done(&store("put", &home, &["--create", "ada", "1815"]));
    let shown = json(&store("policy", &home, &["--json"]));
    assert_eq!((&shown["kvs"], &shown["policy"]), (&"default".into(), &"fastest".into()));
    assert_eq!(shown["classes"]["old_values"][0], "pmem");
    let refused = failed(&store("policy", &home, &["staging-only"]), 2);
    assert!(refused.contains("staging") && refused.contains("add one"), "{refused}");
    let fast = scratch.path().join("fast");
    done(&volume("add", &home, &["staging", fast.to_str().unwrap()]));
    let text = done(&store("policy", &home, &["staging-max-capacity"]));
    assert!(text.contains("store compact"), "{text}");
    let text = done(&store("policy", &home, &[]));
    assert!(text.starts_with("default: staging-max-capacity\n"), "{text}");
    // A Kvs made with a policy is used with that policy only.
    let more = ["--create", "--kvs", "hot", "--policy", "staging-only", "grace", "1906"];
    done(&store("put", &home, &more));
    done(&store("put", &home, &more));
    let more = ["--create", "--kvs", "hot", "--policy", "fastest", "grace", "1906"];
    let refused = failed(&store("put", &home, &more), 2);
    assert!(refused.contains("'hot'") && refused.contains("staging-only"), "{refused}");
    let none = failed(&store("policy", &home, &["--kvs", "cold"]), 2);
    assert!(none.contains("'cold'") && none.contains("default, hot"), "{none}");
    let wrong = store("policy", &home, &["staging"]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && said.contains("staging-max-capacity"), "{said}");
}

#[test]
fn volumes_that_cannot_be_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("home");
    let text = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let pmem = format!("pmem:{},assume-dax", text("pmem"));
    let wrong = failed(&entresol(&["store", "create", &pmem, "--class", "staging"]), 2);
    assert!(wrong.contains("staging") && wrong.contains("plain path"), "{wrong}");
    let made = entresol(&["store", "create", &pmem, "--json"]);
    assert_eq!(of_volumes(&made, "class")[0].1, "pmem");
    done(&store("create", &home, &[]));
    let last = failed(&volume("retire", &home, &[&text("home")]), 2);
    assert!(last.contains("last volume"), "{last}");
    let none = failed(&volume("retire", &home, &[&text("nowhere")]), 2);
    assert!(none.contains("nowhere") && none.contains(&text("home")), "{none}");
    failed(&volume("move", &home, &[&text("nowhere"), &text("new")]), 2);
    assert!(!scratch.path().join("new").exists(), "nothing was made");
    failed(&volume("add", &home, &["capacity", &text("home")]), 2);
    failed(&volume("add", &home, &["capacity", &text("not/there")]), 2);
    failed(&volume("found", &home, &[&text("nowhere")]), 2);
    std::fs::create_dir(scratch.path().join("empty")).unwrap();
    let no_volume = failed(&volume("found", &home, &[&text("empty")]), 2);
    assert!(no_volume.contains("no volume of the store"), "{no_volume}");
    for (arguments, names) in [
        (["add", &text("home"), "disk", &text("new")], "use pmem, staging or capacity"),
        (["add", &text("home"), "pmem", "pmem:new"], "give the class pmem"),
        (["add", &text("home"), "pmem", "--most=1MiB"], "at least 64MiB"),
    ] {
        let wrong = entresol(&[&["store", "volume"], &arguments[..]].concat());
        let said = String::from_utf8_lossy(&wrong.stderr);
        assert!(wrong.status.code() == Some(2) && said.contains(names), "{said}");
    }
}

#[test]
fn a_measured_store_is_one_json_object() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("ycsb");
    let place = place.to_str().unwrap();
    let more = ["--keys", "2000", "--workload", "load", "--workload", "a", "--verify", "--json"];
    let found = json(&entresol(&[&["bench", "ycsb", "--directory", place], &more[..]].concat()));
    assert_eq!((&found["engine"], &found["keys_read_back"]), (&"entresol".into(), &2000.into()));
    let mixed = &found["workloads"][1];
    assert_eq!((&mixed["workload"], &mixed["operations"]), (&"a".into(), &2000.into()));
    assert!(mixed["cpu_us_per_operation"].as_f64().is_some_and(|us| us > 0.0));
    assert!(mixed["latency"]["p99_us"].is_f64());
    std::fs::create_dir(place).unwrap();
    let there = failed(&entresol(&["bench", "ycsb", "--directory", place]), 2);
    assert!(there.contains("exists already"), "{there}");
}

#[test]
fn real_processes_are_killed_and_lose_nothing_that_they_acknowledged() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("killed");
    let place = place.to_str().unwrap();
    let more = ["--processes", "--kills", "25", "--directory", place, "--json"];
    let found = json(&entresol(&[&["torture", "store"], &more[..]].concat()));
    assert_eq!((&found["kills"], &found["pass"]), (&25.into(), &true.into()), "{found}");
    assert!(found["acknowledged"].as_u64().is_some_and(|writes| writes > 500), "{found}");
    assert!(found["kills_in_opening"].as_u64().is_some_and(|kills| kills < 20), "{found}");
    assert!(!Path::new(place).exists(), "what is of no use is removed");
}

#[test]
fn what_would_lie_in_the_store_is_refused_and_not_made() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "key", "value"]));
    let inside = place.join("inside");
    let inside = inside.to_str().unwrap();
    for command in ["checkpoint", "salvage"] {
        let refused = failed(&store(command, &place, &[inside]), 2);
        assert!(refused.contains("give a directory beside it"), "{refused}");
    }
    let home = place.to_str().unwrap();
    let refused = failed(&entresol(&["store", "volume", "add", home, "capacity", inside]), 2);
    assert!(refused.contains("give a directory beside it"), "{refused}");
    assert!(!place.join("inside").exists());
    done(&store("checkpoint", &place, &[scratch.path().join("data2").to_str().unwrap()]));
}

#[test]
fn damage_is_told_with_status_1_also_if_a_file_is_another() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "key", "value"]));
    done(&store("compact", &place, &[]));
    let files = std::fs::read_dir(&place).unwrap().flatten().map(|entry| entry.path());
    let run = files.into_iter().find(|path| path.to_str().unwrap().contains("run-")).unwrap();
    let mut file = std::fs::File::options().write(true).open(&run).unwrap();
    file.write_all(&[b'x'; 8192]).unwrap();
    let told = failed(&store("get", &place, &["key"]), 1);
    assert!(told.contains("run-"), "{told}");
    failed(&store("checkpoint", &place, &[scratch.path().join("copy").to_str().unwrap()]), 1);
    failed(&store("get", &scratch.path().join("nowhere"), &["key"]), 2);
}

#[test]
fn a_store_is_made_within_a_bound_by_put_as_well() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "--most", "64MiB", "key", "value"]));
    let home = place.to_str().unwrap();
    let list = json(&entresol(&["store", "volume", "list", "--json", home]));
    assert_eq!(list["volumes"][0]["bytes_max"].as_u64(), Some(64 << 20));
    let there = failed(&store("put", &place, &["--create", "--most", "64MiB", "key", "v"]), 2);
    assert!(there.contains("--most is only for a new store"), "{there}");
}
