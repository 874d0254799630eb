//! Tests of runs over one small cache, in a simulated world and with threads of the system.

use entresol_base::thread;

use super::*;
use crate::cache::block::{PageId, PageKind};

/// Reads by lookups and by cursors, and compares.
fn read_some(run: &Arc<Run>, model: &Model, seed: u64, rounds: u64) {
    let mut rng = Rng::named(seed, "reader");
    let volumes: Vec<&Place> = model.keys().collect();
    for _ in 0..rounds {
        let at = rng.below(volumes.len() as u64) as usize;
        let (key, sequence) = volumes[at];
        assert_eq!(get(run, key, sequence.0).expect("reads"), expected(model, key, sequence.0));
        let mut cursor = run.cursor();
        assert!(cursor.seek_first_at_or_after(key, Sequence(sequence.0)).expect("reads"));
        for place in &volumes[at..(at + 50).min(volumes.len())] {
            assert_eq!(cursor.entry().map(|entry| found(&entry).0).as_ref(), Some(*place));
            let _ = cursor.next().expect("reads");
        }
    }
}

#[test]
fn threads_that_share_a_small_cache_read_what_was_written() {
    let disk = disk();
    let model = Arc::new(sample(20_000, 21));
    let _ = write(&disk.root(), &model, RunOptions::default()).expect("writes");
    let pages = BlockCache::new(512 << 10);
    let run = Run::open(&disk.root(), NUMBER, &pages).expect("whole");
    let threads: Vec<_> = (0..3)
        .map(|seed| {
            let (run, model) = (Arc::clone(&run), Arc::clone(&model));
            thread::spawn("reader", move || read_some(&run, &model, seed, 1500))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
    let counts = pages.counts();
    assert!(counts.over_bytes_most == 0, "{counts:?}");
    assert!(counts.data.evictions > 100 && counts.index.hits > 1000, "{counts:?}");
    let before = counts.bytes;
    drop(run);
    assert!(pages.counts().bytes < before / 2, "blocks of a run that is closed are forgotten");
}

#[test]
fn in_a_world_reading_repeats_in_virtual_time() {
    let run = |seed| {
        let world = World::new(WorldOptions::seeded(seed));
        let model = Some("nvme-9300".parse().expect("is a model"));
        let disk = Disk::new(&world, DiskOptions { model, ..DiskOptions::default() });
        let disk = disk.expect("a model of a disk");
        let pages = BlockCache::new(0);
        let (of_world, root) = (Arc::clone(&pages), disk.root());
        let outcome = world.run(move || {
            let model = Arc::new(sample(3000, 22));
            let _ = write(&root, &model, RunOptions::default()).expect("writes");
            let run = Run::open(&root, NUMBER, &of_world).expect("whole");
            let threads: Vec<_> = (0..3)
                .map(|seed| {
                    let (run, model) = (Arc::clone(&run), Arc::clone(&model));
                    thread::spawn("reader", move || read_some(&run, &model, seed, 30))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
        });
        outcome.expect("ends");
        (world.now(), pages.counts())
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    assert_eq!(first.1.over_bytes_most, 0);
}

#[test]
fn what_is_written_is_found_in_the_cache_if_that_has_room() {
    let disk = disk();
    let model = Arc::new(sample(20_000, 23));
    let write = |pages: &Arc<BlockCache>, finish: bool| {
        let mut writer =
            RunWriter::create(&disk.root(), NUMBER, KVS, RunOptions::default()).expect("makes");
        writer.cache_in(pages);
        for (place, value) in &*model {
            writer.push(&entry(place, value)).expect("in order");
        }
        finish.then(|| writer.finish(pages).expect("writes"))
    };
    let large = BlockCache::new(64 << 20);
    assert!(write(&large, false).is_none());
    assert_eq!(large.counts().bytes, 0, "a run that was given up leaves nothing");
    let run = write(&large, true).expect("was finished");
    let before = (large.bytes_read(), large.counts());
    for place in model.keys() {
        let (key, sequence) = place;
        assert_eq!(get(&run, key, sequence.0).expect("reads"), expected(&model, key, sequence.0));
    }
    assert_eq!((large.bytes_read(), before.0), (0, 0), "nothing is read");
    assert_eq!(large.counts().data.misses, before.1.data.misses);
    drop(run);
    disk.root().remove(&file_name(NUMBER)).expect("there");
    // A small cache takes what is read often, and evicts nothing for it.
    let small = BlockCache::new(512 << 10);
    let other = PageId { run: RunNumber(99), page: 1 };
    let kept = small.insert(other, PageKind::Data, &[7; 4096]);
    let run = write(&small, true).expect("was finished");
    let counts = small.counts();
    assert!(counts.bytes > 256 << 10 && counts.over_bytes_most == 0, "{counts:?}");
    assert_eq!(counts.data.evictions, 0, "{counts:?}");
    drop(kept);
    assert!(small.find(other, PageKind::Data).is_some());
    read_some(&run, &model, 24, 200);
}
