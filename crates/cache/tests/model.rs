//! The cache against an operation-by-operation model: without pressure nothing is lost, and under
//! any history nothing is ever served wrong.

#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
use entresol_cache::{
    Arithmetic, Cache, Config, Counted, DeleteOptions, Deleted, Expiry, Favour, GetOptions,
    ItemMeta, Lookup, OldValue, PendingRead, Statistics, Store, StoreMode, Stored, Worker,
};
use entresol_media::{IoBuffer, MediumSpec};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

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
        160 => (any::<u8>(), 0..6000_u16, flags, ttl.clone(), mode)
            .prop_map(|(key, len, flags, ttl_s, mode)| Op::Store { key, len, flags, ttl_s, mode }),
        20 => (any::<u8>(), any::<bool>()).prop_map(|(key, fresh)| Op::Cas { key, fresh }),
        160 => any::<u8>().prop_map(|key| Op::Get { key }),
        40 => any::<u8>().prop_map(|key| Op::Delete { key }),
        40 => (any::<u8>(), ttl).prop_map(|(key, ttl_s)| Op::Touch { key, ttl_s }),
        40 => (any::<u8>(), any::<u64>(), any::<bool>())
            .prop_map(|(key, delta, down)| Op::Count { key, delta, down }),
        20 => (any::<u8>(), any::<u64>()).prop_map(|(key, number)| Op::Number { key, number }),
        1 => Just(Op::Flush),
        4 => (0..10_u8).prop_map(|seconds| Op::Wait { seconds }),
        10 => Just(Op::Maintain),
    ]
}

const VALUE_BYTES_MAX: usize = 32 << 10;

struct World {
    cache: Arc<Cache>,
    worker: Worker,
    clock: Arc<ManualClock>,
    model: HashMap<u8, Item>,
    /// Tokens that were told of each key, in their order.
    told: HashMap<u8, Vec<u64>>,
    writes: u64,
    /// True if the cache may forget items.
    lossy: bool,
}

fn name(key: u8) -> Vec<u8> {
    format!("key-{key}-{}", "x".repeat(usize::from(key) % 40)).into_bytes()
}

/// Returns the number that a value begins with, ended by white space or the value's end; values of
/// more than 1 KiB hold none.
fn number_in(value: &[u8]) -> Option<u64> {
    if value.len() > 1024 {
        return None;
    }
    let text = value.trim_ascii_start();
    let word = text.split(u8::is_ascii_whitespace).next()?;
    let digits = word.iter().all(u8::is_ascii_digit) && (1..=20).contains(&word.len());
    std::str::from_utf8(word).ok().filter(|_| digits)?.parse().ok()
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
        World {
            cache,
            worker,
            clock,
            model: HashMap::new(),
            told: HashMap::new(),
            writes: 0,
            lossy,
        }
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
            Lookup::Pending(read) => {
                assert_eq!(out, b"beforeheader", "the value belongs behind it");
                let value = self.read(&read)?;
                Some((read.meta, value))
            }
        }
    }

    /// Carries out a read of the block file.
    fn read(&mut self, read: &PendingRead) -> Option<Vec<u8>> {
        let file = self.cache.file().expect("only values on a block file are pending");
        let mut buffer = IoBuffer::new(read.length);
        file.read_at(read.offset, &mut buffer).expect("the disk works");
        let range = self.worker.complete_read(read, &buffer).ok()?;
        Some(buffer[range].to_vec())
    }

    /// Stores, waiting for write buffers and carrying out reads as a server would.
    fn put(&mut self, name: &[u8], store: &Store<'_>) -> Stored {
        let (hash, now) = (self.worker.hash(name), self.now());
        let mut old = None;
        loop {
            match self.worker.store(name, hash, now, store, old.as_ref()) {
                Stored::Busy => std::thread::sleep(Duration::from_micros(200)),
                Stored::Pending(read) => {
                    old = self.read(&read).map(|value| OldValue::new(&read, value));
                }
                stored => return stored,
            }
        }
    }

    /// Looks a key up: an item must equal the model's, and only a lossy cache may miss an item that
    /// the model has; the model then drops it too.
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
                let told = self.told.entry(key).or_default();
                if told.last() != Some(&meta.cas) {
                    assert!(!told.contains(&meta.cas), "token {} came twice", meta.cas);
                    told.push(meta.cas);
                }
            }
            _ => panic!("expected {expected:?}, found {found:?}"),
        }
    }

    /// Checks a store's outcome against the two possible states of the item: as in the model, or,
    /// in a lossy cache, evicted since it was last looked at.
    fn note_stored(
        &mut self,
        key: u8,
        stored: &Stored,
        present: Option<Item>,
        absent: Option<Item>,
    ) {
        let had = self.model.get(&key).map(|item| item.cas);
        let stands = if had.is_some() { &present } else { &absent };
        let fits = |item: &Option<Item>| match stored {
            Stored::Stored { .. } => item.is_some(),
            _ => item.is_none(),
        };
        let item = if fits(stands) {
            stands.clone()
        } else if *stored == Stored::NoMemory && absent.is_none() {
            // The old item stays.
            assert!(self.lossy, "there is room for key {key}");
            return;
        } else {
            let forgotten = self.lossy && (fits(&absent) || *stored == Stored::NoMemory);
            assert!(forgotten, "{stored:?} is not what key {key} allows");
            self.model.remove(&key);
            absent.filter(|_| *stored != Stored::NoMemory)
        };
        if let (Stored::Stored { cas }, Some(mut item)) = (stored, item) {
            let had = self.model.get(&key).map(|item| item.cas);
            assert!(had.is_none_or(|had| *cas > had), "tokens of an item must grow");
            item.cas = *cas;
            self.model.insert(key, item);
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
                self.check(key);
                let stored = self.put(&name, &Store { cas: true, ..Store::set(&text) });
                let item = Item { value: text, flags: 0, expires: None, cas: 0 };
                self.note_stored(key, &stored, Some(item.clone()), Some(item));
            }
            Op::Flush => {
                self.cache.flush_all(now, 0);
                self.model.clear();
            }
            Op::Wait { seconds } => self.clock.advance(Duration::from_secs(seconds.into())),
            Op::Maintain => {
                // A segment that is still being written to a file cannot be merged, however slow
                // the disk is.
                while self.cache.statistics().segments_writing > 0 {
                    std::thread::yield_now();
                }
                while self.cache.maintain(now) {}
            }
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
        let store = Store { flags, expiry, mode, cas: true, ..Store::set(&value) };
        let stored = self.put(&name, &store);
        let old = self.model.get(&key).cloned();
        let new = Item { value, flags, expires, cas: 0 };
        let present = match (mode, old) {
            (StoreMode::Add, _) | (_, None) => None,
            (StoreMode::Set | StoreMode::Replace, Some(_)) => Some(new.clone()),
            (StoreMode::Append, Some(old)) => {
                Some(Item { value: [old.value, new.value.clone()].concat(), ..old })
            }
            (StoreMode::Prepend, Some(old)) => {
                Some(Item { value: [new.value.clone(), old.value].concat(), ..old })
            }
        };
        // A value that would grow too large is refused, and the old one stays.
        let present = present.filter(|item| item.value.len() <= VALUE_BYTES_MAX);
        let absent = matches!(mode, StoreMode::Set | StoreMode::Add).then_some(new);
        self.note_stored(key, &stored, present, absent);
    }

    fn compare_and_swap(&mut self, key: u8, fresh: bool) {
        self.check(key);
        let Some(item) = self.model.get(&key).cloned() else { return };
        let name = name(key);
        let token = if fresh { item.cas } else { item.cas ^ 1 };
        let store = Store { compare: Some(token), cas: true, ..Store::set(b"swapped") };
        let stored = self.put(&name, &store);
        if fresh {
            let new = Item { value: b"swapped".to_vec(), flags: 0, expires: None, cas: 0 };
            self.note_stored(key, &stored, Some(new), None);
        } else {
            let forgotten = self.lossy && stored == Stored::NotFound;
            assert!(forgotten || stored == Stored::Exists, "{stored:?}");
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
            cas: true,
        };
        let mut old = None;
        let counted = loop {
            match self.worker.arithmetic(&name, hash, now, &arithmetic, old.as_ref()) {
                Counted::Busy => std::thread::sleep(Duration::from_micros(200)),
                Counted::Pending(read) => {
                    old = self.read(&read).map(|value| OldValue::new(&read, value));
                }
                counted => break counted,
            }
        };
        let Some(item) = self.model.get_mut(&key) else {
            assert_eq!(counted, Counted::NotFound);
            return;
        };
        let old = number_in(&item.value);
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
            (Counted::NoMemory, Some(_)) if self.lossy => {}
            (Counted::NotFound, _) if self.lossy => {
                self.model.remove(&key);
            }
            (counted, old) => panic!("{counted:?} for {old:?}"),
        }
    }
}

fn small(segment_kib: u64, segments: u64) -> Config {
    Config {
        segment_bytes: Some(ByteSize::kib(segment_kib)),
        value_bytes_max: Some(ByteSize(VALUE_BYTES_MAX as u64)),
        seed: Some(7),
        huge_pages: false,
        ..Config::dram(ByteSize::kib(segment_kib * segments))
    }
}

/// Returns a configuration with an equal quota on a medium, and DRAM enough for keys and buffers.
fn on(medium: MediumSpec, segment_kib: u64, segments: u64) -> Config {
    Config {
        medium,
        medium_bytes: ByteSize::kib(segment_kib * segments),
        ..small(segment_kib, segments.max(64))
    }
}

/// Runs a history on each medium, favouring objects and bytes.
fn check_history(segment_kib: u64, segments: u64, lossy: bool, ops: &[Op]) -> Totals {
    let dir = tempfile::tempdir().expect("a directory for the media");
    let media = [
        MediumSpec::Dram,
        MediumSpec::Pmem { path: dir.path().join("pmem"), assume_dax: true },
        MediumSpec::File { path: dir.path().join("file"), model: None },
    ];
    let mut totals = Totals::default();
    for medium in media {
        for favour in [Favour::Objects, Favour::Bytes] {
            if !lossy && favour != Favour::Objects {
                continue;
            }
            let config = match &medium {
                MediumSpec::Dram => small(segment_kib, segments),
                medium => on(medium.clone(), segment_kib, segments),
            };
            let mut world = World::new(Config { favour, ..config }, lossy);
            for op in ops {
                world.run(op.clone());
            }
            for key in 0..=255 {
                world.check(key);
            }
            let statistics = world.cache.statistics();
            totals.add(&statistics);
            if statistics.medium == "file" {
                totals.merged_on_file += statistics.events.merged_items;
            }
        }
    }
    totals
}

/// Events of the caches in all histories, so that a test can tell that it tested something.
#[derive(Debug, Default)]
struct Totals {
    evicted: u64,
    merged: u64,
    merged_on_file: u64,
    file_reads: u64,
    damaged: u64,
}

impl Totals {
    fn add(&mut self, statistics: &Statistics) {
        self.evicted += statistics.events.evicted_items;
        self.merged += statistics.events.merged_items;
        self.file_reads += statistics.events.file_reads;
        self.damaged += statistics.events.damaged;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn with_room_nothing_is_lost(ops in prop::collection::vec(op(), 1..1200)) {
        let totals = check_history(256, 64, false, &ops);
        prop_assert_eq!((totals.evicted, totals.damaged), (0, 0));
    }

    #[test]
    fn under_pressure_nothing_is_wrong(ops in prop::collection::vec(op(), 1..1500)) {
        let totals = check_history(64, 8, true, &ops);
        prop_assert_eq!(totals.damaged, 0);
    }
}

#[test]
fn pressure_evicts_merges_and_reads_the_file() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let ops = prop::collection::vec(op(), 6000).new_tree(&mut runner).expect("no filter").current();
    let totals = check_history(64, 8, true, &ops);
    assert!(totals.evicted > 100 && totals.merged > 100 && totals.file_reads > 100, "{totals:?}");
    assert!(totals.merged_on_file > 10, "{totals:?}");
}

#[test]
fn a_token_that_was_told_stays_smaller_than_all_later_ones() {
    let mut world = World::new(small(64, 16), true);
    let now = world.now();
    let hash = world.worker.hash(b"key");
    let token = |stored| match stored {
        Stored::Stored { cas } => cas,
        other => panic!("{other:?}"),
    };
    // Holes of the same size in old segments, which later versions could be put into.
    for number in 0..2000_u32 {
        world.put(format!("key{:03}", number % 200).as_bytes(), &Store::set(&[b'x'; 60]));
    }
    let told = token(world.put(b"key", &Store { cas: true, ..Store::set(&[b'y'; 60]) }));
    let mut last = told;
    for number in 0..500_u32 {
        world.put(format!("key{:03}", number % 200).as_bytes(), &Store::set(&[b'x'; 60]));
        let cas = token(world.worker.store(b"key", hash, now, &Store::set(&[b'z'; 60]), None));
        assert!(cas > last, "{cas} after {last}");
        last = cas;
    }
    let stale = Store { compare: Some(told), invalidate: true, ..Store::set(b"older") };
    assert!(matches!(world.put(b"key", &stale), Stored::Stored { .. }));
    let mut value = Vec::new();
    let options = GetOptions { win: true, ..GetOptions::default() };
    let found = world.worker.get(b"key", hash, now, &options, &mut value, |_, _| ());
    let Lookup::Hit(meta) = found else { panic!("{found:?}") };
    assert!(meta.stale);
    assert_eq!(value, b"older");
}

#[test]
fn a_token_that_a_touching_read_told_is_not_given_out_again() {
    let mut world = World::new(small(64, 16), false);
    let (now, hash) = (world.now(), world.worker.hash(b"key"));
    let told = |world: &mut World, touch| {
        let options = GetOptions { cas: true, touch, ..GetOptions::default() };
        match world.worker.get(b"key", hash, now, &options, &mut Vec::new(), |_, _| ()) {
            Lookup::Hit(meta) => meta.cas,
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..100 {
        world.put(b"key", &Store::set(b"x"));
        let first = told(&mut world, Some(Expiry::At(Seconds(now.0 + 1000))));
        world.worker.delete(b"key", hash, now, &DeleteOptions::default(), None);
        world.put(b"key", &Store::set(b"z"));
        assert_ne!(told(&mut world, None), first);
    }
}

/// Stores whose tokens are told and others, whose places are used again: tokens that are given meet
/// tokens that places imply.
#[test]
fn a_token_comes_once() {
    let config = ProptestConfig::with_cases(2000);
    let op = (0..2_u8, 0..8_u8, 0..9_usize, any::<bool>());
    proptest!(config, |(ops in prop::collection::vec(op, 1..60))| {
        let mut world = World::new(small(64, 512), false);
        let mut told = HashMap::<u8, HashSet<u64>>::new();
        for (key, command, len, expires) in ops {
            let (name, now) = (name(key), world.now());
            if command < 2 {
                let hash = world.worker.hash(&name);
                let stale = command == 1;
                let options = DeleteOptions { invalidate: stale, ..DeleteOptions::default() };
                let deleted = world.worker.delete(&name, hash, now, &options, None);
                if stale && deleted == Deleted::Deleted {
                    let (meta, _) = world.lookup(key, true).expect("it is stale, not gone");
                    prop_assert!(told.entry(key).or_default().insert(meta.cas), "{}", meta.cas);
                }
                continue;
            }
            // In a segment of its own, with later tokens than those of the other.
            let expiry = expiry(expires.then_some(700), now).0;
            let store =
                Store { cas: command % 2 == 0, expiry, ..Store::set(&[b'1'; 9][..len]) };
            let Stored::Stored { cas } = world.put(&name, &store) else { panic!("there is room") };
            if store.cas {
                prop_assert!(told.entry(key).or_default().insert(cas), "token {} came twice", cas);
            }
        }
    });
}
