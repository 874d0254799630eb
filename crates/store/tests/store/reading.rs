//! Stores that are only read: reading opens nothing for writing and takes no space, and a pipe in
//! the place of a file does not block it.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use entresol_base::SystemClock;
use entresol_media::{Directory, LocalDirectory};
use entresol_store::{
    Kvdb, KvdbOptions, KvsOptions, SalvageReport, StoreError, check_at, salvage_at,
};

const KEYS: u32 = 300;

fn options() -> KvdbOptions {
    KvdbOptions { segment_bytes: 64 << 10, generation_bytes: 1 << 20, ..KvdbOptions::default() }
}

/// Salvages a store to its end.
fn whole_salvage(from: &Path, to: &Path) -> Result<SalvageReport, StoreError> {
    let report = salvage_at(from, to, options(), &mut |_| ControlFlow::Continue(()))?;
    Ok(report.expect("it went on"))
}

/// Creates a store with values in runs, in flushed segments and in the log.
fn fill(path: &Path) {
    let store = Kvdb::create_at(path, options()).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("is made");
    for number in 0..KEYS {
        kvs.put(&number.to_be_bytes(), &vec![7; number as usize * 8]).expect("room");
        if number == KEYS / 2 {
            store.compact().expect("compacts");
        }
    }
    store.close().expect("closes");
}

fn expect(store: &Kvdb) {
    let kvs = store.kvs("data").expect("there");
    for number in 0..KEYS {
        let found = kvs.get(&number.to_be_bytes()).expect("readable");
        assert_eq!(found, Some(vec![7; number as usize * 8]), "key {number}");
    }
}

fn open_read_only(path: &Path) -> Result<Kvdb, StoreError> {
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open_existing(path)?);
    Kvdb::open_read_only(directory, options(), Arc::new(SystemClock::new()))
}

/// Returns the files of a directory that this process has open or mapped for writing.
fn writable(path: &Path) -> Vec<String> {
    let prefix = format!("{}/", path.display());
    let maps = fs::read_to_string("/proc/self/maps").expect("is read");
    let mut found: Vec<String> =
        maps.lines().filter(|line| line.contains(&prefix)).map(str::to_owned).collect();
    assert!(!found.is_empty(), "the log is mapped");
    found.retain(|line| line.contains(" rw"));
    let entries = fs::read_dir("/proc/self/fd").expect("is listed");
    for number in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        // Other tests may close descriptors meanwhile.
        let Ok(file) = fs::read_link(format!("/proc/self/fd/{number}")) else { continue };
        let Ok(text) = fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else { continue };
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        let is_written = flags.is_none_or(|flags| flags & 3 != 0);
        if is_written && file.starts_with(path) {
            found.push(file.display().to_string());
        }
    }
    found
}

fn blocks(path: &Path) -> u64 {
    let entries = fs::read_dir(path).expect("is listed");
    entries.map(|entry| entry.expect("is listed").metadata().expect("there").blocks()).sum()
}

#[test]
fn a_store_that_is_only_read_is_opened_to_be_read_and_takes_no_space() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [path, copy, new] = ["store", "copy", "new"].map(|name| scratch.path().join(name));
    fill(&path);
    fs::create_dir(&copy).expect("is made");
    for entry in fs::read_dir(&path).expect("is listed") {
        let entry = entry.expect("is listed");
        let to = copy.join(entry.file_name());
        let done = Command::new("cp").arg("--sparse=always").arg(entry.path()).arg(to).status();
        assert!(done.expect("runs").success());
    }
    let before = blocks(&copy);
    assert!(before < blocks(&path), "what was not written takes no space");
    let store = open_read_only(&copy).expect("opens");
    assert_eq!(writable(&copy), Vec::<String>::new());
    expect(&store);
    drop(store);
    assert!(check_at(&copy, &mut |_| {}).expect("checks").is_whole());
    assert!(whole_salvage(&copy, &new).expect("salvages").findings.is_empty());
    assert_eq!(blocks(&copy), before);
    expect(&Kvdb::open_at(&new, options()).expect("opens"));
}

fn within<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || say.send(run()));
    said.recv_timeout(Duration::from_secs(60)).expect("an answer")
}

/// Opening a pipe for reading waits until a writer opens it.
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
    for name in ["MANIFEST", "000000000001.segment", "run-0000000000000001", "HEAT", "PLACE"] {
        let scratch = tempfile::tempdir().expect("a directory");
        let at = |name: &str| -> PathBuf { scratch.path().join(name) };
        let path = at("store");
        fill(&path);
        fs::remove_file(path.join(name))
            .or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
            .expect("is removed");
        let made = Command::new("mkfifo").arg(path.join(name)).status().expect("runs");
        assert!(made.success());
        let (one, two, new) = (path.clone(), path.clone(), at("new"));
        let checked = within(move || check_at(&one, &mut |_| {}));
        let salvaged = within(move || whole_salvage(&two, &new));
        let opened = within(move || Kvdb::open_at(&path, options()).map(drop));
        if name == "MANIFEST" {
            let error = opened.expect_err("it is no file").to_string();
            assert!(error.contains("MANIFEST"), "{error}");
        }
        assert!(checked.is_ok() && salvaged.is_ok(), "{checked:?} {salvaged:?}");
    }
}
