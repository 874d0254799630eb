//! Memtable images on emulated persistent memory, when they cannot be created or cannot keep up.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_media::{LocalDirectory, PmemMode};
use entresol_store::{CursorOptions, Kvdb, KvdbOptions, KvsOptions, MemtableImageStatistics};

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

/// After a clean close, the image leads to records that nothing has read since. A damaged one must
/// neither be passed over for an older version nor decide that there is none.
#[test]
fn records_that_an_image_leads_to_are_verified_before_they_decide() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    let pmem = Some(PmemMode { assume_dax: true });
    let options = KvdbOptions { pmem, ..KvdbOptions::default() };
    let store = Kvdb::create_at(&path, options).expect("a store");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
    // Key, offset of a byte from the record's beginning, and the bits that flip in it: of two keys,
    // and of a kind, which turns a put into one with an expiry.
    let cases: [(&[u8], usize, u8); 3] = [(b"gone", 24, 1), (b"moved", 26, 2), (b"timed", 4, 4)];
    for (key, ..) in cases {
        kvs.put(key, b"older").expect("room");
    }
    store.compact().expect("room");
    for (key, ..) in cases {
        match key {
            b"gone" => kvs.delete(key).expect("room"),
            _ => kvs.put(key, b"newer").expect("room"),
        };
    }
    // Recovery reads the last record, and what is behind the image.
    kvs.put(b"last", b"newer").expect("room");
    until(&store, |it| it.writes_missing == 0);
    store.close().expect("durable");

    let files = std::fs::read_dir(&path).expect("there").map(|it| it.expect("there").path());
    let segments: Vec<_> =
        files.filter(|it| it.extension().is_some_and(|it| it == "segment")).collect();
    for (key, offset, bits) in cases {
        let mut damaged = 0;
        for segment in &segments {
            let whole = std::fs::read(segment).expect("readable");
            let Some(at) = whole.windows(key.len()).rposition(|it| it == key) else { continue };
            let mut bytes = whole.clone();
            bytes[at - 24 + offset] ^= bits;
            std::fs::write(segment, bytes).expect("writable");
            damaged += 1;
            let directory = Arc::new(LocalDirectory::open_existing(&path).expect("there"));
            let clock = Arc::new(SystemClock::new());
            let store = Kvdb::open_read_only(directory, options, clock).expect("opens");
            assert_eq!(store.statistics().expect("open").log_records_read, 0);
            let kvs = store.kvs("data").expect("there");
            let error = kvs.get(key).expect_err("damaged").to_string();
            assert!(error.contains("damaged"), "{error}");
            let mut cursor = kvs.cursor(CursorOptions::default()).expect("begins");
            let error = loop {
                match cursor.next() {
                    Ok(Some((key, value))) => assert_eq!(value, b"newer", "{}", key.escape_ascii()),
                    Ok(None) => panic!("a cursor passes over {}", key.escape_ascii()),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(error.contains("damaged"), "{error}");
            store.close().expect("read only");
            std::fs::write(segment, whole).expect("writable");
        }
        assert_eq!(damaged, 1, "segments with {}", key.escape_ascii());
    }
}
