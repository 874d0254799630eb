//! A process that may have too few files open for its store.
#![expect(clippy::expect_used, reason = "a test says what it expects")]
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use entresol_media::machine::raise_descriptor_limit;
use entresol_store::{Kvdb, KvdbOptions, KvsOptions, StoreError, check_at, salvage_at};

const CHILD: &str = "ENTRESOL_STORE_DESCRIPTORS_CHILD";
/// Number of files that the process may open at first, and number of `Kvs`, with a run each.
const FEW: u64 = 24;
const KVS: u32 = 24;
/// Number with which not even one file of a store can be checked.
const FEWEST: u64 = 7;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 4 * KvdbOptions::SEGMENT_BYTES_MIN,
        ..KvdbOptions::default()
    }
}

/// Runs a test in a process that may have few files open until it raises the limit.
fn in_a_process_with(few: u64, name: &str, path: &Path) {
    let test = std::env::current_exe().expect("this test");
    let script = format!("ulimit -S -n {few} && exec \"$0\" --exact --nocapture {name}");
    let mut child = Command::new("sh");
    let done = child.args(["-c", &script]).arg(test).env(CHILD, path).status().expect("runs");
    assert!(done.success());
}

fn counted(path: &Path) -> usize {
    let runs = std::fs::read_dir(path).expect("a directory").filter(|entry| {
        let entry = entry.as_ref().expect("an entry");
        entry.file_name().to_string_lossy().starts_with("run-")
    });
    runs.count()
}

fn write(path: &Path) {
    let store = Kvdb::create_at(path, options()).expect("a store");
    let all: Vec<_> = (0..KVS)
        .map(|number| store.create_kvs(&number.to_string(), KvsOptions::default()).expect("new"))
        .collect();
    for kvs in &all {
        kvs.put(b"a", b"1").expect("room");
    }
    // Whatever cannot be opened, in the end the manifest, the store goes on.
    let mut limit = FEW;
    while let Err(error) = store.compact() {
        let error = error.to_string();
        assert!(error.contains("raise the limit of open files"), "{error}");
        let put = all[0].put(b"b", b"2");
        assert!(put.is_ok() || put.is_err_and(|error| error.is_no_descriptors()));
        assert_eq!(all[0].get(b"a").expect("there").as_deref(), Some(&b"1"[..]));
        limit += 1;
        raise_descriptor_limit(limit).expect("may be raised");
    }
    assert!(limit > FEW + 1, "{limit}");
    // Sockets take all remaining descriptors when a writer needs the next segment.
    let socket = || std::net::UdpSocket::bind("127.0.0.1:0");
    let others: Vec<_> = std::iter::from_fn(|| socket().ok()).collect();
    let mut puts = (0..u32::from(u16::MAX)).map(|_| all[0].put(b"c", &[3; 5000]));
    let refused = puts.find_map(Result::err).expect("there are none for a segment");
    let told = refused.to_string();
    assert!(told.contains("raise the limit of open files") && !told.contains("room"), "{told}");
    assert!(refused.is_no_descriptors() && !refused.is_no_room(), "{told}");
    drop(others);
    raise_descriptor_limit(limit + 16).expect("may be raised");
    all[0].put(b"c", &[3; 5000]).expect("there are some again");
    store.compact().expect("there are some again");
    store.close().expect("closes");
    assert_eq!(counted(path), KVS as usize, "nothing is left behind");
}

fn open(path: &Path) {
    let error = Kvdb::open_at(path, options()).expect_err("too many");
    let is_told =
        matches!(error, StoreError::Descriptors { needed, .. } if needed > 2 * KVS as usize);
    assert!(is_told, "{error}");
    raise_descriptor_limit(u64::MAX).expect("may be raised");
    let store = Kvdb::open_at(path, options()).expect("opens");
    for number in 0..KVS {
        let kvs = store.kvs(&number.to_string()).expect("there");
        assert_eq!(kvs.get(b"a").expect("there").as_deref(), Some(&b"1"[..]));
    }
}

/// Runs in the child process.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let path = Path::new(&path);
    if path.exists() { open(path) } else { write(path) }
}

#[test]
fn a_store_with_too_few_descriptors_says_so_and_goes_on_when_it_has_more() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    in_a_process_with(FEW, "child", &path);
    in_a_process_with(FEW, "child", &path);
    assert!(check_at(&path, &mut |_| {}).expect("a store").is_whole());
}

/// Does work with one descriptor more each time, until there are enough. Returns that number.
fn try_with_more<T>(mut work: impl FnMut() -> Result<T, StoreError>) -> (u64, T) {
    for limit in FEWEST.. {
        raise_descriptor_limit(limit).expect("may be raised");
        match work() {
            Ok(done) => return (limit, done),
            Err(error) => assert!(error.is_no_descriptors(), "with {limit}: {error}"),
        }
    }
    unreachable!()
}

/// Runs in the child process.
#[test]
fn repairing_child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (path, copy) = (Path::new(&path), Path::new(&path).with_extension("copy"));
    let (enough, report) = try_with_more(|| check_at(path, &mut |_| {}));
    assert!(report.is_whole() && enough > FEWEST, "{enough}: {report:?}");
    let (enough, report) = try_with_more(|| {
        let salvaged = salvage_at(path, &copy, options(), &mut |_| ControlFlow::Continue(()));
        let is_there = copy.exists() && std::fs::read_dir(&copy).expect("readable").count() > 0;
        assert_eq!(is_there, salvaged.is_ok(), "{salvaged:?}");
        salvaged
    });
    let report = report.expect("it went on");
    assert!(report.findings.is_empty() && enough > FEWEST, "{enough}: {report:?}");
    assert!(report.kvs.iter().all(|kvs| kvs.versions > 0), "{report:?}");
}

#[test]
fn a_check_and_a_salvage_with_too_few_descriptors_say_so_and_find_no_damage() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    let store = Kvdb::create_at(&path, options()).expect("a store");
    for number in 0..KVS {
        let kvs = store.create_kvs(&number.to_string(), KvsOptions::default()).expect("new");
        kvs.put(b"a", &[1; 3000]).expect("room");
    }
    store.compact().expect("room");
    store.kvs("0").expect("there").put(b"b", &[2; 3000]).expect("room");
    store.close().expect("closes");
    in_a_process_with(FEWEST, "repairing_child", &path);
}
