//! Tests of the contents, the admission and the consistency of the row cache.

use std::collections::BTreeMap;

use entresol_base::rng::Rng;

use super::*;
use crate::cache::budget::Taken;

const KVS: KvsId = KvsId(3);

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Draft<'a> {
    Draft::put(KVS, key, value, Expiry::NEVER)
}

/// Writes a draft as the callers of the log do.
fn write(entries: &RowCache, draft: Draft<'_>, sequence: u64) {
    let name = entries.name(draft.kvs, draft.key);
    let mut held = match draft.kind {
        Kind::RangeDelete => entries.lock_every(),
        _ => entries.lock(&name),
    };
    held.remove(&[draft]);
    held.put(&draft, Sequence(sequence));
}

fn find(entries: &RowCache, key: &[u8]) -> Option<(Vec<u8>, u64)> {
    let mut out = b"before".to_vec();
    let found = entries.find(&entries.name(KVS, key), Sequence::MAX, &mut out);
    assert!(out.starts_with(b"before") && (found.is_some() || out.len() == 6));
    found.map(|cached| (out[6..].to_vec(), cached.sequence.0))
}

fn fill(entries: &RowCache, key: &[u8], value: &[u8], sequence: u64) {
    let name = entries.name(KVS, key);
    let cached = Cached { sequence: Sequence(sequence), expiry: Expiry::NEVER };
    entries.fill(&name, entries.ticket(&name), cached, value);
}

fn key(number: u64) -> Vec<u8> {
    format!("{}/{number:05}", (b'a' + (number % 7) as u8) as char).into_bytes()
}

/// Compares with a map of the newest versions: the cache returns these, whatever made room.
#[test]
fn what_is_found_is_the_newest_version() {
    let mut rng = Rng::new(1);
    let mut found = 0;
    for (cap_bytes, lent) in
        [(ROW_CACHE_BYTES_MIN, 0), (1 << 20, 0), (1 << 20, 8 << 20), (8 << 20, 4 << 20)]
    {
        let room = Room::new(lent, 0);
        let entries = RowCache::new(cap_bytes, &room).expect("address space");
        let young = Taken::of_memtables(&room);
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, u64)> = BTreeMap::new();
        for sequence in 1..60_000 {
            let key = key(rng.below(9_000).min(rng.below(9_000)));
            let value = vec![sequence as u8; rng.below(200) as usize];
            if rng.below(20) == 0 {
                young.set(rng.below(lent + 1));
                assert!(young.bytes() + room.borrowed() <= lent, "it gives back what is wanted");
            }
            match rng.below(1_000) {
                0 => {
                    let prefix = &key[..2 + rng.below(6) as usize];
                    write(&entries, Draft::gone(KVS, Kind::RangeDelete, prefix), sequence);
                    model.retain(|key, _| !key.starts_with(prefix));
                }
                1..150 => {
                    write(&entries, put(&key, &value), sequence);
                    model.insert(key, (value, sequence));
                }
                150..200 => {
                    write(&entries, Draft::gone(KVS, Kind::Gone, &key), sequence);
                    model.remove(&key);
                }
                _ => match (find(&entries, &key), model.get(&key)) {
                    (Some(cached), newest) => {
                        assert_eq!(Some(&cached), newest);
                        found += 1;
                    }
                    (None, Some((value, sequence))) => fill(&entries, &key, value, *sequence),
                    (None, None) => {}
                },
            }
        }
    }
    assert!(found > 6_000, "only {found}");
}

#[test]
fn what_was_read_before_a_write_is_not_filled_in_after_it() {
    let entries = RowCache::new(1 << 20, &Room::new(0, 0)).expect("address space");
    let name = entries.name(KVS, b"key");
    let old = Cached { sequence: Sequence(1), expiry: Expiry::NEVER };
    let new = Some((b"new".to_vec(), 2));
    for (draft, after) in [(put(b"key", b"new"), new), (Draft::gone(KVS, Kind::Gone, b"key"), None)]
    {
        let ticket = entries.ticket(&name);
        write(&entries, draft, 2);
        entries.fill(&name, ticket, old, b"old");
        assert_eq!(find(&entries, b"key"), after);
    }
    // Values are not filled in during a write either.
    let ticket = entries.ticket(&name);
    let held = entries.lock(&name);
    entries.fill(&name, ticket, old, b"old");
    drop(held);
    assert_eq!(find(&entries, b"key"), None);
    // A range delete meanwhile covers the value as well.
    let ticket = entries.ticket(&name);
    entries.lock_every().remove(&[Draft::gone(KVS, Kind::RangeDelete, b"k")]);
    entries.fill(&name, ticket, old, b"old");
    assert_eq!(find(&entries, b"key"), None);
    fill(&entries, b"key", b"newer", 3);
    assert_eq!(find(&entries, b"key"), Some((b"newer".to_vec(), 3)));
}

#[test]
fn who_looks_back_goes_past_what_came_later() {
    let entries = RowCache::new(1 << 20, &Room::new(0, 0)).expect("address space");
    fill(&entries, b"key", b"value", 7);
    let mut out = Vec::new();
    let name = entries.name(KVS, b"key");
    assert_eq!(entries.find(&name, Sequence(6), &mut out), None);
    assert!(out.is_empty());
    assert!(entries.find(&name, Sequence(7), &mut out).is_some());
    assert_eq!(entries.find(&entries.name(KvsId(4), b"key"), Sequence::MAX, &mut out), None);
    let counts = entries.counts();
    assert_eq!((counts.hits, counts.misses, counts.cap_bytes), (1, 2, 1 << 20));
}

#[test]
fn keys_that_are_read_once_drive_nothing_out() {
    let entries = RowCache::new(1 << 20, &Room::new(0, 0)).expect("address space");
    let value = [5; 100];
    let read = |number: u64| {
        let found = find(&entries, &key(number)).is_some();
        if !found {
            fill(&entries, &key(number), &value, 1);
        }
        found
    };
    // About half of what fits is read again and again.
    for _ in 0..3 {
        (0..3_000).for_each(|number| _ = read(number));
    }
    for cold in 0..100_000 {
        read(100_000 + cold);
        read(cold % 3_000);
    }
    let there = (0..3_000).filter(|&number| read(number)).count();
    assert!(there > 2_900, "{there} of 3000 are left");
    // Keys that are read again are admitted.
    for _ in 0..4 {
        (50_000..52_000).for_each(|number| _ = read(number));
    }
    let there = (50_000..52_000).filter(|&number| read(number)).count();
    assert!(there > 1_500, "{there} of 2000 have come");
}

#[test]
fn prefixes_that_were_forgotten_cover_everything_before_them() {
    let entries = RowCache::new(1 << 20, &Room::new(0, 0)).expect("address space");
    fill(&entries, b"kept", b"value", 1);
    fill(&entries, b"gone", b"value", 2);
    write(&entries, Draft::gone(KvsId(9), Kind::RangeDelete, b"kept"), 3);
    write(&entries, Draft::gone(KVS, Kind::RangeDelete, b"go"), 4);
    assert!(find(&entries, b"kept").is_some());
    assert_eq!(find(&entries, b"gone"), None);
    fill(&entries, b"gone", b"again", 5);
    assert!(find(&entries, b"gone").is_some());
    for sequence in 0..PREFIXES_MAX as u64 {
        write(&entries, Draft::gone(KVS, Kind::RangeDelete, b"other"), 6 + sequence);
    }
    assert_eq!(find(&entries, b"kept"), None, "nobody knows any more");
    assert!(find(&entries, b"gone").is_some(), "it was read after all that is forgotten");
    let long = vec![b'x'; 60_000];
    for sequence in 0..4 {
        write(&entries, Draft::gone(KVS, Kind::RangeDelete, &long), 100 + sequence);
    }
    assert!(entries.gone.read().bytes <= PREFIX_BYTES_MAX);
    assert_eq!(find(&entries, b"gone"), None);
}

#[test]
fn large_values_and_caches_of_no_bytes_are_passed_by() {
    let entries = RowCache::new(1 << 20, &Room::new(0, 0)).expect("address space");
    fill(&entries, b"key", &[1; 1000], 1);
    assert_eq!(find(&entries, b"key"), None);
    fill(&entries, b"key", &[1; 200], 1);
    assert_eq!(find(&entries, b"key"), Some((vec![1; 200], 1)));
    // The new value does not fit, but the old one is removed all the same.
    write(&entries, put(b"key", &[1; 1000]), 2);
    assert_eq!(find(&entries, b"key"), None);
    // Nor does it keep values out that do fit.
    let room = Room::new(64 << 20, 0);
    let entries = RowCache::new(1 << 20, &room).expect("address space");
    write(&entries, put(b"key", &[1; 100_000]), 1);
    assert_eq!((find(&entries, b"key"), room.borrowed()), (None, 0));
    write(&entries, put(b"key", b"small"), 2);
    assert_eq!(find(&entries, b"key"), Some((b"small".to_vec(), 2)));
    let entries = RowCache::new(0, &Room::new(0, 0)).expect("nothing");
    fill(&entries, b"key", b"value", 1);
    assert_eq!(find(&entries, b"key"), None);
    write(&entries, put(b"key", b"value"), 2);
}

/// Borrowed memory is as useful as the cache's own. It is given back when it is wanted, and
/// borrowed again later.
#[test]
fn what_others_leave_is_borrowed() {
    let room = Room::new(16 << 20, 0);
    let entries = RowCache::new(4 << 20, &room).expect("address space");
    let value = [5; 200];
    let all = 50_000;
    let there = |entries: &RowCache| {
        let is_there = |number: &u64| find(entries, &key(*number)).is_some();
        (0..all).filter(is_there).count()
    };
    let read_all = || (0..all).for_each(|number| fill(&entries, &key(number), &value, 1));
    read_all();
    // Some lines would need more than eight slots.
    assert!(there(&entries) > 49_500, "12 MiB have room");
    assert!(room.borrowed() > 8 << 20 && room.borrowed() <= 15 << 20);
    let young = Taken::of_memtables(&room);
    young.set(8 << 20);
    assert!(room.borrowed() <= 8 << 20);
    let left = there(&entries);
    assert!((30_000..48_000).contains(&left), "{left}");
    young.set(16 << 20);
    assert_eq!(room.borrowed(), 0);
    let left = there(&entries);
    assert!((6_000..16_000).contains(&left), "{left}");
    drop(young);
    for _ in 0..6 {
        read_all();
    }
    let again = there(&entries);
    assert!(again > 48_000, "{again}");
}

/// A value that is overwritten stays in its place, and evicts nothing.
#[test]
fn what_is_written_again_drives_nothing_out() {
    let entries = RowCache::new(1 << 20, &Room::new(0, 0)).expect("address space");
    (0..3_000).for_each(|number| fill(&entries, &key(number), &[5; 100], 1));
    let there = |entries: &RowCache| {
        (0..3_000).filter(|&number| find(entries, &key(number)).is_some()).count()
    };
    let before = there(&entries);
    for sequence in 2..200_000 {
        write(&entries, put(&key(sequence % 40), &[sequence as u8; 100]), sequence);
    }
    assert_eq!(there(&entries), before);
    let (value, sequence) = find(&entries, &key(199_999 % 40)).expect("written last");
    assert_eq!((value, sequence), (vec![(199_999 % 256) as u8; 100], 199_999));
}

/// Readers see whole values of one version while these are overwritten in place, moved, evicted and
/// given back.
#[test]
fn values_that_are_read_while_they_change_are_whole() {
    let room = Room::new(2 << 20, 0);
    let entries = RowCache::new(1 << 20, &room).expect("address space");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let keys = 500;
    // Words of the version, whose number now and then changes the length too.
    let value = |sequence: u64| {
        let words = 4 + (sequence / 64 % 3) as usize;
        sequence.to_le_bytes().repeat(words)
    };
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (entries, is_over) = (&entries, &is_over);
            scope.spawn(move || {
                let (mut rng, mut hits) = (Rng::new(reader), 0_u64);
                while !is_over.load(Relaxed) || hits == 0 {
                    if let Some((found, sequence)) = find(entries, &key(rng.below(keys))) {
                        assert_eq!(found, value(sequence));
                        hits += 1;
                    }
                }
            });
        }
        let (mut rng, young) = (Rng::new(7), Taken::of_memtables(&room));
        for sequence in 1..400_000 {
            let key = key(rng.below(keys));
            write(&entries, put(&key, &value(sequence)), sequence);
            if find(&entries, &key).is_none() {
                fill(&entries, &key, &value(sequence), sequence);
            }
            if sequence % 500 == 0 {
                young.set(rng.below(room.bytes()));
            }
        }
        is_over.store(true, Relaxed);
    });
}
