//! Loops over items: gets of random values, and a scan with aggregation.

use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_base::{Clock, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::process::on_threads;
use fastrand::Rng;

use super::items::{COLUMNS, Items, Table};

/// Groups by which a scan sums.
const GROUPS: usize = 16;
/// Gets between two looks at the wish to end.
const AT_ONCE: u64 = 64;

/// Results of a loop of gets.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) per_second: f64,
    pub(super) times: Histogram,
}

/// Gets random items by several threads, after half as long of the same that is not counted. Each
/// thread counts one get at least, however long that takes.
pub(super) fn gets(
    table: &dyn Table,
    items: Items,
    time: Duration,
    seeds: &[u64],
    stop: &Stop,
) -> Result<Got, BenchError> {
    let clock = SystemClock::new();
    let from = clock.now().after(time / 2);
    let end = from.after(time);
    let one = |seed: &u64| {
        let (mut hand, mut out) = (table.hand(), Vec::new());
        let mut rng = Rng::with_seed(*seed);
        let mut times = Histogram::new();
        let mut now = clock.now();
        for number in 0_u64.. {
            let is_over = now >= end && times.count() > 0;
            if is_over || number.is_multiple_of(AT_ONCE) && stop.is_due() {
                break;
            }
            hand.get(rng.u64(0..items.count), &mut out)?;
            let done = clock.now();
            if now >= from {
                times.record(done.since(now));
            }
            now = done;
        }
        let seconds = now.since(from).as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(Got { per_second: times.count() as f64 / seconds, times })
    };
    let mut all = Got { per_second: 0.0, times: Histogram::new() };
    let threads: Result<Vec<Got>, BenchError> = on_threads(seeds, one).into_iter().collect();
    for Got { per_second, times } in threads? {
        all.per_second += per_second;
        all.times.merge(&times);
    }
    Ok(all)
}

/// Sums of the second column by the first, and the bytes that were read for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    of: [u64; GROUPS],
    pub(super) bytes: usize,
}

/// Sums piece by piece, in order from a piece on, once or until the time is over.
pub(super) fn sum(
    table: &dyn Table,
    items: Items,
    first: u64,
    time: Duration,
) -> Result<Sums, BenchError> {
    let clock = SystemClock::new();
    let begun = clock.now();
    let mut hand = table.hand();
    let (mut keys, mut amounts) = (Vec::new(), Vec::new());
    let mut sums = Sums { of: [0; GROUPS], bytes: 0 };
    let rows = items.count / COLUMNS;
    for piece in (first..rows).chain(0..first) {
        hand.get(piece, &mut keys)?;
        hand.get(rows + piece, &mut amounts)?;
        for (key, amount) in words(&keys).zip(words(&amounts)) {
            let sum = &mut sums.of[key as usize % GROUPS];
            *sum = sum.wrapping_add(amount);
        }
        sums.bytes += keys.len() + amounts.len();
        if clock.now().since(begun) > time {
            break;
        }
    }
    Ok(sums)
}

/// Scans from a random piece on and returns the bytes a second.
pub(super) fn scan(
    table: &dyn Table,
    items: Items,
    time: Duration,
    seed: u64,
) -> Result<f64, BenchError> {
    let clock = SystemClock::new();
    let first = Rng::with_seed(seed).u64(0..items.count / COLUMNS);
    let begun = clock.now();
    let sums = std::hint::black_box(sum(table, items, first, time)?);
    Ok(sums.bytes as f64 / clock.now().since(begun).as_secs_f64())
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}
