//! Memtable images on emulated persistent memory, when they cannot be created or cannot keep up.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_media::PmemMode;
use entresol_store::{Kvdb, KvdbOptions, KvsOptions, MemtableImageStatistics};

/// Shortest pause of the store after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);

fn images(store: &Kvdb) -> MemtableImageStatistics {
    store.statistics().expect("open").memtable_images.expect("on persistent memory")
}

/// Waits until the statistics satisfy a condition.
fn until(
    store: &Kvdb,
    is_so: impl Fn(&MemtableImageStatistics) -> bool,
) -> MemtableImageStatistics {
    let clock = SystemClock::new();
    let begun = clock.now();
    loop {
        let found = images(store);
        if is_so(&found) {
            return found;
        }
        assert!(clock.now().since(begun) < Duration::from_secs(60), "{found:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_image_that_cannot_be_made_is_told_tried_again_ever_more_rarely_and_harms_nothing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    let pmem = Some(PmemMode { assume_dax: true });
    let options = KvdbOptions { pmem, ..KvdbOptions::default() };
    let store = Kvdb::create_at(&path, options).expect("a store");
    // The first generation begins with the first segment.
    let in_its_place = path.join("image-000000000001");
    std::fs::create_dir(&in_its_place).expect("new");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let clock = SystemClock::new();
    let begun = clock.now();
    for number in 0..100_u32 {
        kvs.put(&number.to_be_bytes(), b"value").expect("room");
    }
    let found = until(&store, |it| it.failures >= 5);
    let pauses = clock.now().since(begun).div_duration_f64(PAUSE_MIN);
    // Each failure doubles the pause, so the failures grow with the logarithm of the time.
    assert!(found.failures as f64 <= 1.0 + (pauses + 1.0).log2(), "{found:?} in {pauses} pauses");
    assert!(found.failure.is_some_and(|why| why.contains("image-000000000001")));
    assert_eq!(found.writes_missing, 100);
    kvs.put(b"key", b"value").expect("the store goes on");
    std::fs::remove_dir(&in_its_place).expect("empty");
    let found = until(&store, |it| it.failure.is_none() && it.writes_missing == 0);
    assert!(found.failures >= 5, "what has been is not forgotten");
    store.close().expect("durable");
    let store = Kvdb::open_at(&path, options).expect("the store");
    assert_eq!(store.statistics().expect("open").log_records_read, 0);
    let kvs = store.kvs("data").expect("there");
    assert_eq!(kvs.get(&99_u32.to_be_bytes()).expect("readable"), Some(b"value".to_vec()));
}

#[test]
fn writers_do_not_outrun_an_image_by_much() {
    const WRITES: u64 = 400_000;
    let scratch = tempfile::tempdir().expect("a directory");
    let pmem = Some(PmemMode { assume_dax: true });
    let options = KvdbOptions { pmem, ..KvdbOptions::default() };
    let store = Kvdb::create_at(&scratch.path().join("store"), options).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    let missing_most = std::thread::scope(|scope| {
        let writers = [0, 1].map(|first| {
            let kvs = &kvs;
            scope.spawn(move || {
                for number in (first..WRITES).step_by(2) {
                    let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                    kvs.put(&key, b"value").expect("room");
                }
            })
        });
        let mut most = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            most = most.max(images(&store).writes_missing);
            std::thread::sleep(Duration::from_millis(1));
        }
        most
    });
    // Without the delay, writers would be ahead by nearly all of their writes.
    assert!(missing_most < WRITES / 2, "{missing_most} writes were in no image");
    let found = until(&store, |it| it.writes_missing == 0);
    assert_eq!((found.failures, found.failure), (0, None));
}
