//! Tests of runs on simulated disks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use entresol_base::rng::Rng;
use entresol_base::world::{World, WorldOptions};
use entresol_media::Directory;
use entresol_simulated::disk::{Disk, DiskOptions};

use super::*;
use crate::cache::block::BlockCache;
use crate::error::StoreError;
use crate::names;
use crate::options::PREFIXES_GONE_MAX;
use crate::types::{Entry, Expiry, RecordPlace, SegmentNumber, Value};

mod cached;
mod damage;
mod faults;
mod model;
mod scale;

const NUMBER: RunNumber = RunNumber(42);
const KVS: KvsId = KvsId(7);

/// A value that is independent of any run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Inline(Vec<u8>),
    Apart(RecordPlace),
    Gone,
}

impl Kept {
    fn of(value: &Value<'_>) -> Kept {
        match value {
            Value::Inline(bytes) => Kept::Inline(bytes.to_vec()),
            Value::Apart(place) => Kept::Apart(*place),
            Value::Gone => Kept::Gone,
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Kept::Inline(bytes) => Value::Inline(bytes),
            Kept::Apart(place) => Value::Apart(*place),
            Kept::Gone => Value::Gone,
        }
    }
}

/// A key and a sequence number, in the order of a run.
type Place = (Vec<u8>, Reverse<u64>);

/// A version of a key.
type Version = (Place, (u32, Kept));

/// Expected contents of a run.
type Model = BTreeMap<Place, (u32, Kept)>;

fn entry<'a>((key, sequence): &'a Place, (expiry, kept): &'a (u32, Kept)) -> Entry<'a> {
    let (sequence, expiry) = (Sequence(sequence.0), Expiry(*expiry));
    Entry { key, sequence, expiry, value: kept.value() }
}

/// Converts an entry for comparison with the model.
fn found(entry: &Entry<'_>) -> Version {
    let place = (entry.key.to_vec(), Reverse(entry.sequence.0));
    (place, (entry.expiry.0, Kept::of(&entry.value)))
}

fn disk() -> Disk {
    let world = World::new(WorldOptions::seeded(7));
    Disk::new(&world, DiskOptions::default()).expect("no model")
}

fn pages() -> Arc<BlockCache> {
    BlockCache::new(1 << 20)
}

fn write(
    directory: &Arc<dyn Directory>,
    model: &Model,
    options: RunOptions,
) -> Result<RunSummary, StoreError> {
    let mut writer = RunWriter::create(directory, NUMBER, KVS, options)?;
    for (place, value) in model {
        writer.push(&entry(place, value))?;
    }
    Ok(writer.finish(&pages())?.summary().clone())
}

/// Returns all entries of a run, from front to back.
fn all_of(run: &Arc<Run>) -> Result<Model, StoreError> {
    let mut cursor = run.cursor();
    let mut all = Model::new();
    let mut more = cursor.seek_first()?;
    while more {
        all.extend(cursor.entry().map(|entry| found(&entry)));
        more = cursor.next()?;
    }
    Ok(all)
}

fn get(run: &Run, key: &[u8], most: u64) -> Result<Option<Version>, StoreError> {
    Ok(run.get(key, Sequence(most))?.map(|found| {
        let place = (key.to_vec(), Reverse(found.sequence().0));
        (place, (found.expiry().0, Kept::of(&found.value())))
    }))
}

/// Returns the version that a lookup should find in a run with the model's entries.
fn expected(model: &Model, key: &[u8], most: u64) -> Option<Version> {
    let (place, value) = model.range((key.to_vec(), Reverse(most))..).next()?;
    (place.0 == key).then(|| (place.clone(), value.clone()))
}

/// Creates so many keys that resemble those of a program, with one or two versions each.
fn sample(keys: u64, seed: u64) -> Model {
    let mut rng = Rng::named(seed, "run");
    let mut model = Model::new();
    for number in 0..keys {
        let key = format!("user{:08}", number * 3).into_bytes();
        for version in 0..1 + rng.below(2) {
            let sequence = 1000 + number * 7 % 997 + 1000 * version;
            let kept = match rng.below(6) {
                0 => Kept::Gone,
                1 => Kept::Apart(RecordPlace {
                    segment: SegmentNumber(3 + rng.below(4)),
                    offset: rng.below(1 << 26),
                    bytes: 300 + rng.below(5000) as u32,
                }),
                _ => Kept::Inline(vec![number as u8; rng.below(120) as usize]),
            };
            let expiry = if rng.one_in(4) { 1_800_000_000 } else { 0 };
            model.insert((key.clone(), Reverse(sequence)), (expiry, kept));
        }
    }
    model
}

#[test]
fn what_a_run_says_of_itself_is_so() {
    let disk = disk();
    let root = disk.root();
    let model = sample(5000, 1);
    let options = RunOptions { sequence_base: Sequence(500), ..RunOptions::default() };
    let mut writer = RunWriter::create(&root, NUMBER, KVS, options).expect("makes");
    for (place, value) in &model {
        writer.push(&entry(place, value)).expect("writes");
    }
    for (prefix, sequence) in [("b", 900), ("a", 700), ("b", 5000), ("b", 900)] {
        writer.push_range_delete(prefix.as_bytes(), Sequence(sequence)).expect("few");
    }
    let is_as_written = |run: &Arc<Run>| {
        assert_eq!(all_of(run).expect("reads"), model);
        for (key, sequence) in model.keys() {
            let found = get(run, key, sequence.0).expect("reads");
            assert_eq!(found, expected(&model, key, sequence.0));
        }
    };
    let written = writer.finish(&pages()).expect("writes");
    is_as_written(&written);
    let (summary, prefixes) = (written.summary().clone(), written.range_deletes().to_vec());
    // While it is open, the written run keeps other opens of its file out.
    drop(written);
    let run = Run::open(&root, NUMBER, &pages()).expect("whole");
    is_as_written(&run);
    assert_eq!((run.summary(), run.range_deletes()), (&summary, &prefixes[..]));
    let values = || model.values().map(|(_, kept)| kept);
    let of = |wanted: fn(&Kept) -> bool| values().filter(|kept| wanted(kept)).count() as u64;
    assert_eq!(summary.entries, model.len() as u64);
    assert_eq!((summary.keys, summary.number, summary.kvs), (5000, NUMBER, KVS));
    assert_eq!(summary.gone, of(|kept| *kept == Kept::Gone));
    let expiring = model.values().filter(|(expiry, _)| *expiry != 0).count() as u64;
    assert_eq!(summary.expiring, expiring);
    assert_eq!((summary.sequence_least.0, summary.sequence_greatest.0), (700, 5000));
    assert_eq!(
        (&*summary.first_key, &*summary.last_key),
        (&b"user00000000"[..], &b"user00014997"[..])
    );
    assert_eq!(summary.file_bytes, disk.contents()["run-000000000000002a"].len() as u64);
    let mut live = BTreeMap::<u64, u64>::new();
    for kept in values() {
        if let Kept::Apart(place) = kept {
            *live.entry(place.segment.0).or_default() += u64::from(place.bytes);
        }
    }
    let live: Vec<SegmentBytes> = live.iter().map(SegmentBytes::of).collect();
    assert_eq!(summary.live, live);
    let gone: Vec<(&[u8], u64)> =
        run.range_deletes().iter().map(|gone| (&*gone.prefix, gone.sequence.0)).collect();
    assert_eq!(gone, [(&b"a"[..], 700), (b"b", 5000), (b"b", 900)]);
    run.verify(&mut |_| {}).expect("is what it says");
}

#[test]
fn a_run_takes_no_more_of_the_disk_than_it_has_written_and_is_about_to_write() {
    let disk = disk();
    let options = RunOptions::default();
    let piece = options.write_bytes as u64;
    let mut writer = RunWriter::create(&disk.root(), NUMBER, KVS, options).expect("makes");
    let value = [7; 1000];
    for number in 0..5000_u64 {
        let key = number.to_be_bytes();
        let version = Entry {
            key: &key,
            sequence: Sequence(1 + number),
            expiry: Expiry::NEVER,
            value: Value::Inline(&value),
        };
        writer.push(&version).expect("writes");
        let most = writer.bytes() + piece;
        assert!(disk.used_bytes() <= most, "{} bytes for {most}", disk.used_bytes());
    }
    assert!(writer.bytes() > 4 << 20);
}

#[test]
fn names_of_files_are_those_of_runs() {
    assert_eq!(names::of_run(NUMBER), "run-000000000000002a");
    assert_eq!(names::run_number("run-000000000000002a"), Some(NUMBER));
    for other in ["run-2a", "run-000000000000002A", "run-+00000000000002a", "log-1", "run-"] {
        assert_eq!(names::run_number(other), None, "{other}");
    }
}

#[test]
fn a_run_of_nothing_is_a_run() {
    let root = disk().root();
    let mut writer = RunWriter::create(&root, NUMBER, KVS, RunOptions::default()).expect("makes");
    writer.push_range_delete(b"all", Sequence(9)).expect("few");
    writer.finish(&pages()).expect("writes");
    let run = Run::open(&root, NUMBER, &pages()).expect("whole");
    assert_eq!((run.summary().entries, run.summary().sequence_least.0), (0, 9));
    assert!(get(&run, b"all", u64::MAX).expect("reads").is_none());
    let mut cursor = run.cursor();
    assert!(!cursor.seek_first().expect("reads") && !cursor.seek_last().expect("reads"));
    assert!(!cursor.next().expect("reads") && !cursor.prev().expect("reads"));
    run.verify(&mut |_| {}).expect("is what it says");
}

#[test]
fn mistakes_of_the_caller_are_refused() {
    let root = disk().root();
    let entry = |key: &'static [u8], sequence| Entry {
        key,
        sequence: Sequence(sequence),
        expiry: Expiry(0),
        value: Value::Gone,
    };
    let base = RunOptions { sequence_base: Sequence(5), ..RunOptions::default() };
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    let too_long = Entry { key: &long, ..entry(b"", 9) };
    let large = vec![0; INLINE_BYTES_MAX + 1];
    let too_large = Entry { value: Value::Inline(&large), ..entry(b"z", 9) };
    for wrong in [
        entry(b"a", 9),
        entry(b"kex", 9),
        entry(b"key", 9),
        entry(b"key", 7),
        entry(b"ke", 9),
        entry(b"z", 4),
        too_long,
        too_large,
    ] {
        let mut writer = RunWriter::create(&root, NUMBER, KVS, base.clone()).expect("makes");
        writer.push(&entry(b"key", 7)).expect("the first");
        let error = writer.push(&wrong).expect_err("refused");
        assert!(matches!(error, StoreError::Internal { .. }), "{error}");
        writer.push(&entry(b"later", 7)).expect_err("nothing goes after an error");
        writer.finish(&pages()).expect_err("nor is that a run");
        assert!(root.list().expect("lists").is_empty(), "what was not finished is removed");
    }
    for options in [
        RunOptions { block_bytes: 4000, ..base.clone() },
        RunOptions { block_bytes: 128 << 10, ..base.clone() },
        RunOptions { write_bytes: 0, ..base.clone() },
        RunOptions { filter_bits_per_key: 33, ..base.clone() },
    ] {
        RunWriter::create(&root, NUMBER, KVS, options).expect_err("cannot be");
    }
    assert!(root.list().expect("lists").is_empty());
    let _ = write(&root, &sample(3, 1), RunOptions::default()).expect("writes");
    RunWriter::create(&root, NUMBER, KVS, base).expect_err("there is one of this number");
    Run::open(&root, NUMBER, &pages()).expect("and it is as it was");
}

#[test]
fn more_prefixes_than_readers_can_hold_are_refused() {
    let root = disk().root();
    let mut writer = RunWriter::create(&root, NUMBER, KVS, RunOptions::default()).expect("makes");
    for number in 0..PREFIXES_GONE_MAX as u64 {
        writer.push_range_delete(&number.to_be_bytes(), Sequence(number)).expect("as many");
    }
    let error = writer.push_range_delete(b"one more", Sequence(1)).expect_err("too many");
    assert!(matches!(error, StoreError::TooManyPrefixes { .. }), "{error}");
    writer.finish(&pages()).expect("the others are kept");
    let run = Run::open(&root, NUMBER, &pages()).expect("whole");
    assert_eq!(run.range_deletes().len(), PREFIXES_GONE_MAX);
}
