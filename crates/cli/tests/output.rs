//! Tests of what commands do when their output, their room or their time ends: nothing is lost
//! without a word, and no word is wrong.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use entresol_store::{Kvdb, KvdbOptions, KvsOptions};

const PROGRAM: &str = env!("CARGO_BIN_EXE_entresol");

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn entresol(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a script of the shell, in which `$0` is the program.
fn shell(script: &str, directory: &Path) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, PROGRAM]).current_dir(directory).output().unwrap()
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Returns the end of a pipe that nothing reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Creates a store with this many keys of 4000 bytes, and returns its path.
fn filled(scratch: &Path, keys: u32) -> String {
    let path = scratch.join("data");
    let store = Kvdb::create_at(&path, KvdbOptions::default()).unwrap();
    let kvs = store.create_kvs("default", KvsOptions::default()).unwrap();
    for number in 0..keys {
        kvs.put(format!("key{number:08}").as_bytes(), &[b'v'; 4000]).unwrap();
    }
    kvs.put(b"short", b"short").unwrap();
    store.close().unwrap();
    path.to_str().unwrap().to_owned()
}

/// Calls of commands that print something; `D` is a store, and `N` is nothing yet.
const CALLS: &[&str] = &[
    "store get D short",
    "store get D short --json",
    "store get D short --file -",
    "store get D short --file /dev/stdout",
    "store scan D --keys-only",
    "store scan D --json",
    "store scan D --json --prefix none",
    "store stats D",
    "store stats D --json",
    "store check D",
    "store check D --json",
    "store policy D",
    "store policy D --json",
    "store policy D fastest",
    "store volume list D",
    "store volume list D --json",
    "store put D key value --json",
    "store del D key --json",
    "store compact D",
    "store create N",
    "store create N --json",
    "store checkpoint D N",
    "store salvage D N",
    "store salvage D N --json",
    "store put --create N key value --json",
    "reproduce --list",
    "reproduce --list --json",
    "reproduce 000-table3",
    "torture media --histories 1 --structure log",
    "bench index --index sv-tree --keys 1000 --operations 1000 --rounds 1 --json",
    "--help",
    "--version",
    "store put --help",
    "help store",
];

/// Runs each call, with `N` removed before each.
fn each_call(scratch: &Path, mut run: impl FnMut(&str, Command)) {
    let (data, new) = (filled(scratch, 10), scratch.join("new"));
    for call in CALLS {
        let _ = fs::remove_dir_all(&new);
        let words = call.split(' ').map(|word| match word {
            "D" => data.clone(),
            "N" => new.to_str().unwrap().to_owned(),
            word => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        run(call, command(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    }
}

#[test]
fn output_that_cannot_be_written_is_told_with_status_1_and_with_what_was_done() {
    let scratch = tempfile::tempdir().unwrap();
    each_call(scratch.path(), |call, mut command| {
        let output = command.stdout(full()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{call}: {said}");
        assert!(said.contains("No space left on device"), "{call}: {said}");
        let was_done = [
            ("store put", "the value was put"),
            ("store del", "the keys were deleted"),
            ("store create", "the store was made"),
            ("store checkpoint", "the copy was made"),
            ("store salvage", "the copy was made"),
            ("store compact", "the store was compacted"),
        ];
        for (name, done) in was_done {
            let is_help = call.ends_with("--help");
            assert!(!call.starts_with(name) || is_help || said.contains(done), "{call}: {said}");
        }
    });
    // A measurement's results are not lost with standard output.
    let measured = "bench index --index sv-tree --keys 1000 --operations 1000 --rounds 1 --json";
    let words: Vec<&str> = measured.split(' ').collect();
    let said = text(&command(&words).stdout(full()).output().unwrap().stderr);
    assert!(said.contains("\"version\""), "{said}");
}

#[test]
fn output_that_is_read_no_longer_ends_a_command_without_a_word() {
    let scratch = tempfile::tempdir().unwrap();
    each_call(scratch.path(), |call, mut command| {
        let output = command.stdout(unread()).output().unwrap();
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 141)), "{call}: {said}");
        let said = said.lines().filter(|line| !line.ends_with(" done") && !line.contains(" s  "));
        assert_eq!(said.collect::<Vec<_>>(), Vec::<&str>::new(), "{call}");
    });
}

#[test]
fn a_closed_or_full_standard_error_changes_no_status() {
    let scratch = tempfile::tempdir().unwrap();
    let data = filled(scratch.path(), 10);
    let file = scratch.path().join("wrong.toml");
    fs::write(&file, "medum = 1\n").unwrap();
    let calls: &[(&[&str], i32)] = &[
        (&["store", "get", &data, "nokey"], 1),
        (&["store", "get", "/nowhere", "nokey"], 2),
        (&["store", "get"], 2),
        (&["torture", "store", "--seconds", "1"], 2),
        (&["store", "scan", &data, "--limit", "1"], 0),
        (&["config", "check", file.to_str().unwrap()], 2),
        (&["serve", "--config", file.to_str().unwrap()], 2),
        (&["serve", "--listen", "256.0.0.1:1", "--admin", "off"], 2),
        (&["top", "--server", "127.0.0.1:1", "--once"], 2),
        (&["reproduce", "nothing"], 2),
        (&["bench", "ycsb", "--directory", &data], 2),
    ];
    for (arguments, status) in calls {
        let plain = entresol(arguments);
        assert_eq!(plain.status.code(), Some(*status), "{arguments:?}: {}", text(&plain.stderr));
        for stderr in [unread(), full().into()] {
            let output = command(arguments).stderr(stderr).output().unwrap();
            assert_eq!(output.status.code(), Some(*status), "{arguments:?}");
        }
    }
}

#[test]
fn a_closed_output_is_not_an_empty_one() {
    let scratch = tempfile::tempdir().unwrap();
    let data = filled(scratch.path(), 10);
    let copy = scratch.path().join("copy");
    let calls: &[&[&str]] = &[
        &["store", "get", &data, "key00000001"],
        &["store", "get", &data, "key00000001", "--json"],
        &["store", "get", &data, "key00000001", "--file", "-"],
        &["store", "get", &data, "key00000001", "--file", "/dev/stdout"],
        &["store", "get", &data, "key00000001", "--file", "/proc/self/fd/1"],
        &["store", "scan", &data],
        &["store", "stats", &data],
        &["store", "check", &data],
        &["store", "checkpoint", &data, copy.to_str().unwrap()],
        &["--help"],
    ];
    let sh = |redirected: &str, arguments: &[&str]| {
        let script = format!("exec \"$@\" {redirected}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh", PROGRAM]).args(arguments).output().unwrap()
    };
    for arguments in calls {
        let output = sh(">&-", arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains("Bad file descriptor"), "{arguments:?}: {said}");
        if arguments[0] == "store" && arguments[1] != "checkpoint" {
            // What a launcher opens like the runtime is meant.
            assert_eq!(sh("1<>/dev/null", arguments).status.code(), Some(0), "{arguments:?}");
        }
    }
    assert!(copy.join("MANIFEST").exists(), "the copy was made, though nobody could be told");
}

#[test]
fn a_verdict_is_not_lost_with_the_output() {
    let scratch = tempfile::tempdir().unwrap();
    let data = filled(scratch.path(), 10);
    done(&entresol(&["store", "compact", &data]));
    let mut files = fs::read_dir(&data).unwrap().flatten().map(|entry| entry.path());
    let run = files.find(|path| path.to_str().unwrap().contains("run-")).unwrap();
    fs::write(&run, vec![b'x'; 8192]).unwrap();
    let new = scratch.path().join("new");
    for stdout in [unread(), full().into()] {
        let checked = command(&["store", "check", &data]).stdout(stdout).output().unwrap();
        let said = text(&checked.stderr);
        assert!(checked.status.code() == Some(1) && said.contains("is damaged"), "{said}");
    }
    let mut salvage = command(&["store", "salvage", &data, new.to_str().unwrap()]);
    let said = text(&salvage.stdout(full()).output().unwrap().stderr);
    assert!(said.contains("could not be read") && said.contains("the copy was made"), "{said}");
}

#[test]
fn a_value_is_written_where_the_path_leads() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    filled(at, 1);
    for to in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-", "link"] {
        let _ = std::os::unix::fs::symlink("/dev/stdout", at.join("link"));
        let script = format!(
            "{{ echo header; \"$0\" store get data short --file {to}; echo trailer; }} >out"
        );
        done(&shell(&script, at));
        let out = fs::read_to_string(at.join("out")).unwrap();
        assert_eq!(out, "header\nshorttrailer\n", "{to}");
    }
    let script = "exec 3>out; echo header >&3; \"$0\" store get data short --file /dev/fd/3; \
                  echo trailer >&3";
    done(&shell(script, at));
    assert_eq!(fs::read_to_string(at.join("out")).unwrap(), "header\nshorttrailer\n");
    done(&shell("umask 077; : >f; ln -s not/yet l; \"$0\" store get data short --file f", at));
    let mode = fs::metadata(at.join("f")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::create_dir(at.join("not")).unwrap();
    done(&shell("\"$0\" store get data short --file l", at));
    assert!(fs::symlink_metadata(at.join("l")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(at.join("not/yet")).unwrap(), "short");
    for (to, status) in [("/dev/full", 1), ("nowhere/f", 2), ("not", 2)] {
        let output = shell(&format!("\"$0\" store get data short --file {to}"), at);
        assert_eq!(output.status.code(), Some(status), "{to}: {}", text(&output.stderr));
    }
}

#[test]
fn a_full_store_is_never_to_be_removed_and_a_new_one_without_room_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (data, value) = (at("data"), at("value"));
    done(&entresol(&["store", "put", "--create", "--most", "64MiB", &data, "key", "value"]));
    File::create(&value).unwrap().set_len(20 << 20).unwrap();
    let mut full = 0;
    for number in 0..8 {
        let key = number.to_string();
        let put = entresol(&["store", "put", &data, &key, "--file", &value]);
        full += u32::from(!put.status.success());
    }
    assert!(full > 0);
    for kvs in ["default", "other"] {
        let arguments = ["store", "put", "--create", "--kvs", kvs, &data, "k", "--file", &value];
        let refused = entresol(&arguments);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains("no room"), "{said}");
        assert!(!said.contains("emove") && !said.contains("empty"), "{said}");
    }
    let new = at("new");
    let (made, big) = (["store", "put", "--create", "--most", "64MiB", &new], at("big"));
    File::create(&big).unwrap().set_len(100 << 20).unwrap();
    let refused = entresol(&[&made[..], &["key", "--file", &big]].concat());
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("No store was made"), "{said}");
    assert!(!Path::new(&new).exists());
    for wrong in [&["--kvs", "no name"][..], &["--policy", "staging-only"]] {
        let refused = entresol(&[&made[..], wrong, &["key", "value"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {}", text(&refused.stderr));
        assert!(!Path::new(&new).exists(), "{wrong:?}");
    }
    done(&entresol(&[&made[..], &["key", "value"]].concat()));
}

#[test]
fn a_create_that_fails_leaves_nothing_and_can_be_given_again() {
    let scratch = tempfile::tempdir().unwrap();
    let new = scratch.path().join("new");
    let place = format!("pmem:{}", new.display());
    let refused = entresol(&["store", "create", &place]);
    if refused.status.success() {
        // The directory of temporary files is persistent memory.
        return;
    }
    assert!(!new.exists(), "{}", text(&refused.stderr));
    assert!(!entresol(&["store", "put", "--create", &place, "key", "value"]).status.success());
    assert!(!new.exists());
    fs::create_dir(&new).unwrap();
    assert!(!entresol(&["store", "create", &place]).status.success());
    assert_eq!(fs::read_dir(&new).unwrap().count(), 0, "it was empty");
    done(&entresol(&["store", "create", new.to_str().unwrap()]));
    let home = new.to_str().unwrap();
    let volume = scratch.path().join("volume");
    done(&entresol(&["store", "volume", "add", home, "staging", volume.to_str().unwrap()]));
    let taken = scratch.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("letter"), "").unwrap();
    let taken = entresol(&["store", "volume", "add", home, "staging", taken.to_str().unwrap()]);
    assert_eq!(taken.status.code(), Some(2));
    let within = volume.join("within");
    let within = entresol(&["store", "volume", "add", home, "staging", within.to_str().unwrap()]);
    assert!(within.status.code() == Some(2) && !volume.join("within").exists());
}

/// Returns the bytes of memory of its own that a process has.
fn own_bytes(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_scan_is_written_as_it_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let data = filled(scratch.path(), 25_000);
    let mut child = command(&["store", "scan", &data, "--json", "--limit", "1000000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut json = Vec::new();
    out.by_ref().take(90_000_000).read_to_end(&mut json).unwrap();
    // The rest does not fit into the pipe, so the process is still at it.
    let own = own_bytes(&child);
    assert!(own < 80 << 20, "{own} bytes for 100 MB of values");
    out.read_to_end(&mut json).unwrap();
    assert!(child.wait().unwrap().success());
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["pairs"].as_array().map(Vec::len), Some(25_001));
    assert_eq!(
        (&json["pairs"][25_000]["value"], &json["has_more"]),
        (&"short".into(), &false.into())
    );
    let none = entresol(&["store", "scan", &data, "--json", "--prefix", "none"]);
    let none: serde_json::Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!(none, serde_json::json!({ "pairs": [], "has_more": false }));
}

#[test]
fn a_report_goes_to_any_path_or_is_refused_before_anything_is_measured() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join(OsStr::from_bytes(b"rep\xff"));
    let index = ["bench", "index", "--index", "sv-tree", "--keys", "1000", "--operations", "1000"];
    let measure = |folder: &Path| {
        command(&index).args(["--rounds", "1", "--report"]).arg(folder).output().unwrap()
    };
    done(&measure(&folder));
    assert!(folder.join("bench-index.html").exists());
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    fs::create_dir_all(scratch.path().join("taken/bench-index.html")).unwrap();
    for wrong in [file.as_path(), &scratch.path().join("taken"), Path::new("/proc/nowhere")] {
        let refused = measure(wrong);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
        assert!(refused.stdout.is_empty(), "nothing was measured");
    }
    let data = scratch.path().join(OsStr::from_bytes(b"data\xfe"));
    for arguments in [&["put", "--create"][..], &["get"], &["check"], &["stats", "--json"]] {
        let mut command = command(&["store"]);
        command.args(arguments).arg(&data);
        match arguments {
            ["put", ..] => drop(command.args(["key", "value"])),
            ["get"] => drop(command.arg("key")),
            _ => {}
        }
        done(&command.output().unwrap());
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// Waits until a file or a directory is there.
fn wait_for(path: &Path, child: &mut Child) {
    while !path.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before there was {path:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the command in a process that ignores no signal, even if the test runs under `nohup`.
fn command_that_heeds_signals(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,TERM").arg(PROGRAM).args(arguments);
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_measurement_that_is_interrupted_leaves_nothing_and_can_be_given_again() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("ycsb");
    let arguments = ["bench", "ycsb", "--directory", place.to_str().unwrap(), "--keys", "3000000"];
    for (name, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let mut child = command_that_heeds_signals(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(&place.join("000000000002.segment"), &mut child);
        signal(&child, name);
        let ended = child.wait_with_output().unwrap();
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{said}");
        assert!(!place.exists(), "{name}: {said}");
    }
    // Ended at once, it says what it leaves.
    let mut child = command_that_heeds_signals(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place.join("000000000002.segment"), &mut child);
    for _ in 0..2 {
        signal(&child, "-INT");
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = text(&child.wait_with_output().unwrap().stderr);
    let is_named = said.contains(&format!("left: {}", place.display()));
    assert!(is_named || !place.exists(), "{said}");
}

#[test]
fn a_copy_that_is_interrupted_is_no_store_and_can_be_made_again() {
    let scratch = tempfile::tempdir().unwrap();
    let data = filled(scratch.path(), 25_000);
    let new = scratch.path().join("new");
    for (kind, name) in
        [("salvage", "-INT"), ("salvage", "-KILL"), ("checkpoint", "-INT"), ("checkpoint", "-KILL")]
    {
        let arguments = ["store", kind, &data, new.to_str().unwrap()];
        let mut child =
            command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for(&new.join("UNFINISHED"), &mut child);
        signal(&child, name);
        let ended = child.wait_with_output().unwrap();
        let said = text(&ended.stderr);
        if ended.status.success() {
            fs::remove_dir_all(&new).unwrap();
            continue;
        }
        match name {
            "-INT" => {
                assert_eq!(ended.status.code(), Some(130), "{said}");
                assert!(said.contains("no copy was made") && !new.exists(), "{said}");
            }
            _ => {
                assert_eq!(ended.status.signal(), Some(9));
                for look in ["check", "stats"] {
                    let refused = entresol(&["store", look, new.to_str().unwrap()]);
                    let said = text(&refused.stderr);
                    let is_told = said.contains("incomplete copy");
                    assert!(refused.status.code() == Some(2) && is_told, "{said}");
                }
            }
        }
        done(&entresol(&arguments));
        let checked = done(&entresol(&["store", "check", new.to_str().unwrap(), "--json"]));
        let report: serde_json::Value = serde_json::from_str(&checked).unwrap();
        let found = ["log_records", "versions"].map(|name| report[name].as_u64().unwrap());
        assert!(found.iter().sum::<u64>() >= 25_001, "{report}");
        fs::remove_dir_all(&new).unwrap();
    }
}

#[test]
fn a_limit_of_file_sizes_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    filled(scratch.path(), 10);
    for call in [
        "store put --create new key value",
        "store put data key value",
        "store checkpoint data copy",
        "store salvage data copy",
        "store compact data",
        "bench ycsb --directory ycsb --keys 10000",
        "bench index --index sv-tree --keys 1000 --rounds 1 --report .",
    ] {
        let script = format!("ulimit -f 8; exec \"$0\" {call} >/dev/null");
        let output = shell(&script, scratch.path());
        let said = text(&output.stderr);
        let is_told = said.contains("too large") || output.status.success();
        assert!(output.status.code().is_some() && is_told, "{call}: {:?} {said}", output.status);
    }
    done(&shell("\"$0\" store check data", scratch.path()));
}

#[test]
fn trials_of_nothing_are_refused() {
    for call in [
        "torture store --processes --kills 0",
        "torture store --processes --duration 0s",
        "torture store --waits --duration 0s",
        "torture store --histories 0",
        "torture cache --duration 0s",
        "torture index --histories 0",
        "torture media --histories 0",
        "bench ycsb --directory none --operations 0",
        "bench ycsb --directory none --keys 0",
        "bench cache --rounds 0",
        "bench cache --operations 0",
        "bench cache --keys 0",
        "bench index --rounds 0",
        "bench index --keys 0",
        "bench index --operations 0 --keys 1000 --rounds 1",
        "bench trace --file /dev/null --format keys --requests 0",
        "bench trace --file /dev/null --format keys",
    ] {
        let refused = entresol(&call.split(' ').collect::<Vec<_>>());
        let said = text(&refused.stderr);
        assert!(matches!(refused.status.code(), Some(1 | 2)), "{call}: {said}");
        assert!(!said.is_empty() && refused.stdout.is_empty(), "{call}: {said}");
    }
}
