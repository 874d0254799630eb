//! Commands on a store whose surroundings are odd: pipes and links in the place of files, clocks,
//! limits, signals, and arguments that make no sense.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

#[test]
fn a_pipe_in_the_place_of_a_store_is_refused_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let (place, pipe) = (scratch.path().join("data"), scratch.path().join("pipe"));
    done(&store("put", &place, &["--create", "a", "b"]));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let named = pipe.to_str().unwrap();
    for refused in [
        store("get", &pipe, &["a"]),
        store("put", &pipe, &["--create", "a", "b"]),
        store("create", &pipe, &[]),
        store("check", &pipe, &[]),
        store("salvage", &place, &[named]),
        store("checkpoint", &place, &[named]),
        entresol(&["store", "volume", "add", place.to_str().unwrap(), "capacity", named]),
        entresol(&["store", "volume", "found", place.to_str().unwrap(), named]),
    ] {
        let said = failed(&refused, 2);
        assert!(said.contains("no directory"), "{said}");
    }
}

#[test]
fn a_value_is_not_written_over_a_file_of_a_store_by_any_of_its_names() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "a", "b"]));
    done(&store("compact", &place, &[]));
    done(&store("put", &place, &["c", "d"]));
    let before = done(&store("scan", &place, &[]));
    let link = scratch.path().join("link");
    for entry in std::fs::read_dir(&place).unwrap() {
        std::fs::hard_link(entry.unwrap().path(), &link).unwrap();
        let said = failed(&store("get", &place, &["a", "--file", link.to_str().unwrap()]), 2);
        assert!(said.contains("a file of a store"), "{said}");
        std::fs::remove_file(&link).unwrap();
    }
    // A file with two names that is no store's is written.
    let own = scratch.path().join("own");
    std::fs::File::create_new(&own).unwrap().write_all(b"my own").unwrap();
    std::fs::hard_link(&own, &link).unwrap();
    done(&store("get", &place, &["a", "--file", link.to_str().unwrap()]));
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "b");
    let within = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let medium = format!("file:{}", within("MANIFEST"));
    for words in [
        &["profile", "--medium", "model:aep", "--save", &within("MANIFEST")][..],
        &["profile", "--medium", &medium, "--no-save"],
        &["profile", "--medium", "model:aep", "--no-save", "--report", &within("pages")],
        &["bench", "act", "--medium", &medium],
        &["bench", "curve", "--system", &format!("raw:{medium}")],
        &["bench", "curve", "--system", &format!("store:{}", within("x"))],
        &["bench", "ycsb", "--keys", "100", "--directory", &within("x")],
        &["torture", "fill", "--directory", &within("x")],
    ] {
        let said = failed(&entresol(words), 2);
        assert!(said.contains("belongs to a store"), "{words:?}: {said}");
        assert!(!place.join("x").exists() && !place.join("pages").exists(), "{words:?}");
    }
    assert_eq!(done(&store("scan", &place, &[])), before);
}

#[test]
fn processes_that_make_a_store_at_once_all_put_into_it() {
    let scratch = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let place = scratch.path().join(round.to_string());
        let put = |key: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
            command.args(["store", "put", "--create"]).arg(&place).args([key, "value"]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let keys = ["a", "b", "c", "d", "e"];
        for child in keys.map(put) {
            done(&child.wait_with_output().unwrap());
        }
        assert_eq!(done(&store("scan", &place, &["--keys-only"])), keys.join("\n") + "\n");
    }
}

#[test]
fn a_compaction_says_which_keys_it_could_not_reach() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "a", "b"]));
    done(&store("compact", &place, &[]));
    done(&store("put", &place, &["--create", "--kvs", "other", "c", "d"]));
    let run = std::fs::read_dir(&place).unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.starts_with("run-").then(|| place.join(name))
    });
    std::fs::remove_file(run.unwrap()).unwrap();
    let output = store("compact", &place, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Kvs 'default' cannot be read") && said.contains("run-"), "{said}");
    assert_eq!(done(&store("get", &place, &["--kvs", "other", "c"])), "d\n");
}

#[test]
fn files_keep_their_mode_and_belong_to_the_owner_of_the_store() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "a", "b"]));
    let manifest = place.join("MANIFEST");
    std::fs::set_permissions(&manifest, std::fs::Permissions::from_mode(0o600)).unwrap();
    done(&store("put", &place, &["c", "d"]));
    assert_eq!(std::fs::metadata(&manifest).unwrap().mode() & 0o777, 0o600);
    // Only the superuser can give files away, and only its own must be.
    let owner = std::os::unix::fs::chown(&place, Some(12345), Some(23456));
    if owner.is_err() {
        return;
    }
    done(&store("put", &place, &["e", "f"]));
    done(&store("compact", &place, &[]));
    for entry in std::fs::read_dir(&place).unwrap() {
        let (name, found) = entry.map(|it| (it.file_name(), it.metadata().unwrap())).unwrap();
        assert_eq!((found.uid(), found.gid()), (12345, 23456), "{name:?}");
    }
}

#[test]
fn a_volume_is_known_by_each_path_that_leads_to_it_and_no_other() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    done(&store("create", &path("home"), &[]));
    let volume = |command: &str, more: &[&str]| {
        let home = path("home");
        entresol(&[&["store", "volume", command, home.to_str().unwrap()], more].concat())
    };
    done(&volume("add", &["staging", path("one").to_str().unwrap()]));
    std::fs::rename(path("one"), path("two")).unwrap();
    std::fs::create_dir(path("empty")).unwrap();
    for other in ["empty", "home"] {
        let said = failed(&volume("found", &[path(other).to_str().unwrap()]), 2);
        assert!(
            said.contains(&format!("{other} is no volume of the store: it has no label")),
            "{said}"
        );
    }
    done(&volume("found", &[&format!("{}/", path("two").display())]));
    std::os::unix::fs::symlink(path("two"), path("link")).unwrap();
    for spelled in ["link", "two/../two", "two/"] {
        done(&volume("budget", &[path(spelled).to_str().unwrap(), "1GiB"]));
    }
    done(&volume("retire", &[path("link").to_str().unwrap()]));
}

#[test]
fn a_directory_with_the_name_of_a_segment_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "a", "b"]));
    std::fs::create_dir(place.join("000000000099.segment")).unwrap();
    assert_eq!(done(&store("get", &place, &["a"])), "b\n");
    let said = failed(&store("put", &place, &["c", "d"]), 1);
    assert!(said.contains("000000000099.segment") && said.contains("move it"), "{said}");
    std::fs::remove_dir(place.join("000000000099.segment")).unwrap();
    done(&store("put", &place, &["c", "d"]));
}

#[test]
fn a_copy_is_made_at_a_path_and_not_on_a_medium() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "a", "b"]));
    for (command, to) in [("checkpoint", "pmem:cc"), ("salvage", "pmem:dd,assume-dax")] {
        let mut words = Command::new(env!("CARGO_BIN_EXE_entresol"));
        words.current_dir(&scratch).args(["store", command, "data", to]);
        let said = String::from_utf8(words.output().unwrap().stderr).unwrap();
        assert!(said.contains("not a path") && !scratch.path().join(to).exists(), "{said}");
    }
}

#[test]
fn a_store_whose_time_is_ahead_of_the_clock_says_so() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "a", "b"]));
    for command in ["check", "stats"] {
        assert!(!done(&store(command, &place, &[])).contains("ahead"));
    }
    let put_at = |place: &Path, seconds: u32| {
        let clock = std::sync::Arc::new(entresol_base::ManualClock::at(Seconds(seconds)));
        let directory = std::sync::Arc::new(entresol_media::LocalDirectory::open(place).unwrap());
        let opened = match place.join("MANIFEST").exists() {
            true => entresol_store::Kvdb::open(directory, KvdbOptions::default(), clock),
            false => entresol_store::Kvdb::create(directory, KvdbOptions::default(), clock),
        };
        let opened = opened.unwrap();
        let kvs = opened.kvs("default");
        let kvs =
            kvs.or_else(|_| opened.create_kvs("default", entresol_store::KvsOptions::default()));
        kvs.unwrap().put_for(b"c", b"d", Some(std::time::Duration::from_secs(1))).unwrap();
        opened.close().unwrap();
    };
    // A salvage by a clock that is ahead of what the store has seen says so as well.
    for (name, seconds, is_odd) in [("old", 1_000_000_000, true), ("copied", u32::MAX >> 1, false)]
    {
        let (old, new) = (scratch.path().join(name), scratch.path().join(format!("{name} new")));
        put_at(&old, seconds);
        let said = done(&store("salvage", &old, &[new.to_str().unwrap()]));
        assert_eq!(said.contains("make it again"), is_odd, "{name}: {said}");
    }
    put_at(&place, 3_800_000_000);
    for command in ["check", "stats"] {
        let said = done(&store(command, &place, &[]));
        assert!(said.contains("ahead of this machine's clock"), "{command}: {said}");
    }
    assert!(json(&store("check", &place, &["--json"]))["time_s"].as_u64() >= Some(3_800_000_000));
}

/// Threads are counted for each user, and the limit does not bind root.
#[test]
fn without_threads_each_command_says_so_and_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(scratch.path(), all).unwrap();
    let run = |threads: u32, words: &str| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={threads}"));
        command.args(["setpriv", "--reuid", "54321", "--clear-groups"]);
        command.args([env!("CARGO_BIN_EXE_entresol"), "store"]).args(words.split(' '));
        command.current_dir(&scratch).output()
    };
    match run(1000, "create data") {
        Ok(made) if made.status.success() => {}
        // Only root may become another user, who must reach the program.
        _ => return,
    }
    done(&run(1000, "put data a b --create").unwrap());
    for threads in [1, 2, 4, 6, 9] {
        for words in [
            "put data c d",
            "compact data",
            "create new",
            "checkpoint data new",
            "salvage data new",
            "check data",
        ] {
            let ran = run(threads, words).unwrap();
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            let remedy = said.contains("ulimit -u");
            match ran.status.code() {
                Some(0) => std::fs::remove_dir_all(scratch.path().join("new")).unwrap_or_default(),
                Some(1) => assert!(remedy, "{threads}, {words}: {said}"),
                other => panic!("{threads}, {words}: {other:?}: {said}"),
            }
            assert!(!scratch.path().join("new").exists(), "{threads}, {words}");
        }
    }
}

#[test]
fn a_store_whose_creation_is_interrupted_can_be_created_again() {
    let scratch = tempfile::tempdir().unwrap();
    for (number, signal) in ["-TERM", "-INT", "-HUP"].into_iter().cycle().take(12).enumerate() {
        let place = scratch.path().join(format!("data{number}"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .args(["store", "create", place.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(number as u64));
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        if child.wait().unwrap().success() {
            done(&store("check", &place, &[]));
        } else {
            done(&store("create", &place, &[]));
        }
    }
}

#[test]
fn a_torture_whose_whole_group_is_interrupted_says_so_and_leaves_nothing() {
    use std::os::unix::process::CommandExt;
    for words in [&["connections"][..], &["store", "--processes"]] {
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path().join("place");
        let child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .arg("torture")
            .args(words)
            .args(["--duration", "20s", "--directory", place.to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(700));
        let group = format!("-{}", child.id());
        Command::new("kill").args(["-INT", "--", &group]).status().unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{words:?}: {said}");
        assert!(!place.exists(), "{words:?}: {said}");
    }
}

#[test]
fn a_torture_that_ends_at_once_leaves_no_server() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("place");
    let named = place.to_str().unwrap().to_owned();
    let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
        .args(["torture", "connections", "--directory", &named])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    for _ in 0..2 {
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let is_left = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        lines.map(|it| String::from_utf8_lossy(&it).into_owned()).any(|it| it.contains(&named))
    };
    for _ in 0..100 {
        if !is_left() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("a server is left");
}

#[test]
fn what_tries_or_measures_nothing_or_elsewhere_is_refused_and_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("y");
    let at = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (y, within, report) = (at("y"), at("y/sub"), at("report"));
    let ycsb = |more: &[&str]| {
        let words = ["bench", "ycsb", "--directory", &y, "--keys", "100", "--workload", "load"];
        entresol(&[&words, more].concat())
    };
    for (refused, what) in [
        (ycsb(&["--report", &y]), "another folder"),
        (ycsb(&["--report", &within]), "another folder"),
        (ycsb(&["--duration", "0s"]), "duration"),
        (ycsb(&["--generation", "0"]), "--generation"),
        (ycsb(&["--memory", "1KiB"]), "memory_bytes"),
        (entresol(&["torture", "fill", "--directory", &y, "--size", "0"]), "--size"),
        (entresol(&["torture", "fill", "--directory", &y, "--size", "1KiB"]), "--size"),
        (
            entresol(&[
                "bench",
                "act",
                "--directory",
                &y,
                "--interval",
                "1ms",
                "--report",
                &report,
            ]),
            "interval",
        ),
        (entresol(&["bench", "ycsb", "--directory", &y, "--workload", "a"]), "y"),
    ] {
        let said = failed(&refused, 2);
        assert!(said.contains(what), "{said}");
        assert!(!place.exists() && !Path::new(&report).exists(), "{said}");
    }
    let nothing = entresol(&["torture", "store", "--waits", "--duration", "1ns"]);
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert!(nothing.status.code() == Some(1) && said.contains("nothing was tried"), "{said}");
}

#[test]
fn a_load_that_is_interrupted_leaves_no_store_with_a_part_of_its_keys() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("y");
    let child = Command::new(env!("CARGO_BIN_EXE_entresol"))
        .args(["bench", "ycsb", "--keys", "30000000", "--workload", "load", "--keep"])
        .args(["--directory", place.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(600));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(130) && !place.exists(), "{said}");
    assert!(said.contains("removed in spite of --keep"), "{said}");
}

#[test]
fn wrong_arguments_are_told_with_what_is_wrong_and_what_to_do() {
    use std::os::unix::ffi::OsStringExt;
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("data");
    done(&store("put", &place, &["--create", "a", "b"]));
    let data = place.to_str().unwrap();
    for words in
        [["store", "get", data, "a", "--kvs"], ["bench", "curve", "--keys", "1", "--system"]]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
        command.args(words).arg(std::ffi::OsString::from_vec(b"store:\xff".to_vec()));
        let said = failed(&command.output().unwrap(), 2);
        assert!(said.contains("'store:\u{fffd}'") && said.contains("UTF-8"), "{said}");
    }
    let said = failed(&store("del", &place, &["--prefixes", ""]), 2);
    assert!(said.contains("an empty prefix") && !said.contains("drop"), "{said}");
    let said = failed(&store("policy", &place, &["--kvs", "logs", "fastest"]), 2);
    assert!(said.contains("put --create --kvs logs"), "{said}");
    let budget = entresol(&["store", "volume", "budget", data, data, "1"]);
    let said = String::from_utf8_lossy(&budget.stderr);
    assert!(budget.status.code() == Some(2) && said.contains("1MiB"), "{said}");
    // The first that was opened leaves none for the next.
    let line = "ulimit -n 5; exec \"$E\" store check data";
    let mut command = Command::new("sh");
    command.current_dir(&scratch).env("E", env!("CARGO_BIN_EXE_entresol")).args(["-c", line]);
    let said = failed(&command.output().unwrap(), 1);
    assert!(said.contains("ulimit -n"), "{said}");
    let line = "ulimit -f 10; exec \"$E\" store put new --create a b";
    let mut command = Command::new("sh");
    command.current_dir(&scratch).env("E", env!("CARGO_BIN_EXE_entresol")).args(["-c", line]);
    let said = failed(&command.output().unwrap(), 1);
    assert!(said.contains("ulimit -f") && !said.contains("--most"), "{said}");
}
