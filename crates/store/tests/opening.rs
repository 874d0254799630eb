//! Time until a store answers after its process was killed, or has closed it.
#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_media::PmemMode;
use entresol_store::{Kvdb, KvdbOptions, KvsOptions};

const CHILD: &str = "ENTRESOL_STORE_OPENING_CHILD";
const SCENE: &str = "ENTRESOL_STORE_OPENING_SCENE";
const GIB: f64 = (1_u64 << 30) as f64;
/// Bytes of a record beside its value: its header, and a key of eight bytes.
const RECORD_BYTES: u64 = 24 + 8;

/// Contents of a store before it is opened.
#[derive(Debug, Clone, Copy)]
struct Scene {
    name: &'static str,
    pmem: bool,
    is_closed: bool,
    keys: u64,
    value_bytes: usize,
}

const KILLED: Scene =
    Scene { name: "killed", pmem: true, is_closed: false, keys: 10_000_000, value_bytes: 100 };
const CLOSED: Scene = Scene { name: "closed", is_closed: true, ..KILLED };
/// Scenes with a gibibyte of log each.
const SMALL: Scene = Scene {
    name: "small",
    pmem: false,
    is_closed: false,
    keys: (1 << 30) / (RECORD_BYTES + 100),
    value_bytes: 100,
};
const LARGE: Scene =
    Scene { name: "large", keys: (1 << 30) / (RECORD_BYTES + 1000), value_bytes: 1000, ..SMALL };
const SCENES: [Scene; 4] = [KILLED, CLOSED, SMALL, LARGE];

impl Scene {
    /// Returns options with which all keys fit into one generation, so that nothing is flushed.
    fn options(&self) -> KvdbOptions {
        KvdbOptions {
            pmem: self.pmem.then_some(PmemMode { assume_dax: true }),
            segment_bytes: 64 << 20,
            generation_bytes: 4 << 30,
            memory_bytes: 12 << 30,
            ..KvdbOptions::default()
        }
    }

    fn value(&self, number: u64) -> Vec<u8> {
        vec![number as u8; self.value_bytes]
    }

    /// Lets a child process write, kills it, and opens the store it leaves. Returns the time from
    /// the opening to the first answer, and the number of records read for it.
    fn measure(&self) -> (Duration, u64) {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("store");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child_writes_and_waits_to_be_killed", "--nocapture"])
            .envs([(CHILD, path.as_os_str()), (SCENE, self.name.as_ref())])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let written = lines.map_while(Result::ok).any(|line| line.contains("WRITTEN"));
        child.kill().expect("still there");
        child.wait().expect("was killed");
        assert!(written, "the child has ended by itself");
        let clock = SystemClock::new();
        let begun = clock.now();
        let store = Kvdb::open_at(&path, self.options()).expect("the store");
        let kvs = store.kvs("data").expect("there");
        let asked = self.keys / 3;
        let first = kvs.get(&key(asked)).expect("readable");
        let took = clock.now().since(begun);
        assert_eq!(first, Some(self.value(asked)));
        for number in (0..self.keys).step_by(997).chain(self.keys - 1000..self.keys) {
            let found = kvs.get(&key(number)).expect("readable");
            assert_eq!(found, Some(self.value(number)));
        }
        assert_eq!(kvs.get(&key(self.keys)).expect("readable"), None);
        (took, store.statistics().expect("open").log_records_read)
    }
}

/// Returns keys that are not in order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Runs in a child process, which the tests below start.
#[test]
fn child_writes_and_waits_to_be_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let name = std::env::var(SCENE).expect("told with the path");
    let scene = SCENES.iter().find(|scene| scene.name == name).expect("one of them");
    let store = Kvdb::create_at(Path::new(&path), scene.options()).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    for number in 0..scene.keys {
        kvs.put(&key(number), &scene.value(number)).expect("room");
    }
    let store = if scene.is_closed { store.close().map(|()| None) } else { Ok(Some(store)) };
    let _kept = store.expect("closed");
    let mut out = std::io::stdout();
    writeln!(out, "WRITTEN").expect("somebody listens");
    std::thread::sleep(Duration::from_secs(3600));
}

/// Runs on files that emulate persistent memory.
#[test]
#[ignore = "run by .ci/slow: slow tests; takes a minute and 2 GiB of space"]
fn slow_of_ten_million_keys_that_are_not_flushed_only_the_last_are_read_to_open_a_store() {
    let (took, read) = KILLED.measure();
    println!("killed on persistent memory: first answer after {took:?}; {read} records were read");
    assert!(read < KILLED.keys / 20, "{read} records were read");
    let (took, read) = CLOSED.measure();
    println!("closed on persistent memory: first answer after {took:?}; {read} records were read");
    assert_eq!(read, 0);
}

#[test]
#[ignore = "run by .ci/slow: slow tests; takes a minute and 2 GiB of space"]
fn slow_the_log_of_a_store_on_a_disk_is_read_to_open_it() {
    for scene in [SMALL, LARGE] {
        let (took, read) = scene.measure();
        let bytes = scene.keys * (RECORD_BYTES + scene.value_bytes as u64);
        let (gib, value_bytes) = (bytes as f64 / GIB, scene.value_bytes);
        let per_gib = took.as_secs_f64() / gib;
        println!(
            "killed on a disk, values of {value_bytes} bytes: first answer after {took:?}, \
             {per_gib:.2} s a GiB of log; {read} records were read"
        );
        assert_eq!(read, scene.keys);
    }
}
