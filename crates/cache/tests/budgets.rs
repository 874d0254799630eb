//! Limits of the cache's memory, and promises of its quotas: counted, not timed.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Nanos, Seconds};
use entresol_cache::{
    Cache, Config, DeleteOptions, Deleted, Expiry, GetOptions, Lookup, Store, StoreMode, Stored,
    Worker,
};
use entresol_media::account::{BURST_NS, GRANT_NS};
use entresol_media::{Admission, Limit, MediumSpec};

const OBJECTS: u64 = 1_000_000;

fn open(config: Config) -> (Arc<Cache>, Worker, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let cache = Cache::open(config, clock.clone()).unwrap();
    let worker = cache.worker();
    (cache, worker, clock)
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let text = number.to_string();
    key[16 - text.len()..].copy_from_slice(text.as_bytes());
    key
}

fn put(worker: &mut Worker, number: u64, now: Seconds, store: &Store<'_>) {
    let key = key(number);
    let hash = worker.hash(&key);
    loop {
        match worker.store(&key, hash, now, store, None) {
            Stored::Stored { .. } => return,
            Stored::Busy => std::thread::sleep(Duration::from_millis(1)),
            refused => panic!("{number}: {refused:?}"),
        }
    }
}

fn holds(worker: &mut Worker, number: u64, now: Seconds) -> bool {
    let key = key(number);
    let hash = worker.hash(&key);
    let options = GetOptions { value: false, ..GetOptions::default() };
    let found = worker.get(&key, hash, now, &options, &mut Vec::new(), |_, _| ());
    !matches!(found, Lookup::Miss)
}

#[test]
fn a_million_objects_of_116_bytes_fit_into_140_bytes_each() {
    let quota = ByteSize(140 * OBJECTS);
    let (cache, mut worker, clock) = open(Config::dram(quota));
    let now = clock.seconds();
    let value = [b'v'; 100];
    for number in 0..OBJECTS {
        put(&mut worker, number, now, &Store::set(&value));
    }
    // Overwriting them costs nothing more.
    for number in (0..OBJECTS).step_by(3) {
        put(&mut worker, number, now, &Store::set(&[b'w'; 100]));
    }
    while cache.maintain(now) {}
    let statistics = cache.statistics();
    assert_eq!(statistics.items, OBJECTS);
    assert!(statistics.dram_used_bytes <= quota.0, "{}", statistics.dram_used_bytes);
    let events = statistics.events;
    assert_eq!((events.refused, events.evicted_items, events.displaced_out), (0, 0, 0));
    assert!((0..OBJECTS).all(|number| holds(&mut worker, number, now)));
}

/// Returns the DRAM for each object, except its key, of a cache in (emulated) persistent memory.
fn dram_per_object(key_len: usize, store: &Store<'_>) -> f64 {
    const OBJECTS: u64 = 200_000;
    let dir = tempfile::tempdir().unwrap();
    let medium = MediumSpec::Pmem { path: dir.path().join("values"), assume_dax: true };
    let (cache, mut worker, clock) = open(Config {
        medium,
        medium_bytes: ByteSize::mib(64),
        segment_bytes: Some(ByteSize::mib(2)),
        ..Config::dram(ByteSize::mib(64))
    });
    let now = clock.seconds();
    for number in 0..OBJECTS {
        let key = format!("{number:0key_len$}");
        let hash = worker.hash(key.as_bytes());
        let stored = worker.store(key.as_bytes(), hash, now, store, None);
        assert!(matches!(stored, Stored::Stored { .. }));
    }
    let statistics = cache.statistics();
    assert_eq!((statistics.items, statistics.events.evicted_items), (OBJECTS, 0));
    statistics.dram_used_bytes as f64 / OBJECTS as f64 - key_len as f64
}

#[test]
fn values_elsewhere_leave_32_bytes_of_dram_besides_the_key() {
    let value = [b'v'; 100];
    let plain = dram_per_object(16, &Store::set(&value));
    assert!(plain <= 32.0, "{plain}");
    let full = Store { flags: 7, explicit_cas: Some(9), ..Store::set(&value) };
    let full = dram_per_object(16, &full);
    assert!(full <= 48.0, "{full}");
    // Records start at multiples of four bytes; over all lengths of keys that costs 1.5 on average.
    let mean = (13..=16).map(|len| dram_per_object(len, &Store::set(&value))).sum::<f64>() / 4.0;
    assert!(mean <= 32.0, "{mean}");
}

#[test]
fn expired_items_are_freed_without_being_asked_for() {
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(32)));
    let now = clock.seconds();
    let short = Store { expiry: Expiry::At(Seconds(now.0 + 10)), ..Store::set(&[b'v'; 1000]) };
    for number in 0..10_000 {
        put(&mut worker, number, now, &short);
    }
    put(&mut worker, 10_000, now, &Store::set(b"stays"));
    clock.advance(Duration::from_secs(11));
    while cache.maintain(clock.seconds()) {}
    let statistics = cache.statistics();
    assert_eq!((statistics.items, statistics.events.expired_items), (1, 10_000));
    assert_eq!(statistics.segments, 1);
}

#[test]
fn a_lowered_quota_takes_effect_and_a_raised_one_is_used() {
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(64)));
    let now = clock.seconds();
    for number in 0..40_000 {
        put(&mut worker, number, now, &Store::set(&[b'v'; 1000]));
    }
    cache.resize(ByteSize::mib(20), ByteSize(0)).unwrap();
    while cache.maintain(now) {}
    let statistics = cache.statistics();
    assert!(statistics.dram_used_bytes <= 20 << 20, "{}", statistics.dram_used_bytes);
    assert!(statistics.items > 5_000, "{}", statistics.items);
    cache.resize(ByteSize::mib(128), ByteSize(0)).unwrap();
    let evicted = cache.statistics().events.evicted_items;
    for number in 100_000..180_000 {
        put(&mut worker, number, now, &Store::set(&[b'v'; 1000]));
    }
    let statistics = cache.statistics();
    assert_eq!(statistics.events.evicted_items, evicted);
    assert!((100_000..180_000).all(|number| holds(&mut worker, number, now)));
    assert!(cache.resize(ByteSize::mib(1), ByteSize(0)).is_err());
    assert!(cache.resize(ByteSize::gib(1 << 20), ByteSize(0)).is_err());
}

#[test]
fn many_classes_of_expiry_leave_the_quota_to_the_items() {
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(32)));
    let now = clock.seconds();
    for number in 0..20_000_u64 {
        let expiry = Expiry::At(Seconds(now.0 + (1 << (number % 25))));
        put(&mut worker, number, now, &Store { expiry, ..Store::set(&[b'v'; 1000]) });
    }
    let statistics = cache.statistics();
    assert!(statistics.segments_open <= statistics.dram_limit_bytes / statistics.segment_bytes / 8);
    assert_eq!(statistics.events.evicted_items, 0);
}

#[test]
fn what_is_read_often_survives_merging() {
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(32)));
    let now = clock.seconds();
    // The hot items come once the cache is full, and have to be read to stay.
    let hot = 100_000..101_000;
    for number in 0..200_000_u64 {
        put(&mut worker, number, now, &Store::set(&[b'v'; 500]));
        if number >= hot.start {
            holds(&mut worker, hot.start + number % 1000, now);
        }
        cache.maintain(now);
    }
    let held = hot.filter(|number| holds(&mut worker, *number, now)).count();
    assert!(held > 990, "{held} of 1,000");
    assert!(cache.statistics().events.merged_items > 990);
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    let refused = |config: Config| {
        let clock = Arc::new(ManualClock::at(Seconds(1)));
        Cache::open(config, clock).err().unwrap().to_string()
    };
    let error = refused(Config::dram(ByteSize::kib(32)));
    assert!(error.contains("DRAM quota") && error.contains("at least"), "{error}");
    let error = refused(Config::dram(ByteSize::gib(1 << 20)));
    assert!(error.contains("the machine"), "{error}");
    let limit = |bytes, dram| Config { value_bytes_max: Some(bytes), ..Config::dram(dram) };
    let error = refused(limit(ByteSize::mib(17), ByteSize::mib(32)));
    assert!(error.contains("value limit") && error.contains("16MiB"), "{error}");
    let error = refused(limit(ByteSize(1 + (1 << 30)), ByteSize::gib(3)));
    assert!(error.contains("value limit") && error.contains("1GiB"), "{error}");
    let small = Config {
        segment_bytes: Some(ByteSize::kib(8)),
        ..limit(ByteSize::mib(2), ByteSize::mib(32))
    };
    let error = refused(small);
    assert!(error.contains("segments have 8KiB"), "{error}");
    let segment_bytes = Some(ByteSize(100_000));
    let error = refused(Config { segment_bytes, ..Config::dram(ByteSize::gib(1)) });
    assert!(error.contains("segment size") && error.contains("4KiB"), "{error}");
}

#[test]
fn what_nobody_reads_is_given_up_a_segment_at_a_time() {
    let quota = ByteSize(140 * OBJECTS / 4);
    let (cache, mut worker, clock) = open(Config::dram(quota));
    let now = clock.seconds();
    let value = [b'v'; 100];
    let mut least = f64::MAX;
    for number in 0..OBJECTS {
        put(&mut worker, number, now, &Store::set(&value));
        if number.is_multiple_of(10_000) {
            cache.maintain(now);
        }
        if number > OBJECTS / 2 && number.is_multiple_of(1000) {
            least = least.min(cache.statistics().items as f64);
        }
    }
    // Of 16 segments one is kept for merging, one is being filled and one has just been freed.
    let full = OBJECTS as f64 / 4.0;
    assert!(least > full * 13.0 / 16.0, "{least} of {full}");
}

/// Records lie in DRAM by pages; one that is refused takes none.
#[test]
fn refused_stores_take_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let medium = MediumSpec::Pmem { path: dir.path().join("values"), assume_dax: true };
    let config = Config {
        medium,
        medium_bytes: ByteSize::mib(8),
        segment_bytes: Some(ByteSize::kib(64)),
        value_bytes_max: Some(ByteSize::kib(16)),
        ..Config::dram(ByteSize::mib(8))
    };
    let (cache, mut worker, clock) = open(config);
    let now = clock.seconds();
    let mut used = None;
    for number in 0..300 {
        let key = format!("key{number}");
        let hash = worker.hash(key.as_bytes());
        worker.store(key.as_bytes(), hash, now, &Store::set(b"1"), None);
        let before = cache.statistics().dram_used_bytes;
        let add = Store { mode: StoreMode::Add, ..Store::set(b"2") };
        for _ in 0..3 {
            let stored = worker.store(key.as_bytes(), hash, now, &add, None);
            assert_eq!(stored, Stored::NotStored);
        }
        assert_eq!(cache.statistics().dram_used_bytes, before, "behind {number} records");
        used = Some(before);
    }
    assert!(used > Some(2 * 4096), "records of several pages");
}

/// Upkeep looks for such segments only when one may have lost its last item.
#[test]
fn segments_whose_items_were_all_deleted_are_freed_at_once() {
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(16)));
    let now = clock.seconds();
    for round in 0..3_u64 {
        let numbers = round * 10_000..round * 10_000 + 10_000;
        for number in numbers.clone() {
            put(&mut worker, number, now, &Store::set(&[b'v'; 1000]));
        }
        while cache.maintain(now) {}
        let full = cache.statistics().segments;
        assert!(full > 70, "{full} segments");
        for number in numbers {
            let key = key(number);
            let hash = worker.hash(&key);
            let deleted = worker.delete(&key, hash, now, &DeleteOptions::default(), None);
            assert_eq!(deleted, Deleted::Deleted, "{number}");
        }
        while cache.maintain(now) {}
        let left = cache.statistics().segments;
        assert!(left < 5, "{left} of {full} segments are left");
    }
    assert_eq!(cache.statistics().events.evicted_items, 0);
}

/// Device time that a cache used, the part of it that upkeep used, and the virtual time until then.
struct Used {
    all_ns: u64,
    upkeep_ns: u64,
    until: Nanos,
}

/// Stores items and reads each once, so that eviction moves them, under a limit of a tenth of the
/// medium. Upkeep makes the room for them if `ahead`, else the writer does.
fn use_under_a_limit(medium: MediumSpec, quota: ByteSize, ahead: bool) -> Used {
    const ITEMS: u64 = 30_000;
    /// Items that are stored between an item and its read: too many for it to be young still.
    const LAG: u64 = 500;
    let (cache, mut worker, clock) = open(Config {
        medium,
        medium_bytes: quota,
        segment_bytes: Some(ByteSize::kib(64)),
        ..Config::dram(quota)
    });
    let (now, account) = (clock.seconds(), Arc::clone(cache.account()));
    account.set_limit(Limit::Share(SHARE));
    let mut used = Used { all_ns: 0, upkeep_ns: 0, until: Nanos(0) };
    for number in 0..ITEMS {
        loop {
            match worker.admit(used.until) {
                Admission::Go => break,
                Admission::Wait { until } => used.until = until,
                Admission::Stopped => panic!("the tenant has a share"),
            }
        }
        put(&mut worker, number, now, &Store::set(&[b'v'; 1000]));
        if let Some(earlier) = number.checked_sub(LAG) {
            holds(&mut worker, earlier, now);
        }
        let before = account.used_ns();
        while ahead && cache.maintain(now) {}
        used.upkeep_ns += account.used_ns() - before;
    }
    used.all_ns = account.used_ns();
    used
}

/// Share of the medium that the tenant of `use_under_a_limit` has.
const SHARE: f64 = 0.1;

#[test]
fn what_evictions_use_of_a_medium_counts_against_the_tenants_limit() {
    let dir = tempfile::tempdir().unwrap();
    let pmem = MediumSpec::Pmem { path: dir.path().join("pmem"), assume_dax: true };
    let file = MediumSpec::File { path: dir.path().join("file"), model: None };
    for (medium, ahead) in [
        (MediumSpec::Dram, true),
        (MediumSpec::Dram, false),
        (pmem.clone(), true),
        (pmem, false),
        (file, true),
    ] {
        let what = format!("{medium}, room ahead: {ahead}");
        let alone = use_under_a_limit(medium.clone(), ByteSize::mib(128), false);
        let used = use_under_a_limit(medium.clone(), ByteSize::mib(8), ahead);
        // Without evictions the same requests use less: else nothing is shown here.
        let evictions_ns = used.all_ns - alone.all_ns;
        assert!(evictions_ns > used.all_ns / 5, "{what}: {evictions_ns} of {} ns", used.all_ns);
        assert_eq!(used.upkeep_ns > 0, ahead, "{what}");
        // The last request, a grant, and a segment that was passed may not have been paid for yet.
        let pass_ns = used.all_ns / 100 + GRANT_NS;
        let allowed_ns = (SHARE * (used.until.0 + BURST_NS) as f64) as u64 + pass_ns;
        assert!(used.all_ns <= allowed_ns, "{what}: {} ns, at most {allowed_ns}", used.all_ns);
    }
}

#[test]
fn a_limit_of_keys_is_kept_after_every_store_and_the_new_item_is_there() {
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(32)));
    let now = clock.seconds();
    for limit in [1, 2, 7, 1000] {
        cache.limit_keys(Some(limit));
        for number in 0..3 * limit {
            put(&mut worker, number, now, &Store::set(b"v"));
            assert!(holds(&mut worker, number, now), "{number} of {limit}");
            assert!(cache.statistics().items <= limit);
        }
        assert_eq!(cache.statistics().items, limit);
    }
    // Overwriting makes nothing go, and what was deleted makes room.
    let before = cache.statistics().events.evicted_items;
    let kept: Vec<u64> = (0..3000).filter(|number| holds(&mut worker, *number, now)).collect();
    kept.iter().for_each(|number| put(&mut worker, *number, now, &Store::set(b"w")));
    let hash = worker.hash(&key(kept[0]));
    worker.delete(&key(kept[0]), hash, now, &DeleteOptions::default(), None);
    put(&mut worker, 9999, now, &Store::set(b"v"));
    assert_eq!(cache.statistics().events.evicted_items, before);
    assert_eq!(cache.statistics().items, 1000);
}

#[test]
fn a_limit_of_keys_lets_those_go_that_are_not_read() {
    const LIMIT: u64 = 10_000;
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(32)));
    let now = clock.seconds();
    cache.limit_keys(Some(LIMIT));
    // A tenth is read now and then, while four times the limit passes by.
    for number in 0..5 * LIMIT {
        put(&mut worker, number, now, &Store::set(&[b'v'; 100]));
        if number >= LIMIT {
            holds(&mut worker, number % (LIMIT / 10), now);
        }
    }
    let read = (0..LIMIT / 10).filter(|number| holds(&mut worker, *number, now)).count();
    let latest = (4 * LIMIT..5 * LIMIT).filter(|number| holds(&mut worker, *number, now)).count();
    assert!(read > 900 && latest > 4000, "{read} of 1000 that were read, {latest} of the latest");
}

#[test]
fn upkeep_goes_down_to_a_lower_limit_of_keys_and_items_removed_elsewhere_count() {
    let (cache, mut worker, clock) = open(Config::dram(ByteSize::mib(32)));
    let now = clock.seconds();
    let mut other = cache.worker();
    for number in 0..20_000 {
        put(&mut worker, number, now, &Store::set(b"v"));
    }
    for number in 0..10_000 {
        let hash = other.hash(&key(number));
        other.delete(&key(number), hash, now, &DeleteOptions::default(), None);
    }
    // Workers tell of what they have done at most 31 items late.
    cache.limit_keys(Some(10_100));
    while cache.maintain(now) {}
    assert_eq!(cache.statistics().items, 10_000);
    cache.limit_keys(Some(3000));
    while cache.maintain(now) {}
    assert!((2930..=3031).contains(&cache.statistics().items), "{}", cache.statistics().items);
    cache.limit_keys(None);
    for number in 0..20_000 {
        put(&mut worker, number, now, &Store::set(b"v"));
    }
    assert_eq!(cache.statistics().items, 20_000);
}
