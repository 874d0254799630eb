//! The drives' models reproduce the figures of their data sheets, and always the same ones.

use super::*;

const DRIVES: [ModelName; 6] = [
    ModelName::OptaneSsd,
    ModelName::NandP3700,
    ModelName::NandP3600,
    ModelName::NandS3700,
    ModelName::Nvme9300,
    ModelName::Qlc5210,
];

/// A small random generator of its own: these tests must not change when another one's does.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Load {
    depth: usize,
    bytes: u32,
    reads_percent: u64,
    sequential: bool,
}

/// Returns the operations in a second with this many requests always in flight.
fn operations_s(name: ModelName, load: &Load, count: u64) -> f64 {
    let mut drive = BlockModel::of(name).expect("a drive");
    let mut numbers = Numbers(1);
    let mut under_way: std::collections::BinaryHeap<_> =
        (0..load.depth).map(|slot| std::cmp::Reverse((0u64, slot))).collect();
    let (mut half, mut last) = (0, 0);
    for number in 0..count {
        let std::cmp::Reverse((at, slot)) = under_way.pop().expect("one");
        let place = if load.sequential { number } else { numbers.below(1 << 27) };
        let access =
            if numbers.below(100) < load.reads_percent { Access::Read } else { Access::Write };
        let done = drive.submit(Picos(at), access, place * u64::from(load.bytes), load.bytes);
        assert!(done.0 > at);
        under_way.push(std::cmp::Reverse((done.0, slot)));
        // The first half fills the buffer.
        if number == count / 2 {
            half = at;
        }
        last = at;
    }
    (count - count / 2) as f64 / ((last - half) as f64 / 1e12)
}

/// The figures promised by the vendors' sheets come out of the physical numbers.
#[test]
fn the_sheets_figures_come_out() {
    let check = |name: ModelName, what: &str, load: Load, expected: f64| {
        let count = if load.sequential { 60_000 } else { 300_000 };
        let ours = operations_s(name, &load, count);
        let ratio = ours / expected;
        assert!((0.95..1.05).contains(&ratio), "{name} {what}: {ours:.0} of {expected:.0}");
    };
    let random =
        |depth, reads_percent| Load { depth, bytes: 4096, reads_percent, sequential: false };
    let large =
        |reads_percent| Load { depth: 32, bytes: 128 << 10, reads_percent, sequential: true };
    let mb = |mb_s: f64| mb_s * 1e6 / f64::from(128 << 10);
    for (name, reads, writes, read_mb, written_mb) in [
        (ModelName::OptaneSsd, 567_000.0, 500_000.0, 2400.0, 2000.0),
        (ModelName::NandP3700, 460_000.0, 175_000.0, 2800.0, 2000.0),
        (ModelName::NandP3600, 450_000.0, 56_000.0, 2600.0, 1700.0),
        (ModelName::NandS3700, 75_000.0, 36_000.0, 500.0, 460.0),
        (ModelName::Nvme9300, 850_000.0, 145_000.0, 3500.0, 3500.0),
        (ModelName::Qlc5210, 90_000.0, 4_500.0, 540.0, 360.0),
    ] {
        check(name, "random reads", random(256, 100), reads);
        check(name, "random writes", random(64, 0), writes);
        check(name, "sequential reads", large(100), mb(read_mb));
        check(name, "sequential writes", large(0), mb(written_mb));
    }
}

#[test]
fn the_same_requests_complete_at_the_same_picosecond() {
    for name in DRIVES {
        let run = || {
            let mut drive = BlockModel::of(name).expect("a drive");
            let mut numbers = Numbers(7);
            let (mut at, mut hash) = (0, 0xcbf2_9ce4_8422_2325_u64);
            for _ in 0..20_000 {
                at += numbers.below(20_000_000);
                let access = if numbers.below(10) < 7 { Access::Read } else { Access::Write };
                let bytes = 512 * (1 + numbers.below(64)) as u32;
                let done = drive.submit(Picos(at), access, numbers.below(1 << 40), bytes);
                hash = (hash ^ done.0).wrapping_mul(0x0100_0000_01b3);
            }
            hash
        };
        let first = run();
        assert!((0..9).all(|_| run() == first), "{name}");
    }
}

#[test]
fn an_idle_read_takes_the_sum_of_its_stages() {
    for (name, from_us, to_us) in [
        (ModelName::OptaneSsd, 7.0, 8.0),
        (ModelName::NandP3700, 80.0, 110.0),
        (ModelName::NandS3700, 100.0, 150.0),
        (ModelName::Nvme9300, 81.0, 91.0),
        (ModelName::Qlc5210, 140.0, 190.0),
    ] {
        let mut drive = BlockModel::of(name).expect("a drive");
        let us = drive.submit(Picos::ZERO, Access::Read, 8192, 4096).0 as f64 / 1e6;
        assert!((from_us..to_us).contains(&us), "{name}: {us} us");
        let again = drive.submit(Picos::from_secs(1), Access::Read, 1 << 30, 4096);
        assert_eq!(again.since(Picos::from_secs(1)).0 as f64 / 1e6, us, "{name} is idle again");
    }
}

#[test]
fn a_nand_read_waits_for_a_program_and_an_optane_read_hardly() {
    for (name, least_us, most_us) in
        [(ModelName::NandP3700, 1_000.0, 12_000.0), (ModelName::OptaneSsd, 8.0, 30.0)]
    {
        let mut drive = BlockModel::of(name).expect("a drive");
        let mut numbers = Numbers(3);
        let mut worst = 0;
        for number in 0..50_000u64 {
            let at = Picos::from_micros(number * 20);
            drive.submit(at, Access::Write, numbers.below(1 << 27) * 4096, 4096);
            let done = drive.submit(at, Access::Read, numbers.below(1 << 27) * 4096, 4096);
            worst = worst.max(done.since(at).0);
        }
        let us = worst as f64 / 1e6;
        assert!((least_us..most_us).contains(&us), "{name}: the worst of 50,000 took {us} us");
    }
}

#[test]
fn a_write_is_done_when_it_is_buffered_until_the_buffer_is_full() {
    let mut drive = BlockModel::of(ModelName::NandP3700).expect("a drive");
    let mut numbers = Numbers(5);
    let mut took = Vec::new();
    // 400,000 writes a second are more than twice what it sustains.
    for number in 0..100_000u64 {
        let at = Picos(number * 2_500_000);
        took.push(drive.submit(at, Access::Write, numbers.below(1 << 27) * 4096, 4096).since(at).0);
    }
    assert!(took[..1000].iter().all(|ps| *ps < 25_000_000), "into the buffer");
    assert!(took[99_000..].iter().all(|ps| *ps > 50_000_000_000), "130 ms too much are in line");
}

#[test]
fn streams_are_not_relocated_and_random_writes_are() {
    for name in [ModelName::NandP3700, ModelName::Qlc5210] {
        let load = |sequential| Load { depth: 32, bytes: 65_536, reads_percent: 0, sequential };
        let stream = operations_s(name, &load(true), 60_000);
        let random = operations_s(name, &load(false), 60_000);
        assert!(stream > 2.0 * random, "{name}: {stream:.0} against {random:.0}");
    }
}
