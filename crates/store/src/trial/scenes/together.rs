//! Scenes of several threads that use one store at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use entresol_base::thread::{self, JoinHandle};
use entresol_base::world::Preemption;

use super::crashed::left_by_a_death;
use super::{Told, all, create, flush, in_world, key, open, require, text};
use crate::types::Expiry;
use crate::wal::Log;
use crate::wal::record::Draft;
use crate::{Batch, CursorOptions, Kvdb, Kvs, Sequence, StoreError, TransactionOptions};

fn ended(thread: JoinHandle<Told>) -> Told {
    thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
}

/// One thread puts keys with a prefix, another deletes the prefix in transactions. Such a
/// transaction must notice every put between its begin and its commit.
pub(super) fn prefixes_and_puts() -> Told {
    const EACH: u32 = 100;
    in_world(Preemption::OneIn(4), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let putter = {
            let kvs = kvs.clone();
            thread::spawn("putter", move || -> Result<Vec<Sequence>, String> {
                (0..EACH).map(|number| kvs.put(&key(number), b"put").map_err(text)).collect()
            })
        };
        let mut committed = Vec::new();
        for _ in 0..EACH {
            let begun = store.transaction(TransactionOptions::default());
            let mut transaction = begun.map_err(text)?;
            transaction.delete_prefix(&kvs, b"key").map_err(text)?;
            let begun = transaction.sequence();
            match transaction.commit() {
                Ok(ended) => committed.push(begun..ended),
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        let put = putter.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))?;
        for Range { start, end } in committed {
            let missed = put.iter().find(|put| start < **put && **put < end);
            let what = || format!("{missed:?} was put between {start:?} and {end:?}, unnoticed");
            require(missed.is_none(), what())?;
        }
        Ok(())
    })
}

/// A writer has written its record in a generation, and is about to enter it into the index, when
/// the generation is closed and flushed. The flush must not miss the record.
pub(super) fn put_while_flushed() -> Told {
    const YIELDS: u32 = 1000;
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let log = store.core().log_behind().map_err(text)?;
        let put = Draft::put(kvs.id(), b"key", b"value", Expiry::NEVER);
        let mut closed = Ok(());
        let put = log.append(&[put], || {
            closed = log.close_generation().map(drop);
            // The flush gets many turns to run.
            (0..YIELDS).for_each(|_| thread::yield_now());
        });
        put.map(drop).and(closed).map_err(text)?;
        flush(&store)?;
        let found = kvs.get(b"key").map_err(text)?;
        require(found.is_some(), "what was put while its generation was flushed is missed")
    })
}

/// Three threads count in one key, by compare-and-set and by transactions. A fourth one compares
/// and sets another key, which a fifth one puts.
pub(super) fn writers_of_one_key() -> Told {
    const EACH: u64 = 25;
    in_world(Preemption::OneIn(4), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let store = Arc::new(store);
        kvs.put(b"sum", b"0").map_err(text)?;
        let links: Arc<Mutex<Links>> = Arc::default();
        let number = |bytes: &[u8]| String::from_utf8_lossy(bytes).parse::<u64>().map_err(text);
        let threads = (0..4_u8).map(|thread| {
            let (store, kvs, links) = (store.clone(), kvs.clone(), links.clone());
            thread::spawn("counter", move || -> Told {
                let mut done = 0;
                while done < EACH {
                    let counted = match thread {
                        0 | 1 => {
                            let found = kvs.get_with_token(b"sum").map_err(text)?;
                            let (value, token) = found.ok_or("the sum is gone")?;
                            let next = (number(&value)? + 1).to_string();
                            kvs.compare_and_set(b"sum", Some(token), next.as_bytes())
                        }
                        2 => {
                            let begun = store.transaction(TransactionOptions::default());
                            let mut transaction = begun.map_err(text)?;
                            let value = transaction.get(&kvs, b"sum").map_err(text)?;
                            let value = value.ok_or("the sum is gone")?;
                            let next = (number(&value)? + 1).to_string();
                            transaction.put(&kvs, b"sum", next.as_bytes()).map_err(text)?;
                            transaction.commit()
                        }
                        _ => put_and_set(&kvs, &links),
                    };
                    match counted {
                        Ok(_) => done += 1,
                        Err(StoreError::Conflict) => {}
                        Err(error) => return Err(error.to_string()),
                    }
                }
                Ok(())
            })
        });
        let setter = {
            let (kvs, links) = (kvs.clone(), links.clone());
            thread::spawn("setter", move || -> Told {
                for _ in 0..EACH {
                    let put = kvs.put(b"chain", b"put").map_err(text)?;
                    links.lock().unwrap_or_else(PoisonError::into_inner).push((None, put));
                }
                Ok(())
            })
        };
        let threads: Vec<_> = threads.chain([setter]).collect();
        threads.into_iter().try_for_each(ended)?;
        let sum = kvs.get(b"sum").map_err(text)?.unwrap_or_default();
        require(number(&sum)? == 3 * EACH, format!("{} of {} counted", number(&sum)?, 3 * EACH))?;
        let links = links.lock().unwrap_or_else(PoisonError::into_inner);
        let is_between = |from: Sequence, to: Sequence| {
            links.iter().any(|(_, other)| *other > from && *other < to)
        };
        let unseen = links.iter().find(|(known, set)| known.is_some_and(|it| is_between(it, *set)));
        require(unseen.is_none(), format!("{unseen:?}: a write between was overwritten unseen"))
    })
}

/// Writes of a key, each with the write that it knowingly overwrote; `None` for a put.
type Links = Vec<(Option<Sequence>, Sequence)>;

/// Sets a key that another thread puts, if it is unchanged. Records which write it overwrote.
fn put_and_set(kvs: &Kvs, links: &Mutex<Links>) -> Result<Sequence, StoreError> {
    let known = kvs.get_with_token(b"chain")?.map(|(_, token)| token);
    let set = kvs.compare_and_set(b"chain", known, b"set")?;
    let known = known.unwrap_or_default();
    links.lock().unwrap_or_else(PoisonError::into_inner).push((Some(known), set));
    Ok(set)
}

/// Threads put keys of one prefix, each key once, while others move all of these in transactions:
/// they list them, delete the prefix, and put the listed keys under another one. No key may be
/// lost, whatever is flushed meanwhile.
pub(super) fn prefix_removers() -> Told {
    const EACH: u32 = 60;
    const YIELDS_MAX: u64 = 100;
    in_world(Preemption::OneIn(3), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let store = Arc::new(store);
        let (is_over, moves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let putters = (0..2_u32).map(|thread| {
            let (store, kvs, moves) = (store.clone(), kvs.clone(), moves.clone());
            let mut rng = world.rng(&format!("putter {thread}"));
            thread::spawn("putter", move || -> Told {
                for number in 0..EACH {
                    // A mover that always meets a conflict would move nothing.
                    let before = moves.load(Relaxed);
                    while moves.load(Relaxed) == before {
                        thread::yield_now();
                    }
                    (0..rng.below(YIELDS_MAX)).for_each(|_| thread::yield_now());
                    let name = [b"new-".to_vec(), key(1000 * thread + number)].concat();
                    kvs.put(&name, b"value").map_err(text)?;
                    if number % 8 == 7 {
                        store.core().log_behind().and_then(Log::close_generation).map_err(text)?;
                        store.core().work.tell();
                    }
                }
                Ok(())
            })
        });
        let putters: Vec<_> = putters.collect();
        let movers = (0..2).map(|_| {
            let (store, kvs, is_over) = (store.clone(), kvs.clone(), is_over.clone());
            let moves = moves.clone();
            thread::spawn("mover", move || -> Told {
                while !is_over.load(Relaxed) {
                    match move_all(&store, &kvs) {
                        Ok(()) => _ = moves.fetch_add(1, Relaxed),
                        Err(StoreError::Conflict) => {}
                        Err(error) => return Err(error.to_string()),
                    }
                }
                Ok(())
            })
        });
        let movers: Vec<_> = movers.collect();
        let put = putters.into_iter().try_for_each(ended);
        is_over.store(true, Relaxed);
        movers.into_iter().try_for_each(ended).and(put)?;
        let left = all(&kvs)?;
        let is_there = |number: u32| {
            let at = |prefix: &[u8]| [prefix.to_vec(), key(number)].concat();
            let names = [at(b"new-"), at(b"old-")];
            left.iter().filter(|(name, _)| names.contains(name)).count() == 1
        };
        let lost = (0..2).flat_map(|thread| (0..EACH).map(move |number| 1000 * thread + number));
        let lost: Vec<u32> = lost.filter(|number| !is_there(*number)).collect();
        require(lost.is_empty(), format!("{lost:?} are lost, or there twice"))
    })
}

/// Puts all keys of one prefix under another, in one transaction.
fn move_all(store: &Kvdb, kvs: &Kvs) -> Result<(), StoreError> {
    // A thread that waits by yielding lets the world's time pass quickly.
    let age_max = Duration::from_secs(1 << 40);
    let options = TransactionOptions { age_max, ..TransactionOptions::default() };
    let mut transaction = store.transaction(options)?;
    let of_new = CursorOptions { prefix: b"new-".to_vec(), ..CursorOptions::default() };
    let mut cursor = transaction.cursor(kvs, of_new)?;
    let mut names = Vec::new();
    while let Some((name, _)) = cursor.next()? {
        names.push([b"old-", &name[4..]].concat());
    }
    transaction.delete_prefix(kvs, b"new-")?;
    names.iter().try_for_each(|name| transaction.put(kvs, name, b"value"))?;
    transaction.commit().map(drop)
}

/// A thread writes two keys at once, always with the same value. Readers must never see two values,
/// even during flushes and compactions.
pub(super) fn batches_seen_whole() -> Told {
    in_world(Preemption::OneIn(6), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let store = Arc::new(store);
        let written = Arc::new(AtomicU64::new(0));
        let writer = {
            let (store, kvs, written) = (store.clone(), kvs.clone(), written.clone());
            thread::spawn("writer", move || -> Told {
                for number in 0..60_u8 {
                    let mut batch = Batch::new();
                    for key in [b"a", b"b"] {
                        batch.put(&kvs, key, &[number; 2000]).map_err(text)?;
                    }
                    store.write(&batch).map_err(text)?;
                    written.store(number.into(), Relaxed);
                }
                Ok(())
            })
        };
        while !writer.is_finished() {
            let least = written.load(Relaxed);
            let snapshot = store.snapshot().map_err(text)?;
            let seen = [b"a", b"b"].map(|key| kvs.get_at(&snapshot, key));
            let [a, b] = seen;
            let (a, b) = (a.map_err(text)?, b.map_err(text)?);
            require(a == b, "a batch is seen in part")?;
            let number = a.and_then(|value| value.first().copied()).map_or(0, u64::from);
            require(number >= least, "what was acknowledged is not seen")?;
            thread::yield_now();
        }
        ended(writer)
    })
}

/// One thread puts. Another one puts, and checks what a death of the process would leave then:
/// every acknowledged write must be found, whatever the first thread is in the middle of.
pub(super) fn acknowledged_in_order() -> Told {
    in_world(Preemption::OneIn(6), |world, disk| {
        let (_store, kvs) = create(world, disk)?;
        let (is_looked_at, is_over) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let writer = {
            let (kvs, is_over) = (kvs.clone(), Arc::<AtomicBool>::clone(&is_over));
            let is_looked_at = is_looked_at.clone();
            thread::spawn("writer", move || -> Told {
                for number in (0..16).cycle() {
                    while is_looked_at.load(Relaxed) {
                        thread::yield_now();
                    }
                    if is_over.load(Relaxed) {
                        break;
                    }
                    kvs.put(&key(number), &[7; 300]).map_err(text)?;
                }
                Ok(())
            })
        };
        let mut looked = (100..140).map(|number| {
            kvs.put(&key(number), b"acknowledged").map_err(text)?;
            is_looked_at.store(true, Relaxed);
            let (_store, left) = open(world, &left_by_a_death(disk)?)?;
            let found = left.get(&key(number)).map_err(text)?;
            is_looked_at.store(false, Relaxed);
            require(found.is_some(), "a death takes what was acknowledged")
        });
        let looked = looked.try_for_each(|it| it);
        is_looked_at.store(false, Relaxed);
        is_over.store(true, Relaxed);
        looked?;
        ended(writer)
    })
}

/// A thread puts a key, and every second put closes a generation. A snapshot must have all puts up
/// to its number, whatever happens while it is taken.
pub(super) fn snapshots() -> Told {
    in_world(Preemption::OneIn(3), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (kvs, is_over) = (kvs.clone(), is_over.clone());
            thread::spawn("writer", move || {
                let put = |number: u8| kvs.put(b"key", &[number; 9000]).map_err(text);
                let puts: Result<Vec<Sequence>, String> = (0..240).map(put).collect();
                is_over.store(true, Relaxed);
                puts
            })
        };
        let mut seen = Vec::new();
        while !is_over.load(Relaxed) {
            let snapshot = store.snapshot().map_err(text)?;
            let value = kvs.get_at(&snapshot, b"key").map_err(text)?;
            seen.push((snapshot.sequence(), value.and_then(|value| value.first().copied())));
            thread::yield_now();
        }
        let puts = writer.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))?;
        for (at, value) in seen {
            let last = puts.iter().rposition(|put| *put <= at).map(|last| last as u8);
            require(value == last, format!("{at:?} shows {value:?}, put was {last:?}"))?;
        }
        Ok(())
    })
}

/// One thread puts keys and syncs, while another one syncs all the time. Whichever sync covers
/// them, the puts survive a power cut.
pub(super) fn syncs() -> Told {
    in_world(Preemption::OneIn(3), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        let store = Arc::new(store);
        let is_over = Arc::new(AtomicBool::new(false));
        let other = {
            let (store, is_over) = (store.clone(), is_over.clone());
            thread::spawn("syncing", move || -> Told {
                while !is_over.load(Relaxed) {
                    store.sync().map_err(text)?;
                    thread::yield_now();
                }
                Ok(())
            })
        };
        let is_kept = |number: u32| -> Told {
            for _ in 0..4 {
                kvs.put(&key(number), b"value").map_err(text)?;
            }
            kvs.put(b"last", &number.to_le_bytes()).map_err(text)?;
            store.sync().map_err(text)?;
            let cut = disk.image(&vec![0; disk.units().len()]);
            let (_store, kvs) = open(world, &cut)?;
            let found = kvs.get(b"last").map_err(text)?;
            let is_it = found.as_deref() == Some(&number.to_le_bytes()[..]);
            require(is_it, format!("what was put the {number}th time was synced, but is lost"))
        };
        let kept = (0..30).try_for_each(is_kept);
        is_over.store(true, Relaxed);
        ended(other).and(kept)
    })
}
