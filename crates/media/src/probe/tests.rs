//! Probe loops touch the bytes they claim, once.
#![expect(clippy::disallowed_methods, reason = "tests put foreign files in the way")]

use std::collections::BTreeSet;

use super::*;

fn arena() -> Arena {
    let sizes = ArenaSizes { read_bytes: 32 << 20, write_bytes: 32 << 20 };
    Arena::anonymous(sizes, false).expect("memory")
}

fn task(touch: Touch, order: Order, block_bytes: usize) -> Task {
    Task { touch, order, block_bytes }
}

#[test]
fn a_permutation_has_each_number_once() {
    for count in (0..=17).map(|bits| 1_u64 << bits) {
        let places: BTreeSet<u64> = (0..count).map(|number| permuted(number, count)).collect();
        assert!(places.len() as u64 == count && places.last() == Some(&(count - 1)));
    }
    let steps = (1..1 << 16).filter(|&n| permuted(n, 1 << 16) == permuted(n - 1, 1 << 16) + 1);
    assert!(steps.count() < 20, "neighbours are no neighbours");
}

#[test]
fn every_chain_visits_every_block_once_though_all_share_their_bytes() {
    let arena = arena();
    for block in (6..=24).map(|bits| 1_usize << bits) {
        let blocks = (arena.sizes().read_bytes / block as u64) as u32;
        let task = task(Touch::ReadInTurn, Order::Random, block);
        let mut lane = Lane::new(&arena, task, 0);
        let first = lane.at();
        // Reading whole large blocks again and again would take its time: the chain is followed.
        let mut seen = vec![false; blocks as usize];
        for _ in 0..blocks {
            let at = lane.at();
            assert!(at.is_multiple_of(block as u64), "{block}: {at}");
            assert!(
                !std::mem::replace(&mut seen[at as usize / block], true),
                "{block}: {at} again"
            );
            if block <= 4096 {
                lane.run(1);
            } else {
                lane.at = arena.region.load_u64(at + link_offset(block), Ordering::Relaxed);
            }
        }
        assert!(lane.at() == first && seen.iter().all(|&seen| seen), "{block}");
    }
}

#[test]
fn a_lane_begins_where_it_is_told_and_small_blocks_use_the_chain_of_lines() {
    let arena = arena();
    let lines = task(Touch::ReadInTurn, Order::Random, 64);
    let mut walked = Lane::new(&arena, lines, 7);
    walked.run(1000);
    for block in [8, 16, 32, 64] {
        let small = task(Touch::ReadInTurn, Order::Random, block);
        assert_eq!(Lane::new(&arena, small, 1007).at(), walked.at());
    }
    let mut in_order = Lane::new(&arena, task(Touch::ReadInTurn, Order::Sequential, 16), 3);
    in_order.run(5);
    assert_eq!(in_order.at(), 8 * 16);
    in_order.run((32 << 20) / 16 - 8);
    assert_eq!(in_order.at(), 0, "begins anew at the end");
}

#[test]
fn writes_stay_in_their_part_and_fill_whole_blocks() {
    let arena = arena();
    let begin = arena.sizes().read_bytes;
    let before: Vec<u64> =
        (0..begin / 64).map(|line| arena.region.load_u64(line * 64, Ordering::Relaxed)).collect();
    for method in StoreMethod::available() {
        for fences in [Fences::EachBlock, Fences::EachUnit] {
            for block in [8, 16, 32, 64, 320, 4096] {
                arena.region.zero(begin, 1 << 20);
                let touch = Touch::Write(method, fences);
                Lane::new(&arena, task(touch, Order::Sequential, block), 0).run(3);
                let ones = (0..1 << 14)
                    .take_while(|&at| arena.region.load_u8(begin + at, Ordering::Relaxed) == 0xff);
                assert_eq!(ones.count(), 3 * block, "{method:?} {fences:?}");
                Lane::new(&arena, task(touch, Order::Random, block), 9).run(100);
            }
        }
    }
    let after = |line: usize| arena.region.load_u64(line as u64 * 64, Ordering::Relaxed);
    assert!(before.iter().enumerate().all(|(line, &word)| after(line) == word));
}

#[test]
fn random_positions_fit_and_lie_on_their_grid() {
    let check = |block: usize, grid: u64| {
        let range = 1 << 20..(1 << 20) + (64 << 10) + 192;
        let mut positions = Positions::new(range.clone(), Order::Random, block, 5);
        let mut seen = BTreeSet::new();
        for _ in 0..20_000 {
            let at = positions.next_offset();
            assert!(at >= range.start && at + block as u64 <= range.end, "{block} at {at}");
            assert!(at.is_multiple_of(grid), "{block} at {at}");
            seen.insert(at);
        }
        let places = ((64 << 10) + 192 - block as u64) / grid + 1;
        assert_eq!(seen.len() as u64, places, "all places of {block} come");
    };
    for (block, grid) in [(8, 64), (64, 64), (192, 64), (320, 64), (768, 256), (4096, 4096)] {
        check(block, grid);
    }
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("theirs");
    std::fs::write(&path, "precious bytes of somebody else's").expect("writes");
    let sizes = ArenaSizes { read_bytes: 0, write_bytes: 0 };
    let error = Arena::open(&path, sizes, PmemMode { assume_dax: true }).expect_err("refused");
    assert!(error.to_string().contains("theirs"), "{error}");
    assert_eq!(std::fs::read(&path).expect("reads"), b"precious bytes of somebody else's");
}
