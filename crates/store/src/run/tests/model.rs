//! Property tests: entries of any kind, in blocks of any size, are found as in an ordered map.

use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn keys() -> impl Strategy<Value = Vec<u8>> {
    let few = prop::sample::select(vec![0_u8, 1, b'a', b'b', 0xff]);
    prop_oneof![
        6 => vec(few.clone(), 0..6),
        3 => vec(few.clone(), 6..20),
        2 => (vec(few.clone(), 0..3), 100..6000_usize, vec(few, 0..3)).prop_map(
            |(front, middle, back)| [front, vec![b'x'; middle], back].concat()
        ),
        1 => (0..2_u8).prop_map(|last| [vec![b'x'; KEY_BYTES_MAX - 1], vec![last]].concat()),
    ]
}

fn kept() -> impl Strategy<Value = Kept> {
    let place = (0..5_u64, any::<u64>(), any::<u32>());
    prop_oneof![
        6 => vec(any::<u8>(), 0..100).prop_map(Kept::Inline),
        2 => (1000..9000_usize, any::<u8>()).prop_map(|(len, with)| Kept::Inline(vec![with; len])),
        2 => place.prop_map(|(segment, offset, bytes)| {
            Kept::Apart(RecordPlace { segment: SegmentNumber(segment), offset, bytes })
        }),
        2 => Just(Kept::Gone),
    ]
}

fn models() -> impl Strategy<Value = Model> {
    let sequence = prop_oneof![0..20_u64, any::<u64>().prop_map(|sequence| sequence >> 8)];
    let version = (sequence, prop_oneof![Just(0), any::<u32>()], kept());
    vec((keys(), vec(version, 1..5)), 0..120).prop_map(|keys| {
        let mut model = Model::new();
        for (key, versions) in keys {
            for (sequence, expiry, kept) in versions {
                model.insert((key.clone(), Reverse(sequence)), (expiry, kept));
            }
        }
        model
    })
}

/// Moves of a cursor.
#[derive(Debug, Clone)]
enum Move {
    AtOrAfter(Vec<u8>, u64),
    Before(Vec<u8>, u64),
    First,
    Last,
    Next(usize),
    Prev(usize),
}

fn moves() -> impl Strategy<Value = Move> {
    let sequence = || prop_oneof![0..21_u64, any::<u64>().prop_map(|some| some >> 8)];
    prop_oneof![
        3 => (keys(), sequence()).prop_map(|(key, sequence)| Move::AtOrAfter(key, sequence)),
        3 => (keys(), sequence()).prop_map(|(key, sequence)| Move::Before(key, sequence)),
        1 => Just(Move::First),
        1 => Just(Move::Last),
        4 => (1..30_usize).prop_map(Move::Next),
        4 => (1..30_usize).prop_map(Move::Prev),
    ]
}

/// Returns the neighbour of a position in the model.
fn neighbour(model: &Model, at: Option<&Place>, is_next: bool) -> Option<Place> {
    let at = at?;
    let found = if is_next {
        model.range((Bound::Excluded(at), Bound::Unbounded)).next()
    } else {
        model.range(..at).next_back()
    };
    found.map(|(place, _)| place.clone())
}

fn check_moves(run: &Arc<Run>, model: &Model, moves: &[Move]) -> Result<(), StoreError> {
    let mut cursor = run.cursor();
    let mut at: Option<Place> = None;
    for step in moves {
        let times = if let Move::Next(times) | Move::Prev(times) = step { *times } else { 1 };
        for _ in 0..times {
            let (is_there, should) = match step {
                Move::AtOrAfter(key, most) => {
                    let next = model.range((key.clone(), Reverse(*most))..).next();
                    (
                        cursor.seek_first_at_or_after(key, Sequence(*most))?,
                        next.map(|(at, _)| at.clone()),
                    )
                }
                Move::Before(key, most) => {
                    let prev = model.range(..(key.clone(), Reverse(*most))).next_back();
                    (cursor.seek_last_before(key, Sequence(*most))?, prev.map(|(at, _)| at.clone()))
                }
                Move::First => (cursor.seek_first()?, model.keys().next().cloned()),
                Move::Last => (cursor.seek_last()?, model.keys().next_back().cloned()),
                Move::Next(_) => (cursor.next()?, neighbour(model, at.as_ref(), true)),
                Move::Prev(_) => (cursor.prev()?, neighbour(model, at.as_ref(), false)),
            };
            assert_eq!(is_there, should.is_some(), "{step:?} from {at:?}");
            let expected = should.as_ref().and_then(|place| model.get_key_value(place));
            assert_eq!(
                cursor.entry().map(|entry| found(&entry)),
                expected.map(|(place, value)| (place.clone(), value.clone())),
                "{step:?} from {at:?}"
            );
            at = should;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_run_is_an_ordered_map(
        model in models(),
        moves in vec(moves(), 1..60),
        others in vec((keys(), 0..21_u64), 0..40),
        block_pages in 1..=4_usize,
        bits in prop::sample::select(vec![0_u32, 1, 10, 20]),
        write_pages in prop::sample::select(vec![1_usize, 3, 64]),
        cache in prop::sample::select(vec![0_u64, 4 << 20]),
    ) {
        let root = disk().root();
        let options = RunOptions {
            block_bytes: block_pages * 4096,
            filter_bits_per_key: bits,
            filter_seed: 99,
            write_bytes: write_pages * 4096,
            sequence_base: Sequence(0),
        };
        let written = write(&root, &model, options).expect("writes");
        let run = Run::open(&root, NUMBER, &BlockCache::new(cache)).expect("whole");
        prop_assert_eq!(run.summary(), &written);
        prop_assert_eq!(&all_of(&run).expect("reads"), &model);
        for (key, sequence) in model.keys() {
            for most in [sequence.0, sequence.0.saturating_sub(1), sequence.0.saturating_add(1)] {
                prop_assert_eq!(get(&run, key, most).expect("reads"), expected(&model, key, most));
            }
        }
        for (key, most) in &others {
            prop_assert_eq!(get(&run, key, *most).expect("reads"), expected(&model, key, *most));
        }
        check_moves(&run, &model, &moves).expect("reads");
        run.verify(&mut |_| {}).expect("is what it says");
    }
}

#[test]
fn an_entry_takes_whatever_a_block_has_left() {
    // The lengths are around those at which the entry, its restart and the checksum fill a page to
    // the byte.
    for value_bytes in 3900..4100 {
        let root = disk().root();
        let key = |number: u8| (vec![number], Reverse(1));
        let value = (0, Kept::Inline(vec![7; value_bytes]));
        let model: Model = (0..3).map(|number| (key(number), value.clone())).collect();
        let _ = write(&root, &model, RunOptions::default()).expect("writes");
        let run = Run::open(&root, NUMBER, &pages()).expect("whole");
        assert_eq!(all_of(&run).expect("reads"), model, "{value_bytes}");
        run.verify(&mut |_| {}).expect("is what it says");
    }
}
