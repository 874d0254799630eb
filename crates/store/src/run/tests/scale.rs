//! Tests of runs with several groups of keys and levels of index blocks.

use super::*;

const KEYS: u64 = GROUP_KEYS as u64 + 40_000;

fn key(number: u64) -> Vec<u8> {
    (number * 2).to_be_bytes().to_vec()
}

fn large(root: &Arc<dyn Directory>) -> RunSummary {
    let mut writer = RunWriter::create(root, NUMBER, KVS, RunOptions::default()).expect("makes");
    for number in 0..KEYS {
        let (key, value) = (key(number), number.to_le_bytes().repeat(5));
        let (sequence, expiry) = (Sequence(number % 4096), Expiry(0));
        let value = Value::Inline(&value);
        writer.push(&Entry { key: &key, sequence, expiry, value }).expect("writes");
    }
    writer.finish(&pages()).expect("writes").summary().clone()
}

#[test]
fn large_runs_hold_what_was_written_and_absent_keys_cost_no_reads() {
    let disk = disk();
    let root = disk.root();
    let summary = large(&root);
    let pages = BlockCache::new(32 << 20);
    let run = Run::open(&root, NUMBER, &pages).expect("whole");
    assert!(summary.file_bytes < KEYS * 62, "of 48 bytes each: {}", summary.file_bytes);
    run.verify(&mut |_| {}).expect("is what it says");
    for number in (0..KEYS).step_by(7) {
        let found = run.get(&key(number), Sequence::MAX).expect("reads").expect("is there");
        assert_eq!(found.value(), Value::Inline(&number.to_le_bytes().repeat(5)));
        assert_eq!(found.sequence(), Sequence(number % 4096));
    }
    let before = pages.counts();
    let absent = 200_000;
    for number in 0..absent {
        let key = (number * 2 + 1_u64).to_be_bytes();
        assert!(run.get(&key, Sequence::MAX).expect("reads").is_none());
    }
    let after = pages.counts();
    let looked_at =
        |counts: crate::cache::block::BlockCacheCounts| counts.data.hits + counts.data.misses;
    let wrong = (looked_at(after) - looked_at(before)) as f64 / absent as f64;
    assert!(wrong < 0.012, "{wrong} of absent keys were looked for in a block");
}

#[test]
fn long_ways_forth_and_back_meet_every_entry() {
    let disk = disk();
    let root = disk.root();
    let _ = large(&root);
    let pages = BlockCache::new(1 << 20);
    let run = Run::open(&root, NUMBER, &pages).expect("whole");
    let mut cursor = run.cursor();
    let mut more = cursor.seek_first().expect("reads");
    let calls = disk.calls();
    for number in 0..KEYS {
        assert!(more && cursor.entry().expect("is there").key == key(number), "{number}");
        more = cursor.next().expect("reads");
    }
    assert!(!more && cursor.entry().is_none());
    let calls = disk.calls() - calls;
    assert!(calls < 250, "{calls} reads of pieces");
    more = cursor.seek_last().expect("reads");
    for number in (0..KEYS).rev() {
        assert!(more && cursor.entry().expect("is there").key == key(number), "{number}");
        more = cursor.prev().expect("reads");
    }
    assert!(!more);
    let counts = pages.counts();
    assert!(counts.over_bytes_most == 0 && counts.bytes_most <= 1 << 20, "{counts:?}");
}

#[test]
fn many_versions_of_a_key_lie_in_many_blocks() {
    let disk = disk();
    let root = disk.root();
    let mut model = sample(50, 3);
    let (low, high) = (b"user00000004".to_vec(), b"user00000004x".to_vec());
    for sequence in 0..5000 {
        let value = || (0, Kept::Inline(sequence.to_string().into_bytes()));
        model.insert((low.clone(), Reverse(sequence * 3)), value());
        model.insert((high.clone(), Reverse(sequence)), value());
    }
    let _ = write(&root, &model, RunOptions::default()).expect("writes");
    let run = Run::open(&root, NUMBER, &pages()).expect("whole");
    assert_eq!(run.summary().keys, 52);
    for most in 0..15_100 {
        for key in [&low, &high] {
            assert_eq!(get(&run, key, most).expect("reads"), expected(&model, key, most), "{most}");
        }
    }
    assert_eq!(all_of(&run).expect("reads"), model);
    run.verify(&mut |_| {}).expect("is what it says");
}

#[test]
fn the_longest_keys_make_a_tree_of_few_levels() {
    let disk = disk();
    let root = disk.root();
    let mut model = Model::new();
    for number in 0..300_u64 {
        // They differ in the last bytes only, so that no shorter key separates them.
        let mut key = vec![b'k'; KEY_BYTES_MAX - 8];
        key.extend(number.to_be_bytes());
        model.insert((key, Reverse(number)), (0, Kept::Gone));
    }
    let _ = write(&root, &model, RunOptions::default()).expect("writes");
    let run = Run::open(&root, NUMBER, &pages()).expect("whole");
    assert!(run.footer.levels <= 5, "{} levels", run.footer.levels);
    assert!(all_of(&run).expect("reads") == model);
    for place in model.keys() {
        assert!(
            get(&run, &place.0, u64::MAX).expect("reads") == expected(&model, &place.0, u64::MAX)
        );
    }
    run.verify(&mut |_| {}).expect("is what it says");
}
