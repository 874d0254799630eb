//! Figure 1: interference with one thread that loads 256 bytes.

use entresol_measure::report::svg::{Axis, Line, Scale, lines};
use entresol_media::model::memory::{AEP2, MemoryOp, Parameters};

use super::core::{Accesses, Beside, Measured, Scene, run};
use crate::{Check, Outcome, Settings};

const ACCESSES: u64 = 120_000;
const VICTIM: Accesses = Accesses { op: MemoryOp::Load, bytes: 256 };
/// Rates in GB/s of the reads and of the writes beside the victim.
const READS: [f64; 9] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
const WRITES: [f64; 9] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0];

/// Measures the victim beside a stream of `gb_s`.
fn beside(op: MemoryOp, bytes: u64, gb_s: f64, seed: u64) -> Measured {
    beside_on(&AEP2, op, bytes, gb_s, seed)
}

fn beside_on(device: &Parameters, op: MemoryOp, bytes: u64, gb_s: f64, seed: u64) -> Measured {
    let stream = Beside { accesses: Accesses { op, bytes }, bytes_s: gb_s * 1e9 };
    let beside = (gb_s > 0.0).then_some(stream);
    run(device, &Scene { beside, ..Scene::alone(VICTIM, ACCESSES) }, seed)
}

fn p99_us(measured: &Measured) -> f64 {
    measured.latency.percentile_us(99.0)
}

fn drawing(title: &str, x: &str, y: &str, rows: Vec<Line>) -> String {
    let axis =
        |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear, ticks: Vec::new() };
    lines(title, &axis(x), &axis(y), &rows)
}

fn line(label: &str, points: impl Iterator<Item = (f64, f64)>) -> Line {
    Line { label: label.to_owned(), points: points.collect() }
}

/// Draws the victim's figures over the load beside it, one line for reads and one for writes.
fn both(
    title: &str,
    unit: &str,
    [reads, writes]: [&[(f64, Measured)]; 2],
    of: fn(&Measured) -> f64,
) -> String {
    let points = |row: &[(f64, Measured)]| -> Vec<(f64, f64)> {
        row.iter().map(|(load, measured)| (*load, of(measured))).collect()
    };
    let rows = vec![
        line("beside reads", points(reads).into_iter()),
        line("beside writes", points(writes).into_iter()),
    ];
    drawing(title, "GB/s beside it", unit, rows)
}

pub(super) fn fig1a(settings: &Settings) -> Outcome {
    let row = |op, loads: &[f64]| -> Vec<(f64, Measured)> {
        loads.iter().map(|&load| (load, beside(op, 256, load, settings.seed))).collect()
    };
    let (reads, writes) = (row(MemoryOp::Load, &READS), row(MemoryOp::NtStore, &WRITES));
    let at = |row: &[(f64, Measured)], load: f64, of: fn(&Measured) -> f64| {
        row.iter().find(|(at, _)| *at == load).map_or(f64::NAN, |(_, measured)| of(measured))
    };
    let rate = |measured: &Measured| measured.gb_s;
    let alone = at(&reads, 0.0, rate);
    let worse = [1.0, 2.0].iter().all(|&load| {
        at(&writes, load, rate) < at(&reads, load, rate)
            && at(&writes, load, p99_us) > at(&reads, load, p99_us)
    });
    let pairs = |of: fn(&Measured) -> f64| {
        let pair = |load| format!("{:.2}:{:.2}", at(&writes, load, of), at(&reads, load, of));
        format!("{} {}", pair(1.0), pair(2.0))
    };
    let checks = vec![
        Check::about(
            "victim's rate, 1 GB/s of writes / 8 GB/s of reads",
            "",
            1.0,
            at(&writes, 1.0, rate) / at(&reads, 8.0, rate),
            15,
        ),
        Check::about(
            "victim's p99, 1 GB/s of writes / 8 GB/s of reads",
            "",
            1.0,
            at(&writes, 1.0, p99_us) / at(&reads, 8.0, p99_us),
            15,
        ),
        Check::about(
            "what the victim loses, 1 GB/s of writes / 8 GB/s of reads",
            "",
            1.0,
            (alone - at(&writes, 1.0, rate)) / (alone - at(&reads, 8.0, rate)),
            25,
        ),
        Check::shape(
            "at equal bandwidth writes hurt more, rate and p99",
            "a writer interferes more than a reader of the same bandwidth",
            format!("GB/s {}; us {}", pairs(rate), pairs(p99_us)),
            worse,
        ),
        Check::report("victim alone", "GB/s", None, alone, "no number in the text"),
    ];
    Outcome {
        scenario: vec![
            "One thread of random 256 B loads, three under way; beside it random accesses of 256 B \
             as a Poisson process (chosen), writes past the caches."
                .to_owned(),
        ],
        checks,
        drawings: vec![
            both("Rate of a thread of 256 B loads (model)", "GB/s", [&reads, &writes], rate),
            both("Its 99th percentile (model)", "us", [&reads, &writes], p99_us),
        ],
    }
}

pub(super) fn fig1b(settings: &Settings) -> Outcome {
    let sizes: Vec<u64> = (64..=512).step_by(64).collect();
    let row: Vec<(u64, f64)> = sizes
        .iter()
        .map(|&bytes| (bytes, beside(MemoryOp::NtStore, bytes, 1.0, settings.seed).gb_s))
        .collect();
    let at = |bytes: u64| {
        row.iter().find(|(size, _)| *size == bytes).map_or(f64::NAN, |(_, gb_s)| *gb_s)
    };
    let odd = sizes.iter().filter(|bytes| !bytes.is_multiple_of(256));
    let worse = odd.clone().all(|&bytes| at(bytes) < at(bytes.next_multiple_of(256)));
    let all = row.iter().map(|(bytes, gb_s)| format!("{bytes}:{gb_s:.2}")).collect::<Vec<_>>();
    let even = at(512) / at(256);
    let checks = vec![
        Check::shape(
            "victim beside stores of 64 B < 128 B < 256 B",
            "smaller accesses interfere more",
            format!("{:.3} {:.3} {:.3} GB/s", at(64), at(128), at(256)),
            at(64) < at(128) && at(128) < at(256),
        ),
        Check::shape(
            "sizes that are no multiple of 256 hurt more than the next multiple",
            "the medium's unit is 256 B",
            all.join(" "),
            worse,
        ),
        Check::about("512 B over 256 B: multiples of 256 are alike", "", 1.0, even, 5),
    ];
    let points = row.iter().map(|(bytes, gb_s)| (*bytes as f64, *gb_s));
    let rows = vec![line("beside 1 GB/s of stores", points)];
    Outcome {
        scenario: vec![
            "The thread of part a beside 1 GB/s of random stores past the caches, of 64 to 512 B; \
             sizes that are no multiple of 256 lie anywhere on the grid of lines (chosen)."
                .to_owned(),
        ],
        checks,
        drawings: vec![drawing(
            "Rate of a thread of 256 B loads (model)",
            "bytes of each store beside it",
            "GB/s",
            rows,
        )],
    }
}

/// Returns what 1 GB/s of writes costs the victim over what 8 GB/s of reads cost it, if reads keep
/// this share of the medium's time beside writes.
#[cfg(test)]
pub(super) fn cost_of_writes_over_reads(read_share_milli: u64, seed: u64) -> f64 {
    use entresol_media::model::memory::Module;

    let device = Parameters { module: Module { read_share_milli, ..AEP2.module }, ..AEP2 };
    let gb_s = |op, load| beside_on(&device, op, 256, load, seed).gb_s;
    let alone = gb_s(MemoryOp::Load, 0.0);
    (alone - gb_s(MemoryOp::NtStore, 1.0)) / (alone - gb_s(MemoryOp::Load, 8.0))
}
