//! Several threads on one cache: a hit is always the whole value of its key, no update is lost, no
//! key that stays is missed, and counters match the contents.

#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use entresol_base::checksum::crc32c;
use entresol_base::{ByteSize, ManualClock, Seconds};
use entresol_cache::{
    Arithmetic, Cache, Config, Counted, DeleteOptions, Deleted, Expiry, Favour, GetOptions,
    ItemMeta, Lookup, Store, StoreMode, Stored, Walk, Worker,
};

const THREADS: usize = 4;
const NOW: Seconds = Seconds(1_000_000);

fn cache(segment_kib: u64, segments: u64, favour: Favour) -> Arc<Cache> {
    let config = Config {
        segment_bytes: Some(ByteSize::kib(segment_kib)),
        value_bytes_max: Some(ByteSize::kib(8)),
        workers: THREADS,
        favour,
        seed: Some(3),
        huge_pages: false,
        ..Config::dram(ByteSize::kib(segment_kib * segments))
    };
    Cache::open(config, Arc::new(ManualClock::at(NOW))).expect("the configuration can be met")
}

/// Runs `work` in several threads, each with a worker of its own, and `maintain` beside them.
fn together(cache: &Arc<Cache>, work: impl Fn(usize, &mut Worker) + Sync) {
    on_threads(THREADS, cache, work);
}

fn on_threads(threads: usize, cache: &Arc<Cache>, work: impl Fn(usize, &mut Worker) + Sync) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                cache.maintain(NOW);
                std::thread::yield_now();
            }
        });
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || work(thread, &mut cache.worker()))
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok), "a thread has failed");
    });
}

fn name(key: u64) -> Vec<u8> {
    format!("key-{key}-{}", "k".repeat((key % 23) as usize)).into_bytes()
}

/// A part of a value: length of the rest, checksum of the rest, key, bytes that depend on `version`.
/// Appended parts form a chain that can be checked link by link.
fn part(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut rest = key.to_le_bytes().to_vec();
    rest.extend((0..len).map(|i| (version.wrapping_mul(31).wrapping_add(i as u64 * 7)) as u8));
    let mut part = (rest.len() as u32).to_le_bytes().to_vec();
    part.extend(crc32c(&rest).to_le_bytes());
    part.extend(rest);
    part
}

fn assert_whole(key: u64, mut value: &[u8]) {
    assert!(!value.is_empty(), "an empty value for key {key}");
    while !value.is_empty() {
        let (head, behind) = value.split_at_checked(8).expect("a part has a head");
        let len = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        let (rest, behind) = behind.split_at_checked(len).expect("a part is whole");
        assert_eq!(crc32c(rest).to_le_bytes(), head[4..], "key {key} has a torn value");
        assert_eq!(rest[..8], key.to_le_bytes(), "key {key} has another's value");
        value = behind;
    }
}

fn get(worker: &mut Worker, key: &[u8], cas: bool, out: &mut Vec<u8>) -> Option<ItemMeta> {
    out.clear();
    let hash = worker.hash(key);
    let options = GetOptions { cas, ..GetOptions::default() };
    match worker.get(key, hash, NOW, &options, out, |_, _| ()) {
        Lookup::Hit(meta) => Some(meta),
        Lookup::Miss => None,
        Lookup::Pending(_) => unreachable!("there is no block file"),
    }
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8]) -> Stored {
    let hash = worker.hash(key);
    worker.store(key, hash, NOW, &Store::set(value), None)
}

fn anything(worker: &mut Worker, random: &mut fastrand::Rng, keys: u64, out: &mut Vec<u8>) {
    let key = random.u64(..keys);
    let name = name(key);
    let hash = worker.hash(&name);
    // Few lengths, so that holes are used again, and by other keys.
    let len = [20, 60, 100, 700][random.usize(..4)];
    let value = part(key, random.u64(..), len);
    let mode = match random.u8(..100) {
        0..45 => {
            if get(worker, &name, random.u8(..8) == 0, out).is_some() {
                assert_whole(key, out);
            }
            return;
        }
        45..75 => StoreMode::Set,
        75..80 => StoreMode::Add,
        80..84 => StoreMode::Replace,
        84..88 => StoreMode::Append,
        88..92 => StoreMode::Prepend,
        92..96 => {
            let deleted = worker.delete(&name, hash, NOW, &DeleteOptions::default(), None);
            assert!(matches!(deleted, Deleted::Deleted | Deleted::NotFound), "{deleted:?}");
            return;
        }
        _ => {
            let at = Expiry::At(Seconds(NOW.0 + 1 + random.u32(..1000)));
            worker.touch(&name, hash, NOW, if random.bool() { at } else { Expiry::Never });
            return;
        }
    };
    let expiry = if random.u8(..4) == 0 { Expiry::At(Seconds(NOW.0 + 500)) } else { Expiry::Never };
    let stored =
        worker.store(&name, hash, NOW, &Store { mode, expiry, ..Store::set(&value) }, None);
    let allowed = matches!(
        stored,
        Stored::Stored { .. } | Stored::NotStored | Stored::NoMemory | Stored::TooLarge
    );
    assert!(allowed, "{stored:?}");
}

fn check_values_are_whole(cache: &Arc<Cache>, threads: usize, keys: u64) {
    const OPERATIONS: usize = 240_000;
    on_threads(threads, cache, |thread, worker| {
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let mut out = Vec::new();
        for _ in 0..OPERATIONS / threads {
            anything(worker, &mut random, keys, &mut out);
        }
    });
    let (mut worker, mut out, mut found) = (cache.worker(), Vec::new(), 0);
    for key in 0..keys {
        if get(&mut worker, &name(key), false, &mut out).is_some() {
            assert_whole(key, &out);
            found += 1;
        }
    }
    assert_eq!(cache.statistics().items, found, "{threads} threads");
}

#[test]
fn a_hit_is_the_whole_value_of_its_key_under_pressure() {
    for favour in [Favour::Objects, Favour::Bytes] {
        check_values_are_whole(&cache(64, 16, favour), THREADS, 20_000);
    }
}

#[test]
fn a_hit_is_the_whole_value_of_a_few_contended_keys() {
    check_values_are_whole(&cache(64, 16, Favour::Objects), THREADS, 20);
}

/// Many more threads than processors: a thread stays interrupted between any two steps while the
/// segment that it was at is evicted, reused and filled by others.
#[test]
fn threads_that_are_interrupted_spoil_nothing() {
    for favour in [Favour::Objects, Favour::Bytes] {
        check_values_are_whole(&cache(64, 24, favour), 32, 5_000);
    }
}

#[test]
fn increments_of_several_threads_add_up() {
    const EACH: u64 = 20_000;
    const KEYS: u64 = 3;
    let cache = cache(64, 64, Favour::Objects);
    for key in 0..KEYS {
        set(&mut cache.worker(), &name(key), b"0");
    }
    together(&cache, |_, worker| {
        for step in 0..EACH {
            let name = name(step % KEYS);
            let hash = worker.hash(&name);
            let plus = Arithmetic {
                delta: 1 + step % 2,
                cas: false,
                down: false,
                compare: None,
                explicit_cas: None,
                touch: None,
                vivify: None,
            };
            let counted = worker.arithmetic(&name, hash, NOW, &plus, None);
            assert!(matches!(counted, Counted::Value { .. }), "{counted:?}");
        }
    });
    let (mut sum, mut out) = (0, Vec::new());
    for key in 0..KEYS {
        get(&mut cache.worker(), &name(key), false, &mut out).expect("nothing was evicted");
        let text = std::str::from_utf8(&out).expect("digits");
        sum += text.trim_end().parse::<u64>().expect("a number");
    }
    let each: u64 = (0..EACH).map(|step| 1 + step % 2).sum();
    assert_eq!(sum, each * THREADS as u64);
    assert_eq!(cache.statistics().events.evicted_items, 0);
}

#[test]
fn swaps_of_several_threads_lose_no_update() {
    const EACH: u64 = 5_000;
    let cache = cache(64, 64, Favour::Objects);
    set(&mut cache.worker(), b"shared", &counters());
    let tried = AtomicU64::new(0);
    together(&cache, |thread, worker| {
        let hash = worker.hash(b"shared");
        let mut out = Vec::new();
        // The value is a counter for each thread: a lost update would set another's back.
        for step in 1..=EACH {
            loop {
                let meta = get(worker, b"shared", true, &mut out).expect("nothing is evicted");
                assert_whole(0, &out);
                let at = 16 + 8 * thread;
                assert_eq!(out[at..at + 8], own_counter(step - 1), "thread {thread}");
                let mut rest = out[8..].to_vec();
                rest[at - 8..at].copy_from_slice(&own_counter(step));
                let value = [&out[..4], &crc32c(&rest).to_le_bytes()[..], &rest[..]].concat();
                let swap = Store { compare: Some(meta.cas), ..Store::set(&value) };
                tried.fetch_add(1, Ordering::Relaxed);
                match worker.store(b"shared", hash, NOW, &swap, None) {
                    Stored::Stored { .. } => break,
                    Stored::Exists => {}
                    stored => panic!("{stored:?}"),
                }
            }
        }
    });
    assert!(tried.into_inner() >= EACH * THREADS as u64);
}

/// A part of a value that holds a counter of zero for each thread.
fn counters() -> Vec<u8> {
    let rest = [0; 8 + 8 * THREADS];
    [&(rest.len() as u32).to_le_bytes()[..], &crc32c(&rest).to_le_bytes(), &rest].concat()
}

fn own_counter(step: u64) -> [u8; 8] {
    step.to_le_bytes()
}

#[test]
fn keys_that_stay_are_never_missed_while_the_table_grows_and_shrinks() {
    const STAYING: u64 = 3_000;
    const PASSING: u64 = 60_000;
    const READS: usize = 60_000;
    let cache = cache(256, 128, Favour::Objects);
    let mut worker = cache.worker();
    for key in 0..STAYING {
        let stored = set(&mut worker, &name(key), &part(key, 0, 20));
        assert!(matches!(stored, Stored::Stored { .. }));
    }
    let small = cache.statistics().index_bytes;
    let largest = AtomicU64::new(0);
    let readers = AtomicU64::new(THREADS as u64 - 1);
    together(&cache, |thread, worker| {
        let mut out = Vec::new();
        if thread == 0 {
            while readers.load(Ordering::Acquire) > 0 {
                for key in STAYING..STAYING + PASSING {
                    set(worker, &name(key), b"passing");
                }
                largest.fetch_max(cache.statistics().index_bytes, Ordering::Relaxed);
                for key in STAYING..STAYING + PASSING {
                    let name = name(key);
                    let hash = worker.hash(&name);
                    worker.delete(&name, hash, NOW, &DeleteOptions::default(), None);
                }
            }
            return;
        }
        let mut random = fastrand::Rng::with_seed(thread as u64);
        for _ in 0..READS {
            let key = random.u64(..STAYING);
            get(worker, &name(key), false, &mut out).expect("a key that stays was missed");
            assert_whole(key, &out);
        }
        readers.fetch_sub(1, Ordering::AcqRel);
    });
    while cache.maintain(NOW) {}
    let statistics = cache.statistics();
    assert!(largest.into_inner() > 4 * small, "the table has grown");
    assert!(statistics.index_bytes < 4 * small, "the table has shrunk");
    assert_eq!(statistics.items, STAYING);
}

#[test]
fn a_walk_shows_whole_items_beside_writers_and_all_of_them_without() {
    const KEYS: u64 = 20_000;
    let cache = cache(64, 64, Favour::Objects);
    let all = |worker: &mut Worker| {
        let (mut walk, mut keys) = (Some(Walk::default()), Vec::new());
        while let Some(at) = walk {
            walk = worker.walk(at, NOW, |key, meta| {
                assert_eq!(key, name(u64::from(meta.flags)), "another item's metadata");
                keys.push(meta.flags);
            });
        }
        keys
    };
    together(&cache, |thread, worker| {
        if thread == 0 {
            (0..20).for_each(|_| drop(all(worker)));
            return;
        }
        for turn in 0..KEYS {
            let key = (turn * 7919 + thread as u64 * 31) % KEYS;
            let hash = worker.hash(&name(key));
            if turn.is_multiple_of(5) {
                worker.delete(&name(key), hash, NOW, &DeleteOptions::default(), None);
            } else {
                let value = part(key, turn, (turn % 300) as usize);
                let store = Store { flags: key as u32, ..Store::set(&value) };
                worker.store(&name(key), hash, NOW, &store, None);
            }
        }
    });
    let mut worker = cache.worker();
    let mut walked = all(&mut worker);
    walked.sort_unstable();
    let mut out = Vec::new();
    let there = |key: &u32| get(&mut worker, &name(u64::from(*key)), false, &mut out).is_some();
    let found: Vec<u32> = (0..KEYS as u32).filter(there).collect();
    assert!(found.len() > 1000, "{} keys are left", found.len());
    assert_eq!(walked, found);
}
