//! Figures 3, 4, 6 and 7: bandwidth over block size and threads.

use super::{
    AEP, DRAM, Group, Line, Outcome, Pattern, Point, SIZES, Settings, alone, grid, over_sizes,
    peak, scenario,
};
use crate::check::Check;
use crate::memory::run;
use crate::tolerance::Side;

/// Bandwidth of the paper's own NVMe drive, a P3700: GB/s of reads and of writes.
const P3700_GB_S: [f64; 2] = [0.87, 0.68];

/// Returns the best bandwidth of a block size over all thread counts.
fn best(points: &[Point], bytes: u64) -> f64 {
    peak(&points.iter().filter(|point| point.bytes == bytes).copied().collect::<Vec<_>>())
}

fn share(what: &str, side: Side, percent: f64, share: f64) -> Check {
    Check::limit(what, "%", side, percent, share * 100.0)
}

/// Checks «large blocks fall off»: the bandwidth of the largest size at its best thread count.
fn declines(points: &[Point]) -> Check {
    let largest = SIZES[SIZES.len() - 1];
    let left = best(points, largest) / peak(points);
    share("blocks of 4 MiB fall off, at any thread count: of the peak", Side::AtMost, 95.0, left)
}

/// Draws the bandwidths, with a line at the peak that the text prints.
fn drawings(title: &str, points: &[Point], peak: f64) -> Vec<String> {
    let ends = [SIZES[0], SIZES[SIZES.len() - 1]].map(|bytes| (bytes as f64, peak));
    let line = Line { label: format!("paper: peak, {peak} GB/s"), points: ends.to_vec() };
    vec![over_sizes(title, "GB/s", points, |point| point.gb_s, &[(7, line)])]
}

fn dram_peak(seed: u64, group: fn(u32, u64, Pattern) -> Group) -> f64 {
    alone(&DRAM, group(16, 4096, Pattern::Random), seed).gb_s()
}

const READS_GIVEN: &str = "the model's read_bytes_s (line 227)";
const WRITES_GIVEN: &str = "the model's write_bytes_s (line 227)";
/// DRAM's bandwidth was chosen to yield the ratio in the text.
const DRAM_GIVEN: &str =
    "the DRAM model's bandwidth follows from AEP's by the text's ratio (line 369)";

const CHOSEN: &str = "threads 1, 2, 4, 8, 16 and sizes to 4 MiB (chosen)";

pub(super) fn figure3(settings: &Settings) -> Outcome {
    let points = reads(Pattern::Random, settings.seed);
    let top = peak(&points);
    let dram = dram_peak(settings.seed, Group::readers);
    let checks = vec![
        Check::about("peak", "GB/s", 7.0, top, 15).given(READS_GIVEN),
        share("256 B blocks, of the peak", Side::AtLeast, 90.0, best(&points, 256) / top),
        share(
            "64 B blocks, of the peak: a quarter of each unit is used",
            Side::AtMost,
            30.0,
            best(&points, 64) / top,
        ),
        declines(&points),
        Check::at_least("DRAM", "GB/s", 10.0, dram).given(DRAM_GIVEN),
        Check::about("DRAM / AEP", "", 3.0, dram / top, 25).given(DRAM_GIVEN),
        Check::limit("AEP is far above a P3700", "GB/s", Side::Above, P3700_GB_S[0], top)
            .given(READS_GIVEN),
    ];
    let scenario = scenario(&[
        CHOSEN,
        "how far large blocks fall is in the figure only; the text calls it limited. Tables 3 \
         and 4 leave two causes: lines read again (ours, which takes the medium's time) or a \
         processor that stalls (which would not lower what many threads reach)",
    ]);
    Outcome { scenario, checks, drawings: drawings("Random reads", &points, 7.0) }
}

fn reads(pattern: Pattern, seed: u64) -> Vec<Point> {
    grid(&AEP, &SIZES, seed, |threads, bytes| Group::readers(threads, bytes, pattern))
}

fn writes(pattern: Pattern, seed: u64) -> Vec<Point> {
    grid(&AEP, &SIZES, seed, |threads, bytes| Group::writers(threads, bytes, pattern))
}

pub(super) fn figure4(settings: &Settings) -> Outcome {
    let points = writes(Pattern::Random, settings.seed);
    let top = peak(&points);
    let dram = dram_peak(settings.seed, Group::writers);
    let checks = vec![
        Check::about("peak", "GB/s", 2.0, top, 15).given(WRITES_GIVEN),
        share("256 B blocks, of the peak", Side::AtLeast, 90.0, best(&points, 256) / top),
        share("64 B blocks, of the peak", Side::AtMost, 30.0, best(&points, 64) / top),
        declines(&points),
        Check::at_least("DRAM", "GB/s", 10.0, dram).given(DRAM_GIVEN),
        Check::about("DRAM / AEP", "", 6.0, dram / top, 25).given(DRAM_GIVEN),
        Check::limit("AEP is far above a P3700", "GB/s", Side::Above, P3700_GB_S[1], top)
            .given(WRITES_GIVEN),
    ];
    let scenario = scenario(&[
        CHOSEN,
        "one fence behind each block and none within: lines that are stored late tear their \
         units, which then are written twice, each time after a read",
    ]);
    Outcome { scenario, checks, drawings: drawings("Random writes", &points, 2.0) }
}

pub(super) fn figure6(settings: &Settings) -> Outcome {
    let points = reads(Pattern::Sequential, settings.seed);
    let random = alone(&AEP, Group::readers(16, 64, Pattern::Random), settings.seed).gb_s();
    let small = best(&points, 64);
    let checks = vec![
        Check::about("peak", "GB/s", 7.0, peak(&points), 15).given(READS_GIVEN),
        share("64 B blocks, of 7 GB/s", Side::AtLeast, 90.0, small / 7.0),
        Check::limit(
            "64 B blocks in sequence over random",
            "times",
            Side::AtLeast,
            3.0,
            small / random,
        ),
        declines(&points),
    ];
    let scenario = scenario(&[CHOSEN]);
    Outcome { scenario, checks, drawings: drawings("Sequential reads", &points, 7.0) }
}

pub(super) fn figure7(settings: &Settings) -> Outcome {
    let points = writes(Pattern::Sequential, settings.seed);
    let group = Group::writers(16, 64, Pattern::Sequential);
    let scene = run(&AEP, &[group], settings.seed);
    let stores = scene.groups[0].bytes as f64 / 64.0;
    let units = scene.counts.units_written as f64 / stores;
    let checks = vec![
        Check::about("peak", "GB/s", 2.0, peak(&points), 15).given(WRITES_GIVEN),
        share("64 B blocks, of 2 GB/s", Side::AtLeast, 90.0, best(&points, 64) / 2.0),
        Check::about("media units written per store of 64 B", "", 0.25, units, 1),
        declines(&points),
    ];
    let scenario = scenario(&[CHOSEN, "without a fence within the blocks, as in figure 4"]);
    Outcome { scenario, checks, drawings: drawings("Sequential writes", &points, 2.0) }
}
