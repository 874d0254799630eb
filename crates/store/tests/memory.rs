//! The store's single memory limit, measured from outside: by the system's count of the process's
//! memory, without mapped files. The test is alone in its file because it measures the whole
//! process.

#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_media::files;
use entresol_media::machine::give_large_buffers_back;
use entresol_store::{CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions};

const LIMIT: u64 = 32 << 20;
/// Half of the values are small: a MiB has about 1,800 keys.
const KEYS: u64 = 300_000;
const VALUE_BYTES: [usize; 2] = [100, 1000];

/// Returns the bytes of the process's memory that belong to no file.
fn anonymous_bytes() -> u64 {
    let status = files::read_to_string("/proc/self/status".as_ref()).expect("proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("is said");
    let kib = line.split_whitespace().next().expect("a number").parse::<u64>();
    kib.expect("a number") << 10
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn put(kvs: &Kvs, rng: &mut Rng, number: u64) {
    let mut value = [0; VALUE_BYTES[1]];
    value[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
    kvs.put(&key(number), &value[..VALUE_BYTES[number as usize % 2]]).expect("room");
}

/// Runs the operations of YCSB's workload A, with a scan now and then.
fn read_write_and_scan(kvs: &Kvs, seed: u64) {
    let mut rng = Rng::named(seed, "mix");
    for _ in 0..100_000 {
        let number = rng.below(KEYS);
        if rng.one_in(2) {
            put(kvs, &mut rng, number);
        } else if rng.one_in(100) {
            let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
            cursor.seek(&key(number));
            for _ in 0..100 {
                cursor.next().expect("readable");
            }
        } else {
            assert!(kvs.get(&key(number)).expect("readable").is_some());
        }
    }
}

fn scan_all(kvs: &Kvs) {
    let mut cursor = kvs.cursor(CursorOptions::default()).expect("open");
    let mut shown = 0;
    while cursor.next().expect("readable").is_some() {
        shown += 1;
    }
    assert_eq!(shown, KEYS);
}

/// Far more data than memory is loaded, read and written by two threads, and scanned.
#[test]
fn the_store_keeps_to_its_memory() {
    let scratch = tempfile::tempdir().expect("a directory");
    give_large_buffers_back();
    let options = KvdbOptions { memory_bytes: LIMIT, ..KvdbOptions::default() };
    let before = anonymous_bytes();
    let store = Kvdb::create_at(&scratch.path().join("store"), options).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let (most, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                most.fetch_max(anonymous_bytes(), Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut rng = Rng::named(1, "load");
        (0..KEYS).for_each(|number| put(&kvs, &mut rng, number));
        let after_load = most.load(Relaxed);
        let threads = [0, 1].map(|seed| {
            let kvs = &kvs;
            scope.spawn(move || read_write_and_scan(kvs, seed))
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let after_mix = most.load(Relaxed);
        scan_all(&kvs);
        most.fetch_max(anonymous_bytes(), Relaxed);
        is_over.store(true, Relaxed);
        [before, after_load, after_mix, most.load(Relaxed)].map(|bytes| bytes >> 10)
    });
    let memory = store.statistics().expect("open").memory;
    let what =
        format!("KiB before, after the load, after the mix, in the end: {told:?}; {memory:?}");
    println!("{what}");
    let most = most.load(Relaxed) - before;
    assert!(most <= LIMIT, "{what}");
    // Otherwise nothing has pressed against the limit.
    assert!(most > LIMIT / 2, "{what}");
    assert!(memory.memtable_index_bytes <= memory.memtable_index_bytes_max, "{what}");
    assert!(memory.block_cache_bytes <= memory.block_cache_bytes_max, "{what}");
    assert!(memory.mapped_bytes > 0 && memory.memory_bytes_max == LIMIT, "{what}");
}
