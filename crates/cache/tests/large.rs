//! Values in pieces: they are whole or gone, every command works for them, and their room comes
//! back.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
use entresol_cache::{
    Arithmetic, Cache, Config, Counted, DeleteOptions, Deleted, Expiry, GetOptions, ItemMeta, Join,
    Lookup, OldValue, Store, StoreMode, Stored, Upload, Worker,
};
use entresol_media::{IoBuffer, MediumSpec};

/// Bytes of a segment.
const SEGMENT: usize = 64 << 10;
/// Bytes that a value has in its record at most.
const REST: usize = SEGMENT / 2 - 64;
/// Media of values.
const MEDIA: [&str; 3] = ["dram", "pmem", "file"];
/// Lengths about those at which a value takes another segment.
const LENGTHS: [usize; 10] = [
    REST,
    REST + 1,
    SEGMENT - 1,
    SEGMENT,
    SEGMENT + 1,
    SEGMENT + REST,
    SEGMENT + REST + 1,
    3 * SEGMENT + 5000,
    8 * SEGMENT - 1,
    8 * SEGMENT,
];

struct Tenant {
    cache: Arc<Cache>,
    worker: Worker,
    clock: Arc<ManualClock>,
}

fn config(medium: &str, dir: &Path) -> Config {
    let medium = match medium {
        "dram" => MediumSpec::Dram,
        "file" => MediumSpec::File { path: dir.join("values"), model: None },
        _ => MediumSpec::Pmem { path: dir.join("values"), assume_dax: true },
    };
    Config {
        medium,
        medium_bytes: ByteSize::mib(8),
        segment_bytes: Some(ByteSize(SEGMENT as u64)),
        value_bytes_max: Some(ByteSize::mib(2)),
        restart_dir: Some(dir.join("state")),
        huge_pages: false,
        ..Config::dram(ByteSize::mib(8))
    }
}

fn value(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

impl Tenant {
    fn open(config: Config) -> Tenant {
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let cache = Cache::open(config, clock.clone()).unwrap();
        let worker = cache.worker();
        Tenant { cache, worker, clock }
    }

    fn now(&self) -> Seconds {
        self.clock.seconds()
    }

    fn store(&mut self, key: &str, store: &Store<'_>) -> Stored {
        let (key, now) = (key.as_bytes(), self.now());
        let mut old = None;
        loop {
            match self.worker.store(key, self.worker.hash(key), now, store, old.as_ref()) {
                // Write buffers come back.
                Stored::Busy => std::thread::yield_now(),
                // The record of its old value was among those that have filled a segment.
                Stored::Pending(read) => {
                    let mut buffer = IoBuffer::new(read.length);
                    self.cache.file().unwrap().read_at(read.offset, &mut buffer).unwrap();
                    let range = self.worker.complete_read(&read, &buffer).unwrap();
                    old = Some(OldValue::new(&read, buffer[range].to_vec()));
                }
                stored => return stored,
            }
        }
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let stored = self.store(key, &Store::set(value));
        assert!(matches!(stored, Stored::Stored { .. }), "{key}: {stored:?}");
    }

    fn get_with(&mut self, key: &str, options: &GetOptions) -> Option<(ItemMeta, Vec<u8>)> {
        let (key, now, mut out) = (key.as_bytes(), self.now(), Vec::new());
        match self.worker.get(key, self.worker.hash(key), now, options, &mut out, |_, _| ()) {
            Lookup::Hit(meta) => Some((meta, out)),
            Lookup::Miss => None,
            Lookup::Pending(read) => {
                let mut buffer = IoBuffer::new(read.length);
                self.cache.file().unwrap().read_at(read.offset, &mut buffer).unwrap();
                let range = self.worker.complete_read(&read, &buffer).unwrap();
                Some((read.meta, buffer[range].to_vec()))
            }
        }
    }

    /// Hands bytes to a value that arrives, and writes them; returns how many it has taken.
    fn fill(&mut self, upload: &mut Upload, bytes: &[u8]) -> usize {
        let (mut written, now) = (0, self.now());
        while written < bytes.len() {
            written += upload.write(&mut self.worker, &bytes[written..], now);
            if written < bytes.len() && !upload.is_full() {
                break;
            }
            upload.carry_out();
        }
        upload.carry_out();
        written
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.get_with(key, &GetOptions::default()).map(|(_, value)| value)
    }

    fn delete(&mut self, key: &str, options: &DeleteOptions) -> Deleted {
        let (key, now) = (key.as_bytes(), self.now());
        self.worker.delete(key, self.worker.hash(key), now, options, None)
    }

    /// Waits until upkeep has left so many segments in use at most: those that are being written to
    /// a file are freed afterwards.
    fn expect_segments(&self, most: u64) {
        for _ in 0..6_000 {
            if self.segments() <= most {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} segments are in use, and not {most}", self.segments());
    }

    /// Returns the segments in use after upkeep.
    fn segments(&self) -> u64 {
        while self.cache.maintain(self.now()) {}
        self.cache.statistics().segments
    }
}

/// Runs a check on each medium whose large values lie in pieces.
fn on_each(check: impl Fn(&mut Tenant)) {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        check(&mut Tenant::open(config(medium, dir.path())));
    }
}

#[test]
fn values_of_every_length_come_back_and_go() {
    on_each(|tenant| {
        let before = tenant.segments();
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let key = format!("key{number}");
            tenant.set(&key, &value(len, 1));
            assert!(tenant.get(&key) == Some(value(len, 1)), "{len}");
            let metadata = GetOptions { value: false, ..GetOptions::default() };
            let (meta, none) = tenant.get_with(&key, &metadata).unwrap();
            assert_eq!((meta.value_len as usize, none.len()), (len, 0));
        }
        let item_bytes = tenant.cache.statistics().item_bytes as usize;
        let values: usize = LENGTHS.iter().sum();
        assert!((values..values + 4096).contains(&item_bytes), "{item_bytes}");
        for (number, len) in LENGTHS.into_iter().enumerate() {
            // Overwritten by a large one, by a small one, and deleted.
            let key = format!("key{number}");
            assert!(tenant.get(&key) == Some(value(len, 1)), "{len}");
            tenant.set(&key, &value(len + 1, 2));
            assert!(tenant.get(&key) == Some(value(len + 1, 2)), "{len}");
            if number % 2 == 0 {
                tenant.set(&key, b"small");
                assert_eq!(tenant.get(&key).as_deref(), Some(&b"small"[..]));
            }
            assert_eq!(tenant.delete(&key, &DeleteOptions::default()), Deleted::Deleted);
            assert_eq!(tenant.get(&key), None);
        }
        // Open segments of records are left.
        tenant.expect_segments(before + 4);
    });
}

#[test]
fn every_command_works_for_large_values() {
    on_each(|tenant| {
        let len = 3 * SEGMENT;
        tenant.set("key", &value(len, 1));
        let more = value(SEGMENT, 2);
        let (append, prepend) = (StoreMode::Append, StoreMode::Prepend);
        let stored = tenant.store("key", &Store { mode: append, ..Store::set(&more) });
        assert!(matches!(stored, Stored::Stored { .. }));
        let stored = tenant.store("key", &Store { mode: prepend, ..Store::set(b"<") });
        assert!(matches!(stored, Stored::Stored { .. }));
        let whole = [b"<", &*value(len, 1), &more].concat();
        assert!(tenant.get("key").as_ref() == Some(&whole));

        let with_cas = GetOptions { cas: true, ..GetOptions::default() };
        let (meta, _) = tenant.get_with("key", &with_cas).unwrap();
        let compare = Some(meta.cas + 1);
        let other = value(len, 3);
        let stored = tenant.store("key", &Store { compare, ..Store::set(&other) });
        assert_eq!(stored, Stored::Exists);
        let stored = tenant.store("key", &Store { mode: StoreMode::Add, ..Store::set(&other) });
        assert_eq!(stored, Stored::NotStored);
        let compare = Some(meta.cas);
        let stored = tenant.store("key", &Store { compare, ..Store::set(&other) });
        assert!(matches!(stored, Stored::Stored { .. }));
        assert!(tenant.get("key").as_ref() == Some(&other));

        let expiry = Expiry::At(Seconds(tenant.now().0 + 10));
        let touch = GetOptions { touch: Some(expiry), ..GetOptions::default() };
        assert!(tenant.get_with("key", &touch).is_some_and(|(_, value)| value == other));
        let (now, hash) = (tenant.now(), tenant.worker.hash(b"key"));
        let count = Arithmetic {
            delta: 1,
            down: false,
            compare: None,
            explicit_cas: None,
            touch: None,
            vivify: None,
            cas: false,
        };
        let counted = tenant.worker.arithmetic(b"key", hash, now, &count, None);
        assert_eq!(counted, Counted::NotNumeric);
        let stale = DeleteOptions { invalidate: true, ..DeleteOptions::default() };
        assert_eq!(tenant.delete("key", &stale), Deleted::Deleted);
        let (meta, found) = tenant.get_with("key", &GetOptions::default()).unwrap();
        assert!(meta.stale && found == other && meta.expiry == expiry);
        tenant.clock.advance(Duration::from_secs(10));
        assert_eq!(tenant.get("key"), None);
        tenant.set("key", &other);
        tenant.cache.flush_all(tenant.now(), 0);
        assert_eq!(tenant.get("key"), None);
    });
}

#[test]
fn a_full_cache_lets_large_values_go_one_at_a_time() {
    on_each(|tenant| {
        // 128 segments hold 15 such values beside the records.
        let len = 8 * SEGMENT;
        for number in 0..200_usize {
            tenant.set(&format!("key{number}"), &value(len, number as u8));
            let held = tenant.cache.statistics().items as usize;
            assert!(held >= 14.min(number + 1), "{held} of {number}");
        }
        assert!(tenant.get("key199") == Some(value(len, 199)));
        let statistics = tenant.cache.statistics();
        assert!(statistics.dram_used_bytes <= statistics.dram_limit_bytes, "{statistics:?}");
        assert!(statistics.medium_used_bytes <= statistics.medium_limit_bytes, "{statistics:?}");
    });
}

#[test]
fn small_items_and_large_ones_share_a_quota() {
    on_each(|tenant| {
        for number in 0..3_000_usize {
            let len = if number % 20 == 0 { LENGTHS[number / 20 % LENGTHS.len()] } else { 500 };
            let (key, value) = (format!("key{number}"), value(len, number as u8));
            tenant.set(&key, &value);
            assert!(tenant.get(&key) == Some(value), "{number}");
        }
        tenant.cache.flush_all(tenant.now(), 0);
        tenant.set("new", &value(SEGMENT, 0));
        // Nothing but the new value and open segments of records is left.
        tenant.expect_segments(7);
        assert!(tenant.get("new") == Some(value(SEGMENT, 0)));
    });
}

#[test]
fn a_value_of_half_the_quota_fits_and_a_refused_one_evicts_nothing() {
    on_each(|tenant| {
        for number in 0..40 {
            tenant.set(&format!("key{number}"), &value(2 << 20, number));
        }
        let too_large = value((2 << 20) + 1, 0);
        let add = Store { mode: StoreMode::Add, ..Store::set(&too_large[1..]) };
        let before = tenant.cache.statistics().items;
        assert_eq!(tenant.store("key39", &add), Stored::NotStored);
        assert_eq!(tenant.cache.statistics().items, before);
        // What cannot be replaced is not served.
        assert_eq!(tenant.store("key39", &Store::set(&too_large)), Stored::TooLarge);
        assert_eq!(tenant.get("key39"), None);
    });
}

/// Makes the configuration of a cache in DRAM for several threads.
fn shared(quota: ByteSize, value_bytes_max: ByteSize, workers: usize) -> Config {
    Config {
        segment_bytes: Some(ByteSize(SEGMENT as u64)),
        value_bytes_max: Some(value_bytes_max),
        huge_pages: false,
        workers,
        ..Config::dram(quota)
    }
}

fn set(worker: &mut Worker, key: &str, store: &Store<'_>) -> Stored {
    let key = key.as_bytes();
    worker.store(key, worker.hash(key), Seconds(1_000_000), store, None)
}

/// Calls `operation` on a second worker while another thread stores small items that change every
/// bucket of the index much faster than a large value can be copied.
fn beside_small_stores(tenant: &mut Tenant, operation: impl FnOnce(&mut Tenant)) {
    let done = AtomicBool::new(false);
    let mut other = tenant.cache.worker();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !done.load(Ordering::Relaxed) {
                set(&mut other, &format!("small{}", number % 1_000), &Store::set(b"small"));
                number += 1;
            }
        });
        operation(tenant);
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_value_that_has_to_wait_for_its_room_evicts_nothing_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let mut tenant = Tenant::open(config("dram", dir.path()));
    let (small, large) = (value(8 * SEGMENT, 1), value(32 * SEGMENT, 2));
    tenant.set("k", &small);
    // Values without an item, which only their readers let go: three quarters of the quota.
    let pinned = GetOptions { pin: true, ..GetOptions::default() };
    let mut readers = Vec::new();
    for _ in 0..3 {
        tenant.set("read", &large);
        tenant.get_with("read", &pinned).unwrap();
        readers.push(tenant.worker.take_pinned().unwrap());
    }
    tenant.delete("read", &DeleteOptions::default());
    let mut upload = tenant.worker.begin(large.len()).unwrap();
    let now = tenant.now();
    assert_eq!(tenant.fill(&mut upload, &large), 0);
    assert!(tenant.get("k").is_some(), "evicted for a value that cannot have its room");
    readers.pop();
    assert_eq!(tenant.fill(&mut upload, &large), large.len());
    let hash = tenant.worker.hash(b"new");
    let stored = tenant.worker.store_upload(b"new", hash, now, &Store::set(b""), upload);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    assert!(tenant.get("k").as_ref() == Some(&small) && tenant.get("new") == Some(large));
}

#[test]
fn a_large_value_is_read_and_appended_to_beside_many_small_stores() {
    let len = 48 << 20;
    let config = shared(ByteSize::mib(160), ByteSize::mib(64), 2);
    let mut tenant = Tenant::open(config);
    tenant.set("key", &value(len, 1));
    beside_small_stores(&mut tenant, |tenant| {
        assert!(tenant.get("key") == Some(value(len, 1)));
        let with_cas = GetOptions { cas: true, ..GetOptions::default() };
        assert!(tenant.get_with("key", &with_cas).is_some_and(|(_, found)| found.len() == len));
        let append = Store { mode: StoreMode::Append, ..Store::set(b"end") };
        assert!(matches!(tenant.store("key", &append), Stored::Stored { .. }));
        assert!(tenant.get("key").is_some_and(|found| found.ends_with(b"end")));
        // A small value becomes a large one.
        tenant.set("short", b"begin");
        let end = value(len, 2);
        let append = Store { mode: StoreMode::Append, ..Store::set(&end) };
        assert!(matches!(tenant.store("short", &append), Stored::Stored { .. }));
        assert!(tenant.get("short").is_some_and(|found| found.len() == len + 5));
        let stale = DeleteOptions { invalidate: true, ..DeleteOptions::default() };
        assert_eq!(tenant.delete("key", &stale), Deleted::Deleted);
    });
    assert!(tenant.get("key").is_some_and(|found| found.starts_with(&value(1000, 1))));
}

#[test]
fn a_value_that_is_read_is_whole_whatever_becomes_of_its_item() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let mut tenant = Tenant::open(Config { workers: 2, ..config(medium, dir.path()) });
        let mut other = tenant.cache.worker();
        let len = 30 * SEGMENT + 9_000;
        let values = [value(len, 0), value(len, 1)];
        tenant.set("key", &values[0]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..200 {
                    let stored = set(&mut other, "key", &Store::set(&values[number % 2]));
                    assert!(matches!(stored, Stored::Stored { .. }), "{number}: {stored:?}");
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                let found = tenant.get("key");
                assert!(found.as_ref().is_none_or(|found| values.contains(found)), "{medium}");
            }
        });
        assert!(tenant.get("key").is_some_and(|found| values.contains(&found)), "{medium}");
        let statistics = tenant.cache.statistics();
        assert_eq!(statistics.events.damaged, 0, "{medium}");
        tenant.delete("key", &DeleteOptions::default());
        tenant.expect_segments(4);
    }
}

#[test]
fn a_large_value_that_is_read_outlives_those_that_are_not() {
    on_each(|tenant| {
        let hot = value(8 * SEGMENT, 1);
        tenant.set("hot", &hot);
        for number in 0..200 {
            tenant.set(&format!("cold{number}"), &value(8 * SEGMENT, 2));
            assert!(tenant.get("hot").as_ref() == Some(&hot), "gone after {number}");
        }
    });
}

#[test]
fn values_in_pieces_fill_the_quota() {
    for (value_bytes, least) in [((1 << 20) - 64, 90), (7 << 19, 90), (600 << 10, 55)] {
        let quota = ByteSize::mib(64);
        let config = Config {
            value_bytes_max: Some(ByteSize::mib(16)),
            workers: 3,
            huge_pages: false,
            ..Config::dram(quota)
        };
        let cache = Cache::open(config, Arc::new(ManualClock::at(Seconds(1_000_000)))).unwrap();
        let mut workers: Vec<Worker> = (0..3).map(|_| cache.worker()).collect();
        let bytes = value(value_bytes, 1);
        for number in 0..400 {
            let stored = set(&mut workers[number % 3], &number.to_string(), &Store::set(&bytes));
            assert!(matches!(stored, Stored::Stored { .. }), "{value_bytes}: {stored:?}");
        }
        let percent = cache.statistics().item_bytes * 100 / quota.0;
        assert!(percent >= least, "values of {value_bytes} fill {percent}%");
    }
}

#[test]
fn the_room_of_deleted_values_is_that_of_small_items_again() {
    on_each(|tenant| {
        let len = SEGMENT / 5 * 3;
        for number in 0..100 {
            tenant.set(&format!("key{number}"), &value(len, number));
        }
        for number in (0..100).step_by(2) {
            tenant.delete(&format!("key{number}"), &DeleteOptions::default());
        }
        // These take less than what was deleted.
        for number in 0..3_000 {
            tenant.set(&format!("small{number}"), &value(500, 0));
        }
        for number in (1..100).step_by(2) {
            assert!(tenant.get(&format!("key{number}")) == Some(value(len, number)), "{number}");
        }
    });
}

#[test]
fn a_value_that_cannot_fit_is_refused_before_anything_is_evicted() {
    let dir = tempfile::tempdir().unwrap();
    for medium in MEDIA {
        let mut tenant = Tenant::open(config(medium, dir.path()));
        let quota = ByteSize::mib(2);
        tenant.cache.resize(quota, quota).unwrap();
        while tenant.cache.maintain(tenant.now()) {}
        for number in 0..500 {
            tenant.set(&format!("key{number}"), &value(1_000, 0));
        }
        let before = tenant.cache.statistics().items;
        assert!(before >= 400, "{medium}: {before}");
        assert_eq!(tenant.store("large", &Store::set(&value(2 << 20, 0))), Stored::NoMemory);
        assert_eq!(tenant.cache.statistics().items, before, "{medium}");
        let fits = value(1 << 20, 0);
        tenant.set("large", &fits);
        assert!(tenant.get("large") == Some(fits));
    }
}

/// Takes five eighths of the quota by values that have not arrived as a whole.
fn take_room(tenant: &mut Tenant) -> Vec<Upload> {
    let (len, mut uploads) = (2 << 20, Vec::new());
    let bytes = value(len, 0);
    loop {
        let mut upload = tenant.worker.begin(len).unwrap();
        let written = tenant.fill(&mut upload, &bytes[1..]);
        uploads.push(upload);
        if written < len - 1 {
            return uploads;
        }
    }
}

#[test]
fn a_store_without_room_leaves_the_old_item_unless_it_is_a_set() {
    on_each(|tenant| {
        let (old, more) = (value(28 * SEGMENT, 1), value(SEGMENT, 2));
        let large = value(30 * SEGMENT, 3);
        let with_cas = GetOptions { cas: true, ..GetOptions::default() };
        tenant.set("key", &old);
        let (before, _) = tenant.get_with("key", &with_cas).unwrap();
        let uploads = take_room(tenant);
        let set = Store::set(&large);
        let (append, prepend) = (StoreMode::Append, StoreMode::Prepend);
        for store in [
            Store { mode: append, ..Store::set(&more) },
            Store { mode: append, ..Store::set(b">") },
            Store { mode: prepend, ..Store::set(&more) },
            Store { mode: prepend, compare: Some(before.cas), ..Store::set(b"<") },
            Store { mode: StoreMode::Replace, ..set },
            Store { compare: Some(before.cas), ..set },
            Store { compare: Some(before.cas - 1), invalidate: true, ..set },
        ] {
            assert_eq!(tenant.store("key", &store), Stored::NoMemory, "{store:?}");
            let (after, found) = tenant.get_with("key", &with_cas).unwrap();
            assert!(found == old && after.cas == before.cas, "{:?}", store.mode);
        }
        let too_large = value(5 * SEGMENT, 4);
        let store = Store { mode: append, ..Store::set(&too_large) };
        assert_eq!(tenant.store("key", &store), Stored::TooLarge);
        assert!(tenant.get("key").as_ref() == Some(&old));
        // What a set could not replace is not served.
        let pin = GetOptions { pin: true, ..GetOptions::default() };
        assert!(tenant.get_with("key", &pin).is_some());
        if let Some(_pinned) = tenant.worker.take_pinned() {
            assert_eq!(tenant.store("key", &Store::set(&value(2 << 20, 5))), Stored::NoMemory);
            assert_eq!(tenant.get("key"), None);
        }
        drop(uploads);
        tenant.set("key", &large);
        assert!(tenant.get("key") == Some(large));
    });
}

/// Drives a store to its end, and calls `between` before each part is copied.
fn in_parts(
    tenant: &mut Tenant,
    store: &Store<'_>,
    mut between: impl FnMut(&mut Tenant, &Join),
) -> Stored {
    let (now, hash) = (tenant.now(), tenant.worker.hash(b"key"));
    let mut stored = tenant.worker.begin_store(b"key", hash, now, store, None);
    while stored == Stored::Unfinished {
        let mut join = tenant.worker.take_unfinished().unwrap();
        join.carry_out();
        between(tenant, &join);
        stored = tenant.worker.go_on(b"key", hash, now, store, join);
    }
    stored
}

#[test]
fn a_value_is_extended_part_by_part_while_its_item_is_served() {
    on_each(|tenant| {
        let (old, more) = (value(20 * SEGMENT + 9, 1), value(7 * SEGMENT, 2));
        let append = (StoreMode::Append, [&*old, &more].concat());
        let prepend = (StoreMode::Prepend, [&*more, &old].concat());
        for (mode, whole) in [append, prepend] {
            tenant.set("key", &old);
            let (mut parts, mut before) = (0, 0);
            let store = Store { mode, ..Store::set(&more) };
            let stored = in_parts(tenant, &store, |tenant, join| {
                let copied = join.written() - before;
                assert!(copied <= (256 << 10) + SEGMENT, "{copied} bytes at once");
                (before, parts) = (join.written(), parts + 1);
                assert!(tenant.get("key").as_ref() == Some(&old), "part {parts}");
            });
            assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
            assert!(parts >= 6, "{parts}");
            assert!(tenant.get("key") == Some(whole));
        }
    });
}

#[test]
fn a_value_that_changes_while_it_is_extended_is_extended_as_it_is_then() {
    on_each(|tenant| {
        let before = tenant.segments();
        let (old, more) = (value(20 * SEGMENT + 9, 1), value(7 * SEGMENT, 2));
        let append = Store { mode: StoreMode::Append, ..Store::set(&more) };
        let small = b"small".as_slice();
        for other in [small, &value(3 * SEGMENT, 3), &value(20 * SEGMENT + 9, 4)] {
            tenant.set("key", &old);
            let mut parts = 0;
            let stored = in_parts(tenant, &append, |tenant, _| {
                parts += 1;
                if parts == 4 {
                    tenant.set("key", other);
                }
            });
            assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
            assert!(tenant.get("key") == Some([other, &more].concat()), "{}", other.len());
        }
        tenant.set("key", &old);
        let stored = in_parts(tenant, &append, |tenant, _| {
            tenant.delete("key", &DeleteOptions::default());
        });
        assert_eq!(stored, Stored::NotStored);
        // What is given up leaves nothing.
        tenant.set("key", &old);
        let (now, hash) = (tenant.now(), tenant.worker.hash(b"key"));
        assert_eq!(tenant.worker.begin_store(b"key", hash, now, &append, None), Stored::Unfinished);
        let join = tenant.worker.take_unfinished().unwrap();
        let stored = tenant.worker.go_on(b"key", hash, now, &append, join);
        assert_eq!(stored, Stored::Unfinished);
        drop(tenant.worker.take_unfinished());
        assert!(tenant.get("key") == Some(old));
        tenant.delete("key", &DeleteOptions::default());
        tenant.expect_segments(before + 4);
    });
}

#[test]
fn an_arrived_value_that_finds_no_item_stays_in_its_place() {
    on_each(|tenant| {
        let (whole, now) = (value(2 << 20, 1), tenant.now());
        let hash = tenant.worker.hash(b"key");
        let append = Store { mode: StoreMode::Append, vivify: true, ..Store::set(b"") };
        let add = Store { mode: StoreMode::Add, ..Store::set(b"") };
        tenant.set("key", &value(3 * SEGMENT, 2));
        let with_cas = GetOptions { cas: true, ..GetOptions::default() };
        let (meta, _) = tenant.get_with("key", &with_cas).unwrap();
        let older = Some(meta.cas - 1);
        let stale = Store { compare: older, invalidate: true, ..Store::set(b"") };
        for (store, is_stale) in [(stale, true), (append, false), (add, false)] {
            let mut upload = tenant.worker.begin(whole.len()).unwrap();
            assert_eq!(tenant.fill(&mut upload, &whole), whole.len());
            let taken = tenant.cache.statistics().segments;
            let stored = tenant.worker.begin_store_upload(b"key", hash, now, &store, upload);
            assert!(matches!(stored, Stored::Stored { .. }), "{store:?}: {stored:?}");
            // A segment for the record, at most.
            assert!(tenant.cache.statistics().segments <= taken + 1, "{store:?}");
            let (meta, found) = tenant.get_with("key", &GetOptions::default()).unwrap();
            assert!(found == whole && meta.stale == is_stale, "{store:?}");
            tenant.delete("key", &DeleteOptions::default());
        }
    });
}

#[test]
fn several_large_stores_at_once_all_get_their_room() {
    let quota = ByteSize::mib(8);
    let cache = Cache::open(
        shared(quota, ByteSize::mib(3), 4),
        Arc::new(ManualClock::at(Seconds(1_000_000))),
    )
    .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let mut worker = cache.worker();
            scope.spawn(move || {
                let large = value(3 << 20, thread);
                for number in 0..40 {
                    let key = format!("{thread} {number}");
                    let stored = set(&mut worker, &key, &Store::set(&large));
                    assert!(matches!(stored, Stored::Stored { .. }), "{key}: {stored:?}");
                    // Others of many sizes lie in open segments meanwhile.
                    let len = LENGTHS[number % LENGTHS.len()];
                    let stored = set(&mut worker, &key, &Store::set(&large[..len]));
                    assert!(matches!(stored, Stored::Stored { .. }), "{key}: {stored:?}");
                }
            });
        }
    });
}

#[test]
fn a_store_does_not_evict_the_item_that_it_depends_on() {
    on_each(|tenant| {
        for first in [b"begin".to_vec(), value(3 * SEGMENT, 1), value(1_000, 1)] {
            let with_cas = GetOptions { cas: true, ..GetOptions::default() };
            let large = value(28 * SEGMENT, 2);
            // It is the oldest, and what comes next has to evict something.
            let old = |tenant: &mut Tenant| {
                tenant.cache.flush_all(tenant.now(), 0);
                while tenant.cache.maintain(tenant.now()) {}
                tenant.cache.reset_statistics();
                tenant.set("key", &first);
                let (meta, _) = tenant.get_with("key", &with_cas).unwrap();
                for number in 0..110 {
                    tenant.set(&format!("other{number}"), &value(SEGMENT, 0));
                }
                assert_eq!(tenant.cache.statistics().events.evicted_items, 0);
                meta.cas
            };
            let check = |tenant: &mut Tenant, store: &Store<'_>| {
                let stored = tenant.store("key", store);
                assert!(matches!(stored, Stored::Stored { .. }), "{:?}: {stored:?}", store.mode);
                assert!(tenant.cache.statistics().events.evicted_items > 5);
            };
            for mode in [StoreMode::Replace, StoreMode::Append, StoreMode::Prepend] {
                old(tenant);
                check(tenant, &Store { mode, ..Store::set(&large) });
            }
            let compare = Some(old(tenant));
            check(tenant, &Store { compare, ..Store::set(&large) });
        }
    });
}

#[test]
fn dram_for_records_is_not_sought_in_large_values() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { dram_bytes: ByteSize::mib(1), ..config("pmem", dir.path()) };
    let mut tenant = Tenant::open(config);
    for number in 0..8 {
        tenant.set(&format!("large{number}"), &value(8 * SEGMENT, number));
    }
    for number in 0..30_000 {
        tenant.set(&format!("small{number}"), b"v");
    }
    let left = (0..8).filter(|number| tenant.get(&format!("large{number}")).is_some()).count();
    assert!(left >= 7, "{left} of 8 large values are left");
    let statistics = tenant.cache.statistics();
    assert!(statistics.dram_used_bytes <= statistics.dram_limit_bytes, "{statistics:?}");
}

#[test]
fn a_large_value_is_marked_stale_in_place() {
    on_each(|tenant| {
        let large = value(20 * SEGMENT, 1);
        tenant.set("key", &large);
        let with_cas = GetOptions { cas: true, ..GetOptions::default() };
        let (before, _) = tenant.get_with("key", &with_cas).unwrap();
        let segments = tenant.cache.statistics().segments;
        let wrong = DeleteOptions {
            invalidate: true,
            compare: Some(before.cas + 1),
            ..DeleteOptions::default()
        };
        assert_eq!(tenant.delete("key", &wrong), Deleted::Exists);
        let stale = DeleteOptions { compare: Some(before.cas), ..wrong };
        assert_eq!(tenant.delete("key", &stale), Deleted::Deleted);
        assert_eq!(tenant.cache.statistics().segments, segments);
        let (after, found) = tenant.get_with("key", &with_cas).unwrap();
        assert!(after.stale && after.cas > before.cas && found == large);
        // The old token is that of no item any more.
        let store = Store { compare: Some(before.cas), ..Store::set(b"new") };
        assert_eq!(tenant.store("key", &store), Stored::Exists);
        let store = Store { compare: Some(after.cas), ..Store::set(b"new") };
        assert!(matches!(tenant.store("key", &store), Stored::Stored { .. }));
        let (meta, found) = tenant.get_with("key", &with_cas).unwrap();
        assert!(found == b"new" && meta.cas > after.cas && !meta.stale);
    });
}

#[test]
fn a_restart_brings_large_values_back() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let mut tenant = Tenant::open(config(medium, dir.path()));
        for (number, len) in LENGTHS.into_iter().enumerate() {
            tenant.set(&format!("key{number}"), &value(len, 1));
            tenant.set(&format!("small{number}"), b"small");
        }
        tenant.set("key3", &value(SEGMENT, 9));
        tenant.delete("key4", &DeleteOptions::default());
        tenant.cache.close().unwrap();
        drop(tenant);
        let mut tenant = Tenant::open(config(medium, dir.path()));
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let expected = match number {
                3 => Some(value(SEGMENT, 9)),
                4 => None,
                _ => Some(value(len, 1)),
            };
            assert!(tenant.get(&format!("key{number}")) == expected, "{medium}: {number}");
            assert_eq!(tenant.get(&format!("small{number}")).as_deref(), Some(&b"small"[..]));
        }
        // Room that came back is that of no other value.
        for number in 0..40 {
            tenant.set(&format!("new{number}"), &value(SEGMENT, number));
        }
        assert!(tenant.get("key9") == Some(value(8 * SEGMENT, 1)), "{medium}");
    }
}

/// Opens a cache on a block file whose chunks are smaller than a segment.
fn on_file(dir: &Path) -> Tenant {
    Tenant::open(Config {
        medium_bytes: ByteSize::mib(32),
        dram_bytes: ByteSize::mib(32),
        segment_bytes: Some(ByteSize::mib(1)),
        value_bytes_max: Some(ByteSize::mib(16)),
        ..config("file", dir)
    })
}

#[test]
fn a_value_for_a_file_is_taken_as_far_as_its_writes_are_done() {
    let dir = tempfile::tempdir().unwrap();
    let mut tenant = on_file(dir.path());
    let (whole, now, hash) = (value(5 << 20, 1), tenant.now(), tenant.worker.hash(b"key"));
    let mut upload = tenant.worker.begin(whole.len()).unwrap();
    // Four chunks are under way, and no more.
    assert_eq!(upload.write(&mut tenant.worker, &whole, now), 1 << 20);
    assert!(upload.is_full() && upload.waits_for_file() && upload.buffered_bytes() < 2 << 20);
    assert_eq!(upload.write(&mut tenant.worker, &whole[1 << 20..], now), 0);
    upload.carry_out();
    assert!(!upload.is_full() && upload.is_settled());
    assert_eq!(tenant.fill(&mut upload, &whole[1 << 20..]), whole.len() - (1 << 20));
    let stored = tenant.worker.begin_store_upload(b"key", hash, now, &Store::set(b""), upload);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    assert!(tenant.get("key") == Some(whole));
}

#[test]
fn a_value_whose_write_fails_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut tenant = on_file(dir.path());
    let (whole, now, hash) = (value(3 << 20, 1), tenant.now(), tenant.worker.hash(b"key"));
    tenant.set("key", &value(2 << 20, 2));
    let before = tenant.segments();
    let mut upload = tenant.worker.begin(whole.len()).unwrap();
    assert_eq!(upload.write(&mut tenant.worker, &whole, now), 1 << 20);
    let mut requests = Vec::new();
    upload.take_requests(&mut requests);
    // A request that is dropped has failed.
    requests.pop();
    requests.into_iter().for_each(|it| it.carry_out(&*tenant.cache.file().unwrap()));
    assert_eq!(tenant.fill(&mut upload, &whole[1 << 20..]), 2 << 20);
    let replace = Store { mode: StoreMode::Replace, ..Store::set(b"") };
    let stored = tenant.worker.store_upload(b"key", hash, now, &replace, upload);
    assert_eq!(stored, Stored::NoMemory);
    assert_eq!(tenant.cache.statistics().events.write_errors, 1);
    assert!(tenant.get("key") == Some(value(2 << 20, 2)));
    tenant.expect_segments(before);
}

#[test]
fn writes_that_outlive_their_value_hit_no_other_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut tenant = on_file(dir.path());
    let (given_up, now) = (value(8 << 20, 1), tenant.now());
    let mut upload = tenant.worker.begin(given_up.len()).unwrap();
    let before = tenant.segments();
    assert_eq!(upload.write(&mut tenant.worker, &given_up, now), 1 << 20);
    let mut late = Vec::new();
    upload.take_requests(&mut late);
    drop(upload);
    // Every segment that is free has another value now.
    for number in 0..30 {
        tenant.set(&format!("key{number}"), &value((1 << 20) - 100, number));
    }
    let held: Vec<bool> = (0..30).map(|it| tenant.get(&format!("key{it}")).is_some()).collect();
    assert!(held.iter().filter(|held| **held).count() > 20, "{held:?}");
    late.into_iter().for_each(|it| it.carry_out(&*tenant.cache.file().unwrap()));
    for number in 0..30 {
        let found = tenant.get(&format!("key{number}"));
        let expected = held[usize::from(number)].then(|| value((1 << 20) - 100, number));
        assert!(found == expected, "{number}");
    }
    for number in 0..30 {
        tenant.delete(&format!("key{number}"), &DeleteOptions::default());
    }
    tenant.expect_segments(before + 1);
}

/// Flips a bit of a chunk of a value on a file, and reads it. Returns the bytes that came before
/// the damage was found, and whether the item is there afterwards.
fn damaged_chunk(number: usize) -> (usize, bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut tenant = on_file(dir.path());
    let whole = value(5 << 20, 1);
    tenant.set("key", &whole);
    let file = tenant.cache.file().unwrap();
    let pin = GetOptions { pin: true, ..GetOptions::default() };
    let (mut found, mut is_damaged) = (Vec::new(), false);
    for round in 0..2 {
        assert!(tenant.get_with("key", &pin).is_some());
        let mut pinned = tenant.worker.take_pinned().unwrap();
        let mut chunk = 0;
        found.clear();
        while found.len() < whole.len() && !is_damaged {
            let mut requests = Vec::new();
            pinned.let_go(found.len());
            pinned.read_ahead(usize::MAX, &mut requests);
            for request in requests {
                if (round, chunk) == (1, number) {
                    let mut block = IoBuffer::new(4096);
                    file.read_at(request.offset(), &mut block).unwrap();
                    block[100] ^= 1;
                    file.write_at(request.offset(), &block).unwrap();
                }
                chunk += 1;
                request.carry_out(&*file);
            }
            match pinned.check_to(found.len() + 1) {
                Ok(checked) => {
                    let at = found.len();
                    pinned.append_range(at, checked - at, &mut found);
                    assert!(found == whole[..checked]);
                }
                Err(_) => is_damaged = true,
            }
        }
        if is_damaged {
            tenant.worker.drop_damaged_pinned(&pinned);
        }
    }
    (found.len(), tenant.get("key").is_some())
}

#[test]
fn damage_on_a_file_is_found_before_its_chunk_is_sent() {
    assert_eq!(damaged_chunk(0), (0, false));
    assert_eq!(damaged_chunk(13), (13 * (256 << 10), false));
    assert_eq!(damaged_chunk(usize::MAX), (5 << 20, true));
}
