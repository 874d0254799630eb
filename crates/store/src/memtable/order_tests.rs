//! Tests of the order of a memtable: walks while records are sorted, and what flushes get.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use entresol_base::rng::Rng;
use entresol_index::{Direction, Flow};
use entresol_media::LocalDirectory;

use super::{Generation, Sorted};
use crate::segment::record::{Draft, Kind};
use crate::segment::{FIRST_RECORD, SEAL_BYTES, Segment};
use crate::types::{Expiry, KvsId, SegmentNumber, Sequence};

const FIRST: Sequence = Sequence(10);
const SEGMENT_BYTES: u64 = 1 << 20;

/// Version in the order of a memtable: `Kvs`, key, and number with its bits inverted.
type Version = (KvsId, Vec<u8>, u64);

/// Generation that is written to without a log.
struct Written {
    scratch: tempfile::TempDir,
    generation: Generation,
    segment: Option<(Arc<Segment>, u32)>,
    used: u64,
    next: Sequence,
    /// Words of the versions.
    model: BTreeMap<Version, u64>,
}

impl Written {
    fn new() -> Written {
        Written {
            scratch: tempfile::tempdir().expect("a directory"),
            generation: Generation::new(1 << 20, FIRST),
            segment: None,
            used: 0,
            next: FIRST,
            model: BTreeMap::new(),
        }
    }

    fn last(&self) -> Sequence {
        Sequence(self.next.0 - 1)
    }

    fn segment_for(&mut self, bytes: u64) -> (Arc<Segment>, u32) {
        if let Some((segment, place)) = &self.segment {
            if self.used + bytes + SEAL_BYTES <= SEGMENT_BYTES {
                return (segment.clone(), *place);
            }
            segment.seal(self.used, self.next).expect("room");
        }
        let number = SegmentNumber(self.generation.segments().iter().count() as u64 + 1);
        let directory = LocalDirectory::open(self.scratch.path()).expect("a directory");
        let segment = Segment::create(&directory, 7, number, SEGMENT_BYTES, None);
        let segment = Arc::new(segment.expect("room"));
        let place = self.generation.add_segment(segment.clone()).expect("few");
        self.used = FIRST_RECORD;
        self.segment.insert((segment, place)).clone()
    }

    fn write(&mut self, draft: &Draft<'_>) {
        let (segment, place) = self.segment_for(draft.bytes());
        let (offset, sequence, mut bytes) = (self.used, self.next, Vec::new());
        draft.encode(segment.address(offset), sequence, false, &mut bytes);
        segment.write(offset, &bytes).expect("room");
        let hash = self.generation.prepare(draft);
        self.generation.enter((draft, hash), sequence, place, offset).expect("room");
        self.used += bytes.len() as u64;
        self.next = Sequence(sequence.0 + 1);
        if draft.kind != Kind::RangeDelete {
            let version = (draft.kvs, draft.key.to_vec(), !sequence.0);
            self.model.insert(version, u64::from(place) << 32 | offset);
        }
        self.generation.written(sequence).expect("whole");
    }

    fn write_any(&mut self, rng: &mut Rng, key: &[u8]) {
        let kvs = KvsId(rng.below(3) as u32);
        match rng.below(20) {
            0 => self.write(&Draft::gone(kvs, Kind::RangeDelete, key)),
            1..4 => self.write(&Draft::gone(kvs, Kind::Gone, key)),
            _ => self.write(&Draft::put(kvs, key, b"value", Expiry::NEVER)),
        }
    }

    /// Compares a walk of at most `most` records with the model.
    fn check_walk(&self, rng: &mut Rng, bound: Bound<(&[u8], Sequence)>, most: usize) {
        let (kvs, direction) = (
            KvsId(rng.below(3) as u32),
            match rng.one_in(2) {
                true => Direction::Backward,
                false => Direction::Forward,
            },
        );
        let mut found = Vec::new();
        let mut visit = |word| {
            found.push(word);
            if found.len() == most { Flow::Stop } else { Flow::On }
        };
        self.generation.words(kvs, self.last(), bound, direction, &mut visit).expect("whole");
        let bound = bound.map(|(key, sequence)| (kvs, key.to_vec(), !sequence.0));
        let ends = (
            Bound::Included((kvs, Vec::new(), 0)),
            Bound::Excluded((KvsId(kvs.0 + 1), Vec::new(), 0)),
        );
        let expected: Vec<u64> = match (direction, bound) {
            (Direction::Forward, Bound::Unbounded) => self.words(ends, most, false),
            (Direction::Forward, bound) => self.words((bound, ends.1), most, false),
            (Direction::Backward, Bound::Unbounded) => self.words(ends, most, true),
            (Direction::Backward, bound) => self.words((ends.0, bound), most, true),
        };
        assert_eq!(found, expected, "{direction:?} in {kvs:?}");
    }

    fn words(
        &self,
        range: (Bound<Version>, Bound<Version>),
        most: usize,
        is_backward: bool,
    ) -> Vec<u64> {
        let range = self.model.range(range).map(|(_, word)| *word);
        if is_backward { range.rev().take(most).collect() } else { range.take(most).collect() }
    }

    /// Compares what a flush gets with the model.
    fn check_flush(&self) {
        let in_order = self.generation.in_order(self.last(), &|| ()).expect("whole");
        for kvs in 0..4 {
            let mut records = in_order.records(KvsId(kvs)).expect("whole");
            let (mut found, mut keys) = (Vec::new(), Vec::new());
            while let Some(record) = records.next().expect("whole") {
                found.push(record.word);
                keys.push((record.key.to_vec(), record.header.sequence));
            }
            let of_kvs = || self.model.iter().filter(|((of, ..), _)| of.0 == kvs);
            let expected: Vec<u64> = of_kvs().map(|(_, word)| *word).collect();
            assert!(found == expected, "{} words instead of {}", found.len(), expected.len());
            let versions = of_kvs().map(|((_, key, number), _)| (key.clone(), Sequence(!number)));
            assert!(keys == versions.collect::<Vec<_>>(), "keys that are not those of the words");
        }
    }

    fn sort_all(&self) {
        while self.generation.sort((self.last(), true), true, &|| true).expect("whole")
            == Sorted::Some
        {}
    }
}

/// Draws a key of one of several kinds, among them keys that begin with others, whose beginnings
/// are long and equal, and that differ in zeros at their ends.
fn key(rng: &mut Rng, kind: u64) -> Vec<u8> {
    let few = |rng: &mut Rng, most: u64| -> Vec<u8> {
        (0..1 + rng.below(most)).map(|_| [0, 1, 7, 255][rng.below(4) as usize]).collect()
    };
    match kind {
        0 => few(rng, 12),
        1 => [b"a long prefix".to_vec(), few(rng, 14)].concat(),
        2 => rng.next_u64().to_be_bytes().to_vec(),
        3 => format!("key-{:012}", rng.below(3000)).into_bytes(),
        _ => vec![0; 1 + rng.below(20) as usize],
    }
}

#[test]
fn walks_at_any_moment_are_those_of_a_model() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut written = Written::new();
        let walks = [0, 30, 300, 3000][rng.below(4) as usize];
        let sorts = [3, 30, 300][rng.below(3) as usize];
        let kinds: Vec<u64> = (0..1 + rng.below(3)).map(|_| rng.below(5)).collect();
        let begin = rng.below(6000);
        for number in 0..6000 {
            let kind = kinds[rng.below(kinds.len() as u64) as usize];
            let drawn = key(&mut rng, kind);
            written.write_any(&mut rng, &drawn);
            if rng.one_in(sorts) {
                let _ = written
                    .generation
                    .sort((written.last(), rng.one_in(2)), rng.one_in(2), &|| true)
                    .expect("whole");
            }
            if walks > 0 && number > begin && rng.one_in(walks) || number == 5999 {
                let from = key(&mut rng, kind);
                let sequence = match rng.below(3) {
                    0 => Sequence(0),
                    1 => Sequence::MAX,
                    _ => Sequence(rng.below(written.next.0 + 3)),
                };
                let bound = match rng.below(5) {
                    0 => Bound::Unbounded,
                    1 | 2 => Bound::Included((from.as_slice(), sequence)),
                    _ => Bound::Excluded((from.as_slice(), sequence)),
                };
                let most = [1, 3, 50, usize::MAX][rng.below(4) as usize];
                written.check_walk(&mut rng, bound, most);
            }
        }
        written.check_flush();
    }
}

/// Chunks of the background thread are of any sizes, and some are merged.
#[test]
fn a_flush_of_chunks_is_that_of_unsorted_records() {
    for (seed, records) in [(1, 0), (2, 5), (3, 3000), (4, 70_000), (5, 150_000)] {
        let mut rng = Rng::new(seed);
        let mut written = Written::new();
        let is_sorted = !rng.one_in(3);
        for _ in 0..records {
            let kind = rng.below(5);
            let drawn = key(&mut rng, kind);
            written.write_any(&mut rng, &drawn);
            if is_sorted && rng.one_in(1000) {
                let _ = written
                    .generation
                    .sort((written.last(), false), true, &|| true)
                    .expect("whole");
            }
        }
        written.check_flush();
        written.sort_all();
        written.check_flush();
        let mut first = Rng::new(seed + 100);
        written.check_walk(&mut first, Bound::Unbounded, usize::MAX);
        written.check_flush();
        written.sort_all();
        written.check_walk(&mut rng, Bound::Unbounded, usize::MAX);
        written.check_flush();
    }
}

/// Groups of keys with beginnings of their own, as those of several tables are, have the same eight
/// bytes behind what all of them have in common.
#[test]
fn keys_of_several_long_beginnings_are_read_a_few_times_each() {
    let mut rng = Rng::new(1);
    let mut written = Written::new();
    for _ in 0..12_000 {
        let (group, number) = (["users-of-the-shop", "orders-of-the-shop"], rng.below(9000));
        let key = format!("{}/{number:08}", group[rng.below(2) as usize]);
        written.write(&Draft::put(KvsId(0), key.as_bytes(), b"value", Expiry::NEVER));
    }
    let reads = Cell::new(0);
    // It is told of every fourth key that is read.
    let give_way = || reads.set(reads.get() + 4);
    let _ = written.generation.in_order(written.last(), &give_way).expect("whole");
    assert!(reads.get() < 6 * 12_000, "{} keys read", reads.get());
    written.check_flush();
}
