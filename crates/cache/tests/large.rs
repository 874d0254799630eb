//! Values in pieces: they are whole or gone, every command works for them, and their room comes
//! back.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
use entresol_cache::{
    Arithmetic, Cache, Config, Counted, DeleteOptions, Deleted, Expiry, GetOptions, ItemMeta,
    Lookup, Store, StoreMode, Stored, Worker,
};
use entresol_media::MediumSpec;

/// Bytes of a segment.
const SEGMENT: usize = 64 << 10;
/// Lengths about those at which a value takes another slice or another segment.
const LENGTHS: [usize; 10] = [
    SEGMENT / 4,
    SEGMENT / 4 + 1,
    5 * 4096 - 1,
    5 * 4096,
    SEGMENT - 1,
    SEGMENT,
    SEGMENT + 1,
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
        self.worker.store(key, self.worker.hash(key), now, store, None)
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
            Lookup::Pending(read) => panic!("{read:?}"),
        }
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.get_with(key, &GetOptions::default()).map(|(_, value)| value)
    }

    fn delete(&mut self, key: &str, options: &DeleteOptions) -> Deleted {
        let (key, now) = (key.as_bytes(), self.now());
        self.worker.delete(key, self.worker.hash(key), now, options, None)
    }

    /// Returns the segments in use after upkeep.
    fn segments(&self) -> u64 {
        while self.cache.maintain(self.now()) {}
        self.cache.statistics().segments
    }
}

/// Runs a check on each medium whose large values lie in pieces.
fn on_each(check: impl Fn(&mut Tenant)) {
    for medium in ["dram", "pmem"] {
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
        assert!(tenant.segments() <= before + 4, "{} after {before}", tenant.segments());
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
        assert!(tenant.segments() < 8, "{}", tenant.segments());
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

#[test]
fn a_restart_brings_large_values_back() {
    for medium in ["dram", "pmem"] {
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
