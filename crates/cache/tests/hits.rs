//! Hits of a cache that cannot keep everything: counted, not timed.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
use entresol_cache::{Cache, Config, Expiry, Favour, GetOptions, Lookup, Store, Stored, Worker};

const NOW: Seconds = Seconds(1_000_000);

struct Tenant {
    cache: Arc<Cache>,
    worker: Worker,
    clock: Arc<ManualClock>,
    random: fastrand::Rng,
}

impl Tenant {
    fn open(config: Config) -> Tenant {
        let clock = Arc::new(ManualClock::at(NOW));
        let config = Config { seed: Some(11), huge_pages: false, ..config };
        let cache = Cache::open(config, clock.clone()).unwrap();
        let worker = cache.worker();
        Tenant { cache, worker, clock, random: fastrand::Rng::with_seed(5) }
    }

    fn new(quota: ByteSize) -> Tenant {
        Tenant::open(Config::dram(quota))
    }

    fn get(&mut self, key: u64) -> bool {
        let key = format!("{key:016}");
        let hash = self.worker.hash(key.as_bytes());
        let now = self.clock.seconds();
        let options = GetOptions::default();
        let found =
            self.worker.get(key.as_bytes(), hash, now, &options, &mut Vec::new(), |_, _| ());
        matches!(found, Lookup::Hit(_))
    }

    fn put(&mut self, key: u64, store: &Store<'_>) {
        let key = format!("{key:016}");
        let hash = self.worker.hash(key.as_bytes());
        let now = self.clock.seconds();
        let stored = self.worker.store(key.as_bytes(), hash, now, store, None);
        assert!(matches!(stored, Stored::Stored { .. }), "{key}: {stored:?}");
    }

    /// Asks for a key, and stores a value of so many bytes after a miss.
    fn ask(&mut self, key: u64, bytes: usize) -> bool {
        let hit = self.get(key);
        if !hit {
            self.put(key, &Store::set(&vec![b'v'; bytes]));
        }
        hit
    }

    fn ask_all(&mut self, keys: std::ops::Range<u64>, bytes: usize) -> f64 {
        let all = keys.end - keys.start;
        keys.filter(|key| self.ask(*key, bytes)).count() as f64 / all as f64
    }
}

/// Keys that are asked for again only once they have left the small log are told by their tags.
#[test]
fn a_key_that_is_back_after_it_was_let_go_goes_to_the_main_log() {
    let mut tenant = Tenant::new(ByteSize::mib(4));
    tenant.ask_all(0..10_000, 1000);
    let set = 20_000..21_200;
    assert!(tenant.ask_all(set.clone(), 1000) < 0.01);
    let passes: Vec<f64> = (0..3).map(|_| tenant.ask_all(set.clone(), 1000)).collect();
    assert!(passes[0] < 0.5, "the small log holds them all: {passes:?}");
    assert!(passes[2] > 0.95, "{passes:?}");
    assert!(tenant.cache.statistics().tag_bytes > 0);
}

/// Keys that come back to the small log all the time give it more room.
#[test]
fn the_small_log_grows_with_what_comes_back_to_it() {
    let mut tenant = Tenant::new(ByteSize::mib(4));
    let small = |tenant: &Tenant| tenant.cache.statistics().segments_small;
    tenant.ask_all(0..10_000, 1000);
    let before = small(&tenant);
    // Each key is asked for twice, 600 others apart: a tenth of the cache is too small for that.
    for key in 10_000..200_000 {
        tenant.ask(key, 1000);
        tenant.ask(key - 600, 1000);
    }
    assert!(small(&tenant) > before + 4, "{before} segments, then {}", small(&tenant));
}

/// Reads that follow a store at once say little: they do not keep an item.
#[test]
fn reads_of_young_items_do_not_count() {
    let mut tenant = Tenant::new(ByteSize::mib(4));
    for key in 0..40_000 {
        tenant.put(key, &Store::set(&[b'v'; 1000]));
        assert!(tenant.get(key) && tenant.get(key));
    }
    let events = tenant.cache.statistics().events;
    assert!(events.evicted_items > 30_000, "{events:?}");
    assert!(events.merged_items < 400, "{events:?}");
}

/// Returns the hit ratios of small and of large values that are asked for equally often.
fn hits_by_size(favour: Favour) -> [f64; 2] {
    let mut tenant = Tenant::open(Config { favour, ..Config::dram(ByteSize::mib(16)) });
    let mut hits = [0_u32; 2];
    for number in 0..200_000 {
        let key = tenant.random.u64(..4000);
        let large = key % 2;
        let hit = tenant.ask(key, if large == 1 { 20_000 } else { 1000 });
        if number >= 100_000 {
            hits[large as usize] += u32::from(hit);
        }
    }
    hits.map(|hits| f64::from(hits) / 50_000.0)
}

#[test]
fn small_objects_stay_longer_unless_bytes_are_favoured() {
    let [small, large] = hits_by_size(Favour::Objects);
    assert!(small > 0.75 && large < 0.45, "objects: {small} of the small, {large} of the large");
    let [small, large] = hits_by_size(Favour::Bytes);
    assert!((small - large).abs() < 0.15, "bytes: {small} of the small, {large} of the large");
}

/// A scan passes through the small log and leaves the main one alone.
#[test]
fn a_scan_takes_no_hits_from_what_is_asked_for_all_the_time() {
    let mut tenant = Tenant::new(ByteSize::mib(8));
    let hot = 1500;
    let ask_hot = |tenant: &mut Tenant, times: u64| {
        let asked = (0..times).filter(|_| {
            let key = tenant.random.u64(..hot);
            tenant.ask(key, 1000)
        });
        asked.count() as f64 / times as f64
    };
    ask_hot(&mut tenant, 10_000);
    tenant.ask_all(10_000..30_000, 1000);
    ask_hot(&mut tenant, 10_000);
    let before = ask_hot(&mut tenant, 10_000);
    for key in 100_000..200_000 {
        tenant.ask(key, 1000);
        if key % 10 == 0 {
            ask_hot(&mut tenant, 1);
        }
    }
    let after = ask_hot(&mut tenant, 2000);
    assert!(before > 0.98 && after > before - 0.02, "{before} before the scan, {after} after it");
}

#[test]
fn the_expired_goes_first_at_4_mib() {
    let mut tenant = Tenant::new(ByteSize::mib(4));
    let value = [b'v'; 1000];
    for key in 0..1500 {
        tenant.put(key, &Store::set(&value));
    }
    let short = Store { expiry: Expiry::At(Seconds(NOW.0 + 10)), ..Store::set(&value) };
    for key in 10_000..12_000 {
        tenant.put(key, &short);
    }
    assert_eq!(tenant.cache.statistics().events.evicted_items, 0);
    tenant.clock.advance(Duration::from_secs(11));
    for key in 20_000..22_000 {
        tenant.put(key, &Store::set(&value));
    }
    let stayed = (0..1500).filter(|key| tenant.get(*key)).count();
    assert_eq!(stayed, 1500);
    let events = tenant.cache.statistics().events;
    assert!(events.expired_items > 1400 && events.evicted_items == 0, "{events:?}");
}

#[test]
fn both_logs_are_flushed_resized_and_filled_again() {
    let mut tenant = Tenant::new(ByteSize::mib(4));
    for round in 0..3 {
        tenant.ask_all(0..6000, 1000);
        for _ in 0..3 {
            tenant.ask_all(0..1500, 1000);
        }
        let full = tenant.cache.statistics();
        assert!(full.segments_small > 0 && full.segments_small < full.segments / 2, "{full:?}");
        assert!(full.items > 3500, "round {round}: {} items", full.items);
        tenant.cache.resize(ByteSize::mib(2), ByteSize(0)).unwrap();
        while tenant.cache.maintain(NOW) {}
        let halved = tenant.cache.statistics();
        assert!(halved.dram_used_bytes <= 2 << 20, "{halved:?}");
        assert!(halved.items > 1400, "round {round}: {} items", halved.items);
        tenant.cache.resize(ByteSize::mib(4), ByteSize(0)).unwrap();
        tenant.cache.flush_all(NOW, 0);
        while tenant.cache.maintain(NOW) {}
        assert!((0..6000).all(|key| !tenant.get(key)));
        assert_eq!(tenant.cache.statistics().segments, 0);
    }
}

#[test]
fn both_logs_come_back_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        Config { restart_dir: Some(dir.path().to_owned()), ..Config::dram(ByteSize::mib(4)) };
    let mut tenant = Tenant::open(config.clone());
    tenant.ask_all(0..10_000, 1000);
    let before = tenant.cache.statistics();
    tenant.cache.close().unwrap();
    drop(tenant);
    let mut tenant = Tenant::open(config.clone());
    let after = tenant.cache.statistics();
    assert_eq!(after.items, before.items);
    assert_eq!(after.segments_small, before.segments_small);
    assert!(after.segments_small > 0 && after.segments_small < after.segments / 2, "{after:?}");
    // What is stored now takes the small log's room first.
    tenant.ask_all(20_000..20_300, 1000);
    assert!(tenant.ask_all(0..2500, 1000) > 0.9);
    // A larger quota would have larger segments, but finds those of the smaller one.
    let full = tenant.cache.statistics();
    tenant.cache.close().unwrap();
    drop(tenant);
    let tenant = Tenant::open(Config { dram_bytes: ByteSize::mib(64), ..config });
    let after = tenant.cache.statistics();
    assert_eq!((after.items, after.segment_bytes), (full.items, full.segment_bytes));
}

/// Returns the part of a full cache's quota that live items take, each with its part of the index.
fn room(quota: ByteSize, value_bytes: usize) -> f64 {
    let mut tenant = Tenant::new(quota);
    let value = vec![b'v'; value_bytes];
    let items = quota.0 / value_bytes as u64 * 2;
    let mut least = f64::MAX;
    for key in 0..items {
        tenant.put(key, &Store::set(&value));
        if key > items * 3 / 4 && key % 1009 == 0 {
            tenant.cache.maintain(NOW);
            let statistics = tenant.cache.statistics();
            let bytes = statistics.item_bytes as f64 + 10.2 * statistics.items as f64;
            least = least.min(bytes / quota.0 as f64);
        }
    }
    let statistics = tenant.cache.statistics();
    assert!(quota.0 / statistics.segment_bytes >= 128, "{statistics:?}");
    assert!(statistics.dram_used_bytes <= quota.0, "{statistics:?}");
    least
}

#[test]
fn the_quota_is_the_items() {
    for value_bytes in [100, 1000, 4000] {
        let (tiny, small) =
            (room(ByteSize::mib(1), value_bytes), room(ByteSize::mib(16), value_bytes));
        assert!(tiny > 0.85, "{tiny} of 1 MiB with values of {value_bytes} bytes");
        assert!(small > 0.9, "{small} of 16 MiB with values of {value_bytes} bytes");
    }
    for value_bytes in [200, 1000] {
        let large = room(ByteSize::mib(128), value_bytes);
        assert!(large > 0.95, "{large} of 128 MiB with values of {value_bytes} bytes");
    }
}

/// A tenant of 1 MiB needs no other setting, and is told what it can hold.
#[test]
fn the_largest_value_follows_the_quota() {
    let mut tenant = Tenant::new(ByteSize::mib(1));
    let limit = tenant.cache.value_limit().0;
    assert_eq!(limit, 128 << 10);
    tenant.put(1, &Store::set(&vec![b'v'; limit as usize]));
    assert!(tenant.get(1));
    let mut store = |key: &[u8], bytes: u64| {
        let hash = tenant.worker.hash(key);
        tenant.worker.store(key, hash, NOW, &Store::set(&vec![b'v'; bytes as usize]), None)
    };
    assert_eq!(store(b"key", limit + 1), Stored::TooLarge);
    // What cannot be replaced is not served.
    let key = [b'k'; 250];
    assert!(matches!(store(&key, limit), Stored::Stored { .. }));
    assert_eq!(store(&key, limit + 1), Stored::TooLarge);
    let hash = tenant.worker.hash(&key);
    let options = GetOptions::default();
    let found = tenant.worker.get(&key, hash, NOW, &options, &mut Vec::new(), |_, _| ());
    assert!(matches!(found, Lookup::Miss));
    // Less than 1 MiB, which memcached refuses as well.
    assert_eq!(Tenant::new(ByteSize::gib(1)).cache.value_limit(), ByteSize((1 << 20) - 64));
}
