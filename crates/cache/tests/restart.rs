//! Restarts: all items are there after a clean stop, all sealed segments after a SIGKILL, and never
//! an item that was dropped before.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test says what it expects, and damages files"
)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds, SystemClock};
use entresol_cache::{
    Cache, Config, DeleteOptions, Expiry, GetOptions, ItemMeta, Lookup, OldValue, Store, StoreMode,
    Stored, Worker,
};
use entresol_media::{IoBuffer, MediumSpec};

const MEDIA: [&str; 3] = ["dram", "pmem", "file"];

fn config(medium: &str, dir: &Path) -> Config {
    let medium = match medium {
        "dram" => MediumSpec::Dram,
        "pmem" => MediumSpec::Pmem { path: dir.join("values"), assume_dax: true },
        _ => MediumSpec::File { path: dir.join("values"), model: None },
    };
    Config {
        medium,
        medium_bytes: ByteSize::mib(8),
        segment_bytes: Some(ByteSize::kib(64)),
        value_bytes_max: Some(ByteSize::kib(16)),
        restart_dir: Some(dir.join("state")),
        huge_pages: false,
        ..Config::dram(ByteSize::mib(8))
    }
}

fn get(
    cache: &Cache,
    worker: &mut Worker,
    key: &[u8],
    now: Seconds,
) -> Option<(ItemMeta, Vec<u8>)> {
    let hash = worker.hash(key);
    let mut out = Vec::new();
    let options = GetOptions { cas: true, ..GetOptions::default() };
    match worker.get(key, hash, now, &options, &mut out, |_, _| ()) {
        Lookup::Hit(meta) => Some((meta, out)),
        Lookup::Miss => None,
        Lookup::Pending(read) => {
            let mut buffer = IoBuffer::new(read.length);
            cache.file().unwrap().read_at(read.offset, &mut buffer).unwrap();
            let range = worker.complete_read(&read, &buffer).ok()?;
            Some((read.meta, buffer[range].to_vec()))
        }
    }
}

/// Stores, waiting for write buffers and carrying out reads as a server would.
fn store(
    cache: &Cache,
    worker: &mut Worker,
    key: &[u8],
    now: Seconds,
    store: &Store<'_>,
) -> Stored {
    let hash = worker.hash(key);
    let mut old = None;
    loop {
        match worker.store(key, hash, now, store, old.as_ref()) {
            Stored::Busy => std::thread::sleep(Duration::from_millis(1)),
            Stored::Pending(read) => {
                let mut buffer = IoBuffer::new(read.length);
                cache.file().unwrap().read_at(read.offset, &mut buffer).unwrap();
                let range = worker.complete_read(&read, &buffer).unwrap();
                old = Some(OldValue::new(&read, buffer[range].to_vec()));
            }
            stored => return stored,
        }
    }
}

fn value_of(key: u32, generation: u32) -> Vec<u8> {
    let len = 20 + (key as usize * 37 + generation as usize * 11) % 700;
    let mut value = format!("{key}:{generation}:").into_bytes();
    value.resize(len.max(value.len()), b'a' + (generation % 26) as u8);
    value
}

#[test]
fn a_clean_stop_brings_everything_back() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let mut expected = HashMap::new();
        {
            let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
            let mut worker = cache.worker();
            let now = clock.seconds();
            for key in 0..3000_u32 {
                let name = format!("key{key}");
                let value = value_of(key, 1);
                let expiry = match key % 3 {
                    0 => Expiry::Never,
                    1 => Expiry::At(Seconds(now.0 + 5)),
                    _ => Expiry::At(Seconds(now.0 + 5000)),
                };
                let new = Store { flags: key, expiry, ..Store::set(&value) };
                let stored = store(&cache, &mut worker, name.as_bytes(), now, &new);
                assert!(matches!(stored, Stored::Stored { .. }), "{medium} {key}: {stored:?}");
            }
            for key in (0..3000_u32).step_by(7) {
                let name = format!("key{key}");
                let hash = worker.hash(name.as_bytes());
                worker.delete(name.as_bytes(), hash, now, &DeleteOptions::default(), None);
            }
            for key in (0..3000_u32).step_by(5) {
                let name = format!("key{key}");
                let append = Store { mode: StoreMode::Append, ..Store::set(b"-more") };
                store(&cache, &mut worker, name.as_bytes(), now, &append);
            }
            for key in 0..3000_u32 {
                let name = format!("key{key}");
                if let Some(found) = get(&cache, &mut worker, name.as_bytes(), now) {
                    expected.insert(key, found);
                }
            }
            assert!(expected.len() > 2000, "{medium}: {}", expected.len());
            drop(worker);
            cache.close().unwrap();
        }
        clock.advance(Duration::from_secs(10));
        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        let now = clock.seconds();
        for key in 0..3000_u32 {
            let name = format!("key{key}");
            let found = get(&cache, &mut worker, name.as_bytes(), now);
            let due = expected.get(&key).filter(|(meta, _)| !meta.expiry.is_past(now));
            let comparable = |(meta, value): &(ItemMeta, Vec<u8>)| {
                (meta.flags, meta.cas, meta.expiry, value.clone())
            };
            assert_eq!(found.as_ref().map(comparable), due.map(comparable), "{medium} {key}");
        }
        let statistics = cache.statistics();
        assert_eq!(statistics.items, statistics.restored_items, "{medium}");
    }
}

#[test]
fn many_items_in_segments_of_several_pieces_all_come_back() {
    const ITEMS: u32 = 100_000;
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let now = clock.seconds();
        let large = |dir| Config {
            segment_bytes: Some(ByteSize::kib(700)),
            dram_bytes: ByteSize::mib(64),
            medium_bytes: ByteSize::mib(64),
            ..config(medium, dir)
        };
        let cache = Cache::open(large(dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        for key in 0..ITEMS {
            let value = value_of(key, 1);
            store(&cache, &mut worker, format!("key{key}").as_bytes(), now, &Store::set(&value));
        }
        drop(worker);
        cache.close().unwrap();
        drop(cache);
        let cache = Cache::open(large(dir.path()), clock.clone()).unwrap();
        assert_eq!(cache.statistics().items, u64::from(ITEMS), "{medium}");
        let mut worker = cache.worker();
        for key in 0..ITEMS {
            let found = get(&cache, &mut worker, format!("key{key}").as_bytes(), now);
            let value = found.map(|(_, value)| value);
            assert_eq!(value, Some(value_of(key, 1)), "{medium} {key}");
        }
    }
}

#[test]
fn a_flush_survives_and_a_second_start_is_not_fooled_by_the_first_snapshot() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let now = clock.seconds();
        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        store(&cache, &mut worker, b"old", now, &Store::set(b"1"));
        cache.flush_all(now, 0);
        store(&cache, &mut worker, b"new", now, &Store::set(b"2"));
        drop(worker);
        cache.close().unwrap();
        drop(cache);

        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        assert_eq!(get(&cache, &mut worker, b"old", now), None, "{medium}");
        let (_, value) =
            get(&cache, &mut worker, b"new", now).expect("it was stored after the flush");
        assert_eq!(value, b"2");
        let hash = worker.hash(b"new");
        worker.delete(b"new", hash, now, &DeleteOptions::default(), None);
        drop(worker);
        // Not closed: as if the process had died.
        drop(cache);
        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        assert_eq!(get(&cache, &mut worker, b"new", now), None, "{medium}");
    }
}

/// Whatever is left of a cache, clients may still hold the tokens of its items.
#[test]
fn a_token_does_not_come_again_in_the_next_life() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let now = clock.seconds();
        let mut told = Vec::new();
        for life in 0..6 {
            let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
            let mut worker = cache.worker();
            let Stored::Stored { cas } =
                store(&cache, &mut worker, b"key", now, &Store { cas: true, ..Store::set(b"1") })
            else {
                panic!("there is room");
            };
            assert!(told.iter().all(|token| *token < cas), "{medium} {life}: {cas} after {told:?}");
            told.push(cas);
            worker.delete(b"key", worker.hash(b"key"), now, &DeleteOptions::default(), None);
            drop(worker);
            // Every other process dies.
            if life % 2 == 0 {
                cache.close().unwrap();
            }
        }
    }
}

/// A server's upkeep may have been about to begin when the cache was closed.
#[test]
fn upkeep_leaves_a_closed_cache_as_it_was_saved() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let now = clock.seconds();
        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        let kept = Store { expiry: Expiry::At(Seconds(now.0 + 10)), ..Store::set(b"1") };
        store(&cache, &mut worker, b"key", now, &kept);
        drop(worker);
        cache.close().unwrap();
        let saved = cache.statistics();
        assert_eq!((saved.items, saved.segments), (1, 1), "{medium}");
        assert!(!cache.maintain(Seconds(now.0 + 20)));
        assert_eq!(cache.statistics(), saved, "{medium}");
    }
}

#[test]
fn damage_on_the_medium_is_a_miss_and_is_counted() {
    for medium in ["pmem", "file"] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let now = clock.seconds();
        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        for key in 0..500_u32 {
            store(
                &cache,
                &mut worker,
                format!("key{key}").as_bytes(),
                now,
                &Store::set(&value_of(key, 1)),
            );
        }
        drop(worker);
        cache.close().unwrap();
        drop(cache);
        // Every 1,000th byte of the values is flipped; what lies behind them stays.
        let path = dir.path().join("values");
        let mut bytes = std::fs::read(&path).unwrap();
        for at in (4096 + 100..bytes.len()).step_by(1000) {
            bytes[at] ^= 0x40;
        }
        std::fs::write(&path, bytes).unwrap();
        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        let (mut hits, mut misses) = (0, 0);
        for key in 0..500_u32 {
            match get(&cache, &mut worker, format!("key{key}").as_bytes(), now) {
                Some((_, value)) => {
                    assert_eq!(value, value_of(key, 1), "{medium}");
                    hits += 1;
                }
                None => misses += 1,
            }
        }
        assert!(hits > 0 && misses > 0, "{medium}: {hits} hits, {misses} misses");
        assert_eq!(cache.statistics().events.damaged, misses, "{medium}");
    }
}

#[test]
fn another_caches_file_is_left_alone() {
    for medium in ["pmem", "file"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("values");
        let precious = vec![b'x'; 16 << 20];
        std::fs::write(&path, &precious).unwrap();
        let clock = Arc::new(SystemClock::new());
        let error =
            Cache::open(config(medium, dir.path()), clock).err().expect("refused").to_string();
        assert!(error.contains("values"), "{error}");
        assert!(std::fs::read(&path).unwrap() == precious);
    }
}

// The rest runs a child process with a history of operations, kills it, and checks what it left.

#[derive(Debug, Clone, Copy)]
enum Op {
    Set { key: u32, ttl_s: Option<u32> },
    Delete { key: u32 },
    Touch { key: u32 },
    Append { key: u32 },
    Flush,
}

fn history(seed: u64) -> impl Iterator<Item = Op> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::from_fn(move || {
        let key = random.u32(..400);
        Some(match random.u32(..1000) {
            0 => Op::Flush,
            1..150 => Op::Delete { key },
            150..250 => Op::Touch { key },
            250..300 => Op::Append { key },
            kind => Op::Set { key, ttl_s: (kind % 4 == 0).then_some(3600) },
        })
    })
}

/// Child process: performs the history, writing a dot for each operation that was answered.
#[test]
fn child() {
    let Ok(arguments) = std::env::var("ENTRESOL_RESTART_CHILD") else { return };
    let (medium, rest) = arguments.split_once(' ').unwrap();
    let (seed, dir) = rest.split_once(' ').unwrap();
    let clock = Arc::new(SystemClock::new());
    let cache = Cache::open(config(medium, Path::new(dir)), clock.clone()).unwrap();
    let mut worker = cache.worker();
    let mut dots = std::io::stderr();
    for (number, op) in history(seed.parse().unwrap()).enumerate() {
        perform(&cache, &mut worker, clock.seconds(), number as u32, op);
        if number.is_multiple_of(16) {
            cache.maintain(clock.seconds());
        }
        dots.write_all(b".\n").unwrap();
    }
}

/// Child process: stores a few large values, writing a dot for each, and waits.
#[test]
fn large_child() {
    let Ok(arguments) = std::env::var("ENTRESOL_RESTART_LARGE") else { return };
    let (medium, dir) = arguments.split_once(' ').unwrap();
    let clock = Arc::new(SystemClock::new());
    let cache = Cache::open(config_of_large(medium, Path::new(dir)), clock.clone()).unwrap();
    let mut worker = cache.worker();
    let mut dots = std::io::stderr();
    for key in 0..LARGE_VALUES {
        let (name, value) = (format!("large{key}"), large_value_of(key));
        let now = clock.seconds();
        let stored = store(&cache, &mut worker, name.as_bytes(), now, &Store::set(&value));
        assert!(matches!(stored, Stored::Stored { .. }), "{key}: {stored:?}");
        dots.write_all(b".\n").unwrap();
    }
    loop {
        std::thread::park();
    }
}

/// Few enough that their records do not fill a segment.
const LARGE_VALUES: u32 = 5;

fn config_of_large(medium: &str, dir: &Path) -> Config {
    Config { value_bytes_max: Some(ByteSize::mib(1)), ..config(medium, dir) }
}

fn large_value_of(key: u32) -> Vec<u8> {
    (0..700_000 + key * 1_001).map(|at| (at * 7 + key) as u8).collect()
}

#[test]
fn a_kill_brings_back_large_values_whose_records_fill_no_segment() {
    for medium in ["pmem", "file"] {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let environment = ("ENTRESOL_RESTART_LARGE", format!("{medium} {}", dir.display()));
        let answered = run_until("large_child", environment, LARGE_VALUES as usize);
        assert_eq!(answered, LARGE_VALUES as usize);
        let clock = Arc::new(SystemClock::new());
        // The second start finds them as the first has left them.
        for _ in 0..2 {
            let cache = Cache::open(config_of_large(medium, dir), clock.clone()).unwrap();
            assert_eq!(cache.restore_remarks(), Vec::<String>::new());
            let mut worker = cache.worker();
            for key in 0..LARGE_VALUES {
                let name = format!("large{key}");
                let found = get(&cache, &mut worker, name.as_bytes(), clock.seconds());
                let is_right = found.is_some_and(|(_, value)| value == large_value_of(key));
                assert!(is_right, "{medium}: {name}");
            }
        }
    }
}

fn perform(cache: &Cache, worker: &mut Worker, now: Seconds, number: u32, op: Op) {
    match op {
        Op::Set { key, ttl_s } => {
            let value = value_of(key, number);
            let expiry = ttl_s.map_or(Expiry::Never, |ttl| Expiry::At(Seconds(now.0 + ttl)));
            let name = format!("key{key}");
            store(cache, worker, name.as_bytes(), now, &Store { expiry, ..Store::set(&value) });
        }
        Op::Delete { key } => {
            let name = format!("key{key}");
            let hash = worker.hash(name.as_bytes());
            worker.delete(name.as_bytes(), hash, now, &DeleteOptions::default(), None);
        }
        Op::Touch { key } => {
            let name = format!("key{key}");
            let hash = worker.hash(name.as_bytes());
            worker.touch(name.as_bytes(), hash, now, Expiry::At(Seconds(now.0 + 100)));
        }
        Op::Append { key } => {
            let name = format!("key{key}");
            let append = Store { mode: StoreMode::Append, ..Store::set(b"+") };
            store(cache, worker, name.as_bytes(), now, &append);
        }
        Op::Flush => cache.flush_all(now, 0),
    }
}

/// Returns each key's possible contents after the history: its value, and if it was touched since.
fn after(seed: u64, operations: usize) -> HashMap<u32, (Vec<u8>, bool)> {
    let mut items: HashMap<u32, (Vec<u8>, bool)> = HashMap::new();
    for (number, op) in history(seed).take(operations).enumerate() {
        match op {
            Op::Set { key, .. } => {
                items.insert(key, (value_of(key, number as u32), false));
            }
            Op::Delete { key } => {
                items.remove(&key);
            }
            Op::Touch { key } => {
                if let Some(item) = items.get_mut(&key) {
                    item.1 = true;
                }
            }
            Op::Append { key } => {
                if let Some(item) = items.get_mut(&key) {
                    item.0.push(b'+');
                }
            }
            Op::Flush => items.clear(),
        }
    }
    items
}

/// Runs the child until it has answered some operations, kills it, and returns how many it
/// answered.
fn run_and_kill(medium: &str, seed: u64, dir: &Path, operations: usize) -> usize {
    let arguments = format!("{medium} {seed} {}", dir.display());
    run_until("child", ("ENTRESOL_RESTART_CHILD", arguments), operations)
}

fn run_until(child: &str, (name, value): (&str, String), operations: usize) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([child, "--exact", "--nocapture", "--test-threads=1"])
        .env(name, value)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut dots = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut answered = 0;
    while answered < operations {
        match dots.next() {
            Some(Ok(line)) if line == "." => answered += 1,
            Some(Ok(line)) => panic!("the child says: {line}"),
            _ => panic!("the child ended early, after {answered} operations"),
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    answered + dots.map_while(Result::ok).filter(|line| line == ".").count()
}

fn check_kill(medium: &str, seed: u64, operations: usize) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let dir: PathBuf = directory.path().to_owned();
    let answered = run_and_kill(medium, seed, &dir, operations);
    let allowed = [after(seed, answered), after(seed, answered + 1)];
    let clock = Arc::new(SystemClock::new());
    let cache = Cache::open(config(medium, &dir), clock.clone()).unwrap();
    let restored = cache.statistics().restored_items;
    let mut worker = cache.worker();
    let mut found_items = 0;
    for key in 0..400 {
        let name = format!("key{key}");
        let Some((meta, value)) = get(&cache, &mut worker, name.as_bytes(), clock.seconds()) else {
            continue;
        };
        found_items += 1;
        let fits = |state: &HashMap<u32, (Vec<u8>, bool)>| {
            state.get(&key).is_some_and(|(due, touched)| {
                let near = matches!(meta.expiry, Expiry::At(at) if at.0 <= clock.seconds().0 + 100);
                *due == value && (!touched || near)
            })
        };
        assert!(
            allowed.iter().any(fits),
            "{medium}, seed {seed}, after {answered}: {name} holds {}, due {:?}",
            String::from_utf8_lossy(&value[..value.len().min(40)]),
            allowed[0]
                .get(&key)
                .map(|(due, _)| String::from_utf8_lossy(&due[..due.len().min(40)]).into_owned())
        );
    }
    assert_eq!(restored, found_items, "{medium}: an item was restored that cannot be found");
    restored
}

#[test]
fn a_kill_brings_back_nothing_that_was_given_up() {
    for medium in ["pmem", "file"] {
        // On a busy machine the writer of the file may not have its turn before the first kills.
        let (mut restored, mut seed) = (0, 0);
        while seed < 8 || restored <= 100 && seed < 64 {
            restored += check_kill(medium, seed, 1500 + 1500 * (seed % 8) as usize);
            seed += 1;
        }
        assert!(restored > 100, "{medium}: only {restored} items came back in all");
    }
}

#[test]
fn a_map_that_lost_its_bits_brings_no_segment_back_that_needed_them() {
    for medium in ["pmem", "file"] {
        let directory = tempfile::tempdir().unwrap();
        let dir: PathBuf = directory.path().to_owned();
        let answered = run_and_kill(medium, 3, &dir, 9000);
        let allowed = [after(3, answered), after(3, answered + 1)];
        let map = dir.join("state").join("default.map");
        let mut bytes = std::fs::read(&map).unwrap();
        // Behind the header, 128 entries and as many counts there are the bits of each segment.
        let (bits_at, bits_bytes) = (4096 + 128 * 16, 128 * (64 << 10) / 128);
        bytes[bits_at + bits_bytes / 2..].fill(0);
        std::fs::write(&map, bytes).unwrap();
        let clock = Arc::new(SystemClock::new());
        let cache = Cache::open(config(medium, &dir), clock.clone()).unwrap();
        let mut worker = cache.worker();
        for key in 0..400 {
            let name = format!("key{key}");
            let found = get(&cache, &mut worker, name.as_bytes(), clock.seconds());
            let fits = |state: &HashMap<u32, (Vec<u8>, bool)>, value: &[u8]| {
                state.get(&key).is_some_and(|(due, _)| due == value)
            };
            if let Some((_, value)) = found {
                assert!(allowed.iter().any(|state| fits(state, &value)), "{medium} {name}");
            }
        }
    }
}

#[test]
fn a_changed_quota_keeps_what_a_clean_stop_left() {
    for medium in ["pmem", "file"] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let now = clock.seconds();
        let cache = Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let mut worker = cache.worker();
        for key in 0..1000_u32 {
            let value = value_of(key, 1);
            store(&cache, &mut worker, format!("key{key}").as_bytes(), now, &Store::set(&value));
        }
        drop(worker);
        cache.close().unwrap();
        drop(cache);
        let larger = Config { medium_bytes: ByteSize::mib(12), ..config(medium, dir.path()) };
        let cache = Cache::open(larger.clone(), clock.clone()).unwrap();
        let mut worker = cache.worker();
        for key in 0..1000_u32 {
            let (_, value) = get(&cache, &mut worker, format!("key{key}").as_bytes(), now).unwrap();
            assert_eq!(value, value_of(key, 1), "{medium}");
        }
        let hash = worker.hash(b"key7");
        worker.delete(b"key7", hash, now, &DeleteOptions::default(), None);
        drop(worker);
        drop(cache);
        let cache = Cache::open(larger, clock.clone()).unwrap();
        let mut worker = cache.worker();
        assert_eq!(get(&cache, &mut worker, b"key7", now), None, "{medium}");
    }
}

#[test]
fn what_a_start_had_no_room_for_does_not_come_back_later() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let now = clock.seconds();
    let put = |cache: &Cache, worker: &mut Worker, key: u32, generation: u32| {
        let name = format!("key{key}");
        store(cache, worker, name.as_bytes(), now, &Store::set(&value_of(key, generation)));
    };
    let roomy = config("pmem", dir.path());
    let cache = Cache::open(roomy.clone(), clock.clone()).unwrap();
    let mut worker = cache.worker();
    (0..3000).for_each(|key| put(&cache, &mut worker, key, 1));
    drop(worker);
    cache.close().unwrap();
    drop(cache);
    let tight = Config { dram_bytes: ByteSize::kib(64), ..roomy.clone() };
    let cache = Cache::open(tight, clock.clone()).unwrap();
    let restored = cache.statistics().restored_items;
    assert!((1..2500).contains(&restored), "{restored}");
    let mut worker = cache.worker();
    (0..3000).for_each(|key| put(&cache, &mut worker, key, 2));
    drop(worker);
    // Not closed: as if the process had died.
    drop(cache);
    let cache = Cache::open(roomy, clock.clone()).unwrap();
    let mut worker = cache.worker();
    for key in 0..3000_u32 {
        if let Some((_, value)) = get(&cache, &mut worker, format!("key{key}").as_bytes(), now) {
            assert!(value == value_of(key, 2), "key{key} is of the first generation");
        }
    }
}

#[test]
fn a_kill_of_a_cache_in_dram_leaves_an_empty_one() {
    assert_eq!(check_kill("dram", 1, 1000), 0);
}

/// Damage to any bit of the map's header may cost all items, but brings none back that was flushed,
/// is to be flushed, or expires at a time that cannot be known.
#[test]
fn no_bit_of_the_maps_header_brings_a_void_item_back() {
    const HEADER_USED_BYTES: usize = 104;
    let dir = tempfile::tempdir().unwrap();
    let config = || Config {
        dram_bytes: ByteSize::mib(1),
        segment_bytes: Some(ByteSize::kib(8)),
        value_bytes_max: Some(ByteSize::kib(1)),
        seed: Some(1),
        ..config("dram", dir.path())
    };
    let stopped_at = Seconds(1_000_000);
    let cache = Cache::open(config(), Arc::new(ManualClock::at(stopped_at))).unwrap();
    let mut worker = cache.worker();
    store(&cache, &mut worker, b"flushed", stopped_at, &Store::set(b"1"));
    cache.flush_all(stopped_at, 0);
    store(&cache, &mut worker, b"eternal", stopped_at, &Store::set(b"2"));
    let expiry = Expiry::At(Seconds(stopped_at.0 + 1000));
    store(&cache, &mut worker, b"expires", stopped_at, &Store { expiry, ..Store::set(b"3") });
    cache.flush_all(stopped_at, 100);
    drop(worker);
    cache.close().unwrap();
    drop(cache);
    let state = dir.path().join("state");
    let files: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(&state)
        .unwrap()
        .map(|file| file.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    let mut survived = 0;
    for bit in std::iter::once(None).chain((0..HEADER_USED_BYTES * 8).map(Some)) {
        for (path, bytes) in &files {
            let mut bytes = bytes.clone();
            if let Some(bit) = bit.filter(|_| path.extension().is_some_and(|it| it == "map")) {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            std::fs::write(path, bytes).unwrap();
        }
        // The clock ran back: when the item expires is unknown.
        let early = Seconds(stopped_at.0 - 50);
        let Ok(cache) = Cache::open(config(), Arc::new(ManualClock::at(early))) else {
            assert!(bit.is_some_and(|bit| bit < 64), "bit {bit:?}: a cache is refused");
            continue;
        };
        let mut worker = cache.worker();
        let mut has = |key: &[u8], now| get(&cache, &mut worker, key, now).is_some();
        assert!(!has(b"flushed", early), "bit {bit:?}: a flushed item");
        assert!(!has(b"expires", early), "bit {bit:?}: an item that expires");
        let found = has(b"eternal", early);
        assert!(found || bit.is_some(), "the undamaged state is restored");
        survived += u32::from(found);
        let due = Seconds(stopped_at.0 + 100);
        assert!(!has(b"eternal", due), "bit {bit:?}: the ordered flush was forgotten");
    }
    assert!(survived < 400, "{survived} flips had no effect");
}

#[test]
fn the_state_of_another_format_is_dropped_and_named() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let now = clock.seconds();
        let open = || Cache::open(config(medium, dir.path()), clock.clone()).unwrap();
        let cache = open();
        assert_eq!(cache.restore_remarks(), [""; 0], "{medium}");
        let mut worker = cache.worker();
        store(&cache, &mut worker, b"key", now, &Store::set(b"1"));
        drop(worker);
        cache.close().unwrap();
        drop(cache);
        let map = std::fs::read_dir(dir.path().join("state")).unwrap().map(|it| it.unwrap().path());
        let map = map.into_iter().find(|it| it.extension().is_some_and(|it| it == "map")).unwrap();
        let mut bytes = std::fs::read(&map).unwrap();
        bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
        std::fs::write(&map, bytes).unwrap();
        let cache = open();
        let [remark] = &cache.restore_remarks()[..] else { panic!("{medium}: one remark") };
        assert!(remark.contains("it has format 1, and this version writes "), "{remark}");
        assert_eq!(cache.statistics().items, 0, "{medium}");
        drop(cache);
        let remarks = open().restore_remarks();
        assert!(!remarks.iter().any(|it| it.contains("format")), "{remarks:?}");
    }
}
