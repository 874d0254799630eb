//! Tests of `entresol store`, `bench ycsb` and `torture store` as users and scripts call them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

mod surroundings;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use entresol_base::Seconds;
use entresol_store::KvdbOptions;

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
    let (place, copy) = (scratch.path().join("data"), scratch.path().join("the copy"));
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
    let advice = format!("`entresol store salvage '{}' NEW`", copy.display());
    assert!(text.contains("damaged: run-") && error.contains(&advice), "{text}{error}");
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
    done(&store("create", &place, &[]));
    let none = failed(&store("put", &place, &["key", "value"]), 2);
    assert!(none.contains("no Kvs 'default'") && none.contains("--create makes it"), "{none}");
    done(&store("put", &place, &["--create", "key", "value"]));
    let manifest = place.join("MANIFEST");
    let inside = failed(&store("get", &place, &["key", "--file", manifest.to_str().unwrap()]), 2);
    assert!(inside.contains("belongs to a store: give a path outside"), "{inside}");
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(place.join("000000000003.segment"), &link).unwrap();
    let inside = failed(&store("get", &place, &["key", "--file", link.to_str().unwrap()]), 2);
    assert!(inside.contains("belongs to a store"), "{inside}");
    assert_eq!(done(&store("get", &place, &["key"])), "value\n");
    let none = failed(&store("get", &place, &["--kvs", "defualt", "key"]), 2);
    assert!(none.contains("'defualt'") && none.contains("default"), "{none}");
    let empty = failed(&store("put", &place, &["", "value"]), 2);
    assert!(empty.contains("1 to"), "{empty}");
    let empty = failed(&store("del", &place, &["--prefixes", ""]), 2);
    assert!(empty.contains("an empty prefix"), "{empty}");
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
        assert!(refused.contains("give a path outside of it"), "{refused}");
    }
    let home = place.to_str().unwrap();
    let refused = failed(&entresol(&["store", "volume", "add", home, "capacity", inside]), 2);
    assert!(refused.contains("give a path outside of it"), "{refused}");
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

/// Runs a line of the shell, in which `$E` is the program.
fn shell(line: &str, directory: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("E", env!("CARGO_BIN_EXE_entresol")).current_dir(directory);
    command.output().unwrap()
}

#[test]
fn a_move_or_retirement_that_fails_says_how_the_store_is_left() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (home, one, two, three) = (path("home"), path("one"), path("two"), path("three"));
    let at = scratch.path().join("home");
    let put = |key: &str, mib: usize| {
        std::fs::write(path("value"), vec![7; mib << 20]).unwrap();
        store("put", &at, &["--create", key, "--file", &path("value")])
    };
    let volumes = || of_volumes(&volume("list", &at, &["--json"]), "is_retiring");
    done(&put("key", 80));
    // No file can have the size of the value. A move that fails has begun by then, and says how to
    // finish and how to go back.
    let cut = |command: &str| {
        let line = format!("ulimit -f 60000; exec \"$E\" store volume {command}");
        failed(&shell(&line, scratch.path()), 1)
    };
    let told = cut(&format!("move {home} {home} {two}"));
    let back = format!("`entresol store volume move {home} {two} {home}`");
    assert!(told.contains("run the command again to finish") && told.contains(&back), "{told}");
    assert_eq!(volumes(), [(home.clone(), true.into()), (two.clone(), false.into())]);
    done(&volume("move", &at, &[&two, &home]));
    assert_eq!(volumes(), [(home.clone(), false.into())]);
    // So does a retirement.
    done(&volume("add", &at, &["capacity", &one, "--most", "160MiB"]));
    let told = cut(&format!("retire {home} {home}"));
    let again = format!("`entresol store volume add {home} capacity {home}`");
    assert!(told.contains("takes no new data") && told.contains(&again), "{told}");
    // The bound of a full volume is lowered. A new volume with that bound has too little room, and
    // is removed again.
    done(&volume("add", &at, &["capacity", &home, "--most", "64MiB"]));
    let is_full = (0..20).any(|number| put(&number.to_string(), 10).status.code() == Some(1));
    assert!(is_full);
    let told = failed(&volume("move", &at, &[&home, &three]), 1);
    let is_undone = told.contains("Nothing was moved") && told.contains("is no volume");
    assert!(told.contains("the other volumes have room for") && is_undone, "{told}");
    assert!(!Path::new(&three).exists(), "nothing is left of it");
    assert_eq!(volumes(), [(home.clone(), false.into()), (one, false.into())]);
    let itself = failed(&volume("move", &at, &[&home, &home]), 2);
    assert!(itself.contains("is the volume itself"), "{itself}");
    done(&store("check", &at, &[]));
}

#[test]
fn a_closed_input_is_not_an_empty_one() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "key", "value"]));
    for input in ["-", "/dev/stdin"] {
        let line = format!("\"$E\" store put data key --file {input} <&-");
        let refused = failed(&shell(&line, scratch.path()), 2);
        assert!(refused.contains("standard input is closed"), "{refused}");
    }
    let line = "\"$E\" store put data key --file - 0>written";
    let refused = failed(&shell(line, scratch.path()), 2);
    assert!(refused.contains("standard input is not open for reading"), "{refused}");
    assert_eq!(done(&store("get", &place, &["key"])), "value\n");
    let line = "\"$E\" user add ada --auth-file users <&-";
    let refused = failed(&shell(line, scratch.path()), 2);
    assert!(refused.contains("standard input is closed"), "{refused}");
    done(&shell("\"$E\" store put data key --file - </dev/null", scratch.path()));
    assert_eq!(done(&store("get", &place, &["key"])), "\n");
}

#[test]
fn nothing_is_made_inside_a_store_or_a_volume() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    for home in ["home", "other"] {
        done(&store("put", &scratch.path().join(home), &["--create", "key", "value"]));
    }
    done(&entresol(&["store", "volume", "add", &path("home"), "staging", &path("fast")]));
    std::os::unix::fs::symlink(path("home"), path("link")).unwrap();
    std::fs::create_dir(path("fast/deep")).unwrap();
    for inside in ["home/sub", "link/sub", "fast/sub", "fast/deep", "fast/deep/sub"] {
        let inside = path(inside);
        let of_other = |command: &str| entresol(&["store", command, &path("other"), &inside]);
        for refused in [
            entresol(&["store", "create", &inside]),
            entresol(&["store", "put", "--create", &inside, "key", "value"]),
            of_other("checkpoint"),
            of_other("salvage"),
            entresol(&["store", "volume", "add", &path("other"), "capacity", &inside]),
            entresol(&["store", "volume", "move", &path("other"), &path("other"), &inside]),
        ] {
            let refused = failed(&refused, 2);
            assert!(refused.contains("give a path outside of it"), "{refused}");
        }
        assert_eq!(Path::new(&inside).exists(), inside.ends_with("deep"), "{inside}");
    }
    // A file of another program that happens to have such a name is no store.
    std::fs::create_dir(path("shelf")).unwrap();
    std::fs::write(path("shelf/MANIFEST"), "include *.txt\n").unwrap();
    done(&entresol(&["store", "create", &path("shelf/data")]));
}

#[test]
fn what_a_directory_holds_instead_of_a_store_is_told_with_advice_that_works() {
    let scratch = tempfile::tempdir().unwrap();
    let place = |name: &str| scratch.path().join(name);
    std::fs::create_dir(place("letters")).unwrap();
    std::fs::write(place("letters/letter"), "dear").unwrap();
    std::fs::create_dir(place("foreign")).unwrap();
    std::fs::write(place("foreign/MANIFEST"), "include *.txt\n").unwrap();
    done(&store("put", &place("lost"), &["--create", "key", "value"]));
    std::fs::copy(place("lost/MANIFEST"), place("kept")).unwrap();
    done(&store("create", &place("home"), &[]));
    done(&volume("add", &place("home"), &["staging", place("fast").to_str().unwrap()]));
    std::fs::remove_file(place("lost/MANIFEST")).unwrap();
    let home = format!("volume of the store in {}", place("home").display());
    for (name, told) in [
        ("letters", "other files (letter)"),
        ("foreign", "its MANIFEST is not a store's manifest"),
        ("lost", "`store salvage`"),
        ("fast", &home),
    ] {
        for more in [&["put"][..], &["put", "--create"]] {
            let refused = store(more[0], &place(name), &[&more[1..], &["key", "value"]].concat());
            let refused = failed(&refused, 2);
            assert!(
                refused.contains(told) && !refused.contains("create a store there"),
                "{refused}"
            );
        }
        failed(&store("get", &place(name), &["key"]), 2);
        let created = failed(&store("create", &place(name), &[]), 2);
        assert!(created.contains("is not empty") && !created.contains("open it"), "{created}");
    }
    for command in ["check", "get"] {
        let more = if command == "get" { vec!["key"] } else { vec![] };
        let told = failed(&store(command, &place("foreign"), &more), 2);
        assert!(told.contains("its MANIFEST is not a store's manifest"), "{told}");
    }
    let there = failed(&store("create", &place("home"), &[]), 2);
    assert!(there.contains("it holds a store: open that"), "{there}");
    std::fs::create_dir(place("empty")).unwrap();
    let empty = failed(&store("put", &place("empty"), &["key", "value"]), 2);
    assert!(empty.contains("it is empty: create a store there"), "{empty}");
    // What was advised works.
    let saved = store("salvage", &place("lost"), &[place("saved").to_str().unwrap()]);
    assert_eq!(saved.status.code(), Some(1));
    std::fs::copy(place("kept"), place("lost/MANIFEST")).unwrap();
    assert_eq!(done(&store("get", &place("lost"), &["key"])), "value\n");
}

#[test]
fn a_lost_manifest_is_checked_in_plain_words_and_its_intact_part_is_used() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "--kvs", "users", "ada", "1815"]));
    let manifest = place.join("MANIFEST");
    let whole = std::fs::read(&manifest).unwrap();
    for (junk, name) in [("behind", "users"), ("before", "users"), ("instead", "kvs-1")] {
        let bytes = match junk {
            "behind" => [&whole[..], b"junk\n"].concat(),
            "before" => [b"junk\n", &whole[..]].concat(),
            _ => b"junk\n".to_vec(),
        };
        std::fs::write(&manifest, bytes).unwrap();
        let checked = store("check", &place, &[]);
        let told = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert_eq!(checked.status.code(), Some(1), "{told}");
        assert!(!told.contains("dropped"), "{told}");
        let is_lost = told.contains("odd: the log has 1 write of Kvs whose names are lost");
        assert_eq!(is_lost, name != "users", "{told}");
        let new = scratch.path().join(junk);
        let saved = store("salvage", &place, &[new.to_str().unwrap()]);
        assert_eq!(saved.status.code(), Some(1), "{junk}");
        assert_eq!(done(&store("get", &new, &["--kvs", name, "ada"])), "1815\n");
    }
}

#[test]
fn a_file_that_only_has_the_name_of_a_mark_is_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "key", "value"]));
    let to = scratch.path().join("notes");
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("UNFINISHED"), "mine").unwrap();
    std::fs::write(to.join("HEAT"), "mine too").unwrap();
    for command in ["checkpoint", "salvage"] {
        let refused = failed(&store(command, &place, &[to.to_str().unwrap()]), 2);
        assert!(refused.contains("UNFINISHED") && refused.contains("empty directory"), "{refused}");
    }
    let none = failed(&store("get", &to, &["key"]), 2);
    assert!(none.contains("other files"), "{none}");
    assert_eq!(std::fs::read(to.join("UNFINISHED")).unwrap(), b"mine");
    assert_eq!(std::fs::read(to.join("HEAT")).unwrap(), b"mine too");
    // In a store's own directory only its own files are removed.
    let mine = ["moving-pictures", "image-1"].map(|name| place.join(name));
    mine.iter().for_each(|path| std::fs::write(path, "mine").unwrap());
    done(&store("put", &place, &["key", "value"]));
    assert!(mine.iter().all(|path| path.exists()));
}

#[test]
fn arguments_that_cannot_be_are_refused_with_status_2_and_named() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "key", "value"]));
    for empty in [store("get", &place, &[""]), store("get", &place, &["--encoding", "hex", ""])] {
        let empty = failed(&empty, 2);
        assert!(empty.contains("1 to 65535"), "{empty}");
    }
    let other = std::ffi::OsStr::from_bytes(b"\xff");
    for command in ["get", "put", "del"] {
        let mut refused = Command::new(env!("CARGO_BIN_EXE_entresol"));
        refused.args(["store", command]).arg(&place).arg(other);
        if command == "put" {
            refused.arg("value");
        }
        let refused = refused.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains("--encoding hex"), "{said}");
    }
    for long in ["99999999999999h", "9999999h", "1000000h"] {
        let refused = store("put", &place, &["--ttl", long, "key", "value"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        let is_told = said.contains("is too long") && said.contains("leave --ttl out");
        assert!(refused.status.code() == Some(2) && is_told, "{said}");
    }
    done(&store("put", &place, &["--ttl", "500000h", "key", "value"]));
    assert_eq!(done(&store("get", &place, &["key"])), "value\n");
    for path in ["/proc/entresol", "/proc/self/entresol"] {
        let refused = failed(&entresol(&["store", "create", path]), 2);
        assert!(refused.contains("makes no directories"), "{refused}");
    }
    let refused = failed(&entresol(&["store", "create", "/dev/null/store"]), 2);
    assert!(refused.contains("/dev/null is not a directory"), "{refused}");
    for command in [&["store", "create", ""][..], &["store", "get", "", "key"]] {
        let refused = entresol(command);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains("name a directory"), "{said}");
    }
}

#[test]
fn limits_of_the_process_are_told_to_the_user_of_a_store() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "key", "value"]));
    let line = "ulimit -v 200000; exec \"$E\" store get data key";
    let refused = failed(&shell(line, scratch.path()), 1);
    assert!(refused.contains("`ulimit -v`") && !refused.contains("tenant"), "{refused}");
}

#[test]
fn a_measured_store_without_room_says_so_under_one_name() {
    let scratch = tempfile::tempdir().unwrap();
    let line = "ulimit -f 100; exec \"$E\" bench ycsb --directory data --keys 100 --workload load";
    let refused = failed(&shell(line, scratch.path()), 1);
    assert!(refused.starts_with("entresol: no room for"), "{refused}");
    assert!(!refused.contains("quota"), "{refused}");
}
