//! A process that may have too few files open for its store.
#![expect(clippy::expect_used, reason = "a test says what it expects")]
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::path::Path;
use std::process::Command;

use entresol_media::machine::raise_descriptor_limit;
use entresol_store::{Kvdb, KvdbOptions, KvsOptions, StoreError, check_at};

const CHILD: &str = "ENTRESOL_STORE_DESCRIPTORS_CHILD";
/// Number of files that the process may open at first, and number of `Kvs`, with a run each.
const FEW: u64 = 24;
const KVS: u32 = 24;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 4 * KvdbOptions::SEGMENT_BYTES_MIN,
        ..KvdbOptions::default()
    }
}

/// Runs the test `child` in a process that may have few files open until it raises the limit.
fn in_a_process_with_few(path: &Path) {
    let test = std::env::current_exe().expect("this test");
    let script = format!("ulimit -S -n {FEW} && exec \"$0\" --exact --nocapture child");
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
        assert!(put.is_ok() || put.is_err_and(|error| error.is_no_room()));
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
    let is_told = refused.to_string().contains("raise the limit of open files");
    assert!(refused.is_no_room() && is_told, "{refused}");
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
    in_a_process_with_few(&path);
    in_a_process_with_few(&path);
    assert!(check_at(&path, &mut |_| {}).expect("a store").is_whole());
}
