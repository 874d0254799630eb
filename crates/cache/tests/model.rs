//! The cache against an operation-by-operation model: without pressure nothing is lost, and under
//! any history nothing is ever served wrong.

#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
use entresol_cache::{
    Arithmetic, Cache, Config, Counted, DeleteOptions, Deleted, Expiry, GetOptions, ItemMeta,
    Lookup, Store, StoreMode, Stored, Worker,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Store { key: u8, len: u16, flags: u32, ttl_s: Option<u32>, mode: StoreMode },
    Cas { key: u8, fresh: bool },
    Get { key: u8 },
    Delete { key: u8 },
    Touch { key: u8, ttl_s: Option<u32> },
    Count { key: u8, delta: u64, down: bool },
    Number { key: u8, number: u64 },
    Flush,
    Wait { seconds: u8 },
    Maintain,
}

#[derive(Debug, Clone, PartialEq)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    expires: Option<Seconds>,
    cas: u64,
}

fn op() -> impl Strategy<Value = Op> {
    let ttl = prop_oneof![Just(None), (1..20_u32).prop_map(Some)];
    let mode = prop_oneof![
        4 => Just(StoreMode::Set),
        1 => Just(StoreMode::Add),
        1 => Just(StoreMode::Replace),
        1 => Just(StoreMode::Append),
        1 => Just(StoreMode::Prepend),
    ];
    let flags = prop_oneof![Just(0), any::<u32>()];
    prop_oneof![
        8 => (any::<u8>(), 0..3000_u16, flags, ttl.clone(), mode)
            .prop_map(|(key, len, flags, ttl_s, mode)| Op::Store { key, len, flags, ttl_s, mode }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(key, fresh)| Op::Cas { key, fresh }),
        8 => any::<u8>().prop_map(|key| Op::Get { key }),
        3 => any::<u8>().prop_map(|key| Op::Delete { key }),
        2 => (any::<u8>(), ttl).prop_map(|(key, ttl_s)| Op::Touch { key, ttl_s }),
        2 => (any::<u8>(), any::<u64>(), any::<bool>())
            .prop_map(|(key, delta, down)| Op::Count { key, delta, down }),
        1 => (any::<u8>(), any::<u64>()).prop_map(|(key, number)| Op::Number { key, number }),
        1 => Just(Op::Flush),
        1 => (0..10_u8).prop_map(|seconds| Op::Wait { seconds }),
        1 => Just(Op::Maintain),
    ]
}

struct World {
    cache: Arc<Cache>,
    worker: Worker,
    clock: Arc<ManualClock>,
    model: HashMap<u8, Item>,
    writes: u64,
    /// Whether the cache may forget.
    lossy: bool,
}

fn name(key: u8) -> Vec<u8> {
    format!("key-{key}-{}", "x".repeat(usize::from(key) % 40)).into_bytes()
}

fn expiry(ttl_s: Option<u32>, now: Seconds) -> (Expiry, Option<Seconds>) {
    match ttl_s {
        None => (Expiry::Never, None),
        Some(ttl) => (Expiry::At(Seconds(now.0 + ttl)), Some(Seconds(now.0 + ttl))),
    }
}

impl World {
    fn new(config: Config, lossy: bool) -> World {
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let cache = Cache::open(config, clock.clone()).expect("the configuration can be met");
        let worker = cache.worker();
        World { cache, worker, clock, model: HashMap::new(), writes: 0, lossy }
    }

    fn now(&self) -> Seconds {
        self.clock.seconds()
    }

    fn expected(&mut self, key: u8) -> Option<Item> {
        let now = self.now();
        self.model.retain(|_, item| item.expires.is_none_or(|at| at > now));
        self.model.get(&key).cloned()
    }

    fn lookup(&mut self, key: u8, cas: bool) -> Option<(ItemMeta, Vec<u8>)> {
        let (name, now) = (name(key), self.now());
        let hash = self.worker.hash(&name);
        let mut out = b"before".to_vec();
        let options = GetOptions { cas, ..GetOptions::default() };
        let header = |_: &ItemMeta, out: &mut Vec<u8>| out.extend_from_slice(b"header");
        match self.worker.get(&name, hash, now, &options, &mut out, header) {
            Lookup::Hit(meta) => {
                assert!(out.starts_with(b"beforeheader"));
                Some((meta, out[12..].to_vec()))
            }
            Lookup::Miss => {
                assert_eq!(out, b"before");
                None
            }
            Lookup::Pending(_) => unreachable!("there is no block file"),
        }
    }

    /// What is there must be what the model has; what is not there must not be expected, unless
    /// the cache may forget, in which case the model forgets too.
    fn check(&mut self, key: u8) {
        let expected = self.expected(key);
        let found = self.lookup(key, true);
        match (&expected, &found) {
            (None, None) => {}
            (Some(_), None) if self.lossy => {
                self.model.remove(&key);
            }
            (Some(item), Some((meta, value))) => {
                assert_eq!(&item.value, value);
                assert_eq!(item.flags, meta.flags);
                assert_eq!(item.cas, meta.cas);
                let expires = item.expires.map_or(Expiry::Never, Expiry::At);
                assert_eq!(expires, meta.expiry);
            }
            _ => panic!("expected {expected:?}, found {found:?}"),
        }
    }

    fn note_stored(&mut self, key: u8, stored: &Stored, item: Option<Item>) {
        let had = self.model.get(&key).map(|item| item.cas);
        match (stored, item) {
            (Stored::Stored { cas }, Some(mut item)) => {
                assert!(had.is_none_or(|had| *cas > had), "tokens of an item must grow");
                item.cas = *cas;
                self.model.insert(key, item);
            }
            (Stored::NoMemory, _) if self.lossy => {
                self.model.remove(&key);
            }
            (Stored::NotStored | Stored::NotFound | Stored::Exists | Stored::TooLarge, None) => {}
            (stored, item) => panic!("{stored:?} instead of {item:?}"),
        }
    }

    fn run(&mut self, op: Op) {
        let now = self.now();
        match op {
            Op::Store { key, len, flags, ttl_s, mode } => self.store(key, len, flags, ttl_s, mode),
            Op::Cas { key, fresh } => self.compare_and_swap(key, fresh),
            Op::Get { key } => self.check(key),
            Op::Delete { key } => {
                self.check(key);
                let name = name(key);
                let hash = self.worker.hash(&name);
                let deleted = self.worker.delete(&name, hash, now, &DeleteOptions::default(), None);
                let expected =
                    self.model.remove(&key).map_or(Deleted::NotFound, |_| Deleted::Deleted);
                assert_eq!(deleted, expected);
            }
            Op::Touch { key, ttl_s } => {
                self.check(key);
                let (expiry, expires) = expiry(ttl_s, now);
                let name = name(key);
                let hash = self.worker.hash(&name);
                let touched = self.worker.touch(&name, hash, now, expiry).is_some();
                match self.model.get_mut(&key) {
                    Some(item) if touched => item.expires = expires,
                    Some(_) => {
                        assert!(self.lossy);
                        self.model.remove(&key);
                    }
                    None => assert!(!touched),
                }
            }
            Op::Count { key, delta, down } => self.count(key, delta, down),
            Op::Number { key, number } => {
                let text = number.to_string().into_bytes();
                let name = name(key);
                let hash = self.worker.hash(&name);
                self.check(key);
                let stored = self.worker.store(&name, hash, now, &Store::set(&text), None);
                let item = Item { value: text, flags: 0, expires: None, cas: 0 };
                self.note_stored(key, &stored, Some(item));
            }
            Op::Flush => {
                self.cache.flush_all(now, 0);
                self.model.clear();
            }
            Op::Wait { seconds } => self.clock.advance(Duration::from_secs(seconds.into())),
            Op::Maintain => while self.cache.maintain(now) {},
        }
    }

    fn store(&mut self, key: u8, len: u16, flags: u32, ttl_s: Option<u32>, mode: StoreMode) {
        self.check(key);
        let now = self.now();
        self.writes += 1;
        let seed = self.writes as u8;
        let value: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        let (expiry, expires) = expiry(ttl_s, now);
        let name = name(key);
        let hash = self.worker.hash(&name);
        let store = Store { flags, expiry, mode, ..Store::set(&value) };
        let stored = self.worker.store(&name, hash, now, &store, None);
        let old = self.model.get(&key).cloned();
        let new = Item { value, flags, expires, cas: 0 };
        let item = match (mode, old) {
            (StoreMode::Set, _) | (StoreMode::Add, None) | (StoreMode::Replace, Some(_)) => {
                Some(new)
            }
            (StoreMode::Append, Some(old)) => {
                Some(Item { value: [old.value, new.value].concat(), ..old })
            }
            (StoreMode::Prepend, Some(old)) => {
                Some(Item { value: [new.value, old.value].concat(), ..old })
            }
            _ => None,
        };
        self.note_stored(key, &stored, item);
    }

    fn compare_and_swap(&mut self, key: u8, fresh: bool) {
        self.check(key);
        let Some(item) = self.model.get(&key).cloned() else { return };
        let now = self.now();
        let name = name(key);
        let hash = self.worker.hash(&name);
        let token = if fresh { item.cas } else { item.cas ^ 1 };
        let store = Store { compare: Some(token), ..Store::set(b"swapped") };
        let stored = self.worker.store(&name, hash, now, &store, None);
        if fresh {
            let new = Item { value: b"swapped".to_vec(), flags: 0, expires: None, cas: 0 };
            self.note_stored(key, &stored, Some(new));
        } else {
            assert_eq!(stored, Stored::Exists);
        }
    }

    fn count(&mut self, key: u8, delta: u64, down: bool) {
        self.check(key);
        let now = self.now();
        let name = name(key);
        let hash = self.worker.hash(&name);
        let arithmetic = Arithmetic {
            delta,
            down,
            compare: None,
            explicit_cas: None,
            touch: None,
            vivify: None,
        };
        let counted = self.worker.arithmetic(&name, hash, now, &arithmetic, None);
        let Some(item) = self.model.get_mut(&key) else {
            assert_eq!(counted, Counted::NotFound);
            return;
        };
        let text = String::from_utf8_lossy(&item.value).into_owned();
        let old = text.trim_end_matches(' ').parse::<u64>().ok();
        match (counted, old) {
            (Counted::Value { number, meta }, Some(old)) => {
                let new = if down { old.saturating_sub(delta) } else { old.wrapping_add(delta) };
                assert_eq!(number, new);
                assert!(meta.cas > item.cas);
                let width = item.value.len().min(20);
                item.value = format!("{new:<width$}").into_bytes();
                item.cas = meta.cas;
            }
            (Counted::NotNumeric, None) => {}
            (Counted::NoMemory, _) if self.lossy => {
                self.model.remove(&key);
            }
            (counted, old) => panic!("{counted:?} for {old:?}"),
        }
    }
}

fn small(segment_kib: u64, segments: u64) -> Config {
    Config {
        segment_bytes: Some(ByteSize::kib(segment_kib)),
        value_bytes_max: ByteSize::kib(32),
        seed: Some(7),
        huge_pages: false,
        ..Config::dram(ByteSize::kib(segment_kib * segments))
    }
}

fn check_history(config: Config, lossy: bool, ops: Vec<Op>) {
    let mut world = World::new(config, lossy);
    for op in ops {
        world.run(op);
    }
    for key in 0..=255 {
        world.check(key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn with_room_nothing_is_lost(ops in prop::collection::vec(op(), 1..1200)) {
        check_history(small(256, 64), false, ops);
    }

    #[test]
    fn under_pressure_nothing_is_wrong(ops in prop::collection::vec(op(), 1..1500)) {
        check_history(small(64, 8), true, ops);
    }
}
